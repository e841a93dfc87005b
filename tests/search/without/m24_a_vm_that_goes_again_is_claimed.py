"""Item 24 without its mend: a VM is claimed as a replacement that its scale set then removes again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import recovery_testkit.provider

import providers.azure.outcome

STORY = (
    "tests/stories/test_scaled_meanwhile.py::test_a_machine_that_the_group_may_remove_again_is_not_claimed"
)
PLOTS = ("one_too_many",)


def take_out(put: Callable[[object, str, object], None]) -> None:
    def never(*_: Any) -> str:
        return ""

    put(providers.azure.outcome, "may_be_removed", never)
    put(recovery_testkit.provider, "may_be_removed", never)
