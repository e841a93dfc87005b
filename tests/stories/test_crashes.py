"""``kill -9`` at every boundary of a whole recovery, right before it and right after it.

The list of boundaries is not written down anywhere: it is made by recording every write to the API server and
every changing call to the provider in a clean run.
"""

from __future__ import annotations

import functools

import pytest
from recovery_testkit.stage import Page, Stage

from recovery.decide.situation import Role
from recovery.store.lease import lease_name
from tests.stories.scenery import Cloud, Reaper, judge, pass_time, reboot, records, to_the_end
from tests.stories.scenes import new_process

VICTIM = "agent of node-0"
OWNER = VICTIM.__eq__
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


def peer(actor: str) -> bool:
    return actor not in ("", VICTIM)


def begin(hunts: object = OWNER, at: int | None = None, side: str = "") -> tuple[Stage, Cloud, Reaper]:
    """Three nodes with a pod on the first, which then faults."""
    stage = Stage()
    reaper = Reaper(stage, hunts, at, side)  # type: ignore[arg-type]
    for name in stage.nodes(3):
        stage.agent(name)
    stage.run(0)
    stage.add_pod("train-0", "node-0")
    stage.fault("node-0")
    return stage, Cloud(stage), reaper


@functools.cache
def boundaries(whose: str) -> tuple[str, ...]:
    stage, cloud, reaper = begin(OWNER if whose == "owner" else peer)
    to_the_end(stage, cloud)
    judge(stage, faulty=["node-0"])
    assert records(stage) == {"node-0": "recovered"}
    assert len(stage.provider.calls) == 1
    return tuple(reaper.seen)


def points(whose: str) -> list[str]:
    """Right after one boundary is right before the next: a killed process leaves the same world."""
    return ["0 before", *(f"{n} after" for n in range(len(boundaries(whose))))]


OWNERS = points("owner")
PEERS = points("peer")


def killed(hunts: object, point: str) -> tuple[Stage, Cloud]:
    """The story up to the kill."""
    at, side = point.split()
    stage, cloud, reaper = begin(hunts, int(at), side)
    pass_time(stage, 900, cloud, until=lambda: reaper.fired)
    assert reaper.fired
    return stage, cloud


def there(stage: Stage, node: str) -> bool:
    return stage.store.request("GET", f"/api/v1/nodes/{node}").status == 200


def test_the_clean_run_has_a_boundary_for_each_kind_of_write() -> None:
    kinds = {b.split("/")[-1] if b.endswith("eviction") else b for b in boundaries("owner")}
    assert "call" in kinds
    assert {b.split()[0] for b in kinds} >= {"POST", "PUT", "PATCH", "call", "eviction"}
    assert len(boundaries("owner")) >= 15
    assert len(boundaries("peer")) >= 8


@pytest.mark.parametrize("point", OWNERS)
def test_an_agent_killed_and_restarted_at_once_in_its_pod_recovers_its_node_with_one_call(point: str) -> None:
    stage, cloud = killed(OWNER, point)
    stage.agent("node-0", name="agent of node-0, again", alone=True)
    to_the_end(stage, cloud)
    judge(stage, faulty=["node-0"])
    assert records(stage) == {"node-0": "recovered"}
    assert len(stage.provider.calls) == 1


@pytest.mark.parametrize("point", OWNERS)
def test_an_agent_restarted_after_two_minutes_in_a_new_pod_recovers_its_node_with_one_call(
    point: str,
) -> None:
    stage, cloud = killed(OWNER, point)
    pass_time(stage, 120, cloud)
    if there(stage, "node-0"):
        stage.agent("node-0", name="agent of node-0, again", place="a new pod")
    to_the_end(stage, cloud)
    judge(stage, faulty=["node-0"])
    assert records(stage) == {"node-0": "recovered"}
    assert len(stage.provider.calls) == 1


@pytest.mark.parametrize("point", OWNERS)
def test_what_an_agent_that_never_comes_back_left_open_is_ended_by_others(point: str) -> None:
    stage, cloud = killed(OWNER, point)
    stage.concluder()
    noticed = "node-0" in records(stage)
    to_the_end(stage, cloud, limit=3600 if noticed else 60)
    judge(stage, faulty=["node-0"] if noticed else [])
    called = bool(stage.provider.calls)
    assert records(stage) == ({"node-0": "recovered" if called else "handedOver"} if noticed else {})


@pytest.mark.parametrize("point", PEERS)
def test_what_a_concluding_peer_that_is_killed_left_open_is_ended_by_another(point: str) -> None:
    stage, cloud = killed(peer, point)
    to_the_end(stage, cloud)
    judge(stage, faulty=["node-0"])
    assert records(stage) == {"node-0": "recovered"}
    assert len(stage.provider.calls) == 1


def concluding(stage: Stage) -> str:
    """The node whose agent works on the record of node-0, where that is a peer."""
    lease = stage.store.request("GET", f"{LEASES}/{lease_name('node-0')}").body
    role, node, *_ = lease["spec"]["holderIdentity"].split("/")
    return str(node) if role == Role.CONCLUDER.value else ""


def test_a_peer_that_is_killed_every_half_minute_does_not_keep_a_dead_agents_record_from_the_others() -> None:
    stage, cloud = killed(OWNER, f"{boundaries('owner').index('call')} before")
    pass_time(stage, 900, cloud, until=lambda: concluding(stage) != "")
    restless = concluding(stage)
    for _ in range(12):
        new_process(stage, restless)
        pass_time(stage, 30, cloud)
    assert concluding(stage) not in ("", restless)


BEFORE_THE_CALL = [p for p in OWNERS if int(p.split()[0]) < boundaries("owner").index("call") - 1]


@pytest.mark.parametrize("point", BEFORE_THE_CALL)
def test_a_machine_that_is_rebooted_after_the_kill_keeps_neither_cordon_nor_taint(point: str) -> None:
    stage, cloud = killed(OWNER, point)
    stage.pages["node-0"] = Page()
    reboot(stage, "node-0")
    stage.agent("node-0", name="agent of node-0, again", alone=True)
    to_the_end(stage, cloud, limit=900)
    judge(stage)
    assert records(stage) in ({"node-0": "withdrawn"}, {})
    node = stage.node("node-0")
    assert not node["spec"].get("taints")
    assert not node["spec"].get("unschedulable")
    assert not stage.provider.calls
