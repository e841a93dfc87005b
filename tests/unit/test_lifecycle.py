"""Every phase with every event."""

from __future__ import annotations

import pytest

from recovery.decide.lifecycle import TABLE, Event, move
from recovery.errors import IllegalMove
from recovery.model import Phase

PAIRS = [(phase, event) for phase in Phase for event in Event]
OPEN = [phase for phase in Phase if phase.open]
FINAL = [phase for phase in Phase if not phase.open and phase is not Phase.HANDED_OVER]
LEGAL = {
    Phase.SUSPECT: "confirmed>waiting cleared>withdrawn",
    Phase.WAITING: "granted>recovering cleared>withdrawn",
    Phase.RECOVERING: "evidence>proving cleared>withdrawn",
    Phase.PROVING: (
        "returned>recovering requeued>waiting suspected>suspect proved>recovered cleared>withdrawn"
    ),
    Phase.HANDED_OVER: "fault>suspect released>released cleared>withdrawn otherMachine>superseded",
    Phase.LOST: "fault>suspect released>released",
}
ANY_OPEN = "rebooted>proving otherMachine>superseded gaveUp>handedOver released>released"


def expected(phase: Phase) -> dict[Event, Phase]:
    text = LEGAL.get(phase, "fault>suspect") + (f" {ANY_OPEN}" if phase.open else "")
    return {Event(event): Phase(to) for event, to in (pair.split(">") for pair in text.split())}


@pytest.mark.parametrize(("phase", "event"), PAIRS)
def test_an_event_leads_where_the_table_says_or_is_illegal(phase: Phase, event: Event) -> None:
    to = expected(phase).get(event)
    if to is not None:
        assert move(phase, event) is to
        return
    with pytest.raises(IllegalMove, match=f"{phase.value} cannot take the event {event.value}"):
        move(phase, event)


def test_an_illegal_move_changes_nothing() -> None:
    before = dict(TABLE)
    for phase, event in PAIRS:
        if (phase, event) not in before:
            with pytest.raises(IllegalMove):
                move(phase, event)
    assert before == TABLE


def reachable(phase: Phase) -> set[Phase]:
    found: set[Phase] = set()
    todo = [phase]
    while todo:
        at = todo.pop()
        new = {to for (start, _), to in TABLE.items() if start is at} - found
        found |= new
        todo += new
    return found


@pytest.mark.parametrize("phase", OPEN)
def test_every_open_phase_can_reach_every_honest_end(phase: Phase) -> None:
    ends = {Phase.RECOVERED, Phase.WITHDRAWN, Phase.SUPERSEDED, Phase.HANDED_OVER, Phase.RELEASED}
    assert ends <= reachable(phase)


@pytest.mark.parametrize("phase", OPEN)
def test_every_open_phase_can_be_given_to_a_person_in_one_move(phase: Phase) -> None:
    assert move(phase, Event.GAVE_UP) is Phase.HANDED_OVER


@pytest.mark.parametrize("phase", FINAL)
def test_a_closed_record_opens_again_by_a_fault_and_by_nothing_else(phase: Phase) -> None:
    assert {event for (start, event), to in TABLE.items() if start is phase and to.open} == {Event.FAULT}


def test_of_the_closed_records_a_person_can_release_the_lost_one_alone() -> None:
    closed = {phase for (phase, event) in TABLE if event is Event.RELEASED and not phase.sick}
    assert closed == {Phase.LOST}


def test_no_event_but_a_grant_or_a_return_leads_to_recovering() -> None:
    assert {event for (_, event), to in TABLE.items() if to is Phase.RECOVERING} == {
        Event.GRANTED,
        Event.RETURNED,
    }


def test_recovered_is_reached_by_proof_alone() -> None:
    ways = {pair for pair, to in TABLE.items() if to is Phase.RECOVERED}
    assert ways == {(Phase.PROVING, Event.PROVED)}


def test_nothing_moves_a_record_to_lost_but_the_one_who_makes_it_again() -> None:
    assert Phase.LOST not in TABLE.values()
