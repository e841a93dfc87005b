"""A replacement of two steps: a scale set wants one machine less once one is deleted, and has to be told."""

from __future__ import annotations

from dataclasses import replace

import pytest
from recovery_testkit.stage import Stage

from recovery.errors import Refused, Retry
from recovery.model import Machine, Preflight, Step
from tests.builders.policies import policy_file
from tests.stories.scenery import Cloud, judge, pass_time, records, slots, to_the_end
from tests.stories.scenes import pause


class ScaleSet(Cloud):
    """Deletes what it is asked to, and launches only what it wants."""

    def act(self) -> None:
        super().act()
        now = self.stage.clock.monotonic()
        for group in self.stage.provider.groups.values():
            while len(group.in_service) < group.desired:
                super()._in_its_place(group.name, now)

    def _in_its_place(self, group: str, now: float) -> None:
        """Not by itself."""


def scale_set(limits: str = "cooldown: 0s", faulty: int = 1) -> tuple[Stage, ScaleSet]:
    """Three nodes with agents, of which the first ones are about to be found faulty."""
    stage = Stage(policy_file(limits=limits))
    for name in stage.nodes(3):
        stage.agent(name)
    stage.provider.groups["workers"].shrinks = True
    stage.run(0)
    for number in range(faulty):
        stage.fault(f"node-{number}")
    return stage, ScaleSet(stage)


def wanted(stage: Stage) -> int:
    return stage.provider.groups["workers"].desired


def test_a_peer_has_the_group_want_as_many_as_before_once_the_machine_is_gone_with_its_agent() -> None:
    stage, cloud = scale_set()
    to_the_end(stage, cloud)
    judge(stage, faulty=["node-0"])
    assert records(stage) == {"node-0": "recovered"}
    assert (wanted(stage), len(stage.provider.calls), set(stage.provider.finished)) == (3, 1, {"m-0"})


def test_while_a_machine_of_it_is_out_no_other_of_the_group_is_replaced() -> None:
    """Each would remember how many the group wanted while the other was missing."""
    stage, cloud = scale_set("cooldown: 0s, budget: 2, budgetPer: {}, brake: 100%, brakePer: {}", faulty=2)
    pass_time(stage, 60, cloud, until=lambda: stage.provider.finished)
    assert len(stage.provider.calls) == 1
    said = [x for actor in stage.actors.values() for x in actor.sentences]
    assert any("which replaces one machine at a time" in x for x in said)
    to_the_end(stage, cloud)
    judge(stage, budget={"fleet": 2}, faulty=["node-0", "node-1"])
    assert (wanted(stage), len(stage.provider.calls)) == (3, 2)


def test_a_second_step_that_is_refused_is_a_persons() -> None:
    stage, cloud = scale_set()
    stage.provider.finish_error = Refused("the role lacks virtualMachineScaleSets/write")
    to_the_end(stage, cloud)
    judge(stage, faulty=["node-0"])
    record = stage.record("node-0")
    assert record is not None
    assert records(stage) == {"node-0": "handedOver"}
    assert "the role lacks virtualMachineScaleSets/write" in record.sentence
    assert ("HandedOver", record.sentence) in stage.events("node-0")
    assert "refused" in [m.dimensions.get("Outcome") for m in stage.told.metrics]


def test_a_second_step_that_meets_an_error_is_done_later() -> None:
    stage, cloud = scale_set()
    stage.provider.finish_error = Retry("throttled")
    pass_time(stage, 180, cloud)
    assert wanted(stage) == 2
    stage.provider.finish_error = None
    to_the_end(stage, cloud)
    judge(stage, faulty=["node-0"])
    assert (records(stage), wanted(stage)) == ({"node-0": "recovered"}, 3)


def test_a_pause_does_not_keep_the_group_short() -> None:
    stage, cloud = scale_set()
    pass_time(stage, 60, cloud, until=lambda: stage.provider.calls)
    pause(stage)
    to_the_end(stage, cloud)
    assert (records(stage), wanted(stage)) == ({"node-0": "recovered"}, 3)


def test_somebody_elses_operation_is_waited_for_until_the_steps_deadline_and_no_longer() -> None:
    stage, cloud = scale_set()
    asked = stage.provider.preflight

    def busy(machine: Machine, action: Step) -> Preflight:
        begun = records(stage) == {"node-0": "recovering"}
        return replace(asked(machine, action), not_yet="m-0 is Updating" if begun else "")

    stage.provider.preflight = busy  # type: ignore[method-assign]
    to_the_end(stage, cloud)
    judge(stage, faulty=["node-0"])
    record = stage.record("node-0")
    assert record is not None
    assert "replace could not be asked for within 30 min: m-0 is Updating" in record.sentence
    assert (records(stage), stage.provider.calls) == ({"node-0": "handedOver"}, [])


def test_a_second_step_that_shows_late_is_asked_for_ever_more_seldom() -> None:
    stage, cloud = scale_set()
    stage.provider.groups["workers"].slow = True
    pass_time(stage, 120, cloud, step=1.0, until=lambda: bool(stage.provider.finished))
    pass_time(stage, 300, cloud, step=1.0)
    assert 5 <= len(stage.provider.finished) <= 8, "after 15, 30 and then 60 s"
    stage.provider.settle("workers")
    stage.provider.groups["workers"].slow = False
    to_the_end(stage, cloud)
    judge(stage, faulty=["node-0"])
    assert (records(stage), wanted(stage)) == ({"node-0": "recovered"}, 3)


@pytest.mark.parametrize("how", ["put off each time", "accepted each time, and nothing comes of it"])
def test_a_second_step_that_is_never_done_is_a_persons_once_its_deadline_has_passed(how: str) -> None:
    stage, cloud = scale_set("cooldown: 0s, budget: 1, budgetPer: {}, brake: 100%, brakePer: {}", faulty=2)
    if how == "put off each time":
        stage.provider.finish_error = Retry("the capacity is not yet possible: the quota is exceeded (409)")
    else:
        stage.provider.groups["workers"].slow = True
    pass_time(stage, 4 * 3600, cloud, step=10.0)  # ``within`` of replace is 30 min
    assert records(stage)["node-0"] == "handedOver"
    assert "node-0" not in slots(stage)
