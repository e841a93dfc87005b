"""Item 23 without its mend: each PUT of gate and records wipes what others put on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from recovery.store import gate as gates
from recovery.store import record_codec

STORY = (
    "tests/stories/test_foreign_on_ours.py::"
    "test_what_somebody_puts_on_our_object_in_the_middle_of_a_recovery_stays"
)
PLOTS = ("others_write_too",)


def take_out(put: Callable[[object, str, object], None]) -> None:
    for module in (gates, record_codec):
        put(module, "carried", _nothing)


def _nothing(was: Mapping[str, Any] | None) -> dict[str, Any]:
    return {}
