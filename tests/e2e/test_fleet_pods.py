"""Pods that a node swallows, and pods that a machine keeps which its cloud has stopped: fleet mode.

Played are the kubelet of the node that swallows pods (it says how they ended, and since when it is Ready) and
the cloud's switch. The pods' garbage collector is Kubernetes' own. The kubelet of the
machine that is stopped is a KWOK of its own, and dies with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from baremetal_site import ALONE, MetalPlane
from fleet_site import register
from test_fleet_mode import FleetSite

PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
SETS = "/apis/apps/v1/namespaces/default/statefulsets"
CONTAINERS = [{"name": "worker", "image": "worker"}]
MERGE = "application/merge-patch+json"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
POLICY = """\
apiVersion: noderecovery.dev/v1alpha1
kind: RecoveryPolicy
sources: [conditions, api]
limits: {budget: 2, cooldown: 0s, brake: 100%, brakePer: {}, budgetPer: {}}
rules:
  - name: swallows-pods
    match: {type: BlackHole}
    remedy: [{do: drain, within: 5m}, {do: replace, within: 5m}]
    probation: 1s
  - name: dead-node
    match: {type: Ready}
    after: 5s
    remedy: [{do: drain, within: 10m}, {do: replace, within: 5m}]
    probation: 1s
"""


class Pods(FleetSite):
    """A fleet whose pods a test makes, and lets fail."""

    policy = POLICY
    kubelet = "fake"

    def register(self, node: str, machine: str, provider_id: str, labels: dict[str, str]) -> None:
        register(self.plane, node, machine, provider_id, labels, f"boot-of-{machine}", self.kubelet)
        self.instances[node] = machine

    def ready_for(self, node: str, minutes: int) -> None:
        """Its kubelet says since when it is Ready."""
        self.until("it is Ready", lambda: self.is_ready(node))
        since = f"{datetime.now(UTC) - timedelta(minutes=minutes):%Y-%m-%dT%H:%M:%SZ}"
        self.ready_is(node, {"status": "True", "lastTransitionTime": since})

    def ready_is(self, node: str, said: dict[str, str]) -> None:
        condition = {"type": "Ready", **said}
        path, kind = f"/api/v1/nodes/{node}/status", "application/strategic-merge-patch+json"
        body = {"status": {"conditions": [condition]}}
        answer = self.plane.request("PATCH", path, body=body, content_type=kind, user="kubelet")
        assert answer.status == 200, answer.body

    def controller(self, name: str, node: str) -> dict[str, Any]:
        """A StatefulSet, as its pods name it; one of them runs on ``node``. Nobody controls any here."""
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": {"containers": CONTAINERS}}
        spec = {"serviceName": name, "selector": {"matchLabels": labels}, "template": template}
        made = self.plane.request("POST", SETS, body={"metadata": {"name": name}, "spec": spec})
        assert made.status == 201, made.body
        uid = made.body["metadata"]["uid"]
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name, "uid": uid, "controller": True}
        self.makes(f"{name}-0", node, owner)
        return owner

    def makes(self, name: str, node: str, owner: dict[str, Any]) -> None:
        """A pod of ``owner``, until KWOK says that it runs."""
        spec = {"nodeName": node, "containers": CONTAINERS}
        body = {"metadata": {"name": name, "ownerReferences": [owner]}, "spec": spec}
        assert self.plane.request("POST", PODS, body=body).status == 201
        self.until(f"{name} runs", lambda: self.of(name)["status"].get("phase") == "Running")

    def lost(self, node: str, owner: dict[str, Any], number: int) -> None:
        """A pod of ``owner`` that the kubelet of ``node`` rejects."""
        name = f"{owner['name']}-on-{node}-{number}"
        self.makes(name, node, owner)
        status = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no device"}
        path = f"{PODS}/{name}/status"
        answer = self.plane.request(
            "PATCH", path, body={"status": status}, content_type=MERGE, user="kubelet"
        )
        assert answer.status == 200, answer.body

    def runs_on(self, node: str, name: str) -> None:
        """A pod that nothing but an eviction ends."""
        spec = {
            "nodeName": node,
            "containers": CONTAINERS,
            "terminationGracePeriodSeconds": 2,
            "tolerations": [{"operator": "Exists"}],
        }
        body = {"metadata": {"name": name, "labels": {"app": name}}, "spec": spec}
        assert self.plane.request("POST", PODS, body=body).status == 201
        self.until("it runs", lambda: self.of(name)["status"]["phase"] == "Running")

    def holes(self) -> list[str]:
        """Whose record says that it swallows pods."""
        return [n for n, r in self.records().items() if "BlackHole" in str(r)]

    def there(self, pod: str) -> bool:
        return self.plane.request("GET", f"{PODS}/{pod}").status == 200

    def notes(self, node: str) -> list[str]:
        return list(self.plane.get(f"/api/v1/nodes/{node}")["metadata"].get("annotations", {}))

    def of(self, pod: str) -> Any:
        return self.plane.get(f"{PODS}/{pod}")

    def taints(self, node: str) -> list[str]:
        return [taint["key"] for taint in self.plane.get(f"/api/v1/nodes/{node}")["spec"].get("taints", ())]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pods]:
    folder = tmp_path_factory.mktemp("pods")
    (folder / "plane").mkdir()
    with MetalPlane(folder / "plane") as plane, Pods(plane, folder / "site") as site:
        site.clear()
        site.installed()
        yield site


def test_a_node_that_swallows_pods_is_replaced_and_one_that_nearly_does_is_left_alone(fleet: Pods) -> None:
    fleet.clear()
    hole, young, one_application, well = fleet.group(4)
    for node, minutes in ((hole, 11), (young, 8), (one_application, 11)):
        fleet.ready_for(node, minutes)
    first, second = (fleet.controller(name, well) for name in ("first", "second"))

    def lose(number: int) -> None:
        owner = (first, second)[number % 2]
        fleet.lost(hole, owner, number)
        fleet.lost(young, owner, number)
        fleet.lost(one_application, first, number)

    lose(0)
    began = time.monotonic()  # the controller has seen the first by now, or sees it at once
    for number in range(1, 4):
        lose(number)
    fleet.until("the fifth comes a minute later", lambda: time.monotonic() - began > 62, 90)
    assert fleet.holes() == [], "four are no five"
    lose(4)
    fleet.until("the node is drained and replaced", lambda: fleet.phase(hole) == "recovered", 120)
    assert fleet.marked() == [fleet.instances[hole]]
    assert fleet.holes() == [hole], "Ready for eight minutes, and one application: neither counts"
    told = [x for x in fleet.logs().splitlines() if f"{hole}: 5 pods of 2 controllers were lost" in x]
    assert told
    assert all(x.endswith("; 2 of the controllers run on other nodes") for x in told)
    assert fleet.refused() == []


def test_pods_on_a_machine_that_its_cloud_has_stopped_are_given_up(
    fleet: Pods, tell: Callable[[str], None]
) -> None:
    fleet.clear()
    fleet.plane.start_again(ALONE)
    fleet.kubelet = ALONE
    (dead,) = fleet.group(1)
    fleet.kubelet = "fake"
    fleet.group(1)
    groups, fleet.groups = list(fleet.groups), []
    for name in ("worker", "kept"):
        fleet.runs_on(dead, name)
    budget = {"selector": {"matchLabels": {"app": "kept"}}, "maxUnavailable": 0}
    body = {"metadata": {"name": "kept"}, "spec": budget}
    assert fleet.plane.request("POST", BUDGETS, body=body).status == 201

    fleet.plane.kill(ALONE)
    fleet.aws.client("ec2").stop_instances(InstanceIds=[fleet.instances[dead]])
    fleet.until("its pods are given up", lambda: OUT_OF_SERVICE in fleet.taints(dead), 120)
    assert "noderecovery.dev/out-of-service-by" in fleet.notes(dead)
    fleet.until("the pods' garbage collector has the one that was evicted", lambda: not fleet.there("worker"))
    fleet.until("the taint is off again", lambda: OUT_OF_SERVICE not in fleet.taints(dead))
    assert fleet.there("kept"), "its budget keeps it, and so the drain goes on"
    assert fleet.marked() == []

    fleet.plane.request("DELETE", f"{BUDGETS}/kept")
    fleet.until("its group is asked for another machine", fleet.marked, 120)
    fleet.groups += groups
    fleet.until("it is recovered", lambda: fleet.phase(dead) == "recovered", 120)
    assert fleet.marked() == [fleet.instances[dead]]
    assert fleet.refused() == []
    tell("A machine that its cloud has stopped: its stuck pods were given up, and it was replaced, once")
