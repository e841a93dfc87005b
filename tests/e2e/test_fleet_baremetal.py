"""One controller for all nodes, on bare metal: ``deploy/fleet`` with Redfish, and emulated BMCs."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from baremetal_site import ALONE, MERGE, RACK, BareMetalSite, MetalPlane
from fleet_site import DEPLOY, any_right, edit, register, states, uncomment
from history import THIEF, Request
from kubelets import Container, mounted, shipped
from recovery_testkit.metal3 import baremetal_host, baremetal_host_crd
from test_baremetal import OUT_OF_SERVICE, leaves, overdue, pod, ready, there
from test_fleet_mode import ACCOUNT, FLEET, LEASE, granted

from recovery.agent.fleet.nodes import BOOTS_IN

REDFISH = "components/redfish"
POLICY = """\
apiVersion: noderecovery.dev/v1alpha1
kind: RecoveryPolicy
sources: [conditions]
limits: {budget: 1, cooldown: 0s, brake: 100%, brakePer: {}, budgetPer: {}}
rules:
  - name: gpu
    match: {type: GpuCount, reason: GpuCountBad}
    remedy: [{do: drain, within: 1m}, {do: reboot, within: 10m}]
    probation: 5s
  - name: dead-node
    match: {type: Ready}
    after: 30s
    remedy: [{do: drain, within: 1m, then: force}, {do: reboot, within: 10m}]
    probation: 5s
"""
GPUS = {"nvidia.com/gpu.present": "true"}
"""A label of nodes that the controller stays off."""
BROKEN, WELL = ("GpuCount", "True", "GpuCountBad"), ("GpuCount", "False", "GpuCountGood")


class MetalFleet(BareMetalSite):
    """Machines of bare metal that have no agent. The controller runs on the node of the control plane."""

    own = FLEET
    _stated = 0.0

    def __init__(self, plane: MetalPlane, folder: Path) -> None:
        super().__init__(plane, folder)
        self.dark = {f"dark-{i}": str(uuid.uuid4()) for i in range(16)}
        """Node -> UUID, of a rack whose BMCs take a connection and never answer."""
        self._hole = socket.create_server(("127.0.0.1", 0), backlog=1000)

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._hole.close()

    def _inventory(self) -> str:
        found = yaml.safe_load(super()._inventory())
        url = f"https://127.0.0.1:{self._hole.getsockname()[1]}"
        found["machines"] += [
            {"systemUUID": unique, "node": node, "address": url, "credentials": RACK}
            for node, unique in self.dark.items()
        ]
        return str(yaml.safe_dump(found))

    def install(self, *parts: str, rule: str = "", **settings: str) -> None:
        (part,) = parts
        if self._installed == part:
            return
        copy = self.folder / "deploy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(DEPLOY, copy)
        place = copy / "fleet"
        edit(place / "settings.env", "ENABLE_RECOVERY=true")
        (place / "components" / "baremetal" / "policy.yaml").write_text(POLICY)
        (place / REDFISH / "inventory.yaml").write_text(self._inventory())
        uncomment(place / "kustomization.yaml", part)
        self.credentials()
        self.plane.apply(place)
        self._installed = part

    def join(self, *nodes: str, kubelet: str = "fake", provider_id: str = "") -> None:
        if kubelet == ALONE:
            self.plane.start_again(ALONE)
        for node in nodes:
            self.nodes[node] = self.uuids[len(self.nodes)]
            self._boot_id(node).parent.mkdir(exist_ok=True)
            self._boot_id(node).write_text(f"first boot of {node}\n")
            register(self.plane, node, self.nodes[node], provider_id, GPUS, self.boot_id(node), kubelet)
        self.until("they are Ready", lambda: all(ready(self, node) for node in nodes))

    def states(self, node: str, condition: tuple[str, str, str]) -> None:
        assert states(self.plane, node, *condition) == 200
        self._stated = time.monotonic()

    def boots(self, node: str, kubelet: str = "fake") -> None:
        """No machine boots sooner: what was stated is of the boot before."""
        self.until("it boots", lambda: time.monotonic() - self._stated > BOOTS_IN.total_seconds())
        super().boots(node, kubelet)

    def replicas(self) -> list[Container]:
        return [c for c in self.kubelets.all() if FLEET in c.pod and c.running]

    def holder(self) -> str:
        found = self.plane.request("GET", LEASE)
        return str(found.body["spec"]["holderIdentity"]) if found.status == 200 else ""

    def leader(self) -> Container:
        """The replica whose pod's name is in the Lease, once there is one: on a busy machine it may lapse."""
        found: list[Container] = []

        def leads() -> bool:
            found[:] = [c for c in self.replicas() if c.pod in self.holder()]
            return bool(found)

        self.until("a replica of now leads", leads)
        return found[0]

    def asked(self) -> list[Request]:
        return [r for r in self.audit.requests() if r.user == ACCOUNT and r.agent != THIEF]

    def proved(self, node: str, *more: tuple[str, str, str]) -> None:
        """It is recovered, with no right that is not granted (but ``more``), and nothing is left behind."""
        self.ends(node, "recovered")
        assert self.taints(node) == []
        assert "unschedulable" not in self.node(node)["spec"]
        assert [r for r in self.asked() if r.status == 403] == []
        assert {(r.verb, r.group, r.resource) for r in self.asked() if r.status < 400} <= granted() | {*more}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MetalFleet]:
    with (
        MetalPlane(tmp_path_factory.mktemp("plane")) as plane,
        MetalFleet(plane, tmp_path_factory.mktemp("metal") / "site") as site,
    ):
        yield site


@pytest.fixture
def metal(whole: MetalFleet) -> MetalFleet:
    whole.clear()
    whole.install(REDFISH)
    whole.leader()
    return whole


def test_a_node_that_lives_is_drained_and_its_power_is_cycled_once(metal: MetalFleet) -> None:
    sick, well = "metal-0", "metal-1"
    metal.join(sick, well)
    pod(metal, "batch", sick)
    metal.states(sick, BROKEN)
    metal.until("its BMC is asked", metal.resets)
    assert not there(metal, "batch"), "drained before"
    metal.bmc.release()
    metal.boots(sick)
    metal.states(sick, WELL)
    metal.proved(sick)
    assert metal.resets() == [metal.nodes[sick]]
    assert well not in metal.records()


def test_a_dead_machine_that_is_off_gives_up_its_pods_and_is_switched_on_once(
    metal: MetalFleet, tell: Callable[[str], None]
) -> None:
    dead = "metal-0"
    metal.join("metal-1", "metal-2")
    metal.join(dead, kubelet=ALONE)
    pod(metal, "worker", dead)
    metal.power_fails(dead)
    metal.hangs(dead)
    metal.until("Kubernetes misses it", lambda: not ready(metal, dead))
    metal.until("it is evicted", lambda: leaves(metal, "worker"))
    metal.until("its time to end is over", lambda: overdue(metal, "worker"))
    metal.until("its pods are given up", lambda: OUT_OF_SERVICE in metal.taints(dead))
    metal.until("the pods' garbage collector has them", lambda: not there(metal, "worker"))
    metal.until("it is switched on", metal.resets)
    metal.bmc.release()
    metal.until("it has power", lambda: metal.bmc.power(metal.nodes[dead]) == "On")
    metal.boots(dead, kubelet=ALONE)
    metal.proved(dead)
    assert metal.resets() == [metal.nodes[dead]]
    tell("  fleet mode: a dead machine of bare metal gave up its pods, and was switched on, once")


def test_a_leader_that_is_killed_after_a_reset_is_followed_by_one_that_asks_for_none(
    metal: MetalFleet,
) -> None:
    sick = "metal-0"
    metal.join(sick, "metal-1")
    metal.states(sick, BROKEN)
    metal.until("its BMC is asked", metal.resets)
    leader, before = metal.leader(), metal.holder()
    metal.kubelets.kill(leader)
    metal.until("another leads", lambda: metal.holder() not in ("", before))
    metal.bmc.release()
    metal.boots(sick)
    metal.states(sick, WELL)
    metal.proved(sick)
    assert metal.resets() == [metal.nodes[sick]]


def test_a_rack_whose_bmcs_do_not_answer_keeps_no_other_node_waiting(
    metal: MetalFleet, tell: Callable[[str], None]
) -> None:
    sick = "metal-0"
    metal.join(sick, "metal-1")
    for node, unique in metal.dark.items():
        register(metal.plane, node, unique, "", GPUS, f"boot of {node}", kubelet="nobody")
        metal.states(node, ("Ready", "True", "KubeletReady"))
    metal.until("they are seen", lambda: all(ready(metal, node) for node in metal.dark))
    for node in metal.dark:
        metal.states(node, ("Ready", "Unknown", "NodeStatusUnknown"))
    in_hand = ("waiting", "recovering")
    metal.until("they are treated", lambda: all(metal.phase(node) in in_hand for node in metal.dark))
    began = time.monotonic()
    metal.states(sick, BROKEN)
    metal.until("it is cordoned", lambda: metal.node(sick)["spec"].get("unschedulable"))
    took = time.monotonic() - began
    metal.until("its BMC is asked", metal.resets)
    dark = f"{len(metal.dark)} dead machines whose BMCs do not answer"
    tell(f"  fleet mode: beside {dark}, a node was cordoned in {took:.1f} s")


def test_doctor_in_its_pod_names_the_nodes_that_the_inventory_lacks(metal: MetalFleet) -> None:
    metal.join("metal-0", "metal-1")
    register(metal.plane, "stranger", str(uuid.uuid4()), "", GPUS, "boot of stranger", kubelet="nobody")
    leader = metal.leader()
    command = mounted(leader.folder / "secrets", [shipped()[0], "doctor", "-o", "json"])
    told = subprocess.run(command, env=leader.environ, check=False, capture_output=True, text=True)  # noqa: S603
    (found,) = [f for f in json.loads(told.stdout)["findings"] if "cannot reboot" in f["sentence"]]
    assert found["sentence"].startswith(
        "it cannot reboot 2 of 4 nodes: infra-0, stranger; of infra-0: nothing says where the BMC of infra-0"
    )
    assert (found["ok"], told.returncode) == (False, 1)


HOSTS = "/apis/metal3.io/v1alpha1/namespaces/metal3/baremetalhosts"
"""Metal3's controller is played here: it takes the annotation off once the power is off."""


def test_metal3_is_asked_by_one_annotation_and_the_controllers_token_changes_nothing_else_of_a_host(
    whole: MetalFleet,
) -> None:
    whole.clear()
    whole.install("components/metal3")
    plane, sick = whole.plane, "metal-0"
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert plane.request("POST", crds, body=baremetal_host_crd()).status == 201
    assert plane.request("POST", "/api/v1/namespaces", body={"metadata": {"name": "metal3"}}).status == 201
    host = baremetal_host("rack-1", consumer="workers-abc")
    whole.until("hosts are served", lambda: plane.request("POST", HOSTS, body=host).status == 201)
    at = f"{HOSTS}/rack-1"
    body = plane.get(at) | {"status": host["status"]}
    assert plane.request("PUT", f"{at}/status", body=body).status == 200
    whole.leader()
    whole.join(sick, provider_id="metal3://metal3/rack-1/workers-abc")
    whole.states(sick, BROKEN)

    def order() -> str:
        return str((plane.get(at)["metadata"].get("annotations") or {}).get("reboot.metal3.io", ""))

    whole.until("Metal3 is asked", order)
    assert '"by":"node-recovery"' in order().replace(" ", "")
    token = next(c for c in whole.replicas()).token
    forged = {"spec": {"image": {"url": "https://evil.example.com/image"}}}
    with any_right(plane, FLEET, FLEET, token):
        answer = plane.request("PATCH", at, body=forged, content_type=MERGE, bearer=token, agent=THIEF)
        assert answer.status == 403
        assert "changes nothing of a BareMetalHost but its annotation" in answer.body["message"]
    gone = {"metadata": {"annotations": {"reboot.metal3.io": None}}}
    assert plane.request("PATCH", at, body=gone, content_type=MERGE).status == 200
    whole.boots(sick)
    whole.states(sick, WELL)
    hosts = [(verb, "metal3.io", "baremetalhosts") for verb in ("get", "patch")]
    whole.proved(sick, *hosts)
