"""etcd is restored to an earlier moment: the kernel's boot ID counts, where it was confirmed."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import pytest
from recovery_testkit.stage import Stage, npd_page

from recovery.model import Phase, Record
from tests.builders.policies import policy_file
from tests.stories.scenery import GATES, sentences, slots
from tests.stories.scenes import (
    ALL_MARKS,
    NO_MARKS,
    boot,
    calls,
    cast,
    marked,
    new_process,
    patch_node,
    phase,
    record_sentences,
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
