"""Item 01 without its mend: a drain that was paused is over with the pause, and no eviction was asked for."""

from __future__ import annotations

from collections.abc import Callable

import recovery.decide.own_node
import recovery.decide.tried

STORY = (
    "tests/stories/test_held_time.py"
    "::test_a_drain_that_was_paused_before_its_first_eviction_asks_for_them_all_after_the_pause"
)
PLOTS = ("held_for_long",)


def take_out(put: Callable[[object, str, object], None]) -> None:
    put(recovery.decide.tried, "accounted", lambda s, r, d: d)
    put(recovery.decide.own_node, "accounted", lambda s, r, d: d)
    put(recovery.decide.tried, "used", lambda s, r, since: s.now - since)
