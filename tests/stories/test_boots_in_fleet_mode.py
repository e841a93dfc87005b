"""What a cluster does around a boot, in fleet mode: kubelets that are not Ready at first, a restored etcd."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from recovery_testkit.stage import Stage

from recovery.model import Phase
from tests.stories.scenery import judge, pass_time
from tests.stories.scenes import (
    another_leader,
    calls,
    messages,
    patch_node,
    phase,
    sayings,
    stubborn_pod,
    the_record,
)
from tests.stories.test_conditions import COUNT, COUNT_GOOD, policy, renewed, writes
from tests.stories.test_marks_of_others import put, take_off

BOOTED = "m-0-boot-2"
REASONS = {"True": "KubeletReady", "False": "KubeletNotReady", "Unknown": "NodeStatusUnknown"}
REBOOT = "{do: drain, within: 2m, then: force}, {do: reboot, within: 15m}"
REPLACE = "{do: drain, within: 2m, then: force}, {do: replace}"


def fleet(after: str, remedy: str) -> Stage:
    text = policy("{type: Ready}", remedy).replace(b"    remedy", f"    after: {after}\n    remedy".encode())
    s = Stage(text)
    s.nodes(4)
    s.fleet()
    s.run(5)
    return s


def says(s: Stage, status: str, boot: str = "", node: str = "node-0") -> None:
    """The kubelet, or the node controller in its place, writes Ready; and the boot, in the same patch."""
    now = f"{s.clock.true_time():%Y-%m-%dT%H:%M:%SZ}"
    (old,) = (c for c in s.node(node)["status"]["conditions"] if c["type"] == "Ready")
    new = {
        "type": "Ready",
        "status": status,
        "reason": REASONS[status],
        "lastHeartbeatTime": old["lastHeartbeatTime"] if status == "Unknown" else now,
        "lastTransitionTime": old.get("lastTransitionTime", now) if status == old["status"] else now,
    }
    body: dict[str, Any] = {"conditions": [new]}
    patch_node(
        s, node, {"status": body | ({"nodeInfo": {"bootID": boot}} if boot else {})}, "status", "kubelet"
    )


def rebooted(after: str) -> Stage:
    """Dead, and asked to boot."""
    s = fleet(after, REBOOT)
    says(s, "Unknown")
    pass_time(s, 600, until=lambda: bool(calls(s)), step=1)
    s.run(30, step=1)
    assert (calls(s), phase(s)) == ([("reboot", "m-0")], Phase.RECOVERING)
    return s


@pytest.mark.parametrize("down", [10, 60])
@pytest.mark.parametrize("after", ["0s", "20s", "40s", "10m"])
def test_a_machine_that_is_ready_for_good_some_seconds_after_its_boot_is_proved(
    after: str, down: int
) -> None:
    """What its kubelet said first is held for a minute. It is over, or not known to be, and not back."""
    s = rebooted(after)
    says(s, "False", BOOTED)
    s.run(down, step=1)
    says(s, "True")
    s.run(200, step=1)
    assert (calls(s), phase(s)) == ([("reboot", "m-0")], Phase.RECOVERED)
    assert not messages(s, "FaultReturned")
    judge(s)


def test_one_that_is_not_ready_again_after_its_boot_is_not() -> None:
    s = rebooted("0s")
    says(s, "False", BOOTED)
    s.run(10, step=1)
    says(s, "True")
    s.run(30, step=1)
    assert phase(s) is Phase.PROVING
    says(s, "False")
    s.run(5, step=1)
    assert phase(s) is Phase.HANDED_OVER
    assert "KubeletNotReady showed in probation" in the_record(s).sentence


TOLERANT = policy("{type: GpuNvlink}", f"{REBOOT}, {{do: replace}}").replace(
    b"    remedy", b"    after: 5m\n    remedy"
)


def rebooted_for_a_plugins_fault(seconds: int) -> Stage:
    """Its rule tolerates it for five minutes. It shows for so long in the new boot."""
    s = Stage(TOLERANT)
    s.nodes(4)
    s.fleet()
    s.run(5)
    renewed(s, 6, COUNT)
    assert calls(s) == [("reboot", "m-0")]
    says(s, "False", BOOTED)
    s.run(20, step=1)
    says(s, "True")
    for _ in range(seconds // 30):
        writes(s, COUNT)
        s.run(30, step=1)
    return s


@pytest.mark.parametrize("seconds", [30, 240])
def test_a_plugin_that_says_for_a_while_that_a_driver_is_not_up_has_no_machine_replaced(seconds: int) -> None:
    s = rebooted_for_a_plugins_fault(seconds)
    renewed(s, 6, COUNT_GOOD)
    assert (calls(s), phase(s)) == ([("reboot", "m-0")], Phase.RECOVERED)
    assert not messages(s, "FaultReturned")
    judge(s)


def test_one_that_says_it_for_longer_than_its_rule_tolerates_has() -> None:
    s = rebooted_for_a_plugins_fault(270)
    assert calls(s) == [("reboot", "m-0")]
    renewed(s, 2, COUNT)
    assert calls(s) == [("reboot", "m-0"), ("replace", "m-0")]


MARKED = policy("{source: konduktor}", f"{REBOOT}, {{do: replace}}").replace(
    b"[conditions]", b"[conditions, konduktor]"
)


def mended_and_at_rest() -> tuple[Stage, dict[str, Any]]:
    """A mark had the machine rebooted, and was taken off. Nobody looks at the node any more. And how its Node
    was before."""
    s = Stage(MARKED)
    s.nodes(4)
    s.fleet()
    s.run(60, step=5)
    put(s, "konduktor")
    pass_time(s, 60, until=lambda: bool(calls(s)), step=1)
    then = copy.deepcopy(s.node("node-0"))
    s.run(20, step=1)
    says(s, "True", BOOTED)
    s.run(150, step=1)
    take_off(s, "konduktor", "node-0")
    pass_time(s, 900, step=10)
    assert (calls(s), phase(s)) == ([("reboot", "m-0")], Phase.RECOVERED)
    return s, then


@pytest.mark.parametrize("new", [False, True], ids=["the same controller", "a new one"])
def test_a_mark_that_is_put_on_again_long_after_the_boot_is_a_new_fault(new: bool) -> None:
    s, _ = mended_and_at_rest()
    if new:
        another_leader(s)
        pass_time(s, 60, step=5)
    put(s, "konduktor")
    pass_time(s, 60, step=1)
    assert calls(s) == [("reboot", "m-0"), ("replace", "m-0")]


def test_one_that_comes_back_with_etcd_is_none() -> None:
    s, then = mended_and_at_rest()
    taints = [
        *s.node("node-0")["spec"].get("taints", []),
        *(t for t in then["spec"]["taints"] if "trainy" in t["key"]),
    ]
    old = {"spec": {"taints": taints}, "status": then["status"]}
    patch_node(s, "node-0", old, "", "etcd")
    patch_node(s, "node-0", old, "status", "etcd")
    pass_time(s, 10, step=1)
    says(s, "True", BOOTED)
    pass_time(s, 300, step=5)
    assert (calls(s), phase(s)) == ([("reboot", "m-0")], Phase.RECOVERED)


def dead_and_well_again(boot: str) -> tuple[Stage, dict[str, Any]]:
    """An hour after a moment in which the kubelet of node-0 was silent, and how its Node was then."""
    s = fleet("10m", REPLACE)
    says(s, "Unknown")
    s.run(60, step=5)
    then = copy.deepcopy(s.node("node-0")["status"])
    says(s, "True", boot)
    for _ in range(12):
        pass_time(s, 300, step=20)
        says(s, "True")
    assert (calls(s), phase(s)) == ([], Phase.WITHDRAWN)
    return s, then


@pytest.mark.parametrize("boot", ["m-0-boot-1", BOOTED])
def test_a_silence_of_long_ago_that_comes_back_with_etcd_has_no_machine_replaced(boot: str) -> None:
    """Its rule tolerates it for ten minutes. It had begun an hour ago, and the kubelet writes soon."""
    s, then = dead_and_well_again(boot)
    patch_node(s, "node-0", {"status": then}, "status", "etcd")
    s.run(9, step=1)
    says(s, "True", boot)
    s.run(300, step=2)
    assert (calls(s), phase(s)) == ([], Phase.WITHDRAWN)
    judge(s)


def test_one_that_goes_on_after_that_is_a_fault_once_its_rule_tolerates_it_no_more() -> None:
    s, then = dead_and_well_again(BOOTED)
    patch_node(s, "node-0", {"status": then}, "status", "etcd")
    s.run(590, step=2)
    assert (calls(s), phase(s)) == ([], Phase.SUSPECT)
    s.run(90, step=1)
    assert calls(s) == [("replace", "m-0")]


def boots_after(seconds: int, remedy: str = REPLACE) -> Stage:
    """Its kubelet was silent for so long. Then it says that the machine has booted, and is not Ready yet."""
    s = fleet("10m", remedy)
    says(s, "Unknown")
    s.run(seconds, step=1)
    assert calls(s) == []
    says(s, "False", BOOTED)
    return s


@pytest.mark.parametrize("remedy", [REPLACE, REBOOT], ids=["replace", "reboot"])
@pytest.mark.parametrize("silent", [300, 545, 595])
def test_a_dead_machine_that_boots_by_itself_has_time_to_be_ready(silent: int, remedy: str) -> None:
    """A server with GPUs tests itself for minutes. It was replaced, or reset, in the midst of its boot."""
    s = boots_after(silent, remedy)
    s.run(100, step=1)
    says(s, "True")
    s.run(300, step=2)
    assert (calls(s), phase(s)) == ([], Phase.WITHDRAWN)
    judge(s)


def test_one_that_has_booted_and_is_still_not_ready_three_minutes_later_is_replaced() -> None:
    s = boots_after(595)
    s.run(170, step=1)
    assert calls(s) == []
    s.run(60, step=1)
    assert calls(s) == [("replace", "m-0")]


def test_one_that_boots_again_and_again_is_waited_for_once() -> None:
    s = boots_after(400)
    for number in range(3, 9):
        s.run(45, step=1)
        says(s, "False", f"m-0-boot-{number}")
    assert calls(s) == [("replace", "m-0")]


def test_one_that_dies_again_in_that_time_is_replaced() -> None:
    s = boots_after(595)
    s.run(60, step=1)
    says(s, "Unknown")
    s.run(180, step=1)
    assert calls(s) == [("replace", "m-0")]


@pytest.mark.parametrize("remedy", [REPLACE, REBOOT], ids=["replace", "reboot"])
@pytest.mark.parametrize("since", [0, 5, 40])
def test_it_has_that_time_under_a_new_leader_too(since: int, remedy: str) -> None:
    """Who takes over has not seen the boot. Its record says that it was."""
    s = fleet("1m", remedy)
    says(s, "Unknown")
    s.run(30, step=1)
    says(s, "False", BOOTED)
    s.run(since, step=1)
    another_leader(s)
    s.run(120 - since, step=1)
    says(s, "True")
    s.run(300, step=2)
    assert (calls(s), phase(s)) == ([], Phase.WITHDRAWN)
    judge(s)


@pytest.mark.parametrize("remedy", [REPLACE, REBOOT], ids=["replace", "reboot"])
def test_it_has_that_time_where_it_boots_in_the_midst_of_its_drain_as_the_leader_changes(remedy: str) -> None:
    s = fleet("10m", remedy)
    stubborn_pod(s)
    says(s, "Unknown")
    s.run(650, step=1)
    assert phase(s) is Phase.RECOVERING
    another_leader(s)
    says(s, "False", BOOTED)
    s.run(150, step=1)
    says(s, "True")
    s.run(300, step=2)
    assert (calls(s), phase(s)) == ([], Phase.WITHDRAWN)
    judge(s)


@pytest.mark.parametrize("node_is_deleted", ["dead", "booting"])
def test_it_has_that_time_if_its_node_was_deleted_and_it_registers_anew(node_is_deleted: str) -> None:
    """It was rebooted within a second: what was said of the Node before had been tolerated long enough."""
    s = fleet("10m" if node_is_deleted == "booting" else "1m", REBOOT)
    says(s, "Unknown")
    s.run(590 if node_is_deleted == "booting" else 30, step=1)
    if node_is_deleted == "booting":
        says(s, "False", BOOTED)
        s.run(5, step=1)
    s.delete_node("node-0")
    s.run(10, step=1)
    s.register("node-0", "m-0", boot="boot-2")
    says(s, "False")
    s.run(120, step=1)
    says(s, "True")
    s.run(300, step=2)
    assert (calls(s), s.record("node-0") is None or phase(s).open) == ([], False)


def test_another_machine_of_that_name_that_is_not_ready_is_tolerated_from_then_on() -> None:
    s = fleet("10m", REPLACE)
    says(s, "Unknown")
    s.run(60, step=1)
    says(s, "False", BOOTED)
    s.run(300, step=1)
    s.delete_node("node-0")
    s.run(10, step=1)
    s.provider.terminate("workers", "m-0")
    s.provider.launch("workers", "m-9")
    s.register("node-0", "m-9")
    says(s, "False")
    s.run(570, step=1)
    assert calls(s) == []
    s.run(60, step=1)
    assert calls(s) == [("replace", "m-9")]


def test_what_was_wrong_before_its_boot_is_not_told_anew_after_it() -> None:
    """A person was told of it. It was told once more, as a fault of a machine that had just booted."""
    s = fleet("1m", "{do: notify}")
    says(s, "Unknown")
    s.run(100, step=1)
    says(s, "False", BOOTED)
    s.run(60, step=1)
    says(s, "True")
    s.run(120, step=1)
    assert sayings(s, "FaultSeen") == 1
    assert phase(s) is Phase.WITHDRAWN


def test_a_dead_machine_that_boots_again_and_again_stays_a_persons_until_it_is_ready() -> None:
    """It was handed over, and withdrawn in the same second: the last boot passed for one that ended it."""
    s = fleet("10m", REBOOT)
    says(s, "Unknown")
    s.run(60, step=1)
    for number in range(2, 6):
        says(s, "False", f"m-0-boot-{number}")
        s.run(20, step=1)
    assert phase(s) is Phase.HANDED_OVER
    assert "booted 4 times" in the_record(s).sentence
    says(s, "True")
    s.run(120, step=1)
    assert (calls(s), phase(s)) == ([], Phase.WITHDRAWN)


@pytest.mark.parametrize("status", ["False", "Unknown"])
@pytest.mark.parametrize("well", [70, 110])
def test_one_that_has_booted_and_was_ready_for_a_minute_is_tolerated_anew(well: int, status: str) -> None:
    """Its kubelet was away for some seconds. It was replaced for having been dead before."""
    s = fleet("10m", REPLACE)
    says(s, status)
    s.run(590, step=1)
    says(s, "False", BOOTED)
    s.run(110, step=1)
    says(s, "True")
    s.run(well, step=1)
    says(s, status)
    s.run(10, step=1)
    says(s, "True")
    s.run(300, step=2)
    assert (calls(s), phase(s)) == ([], Phase.WITHDRAWN)
    judge(s)


def test_and_is_replaced_if_it_is_not_ready_for_as_long_again() -> None:
    s = boots_after(590)
    s.run(110, step=1)
    says(s, "True")
    s.run(70, step=1)
    says(s, "Unknown")
    s.run(590, step=2)
    assert calls(s) == []
    s.run(30, step=1)
    assert calls(s) == [("replace", "m-0")]


def test_a_fault_that_is_tolerated_takes_that_time_from_no_machine_under_a_new_leader() -> None:
    text = policy("{type: Ready}", REPLACE).replace(b"    remedy", b"    after: 1m\n    remedy")
    other = "  - {name: other, match: {type: GpuNvlink}, after: 10m, remedy: [{do: drain}, {do: reboot}]}\n"
    s = Stage(text + other.encode())
    s.nodes(4)
    s.fleet()
    s.run(5)
    says(s, "Unknown")
    s.run(30, step=1)
    says(s, "False", BOOTED)
    another_leader(s)
    writes(s, COUNT)
    s.run(120, step=1)
    assert (calls(s), phase(s)) == ([], Phase.PROVING)
    s.run(90, step=1)
    assert calls(s) == [("replace", "m-0")]
