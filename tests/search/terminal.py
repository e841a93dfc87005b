"""A person's ``node-recovery release`` and ``approve`` in the world of a history: the real commands on the API in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from click.testing import CliRunner
from recovery_testkit.stage import StoreTransport

from recovery import cli
from recovery.kube.kubeconfig import Place

if TYPE_CHECKING:
    from tests.search.world import World

PERSON = "a person"


class _Reach(StoreTransport):
    namespace = "default"
    place = Place("here", "127.0.0.1:6443")

    def __init__(self, world: World) -> None:
        super().__init__(world.store, PERSON)

    def request(self, method: str, path: str, **more: Any) -> Any:
        if "/proxy/" in path:
            from recovery_testkit.kubestatus import Response

            return Response(503, {}, {"kind": "Status", "message": "connection refused"})
        return super().request(method, path, **more)


def release(world: World, node: str) -> int:
    """The command's exit code."""
    return _typed(world, "release", node, "--yes")


def approve(world: World, reason: str) -> int:
    return _typed(world, "approve", reason, "--yes")


def _typed(world: World, *words: str) -> int:
    with (
        patch("recovery.console.api.KubernetesTransport", lambda clock, target: _Reach(world)),
        patch("recovery.console.api.SystemClock", lambda: world.clock),
        patch("getpass.getuser", lambda: PERSON),
        patch("recovery.console.wanted_back.PATIENCE", 0.0),  # the world does not wait for a person
        CliRunner().isolation(),
    ):
        return cli.main(words)
