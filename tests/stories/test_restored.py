"""etcd is restored to an earlier moment: the kernel's boot ID counts, where it was confirmed."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from recovery_testkit.stage import Stage, npd_page

from recovery.model import Phase, Record
from tests.builders.policies import policy_file
from tests.stories.scenery import GATES, change_gate, sentences, slots
from tests.stories.scenes import (
    ALL_MARKS,
    NO_MARKS,
    boot,
    calls,
    cast,
    counted_page,
    marked,
    new_process,
    patch_node,
    phase,
    plugin_page,
    record_sentences,
    release_by_command,
    remove_pod,
    stubborn_pod,
    swap_record,
    the_record,
)

DRAIN_REBOOT = policy_file("{do: drain, within: 10m, then: force}, {do: reboot, within: 10m}")
BEFORE, AFTER = "m-0-boot-1", "m-0-boot-2"
BEHIND = f"the Node is behind: it says boot {BEFORE}, the kernel is on boot {AFTER}"


@dataclass
class Backup:
    record: Record
    gate: dict[str, Any]
    node: dict[str, Any]


def backup(s: Stage) -> Backup:
    gate = s.store.request("GET", f"{GATES}/fleet").body
    return Backup(the_record(s), copy.deepcopy(gate), copy.deepcopy(s.node("node-0")))


def restore(s: Stage, saved: Backup) -> None:
    """Record, gate and Node as they were; the machine is what it is."""
    swap_record(s, replace(saved.record, resource_version=the_record(s).resource_version))
    gate = {**s.store.request("GET", f"{GATES}/fleet").body, "status": saved.gate["status"]}
    assert s.store.request("PUT", f"{GATES}/fleet", body=gate, user_agent="restore").ok
    spec = {key: saved.node["spec"].get(key) for key in ("unschedulable", "taints")}
    notes = saved.node["metadata"].get("annotations")
    patch_node(s, "node-0", {"spec": spec, "metadata": {"annotations": notes}}, actor="restore")
    boot(s, "node-0", saved.node["status"]["nodeInfo"]["bootID"])


def drained_and_rebooted(kernel: bool) -> tuple[Stage, Backup]:
    """A recovery that has ended, and a backup from the middle of its drain."""
    s = cast(DRAIN_REBOOT, agents=0)
    if kernel:
        s.kernels["node-0"] = BEFORE
    s.agent("node-0")
    s.agent("node-1")
    stubborn_pod(s)
    s.run(3)
    s.fault("node-0")
    s.run(8)
    saved = backup(s)
    assert (saved.record.phase, marked(s)) == (Phase.RECOVERING, ALL_MARKS)
    remove_pod(s)
    s.run(8)
    boot(s, "node-0", AFTER)
    if kernel:
        s.kernels["node-0"] = AFTER
    s.pages["node-0"].body = npd_page()
    s.run(200, step=1)
    assert (phase(s), calls(s)) == (Phase.RECOVERED, [("reboot", "m-0")])
    return s, saved


@contextmanager
def booted(s: Stage, ago: float) -> Iterator[None]:
    """Every kernel has booted so many seconds ago."""
    s.clock._booted = s.clock.monotonic() - ago
    yield
    s.clock._booted = 0.0


@pytest.mark.parametrize("restarted", [False, True], ids=["the agent goes on", "the agent restarts"])
@pytest.mark.parametrize("silent", [3, 60], ids=["a quick kubelet", "a slow kubelet"])
def test_a_restored_drain_reboots_no_machine_that_has_booted_since(restarted: bool, silent: int) -> None:
    s, saved = drained_and_rebooted(kernel=True)
    restore(s, saved)
    if restarted:
        new_process(s, "node-0")
    s.run(silent, step=1)
    boot(s, "node-0", AFTER)
    s.run(400, step=1)
    assert calls(s) == [("reboot", "m-0")]
    if restarted:  # one that runs sees its place on the gate within a minute
        assert any(BEHIND in x for x in record_sentences(s))
    assert (phase(s), marked(s), slots(s)) == (Phase.WITHDRAWN, NO_MARKS, [])


@pytest.mark.parametrize("silent", [3, 60], ids=["a quick kubelet", "a slow kubelet"])
def test_an_agent_that_cannot_read_its_kernel_knows_which_boot_it_has_read_last(silent: int) -> None:
    s, saved = drained_and_rebooted(kernel=False)
    restore(s, saved)
    s.run(silent, step=1)
    boot(s, "node-0", AFTER)
    s.run(400, step=1)
    assert calls(s) == [("reboot", "m-0")]
    assert (phase(s), marked(s), slots(s)) == (Phase.WITHDRAWN, NO_MARKS, [])


def test_agents_that_start_when_etcd_is_restored_wait_for_the_kubelet_to_say_which_boot_it_is() -> None:
    """The backup is older than what says that kernel and Node agree, and the agent knows of no boot before.
    The kernel is younger than what the kubelet last wrote: that boot may be over."""
    s, saved = drained_and_rebooted(kernel=True)
    written = saved.node["status"]["conditions"]
    restore(s, replace(saved, record=replace(saved.record, boot_confirmed=False)))
    patch_node(s, "node-0", {"status": {"conditions": written}}, actor="restore")
    new_process(s, "node-0")
    with booted(s, 20):
        s.run(20)
        assert calls(s) == [("reboot", "m-0")]
        assert "which boot the machine is in is known once the kubelet writes again" in sentences(s)[-1]
        boot(s, "node-0", AFTER)
        s.run(400, step=1)
    assert calls(s) == [("reboot", "m-0")]
    assert (phase(s), marked(s), slots(s)) == (Phase.WITHDRAWN, NO_MARKS, [])


@pytest.mark.parametrize(
    ("match", "page", "again"),
    [
        (
            "type: NeuronHealth",
            counted_page("DMA_ERROR", DMA_ERROR=1),
            counted_page("DMA_ERROR", DMA_ERROR=2),
        ),
        ("type: GpuNvlink", npd_page() + plugin_page(True, 1), b""),
    ],
    ids=["a log rule", "a plugin"],
)
def test_what_was_released_while_the_node_named_the_boot_before_is_the_same_once_it_is_put_right(
    match: str, page: bytes, again: bytes
) -> None:
    """etcd was restored to before the boot that this agent's process is of. A process sees no other boot."""
    s = cast(
        policy_file("{do: drain, within: 10m, then: force}, {do: reboot, within: 10m}", match=match), agents=0
    )
    s.kernels["node-0"] = AFTER
    s.pages["node-0"].body = page
    s.run(60)
    s.agent("node-0")
    with booted(s, 20):
        s.run(20)
        assert (phase(s), the_record(s).faults[0].boot_id, calls(s)) == (Phase.WAITING, BEFORE, [])
        release_by_command(s)
        s.run(1)
        boot(s, "node-0", AFTER)
        s.run(60, step=1)
        assert (phase(s), calls(s)) == (Phase.RELEASED, [])
        if again:
            s.pages["node-0"].body = again
            s.run(60, step=1)
            assert calls(s) == [("reboot", "m-0")]


def test_a_kubelet_that_writes_nothing_does_not_hold_a_recovery_for_ever() -> None:
    """Simulated nodes say a moment of long ago, and a kernel that is not theirs is younger."""
    s = cast(DRAIN_REBOOT, agents=0)
    s.kernels["node-0"] = "of-a-virtual-machine"
    long_ago = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2020-01-01T00:00:00Z"}
    patch_node(s, "node-0", {"status": {"conditions": [long_ago]}}, "status")
    s.agent("node-0")
    with booted(s, 20):
        s.run(3)
        s.fault("node-0")
        s.run(10)
        assert calls(s) == []
        assert "which boot the machine is in is known once the kubelet writes again" in sentences(s)[-1]
        s.run(40)
        assert calls(s) == []
        s.run(20)
        assert calls(s) == [("reboot", "m-0")]


@pytest.mark.parametrize("booted_already", [False, True], ids=["asked for", "on probation"])
def test_a_slot_that_somebody_takes_off_is_put_back_while_what_it_was_taken_for_goes_on(
    booted_already: bool,
) -> None:
    """Another node would start beside it; and no agent would tell its peers of what they have to prove."""
    s = cast(DRAIN_REBOOT)
    s.run(3)
    s.fault("node-0")
    s.run(8)
    if booted_already:
        boot(s, "node-0", AFTER)
        s.pages["node-0"].body = npd_page()
        s.run(8)
    assert phase(s) is (Phase.PROVING if booted_already else Phase.RECOVERING)
    change_gate(s, lambda gate: gate["status"].update(slots=[]))
    s.run(15)
    assert slots(s) == ["node-0"]
    s.fault("node-1")
    s.run(10)
    assert calls(s) == [("reboot", "m-0")]


def test_a_restored_node_alone_changes_nothing() -> None:
    s, saved = drained_and_rebooted(kernel=True)
    s.add_pod("train", "node-0")
    s.pages["node-0"].body = npd_page("DMA_ERROR")
    s.run(10)
    assert phase(s) is Phase.RECOVERING
    boot(s, "node-0", saved.node["status"]["nodeInfo"]["bootID"])
    s.run(30)
    assert (phase(s), the_record(s).boot_id) == (Phase.RECOVERING, AFTER)


def test_the_record_says_that_the_kernel_confirmed_the_boot() -> None:
    s, saved = drained_and_rebooted(kernel=True)
    assert saved.record.boot_confirmed
    assert the_record(s).boot_confirmed


def test_where_kernel_and_node_never_agreed_the_node_alone_is_believed() -> None:
    """Simulated nodes, and containers of another kernel: a new boot ID of the Node is the proof, as ever."""
    s = cast(DRAIN_REBOOT, agents=0)
    s.kernels["node-0"] = "of-a-virtual-machine"
    s.agent("node-0")
    s.run(3)
    s.fault("node-0")
    s.run(10)
    assert calls(s) == [("reboot", "m-0")]
    assert not the_record(s).boot_confirmed
    boot(s, "node-0", AFTER)
    s.pages["node-0"].body = npd_page()
    s.run(150, step=1)
    assert (phase(s), the_record(s).boot_id) == (Phase.RECOVERED, AFTER)
    assert not any("is behind" in x for x in sentences(s))


def test_the_kernel_of_a_machine_with_the_same_name_says_nothing_of_the_one_before() -> None:
    s = cast(DRAIN_REBOOT, agents=0)
    s.kernels["node-0"] = BEFORE
    s.agent("node-0")
    stubborn_pod(s)
    s.run(3)
    s.fault("node-0")
    s.run(8)
    assert the_record(s).boot_confirmed
    s.delete_node("node-0")
    s.register("node-0", "m-9")
    s.kernels["node-0"] = "m-9-boot-1"
    s.pages["node-0"].body = npd_page()
    new_process(s, "node-0")
    s.run(20)
    assert (phase(s), calls(s)) == (Phase.SUPERSEDED, [])


def test_a_slot_that_somebody_takes_off_is_put_back_while_a_node_that_booted_by_itself_is_proved() -> None:
    """It is out of service still: beside another one there would be two, with a budget of one (law 1)."""
    s = cast(DRAIN_REBOOT)
    stubborn_pod(s)
    s.fault("node-0")
    s.run(8)
    boot(s, "node-0", AFTER)
    s.pages["node-0"].body = npd_page()
    s.run(8)
    assert (phase(s), marked(s), calls(s)) == (Phase.PROVING, ALL_MARKS, [])
    change_gate(s, lambda gate: gate["status"].update(slots=[], open=[]))
    s.run(15)
    s.fault("node-1")
    s.run(15)
    assert (marked(s), marked(s, "node-1")) == (ALL_MARKS, NO_MARKS)
    assert slots(s) == ["node-0"]
