"""One controller for all nodes, as ``deploy/fleet`` installs it: nothing of it runs on its nodes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
import yaml
from fleet_site import DEPLOY, INFRA, NAMESPACE, Site, edit, states, training
from history import Request
from kubelets import Container
from plane import Plane

FLEET = "node-recovery-fleet"
ACCOUNT = f"system:serviceaccount:{FLEET}:{FLEET}"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{FLEET}/leases/{FLEET}"
KUBELETS_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
POLICY = """\
apiVersion: noderecovery.dev/v1alpha1
kind: RecoveryPolicy
sources: [conditions, api]
limits: {budget: 1, cooldown: 0s, brake: 100%, brakePer: {}, budgetPer: {}}
rules:
  - name: neuron
    match: {type: NeuronHealth}
    remedy: [{do: drain, within: 1m, then: force}, {do: replace, within: 5m}]
    probation: 5s
  - name: dead-node
    match: {type: Ready}
    after: 5s
    remedy: [{do: drain, within: 1m, then: force}, {do: replace, within: 5m}]
    probation: 5s
  - name: swallows-pods
    match: {type: BlackHole}
    remedy: [{do: cordon}]
  - name: never-joined
    match: {type: NeverJoined}
    after: 30s
    remedy: [{do: notify}]
"""


class FleetSite(Site):
    """A site whose nodes have no agent."""

    policy = POLICY

    def installed(self, **settings: str) -> None:
        copy = self.folder / "deploy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(DEPLOY, copy)
        more = [f"{name}={value}" for name, value in settings.items()]
        edit(copy / "fleet" / "settings.env", "ENABLE_RECOVERY=true", *more)
        (copy / "fleet" / "policy.yaml").write_text(self.policy)
        self.plane.apply(copy / "fleet")
        self.lawless = True  # the laws are read from what agents with a node of their own wrote

    def replicas(self) -> list[Container]:
        return [c for c in self.kubelets.all() if FLEET in c.pod and c.running]

    def holder(self) -> str:
        found = self.plane.request("GET", LEASE)
        return str(found.body["spec"]["holderIdentity"]) if found.status == 200 else ""

    def leader(self) -> Container:
        """The replica that said last that it leads."""
        return max(
            self.replicas(), key=lambda c: [x for x in c.log.read_text().splitlines() if "leads" in x][-1:]
        )

    def group(self, size: int, *, sidecars: bool = False, **labels: str) -> dict[str, str]:
        self.sidecars = sidecars
        return super().group(size, **labels)

    def pods_on(self, node: str) -> list[str]:
        found = self.plane.get("/api/v1/namespaces/default/pods", fieldSelector=f"spec.nodeName={node}")
        return [pod["metadata"]["name"] for pod in found["items"]]

    def dies(self, node: str) -> None:
        """Its kubelet, and all that runs there: nobody plays it any more."""
        nobody = {"metadata": {"annotations": {"kwok.x-k8s.io/node": None}}}
        kind = "application/merge-patch+json"
        answer = self.plane.request("PATCH", f"/api/v1/nodes/{node}", body=nobody, content_type=kind)
        assert answer.status == 200, answer.body
        self.kubelets.power_off(node)

    def never_ends(self, pod: str, so: bool) -> None:
        """A pod that is terminating for good, as those of a dead kubelet are. KWOK ends pods on any node."""
        keep = {"metadata": {"finalizers": ["example.com/keep"] if so else None}}
        path, kind = f"/api/v1/namespaces/default/pods/{pod}", "application/merge-patch+json"
        answer = self.plane.request("PATCH", path, body=keep, content_type=kind)
        assert answer.status == 200, answer.body

    def is_ready(self, node: str) -> bool:
        conditions = self.plane.get(f"/api/v1/nodes/{node}")["status"].get("conditions") or []
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    def ready(self, nodes: Iterable[str], seconds: float = 90) -> None:
        if self.sidecars:
            super().ready(nodes, seconds)
            return
        # One of an older ReplicaSet may still lead, and would be gone in the middle of the test.
        self.plane.kubectl("rollout", "status", f"deployment/{FLEET}", "-n", FLEET, "--timeout=60s")
        self.until("the older ones have ended", lambda: len(self.replicas()) == 2, seconds)
        self.until("a replica leads", lambda: "this replica leads" in self.logs(), seconds)
        # Else the scheduler puts all pods of a test on the one that is the first to be ready.
        self.until("they take pods", lambda: not any(self.not_ready(node) for node in nodes), seconds)

    def not_ready(self, node: str) -> bool:
        """Whether Kubernetes keeps pods off it, as it does until its kubelet has said that it is Ready."""
        spec = self.plane.get(f"/api/v1/nodes/{node}")["spec"]
        return any(taint["key"] == "node.kubernetes.io/not-ready" for taint in spec.get("taints", ()))

    def refused(self) -> list[Request]:
        """What the controller asked for and may not."""
        return [r for r in self.audit.requests() if r.user == ACCOUNT and r.status == 403]

    def logs(self) -> str:
        return "\n".join(c.log.read_text() for c in self.replicas() if c.log.exists())

    def states(
        self,
        node: str,
        type_: str,
        status: str,
        reason: str,
        *,
        may_be_gone: bool = False,
        ago: timedelta = timedelta(0),
    ) -> None:
        status_of = states(self.plane, node, type_, status, reason, ago)
        assert status_of == 200 or (may_be_gone and status_of == 404), status_of


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetSite]:
    """On a control plane of its own: the controller looks after all nodes that there are."""
    folder = tmp_path_factory.mktemp("fleet")
    (folder / "plane").mkdir()
    with Plane(folder / "plane") as plane, FleetSite(plane, folder / "site") as site:
        yield site


@pytest.fixture
def fleet(whole: FleetSite) -> FleetSite:
    whole.clear()
    whole.installed()
    return whole


def test_a_condition_ends_in_a_replacement_and_nothing_of_ours_runs_on_the_nodes(fleet: FleetSite) -> None:
    sick, well = fleet.group(2)
    fleet.states(sick, "NeuronHealth", "True", "NeuronHasError_DMA_ERROR")
    fleet.until("it is recovered", lambda: fleet.phase(sick) == "recovered", 120)
    assert len(fleet.marked()) == 1
    assert well not in fleet.records()
    assert {c.node for c in fleet.replicas()} == {"infra-0"}
    assert fleet.refused() == []


def test_a_leader_that_is_killed_is_followed_within_twenty_seconds_and_no_call_is_made_twice(
    fleet: FleetSite,
) -> None:
    sick, _ = fleet.group(2)
    fleet.states(sick, "NeuronHealth", "True", "NeuronHasError_DMA_ERROR")
    fleet.until(
        "the recovery has begun", lambda: fleet.phase(sick) in ("recovering", "proving", "recovered"), 60
    )
    leader, before = fleet.leader(), fleet.holder()
    fleet.kubelets.kill(leader)
    began = time.monotonic()
    fleet.until("another leads", lambda: fleet.holder() not in ("", before), 30)
    assert time.monotonic() - began <= 20
    fleet.until("it is recovered", lambda: fleet.phase(sick) == "recovered", 120)
    assert len(fleet.marked()) == 1


def test_a_machine_that_never_joined_is_handed_over_and_withdrawn_once_it_joins(fleet: FleetSite) -> None:
    fleet.group(2)
    (lost,) = fleet.aws.launch(fleet.groups[-1])
    record = f"never-joined.{lost}"
    fleet.until("it is handed over", lambda: fleet.phase(record) == "handedOver", 200)
    assert f"{lost} of group {fleet.groups[-1]} was launched at" in fleet.records()[record]["sentence"]
    events, about = "/api/v1/namespaces/default/events", f"involvedObject.name={record},reason=HandedOver"
    fleet.until("it is told", lambda: fleet.plane.get(events, fieldSelector=about)["items"])
    node = fleet.join(lost)
    fleet.until("it is withdrawn", lambda: fleet.phase(record) == "withdrawn", 120)
    assert fleet.records()[record]["sentence"].endswith(f"it joined as {node}")
    assert fleet.marked() == []
    assert fleet.refused() == []


def granted() -> set[tuple[str, str, str]]:
    """(verb, API group, resource) of the controller's roles."""
    found = set()
    for document in yaml.safe_load_all((DEPLOY / "fleet" / "rbac.yaml").read_text()):
        for rule in document.get("rules", ()):
            found |= {(v, g, r) for v in rule["verbs"] for g in rule["apiGroups"] for r in rule["resources"]}
    return found


ELSEWHERE = {
    # what is seen with recovery off: test_observe
    *((verb, "noderecovery.dev", "recoveryreports") for verb in ("get", "create", "update")),
    ("list", "", "events"),  # what AKS auto-repair tells, on Azure alone
    ("delete", "noderecovery.dev", "noderecoveries"),  # no record is removed within a day
    ("create", "authentication.k8s.io", "tokenreviews"),  # where somebody asks for explain
    ("patch", "", "events"),  # where the same is told again: test_rights
    ("get", "karpenter.sh", "nodeclaims"),
    ("delete", "karpenter.sh", "nodeclaims"),
}
"""Rights that are for what does not happen here."""


def test_a_node_whose_kubelet_died_is_replaced_with_the_rights_that_are_granted_and_none_other(
    fleet: FleetSite, tell: Callable[[str], None]
) -> None:
    fleet.plane.request("DELETE", LEASE)
    for replica in fleet.replicas():
        fleet.kubelets.kill(replica)  # what is asked at the start is asked again
    fleet.until("a replica leads", lambda: fleet.holder())
    dead, sick = fleet.group(2)
    fleet.until("their kubelets were heard", lambda: fleet.is_ready(dead) and fleet.is_ready(sick))
    training(fleet.plane, replicas=4, most_out=4)
    fleet.until("pods run on both", lambda: fleet.pods_on(dead) and fleet.pods_on(sick))
    groups, fleet.groups = list(fleet.groups), []
    stuck = fleet.pods_on(dead)[0]
    fleet.never_ends(stuck, True)
    fleet.dies(dead)
    fleet.states(dead, "Ready", "Unknown", "NodeStatusUnknown")
    fleet.until("its group is asked", lambda: len(fleet.marked()) == 1, 90)
    assert fleet.pods_on(dead) == [stuck]
    fleet.never_ends(stuck, False)
    fleet.groups += groups
    fleet.until("it is recovered", lambda: fleet.phase(dead) == "recovered", 120)
    fleet.states(sick, "NeuronHealth", "True", "NeuronHasError_DMA_ERROR")
    fleet.until("the other one, too", lambda: fleet.phase(sick) == "recovered", 120)
    assert len(fleet.marked()) == 2

    asked = [r for r in fleet.audit.requests() if r.user == ACCOUNT]
    used = {(r.verb, r.group, r.resource) for r in asked if r.status < 400}
    assert fleet.refused() == []
    assert granted() - used <= ELSEWHERE, "granted, and never used"
    assert used <= granted(), "used, and granted by something else"
    tell(
        f"RBAC: the controller used {len(used)} of {len(granted())} rights of deploy/fleet, none was refused"
    )


def test_a_kubelet_that_died_while_the_node_controller_was_away_is_found_by_its_lease(
    fleet: FleetSite,
) -> None:
    """Nobody says that its Node is not Ready. The test plays the other kubelets, since KWOK renews the Leases
    of all. It writes that two were last heard ten minutes ago."""
    dead, well = fleet.group(2)
    fleet.until("their kubelets were heard", lambda: fleet.is_ready(dead) and fleet.is_ready(well))
    fleet.plane.kill("kube-controller-manager")
    fleet.plane.freeze("kwok")

    def renewed() -> bool:
        spec = {"renewTime": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"}
        paths, kind = [f"{KUBELETS_LEASES}/{x}" for x in (well, INFRA)], "application/merge-patch+json"
        done = [fleet.plane.request("PATCH", x, body={"spec": spec}, content_type=kind) for x in paths]
        return all(x.status == 200 for x in done)

    try:
        fleet.dies(dead)
        for node in (dead, well):
            fleet.states(node, "Ready", "True", "KubeletReady", ago=timedelta(minutes=10))
        fleet.until("its group is asked", lambda: renewed() and len(fleet.marked()) == 1, 180)
        fleet.plane.thaw("kwok")
        fleet.until("it is recovered", lambda: fleet.phase(dead) == "recovered", 120)
    finally:
        fleet.plane.thaw("kwok")
        fleet.plane.start_again("kube-controller-manager")
    assert "renews its Lease no more" in fleet.logs()
    assert well not in fleet.records()
    assert fleet.refused() == []


def test_sidecars_are_taken_away_in_the_middle_and_the_controller_ends_what_they_began(
    fleet: FleetSite,
) -> None:
    plane = fleet.plane
    plane.kubectl("delete", "deployment", FLEET, "-n", FLEET)
    fleet.until("no replica runs", lambda: not fleet.replicas())
    fleet.recovering()
    nodes = fleet.group(2, sidecars=True)
    sick = next(iter(nodes))
    groups, fleet.groups = list(fleet.groups), []
    fleet.breaks(sick)
    fleet.until("the group was asked by a sidecar", lambda: "was accepted by aws" in fleet.log(sick))
    plane.kubectl("delete", "daemonset", "--all", "-n", NAMESPACE)
    fleet.installed(AGENTS_NAMESPACE=NAMESPACE)
    fleet.groups += groups
    fleet.until("it is recovered", lambda: fleet.phase(sick) == "recovered", 180)
    assert len(fleet.marked()) == 1
    assert fleet.refused() == []
