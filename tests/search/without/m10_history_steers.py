"""Item 10 without its mend: what was done is known for as long as the history has a line of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import recovery.store.record
from recovery.decide.history import HistoryEvent
from recovery.model import Record

STORY = "tests/stories/test_what_was_done.py::test_ten_throttled_tries_do_not_make_a_recovery_forget_that_it_rebooted_the_machine"
PLOTS = ("much_was_tried",)
MADE = (HistoryEvent.SUBMITTED, HistoryEvent.AMBIGUOUS, HistoryEvent.ADOPTED)


def take_out(put: Callable[[object, str, object], None]) -> None:
    bounded = recovery.store.record.bounded

    def by_history(record: Record) -> Record:
        told = {line.attempt for line in record.history if line.event in MADE}
        made = tuple(x for x in record.progress.submitted if x.number in told)
        return bounded(replace(record, progress=replace(record.progress, submitted=made)))

    put(recovery.store.record, "bounded", by_history)
