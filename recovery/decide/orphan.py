"""What is to be done about another node's record, once its own agent is gone? PURE.

A concluder observes, proves, hands over to a person and frees slots. It starts only what no machine's own
agent may, on a machine that is dead: a power cycle out of band, and the out-of-service taint. It writes a
record only under the record's Lease, which it may take only once its owner has let it go stale.
"""

from __future__ import annotations

from datetime import timedelta

from recovery.decide import brakes, tried
from recovery.decide.assessment import Assessment, assess
from recovery.decide.claims import other_machine
from recovery.decide.decision import (
    REPEAT,
    Decision,
    EventReason,
    FreeSlot,
    Report,
    WriteRecord,
    act,
    first_answer,
    hold,
    leave,
    wait,
)
from recovery.decide.drain import keeps_some, may_never_go, remaining
from recovery.decide.endings import (
    after_the_last_step,
    call_over,
    close,
    close_excluded,
    hand_over,
    has_our_marks,
    moved_to_rung,
)
from recovery.decide.given_back import wanted_back
from recovery.decide.gone import free_place
from recovery.decide.history import HistoryEvent, note
from recovery.decide.in_flight import observe_call
from recovery.decide.ladder import slot_put_back, without_slot
from recovery.decide.lifecycle import Event
from recovery.decide.probation import prove
from recovery.decide.provider_step import provider_step
from recovery.decide.situation import ABOUT_NOW, Situation
from recovery.decide.stuck_pods import PATIENCE, gone_so_far, stuck_pods
from recovery.model import Cause, IntentState, Machine, Phase, Record, Slot, Step
from recovery.quick import replace
from recovery.units import span

DEAD_AFTER = timedelta(minutes=5)
"""How long an agent has to be gone, with its node not Ready, before its machine counts as dead."""
OWN_AGENT_FIRST = timedelta(seconds=90)
"""How long a release request is left to the node's own agent, which looks at its record once a minute."""


def conclude(s: Situation, a: Assessment | None = None, *, place: str = "") -> Decision:
    """What to do about another node's record. ``place``: the UID of a record with a place on the gate."""
    a = a or assess(s)
    if why := brakes.off(s):
        return leave(why, REPEAT)
    if s.record_problem:
        why = f"the record cannot be used, and is not touched: {s.record_problem}"
        return hold(why, REPEAT, "undecodable")
    r = s.record
    if r is None:
        return lost(s)
    if place and r.uid != place:
        return free_place(s, r, place, f"{s.node_name}: the record this place belonged to is gone")
    if not r.phase.open and r.release is not None:
        return _wanted_back(s, a, r) or leave(f"{r.node}: its own agent answers first", REPEAT)
    if not r.phase.open:
        return act(FreeSlot(r.uid), f"{r.node}: the record is closed; its place in the budget is free again")
    if d := first_answer(UNDER_LEASE, s, a, r):
        return d
    return tried.accounted(s, r, first_answer(QUESTIONS, s, a, r) or gone_too_long(s, r))


def while_off(r: Record) -> Decision:
    """What is said each minute of a record that counts, with recovery off: nothing is done about it."""
    if not r.phase.open:
        return hold(r.sentence, REPEAT, "handedOver")
    left = "the recovery of this node is left as it is, abandoned by switching recovery off"
    return hold(f"{brakes.OFF}: {left} ({r.sentence})", REPEAT, "abandoned")


def _alive(s: Situation, a: Assessment, r: Record) -> Decision | None:
    if s.lease.mine or s.lease.stale:
        return None
    return leave(f"{r.node}: another process works on it ({s.lease.holder})", key="alive")


def _fenced(s: Situation, a: Assessment, r: Record) -> Decision | None:
    fence = fenced(s, r)
    return wait(fence, key="fence") if fence else None


def _wanted_back(s: Situation, a: Assessment, r: Record) -> Decision | None:
    """Answer a release request, where the node's own agent has not: that may be able to do more."""
    if r.release is None or not (s.lease.mine or s.lease.stale):
        return None
    if -ABOUT_NOW <= s.now - r.release.at < OWN_AGENT_FIRST:  # further ahead, a clock was set back since
        return None
    return wanted_back(s, r)


def _call_in_flight(s: Situation, a: Assessment, r: Record) -> Decision | None:
    """Observe the call, or prove its effect. The controller also puts back a slot that somebody took off.

    A record without a place on the gate is looked at too seldom for its probation to be watched. An agent may
    not put back the slot of another's node.
    """
    if not r.in_flight:
        return None
    d = prove(s, a, r) if r.phase is Phase.PROVING else observe_call(s, r)
    return slot_put_back(s, a, r, d) if s.afar else d


def _not_its_node(s: Situation, a: Assessment, r: Record) -> Decision | None:
    """No call is in flight, and the machine that one could be made for is not behind this name any more."""
    if s.node is None:
        why = f"the Node {r.node} is gone, and nothing was called for it{after_the_last_step(r)}"
    elif (other := other_machine(s, r)) is not None:
        why = f"the machine behind {r.node} is {other} now, not {r.machine.id}: nothing was called"
        why += after_the_last_step(r)
    else:
        return None
    return act(WriteRecord(close(r, s.now, Event.OTHER_MACHINE, why)), why, Report(EventReason.SUPERSEDED))


def _excluded(s: Situation, a: Assessment, r: Record) -> Decision | None:
    """An exclusion ends the recovery. Marks are the node's own agent's to take off: without it, after
    ``PATIENCE``, a person has the node, so that somebody knows of them, and its slot is free."""
    reason = brakes.excluded(s)
    if reason is None:
        return None
    if not r.marks and not has_our_marks(s):
        return close_excluded(s, r, reason)
    gone = tried.gone_for(s, r)
    if gone < PATIENCE:
        left = f"who looked after {r.node} has another {span(PATIENCE - gone)} to come back"
        return wait(f"{reason}; {left} and take its marks off", key="patience", held=Cause.AGENT)
    why = f"{reason}, but nobody has looked after {r.node} for {span(gone)}, so our marks are on it still"
    return replace(hand_over(s, r, why), held=Cause.AGENT)


def gone_too_long(s: Situation, r: Record) -> Decision:
    """Wait for the node's own agent to come back. After ``PATIENCE``, or the step's deadline, hand over."""
    allowed = max(PATIENCE, r.step.within if r.step and r.rung_since else PATIENCE)
    gone = tried.gone_for(s, r)
    left = span(max(allowed - gone, timedelta(0)))
    left = f"{r.node}: nobody looks after it now; who did has another {left} to come back"
    if found := _not_waited_for(s):
        return wait(f"{left}: {found[1]}", key="patience", held=found[0])
    if gone < allowed:
        return wait(left, key="patience", held=Cause.AGENT)
    held = tried.held_clause(r, s.now, but=Cause.AGENT)
    besides = f"; its step was {held} besides" if held else ""
    why = f"nobody has looked after {r.node} for {span(gone)}{besides} ({r.sentence})"
    return replace(hand_over(s, r, why), held=Cause.AGENT)


def _not_waited_for(s: Situation) -> tuple[Cause, str] | None:
    """What would hold the node's own agent if it were there. That time does not count against its patience.

    The brake is asked only where somebody has counted the nodes: nobody counts them in order to wait.
    """
    questions = brakes.FORBIDDEN if s.census is None else brakes.GOING_ON
    found = brakes.first_reason(questions, s)
    return (tried.BY_KEY[found[0]], found[1]) if found else None


# ---------------------------------------------------------------- a power cycle out of band


def _out_of_band(s: Situation, a: Assessment, r: Record) -> Decision | None:
    """Start a step that the machine's own agent never may, once that agent and its kubelet are dead."""
    if not s.may_power or s.provider is None or r.phase is not Phase.RECOVERING or s.node is None:
        return None
    ahead = ((i, rung) for i, rung in enumerate(r.ladder) if i >= r.rung)
    i, rung = next(((i, x) for i, x in ahead if x.do in s.provider.out_of_band), (0, None))
    if rung is None:
        return None
    if s.node.ready or gone_so_far(s, r) < DEAD_AFTER or not r.marks:
        return None
    if found := brakes.first_reason(brakes.GOING_ON, s):
        return hold(f"{r.node}: {rung.do.value}: {found[1]}", key=found[0], held=tried.BY_KEY[found[0]])
    if a.slot is None:
        return without_slot(s, r)
    if keeps_some(s.policy.drain) and any(x.do is Step.DRAIN for x in r.ladder[r.rung : i]):
        if s.pods is None:
            return None  # one of them may be there: a person has the node in the end
        if never := may_never_go(remaining(s.pods, s.now), s.policy.drain):
            return hand_over(s, r, f"{r.node} is dead, but no {rung.do.value} is asked for: {never}")
    if i != r.rung:
        gone = f"nobody has looked after it for {span(gone_so_far(s, r))} and the node is not Ready"
        why = f"{r.node} is dead: {gone}; next: {rung.do.value}, out of band"
        there = moved_to_rung(note(r, s.now, HistoryEvent.RUNG, why), i, s.now)
        return act(WriteRecord(there), why, Report(EventReason.NEXT_STEP, warning=True))
    return provider_step(s, r, rung)


UNDER_LEASE = (_alive, _fenced)
"""Asked first: whether anything may be done about the record at all."""

QUESTIONS = (
    _wanted_back,
    stuck_pods,
    _call_in_flight,
    _not_its_node,
    _excluded,
    _out_of_band,
)
"""Asked of an open record, in this order; the first answer counts. Without one, ``gone_too_long`` decides."""


def lost(s: Situation) -> Decision:
    """The record was deleted while it had a place on the gate: create it again, closed.

    Its slot is freed once its machine is as it was, or gone (``gone.still_out``). Where another machine has
    got the name since the slot was taken, the record is about the one that took it: nothing was done to the
    other.
    """
    slot = next((x for x in s.gate.slots if x.node == s.node_name), None) if s.gate else None
    another = bool(s.machine and slot and slot.machine and slot.machine != s.machine.id)
    node = None if another else s.node
    gone = Record(
        node=s.node_name,
        phase=Phase.LOST,
        machine=machine_of(slot) if another or s.machine is None else s.machine,
        node_uid=node.uid if node else "",
        boot_id=node.boot_id if node else "",
        faults=(),
        phase_since=s.now,
        scopes=slot.scopes if slot else (),  # by these it has a slot again, if the gate is made again
    )
    why = "lost: somebody deleted the record of a recovery that was open"
    return act(
        WriteRecord(note(gone, s.now, HistoryEvent.LOST, why)), why, Report(EventReason.LOST, warning=True)
    )


def machine_of(slot: Slot | None) -> Machine:
    """What is known of a deleted record's machine whose Node is gone. Its providerID says whom to ask."""
    if slot is None or not slot.machine:
        return Machine(provider="", id="unknown")
    return Machine(provider="", id=slot.machine, provider_id=slot.provider_id, group=slot.group)


def fenced(s: Situation, r: Record) -> str | None:
    """Why an intent without an outcome is not concluded yet: a stopped process may still make its call."""
    if r.intent is None or r.intent.state is not IntentState.WRITTEN:
        return None
    needed = call_over(r.intent)
    if s.intent_seen_for >= needed:
        return None
    left = span(needed - s.intent_seen_for)
    return f"{r.node}: who looked after it may still ask for {r.intent.action} within the next {left}"
