"""Item 14 without its mend: after any error everything is asked again at once, whatever Retry-After says."""

from __future__ import annotations

from collections.abc import Callable

import recovery.agent.backoff

STORY = "tests/stories/test_overload.py::test_an_overloaded_server_is_asked_no_more_than_one_that_answers"


def take_out(put: Callable[[object, str, object], None]) -> None:
    def failed(self: recovery.agent.backoff.Backoff, retry_after: float | None = None) -> float:
        pause = min(self._first, 4.0)
        self.until = self._clock.monotonic() + pause
        return pause

    put(recovery.agent.backoff.Backoff, "failed", failed)
