"""A remedy that only marks a node, in fleet mode: it waits for nothing that it does not need."""

from __future__ import annotations

import pytest
from recovery_testkit.stage import Stage

from tests.stories.scenery import GATE, judge, slots
from tests.stories.scenes import pause, resume
from tests.stories.test_conditions import NEURON, policy, writes
from tests.stories.test_one_desk import STEP, all_fail, cordoned, fleet, most_out


def gates(s: Stage, since: int) -> list[tuple[int, int]]:
    """How many were in the queue and how many out, by each write of the gate since."""
    written = (w.object["status"] for w in s.store.history[since:] if w.path == GATE)
    return [(len(x.get("open", ())), len(x.get("slots", ()))) for x in written]


def test_a_single_node_is_cordoned_before_the_settle_time_is_over_and_joins_no_queue() -> None:
    s = fleet(1, 1)
    since = len(s.store.history)
    writes(s, NEURON, node="node-0")
    s.run(0.45, step=STEP)
    assert cordoned(s, 1) == [0]
    s.run(5)
    assert gates(s, since) == [(0, 1), (0, 0)]
    judge(s, budget={"fleet": 1})


@pytest.mark.parametrize("remedy", ["{do: drain}", "{do: cordon}, {do: drain}"])
def test_one_whose_pods_will_have_to_go_waits_for_other_faults_to_show(remedy: str) -> None:
    s = Stage(policy(remedy=remedy))
    s.add_node("node-0", "m-0", "workers")
    s.fleet("controller-0")
    s.run(5)
    writes(s, NEURON, node="node-0")
    s.run(0.45, step=STEP)
    assert cordoned(s, 1) == []
    s.run(5)
    assert cordoned(s, 1) == [0]


def test_one_that_finds_no_slot_joins_the_queue_as_any_other() -> None:
    s = fleet(3, 1)
    since = len(s.store.history)
    all_fail(s, 3)
    s.run(5, step=STEP)
    assert cordoned(s, 3) == [0, 1, 2]
    assert max(waiting for waiting, _ in gates(s, since)) >= 1
    assert most_out(s, since) == 1
    judge(s, budget={"fleet": 1})


def test_one_that_is_held_waits_in_the_queue_where_its_peers_see_it() -> None:
    s = fleet(1, 1)
    pause(s)
    writes(s, NEURON, node="node-0")
    s.run(5)
    assert (cordoned(s, 1), slots(s)) == ([], [])
    assert [line["node"] for line in s.store.request("GET", GATE).body["status"]["open"]] == ["node-0"]
    resume(s)
    s.run(15)
    assert cordoned(s, 1) == [0]


def test_of_many_that_fail_at_once_none_is_cordoned_above_the_brake() -> None:
    limits = b"{cooldown: 0s, budget: 10, brake: 30%, brakePer: {}, budgetPer: {}}"
    s = Stage(policy(remedy="{do: cordon}").replace(b"{cooldown: 0s}", limits))
    for i in range(10):
        s.add_node(f"node-{i}", f"m-{i}", f"group-{i}")
    s.fleet("controller-0")
    s.run(5)
    all_fail(s, 5)
    s.run(30, step=STEP)
    assert cordoned(s, 10) == []
