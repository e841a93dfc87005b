"""Item 24 without its mend: each node that waits asks the cloud every two seconds."""

from __future__ import annotations

from collections.abc import Callable

import recovery.agent.paced

STORY = (
    "tests/stories/test_pace_of_reads.py"
    "::test_while_nothing_changes_after_a_call_the_cloud_is_asked_every_ten_seconds"
)


def take_out(put: Callable[[object, str, object], None]) -> None:
    def never(self: object, question: str, now: float) -> bool:
        return False

    put(recovery.agent.paced.Paced, "good", never)
