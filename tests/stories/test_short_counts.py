"""What the API server knows by itself: a node that has fewer devices than machines like it."""

from __future__ import annotations

from recovery_testkit.stage import Stage

from recovery.model import Phase
from tests.stories.scenery import judge, pass_time, records, to_the_end
from tests.stories.scenes import MERGE, another_leader, boot, calls, phase, record_sentences
from tests.stories.test_conditions import policy
from tests.stories.test_one_controller import Group

GPU = "nvidia.com/gpu"
COUNTS = policy("{type: DeviceCount}", "{do: drain, within: 2m, then: force}, {do: replace}").replace(
    b"[conditions]", b"[api]"
)
MINUTES = 60


def has(s: Stage, node: str, there: int, given: int | None = None) -> None:
    """Its device plugin reports so many."""
    capacity, allocatable = {GPU: str(there)}, {GPU: str(there if given is None else given)}
    body = {"status": {"capacity": {**capacity, "cpu": "96"}, "allocatable": {**allocatable, "cpu": "95"}}}
    answer = s.store.request("PATCH", f"/api/v1/nodes/{node}/status", body=body, content_type=MERGE)
    assert answer.ok, answer.body


def machines(*counts: int, text: bytes = COUNTS) -> tuple[Stage, Group]:
    s = Stage(text)
    for name, there in zip(s.nodes(len(counts)), counts, strict=True):
        has(s, name, there)
    s.fleet()
    s.run(5)
    return s, Group(s)


def test_a_node_with_seven_of_eight_gpus_is_replaced_once_that_has_lasted() -> None:
    s, cloud = machines(7, 8, 8, 8, 8, 8)
    pass_time(s, 19 * MINUTES, cloud, step=10)
    assert (calls(s), s.record("node-0")) == ([], None)
    pass_time(s, 3 * MINUTES, cloud, step=10)
    assert calls(s) == [("replace", "m-0")]
    to_the_end(s, cloud)
    assert phase(s) is Phase.RECOVERED
    assert any("DevicesMissing" in x for x in record_sentences(s))
    judge(s)


def test_while_devices_are_shared_out_otherwise_one_machine_after_the_other_none_is_short() -> None:
    s, cloud = machines(*[8] * 12)
    s.fleet("other")
    pass_time(s, 30 * MINUTES, cloud, step=30)
    for i in range(12):
        has(s, f"node-{i}", 32)
        pass_time(s, 15 * MINUTES, cloud, step=30)
        if i == 8:  # the other replica takes over, which has seen how it was before
            s.kill(s.actors["controller"])
    assert (calls(s), records(s)) == ([], {})
    judge(s)


def test_many_machines_that_lack_one_device_each_are_all_short() -> None:
    s, cloud = machines(*[7] * 5, *[8] * 35)
    pass_time(s, 25 * MINUTES, cloud, step=30)
    assert sorted(records(s)) == [f"node-{i}" for i in range(5)]


def test_of_machines_that_were_set_up_otherwise_one_that_lacks_a_device_is_still_found() -> None:
    s, cloud = machines(*[8] * 8, *[32] * 12)
    pass_time(s, 30 * MINUTES, cloud, step=30)
    has(s, "node-19", 31)
    pass_time(s, 15 * MINUTES, cloud, step=30)
    assert list(records(s)) == ["node-19"]


def test_machines_of_which_no_five_agree_are_left_alone() -> None:
    s, cloud = machines(7, 8, 8, 8, 8)
    pass_time(s, 40 * MINUTES, cloud, step=10)
    assert (calls(s), s.record("node-0")) == ([], None)


def test_a_plugin_that_is_started_anew_takes_no_node_out() -> None:
    s, cloud = machines(8, 8, 8, 8, 8, 8)
    pass_time(s, 30 * MINUTES, cloud, step=10)
    for _ in range(3):
        has(s, "node-0", 0)
        pass_time(s, 5 * MINUTES, cloud, step=10)
        has(s, "node-0", 8)
        pass_time(s, 5 * MINUTES, cloud, step=10)
    assert (calls(s), s.record("node-0")) == ([], None)


REBOOTED = COUNTS.replace(b"{do: replace}", b"{do: reboot}, {do: replace}")


def rebooted_for_a_short_count() -> tuple[Stage, Group]:
    s, cloud = machines(7, 8, 8, 8, 8, 8, text=REBOOTED)
    pass_time(s, 23 * MINUTES, cloud, step=10)
    assert calls(s) == [("reboot", "m-0")]
    boot(s, "node-0")
    pass_time(s, 1 * MINUTES, cloud, step=5)
    assert phase(s) is Phase.PROVING
    return s, cloud


def test_a_reboot_that_left_the_node_short_is_not_proved_and_the_next_step_follows() -> None:
    s, cloud = rebooted_for_a_short_count()
    pass_time(s, 16 * MINUTES, cloud, step=10)
    assert (calls(s), phase(s)) == ([("reboot", "m-0")], Phase.PROVING)
    pass_time(s, 8 * MINUTES, cloud, step=10)
    assert calls(s) == [("reboot", "m-0"), ("replace", "m-0")]
    to_the_end(s, cloud)
    assert phase(s) is Phase.RECOVERED
    judge(s)


def test_a_reboot_that_brought_all_devices_back_is_proved_in_minutes() -> None:
    s, cloud = rebooted_for_a_short_count()
    has(s, "node-0", 0)  # its plugin comes up
    pass_time(s, 1 * MINUTES, cloud, step=5)
    has(s, "node-0", 8)
    pass_time(s, 5 * MINUTES, cloud, step=5)
    assert (calls(s), phase(s)) == ([("reboot", "m-0")], Phase.RECOVERED)
    judge(s)


def test_a_leader_that_comes_after_the_boot_calls_a_short_node_no_proof_either() -> None:
    s, cloud = rebooted_for_a_short_count()
    another_leader(s)
    pass_time(s, 10 * MINUTES, cloud, step=10)
    assert (calls(s), phase(s)) == ([("reboot", "m-0")], Phase.PROVING)


def test_a_well_node_that_boots_is_not_told_of_while_its_devices_come_up() -> None:
    s, cloud = machines(8, 8, 8, 8, 8, 8)
    has(s, "node-0", 0)
    boot(s, "node-0")
    pass_time(s, 15 * MINUTES, cloud, step=10)
    assert s.record("node-0") is None
    has(s, "node-0", 8)
    pass_time(s, 15 * MINUTES, cloud, step=10)
    assert (calls(s), s.record("node-0")) == ([], None)


def only(match: str) -> bytes:
    text = policy(match, "{do: drain, within: 2m, then: force}, {do: replace}")
    return text.replace(b"[conditions]", b"[api]")


def test_a_plugin_that_comes_back_has_time_to_report_all_its_devices() -> None:
    s, cloud = machines(*[8] * 6, text=only("{type: DeviceCount, reason: DevicesMissing}"))
    pass_time(s, 25 * MINUTES, cloud, step=30)
    has(s, "node-0", 0)
    pass_time(s, 15 * MINUTES, cloud, step=10)
    has(s, "node-0", 2)
    pass_time(s, 20, cloud, step=1)
    has(s, "node-0", 8)
    pass_time(s, 5 * MINUTES, cloud, step=10)
    assert (calls(s), phase(s)) == ([], Phase.WITHDRAWN)
    assert not any("DevicesMissing" in x for x in record_sentences(s)), (
        "that none are there was only reported"
    )


def test_a_plugin_that_ends_while_it_reports_its_devices_has_as_much_time_when_it_comes_back() -> None:
    s, cloud = machines(*[8] * 6, text=only("{type: DeviceCount, reason: DevicesMissing}"))
    pass_time(s, 25 * MINUTES, cloud, step=30)
    for _ in range(2):
        has(s, "node-0", 2)
        pass_time(s, 20, cloud, step=1)
        has(s, "node-0", 0)
        pass_time(s, 11 * MINUTES, cloud, step=10)
    has(s, "node-0", 2)
    pass_time(s, 20, cloud, step=1)
    has(s, "node-0", 8)
    pass_time(s, 5 * MINUTES, cloud, step=10)
    assert (calls(s), phase(s)) == ([], Phase.WITHDRAWN)


def test_a_plugin_that_comes_back_has_time_to_call_all_its_devices_healthy() -> None:
    s, cloud = machines(*[8] * 6, text=only("{type: DeviceAllocatable}"))
    pass_time(s, 25 * MINUTES, cloud, step=30)
    has(s, "node-0", 8, given=0)
    pass_time(s, 4 * MINUTES + 50, cloud, step=1)
    has(s, "node-0", 8, given=2)
    pass_time(s, 50, cloud, step=1)
    has(s, "node-0", 8)
    pass_time(s, 5 * MINUTES, cloud, step=10)
    assert (calls(s), s.record("node-0")) == ([], None)


def test_a_plugin_that_has_ended_calls_no_device_unhealthy() -> None:
    """The kubelet gives out none of its devices from then on, and forgets them after five minutes."""
    s, cloud = machines(*[8] * 6, text=only("{type: DeviceAllocatable}"))
    pass_time(s, 25 * MINUTES, cloud, step=30)
    has(s, "node-0", 8, given=0)
    pass_time(s, 5 * MINUTES + 10, cloud, step=1)
    has(s, "node-0", 0)
    pass_time(s, 20 * MINUTES, cloud, step=10)
    has(s, "node-0", 8)
    pass_time(s, 5 * MINUTES, cloud, step=10)
    assert (calls(s), phase(s)) == ([], Phase.WITHDRAWN)
    assert not any("DevicesUnhealthy" in x for x in record_sentences(s))


def test_a_plugin_that_calls_all_devices_unhealthy_and_lives_is_believed_after_ten_minutes() -> None:
    s, cloud = machines(*[8] * 6, text=only("{type: DeviceAllocatable}"))
    pass_time(s, 25 * MINUTES, cloud, step=30)
    has(s, "node-0", 8, given=0)
    pass_time(s, 12 * MINUTES, cloud, step=5)
    assert calls(s) == [("replace", "m-0")]
