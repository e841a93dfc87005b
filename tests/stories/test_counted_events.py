"""A rule counts how often something happens (``times``): what is new once it was dealt with?"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from recovery_testkit.stage import Stage

from recovery.errors import Refused, Unreadable
from recovery.model import Phase
from tests.builders.exporters import dcgm_page
from tests.builders.policies import HEAD
from tests.stories.scenes import (
    boot,
    calls,
    cast,
    line_of,
    new_process,
    pause,
    phase,
    plugin_page,
    release_by_command,
    remove_pod,
    resume,
    stubborn_pod,
    swap_record,
    the_record,
    value,
)
from tests.stories.test_clocks import SetBack
from tests.stories.test_exporters import exporter

PAGE = (Path(__file__).parents[1] / "captures" / "kernel-and-xid" / "00-healthy.prom").read_bytes()
REBOOTED = [("reboot", "m-0")]


def policy(match: str, sources: str = "[npd]") -> bytes:
    rule = f"  - name: counted\n    match: {match}\n    remedy: [{{do: reboot}}]\n    probation: 2m\n"
    return f"{HEAD}sources: {sources}\nlimits: {{cooldown: 0s}}\nrules:\n{rule}".encode()


OOMS = policy("{reason: OOMKilling, times: {count: 3, within: 10m}}")
XIDS = policy("{source: dcgm, reason: GpuXid31, times: {count: 3, within: 10m}}", "[npd, dcgm]")


def ooms(count: int) -> bytes:
    name = b'problem_counter{reason="OOMKilling"} '
    return PAGE.replace(name + b"0", name + str(count).encode())


def all_well(policy: bytes, beside: bytes = b"") -> Stage:
    """An agent that has looked at its page, on which nothing is wrong."""
    s = cast(policy, agents=0)
    s.pages["node-0"].body = ooms(0) + beside
    s.agent("node-0")
    s.run(5)
    return s


def killed(s: Stage, start: int, times: int = 3) -> None:
    for count in range(start + 1, start + 1 + times):
        s.pages["node-0"].body = ooms(count)
        s.run(20)


def released() -> Stage:
    """Three were handed over, and a person has released the node."""
    s = all_well(OOMS)
    s.provider.preflight_error = Refused("not allowed")
    killed(s, 0)
    s.run(20)
    assert phase(s) is Phase.HANDED_OVER
    release_by_command(s)
    s.run(20)
    assert (phase(s), calls(s)) == (Phase.RELEASED, [])
    return s


def test_what_happens_as_often_hours_after_a_release_is_a_new_fault() -> None:
    s = released()
    s.run(2 * 3600, step=10)
    killed(s, 3)
    assert calls(s) == REBOOTED


def test_what_was_released_is_not_counted_once_more_with_what_happens_next() -> None:
    s = released()
    killed(s, 3, times=2)
    s.run(60)
    assert (phase(s), calls(s)) == (Phase.RELEASED, [])
    killed(s, 5, times=1)
    assert calls(s) == REBOOTED


def test_the_same_count_in_another_life_of_agent_and_detector_is_a_new_fault() -> None:
    s = released()
    for actor in [a for a in s.actors.values() if a.node == "node-0"]:
        s.kill(actor)
    s.pages["node-0"].body = ooms(0)
    new_process(s, "node-0")
    s.run(60)
    killed(s, 0)
    assert calls(s) == REBOOTED


@pytest.mark.parametrize("restarted", [True, False], ids=["the agent restarts", "the agent goes on"])
def test_the_same_number_of_new_xids_after_a_release_is_a_new_fault(restarted: bool) -> None:
    s = cast(XIDS, agents=0)
    page = exporter(s, dcgm_page())
    s.agent("node-0")
    s.run(60, step=5)
    s.provider.preflight_error = Refused("not allowed")

    def three() -> None:
        for _ in range(3):
            for xid in (31, 13):
                page.body = dcgm_page(xids={5: xid})
                s.run(30, step=5)

    three()
    assert phase(s) is Phase.HANDED_OVER
    release_by_command(s)
    s.run(60, step=5)
    if restarted:
        new_process(s, "node-0")
    s.run(20 * 60, step=15)
    assert (phase(s), calls(s)) == (Phase.RELEASED, [])
    three()
    assert calls(s) == REBOOTED


def test_a_line_that_a_restarted_detector_reads_again_did_not_happen_again() -> None:
    """node-problem-detector's ``lookback``: at its start it reads the lines of the last minutes once more."""
    s = all_well(OOMS)
    killed(s, 0, times=1)
    for _ in range(3):
        s.pages["node-0"].body = ooms(0)
        s.run(1)
        s.pages["node-0"].body = ooms(1)
        s.run(30)
    assert (s.record("node-0"), calls(s)) == (None, [])
    killed(s, 1, times=2)
    assert calls(s) == REBOOTED


@pytest.mark.parametrize("first", ["the agent", "the detector"])
def test_what_happens_after_all_clocks_were_set_back_counts(first: str) -> None:
    """The detector was just started, by clocks that were hours ahead. What it read again is long over."""
    s = Stage(OOMS)
    clocks = SetBack(s, timedelta(hours=3))
    s.nodes(4)
    page = s.pages["node-0"]
    page.body, page.error = ooms(2), Unreadable("connection refused") if first == "the agent" else None
    s.agent("node-0")
    s.run(3)
    page.body, page.error = ooms(0), None
    s.run(60)
    clocks.set_right()
    s.run(60)
    killed(s, 0)
    assert calls(s) == REBOOTED


def test_what_a_detector_reads_again_as_it_starts_after_its_agent_did_not_happen_again() -> None:
    """A rollout starts both. The agent reads the first page before the detector has read the log."""
    s = cast(OOMS, agents=0)
    s.pages["node-0"].error = OSError("connection refused")
    s.agent("node-0")
    s.run(3)
    s.pages["node-0"].error = None
    s.pages["node-0"].body = ooms(0)
    s.run(0.5)
    s.pages["node-0"].body = ooms(5)
    s.run(60)
    assert (s.record("node-0"), calls(s)) == (None, [])
    killed(s, 5)
    assert calls(s) == REBOOTED


# ---------------------------------------------------------------- two rules for one reason


ESCALATES = f"""{HEAD}sources: [npd]
limits: {{cooldown: 0s}}
rules:
  - {{name: often, match: {{reason: OOMKilling, times: {{count: 6, within: 1h}}}}, remedy: [{{do: reboot}}]}}
  - {{name: some, match: {{reason: OOMKilling, times: {{count: 3, within: 10m}}}}, remedy: [{{do: notify}}]}}
""".encode()


def escalating() -> Stage:
    """Three were told of."""
    s = all_well(ESCALATES)
    killed(s, 0)
    assert (phase(s), the_record(s).sentence) == (Phase.HANDED_OVER, "OOMKilling: rule some: notify")
    return s


def test_what_was_only_told_counts_on_for_a_rule_that_does_more() -> None:
    s = escalating()
    killed(s, 3, times=2)
    assert calls(s) == []
    killed(s, 5, times=1)
    assert (the_record(s).rule, calls(s)) == ("often", REBOOTED)


@pytest.mark.parametrize("told_again", [False, True], ids=["told once", "told again"])
def test_it_counts_on_however_often_it_was_told(told_again: bool) -> None:
    s = all_well(ESCALATES.replace(b"count: 6", b"count: 8"))
    killed(s, 0, times=6 if told_again else 3)
    assert (phase(s), calls(s)) == (Phase.HANDED_OVER, [])
    killed(s, 6 if told_again else 3, times=2 if told_again else 5)
    assert calls(s) == REBOOTED


def test_what_a_person_has_released_counts_for_no_rule() -> None:
    s = escalating()
    release_by_command(s)
    s.run(20)
    killed(s, 3, times=5)
    assert (phase(s), calls(s)) == (Phase.HANDED_OVER, [])  # told of the first three of them
    killed(s, 8, times=1)
    assert calls(s) == REBOOTED


def test_what_waits_for_its_reboot_is_not_only_told_of_because_fewer_are_counted_by_then() -> None:
    s = all_well(ESCALATES)
    pause(s)
    killed(s, 0, times=6)
    s.run(3700, step=5)
    killed(s, 6, times=3)  # as often as the rule says that only tells, and not as the other one
    assert (phase(s), the_record(s).rule) == (Phase.WAITING, "often")
    resume(s)
    s.run(30)
    assert calls(s) == REBOOTED


def test_what_waits_by_a_later_rule_goes_by_the_first_one_that_it_meets() -> None:
    s = all_well(ESCALATES.replace(b"notify", b"cordon"))
    pause(s)
    killed(s, 0)
    assert (phase(s), the_record(s).rule) == (Phase.WAITING, "some")
    killed(s, 3)
    assert (phase(s), the_record(s).rule) == (Phase.WAITING, "often")
    s.run(3700, step=5)
    killed(s, 6)
    resume(s)
    s.run(30)
    assert calls(s) == REBOOTED


TWO_STEPS = OOMS.replace(b"[{do: reboot}]", b"[{do: reboot}, {do: replace}]")


def boots(s: Stage) -> None:
    """node-0 boots, and its detector and agent with it."""
    for actor in [a for a in s.actors.values() if a.node == "node-0"]:
        s.kill(actor)
    boot(s, "node-0")
    s.pages["node-0"].body = ooms(0)
    new_process(s, "node-0")
    s.run(20)
    assert phase(s) is Phase.PROVING


@pytest.mark.parametrize("again", [1, 2, 3])
def test_what_is_counted_is_back_after_the_boot_once_it_happened_as_often_again(again: int) -> None:
    s = all_well(TWO_STEPS)
    killed(s, 0)
    boots(s)
    killed(s, 0, times=again)
    s.run(180)
    if again == 3:
        assert calls(s) == [*REBOOTED, ("replace", "m-0")]
    else:
        assert (phase(s), calls(s)) == (Phase.RECOVERED, REBOOTED)


def test_what_meets_only_the_rule_that_tells_is_not_back_after_the_boot() -> None:
    s = all_well(ESCALATES.replace(b"[{do: reboot}]", b"[{do: reboot}, {do: replace}]"))
    killed(s, 0, times=6)
    boots(s)
    killed(s, 0)
    s.run(180)
    assert ", which shows OOMKilling (rule some: notify)" in line_of(the_record(s), "recovered").sentence
    assert calls(s) == REBOOTED


def test_a_new_machine_is_not_sick_by_what_happened_to_it_once() -> None:
    s = all_well(OOMS.replace(b"[{do: reboot}]", b"[{do: replace}]"))
    killed(s, 0)
    assert calls(s) == [("replace", "m-0")]
    s.replace_machine("node-0", "m-0", "node-0", "m-9", "workers")
    s.pages["node-0"].body = ooms(0)
    new_process(s, "node-0")
    s.run(20)
    killed(s, 0, times=1)
    s.run(300)
    assert phase(s) is Phase.RECOVERED


@pytest.mark.parametrize("after", [0, 1], ids=["at once", "tolerated for a minute"])
@pytest.mark.parametrize("restarted", [True, False], ids=["restarted", "not restarted"])
def test_what_happens_too_often_to_a_new_machine_in_its_probation_is_not_waited_out(
    restarted: bool, after: int
) -> None:
    """Once its window had passed, or its agent was restarted, nobody counted it, and it was proved."""
    s = all_well(OOMS.replace(b"[{do: reboot}]", f"[{{do: replace}}]\n    after: {after}m".encode()))
    killed(s, 0)
    s.run(120 * after)
    assert calls(s) == [("replace", "m-0")]
    s.replace_machine("node-0", "m-0", "node-0", "m-9", "workers")
    s.pages["node-0"].body = ooms(0)
    new_process(s, "node-0")
    s.run(20)
    killed(s, 0)
    if restarted:
        new_process(s, "node-0")  # it counts from the beginning
    s.run(15 * 60, step=5)
    assert calls(s) == [("replace", "m-0"), ("replace", "m-9")]


BESIDE = f"""{HEAD}sources: [npd]
limits: {{cooldown: 0s}}
rules:
  - {{name: nvlink, match: {{type: GpuNvlink}}, remedy: [{{do: drain}}, {{do: replace}}]}}
  - {{name: oom, match: {{reason: OOMKilling, times: {{count: 3, within: 10m}}}}, remedy: [{{do: reboot}}]}}
""".encode()


def left_in_the_queue(policy: bytes) -> Stage:
    """The window of what was counted is over, and then the fault beside it has ended, in a pause."""
    s = all_well(policy, plugin_page(False, 0))
    pause(s)
    beside_the_plugins(s, 4, True)
    s.run(700, step=5)
    assert (phase(s), the_record(s).rule) == (Phase.WAITING, "nvlink")
    s.pages["node-0"].body = ooms(3) + plugin_page(False, 1)
    s.run(30)
    return s


def test_what_was_counted_beside_another_fault_goes_by_its_own_rule_once_its_window_has_passed() -> None:
    s = left_in_the_queue(BESIDE)
    assert (phase(s), the_record(s).rule) == (Phase.WAITING, "oom")
    resume(s)
    s.run(30)
    assert calls(s) == REBOOTED


def test_what_was_counted_beside_another_fault_is_not_lost_when_that_ends_while_it_is_tolerated() -> None:
    """By then it does not happen often any more, so it would get no record of its own."""
    s = left_in_the_queue(BESIDE.replace(b"within: 10m}}, remedy", b"within: 10m}}, after: 30m, remedy"))
    resume(s)
    s.run(16 * 60, step=5)
    assert (phase(s), calls(s)) == (Phase.WAITING, [])
    s.run(3 * 60, step=5)
    assert (the_record(s).rule, calls(s)) == ("oom", REBOOTED)


TOLERATED = OOMS.replace(b"    remedy", b"    after: 30m\n    remedy")


@pytest.mark.parametrize("before", [0, 1, 2], ids=["never before", "once hours before", "twice"])
def test_what_is_counted_is_tolerated_from_when_it_happened_often_enough(before: int) -> None:
    s = all_well(TOLERATED)
    killed(s, 0, times=before)
    s.run(2 * 3600, step=30)
    killed(s, before)
    s.run(28 * 60, step=10)
    assert (phase(s), calls(s)) == (Phase.SUSPECT, [])
    s.run(120, step=5)
    assert calls(s) == REBOOTED


@pytest.mark.parametrize("counted", [3.0, 1e20], ids=["a count", "no moment"])
def test_what_a_record_of_an_earlier_version_is_about_is_tolerated_as_long(counted: float) -> None:
    """It says how often that had happened, and not when it happened last."""
    s = all_well(TOLERATED)
    killed(s, 0)
    r = the_record(s)
    swap_record(s, replace(r, faults=tuple(replace(f, counter=counted) for f in r.faults)))
    new_process(s, "node-0")
    s.run(28 * 60, step=10)
    assert (phase(s), calls(s)) == (Phase.SUSPECT, [])
    s.run(120, step=5)
    assert calls(s) == REBOOTED


def test_an_agent_that_is_off_says_what_would_be_done_as_late_however_often_it_happens_meanwhile() -> None:
    s = cast(TOLERATED, agents=0)
    s.pages["node-0"].body = ooms(0)
    agent = s.agent("node-0", on=False)
    s.run(5)
    killed(s, 0, times=1)
    s.run(2 * 3600, step=30)
    for count in range(2, 33):
        s.pages["node-0"].body = ooms(count)
        s.run(60, step=5)
        assert count < 5 or "tolerated for 30 min by rule counted" in agent.sentences[-1]
    killed(s, 32)
    assert agent.sentences[-1].startswith("would reboot node-0: OOMKilling")


def test_what_is_tolerated_is_not_only_told_of_because_an_agent_began_to_count_anew() -> None:
    s = all_well(ESCALATES.replace(b"within: 1h}},", b"within: 1h}}, after: 30m,"))
    killed(s, 0, times=6)
    assert (phase(s), the_record(s).rule) == (Phase.SUSPECT, "often")
    new_process(s, "node-0")
    s.run(20 * 60, step=5)
    killed(s, 6)  # as often as the rule says that only tells
    s.run(8 * 60, step=5)
    assert (phase(s), the_record(s).rule, calls(s)) == (Phase.SUSPECT, "often", [])
    s.run(60, step=5)
    assert calls(s) == REBOOTED


STORM = f"""{HEAD}sources: [npd]
limits: {{cooldown: 0s}}
rules:
  - {{name: nvlink, match: {{type: GpuNvlink}}, after: 1h, remedy: [{{do: replace}}]}}
  - name: oom
    match: {{reason: OOMKilling, times: {{count: 3, within: 10m}}}}
    after: 20m
    remedy: [{{do: reboot}}]
""".encode()


def test_what_happens_more_often_than_is_remembered_is_tolerated_no_longer_beside_another_fault() -> None:
    """The agent remembers a hundred times, and here these are the last three minutes."""
    s = all_well(STORM, plugin_page(False, 0))
    s.pages["node-0"].body = ooms(0) + plugin_page(True, 1)
    s.run(20)
    for count in range(10, 1000, 10):
        assert (phase(s), the_record(s).rule, calls(s)) == (Phase.SUSPECT, "nvlink", []) or count > 590
        s.pages["node-0"].body = ooms(count) + plugin_page(True, 1)
        s.run(20, step=5)
    assert (the_record(s).rule, calls(s)) == ("oom", REBOOTED)


def test_what_was_tolerated_in_a_persons_hands_is_not_tolerated_once_more() -> None:
    """The person could only be told of the other fault; this one calls for its own remedy once it is due."""
    s = all_well(STORM.replace(b"after: 1h, ", b""), plugin_page(False, 0))
    s.provider.preflight_error = Refused("not allowed")
    beside_the_plugins(s, 1, True)
    assert phase(s) is Phase.HANDED_OVER
    s.provider.preflight_error = None
    for count in range(1, 62):
        beside_the_plugins(s, count + 1, True, start=count)
        assert phase(s) is Phase.HANDED_OVER
    beside_the_plugins(s, 65, True, start=62)
    assert (the_record(s).rule, calls(s)) == ("oom", REBOOTED)


EARLIER = f"""{HEAD}sources: [npd]
limits: {{cooldown: 0s}}
rules:
  - {{name: oom, match: {{reason: OOMKilling, times: {{count: 3, within: 2h}}}}, remedy: [{{do: reboot}}]}}
  - {{name: nvlink, match: {{type: GpuNvlink}}, remedy: [{{do: replace}}]}}
""".encode()


def beside_the_plugins(s: Stage, end: int, bad: bool, *, start: int = 0) -> None:
    """So often has a pod been killed, while the plugin finds its fault, or does not."""
    for count in range(start, end):
        s.pages["node-0"].body = ooms(count) + plugin_page(bad, 1)
        s.run(20)


@pytest.mark.parametrize("before", [0, 1, 2])
def test_an_earlier_rule_that_is_met_in_the_queue_chooses_the_steps_whenever_it_was_first_counted(
    before: int,
) -> None:
    s = all_well(EARLIER, plugin_page(False, 0))
    pause(s)
    beside_the_plugins(s, before + 1, False)
    beside_the_plugins(s, 3, True, start=before)
    assert (phase(s), the_record(s).rule) == (Phase.WAITING, "nvlink")
    beside_the_plugins(s, 4, True, start=3)
    assert (phase(s), the_record(s).rule) == (Phase.WAITING, "oom")
    resume(s)
    s.run(30)
    assert calls(s) == REBOOTED


REPORTED = f"""{HEAD}sources: [npd]
limits: {{cooldown: 0s}}
rules:
  - {{name: often, match: {{reason: OOMKilling, times: {{count: 6, within: 1h}}}}, remedy: [{{do: reboot}}]}}
  - {{name: nvlink, match: {{type: GpuNvlink}}, after: 3m, remedy: [{{do: replace}}]}}
  - {{name: some, match: {{reason: OOMKilling, times: {{count: 3, within: 10m}}}}, remedy: [{{do: notify}}]}}
""".encode()


def test_so_does_one_that_is_met_by_what_was_on_the_record_before_and_only_reported() -> None:
    s = all_well(REPORTED, plugin_page(False, 0))
    pause(s)
    beside_the_plugins(s, 4, True)
    s.run(200)
    assert (phase(s), the_record(s).rule) == (Phase.WAITING, "nvlink")
    assert [(f.reason, f.treated) for f in the_record(s).faults][1:] == [("OOMKilling", False)]
    beside_the_plugins(s, 7, True, start=4)
    resume(s)
    s.run(30)
    assert (the_record(s).rule, calls(s)) == ("often", REBOOTED)


def test_what_is_counted_often_enough_only_after_the_start_gets_no_step_that_is_not_its_own() -> None:
    """It was counted for the first time before the start, and was no fault by then."""
    s = all_well(
        EARLIER.replace(b"[{do: replace}]", b"[{do: drain, within: 1h}, {do: replace}]"),
        plugin_page(False, 0),
    )
    stubborn_pod(s)
    beside_the_plugins(s, 2, False)
    beside_the_plugins(s, 4, True, start=1)
    assert (phase(s), the_record(s).rule) == (Phase.RECOVERING, "nvlink")
    s.pages["node-0"].body = ooms(3) + plugin_page(False, 1)
    s.run(5)
    remove_pod(s)
    s.run(30)
    assert (phase(s), calls(s)) == (Phase.HANDED_OVER, [])
    assert "the next step is drain, which its own rule oom does not call for" in the_record(s).sentence


@pytest.mark.parametrize("on", [True, False], ids=["on", "off"])
def test_what_was_counted_is_a_fault_in_the_metric_for_five_minutes_and_not_for_the_day_it_is_remembered(
    on: bool,
) -> None:
    """An alert that a fault has lasted for half an hour would fire for each pod that was killed."""
    s = cast(OOMS, agents=0)
    s.pages["node-0"].body = ooms(0)
    agent = s.agent("node-0", on=on)
    s.run(5)
    killed(s, 0, times=1)
    assert value(agent, "node_recovery_faults", type="", reason="OOMKilling") == 1
    s.run(360, step=5)
    assert value(agent, "node_recovery_faults", type="", reason="OOMKilling") == 0
    killed(s, 1, times=1)
    assert value(agent, "node_recovery_faults", type="", reason="OOMKilling") == 1
