"""Machines, names and boots (laws 4 and 11)."""

from __future__ import annotations

import pytest
from recovery_testkit.stage import Stage, npd_page

from recovery.errors import Retry, Unreadable
from recovery.model import CORDONED_BY, Phase
from tests.builders.faults import DMA
from tests.builders.policies import policy_file
from tests.stories.scenery import slots
from tests.stories.scenes import (
    ALL_MARKS,
    BEFORE,
    NO_MARKS,
    REBOOTS,
    at,
    boot,
    calls,
    cast,
    events_of,
    handed_over,
    marked,
    messages,
    new_process,
    no_place,
    patch_node,
    pause,
    phase,
    ready,
    remove_pod,
    resume,
    sayings,
    says,
    stubborn_pod,
    the_record,
)


def another_machine(s: Stage, *, healthy: bool = True) -> None:
    """Somebody ends the machine, and its group's next one goes by the same name."""
    s.provider.terminate("workers", "m-0")
    s.delete_node("node-0")
    s.provider.launch("workers", "m-9")
    s.register("node-0", "m-9")
    s.pages["node-0"].error = None
    if healthy:
        s.pages["node-0"].body = npd_page()
    new_process(s, "node-0")


# ---------------------------------------------------------------- another machine of the same name


@pytest.mark.parametrize("point", BEFORE)
def test_another_machine_before_the_call_supersedes_and_nothing_is_called(point: str) -> None:
    s = at(point)
    another_machine(s)
    s.run(30)
    assert (phase(s), calls(s), no_place(s), marked(s)) == (Phase.SUPERSEDED, [], True, NO_MARKS)
    assert the_record(s).sentence == "the machine behind node-0 is m-9 now, not m-0: nothing is called"


@pytest.mark.parametrize("restarted", [False, True], ids=["the agent goes on", "the agent restarts"])
@pytest.mark.parametrize("point", BEFORE)
def test_what_an_agent_sees_on_one_machine_is_no_fault_of_another_that_got_its_name(
    point: str, restarted: bool
) -> None:
    """The old machine is gone for Kubernetes alone: its agent still runs, and its page shows the fault."""
    s = at(point, kernel=True)
    s.delete_node("node-0")
    s.provider.launch("workers", "m-9")
    s.register("node-0", "m-9", boot="boot-of-m-9")
    s.pages["node-0"].error = None
    if restarted:
        new_process(s, "node-0")
    s.run(60)
    assert (phase(s), calls(s), no_place(s), marked(s)) == (Phase.SUPERSEDED, [], True, NO_MARKS)
    elsewhere = "this agent runs on m-0, and node-0 is m-9 now: that one's own agent sees to it"
    said = [x for actor in s.actors.values() for x in actor.sentences if actor.node == "node-0"]
    assert any(elsewhere in x for x in said)


def test_another_machine_in_probation_of_a_reboot_is_not_called_proved() -> None:
    s = at("proving")
    another_machine(s)
    s.run(200, step=1)
    assert (phase(s), calls(s), no_place(s)) == (Phase.SUPERSEDED, [("reboot", "m-0")], True)
    assert the_record(s).sentence.endswith("its reboot cannot be proved any more")


def test_another_machine_with_a_fault_of_its_own_gets_its_own_recovery() -> None:
    s = at("draining")
    another_machine(s, healthy=False)
    remove_pod(s)
    s.run(30)
    assert calls(s) == [("replace", "m-9")]


def test_a_replacement_of_the_same_name_concludes_its_predecessors_record() -> None:
    s = at("after the call")
    another_machine(s)
    s.run(200)
    r = the_record(s)
    assert (r.phase, r.replacement, r.replacement_machine) == (Phase.RECOVERED, "node-0", "m-9")
    assert r.sentence.startswith("proved: m-0 is gone and node-0 (m-9) was healthy for 2 min, by its own")
    assert no_place(s)


def test_a_replacement_of_the_same_name_that_is_broken_too_proves_nothing_and_is_replaced_itself() -> None:
    """Its fault is one that nothing but a boot ends: to wait for its probation is of no use."""
    s = at("after the call")
    another_machine(s, healthy=False)
    s.run(120, step=5)
    assert says(s, "Superseded", f"m-0 is gone; node-0 (m-9) took its place and is sick too: {DMA}")
    assert calls(s) == [("replace", "m-0"), ("replace", "m-9")]


# ---------------------------------------------------------------- the same machine, registered again


@pytest.mark.parametrize("point", ["waiting", "draining", "before the call", "after the call", "proving"])
def test_a_new_node_object_of_the_same_machine_carries_on(point: str) -> None:
    s = at(point)
    before = phase(s)
    boot_id = s.node("node-0")["status"]["nodeInfo"]["bootID"].removeprefix("m-0-")
    s.delete_node("node-0")
    s.register("node-0", "m-0", boot=boot_id)
    s.run(5)
    assert phase(s) is before
    assert the_record(s).node_uid == s.node("node-0")["metadata"]["uid"]


def test_a_node_registered_anew_is_marked_again_and_treated() -> None:
    s = at("draining")
    s.delete_node("node-0")
    s.register("node-0", "m-0")
    s.run(5)
    assert marked(s) == ALL_MARKS
    remove_pod(s)
    s.run(5)
    assert calls(s) == [("replace", "m-0")]
    assert messages(s, "Held") == []


@pytest.mark.parametrize("point", ["in a person's hands", "asked for", "on probation"])
def test_a_node_registered_anew_is_marked_again_also_where_no_step_does_it(point: str) -> None:
    """Else new pods are put on a machine that is broken, or that nothing has proved yet."""
    s = handed_over() if point == "in a person's hands" else at("proving")
    if point == "asked for":
        s = cast(REBOOTS)
        s.fault("node-0")
        s.run(5)
    before, booted = phase(s), s.node("node-0")["status"]["nodeInfo"]["bootID"].removeprefix("m-0-")
    s.delete_node("node-0")
    s.register("node-0", "m-0", boot=booted)
    s.run(70)
    assert (phase(s), marked(s)) == (before, ALL_MARKS)


def test_no_pod_that_came_to_a_node_registered_anew_is_lost_with_its_machine() -> None:
    """The drain is over, and the next step takes the machine: what came since would not be evicted."""
    s = at("proving")
    s.delete_node("node-0")
    s.register("node-0", "m-0", boot="boot-2")
    s.run(5)
    if not s.node("node-0")["spec"].get("unschedulable"):  # the scheduler puts it there
        stubborn_pod(s)
    s.fault("node-0")
    s.run(10)
    pods = s.store.request("GET", "/api/v1/pods").body["items"]
    assert (calls(s), [p["metadata"]["name"] for p in pods]) == ([("reboot", "m-0"), ("replace", "m-0")], [])


def test_what_came_to_a_node_registered_anew_before_the_call_is_drained_as_well() -> None:
    """The drain was over, and the call was held. Its agent is a pod of that Node, and is away meanwhile."""
    s = at("before the call")
    s.delete_node("node-0")
    s.register("node-0", "m-0")
    s.add_pod("came-since", "node-0", app="other")
    s.run(1)
    s.pages["node-0"].error = None
    s.run(20)
    pods = s.store.request("GET", "/api/v1/pods").body["items"]
    assert (calls(s), [p["metadata"]["name"] for p in pods]) == ([("replace", "m-0")], [])
    assert messages(s, "RegisteredAnew") == [
        "node-0 was registered again by the same machine: the recovery goes on with another drain"
    ]


def test_a_step_that_did_not_help_is_not_done_again_for_what_came_to_a_node_registered_anew() -> None:
    s = cast(REBOOTS)
    s.fault("node-0")
    s.run(5)
    s.provider.groups["workers"].desired += 1
    s.run(11 * 60, step=5)
    assert (calls(s), the_record(s).rung) == ([("reboot", "m-0")], 2)
    s.delete_node("node-0")
    s.register("node-0", "m-0")
    s.add_pod("came-since", "node-0", app="other")
    s.run(5)
    s.provider.groups["workers"].desired -= 1
    s.run(60)
    pods = s.store.request("GET", "/api/v1/pods").body["items"]
    assert (calls(s), [p["metadata"]["name"] for p in pods]) == ([("reboot", "m-0"), ("replace", "m-0")], [])


def test_a_node_registered_anew_is_not_called_drained_before_it_is_out_of_service_again() -> None:
    s = at("draining")
    pause(s)
    s.delete_node("node-0")
    s.register("node-0", "m-0")
    remove_pod(s)
    s.run(30)
    assert (the_record(s).rung, marked(s)) == (0, NO_MARKS)
    s.add_pod("came-since", "node-0", app="other")
    resume(s)
    s.run(20)
    pods = s.store.request("GET", "/api/v1/pods").body["items"]
    assert (calls(s), [p["metadata"]["name"] for p in pods]) == ([("replace", "m-0")], [])


@pytest.mark.parametrize("proving", [False, True], ids=["asked for", "on probation"])
def test_what_came_to_a_node_registered_anew_after_a_call_is_drained_before_the_next(proving: bool) -> None:
    """It came before the agent had marked the node again."""
    s = at("proving") if proving else cast(REBOOTS)
    if not proving:
        s.fault("node-0")
        s.run(5)
    s.delete_node("node-0")
    s.register("node-0", "m-0", **({"boot": "boot-2"} if proving else {}))
    s.add_pod("came-since", "node-0", app="other")
    s.run(5)
    if proving:
        s.fault("node-0")
    s.run(11 * 60, step=5)
    pods = s.store.request("GET", "/api/v1/pods").body["items"]
    assert (calls(s), [p["metadata"]["name"] for p in pods]) == ([("reboot", "m-0"), ("replace", "m-0")], [])


@pytest.mark.parametrize("again", [1, 4])
def test_another_drain_is_one_step_however_often_a_node_is_registered_anew(again: int) -> None:
    s = at("before the call")
    for _ in range(again):
        s.delete_node("node-0")
        s.register("node-0", "m-0")
        s.run(5)
    assert [str(x) for x in the_record(s).ladder] == ["drain", "replace"]


def test_a_request_is_not_taken_back_because_its_node_was_registered_anew() -> None:
    """Nobody gave it back."""
    s = cast(policy_file("{do: replace, within: 3m}"))
    s.fault("node-0")
    s.run(200)
    assert phase(s) is Phase.HANDED_OVER
    s.delete_node("node-0")
    s.register("node-0", "m-0")
    s.run(130)
    assert (marked(s), events_of(the_record(s)).count("takenBack")) == (ALL_MARKS, 0)
    assert s.provider.groups["workers"].unhealthy == {"m-0"}


# ---------------------------------------------------------------- boots that nobody asked for


@pytest.mark.parametrize("point", BEFORE)
def test_an_unexpected_boot_is_assessed_anew_and_closes_nothing(point: str) -> None:
    s = at(point)
    s.pages["node-0"].error = None
    s.pages["node-0"].body = npd_page()
    boot(s, "node-0")
    remove_pod(s)
    s.run(70)
    assert (phase(s), calls(s)) == (Phase.PROVING, [])
    assert messages(s, "Rebooted") == ["the machine booted without being asked to: probation begins"]


@pytest.mark.parametrize("point", BEFORE)
def test_healthy_through_probation_after_an_unexpected_boot_is_withdrawn(point: str) -> None:
    s = at(point)
    s.pages["node-0"].error = None
    s.pages["node-0"].body = npd_page()
    boot(s, "node-0")
    s.run(190)
    assert (phase(s), calls(s), marked(s), no_place(s)) == (Phase.WITHDRAWN, [], NO_MARKS, True)
    assert the_record(s).sentence.startswith("withdrawn: after a boot that was not asked for, node-0 was")


@pytest.mark.parametrize("point", ["draining", "before the call"])
def test_the_fault_again_after_an_unexpected_boot_goes_on(point: str) -> None:
    s = at(point)
    s.pages["node-0"].error = None
    s.pages["node-0"].body = npd_page()
    boot(s, "node-0")
    s.run(20)
    assert phase(s) is Phase.PROVING
    s.fault("node-0")
    remove_pod(s)
    s.run(10)
    assert calls(s) == [("replace", "m-0")]


def test_a_fault_that_is_still_there_after_an_unexpected_boot_goes_on_at_once() -> None:
    s = at("draining")
    boot(s, "node-0")
    remove_pod(s)
    s.run(10)
    assert calls(s) == [("replace", "m-0")]
    assert the_record(s).boot_id == "m-0-boot-2"


def test_a_boot_gives_no_slot_to_a_node_that_waits_for_one_with_marks_of_an_earlier_record() -> None:
    """Somebody deleted the record that the marks belonged to, so nothing was begun by the one that waits."""
    drains = "{do: drain, within: 10m, then: hold}"
    s = cast(policy_file(drains, limits="cooldown: 0s, budget: 1, brake: 100%"))
    s.add_pod("kept", "node-0", app="other")
    stubborn_pod(s, "node-1")
    s.fault("node-1")
    s.run(10)
    marks = {"metadata": {"annotations": {CORDONED_BY: "node-recovery"}}, "spec": {"unschedulable": True}}
    patch_node(s, "node-0", marks)
    s.fault("node-0")
    s.run(10)
    assert (phase(s), slots(s)) == (Phase.WAITING, ["node-1"])
    s.pages["node-0"].body = npd_page()
    boot(s, "node-0")
    s.run(10)
    assert (phase(s), slots(s)) == (Phase.PROVING, ["node-1"])
    s.fault("node-0")
    s.run(20)
    assert (phase(s), slots(s)) == (Phase.WAITING, ["node-1"])
    assert s.store.request("GET", "/api/v1/namespaces/default/pods/kept").ok


def test_an_unexpected_boot_in_probation_begins_probation_again() -> None:
    s = at("proving")
    s.run(60)
    boot(s, "node-0", "m-0-boot-3")
    s.run(80)
    assert phase(s) is Phase.PROVING
    s.run(60)
    assert (phase(s), calls(s)) == (Phase.RECOVERED, [("reboot", "m-0")])
    assert sayings(s, "Rebooted") == 1


def test_a_boot_while_the_machine_is_being_replaced_is_no_proof() -> None:
    s = at("after the call")
    boot(s, "node-0")
    s.pages["node-0"].body = npd_page()
    s.run(200, step=1)
    assert (phase(s), calls(s)) == (Phase.RECOVERING, [("replace", "m-0")])


def test_a_machine_that_booted_and_is_never_readable_again_is_a_persons() -> None:
    s = at("waiting")
    boot(s, "node-0")
    s.pages["node-0"].error = Unreadable("connection refused")
    s.run(31 * 60, step=10)
    assert (phase(s), calls(s)) == (Phase.HANDED_OVER, [])


# ---------------------------------------------------------------- a ladder with a reboot


def test_a_reboot_is_proved_by_a_new_boot_id_and_a_healthy_probation() -> None:
    s = cast(REBOOTS)
    s.fault("node-0")
    s.run(10)
    assert calls(s) == [("reboot", "m-0")]
    assert phase(s) is Phase.RECOVERING
    boot(s, "node-0")
    s.pages["node-0"].body = npd_page()
    s.run(60)
    assert phase(s) is Phase.PROVING
    s.run(70)
    assert (phase(s), marked(s), no_place(s)) == (Phase.RECOVERED, NO_MARKS, True)
    assert the_record(s).sentence == "proved: node-0 was healthy for 2 min on its own page"


def test_a_healthy_page_without_a_new_boot_proves_no_reboot() -> None:
    s = cast(REBOOTS)
    s.fault("node-0")
    s.run(10)
    s.pages["node-0"].body = npd_page()
    s.run(400, step=1)
    assert phase(s) is Phase.RECOVERING


def test_a_node_that_is_not_ready_after_its_reboot_is_not_proved_yet() -> None:
    s = cast(REBOOTS)
    s.fault("node-0")
    s.run(10)
    ready(s, "node-0", "False")
    boot(s, "node-0")
    s.pages["node-0"].body = npd_page()
    s.run(60)
    assert phase(s) is Phase.RECOVERING
    ready(s, "node-0", "True")
    s.run(5)
    assert phase(s) is Phase.PROVING


def test_a_fault_that_returns_in_probation_climbs_to_the_next_rung() -> None:
    s = at("proving")
    s.run(60)
    s.fault("node-0")
    s.run(10)
    assert calls(s) == [("reboot", "m-0"), ("replace", "m-0")]
    assert messages(s, "FaultReturned") == [f"{DMA} came back in probation"]
    assert the_record(s).attempt == 2


def test_a_reboot_that_does_not_come_climbs_to_the_next_rung() -> None:
    s = cast(REBOOTS)
    s.fault("node-0")
    s.run(10 * 60 + 30, step=5)
    assert calls(s) == [("reboot", "m-0"), ("replace", "m-0")]


def test_a_boot_that_comes_after_its_reboot_was_given_up_is_not_said_to_come_unasked() -> None:
    """A server with eight GPUs may test itself for longer than the step waits."""
    s = cast(REBOOTS)
    s.fault("node-0")
    s.run(10)
    s.provider.preflight_error = Retry("throttled")
    s.run(10 * 60 + 30, step=5)
    assert calls(s) == [("reboot", "m-0")]
    boot(s, "node-0")
    s.pages["node-0"].body = npd_page()
    s.run(60)
    assert messages(s, "Rebooted") == ["the machine booted after its reboot was given up: probation begins"]
    boot(s, "node-0", "boot-3")
    s.run(5)
    assert messages(s, "Rebooted")[1:] == ["the machine booted without being asked to: probation begins"]


def test_a_second_recovery_of_the_same_machine_drains_again() -> None:
    s = at("proving")
    s.run(130)
    assert phase(s) is Phase.RECOVERED
    stubborn_pod(s)
    s.fault("node-0")
    s.run(10)
    assert (phase(s), the_record(s).rung) == (Phase.RECOVERING, 0)
    assert events_of(the_record(s)).count("started") == 2
