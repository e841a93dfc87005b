"""Item 05 without its mend: pause and exclusion are read before the fleet is counted, and not again."""

from __future__ import annotations

from collections.abc import Callable

import recovery.agent.execute
import recovery.agent.observe
import recovery.agent.submit
from recovery.decide.decision import Decision
from recovery.decide.situation import Situation

STORY = "tests/stories/test_last_reads.py::test_what_is_said_while_the_fleet_is_counted_stops_the_call"
PLOTS = ("held_in_the_last_moment",)


def take_out(put: Callable[[object, str, object], None]) -> None:
    submission = recovery.agent.submit.Submission
    put(submission, "last_look", lambda self, fresh: (fresh, self._w.clock.monotonic()))
    put(submission, "held_since", lambda self, fresh: "")

    def never(self: recovery.agent.execute.Executor, s: Situation, d: Decision) -> bool:
        return False

    put(recovery.agent.execute.Executor, "read_long_ago", never)
    put(recovery.agent.observe.Observer, "look_takes", lambda self, node_name: 0.0)
