"""A node is proved by the signals that its record names, whatever the policy says of them by now."""

from __future__ import annotations

import pytest
from recovery_testkit.stage import Stage, npd_page, read_policy

from recovery.model import Phase
from tests.builders.policies import HEAD, policy_file
from tests.stories.scenes import REBOOTS, boot, calls, cast, messages, new_process, phase

OTHER_RULES = {
    "notify": policy_file("{do: notify}"),
    "the rule is gone": f"{HEAD}rules: []\n".encode(),
    "the rule is about others": policy_file(match="type: SomethingElse"),
}


def rebooted(policy: bytes, *, fault_stays: bool) -> Stage:
    """Rebooted; the agent starts again under another policy while node-0 is on probation."""
    s = cast(REBOOTS, agents=1)
    s.fault("node-0")
    s.run(5)
    assert calls(s) == [("reboot", "m-0")]
    boot(s, "node-0")
    s.pages["node-0"].body = npd_page()
    s.run(5)
    assert phase(s) is Phase.PROVING
    s.policy = read_policy(policy)
    new_process(s, "node-0")
    if fault_stays:
        s.fault("node-0")
    return s


@pytest.mark.parametrize("policy", OTHER_RULES.values(), ids=list(OTHER_RULES))
def test_a_fault_that_is_back_on_the_page_proves_nothing_under_a_policy_that_changed(policy: bytes) -> None:
    s = rebooted(policy, fault_stays=True)
    s.run(150, step=1)
    outcomes = [m.dimensions.get("Outcome") for m in s.told.metrics]
    assert "succeeded" not in outcomes
    assert phase(s) is Phase.RECOVERING
    assert calls(s)[-1] == ("replace", "m-0")


@pytest.mark.parametrize("policy", OTHER_RULES.values(), ids=list(OTHER_RULES))
def test_a_node_whose_fault_is_gone_is_proved_under_a_policy_that_changed(policy: bytes) -> None:
    s = rebooted(policy, fault_stays=False)
    s.run(150, step=1)
    assert phase(s) is Phase.RECOVERED


def test_a_fault_that_was_only_reported_from_the_start_is_no_bar_to_the_proof() -> None:
    s = cast(REBOOTS, agents=1)
    s.fault("node-0", "DMA_ERROR", "HANG_ON_COLLECTIVES")
    s.run(5)
    boot(s, "node-0")
    s.pages["node-0"].body = npd_page("HANG_ON_COLLECTIVES")
    s.run(150, step=1)
    assert "proved" in " ".join(messages(s, "Recovered"))
    assert calls(s) == [("reboot", "m-0")]
