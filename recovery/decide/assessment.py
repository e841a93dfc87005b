"""What does a situation mean? Worked out once a cycle and passed on, so that all questions agree. PURE."""

from __future__ import annotations

from dataclasses import dataclass

from recovery.decide.budget import ahead_of
from recovery.decide.diagnosis import Diagnosis, diagnose
from recovery.decide.latch import taken_back
from recovery.decide.situation import Situation
from recovery.model import Slot
from recovery.quick import quick


@quick
@dataclass(frozen=True, slots=True)
class Assessment:
    """What a cycle goes by, beside its situation. What was done so far is on the record, as ``progress``.

    ``found``: all faults that the node has, in the order of ``diagnose``. ``taken_back``: nothing that
    calls for treatment is left, by what its source says of each fault. ``slot``: the slot of the budget that
    the record holds. ``ahead``: the nodes before it in the queue that wait for a slot.
    """

    found: tuple[Diagnosis, ...] = ()
    taken_back: bool = False
    slot: Slot | None = None
    ahead: tuple[str, ...] = ()


def assess(s: Situation) -> Assessment:
    """The assessment of ``s``: one a cycle, and one more right before a destructive call."""
    found = diagnose(s)
    r = s.record
    if r is None:
        return Assessment(found)
    gone = taken_back(s, found, r)
    if s.gate is None:
        return Assessment(found, gone)
    return Assessment(found, gone, s.gate.slot_of(r.node, r.uid), tuple(ahead_of(s.gate, r.uid)))
