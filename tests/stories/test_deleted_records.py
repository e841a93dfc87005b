"""Somebody deletes a record: its slot is not free while its machine may be out of service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from recovery_testkit.stage import Stage, npd_page

from recovery.errors import Retry
from recovery.model import Phase
from tests.builders.policies import policy_file
from tests.stories.console import Terminal
from tests.stories.scenery import GATE, RECORDS, alive, change_gate, pass_time, slots
from tests.stories.scenes import (
    NO_MARKS,
    boot,
    calls,
    cast,
    marked,
    new_process,
    phase,
    ready,
    release_by_command,
    remove_pod,
    stubborn_pod,
    the_record,
)

ONE = "cooldown: 0s, budget: 1, budgetPer: {}, brake: 100%"
REPLACES = policy_file("{do: replace, within: 30m}", limits=ONE)
DRAINS = policy_file("{do: drain, within: 10m, then: hold}, {do: replace, within: 30m}", limits=ONE)
REBOOTS = policy_file("{do: reboot, within: 30m}", limits=ONE)
UNDER_WAY = "node-0: its record was deleted, and its slot is not free yet: "


def deleted(policy: bytes = REPLACES, *, restarted: bool = False) -> Stage:
    """node-0's step was asked for, node-1 waits; then somebody deletes the record of node-0."""
    s = Stage(policy)
    for i in range(4):
        s.add_node(f"node-{i}", f"m-{i}", group=f"g{i}")
    for i in range(3):
        s.agent(f"node-{i}")
    s.run(3)
    for node in ("node-0", "node-1"):
        s.fault(node)
        s.run(8)
    assert (len(calls(s)), phase(s, "node-1")) == (1, Phase.WAITING)
    assert s.store.request("DELETE", f"{RECORDS}/node-0").ok
    if restarted:
        s.kill(s.actors["agent of node-0"])
        s.agent("node-0", name="agent of node-0, again")
    return s


def test_a_record_that_is_deleted_while_its_replacement_is_under_way_frees_no_slot() -> None:
    s = deleted()
    s.run(900, step=2)
    assert (calls(s), slots(s)) == ([("replace", "m-0")], ["node-0"])
    assert phase(s) is Phase.LOST


def test_the_nodes_own_agent_says_why_the_slot_stays() -> None:
    s = deleted(restarted=True)
    s.run(400, step=2)
    assert alive(s, "node-0").sentences[-1] == f"{UNDER_WAY}m-0 is unhealthy already"
    assert (calls(s), slots(s)) == ([("replace", "m-0")], ["node-0"])


def test_with_recovery_off_no_start_is_promised_on_a_node_whose_record_was_deleted() -> None:
    s = deleted()
    s.run(120, step=2)
    off = new_process(s, "node-0", on=False)
    s.run(5)
    alone = "would leave NeuronHasError_DMA_ERROR alone: lost: somebody deleted the record of a recovery "
    assert alone in off.sentences[-1]
    boot(s, "node-0")
    off = new_process(s, "node-0", on=False)
    s.run(5)
    assert off.sentences[-1].startswith("would replace node-0: NeuronHasError_DMA_ERROR")


def test_the_slot_is_free_once_the_machine_is_gone() -> None:
    s = deleted()
    s.run(120, step=2)
    s.replace_machine("node-0", "m-0", "node-9", "m-9", "g0")
    pass_time(s, 300, until=lambda: len(calls(s)) > 1)
    assert (calls(s)[1:], slots(s)) == ([("replace", "m-1")], ["node-1"])


def test_the_slot_is_free_once_the_machine_is_as_it_was() -> None:
    s = deleted()
    s.run(120, step=2)
    s.provider.groups["g0"].unhealthy.clear()
    pass_time(s, 600, until=lambda: len(calls(s)) > 1)
    assert calls(s)[1:] == [("replace", "m-1")]


def test_a_reboot_that_was_asked_for_shows_later_and_the_slot_waits_for_it() -> None:
    s = deleted(REBOOTS)
    s.run(200, step=2)
    assert slots(s) == ["node-0"], "the machine may go down any moment"
    ready(s, "node-0", "Unknown")
    s.run(900, step=5)
    assert (slots(s), len(calls(s))) == (["node-0"], 1)
    ready(s, "node-0", "True")
    pass_time(s, 200, until=lambda: len(calls(s)) > 1)
    assert calls(s) == [("reboot", "m-0"), ("reboot", "m-1")]


def test_another_machine_that_has_got_the_name_by_then_is_treated_as_any_other() -> None:
    """What was done, if anything, was done to the machine that took the slot."""
    s = deleted()
    s.replace_machine("node-0", "m-0", "node-0", "m-9", "g0")
    s.pages["node-0"].body = npd_page()
    new_process(s, "node-0")
    s.run(60, step=2)
    assert (phase(s), the_record(s).machine.id) == (Phase.LOST, "m-0")
    s.fault("node-0")
    s.run(10)
    assert (phase(s), the_record(s).machine.id) == (Phase.WAITING, "m-9")


def without_its_node(change: Callable[[dict[str, Any]], None] | None = None) -> Stage:
    """As ``deleted``; the Node of node-0 is deleted as well, before anybody has looked."""
    s = deleted()
    s.kill(s.actors["agent of node-0"])
    s.delete_node("node-0")
    if change is not None:
        change_gate(s, change)
    return s


def test_who_can_tell_that_the_machine_is_gone_is_known_from_the_slot() -> None:
    s = without_its_node()
    s.run(300, step=2)
    assert (phase(s), slots(s)) == (Phase.LOST, ["node-0"]), "its provider says that it is there"
    s.provider.groups["g0"].in_service.remove("m-0")
    pass_time(s, 120, until=lambda: len(calls(s)) > 1)
    assert (calls(s)[1:], slots(s)) == ([("replace", "m-1")], ["node-1"])


def test_the_same_of_a_slot_that_was_put_back_because_somebody_emptied_the_gate() -> None:
    def forgets_all(gate: dict[str, Any]) -> None:
        gate["status"]["slots"] = []

    s = Stage(REPLACES)
    for i in range(3):
        s.add_node(f"node-{i}", f"m-{i}", group=f"g{i}")
        s.agent(f"node-{i}")
    s.run(3)
    s.fault("node-0")
    s.run(8)
    change_gate(s, forgets_all)
    pass_time(s, 120, until=lambda: slots(s) == ["node-0"])
    s.kill(s.actors["agent of node-0"])
    s.delete_node("node-0")
    assert s.store.request("DELETE", f"{RECORDS}/node-0").ok
    s.provider.groups["g0"].in_service.remove("m-0")
    pass_time(s, 300, until=lambda: not slots(s))
    assert (phase(s), slots(s)) == (Phase.LOST, [])


def of_a_program_of_before(gate: dict[str, Any]) -> None:
    """The slots do not say the providerIDs of their machines."""
    words = gate["status"]["words"]
    places = {short for short, text in words.items() if "fake:///" in text}
    assert places
    for slot in gate["status"]["slots"]:
        slot["scopes"] = [x for x in slot["scopes"] if x not in places]
    for short in places:
        del words[short]


def test_a_machine_that_nobody_can_name_any_more_is_gone_after_an_hour() -> None:
    s = without_its_node(of_a_program_of_before)
    s.provider.groups["g0"].in_service.remove("m-0")
    s.run(3000, step=10)
    assert (slots(s), the_record(s).machine.id) == (["node-0"], "m-0")
    s.run(1000, step=10)
    assert slots(s) == ["node-1"]


@pytest.mark.parametrize("how", ["deleted", "emptied"])
def test_the_slot_of_a_deleted_record_is_there_again_after_the_gate_was_made_again(how: str) -> None:
    s = deleted()
    s.run(200, step=2)
    assert (phase(s), slots(s)) == (Phase.LOST, ["node-0"])
    if how == "deleted":
        assert s.store.request("DELETE", GATE).ok
    else:
        change_gate(s, lambda gate: gate.pop("status"))
    s.run(600, step=2)
    assert (calls(s), slots(s)) == ([("replace", "m-0")], ["node-0"]), "two would be out"
    s.provider.groups["g0"].unhealthy.clear()
    pass_time(s, 600, until=lambda: len(calls(s)) > 1)
    assert (calls(s)[1:], slots(s)) == ([("replace", "m-1")], ["node-1"])


@pytest.mark.parametrize("restarted", ["never", "before the release", "right after it"])
def test_a_release_after_the_record_was_deleted_is_about_what_the_node_showed_by_then(restarted: str) -> None:
    s = cast(DRAINS, agents=2)
    stubborn_pod(s)
    s.fault("node-0")
    s.run(8)
    assert s.store.request("DELETE", f"{RECORDS}/node-0").ok
    if restarted == "before the release":
        new_process(s, "node-0")
    s.run(500, step=2)
    assert phase(s) is Phase.LOST
    release_by_command(s)
    if restarted == "right after it":
        new_process(s, "node-0")
    remove_pod(s)
    s.run(200, step=1)
    assert (phase(s), calls(s)) == (Phase.RELEASED, [])
    s.fault("node-0", "DMA_ERROR", "HBM_UNCORRECTABLE_ERROR")
    pass_time(s, 60, until=lambda: calls(s) != [])
    assert calls(s) == [("replace", "m-0")], "another fault is treated"


def test_a_slot_that_was_freed_does_not_come_back_with_a_new_gate() -> None:
    s = deleted()
    s.run(120, step=2)
    s.provider.groups["g0"].unhealthy.clear()
    pass_time(s, 1200, step=5, until=lambda: the_record(s).scopes == ())
    assert (phase(s), the_record(s).scopes) == (Phase.LOST, ())
    ready(s, "node-0", "False")
    assert s.store.request("DELETE", GATE).ok
    s.run(120)
    assert "node-0" not in slots(s)


def test_a_release_frees_no_slot_of_a_deleted_record_whose_replacement_may_still_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    s = deleted()
    s.run(120, step=2)
    terminal = Terminal(s, monkeypatch)
    said = terminal.run("release", "node-0", "--yes")
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("nothing was changed: the record of node-0 was deleted while m-0 was out, ")
    assert "released once an agent with ENABLE_RECOVERY=true has found the machine as it was" in said.err
    s.run(60)
    assert (phase(s), slots(s), calls(s)) == (Phase.LOST, ["node-0"], [("replace", "m-0")])
    s.provider.groups["g0"].unhealthy.clear()  # somebody takes the request back
    pass_time(s, 600, step=5, until=lambda: "node-0" not in slots(s))
    assert terminal.run("release", "node-0", "--yes").code == 0
    assert (phase(s), marked(s)) == (Phase.RELEASED, NO_MARKS)


def test_a_person_frees_the_slot_on_the_gate_where_its_provider_never_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    s = deleted(restarted=True)
    s.provider.preflight_error = Retry("its BMC did not answer")
    s.run(3600, step=30)
    terminal = Terminal(s, monkeypatch)
    assert (slots(s), terminal.run("release", "node-0", "--yes").code) == (["node-0"], 1)
    change_gate(s, lambda gate: gate["status"].update(slots=[]))
    assert terminal.run("release", "node-0", "--yes").code == 0
    s.run(60)
    assert (phase(s), marked(s), "node-0" in slots(s)) == (Phase.RELEASED, NO_MARKS, False)
