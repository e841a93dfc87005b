"""Which fields of a record's progress each change of it sets, resets, and leaves as they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from recovery.decide.decision import LONGEST_RETRY, RETRY_AFTER, Decision, WriteRecord
from recovery.decide.endings import LONGEST_CANCEL, call_off, can_call_off, close, moved_to_rung
from recovery.decide.history import LONGEST_LINE, HistoryEvent
from recovery.decide.idle import steps_in_vain
from recovery.decide.in_flight import MOST_ATTEMPTS, begin_probation, put_off, settled
from recovery.decide.lifecycle import Event
from recovery.decide.own_node import decide
from recovery.decide.situation import Situation
from recovery.errors import Retry
from recovery.model import (
    CORDONED_BY,
    TAINT,
    Attempt,
    Evidence,
    Intent,
    IntentState,
    Marks,
    Phase,
    Progress,
    Record,
    Reference,
    Rung,
    Running,
    Step,
    Validation,
    ValidationRun,
)
from tests.builders.faults import reading
from tests.builders.gates import gate, slot
from tests.builders.nodes import FAKE, node
from tests.builders.records import intent, record
from tests.builders.situations import situation
from tests.builders.times import HOUR, MINUTE, NOW, SECOND

BEFORE = NOW - HOUR
DONE = Progress(
    submitted=(Attempt(1, "reboot"),),
    tries=2,
    boots=("boot-0",),
    evidence=Evidence(1, BEFORE, "reboot is proved by a new boot ID"),
    called_off=1,
    step_since=BEFORE,
    proving_since=BEFORE,
    retry_at=BEFORE,
)
HELD = gate(slots=(slot(),))
OURS = node(
    unschedulable=True, taints=((TAINT, "", "NoSchedule"),), annotations={CORDONED_BY: "node-recovery"}
)
REBOOTED = replace(OURS, boot_id="boot-2")
LADDER = (Rung(Step.REBOOT, 10 * MINUTE), Rung(Step.REPLACE, 30 * MINUTE))
ASKED = replace(intent(IntentState.WRITTEN), attempt=2)


def of(phase: Phase = Phase.RECOVERING, **changes: Any) -> Record:
    plain = {"progress": DONE, "marks": Marks(True, True), "ladder": LADDER}
    return record(phase, **plain | changes)


def on(r: Record, **changes: Any) -> Situation:
    return situation(**{"record": r, "gate": HELD, "node": OURS} | changes)


def written(d: Decision) -> Record:
    assert isinstance(d.effect, WriteRecord)
    return d.effect.record


# ---------------------------------------------------------------- set and reset


def test_a_recovery_that_starts_again_has_tried_nothing_on_its_step_and_forgets_nothing_that_it_did() -> None:
    started = written(decide(on(record(progress=DONE))))
    assert started.phase is Phase.RECOVERING
    assert started.progress == replace(DONE, tries=0, retry_at=None, step_since=NOW)


def test_on_the_next_step_nothing_was_tried_yet() -> None:
    changed = moved_to_rung(of(intent=ASKED, rung_since=BEFORE), 1, NOW)
    short = Reference("fake", "replace", {"group": "workers", "desired": 2})  # without the list of machines
    left = (replace(ASKED, reference=short),)
    assert changed.progress == replace(DONE, step_since=NOW, tries=0, retry_at=None, left=left)
    assert (changed.rung, changed.rung_since, changed.intent) == (1, None, None)


NOTED = (*DONE.submitted, Attempt(2, "replace"))
OUTCOMES: list[tuple[IntentState, HistoryEvent, Progress]] = [
    (IntentState.SUBMITTED, HistoryEvent.SUBMITTED, replace(DONE, submitted=NOTED)),
    (IntentState.SUBMITTED, HistoryEvent.ADOPTED, replace(DONE, submitted=NOTED)),
    (IntentState.AMBIGUOUS, HistoryEvent.AMBIGUOUS, replace(DONE, submitted=NOTED)),
    (IntentState.NOT_APPLIED, HistoryEvent.NOT_APPLIED, replace(DONE, tries=3)),
    (IntentState.ABANDONED, HistoryEvent.NOT_YET, DONE),
    (IntentState.ABANDONED, HistoryEvent.ABANDONED, DONE),
    (IntentState.REFUSED, HistoryEvent.REFUSED, DONE),
]


@pytest.mark.parametrize(("state", "event", "expected"), OUTCOMES)
def test_what_came_of_a_call_is_known(state: IntentState, event: HistoryEvent, expected: Progress) -> None:
    changed = settled(of(intent=ASKED), NOW, state, event, "so")
    assert changed.progress == expected
    assert changed.intent == replace(ASKED, state=state)


def test_a_call_that_is_seen_to_be_accepted_is_one_attempt() -> None:
    once = settled(of(intent=ASKED), NOW, IntentState.AMBIGUOUS, HistoryEvent.AMBIGUOUS, "so")
    twice = settled(once, NOW, IntentState.SUBMITTED, HistoryEvent.ADOPTED, "so")
    assert twice.progress.submitted == NOTED


def test_the_newest_attempts_are_known() -> None:
    many = tuple(Attempt(n, "reboot") for n in range(MOST_ATTEMPTS))
    r = of(intent=replace(ASKED, attempt=MOST_ATTEMPTS), progress=Progress(submitted=many))
    changed = settled(r, NOW, IntentState.SUBMITTED, HistoryEvent.SUBMITTED, "so")
    assert [x.number for x in changed.progress.submitted] == list(range(1, MOST_ATTEMPTS + 1))


@pytest.mark.parametrize(("asked", "attempt"), [(ASKED, 2), (None, 1)])
def test_evidence_is_of_the_call_in_flight_or_of_the_last_one(asked: Intent | None, attempt: int) -> None:
    proving = written(begin_probation(on(of()), of(intent=asked, phase_since=BEFORE), "x" * 2 * LONGEST_LINE))
    evidence = Evidence(attempt, NOW, "x" * LONGEST_LINE)
    assert proving.progress == replace(DONE, evidence=evidence, proving_since=NOW)
    assert (proving.phase, proving.phase_since) == (Phase.PROVING, NOW)
    assert proving.intent == (replace(ASKED, state=IntentState.SUBMITTED) if asked else None)


def test_the_boot_that_proves_a_reboot_is_no_unexpected_one() -> None:
    r = of(intent=intent(action="reboot"))
    proving = written(decide(on(r, node=REBOOTED, poll=Running("it boots"))))
    assert (proving.phase, proving.boot_id) == (Phase.PROVING, "boot-2")


def test_a_boot_that_nobody_asked_for_is_counted_and_begins_a_proof() -> None:
    r = of(progress=replace(DONE, boots=()), phase_since=BEFORE)
    proving = written(decide(on(r, node=REBOOTED)))
    assert proving.progress == replace(DONE, boots=("boot-2",), proving_since=NOW)
    assert (proving.phase, proving.phase_since, proving.boot_id) == (Phase.PROVING, NOW, "boot-2")


CLOSING = (Event.PROVED, Event.GAVE_UP, Event.CLEARED, Event.OTHER_MACHINE, Event.RELEASED)


@pytest.mark.parametrize("event", CLOSING)
def test_a_closed_record_keeps_what_was_done_and_when_it_was_last_proved(event: Event) -> None:
    closed = close(of(Phase.PROVING, recovered_at=BEFORE), NOW, event, "so")
    assert closed.progress == DONE
    assert closed.recovered_at == (NOW if event is Event.PROVED else BEFORE)


# ---------------------------------------------------------------- asked


@pytest.mark.parametrize(
    ("ahead", "waits"),
    [
        (SECOND, True),
        (RETRY_AFTER, True),
        (HOUR, True),
        (0 * SECOND, False),
    ],
)
def test_a_call_that_was_put_off_waits_for_its_moment(ahead: Any, waits: bool) -> None:
    progress = Progress(step_since=NOW, retry_at=NOW + ahead)
    r = of(rung_since=NOW, intent=intent(IntentState.ABANDONED), progress=progress)
    d = decide(on(r))
    assert (d.key == "not-yet") is waits
    assert type(d.effect).__name__ == ("NoneType" if waits else "Submit")


@pytest.mark.parametrize(("asked", "waits"), [(SECOND, True), (3 * SECOND, False)])
def test_a_call_that_was_put_off_waits_for_no_clock_that_stepped(asked: Any, waits: bool) -> None:
    """The API server's time is known to a second, and so a call may seem to have been made in a moment."""
    put_off = replace(intent(IntentState.ABANDONED), at=NOW + asked)
    progress = Progress(step_since=NOW, retry_at=NOW + asked + RETRY_AFTER)
    d = decide(on(of(rung_since=NOW, intent=put_off, progress=progress)))
    assert (d.key == "not-yet") is waits


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Retry("throttled", after=0 * SECOND), RETRY_AFTER),
        (Retry("throttled", after=MINUTE), MINUTE),
        (Retry("throttled", after=HOUR), LONGEST_RETRY),
        (Retry("in its grace period", after=SECOND, not_before=NOW + HOUR), HOUR),
        (Retry("a clock that is behind", after=MINUTE, not_before=NOW - HOUR), MINUTE),
    ],
    ids=lambda x: str(x),
)
def test_a_call_is_made_again_when_its_provider_says(error: Retry, expected: Any) -> None:
    """What cannot be tried yet is not late. What was tried is, however long the provider is left alone."""
    changed = put_off(of(rung_since=BEFORE, intent=ASKED), NOW, error, "so")
    assert changed.progress.retry_at == NOW + expected
    assert changed.rung_since == (None if expected == HOUR else BEFORE)
    assert changed.intent == replace(ASKED, state=IntentState.ABANDONED)


@pytest.mark.parametrize(
    ("step_since", "rung_since", "phase_since", "late"),
    [
        (NOW - HOUR, None, NOW, True),
        (NOW, None, NOW - HOUR, False),
        (NOW, NOW - HOUR, NOW, True),
        (NOW - HOUR, NOW, NOW - HOUR, False),
        (None, None, NOW - HOUR, True),
    ],
)
def test_a_steps_time_begins_with_its_first_effect_or_else_when_it_became_the_current_one(
    step_since: Any, rung_since: Any, phase_since: Any, late: bool
) -> None:
    r = of(rung_since=rung_since, phase_since=phase_since, progress=Progress(step_since=step_since))
    d = decide(on(r, preflight=None, preflight_retry="throttled"))
    assert (d.effect is not None) is late
    assert (d.key == "preflight") is not late


PROVED = Evidence(2, BEFORE, "so")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"called_off": 2}, False),
        ({"evidence": PROVED}, False),
        ({"called_off": 1}, True),
        ({"evidence": replace(PROVED, attempt=1)}, True),
    ],
)
@pytest.mark.parametrize("state", IntentState)
def test_what_is_outstanding_is_in_flight_and_neither_proved_nor_called_off(
    changes: dict[str, Any], expected: bool, state: IntentState
) -> None:
    cancels = replace(FAKE, cancels=True)
    r = of(intent=replace(ASKED, state=state), progress=Progress(**changes))
    assert can_call_off(on(r, provider=cancels), r) is (expected and r.in_flight)
    assert not can_call_off(on(r), r)
    assert not can_call_off(on(r, provider=None), r)


@pytest.mark.parametrize(("ago", "last"), [(-SECOND, False), (0 * SECOND, True)])
def test_an_order_is_tried_to_be_called_off_for_some_minutes_after_its_steps_deadline(
    ago: Any, last: bool
) -> None:
    r = of(intent=intent(action="reboot"), rung_since=NOW - 10 * MINUTE - LONGEST_CANCEL - ago)
    assert call_off(on(r), r).last_try is last


@pytest.mark.parametrize(
    ("submitted", "expected"),
    [
        ((), ()),
        ((Attempt(1, "reboot"),), (Step.REBOOT,)),
        ((Attempt(1, ""),), (Step.REBOOT, Step.REPLACE)),
    ],
)
def test_what_was_done_in_vain_is_what_was_asked_for(
    submitted: tuple[Attempt, ...], expected: tuple[Step, ...]
) -> None:
    old = of(Phase.RECOVERED, rung=1, recovered_at=NOW, progress=Progress(submitted=submitted))
    assert steps_in_vain(on(old), old, record(Phase.SUSPECT)) == expected


# ---------------------------------------------------------------- how long a proof may take


def proving(**changes: Any) -> Record:
    plain = {"intent": intent(action="reboot"), "boot_id": "boot-1", "phase_since": NOW, "probation": HOUR}
    return of(Phase.PROVING, **plain | changes)


def unproved(r: Record) -> Decision:
    sick = replace(OURS, conditions={"Ready": ("Unknown", "")})
    return decide(on(r, node=sick, readings=(reading(),)))


RUN = {"validate": Validation("burn", HOUR), "validation": ValidationRun("job", NOW - HOUR + SECOND)}
PROOFS: dict[str, tuple[Record, bool]] = {
    "the step's own deadline": (
        proving(rung_since=NOW - 10 * MINUTE, progress=replace(DONE, evidence=None)),
        True,
    ),
    "a second before it": (
        proving(rung_since=NOW - 10 * MINUTE + SECOND, progress=replace(DONE, evidence=None)),
        False,
    ),
    "evidence came late": (
        proving(rung_since=NOW - 9 * HOUR, progress=replace(DONE, evidence=PROVED)),
        False,
    ),
    "twice its probation ago": (
        proving(
            rung_since=NOW - 9 * HOUR, progress=replace(DONE, evidence=replace(PROVED, at=NOW - 2 * HOUR))
        ),
        True,
    ),
    "a validation has its time": (
        proving(rung_since=NOW - 9 * HOUR, progress=replace(DONE, evidence=None), **RUN),
        False,
    ),
    "nothing was asked for: half an hour": (
        proving(intent=None, rung_since=NOW, progress=Progress(proving_since=NOW - 30 * MINUTE)),
        True,
    ),
    "nothing was asked for: since there is something to prove": (
        proving(
            intent=None,
            rung_since=NOW - 9 * HOUR,
            phase_since=NOW - HOUR,
            progress=Progress(proving_since=NOW),
        ),
        False,
    ),
}


@pytest.mark.parametrize("row", PROOFS)
def test_a_proof_has_its_time_and_no_more(row: str) -> None:
    r, late = PROOFS[row]
    d = unproved(r)
    assert ("was not proved within" in d.reason) is late, d.reason
