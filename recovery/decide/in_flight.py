"""What came of a destructive call that was made, or may have been? PURE.

It is observed and never repeated (law 2). A call that had its effect goes on to probation. One that failed
goes on to the next rung, or to a person.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from recovery.decide import brakes, tried
from recovery.decide.boot import written_before
from recovery.decide.budget import replacement_of
from recovery.decide.claims import other_machine
from recovery.decide.decision import (
    LONGEST_RETRY,
    POLLED,
    RETRY_AFTER,
    ClaimReplacement,
    Decision,
    EventReason,
    Finish,
    Report,
    WriteRecord,
    act,
    hold,
    wait,
)
from recovery.decide.endings import (
    NOT_APPLIED_AFTER,
    call_off,
    call_over,
    can_call_off,
    end,
    hand_over,
    next_rung,
)
from recovery.decide.history import LONGEST_LINE, HistoryEvent, note
from recovery.decide.lifecycle import Event, move
from recovery.decide.situation import Situation
from recovery.errors import Retry
from recovery.model import (
    Attempt,
    Cause,
    Done,
    Evidence,
    Failed,
    Gone,
    IntentState,
    NotApplied,
    Record,
    Running,
    Unfinished,
)
from recovery.quick import replace
from recovery.units import span

MOST_ATTEMPTS = 20
FINISHED_WITHIN = timedelta(minutes=15)
"""How long after its deadline a step may still be finished: its first part may have succeeded late."""


def observe_call(s: Situation, r: Record) -> Decision:
    """Observe the call in flight, and decide on what its provider answers (law 2)."""
    assert r.intent is not None
    if s.unwritten is not None:
        known = replace(r, intent=replace(r.intent, reference=s.unwritten.reference))
        event = HistoryEvent(s.unwritten.state.value)
        return _known_by_now(s, known, s.unwritten.state, event, s.unwritten.sentence)
    if r.intent.state is IntentState.WRITTEN:
        why = f"{r.intent.action} may or may not have been asked for before the process stopped: observing"
        return _known_by_now(s, r, IntentState.AMBIGUOUS, HistoryEvent.AMBIGUOUS, why)
    if not r.intent.replaces and has_new_boot(s, r):
        assert s.node is not None
        why = f"{r.intent.action} is proved by a new boot ID"
        return begin_probation(s, replace(r, boot_id=s.node.boot_id), why)
    if s.machine_gone and no_more_to_boot(s, r):
        why = f"{s.machine_gone}, and its Node {r.node} is gone: there is nothing left to {r.intent.action}"
        return end(s, r, Event.OTHER_MACHINE, why, Report(EventReason.SUPERSEDED))
    if s.poll is None:
        return wait(f"{r.intent.action}: its provider has not answered yet", key="poll")
    return _as_polled(s, r)


def _as_polled(s: Situation, r: Record) -> Decision:
    """Go by what the provider answers of the call."""
    assert r.intent is not None
    assert s.poll is not None
    if isinstance(s.poll, Failed):
        if can_call_off(s, r):
            return act(call_off(s, r), f"{r.intent.action} failed: {s.poll.reason}; it is called off")
        return next_rung(s, r, f"{r.intent.action} failed: {s.poll.reason}", r.intent.action)
    if isinstance(s.poll, Done):
        if r.intent.replaces:
            return replaced(s, r, s.poll)
        return still_running(s, r, f"{s.poll.evidence}; {r.node} does not show a new boot ID yet")
    if isinstance(s.poll, Unfinished):
        if s.finish_refused:
            return hand_over(s, r, s.finish_refused, outcome="refused")
        if is_late(s, r, FINISHED_WITHIN):
            why = f"; {s.finish_put_off}" if s.finish_put_off else ""
            return hand_over(s, r, f"{r.intent.action} was not finished in time: {s.poll.sentence}{why}")
        return act(Finish(), s.poll.sentence)
    if isinstance(s.poll, NotApplied) and boot_accepted(r):
        why = f"{r.intent.action} was accepted; {s.poll.sentence}; {r.node} does not show a new boot ID yet"
        return still_running(s, r, why)
    # Another process may be in the midst of its call still: one that was stopped, or whose Lease was taken.
    patience = max(NOT_APPLIED_AFTER, call_over(r.intent))
    if isinstance(s.poll, NotApplied) and tried.passed(s, r.intent.at) >= patience:
        return _had_no_effect(s, r, s.poll, patience)
    if isinstance(s.poll, Running | Gone) and r.intent.state is IntentState.AMBIGUOUS:
        why = f"{r.intent.action} is under way: {s.poll.sentence}"
        return _known_by_now(s, r, IntentState.SUBMITTED, HistoryEvent.ADOPTED, why)
    return still_running(s, r, s.poll.sentence)


def _known_by_now(s: Situation, r: Record, state: IntentState, event: HistoryEvent, why: str) -> Decision:
    """Write down what is known of the call by now."""
    return act(WriteRecord(settled(r, s.now, state, event, why)), why)


def _had_no_effect(s: Situation, r: Record, found: NotApplied, patience: timedelta) -> Decision:
    """It is closed and asked for again: as another try, or, where it came too soon, as if turned away."""
    assert r.intent is not None
    why = f"{r.intent.action} had no effect after {span(patience)}: {found.sentence}"
    told = Report(EventReason.NOT_APPLIED, True, "failed", r.intent.action)
    if found.not_before is None:
        changed = settled(r, s.now, IntentState.NOT_APPLIED, HistoryEvent.NOT_APPLIED, why)
    else:
        changed = put_off(r, s.now, Retry(found.sentence, not_before=found.not_before), why)
        told = Report(EventReason.NOT_YET, warning=True)
    # A boot since was no part of it then, and may have mended the machine.
    return act(WriteRecord(replace(changed, boot_id=r.intent.boot_id or r.boot_id)), why, told)


def settled(r: Record, now: datetime, state: IntentState, event: HistoryEvent, why: str) -> Record:
    """``r`` with what came of its intent, and its ``progress`` brought up to date with that."""
    assert r.intent is not None
    progress, attempt = r.progress, Attempt(r.intent.attempt, r.intent.action)
    if state in (IntentState.SUBMITTED, IntentState.AMBIGUOUS) and attempt not in progress.submitted:
        progress = replace(progress, submitted=(*progress.submitted, attempt)[-MOST_ATTEMPTS:])
    if state in (IntentState.NOT_APPLIED, IntentState.ABANDONED):
        made = tuple(x for x in progress.submitted if x != attempt)  # it was not, as far as can be seen
        tries = progress.tries + (state is IntentState.NOT_APPLIED)
        progress = replace(progress, submitted=made, tries=tries)
    return replace(note(r, now, event, why), intent=replace(r.intent, state=state), progress=progress)


def put_off(r: Record, now: datetime, error: Retry, why: str) -> Record:
    """``r`` whose call was turned away for now: it is made again when its provider says.

    If that says from when it could succeed, the step has not begun: what cannot be tried yet is not late.
    """
    r = settled(r, now, IntentState.ABANDONED, HistoryEvent.NOT_YET, why)
    again = now + min(max(error.after, RETRY_AFTER), LONGEST_RETRY)
    if error.not_before is not None and error.not_before > now:
        r, again = replace(r, rung_since=None), error.not_before
    return replace(r, progress=replace(r.progress, retry_at=again))


def has_new_boot(s: Situation, r: Record) -> bool:
    assert r.intent is not None
    if s.node is None or not s.node.ready or other_machine(s, r) is not None:
        return False
    return r.intent.booted_since(s.node) and not written_before(s, r.intent.at)


def no_more_to_boot(s: Situation, r: Record) -> bool:
    """Whether the machine that was asked to boot seems to be gone, and its Node with it.

    That the machine itself is gone is proved elsewhere (``machine_gone``): ``Gone`` may be about an object
    that only stands for it.
    """
    boots = r.intent is not None and not r.intent.replaces
    return boots and s.node is None and isinstance(s.poll, Gone)


def boot_accepted(r: Record) -> bool:
    """Whether the machine surely was asked to boot. Its provider may be done long before the machine is up,
    and show nothing of it any more. To ask again would interrupt that boot."""
    assert r.intent is not None
    return not r.intent.replaces and r.intent.state is IntentState.SUBMITTED


def is_late(s: Situation, r: Record, more: timedelta = timedelta(0)) -> bool:
    """Whether the step of the call in flight has missed its deadline, by ``more``."""
    assert r.intent is not None
    return r.step is not None and tried.over(s, r, r.rung_since or r.intent.at, r.step.within + more)


def still_running(s: Situation, r: Record, sentence: str) -> Decision:
    assert r.intent is not None
    held = held_in_flight(s)
    if held is not None:
        return wait(f"{sentence}; {held[1]}", POLLED, f"running {sentence}", held=held[0])
    if r.step is not None and is_late(s, r):
        late = f"{r.intent.action} did not succeed within {span(r.step.within)}: {sentence}"
        if can_call_off(s, r):
            return act(call_off(s, r), f"{late}; it is called off")
        if r.intent.state is IntentState.AMBIGUOUS:
            return hand_over(s, r, f"{late}; it is not known whether it was ever accepted")
        return next_rung(s, r, late, r.intent.action)
    return wait(sentence, POLLED, f"running {sentence}")


def held_in_flight(s: Situation) -> tuple[Cause, str] | None:
    """What forbids the step after a call that misses its deadline: a claim or a pause. Evidence counts
    anyway.

    The exclusion is not asked, since it is to end the recovery. Nor is the brake, for which nodes would have
    to be counted: the next step asks it before anything is done.
    """
    found = brakes.first_reason((("claimed", brakes.foreign_claim), ("paused", brakes.paused)), s)
    if found is None:
        return None
    by = Cause.GATE if found[0] == "paused" and s.gate_problem else tried.BY_KEY[found[0]]
    return by, found[1]


def without_gate(s: Situation) -> Decision | None:
    """Why a recovery that has its slot does not go on: the gate cannot be read. None where it was."""
    if s.gate is not None and not s.gate_problem:
        return None
    why = f"the gate cannot be read: {s.gate_problem or 'no answer'}"
    return (hold if s.gate_problem else wait)(why, key="gate", held=Cause.GATE)


def replaced(s: Situation, r: Record, found: Done) -> Decision:
    """The action is done. For a replacement, claim one new machine, once; then probation begins."""
    assert r.intent is not None
    if unread := without_gate(s):
        return unread
    assert s.gate is not None
    if found.final:
        return begin_probation(s, r, found.evidence)
    if not found.complete:
        return still_running(s, r, found.evidence)
    mine = replacement_of(s.gate, r.machine.id)
    if mine:
        return begin_probation(s, replaced_by(r, mine), f"{found.evidence}; {mine} took its place")
    taken = {c.machine for c in s.gate.claimed}
    free = [m for m in found.replacements if m not in taken]
    if not free and found.fewer:
        return begin_probation(s, r, f"{found.evidence}; nothing takes its place")
    if not free:
        return still_running(s, r, f"{found.evidence}; no new machine that is unclaimed")
    oldest = free[0]
    return act(
        ClaimReplacement(oldest, r.machine.id), f"{oldest} is claimed as the replacement of {r.machine.id}"
    )


def replaced_by(r: Record, machine: str) -> Record:
    """``r`` with the machine that took its own one's place, which its last start remembers."""
    starts = r.starts
    if starts and starts[-1].machine == r.machine.id:
        starts = (*starts[:-1], replace(starts[-1], replacement=machine))
    return replace(r, replacement_machine=machine, starts=starts)


def begin_probation(s: Situation, r: Record, why: str) -> Decision:
    """The call had its effect, or no fault is left after it: probation begins."""
    attempt = r.intent.attempt if r.intent else r.progress.submitted[-1].number
    changed = replace(
        note(r, s.now, HistoryEvent.EVIDENCE, why),
        phase=move(r.phase, Event.EVIDENCE),
        phase_since=s.now,
        intent=replace(r.intent, state=IntentState.SUBMITTED) if r.intent else None,
        progress=replace(
            r.progress, evidence=Evidence(attempt, s.now, why[:LONGEST_LINE]), proving_since=s.now
        ),
    )
    return act(WriteRecord(changed), f"{why}; probation begins", Report(EventReason.PROVING))
