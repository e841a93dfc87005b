"""After a call was made, or may have been: observe, never repeat (law 2). PURE."""

from __future__ import annotations

from dataclasses import replace

from recovery.decide.budget import replacement_of
from recovery.decide.endings import NOT_APPLIED_AFTER, hand_over, next_rung, outstanding
from recovery.decide.history import note
from recovery.decide.lifecycle import Event, move
from recovery.decide.situation import (
    POLLED,
    Cancel,
    ClaimReplacement,
    Decision,
    Finish,
    Situation,
    Tell,
    WriteRecord,
    act,
    span,
    wait,
)
from recovery.model import (
    Done,
    Failed,
    Gone,
    Intent,
    IntentState,
    NotApplied,
    Record,
    Running,
    Step,
    Unfinished,
)


def follow(s: Situation, r: Record) -> Decision:
    """A call was made, or may have been: observe, never repeat (law 2)."""
    assert r.intent is not None
    if r.intent.state is IntentState.WRITTEN:
        why = f"{r.intent.action} may or may not have been asked for before this agent stopped: observing"
        changed = replace(note(r, s.now, "ambiguous", why), intent=as_state(r, IntentState.AMBIGUOUS))
        return act(WriteRecord(changed), why)
    if r.intent.action != Step.REPLACE.value and booted_anew(s, r):
        assert s.node is not None
        why = f"{r.intent.action} is proved by a new boot ID"
        return to_proof(s, replace(r, boot_id=s.node.boot_id), why)
    if s.poll is None:
        return wait(f"{r.intent.action}: its provider has not answered yet", key="poll")
    if isinstance(s.poll, Failed):
        if outstanding(s, r):
            return act(Cancel(), f"{r.intent.action} failed: {s.poll.reason}; it is called off")
        return next_rung(s, r, f"{r.intent.action} failed: {s.poll.reason}")
    if isinstance(s.poll, Done):
        return replaced(s, r, s.poll)
    if isinstance(s.poll, Unfinished):
        return act(Finish(), s.poll.sentence)
    if isinstance(s.poll, NotApplied) and s.now >= r.intent.at + NOT_APPLIED_AFTER:
        why = f"{r.intent.action} had no effect after {span(NOT_APPLIED_AFTER)}: {s.poll.sentence}"
        changed = replace(note(r, s.now, "notApplied", why), intent=as_state(r, IntentState.NOT_APPLIED))
        return act(WriteRecord(changed), why, Tell("NotApplied", True, "failed", r.intent.action))
    if isinstance(s.poll, Running | Gone) and r.intent.state is IntentState.AMBIGUOUS:
        why = f"{r.intent.action} is under way: {s.poll.sentence}"
        changed = replace(note(r, s.now, "adopted", why), intent=as_state(r, IntentState.SUBMITTED))
        return act(WriteRecord(changed), why)
    return still_running(s, r, s.poll.sentence)


def as_state(r: Record, state: IntentState) -> Intent:
    assert r.intent is not None
    return replace(r.intent, state=state)


def booted_anew(s: Situation, r: Record) -> bool:
    assert r.intent is not None
    if s.node is None or not s.node.ready or (s.machine is not None and s.machine.id != r.machine.id):
        return False
    return bool(s.node.boot_id) and s.node.boot_id != r.intent.boot_id


def still_running(s: Situation, r: Record, sentence: str) -> Decision:
    assert r.intent is not None
    rung = r.step
    began = r.rung_since or r.intent.at
    if rung is not None and s.now >= began + rung.within:
        late = f"{r.intent.action} did not succeed within {span(rung.within)}: {sentence}"
        if outstanding(s, r):
            return act(Cancel(), f"{late}; it is called off")
        if r.intent.state is IntentState.AMBIGUOUS:
            return hand_over(s, r, f"{late}; it is not known whether it was ever accepted")
        return next_rung(s, r, late)
    return wait(sentence, POLLED, f"running {sentence}")


def replaced(s: Situation, r: Record, found: Done) -> Decision:
    """The old machine is gone. Claim one new machine, once, and put it on probation."""
    assert r.intent is not None
    if s.gate is None or s.gate_problem:
        return wait(f"the gate cannot be read: {s.gate_problem or 'no answer'}", key="gate")
    if not found.replacements and r.machine.route.get("nodeclaim"):
        return to_proof(s, r, found.evidence)
    if not found.complete:
        return still_running(s, r, found.evidence)
    mine = replacement_of(s.gate, r.machine.id)
    if mine:
        return to_proof(s, replace(r, replacement_machine=mine), f"{found.evidence}; {mine} took its place")
    taken = {c.machine for c in s.gate.claimed}
    free = [m for m in found.replacements if m not in taken]
    if not free:
        return still_running(
            s, r, f"{found.evidence}; no new machine that is not somebody else's replacement"
        )
    oldest = free[0]
    return act(ClaimReplacement(oldest, r.machine.id), f"{oldest} is claimed as the replacement")


def to_proof(s: Situation, r: Record, why: str) -> Decision:
    changed = replace(
        note(r, s.now, "evidence", why),
        phase=move(r.phase, Event.EVIDENCE),
        phase_since=s.now,
        intent=as_state(r, IntentState.SUBMITTED),
    )
    return act(WriteRecord(changed), f"{why}; probation begins", Tell("Proving"))
