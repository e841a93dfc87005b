"""How does a step or a recovery end: closed, handed over, called off, or on to the next rung? PURE."""

from __future__ import annotations

from datetime import datetime, timedelta

from recovery.decide.acknowledged import still_a_persons
from recovery.decide.decision import (
    Cancel,
    Decision,
    Disown,
    EventReason,
    Mark,
    OutOfService,
    Report,
    Unmark,
    WriteRecord,
    act,
    hold,
)
from recovery.decide.diagnosis import diagnosed, name, told_apart
from recovery.decide.history import HistoryEvent, note
from recovery.decide.lifecycle import Event, move
from recovery.decide.marks import OUR_MARKS, anothers, marked, of_no_record, out_of_service
from recovery.decide.remembered import forgotten, remembered
from recovery.decide.room import kept
from recovery.decide.situation import Role, Situation
from recovery.decide.standing import before_service, left_behind
from recovery.decide.tried import ended, over
from recovery.model import Fault, Intent, Marks, Record, Taint
from recovery.quick import replace

NOT_APPLIED_AFTER = timedelta(seconds=60)
MARGIN = timedelta(seconds=5)
DEFAULT_PROBATION = timedelta(minutes=2)
LONGEST_PROOF = timedelta(minutes=30)
RESET = timedelta(seconds=5)
LONGEST_CANCEL = timedelta(minutes=5)
"""How long after a step's deadline a cancellation is tried."""


def call_over(intent: Intent) -> timedelta:
    """How long after its intent was written a call has surely ended, or is made no more."""
    return timedelta(seconds=intent.submit_within + intent.call_timeout) + MARGIN


def close(r: Record, now: datetime, event: Event, why: str) -> Record:
    """``r``, closed by ``event``.

    Faults that were proved gone or given to a person are remembered, so that they start nothing again.
    """
    settled = r.faults if event in (Event.PROVED, Event.GAVE_UP, Event.RELEASED) else ()
    if event is Event.RELEASED:
        r = replace(r, acknowledged=tuple(replace(f, handed_over=False) for f in r.acknowledged))
    if event is Event.CLEARED:  # by its source: if it comes again, it is a new fault. By a boot: a mark stays
        settled = tuple(f for f in r.faults if r.boot_id and f.boot_id != r.boot_id)
        r = forgotten(r, tuple(f for f in r.faults if f not in settled))
    phase = move(r.phase, event)
    return replace(
        note(
            remembered(replace(r, release=None), settled),
            now,
            HistoryEvent(phase.value),
            why,
        ),
        phase=phase,
        phase_since=now,
        recovered_at=now if event is Event.PROVED else r.recovered_at,
        progress=ended(r),
    )


def end(s: Situation, r: Record, event: Event, why: str, report: Report) -> Decision:
    """Close the record, once our marks are off the node.

    In this order a crash in between leaves an open record, and the marks are taken off after the restart.
    What was asked of the provider and never came is taken back before; where it cannot be, the marks stay.
    Where a person had the node before, for another fault that is still there, they have it again.
    """
    if taking := before_service(s, r):
        if s.take_back_refused:
            return hand_over(s, r, f"{why}; but {s.take_back_refused}", outcome="refused")
        return taking
    if (
        s.role is Role.OWNER
        and s.node is not None
        and ((r.marks and same_node_object(s, r)) or has_our_marks(s))
    ):
        return marks_off(s, why)
    closed = close(r, s.now, event, why)
    # A proof by what was called for says that the machine was mended or replaced, whatever was wrong with it.
    as_before = event is Event.CLEARED or (event is Event.PROVED and r.intent is None)
    if as_before and s.role is Role.OWNER and (theirs := still_a_persons(s, r)):
        return _back_to_the_person(s, closed, theirs, why)
    return act(WriteRecord(closed), why, report)


def marks_off(s: Situation, why: str) -> Decision:
    """Take our marks off. Where that was refused just now, it is said, and tried again in a moment."""
    if OUR_MARKS in s.refusals:
        return hold(f"{why}; but {OUR_MARKS} do not come off: {s.refusals[OUR_MARKS]}", key="refused")
    return act(Unmark(), f"{why}; {OUR_MARKS} come off", Report(EventReason.UNCORDONED))


def _back_to_the_person(s: Situation, closed: Record, theirs: tuple[Fault, ...], why: str) -> Decision:
    """As it was before the fault came that ended now: ``theirs`` are only reported, and nothing is marked.

    That is one write, however many moves: no reader sees the node without its fault.
    """
    names = ", ".join(map(name, told_apart(theirs)))
    before = replace(
        closed,
        phase=move(closed.phase, Event.FAULT),
        faults=kept(theirs),
        rule=diagnosed(theirs[0], replace(s, record=None)).rule_name,
        ladder=(),
        rung=0,
        intent=None,
        marks=Marks(),
    )
    return hand_over(
        s, before, f"{why}; a person was told of {names} before, and has not released {closed.node}"
    )


def marked_anew(s: Situation, r: Record, why: str) -> Decision:
    """Put the marks of ``r`` on the Node object that its machine has registered instead of the one before.

    A closed record keeps its sentence. Its named taints stay off: nobody remembers which were refused.
    """
    assert s.node is not None
    named = r.marks.taints if r.phase.open else ()
    taints = tuple(t for t in named if not anothers(s.node, t) and str(t) not in s.refusals)
    marks = replace(r.marks, cordoned=r.marks.cordoned and not s.node.unschedulable, taints=taints)
    noted = note(r, s.now, HistoryEvent.REGISTERED, why)
    then = replace(noted, node_uid=s.node.uid, marks=marks, sentence=why if r.phase.open else r.sentence)
    return act(Mark(marks, then), why, Report(EventReason.REGISTERED_ANEW))


def has_our_marks(s: Situation) -> bool:
    """Whether the Node has marks of ours. A crash may have kept them off the record."""
    return s.node is not None and marked(s.node)


def marked_by(s: Situation, r: Record) -> bool:
    """Whether ``r`` has put marks on its Node."""
    return bool(r.marks) or (r.begun and has_our_marks(s))


def end_without_us(s: Situation, r: Record, why: str) -> Decision:
    """Close ``r``, whose faults have ended without us.

    Marks that it has not put on its Node are those of a record that somebody deleted. They may be for a fault
    that nothing shows any more, so they stay, and a person has the node again. But where it tells of a
    recovery before, whose marks came off as that ended, they are those, and somebody has put them back.
    """
    if s.role is Role.OWNER and has_our_marks(s) and not marked_by(s, r) and not r.starts:
        return hand_over(s, r, f"{why}; but {of_no_record(r.node)}")
    return end(s, r, Event.CLEARED, why, Report(EventReason.WITHDRAWN, outcome="withdrawn"))


def same_node_object(s: Situation, r: Record) -> bool:
    """Whether the Node is the object that the record's marks were put on. A re-created one has none."""
    return s.node is not None and s.node.uid == r.node_uid


def disown(r: Record, taints: tuple[Taint, ...], how: str) -> Decision:
    """What somebody did to these taints of ours, and that we leave them alone from now on."""
    what = f"{' and '.join(map(str, taints))} of {r.node}"
    return act(Disown(taints), f"somebody {how} the taint {what}: it is not ours any more, and is left alone")


def after_the_last_step(r: Record) -> str:
    """`` after reboot``, where a step was called for; empty where none was. For sentences that say that
    nothing was called."""
    last = r.progress.submitted[-1:]
    return f" after {last[0].action or 'the last step'}" if last else ""


def hand_over(
    s: Situation, r: Record, why: str, *, plain: bool = False, outcome: str = "handedOver"
) -> Decision:
    """A person has to go on. The marks stay, so that no new pod is scheduled on this node.

    What a provider refuses is its own step, also where a drain would have come first.
    """
    sentence = why if plain else f"handed over to a person: {why}"
    of_all = outcome != "refused"
    asked = (x.do.value for x in r.ladder[r.rung :] if of_all or x.do.provider_action)
    action = next(asked, r.step.do.value if r.step else "")
    report = Report(EventReason.HANDED_OVER, warning=True, outcome=outcome, action=action)
    return act(WriteRecord(close(r, s.now, Event.GAVE_UP, sentence)), sentence, report)


def close_excluded(s: Situation, r: Record, reason: str) -> Decision:
    """The node is excluded, and no call is in flight: take our marks off and close the record."""
    done = "no further step is taken" if r.progress.acted else "closed without a destructive step"
    why = f"{done}: {reason}"
    return end(s, r, Event.CLEARED, why, Report(EventReason.WITHDRAWN, outcome="withdrawn"))


def next_rung(s: Situation, r: Record, why: str, failed: str = "") -> Decision:
    """Go on to the next rung. Hand over where there is none, or where this agent may not take it.

    A concluder may not, nor may any agent once another machine has the node's name. ``failed``: the action
    that was begun and has not helped, for the metrics.
    """
    ours = s.role is Role.OWNER and s.machine is not None and s.machine.id == r.machine.id
    following = r.ladder[r.rung + 1] if r.rung + 1 < len(r.ladder) else None
    if following is None or not ours:
        tried = f" ({', '.join(step.value for step in r.tried)} had not helped)" if r.tried else ""
        end = f"the remedy has no further step{tried}" if ours else s.machine_problem
        return hand_over(s, r, f"{why}; {end}" if end else why)
    sentence = f"{why}; next: {following}"
    noted = note(r, s.now, HistoryEvent.RUNG, sentence)
    report = Report(EventReason.NEXT_STEP, outcome="failed" if failed else "", action=failed)
    return act(WriteRecord(moved_to_rung(noted, r.rung + 1, s.now)), sentence, report)


def moved_to_rung(r: Record, rung: int, now: datetime) -> Record:
    """``r`` on this rung of its ladder from ``now``, with nothing tried on it yet."""
    r = left_behind(r)
    fresh = replace(ended(r), step_since=now, tries=0, retry_at=None)
    return replace(r, rung=rung, rung_since=None, progress=fresh)


def can_call_off(s: Situation, r: Record) -> bool:
    """Whether the call on the record may still be carried out, and its provider can cancel it.

    One that was called off, or has its evidence, is not cancelled.
    """
    if r.intent is None or not r.in_flight or s.provider is None or not s.provider.cancels:
        return False
    evidence = r.progress.evidence
    settled = {r.progress.called_off, evidence.attempt if evidence else 0}
    return r.intent.attempt not in settled


def call_off(s: Situation, r: Record) -> Cancel:
    """Cancel the call on the record. It is tried until ``LONGEST_CANCEL`` after the step's deadline."""
    assert r.intent is not None
    began, rung = r.rung_since or r.intent.at, r.step
    return Cancel(last_try=rung is not None and over(s, r, began, rung.within + LONGEST_CANCEL))


def up_again(s: Situation, r: Record) -> Decision | None:
    """The node's own agent runs, so its machine is not down: take our out-of-service taint off."""
    if s.node is None or not out_of_service(s.node):
        return None
    return act(OutOfService(False), f"{r.node} is up again: the out-of-service taint comes off")
