"""Item 09 without its mend: the latest answer sets the clock, so one wrong API server moves every timer."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import recovery.clock

STORY = "tests/stories/test_clocks.py::test_a_fault_tolerated_for_five_minutes_is_tolerated_for_five_minutes"
PLOTS = ("one_wrong_server",)


def take_out(put: Callable[[object, str, object], None]) -> None:
    def latest(self: recovery.clock.ApiTime, held: datetime | None) -> datetime:
        answer = self._answers[-1]
        return held if held is not None and answer <= held <= answer + self.RESOLUTION else answer

    put(recovery.clock.ApiTime, "weighed", latest)
    put(recovery.clock.ApiTime, "doubtful", False)
