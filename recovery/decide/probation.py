"""Is the node proved: healthy through its probation, by fresh signals? PURE.

Time alone proves nothing (law 11).
"""

from __future__ import annotations

from datetime import datetime

from recovery.decide import tried, validation
from recovery.decide.assessment import Assessment
from recovery.decide.boot import COMES_UP
from recovery.decide.decision import Decision, EventReason, Report, WriteRecord, act
from recovery.decide.diagnosis import Diagnosis, live, name, not_by_its_own_rule, tolerated
from recovery.decide.doubt import in_doubt
from recovery.decide.endings import end, end_without_us, hand_over, marked_by, moved_to_rung
from recovery.decide.history import HistoryEvent, note
from recovery.decide.lifecycle import Event, move
from recovery.decide.proof import (
    by_own_signals,
    evidence_without_machine,
    not_watched,
    on_probation,
    only_told,
    succeeded,
    unproved,
)
from recovery.decide.replacement import prove_replacement
from recovery.decide.silence import (
    EARLY_FOR,
    blind_to_what_was_treated,
    early_word,
    not_heard,
    of_before_the_boot,
)
from recovery.decide.situation import Role, Situation
from recovery.decide.stated_since import as_counted_now
from recovery.model import Cause, Fault, Kind, Record, Step
from recovery.quick import replace
from recovery.units import span

READY = "Ready"
"""The condition of a Node that its kubelet writes, or a controller in its place."""


def prove(s: Situation, a: Assessment, r: Record) -> Decision:
    """The phase proving: the replacement, or else the same machine, has to stay healthy (law 11)."""
    if r.replacement_machine:
        return prove_replacement(s, a, r)
    if evidence := evidence_without_machine(r):
        return end(s, r, Event.PROVED, f"proved: {evidence.what}", succeeded(r))
    return prove_same_machine(s, a, r)


def prove_same_machine(s: Situation, a: Assessment, r: Record) -> Decision:
    if s.role is Role.CONCLUDER:
        if s.machine_gone:
            why = f"{s.machine_gone}, and its Node {r.node} is gone: nothing is left to prove"
            return end(s, r, Event.OTHER_MACHINE, why, Report(EventReason.SUPERSEDED))
        return unproved(s, r, f"nobody looks after {r.node} to prove it", Cause.AGENT)
    assert s.node is not None
    found = live(s, a.found)
    there = tuple(d for d in found if not of_before_the_boot(s, r, d))
    early = tuple(d for d in there if d.fault.type == READY) if _comes_up(s, r) else ()
    if others := tuple(d for d in there if d not in early):
        return _fault_there(s, a, r, others)
    if early:
        why = f"{r.node} is not Ready, but its machine has just booted"
        return unproved(s, r, why, patience=COMES_UP)
    if not s.node.ready:
        return unproved(s, r, f"{r.node} is not Ready")
    for reading in s.readings:
        if not reading.readable:
            return unproved(s, r, reading.unknown["*"], Cause.UNREADABLE)
    if word := early_word(s, r):
        return unproved(s, r, word, Cause.UNREADABLE, patience=EARLY_FOR)
    before = of_before_the_boot(s, r, found[0]) if found else ""
    if blind := before or blind_to_what_was_treated(s, r):
        return unproved(s, r, blind, Cause.UNREADABLE)
    if s.now - r.phase_since < r.probation:
        return on_probation(s, r, r.node, r.probation)
    if unwatched := not_watched(s, r.node, r.probation):
        return unwatched
    by = by_own_signals(s, "on its own page")
    healthy = f"{r.node} was healthy for {span(r.probation)} {by}{only_told(s, a)}{not_heard(s, r)}"
    if r.progress.acted:
        if unknown := validation.impossible(s, r):
            return hand_over(s, r, unknown)
        if failed := validation.failure(s, r):
            return fault_returned(s, a, r, failed)
        if more := validation.pending(s, r):
            return more
        healthy += f", and passed Job {r.validation.job}" if r.validation else ""
        return end(s, r, Event.PROVED, f"proved: {healthy}", succeeded(r))
    why = f"withdrawn: after a boot that was not asked for, {healthy}"
    return end_without_us(s, r, why)


def _comes_up(s: Situation, r: Record) -> bool:
    """Whether the machine has just booted by itself, for the first time on ``r``. Who looks after it may not
    have seen that boot."""
    p = r.progress
    first = p.proving_since if len(p.boots) == 1 and p.evidence is None else None
    return first is not None and tried.passed(s, first) < COMES_UP


def _fault_there(s: Situation, a: Assessment, r: Record, found: tuple[Diagnosis, ...]) -> Decision:
    """A fault is there in probation, so nothing is proved. What its rule tolerates is tolerated here, too.

    A new fault calls for the next step only where its own remedy has that step, and its own rule asks no
    second witness.
    """
    over = [d for d in found if _due(s, r, d) <= s.now]
    due = [d for d in over if not in_doubt(s, d.fault)]
    if not due and over:
        return unproved(s, r, in_doubt(s, over[0].fault) or "", Cause.UNREADABLE)
    if not due:
        d = min(found, key=lambda d: _due(s, r, d))
        return unproved(s, r, tolerated(d, _due(s, r, d) - s.now), patience=d.after)
    known = {(f.type, f.reason) for f in r.treated_faults}
    again = next((d for d in due if (d.fault.type, d.fault.reason) in known), None)
    d, on_record = again or due[0], again is not None  # what is back goes by the ladder, which is frozen
    why = f"{name(d.fault)} {'came back' if on_record else 'showed'} in probation"
    but = "" if on_record or d.rule_name == r.rule else _not_by_its_own_rule(r, d)
    return fault_returned(s, a, r, why, f"{why}; {but}" if but else "")


def _not_by_its_own_rule(r: Record, d: Diagnosis) -> str:
    """Why the rule of ``d`` does not call for the next step of ``r``; empty if it does, or there is none."""
    drained = any(x.do is Step.DRAIN for x in r.ladder[: r.rung + 1])  # then one more of them asks nothing
    ahead = (x.do for x in r.ladder[r.rung + 1 :] if not (drained and x.do is Step.DRAIN))
    step = next(ahead, None) if r.in_flight else None
    return not_by_its_own_rule(d, step) if step is not None else ""


def _due(s: Situation, r: Record, d: Diagnosis) -> datetime:
    """Until when ``d`` is tolerated.

    What is on the record was stated before the boot, and what states it now counts anew: drivers and plugins
    come up. That is not put off beyond the proof's own end. And if the Node was Ready since, a time in which
    it is not Ready begins anew: its source says since when.
    """
    stated = (p for x in s.readings for p in x.problems if p.type == d.fault.type)
    now = [p.since + d.after for p in stated if p.kind is Kind.LEVEL]
    evidence = r.progress.evidence
    if d.fault.type == READY:
        return max([d.due, *now, *([evidence.at + d.after] if now and evidence else [])])
    if d.fault.kind is Kind.EDGE or not now or evidence is None:
        return d.due
    return max(d.due, min([evidence.at + d.after + r.probation, *now]))


def _still_there(s: Situation, a: Assessment, r: Record) -> tuple[Fault, ...]:
    """Which faults have returned. A boot has ended those that no source has stated since.

    If they were kept, they would be latched in the new boot. A repaired machine would be replaced for them
    once the other faults are gone.
    """
    stated = tuple(d.fault for d in live(s, a.found))
    if not stated or s.node is None:
        return r.faults
    keys = {f.key for f in stated}
    kept = tuple(f for f in r.faults if f.key in keys or f.boot_id == s.node.boot_id)
    return kept or stated


def fault_returned(s: Situation, a: Assessment, r: Record, why: str, no_more: str = "") -> Decision:
    """Not cured: the next rung if this one's call was made, else the same rung again.

    ``no_more``: why a person has to go on instead. In both cases the record names what is there now.
    """
    used = r.in_flight
    back = tuple(
        replace(f, cleared=False, boot_id=s.node.boot_id if s.node else f.boot_id)
        for f in _still_there(s, a, r)
    )
    r = as_counted_now(s, replace(r, faults=back))  # what a release is about: as it is stated now
    if no_more:
        return hand_over(s, r, no_more)
    if used and r.rung + 1 >= len(r.ladder):
        return hand_over(s, r, f"{why}, and the remedy has no further step")
    # A node that is out goes on, though its slot is not seen: the gate cannot be read, or somebody edited it.
    # In the queue it would pass for one to which nothing was done.
    out = used or bool(a.slot) or r.progress.acted or marked_by(s, r)
    event = Event.RETURNED if out else Event.REQUEUED
    if not r.ladder or not (out or r.rung):
        event = Event.SUSPECTED  # nothing was begun: what is there now is tolerated as its own rule says
        r = replace(r, ladder=())
    noted = note(r, s.now, HistoryEvent.RETURNED, why)
    changed = replace(
        moved_to_rung(noted, r.rung + 1 if used else r.rung, s.now),
        phase=move(r.phase, event),
        phase_since=s.now,
        validation=None,
    )
    if not out:
        changed = replace(changed, progress=replace(changed.progress, step_since=None))
    report = Report(EventReason.FAULT_RETURNED, warning=True)
    if used and r.intent is not None:
        report = replace(report, outcome="failed", action=r.intent.action)
    return act(WriteRecord(changed), why, report)
