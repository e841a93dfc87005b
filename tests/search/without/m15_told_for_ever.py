"""Item 15 without its mend: more faults than a record remembers are told anew in every cycle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import recovery.decide.endings
import recovery.decide.idle
from recovery.model import Fault, Record

STORY = (
    "tests/stories/test_blind_and_loud.py::"
    "test_any_number_of_faults_that_are_only_told_is_told_and_then_quiet"
)


def _remembered(r: Record, faults: tuple[Fault, ...]) -> Record:
    keys = {f.key for f in faults}
    return replace(r, acknowledged=(*(f for f in r.acknowledged if f.key not in keys), *faults))


PLOTS = ("told_only",)


def take_out(put: Callable[[object, str, object], None]) -> None:
    put(recovery.decide.endings, "remembered", _remembered)
    put(recovery.decide.idle, "MOST_FAULTS", 10_000)
    put(recovery.decide.idle, "worth_a_record", lambda record, treat: True)
