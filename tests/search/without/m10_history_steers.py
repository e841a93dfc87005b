"""Item 10 without its mend: what was done is known for as long as the history has a line of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import recovery.store.record
from recovery.decide.history import HistoryEvent
from recovery.model import Record

STORY = "tests/stories/test_what_was_done.py::test_ten_throttled_tries_do_not_make_a_recovery_forget_that_it_rebooted_the_machine"
PLOTS = ("much_was_tried",)
MADE = (HistoryEvent.SUBMITTED, HistoryEvent.AMBIGUOUS, HistoryEvent.ADOPTED)


def take_out(put: Callable[[object, str, object], None]) -> None:
    as_written = recovery.store.record.as_written

    def by_history(record: Record, was: Mapping[str, Any] | None = None) -> tuple[Record, dict[str, Any]]:
        told = {line.attempt for line in record.history if line.event in MADE}
        made = tuple(x for x in record.progress.submitted if x.number in told)
        return as_written(replace(record, progress=replace(record.progress, submitted=made)), was)

    put(recovery.store.record, "as_written", by_history)
