"""The gate: what it holds, for how long, and what everybody may have to read (laws 1 and 6)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from recovery_testkit.stage import Stage, read_policy

from recovery.decide import budget
from recovery.model import Machine, Phase, Record, Start
from recovery.store.gate import MOST_BYTES, size
from recovery.store.record_codec import encode
from recovery.units import moment
from tests.builders.faults import DMA
from tests.builders.policies import policy_file
from tests.builders.records import record
from tests.builders.times import HOUR, MINUTE
from tests.stories.scenery import GATE, RECORDS, Cloud, alive, change_gate, pass_time, slots
from tests.stories.scenes import (
    calls,
    cast,
    label,
    messages,
    new_process,
    phase,
    record_sentences,
    the_record,
)

BUDGET = "cooldown: 0s, budget: 5, brake: 100%, brakePer: {}"
BY_FLEET = policy_file(limits=f"{BUDGET}, budgetPer: {{}}")
BY_POOL = policy_file(limits=f"{BUDGET}, budgetPer: {{pool: 1}}")
POOL_IS_FULL = f"{DMA}: waiting: the budget of pool=a is used up: 1 of 1 may be out (node-0)"


# ---------------------------------------------------------------- the scopes of slots


def in_pools(policy: bytes, *pools: str) -> Stage:
    """A node in each of these pools, the first one out of service."""
    s = Stage(policy)
    for i, pool in enumerate(pools):
        s.add_node(f"node-{i}", f"m-{i}", pool=pool)
    for i in range(len(pools)):
        s.agent(f"node-{i}")
    s.run(3)
    s.fault("node-0")
    s.run(8)
    assert slots(s) == ["node-0"]
    return s


def policy_becomes(s: Stage, policy: bytes, node: str = "node-1") -> None:
    """The agent of ``node`` starts again under another policy, and its node gets a fault."""
    s.policy = read_policy(policy)
    new_process(s, node)
    s.run(1)
    s.fault(node)
    s.run(20)


def out_of_sight(s: Stage, node: str = "node-0") -> None:
    """The machine ends, and the Node with it; the slot stays while no other machine has come."""
    s.kill(alive(s, node))
    s.delete_node(node)


def test_a_slot_counts_in_the_scopes_of_the_policy_as_it_is_now() -> None:
    s = in_pools(BY_FLEET, "a", "a", "b")
    policy_becomes(s, BY_POOL)
    assert (slots(s), alive(s, "node-1").sentences[-1]) == (["node-0"], POOL_IS_FULL)
    policy_becomes(s, BY_POOL, "node-2")
    assert slots(s) == ["node-0", "node-2"], "another pool has a budget of its own"


def test_a_slot_counts_by_the_labels_that_its_node_had_when_it_was_taken() -> None:
    s = in_pools(BY_POOL, "a", "a")
    label(s, "node-0", pool="b")
    policy_becomes(s, BY_POOL)
    assert (slots(s), alive(s, "node-1").sentences[-1]) == (["node-0"], POOL_IS_FULL)


def test_a_slot_counts_by_a_label_that_every_slot_keeps_though_its_node_is_gone() -> None:
    by_zone = policy_file(limits=f"{BUDGET}, budgetPer: {{topology.kubernetes.io/zone: 1}}")
    s = in_pools(BY_FLEET, "a", "a", "a")
    out_of_sight(s)
    policy_becomes(s, by_zone)
    assert slots(s) == ["node-0"]
    label(s, "node-2", **{"topology.kubernetes.io/zone": "b"})
    policy_becomes(s, by_zone, "node-2")
    assert slots(s) == ["node-0", "node-2"]


def test_where_nothing_tells_a_slots_label_it_counts_in_every_value() -> None:
    s = in_pools(BY_FLEET, "a", "a", "b")
    out_of_sight(s)
    policy_becomes(s, BY_POOL)
    policy_becomes(s, BY_POOL, "node-2")
    assert slots(s) == ["node-0"]
    assert alive(s, "node-2").sentences[-1] == POOL_IS_FULL.replace("pool=a", "pool=b")


def as_before(gate: dict[str, Any]) -> None:
    """The gate as an older program wrote it."""
    words = gate["status"].pop("words", {})
    gate["status"]["version"] = 1
    for slot in gate["status"]["slots"]:
        slot.pop("machine")
        slot["scopes"] = [w for x in slot["scopes"] if (w := words.get(x, x))[0] not in "!@"]


def test_a_slot_of_an_older_program_is_honoured_in_its_scopes_and_by_its_nodes_labels() -> None:
    s = in_pools(BY_POOL, "a", "a", "b", "b")
    change_gate(s, as_before)
    policy_becomes(s, BY_POOL)
    assert slots(s) == ["node-0"]
    by_rack = policy_file(limits=f"{BUDGET}, budgetPer: {{rack: 1}}")
    for node, rack in (("node-0", "7"), ("node-2", "7"), ("node-3", "8")):
        label(s, node, rack=rack)
    policy_becomes(s, by_rack, "node-2")
    policy_becomes(s, by_rack, "node-3")
    assert slots(s) == ["node-0", "node-3"]
    (old,) = (x for x in s.store.request("GET", GATE).body["status"]["slots"] if x["node"] == "node-0")
    assert "pool=a" in old["scopes"], "an agent may not change another's slot"
    assert "machine" not in old


# ---------------------------------------------------------------- starts


def started_before(s: Stage, node: str, *ago: int) -> Record:
    """The record of a node that was recovered so many minutes ago."""
    now = s.clock.true_time()
    starts = tuple(Start(now - x * MINUTE, node.replace("node", "m"), DMA, "workers") for x in ago)
    made = record(
        Phase.RECOVERED,
        machine=Machine("fake", f"m-of-{node}"),
        faults=(),
        starts=starts,
        resource_version="",
    )
    return replace(made, node=node, uid="", phase_since=now - HOUR)


def stands(s: Stage, made: Record) -> None:
    answer = s.store.request("POST", RECORDS, body=encode(made), user_agent="somebody")
    assert answer.ok, answer.body


def five_hundred_others(gate: dict[str, Any], s: Stage) -> None:
    at = moment(s.clock.true_time() - HOUR)
    others = [
        {"at": at, "node": f"n-{i}", "machine": f"x-{i}", "group": "g", "reason": DMA} for i in range(500)
    ]
    gate["status"]["starts"] = others


def busy_fleet(limits: str) -> Stage:
    """Elsewhere in the fleet five hundred recoveries were started in the last hour."""
    s = cast(policy_file(limits=f"cooldown: 0s, {limits}"))
    s.fault("node-1")
    s.run(0)
    s.kill(alive(s, "node-1"))
    assert s.store.request("DELETE", f"{RECORDS}/node-1").ok
    change_gate(s, lambda gate: five_hundred_others(gate, s))
    return s


def test_attempts_are_remembered_whatever_was_started_elsewhere() -> None:
    s = busy_fleet("attempts: {max: 3, within: 24h}")
    stands(s, started_before(s, "node-0", 300, 240, 180))
    s.fault("node-0")
    s.run(10)
    assert ("replace", "m-0") not in calls(s)
    assert the_record(s).sentence.startswith(
        "handed over to a person: 3 recoveries of it within 24 h have not"
    )


def test_starts_in_a_group_are_remembered_whatever_was_started_elsewhere() -> None:
    s = busy_fleet("perGroup: {max: 3, within: 6h}")
    for i in range(5, 8):
        stands(s, started_before(s, f"node-{i}", 60 * (i - 4)))
    s.fault("node-0")
    s.run(10)
    assert ("replace", "m-0") not in calls(s)
    assert (
        "recoveries were started in group workers within 6 h; next after" in alive(s, "node-0").sentences[-1]
    )


def test_the_attempts_on_a_machine_count_for_the_one_that_took_its_place() -> None:
    """Three links of a chain that no claim on the gate tells any more."""
    s = busy_fleet("attempts: {max: 3, within: 24h}")
    now = s.clock.true_time()
    chain = [("m-x", "m-y", 300), ("m-y", "m-z", 240), ("m-z", "m-0", 180)]
    for i, (machine, new, ago) in enumerate(chain):
        start = Start(now - ago * MINUTE, machine, DMA, "workers", (), new)
        stands(s, replace(started_before(s, f"node-{20 + i}"), starts=(start,)))
    change_gate(s, lambda gate: gate["status"].update(replacementsClaimed=[]))
    s.fault("node-0")
    s.run(10)
    assert ("replace", "m-0") not in calls(s)
    assert "3 recoveries of it and its predecessors (m-x, m-y, m-z)" in the_record(s).sentence


def test_a_recovery_remembers_which_machine_took_its_ones_place() -> None:
    s = cast()
    s.fault("node-0")
    s.run(5)
    s.replace_machine("node-0", "m-0", "node-9", "m-9")
    s.agent("node-9")
    s.run(400, step=1)
    assert phase(s) is Phase.RECOVERED
    assert [(x.machine, x.replacement) for x in the_record(s).starts] == [("m-0", "m-9")]


def test_a_new_machine_that_another_record_has_claimed_is_not_claimed_again() -> None:
    """The gate keeps the latest claims only."""
    s = cast()
    s.fault("node-0")
    s.run(5)
    claimed = replace(started_before(s, "node-7", 30), replacement_machine="m-8")
    stands(s, claimed)
    s.provider.launch("workers", "m-8")
    s.replace_machine("node-0", "m-0", "node-9", "m-9")
    s.agent("node-9")
    s.run(120, step=1)
    assert the_record(s).replacement_machine == "m-9"


def test_starts_that_count_for_nothing_any_more_leave_the_gate() -> None:
    s = cast(policy_file(limits="cooldown: 0s, attempts: {max: 3, within: 24h}"))
    s.fault("node-0")
    s.run(5)
    (mine,) = s.gate().starts
    old = {"at": moment(mine.at - 25 * HOUR), "node": "n", "machine": "x", "group": "g", "reason": DMA}
    s.replace_machine("node-0", "m-0", "node-9", "m-9")
    s.run(400, step=2)
    change_gate(s, lambda gate: gate["status"]["starts"].insert(0, old))
    s.fault("node-1")
    s.run(10)
    assert [x.node for x in s.gate().starts] == ["node-0", "node-1"]


# ---------------------------------------------------------------- the queue


def all_at_once(count: int, limits: str) -> Stage:
    s = cast(
        policy_file(limits=f"{limits}, brake: 100%, brakePer: {{}}, budgetPer: {{}}"), count, agents=count
    )
    for i in range(count):
        s.fault(f"node-{i}")
    s.run(20, step=2)
    return s


def test_a_program_of_before_holds_on_a_gate_that_tells_it_too_little() -> None:
    """It knows version 1, and says of any other that it touches nothing."""
    s = cast()
    s.fault("node-0")
    s.run(5)
    assert s.store.request("GET", GATE).body["status"]["version"] == 2


def test_those_who_do_not_fit_into_the_queue_wait_on_their_records_and_say_so() -> None:
    s = all_at_once(30, "cooldown: 0s, budget: 0")
    lines = [x.node for x in s.gate().open]
    behind = [f"node-{i}" for i in range(30) if f"node-{i}" not in lines]
    assert (len(lines), len(behind)) == (24, 6)
    assert {phase(s, node) for node in behind} == {Phase.WAITING}
    told = f"{DMA}: waiting behind the 24 in the queue, which is full: the budget of the fleet is used up"
    for node in behind:
        assert alive(s, node).sentences[-1].startswith(told)
        assert any(said.startswith(told) for said in messages(s, "Held", node))


@pytest.fixture
def short_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "QUEUE", 6)


def test_everybody_who_waits_behind_the_queue_has_a_turn_and_no_budget_is_exceeded(short_queue: None) -> None:
    most = 0
    s = all_at_once(14, "cooldown: 0s, budget: 2, perGroup: {max: 99, within: 6h}")
    assert len(s.gate().open) <= 8
    cloud = Cloud(s)

    def over() -> bool:
        nonlocal most
        most = max(most, len(slots(s)))
        return len(calls(s)) == 14 and not slots(s)

    pass_time(s, 6 * 3600, cloud, until=over)
    assert sorted(machine for _, machine in calls(s)) == sorted(f"m-{i}" for i in range(14))
    assert most == 2


def test_a_queue_full_of_nodes_that_cannot_start_keeps_nobody_else_from_a_slot() -> None:
    """Their pool is at its budget. Another pool's node waits behind them, and passes them."""
    s = Stage(policy_file(limits=f"{BUDGET}, budgetPer: {{pool: 1}}"))
    for i in range(31):
        s.add_node(f"node-{i}", f"m-{i}", group=f"g-{i}", pool="a" if i < 30 else "b")
        s.agent(f"node-{i}")
    s.run(3)
    for i in range(30):
        s.fault(f"node-{i}")
    s.run(20, step=2)
    (out,) = slots(s)
    assert len(s.gate().open) >= 23
    s.fault("node-30")
    s.run(60, step=1)
    assert slots(s) == [out, "node-30"]


def test_an_agent_that_dies_behind_the_queue_is_not_forgotten(short_queue: None) -> None:
    s = all_at_once(10, "cooldown: 0s, budget: 0")
    lines = {x.node for x in s.gate().open}
    node = next(f"node-{i}" for i in range(10) if f"node-{i}" not in lines)
    s.concluder()
    s.kill(alive(s, node))
    pass_time(s, 2400, until=lambda: phase(s, node) is Phase.HANDED_OVER, step=10)
    assert f"nobody has looked after {node} for" in record_sentences(s, node)[-1]


# ---------------------------------------------------------------- a gate that would be too large


def long_slots(count: int) -> list[dict[str, Any]]:
    return [
        {
            "node": f"{'n' * 240}-{i}",
            "recordUID": f"uid-{i}",
            "attempt": 1,
            "scopes": ["fleet"],
            "since": "2026-11-21T03:00:00Z",
        }
        for i in range(count)
    ]


def test_a_gate_that_would_be_too_large_is_not_written_and_nothing_starts() -> None:
    s = cast(
        policy_file(limits="cooldown: 0s, budget: 50, budgetPer: {}, brake: 100%, brakePer: {}"), agents=1
    )
    s.fault("node-0")
    s.run(0)
    full = long_slots(45)
    change_gate(s, lambda gate: gate["status"].update(slots=full))
    s.run(20)
    assert calls(s) == []
    assert "node-0" not in slots(s)
    last = alive(s, "node-0").sentences[-1]
    assert "but nothing is started: the gate would have" in last
    assert any("the gate would have" in said for said in messages(s, "Held"))
    change_gate(s, lambda gate: gate["status"].update(slots=full[:10]))
    s.run(20)
    assert calls(s) == [("replace", "m-0")]


def test_a_recovery_ends_though_the_gate_is_too_large() -> None:
    """Slots are freed and put back, and machines are claimed, in any case (law 8)."""
    s = cast()
    s.fault("node-0")
    s.run(5)
    change_gate(s, lambda gate: gate["status"]["slots"].extend(long_slots(60)))
    s.replace_machine("node-0", "m-0", "node-9", "m-9")
    s.agent("node-9")
    s.run(400, step=5)
    assert phase(s) is Phase.RECOVERED
    assert "node-0" not in slots(s)


def test_a_large_gate_of_an_older_program_shrinks_with_the_first_write() -> None:
    s = cast(policy_file(limits="cooldown: 0s, budget: 0"))
    s.fault("node-0")
    s.run(1)

    def grown(gate: dict[str, Any]) -> None:
        as_before(gate)
        five_hundred_others(gate, s)
        for start in gate["status"]["starts"]:
            start["hardware"] = [f"GPU-{'0' * 36}"] * 8

    change_gate(s, grown)
    assert size(s.store.request("GET", GATE).body) > 200_000
    s.fault("node-1")
    s.run(5)
    assert size(s.store.request("GET", GATE).body) <= MOST_BYTES
    assert [x.node for x in s.gate().open] == ["node-0", "node-1"]
