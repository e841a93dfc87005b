"""What a stolen token is good for: the admission policies of deploy/rbac, tried on a real API server.

RBAC alone would refuse part of it. So all of it is tried twice: with the rights that ship, and with those of
an administrator bound to the account, so that nothing but the policies stands in the way.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from fleet_site import ACCOUNT, GATE, NAMESPACE, RECORDS, Site
from history import CONCLUDER, THIEF
from recovery_testkit.kubefaults import Asked
from recovery_testkit.kubefaults import denied as denies
from recovery_testkit.kubernetes import node_claim_crd

from recovery.clock import SystemClock
from recovery.config.policy_file import parse_policy
from recovery.console.doctor import fences
from recovery.console.doctor.api import DoctorApi
from recovery.decide.endings import close
from recovery.decide.history import HistoryEvent, note
from recovery.decide.lifecycle import Event
from recovery.decide.marks import disown_patch, mark_patch, unmark_patch
from recovery.errors import Fenced
from recovery.kube.transport import Response, api_error
from recovery.kube.views import node_view
from recovery.model import (
    CORDONED_BY,
    PHASE_LABEL,
    TAINTED,
    Cause,
    Held,
    Machine,
    Marks,
    NodeView,
    Phase,
    Record,
    Start,
    Taint,
)
from recovery.store.record_codec import decode, encode
from recovery.units import parse_moment

MERGE = "application/merge-patch+json"
CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
REPORTS = "/apis/noderecovery.dev/v1alpha1/recoveryreports"
CORDON = {"spec": {"unschedulable": True}}
BINDING = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


class Thief:
    """Who holds the token of ``mine``'s sidecar, while the node ``other`` is being recovered."""

    def __init__(self, site: Site, mine: str, other: str) -> None:
        self.site, self.mine, self.other = site, mine, other
        self._token = site.kubelets.of(mine).token

    def asks(self, method: str, path: str, body: Any = None, content_type: str | None = None) -> Response:
        return self.site.plane.request(
            method, path, body=body, content_type=content_type, bearer=self._token, agent=THIEF
        )

    def changed(self, path: str, **status: Any) -> Response:
        """The object at ``path`` with other values in its status, as one PUT."""
        found = self.site.plane.get(path)
        found["status"] = {**found["status"], **status}
        return self.asks("PUT", path, found)

    def remember(self) -> None:
        """What is to be as it was before each try."""
        plane = self.site.plane
        self._was = [plane.get(path) for path in (f"{RECORDS}/{self.other}", GATE)]

    def restore(self) -> None:
        """As an administrator, whom no policy limits."""
        plane = self.site.plane
        for node in (self.mine, self.other):
            claim = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": f"of-{node}"}}
            plane.request("POST", CLAIMS, body={**claim, "spec": {}})
            for path in (f"{CLAIMS}/of-{node}/status", f"{CLAIMS}/of-{node}"):
                plane.request("PATCH", path, body={"status": {"nodeName": node}}, content_type=MERGE)
            assert plane.get(f"{CLAIMS}/of-{node}")["status"]["nodeName"] == node
        plane.request("DELETE", f"{RECORDS}/{self.mine}")
        plane.request("DELETE", f"{RECORDS}/of-a-third")
        for was in self._was:
            plural = "noderecoveries" if was["kind"] == "NodeRecovery" else "recoverygates"
            path = f"/apis/noderecovery.dev/v1alpha1/{plural}"
            name = was["metadata"]["name"]
            plane.request("DELETE", f"{path}/{name}")
            made = plane.request("POST", path, body={**was, "metadata": {"name": name}})
            assert made.status == 201, made.body
            if "stamp" in was["status"]:
                made.body["status"]["stamp"] = made.body["metadata"]["uid"]
                assert plane.request("PUT", f"{path}/{name}", body=made.body).status == 200

    def slots(self) -> list[dict[str, Any]]:
        return list(self.site.plane.get(GATE)["status"]["slots"])


@pytest.fixture(scope="module")
def robbed(_site: Site) -> Iterator[Thief]:
    """Two nodes, one of them in recovery. Nobody works any more: what is tried is all that happens."""
    site, plane = _site, _site.plane
    site.clear()
    site.recovering()
    site.lawless = True
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    plane.request("POST", crds, body=node_claim_crd())
    mine, other = site.group(2)
    site.groups.clear()  # nobody terminates the other's machine: its record stays open
    site.breaks(other)
    site.until("the other is followed", lambda: "was accepted by aws" in site.log(other))
    plane.kubectl("scale", "deployment/node-recovery-concluder", "--replicas=0", "-n", CONCLUDER)
    plane.until(
        "no concluder works",
        lambda: not any(c.running for c in site.kubelets.concluders()),
    )
    found = Thief(site, mine, other)
    for node in (mine, other):
        site.power_off(node)
    plane.until("NodeClaims are served", lambda: plane.request("GET", CLAIMS).status == 200)
    found.remember()
    yield found
    plane.kubectl("scale", "deployment/node-recovery-concluder", "--replicas=1", "-n", CONCLUDER)
    plane.kubectl("delete", "nodeclaims", "--all")


@pytest.fixture(params=["with the rights that ship", "with an administrator's rights"])
def thief(robbed: Thief, request: pytest.FixtureRequest) -> Iterator[Thief]:
    plane = robbed.site.plane
    robbed.restore()
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "thief"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
    }
    if "administrator" not in request.param:
        yield robbed
        return
    assert plane.request("POST", BINDING, body=binding).status == 201
    plane.until("the rights are known", lambda: robbed.asks("GET", "/api/v1/secrets").status == 200)
    yield robbed
    plane.request("DELETE", f"{BINDING}/thief")
    plane.until("the rights are gone", lambda: robbed.asks("GET", "/api/v1/secrets").status == 403)


def denied(answer: Response) -> bool:
    """Refused, and by whom."""
    return answer.status == 403


def test_a_stolen_token_changes_its_own_node_and_no_other(thief: Thief) -> None:
    mine, other = f"/api/v1/nodes/{thief.mine}", f"/api/v1/nodes/{thief.other}"
    assert thief.asks("PATCH", mine, CORDON, MERGE).status == 200
    why = f"an agent changes its own node only; this token is of a pod on '{thief.mine}'"
    no_right = 'cannot patch resource "nodes/status"'
    for path, reasons in ((other, (why,)), (f"{other}/status", (why, no_right))):
        answer = thief.asks("PATCH", path, {**CORDON, "status": {"phase": "Terminated"}}, MERGE)
        assert denied(answer), answer.body
        assert any(reason in answer.body["message"] for reason in reasons)
    whole = thief.site.plane.get(other)
    assert denied(thief.asks("PUT", other, {**whole, "spec": {**whole["spec"], **CORDON["spec"]}}))
    for path in (mine, other, "/api/v1/nodes"):
        assert denied(thief.asks("DELETE", path)), path
    assert denied(thief.asks("POST", "/api/v1/nodes", {"metadata": {"name": "made-up"}}))


@pytest.fixture
def evictable(thief: Thief) -> Iterator[Thief]:
    """Pods in several namespaces, one of them labelled by people."""
    plane = thief.site.plane
    label = {"noderecovery.dev/evict": "never"}
    assert plane.request(
        "POST", NAMESPACES, body={"metadata": {"name": "vault", "labels": label}}
    ).status in (*(201, 409),)
    for namespace in EVERYWHERE:
        meta = {"name": "there", "namespace": namespace}
        spec = {"containers": [RESTRICTED], "nodeName": thief.other}
        path = f"{NAMESPACES}/{namespace}/pods"
        plane.until(f"{namespace} has an account", lambda n=namespace: has_account(thief, n))
        made = plane.request("POST", path, body={"metadata": meta, "spec": {**spec, **UNPRIVILEGED}})
        assert made.status == 201, made.body
    yield thief
    for namespace in EVERYWHERE:
        now = {"gracePeriodSeconds": 0}
        plane.request("DELETE", f"{NAMESPACES}/{namespace}/pods/there", body=now)


NAMESPACES = "/api/v1/namespaces"
EVERYWHERE = (NAMESPACE, CONCLUDER, "vault", "default", "kube-system")
RESTRICTED = {
    "name": "a",
    "image": "a",
    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
}
UNPRIVILEGED = {"securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}}


def has_account(thief: Thief, namespace: str) -> bool:
    """Without its default account no pod is made there."""
    path = f"{NAMESPACES}/{namespace}/serviceaccounts/default"
    return thief.site.plane.request("GET", path).status == 200


def evicts(thief: Thief, namespace: str, dry: bool = False, **options: Any) -> Response:
    meta = {"name": "there", "namespace": namespace}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta, "deleteOptions": options}
    path = f"{NAMESPACES}/{namespace}/pods/there/eviction{'?dryRun=All' if dry else ''}"
    return thief.asks("POST", path, body)


FENCES = {
    NAMESPACE: f"namespace {NAMESPACE} is fenced: node-recovery itself runs there",
    CONCLUDER: f"namespace {CONCLUDER} is fenced: its label noderecovery.dev/evict says never",
    "vault": "namespace vault is fenced: its label noderecovery.dev/evict says never",
}


def test_a_stolen_token_evicts_neither_the_concluder_nor_what_is_fenced(evictable: Thief) -> None:
    for namespace, why in FENCES.items():
        for dry in (False, True):
            answer = evicts(evictable, namespace, dry)
            assert denied(answer), (namespace, answer.body)
            assert why in answer.body["message"]
            error = api_error(answer.status, answer.body, {}, "an eviction")
            assert isinstance(error, Fenced)
            assert error.reason == why, "a drain tells it so"
    for namespace in ("default", "kube-system"):
        assert evicts(evictable, namespace).status == 201, "as kubectl drain does"


def test_a_stolen_token_does_not_evict_the_concluder_from_a_namespace_without_the_label(
    evictable: Thief,
) -> None:
    plane, path = evictable.site.plane, f"{NAMESPACES}/{CONCLUDER}"

    def labelled(value: str | None) -> None:
        patch = {"metadata": {"labels": {"noderecovery.dev/evict": value}}}
        assert plane.request("PATCH", path, body=patch, content_type=MERGE).status == 200

    def why() -> str:
        answer = evicts(evictable, CONCLUDER, dry=True)
        assert denied(answer), answer.body
        return str(answer.body["message"])

    fenced = f"namespace {CONCLUDER} is fenced: the concluder runs there"
    labelled(None)
    try:
        plane.until("the label is gone", lambda: fenced in why())
    finally:
        labelled("never")
        plane.until("the label is there", lambda: "its label" in why())


def test_a_stolen_token_takes_no_pod_its_time_to_end(evictable: Thief) -> None:
    for seconds in (0, 1, 30):
        answer = evicts(evictable, "default", gracePeriodSeconds=seconds)
        assert denied(answer), (seconds, answer.body)
        assert "leaves each pod the grace period" in answer.body["message"]
        assert not isinstance(api_error(answer.status, answer.body, {}, "an eviction"), Fenced)
    uid = evictable.site.plane.get(f"{NAMESPACES}/default/pods/there")["metadata"]["uid"]
    assert evicts(evictable, "default", preconditions={"uid": uid}).status == 201


def test_the_kit_refuses_a_fenced_eviction_in_the_servers_words(evictable: Thief) -> None:
    path, policy = f"{NAMESPACES}/vault/pods/there/eviction", "node-recovery-evictions"
    played = denies(policy, FENCES["vault"])(Asked("POST", path, {}), lambda: Response(500))
    real = evicts(evictable, "vault")
    assert (played.status, played.body["message"]) == (real.status, real.body["message"])
    assert played.body["reason"] == real.body["reason"]


def test_a_stolen_token_only_concludes_the_record_of_another(thief: Thief) -> None:
    path = f"{RECORDS}/{thief.other}"
    was = thief.site.plane.get(path)["status"]
    for phase in ("suspect", "waiting", "recovered", "withdrawn", "released", "lost"):
        answer = thief.changed(path, phase=phase)
        assert denied(answer), phase
        assert "may only conclude the record of another node" in answer.body["message"]
    forged: dict[str, Any] = {
        "machine": {**was["machine"], "id": "i-0123456789abcdef0"},
        "attempt": was["attempt"] + 1,
        "intent": {**was["intent"], "token": "another"},
        "ladder": was["ladder"][:1],
        "rung": 0,
        "marks": {"cordoned": False, "tainted": False},
    }
    for name, value in forged.items():
        assert denied(thief.changed(path, **{name: value})), name
    intent = copy.deepcopy(was["intent"])
    del intent["token"]
    assert denied(thief.changed(path, intent=intent))
    for verb, target in (("DELETE", path), ("DELETE", RECORDS)):
        assert denied(thief.asks(verb, target)), target
    assert denied(thief.changed(path, phase="recovering", marks={})), "marks that are emptied"
    # What a peer does when the agent of that node is gone:
    for phase in ("recovering", "proving", "recovered"):
        assert thief.changed(path, phase=phase).status == 200, phase
    for phase in ("recovering", "suspect", "handedOver"):
        assert denied(thief.changed(path, phase=phase)), f"{phase}, which would open it again"
    assert was["marks"]["tainted"]
    assert denied(thief.asks("DELETE", path)), "closed, and it names marks"


def test_a_stolen_token_hands_the_record_of_another_over_and_no_more(thief: Thief) -> None:
    path = f"{RECORDS}/{thief.other}"
    assert thief.changed(path, phase="handedOver").status == 200
    for phase in ("recovering", "recovered", "released"):
        assert denied(thief.changed(path, phase=phase)), phase
    # Since when its Node is gone is noted on it by others.
    assert thief.changed(path, phase="handedOver").status == 200


def test_a_stolen_token_withdraws_a_record_of_another_only_where_nothing_is_left_of_it(thief: Thief) -> None:
    """As a peer does where the node is excluded, and its agent is dead."""
    path, plane = f"{RECORDS}/{thief.other}", thief.site.plane
    no_marks = {"cordoned": False, "tainted": False, "outOfService": False}

    def tried(**status: Any) -> Response:
        as_it_is = plane.get(path)
        as_it_is["status"] |= {"phase": "recovering", "marks": no_marks, "intent": None} | status
        answer = plane.request("PUT", path, body=as_it_is)
        assert answer.status == 200, answer.body
        return thief.changed(path, phase="withdrawn")

    intent = plane.get(path)["status"]["intent"]
    for state in ("written", "submitted", "ambiguous"):
        assert denied(tried(intent={**intent, "state": state})), state
    for mark in no_marks:
        assert denied(tried(marks={**no_marks, mark: True})), mark
    for phase in ("recovered", "handedOver", "lost"):
        assert denied(tried(phase=phase)), phase
    for phase in ("suspect", "waiting", "recovering", "proving"):
        assert tried(phase=phase).status == 200, phase
    assert tried(intent={**intent, "state": "notApplied"}).status == 200


def test_a_stolen_token_writes_how_long_the_recovery_of_another_was_held_before_it_began(
    thief: Thief,
) -> None:
    path = f"{RECORDS}/{thief.other}"
    for phase in ("suspect", "waiting"):
        as_it_is = thief.site.plane.get(path)
        as_it_is["status"]["phase"] = phase
        assert thief.site.plane.request("PUT", path, body=as_it_is).status == 200
        progress = {"accounted": "2026-01-01T00:00:00Z"}
        assert thief.changed(path, progress=progress).status == 200, phase
        assert thief.changed(path, nodeGoneSince="2026-01-01T00:00:00Z").status == 200, phase
        was = as_it_is["status"]
        forged = {
            "phaseSince": "2026-01-01T00:00:00Z",
            "rungSince": "2026-01-01T00:00:00Z",
            "intent": {**was["intent"], "state": "abandoned"},
            "starts": [{"at": "2026-01-01T00:00:00Z", "machine": "m", "reason": "r"}],
            "scopes": ["another"],
            "validation": {"job": "mine", "since": "2026-01-01T00:00:00Z"},
            "replacementMachine": "another",
            "acknowledgedMore": "abcdef",
            "acknowledged": was["faults"],
        }
        for name, value in forged.items():
            answer = thief.changed(path, **{name: value})
            assert denied(answer), (phase, name)
            assert "whose recovery has not begun" in answer.body["message"], (phase, name)
        assert denied(thief.changed(path, phase="recovering")), (
            f"{phase}: a recovery is begun by its own agent"
        )


def test_a_stolen_token_writes_no_fault_on_the_record_of_another(thief: Thief) -> None:
    """Its own agent would drain and replace the node for it."""
    path, plane = f"{RECORDS}/{thief.other}", thief.site.plane
    (fault,) = plane.get(path)["status"]["faults"]
    forged = {**fault, "reason": "NeuronHasError_HBM_UNCORRECTABLE_ERROR"}
    earlier = {**fault, "since": "2026-01-01T00:00:00Z"}
    for phase in ("suspect", "waiting", "recovering", "proving", "handedOver"):
        as_it_is = plane.get(path)
        as_it_is["status"] |= {"phase": phase, "acknowledged": []}
        assert plane.request("PUT", path, body=as_it_is).status == 200
        made: list[dict[str, Any]] = [{"faults": [fault, forged]}, {"faults": [forged]}]
        made += [{"acknowledged": [forged]}, {"phase": "handedOver", "faults": [forged]}]
        made += [{"phase": "superseded", "acknowledged": [forged]}]
        if phase != "handedOver":
            made += [{"faults": [earlier]}, {"faults": [fault, fault]}]
        if phase != "recovering":  # there a new boot is the proof of a call
            made += [{"bootID": "another"}]
        for status in made:
            answer = thief.changed(path, **{"phase": phase, **status})
            assert denied(answer), (phase, status)
            assert "an agent writes no fault and no boot on a record of another" in answer.body["message"]
        assert thief.changed(path, faults=[{**fault, "message": "cut"}]).status == 200, phase
    assert thief.changed(path, phase="superseded", acknowledged=[fault]).status == 200


def test_a_peer_concludes_the_largest_record_that_agents_write(thief: Thief) -> None:
    """A policy that costs too much refuses everybody. A record without room keeps less with each line."""
    path, plane = f"{RECORDS}/{thief.other}", thief.site.plane
    found = decode(plane.get(path))
    many = [replace(found.faults[0], reason=f"Reason{i}", message="x" * 100) for i in range(20)]
    known = [replace(found.faults[0], reason=f"Earlier{i}", message="x" * 100) for i in range(20)]
    start = Start(found.phase_since, found.machine.id, "x" * 100, "g", ("serial",) * 9)
    ends = {Phase.WAITING: Event.OTHER_MACHINE, Phase.PROVING: Event.PROVED, Phase.SUSPECT: Event.GAVE_UP}
    for phase, end in ends.items():
        was = plane.get(path)
        lists = {"faults": tuple(many), "acknowledged": tuple(known), "starts": (start,) * 50}
        made = replace(found, phase=phase, acknowledged_more="", **lists)
        body = encode(made, was)
        body["metadata"] |= {key: was["metadata"][key] for key in ("resourceVersion", "uid")}
        answer = plane.request("PUT", path, body=body)
        assert answer.status == 200, answer.body
        as_it_was = decode(answer.body)
        now = found.phase_since + timedelta(minutes=20)
        for minutes in range(1, 16):  # many more than ever would be written
            held = (Held(Cause.AGENT, timedelta(minutes=minutes)), Held(Cause.PAUSE, timedelta(minutes=1)))
            now += timedelta(minutes=1)
            waited = replace(as_it_was.progress, held=held[: 1 + minutes // 8], accounted=now)
            noted = note(replace(as_it_was, progress=waited), now, HistoryEvent.TAKEN_BACK, "x" * 600)
            answer = thief.asks("PUT", path, encode(noted, answer.body))
            assert answer.status == 200, (phase, minutes, answer.body)
            as_it_was = decode(answer.body)
        closed = close(as_it_was, now, end, "nobody looks after it")
        answer = thief.asks("PUT", path, encode(closed, answer.body))
        assert answer.status == 200, (phase, answer.body)


def test_a_stolen_token_writes_no_open_record_without_a_fault(thief: Thief) -> None:
    """No agent could read it, and it would be held for ever."""
    plane = thief.site.plane
    was = plane.get(f"{RECORDS}/{thief.other}")["status"]
    own = {
        "apiVersion": "noderecovery.dev/v1alpha1",
        "kind": "NodeRecovery",
        "metadata": {"name": thief.mine},
    }
    assert thief.asks("POST", RECORDS, {**own, "status": was}).status == 201
    for node, phase in ((thief.mine, "suspect"), (thief.mine, "recovering"), (thief.other, "proving")):
        answer = thief.changed(f"{RECORDS}/{node}", phase=phase, faults=[])
        assert denied(answer), (node, phase)
    assert plane.request("DELETE", f"{RECORDS}/{thief.mine}").status == 200
    for faults in ([], None):
        answer = thief.asks("POST", RECORDS, {**own, "status": {**was, "phase": "suspect", "faults": faults}})
        assert denied(answer) or answer.status == 422, faults


def test_a_stolen_token_releases_another_only_where_a_person_asked_for_it(thief: Thief) -> None:
    path = f"{RECORDS}/{thief.other}"
    asked = {"by": "ada", "at": "2026-01-01T00:00:00Z", "reason": "a test bench"}
    for phase in ("recovering", "handedOver"):
        as_it_is = thief.site.plane.get(path)
        as_it_is["status"].pop("release", None)
        as_it_is["status"]["phase"] = phase
        assert thief.site.plane.request("PUT", path, body=as_it_is).status == 200
        answer = thief.changed(path, phase=phase, release=asked)
        assert denied(answer), phase
        assert "an agent asks for no release" in answer.body["message"]
        assert denied(thief.changed(path, phase="released")), phase
        assert denied(thief.changed(path, phase="released", release=asked)), phase
        as_it_is = thief.site.plane.get(path)
        as_it_is["status"]["release"] = asked
        assert thief.site.plane.request("PUT", path, body=as_it_is).status == 200
        assert denied(thief.changed(path, release={**asked, "by": "somebody else"})), phase
        assert denied(thief.changed(path, release={**asked, "at": "2026-01-02T00:00:00Z"})), phase
        assert thief.changed(path, release={**asked, "reason": "a test"}).status == 200, "it is shortened"
        assert thief.changed(path, phase="released").status == 200, phase
        as_it_is = thief.site.plane.get(path)
        as_it_is["status"]["phase"] = phase
        assert thief.site.plane.request("PUT", path, body=as_it_is).status == 200


def test_a_stolen_token_makes_no_record_of_another_but_one_that_is_lost(thief: Thief) -> None:
    plane = thief.site.plane
    found = plane.get(f"{RECORDS}/{thief.other}")
    at = found["status"]["phaseSince"]
    lost = {"version": 1, "phase": "lost", "phaseSince": at}

    def made(name: str, status: dict[str, Any], **metadata: Any) -> Response:
        labels = {PHASE_LABEL: status["phase"]}
        body = {
            "apiVersion": found["apiVersion"],
            "kind": "NodeRecovery",
            "metadata": {"name": name, "labels": labels, **metadata},
            "status": status,
        }
        return thief.asks("POST", RECORDS, body)

    assert plane.request("DELETE", f"{RECORDS}/{thief.other}").status == 200
    for phase in ("suspect", "waiting", "recovering", "proving", "recovered", "handedOver"):
        assert denied(made(thief.other, {**lost, "phase": phase})), phase
    assert denied(made("of-a-third", lost)), "a node without a place on the gate"
    assert denied(made(thief.other, {**found["status"], "phase": "lost"})), "with all that the record said"
    for name, value in FOREIGN.items():
        assert denied(made(thief.other, lost, **{name: value})), name
    assert denied(made(thief.other, lost, labels=None)), "without the label by which the gate is asked"
    line = {"at": at, "attempt": 0, "event": "lost", "sentence": "lost: somebody deleted it"}
    for name, value in {
        "version": 99,  # nobody can read it, and it would hold the brake for ever
        "phaseSince": "yesterday",
        "sentence": "x" * 201,
        "machine": {"id": "m", "route": {f"{i}": "x" * 4096 for i in range(64)}},
        "marks": {"outOfService": True},
        "intent": found["status"]["intent"],
        "progress": {"tries": 1},
        "rule": "mine",
        "attempt": 7,
        "history": [{**line, "sentence": "x" * 201}],
        "starts": [{"at": at, "machine": "m"}],
        "acknowledgedMore": "x" * 4096,
    }.items():
        assert denied(made(thief.other, {**lost, name: value})), name
    whole = encode(as_agents_write_it(thief.other, at))
    assert made(thief.other, {**whole["status"], "history": [line]}).status == 201
    assert plane.request("DELETE", f"{RECORDS}/{thief.other}").status == 200
    assert made(thief.other, lost).status == 201
    assert plane.request("DELETE", f"{RECORDS}/{thief.other}").status == 200
    gate = plane.get(GATE)
    (slot,) = gate["status"]["slots"]
    queued = {"node": thief.other, "recordUID": slot["recordUID"], "since": lost["phaseSince"]}
    gate["status"] |= {"slots": [], "open": [queued]}
    assert plane.request("PUT", GATE, body=gate).status == 200
    assert made(thief.other, lost).status == 201, "it was deleted while it waited in the queue"
    own = {**lost, "phase": "suspect", "faults": found["status"]["faults"]}
    for name, value in FOREIGN.items():
        assert denied(made(thief.mine, own, **{name: value})), name
    assert made(thief.mine, own).status == 201


def as_agents_write_it(node: str, at: str) -> Record:
    """A record that is lost, before its line of history."""
    machine = Machine(provider="aws", id="i-0123456789abcdef0", route={"zone": "a"})
    return Record(
        *(node, Phase.LOST, machine, "uid", "boot", (), parse_moment(at)),
        scopes=("fleet", "topology.kubernetes.io/zone=a"),
        sentence="lost: it was deleted",
    )


def test_a_stolen_token_writes_no_record_and_no_gate_of_a_size_that_no_agent_writes(thief: Thief) -> None:
    path, plane = f"{RECORDS}/{thief.other}", thief.site.plane
    was = plane.get(path)["status"]
    fault = {**was["faults"][0], "message": "x" * 4096}
    at = was["phaseSince"]
    for status in (
        {"version": 99},
        {"faults": [was["faults"][0]] * 21},
        {"faults": [fault] * 3},
        {"acknowledged": [fault] * 5},
        {"starts": [{"at": at, "machine": "x" * 1024, "reason": "x" * 1024}] * 9},
        {"history": [{"at": at, "sentence": "x" * 4096}] * 5},
    ):
        answer = thief.changed(path, **status)
        assert denied(answer), status
        assert "of a version or a size that no agent writes" in answer.body["message"]
    own = {
        "apiVersion": "noderecovery.dev/v1alpha1",
        "kind": "NodeRecovery",
        "metadata": {"name": thief.mine},
    }
    huge = {**was, "machine": {**was["machine"], "route": {f"{i}": "x" * 4096 for i in range(17)}}}
    assert denied(thief.asks("POST", RECORDS, {**own, "status": huge}))
    assert denied(thief.asks("POST", RECORDS, {**own, "status": {**was, "version": 99}}))
    assert thief.asks("POST", RECORDS, {**own, "status": was}).status == 201
    start = {"at": at, "node": "n", "machine": "m", "reason": "r"}
    for gate in ({"version": 99}, {"starts": [start] * 51}, {"words": {f"{i}": "w" for i in range(1001)}}):
        assert denied(thief.changed(GATE, **gate)), gate


def test_a_stolen_token_puts_nobody_but_its_own_node_into_the_queue(thief: Thief) -> None:
    """Who has a place there may have a record that is lost made for it."""
    plane = thief.site.plane
    at = plane.get(f"{RECORDS}/{thief.other}")["status"]["phaseSince"]
    theirs, third, own = (
        {"node": node, "recordUID": f"of-{node}", "since": at}
        for node in (thief.other, "made-up", thief.mine)
    )
    gate = plane.get(GATE)
    gate["status"]["open"] = [theirs]
    assert plane.request("PUT", GATE, body=gate).status == 200
    for queue in ([theirs, third], [third], [{**theirs, "recordUID": "another"}]):
        answer = thief.changed(GATE, open=queue)
        assert denied(answer), queue
        assert "puts its own node only" in answer.body["message"]
    assert thief.changed(GATE, open=[own, theirs]).status == 200
    assert thief.changed(GATE, open=[]).status == 200


def test_a_peer_that_ends_a_large_record_may_leave_its_remedy_and_route_out(thief: Thief) -> None:
    """A closed record has 4 KiB. Before, such an end was refused, and the slot stayed taken."""
    path, plane = f"{RECORDS}/{thief.other}", thief.site.plane
    was = plane.get(path)["status"]
    cut = {"ladder": [], "machine": {**was["machine"], "route": {}}, "intent": None}
    for name, value in cut.items():
        if was.get(name) != value:
            assert denied(thief.changed(path, phase="proving", **{name: value})), name
    assert thief.changed(path, phase="proving").status == 200
    assert denied(thief.changed(path, phase="recovered", rule="another"))
    assert denied(thief.changed(path, phase="recovered", ladder=was["ladder"][:1]))
    assert thief.changed(path, phase="recovered", **cut).status == 200


FOREIGN: dict[str, Any] = {
    "ownerReferences": [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "none",
            "uid": "00000000-0000-0000-0000-000000000000",
        }
    ],
    "finalizers": ["example.com/never"],
    "labels": {"stolen": "yes"},
    "annotations": {"stolen": "yes"},
}
"""What makes the garbage collector delete, or an object stay for ever, or others choose it."""


def test_a_stolen_token_has_nobody_delete_for_it_and_holds_nothing_up(thief: Thief) -> None:
    plane = thief.site.plane
    plane.request("POST", LEASES, body={"metadata": {"name": "nr-stolen"}, "spec": {}})
    paths = {
        "a record": f"{RECORDS}/{thief.other}",
        "the gate": GATE,
        "its own node": f"/api/v1/nodes/{thief.mine}",
        "a Lease": f"{LEASES}/nr-stolen",
    }

    def changed(path: str, **metadata: Any) -> Response:
        if "/nodes/" in path:
            return thief.asks("PATCH", path, {"metadata": metadata}, MERGE)
        found = plane.get(path)
        found["metadata"] |= metadata
        return thief.asks("PUT", path, found)

    for what, path in paths.items():
        for name, value in FOREIGN.items():
            if (what, name) == ("a Lease", "annotations"):
                continue  # its holder writes what it knows there
            answer = changed(path, **{name: value})
            assert denied(answer), (what, name, answer.body)
        assert changed(path).status == 200, what
    plane.request("DELETE", paths["a Lease"])
    for name in ("ownerReferences", "finalizers", "labels"):
        lease = {"metadata": {"name": "nr-stolen", name: FOREIGN[name]}, "spec": {}}
        assert denied(thief.asks("POST", LEASES, lease)), name


def test_a_stolen_token_holds_nothing_up_by_the_report(thief: Thief) -> None:
    """With a finalizer on it, nobody could delete its CRD. What it says, any agent may write."""
    plane, found = thief.site.plane, f"{REPORTS}/fleet"
    plane.request("DELETE", found)
    report = {"apiVersion": "noderecovery.dev/v1alpha1", "kind": "RecoveryReport"}
    for name, value in FOREIGN.items():
        made = thief.asks("POST", REPORTS, {**report, "metadata": {"name": "fleet", name: value}})
        assert denied(made), name
        assert "an agent makes the report without" in made.body["message"]
    assert thief.asks("POST", REPORTS, {**report, "metadata": {"name": "other"}}).status == 422
    body = {**report, "metadata": {"name": "fleet"}, "status": {"version": 1}}
    assert thief.asks("POST", REPORTS, body).status == 201
    for name, value in FOREIGN.items():
        was = plane.get(found)
        was["metadata"][name] = value
        assert denied(thief.asks("PUT", found, was)), name
    assert thief.changed(found, since="2026-01-01T00:00:00Z").status == 200
    for path in (found, REPORTS):
        assert denied(thief.asks("DELETE", path)), path
    assert plane.request("DELETE", found).status == 200


def test_of_its_own_node_a_stolen_token_changes_what_an_agent_changes(thief: Thief) -> None:
    node, plane = f"/api/v1/nodes/{thief.mine}", thief.site.plane
    theirs = {"key": "example.com/theirs", "effect": "NoSchedule"}
    ours = {"key": "noderecovery.dev/unhealthy", "effect": "NoSchedule"}
    by = "noderecovery.dev/cordoned-by"

    def taints(*wanted: dict[str, str]) -> Response:
        return thief.asks("PATCH", node, {"spec": {"taints": list(wanted) or None}}, MERGE)

    others = plane.get(node)["spec"].get("taints", [])
    plane.request("PATCH", node, body={"spec": {"taints": [*others, theirs]}}, content_type=MERGE)
    assert taints(*others, theirs, ours).status == 200
    assert (
        thief.asks("PATCH", node, {"metadata": {"annotations": {by: "node-recovery"}}}, MERGE).status == 200
    )
    assert denied(taints(*others, ours)), "the taint of another is taken off"
    assert denied(taints(*others, {**theirs, "effect": "NoExecute"}, ours)), "it is changed"
    assert denied(taints(*others, theirs, {"key": "example.com/made-up", "effect": "NoSchedule"}))
    assert taints(*others, theirs).status == 200
    for patch in (
        {"metadata": {"labels": {"node-restriction.kubernetes.io/pool": "secret"}}},
        {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}},
        {"metadata": {"annotations": {"example.com/note": "x"}}},
        {
            "metadata": {
                "annotations": {by: None, "volumes.kubernetes.io/controller-managed-attach-detach": "x"}
            }
        },
        {"spec": {"podCIDR": "10.9.0.0/24", "podCIDRs": ["10.9.0.0/24"]}},
    ):
        assert denied(thief.asks("PATCH", node, patch, MERGE)), patch
    assert thief.asks("PATCH", node, {"metadata": {"annotations": {by: None}}}, MERGE).status == 200
    plane.request("PATCH", node, body={"spec": {"taints": others or None}}, content_type=MERGE)


def test_of_the_taints_that_a_remedy_names_a_stolen_token_changes_those_that_it_set(thief: Thief) -> None:
    node, plane = f"/api/v1/nodes/{thief.mine}", thief.site.plane
    key, note = "trainy.konduktor.ai/faulty", "noderecovery.dev/taints"
    ours, text = {"key": key, "value": "true", "effect": "NoSchedule"}, f"{key}=true:NoSchedule"
    theirs, named = {"key": "aznhc", "value": "failed", "effect": "NoSchedule"}, "aznhc=failed:NoSchedule"
    others = plane.get(node)["spec"].get("taints", [])

    def asked(*wanted: dict[str, str], says: str | None = None) -> Response:
        body = {"metadata": {"annotations": {note: says}}, "spec": {"taints": [*others, *wanted] or None}}
        return thief.asks("PATCH", node, body, MERGE)

    def is_there(*wanted: dict[str, str], says: str | None = None) -> None:
        body = {"metadata": {"annotations": {note: says}}, "spec": {"taints": [*others, *wanted] or None}}
        assert plane.request("PATCH", node, body=body, content_type=MERGE).status == 200

    assert denied(asked(ours)), "it is not named"
    assert denied(asked({**ours, "effect": "NoExecute"}, says=f"{key}=true:NoExecute")), "it would evict"
    assert denied(asked({**ours, "key": "example.com/x"}, says="example.com/x=true:NoSchedule"))
    assert denied(asked(says=named)), "a name for what is to come"
    assert asked(ours, says=text).status == 200
    assert (
        asked(
            ours, {"key": "aznhc", "effect": "PreferNoSchedule"}, says=f"aznhc:PreferNoSchedule,{text}"
        ).status
        == 200
    )
    assert denied(asked(says=text)), "its name stays"
    assert asked(ours, says=text).status == 200
    assert asked(ours, says=None).status == 200, "it is anybody's from now on"
    assert denied(asked()), "and so it stays"
    is_there(ours, theirs, says=text)
    assert denied(asked(ours, theirs, says=f"{named},{text}")), "the taint of another is called its own"
    assert denied(asked(ours, says=text)), "it is taken off"
    is_there({**ours, "value": "by-hand"}, says=text)
    assert denied(asked({**ours, "value": "true"}, says=text)), "a person changed it"
    assert denied(asked())
    is_there(ours, theirs, says=text)
    assert asked(theirs).status == 200
    is_there()


def test_the_agents_own_patches_of_a_named_taint_pass(thief: Thief) -> None:
    path, plane = f"/api/v1/nodes/{thief.mine}", thief.site.plane
    named = tuple(Taint(key, "x", "NoSchedule") for key in ("amd-gpu-unhealthy", "aznhc"))

    def node() -> NodeView:
        """Without what Kubernetes itself adds and takes after another test's cordon, in its own time."""
        found = node_view(plane.get(path))
        kept = tuple(t for t in found.taints if not t[0].startswith("node.kubernetes.io/"))
        return replace(found, taints=kept)

    def done(patch: Callable[[NodeView], dict[str, Any] | None]) -> NodeView:
        for _ in range(20):
            made = patch(node_view(plane.get(path)))
            assert made is not None
            answer = thief.asks("PATCH", path, made, MERGE)
            if answer.status != 409:  # it changed since it was read
                break
        assert answer.status == 200, answer.body
        return node()

    before = node()  # another test may have cordoned it
    try:
        marks = Marks(cordoned=True, tainted=True, taints=named)
        assert done(lambda view: mark_patch(view, marks)).our_taints == named
        assert done(lambda view: disown_patch(view, named[:1])).our_taints == named[1:]
        after = done(unmark_patch)
        assert after.taints == (*before.taints, named[0])
        assert (after.annotations, after.unschedulable) == (before.annotations, before.unschedulable)
    finally:
        as_before = {
            "metadata": {"annotations": {CORDONED_BY: None, TAINTED: None}},
            "spec": {"taints": None, "unschedulable": before.unschedulable or None},
        }
        assert plane.request("PATCH", path, body=as_before, content_type=MERGE).status == 200


def test_a_nodes_spec_has_no_field_that_the_policies_do_not_know(robbed: Thief) -> None:
    found = robbed.site.plane.request("GET", "/openapi/v3/api/v1").body
    spec = found["components"]["schemas"]["io.k8s.api.core.v1.NodeSpec"]["properties"]
    policies = robbed.site.plane.get(
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/node-recovery-nodes"
    )
    said = " ".join(v["expression"] for v in policies["spec"]["validations"])
    assert {name for name in spec if f"object.spec.?{name} " not in said} == {"unschedulable", "taints"}


def test_on_the_gate_a_stolen_token_takes_its_own_slot_and_frees_others(thief: Thief) -> None:
    (theirs,) = thief.slots()
    own = {**theirs, "node": thief.mine, "recordUID": "mine"}
    third = {**theirs, "node": "of-a-third", "recordUID": "third"}
    for slots in (
        [theirs, third],
        [third],
        [{**theirs, "scopes": []}],
        [{**theirs, "attempt": 7}],
        [{**theirs, "node": "of-a-third"}],
    ):
        answer = thief.changed(GATE, slots=slots)
        assert denied(answer), slots
        assert "takes its own slot only, and frees others" in answer.body["message"]
    assert thief.changed(GATE, slots=[theirs, own]).status == 200
    assert thief.changed(GATE, slots=[theirs]).status == 200
    assert denied(thief.changed(GATE, stamp="", slots=[])), (
        "a gate that looks harmed may be filled by anybody"
    )
    pause = {"spec": {"pause": {"owner": "thief", "reason": "none"}}}
    assert denied(thief.asks("PATCH", GATE, pause, MERGE))
    thief.site.plane.request("PATCH", GATE, body=pause, content_type=MERGE)
    assert denied(thief.asks("PATCH", GATE, {"spec": None}, MERGE)), "resuming"
    assert denied(thief.asks("DELETE", GATE))
    assert thief.changed(GATE, slots=[]).status == 200  # the risk that is left: docs/security.md


def test_a_gate_that_was_made_anew_is_filled_by_whoever_needs_it_first(thief: Thief) -> None:
    (theirs,) = thief.slots()
    plane = thief.site.plane
    assert plane.request("DELETE", GATE).status == 200
    bare = {"apiVersion": "noderecovery.dev/v1alpha1", "kind": "RecoveryGate", "metadata": {"name": "fleet"}}
    status = {"version": 1, "stamp": "", "open": [], "slots": [theirs]}
    path = GATE.rpartition("/")[0]
    assert denied(thief.asks("POST", path, {**bare, "spec": {}, "status": status})), "made with a slot"
    bare_status = {**status, "slots": []}
    at = theirs["since"]
    queued = {"node": thief.other, "recordUID": theirs["recordUID"], "since": at}
    for more in (
        {"open": [queued]},
        {"stamp": "another"},
        {"starts": [{"at": at, "node": "n", "machine": "m", "reason": "r"}]},
        {"replacementsClaimed": [{"machine": "m", "insteadOf": "n"}]},
        {"lastStart": at},
        {"census": {"at": at, "population": 1, "sick": [thief.other]}},
    ):
        made = thief.asks("POST", path, {**bare, "spec": {}, "status": {**bare_status, **more}})
        assert denied(made), more
        assert "an agent makes the gate empty" in made.body["message"]
    for name, value in FOREIGN.items():
        metadata = {"name": "fleet", name: value}
        made = thief.asks("POST", path, {**bare, "metadata": metadata, "spec": {}, "status": bare_status})
        assert denied(made), name
    paused = {"pause": {"owner": "thief", "reason": "none"}}
    assert denied(thief.asks("POST", path, {**bare, "spec": paused, "status": bare_status})), "paused"
    answer = thief.asks("POST", path, {**bare, "spec": {}, "status": {**status, "slots": []}})
    assert answer.status == 201, answer.body
    uid = plane.get(GATE)["metadata"]["uid"]
    assert thief.changed(GATE, stamp=uid, slots=[theirs]).status == 200


def test_a_stolen_token_deletes_no_nodeclaim_but_its_own_nodes(thief: Thief) -> None:
    assert denied(thief.asks("DELETE", f"{CLAIMS}/of-{thief.other}"))
    assert denied(thief.asks("PATCH", f"{CLAIMS}/of-{thief.other}", {"spec": {"a": 1}}, MERGE))
    assert thief.asks("DELETE", f"{CLAIMS}/of-{thief.mine}").status == 200
    assert denied(thief.asks("DELETE", CLAIMS))
    thief.site.plane.get(f"{CLAIMS}/of-{thief.other}")


def test_a_stolen_token_takes_leases_over_and_deletes_none(thief: Thief) -> None:
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "nr-stolen"},
        "spec": {"holderIdentity": "thief"},
    }
    assert denied(thief.asks("POST", LEASES, {**lease, "metadata": {"name": "kube-scheduler"}}))
    assert thief.asks("POST", LEASES, lease).status == 201
    found = thief.site.plane.get(f"{LEASES}/nr-stolen")
    assert thief.asks("PUT", f"{LEASES}/nr-stolen", found).status == 200
    for path in (f"{LEASES}/nr-stolen", LEASES):
        assert denied(thief.asks("DELETE", path)), path
    thief.site.plane.request("DELETE", f"{LEASES}/nr-stolen")


def test_doctor_sees_that_the_policies_bind_and_that_one_of_them_does_not_any_more(thief: Thief) -> None:
    site = thief.site
    api = DoctorApi(Door(thief), SystemClock(), NAMESPACE)
    (found,) = fences.check(api, thief.mine)
    assert found.ok, found.sentence
    bindings = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    was = site.plane.get(f"{bindings}/node-recovery-gate")
    assert site.plane.request("DELETE", f"{bindings}/node-recovery-gate").status == 200
    try:
        path = GATE.rpartition("/")[0]
        site.plane.until("it is known", lambda: next(fences.check(api, thief.mine)).ok is False)
        (found,) = fences.check(api, thief.mine)
        assert "limits this account for the gate" in found.sentence
        assert site.plane.request("GET", path).body["items"], "nothing was changed"
    finally:
        body = {**was, "metadata": {"name": was["metadata"]["name"], "labels": was["metadata"]["labels"]}}
        assert site.plane.request("POST", bindings, body=body).status == 201
        site.plane.until("it binds again", lambda: next(fences.check(api, thief.mine)).ok is True)


def test_doctor_sees_which_of_the_policys_taints_the_agent_may_set(thief: Thief) -> None:
    rules = "rules:\n  - name: a\n    match: {source: npd}\n    remedy:"
    steps = "{do: taint, key: aznhc, value: failed}, {do: taint, key: example.com/faulty}"
    head = "apiVersion: noderecovery.dev/v1alpha1\nkind: RecoveryPolicy\n"
    policy = parse_policy(f"{head}{rules} [{steps}]\n".encode(), "p.yaml").policy
    api = DoctorApi(Door(thief), SystemClock(), NAMESPACE)
    node = node_view(thief.site.plane.get(f"/api/v1/nodes/{thief.mine}"))
    (found,) = fences.check_taints(api, node, policy)
    assert (found.ok, "the taint example.com/faulty:NoSchedule" in found.sentence) == (False, True)
    assert node_view(thief.site.plane.get(f"/api/v1/nodes/{thief.mine}")).taints == node.taints


class Door:
    """The agent's own way to the API server, with the thief's token."""

    namespace = NAMESPACE

    def __init__(self, thief: Thief) -> None:
        self._thief = thief

    def request(self, method: str, path: str, *, query: Any = None, body: Any, content_type: Any) -> Response:
        asked = f"{path}?{urlencode(query)}" if query else path
        return self._thief.asks(method, asked, body, content_type)


def test_the_expressions_of_the_policies_pass_the_servers_own_check_of_types(robbed: Thief) -> None:
    site = robbed.site
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"

    def checked() -> list[Any]:
        return [p["status"].get("typeChecking") for p in site.plane.get(path)["items"] if "status" in p]

    site.plane.until("all are checked", lambda: len(checked()) == 14 and None not in checked())
    assert [c for c in checked() if c.get("expressionWarnings")] == []
