"""Item 21 without its mend: a deleted record frees its slot at once, and more nodes are out than may be."""

from __future__ import annotations

from collections.abc import Callable

from recovery.decide import gone
from recovery.decide.situation import Situation
from recovery.model import Record, Slot

STORY = (
    "tests/stories/test_deleted_records.py::"
    "test_a_record_that_is_deleted_while_its_replacement_is_under_way_frees_no_slot"
)
PLOTS = ("a_record_is_deleted",)


def take_out(put: Callable[[object, str, object], None]) -> None:
    put(gone, "still_out", _at_once)


def _at_once(s: Situation, slot: Slot, r: Record) -> str | None:
    return None
