"""Item 08 without its mend: each run of a plugin that was sick at its detector's start is a new fault."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import recovery.decide.acknowledged
import recovery.signals.compare
from recovery.decide.acknowledged import new_life
from recovery.decide.remembered import by_plugin
from recovery.model import Fault, Problem
from recovery.signals.compare import Comparison
from recovery.signals.page import Pair

STORY = (
    "tests/stories/test_detector_lives.py::"
    "test_a_plugin_that_was_sick_at_the_start_counts_its_runs_and_not_its_faults"
)


def _plugins(uncounted: Iterable[Pair], known: object) -> frozenset[str]:
    return frozenset(type_ for type_, _ in uncounted)


def _count(page: Comparison, pair: Pair, old: Problem | None) -> float | None:
    return page.counted(pair, old)


def _same(old: Fault, new: Fault, stated: bool) -> bool:
    where = (old.key, old.machine, old.boot_id) == (new.key, new.machine, new.boot_id)
    alike = by_plugin(old) or (not new_life(old, new, stated) and old.counter == new.counter)
    return where and alike


PLOTS = ("a_sick_start",)


def take_out(put: Callable[[object, str, object], None]) -> None:
    put(recovery.signals.compare, "plugins", _plugins)
    put(recovery.signals.compare, "count_of_statement", _count)
    put(recovery.decide.acknowledged, "same", _same)
