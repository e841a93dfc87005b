"""Item 17 without its mend: how long an agent is gone only one process knows, and a sweep has no end."""

from __future__ import annotations

from collections.abc import Callable

import recovery.agent.peers
import recovery.decide.tried

STORY = "tests/stories/test_overload.py::test_a_concluder_that_is_restarted_every_two_minutes_still_concludes"


def take_out(put: Callable[[object, str, object], None]) -> None:
    put(recovery.decide.tried, "gone_for", lambda s, r: s.owner_gone_for)
    put(recovery.agent.peers, "LONGEST_SWEEP", 1e9)
