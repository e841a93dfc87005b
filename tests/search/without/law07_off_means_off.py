"""Law 7 without its mechanism: what was begun goes on after recovery was switched off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import recovery.agent.observe
import recovery.agent.world
from recovery.decide.situation import Situation

STORY = "tests/stories/test_switches.py::test_off_in_the_middle_writes_nothing_but_events_and_the_report"
PLOTS = ("off_in_the_middle",)


def take_out(put: Callable[[object, str, object], None]) -> None:
    observer = recovery.agent.observe.Observer
    first_reads = observer._first_reads

    def still_on(self: Any, *args: Any, **more: Any) -> Situation:
        world = self.world
        if world.on:
            return first_reads(self, *args, **more)
        self.world = replace(world, on=True)
        try:
            return first_reads(self, *args, **more)
        finally:
            self.world = world

    put(observer, "_first_reads", still_on)
