"""What does an effect make of the gate? PURE: each is one of the changes of ``decide.budget``."""

from __future__ import annotations

from datetime import datetime

from recovery.decide import budget
from recovery.decide.decision import ClaimReplacement, FreeSlot, GateEffect, Join, RestoreSlot, TakeSlot
from recovery.decide.situation import Situation
from recovery.model import Gate

STARTING = Join | TakeSlot
"""By these a recovery starts: the gate has to have room for them. All others are the way back (law 8)."""


def changed(gate: Gate, effect: GateEffect, s: Situation, now: datetime) -> Gate:
    """``gate`` with ``effect``, which was decided on for ``s`` and on this very gate; the same one where it
    has that already."""
    match effect:
        case Join(record_uid):
            return budget.join(gate, s.node_name, record_uid, now)
        case TakeSlot(slot, start):
            oldest = now - budget.longest_window(s.policy.limits)
            return budget.bounded(budget.grant(gate, slot, start, s.census), oldest)
        case RestoreSlot(slot):
            return budget.restore(gate, slot)
        case FreeSlot(record_uid):
            return budget.free(gate, s.node_name, record_uid)
        case ClaimReplacement(machine, instead_of):
            return budget.claim(gate, machine, instead_of)
