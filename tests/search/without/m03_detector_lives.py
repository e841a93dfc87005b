"""Item 03 without its mend: a fault that comes anew after its detector's restart is taken for the old one."""

from __future__ import annotations

from collections.abc import Callable

import recovery.decide.acknowledged
import recovery.decide.stated_since

STORY = (
    "tests/stories/test_detector_lives.py::test_the_same_count_in_a_new_life_of_the_detector_is_a_new_fault"
)
PLOTS = ("a_new_life",)


def take_out(put: Callable[[object, str, object], None]) -> None:
    for module in (recovery.decide.acknowledged, recovery.decide.stated_since):
        put(module, "new_life", lambda old, new, stated: False)
