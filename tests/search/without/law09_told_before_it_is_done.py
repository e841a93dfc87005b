"""Law 9 without its mechanism: what is about to remove the node is not announced."""

from __future__ import annotations

from collections.abc import Callable

import recovery.agent.submit

STORY = "tests/stories/test_told.py::test_event_and_metrics_are_out_before_the_call"
PLOTS = ("a_call_goes_wrong",)


def take_out(put: Callable[[object, str, object], None]) -> None:
    put(recovery.agent.submit.Submission, "_announce", lambda self: None)
