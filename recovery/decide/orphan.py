"""Ending what an agent that is gone left open. PURE.

A concluder observes, proves, hands over and frees. It starts nothing but what no machine's own agent may: a
power cycle, of a machine that is dead. Whatever it decides is swapped under the record's Lease, which it may
take only once its owner has let it go stale.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from recovery.decide import brakes
from recovery.decide.endings import UNSETTLED, close, hand_over
from recovery.decide.history import note
from recovery.decide.in_flight import follow
from recovery.decide.ladder import provider_step, without_slot
from recovery.decide.lifecycle import Event
from recovery.decide.marks import out_of_service
from recovery.decide.probation import prove
from recovery.decide.situation import (
    POLLED,
    REPEAT,
    Decision,
    FreeSlot,
    OutOfService,
    Situation,
    Tell,
    WriteRecord,
    act,
    hold,
    leave,
    span,
    wait,
)
from recovery.model import OUT_OF_SERVICE, IntentState, Machine, Phase, Record, Unfinished

MARGIN = 5.0
DEAD_AFTER = timedelta(minutes=5)
"""How long an agent has to be gone, its node not Ready, before its machine is taken for dead."""
PATIENCE = timedelta(minutes=15)
"""How long a node that is still there, with nothing submitted, waits for its own agent to come back."""


def conclude(s: Situation) -> Decision:
    """What to do about another node's record."""
    if why := brakes.off(s):
        return leave(why, REPEAT)
    if s.record_problem:
        return hold(
            f"the record cannot be used, and is not touched: {s.record_problem}", REPEAT, "undecodable"
        )
    r = s.record
    if r is None:
        return lost(s)
    if not r.phase.open:
        return act(FreeSlot(r.uid), f"{r.node}: the record is closed; its place in the budget is free again")
    if not s.lease.mine and not s.lease.stale:
        return leave(f"{r.node}: its agent is alive ({s.lease.holder})", key="alive")
    if fence := fenced(s, r):
        return wait(fence, key="fence")
    asked = r.intent is not None and r.intent.state in UNSETTLED
    for_a_moment = asked and not isinstance(s.poll, Unfinished)  # what was asked for may have it off
    if not for_a_moment and (given_up := pods_of_a_dead_machine(s, r)):
        return given_up
    if asked:
        return prove(s, r) if r.phase is Phase.PROVING else follow(s, r)
    if s.node is None:
        why = f"the Node {r.node} is gone, and nothing was called for it"
        return act(WriteRecord(close(r, s.now, Event.OTHER_MACHINE, why)), why, Tell("Superseded"))
    if s.machine is not None and s.machine.id != r.machine.id:
        why = f"the machine behind {r.node} is {s.machine.id} now, not {r.machine.id}: nothing was called"
        return act(WriteRecord(close(r, s.now, Event.OTHER_MACHINE, why)), why, Tell("Superseded"))
    if power := from_outside(s, r):
        return power
    allowed = max(PATIENCE, r.step.within if r.step and r.rung_since else PATIENCE)
    if s.owner_gone_for < allowed:
        left = span(allowed - s.owner_gone_for)
        return wait(f"{r.node}: its agent is gone; it has another {left} to come back", key="patience")
    return hand_over(s, r, f"the agent of {r.node} has been gone for {span(s.owner_gone_for)} ({r.sentence})")


def pods_of_a_dead_machine(s: Situation, r: Record) -> Decision | None:
    """Pods that nobody ends, on a machine that is proved down, are given up by Kubernetes' own taint.

    It comes off as soon as they are gone, or nothing proves any more that the machine is down. Where they do
    not go, the recovery goes on without that.
    """
    if s.node is None:
        return None
    past = [p for p in s.pods or () if p.deletion_timestamp is not None and p.deletion_timestamp <= s.now]
    stuck = len(past) if s.down else 0
    if out_of_service(s.node):
        if stuck and s.owner_gone_for >= PATIENCE:
            return None
        if stuck:
            return wait(f"{r.node}: {stuck} of its pods are being given up", POLLED, "given-up")
        return act(OutOfService(False), f"{r.node}: its pods are given up; the taint comes off")
    if not stuck or OUT_OF_SERVICE in s.refusals or s.node.has_taint(OUT_OF_SERVICE):  # the last: a person's
        return None
    if s.machine is None or s.machine.id != r.machine.id:
        return None
    placed = s.gate is not None and s.gate.slot_of(r.node, r.uid) is not None
    if not placed or r.phase not in (Phase.RECOVERING, Phase.PROVING) or s.owner_gone_for >= PATIENCE:
        return None
    if brakes.first_reason(brakes.FORBIDDEN, s):
        return None
    why = f"{r.node}: {s.down}; {stuck} of its pods are stuck terminating, and are given up"
    return act(OutOfService(True), why, Tell("OutOfService", warning=True))


def from_outside(s: Situation, r: Record) -> Decision | None:
    """A step that the machine's own agent never starts, once that agent and its kubelet are dead."""
    if not s.may_power or s.provider is None or r.phase is not Phase.RECOVERING or s.node is None:
        return None
    ahead = ((i, rung) for i, rung in enumerate(r.ladder) if i >= r.rung)
    i, rung = next(((i, x) for i, x in ahead if x.do in s.provider.from_outside), (0, None))
    if rung is None:
        return None
    if s.node.ready or s.owner_gone_for < DEAD_AFTER or not r.marks:
        return None
    if found := brakes.first_reason(brakes.GOING_ON, s):
        return hold(f"{r.node}: {rung.do.value}: {found[1]}", key=found[0])
    if s.gate is None or s.gate.slot_of(r.node, r.uid) is None:
        return without_slot(s, r)
    if i != r.rung:
        gone = f"its agent has been gone for {span(s.owner_gone_for)} and the node is not Ready"
        why = f"{r.node} is dead: {gone}; next: {rung.do.value}, from outside"
        there = replace(note(r, s.now, "rung", why), rung=i, rung_since=None, intent=None)
        return act(WriteRecord(there), why, Tell("NextStep", warning=True))
    return provider_step(s, r, rung)


def lost(s: Situation) -> Decision:
    """A deleted record is made again as closed, so that its place is freed by evidence."""
    gone = Record(
        node=s.node_name,
        phase=Phase.LOST,
        machine=s.machine or Machine(provider="", id="unknown"),
        node_uid=s.node.uid if s.node else "",
        boot_id=s.node.boot_id if s.node else "",
        faults=(),
        phase_since=s.now,
    )
    why = "lost: somebody deleted the record of a recovery that was open"
    return act(WriteRecord(note(gone, s.now, "lost", why)), why, Tell("Lost", warning=True))


def fenced(s: Situation, r: Record) -> str | None:
    """An intent without an outcome may still be carried out by a process that was stopped."""
    if r.intent is None or r.intent.state is not IntentState.WRITTEN:
        return None
    needed = timedelta(seconds=r.intent.submit_within + r.intent.call_timeout + MARGIN)
    if s.intent_seen_for >= needed:
        return None
    return (
        f"{r.node}: its {r.intent.action} may still be on its way; {span(needed - s.intent_seen_for)} to go"
    )
