"""What a situation means: worked out once a cycle, and handed on to whoever asks. PURE."""

from __future__ import annotations

from dataclasses import dataclass

from recovery.decide.budget import ahead_of
from recovery.decide.diagnosis import Diagnosis, diagnose, taken_back
from recovery.decide.situation import Situation
from recovery.model import Slot


@dataclass(frozen=True, slots=True)
class Assessment:
    """What a cycle goes by, beside its situation. (What was done so far is the record's ``progress``.)

    ``found``: all faults there are, best rule first. ``taken_back``: the record's faults were taken back by
    their own source. ``slot``: the place in the budget that the record holds. ``ahead``: nodes that came
    before it and wait for one.
    """

    found: tuple[Diagnosis, ...] = ()
    taken_back: bool = False
    slot: Slot | None = None
    ahead: tuple[str, ...] = ()


def assess(s: Situation) -> Assessment:
    """The one assessment of a cycle."""
    found = diagnose(s)
    r = s.record
    if r is None:
        return Assessment(found)
    gone = taken_back(s, found, r.faults)
    if s.gate is None:
        return Assessment(found, gone)
    return Assessment(found, gone, s.gate.slot_of(r.node, r.uid), tuple(ahead_of(s.gate, r.uid)))
