"""Item 12 without its mend: a fault that shows for one interval is given up at its source's next good run."""

from __future__ import annotations

from collections.abc import Callable

import recovery.agent.cycle
import recovery.decide.latch
from recovery.decide.doubt import cleared
from recovery.decide.situation import Situation
from recovery.model import Fault, Rule

STORY = "tests/stories/test_flashes.py::test_an_xid_of_one_interval_is_recovered_to_its_end"


def _over(fault: Fault, rule: Rule | None, s: Situation) -> bool:
    return cleared(fault, s)


PLOTS = ("a_flash",)


def take_out(put: Callable[[object, str, object], None]) -> None:
    put(recovery.decide.latch, "over", _over)
    put(recovery.agent.cycle, "unsaid", lambda problem, s: False)
