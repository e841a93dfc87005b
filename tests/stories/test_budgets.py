"""Budgets per value of a label and per rule: never a node too many, through changes of the policy (law 1)."""

from __future__ import annotations

from typing import Any

from recovery_testkit.stage import Stage, read_policy

from recovery.console.status import gate_lines
from recovery.store.gate import RULE
from tests.builders.policies import HEAD, REMEDY
from tests.stories.scenery import GATE, alive, change_gate, slots
from tests.stories.scenes import new_process, ready, the_record

OPEN = "cooldown: 0s, budget: 10, budgetPer: {}, brake: 100%, brakePer: {}, perGroup: {max: 99, within: 1h}"
HBM = "HBM_UNCORRECTABLE_ERROR"


def policy(limits: str = OPEN, dma: str = "dma", more: str = "", budget: str = "budget: 1") -> bytes:
    """Two rules; that for DMA errors is called ``dma`` and has a ``budget``."""
    hbm = f'match: {{type: NeuronHealth, reason: "*_HBM_*"}}, remedy: [{REMEDY}]'
    own = f", {budget}" if budget else ""
    by_dma = f"match: {{type: NeuronHealth, reason: NeuronHasError_DMA_ERROR}}{own}, remedy: [{REMEDY}]"
    rules = f"rules:\n  - {{name: {dma}, {by_dma}}}\n{more}  - {{name: hbm, {hbm}}}\n"
    return f"{HEAD}limits: {{{limits}}}\n{rules}".encode()


def nodes(text: bytes, *pools: str) -> Stage:
    """A node in each of these pools, with its agent."""
    s = Stage(text)
    for i, pool in enumerate(pools):
        s.add_node(f"node-{i}", f"m-{i}", **({"pool": pool} if pool else {}))
    for i in range(len(pools)):
        s.agent(f"node-{i}")
    s.run(3)
    return s


def all_fail(s: Stage, *names: str) -> list[str]:
    """Each of these gets a fault, one after the other; who is out then."""
    for name in names:
        s.fault(name)
        s.run(15)
    return slots(s)


def becomes(s: Stage, text: bytes, *names: str) -> None:
    s.policy = read_policy(text)
    for name in names:
        new_process(s, name)
    s.run(1)


def said(s: Stage, node: str, why: str) -> bool:
    return any(x.endswith(why) for x in alive(s, node).sentences)


PER_VALUE = OPEN.replace("budgetPer: {}", 'budgetPer: {pool: {h100: 2, a10g: 50%, "*": 1}}')


# ---------------------------------------------------------------- per value


def test_each_value_has_its_own_budget_and_the_star_is_for_each_other_value() -> None:
    pools = ("h100", "h100", "h100", "a10g", "a10g", "a10g", "a10g", "t4", "t4", "l4")
    s = nodes(policy(PER_VALUE, budget=""), *pools)
    out = all_fail(s, *(f"node-{i}" for i in range(len(pools))))
    assert out == ["node-0", "node-1", "node-3", "node-4", "node-7", "node-9"]
    assert said(s, "node-2", "the budget of pool=h100 is used up: 2 of 2 may be out (node-0, node-1)")
    assert said(s, "node-5", "the budget of pool=a10g is used up: 2 of 2 may be out (node-3, node-4)")
    assert said(s, "node-8", "the budget of pool=t4 is used up: 1 of 1 may be out (node-7)")


def test_a_value_that_is_not_named_has_no_limit_where_there_is_no_star() -> None:
    s = nodes(policy(PER_VALUE.replace(', "*": 1', ""), budget=""), "h100", "t4", "t4", "t4", "")
    assert len(all_fail(s, *(f"node-{i}" for i in range(5)))) == 5


def test_a_value_that_a_new_policy_names_counts_who_was_out_before() -> None:
    s = nodes(policy(PER_VALUE.replace(', "*": 1', ""), budget=""), "t4", "t4", "h100")
    assert all_fail(s, "node-0") == ["node-0"]
    becomes(s, policy(PER_VALUE, budget=""), "node-1")
    assert all_fail(s, "node-1") == ["node-0"]


# ---------------------------------------------------------------- per rule


def test_a_rules_own_budget_holds_its_nodes_and_no_others() -> None:
    s = nodes(policy(), "a", "a", "a")
    assert all_fail(s, "node-0", "node-1") == ["node-0"]
    assert said(s, "node-1", "the budget of rule dma is used up: 1 of 1 may be out (node-0)")
    s.fault("node-2", HBM)
    s.run(15)
    assert slots(s) == ["node-0", "node-2"]


def test_who_is_out_by_another_rule_takes_nothing_from_a_rules_budget() -> None:
    s = nodes(policy(), "a", "a", "a")
    s.fault("node-0", HBM)
    s.run(15)
    assert all_fail(s, "node-1", "node-2") == ["node-0", "node-1"]


def test_a_rules_budget_of_nothing_starts_nothing_by_that_rule() -> None:
    s = nodes(policy(budget="budget: 0"), "a", "a")
    assert all_fail(s, "node-0") == []
    s.fault("node-1", HBM)
    s.run(15)
    assert slots(s) == ["node-1"]


def test_a_rule_that_gets_a_budget_counts_who_is_out_by_it() -> None:
    s = nodes(policy(budget=""), "a", "a")
    assert all_fail(s, "node-0") == ["node-0"]
    becomes(s, policy(), "node-1")
    assert all_fail(s, "node-1") == ["node-0"]


def test_a_rule_by_another_name_has_no_second_budget() -> None:
    s = nodes(policy(), "a", "a", "a")
    assert all_fail(s, "node-0", "node-1") == ["node-0"]
    becomes(s, policy(dma="renamed"), "node-1", "node-2")
    s.run(20)
    assert slots(s) == ["node-0"], "node-1 waits on its record by the old name"
    assert all_fail(s, "node-2") == ["node-0"]


def test_who_waits_by_a_name_that_is_gone_counts_for_the_rule_that_treats_it_now() -> None:
    s = nodes(policy(budget="budget: 0"), "a", "a")
    assert all_fail(s, "node-0") == []
    becomes(s, policy(dma="renamed"), "node-0", "node-1")
    s.run(20)
    assert slots(s) == ["node-0"]
    assert all_fail(s, "node-1") == ["node-0"]
    assert said(s, "node-1", "the budget of rule renamed is used up: 1 of 1 may be out (node-0)")


def without_rules(gate: dict[str, Any]) -> None:
    """The slots as a program of before wrote them."""
    status = gate["status"]
    rules = {short for short, word in status["words"].items() if word.startswith(RULE)}
    status["words"] = {short: word for short, word in status["words"].items() if short not in rules}
    for slot in status["slots"]:
        slot["scopes"] = [x for x in slot["scopes"] if x not in rules]


def test_a_slot_that_does_not_tell_its_rule_counts_for_each_one() -> None:
    s = nodes(policy(), "a", "a", "a")
    s.fault("node-0", HBM)
    s.run(15)
    assert slots(s) == ["node-0"]
    change_gate(s, without_rules)
    assert all_fail(s, "node-1") == ["node-0"], "by which rule node-0 is out nobody says"
    s.fault("node-2", HBM)
    s.run(15)
    assert slots(s) == ["node-0", "node-2"]


def test_a_gate_that_is_made_anew_knows_the_rules_from_the_records() -> None:
    s = nodes(policy(), "a", "a", "a")
    s.fault("node-0", HBM)
    s.run(15)
    assert s.store.request("DELETE", GATE).ok
    s.run(15)
    assert all_fail(s, "node-1", "node-2") == ["node-0", "node-1"]


# ---------------------------------------------------------------- the population

BRAKE = OPEN.replace("brake: 100%", "brake: 30%")
GPUS = f"{BRAKE}, population: {{labels: {{pool: gpu}}}}"


def fleet(limits: str, gpus: int, cpus: int) -> Stage:
    return nodes(policy(limits, budget=""), *["gpu"] * gpus, *["cpu"] * cpus)


def not_ready(s: Stage, *names: str) -> None:
    for name in names:
        ready(s, name, "False")


def test_healthy_cpu_nodes_do_not_hide_sick_accelerators() -> None:
    s = fleet(BRAKE, 4, 8)
    not_ready(s, "node-1", "node-2")
    assert all_fail(s, "node-0") == ["node-0"], "3 of 12"
    s = fleet(GPUS, 4, 8)
    not_ready(s, "node-1", "node-2")
    assert all_fail(s, "node-0") == []
    assert said(
        s,
        "node-0",
        "the brake is on: 3 of 4 nodes of limits.population are sick or unknown, more than 30% (2)",
    )


def test_sick_cpu_nodes_hold_no_accelerator() -> None:
    s = fleet(GPUS, 4, 4)
    not_ready(s, "node-5", "node-6", "node-7")
    assert all_fail(s, "node-0") == ["node-0"]


def test_a_node_outside_the_population_is_treated_and_counts_in_the_budget() -> None:
    s = fleet(GPUS.replace("budget: 10", "budget: 1"), 4, 4)
    assert all_fail(s, "node-7", "node-0") == ["node-7"]
    assert said(s, "node-0", "the budget of the fleet is used up: 1 of 1 may be out (node-7)")


def test_slot_and_record_keep_the_labels_that_say_who_is_counted() -> None:
    s = fleet(GPUS, 1, 0)
    assert all_fail(s, "node-0") == ["node-0"]
    assert "pool=gpu" in s.store.request("GET", GATE).body["status"]["words"].values()
    assert "pool=gpu" in the_record(s).scopes


def test_a_node_outside_is_held_where_very_many_others_outside_are_sick() -> None:
    s = fleet(GPUS, 4, 4)
    not_ready(s, "node-5", "node-6")
    assert all_fail(s, "node-7") == []
    why = "the brake is on: 3 of 4 nodes outside limits.population are sick or unknown, more than 30% (2)"
    assert said(s, "node-7", why)


def test_a_percentage_is_of_the_population() -> None:
    s = fleet(GPUS.replace("budget: 10", "budget: 50%").replace("brake: 30%", "brake: 100%"), 4, 8)
    assert len(all_fail(s, "node-0", "node-1", "node-2", "node-3")) == 2


def test_agents_of_two_policies_do_not_go_by_each_others_count() -> None:
    s = fleet(BRAKE, 4, 8)
    not_ready(s, "node-1", "node-2")
    assert all_fail(s, "node-3") == ["node-3"]
    assert s.store.request("GET", GATE).body["status"]["census"]["population"] == 12
    becomes(s, policy(GPUS, budget=""), "node-0")
    assert all_fail(s, "node-0") == ["node-3"]
    assert said(s, "node-0", "4 of 4 nodes of limits.population are sick or unknown, more than 30% (2)")


def test_a_population_that_selects_no_node_starts_nothing_and_says_so() -> None:
    s = fleet(GPUS.replace("pool: gpu", "pol: gpu"), 4, 0)
    assert all_fail(s, "node-0") == []
    assert said(
        s, "node-0", "limits.population selects no node in the cluster: nothing starts until it selects one"
    )


def test_status_says_of_which_nodes_the_count_is() -> None:
    s = fleet(GPUS, 4, 4)
    not_ready(s, "node-1", "node-7")
    all_fail(s, "node-0")
    gate = s.gate()
    assert gate is not None
    (line,) = (x for x in gate_lines(gate, "", s.clock.true_time()) if "Brake:" in x)
    assert "2 of 4 nodes of limits.population were sick or unknown when last counted" in line
    assert "; of 4 others 1;" in line
