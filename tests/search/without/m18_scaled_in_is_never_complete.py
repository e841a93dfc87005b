"""Item 18 without its mend: a group that is scaled in during a replacement is never complete again."""

from __future__ import annotations

from collections.abc import Callable

import recovery_testkit.provider

import providers.aws.outcome

STORY = (
    "tests/stories/test_scaled_meanwhile.py"
    "::test_a_group_that_is_scaled_in_during_a_replacement_is_complete_with_what_it_wants_now"
)
PLOTS = ("scaled_meanwhile",)


def take_out(put: Callable[[object, str, object], None]) -> None:
    def as_recorded(wanted: int, now: int) -> int:
        return wanted

    put(providers.aws.outcome, "enough", as_recorded)
    put(recovery_testkit.provider, "enough", as_recorded)
