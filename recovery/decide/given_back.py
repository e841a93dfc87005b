"""A person wants the node back: what was asked of its provider is taken back first, or the release refused.

``node-recovery release`` has no rights in any cloud. Where a request may still be carried out it only writes
down that the node is wanted back; an agent, which has those rights, answers. PURE.
"""

from __future__ import annotations

from recovery.decide.decision import Decision, EventReason, Report, WriteRecord, act
from recovery.decide.endings import end
from recovery.decide.history import HistoryEvent, note
from recovery.decide.lifecycle import TABLE, Event
from recovery.decide.situation import Situation
from recovery.decide.standing import before_service
from recovery.decide.stated_since import as_counted_now
from recovery.model import Phase, Record
from recovery.quick import replace


def may_be_released(r: Record) -> bool:
    """Whether ``r`` can be released at all. A call in flight is waited for until its step's deadline."""
    return (r.phase, Event.RELEASED) in TABLE and not (r.phase is Phase.RECOVERING and r.in_flight)


def wanted_back(s: Situation, r: Record) -> Decision | None:
    """The answer to the release request on ``r``; None where there is none."""
    if r.release is None:
        return None
    if not may_be_released(r):
        return refuse(s, r, f"{r.node} is {r.phase.value} by now: {r.sentence}")
    if s.take_back_refused:
        return refuse(s, r, s.take_back_refused)
    if taking := before_service(s, r):
        return taking
    return end(s, as_counted_now(s, r), Event.RELEASED, str(r.release), Report(EventReason.RELEASED))


def refuse(s: Situation, r: Record, why: str) -> Decision:
    """Refuse the release. The record's own sentence stays: it says what is wrong with the node."""
    sentence = f"the release is refused: {why}"
    noted = note(r, s.now, HistoryEvent.RELEASE_REFUSED, sentence)
    progress = replace(r.progress, taking_back=None)
    kept = replace(noted, sentence=r.sentence, release=None, progress=progress)
    return act(WriteRecord(kept), sentence, Report(EventReason.RELEASE_REFUSED, warning=True))
