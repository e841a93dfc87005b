"""A record's history: the last lines of what happened, for people. PURE."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from recovery.model import Outcome, Record

HISTORY = 20


def note(record: Record, at: datetime, event: str, sentence: str) -> Record:
    """``record`` with one more line of history, which also becomes its sentence."""
    line = Outcome(at, record.attempt, event, sentence[:1024])
    return replace(record, sentence=line.sentence, history=(*record.history, line)[-HISTORY:])
