"""Many nodes at once: what they ask of the API server grows with what is done, and not with who waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from recovery_testkit.kubefaults import Asked, lost_request
from recovery_testkit.stage import Actor, Stage

from recovery.agent import fetch
from recovery.agent.pace import WATCHED
from recovery.store.lease import lease_name
from tests.builders.objects import budget_object, gate_object
from tests.builders.policies import policy_file
from tests.stories.scenery import GATE, Cloud, change_gate, pass_time, records, sentences, slots
from tests.stories.scenes import cast, pause, stubborn_pod

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
NODES = "/api/v1/nodes"
ROOM = "cooldown: 0s, budgetPer: {}, brake: 100%, brakePer: {}, perGroup: {max: 50, within: 6h}"


def crowd(count: int, limits: str, remedy: str = "") -> Stage:
    """Nodes with their agents."""
    return cast(policy_file(remedy, limits), count, agents=count)


def faults(stage: Stage, count: int, apart: float = 0.2) -> None:
    """The first nodes become faulty, one after the other, so that their agents are out of step."""
    for number in range(count):
        stage.fault(f"node-{number}")
        stage.run(apart, step=apart)


def asked_from_now(stage: Stage, wanted: Callable[[Asked], bool]) -> list[Asked]:
    """Collects the requests for which ``wanted`` is true."""
    seen: list[Asked] = []

    def look(asked: Asked) -> bool:
        if wanted(asked):
            seen.append(asked)
        return False

    stage.api.fail_next(look, lost_request)
    return seen


def lists_of_nodes(asked: Asked) -> bool:
    return (asked.method, asked.path) == ("GET", NODES)


def looks_at_leases(asked: Asked) -> bool:
    return asked.method == "GET" and asked.path.startswith(LEASES)


# ---------------------------------------------------------------- counting


def test_under_the_brake_all_say_so_and_only_the_first_in_the_queue_counts_the_fleet() -> None:
    stage = crowd(20, "cooldown: 0s, budget: 1, budgetPer: {}, brake: 1, brakePer: {}")
    faults(stage, 12)
    stage.run(20)
    counts = asked_from_now(stage, lists_of_nodes)
    stage.run(30)
    assert all("the brake is on: 12 of 20" in sentences(stage, f"node-{n}")[-1] for n in range(12))
    assert {asked.user_agent for asked in counts} == {f"agent of {stage.gate().open[0].node}"}
    assert slots(stage) == []


def test_of_many_drains_at_once_one_agent_counts_for_all() -> None:
    stage = crowd(12, f"{ROOM}, budget: 12", remedy="{do: drain, within: 30m, then: handOver}")
    for number in range(12):
        stage.add_pod(f"busy-{number}", f"node-{number}", app="busy")
    stage.store.load(budget_object("busy", app="busy", maxUnavailable=0))
    faults(stage, 12)
    stage.run(15)
    assert len(slots(stage)) == 12
    counts = asked_from_now(stage, lists_of_nodes)
    stage.run(120, step=2)
    assert 5 <= len(counts) <= 18, "12 agents, for two minutes, count together about every 10 s"


# ---------------------------------------------------------------- watching others


def test_who_waits_for_a_slot_looks_after_those_that_have_one_and_not_after_those_that_wait() -> None:
    stage = crowd(8, f"{ROOM}, budget: 1", remedy="{do: drain, within: 30m, then: handOver}")
    stubborn_pod(stage)
    faults(stage, 8)
    stage.run(8)
    out, *_ = slots(stage)
    looks = asked_from_now(stage, looks_at_leases)
    stage.run(20)
    others = [a for a in looks if a.path != f"{LEASES}/{lease_name(a.user_agent.split()[-1])}"]
    assert {asked.path for asked in others} == {f"{LEASES}/{lease_name(out)}"}
    assert len({asked.user_agent for asked in others}) == 7
    assert len(others) <= 7 * 11, "every two seconds"


def test_who_is_further_back_in_the_queue_looks_less_often_and_leaves_the_others_to_the_first_ten() -> None:
    stage = queued(20, ROOM, budget=1)
    looks = asked_from_now(stage, lambda a: (a.method, a.path) == ("GET", GATE))
    leases = asked_from_now(stage, lambda a: looks_at_leases(a) and a.path.endswith(lease_name("other-0")))
    stage.run(40)
    often = Counter(asked.user_agent for asked in looks)
    assert often["agent of node-0"] > 20
    assert often["agent of node-19"] < 10
    after = Counter(asked.user_agent for asked in leases)  # each of the others once a minute
    assert {agent for agent, times in after.items() if times > 1} == {f"agent of node-{n}" for n in range(10)}


def test_a_new_machine_is_looked_for_the_less_often_the_more_nodes_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Five nodes stand for five thousand: a look through all of them is worth ten seconds."""
    monkeypatch.setattr(fetch, "NODES_A_SECOND", 0.5)
    stage = crowd(6, ROOM)
    cloud = Cloud(stage, joins_after=600.0)
    stage.fault("node-0")
    pass_time(stage, 200, cloud, until=lambda: records(stage) == {"node-0": "proving"})
    looks = asked_from_now(stage, lists_of_nodes)
    stage.run(60)
    assert 5 <= len(looks) <= 6
    pass_time(stage, 900, cloud, until=lambda: records(stage) == {"node-0": "recovered"})
    assert records(stage) == {"node-0": "recovered"}


def has_an_agent(stage: Stage, node: str) -> None:
    """A Lease that is not taken for stale before the story ends."""
    stage.store.load(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": lease_name(node), "namespace": "default"},
            "spec": {"holderIdentity": f"owner/{node}/pod/x", "leaseDurationSeconds": 2_000_000_000},
        }
    )


def queue_of(stage: Stage, count: int) -> None:
    """So many others are on the gate, their agents alive."""
    lines = [
        {"node": f"other-{n}", "recordUID": f"uid-{n}", "since": "2026-11-21T03:00:00.000000Z"}
        for n in range(count)
    ]
    change_gate(stage, lambda gate: gate["status"]["open"].extend(lines))
    for n in range(count):
        has_an_agent(stage, f"other-{n}")


def watched(stage: Stage, actor: Actor, times: int) -> list[Counter[str]]:
    """Whose Leases were asked for, in each of so many sweeps."""
    found = []
    for _ in range(times):
        looks = asked_from_now(stage, looks_at_leases)
        stage.clock.advance(100)
        actor.sweeper.sweep()
        stage.api.heal()
        found.append(Counter(asked.path for asked in looks))
    return found


def a_gate(stage: Stage) -> None:
    stage.store.load(gate_object(version=1, open=[], slots=[]))
    uid = stage.store.request("GET", GATE).body["metadata"]["uid"]
    change_gate(stage, lambda gate: gate["status"].update(stamp=uid))


def test_an_agent_watches_ten_of_three_hundred_open_records_and_in_time_all_of_them() -> None:
    stage = Stage()
    agent = stage.agent(stage.nodes(1)[0])
    a_gate(stage)
    queue_of(stage, 300)
    sweeps = watched(stage, agent, 600)
    assert {len(each) for each in sweeps} == {WATCHED}
    again = sum(set(a) == set(b) for a, b in pairwise(sweeps))
    assert again >= len(sweeps) / 3, "the same ones twice in a row: that is how a silent Lease is seen"
    assert len(set().union(*sweeps)) == 300


def test_whose_record_an_agent_concludes_it_watches_until_the_end() -> None:
    stage = crowd(2, f"{ROOM}, budget: 1", remedy="{do: drain, within: 1m, then: handOver}")
    stubborn_pod(stage, "node-1")
    stage.fault("node-1")
    stage.run(8)
    assert slots(stage) == ["node-1"]
    stage.kill(stage.actors["agent of node-1"])
    stage.run(200, step=5)
    queue_of(stage, 300)
    stage.run(15 * 60, step=5)
    assert records(stage) == {"node-1": "handedOver"}


def test_a_concluder_watches_all_open_records() -> None:
    stage = Stage()
    stage.nodes(1)
    concluder = stage.concluder()
    a_gate(stage)
    queue_of(stage, 300)
    assert [len(each) for each in watched(stage, concluder, 2)] == [300, 300]


# ---------------------------------------------------------------- taking slots


def slot_of(node: str) -> dict[str, Any]:
    since = "2026-11-21T03:00:00.000000Z"
    return {"node": node, "recordUID": f"uid-{node}", "attempt": 1, "scopes": ["fleet"], "since": since}


def queued(count: int, limits: str, budget: int) -> Stage:
    """So many wait in the queue, node-0 first, while others have all slots; the last one acts first."""
    stage = crowd(count, f"{limits}, budget: {budget}")
    a_gate(stage)
    for number in range(budget):
        has_an_agent(stage, f"other-{number}")
    others = [slot_of(f"other-{number}") for number in range(budget)]
    change_gate(stage, lambda gate: gate["status"].update(slots=others))
    faults(stage, count, apart=1.5)
    assert [line.node for line in stage.gate().open] == [f"node-{n}" for n in range(count)]
    stage.actors = dict(reversed(stage.actors.items()))
    return stage


def all_come_back(stage: Stage) -> None:
    change_gate(stage, lambda gate: gate["status"].update(slots=[]))


def started(stage: Stage) -> list[str]:
    return [start.node for start in stage.gate().starts]


def test_a_queue_that_moves_slowly_is_passed_by_nobody() -> None:
    stage = queued(8, ROOM.replace("cooldown: 0s", "cooldown: 1ms"), budget=8)
    all_come_back(stage)
    stage.run(60, step=5)
    assert started(stage) == [f"node-{n}" for n in range(8)]


def test_one_at_the_head_whose_agent_is_dead_is_passed_after_a_few_seconds() -> None:
    stage = queued(3, ROOM, budget=1)
    stage.kill(stage.actors["agent of node-0"])
    all_come_back(stage)
    stage.run(3)
    assert started(stage) == []
    stage.run(3)
    assert len(started(stage)) == 1


def test_one_that_is_dead_is_passed_too_when_it_comes_to_the_head_later() -> None:
    stage = queued(3, ROOM, budget=2)
    stage.kill(stage.actors["agent of node-1"])
    all_come_back(stage)
    stage.run(10)
    assert started(stage) == ["node-0", "node-2"]


def test_the_first_in_the_queue_has_its_seconds_each_time_that_a_slot_is_free() -> None:
    stage = queued(3, ROOM, budget=1)
    stage.kill(stage.actors["agent of node-0"])
    others = stage.store.request("GET", GATE).body["status"]["slots"]
    all_come_back(stage)
    stage.run(2)
    change_gate(stage, lambda gate: gate["status"].update(slots=others))
    stage.run(30)
    all_come_back(stage)
    stage.run(2.5)
    assert started(stage) == []


def test_where_there_is_room_for_all_the_first_two_do_not_wait_for_each_other() -> None:
    stage = queued(8, ROOM, budget=8)
    all_come_back(stage)
    stage.clock.advance(2)
    stage.turns()
    assert set(started(stage)) == {"node-0", "node-1"}


def quicker(stage: Stage, loser: str, node: str) -> None:
    """Another takes a slot for ``node`` while ``loser`` is about to."""
    has_an_agent(stage, node)

    def takes_one(asked: Asked) -> bool:
        mine = asked.method == "PUT" and asked.path == GATE and asked.user_agent == f"agent of {loser}"
        return mine and any(s["node"] == loser for s in asked.body["status"]["slots"])

    def first(asked: Asked, go: Callable[[], Any]) -> Any:
        change_gate(stage, lambda gate: gate["status"]["slots"].append(slot_of(node)))
        return go()

    stage.api.fail_next(takes_one, first)


def test_of_two_that_take_the_last_slot_at_once_the_second_does_not() -> None:
    stage = crowd(3, f"{ROOM}, budget: 1")
    quicker(stage, "node-0", "node-9")
    stage.fault("node-0")
    stage.run(10)
    assert stage.api.pending == 0
    assert slots(stage) == ["node-9"]
    assert "the budget of the fleet is used up: 1 of 1 may be out (node-9)" in sentences(stage, "node-0")[-1]
    assert records(stage) == {"node-0": "waiting"}


def test_of_two_that_take_a_slot_at_once_the_second_has_the_next_one_without_a_pause() -> None:
    stage = crowd(3, f"{ROOM}, budget: 2")
    quicker(stage, "node-0", "node-9")
    stage.fault("node-0")
    while stage.api.pending:
        stage.run(0)
        stage.clock.advance(0.5)
    assert sorted(slots(stage)) == ["node-0", "node-9"]
    assert (
        "409 Conflict: another agent wrote first; reading it again"
        not in stage.actors["agent of node-0"].sentences
    )


@pytest.mark.parametrize("again", [False, True])
def test_a_gate_deleted_while_a_slot_is_taken_is_rebuilt_before_it_is_taken(again: bool) -> None:
    """``again``: and made anew, empty, by a person."""
    stage = crowd(4, f"{ROOM}, budget: 1", remedy="{do: drain, within: 30m, then: handOver}")
    stubborn_pod(stage)
    stage.fault("node-0")
    stage.run(5)
    assert slots(stage) == ["node-0"]

    def takes_one(asked: Asked) -> bool:
        mine = asked.method == "PUT" and asked.path == GATE and asked.user_agent == "agent of node-1"
        return mine and any(s["node"] == "node-1" for s in asked.body["status"]["slots"])

    def first(asked: Asked, go: Callable[[], Any]) -> Any:
        assert stage.store.request("DELETE", GATE).ok
        if again:
            stage.store.load(gate_object())
        return go()

    stage.api.fail_next(takes_one, first)
    change_gate(stage, lambda gate: gate["status"].update(slots=[]))  # somebody lost node-0's slot
    stage.kill(stage.actors["agent of node-0"])
    stage.fault("node-1")
    stage.run(20)
    assert stage.api.pending == 0
    assert slots(stage) == ["node-0"]


# ---------------------------------------------------------------- a slow API server


def slow_drain(
    seconds: float, meanwhile: Callable[[Stage], None] = lambda _: None
) -> tuple[Stage, list[float]]:
    """Twelve pods of one node, each eviction of which takes so many seconds; and when each was asked for.

    ``meanwhile``: what somebody does during the first one.
    """
    stage = crowd(2, f"{ROOM}, budget: 1")
    for number in range(12):
        stage.add_pod(f"worker-{number}", "node-0")
    asked: list[float] = []

    def slowly(request: Asked, go: Callable[[], Any]) -> Any:
        asked.append(stage.clock.monotonic())
        if len(asked) == 1:
            meanwhile(stage)
        stage.clock.advance(seconds)
        return go()

    stage.api.fail_next(lambda request: request.path.endswith("/eviction"), slowly, times=10**6)
    stage.fault("node-0")
    return stage, asked


def test_a_pause_stops_a_drain_whose_evictions_take_long() -> None:
    stage, asked = slow_drain(3, meanwhile=pause)
    stage.run(60)
    assert len(asked) == 4, "those of the ten seconds that had begun"
    assert "ada paused all recoveries" in sentences(stage, "node-0")[-1]


def test_a_drain_whose_evictions_take_long_renews_its_lease_meanwhile() -> None:
    stage, asked = slow_drain(9)
    at: list[float] = []

    def renewed(request: Asked) -> bool:
        if request.method == "PUT" and request.path.startswith(LEASES):
            at.append(stage.clock.monotonic())
        return False

    stage.api.fail_next(renewed, lost_request)
    stage.run(120)
    assert len(asked) == 12
    gaps = [b - a for a, b in pairwise(at)]
    assert at
    assert max(gaps) < 45, "a Lease is taken for stale after 60 s"


def test_who_renewed_its_lease_a_moment_ago_does_not_ask_whose_it_is() -> None:
    stage = crowd(3, f"{ROOM}, budget: 1", remedy="{do: drain, within: 30m, then: handOver}")
    stubborn_pod(stage)
    stage.fault("node-0")
    stage.run(8)
    looks = asked_from_now(stage, lambda a: looks_at_leases(a) and a.user_agent == "agent of node-0")
    stage.run(60)
    assert len(looks) <= 12, "two with each renewal, of which there are four a minute"


def test_before_a_call_is_made_the_lease_is_read_again() -> None:
    """Somebody else was given the Lease a moment ago."""
    stage = crowd(4, f"{ROOM}, budget: 1")
    robbed: list[str] = []

    def robs(asked: Asked) -> bool:
        """As soon as it is told that the machine is to be replaced, right before it is asked for."""
        if asked.method == "POST" and asked.path.endswith("/events") and asked.body["reason"] == "Replacing":
            path = f"{LEASES}/{lease_name('node-0')}"
            lease = stage.store.request("GET", path).body
            lease["spec"]["holderIdentity"] = "owner/node-0/another/pod"
            assert stage.store.request("PUT", path, body=lease).ok
            robbed.append(path)
        return False

    stage.api.fail_next(robs, lost_request)
    stage.fault("node-0")
    stage.run(15)
    assert robbed
    assert stage.provider.calls == []
    assert records(stage) == {"node-0": "recovering"}


def test_the_brake_speaks_and_alarms_though_the_group_holds_them_all_as_well() -> None:
    """What ends many machines leaves their group short as well. For that it is counted once a minute."""
    s = cast(agents=4)
    s.provider.groups["workers"].desired += 1
    for node in ("node-0", "node-1", "node-2"):
        s.fault(node)
    s.run(15)
    braked = "NeuronHasError_DMA_ERROR: waiting: the brake is on: 3 of 4 nodes in the fleet are sick"
    assert [sentences(s, f"node-{i}")[-1].startswith(braked) for i in range(3)] == [True] * 3
    counts = asked_from_now(s, lists_of_nodes)
    since = {node: len(sentences(s, node)) for node in ("node-0", "node-1", "node-2")}
    s.run(300)
    assert 4 <= len(counts) <= 8
    assert {node: len(sentences(s, node)) for node in since} == since
    assert any(m.name == "RecoveryHeld" and m.dimensions["Reason"] == "brake" for m in s.told.metrics)


def test_a_group_that_is_short_is_the_sentence_while_few_are_sick() -> None:
    s = cast(agents=4)
    s.provider.groups["workers"].desired += 1
    s.fault("node-0")
    s.run(15)
    assert sentences(s)[-1] == "NeuronHasError_DMA_ERROR: waiting: group workers is short by 1"
