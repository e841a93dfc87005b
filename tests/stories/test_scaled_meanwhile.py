"""The group is scaled by others while one of its machines is being replaced."""

from __future__ import annotations

import pytest
from recovery_testkit.stage import Stage

from tests.builders.policies import policy_file
from tests.stories.scenery import Cloud, judge, pass_time, records, to_the_end
from tests.stories.scenes import the_record

ANY = "budgetPer: {}, perGroup: {max: 9, within: 1h}"


def replacing(budget: int = 1) -> tuple[Stage, Cloud]:
    """Four nodes; the first one's replacement has been asked for."""
    stage = Stage(policy_file(limits=f"cooldown: 0s, brake: 100%, budget: {budget}, {ANY}"))
    for name in stage.nodes(4):
        stage.agent(name)
    stage.run(0)
    stage.fault("node-0")
    cloud = Cloud(stage)
    pass_time(stage, 60, cloud, until=lambda: bool(stage.provider.calls))
    return stage, cloud


def test_a_group_that_is_scaled_in_during_a_replacement_is_complete_with_what_it_wants_now() -> None:
    stage, cloud = replacing()
    group = stage.provider.groups["workers"]
    group.desired -= 1
    group.in_service.remove("m-3")
    stage.delete_node("node-3")
    stage.kill(stage.actors["agent of node-3"])
    to_the_end(stage, cloud)
    judge(stage, faulty=["node-0"])
    assert records(stage) == {"node-0": "recovered"}


def scaled_in_by(stage: Stage, *nodes: str) -> None:
    """The group wants one machine fewer, and terminates these."""
    group = stage.provider.groups["workers"]
    group.desired -= 1
    for node in nodes:
        group.in_service.remove(node.replace("node", "m"))
        stage.kill(stage.actors[f"agent of {node}"])
        stage.delete_node(node)


def test_where_the_group_is_scaled_in_by_the_broken_machine_nothing_takes_its_place() -> None:
    stage, _ = replacing()
    scaled_in_by(stage, "node-0")
    to_the_end(stage, limit=900)
    judge(stage, faulty=["node-0"])
    assert records(stage) == {"node-0": "recovered"}
    assert the_record(stage).sentence == "proved: m-0 is gone from group workers; nothing takes its place"


class ByNumber(Cloud):
    """A group that launches one where it has fewer than it wants."""

    def _in_its_place(self, group: str, now: float) -> None:
        found = self.stage.provider.groups[group]
        if len(found.in_service) < found.desired:
            super()._in_its_place(group, now)


@pytest.mark.parametrize("ended", ["node-0", "node-3"], ids=["the broken one", "another"])
def test_a_group_that_had_one_too_many_when_it_was_asked_launches_none_in_its_place(ended: str) -> None:
    """Somebody had lowered the number, and the group had ended none yet."""
    stage = Stage(policy_file(limits=f"cooldown: 0s, brake: 100%, budget: 1, {ANY}"))
    for name in stage.nodes(4):
        stage.agent(name)
    stage.run(0)
    group = stage.provider.groups["workers"]
    group.desired -= 1
    stage.fault("node-0")
    cloud = ByNumber(stage)
    pass_time(stage, 60, cloud, until=lambda: bool(stage.provider.calls))
    if ended != "node-0":
        group.in_service.remove("m-3")
        stage.kill(stage.actors["agent of node-3"])
        stage.delete_node("node-3")
    to_the_end(stage, cloud, limit=900)
    judge(stage, faulty=["node-0"])
    assert records(stage) == {"node-0": "recovered"}
    nothing = the_record(stage).sentence.endswith("nothing takes its place")
    assert nothing is (ended == "node-0")


def test_of_two_machines_in_a_group_that_is_scaled_in_by_one_only_one_gets_a_replacement() -> None:
    stage, cloud = replacing(budget=2)
    stage.fault("node-1")
    pass_time(stage, 600, until=lambda: len(stage.provider.calls) == 2)
    scaled_in_by(stage, "node-0", "node-1")
    stage.provider.groups["workers"].in_service.append("m-100")
    cloud._joining = [(stage.clock.monotonic(), "workers", "m-100")]
    to_the_end(stage, cloud, limit=1800)
    judge(stage, faulty=["node-0", "node-1"], budget={"fleet": 2})
    assert records(stage) == {"node-0": "recovered", "node-1": "recovered"}
    assert {the_record(stage, node).replacement_machine for node in ("node-0", "node-1")} == {"m-100", ""}


def test_a_group_that_is_scaled_out_meanwhile_keeps_nobody_waiting() -> None:
    stage, cloud = replacing()
    stage.provider.groups["workers"].desired += 3
    to_the_end(stage, cloud)
    judge(stage, faulty=["node-0"])
    assert records(stage) == {"node-0": "recovered"}


def test_a_machine_that_the_group_may_remove_again_is_not_claimed() -> None:
    stage, cloud = replacing()
    group = stage.provider.groups["workers"]
    pass_time(stage, 60, cloud, until=lambda: "m-100" in group.in_service, step=1.0)
    group.in_service.append("m-101")
    group.provisional |= {"m-100", "m-101"}
    pass_time(stage, 300)  # until a peer has taken over from the agent that went with its machine
    assert stage.gate().claimed == ()
    group.in_service.remove("m-100")
    cloud._joining = [(stage.clock.monotonic(), "workers", "m-101")]
    stage.provider.settle("workers")
    to_the_end(stage, cloud)
    judge(stage, faulty=["node-0"])
    assert records(stage) == {"node-0": "recovered"}
    record = stage.record("node-0")
    assert record is not None
    assert record.replacement_machine == "m-101"
