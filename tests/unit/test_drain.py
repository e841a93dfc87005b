"""Which pods a drain waits for, asks for and tells of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from recovery.decide.drain import ANNOTATED, EVICT_AFTER, Plan, plan, remaining, rule_of, stays, within_rate
from recovery.model import DrainPolicy, PodMode, PodRule, PodView
from recovery.units import hour, moment
from tests.builders.nodes import pod
from tests.builders.times import NOW, SECOND

TRAIN = pod()
LEAVING = replace(TRAIN, name="leaving", deletion_timestamp=NOW + SECOND)
PAST = replace(TRAIN, name="past", deletion_timestamp=NOW - SECOND)
PODS: dict[str, tuple[PodView, bool]] = {
    "running": (TRAIN, False),
    "pending": (replace(TRAIN, phase="Pending"), False),
    "without an owner": (replace(TRAIN, owner_kind=""), False),
    "of a job": (replace(TRAIN, owner_kind="Job"), False),
    "of a stateful set": (replace(TRAIN, owner_kind="StatefulSet"), False),
    "of a daemon set": (replace(TRAIN, owner_kind="DaemonSet"), True),
    "mirror": (replace(TRAIN, mirror=True, owner_kind="Node"), True),
    "succeeded": (replace(TRAIN, phase="Succeeded"), True),
    "failed": (replace(TRAIN, phase="Failed"), True),
    "unknown": (replace(TRAIN, phase="Unknown"), False),
}


@pytest.mark.parametrize("row", PODS)
def test_daemon_set_mirror_and_finished_pods_stay_and_others_leave(row: str) -> None:
    pod, left_alone = PODS[row]
    assert stays(pod) is left_alone
    assert bool(remaining([pod], NOW)) is not left_alone


def test_an_evicted_pod_past_its_own_grace_blocks_no_longer() -> None:
    assert remaining([LEAVING, PAST], NOW) == (LEAVING,)


# ---------------------------------------------------------------- what is asked for

BEGAN = NOW - 60 * SECOND
AT_ONCE = DrainPolicy()


def planned(
    *pods: PodView,
    policy: DrainPolicy = AT_ONCE,
    refused: Mapping[str, str] | None = None,
    fenced: Mapping[str, str] | None = None,
) -> Plan:
    return plan(pods, policy, BEGAN, NOW, refused or {}, fenced or {})


def gang(name: str, **more: Any) -> PodView:
    return replace(TRAIN, name=name, uid=name, gang="jobset=llm", **more)


def waiting(seconds: float = 300, **more: Any) -> DrainPolicy:
    return DrainPolicy(pods=(PodRule(PodMode.WAIT, within=seconds * SECOND, **more),))


def test_a_pod_on_its_way_out_is_not_asked_for_again() -> None:
    assert planned(TRAIN, LEAVING).ask == ((TRAIN,),)


def test_pods_are_asked_for_in_an_order_that_differs_from_node_to_node() -> None:
    """Not by name: else all would ask of the same disruption budget first."""
    a, b, c = (replace(TRAIN, name=name, uid=uid) for name, uid in (("a", "7"), ("b", "3"), ("c", "5")))
    assert planned(a, b, c).ask == ((b,), (c,), (a,))


def test_a_pod_that_was_refused_a_moment_ago_is_not_asked_for_again() -> None:
    assert planned(TRAIN, refused={"default/train": "not now"}).ask == ()


@pytest.mark.parametrize(
    ("left", "refused", "sentence"),
    [
        ((), {}, "0 pods left"),
        ((TRAIN,), {}, "1 pod left"),
        ((TRAIN, LEAVING), {}, "2 pods left; default/leaving is terminating"),
        (
            (LEAVING, TRAIN),
            {"default/train": "budget web allows none"},
            "2 pods left; default/train may not go yet: budget web allows none",
        ),
        ((TRAIN,), {"default/other": "budget web allows none"}, "1 pod left"),
    ],
)
def test_the_state_of_a_drain_names_a_pod_and_what_keeps_it(
    left: tuple[PodView, ...], refused: dict[str, str], sentence: str
) -> None:
    assert str(planned(*left, refused=refused)) == sentence


@pytest.mark.parametrize(
    ("policy", "pod", "words"),
    [
        (
            DrainPolicy(force=False),
            replace(TRAIN, owner_kind=""),
            "default/train may not go: cannot delete Pods that declare no controller (drain.force is false)",
        ),
        (
            DrainPolicy(delete_emptydir_data=False),
            replace(TRAIN, local_storage=True),
            "default/train may not go: cannot delete Pods with local storage "
            "(drain.deleteEmptydirData is false)",
        ),
    ],
)
def test_what_kubectl_would_refuse_is_refused_in_its_words_where_the_policy_says_so(
    policy: DrainPolicy, pod: PodView, words: str
) -> None:
    found = planned(pod, policy=policy)
    assert (found.ask, str(found)) == ((), f"1 pod left; {words}")
    assert planned(TRAIN, policy=policy).ask == ((TRAIN,),)
    assert planned(pod).ask == ((pod,),)


def test_a_pod_has_its_time_to_end_by_itself_from_the_drains_begin_and_then_it_is_asked_for() -> None:
    early = planned(TRAIN, policy=waiting(61))
    assert early.ask == ()
    assert str(early) == f"1 pod left; default/train has until {hour(NOW + SECOND, NOW)} to end by itself"
    assert planned(TRAIN, policy=waiting(60)).ask == ((TRAIN,),)


def test_a_pod_that_has_time_is_told_until_when_once() -> None:
    policy = waiting(300, annotate={"example.com/checkpoint": "now"})
    wanted = {"example.com/checkpoint": "now", EVICT_AFTER: moment(BEGAN + 300 * SECOND)}
    assert planned(TRAIN, policy=policy).annotate == ((TRAIN, wanted),)
    assert planned(replace(TRAIN, annotations={**wanted, "more": "x"}), policy=policy).annotate == ()
    assert planned(TRAIN, policy=policy, refused={f"{ANNOTATED}default/train": "forbidden"}).annotate == ()
    assert planned(TRAIN, policy=waiting(60, annotate={"a": "b"})).annotate == ()
    assert planned(TRAIN, policy=waiting(300)).annotate == ()


def test_a_node_with_a_pod_that_may_never_go_is_not_drained() -> None:
    never = PodRule(PodMode.NEVER, labels={"role": "master*"})
    policy = DrainPolicy(pods=(PodRule(PodMode.EVICT, ("kube-system",)), never))
    master = replace(TRAIN, name="master", labels={"role": "master-0"})
    found = planned(TRAIN, master, policy=policy)
    assert found.never == "default/master may never be evicted (drain.pods[1] of the policy)"
    assert found.ask == ()
    assert not planned(TRAIN, replace(master, phase="Succeeded"), policy=policy).never


def test_the_first_rule_that_matches_a_pod_wins() -> None:
    rules = (
        PodRule(PodMode.EVICT, ("train-*",), {"urgent": "*"}),
        PodRule(PodMode.WAIT, ("train-*",), within=300 * SECOND),
        PodRule(PodMode.NEVER, ("train-*", "other")),
    )
    policy = DrainPolicy(pods=rules)
    assert rule_of(replace(TRAIN, namespace="train-a", labels={"urgent": ""}), policy) is rules[0]
    assert rule_of(replace(TRAIN, namespace="train-a"), policy) is rules[1]
    assert rule_of(replace(TRAIN, namespace="other"), policy) is rules[2]
    assert rule_of(TRAIN, policy).mode is PodMode.EVICT


# ---------------------------------------------------------------- gangs


def test_the_pods_of_one_workload_are_asked_for_together() -> None:
    one, two, alone = gang("one"), gang("two"), TRAIN
    assert planned(one, alone, two).ask == ((one, two), (alone,))


def test_the_same_name_in_another_namespace_is_another_workload() -> None:
    one, other = gang("one"), gang("one", namespace="b")
    assert planned(one, other).ask == ((one,), (other,))


def test_what_keeps_one_keeps_all_of_its_workload() -> None:
    one, two = gang("one"), gang("two")
    found = planned(one, two, TRAIN, refused={"default/two": "budget llm"})
    assert found.ask == ((TRAIN,),)
    assert found.waits == {
        "default/one": "goes together with default/two, which may not go yet: budget llm",
        "default/two": "may not go yet: budget llm",
    }


def test_a_workload_of_which_a_pod_is_on_its_way_out_follows_it() -> None:
    one, two = gang("one", deletion_timestamp=NOW + SECOND), gang("two")
    assert planned(one, two).ask == ((two,),)


# ---------------------------------------------------------------- what comes back

CAME = replace(TRAIN, name="came", uid="came", created=NOW - SECOND, tolerates=True)


@pytest.mark.parametrize(
    ("pod", "policy", "is_left"),
    [
        (CAME, AT_ONCE, True),
        (replace(CAME, created=BEGAN - 2 * SECOND), AT_ONCE, True),
        (replace(CAME, created=BEGAN - 3 * SECOND), AT_ONCE, False),
        (replace(CAME, created=None), AT_ONCE, False),
        (replace(CAME, tolerates=False), AT_ONCE, False),
        (CAME, waiting(61), False),
        (CAME, waiting(60), True),
        (CAME, DrainPolicy(pods=(PodRule(PodMode.NEVER),)), False),
    ],
)
def test_a_pod_that_tolerates_our_marks_and_came_after_the_drain_began_is_left_alone(
    pod: PodView, policy: DrainPolicy, is_left: bool
) -> None:
    found = planned(pod, policy=policy)
    assert (not found.left, bool(found.stay)) == (is_left, is_left)


# ---------------------------------------------------------------- the rate


def test_no_more_are_asked_for_than_the_rate_allows_and_a_larger_workload_goes_alone() -> None:
    a, b, c = ((replace(TRAIN, name=n),) for n in "abc")
    llm = tuple(gang(str(n)) for n in range(5))
    assert within_rate((a, b, c), 2, 3) == (a, b)
    assert within_rate((a, b, c), 0, 3) == ()
    assert within_rate((a, b, c), None, None) == (a, b, c)
    assert within_rate((llm, a), 3, 3) == (llm,)
    assert within_rate((llm, a), 2, 3) == ()
    assert within_rate((a, llm), 3, 3) == (a,)


# ---------------------------------------------------------------- what stays in a fenced namespace

FENCE = "namespace vault is fenced: its label noderecovery.dev/evict says never"


def fenced_pods(count: int) -> dict[str, PodView]:
    found = [replace(TRAIN, namespace="vault", name=f"pod-{i}", uid=f"v-{i}") for i in range(count)]
    return {str(pod): pod for pod in found}


def test_a_fenced_pod_is_neither_asked_for_nor_waited_for_and_is_named_with_its_reason() -> None:
    (name, pod), *_ = fenced_pods(1).items()
    found = planned(TRAIN, pod, fenced={name: FENCE})
    assert (found.left, found.ask) == ((TRAIN,), ((TRAIN,),))
    assert str(found) == f"1 pod left; vault/pod-0 stays: {FENCE}"


def test_a_node_with_none_but_fenced_pods_is_empty() -> None:
    (name, pod), *_ = fenced_pods(1).items()
    found = planned(pod, fenced={name: FENCE})
    assert (found.left, found.staying) == ((), f"vault/pod-0 stays: {FENCE}")


def test_fenced_pods_that_are_gone_are_named_no_more() -> None:
    assert planned(TRAIN, fenced={"vault/pod-0": FENCE}).staying == ""


def test_of_many_fenced_pods_the_first_are_named_once_with_their_reason() -> None:
    pods = fenced_pods(7)
    named = ", ".join(list(pods)[:5])
    assert (
        planned(*pods.values(), fenced=dict.fromkeys(pods, FENCE)).staying
        == f"{named} and 2 more stay: {FENCE}"
    )


def test_a_fenced_pod_keeps_no_other_pod_of_its_workload() -> None:
    one, two = gang("one"), gang("two")
    assert planned(one, two, fenced={str(one): FENCE}).ask == ((two,),)
