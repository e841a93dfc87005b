"""What is a release about? What a person's command could not read, and what a later agent cannot tell."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from recovery.decide.acknowledged import dealt_with, not_dealt_with
from recovery.decide.diagnosis import fault_of
from recovery.decide.endings import close
from recovery.decide.lifecycle import Event
from recovery.decide.remembered import closed_at
from recovery.decide.situation import Situation
from recovery.decide.stated_since import as_released, in_their_lives
from recovery.model import Fault, Kind, Machine, Marks, NodeView, Phase, Problem, Reading, Record
from tests.builders.faults import edge, fault, problem, reading
from tests.builders.nodes import MACHINE, node
from tests.builders.records import record
from tests.builders.situations import situation
from tests.builders.times import HOUR, MINUTE, NOW, SECOND

BEFORE, AFTER = NOW - SECOND, NOW + SECOND
PLUGIN = fault("GpuXidBad", type="GpuXid", latched=False, boot_id="boot-0", cleared=True)


def released(*faults: Fault, boot_id: str = "boot-0") -> Record:
    """By a command, at ``NOW``, with what the record said by then."""
    opened = record(Phase.WAITING, faults=faults, boot_id=boot_id)
    return close(opened, NOW, Event.RELEASED, "released by ada")


def seen(
    *problems: Problem, there: NodeView | None = None, machine: Machine = MACHINE, **of_page: object
) -> Situation:
    """In boot-1, some time after the release."""
    page = reading(*problems, **of_page)
    return situation(now=NOW + HOUR, node=there or node(), machine=machine, readings=(page,))


@pytest.mark.parametrize(
    ("it", "there", "covered"),
    [
        pytest.param(fault(boot_id="boot-0"), problem(since=BEFORE), True, id="seen before"),
        pytest.param(fault(boot_id="boot-0"), problem(since=AFTER), False, id="found by a later agent"),
        pytest.param(
            fault(boot_id="boot-0"),
            problem(since=BEFORE, stated=AFTER, counter=2.0),
            False,
            id="stated once more since",
        ),
        pytest.param(
            fault(boot_id="boot-0"),
            problem(since=AFTER, stated=BEFORE),
            False,
            id="old, and renewed in this boot only since",
        ),
        pytest.param(
            fault(boot_id="boot-0", machine="m-9"), problem(since=BEFORE), False, id="of another machine"
        ),
        pytest.param(
            fault(boot_id="boot-0"),
            problem(since=BEFORE, lasting=True),
            False,
            id="a mark that nobody has seen put",
        ),
        pytest.param(
            fault(boot_id="boot-0"),
            problem(since=BEFORE, lasting=True, stated=BEFORE),
            True,
            id="a mark that was seen put",
        ),
        pytest.param(
            PLUGIN,
            problem("GpuXidBad", type="GpuXid", latched=False, since=BEFORE, stated=AFTER, counter=7.0),
            True,
            id="a plugin counts its runs",
        ),
        pytest.param(
            PLUGIN,
            problem("GpuXidBad", type="GpuXid", latched=False, since=AFTER, stated=AFTER),
            False,
            id="a plugin found it since",
        ),
    ],
)
def test_a_release_covers_of_a_later_boot_what_was_seen_in_it_by_then(
    it: Fault, there: Problem, covered: bool
) -> None:
    r = released(it)
    s = seen(there)
    by_then = as_released(s, r)
    assert dealt_with(fault_of(there, s), replace(s, record=by_then)) is covered
    assert [f.boot_id for f in by_then.acknowledged] == ["boot-1" if covered else "boot-0"]


def test_who_comes_later_knows_what_an_agent_before_it_had_heard() -> None:
    """Without one, what is found soon after is taken to be as it was."""
    r, found = released(fault(), boot_id="boot-1"), problem(since=AFTER, counter=2.0)
    s = seen(found)
    first = as_released(s, r)
    assert (first.release_heard, [f.counter for f in first.acknowledged]) == (True, [2.0])
    heard = as_released(seen(problem(since=BEFORE)), r)
    assert [f.counter for f in as_released(s, heard).acknowledged] == [1.0]


@pytest.mark.parametrize(
    "page",
    [
        None,
        reading(unknown={"*": "away"}),
        reading(unknown={"NeuronHealth": "cut"}),
        reading(silent={"*": "so"}),
    ],
    ids=["not read", "unknown", "unknown of its type", "silent"],
)
def test_nothing_is_heard_of_a_release_where_what_states_its_fault_says_nothing(page: Reading | None) -> None:
    r = released(fault(), boot_id="boot-1")
    s = situation(readings=() if page is None else (page,))
    assert not as_released(s, r).release_heard


@pytest.mark.parametrize(
    ("changes", "heard"),
    [
        ({}, True),
        ({"machine": None}, False),
        ({"machine": replace(MACHINE, id="m-9")}, False),
        ({"node": None}, False),
        ({"node": node(boot_id="")}, False),
        ({"node": node(boot_id="boot-2")}, False),
    ],
)
def test_a_release_is_heard_of_in_the_boot_that_it_is_about(changes: dict[str, Any], heard: bool) -> None:
    r = released(fault(), boot_id="boot-1")
    assert as_released(situation(readings=(reading(),), **changes), r).release_heard is heard


@pytest.mark.parametrize(
    ("open_at", "later"),
    [(None, 0), (-SECOND, 0), (SECOND, 1), (3 * SECOND, 3), (4 * SECOND, 0)],
    ids=[
        "not read open",
        "read open before",
        "in that second",
        "on its way",
        "long before etcd was restored",
    ],
)
def test_a_release_is_from_after_the_last_read_that_showed_the_record_open(
    open_at: timedelta | None, later: int
) -> None:
    s = situation(open_at=None if open_at is None else NOW + open_at)
    assert closed_at(s, released(fault())) == NOW + later * SECOND


ZERO = reading(gone=frozenset({("NeuronHealth", fault().reason)}), counters={fault().reason: 0.0})


@pytest.mark.parametrize(
    ("it", "page", "then"),
    [
        pytest.param(fault(), reading(problem()), fault(), id="it goes on"),
        pytest.param(fault(), ZERO, fault(cleared=True), id="it began anew"),
        pytest.param(fault(), reading(problem(counter=2.0)), fault(), id="it counts on"),
        pytest.param(fault(cleared=True), ZERO, fault(cleared=True), id="and shows nothing"),
        pytest.param(fault(counter=3.0, cleared=True), reading(problem()), fault(), id="and states it again"),
        pytest.param(
            fault(counter=3.0, life="a"), reading(problem(life="b")), fault(life="b"), id="in another process"
        ),
        pytest.param(fault(boot_id="boot-0"), ZERO, fault(boot_id="boot-0"), id="of another boot"),
        pytest.param(fault(), reading(unknown={"*": "away"}), fault(), id="unreadable"),
        pytest.param(fault(latched=False), ZERO, fault(latched=False), id="a plugin's"),
    ],
)
def test_an_open_record_knows_in_which_life_of_its_detector_a_fault_was_stated(
    it: Fault, page: Reading, then: Fault
) -> None:
    assert in_their_lives(situation(readings=(page,)), record(faults=(it,))).faults == (then,)


def test_what_was_seen_of_a_detector_while_a_person_had_the_node_outlasts_the_release() -> None:
    """What a handed-over record remembers is brought up to date; what it names is not."""
    handed_over = close(record(Phase.WAITING), NOW, Event.GAVE_UP, "so")
    known = replace(handed_over, marks=Marks(cordoned=True), acknowledged=(fault(cleared=True),))
    assert close(known, NOW + MINUTE, Event.RELEASED, "so").acknowledged == (fault(cleared=True),)
    booted = replace(known, faults=(fault(boot_id="boot-2"),))
    assert close(booted, NOW + MINUTE, Event.RELEASED, "so").acknowledged == (fault(boot_id="boot-2"),)


@pytest.mark.parametrize(
    ("known", "times", "then"),
    [
        pytest.param(None, [-MINUTE, -SECOND, SECOND], -SECOND, id="up to the release"),
        pytest.param(None, [SECOND, MINUTE], None, id="all after it"),
        pytest.param(-SECOND, [-MINUTE], -SECOND, id="another process saw one more"),
        pytest.param(-MINUTE, [], -MINUTE, id="an agent that was started since"),
    ],
)
def test_of_what_only_happens_a_release_covers_what_had_happened_by_then(
    known: timedelta | None, times: list[timedelta], then: timedelta | None
) -> None:
    oom = edge("OOMKilling", *(-at for at in times)) if times else None
    count = None if known is None else (NOW + known).timestamp()
    it = fault("OOMKilling", type="", kind=Kind.EDGE, latched=False, counter=count)
    by_then = as_released(seen(*([oom] if oom else [])), released(it, boot_id="boot-1"))
    assert [f.counter for f in by_then.acknowledged] == [None if then is None else (NOW + then).timestamp()]


def test_what_happened_before_it_was_dealt_with_is_not_counted_once_more() -> None:
    oom = edge("OOMKilling", 3 * MINUTE, 2 * MINUTE, MINUTE)
    it = fault("OOMKilling", type="", kind=Kind.EDGE, latched=False, counter=oom.times[1].timestamp())
    for changes, left in (
        ({}, 1),
        ({"boot_id": "boot-0"}, 3),
        ({"machine": "m-9"}, 3),
        ({"counter": None}, 3),
    ):
        s = replace(seen(oom), record=record(Phase.RELEASED, acknowledged=(replace(it, **changes),)))
        assert len(not_dealt_with(oom, s).times) == left, changes
