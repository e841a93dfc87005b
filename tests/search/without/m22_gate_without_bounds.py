"""Item 22 without its mend: the gate keeps all starts and the whole queue, for every agent to read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from recovery.decide import budget
from recovery.model import Gate
from recovery.store import gate as gates

STORY = "tests/stories/test_gate_keeps.py::test_those_who_do_not_fit_into_the_queue_wait_on_their_records_and_say_so"


def take_out(put: Callable[[object, str, object], None]) -> None:
    for module in (budget, gates):
        put(module, "bounded", _as_it_is)
    put(budget, "queue_is_full", lambda gate: False)
    put(gates, "MOST_BYTES", 1 << 30)


def _as_it_is(gate: Gate, oldest: datetime | None = None) -> Gate:
    return gate
