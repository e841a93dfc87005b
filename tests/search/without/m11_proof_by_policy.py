"""Item 11 without its mend: a policy that only notifies now makes a fault on the page a proof of health."""

from __future__ import annotations

from collections.abc import Callable

import recovery.decide.diagnosis

STORY = (
    "tests/stories/test_proof_by_the_record.py"
    "::test_a_fault_that_is_back_on_the_page_proves_nothing_under_a_policy_that_changed"
)
PLOTS = ("only_told_now",)


def take_out(put: Callable[[object, str, object], None]) -> None:
    put(recovery.decide.diagnosis, "was_treated", lambda d: d.treat)
