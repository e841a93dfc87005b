"""Without it, a replacement is called proved by its own detector's page, which nobody could ever read."""

from __future__ import annotations

from collections.abc import Callable

from recovery.decide import replacement

STORY = (
    "tests/stories/test_page_of_the_new_node.py::"
    "test_without_a_page_that_can_be_read_nothing_is_proved_and_the_record_says_so_from_the_first_minute"
)
PLOTS = ("a_blind_replacement",)


def take_out(put: Callable[[object, str, object], None]) -> None:
    put(replacement, "blind_there", lambda s: "")
    put(replacement, "by_node_alone", lambda s: "")
