"""A recovery starts: its slot is taken, and the record says so before any mark is put on the node. PURE."""

from __future__ import annotations

from recovery.decide import brakes
from recovery.decide.assessment import Assessment
from recovery.decide.budget import kept_labels, labels_counted, noted_rule, noted_scopes
from recovery.decide.chosen_ladder import labels_told, scopes_told
from recovery.decide.decision import Decision, EventReason, Report, TakeSlot, WriteRecord, act
from recovery.decide.diagnosis import name, rule_of
from recovery.decide.hardware import hardware
from recovery.decide.history import HistoryEvent, note
from recovery.decide.lifecycle import Event, move
from recovery.decide.situation import Situation
from recovery.decide.tried import ended
from recovery.decide.witness import both
from recovery.model import GroupStart, Record, Slot, Start
from recovery.quick import replace


def take_slot(s: Situation, r: Record) -> Decision:
    group = s.preflight.group if s.preflight else r.machine.group
    kept = kept_labels(labels_counted(s), labels_told(s))
    m, rule = r.machine, _rule(s, r)
    at = m.provider_id if brakes.few_out(s) else ""
    slot = Slot(r.node, r.uid, r.attempt + 1, ("fleet",), s.now, kept, m.id, group, rule, at)
    slot = replace(slot, scopes=noted_scopes(slot))
    start = GroupStart(s.now, r.node, group, r.machine.id, r.faults[0].reason, hardware(s.node))
    return act(TakeSlot(slot, start), f"{name(r.faults[0])}: a slot of the budget is free and is taken")


def granted(s: Situation, a: Assessment, r: Record) -> Decision:
    """The slot is taken: the record says so before any mark is put on the node."""
    group = _group_at_start(s, a, r)
    at = a.slot.since if a.slot and a.slot.machine else s.now  # the same start as on the gate
    why = f"{name(r.faults[0])}: recovery starts ({', '.join(map(str, r.ladder))}){both(s, r)}"
    started = replace(
        note(r, s.now, HistoryEvent.STARTED, why),
        scopes=scopes_told(s, noted_scopes(a.slot)) if a.slot else r.scopes,
        phase=move(r.phase, Event.GRANTED),
        phase_since=s.now,
        progress=replace(ended(r), step_since=s.now, tries=0, retry_at=None),
        machine=replace(r.machine, group=group),
        starts=(*r.starts, Start(at, r.machine.id, r.faults[0].reason, group, hardware(s.node))),
    )
    return act(WriteRecord(started), why, Report(EventReason.RECOVERY_STARTED, warning=True))


def _rule(s: Situation, r: Record) -> str:
    """The rule that the slot is for, where any rule has a budget: room on the gate is short."""
    if all(rule.budget is None for rule in s.policy.rules):
        return ""
    rule = rule_of(s, r)
    return noted_rule(rule.name if rule else r.rule)


def _group_at_start(s: Situation, a: Assessment, r: Record) -> str:
    """The machine's group, as the gate noted it when the slot was taken.

    The preflight, which knows it too, is not made once this slot has used up the budget.
    """
    if a.slot and a.slot.group:
        return a.slot.group
    starts = s.gate.starts if s.gate else ()
    noted = next((x.group for x in reversed(starts) if x.machine == r.machine.id and x.group), "")
    return noted or (s.preflight.group if s.preflight else r.machine.group)
