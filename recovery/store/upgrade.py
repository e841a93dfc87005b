"""Records without ``progress``, which older programs wrote: it is derived from their history. PURE.

Only for those records: history keeps twenty lines, and older ones are lost.
"""

from __future__ import annotations

from datetime import datetime

from recovery.decide.decision import RETRY_AFTER
from recovery.decide.history import HistoryEvent
from recovery.model import Attempt, Evidence, Outcome, Progress, Record
from recovery.quick import replace


def upgraded(r: Record) -> Record:
    """``r`` with the progress, and the time of recovery, that its history shows."""
    evidence = _last(r, HistoryEvent.EVIDENCE)
    called_off = _last(r, HistoryEvent.CALLED_OFF)
    step_since = _at(_last(r, HistoryEvent.RUNG, HistoryEvent.STARTED, HistoryEvent.RETURNED))
    put_off = r.history and r.history[-1].event == HistoryEvent.NOT_YET
    progress = Progress(
        submitted=_submitted(r),
        tries=_tries(r, r.rung_since or step_since or r.phase_since),
        boots=tuple("unknown" for x in r.history if x.event == HistoryEvent.REBOOTED),
        evidence=Evidence(evidence.attempt, evidence.at, evidence.sentence) if evidence else None,
        called_off=called_off.attempt if called_off else 0,
        step_since=step_since,
        proving_since=_at(_last(r, HistoryEvent.REBOOTED, HistoryEvent.EVIDENCE)),
        retry_at=r.history[-1].at + RETRY_AFTER if put_off else None,
    )
    return replace(r, progress=progress, recovered_at=_at(_last(r, HistoryEvent.RECOVERED)))


def _last(r: Record, *events: HistoryEvent) -> Outcome | None:
    return next((x for x in reversed(r.history) if x.event in events), None)


def _at(line: Outcome | None) -> datetime | None:
    return line.at if line else None


def _tries(r: Record, since: datetime) -> int:
    return sum(1 for x in r.history if x.event == HistoryEvent.NOT_APPLIED and x.at >= since)


def _submitted(r: Record) -> tuple[Attempt, ...]:
    """The attempts since the recovery began. The action is known of the last one only."""
    asked = (HistoryEvent.SUBMITTED, HistoryEvent.AMBIGUOUS, HistoryEvent.ADOPTED)
    lines: list[Outcome] = []
    for line in reversed(r.history):
        if line.event == HistoryEvent.STARTED:
            break
        if line.event in asked:
            lines.insert(0, line)
    numbers = dict.fromkeys(line.attempt for line in lines)
    current = r.intent.attempt if r.intent else 0
    return tuple(Attempt(n, r.intent.action if r.intent and n == current else "") for n in numbers)
