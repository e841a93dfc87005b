"""When do failed pods speak against their node, and when against themselves?"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from recovery.model import FailedPod, Reading
from recovery.signals.black_hole import (
    QUIET,
    REASON,
    REJECTED,
    TYPE,
    Lost,
    Swallows,
    lost,
    recent,
    stated,
    suspected,
    with_pods,
)
from tests.builders.nodes import node, ready_since
from tests.builders.times import NOW

HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
WELL = node(stated=ready_since(NOW - HOUR))
POD = FailedPod("jobs", "train-1", "uid-1", WELL.name, "job-1", REJECTED, NOW - SECOND)
AT_ONCE = replace(POD, reason="", began=NOW - 20 * SECOND, ended=NOW - SECOND)


def test_a_pod_that_its_kubelet_rejects_and_one_that_fails_at_once_are_lost() -> None:
    assert lost(POD, WELL, NOW) == Lost(NOW, "jobs", "job-1", rejected=True)
    assert lost(AT_ONCE, WELL, NOW) == Lost(NOW, "jobs", "job-1", rejected=False)


@pytest.mark.parametrize(
    ("pod", "at"),
    [
        (replace(POD, owner=""), WELL),
        (replace(POD, began=None), WELL),
        (replace(POD, reason="Evicted"), WELL),
        (replace(POD, began=NOW - 2 * MINUTE), WELL),
        (replace(AT_ONCE, began=NOW - 40 * SECOND), WELL),
        (POD, replace(WELL, conditions={"Ready": ("Unknown", "NodeStatusUnknown")})),
        (POD, replace(WELL, unschedulable=True)),
        (POD, replace(WELL, stated=ready_since(None))),
        (POD, replace(WELL, stated=ready_since(NOW - 9 * MINUTE))),
    ],
    ids=[
        "nothing would make it again",
        "it says no time",
        "it failed for another reason",
        "it had run here before its kubelet was started anew",
        "it ran for a while",
        "the node is not Ready",
        "the node is cordoned",
        "nobody says since when it is Ready",
        "the node came up a moment ago",
    ],
)
def test_a_pod_that_may_have_failed_for_its_own_reason_is_not(pod: FailedPod, at: object) -> None:
    assert lost(pod, at, NOW) is None  # type: ignore[arg-type]


def pods(*owners: str, apart: timedelta = 20 * SECOND) -> list[Lost]:
    return [Lost(NOW + i * apart, "jobs", owner, rejected=i % 2 == 0) for i, owner in enumerate(owners)]


@pytest.mark.parametrize(
    ("found", "suspicious"),
    [
        (pods("a", "a", "b", "b", "b"), True),
        (pods("a", "b", "a", "b"), False),
        (pods("a", "a", "a", "a", "a"), False),
        (pods("a", "b", "a", "b", "a", apart=SECOND), False),
    ],
    ids=["five of two", "four", "one application", "all in one moment"],
)
def test_it_takes_five_pods_of_two_controllers_over_a_minute(found: list[Lost], suspicious: bool) -> None:
    assert suspected(found) == ({"jobs": {"a", "b"}} if suspicious else {})


def test_a_controller_whose_pods_fail_at_once_on_another_node_speaks_against_none() -> None:
    found = [replace(pod, rejected=False) for pod in pods("a", "b", "c", "a", "b", "c", "a", "b")]
    there, every = found[0], {"jobs": {"a", "b", "c"}}
    assert suspected(found, [there]) == {"jobs": {"b", "c"}}
    assert suspected(found, [replace(there, rejected=True)]) == every
    assert suspected(found, [replace(there, namespace="other")]) == every
    rejected = [replace(pod, rejected=True) for pod in found]
    assert suspected(rejected, [there]) == every, "a kubelet's word on its own node"


def test_only_the_last_five_minutes_count() -> None:
    known = dict(enumerate(pods("a", "b", "a", "b", "a", apart=2 * MINUTE)))
    assert len(recent({str(k): x for k, x in known.items()}, NOW + 8 * MINUTE)) == 3


def test_what_fails_everywhere_speaks_against_no_node() -> None:
    assert stated(None, pods("a", "b", "a", "b", "a"), elsewhere=1) is None
    found = stated(None, pods("a", "b", "a", "b", "a"), elsewhere=2)
    assert found is not None
    assert found.said == (
        "5 pods of 2 controllers were lost here within 80 s, 3 of them rejected (UnexpectedAdmissionError); "
        "2 of the controllers run on other nodes"
    )


def test_after_a_quiet_while_it_is_stated_anew() -> None:
    old = Swallows("before", NOW - HOUR, NOW - QUIET, NOW - HOUR)
    later = stated(old, pods("a", "b", "a", "b", "a"), 2)
    assert later is not None
    assert later.anew == later.last
    soon = stated(replace(old, last=NOW), pods("a", "b", "a", "b", "a"), 2)
    assert soon is not None
    assert (soon.anew, soon.since) == (old.anew, old.since)


def test_nothing_takes_it_back_and_after_a_quiet_while_it_may_be_over() -> None:
    reading = Reading("api", NOW)
    found = Swallows("said", NOW - MINUTE, NOW - SECOND, NOW - MINUTE)
    (problem,) = with_pods(reading, found, MINUTE).problems
    assert (problem.key, problem.latched) == (("api", TYPE, REASON), True)
    assert with_pods(reading, found, MINUTE).gone == frozenset()
    assert with_pods(reading, replace(found, last=NOW - QUIET), MINUTE).gone == {(TYPE, REASON)}
    assert with_pods(reading, None, MINUTE).problems == ()
