"""From sidecars to fleet mode and back by ``helm upgrade``, on a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from plane import Plane
from test_deploy import CHART, CONCLUDER, CONTROLLER, NAMESPACE, run
from toolbox import program

RECORDS = "/apis/noderecovery.dev/v1alpha1/noderecoveries"
DAEMONSETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
DETECTOR = "node-problem-detector"


class Release:
    """The chart in a cluster that has no node: what is there, and nothing that runs."""

    def __init__(self, plane: Plane, home: Path) -> None:
        self.plane, self.home = plane, home

    def helm(self, verb: str, *words: str) -> str:
        place = ("--namespace", NAMESPACE, "--kubeconfig", self.plane.kubeconfig("admin"))
        return run(program("helm"), verb, "node-recovery", *words, *place, home=self.home)

    def upgrade(self, *words: str) -> str:
        return self.helm("upgrade", str(CHART), "--install", "--create-namespace", *words)

    def goes_over(self, mode: str) -> str:
        return self.upgrade("--reset-then-reuse-values", "--set", f"mode={mode}")

    def there(self, kind: str, name: str, namespace: str = "") -> bool:
        words = ("-n", namespace) if namespace else ()
        return bool(self.plane.kubectl("get", kind, name, *words, "--ignore-not-found", "-o", "name").strip())

    def containers(self) -> list[str]:
        pod = self.plane.get(f"{DAEMONSETS}/{DETECTOR}")["spec"]["template"]["spec"]
        return [c["name"] for c in pod["containers"]]


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    folder = tmp_path_factory.mktemp("upgrade")
    (folder / "plane").mkdir()
    with Plane(folder / "plane") as plane:
        yield Release(plane, folder)


def test_helm_goes_over_and_back_and_the_records_stay(release: Release) -> None:
    plane = release.plane
    release.upgrade("--set", "settings.CLUSTER_NAME=training,settings.ENABLE_RECOVERY=true")
    plane.kubectl("wait", "--for=condition=Established", "crd/noderecoveries.noderecovery.dev")
    detector = plane.get(f"{DAEMONSETS}/{DETECTOR}")["metadata"]["uid"]
    record: dict[str, Any] = {
        "apiVersion": "noderecovery.dev/v1alpha1",
        "kind": "NodeRecovery",
        "metadata": {"name": "of-before"},
        "status": {"version": 1, "machine": {"provider": "aws", "id": "i-1"}, "phase": "handedOver"},
    }
    record["status"]["phaseSince"] = "2026-11-21T10:15:00Z"
    made = plane.request("POST", RECORDS, body=record)
    assert made.status == 201, made.body

    said = release.goes_over("fleet")
    assert "Mode fleet" in said
    assert release.containers() == [DETECTOR]
    assert release.there("deployment", CONTROLLER, CONTROLLER)
    settings = plane.get(f"/api/v1/namespaces/{CONTROLLER}/configmaps/node-recovery")["data"]
    assert (settings["CLUSTER_NAME"], settings["ENABLE_RECOVERY"]) == ("training", "true")
    for kind in ("clusterrole", "clusterrolebinding"):
        assert not release.there(kind, "node-recovery"), "the agents' rights"
    assert not release.there("validatingadmissionpolicy", "node-recovery-nodes")
    plane.until("the concluder's place is gone", lambda: not release.there("namespace", CONCLUDER), 60)

    assert "Mode sidecar" in release.goes_over("sidecar")
    assert sorted(release.containers()) == [DETECTOR, "node-recovery"]
    assert release.there("deployment", CONCLUDER, CONCLUDER)
    assert not release.there("clusterrole", CONTROLLER)
    plane.until("the controller's place is gone", lambda: not release.there("namespace", CONTROLLER), 60)

    assert plane.get(f"{DAEMONSETS}/{DETECTOR}")["metadata"]["uid"] == detector, "changed, and not made anew"
    assert plane.get(f"{RECORDS}/of-before")["metadata"]["uid"] == made.body["metadata"]["uid"]
