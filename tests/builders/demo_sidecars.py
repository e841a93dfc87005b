"""Sidecars of the demo that no process stands behind."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TypeVar

import pytest
from recovery_demo import processes

S = TypeVar("S", bound="Sidecar")


NO_CLOUD = {"aws": "http://127.0.0.1:1", "sidecar_aws": "http://127.0.0.1:1"}
"""For a place on AWS: nobody answers there."""


def arguments(folder: Path, kubernetes: str, nodes: int, **more: object) -> argparse.Namespace:
    """What a place of the demo is given on its command line. ``kubernetes``: the API server's URL."""
    (folder / "logs").mkdir()
    return argparse.Namespace(
        kubernetes=kubernetes,
        kubeconfig=folder / "kubeconfig",
        policy=folder / "policy.yaml",
        lease="6s",
        folder=folder,
        nodes=nodes,
        **more,
    )


class Sidecar:
    """A process that never was."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment
        self.pid = 4711
        self.killed = False

    def poll(self) -> int | None:
        return -9 if self.killed else None

    def kill(self) -> None:
        self.killed = True


def pretended(monkeypatch: pytest.MonkeyPatch, kind: type[S]) -> list[S]:
    """The sidecars that are started from now on."""
    started: list[S] = []

    def start(_: object, *, environment: dict[str, str], log: Path) -> S:
        log.touch()
        started.append(kind(environment))
        return started[-1]

    monkeypatch.setattr(processes, "start", start)
    monkeypatch.setattr(processes, "kill", kind.kill)
    monkeypatch.setattr(processes, "stop", lambda sidecars: None)
    return started
