"""The ways out of an open record: closed, handed over, or on to the next rung. PURE."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from recovery.decide.history import HistoryEvent, note
from recovery.decide.lifecycle import Event, move
from recovery.decide.marks import marked, out_of_service
from recovery.decide.situation import (
    Cancel,
    Decision,
    EventReason,
    OutOfService,
    Report,
    Role,
    Situation,
    Unmark,
    WriteRecord,
    act,
)
from recovery.model import (
    Fault,
    Record,
)

NOT_APPLIED_AFTER = timedelta(seconds=60)
DEFAULT_PROBATION = timedelta(minutes=2)
LONGEST_PROOF = timedelta(minutes=30)
MOST_FAULTS = 20
RESET = timedelta(seconds=5)
LONGEST_CANCEL = timedelta(minutes=5)
"""After a step's deadline: how long it is tried to call off what nobody has carried out."""


def close(r: Record, now: datetime, event: Event, why: str) -> Record:
    """``r`` at the end of ``event``. Its faults are remembered, so that the same ones start nothing again."""
    remember = event in (Event.PROVED, Event.GAVE_UP, Event.RELEASED)
    settled: tuple[Fault, ...] = r.faults if remember else ()
    known = r.acknowledged
    if event is Event.CLEARED:  # taken back: when it comes again, it is news
        known = tuple(x for x in known if x.key not in {f.key for f in r.faults})
    phase = move(r.phase, event)
    return replace(
        note(r, now, HistoryEvent(phase.value), why),
        phase=phase,
        phase_since=now,
        recovered_at=now if event is Event.PROVED else r.recovered_at,
        acknowledged=(*(x for x in known if x.key not in {f.key for f in settled}), *settled),
    )


def end(s: Situation, r: Record, event: Event, why: str, report: Report) -> Decision:
    """Close, with our marks taken off first: a crash in between leaves a record that still owes it."""
    if s.role is Role.OWNER and s.node is not None and ((r.marks and same_object(s, r)) or left_marks(s)):
        return act(Unmark(), f"{why}; our marks come off", Report(EventReason.UNCORDONED))
    return act(WriteRecord(close(r, s.now, event, why)), why, report)


def left_marks(s: Situation) -> bool:
    """Whether the node bears marks of ours: the patch may have come through, and the record not."""
    return s.node is not None and marked(s.node)


def same_object(s: Situation, r: Record) -> bool:
    """Whether the marks on record can be on this Node at all: a Node made anew bears none."""
    return s.node is not None and s.node.uid == r.node_uid


def hand_over(
    s: Situation, r: Record, why: str, *, plain: bool = False, outcome: str = "handedOver"
) -> Decision:
    """A person has to. The marks stay: nothing new should land on this node."""
    sentence = why if plain else f"handed over to a person: {why}"
    action = r.step.do.value if r.step else ""
    report = Report(EventReason.HANDED_OVER, warning=True, outcome=outcome, action=action)
    return act(WriteRecord(close(r, s.now, Event.GAVE_UP, sentence)), sentence, report)


def excluded_away(s: Situation, r: Record, reason: str) -> Decision:
    """Excluded before the call: marks off, slot freed, closed."""
    done = "no further step is taken" if r.progress.acted else "closed without a destructive step"
    why = f"{done}: {reason}"
    return end(s, r, Event.CLEARED, why, Report(EventReason.WITHDRAWN, outcome="withdrawn"))


def next_rung(s: Situation, r: Record, why: str) -> Decision:
    """The next rung of the ladder, or a person where there is none, or where it is not ours to climb."""
    ours = s.role is Role.OWNER and s.machine is not None and s.machine.id == r.machine.id
    following = r.ladder[r.rung + 1] if r.rung + 1 < len(r.ladder) else None
    if following is None or not ours:
        tried = f" ({', '.join(step.value for step in r.tried)} had not helped)" if r.tried else ""
        return hand_over(s, r, why if not ours else f"{why}; the remedy has no further step{tried}")
    sentence = f"{why}; next: {following.do.value}"
    noted = note(r, s.now, HistoryEvent.RUNG, sentence)
    return act(WriteRecord(on_rung(noted, r.rung + 1, s.now)), sentence, Report(EventReason.NEXT_STEP))


def on_rung(r: Record, rung: int, now: datetime) -> Record:
    """``r`` on this rung of its ladder from ``now``: nothing was tried on it yet."""
    fresh = replace(r.progress, step_since=now, tries=0, retry_at=None)
    return replace(r, rung=rung, rung_since=None, intent=None, progress=fresh)


def outstanding(s: Situation, r: Record) -> bool:
    """Whether somebody could still carry out what was asked for, and nobody has called it off."""
    if r.intent is None or not r.in_flight or s.provider is None or not s.provider.cancels:
        return False
    evidence = r.progress.evidence
    settled = {r.progress.called_off, evidence.attempt if evidence else 0}
    return r.intent.attempt not in settled


def call_off(s: Situation, r: Record) -> Cancel:
    """Take back what is outstanding; tried until some minutes after the step's own deadline."""
    assert r.intent is not None
    began, rung = r.rung_since or r.intent.at, r.step
    return Cancel(last_try=rung is not None and s.now >= began + rung.within + LONGEST_CANCEL)


def up_again(s: Situation, r: Record) -> Decision | None:
    """The node's own agent runs, so its machine is not down: our out-of-service taint comes off."""
    if s.node is None or not out_of_service(s.node):
        return None
    return act(OutOfService(False), f"{r.node} is up again: the out-of-service taint comes off")
