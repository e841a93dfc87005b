"""Is the machine gone, or as it was, of a node that no agent and no open record looks after any more? PURE.

A node that was handed over counts for the brake until then. So does the slot of a record that was deleted:
what was asked of the cloud before may still be under way.
"""

from __future__ import annotations

from datetime import timedelta

from recovery.decide import brakes
from recovery.decide.claims import other_machine
from recovery.decide.decision import (
    REPEAT,
    Decision,
    EventReason,
    FreeSlot,
    Report,
    WriteRecord,
    act,
    hold,
    leave,
    until,
    wait,
)
from recovery.decide.endings import close
from recovery.decide.lifecycle import Event
from recovery.decide.situation import Situation
from recovery.model import Phase, Record, Slot, Unfinished
from recovery.quick import replace
from recovery.units import span

NODE_GONE = timedelta(hours=1)
"""How long a Node has to be gone until its machine counts as gone, where its provider cannot prove it."""
QUIET = timedelta(minutes=5)
"""How long after its record was found deleted a machine has to be as it was, until its slot is free. The last
call may have been made just before, and a reboot that was asked for shows only once it begins."""


def gone_at_last(s: Situation, r: Record) -> str | None:
    """What shows that the record's machine is gone for good; None while nothing does."""
    if s.machine_gone:
        return s.machine_gone
    if s.node is not None or r.node_gone_since is None or s.now - r.node_gone_since < NODE_GONE:
        return None
    return f"Node {r.node} has been gone for {span(s.now - r.node_gone_since)}"


def seen_or_gone(s: Situation, r: Record) -> Decision | None:
    """Write down since when the Node is gone, or that it is back; None where the record says so already."""
    if (s.node is None) is (r.node_gone_since is not None):
        return None
    if s.node is not None:
        return act(WriteRecord(replace(r, node_gone_since=None)), f"Node {r.node} is there again")
    why = f"Node {r.node} is gone; in {span(NODE_GONE)} {r.machine.id} counts as gone, too"
    return act(WriteRecord(replace(r, node_gone_since=s.now)), why)


# ---------------------------------------------------------------- a node in a person's hands


def lay_to_rest(s: Situation) -> Decision:
    """What to do about a handed-over record whose own agent may be gone with its machine."""
    r = s.record
    if why := brakes.off(s):
        return leave(why, REPEAT)
    if r is None or r.phase is not Phase.HANDED_OVER:
        return leave(f"{s.node_name} is in nobody's hands", REPEAT, "no-ghost")
    if (other := other_machine(s, r)) is not None:
        return superseded(s, r, f"the machine behind {r.node} is {other} now")
    if why_gone := gone_at_last(s, r):
        left = f"; {s.poll.sentence}" if isinstance(s.poll, Unfinished) else ""
        return superseded(s, r, f"{why_gone}{left}")
    if noted := seen_or_gone(s, r):
        return noted
    if r.node_gone_since is None:
        return leave(f"{r.node} is there, and in a person's hands", REPEAT, "no-ghost")
    over = r.node_gone_since + NODE_GONE
    return wait(f"Node {r.node} is gone; {r.machine.id} may be there still", until(over, s.now), "ghost")


def superseded(s: Situation, r: Record, why: str) -> Decision:
    """The hand-over has ended: the node counts no more."""
    sentence = f"{why}: the hand-over of {r.machine.id} has ended"
    return act(
        WriteRecord(close(r, s.now, Event.OTHER_MACHINE, sentence)), sentence, Report(EventReason.SUPERSEDED)
    )


# ---------------------------------------------------------------- the slot of a deleted record


def slot_of_deleted(s: Situation, place: str) -> Slot | None:
    """The slot that the record ``place`` held, which is not the node's record any more."""
    if s.gate is None or s.record is None or s.record.uid == place:
        return None
    return s.gate.slot_of(s.node_name, place)


def free_place(s: Situation, r: Record, place: str, why: str) -> Decision:
    """Free the place of ``place`` on the gate, for ``why``; the slot of a deleted record not before its
    machine is as it was, or gone."""
    slot = slot_of_deleted(s, place)
    stays = still_out(s, slot, r) if slot is not None else None
    if stays is None and r.phase is Phase.LOST and r.scopes:
        return act(WriteRecord(replace(r, scopes=())), why)  # a gate that is made again gives it none
    if stays is None:
        return act(FreeSlot(place), why)
    if noted := seen_or_gone(s, r):
        return noted
    return hold(f"{r.node}: its record was deleted, and its slot is not free yet: {stays}", key="deleted")


def still_out(s: Situation, slot: Slot, r: Record) -> str | None:
    """Why the machine that took ``slot`` may be out of service still; None once it is as it was, or gone."""
    machine = slot.machine or r.machine.id
    if gone_at_last(s, r):
        return None
    if s.node is None:
        return f"{machine} may be there still, without its Node"
    if s.machine is None:
        return s.machine_problem or s.machine_wait or f"the machine behind {r.node} is not known"
    if s.machine.id != machine:
        return None  # another machine goes by this name
    if s.asked_of_cloud:
        return s.asked_of_cloud
    if not s.node.ready:
        return f"{r.node} is not Ready"
    left = r.phase_since + QUIET - s.now
    return f"{machine} has to be as it was for another {span(left)}" if left > timedelta(0) else None
