"""What happened to a recovery, in the last lines of its record? They are for people. PURE.

No step of a recovery goes by them: what steps need of the past is in ``Progress``. Only what is written here
goes by what was written before, so that nothing is said twice.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from recovery.model import Outcome, Phase, Record
from recovery.quick import replace

HISTORY = 20
LONGEST_LINE = 1024


class HistoryEvent(StrEnum):
    """What a line of history is about. The values are on records, so they are API."""

    SUSPECT = "suspect"
    FAULT = "fault"
    CONFIRMED = "confirmed"
    STARTED = "started"
    RUNG = "rung"
    INTENT = "intent"
    SUBMITTED = "submitted"
    ADOPTED = "adopted"
    AMBIGUOUS = "ambiguous"
    NOT_APPLIED = "notApplied"
    NOT_YET = "notYet"
    REFUSED = "refused"
    ABANDONED = "abandoned"
    CALLED_OFF = "calledOff"
    TAKEN_BACK = "takenBack"
    RELEASE_REFUSED = "releaseRefused"
    FINISHED = "finished"
    EVIDENCE = "evidence"
    JOINED = "joined"
    VALIDATING = "validating"
    RETURNED = "returned"
    REBOOTED = "rebooted"
    REGISTERED = "registered"
    CORRELATED = "correlated"
    WINDOW = "window"
    BLOCKED = "blocked"
    UNANSWERED = "unanswered"
    QUEUED = "queued"
    # How it ended: the phases that are not open.
    RECOVERED = "recovered"
    WITHDRAWN = "withdrawn"
    SUPERSEDED = "superseded"
    HANDED_OVER = "handedOver"
    RELEASED = "released"
    LOST = "lost"


def confirmed_at(record: Record) -> datetime | None:
    """When the fault was confirmed of a recovery that is under way; None where none has been started.

    Of a long recovery the line may be gone: then when it was started.
    """
    if record.phase not in (Phase.RECOVERING, Phase.PROVING):
        return None
    lines = [line.at for line in record.history if line.event == HistoryEvent.CONFIRMED]
    started = record.starts[-1].at if record.starts else record.phase_since
    return min(lines[-1], started) if lines else started


GOES_ON = (HistoryEvent.SUSPECT, HistoryEvent.QUEUED, HistoryEvent.STARTED, HistoryEvent.RUNG)
"""After one of these lines nothing of before holds a recovery, as far as its record says."""


def told(record: Record, event: HistoryEvent) -> bool:
    """Whether the record says that ``event`` holds it, and nothing since that it goes on."""
    for line in reversed(record.history):
        if line.event in (event, *GOES_ON):
            return line.event == event
    return False


def note(record: Record, at: datetime, event: HistoryEvent, sentence: str) -> Record:
    """``record`` with one more line of history. The line also becomes the record's ``sentence``."""
    line = Outcome(at, record.attempt, event, sentence[:LONGEST_LINE])
    return replace(record, sentence=line.sentence, history=(*record.history, line)[-HISTORY:])
