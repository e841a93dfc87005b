"""Item 02 without its mend: a node of which nothing is known counts as healthy for the brake."""

from __future__ import annotations

from collections.abc import Callable

import recovery.decide.census

STORY = (
    "tests/stories/test_blind_and_loud.py::"
    "test_nodes_of_which_nothing_is_known_for_ten_minutes_count_for_the_brake"
)
PLOTS = ("blind_nodes",)


def take_out(put: Callable[[object, str, object], None]) -> None:
    put(recovery.decide.census, "blind", lambda record: False)
