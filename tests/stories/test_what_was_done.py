"""What a recovery has done is on its record: no number of lines of history makes it forget."""

from __future__ import annotations

from recovery_testkit.stage import Stage

from recovery.errors import Retry
from recovery.model import Phase
from tests.builders.policies import policy_file
from tests.stories.scenes import (
    ALL_MARKS,
    boot,
    calls,
    cast,
    marked,
    messages,
    phase,
    plugin_page,
    the_record,
)

REBOOT_THEN_REPLACE = policy_file(
    "{do: reboot, within: 10m}, {do: replace, within: 30m}", match="type: GpuNvlink"
)


def throttled_after_a_reboot() -> Stage:
    """Rebooted for a missing GPU, which is missing again; then the cloud takes no call for minutes."""
    s = cast(REBOOT_THEN_REPLACE, plugin=True)
    s.pages["node-0"].body = plugin_page(True, 1)
    s.run(5)
    assert calls(s) == [("reboot", "m-0")]
    s.provider.start_error = Retry("Rate exceeded")
    boot(s, "node-0")
    s.pages["node-0"].body = plugin_page(True, 2)
    while len(calls(s)) < 11:
        s.run(5)
    assert calls(s)[1:] == [("replace", "m-0")] * 10
    assert (phase(s), marked(s)) == (Phase.RECOVERING, ALL_MARKS)
    return s


def test_ten_throttled_tries_do_not_make_a_recovery_forget_that_it_rebooted_the_machine() -> None:
    s = throttled_after_a_reboot()
    assert not any(line.event == "submitted" for line in the_record(s).history)  # it is long gone from there
    s.pages["node-0"].body = plugin_page(False, 2)
    s.run(15)
    assert messages(s, "Withdrawn") == []
    assert phase(s) is Phase.PROVING  # a machine that is well again is not replaced, and not trusted unproved
    assert marked(s) == ALL_MARKS
    s.provider.start_error = None
    s.run(150)
    assert phase(s) is Phase.RECOVERED
    assert the_record(s).sentence == "proved: node-0 was healthy for 2 min on its own page"
    assert calls(s)[1:] == [("replace", "m-0")] * 10
    assert not any("before anything destructive" in message for message in messages(s, "Uncordoned"))


def test_a_fault_that_comes_back_while_that_is_proved_goes_on_with_the_step_that_was_due() -> None:
    s = throttled_after_a_reboot()
    s.pages["node-0"].body = plugin_page(False, 2)
    s.run(15)
    s.provider.start_error = None
    s.pages["node-0"].body = plugin_page(True, 3)
    s.run(5)
    assert calls(s)[11:] == [("replace", "m-0")]
