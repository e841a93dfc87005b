"""Windows and blockers without their mechanism: a record that waits is not asked whether it may start now."""

from __future__ import annotations

from collections.abc import Callable

from recovery.decide import brakes, queue

STORY = (
    "tests/stories/test_windows_and_blockers.py::test_a_fault_at_night_waits_for_the_morning_and_then_starts"
)


def take_out(put: Callable[[object, str, object], None]) -> None:
    for name in ("UNASKED", "CHEAP", "STARTING", "GOING_ON"):
        put(brakes, name, tuple(x for x in getattr(brakes, name) if x[0] not in ("window", "blocked")))
    put(queue, "QUEUE", tuple(x for x in queue.QUEUE if x is not queue._not_now))
