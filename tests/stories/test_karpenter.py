"""A machine of Karpenter's: replaced by deleting its NodeClaim, proved by both being gone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from recovery_testkit.kubefaults import Asked, Effect, lost_answer, lost_request, refused, server_error
from recovery_testkit.kubernetes import node_claim_crd
from recovery_testkit.provider import FakeProvider
from recovery_testkit.stage import Stage

from recovery.console import wanted_back
from recovery.model import ClusterDelete, Deleting, Machine, NodeView, Phase, Poll, Preflight, Reference, Step
from tests.builders.faults import DMA
from tests.builders.policies import policy_file
from tests.stories.console import Terminal
from tests.stories.scenery import sentences
from tests.stories.scenes import calls, no_place, phase, ready, record_sentences, the_record

CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
AT_ONCE = policy_file("{do: replace, within: 30m}")


class Karpenter(FakeProvider):
    """Machines that are in no group: what replaces them is a deletion for the caller to carry out."""

    uids: dict[str, str]

    def identify(self, node: NodeView) -> Machine:
        found = super().identify(node)
        claim = found.id.replace("m-", "claim-")
        route = {"nodepool": "trn", "nodeclaim": claim, "nodeclaim_uid": self.uids.get(claim, "")}
        return replace(found, group="trn", route=route)

    def preflight(self, machine: Machine, action: Step) -> Preflight:
        return Preflight(Reference("fake", action.value, {"kind": "nodeclaim", "by": "Karpenter"}), "trn")

    def start(self, machine: Machine, action: Step, token: str, reference: Reference) -> ClusterDelete | None:
        self.calls.append((action, machine.id, token))
        route = machine.route
        return ClusterDelete("karpenter.sh/v1", "nodeclaims", route["nodeclaim"], route["nodeclaim_uid"])

    def poll(self, machine: Machine, reference: Reference) -> Poll:
        route = machine.route
        claim = ClusterDelete("karpenter.sh/v1", "nodeclaims", route["nodeclaim"], route["nodeclaim_uid"])
        return Deleting(replace(claim, kind="NodeClaim", by="Karpenter"))

    def take_back(self, machine: Machine, reference: Reference) -> Any:
        found = self.poll(machine, reference)
        assert isinstance(found, Deleting)
        return found.what


def stage(nodes: int = 4) -> Stage:
    """Nodes with their NodeClaims, each held by Karpenter's finalizer as long as its machine runs."""
    s = Stage(AT_ONCE)
    s.store.install_crd(node_claim_crd())
    provider = s.provider = Karpenter()
    provider.uids = {}
    for i in range(nodes):
        claim = {"name": f"claim-{i}", "finalizers": ["karpenter.sh/termination"]}
        s.store.load({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": claim, "spec": {}})
        provider.uids[f"claim-{i}"] = s.store.request("GET", f"{CLAIMS}/claim-{i}").body["metadata"]["uid"]
    for name in s.nodes(nodes):
        s.agent(name)
    s.run(3)
    return s


def deleting(asked: Asked) -> bool:
    return asked.method == "DELETE" and asked.path == f"{CLAIMS}/claim-0"


def looking_at_it(asked: Asked) -> bool:
    return asked.method == "GET" and asked.path == f"{CLAIMS}/claim-0"


def karpenter_ends_it(s: Stage) -> None:
    """Karpenter drains, ends the machine and lets go of the claim; the kubelet's Node goes too."""
    patch = {"metadata": {"finalizers": None}}
    s.store.request("PATCH", f"{CLAIMS}/claim-0", body=patch, content_type="application/merge-patch+json")


def the_machine_is_gone(s: Stage) -> None:
    s.delete_node("node-0")
    s.kill(s.actors["agent of node-0"])


def test_a_machine_is_replaced_by_deleting_its_claim_and_proved_by_node_and_claim_being_gone() -> None:
    s = stage()
    s.fault("node-0")
    s.run(5)
    assert calls(s) == [("replace", "m-0")]
    assert sentences(s)[-1] == "NodeClaim claim-0 is being deleted by Karpenter"
    karpenter_ends_it(s)
    s.run(5)
    assert sentences(s)[-1] == "NodeClaim claim-0 is gone, and Node node-0 is not yet"
    the_machine_is_gone(s)
    s.run(200, step=2)
    assert (phase(s), no_place(s), len(calls(s))) == (Phase.RECOVERED, True, 1)
    assert "Node node-0 and NodeClaim claim-0 are gone" in record_sentences(s)
    assert the_record(s).sentence == "proved: Node node-0 and NodeClaim claim-0 are gone"


ANSWERS: dict[str, tuple[Effect, str, str]] = {
    "another object of that name": (
        refused(409, "Conflict", "the UID in the precondition does not match"),
        "refused",
        "claim-0 is another object now: nothing was deleted",
    ),
    "no right": (
        refused(403, "Forbidden", "nodeclaims is forbidden"),
        "refused",
        f"claim-0 was not deleted: DELETE {CLAIMS}/claim-0: 403 nodeclaims is forbidden; what an agent may "
        "delete is granted by deploy/rbac",
    ),
    "too many requests": (
        refused(429, "TooManyRequests", "try again later"),
        "notYet",
        f"replace of m-0: not yet: DELETE {CLAIMS}/claim-0: 429 try again later",
    ),
    "a lost request": (
        lost_request,
        "ambiguous",
        "replace of m-0: the answer was lost, observing: DELETE",
    ),
    "a lost answer": (
        lost_answer,
        "ambiguous",
        "replace of m-0: the answer was lost, observing: DELETE",
    ),
    "a server in trouble": (
        refused(500, "InternalError", "etcd is slow"),
        "ambiguous",
        f"replace of m-0: the answer was lost, observing: DELETE {CLAIMS}/claim-0: 500 etcd is slow",
    ),
}


@pytest.mark.parametrize(("answer", "event", "sentence"), ANSWERS.values(), ids=ANSWERS)
def test_each_answer_to_the_deletion_is_told_as_what_it_means(
    answer: Effect, event: str, sentence: str
) -> None:
    s = stage()
    s.api.fail_next(deleting, answer)
    s.fault("node-0")
    s.run(3)
    assert s.api.pending == 0
    told = [line.sentence for line in the_record(s).history if line.event == event]
    assert [one[: len(sentence)] for one in told] == [sentence]


def test_a_deletion_that_was_refused_is_a_persons() -> None:
    s = stage()
    s.api.fail_next(deleting, refused(403, "Forbidden", "nodeclaims is forbidden"))
    s.fault("node-0")
    s.run(5)
    assert phase(s) is Phase.HANDED_OVER
    assert the_record(s).sentence == (
        f"handed over to a person: claim-0 was not deleted: DELETE {CLAIMS}/claim-0: 403 nodeclaims is "
        "forbidden; what an agent may delete is granted by deploy/rbac"
    )


def test_a_deletion_that_was_lost_on_the_way_is_seen_not_to_have_been_made() -> None:
    s = stage()
    s.api.fail_next(deleting, lost_request)
    s.fault("node-0")
    s.run(62)
    assert "replace had no effect after 60 s: NodeClaim claim-0 is there, and nobody deletes it" in sentences(
        s
    )
    s.run(5)
    assert len(calls(s)) == 2  # asked again as a new attempt
    assert sentences(s)[-1] == "NodeClaim claim-0 is being deleted by Karpenter"


UNREADABLE: dict[str, Effect] = {
    "403": refused(403, "Forbidden", "nodeclaims is forbidden"),
    "500": server_error(),  # as of its conversion webhook
}


@pytest.mark.parametrize("answer", UNREADABLE.values(), ids=UNREADABLE)
def test_a_claim_that_cannot_be_read_is_told_and_its_node_is_a_persons_at_the_deadline(
    answer: Effect, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = stage()
    s.fault("node-0")
    s.run(5)
    s.api.fail_next(looking_at_it, answer, times=10**6)
    s.run(30)
    assert f"replace: GET {CLAIMS}/claim-0: " in sentences(s)[-1]
    s.run(31 * 60, step=10)
    assert phase(s) is Phase.HANDED_OVER, sentences(s)[-1]
    assert "replace did not succeed within 30 min: replace: GET" in the_record(s).sentence
    assert no_place(s)
    monkeypatch.setattr(wanted_back, "sleep", lambda seconds: s.run(seconds, step=5.0))
    assert Terminal(s, monkeypatch).run("release", "node-0", "--yes").code == 1
    s.run(400, step=5)
    told = "replace of m-0 may still come: whether NodeClaim claim-0 is being deleted cannot be seen: GET"
    assert f"the release is refused: {told}" in record_sentences(s)[-1]


def test_the_node_of_a_claim_that_cannot_be_read_is_a_persons_too_where_its_agent_is_gone() -> None:
    """It is an error of that object's, and no outage of the API server."""
    s = stage()
    s.concluder()
    s.fault("node-0")
    s.run(5)
    karpenter_ends_it(s)
    the_machine_is_gone(s)
    s.api.fail_next(looking_at_it, server_error(), times=10**6)
    s.run(33 * 60, step=10)
    assert phase(s) is Phase.HANDED_OVER
    assert no_place(s)


def test_a_claim_that_was_gone_already_needs_no_deletion() -> None:
    s = stage()
    s.api.fail_next(deleting, refused(404, "NotFound", "not found"))
    s.fault("node-0")
    s.run(3)
    assert "replace of m-0 was accepted by fake" in record_sentences(s)


def test_the_brake_keeps_a_claim_as_it_keeps_an_instance() -> None:
    s = stage(nodes=2)
    ready(s, "node-1", "False")
    s.fault("node-0")
    s.run(5)
    assert calls(s) == []
    assert sentences(s)[-1].startswith(f"{DMA}: waiting: the brake is on: 2 of 2 nodes in the fleet are sick")


def taint(s: Stage, key: str) -> None:
    body = {"spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}}
    found = s.store.request("GET", "/api/v1/nodes/node-0").body["spec"].get("taints", [])
    body["spec"]["taints"] += found
    s.store.request("PATCH", "/api/v1/nodes/node-0", body=body, content_type="application/merge-patch+json")


def test_a_machine_that_karpenter_cannot_end_is_a_persons_at_the_deadline_though_karpenter_marks_it() -> None:
    """Its mark is the effect of our own request: no other remediator is at work there."""
    s = stage()
    s.fault("node-0")
    s.run(5)
    taint(s, "karpenter.sh/disrupted")
    s.run(31 * 60, step=10)
    assert phase(s) is Phase.HANDED_OVER, sentences(s)[-1]
