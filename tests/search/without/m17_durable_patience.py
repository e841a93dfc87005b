"""Item 17 without its mend: how long an agent is gone is known to one process only, and a sweep has no end."""

from __future__ import annotations

from collections.abc import Callable

import recovery.agent.peers
import recovery.store.lease

STORY = "tests/stories/test_overload.py::test_a_concluder_that_is_restarted_every_two_minutes_still_concludes"


def take_out(put: Callable[[object, str, object], None]) -> None:
    def forgets(self: recovery.store.lease.Leases, node: str, *_: object) -> None:
        self._gone.pop(node, None)

    put(recovery.store.lease.Leases, "learn_gone", forgets)
    put(recovery.agent.peers, "LONGEST_SWEEP", 1e9)
