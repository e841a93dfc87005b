"""Many nodes of a fleet fail at once: what their agents want of the gate is one write for many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from recovery_testkit.kubefaults import Asked, lost_answer, lost_request
from recovery_testkit.stage import Stage

from recovery.model import Phase
from tests.stories.scenery import GATE, RECORDS, Reaper, judge, records, slots
from tests.stories.scenes import MERGE, PERSON, messages, pause, resume
from tests.stories.test_conditions import NEURON, policy, writes

STEP = 0.05


def fleet(count: int, budget: int, hunt: Callable[[Stage], object] = lambda s: None) -> Stage:
    """So many nodes, each of a group of its own, of which so many may be out; one was cordoned before, so
    that there is a gate."""
    limits = f"{{cooldown: 0s, budget: {budget}, brake: 100%, brakePer: {{}}, budgetPer: {{}}}}"
    s = Stage(policy(remedy="{do: cordon}").replace(b"{cooldown: 0s}", limits.encode()))
    for i in range(count + 1):
        s.add_node(f"node-{i}", f"m-{i}", f"group-{i}")
    hunt(s)
    s.fleet("controller-0")
    s.run(5)
    writes(s, NEURON, node=f"node-{count}")
    s.run(30)
    return s


def all_fail(s: Stage, count: int) -> None:
    for i in range(count):
        writes(s, NEURON, node=f"node-{i}")


def cordoned(s: Stage, count: int) -> list[int]:
    return [i for i in range(count) if s.node(f"node-{i}")["spec"].get("unschedulable")]


def most_out(s: Stage, since: int) -> int:
    """The most slots that the gate ever had since this entry of the history."""
    gates = [w.object for w in s.store.history[since:] if w.path == GATE]
    return max(len(x["status"]["slots"]) for x in gates)


def swaps(s: Stage) -> Callable[[Asked], bool]:
    """Writes of the gate that grant several slots."""
    return lambda asked: (
        asked.method == "PUT" and asked.path == GATE and len(asked.body["status"]["slots"]) > 1
    )


def test_a_crowd_takes_few_writes_of_the_gate_of_which_none_is_refused() -> None:
    s = fleet(20, 20)
    before, since = s.store.requests.copy(), len(s.store.history)
    all_fail(s, 20)
    s.run(2, step=STEP)
    made = sum(1 for w in s.store.history[since:] if w.path == GATE)
    assert cordoned(s, 20) == list(range(20))
    assert (s.store.requests - before)["update", "recoverygates"] == made
    assert made < 20, "each has three: it joins, takes its slot, and frees it"
    judge(s, budget={"fleet": 20})


def test_of_one_group_no_more_start_than_may_though_the_gate_has_forgotten_the_first() -> None:
    """It keeps twenty starts, and a cordon has its slot for a moment only."""
    room = "cooldown: 0s, budget: 60, brake: 100%, brakePer: {}, budgetPer: {}"
    limits = f"{{{room}, perGroup: {{max: 3, within: 6h}}}}".encode()
    s = Stage(policy(remedy="{do: cordon}").replace(b"{cooldown: 0s}", limits))
    many = [0, 1, 2, 40, 41, 42]
    for i in range(43):
        s.add_node(f"node-{i}", f"m-{i}", "many" if i in many else f"group-{i}")
    s.fleet("controller-0")
    s.run(5)
    for i in range(43):
        writes(s, NEURON, node=f"node-{i}")
        if i in (2, 39):
            s.run(2, step=STEP)
    s.run(5, step=STEP)
    out = cordoned(s, 43)
    assert len([i for i in out if i not in many]) == 37
    assert len([i for i in out if i in many]) == 3


def test_of_many_at_once_one_has_the_one_slot() -> None:
    s = fleet(8, 1)
    since = len(s.store.history)
    all_fail(s, 8)
    s.run(4, step=STEP)
    assert cordoned(s, 8) == list(range(8))
    assert most_out(s, since) == 1
    judge(s, budget={"fleet": 1})


@pytest.mark.parametrize("lost", [lost_request, lost_answer], ids=["not written", "written"])
def test_after_a_lost_answer_all_look_and_none_starts_twice(lost: Callable[..., Any]) -> None:
    s = fleet(6, 6)
    s.api.fail_next(swaps(s), lost)
    all_fail(s, 6)
    s.run(30)
    assert s.api.pending == 0
    assert set(records(s).values()) == {"handedOver"}
    assert slots(s) == []
    for i in range(6):
        assert len(messages(s, "RecoveryStarted", f"node-{i}")) == 1
    judge(s, budget={"fleet": 6})


def test_a_person_who_pauses_in_between_stops_all_that_would_start_with_this_write() -> None:
    s = fleet(6, 6)

    def first(asked: Asked, go: Callable[[], Any]) -> Any:
        pause(s)
        return go()

    s.api.fail_next(swaps(s), first)
    all_fail(s, 6)
    s.run(20)
    assert s.api.pending == 0
    assert (cordoned(s, 6), slots(s)) == ([], [])
    assert [records(s)[f"node-{i}"] for i in range(6)] == ["waiting"] * 6
    resume(s)
    s.run(20)
    assert cordoned(s, 6) == list(range(6))
    judge(s, budget={"fleet": 6})


def test_one_that_is_excluded_meanwhile_keeps_no_other_from_starting() -> None:
    s = fleet(6, 6)

    def first(asked: Asked, go: Callable[[], Any]) -> Any:
        body = {"metadata": {"labels": {"noderecovery.dev/exclude": "true"}}}
        s.store.request("PATCH", "/api/v1/nodes/node-3", body=body, content_type=MERGE, user_agent=PERSON)
        return go()

    swap = swaps(s)
    s.api.fail_next(lambda asked: swap(asked) and "node-3" in records(s), first)
    all_fail(s, 6)
    s.run(20)
    assert cordoned(s, 6) == [0, 1, 2, 4, 5]
    assert records(s)["node-3"] == Phase.WITHDRAWN.value
    assert slots(s) == []
    judge(s, budget={"fleet": 6})


def test_a_leader_that_is_killed_in_the_middle_of_a_crowd_is_followed_by_one_that_goes_on() -> None:
    quiet = len(killed(None, "").seen)
    seen = killed(1000, "").seen
    # Events and renewals come after all is done, and not always as many.
    whole = 1 + max(i for i, what in enumerate(seen) if "/leases/" not in what and "/events" not in what)
    assert whole > quiet + 10
    for at in range(quiet, whole):
        for side in ("before", "after"):
            assert killed(at, side).fired, (at, side)


def killed(at: int | None, side: str) -> Reaper:
    """Three nodes fail at once, and the leader is killed beside one of its writes; None: before any fails."""
    hunters: list[Reaper] = []

    def hunt(s: Stage) -> None:
        hunters.append(Reaper(s, lambda actor: actor == "controller-0", at, side))

    s = fleet(3, 3, hunt)
    (reaper,) = hunters
    if at is None:
        return reaper
    s.fleet("controller-1")
    all_fail(s, 3)
    s.run(60)
    assert cordoned(s, 3) == [0, 1, 2], (at, side)
    assert set(records(s).values()) == {"handedOver"}, (at, side)
    assert slots(s) == [], (at, side)
    judge(s, budget={"fleet": 3})
    return reaper


def test_who_has_a_slot_is_cordoned_before_the_others_open_their_records() -> None:
    """Those that look first are written after a moment. If they waited until all others have looked, the gate
    would be full of them, and each of the others would be refused."""
    s = fleet(60, 60)
    since = len(s.store.history)

    def slowly(asked: Asked, go: Callable[[], Any]) -> Any:
        s.clock.advance(0.02)
        return go()

    for _ in range(60):
        s.api.fail_next(lambda asked: asked.method == "POST" and asked.path == RECORDS, slowly)
    all_fail(s, 60)
    s.run(4, step=STEP)
    written = [w for w in s.store.history[since:] if w.path.startswith((RECORDS, "/api/v1/nodes/node-"))]
    first = next(i for i, w in enumerate(written) if w.object.get("spec", {}).get("unschedulable"))
    opened = sum(1 for w in written[:first] if w.verb == "create")
    assert opened < 20
    assert cordoned(s, 60) == list(range(60))


def test_it_is_known_whether_a_node_is_being_looked_after_so_that_events_can_wait() -> None:
    s = fleet(1, 1)
    replica = s.actors["controller-0"].replica  # type: ignore[union-attr]
    seen: list[bool] = []

    def while_it_is_written(asked: Asked, go: Callable[[], Any]) -> Any:
        seen.append(replica.busy)
        return go()

    s.api.fail_next(lambda asked: asked.method == "POST" and asked.path == RECORDS, while_it_is_written)
    all_fail(s, 1)
    s.run(5)
    assert (seen, replica.busy) == ([True], False)
