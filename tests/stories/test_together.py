"""Many agents, one gate: budgets, brakes, queues and Leases hold through whatever happens to any of them."""

from __future__ import annotations

import functools
import logging
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from recovery_testkit.kubefaults import Asked, Effect, lost_answer, lost_request
from recovery_testkit.stage import Actor, Page, Stage

from recovery.errors import Refused
from recovery.store.lease import lease_name
from tests.builders.objects import budget_object, gate_object
from tests.builders.policies import policy_file
from tests.stories.scenery import (
    GATE,
    GATES,
    RECORDS,
    Cloud,
    Reaper,
    alive,
    change_gate,
    change_node,
    judge,
    pass_time,
    reboot,
    records,
    sentences,
    settled,
    slots,
    to_the_end,
)
from tests.stories.scenes import pause, resume


def fleet(count: int, limits: str = "cooldown: 0s", **more: str) -> tuple[Stage, Cloud]:
    """Nodes of one group with their agents."""
    stage = Stage(policy_file(limits=limits, **more))
    for name in stage.nodes(count):
        stage.agent(name)
    stage.run(0)
    return stage, Cloud(stage)


def busy_pod(stage: Stage, node: str) -> None:
    """A pod that its disruption budget keeps on the node."""
    stage.add_pod(f"busy-{node}", node, app="busy")
    stage.store.load(budget_object(f"busy-{node}", app="busy", minAvailable=1))


def free_pod(stage: Stage, node: str) -> None:
    path = f"/apis/policy/v1/namespaces/default/poddisruptionbudgets/busy-{node}"
    assert stage.store.request("DELETE", path).ok


def writers(stage: Stage, kind: str, since: int = 0) -> set[str]:
    return {w.actor for w in stage.store.history[since:] if kind in w.path}


# ---------------------------------------------------------------- two agents on one node


def two_agents(lie: str = "") -> tuple[Stage, Actor, Actor]:
    """Two agents of node-0, of which the first works: a drain that does not end."""
    stage = Stage(policy_file("{do: drain, within: 60m, then: force}, {do: replace, within: 30m}"))
    stage.nodes(3)
    if lie:
        stage.wrap = lambda transport: _Liar(transport, lie)
    busy_pod(stage, "node-0")
    first = stage.agent("node-0", name="agent 1", place="pod-1")
    second = stage.agent("node-0", name="agent 2", place="pod-2")
    stage.run(0)
    stage.fault("node-0")
    return stage, first, second


class _Liar:
    """A connection on which the Leases' timestamps are changed."""

    def __init__(self, transport: Any, at: str) -> None:
        self._transport, self._at, self._count = transport, at, 0

    def request(self, method: str, path: str, **more: Any) -> Any:
        if method in ("PUT", "POST") and "/leases" in path:
            self._count += 1
            more["body"]["spec"]["renewTime"] = f"{self._at}T00:00:{self._count % 60:02}.000000Z"
        return self._transport.request(method, path, **more)


LIES = ["", "2001-01-01", "2099-01-01"]


@pytest.mark.parametrize("lie", LIES, ids=["true times", "ancient times", "future times"])
def test_of_two_agents_on_a_node_the_second_works_only_once_the_first_was_silent_for_a_minute(
    lie: str,
) -> None:
    stage, first, second = two_agents(lie)
    pass_time(stage, 200, step=1)
    assert writers(stage, "noderecoveries") == {"agent 1"}
    assert "another agent works on this node" in second.sentences[-1]
    stage.kill(first)
    before, killed = len(stage.store.history), stage.clock.monotonic()
    last_renewal = max(w.time for w in stage.store.history if "/leases/" in w.path)
    pass_time(stage, 200, step=1, until=lambda: "agent 2" in writers(stage, "/leases", before))
    taken = next(w.time for w in stage.store.history[before:] if "/leases" in w.path)
    assert taken - last_renewal >= timedelta(seconds=60)
    assert stage.clock.monotonic() - killed <= 70
    free_pod(stage, "node-0")
    pass_time(stage, 30)
    assert len(stage.provider.calls) == 1


def test_an_agent_that_is_restarted_and_only_waits_keeps_its_lease() -> None:
    stage, _ = fleet(3)
    pause(stage)
    stage.fault("node-0")
    pass_time(stage, 5)
    stage.kill(stage.actors["agent of node-0"])
    stage.agent("node-0", name="agent of node-0, again", alone=True)
    pass_time(stage, 2400)
    assert records(stage) == {"node-0": "waiting"}
    assert writers(stage, "/leases") == {"agent of node-0", "agent of node-0, again"}


def test_an_agent_whose_own_lease_answer_was_lost_goes_on_at_once() -> None:
    stage, _ = fleet(3)
    stage.api.fail_next(lambda a: a.method == "POST" and a.path.endswith("/leases"), lost_answer)
    stage.fault("node-0")
    pass_time(stage, 12)
    assert stage.api.pending == 0
    assert len(stage.provider.calls) == 1


def test_a_rolling_upgrade_while_paused_hands_nothing_over() -> None:
    stage, cloud = fleet(3)
    pause(stage)
    stage.fault("node-0")
    pass_time(stage, 3600)
    old = alive(stage, "node-0")
    assert old.agent is not None
    old.agent.stop()
    stage.kill(old)
    pass_time(stage, 90, step=5)
    stage.agent("node-0", name="agent of node-0, upgraded", place="a new pod")
    pass_time(stage, 60)
    assert records(stage) == {"node-0": "waiting"}
    resume(stage)
    to_the_end(stage, cloud)
    judge(stage, faulty=["node-0"])
    assert records(stage) == {"node-0": "recovered"}


# ---------------------------------------------------------------- many at once


def at_once(stage: Stage, nodes: list[str], cloud: Cloud | None = None) -> None:
    """All fault at one moment; their agents, out of step with each other, see it within half a second."""
    seed = 20261121
    print(f"seed {seed}")  # noqa: T201
    chance = random.Random(seed)  # noqa: S311
    for actor in list(stage.actors.values()):
        stage.agent(actor.node, place="started out of step", alone=True)
    for node in nodes:
        stage.fault(node)
    actors, stage.actors = stage.actors, {}
    for name in chance.sample(list(actors), len(actors)):
        stage.actors[name] = actors[name]
        pass_time(stage, 0.45 / len(actors), cloud, step=0.45 / len(actors))


def granted(stage: Stage) -> list[str]:
    """The nodes in the order in which slots were granted."""
    gates = [w.object for w in stage.store.history if w.path.startswith(GATES) and w.verb != "delete"]
    starts = [s["node"] for g in gates for s in g["status"].get("starts", [])[-1:]]
    return [n for i, n in enumerate(starts) if n not in starts[:i]]


def test_twenty_faults_in_half_a_second_start_nothing_above_the_brake() -> None:
    stage, cloud = fleet(20, "cooldown: 0s, budget: 2, budgetPer: {}, brake: 30%")
    at_once(stage, [f"node-{i}" for i in range(20)], cloud)
    pass_time(stage, 30, cloud)
    judge(stage, budget={"fleet": 2}, brake=6, finished=False)
    assert not granted(stage)
    assert not stage.provider.calls
    assert "the brake is on: 20 of 20" in sentences(stage, "node-7")[-1]


def test_eleven_of_twenty_are_more_than_half_and_start_nothing() -> None:
    stage, cloud = fleet(20, "cooldown: 0s, budget: 2, budgetPer: {}, brake: 50%")
    at_once(stage, [f"node-{i}" for i in range(11)], cloud)
    pass_time(stage, 30, cloud)
    assert not granted(stage)


def test_ten_of_twenty_under_a_brake_of_half_are_recovered_two_at_a_time() -> None:
    limits = "cooldown: 0s, budget: 2, budgetPer: {}, brake: 50%, perGroup: {max: 20, within: 6h}"
    stage, cloud = fleet(20, limits)
    faulty = [f"node-{i}" for i in range(10)]
    at_once(stage, faulty, cloud)
    to_the_end(stage, cloud, limit=14400)
    judge(stage, budget={"fleet": 2}, brake=10, faulty=faulty)
    assert set(records(stage).values()) == {"recovered"}
    assert len(stage.provider.calls) == 10


def test_slots_are_granted_in_the_order_of_the_queue() -> None:
    limits = "cooldown: 0s, budget: 1, budgetPer: {}, brake: 50%, perGroup: {max: 20, within: 6h}"
    stage, cloud = fleet(10, limits)
    order = ["node-4", "node-3", "node-2", "node-1", "node-0"]
    for node in order:
        stage.fault(node)
        pass_time(stage, 1.5, cloud)
    to_the_end(stage, cloud, limit=14400)
    judge(stage, brake=5, faulty=order)
    assert granted(stage) == order


def test_a_percentage_budget_rounds_down_and_is_at_least_one() -> None:
    limits = "cooldown: 0s, budget: 12%, budgetPer: {}, brake: 50%, perGroup: {max: 20, within: 6h}"
    for count, most in ((20, 2), (5, 1)):
        stage, cloud = fleet(count, limits)
        for node in ("node-0", "node-1", "node-2"):
            busy_pod(stage, node)
        at_once(stage, ["node-0", "node-1", "node-2"], cloud)
        pass_time(stage, 60, cloud)
        judge(stage, budget={"fleet": most}, finished=False)
        assert len(slots(stage)) == most


def test_a_budget_of_zero_starts_nothing() -> None:
    stage, cloud = fleet(5, "cooldown: 0s, budget: 0")
    stage.fault("node-0")
    pass_time(stage, 120, cloud)
    assert not granted(stage)
    assert "0 of 0 may be out" in sentences(stage, "node-0")[-1]


def test_a_zone_lets_out_one_of_its_nodes_though_the_fleet_would_let_out_two() -> None:
    limits = "cooldown: 0s, budget: 2, budgetPer: {topology.kubernetes.io/zone: 1}, brake: 50%"
    stage, cloud = fleet(6, limits)
    at_once(stage, ["node-0", "node-1"], cloud)
    to_the_end(stage, cloud)
    judge(stage, budget={"fleet": 2, "topology.kubernetes.io/zone=a": 1}, faulty=["node-0", "node-1"])


def test_a_second_start_waits_for_the_cooldown() -> None:
    stage, cloud = fleet(6, "cooldown: 5m, budget: 2, budgetPer: {}, brake: 50%")
    at_once(stage, ["node-0", "node-1"], cloud)
    to_the_end(stage, cloud)
    judge(stage, budget={"fleet": 2}, faulty=["node-0", "node-1"])
    first, second = stage.gate().starts
    assert second.at - first.at >= timedelta(minutes=5)


def test_a_group_has_no_more_starts_than_its_limit() -> None:
    limits = "cooldown: 0s, budget: 1, brake: 50%, perGroup: {max: 2, within: 6h}"
    stage, cloud = fleet(8, limits)
    at_once(stage, ["node-0", "node-1", "node-2"], cloud)
    pass_time(stage, 1200, cloud)
    assert len(granted(stage)) == 2
    last = next(n for n, phase in records(stage).items() if phase == "waiting")
    assert "2 recoveries were started in group workers within 6 h" in sentences(stage, last)[-1]


def test_the_same_fault_on_each_replacement_reaches_a_person_after_three_attempts() -> None:
    limits = "cooldown: 0s, budget: 1, attempts: {max: 3, within: 24h}, perGroup: {max: 20, within: 6h}"
    stage, cloud = fleet(6, limits)
    cloud.fault_of_new = "DMA_ERROR"
    stage.fault("node-0")
    to_the_end(stage, cloud, limit=4 * 3600)
    judge(stage, faulty=["node-0"])
    assert len(stage.provider.calls) == 3
    sentences = [r.sentence for n in records(stage) if (r := stage.record(n))]
    used = "handed over to a person: 3 recoveries of it and its predecessors"
    assert sum(x.startswith(used) for x in sentences) == 1, sentences


# ---------------------------------------------------------------- the gate and the records


def two_out_of_three(stage: Stage, cloud: Cloud) -> None:
    """node-0 is out and stays out; node-1 waits behind it."""
    busy_pod(stage, "node-0")
    stage.fault("node-0")
    pass_time(stage, 5, cloud)
    stage.fault("node-1")
    pass_time(stage, 5, cloud)
    assert slots(stage) == ["node-0"]
    assert records(stage) == {"node-0": "recovering", "node-1": "waiting"}


def delete_gate(stage: Stage) -> None:
    assert stage.store.request("DELETE", GATE).ok


def empty_gate(stage: Stage) -> None:
    delete_gate(stage)
    assert stage.store.request("POST", GATES, body=gate_object(spec={})).ok


def restored_gate(stage: Stage) -> None:
    """A back-up from before anybody was out, put in again."""
    old = next(w.object for w in stage.store.history if w.path == GATES)
    delete_gate(stage)
    metadata = {"name": "fleet"}
    assert stage.store.request("POST", GATES, body={**old, "metadata": metadata}).ok


@pytest.mark.parametrize("harm", [delete_gate, empty_gate, restored_gate], ids=lambda f: f.__name__)
def test_a_gate_that_was_harmed_is_rebuilt_from_the_records_before_anything_is_granted(
    harm: Callable[[Stage], None],
) -> None:
    stage, cloud = fleet(6, "cooldown: 0s, brake: 50%")
    two_out_of_three(stage, cloud)
    harm(stage)
    pass_time(stage, 60, cloud)
    assert slots(stage) == ["node-0"]
    free_pod(stage, "node-0")
    to_the_end(stage, cloud)
    judge(stage, faulty=["node-0", "node-1"])
    assert records(stage) == {"node-0": "recovered", "node-1": "recovered"}


@pytest.mark.parametrize("phase", ["proving", "recovering"])
def test_a_gate_deleted_in_any_phase_loses_no_recovery(phase: str) -> None:
    stage, cloud = fleet(6, "cooldown: 0s, brake: 50%")
    stage.concluder()
    stage.fault("node-0")
    pass_time(stage, 600, cloud, until=lambda: records(stage).get("node-0") == phase)
    delete_gate(stage)
    to_the_end(stage, cloud)
    judge(stage, faulty=["node-0"])
    assert records(stage) == {"node-0": "recovered"}


def test_a_gate_deleted_between_two_replacements_lets_no_machine_count_twice() -> None:
    stage, cloud = fleet(8, "cooldown: 0s, budget: 2, budgetPer: {}, brake: 50%")
    cloud.late["m-1"] = 400
    at_once(stage, ["node-0", "node-1"], cloud)
    pass_time(stage, 300, cloud, until=lambda: records(stage)["node-0"] == "proving")
    assert records(stage) == {"node-0": "proving", "node-1": "recovering"}
    delete_gate(stage)
    to_the_end(stage, cloud)
    judge(stage, budget={"fleet": 2}, faulty=["node-0", "node-1"])
    took = {r.replacement_machine for n in ("node-0", "node-1") if (r := stage.record(n))}
    assert len(took) == 2


def delete_record(stage: Stage, node: str) -> None:
    assert stage.store.request("DELETE", f"{RECORDS}/{node}").ok


@pytest.mark.parametrize("restarted", [False, True], ids=["agent lives on", "agent restarted"])
def test_a_recovery_whose_record_somebody_deleted_stops_and_its_place_is_freed_as_lost(
    restarted: bool,
) -> None:
    stage, cloud = fleet(6, "cooldown: 0s, brake: 50%")
    two_out_of_three(stage, cloud)
    delete_record(stage, "node-0")
    if restarted:
        stage.kill(stage.actors["agent of node-0"])
        stage.agent("node-0", name="agent of node-0, again", alone=True)
    free_pod(stage, "node-0")
    to_the_end(stage, cloud)
    judge(stage, faulty=["node-1"])
    assert records(stage) == {"node-0": "lost", "node-1": "recovered"}
    assert [machine for _, machine, _ in stage.provider.calls] == ["m-1"]


def test_an_agent_whose_record_somebody_deleted_stops_and_does_not_make_it_again() -> None:
    stage, cloud = fleet(3, after="60s")
    stage.fault("node-0")
    pass_time(stage, 20, cloud)
    assert records(stage) == {"node-0": "suspect"}
    delete_record(stage, "node-0")
    pass_time(stage, 180, cloud)
    assert records(stage) == {}
    said = [e for e in stage.store.history if "somebody deleted" in e.object.get("message", "")]
    assert len(said) >= 2  # again every minute: the fault is a person's now


def test_silence_of_the_api_server_is_not_taken_for_the_death_of_an_agent() -> None:
    stage, cloud = fleet(4)
    busy_pod(stage, "node-0")
    stage.fault("node-0")
    pass_time(stage, 120, cloud, step=5)
    leases = alive(stage, "node-1").leases
    assert not leases.look("node-0").stale
    dark(stage, 600, cloud)
    assert not leases.look("node-0").stale


def test_a_place_is_not_freed_when_the_record_was_opened_again_in_between(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A peer saw the record closed, and was stopped before it freed the place."""
    stage, cloud = fleet(6, "cooldown: 0s, brake: 50%")
    busy_pod(stage, "node-0")
    stage.fault("node-0")
    pass_time(stage, 5, cloud)
    path = f"{RECORDS}/node-0"
    record = stage.store.request("GET", path).body
    closed = {**record, "status": {**record["status"], "phase": "withdrawn"}}
    seen = {"n": 0}
    api = stage.api.api

    class Stale:
        """A peer's first look at the record is from another time."""

        def request(self, method: str, asked: str, **more: Any) -> Any:
            answer = api.request(method, asked, **more)
            a_peer = more.get("user_agent") not in ("", None, "agent of node-0")
            if method == "GET" and asked == path and a_peer and not seen["n"]:
                seen["n"] += 1
                return type(answer)(answer.status, answer.headers, closed)
            return answer

    stage.api.api = Stale()  # type: ignore[assignment]
    stage.kill(stage.actors["agent of node-0"])
    caplog.set_level(logging.INFO)
    pass_time(stage, 300, cloud, until=lambda: bool(seen["n"]))
    pass_time(stage, 10, cloud)
    assert seen["n"] == 1
    said = [record.getMessage() for record in caplog.records]
    assert "node-0 (taken over): the record of node-0 is not closed: its slot stays [key=conflict]" in said
    judge(stage, finished=False)
    assert slots(stage) == ["node-0"]


def test_a_place_whose_record_was_made_anew_meanwhile_is_freed_and_said_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage, cloud = fleet(3)
    stage.provider.preflight_error = Refused("m-0 is protected")
    stage.fault("node-0")
    pass_time(stage, 5, cloud)
    assert records(stage) == {"node-0": "handedOver"}
    stage.kill(stage.actors["agent of node-0"])
    left = {"node": "node-0", "recordUID": "of-an-earlier-record", "since": "2026-11-21T03:00:00.000000Z"}
    change_gate(stage, lambda g: g["status"].update(open=[left]))
    caplog.set_level(logging.INFO)
    pass_time(stage, 200, cloud)
    said = [record.getMessage() for record in caplog.records]
    why = "node-0: the record this place belonged to is gone [key=FreeSlot]"
    assert f"node-0 (taken over): {why}" in said
    assert stage.gate().open == ()


# ---------------------------------------------------------------- the API server is gone, or answers are lost


def dark(stage: Stage, seconds: float, cloud: Cloud | None = None) -> None:
    """No request is answered for so long."""
    stage.api.fail_next(lambda _: True, lost_request, times=10**9)
    pass_time(stage, seconds, cloud)
    stage.api.heal()


MOMENTS: dict[str, Callable[[Stage], bool]] = {
    "suspect": lambda s: True,
    "waiting": lambda s: records(s).get("node-0") == "waiting",
    "draining": lambda s: records(s).get("node-0") == "recovering",
    "submitted": lambda s: bool(s.provider.calls),
    "proving": lambda s: records(s).get("node-0") == "proving",
}


@pytest.mark.parametrize("minutes", [10, 20])
@pytest.mark.parametrize("moment", list(MOMENTS))
def test_a_recovery_goes_on_after_the_api_server_was_gone(moment: str, minutes: int) -> None:
    stage, cloud = fleet(4)
    busy_pod(stage, "node-0")
    stage.fault("node-0")
    if moment == "waiting":
        pause(stage)
    if moment in ("submitted", "proving"):
        free_pod(stage, "node-0")
    pass_time(stage, 900, cloud, until=lambda: MOMENTS[moment](stage))
    dark(stage, minutes * 60, cloud)
    if moment == "waiting":
        resume(stage)
    to_the_end(stage, cloud)
    judge(stage, faulty=["node-0"])
    assert records(stage) == {"node-0": "recovered"}
    assert len(stage.provider.calls) == 1


def one_fault() -> tuple[Stage, Cloud]:
    stage, cloud = fleet(3)
    stage.add_pod("train-0", "node-0")
    stage.fault("node-0")
    return stage, cloud


@functools.cache
def writes_of_a_clean_run() -> int:
    stage, cloud = one_fault()
    reaper = Reaper(stage, lambda actor: actor != "")
    for name in ("node-0", "node-1", "node-2"):
        stage.agent(name)
    to_the_end(stage, cloud)
    return sum(x != "call" for x in reaper.seen)


@pytest.mark.parametrize("effect", [lost_answer, lost_request], ids=["answer", "request"])
@pytest.mark.parametrize("n", range(writes_of_a_clean_run()))
def test_a_lost_answer_or_request_at_any_write_changes_no_outcome(n: int, effect: Effect) -> None:
    stage, cloud = one_fault()
    left = [n]

    def the_nth(asked: Asked) -> bool:
        if asked.method == "GET":
            return False
        left[0] -= 1
        return left[0] == -1

    stage.api.fail_next(the_nth, effect)
    to_the_end(stage, cloud)
    if stage.api.pending:  # the last writes are about Leases, after the end
        pass_time(stage, 180, cloud)
    assert stage.api.pending == 0
    judge(stage, faulty=["node-0"])
    assert records(stage) == {"node-0": "recovered"}
    assert len(stage.provider.calls) == 1


# ---------------------------------------------------------------- clocks


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_wall_clock_that_steps_moves_no_timer(hours: int) -> None:
    stage, cloud = fleet(4, after="60s")
    stage.fault("node-0")
    pass_time(stage, 20, cloud, step=0.5)
    stage.clock.step(timedelta(hours=hours))
    pass_time(stage, 39, cloud, step=0.5)
    assert records(stage) == {"node-0": "suspect"}
    pass_time(stage, 3, cloud, step=0.5)
    assert records(stage) == {"node-0": "waiting"}


@pytest.mark.parametrize("seconds", [-31, 31, 3600])
def test_a_clock_that_is_off_by_more_than_half_a_minute_starts_nothing_and_says_so(seconds: int) -> None:
    stage, cloud = fleet(4)
    stage.clock.step(timedelta(seconds=seconds))
    stage.fault("node-0")
    pass_time(stage, 60, cloud)
    assert not granted(stage)
    assert "clock is" in sentences(stage, "node-0")[-1]
    stage.clock.step(timedelta(seconds=-seconds))
    to_the_end(stage, cloud)
    judge(stage, faulty=["node-0"])
    assert records(stage) == {"node-0": "recovered"}


@pytest.mark.parametrize("seconds", [-3600, 3600])
def test_a_clock_that_steps_in_probation_shortens_no_probation(seconds: int) -> None:
    stage, cloud = fleet(4)
    stage.fault("node-0")
    pass_time(stage, 900, cloud, until=lambda: records(stage).get("node-0") == "proving")
    stage.clock.step(timedelta(seconds=seconds))
    began = stage.clock.monotonic()
    to_the_end(stage, cloud)
    assert stage.clock.monotonic() - began >= 110
    judge(stage, faulty=["node-0"])


# ---------------------------------------------------------------- who concludes


def test_the_slot_of_a_machine_that_died_before_any_call_is_freed_by_its_peers() -> None:
    stage, cloud = fleet(6, "cooldown: 0s, brake: 50%")
    two_out_of_three(stage, cloud)
    stage.provider.terminate("workers", "m-0")
    stage.kill(stage.actors["agent of node-0"])
    stage.delete_node("node-0")
    stage.provider.launch("workers", "m-9")
    stage.register("node-9", "m-9")
    to_the_end(stage, cloud)
    judge(stage, faulty=["node-0", "node-1"])
    assert records(stage) == {"node-0": "superseded", "node-1": "recovered"}


def test_a_concluder_alone_proves_what_the_only_sidecar_began() -> None:
    stage = Stage()
    stage.nodes(1)
    stage.agent("node-0")
    stage.concluder()
    stage.fault("node-0")
    stage.run(5)
    assert len(stage.provider.calls) == 1
    stage.replace_machine("node-0", "m-0", "node-9", "m-9")
    to_the_end(stage)
    judge(stage, faulty=["node-0"])
    assert records(stage) == {"node-0": "recovered"}


def test_a_concluder_starts_nothing_on_a_faulty_node_that_has_no_agent() -> None:
    stage, _ = fleet(3)
    stage.concluder()
    busy_pod(stage, "node-0")
    stage.fault("node-0")
    stage.run(5)
    stage.kill(stage.actors["agent of node-0"])
    free_pod(stage, "node-0")
    to_the_end(stage)
    judge(stage, faulty=["node-0"])
    assert records(stage) == {"node-0": "handedOver"}
    assert not stage.provider.calls
    assert not [w for w in stage.store.history if w.verb == "evict"]


def test_an_agent_that_comes_back_takes_its_recovery_from_a_concluder() -> None:
    stage, cloud = fleet(3)
    stage.concluder()
    busy_pod(stage, "node-0")
    stage.fault("node-0")
    stage.run(5)
    stage.kill(stage.actors["agent of node-0"])
    pass_time(stage, 600, cloud)
    stage.agent("node-0", name="agent of node-0, again", place="a new pod")
    free_pod(stage, "node-0")
    to_the_end(stage, cloud)
    judge(stage, faulty=["node-0"])
    assert records(stage) == {"node-0": "recovered"}


def test_a_foreign_cordon_stays_when_a_recovery_is_withdrawn() -> None:
    stage, cloud = fleet(3)
    change_node(stage, "node-0", lambda n: n["spec"].update(unschedulable=True))
    busy_pod(stage, "node-0")
    stage.fault("node-0")
    stage.run(5)
    stage.pages["node-0"] = Page()
    stage.agent("node-0", alone=True)
    reboot(stage, "node-0")
    to_the_end(stage, cloud)
    judge(stage, faulty=["node-0"])
    assert records(stage) == {"node-0": "withdrawn"}
    node = stage.node("node-0")
    assert node["spec"]["unschedulable"] is True
    assert not node["spec"].get("taints")


def test_a_fleet_where_nothing_is_wrong_writes_nothing() -> None:
    stage, cloud = fleet(4)
    before = len(stage.store.history)
    pass_time(stage, 600, cloud)
    assert stage.store.history[before:] == []
    assert settled(stage)
    assert lease_name("node-0") != lease_name("node-1")


@pytest.mark.parametrize("paused", [False, True], ids=["", "paused"])
@pytest.mark.parametrize("budget", ["1", '"17%"'])
def test_a_slot_lost_with_the_gate_before_anything_was_done_is_not_taken_beyond_the_budget(
    budget: str, paused: bool
) -> None:
    """The gate is deleted right after node-0 read its new slot there; node-1 rebuilds it and is first."""
    stage, cloud = fleet(6, f"cooldown: 0s, brake: 50%, budget: {budget}, budgetPer: {{}}")
    busy_pod(stage, "node-1")

    class Deleted:
        def __init__(self, transport: Any) -> None:
            self.transport = transport

        def request(self, method: str, path: str, **more: Any) -> Any:
            answer = self.transport.request(method, path, **more)
            read = method == "GET" and path == GATE and answer.status == 200
            if read and answer.body["status"].get("slots") and stage.wrap is Deleted:
                stage.wrap = lambda transport: transport
                delete_gate(stage)
                stage.actors["agent of node-0"].alive = False
                pass_time(stage, 6, cloud, step=0.5)
                if paused:
                    pause(stage)
                stage.actors["agent of node-0"].alive = True
            return answer

    stage.wrap = Deleted
    stage.agent("node-0", alone=True)
    stage.fault("node-0")
    pass_time(stage, 0.1, cloud, step=0.1)
    stage.fault("node-1")
    pass_time(stage, 60, cloud)
    if paused:
        assert slots(stage) == ["node-1"]
        resume(stage)
        pass_time(stage, 30, cloud)
    assert records(stage) == {"node-0": "recovering", "node-1": "recovering"}
    assert slots(stage) == ["node-1"]
    free_pod(stage, "node-1")
    to_the_end(stage, cloud)
    judge(stage, faulty=["node-0", "node-1"])
    assert records(stage) == {"node-0": "recovered", "node-1": "recovered"}


def test_a_replacement_that_is_sick_before_it_is_claimed_waits_for_its_predecessor_to_end() -> None:
    """Were it replaced at once, nothing new would be left for its predecessor: a person would get that."""
    stage, cloud = fleet(8, "cooldown: 0s, budget: 2, budgetPer: {}, brake: 50%")
    cloud.ends_after, cloud.joins_after = 0.5, 0.5
    cloud.fault_of_new = "DMA_ERROR"
    stage.fault("node-0")
    pass_time(stage, 60, cloud, until=lambda: "node-100" in records(stage))
    cloud.fault_of_new = ""
    pass_time(stage, 5, cloud)
    assert "it may be the replacement of m-0 of node-0" in sentences(stage, "node-100")[-1]
    to_the_end(stage, cloud)
    judge(stage, budget={"fleet": 2}, faulty=["node-0", "node-100"])
    assert records(stage) == {"node-0": "superseded", "node-100": "recovered"}


def test_a_replacement_that_was_sick_and_is_replaced_while_nobody_looks_ends_its_predecessors_proof() -> None:
    """What is waited for has come and gone: it holds no place for the rest of the step's time."""
    stage, cloud = fleet(4, "cooldown: 0s, budget: 2, budgetPer: {}, brake: 100%")
    cloud.ends_after, cloud.joins_after = 0.5, 0.5
    stage.fault("node-0")

    def claimed() -> bool:
        record = stage.record("node-0")
        return record is not None and record.replacement_machine == "m-100"

    pass_time(stage, 200, cloud, until=claimed)
    assert claimed()
    for name in ("node-1", "node-2", "node-3"):
        stage.kill(alive(stage, name))
    stage.fault("node-100", "DMA_ERROR")
    pass_time(stage, 40, cloud, until=lambda: "m-101" in stage.provider.groups["workers"].in_service)
    assert [machine for _, machine, _ in stage.provider.calls] == ["m-0", "m-100"]
    assert records(stage) == {"node-0": "proving", "node-100": "recovering"}
    for name in ("node-1", "node-2", "node-3"):
        stage.agent(name)
    pass_time(stage, 300, cloud, until=lambda: not slots(stage))
    assert records(stage) == {"node-0": "superseded", "node-100": "recovered"}
    record = stage.record("node-0")
    assert record is not None
    assert "m-0 is gone; node-100 (m-100) took its place and was sick too" in record.sentence
    judge(stage, budget={"fleet": 2}, faulty=["node-0", "node-100"])


def test_a_replacement_that_is_sick_too_takes_over_its_predecessors_place() -> None:
    stage = Stage()
    for node in stage.nodes(4):
        stage.agent(node)
    stage.run(1)
    stage.fault("node-0")
    stage.run(5)
    stage.replace_machine("node-0", "m-0", "node-9", "m-9")
    stage.fault("node-9")
    stage.agent("node-9")
    stage.run(120)
    record = stage.record("node-0")
    assert record is not None
    assert record.phase == "superseded"
    assert "node-9 (m-9) took its place and is sick too" in record.sentence
    assert [machine for _, machine, _ in stage.provider.calls] == ["m-0", "m-9"]
    assert [slot.node for slot in stage.gate().slots] == ["node-9"]
