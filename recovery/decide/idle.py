"""Records that are closed: their places and marks, and what a person has in hand. PURE."""

from __future__ import annotations

from dataclasses import replace

from recovery.decide.budget import places
from recovery.decide.diagnosis import (
    cleared,
    diagnose,
    name,
    plugins,
    taken_back,
)
from recovery.decide.endings import end, left_marks, outstanding, up_again
from recovery.decide.lifecycle import Event
from recovery.decide.opening import begin
from recovery.decide.situation import (
    REPEAT,
    Cancel,
    Decision,
    FreeSlot,
    Situation,
    Tell,
    Unmark,
    WriteRecord,
    act,
    hold,
)
from recovery.model import Phase, Record


def tidy_up(s: Situation, r: Record) -> Decision | None:
    """A closed record still on the gate, or our marks still on a node in nobody's hands: take them off."""
    for uid in sorted(standing(s)):
        return act(FreeSlot(uid), f"{r.sentence}; its place in the budget is free again")
    if up := up_again(s, r):
        return up
    given_up = r.phase in (Phase.RELEASED, Phase.HANDED_OVER)
    if given_up and same_boot(s, r) and s.machine is not None and outstanding(s, r):
        return act(Cancel(), f"{r.sentence}; what was asked for is called off")
    kept = r.phase is Phase.HANDED_OVER or (r.phase is Phase.LOST and same_boot(s, r))
    if left_marks(s) and not kept:
        return act(Unmark(), f"{r.sentence}; our marks come off", Tell("Uncordoned"))
    return None


def standing(s: Situation) -> set[str]:
    """The records of this node that stand on the gate; one that is not the node's record was deleted."""
    return {uid for node, uid in places(s.gate) if node == s.node_name} if s.gate else set()


def forget(s: Situation, r: Record) -> Decision | None:
    """A plugin's fault that was settled, and that the plugin has since taken back: the next one is new."""
    gone = [f for f in r.acknowledged if plugins(f) and cleared(f, s)]
    if not gone:
        return None
    kept = tuple(f for f in r.acknowledged if f not in gone)
    names = ", ".join(name(f) for f in gone)
    why = f"{names} was taken back by its own source: if it comes again, it is a new fault"
    return act(WriteRecord(replace(r, acknowledged=kept)), why)


def same_boot(s: Situation, r: Record) -> bool:
    """Whether the node is still the machine, in the boot, that ``r`` is about."""
    same_machine = s.machine is None or s.machine.id == r.machine.id
    return same_machine and (s.node is None or s.node.boot_id == r.boot_id)


def in_a_persons_hands(s: Situation, r: Record) -> Decision:
    """Handed over: said again until taken. Another machine, or the source itself, can end it."""
    if s.machine is not None and s.machine.id != r.machine.id:
        why = f"the machine behind {r.node} is {s.machine.id} now: the hand-over of {r.machine.id} has ended"
        return end(s, r, Event.OTHER_MACHINE, why, Tell("Superseded"))
    only_told = not r.marks and r.intent is None
    if only_told and diagnose(s):
        return begin(s)
    rebooted_since = bool(s.node and r.boot_id and s.node.boot_id and s.node.boot_id != r.boot_id)
    if only_told and (rebooted_since or taken_back(s, r.faults)):
        by = "a new boot" if rebooted_since else "its own source"
        why = f"{name(r.faults[0])} was taken back by {by}"
        return end(s, r, Event.CLEARED, why, Tell("Withdrawn", outcome="withdrawn"))
    return still_handed_over(r)


def still_handed_over(r: Record) -> Decision:
    return hold(
        f"in a person's hands since {r.phase_since:%Y-%m-%d %H:%M:%SZ}: {r.sentence}", REPEAT, "handedOver"
    )
