"""Item 06 without its mend: a node goes back to service while its replacement may still come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import recovery.console.wanted_back
import recovery.decide.idle
import recovery.decide.standing

STORY = (
    "tests/stories/test_taken_back.py"
    "::test_a_release_takes_the_mark_back_and_the_group_ends_no_node_that_is_back_in_service"
)
PLOTS = ("a_group_without_room",)


def take_out(put: Callable[[object, str, object], None]) -> None:
    def nothing(r: Any, node: Any) -> tuple[()]:
        return ()

    for module in (recovery.decide.standing, recovery.decide.idle, recovery.console.wanted_back):
        put(module, "standing", nothing)
