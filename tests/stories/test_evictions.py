"""What a drain says of a pod that does not go, whoever keeps it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from recovery_testkit.kubefaults import (
    Asked,
    Effect,
    denied,
    lost_answer,
    lost_request,
    refused,
    throttled,
)
from recovery_testkit.kubestatus import Response
from recovery_testkit.stage import Stage

from recovery.model import Phase
from tests.builders.faults import DMA
from tests.builders.objects import budget_object
from tests.builders.policies import policy_file
from tests.stories.scenery import sentences
from tests.stories.scenes import MERGE, REBOOTS, calls, cast, phase, remove_pod, stubborn_pod, the_record
from tests.stories.test_training import when_asked

EVICT = "POST /api/v1/namespaces/default/pods/train/eviction"


def evicting(asked: Asked) -> bool:
    return asked.path.endswith("/eviction")


def drained(answer: Effect | None = None, times: int = 10**6) -> Stage:
    """A node with one pod, whose evictions are answered so."""
    s = cast()
    s.add_pod("train", "node-0")
    if answer is not None:
        s.api.fail_next(evicting, answer, times=times)
    s.fault("node-0")
    s.run(8)
    return s


def test_a_pod_that_its_budget_keeps_is_named_with_the_budgets_words() -> None:
    s = cast()
    stubborn_pod(s)
    s.fault("node-0")
    s.run(8)
    waits = f"{DMA}: draining, 1 pod left; default/train may not go yet: The disruption budget keep needs"
    assert any(sentence.startswith(waits) for sentence in sentences(s))
    assert "asked for the eviction of 1 pod, 1 may not go yet" in sentences(s)


def test_what_is_refused_again_and_again_is_told_once() -> None:
    s = cast()
    s.add_pod("goes", "node-0", app="other")
    stubborn_pod(s)
    s.fault("node-0")
    s.run(120)
    told = [(reason, sentence) for reason, sentence in s.events("node-0") if "may not go yet" in sentence]
    assert [reason for reason, _ in told] == ["Draining", "Waiting"]
    assert len(s.events("node-0")) < 10


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (refused(403, "Forbidden", "pods/eviction is forbidden"), "403 pods/eviction is forbidden"),
        (refused(429, "TooManyRequests", "try again later"), "429 try again later"),
        (refused(500, "InternalError", "two budgets"), "500 two budgets"),
    ],
)
def test_a_pod_that_the_api_server_keeps_is_named_with_the_servers_words(answer: Effect, why: str) -> None:
    s = drained(answer)
    assert f"{DMA}: draining, 1 pod left; default/train may not go yet: {EVICT}: {why}" in sentences(s)
    assert phase(s) is Phase.RECOVERING


@pytest.mark.parametrize("answer", [lost_request, lost_answer])
def test_an_eviction_that_was_not_answered_is_said_and_the_next_one_asked_for_later(answer: Effect) -> None:
    s = drained(answer, times=1)
    unanswered = [x for x in sentences(s) if x.startswith("the eviction of default/train was not answered: ")]
    assert len(unanswered) == 1
    remove_pod(s)
    s.run(5)
    assert len(s.provider.calls) == 1


def test_a_pod_with_two_budgets_is_refused_and_keeps_no_other_one_waiting() -> None:
    """The API server answers with 500, and that was said to be no answer. It ended each pass."""
    s = cast()
    for name in ("a", "b", "c", "goes"):
        s.add_pod(name, "node-0", app=name)
    for name in ("a", "b", "c"):
        for kind in ("one", "two"):
            s.store.load(budget_object(f"{kind}-of-{name}", app=name, minAvailable=0))
    s.fault("node-0")
    s.run(8)
    assert "asked for the eviction of 4 pods, 3 may not go yet" in sentences(s)
    assert not [x for x in sentences(s) if "was not answered" in x]
    two = "500 This pod has more than one PodDisruptionBudget"
    assert any("may not go yet: POST " in x and two in x for x in sentences(s))


@pytest.mark.parametrize("then", [", {do: replace, within: 30m}", ""], ids=["replaced", "a person's"])
def test_a_pod_that_is_past_its_grace_period_ends_the_drain_and_is_named(then: str) -> None:
    """Its kubelet has not reported its end: a hung device keeps the process. A person may repair the machine
    by that sentence."""
    s = cast(policy_file(f"{{do: drain, within: 5m}}{then}"))
    s.add_pod("goes", "node-0", app="other")
    s.add_pod("train", "node-0")
    held = {"metadata": {"finalizers": ["example.com/hangs"]}}
    path = "/api/v1/namespaces/default/pods/train"
    assert s.store.request("PATCH", path, body=held, content_type=MERGE, user_agent="x").status == 200
    s.fault("node-0")
    s.run(30)
    drained = next(x for x in sentences(s) if "drained in " in x)
    assert "; default/train is still there past its grace period; " in drained
    assert "default/goes" not in drained
    assert len(s.provider.calls) == bool(then)


FENCE = "namespace default is fenced: its label noderecovery.dev/evict says never"


def garbage(asked: Asked, go: Callable[[], Response]) -> Response:
    """What another program answers in the API server's place. Nothing is done."""
    return Response(200, {}, {"all": "well"})


def test_an_eviction_that_something_else_answered_was_not_asked_for() -> None:
    s = cast()
    s.add_pod("train", "node-0")
    times = when_asked(s)
    s.api.fail_next(evicting, garbage, times=10**6)
    s.fault("node-0")
    s.run(60)
    assert (phase(s), len(times) < 12) == (Phase.RECOVERING, True), times
    strange = f"the answer to {EVICT} is not the API server's: it is no Status"
    assert any(strange in sentence for sentence in sentences(s))
    assert not any(sentence.startswith("asked for the eviction") for sentence in sentences(s))
    s.api.heal()
    s.run(60)
    assert calls(s) == [("replace", "m-0")]


def test_half_a_workload_is_not_evicted_because_something_else_answered_whether_all_may_go() -> None:
    s = cast()
    for name in ("w-0", "w-1"):
        s.add_pod(name, "node-0", **{"jobset.sigs.k8s.io/jobset-name": "llm", "app": name})
    s.store.load(budget_object("keep", app="w-1", minAvailable=1))
    s.api.fail_next(lambda asked: evicting(asked) and bool(asked.query), garbage, times=10**6)
    s.fault("node-0")
    s.run(60)
    assert not [w for w in s.store.history if w.path.endswith("/eviction")]


def fence(s: Stage, pod: str) -> list[Asked]:
    """The API server's policy keeps this pod. Returns what was asked of it, as it is asked."""
    told: list[Asked] = []

    def of_the_pod(asked: Asked) -> bool:
        mine = asked.path.endswith(f"/pods/{pod}/eviction")
        told.extend([asked] if mine else [])
        return mine

    s.api.fail_next(of_the_pod, denied("node-recovery-evictions", FENCE), times=10**6)
    return told


def test_a_pod_of_a_fenced_namespace_is_left_and_named_and_the_recovery_goes_on() -> None:
    s = cast()
    s.add_pod("vault", "node-0", app="vault")
    s.add_pod("goes", "node-0", app="other")
    fence(s, "vault")
    s.fault("node-0")
    s.run(60)
    assert any("asked for the eviction of 2 pods, 1 stays" in sentence for sentence in sentences(s))
    (drained,) = [x for x in sentences(s) if x.startswith("drained in ")]
    assert drained.endswith(f"; default/vault stays: {FENCE}; next: replace")
    assert drained in [sentence for _, sentence in s.events("node-0")], "a person sees it where the node is"
    assert len(s.provider.calls) == 1


def test_a_fence_is_asked_for_once_in_a_drain() -> None:
    s = cast()
    stubborn_pod(s)  # the drain goes on
    s.add_pod("vault", "node-0", app="vault")
    told = fence(s, "vault")
    s.fault("node-0")
    s.run(60)
    assert len(told) == 1


def test_an_eviction_that_rbac_forbids_is_no_fence() -> None:
    s = drained(refused(403, "Forbidden", f"pods/eviction is forbidden: {FENCE}"))
    assert not [x for x in sentences(s) if "stays" in x]
    assert phase(s) is Phase.RECOVERING


def test_a_policy_of_others_that_refuses_an_eviction_is_no_fence() -> None:
    s = drained(denied("no-evictions-at-noon", "come back at one"))
    assert any("default/train may not go yet" in x for x in sentences(s))
    assert phase(s) is Phase.RECOVERING


@pytest.mark.parametrize(
    ("then", "end"),
    [("handOver", Phase.HANDED_OVER), ("hold", Phase.RECOVERING), ("force", Phase.RECOVERING)],
)
def test_a_drain_whose_pods_cannot_be_listed_ends_in_time_as_its_policy_says(then: str, end: Phase) -> None:
    """One pod that cannot be decoded is enough. The slot would else be held for ever, and nothing said."""
    s = cast(policy_file(f"{{do: drain, within: 5m, then: {then}}}, {{do: replace, within: 30m}}"))
    s.add_pod("train", "node-0")
    listed = lambda a: a.method == "GET" and a.path.startswith("/api/v1/pods")  # noqa: E731
    s.api.fail_next(listed, refused(500, "InternalError", "cannot decode object"), times=10**6)
    s.fault("node-0")
    s.run(290)
    assert "the API server: GET" in s.actors["agent of node-0"].sentences[-1], "it may be its own trouble"
    s.run(270)
    assert (calls(s), phase(s)) == ([], Phase.RECOVERING)
    assert "which pods are left is not known" in s.actors["agent of node-0"].sentences[-1]
    s.run(180)
    assert phase(s) is end
    assert calls(s) == ([("replace", "m-0")] if then == "force" else [])


@pytest.mark.parametrize("status", [403, 500], ids=["denied", "the webhook is down"])
def test_a_cordon_that_is_refused_for_as_long_as_the_step_may_take_is_a_persons(status: int) -> None:
    """By an admission webhook, say. Then another node has its turn."""
    s = cast(policy_file("{do: drain, within: 5m, then: force}, {do: replace, within: 30m}"), agents=2)
    patched = lambda a: a.method == "PATCH" and a.path == "/api/v1/nodes/node-0"  # noqa: E731
    s.api.fail_next(patched, refused(status, "", "no cordons here"), times=10**6)
    s.fault("node-0")
    s.run(240)
    assert phase(s) is Phase.RECOVERING
    said = s.actors["agent of node-0"].sentences[-1]
    assert said.startswith(f"{DMA}: drain: the cordon was refused: ")
    assert said.endswith("no cordons here")
    s.run(120)
    assert phase(s) is Phase.HANDED_OVER
    assert the_record(s).sentence.endswith("no cordons here")
    s.fault("node-1")
    s.run(60)
    assert calls(s) == [("replace", "m-1")]


@pytest.mark.parametrize("why", [500, 403])
def test_unknown_pods_are_not_left_behind_where_one_of_them_may_never_be_evicted(why: int) -> None:
    never = b"drain: {pods: [{match: {labels: {role: master}}, mode: never}]}\nrules:\n"
    text = policy_file("{do: drain, within: 5m, then: force}, {do: replace, within: 30m}")
    s = cast(text.replace(b"rules:\n", never))
    s.add_pod("master", "node-0", role="master")
    listed = lambda a: a.method == "GET" and a.path.startswith("/api/v1/pods")  # noqa: E731
    s.api.fail_next(listed, refused(why, "InternalError", "cannot decode object"), times=10**6)
    s.fault("node-0")
    s.run(900)
    assert (calls(s), phase(s)) == ([], Phase.HANDED_OVER)


def test_an_api_server_that_is_too_busy_to_list_pods_is_given_rest_and_ends_no_drain() -> None:
    s = cast(policy_file("{do: drain, within: 5m, then: force}, {do: replace, within: 30m}"))
    s.add_pod("train", "node-0")
    listed = lambda a: a.method == "GET" and a.path.startswith("/api/v1/pods")  # noqa: E731
    s.api.fail_next(listed, throttled(60), times=10**6)
    s.fault("node-0")
    before = s.store.requests["list", "pods"]
    s.run(900)
    assert (calls(s), phase(s)) == ([], Phase.RECOVERING)
    assert s.store.requests["list", "pods"] - before < 25


def test_a_cordon_that_is_throttled_is_asked_for_again_when_the_server_says() -> None:
    s = cast(REBOOTS)
    patched = lambda a: a.method == "PATCH" and a.path == "/api/v1/nodes/node-0"  # noqa: E731
    s.api.fail_next(patched, throttled(1))
    s.fault("node-0")
    s.run(25)
    assert s.node("node-0")["spec"].get("unschedulable")
