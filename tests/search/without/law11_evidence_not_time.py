"""Law 11 without its mechanism: probation is over after five seconds, whoever watched it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import recovery.decide.own_node
from recovery.model import Phase

STORY = (
    "tests/stories/test_probation.py"
    "::test_an_agent_that_finds_its_node_on_probation_looks_on_for_the_whole_of_it_itself"
)


def take_out(put: Callable[[object, str, object], None]) -> None:
    phases = recovery.decide.own_node.PHASES
    prove = phases[Phase.PROVING]

    def by_time(s: Any, a: Any, r: Any) -> Any:
        early = r.phase_since - r.probation + timedelta(seconds=5)
        return prove(replace(s, watched_for=None), a, replace(r, phase_since=early))

    put(recovery.decide.own_node, "PHASES", {**phases, Phase.PROVING: by_time})
