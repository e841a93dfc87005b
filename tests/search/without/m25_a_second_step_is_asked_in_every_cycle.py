"""Item 25 without its mend: what is asked of a cloud a second time is asked again in every cycle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import providers.azure.outcome
import providers.azure.vmss
import recovery.agent.memory

STORY = "tests/stories/test_second_steps.py::test_a_second_step_that_shows_late_is_asked_for_ever_more_seldom"


def take_out(put: Callable[[object, str, object], None]) -> None:
    def at_once(self: Any, token: str, now: float) -> float:
        return 0.0

    def never(state: str) -> bool:
        return False

    def nothing(*_: Any) -> None:
        return None

    put(recovery.agent.memory.Asked, "left", at_once)
    put(providers.azure.outcome, "stands_still", never)
    put(providers.azure.vmss.AzureProvider, "_not_at_it", nothing)
