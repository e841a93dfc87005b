"""What is to be done on a node without an open record? PURE.

Clean up after a closed one, repeat that a person has the node, or open a record at the first sign of a fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from recovery.decide import brakes
from recovery.decide.acknowledged import late_witness, worth_a_record
from recovery.decide.assessment import Assessment
from recovery.decide.boot import agrees
from recovery.decide.budget import labels_told_of, places
from recovery.decide.chosen_ladder import scopes_kept
from recovery.decide.claims import other_machine
from recovery.decide.decision import (
    REPEAT,
    SELDOM,
    Decision,
    EventReason,
    RemoveRecord,
    Report,
    WriteRecord,
    act,
    first_answer,
    hold,
    leave,
    until,
    wait,
)
from recovery.decide.diagnosis import (
    UNKNOWN_TOO_LONG,
    Diagnosis,
    as_treated,
    diagnosed,
    fault_of,
    healthy,
    name,
    of_a_boot_before,
    settled,
    told_apart,
)
from recovery.decide.doubt import cleared, how_it_ended
from recovery.decide.endings import (
    call_off,
    can_call_off,
    disown,
    end,
    has_our_marks,
    marked_anew,
    marks_off,
    same_node_object,
    up_again,
)
from recovery.decide.gone import free_place, seen_or_gone
from recovery.decide.history import HistoryEvent, note
from recovery.decide.latch import has_ended, held, noted
from recovery.decide.lifecycle import Event, move
from recovery.decide.marks import found_on
from recovery.decide.remembered import as_a_persons, closed_at, full, remembered
from recovery.decide.retention import counts_on, expired, nothing_wrong, still_counts
from recovery.decide.room import MOST_FAULTS, kept
from recovery.decide.situation import Situation
from recovery.decide.standing import before_service, standing_now, words
from recovery.decide.stated_since import as_released, brought_up_to_date, stated_after
from recovery.model import TAINT, Fault, Kind, Machine, NodeView, Phase, Record, Step
from recovery.quick import replace
from recovery.units import few, span

MOST_NAMED = 3
"""How many faults a sentence names."""

# ---------------------------------------------------------------- a closed record


def tidy_up(s: Situation, r: Record) -> Decision | None:
    """Clean up after a closed record: its place on the gate, a call that can be cancelled, our marks.

    The marks stay while the node is handed over. After a lost record they stay until the next boot.
    """
    kept_slot: Decision | None = None
    for uid in sorted(records_on_gate(s)):
        place = free_place(s, r, uid, f"{r.sentence}; its place in the budget is free again")
        if place.effect is not None:
            return place
        kept_slot = place
    if not _may_be_down(s, r) and (up := up_again(s, r)):
        return up
    given_up = r.phase in (Phase.RELEASED, Phase.HANDED_OVER)
    if given_up and same_boot(s, r) and s.machine is not None and can_call_off(s, r):
        return act(call_off(s, r), f"{r.sentence}; what was asked for is called off")
    kept = r.phase is Phase.HANDED_OVER or (r.phase is Phase.LOST and same_boot(s, r))
    if has_our_marks(s) and not kept:
        return marks_off(s, r.sentence)
    return kept_slot


def _may_be_down(s: Situation, r: Record) -> bool:
    """Whether the pods of a node in a person's hands stay given up: the controller does not run on it, so it
    shows nothing that it looks after the node."""
    return s.afar and r.phase is Phase.HANDED_OVER and s.node is not None and not s.node.ready


def records_on_gate(s: Situation) -> set[str]:
    """UIDs of this node's records that have a place on the gate. One other than the node's record is gone."""
    return {uid for node, uid in places(s.gate) if node == s.node_name} if s.gate else set()


def forget_cleared(s: Situation, r: Record) -> Decision | None:
    """Forget a fault that was dealt with, once its source has taken it back: the next one is new.

    Of a log rule's fault, note that the life of the detector that stated it has ended. A fault that is still
    handed over stays known, so that it is reported once however often it shows.
    """
    if found := of_a_deleted_record(s, r):
        names = ", ".join(map(name, told_apart(found)))
        about = replace(remembered(r, found), faults=kept(found))
        return act(WriteRecord(about), f"{names} was there when the node was released: it starts nothing")
    if (released := as_released(s, r)) != r:
        return act(WriteRecord(released), f"{r.sentence}; what had been stated by then starts nothing")
    if more := released_with(s, r):
        why = f"{len(more)} more faults were there when the node was released: they start nothing either"
        return act(WriteRecord(remembered(r, more)), why)
    if late := late_witnesses(s):
        names = ", ".join(f"{name(f)} by {f.source}" for f in late)
        return act(
            WriteRecord(remembered(r, late)), f"{names}: it was dealt with, as another source stated it"
        )
    return known_since(s, r)


def known_since(s: Situation, r: Record) -> Decision | None:
    """What became since of the faults that were dealt with, and that ``r`` is not about now.

    An agent that was not there could not tell a new fault from them.
    """
    about = {f.key for f in r.faults} if r.phase.sick else set()
    gone = [f for f in r.acknowledged if f.key not in about and _is_over(f, s)]
    changed, why = brought_up_to_date(r, s, gone)
    return act(WriteRecord(changed), why) if why else None


def _is_over(f: Fault, s: Situation) -> bool:
    """Whether ``f``, which was dealt with, is over: by its rule, where a person has not released it."""
    return has_ended(f, s) if f.handed_over else cleared(f, s)


def late_witnesses(s: Situation) -> tuple[Fault, ...]:
    """What a second source states of faults that were dealt with. It is remembered: its next word is news."""
    every = (p for x in s.readings for p in x.problems if p.kind is Kind.LEVEL)
    shown = (p for p in every if not of_a_boot_before(p, s))
    late = (f for p in shown if late_witness(f := fault_of(p, s), s) and settled(f, s))
    return tuple(as_treated(diagnosed(f, s)) for f in late)


def of_a_deleted_record(s: Situation, r: Record) -> tuple[Fault, ...]:
    """All faults that the node showed when a person released it, where its record had been deleted before.
    Nobody knows any more which of them the record was about."""
    if r.phase is not Phase.RELEASED or r.faults or r.release_heard:
        return ()
    if s.node is None or s.machine is None or not same_boot(s, r):
        return ()
    until = closed_at(s, r)
    shown = (p for x in s.readings for p in x.problems if not of_a_boot_before(p, s))
    of_then = (p for p in shown if all(at <= until for at in p.times))
    return tuple(f for p in of_then if not stated_after(f := fault_of(p, s), p, r, until))


def released_with(s: Situation, r: Record) -> tuple[Fault, ...]:
    """The faults that the node showed when a person released it, and that its record had no room for."""
    if r.phase is not Phase.RELEASED or len(r.faults) < MOST_FAULTS or full(r):
        return ()
    shown = [p for x in s.readings for p in x.problems if p.kind is Kind.LEVEL and p.since <= closed_at(s, r)]
    faults = (fault_of(p, s) for p in shown)
    return tuple(f for f in faults if not settled(f, s))


def same_boot(s: Situation, r: Record) -> bool:
    """Whether the node is still the same machine in the same boot as on ``r``."""
    return other_machine(s, r) is None and (s.node is None or s.node.boot_id == r.boot_id)


def alone(s: Situation, r: Record) -> str | None:
    """Why nothing starts on a node whose open record somebody deleted; None where that is over."""
    if r.phase is not Phase.LOST or not same_boot(s, r):
        return None
    return f"{r.sentence}; nothing starts until the machine boots, is replaced or is released"


def in_a_persons_hands(s: Situation, a: Assessment, r: Record) -> Decision:
    """Handed over: repeat it until a person releases the node. Another machine ends it too.

    Where nothing was done about the fault, its own source ends it, or a new boot, or a new fault.
    """
    if answer := first_answer(HANDED_OVER, s, a, r):
        return answer
    fault, still = r.faults[0], still_handed_over(s, r)
    why = held(s, fault, diagnosed(fault, s).rule) if _is_only_reported(r) else ""
    why = why or _seen_since(s, a, r)
    return replace(still, reason=f"{still.reason}; {why}") if why else still


def _other_machine(s: Situation, a: Assessment, r: Record) -> Decision | None:
    if (other := other_machine(s, r)) is None:
        return None
    why = f"the machine behind {r.node} is {other} now: the hand-over of {r.machine.id} has ended"
    return end(s, r, Event.OTHER_MACHINE, why, Report(EventReason.SUPERSEDED))


def _node_is_back(s: Situation, a: Assessment, r: Record) -> Decision | None:
    return seen_or_gone(s, r) if r.node_gone_since is not None else None


def _registered_anew(s: Situation, a: Assessment, r: Record) -> Decision | None:
    """The same machine under a new Node object, which has no marks of ours."""
    if s.node is None or s.machine is None or not r.marks or same_node_object(s, r):
        return None
    if brakes.first_reason(brakes.FORBIDDEN, s):
        return still_handed_over(s, r)
    return marked_anew(s, r, f"{r.node} was registered again by the same machine: it stays out of service")


def _marks_not_on_record(s: Situation, a: Assessment, r: Record) -> Decision | None:
    """A crash kept them off the record. A peer that handed the node over may not write them there."""
    if s.node is None or r.marks or not (there := found_on(s.node)):
        return None
    why = f"{r.node} has our marks, which were not on its record"
    return act(WriteRecord(replace(r, marks=there)), why)


def given_back_by_hand(s: Situation, a: Assessment, r: Record) -> Decision | None:
    """Somebody took cordon and taint off, so pods run there again: take back what would end the machine."""
    if s.node is None or s.node.unschedulable or s.node.has_taint(TAINT) or s.take_back_refused:
        return None
    return before_service(s, r) if r.marks else None


def _taints_of_others(s: Situation, a: Assessment, r: Record) -> Decision | None:
    gone = tuple(t for t in r.marks.taints if t not in s.node.our_taints) if s.node is not None else ()
    return disown(r, gone, "took off or changed") if gone else None


def _only_reported(s: Situation, a: Assessment, r: Record) -> Decision | None:
    """Nothing was done about the fault: a fault that calls for more takes its place, or it ends by itself."""
    if not _is_only_reported(r):
        return None
    if _calls_for_more(s, a, r):
        return begin(s, a)
    if change := noted(s, r):
        return act(WriteRecord(change[0]), change[1])
    if ended := _ended(s, a, r):
        r, why = ended
        return end(s, r, Event.CLEARED, why, Report(EventReason.WITHDRAWN, outcome="withdrawn"))
    return None


def _is_only_reported(r: Record) -> bool:
    return not r.marks and r.intent is None


HANDED_OVER = (
    _other_machine,
    _node_is_back,
    _registered_anew,
    _marks_not_on_record,
    given_back_by_hand,
    _taints_of_others,
    _only_reported,
)
"""Asked of a record that is handed over, in this order; the first answer counts."""


def _calls_for_more(s: Situation, a: Assessment, r: Record) -> bool:
    """Whether a record of what was found takes the place of ``r``.

    Where a remedy was refused, or has not helped, only a fault that is to be treated now does. For any other,
    people would be told of that one, and no more of the node that is broken.
    """
    found = openers(s, a)
    if any(f.treated for f in r.faults):
        return any(d.treat and d.due <= s.now for d in found)
    return bool(found)


def _seen_since(s: Situation, a: Assessment, r: Record) -> str:
    """The faults that came since a person has the node. They were not handed over; a release decides.

    Without the Node its boot is not known. So a fault with the same reason as one before is left out.
    """
    before = {(f.type, f.reason) for f in (*r.faults, *r.acknowledged)} if s.node is None else frozenset()
    since = (d.fault for d in a.found if (d.fault.type, d.fault.reason) not in before)
    names = [name(fault) for fault in told_apart(since)]
    return f"seen since: {few(names, MOST_NAMED)}" if names else ""


def _ended(s: Situation, a: Assessment, r: Record) -> tuple[Record, str] | None:
    """What ended the fault of ``r``, which is in the boot of now; None where nothing has."""
    if s.node and r.boot_id and s.node.boot_id and s.node.boot_id != r.boot_id:
        return replace(r, boot_id=s.node.boot_id), f"{name(r.faults[0])} was taken back by a new boot"
    return (r, how_it_ended(r.faults[0], s)) if a.taken_back else None


def still_handed_over(s: Situation, r: Record) -> Decision:
    """Say so, and what may still happen to the machine: who uncordons it by hand has to know."""
    asked = standing_now(s, r)
    to_come = f"; {words(asked)} may still come: a release takes it back first" if asked else ""
    if asked and s.take_back_refused:
        to_come = f"; {s.take_back_refused}"
    odd = s.machine_problem if s.machine_problem not in r.sentence else ""  # another machine is there, say
    since = f"{r.phase_since:%Y-%m-%d %H:%M:%SZ}"
    told = f"in a person's hands since {since}: {r.sentence}{to_come}"
    return hold(f"{told}; {odd}" if odd else told, REPEAT, "handedOver")


def out_of_date(s: Situation, a: Assessment, r: Record) -> Decision | None:
    """Remove a closed record that is older than the policy keeps it, once nothing goes by it any more."""
    limits = s.policy.limits
    if s.node is None or s.gate_problem or a.found or not expired(r, limits, s.now):
        return None
    if still_counts(r, limits, s.now) or counts_on(r, s.node, s.machine.id if s.machine else ""):
        return None
    if not nothing_wrong(s.readings):
        return None
    why = f"its record is removed: {r.phase.value} for {span(s.now - r.phase_since)}, and no longer needed"
    return act(RemoveRecord(), f"{r.node}: {why}")


# ---------------------------------------------------------------- the first sign of a fault


def openers(s: Situation, a: Assessment) -> tuple[Diagnosis, ...]:
    """The faults that a record is opened for: all, until the record that was closed can remember no more."""
    return tuple(d for d in a.found if worth_a_record(s.record, d.treat and not s.machine_problem))


def begin(s: Situation, a: Assessment) -> Decision:
    """Open a record at the first sign of a fault, before any timer or budget counts."""
    if not a.found:
        return leave(healthy(s), _look_again(s))
    found = openers(s, a)
    if not found:
        count = len(told_apart(d.fault for d in a.found))
        more = f"{count} more faults" if count > 1 else "one more fault"
        why = f"{name(a.found[0].fault)}: {more} than a record can remember: only metrics report the rest"
        return hold(why, REPEAT, "too-many")
    d = found[0]
    if s.machine_wait:
        return wait(f"{name(d.fault)}: {s.machine_wait}", key="uninitialised")
    if s.elsewhere:
        return wait(f"{name(d.fault)}: {s.elsewhere}", key="elsewhere")
    if s.node is None:
        return wait(f"{name(d.fault)}: the Node is not there", key="no-node")
    if d.treat and (reason := brakes.first_reason((("excluded", brakes.excluded),), s)):
        return hold(f"{name(d.fault)}: nothing is done: {reason[1]}", SELDOM, reason[0])
    if not s.lease.mine and not s.lease.stale:
        return wait(f"{name(d.fault)}: another agent works on this node ({s.lease.holder})", key="lease")
    assert s.machine is not None or s.machine_problem
    record = new_record(s, found)
    report = Report(EventReason.FAULT_SEEN, warning=True, outcome="observed", action=strongest_step(d))
    return act(WriteRecord(record), record.sentence, report)


def _look_again(s: Situation) -> timedelta:
    """When a healthy node is looked at again: once the silence of a source has become a fault of its own."""
    ends = [since + UNKNOWN_TOO_LONG for x in s.readings for since in x.unknown_since.values()]
    return min([REPEAT, *(until(end, s.now, REPEAT) for end in ends if end > s.now)])


def strongest_step(d: Diagnosis) -> str:
    return next((r.do.value for r in reversed(d.ladder)), "notify")


def new_record(s: Situation, found: tuple[Diagnosis, ...]) -> Record:
    """A record in the phase suspect: a new one, or the node's earlier one with what it remembers."""
    assert s.node is not None
    faults = kept(as_treated(d) for d in found)
    machine = s.machine
    if machine is None:
        machine = Machine(provider="", id=s.node.provider_id or s.node.uid, provider_id=s.node.provider_id)
        if s.record is not None and s.record.node_uid == s.node.uid:
            machine = s.record.machine  # what the same Node object was found to be at first
    fresh = Record(
        node=s.node_name,
        phase=Phase.SUSPECT,
        machine=machine,
        node_uid=s.node.uid,
        boot_id=s.node.boot_id,
        faults=faults,
        phase_since=s.now,
        rule=found[0].rule_name,
        boot_confirmed=agrees(s),
        scopes=scopes_kept(s, _labels_at_first(s, s.node, machine)),
    )
    more = len(told_apart(d.fault for d in found)) - 1
    also = f" (and {more} more)" if more else ""
    seen = f"{name(faults[0])} was seen{also}"
    if s.record is not None:
        old = s.record
        fresh = replace(
            fresh,
            phase=move(old.phase, Event.FAULT),
            uid=old.uid,
            resource_version=old.resource_version,
            attempt=old.attempt,
            history=old.history,
            starts=old.starts,
            acknowledged=as_a_persons(old),
            acknowledged_more=old.acknowledged_more,
            boot_confirmed=fresh.boot_confirmed or (old.boot_confirmed and old.machine.id == machine.id),
            recovered_at=old.recovered_at,
        )
        if tried := steps_in_vain(s, old, fresh):
            past = f"{span(s.now - recovered_at(old))} after {tried[-1].value} was proved"
            seen = f"{name(faults[0])} is back{also}, {past}: the same incident"
            fresh = replace(fresh, tried=tried)
    return note(fresh, s.now, HistoryEvent.SUSPECT, seen)


def _labels_at_first(s: Situation, node: NodeView, machine: Machine) -> Mapping[str, str]:
    """The labels by which a record that is opened counts its node. Those that a node in a person's hands has
    lost go on to count."""
    old = s.record
    theirs = old is not None and old.phase is Phase.HANDED_OVER and old.machine.id == machine.id
    return labels_told_of(node, old) if old is not None and theirs else node.labels


def steps_in_vain(s: Situation, old: Record, new: Record) -> tuple[Step, ...]:
    """The steps that did not help: the same fault is back on the same machine within ``sameIncident``."""
    same = {(f.type, f.reason) for f in old.faults} & {(f.type, f.reason) for f in new.faults}
    soon = s.now - recovered_at(old) <= s.policy.limits.same_incident
    if old.machine.id != new.machine.id or not same or not soon:
        return ()
    if old.phase is not Phase.RECOVERED:
        return old.tried  # the fault cleared by itself in between: still the same incident
    asked = {attempt.action for attempt in old.progress.submitted}
    steps = (rung.do for rung in old.ladder[: old.rung + 1] if rung.do.provider_action)
    return (*old.tried, *(step for step in steps if step in asked or "" in asked))


def recovered_at(r: Record) -> datetime:
    """When a recovery on this record was last proved."""
    return r.recovered_at or r.phase_since
