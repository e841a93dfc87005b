"""The demo's GPUs on AWS: what the simulator makes of an XID and of a reboot that EC2 was asked for."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from recovery_demo import manifests, on_aws_gpu
from recovery_demo.group import Member
from recovery_demo.kubelets import Machine
from recovery_demo.on_aws_gpu import OnAwsGpu
from recovery_testkit.kubernetes import KubernetesServer, KubernetesStore

from tests.builders.demo_sidecars import NO_CLOUD, Sidecar, arguments, pretended

NAME = "ip-10-0-1-5"


class Members:
    """An Auto Scaling group in which nothing is ever Unhealthy."""

    def members(self) -> list[Member]:
        return [Member(f"i-{n}", "us-west-2a", healthy=True) for n in (1, 2)]

    def create(self, _: int) -> list[Member]:
        return self.members()


class Place(OnAwsGpu):
    """The site with what the test needs to see of it."""

    sidecars: list[Sidecar]

    def __init__(self, asked: argparse.Namespace) -> None:
        super().__init__(asked)
        self._group = Members()  # type: ignore[assignment]

    def machine(self, name: str = NAME) -> Machine:
        return self._machines[name]

    def node(self, name: str = NAME) -> dict[str, Any]:
        return self._api.get(f"/api/v1/nodes/{name}")

    def shows(self, name: str = NAME) -> bytes:
        return self.machine(name).detector.body

    def look(self) -> None:
        """Look until nothing more is due: all waits are 0 here."""
        for _ in range(4):
            self._tick()

    def says_ready(self, name: str = NAME) -> None:
        self._ready(self.machine(name))
        self.look()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    sidecars = pretended(monkeypatch, Sidecar)
    for wait in ("SHOWN_FOR", "OFF_AFTER", "BACK_IN", "AGAIN_IN"):
        monkeypatch.setattr(on_aws_gpu, wait, 0.0)
    with KubernetesServer(KubernetesStore()) as server:
        found = Place(arguments(tmp_path, server.url, 2, **NO_CLOUD))
        found.sidecars = sidecars
        try:
            found.begin()
            yield found
        finally:
            found.end()


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [json.loads(line)["did"] for line in capsys.readouterr().out.splitlines()]


def test_a_node_has_eight_gpus_of_a_p5(place: Place) -> None:
    node = place.node()
    assert node["metadata"]["labels"]["node.kubernetes.io/instance-type"] == "p5.48xlarge"
    assert node["status"]["capacity"]["nvidia.com/gpu"] == "8"
    assert node["spec"]["providerID"] == "aws:///us-west-2a/i-1"
    assert "CLOUDWATCH_NAMESPACE" not in place.sidecars[0].environment


def test_an_xid_is_on_the_page_until_the_detector_is_started_anew(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.do({"fault": NAME, "page": "xid-79"})
    assert place.shows() == manifests.page("xid-79")
    place.look()
    assert place.shows() == manifests.page("kernel-healthy")
    assert printed(capsys)[-2:] == ["fault", "restarted"]


def test_a_reboot_is_another_boot_of_the_same_node_and_the_xid_comes_back(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.do({"fault": NAME, "page": "xid-79"})
    place.look()
    before, sidecar = place.node(), place.machine().sidecar
    place.do({"reboot": "i-1"})
    place.look()
    after = place.node()
    assert isinstance(sidecar, Sidecar)
    assert sidecar.killed
    assert after["status"]["nodeInfo"]["bootID"] != before["status"]["nodeInfo"]["bootID"]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert place.shows() == manifests.page("kernel-healthy")
    assert place.sidecars[-1].environment["NODE_NAME"] == NAME

    place.says_ready()
    assert place.shows() == manifests.page("xid-79")
    assert printed(capsys)[-4:] == ["off", "back", "ready", "again"]


def test_the_sidecar_is_dead_and_the_node_silent_while_the_machine_is_off(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_aws_gpu, "BACK_IN", 60.0)
    place.do({"reboot": "i-1"})
    place.look()
    assert place.machine().sidecar is None
    assert place.node()["status"]["conditions"][0]["status"] == "Unknown"
    assert not any(s.killed for s in place.sidecars if s.environment["NODE_NAME"] != NAME)


def test_a_node_that_was_rebooted_without_an_xid_stays_well(place: Place) -> None:
    place.do({"reboot": "i-2"})
    place.look()
    place.says_ready("ip-10-0-1-17")
    assert place.shows("ip-10-0-1-17") == manifests.page("kernel-healthy")
