"""What would be on a node's record if recovery were on, and what would that wait for? PURE.

With ENABLE_RECOVERY=false there is no record. So that people read the same answer as later, one is imagined,
and the same questions are asked of it.
"""

from __future__ import annotations

from recovery.decide import brakes
from recovery.decide.assessment import Assessment
from recovery.decide.chosen_ladder import deciding, with_ladder_of
from recovery.decide.diagnosis import Diagnosis
from recovery.decide.idle import new_record
from recovery.decide.queue import urgent
from recovery.decide.situation import Situation
from recovery.decide.witness import unconfirmed
from recovery.model import Phase, Record
from recovery.quick import replace


def imagined(s: Situation, a: Assessment, d: Diagnosis | None = None) -> Record | None:
    """The record that would wait for a slot of the budget now, for ``d``, or for what would decide. None
    where recovery is on, or where no fault would be treated now."""
    under_way = s.record is not None and s.record.phase.open
    if s.on or under_way or s.node is None or s.machine is None or not a.found:
        return None
    d = d or deciding(s, a.found)
    if not d.treat or s.now < d.due:
        return None
    record, _ = with_ladder_of(s, a, new_record(replace(s, record=None), a.found), d)
    return replace(record, phase=Phase.WAITING)


def leading(s: Situation, a: Assessment) -> Diagnosis:
    """The diagnosis that would decide, or that of an urgent rule where this one would wait for a window or
    for what blocks it. There is one at least."""
    first = deciding(s, a.found)
    record = imagined(s, a)
    if record is None or brakes.first_reason(brakes.NOT_NOW, replace(s, record=record)) is None:
        return first
    return urgent(s, a) or first


def waits_for(s: Situation, a: Assessment, d: Diagnosis) -> str | None:
    """What the recovery would wait for: a window, what blocks it, a second witness. None where nothing.

    Budget, brake, cooldown and the cloud are not asked: what would hold it there depends on other recoveries,
    which did not happen either.
    """
    record = imagined(s, a, d)
    if record is None:
        return None
    there = replace(s, record=record)
    found = brakes.first_reason(brakes.NOT_NOW, there)
    return found[1] if found else unconfirmed(there, record)
