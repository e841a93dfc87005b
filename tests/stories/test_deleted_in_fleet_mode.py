"""Somebody deletes a record in fleet mode: no other agent looks at its node, so the controller does."""

from __future__ import annotations

from recovery_testkit.stage import Stage

from recovery.model import Phase
from tests.stories.scenery import GATE, RECORDS, pass_time, slots
from tests.stories.scenes import calls, phase, stubborn_pod, the_record
from tests.stories.test_conditions import COUNT, EKS, policy, renewed, writes
from tests.stories.test_one_controller import fleet

ONE = b"cooldown: 0s, budget: 1, brake: 100%"


def one_out(text: bytes) -> bytes:
    return text.replace(b"cooldown: 0s", ONE)


def deleted(s: Stage) -> None:
    assert s.store.request("DELETE", f"{RECORDS}/node-0").ok


def test_its_slot_is_free_once_the_machine_is_as_it_was() -> None:
    s, _ = fleet(one_out(policy("{type: GpuNvlink}", "{do: drain, within: 10m}, {do: replace}")))
    stubborn_pod(s)
    writes(s, COUNT)
    s.run(20)
    assert (phase(s), slots(s)) == (Phase.RECOVERING, ["node-0"])
    deleted(s)
    renewed(s, 4, COUNT)
    assert (phase(s), slots(s)) == (Phase.LOST, ["node-0"]), "what was asked for may still show"
    renewed(s, 3, COUNT)
    assert (phase(s), slots(s), calls(s)) == (Phase.LOST, [], [])


def test_its_slot_stays_while_its_replacement_is_under_way_and_when_the_gate_is_made_again() -> None:
    s, _ = fleet(one_out(policy("{}", "{do: replace, within: 30m}")))
    for node in ("node-0", "node-1"):
        writes(s, EKS, node=node)
        s.run(20)
    assert (calls(s), phase(s, "node-1")) == ([("replace", "m-0")], Phase.WAITING)
    deleted(s)
    s.run(200, step=2)
    assert s.store.request("DELETE", GATE).ok
    s.run(400, step=2)
    assert (calls(s), slots(s)) == ([("replace", "m-0")], ["node-0"])
    s.provider.groups["workers"].unhealthy.clear()
    pass_time(s, 600, until=lambda: len(calls(s)) > 1)
    assert calls(s)[1:] == [("replace", "m-1")]


def test_another_machine_that_has_got_the_name_by_then_is_treated_as_any_other() -> None:
    s, _ = fleet(one_out(policy("{}", "{do: replace, within: 30m}")))
    writes(s, EKS)
    s.run(20)
    assert calls(s) == [("replace", "m-0")]
    deleted(s)
    s.replace_machine("node-0", "m-0", "node-0", "m-9")
    s.run(60)
    assert (phase(s), the_record(s).machine.id) == (Phase.LOST, "m-0")
    writes(s, EKS)
    s.run(30)
    assert calls(s)[1:] == [("replace", "m-9")]


def test_nor_is_it_held_by_a_record_that_was_deleted_before_it_had_a_place_on_the_gate() -> None:
    """The controller outlives the machine, whose own agent would have ended with it."""
    s, _ = fleet(policy(remedy="{do: replace}").replace(b"    remedy", b"    after: 5m\n    remedy"))
    writes(s, EKS)
    s.run(10)
    assert phase(s) is Phase.SUSPECT
    deleted(s)
    s.run(60)
    assert s.record("node-0") is None
    s.replace_machine("node-0", "m-0", "node-0", "m-9")
    s.run(60)
    writes(s, EKS)
    s.run(10)
    assert (phase(s), the_record(s).machine.id) == (Phase.SUSPECT, "m-9")
