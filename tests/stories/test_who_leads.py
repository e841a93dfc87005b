"""A replica that leads the fleet and cannot look after it: another one does, or people are told (law 6)."""

from __future__ import annotations

from recovery_testkit.kubefaults import Asked, lost_request, refused
from recovery_testkit.stage import Stage

from recovery.model import Phase
from tests.builders.policies import policy_file
from tests.stories.scenes import NODES, calls, controller, phase, ready, value

DEAD = policy_file("{do: drain}, {do: replace}", match="type: Ready")
ALWAYS = 10**6


def replicas(count: int = 2) -> Stage:
    """The first one leads."""
    s = Stage(DEAD)
    s.nodes(4)
    for i in range(count):
        s.fleet(f"controller-{i}" if i else "controller")
        s.run(5)
    assert controller(s).replica.leader.leads
    return s


def blinded(s: Stage) -> None:
    """The one that leads can neither list nor watch the Nodes any more."""
    s.api.fail_next(
        lambda asked: asked.user_agent == "controller" and asked.path.startswith(NODES),
        lost_request,
        times=ALWAYS,
    )


def no_leases(asked: Asked) -> bool:
    return asked.path.endswith("/leases/node-recovery-fleet")


def test_a_leader_that_does_not_see_the_nodes_leaves_them_to_one_that_does() -> None:
    s = replicas()
    blinded(s)
    ready(s, "node-0", "False")
    s.run(240, step=1)
    assert phase(s) is Phase.RECOVERING
    assert calls(s) == [("replace", "m-0")]


def test_a_replica_that_does_not_see_the_nodes_does_not_stand_for_election_until_it_does() -> None:
    s = replicas(1)
    blinded(s)
    s.run(240, step=1)
    assert not controller(s).replica.leader.leads
    s.api.heal()
    s.run(35, step=1)
    assert controller(s).replica.leader.leads
    ready(s, "node-0", "False")
    s.run(10, step=1)
    assert calls(s) == [("replace", "m-0")]


def test_a_leader_whose_watch_is_away_for_a_moment_goes_on_to_lead() -> None:
    s = replicas()
    blinded(s)
    s.run(100, step=1)
    s.api.heal()
    s.run(100, step=1)
    assert controller(s).replica.leader.leads


def test_errors_of_a_watch_are_counted() -> None:
    s = replicas(1)
    blinded(s)
    s.run(60, step=1)
    assert value(controller(s), "node_recovery_errors_total", kind="api") > 2


def test_that_no_replica_may_lead_is_counted_and_no_look_at_the_fleet_is_claimed() -> None:
    """Nothing is done for any node then: no other metric would show it."""
    s = Stage(DEAD)
    s.nodes(2)
    s.api.fail_next(no_leases, refused(403, "Forbidden", "leases is forbidden"), times=ALWAYS)
    replica = s.fleet("controller").replica
    s.run(30)
    assert "403 leases is forbidden" in replica.refused
    assert value(controller(s), "node_recovery_errors_total", kind="api") > 10
    s.api.heal()
    s.run(5)
    assert replica.refused == ""
    assert replica.leader.leads
