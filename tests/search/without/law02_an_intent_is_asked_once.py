"""Law 2 without its mechanism: a call whose answer was lost is made again at once, by the same intent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import recovery.agent.submit
from recovery.model import IntentState

STORY = (
    "tests/stories/test_submission.py"
    "::test_an_answer_lost_after_the_call_was_accepted_is_observed_and_never_asked_again"
)
PLOTS = ("a_call_goes_wrong",)


def take_out(put: Callable[[object, str, object], None]) -> None:
    submission = recovery.agent.submit.Submission
    settle = submission._settle

    def again(self: Any, state: IntentState, *more: Any) -> Any:
        if state is IntentState.AMBIGUOUS and not getattr(self, "asked_again", False):
            self.asked_again = True
            return self._call()
        return settle(self, state, *more)

    put(submission, "_settle", again)
