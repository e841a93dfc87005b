"""Item 04 without its mend: after a restore of etcd a machine is rebooted that has booted since."""

from __future__ import annotations

from collections.abc import Callable

import recovery.agent.observe

STORY = "tests/stories/test_restored.py::test_a_restored_drain_reboots_no_machine_that_has_booted_since"
PLOTS = ("booted_and_restored", "restored_for_long")


def take_out(put: Callable[[object, str, object], None]) -> None:
    put(recovery.agent.observe, "by_the_kernel", lambda s, seen_to_agree: s)
