"""The demo's Azure: what the simulator makes of requests that reach the fake, and what it tells of them."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from recovery_demo import manifests, on_azure, run
from recovery_demo.kubelets import Machine
from recovery_demo.on_azure import OnAzure
from recovery_testkit.arm import FakeArm
from recovery_testkit.kubernetes import KubernetesServer, KubernetesStore

from tests.builders.demo_sidecars import Sidecar, arguments, pretended

API = "?api-version=2024-07-01"


class Place(OnAzure):
    """The site with what the test needs to see of it."""

    sidecars: list[Sidecar]

    def machine(self, name: str) -> Machine:
        return self._machines[name]

    def node(self, name: str) -> dict[str, Any]:
        return self._api.get(f"/api/v1/nodes/{name}")

    @property
    def arm(self) -> FakeArm:
        return self._arm

    def host(self, name: str) -> int:
        return self._arm.instance(self.machine(name).instance).host

    def ask(self, path: str, body: bytes = b"") -> int:
        """POST to Azure, as anybody with a token."""
        headers = {"Authorization": "Bearer a-token", "Content-Type": "application/json"}
        request = urllib.request.Request(self._arm.url + path, body, headers, method="POST")  # noqa: S310
        with urllib.request.urlopen(request) as answer:  # noqa: S310
            return int(answer.status)

    def look(self) -> None:
        """Look until nothing more is due: all waits are 0 here."""
        for _ in range(4):
            self._tick()

    def carry_out(self, name: str, verb: str) -> None:
        """An operation from its acceptance to the detector's first look after the boot."""
        self._arm.hold()
        assert self.ask(f"{self.machine(name).instance}/{verb}{API}") == 202
        self.look()
        self._arm.release()
        self.look()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    sidecars = pretended(monkeypatch, Sidecar)
    for wait in ("OFF_AFTER", "KUBELET_IN", "CHECKED_IN"):
        monkeypatch.setattr(on_azure, wait, 0.0)
    with KubernetesServer(KubernetesStore()) as server:
        found = Place(arguments(tmp_path, server.url, 2))
        found.sidecars = sidecars
        try:
            found.begin()
            yield found
        finally:
            found.end()


def printed(capsys: pytest.CaptureFixture[str], did: str) -> list[dict[str, Any]]:
    """The simulator's lines of one kind since the last look at them."""
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [line for line in lines if line["did"] == did]


def ready(node: dict[str, Any]) -> str:
    return str(node["status"]["conditions"][0]["status"])


def test_a_node_is_what_azure_says_of_its_machine(place: Place) -> None:
    node = place.node("workers000001")
    machine = place.arm.instance(place.machine("workers000001").instance)
    assert node["spec"]["providerID"] == f"azure://{machine.id}"
    assert machine.id.endswith("/virtualMachineScaleSets/workers/virtualMachines/1")
    info = node["status"]["nodeInfo"]
    assert (info["systemUUID"], info["bootID"]) == (machine.vm_id, machine.boot_id)
    assert node["status"]["capacity"]["nvidia.com/gpu"] == "8"


def test_a_sidecar_is_told_where_azure_is_and_doctor_may_be_too(place: Place, tmp_path: Path) -> None:
    environment = place.sidecars[0].environment
    left = dict(x.split("=", 1) for x in (tmp_path / on_azure.SETTINGS).read_text().splitlines())
    assert left.items() <= environment.items()
    assert left["AZURE_CLUSTER_ID"].endswith("/virtualMachineScaleSets/workers")
    assert {"AZURE_CLIENT_ID", "IDENTITY_ENDPOINT", "AZURE_RESOURCE_MANAGER_ENDPOINT"} <= set(left)


def test_a_fault_stays_over_a_reimage_and_not_over_a_redeploy(place: Place) -> None:
    machine, before = place.machine("workers000000"), place.node("workers000000")
    place._break(machine, "gpu-count-bad")
    host = place.host("workers000000")

    place.carry_out("workers000000", "reimage")
    assert machine.detector.body == manifests.page("gpu-count-bad")
    assert place.host("workers000000") == host

    place.carry_out("workers000000", "redeploy")
    assert machine.detector.body == manifests.page("gpu-healthy")
    assert place.host("workers000000") != host

    after = place.node("workers000000")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"]["providerID"] == before["spec"]["providerID"]
    assert after["status"]["nodeInfo"]["bootID"] == place.arm.instance(machine.instance).boot_id


def test_a_machine_is_off_while_azure_works_on_it(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    name = "workers000000"
    first, boot = place.machine(name).sidecar, place.node(name)["status"]["nodeInfo"]["bootID"]
    place.arm.hold()
    place.ask(f"{place.machine(name).instance}/reimage{API}")
    place.look()
    assert (ready(place.node(name)), place.machine(name).sidecar) == ("Unknown", None)
    assert isinstance(first, Sidecar)
    assert first.killed
    assert [x["verb"] for x in printed(capsys, "off")] == ["reimage"]

    place.arm.release()
    place.look()
    assert ready(place.node(name)) == "True"
    assert place.node(name)["status"]["nodeInfo"]["bootID"] != boot
    assert place.machine(name).sidecar is place.sidecars[-1]
    assert place.sidecars[-1].environment["NODE_NAME"] == name
    assert not any(s.killed for s in place.sidecars if s.environment["NODE_NAME"] != name)


def test_a_machine_that_boots_before_it_was_seen_to_go_off_has_been_off(place: Place) -> None:
    first = place.machine("workers000000").sidecar
    place.ask(f"{place.machine('workers000000').instance}/reimage{API}")
    place.arm.finish()
    place.look()
    assert isinstance(first, Sidecar)
    assert first.killed
    assert place.machine("workers000000").sidecar is place.sidecars[-1]
    assert len(place.sidecars) == 3


def test_each_request_for_a_change_is_told_once_and_of_whom(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.carry_out("workers000001", "redeploy")
    place.look()
    assert [(x["verb"], x["node"]) for x in printed(capsys, "asked")] == [("redeploy", "workers000001")]
    scale_set = place.machine("workers000001").instance.rpartition("/virtualMachines/")[0]
    place.ask(f"{scale_set}/restart{API}")
    place.look()
    assert [(x["verb"], x["node"]) for x in printed(capsys, "asked")] == [("restart", "")]


def test_metrics_are_told_as_they_were_stored(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    dimensions = {"ClusterName": "demo", "Provider": "azure", "Action": "reimage", "Outcome": "started"}
    base = {
        "metric": "RecoveryAction",
        "namespace": "NodeRecovery",
        "dimNames": list(dimensions),
        "series": [{"dimValues": list(dimensions.values()), "min": 1, "max": 1, "sum": 1, "count": 1}],
    }
    body = {"time": datetime.now(UTC).isoformat(), "data": {"baseData": base}}
    scale_set = place.machine("workers000000").instance.rpartition("/virtualMachines/")[0]
    assert place.ask(f"{scale_set}/metrics", json.dumps(body).encode()) == 200
    place.look()
    (line,) = printed(capsys, "metrics")
    assert line["points"] == [
        {
            "metric": "RecoveryAction",
            "value": 1.0,
            "dimensions": ["reimage", "started"],
            "namespace": "NodeRecovery",
            "subject": scale_set,
        }
    ]


# ---------------------------------------------------------------- before it begins


def test_without_the_sdk_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "find_spec", lambda name: None)
    assert run.run(fast=True, keep=False, cloud="azure") == run.USAGE
    assert "pip install -e '.[azure]'" in capsys.readouterr().err


def test_a_cloud_without_a_story_is_refused_with_those_that_have_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run.run(fast=True, keep=False, cloud="gcp") == run.USAGE
    assert capsys.readouterr().err == (
        "There is no demo of gcp. Try one of CLOUD=aws, CLOUD=aws-gpu, CLOUD=azure, CLOUD=baremetal.\n"
    )


def test_no_module_that_is_missing_is_an_error() -> None:
    assert run._installed("recovery")
    assert not run._installed("no_such_package.of_this_name")
