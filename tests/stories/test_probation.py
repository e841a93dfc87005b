"""What is proved is proved by whoever looked (law 11)."""

from __future__ import annotations

from pathlib import Path

from recovery_testkit.stage import Stage, npd_page

from recovery.model import Phase
from tests.builders.policies import policy_file
from tests.stories.scenery import change_gate, pass_time, reboot, records, slots
from tests.stories.scenes import REBOOTS, boot, calls, cast, messages, phase, plugin_page, the_record
from tests.stories.test_conditions import writes


def test_an_agent_that_finds_its_node_on_probation_looks_on_for_the_whole_of_it_itself() -> None:
    """A peer wrote that the machine had booted, and nobody looked at the node's page since."""
    stage = cast(REBOOTS, 3, agents=3)
    stage.fault("node-0")
    pass_time(stage, 60, until=lambda: bool(stage.provider.calls))
    stage.kill(stage.actors["agent of node-0"])
    reboot(stage, "node-0")
    pass_time(stage, 300, until=lambda: records(stage) == {"node-0": "proving"})
    for peer in ("node-1", "node-2"):
        stage.kill(stage.actors[f"agent of {peer}"])
    stage.pages["node-0"].body = npd_page()
    pass_time(stage, 600)
    back = stage.agent("node-0", name="agent of node-0, again", alone=True)
    began = stage.clock.monotonic()
    pass_time(stage, 600, until=lambda: records(stage) == {"node-0": "recovered"}, step=1)
    assert back.sentences
    assert stage.clock.monotonic() - began >= 120, "two minutes of probation, seen by itself"


SHIPPED = Path(__file__).parents[2] / "deploy" / "fleet" / "policy.yaml"
XID = ("AcceleratedHardwareReady", "False", "NvidiaXID79Error")
NO_XID = ("AcceleratedHardwareReady", "True", "AcceleratedHardwareIsReady")
UP, DOWN = ("Ready", "True", "KubeletReady"), ("Ready", "False", "KubeletNotReady")


def booted_in_fleet_mode(policy: bytes = SHIPPED.read_bytes()) -> Stage:
    """By the policy that ships, a node was drained and rebooted for an XID. It is up, its kubelet says."""
    s = Stage(policy)
    for name in s.nodes(6):
        writes(s, UP, node=name)
    s.fleet()
    s.run(70)
    writes(s, XID)
    s.run(75)
    assert calls(s) == [("reboot", "m-0")]
    writes(s, ("Ready", "Unknown", "NodeStatusUnknown"))
    s.run(90)
    boot(s, "node-0")
    writes(s, NO_XID, DOWN)
    s.run(20)
    writes(s, UP)
    s.run(2)
    assert phase(s) is Phase.PROVING
    return s


def renewed(s: Stage, *conditions: tuple[str, ...], minutes: int) -> None:
    for _ in range(minutes):
        s.run(60)
        writes(s, *conditions)


def test_a_node_that_comes_up_after_its_reboot_is_proved_though_it_was_not_ready_at_first() -> None:
    s = booted_in_fleet_mode()
    renewed(s, NO_XID, UP, minutes=6)
    assert (calls(s), phase(s)) == ([("reboot", "m-0")], Phase.RECOVERED)
    assert not messages(s, "FaultReturned")


def test_a_moment_in_which_the_kubelet_is_not_ready_ends_no_machine_that_its_reboot_has_mended() -> None:
    s = booted_in_fleet_mode()
    writes(s, DOWN)
    s.run(3)
    writes(s, UP)
    renewed(s, NO_XID, UP, minutes=6)
    assert (calls(s), phase(s)) == ([("reboot", "m-0")], Phase.RECOVERED)


def test_a_moment_of_not_ready_long_after_the_reboot_ends_no_machine_either() -> None:
    """The probation lasts for longer than the rule tolerates, as a validation may."""
    s = booted_in_fleet_mode(SHIPPED.read_bytes().replace(b"after: 1m", b"after: 1m\n    probation: 15m"))
    renewed(s, NO_XID, UP, minutes=12)
    writes(s, DOWN)
    s.run(3)
    writes(s, UP)
    renewed(s, NO_XID, UP, minutes=18)
    assert (calls(s), phase(s)) == ([("reboot", "m-0")], Phase.RECOVERED)


def test_after_a_few_seconds_of_not_ready_a_node_is_proved_by_a_whole_probation() -> None:
    """The record is written at the first of them. "Healthy for 2 min" has to be true all the same."""
    s = cast(REBOOTS, 3, agents=3)
    s.fault("node-0")
    pass_time(s, 60, until=lambda: bool(s.provider.calls))
    reboot(s, "node-0")
    s.pages["node-0"].body = npd_page()
    s.run(30)
    assert phase(s) is Phase.PROVING
    writes(s, DOWN)
    s.run(4.5)
    writes(s, UP)
    s.run(119)
    assert phase(s) is Phase.PROVING
    s.run(4)
    assert phase(s) is Phase.RECOVERED


def test_a_node_that_is_no_more_ready_after_its_reboot_is_replaced_once_that_is_not_tolerated() -> None:
    s = booted_in_fleet_mode()
    writes(s, DOWN)
    renewed(s, NO_XID, DOWN, minutes=9)
    assert calls(s) == [("reboot", "m-0")]
    renewed(s, NO_XID, DOWN, minutes=3)
    assert calls(s) == [("reboot", "m-0"), ("replace", "m-0")]


OTHERS = b"""
  - name: nvlink
    match: {type: GpuNvlink}
    after: %s
    remedy: [%s]
"""
CORDON, REPLACE = b"{do: cordon}", b"{do: drain, within: 10m, then: force}, {do: replace, within: 30m}"


def another_in_probation(after: bytes, remedy: bytes, seconds: float, first: bytes = REBOOTS) -> Stage:
    """A fault of another rule shows while the node is on probation after its reboot, for so long."""
    s = cast(first + OTHERS % (after, remedy))
    well = npd_page() + plugin_page(False, 0)
    s.pages["node-0"].body = well
    s.run(5)
    s.fault("node-0")
    s.run(5)
    boot(s, "node-0")
    s.pages["node-0"].body = well
    s.run(30)
    assert phase(s) is Phase.PROVING
    s.pages["node-0"].body = npd_page() + plugin_page(True, 1)
    s.run(seconds)
    s.pages["node-0"].body = npd_page() + plugin_page(False, 1)
    s.run(180)
    return s


def test_a_fault_that_is_tolerated_for_longer_than_it_lasts_only_begins_the_probation_again() -> None:
    s = another_in_probation(b"30m", REPLACE, 60)
    assert (calls(s), phase(s)) == ([("reboot", "m-0")], Phase.RECOVERED)


def test_a_fault_whose_own_rule_only_cordons_has_no_machine_replaced() -> None:
    s = another_in_probation(b"0s", CORDON, 60)
    assert (calls(s), phase(s)) == ([("reboot", "m-0")], Phase.HANDED_OVER)
    assert "GpuNvlinkBad showed in probation; the next step is replace" in the_record(s).sentence
    assert [f.reason for f in the_record(s).faults] == ["GpuNvlinkBad"], (
        "who gets the node finds what is there"
    )


def test_a_fault_whose_own_rule_asks_a_witness_has_no_machine_replaced_unasked() -> None:
    s = another_in_probation(b"0s\n    witness: {source: neuron-sysfs}", REPLACE, 60)
    assert (calls(s), phase(s)) == ([("reboot", "m-0")], Phase.HANDED_OVER)
    said = "the next step is replace, for which its own rule nvlink asks a second witness"
    assert said in the_record(s).sentence


def test_a_fault_whose_own_rule_replaces_has_the_recovery_go_on() -> None:
    s = another_in_probation(b"0s", REPLACE, 60)
    assert calls(s) == [("reboot", "m-0"), ("replace", "m-0")]


def test_a_fault_whose_own_rule_only_cordons_has_no_pod_evicted_by_a_drain_that_comes_first() -> None:
    """The ladder's first drain is the next step, and one that its own rule has comes after it."""
    drains = policy_file("{do: reboot, within: 10m}, {do: drain, within: 10m}, {do: cordon}")
    s = another_in_probation(b"0s", CORDON, 60, first=drains)
    assert (calls(s), phase(s)) == ([("reboot", "m-0")], Phase.HANDED_OVER)
    assert "GpuNvlinkBad showed in probation; the next step is drain" in the_record(s).sentence


ONE_OUT = policy_file(
    "{do: reboot, within: 10m}, {do: replace, within: 30m}",
    match="type: GpuNvlink",
    limits="cooldown: 0s, budget: 1",
)


def rebooted(policy: bytes = ONE_OUT) -> Stage:
    s = cast(policy, plugin=True)
    s.pages["node-0"].body = plugin_page(True, 1)
    s.run(8)
    boot(s, "node-0")
    s.pages["node-0"].body = plugin_page(False, 0)
    s.run(20)
    assert (calls(s), phase(s)) == ([("reboot", "m-0")], Phase.PROVING)
    return s


def gate_is_of_version(s: Stage, version: int) -> None:
    change_gate(s, lambda gate: gate["status"].update(version=version))


def test_a_fault_that_is_back_while_the_gate_cannot_be_read_is_no_second_start() -> None:
    s = rebooted()
    gate_is_of_version(s, 99)
    s.run(5)
    s.pages["node-0"].body = plugin_page(True, 1)
    s.run(10)
    assert (phase(s), calls(s)) == (Phase.RECOVERING, [("reboot", "m-0")])
    gate_is_of_version(s, 2)
    pass_time(s, 60, until=lambda: len(calls(s)) > 1)
    assert (calls(s)[1:], len(the_record(s).starts)) == ([("replace", "m-0")], 1)


def test_one_that_is_taken_back_meanwhile_leaves_a_machine_that_was_rebooted_to_be_proved() -> None:
    s = rebooted()
    gate_is_of_version(s, 99)
    s.run(5)
    s.pages["node-0"].body = plugin_page(True, 1)
    s.run(5)
    s.pages["node-0"].body = plugin_page(False, 1)
    s.run(10)
    gate_is_of_version(s, 2)
    s.run(60)
    assert phase(s) is Phase.PROVING
    s.run(120)
    assert (phase(s), slots(s)) == (Phase.RECOVERED, [])


def test_one_that_is_back_as_somebody_takes_its_slot_off_has_it_again_before_another_starts() -> None:
    s = rebooted()
    s.pages["node-1"].body = plugin_page(True, 1)
    s.run(10)
    change_gate(s, lambda gate: gate["status"].update(slots=[]))
    s.pages["node-0"].body = plugin_page(True, 1)
    s.run(60)
    assert (calls(s), slots(s)) == ([("reboot", "m-0"), ("replace", "m-0")], ["node-0"])
