"""A new machine was claimed as a replacement and died before it joined. Its group launched another one."""

from __future__ import annotations

from typing import Any

import pytest
from recovery_testkit.stage import Killed, Stage

from recovery.model import Phase
from tests.builders.policies import policy_file
from tests.stories.scenery import Cloud, judge, pass_time, records, to_the_end
from tests.stories.scenes import calls, the_record

TWO = policy_file(
    limits="cooldown: 0s, brake: 100%, budget: 2, budgetPer: {}, perGroup: {max: 9, within: 1h}"
)


class Stillborn(Cloud):
    """A group of which the first ``deaths`` new machines die in service, before they join."""

    deaths = 1

    def _join(self, group: str, machine: str) -> None:
        if self.deaths:
            self.deaths -= 1
            self._end(group, machine, self.stage.clock.monotonic())
        else:
            super()._join(group, machine)


def stage(*faulty: str) -> tuple[Stage, Stillborn]:
    s = Stage(TWO)
    for name in s.nodes(5):
        s.agent(name)
    s.run(0)
    for node in faulty:
        s.fault(node)
    return s, Stillborn(s, joins_after=200.0)


def test_the_one_that_its_group_launched_instead_is_claimed_and_proved() -> None:
    s, cloud = stage("node-0")
    to_the_end(s, cloud)
    assert (records(s), calls(s)) == ({"node-0": "recovered"}, [("replace", "m-0")])
    assert (the_record(s).replacement_machine, the_record(s).starts[-1].replacement) == ("m-101", "m-101")
    judge(s, faulty=["node-0"])


def test_so_it_is_where_that_one_dies_as_well() -> None:
    s, cloud = stage("node-0")
    cloud.deaths = 2
    to_the_end(s, cloud)
    assert (records(s), the_record(s).replacement_machine) == ({"node-0": "recovered"}, "m-102")
    judge(s, faulty=["node-0"])


def test_two_recoveries_never_claim_the_same_machine() -> None:
    s, cloud = stage("node-0", "node-1")
    cloud.deaths = 2
    to_the_end(s, cloud)
    assert records(s) == {"node-0": "recovered", "node-1": "recovered"}
    assert {the_record(s, n).replacement_machine for n in ("node-0", "node-1")} == {"m-102", "m-103"}
    judge(s, faulty=["node-0", "node-1"], budget={"fleet": 2})


def test_where_who_claimed_it_was_killed_before_it_wrote_that_down_the_next_one_does() -> None:
    s, cloud = stage("node-0")
    killed = []

    def to_write_it_down(asked: Any) -> bool:
        if asked.method != "PUT" or not asked.path.endswith("/noderecoveries/node-0"):
            return False
        proving = the_record(s).phase is Phase.PROVING
        return proving and any(c.machine == "m-101" for c in s.gate().claimed)

    def die(asked: Any, go: Any) -> Any:
        killed.append(asked.user_agent)
        raise Killed

    s.api.fail_next(to_write_it_down, die)
    to_the_end(s, cloud)
    assert (len(killed), records(s)) == (1, {"node-0": "recovered"})
    assert the_record(s).replacement_machine == "m-101"
    judge(s, faulty=["node-0"])


@pytest.mark.parametrize("listed", [True, False], ids=["it is in service", "answers lack it for a moment"])
def test_a_machine_that_only_takes_long_to_join_is_waited_for(listed: bool) -> None:
    """Its group has another new one, by which it was scaled out."""
    s, cloud = stage("node-0")
    cloud.deaths, cloud.joins_after = 0, 300.0
    s.run(3)
    pass_time(s, 200, cloud, until=lambda: the_record(s).replacement_machine == "m-100")
    group = s.provider.groups["workers"]
    group.desired += 1
    s.provider.launch("workers", "m-9")
    pass_time(s, 130, cloud)
    if not listed:
        group.in_service.remove("m-100")
        group.desired -= 1
        pass_time(s, 45, cloud)
        group.in_service.append("m-100")
        group.desired += 1
    to_the_end(s, cloud)
    assert (records(s), the_record(s).replacement_machine) == ({"node-0": "recovered"}, "m-100")
