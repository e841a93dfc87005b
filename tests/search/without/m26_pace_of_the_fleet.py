"""The pace of a large fleet without its mend: each of 5,000 agents reads the gate once a minute."""

from __future__ import annotations

from collections.abc import Callable

import recovery.agent.pace

STORY = (
    "tests/stories/test_api_budget.py"
    "::test_a_healthy_fleet_of_five_thousand_asks_less_than_twenty_times_a_second"
)


def take_out(put: Callable[[object, str, object], None]) -> None:
    put(recovery.agent.pace, "GATE_READS", 1e9)
    put(recovery.agent.pace, "LEASE_READS", 1e9)
