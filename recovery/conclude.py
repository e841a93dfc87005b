"""Ending what an agent that is gone left open. PURE.

A concluder observes, proves, hands over and frees. It starts nothing, ever. Whatever it decides
is swapped under the record's Lease, which it may take only once its owner has let it go stale.
"""

from __future__ import annotations

from datetime import timedelta

from recovery import brakes
from recovery.closing import UNSETTLED, close, hand_over
from recovery.follow import follow
from recovery.lifecycle import Event
from recovery.model import IntentState, Machine, Phase, Record
from recovery.proof import prove
from recovery.record import note
from recovery.situation import (
    REPEAT,
    Decision,
    FreeSlot,
    Situation,
    Tell,
    WriteRecord,
    act,
    hold,
    leave,
    span,
    wait,
)

MARGIN = 5.0
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
    if r.intent is not None and r.intent.state in UNSETTLED:
        return prove(s, r) if r.phase is Phase.PROVING else follow(s, r)
    if s.node is None:
        why = f"the Node {r.node} is gone, and nothing was called for it"
        return act(WriteRecord(close(r, s.now, Event.OTHER_MACHINE, why)), why, Tell("Superseded"))
    if s.machine is not None and s.machine.id != r.machine.id:
        why = f"the machine behind {r.node} is {s.machine.id} now, not {r.machine.id}: nothing was called"
        return act(WriteRecord(close(r, s.now, Event.OTHER_MACHINE, why)), why, Tell("Superseded"))
    allowed = max(PATIENCE, r.step.within if r.step and r.rung_since else PATIENCE)
    if s.owner_gone_for < allowed:
        left = span(allowed - s.owner_gone_for)
        return wait(f"{r.node}: its agent is gone; it has another {left} to come back", key="patience")
    return hand_over(s, r, f"the agent of {r.node} has been gone for {span(s.owner_gone_for)} ({r.sentence})")


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
