"""A machine registers under another name while its recovery under the first one goes on."""

from __future__ import annotations

import pytest
from recovery_testkit.stage import Stage

from recovery.model import Phase
from tests.stories.scenery import pass_time, slots
from tests.stories.scenes import calls, phase
from tests.stories.test_conditions import EKS, policy, renewed, writes
from tests.stories.test_one_controller import fleet

OPEN = b"cooldown: 0s, budget: 10, budgetPer: {}"


def renamed(remedy: str) -> Stage:
    """A call for node-0 was accepted; then m-0 is node-0b, in the same boot and with the same fault."""
    s, _ = fleet(policy(remedy=remedy).replace(b"cooldown: 0s", OPEN), 8)
    writes(s, EKS)
    pass_time(s, 30, until=lambda: bool(calls(s)), step=0.5)
    s.delete_node("node-0")
    s.run(10)
    s.register("node-0b", "m-0")
    s.run(5)
    renewed(s, 4, EKS, node="node-0b")
    return s


@pytest.mark.parametrize("step", ["reboot", "replace"])
def test_what_was_asked_for_under_the_first_name_is_not_asked_for_under_the_second(step: str) -> None:
    s = renamed(f"{{do: {step}}}")
    assert (calls(s), slots(s)) == ([(step, "m-0")], ["node-0"])
    assert phase(s, "node-0b") is Phase.WAITING


def test_it_is_treated_once_the_first_recovery_has_ended() -> None:
    s = renamed("{do: reboot}")
    renewed(s, 8, EKS, node="node-0b")
    assert (phase(s), slots(s)) == (Phase.HANDED_OVER, ["node-0b"])
    assert calls(s) == [("reboot", "m-0")] * 2
