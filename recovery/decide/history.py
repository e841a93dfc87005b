"""A record's history: its last lines, for people. Nothing is decided by them; that is ``Progress``. PURE."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from enum import StrEnum

from recovery.model import Outcome, Record

HISTORY = 20
LONGEST_LINE = 1024


class HistoryEvent(StrEnum):
    """What a line of history is about."""

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
    FINISHED = "finished"
    EVIDENCE = "evidence"
    JOINED = "joined"
    VALIDATING = "validating"
    RETURNED = "returned"
    REBOOTED = "rebooted"
    REGISTERED = "registered"
    # How it ended: the phases that are not open.
    RECOVERED = "recovered"
    WITHDRAWN = "withdrawn"
    SUPERSEDED = "superseded"
    HANDED_OVER = "handedOver"
    RELEASED = "released"
    LOST = "lost"


def note(record: Record, at: datetime, event: HistoryEvent, sentence: str) -> Record:
    """``record`` with one more line of history, which also becomes its sentence."""
    line = Outcome(at, record.attempt, event, sentence[:LONGEST_LINE])
    return replace(record, sentence=line.sentence, history=(*record.history, line)[-HISTORY:])
