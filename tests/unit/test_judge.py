"""The judge: for each law a history that breaks it, and one close to it that does not."""

from __future__ import annotations

import ast
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.builders.histories import BY, FAULT, TAINT, History, agent
from tests.search import facts
from tests.search.facts import from_file, to_file
from tests.search.judge import Bounds, judge

SEARCH = Path(__file__).resolve().parents[1] / "search"


def whole(h: History, node: str = "node-0", new: str = "m-9") -> History:
    """A recovery from its fault to its end."""
    h.starts(node).after(5).asks(node).after(6).replaced(node, new)
    joined = new.replace("m-", "node-")
    more = {"replacementMachine": new, "replacement": joined}
    h.after(5).record(node, "proving", by=agent("node-1"), **more).after(121)
    return h.record(node, "recovered", by=agent("node-1"), **more).after(1).frees(node, by=agent("node-1"))


def test_a_whole_recovery_breaks_no_law() -> None:
    assert whole(History()).after(60).ends().found() == []


def test_a_history_is_a_file() -> None:
    made = whole(History()).facts
    assert list(from_file(to_file(made))) == made


@pytest.mark.parametrize("path", sorted((SEARCH / "judge").glob("*.py")), ids=lambda p: p.name)
def test_the_judge_imports_nothing_of_the_agent(path: Path) -> None:
    """It may import the standard library, the facts, and itself."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            own = name.startswith(("tests.search.facts", "tests.search.judge")) or name == "tests.search"
            assert own or name.partition(".")[0] in sys.stdlib_module_names, f"{path.name} imports {name}"


# ---------------------------------------------------------------- law 1


def test_two_nodes_out_with_a_budget_of_one_break_law_1() -> None:
    assert ("law 1", "over budget") in History().starts("node-0").starts("node-1").kinds()


def test_two_nodes_out_one_after_the_other_are_within_the_budget() -> None:
    assert whole(History()).after(5).starts("node-1").kinds() == []


def test_two_nodes_out_in_one_zone_break_the_zones_budget() -> None:
    h = History(budget=2, budgetPer={"topology.kubernetes.io/zone": 1}, brake="60%")
    assert ("law 1", "over budget") in h.starts("node-0").starts("node-2").kinds()


def test_two_nodes_out_in_two_zones_do_not() -> None:
    h = History(budget=2, budgetPer={"topology.kubernetes.io/zone": 1}, brake="60%")
    assert h.starts("node-0").starts("node-1").kinds() == []


def test_a_lowered_budget_stops_new_starts_only() -> None:
    h = History(budget=2, budgetPer={}, brake="60%").starts("node-0")
    h.breaks("node-1").after(1).record("node-1", "waiting").slot("node-1").after(1)
    h.policy(budget=1, budgetPer={}, cooldown="0s").after(1).record("node-1", "recovering").marks("node-1")
    assert h.kinds() == []


def test_a_machine_whose_replacement_is_under_way_is_out_after_its_record_was_deleted() -> None:
    h = History().starts("node-0").asks("node-0").after(5).delete("NodeRecovery", "node-0", by="a person")
    h.after(1).frees("node-0", by=agent("node-1")).after(30)
    assert ("law 1", "over budget") in h.starts("node-1").kinds()


def test_it_is_not_out_any_more_once_it_is_gone() -> None:
    h = History().starts("node-0").asks("node-0").after(5).delete("NodeRecovery", "node-0", by="a person")
    h.after(1).replaced("node-0").frees("node-0", by=agent("node-1")).after(30)
    assert ("law 1", "over budget") not in h.starts("node-1").kinds()


def test_nor_once_it_has_booted_as_it_was_asked_to() -> None:
    h = History().starts("node-0").asks("node-0", "reboot").delete("NodeRecovery", "node-0", by="a person")
    h.after(5).boots("node-0").after(5).record("node-0", "lost").frees("node-0").after(5)
    assert ("law 1", "over budget") not in h.starts("node-1").kinds()


def test_a_node_in_a_persons_hands_is_not_in_the_budget() -> None:
    h = History().starts("node-0").record("node-0", "handedOver").frees("node-0").after(5)
    assert h.starts("node-1").kinds() == []


def test_nor_is_one_that_is_registered_again_there_and_gets_its_marks_again() -> None:
    h = History().starts("node-0").record("node-0", "handedOver").frees("node-0").after(5)
    h.unmarks("node-0", by="a person").after(5).marks("node-0").after(5)
    assert ("law 1", "over budget") not in h.starts("node-1").kinds()


def test_nor_is_one_whose_record_somebody_deleted_and_a_restored_etcd_brought_back() -> None:
    h = History().starts("node-0").asks("node-0").after(5)
    record = h.objects["NodeRecovery", "node-0"]
    h.delete("NodeRecovery", "node-0", by="a person").after(5)
    h.write("NodeRecovery", "node-0", record, by="etcd").after(5)
    h.record("node-0", "handedOver").frees("node-0").after(5)
    assert ("law 1", "over budget") not in h.starts("node-1").kinds()


@pytest.mark.parametrize(("phase", "over"), [("handedOver", False), ("waiting", False), ("superseded", True)])
def test_a_node_of_an_open_record_counts_for_a_share_while_its_node_is_gone(phase: str, over: bool) -> None:
    """Half of three nodes is one, half of four are two."""
    h = History(budget="50%", budgetPer={}, brake="100%", nodes=4).starts("node-0").record("node-0", phase)
    h.frees("node-0").delete("Node", "node-0", by="a person").after(5)
    h.starts("node-3").asks("node-3").after(5).delete("Node", "node-3", by="a person").after(5)
    assert (("law 1", "over budget") in h.starts("node-1").kinds()) is over


def test_a_start_within_the_cooldown_breaks_law_1() -> None:
    h = History(budget=2, budgetPer={}, brake="60%")
    h.policy(cooldown="2m", budget=2, budgetPer={}, brake="60%").starts("node-0").after(30)
    assert ("law 1", "cooldown") in h.starts("node-1").kinds()


def test_a_start_after_the_cooldown_does_not() -> None:
    h = History(budget=2, budgetPer={}, brake="60%").policy(
        cooldown="2m", budget=2, budgetPer={}, brake="60%"
    )
    assert h.starts("node-0").after(125).starts("node-1").kinds() == []


def test_a_slot_that_a_gate_made_anew_puts_back_is_no_start() -> None:
    h = History(budget=2, budgetPer={}, brake="60%")
    h.policy(cooldown="2m", budget=2, budgetPer={}, brake="60%").starts("node-0").after(130)
    emptied = {"status": {"slots": [], "starts": []}}
    h.person("RecoveryGate", "fleet", emptied).after(1).slot("node-0", by=agent("node-1")).after(30)
    assert ("law 1", "cooldown") not in h.starts("node-1").kinds()


def again_and_again(times: int) -> History:
    h = History(attempts={"max": 3, "within": "24h"}, perGroup={"max": 99, "within": "6h"})
    for _ in range(times):
        h.starts("node-0").after(5).record("node-0", "withdrawn").unmarks("node-0").frees("node-0").after(60)
    return h


def test_a_fourth_start_on_one_machine_breaks_law_1() -> None:
    assert ("law 1", "attempts") in again_and_again(4).kinds()


def test_starts_that_only_a_record_knew_are_forgotten_with_it() -> None:
    assert ("law 1", "attempts") in again_and_again(3).starts("node-0").kinds()
    h = again_and_again(3).delete("NodeRecovery", "node-0", by="a person").after(1)
    assert ("law 1", "attempts") not in h.starts("node-0").kinds()


def test_a_third_start_on_one_machine_does_not() -> None:
    assert ("law 1", "attempts") not in again_and_again(3).kinds()


# ---------------------------------------------------------------- law 2


def test_two_calls_with_one_intent_break_law_2() -> None:
    assert ("law 2", "same intent") in History().starts().asks().after(1).calls(answer="refused").kinds()


def test_a_call_that_no_record_names_breaks_law_2() -> None:
    assert ("law 2", "no intent") in History().starts().calls().kinds()


def test_a_call_after_an_ambiguous_one_that_was_applied_breaks_law_2() -> None:
    h = History().starts().intends().calls(answer="lost-after").after(20)
    h.record("node-0", "recovering", intent={"state": "notApplied"}).after(1)
    assert ("law 2", "blind repetition") in h.asks(attempt=2).kinds()


def test_a_call_after_one_that_showed_no_effect_for_a_minute_does_not() -> None:
    h = History().starts().intends().calls(answer="lost-after").after(61)
    h.record("node-0", "recovering", intent={"state": "notApplied"}).after(1)
    assert h.asks(attempt=2).kinds() == []


def test_a_call_after_one_that_was_refused_does_not() -> None:
    assert History().starts().intends().calls(answer="refused").after(5).asks(attempt=2).kinds() == []


def test_a_call_long_after_its_intent_breaks_law_2() -> None:
    assert ("law 2", "late") in History().starts().intends().after(40).calls().kinds()


# ---------------------------------------------------------------- laws 3 and 4


def test_a_call_while_the_page_is_unreadable_breaks_law_3() -> None:
    h = History().starts().happens(facts.PAGE, "node-0", state="unreadable").after(60)
    assert ("law 3", "unreadable") in h.asks().kinds()


@pytest.mark.parametrize(("lag", "kinds"), [(0.0, ["withdrawn"]), (45.0, [])])
def test_what_is_said_on_the_node_is_seen_later_than_on_a_page(lag: float, kinds: list[str]) -> None:
    h = History().starts("node-0").after(40).record("node-0", "withdrawn").unmarks("node-0").frees("node-0")
    found = judge(h.facts, ours=lambda actor: actor.startswith("agent"), bounds=Bounds(lag=lag))
    assert [v.kind for v in found] == kinds


@pytest.mark.parametrize(
    ("after", "recorded", "kinds"),
    [
        (40, True, []),
        (40, False, ["fault lost"]),
        (90, True, ["withdrawn"]),
    ],
)
def test_what_its_rule_tolerates_still_gets_a_record_of_its_own_once_another_is_withdrawn(
    after: float, recorded: bool, kinds: list[str]
) -> None:
    h, other = History(), {"type": "GpuNvlink", "reason": "GpuNvlinkBad"}
    rules = [
        {"name": "patient", "match": {"type": "NeuronHealth"}, "after": "1m", "remedy": [{"do": "replace"}]}
    ]
    h.happens(facts.POLICY, "", limits={"cooldown": "0s"}, rules=rules).breaks("node-0").after(after)
    h.record("node-0", "suspect", faults=[other, FAULT]).record("node-0", "withdrawn", faults=[other, FAULT])
    if recorded:
        h.after(1).record("node-0", "suspect", faults=[FAULT]).record("node-0", "handedOver", faults=[FAULT])
    assert [v.kind for v in h.after(900).ends().found()] == kinds


def test_a_call_right_after_the_page_was_lost_does_not() -> None:
    h = History().starts().happens(facts.PAGE, "node-0", state="unreadable").after(5)
    assert h.asks().kinds() == []


def stated_by(*sources: str) -> History:
    h = History().starts().happens(facts.FAULT_SHOWN, "m-0", **FAULT, by=list(sources))
    return h.happens(facts.PAGE, "node-0", state="unreadable").after(60)


@pytest.mark.parametrize(
    ("named", "by", "kinds"),
    [(True, "conditions", ["withdrawn"]), (False, "conditions", []), (False, "npd", ["withdrawn"])],
)
def test_what_stood_on_the_node_and_nobody_saw_is_no_reason_to_keep_a_record(
    named: bool, by: str, kinds: list[str]
) -> None:
    other = {"type": "GpuCount", "reason": "GpuCountBad"}
    h = History().starts("node-0").happens(facts.FAULT_SHOWN, "m-0", **FAULT, by=[by]).after(1)
    h.happens(facts.FAULT_HIDDEN, "m-0", **FAULT, because="masked").after(120)
    h.record("node-0", "withdrawn", faults=[FAULT if named else other])
    assert [v.kind for v in h.unmarks("node-0").frees("node-0").found()] == kinds


@pytest.mark.parametrize(("rule", "kinds"), [("log", []), ("plugin", [("law 3", "unreadable")])])
def test_a_call_without_a_page_is_right_for_a_log_rules_fault_whose_condition_a_restart_took_back(
    rule: str, kinds: list[tuple[str, str]]
) -> None:
    h = History().starts().happens(facts.FAULT_STATED, "m-0", **FAULT, rule=rule)
    h.happens(facts.FAULT_SHOWN, "m-0", **FAULT, by=["conditions"])
    h.happens(facts.PAGE, "node-0", state="unreadable").after(60)
    h.happens(facts.FAULT_HIDDEN, "m-0", **FAULT, because="masked")
    assert h.asks().kinds() == kinds


def test_a_call_without_a_page_is_right_while_another_source_states_the_fault() -> None:
    assert stated_by("conditions").asks().kinds() == []
    assert stated_by("npd", "konduktor").asks().kinds() == []
    assert stated_by("npd").asks().kinds() == [("law 3", "unreadable")]


def test_and_where_that_one_hides_it_the_call_breaks_law_3() -> None:
    h = stated_by("conditions").happens(facts.FAULT_HIDDEN, "m-0", **FAULT, because="masked")
    assert h.asks().kinds() == [("law 3", "unreadable")]


def test_a_mark_from_before_a_boot_may_be_seen_first_after_it() -> None:
    h = History().starts().happens(facts.FAULT_SHOWN, "m-0", **FAULT, by=["konduktor"])
    h.happens(facts.PAGE, "node-0", state="unreadable").boots("node-0", by="unasked")
    h.happens(facts.FAULT_HIDDEN, "m-0", **FAULT, because="masked").after(60)
    assert h.asks(bootID="m-0-boot-2").kinds() == []


@pytest.mark.parametrize(("latched", "laws"), [(False, ["started unreadable"]), (True, [])])
def test_a_start_without_a_page_breaks_law_3_unless_its_fault_is_latched(
    latched: bool, laws: list[str]
) -> None:
    """What a source cannot take back, its page cannot take back either."""
    h = History().breaks("node-0").after(1)
    h.record("node-0", "suspect", faults=[{**FAULT, "latched": latched}])
    h.happens(facts.PAGE, "node-0", state="unreadable").after(60)
    h.record("node-0", "waiting", faults=[{**FAULT, "latched": latched}]).after(1).slot("node-0")
    assert [kind for _, kind in h.kinds()] == laws


@pytest.mark.parametrize(("seconds", "laws"), [(1, []), (20, ["started unreadable"])])
@pytest.mark.parametrize("what", [facts.FAULT_HIDDEN, facts.FAULT_ENDED])
def test_a_start_without_a_page_may_come_a_moment_after_a_condition_was_taken_back(
    what: str, seconds: float, laws: list[str]
) -> None:
    """It was not read again yet. Before a call it is."""
    h = History().breaks("node-0").after(1).happens(facts.FAULT_SHOWN, "m-0", **FAULT, by=["conditions"])
    h.record("node-0", "suspect", faults=[FAULT]).happens(facts.PAGE, "node-0", state="unreadable").after(60)
    h.record("node-0", "waiting", faults=[FAULT]).after(1).happens(what, "m-0", **FAULT, by="itself")
    h.after(seconds).slot("node-0")
    assert [kind for _, kind in h.kinds()] == laws


@pytest.mark.parametrize(
    ("state", "by", "kinds"),
    [
        ("frozen", "npd", []),
        ("wrong", "conditions", []),
        ("wrong", "npd", ["unreadable", "healthy machine"]),
        ("fresh", "npd", ["healthy machine"]),
    ],
)
def test_what_a_detector_that_stands_still_goes_on_stating_is_over_for_nobody(
    state: str, by: str, kinds: list[str]
) -> None:
    h = History().starts().happens(facts.FAULT_SHOWN, "m-0", **FAULT, by=[by]).after(5)
    h.happens(facts.PAGE, "node-0", state=state).after(5)
    h.happens(facts.FAULT_ENDED, "m-0", **FAULT, by="itself", cleared=True).after(600)
    assert [v.kind for v in h.asks().found()] == kinds


def test_a_call_to_a_machine_that_its_boot_has_mended_breaks_laws_3_and_4() -> None:
    h = History().starts().after(5).mended("node-0").boots("node-0", by="unasked").after(30)
    assert h.asks().kinds() == [("law 3", "healthy machine"), ("law 4", "another boot")]


@pytest.mark.parametrize(("young", "laws"), [(True, []), (False, ["another boot"])])
def test_a_boot_that_etcd_has_forgotten_is_known_to_who_was_there(young: bool, laws: list[str]) -> None:
    was = {"status": {"nodeInfo": {"bootID": "m-0-boot-1"}}}
    h = History().happens(facts.PROCESS, agent("node-0"), state="started", node="node-0").after(5)
    h.boots("node-0", by="unasked").after(60).happens(facts.RESTORED, "etcd", to=0.0)
    h.write("Node", "node-0", was, by="etcd").after(1)
    if young:
        h.happens(facts.PROCESS, agent("node-0"), state="started", node="node-0").after(1)
    assert [kind for _, kind in h.starts().asks(action="reboot").kinds()] == laws


def test_a_call_to_one_whose_latched_fault_ended_by_itself_does_not() -> None:
    assert History().starts().mended("node-0", "itself").after(60).asks().kinds() == []


def test_a_call_to_one_whose_source_took_the_fault_back_breaks_law_3() -> None:
    h = History().starts().mended("node-0", "itself", cleared=True).after(60)
    assert ("law 3", "healthy machine") in h.asks().kinds()


@pytest.mark.parametrize(("before", "laws"), [(5, []), (60, ["law 3"])])
@pytest.mark.parametrize("stays", [True, False], ids=["a mark", "no mark"])
def test_a_mark_of_seconds_before_a_boot_may_be_of_the_boot_by_another_clock(
    stays: bool, before: float, laws: list[str]
) -> None:
    h = History().starts().happens(facts.FAULT_SHOWN, "m-0", **FAULT, by=["konduktor"], stays=stays)
    h.after(before).happens(facts.FAULT_ENDED, "m-0", **FAULT, by="reboot", cleared=False)
    h.boots("node-0", by="unasked").after(60).asks()
    assert [law for law, kind in h.kinds() if kind == "healthy machine"] == (laws if stays else ["law 3"])


def test_a_call_for_another_machine_breaks_law_4() -> None:
    h = History().starts().breaks("node-1").intends().calls(machine="m-1")
    assert ("law 4", "another machine") in h.kinds()


def test_a_call_by_the_agent_of_another_node_breaks_law_4() -> None:
    assert ("law 4", "another's node") in History().starts().intends().calls(actor=agent("node-1")).kinds()


def test_a_call_in_the_boot_that_was_read_before_it_does_not() -> None:
    h = History().starts().boots("node-0", by="unasked").after(30)
    assert h.asks(bootID="m-0-boot-2").kinds() == []


def tolerated(seconds: float) -> History:
    rule = {"name": "x", "match": {"type": "NeuronHealth"}, "after": "5m", "remedy": [{"do": "replace"}]}
    h = History().happens(facts.POLICY, "", limits={"cooldown": "0s"}, rules=[rule]).breaks("node-0")
    for node in range(6):
        h.happens(facts.PROCESS, agent(f"node-{node}"), state="started", node=f"node-{node}")
    return h.record("node-0", "suspect").after(seconds).record("node-0", "waiting").slot("node-0")


def test_a_start_before_the_rules_after_is_over_breaks_law_3() -> None:
    assert tolerated(19).kinds() == [("law 3", "tolerated")]


def test_a_start_after_it_does_not() -> None:
    assert tolerated(300).kinds() == []


def started_again(stated: bool) -> History:
    h = History().happens(facts.FAULT_STATED, "m-0").starts("node-0").after(20)
    h.person("NodeRecovery", "node-0", {"status": {"phase": "released"}}).unmarks("node-0").frees("node-0")
    if stated:
        h.after(5).happens(facts.FAULT_STATED, "m-0")
    h.after(60).record("node-0", "suspect").record("node-0", "waiting").slot("node-0")
    return h.record("node-0", "recovering").marks("node-0")


def test_a_fault_that_a_person_released_starts_nothing_again() -> None:
    assert started_again(stated=False).kinds() == [("law 3", "released before")]


def test_one_that_is_stated_anew_does() -> None:
    assert started_again(stated=True).kinds() == []


@pytest.mark.parametrize(("by", "laws"), [("a person", []), (agent("node-0"), ["released before"])])
def test_what_a_person_released_is_treated_again_once_somebody_has_deleted_its_record(
    by: str, laws: list[str]
) -> None:
    h = History().happens(facts.FAULT_STATED, "m-0").starts("node-0").after(20)
    h.person("NodeRecovery", "node-0", {"status": {"phase": "released"}}).unmarks("node-0").frees("node-0")
    h.after(5).delete("NodeRecovery", "node-0", by=by)
    h.after(60).record("node-0", "suspect").record("node-0", "waiting").slot("node-0")
    assert [kind for _, kind in h.record("node-0", "recovering").marks("node-0").kinds()] == laws


def test_a_fault_that_the_released_record_did_not_name_may_start() -> None:
    other = {"type": "GpuCount", "reason": "GpuCountBad"}
    h = History().happens(facts.FAULT_STATED, "m-0", **FAULT).starts("node-0").after(5)
    h.happens(facts.FAULT_BEGAN, "m-0", **other, cure=[]).happens(facts.FAULT_STATED, "m-0", **other)
    h.after(20).person("NodeRecovery", "node-0", {"status": {"phase": "released"}}).unmarks("node-0")
    h.frees("node-0").after(60).record("node-0", "suspect", faults=[other])
    h.record("node-0", "waiting", faults=[other]).slot("node-0")
    assert h.record("node-0", "recovering", faults=[other]).marks("node-0").kinds() == []


@pytest.mark.parametrize(("times", "laws"), [(1, ["released before"]), (2, [])])
def test_an_agent_that_was_away_cannot_tell_what_was_stated_again_before_a_release(
    times: int, laws: list[str]
) -> None:
    h = History().happens(facts.FAULT_STATED, "m-0", **FAULT).starts("node-0").after(20)
    h.happens(facts.PROCESS, agent("node-0"), state="killed", node="node-0").after(5)
    for _ in range(times - 1):
        h.happens(facts.FAULT_STATED, "m-0", **FAULT).after(20)
    h.person("NodeRecovery", "node-0", {"status": {"phase": "released"}}).unmarks("node-0").frees("node-0")
    h.after(600).happens(facts.PROCESS, agent("node-0"), state="started", node="node-0").after(5)
    h.record("node-0", "suspect").record("node-0", "waiting").slot("node-0")
    assert [kind for _, kind in h.record("node-0", "recovering").marks("node-0").kinds()] == laws


def stated_in_a_new_life(rule: str) -> History:
    told = {"type": "NeuronHealth", "reason": FAULT["reason"], "rule": rule}
    h = History().starts("node-0").after(5)
    h.person("NodeRecovery", "node-0", {"status": {"phase": "released", "acknowledged": [FAULT]}})
    h.unmarks("node-0").frees("node-0").after(60).happens(facts.DETECTOR_RESTARTED, "node-0")
    return h.after(20).happens(facts.FAULT_STATED, "m-0", **told).after(900).ends()


def test_a_log_fault_that_a_new_life_of_its_detector_states_is_a_new_fault() -> None:
    assert ("ends", "fault lost") in stated_in_a_new_life("log").kinds()


def test_a_plugin_that_states_the_same_in_a_new_life_states_nothing_new() -> None:
    assert stated_in_a_new_life("plugin").kinds() == []


OTHER = {"type": "GpuNvlink", "reason": "GpuNvlinkBad"}


def withdrawn_beside(remembered: list[dict[str, str]], restored: bool = False) -> History:
    """A person releases the node. A later record of it, about another fault, is withdrawn."""
    h = History().breaks("node-0").after(5).record("node-0", "suspect", faults=[FAULT]).after(60)
    released = {"status": {"phase": "released", "acknowledged": remembered}}
    h.write("NodeRecovery", "node-0", released, by="etcd" if restored else "a person").after(60)
    h.record("node-0", "suspect", faults=[OTHER], acknowledged=remembered).after(60)
    return h.record("node-0", "withdrawn", faults=[OTHER], acknowledged=remembered)


def test_a_fault_that_a_person_released_is_not_lost_once_a_later_record_is_withdrawn() -> None:
    assert withdrawn_beside([FAULT]).after(900).ends().kinds() == []


@pytest.mark.parametrize("released", [True, False])
def test_who_releases_a_lost_record_releases_all_that_is_there(released: bool) -> None:
    """It names no fault."""
    h = History().breaks("node-0").after(40).record("node-0", "lost", faults=[]).after(5)
    if released:
        h.write("NodeRecovery", "node-0", {"status": {"phase": "released"}}, by="a person").after(60)
    h.record("node-0", "suspect", faults=[OTHER]).after(60).record("node-0", "withdrawn", faults=[OTHER])
    assert (("law 6", "withdrawn") in h.kinds()) is not released


@pytest.mark.parametrize(("more", "lost"), [("a-digest", False), ("", True)])
def test_a_fault_that_a_person_released_may_be_a_digest_on_the_record(more: str, lost: bool) -> None:
    h = withdrawn_beside([{**FAULT, "machine": "m-0"}])
    h.record("node-0", "withdrawn", faults=[OTHER], acknowledged=[], acknowledgedMore=more)
    assert (("ends", "fault lost") in h.after(900).ends().kinds()) is lost


@pytest.mark.parametrize(("more", "lost"), [("a-digest", False), ("", True)])
def test_what_a_person_was_given_may_never_have_been_more_than_a_digest(more: str, lost: bool) -> None:
    """The record had no room for it from the write on that handed it over."""
    given = {"faults": [{**FAULT, "machine": "m-0"}], "acknowledged": [], "acknowledgedMore": more}
    h = History().breaks("node-0").after(5).record("node-0", "handedOver", **given).after(60)
    h.write("NodeRecovery", "node-0", {"status": {"phase": "released"}}, by="a person").after(900)
    assert (("ends", "fault lost") in h.ends().kinds()) is lost


def test_it_is_lost_where_the_record_has_forgotten_it() -> None:
    assert ("ends", "fault lost") in withdrawn_beside([]).after(900).ends().kinds()


def test_it_is_lost_where_no_person_but_a_restored_etcd_has_released_it() -> None:
    assert ("ends", "fault lost") in withdrawn_beside([FAULT], restored=True).after(900).ends().kinds()


def test_it_is_lost_where_it_began_again_after_the_release() -> None:
    h = withdrawn_beside([FAULT]).happens(facts.FAULT_ENDED, "m-0", **FAULT, by="itself", cleared=True)
    assert ("ends", "fault lost") in h.after(100).breaks("node-0").after(900).ends().kinds()


OFTEN = {"type": "", "reason": "OOMKilling"}


def happened_often(*, counts: bool = True, disturbed: str = "") -> History:
    """Three times in two minutes; nothing shows that any more."""
    match = {"reason": "OOMKilling"} | ({"times": {"count": 3, "within": "5m"}} if counts else {})
    rule = {"name": "often", "match": match, "remedy": [{"do": "reboot"}]}
    h = History().happens(facts.POLICY, "", limits={"cooldown": "0s"}, rules=[rule]).after(100)
    first = h.at
    if disturbed:
        h.after(60).happens(disturbed, "node-0").after(60)
    else:
        h.after(120)
    h.happens(facts.FAULT_BEGAN, "m-0", **OFTEN, cure=["reboot"], shown=False, first=first)
    return h.happens(facts.FAULT_ENDED, "m-0", **OFTEN, by="itself", cleared=False).after(5)


@pytest.mark.parametrize(
    ("counts", "disturbed", "lost"),
    [(True, "", True), (False, "", False), (True, facts.DETECTOR_RESTARTED, False)],
)
def test_what_a_rule_counts_is_lost_where_it_came_on_no_record_though_its_agent_saw_it(
    counts: bool, disturbed: str, lost: bool
) -> None:
    h = happened_often(counts=counts, disturbed=disturbed).after(900).ends()
    assert (("ends", "fault lost") in h.kinds()) is lost


@pytest.mark.parametrize("disturbed", ["", facts.DETECTOR_RESTARTED])
@pytest.mark.parametrize(("phase", "lost"), [("withdrawn", True), ("recovered", True), ("handedOver", False)])
def test_what_a_rule_counts_ends_with_no_record_but_in_a_persons_hands(
    phase: str, lost: bool, disturbed: str
) -> None:
    h = happened_often(disturbed=disturbed).record("node-0", "suspect", faults=[OFTEN]).after(60)
    h.record("node-0", phase, faults=[OFTEN]).after(900).says("node-0").ends()
    assert (("ends", "fault lost") in h.kinds()) is lost


def test_what_a_rule_counts_ends_with_a_boot() -> None:
    h = happened_often().record("node-0", "suspect", faults=[OFTEN]).after(60).boots("node-0").after(60)
    h.record("node-0", "withdrawn", faults=[OFTEN]).after(900).ends()
    assert ("ends", "fault lost") not in h.kinds()


def good_for(seconds: float, by: str, agent: float = 0.0) -> History:
    """A plugin's fault was taken back, the node released, and the fault stated again. ``agent``: so long
    before that the node's agent was started anew."""
    shown = {"node": "node-0", "by": [by]}
    h = History().happens(facts.FAULT_BEGAN, "m-0", **FAULT)
    h.happens(facts.FAULT_SHOWN, "m-0", **FAULT, **shown)
    h.after(5).record("node-0", "suspect", faults=[FAULT]).after(60)
    h.happens(facts.FAULT_ENDED, "m-0", **FAULT, by="itself", cleared=True).after(1)
    h.person("NodeRecovery", "node-0", {"status": {"phase": "released", "acknowledged": [FAULT]}})
    if agent:
        h.after(seconds - agent).happens(facts.PROCESS, "its agent", state="started", node="node-0")
    h.after(agent or seconds).happens(facts.FAULT_BEGAN, "m-0", **FAULT)
    return h.happens(facts.FAULT_SHOWN, "m-0", **FAULT, **shown).after(900).ends()


@pytest.mark.parametrize(
    ("seconds", "by", "kinds"),
    [
        (20, "conditions", []),
        (1, "npd", []),
        (20, "npd", [("ends", "fault lost")]),
        (200, "conditions", [("ends", "fault lost")]),
    ],
)
def test_what_was_good_too_shortly_to_count_states_the_same_as_before(
    seconds: float, by: str, kinds: list[tuple[str, str]]
) -> None:
    assert good_for(seconds, by).kinds() == kinds


@pytest.mark.parametrize(("stated_before", "kinds"), [(False, []), (True, [("ends", "fault lost")])])
def test_a_second_source_that_states_what_was_good_too_shortly_is_late(
    stated_before: bool, kinds: list[tuple[str, str]]
) -> None:
    """Where it had stated that itself, and then taken it back, its word is a new one."""
    both = {"node": "node-0", "by": ["npd", "conditions"]}
    back = {**FAULT, "by": "itself", "cleared": False}  # the conditions' writer is away, as after a boot
    h = History()
    if stated_before:
        h.happens(facts.FAULT_BEGAN, "m-0", **FAULT).happens(facts.FAULT_SHOWN, "m-0", **FAULT, **both)
        h.after(60).happens(facts.FAULT_ENDED, "m-0", **{**back, "cleared": True}).after(300)
    h.happens(facts.FAULT_BEGAN, "m-0", **FAULT)
    h.happens(facts.FAULT_SHOWN, "m-0", **FAULT, node="node-0", by=["npd"])
    h.after(5).record("node-0", "suspect", faults=[FAULT]).after(60).happens(facts.FAULT_ENDED, "m-0", **back)
    h.person("NodeRecovery", "node-0", {"status": {"phase": "released", "acknowledged": [FAULT]}})
    h.after(1).happens(facts.FAULT_BEGAN, "m-0", **FAULT).happens(facts.FAULT_SHOWN, "m-0", **FAULT, **both)
    assert h.after(900).ends().kinds() == kinds


@pytest.mark.parametrize(("good", "kinds"), [(45, []), (60, [("ends", "fault lost")])])
def test_what_was_good_too_shortly_since_its_detector_was_restarted_states_the_same_as_before(
    good: float, kinds: list[tuple[str, str]]
) -> None:
    shown = {"node": "node-0", "by": ["npd"]}
    h = History().happens(facts.FAULT_BEGAN, "m-0", **FAULT)
    h.happens(facts.FAULT_SHOWN, "m-0", **FAULT, **shown)
    h.after(5).record("node-0", "suspect", faults=[FAULT]).after(60)
    h.happens(facts.DETECTOR_RESTARTED, "node-0").after(1)
    h.happens(facts.FAULT_ENDED, "m-0", **FAULT, by="itself", cleared=True)
    h.person("NodeRecovery", "node-0", {"status": {"phase": "released", "acknowledged": [FAULT]}})
    h.after(good).happens(facts.FAULT_BEGAN, "m-0", **FAULT)
    h.happens(facts.FAULT_SHOWN, "m-0", **FAULT, **shown).after(900).ends()
    assert h.kinds() == kinds


@pytest.mark.parametrize(("readable", "kinds"), [(2, []), (10, [("ends", "fault lost")])])
@pytest.mark.parametrize("by", [["npd"], ["npd", "conditions"]])
def test_what_was_good_while_its_page_could_not_be_read_states_the_same_as_before(
    by: list[str], readable: float, kinds: list[tuple[str, str]]
) -> None:
    shown = {"node": "node-0", "by": by}
    h = History().happens(facts.FAULT_BEGAN, "m-0", **FAULT)
    h.happens(facts.FAULT_SHOWN, "m-0", **FAULT, **shown)
    h.after(5).record("node-0", "suspect", faults=[FAULT]).after(60)
    h.happens(facts.PAGE, "node-0", state="unreadable").after(2)
    h.happens(facts.FAULT_ENDED, "m-0", **FAULT, by="itself", cleared=True).after(12)
    h.happens(facts.PAGE, "node-0", state="fresh")
    h.person("NodeRecovery", "node-0", {"status": {"phase": "released", "acknowledged": [FAULT]}})
    h.after(readable).happens(facts.FAULT_BEGAN, "m-0", **FAULT)
    h.happens(facts.FAULT_SHOWN, "m-0", **FAULT, **shown).after(900).ends()
    assert h.kinds() == kinds


@pytest.mark.parametrize(("agent", "kinds"), [(100, []), (190, [("ends", "fault lost")])])
def test_a_process_that_comes_while_a_condition_is_good_has_to_see_it_renewed_and_once_more(
    agent: float, kinds: list[tuple[str, str]]
) -> None:
    assert good_for(200, "conditions", agent).kinds() == kinds


def test_a_storm_of_writes_is_found() -> None:
    h = History()
    for _ in range(120):
        h.after(0.01).says("node-0")
    assert h.kinds() == [("load", "writes")]


def asked_to_finish(every: float) -> History:
    h = History().starts().asks()
    for _ in range(20):
        h.after(every).calls(action="finish")
    return h


def test_a_cloud_that_is_asked_in_every_cycle_is_asked_too_often() -> None:
    assert asked_to_finish(every=0.5).kinds() == [("load", "calls")]


def test_one_that_is_asked_now_and_then_is_not() -> None:
    assert asked_to_finish(every=30).kinds() == []


# ---------------------------------------------------------------- law 5

FOREIGN = {"metadata": {"labels": {"team": "a"}, "annotations": {"ticket": "1"}, "finalizers": ["x/keep"]}}


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"metadata": {"labels": {"team": None}}}, "labels"),
        ({"metadata": {"annotations": {"ticket": "2"}}}, "annotations"),
        ({"metadata": {"finalizers": []}}, "finalizers"),
    ],
)
@pytest.mark.parametrize("what", ["Node", "RecoveryGate", "NodeRecovery"])
def test_what_others_put_on_an_object_stays(what: str, change: dict[str, object], kind: str) -> None:
    name = "fleet" if what == "RecoveryGate" else "node-0"
    h = History().starts().person(what, name, FOREIGN).after(1).write(what, name, change, by=agent("node-0"))
    assert h.kinds() == [("law 5", f"{what} {kind}")]


def test_a_person_may_take_off_what_a_person_has_put_on() -> None:
    h = History().starts().person("Node", "node-0", FOREIGN)
    assert h.person("Node", "node-0", {"metadata": {"labels": {"team": None}}}).kinds() == []


def test_a_foreign_taint_that_goes_with_ours_breaks_law_5() -> None:
    foreign = {"key": "maintenance", "effect": "NoSchedule"}
    h = History().starts().person("Node", "node-0", {"spec": {"taints": [TAINT, foreign]}})
    assert h.unmarks("node-0").kinds() == [("law 5", "Node taint removed")]


def test_our_taint_may_go_by_itself() -> None:
    foreign = {"key": "maintenance", "effect": "NoSchedule"}
    h = History().starts().person("Node", "node-0", {"spec": {"taints": [TAINT, foreign]}})
    change = {"spec": {"taints": [foreign]}}
    assert h.write("Node", "node-0", change, by=agent("node-0")).kinds() == []


def test_a_foreign_cordon_that_is_removed_breaks_law_5() -> None:
    h = History().person("Node", "node-0", {"spec": {"unschedulable": True}})
    change = {"spec": {"unschedulable": None}}
    assert h.write("Node", "node-0", change, by=agent("node-0")).kinds() == [("law 5", "Node cordon")]


@pytest.mark.parametrize(
    ("by", "kinds"), [("a person", []), (agent("node-0"), [("law 5", "Node cordon")])], ids=["a person", "us"]
)
def test_a_persons_cordon_is_ours_once_a_person_annotates_it(by: str, kinds: list[tuple[str, str]]) -> None:
    """To go on is what the annotation asks for. To write it ourselves would take a cordon of others."""
    h = History().person("Node", "node-0", {"spec": {"unschedulable": True}}).after(1)
    h.write("Node", "node-0", {"metadata": {"annotations": BY}}, by=by).after(1)
    change = {"metadata": {"annotations": None}, "spec": {"unschedulable": None}}
    assert h.write("Node", "node-0", change, by=agent("node-0")).kinds() == kinds


@pytest.mark.parametrize(("ours", "kinds"), [(True, []), (False, [("law 5", "Node cordon")])])
def test_a_foreign_cordon_that_a_restored_etcd_replaces_by_ours_is_gone(
    ours: bool, kinds: list[tuple[str, str]]
) -> None:
    signed = {"metadata": {"annotations": BY}} if ours else {}
    h = History().person("Node", "node-0", {"spec": {"unschedulable": True}})
    h.write("Node", "node-0", {**signed, "spec": {"unschedulable": True}}, by="etcd")
    change = {"metadata": {"annotations": None}, "spec": {"unschedulable": None}}
    assert h.write("Node", "node-0", change, by=agent("node-0")).kinds() == kinds


def test_a_pause_that_an_agent_lifts_breaks_law_5() -> None:
    h = History().pause().write("RecoveryGate", "fleet", {"spec": {"pause": None}}, by=agent("node-0"))
    assert h.kinds() == [("law 5", "RecoveryGate pause")]


def test_a_pod_that_is_deleted_instead_of_evicted_breaks_law_5() -> None:
    h = History().starts().pod("train", "node-0")
    assert h.delete("Pod", "train", by=agent("node-0")).kinds() == [("law 5", "deleted")]


def test_a_call_on_a_node_that_another_has_claimed_breaks_law_5() -> None:
    claim = {"metadata": {"annotations": {"weave.works/kured-reboot-in-progress": "now"}}}
    h = History().starts().person("Node", "node-0", claim).after(30)
    assert h.asks().kinds() == [("law 5", "claimed")]


# ---------------------------------------------------------------- law 6


def test_a_record_withdrawn_while_its_fault_is_shown_breaks_law_6() -> None:
    h = History().starts().after(60).unmarks("node-0").record("node-0", "withdrawn")
    assert h.kinds() == [("law 6", "withdrawn")]


def test_a_record_withdrawn_after_its_fault_ended_does_not() -> None:
    h = History().starts().after(60).mended("node-0", "itself").after(5).unmarks("node-0")
    assert h.record("node-0", "withdrawn").kinds() == []


@pytest.mark.parametrize(("about", "kinds"), [([FAULT, OTHER], []), ([OTHER], [("law 6", "withdrawn")])])
def test_what_was_on_a_released_record_is_released_though_the_closed_one_has_no_room_for_it(
    about: list[dict[str, str]], kinds: list[tuple[str, str]]
) -> None:
    h = History().breaks("node-0").after(5).record("node-0", "suspect", faults=about).after(60)
    h.person("NodeRecovery", "node-0", {"status": {"phase": "released", "faults": [OTHER]}}).after(60)
    h.record("node-0", "suspect", faults=[OTHER]).after(60).record("node-0", "withdrawn", faults=[OTHER])
    assert h.kinds() == kinds


def test_a_record_withdrawn_because_a_detector_restarted_breaks_law_6() -> None:
    h = (
        History()
        .starts()
        .happens(facts.FAULT_HIDDEN, "m-0", reason="NeuronHasError_DMA_ERROR", because="restart")
    )
    assert h.after(60).unmarks("node-0").record("node-0", "withdrawn").kinds() == [("law 6", "withdrawn")]


def booted_unasked() -> History:
    """A boot that nobody asked for: the log's line is gone with it, and the fault is not."""
    h = History().starts().boots(by="unasked")
    return h.happens(facts.FAULT_HIDDEN, "m-0", **FAULT, because="restart")


def test_a_record_withdrawn_after_a_boot_after_which_nobody_stated_its_fault_does_not() -> None:
    assert booted_unasked().after(130).unmarks("node-0").record("node-0", "withdrawn").kinds() == []


def test_one_whose_fault_was_stated_in_the_new_boot_and_is_hidden_breaks_law_6() -> None:
    h = booted_unasked().after(40).happens(facts.FAULT_STATED, "m-0", **FAULT, rule="log")
    h.happens(facts.FAULT_SHOWN, "m-0", **FAULT, node="node-0")
    h.happens(facts.FAULT_HIDDEN, "m-0", **FAULT, because="masked")
    assert h.after(90).unmarks("node-0").record("node-0", "withdrawn").kinds() == [("law 6", "withdrawn")]


def test_a_hand_over_that_only_tells_does_not_count_for_the_brake() -> None:
    h = History(6, brake="30%")
    for i in range(1, 5):
        other = {"type": "Notice", "reason": "SomethingElse"}
        h.record(f"node-{i}", "handedOver", faults=[other], ladder=[])
    assert h.after(20).starts("node-0").kinds() == []


def test_a_node_released_while_its_request_stands_breaks_law_6() -> None:
    h = (
        History()
        .starts()
        .asks()
        .after(60)
        .person("NodeRecovery", "node-0", {"status": {"phase": "released"}})
    )
    assert h.kinds() == [("law 6", "released")]


@pytest.mark.parametrize(
    ("to", "intent", "kinds"),
    [(-1.0, None, []), (-1.0, "as it was", [("law 6", "released")]), (61.0, None, [("law 6", "released")])],
)
def test_a_request_that_etcd_was_restored_to_before_is_one_that_no_release_can_know_of(
    to: float, intent: str | None, kinds: list[tuple[str, str]]
) -> None:
    h = History().starts()
    before = h.at
    h.after(5).asks().after(60).happens(facts.RESTORED, "etcd", to=before + to)
    known = {} if intent else {"intent": None}
    h.write("NodeRecovery", "node-0", {"status": {"phase": "waiting", **known}}, by="etcd").after(5)
    assert h.person("NodeRecovery", "node-0", {"status": {"phase": "released"}}).kinds() == kinds


def test_an_etcd_that_is_restored_to_a_release_releases_nothing() -> None:
    h = History().starts().asks().after(60)
    assert h.write("NodeRecovery", "node-0", {"status": {"phase": "released"}}, by="etcd").kinds() == []


def test_a_node_released_after_its_request_was_taken_back_does_not() -> None:
    h = History().starts().asks().after(60).takes_back()
    assert h.person("NodeRecovery", "node-0", {"status": {"phase": "released"}}).kinds() == []


def handed_over(minutes: int) -> History:
    h = History().starts().record("node-0", "handedOver").frees("node-0").says("node-0").calm()
    for _ in range(minutes):
        h.after(60).says("node-0", "a person has to act", "HandedOver")
    return h


def test_a_hand_over_that_is_not_told_again_breaks_law_6() -> None:
    assert handed_over(3).after(400).ends("time").kinds() == [("law 6", "not told again")]


def test_a_hand_over_that_is_told_every_minute_does_not() -> None:
    assert handed_over(20).ends("time").kinds() == []


# ---------------------------------------------------------------- laws 7, 8 and 9


def test_a_record_written_while_off_breaks_law_7() -> None:
    h = History().happens(facts.SWITCHED, agent("node-0"), on=False).after(30).breaks("node-0")
    assert h.record("node-0", "suspect").kinds() == [("law 7", "off")]


def test_an_event_posted_while_off_does_not() -> None:
    h = History().happens(facts.SWITCHED, agent("node-0"), on=False).after(30).breaks("node-0")
    assert h.says("node-0", "would have replaced m-0; recovery is off").kinds() == []


def test_a_call_while_paused_breaks_law_8() -> None:
    assert History().starts().pause().after(10).asks().kinds() == [("law 8", "paused")]


def test_a_call_that_was_in_flight_when_the_pause_came_does_not() -> None:
    assert History().starts().intends().pause().after(8).calls().kinds() == []


def test_a_call_after_the_pause_has_run_out_does_not() -> None:
    h = History().starts()
    assert h.pause(until="2026-11-21T03:01:00Z").after(90).asks().kinds() == []


def test_an_eviction_while_paused_breaks_law_8() -> None:
    h = History().starts().pod("train", "node-0").pause().after(10)
    assert h.evicts("train", "node-0").kinds() == [("law 8", "paused")]


def test_a_slot_taken_while_paused_breaks_law_8_without_any_grace() -> None:
    h = History().breaks("node-0").record("node-0", "waiting").pause().after(0.1)
    assert h.slot("node-0").kinds() == [("law 8", "started while paused")]


def test_marks_that_come_off_while_paused_do_not() -> None:
    h = History().starts().pause().after(60).mended("node-0", "itself").after(1)
    assert h.unmarks("node-0").record("node-0", "withdrawn").frees("node-0").kinds() == []


def test_a_call_on_an_excluded_node_breaks_law_8() -> None:
    assert History().starts().exclude("node-0").after(10).asks().kinds() == [("law 8", "excluded")]


def test_a_healthy_node_that_a_pause_keeps_from_its_proof_breaks_law_8() -> None:
    h = History().starts().asks(action="reboot").after(5).mended("node-0").boots().after(1)
    h.record("node-0", "proving").pause().calm().after(10000)
    assert ("ends", "proof delayed") in h.ends("time").kinds()


def test_a_call_of_which_nothing_was_told_breaks_law_9() -> None:
    h = History().breaks("node-0").record("node-0", "waiting").slot("node-0").marks("node-0").after(1)
    assert h.asks().kinds() == [("law 9", "untold")]


@pytest.mark.parametrize(("phase", "found"), [("proving", False), ("waiting", True)])
def test_a_slot_that_is_put_back_during_a_pause_starts_nothing(phase: str, found: bool) -> None:
    h = History().breaks("node-0").record("node-0", phase, by="etcd").after(1).pause().after(5)
    assert (("law 8", "started while paused") in h.slot("node-0").kinds()) is found


@pytest.mark.parametrize(("by", "kinds"), [("etcd", []), (agent("node-0"), [("law 9", "untold")])])
def test_a_call_of_a_recovery_that_a_restored_etcd_has_brought_back_was_told_before(
    by: str, kinds: list[tuple[str, str]]
) -> None:
    h = History().starts().after(20).record("node-0", "released", by="a person").after(60)
    h.record("node-0", "recovering", by=by, rung=0).slot("node-0", by=by).after(1)
    found = [k for k in h.asks().kinds() if k[0] == "law 9"]
    assert found == kinds


# ---------------------------------------------------------------- law 10


def sick(count: int) -> History:
    h = History(10, budget=1, brake="30%")
    for i in range(1, count):
        h.breaks(f"node-{i}").record(f"node-{i}", "waiting")
    return h.after(20)


def test_a_start_above_the_brake_breaks_law_10() -> None:
    assert sick(4).starts("node-0").kinds() == [("law 10", "braked")]


def test_a_start_at_the_brake_does_not() -> None:
    assert sick(3).starts("node-0").kinds() == []


@pytest.mark.parametrize(("ago", "kinds"), [(1, []), (60, [("law 10", "braked")])])
def test_who_counts_may_not_know_yet_of_nodes_that_were_deleted(
    ago: float, kinds: list[tuple[str, str]]
) -> None:
    h = sick(3).breaks("node-0").record("node-0", "waiting").after(5)
    for i in range(6, 10):
        h.delete("Node", f"node-{i}", by="a person")
    assert h.after(ago).slot("node-0").kinds() == kinds


def test_blind_nodes_count_for_the_brake() -> None:
    h = History(10, brake="30%")
    for i in range(1, 9):
        h.happens(facts.PAGE, f"node-{i}", state="unreadable")
    assert ("law 10", "braked") in h.after(900).starts("node-0").kinds()


def test_nodes_that_are_blind_for_a_minute_do_not() -> None:
    h = History(10, brake="30%")
    for i in range(1, 9):
        h.happens(facts.PAGE, f"node-{i}", state="unreadable")
    assert h.after(60).starts("node-0").kinds() == []


def test_a_step_above_the_brake_breaks_law_10() -> None:
    h = sick(3).starts("node-0")
    h.breaks("node-5").record("node-5", "suspect").after(30)
    assert h.asks().kinds() == [("law 10", "braked")]


# ---------------------------------------------------------------- law 11


def rebooted(probation: float = 121, boots: bool = True, mended: bool = True) -> History:
    h = History().starts().asks(action="reboot").after(5)
    if mended:
        h.mended("node-0")
    if boots:
        h.boots()
    if boots and not mended:
        h.happens(facts.FAULT_SHOWN, "m-0", **FAULT, node="node-0")
    h.after(1).record("node-0", "proving").after(probation)
    return h.unmarks("node-0").record("node-0", "recovered").frees("node-0")


def test_a_reboot_is_proved_by_a_new_boot() -> None:
    assert rebooted().kinds() == []


def test_a_reboot_that_never_was_is_not_proved() -> None:
    assert ("law 11", "no boot") in rebooted(boots=False).kinds()


def test_a_probation_cut_short_breaks_law_11() -> None:
    assert rebooted(probation=60).kinds() == [("law 11", "short probation")]


@pytest.mark.parametrize(("stopped", "laws"), [(True, []), (False, ["law 11"])])
def test_a_probation_counts_from_its_decision_where_its_process_was_stopped_before_the_write(
    stopped: bool, laws: list[str]
) -> None:
    h = History().happens(facts.PROCESS, agent("node-0"), state="started", node="node-0")
    h.starts().asks(action="reboot").after(5).mended("node-0").boots()
    decided = f"{datetime(2026, 11, 21, 3, tzinfo=UTC) + timedelta(seconds=h.at):%Y-%m-%dT%H:%M:%SZ}"
    states = ("stopped", "resumed") if stopped else ()
    for state in states:
        h.happens(facts.PROCESS, agent("node-0"), state=state, node="node-0").after(12 * (state == "stopped"))
    h.after(0 if stopped else 12).record("node-0", "proving", phaseSince=decided).after(109)
    h.unmarks("node-0").record("node-0", "recovered", phaseSince="later")
    assert [law for law, _ in h.kinds()] == laws


@pytest.mark.parametrize(("stopped", "laws"), [(True, []), (False, ["law 11"])])
def test_a_node_that_is_not_ready_since_its_proof_was_decided_on_breaks_nothing(
    stopped: bool, laws: list[str]
) -> None:
    h = History().happens(facts.PROCESS, agent("node-0"), state="started", node="node-0")
    h.starts().asks(action="reboot").after(5).mended("node-0").boots().record("node-0", "proving").after(121)
    h.unmarks("node-0")
    decided = f"{datetime(2026, 11, 21, 3, tzinfo=UTC) + timedelta(seconds=h.at):%Y-%m-%dT%H:%M:%SZ}"
    if stopped:
        h.happens(facts.PROCESS, agent("node-0"), state="stopped", node="node-0").after(2)
    h.ready("node-0", "False").after(10)
    if stopped:
        h.happens(facts.PROCESS, agent("node-0"), state="resumed", node="node-0")
    h.record("node-0", "recovered", phaseSince=decided if stopped else "later")
    assert sorted({law for law, _ in h.kinds()}) == laws


def test_nor_by_a_policy_that_only_reports_it_now() -> None:
    h = History().starts().asks(action="reboot").after(5).boots()
    h.happens(facts.FAULT_SHOWN, "m-0", **FAULT, node="node-0").policy(remedy=({"do": "notify"},)).after(1)
    h.record("node-0", "proving").after(121).unmarks("node-0").record("node-0", "recovered")
    assert h.kinds() == [("law 11", "still sick")]


@pytest.mark.parametrize(
    ("sentence", "laws"),
    [
        ("proved: node-0 was healthy for 2 min on its own page", ["law 11"]),
        (f"proved: node-0 was healthy, which shows {FAULT['reason']} (rule hardware: notify)", []),
    ],
)
def test_a_proof_names_the_fault_that_the_policy_of_its_first_statement_only_told(
    sentence: str, laws: list[str]
) -> None:
    h = History().policy(remedy=({"do": "notify"},)).starts().asks(action="reboot").after(5).boots()
    h.happens(facts.FAULT_SHOWN, "m-0", **FAULT, node="node-0").after(1)
    more = {"faults": [{**FAULT, "treated": False}], "sentence": sentence}
    h.record("node-0", "proving", **more).after(121).unmarks("node-0").record("node-0", "recovered", **more)
    assert [law for law, _ in h.kinds()] == laws


@pytest.mark.parametrize(("seconds", "laws"), [(1, []), (30, ["law 11"])])
def test_an_agent_that_has_only_just_come_has_told_nothing_yet(seconds: float, laws: list[str]) -> None:
    h = History().starts().asks().after(6).replaced().happens(facts.PROCESS, agent("node-9"), state="killed")
    more = {"replacementMachine": "m-9", "replacement": "node-9"}
    h.after(5).breaks("node-9").record("node-0", "proving", by=agent("node-1"), **more).after(121)
    h.happens(facts.PROCESS, agent("node-9"), state="started").after(seconds)
    h.record("node-0", "recovered", by=agent("node-1"), **more)
    assert [law for law, _ in h.kinds()] == laws


@pytest.mark.parametrize(
    ("good_for", "cleared", "boots", "laws"),
    [
        (2, True, False, []),
        (20, True, False, ["law 11"]),
        (2, False, False, ["law 11"]),
        (2, True, True, ["law 11"]),
    ],
    ids=["shortly", "for long", "a log rule's", "a boot ended it"],
)
def test_what_its_page_took_back_too_shortly_around_a_release_speaks_against_no_proof(
    good_for: float, cleared: bool, boots: bool, laws: list[str]
) -> None:
    """A plugin's zero has to be seen three times."""
    h = History().starts().asks().after(6).replaced().breaks("node-9")
    h.happens(facts.FAULT_STATED, "m-9", **FAULT, rule="plugin" if cleared else "log").after(5)
    h.record("node-9", "suspect").after(5)
    h.happens(facts.FAULT_ENDED, "m-9", **FAULT, by="itself", cleared=cleared).after(good_for / 2)
    h.person("NodeRecovery", "node-9", {"status": {"phase": "released"}}).after(good_for / 2)
    if boots:
        h.boots("node-9")
    h.breaks("node-9").after(5)
    more = {"replacementMachine": "m-9", "replacement": "node-9"}
    h.record("node-0", "proving", by=agent("node-1"), **more).after(121)
    h.record("node-0", "recovered", by=agent("node-1"), **more)
    assert [law for law, _ in h.kinds()] == laws


@pytest.mark.parametrize(("boots", "laws"), [(False, []), (True, ["law 11"])])
def test_what_a_person_released_speaks_against_no_proof_until_the_machine_boots(
    boots: bool, laws: list[str]
) -> None:
    """A later record of the new node, about another fault, was withdrawn."""
    h = History().starts().asks().after(6).replaced().breaks("node-9").after(5)
    h.record("node-9", "suspect").after(5).person("NodeRecovery", "node-9", {"status": {"phase": "released"}})
    h.record("node-9", "suspect", faults=[OTHER]).record("node-9", "withdrawn", faults=[OTHER]).after(5)
    if boots:
        h.boots("node-9").happens(facts.FAULT_SHOWN, "m-9", **FAULT, node="node-9")
    more = {"replacementMachine": "m-9", "replacement": "node-9"}
    h.record("node-0", "proving", by=agent("node-1"), **more).after(121)
    h.record("node-0", "recovered", by=agent("node-1"), **more)
    assert [law for law, _ in h.kinds()] == laws


@pytest.mark.parametrize(
    ("rule", "because", "laws"),
    [("plugin", "restart", []), ("log", "restart", ["law 11"]), ("plugin", "masked", ["law 11"])],
)
def test_what_a_plugin_finds_again_after_its_restart_is_what_a_person_released_and_a_logs_is_not(
    rule: str, because: str, laws: list[str]
) -> None:
    """The first statement of its life is compared with the last of the life before."""
    h = History().starts().asks().after(6).replaced().breaks("node-9").after(5)
    h.record("node-9", "suspect").after(5).person("NodeRecovery", "node-9", {"status": {"phase": "released"}})
    h.after(5).happens(facts.FAULT_HIDDEN, "m-9", **FAULT, because=because).after(5)
    h.happens(facts.FAULT_STATED, "m-9", **FAULT, rule=rule)
    h.happens(facts.FAULT_SHOWN, "m-9", **FAULT, node="node-9").after(5)
    more = {"replacementMachine": "m-9", "replacement": "node-9"}
    h.record("node-0", "proving", by=agent("node-1"), **more).after(121)
    h.record("node-0", "recovered", by=agent("node-1"), **more)
    assert [law for law, _ in h.kinds()] == laws


@pytest.mark.parametrize(("because", "laws"), [("removed", []), ("masked", ["law 11"])])
def test_a_condition_that_somebody_took_off_is_the_same_when_its_writer_puts_it_back(
    because: str, laws: list[str]
) -> None:
    shown = {**FAULT, "node": "node-9", "by": ["conditions"]}
    h = (
        History()
        .starts()
        .asks()
        .after(6)
        .replaced()
        .breaks("node-9")
        .happens(facts.FAULT_SHOWN, "m-9", **shown)
    )
    h.after(5).record("node-9", "suspect").after(5)
    h.person("NodeRecovery", "node-9", {"status": {"phase": "released"}})
    h.after(5).happens(facts.FAULT_HIDDEN, "m-9", **FAULT, because=because).after(1)
    h.happens(facts.FAULT_SHOWN, "m-9", **shown).after(5)
    more = {"replacementMachine": "m-9", "replacement": "node-9"}
    h.record("node-0", "proving", by=agent("node-1"), **more).after(121)
    h.record("node-0", "recovered", by=agent("node-1"), **more)
    assert [law for law, _ in h.kinds()] == laws


def test_a_machine_whose_fault_is_shown_is_not_recovered() -> None:
    assert rebooted(mended=False).kinds() == [("law 11", "still sick")]


def test_a_node_that_was_not_ready_in_its_probation_is_not_recovered() -> None:
    h = History().starts().asks(action="reboot").after(5).mended("node-0").boots().after(1)
    h.record("node-0", "proving").after(100).ready("node-0", "Unknown").after(5).ready(
        "node-0", "True"
    ).after(20)
    h.unmarks("node-0").record("node-0", "recovered")
    assert h.kinds() == [("law 11", "unready in probation")]


@pytest.mark.parametrize(("ago", "false"), [(80, False), (46, True)])
def test_a_proof_does_not_say_a_longer_time_than_the_node_was_ready_for(ago: float, false: bool) -> None:
    h = History().starts().asks(action="reboot").after(5).mended("node-0").boots().after(1)
    h.record("node-0", "proving", probation="30s").after(20).ready("node-0", "Unknown").after(5)
    h.ready("node-0", "True").after(ago).unmarks("node-0")
    h.record(
        "node-0", "recovered", probation="30s", sentence="proved: node-0 was healthy for 75 s on its own page"
    )
    assert (("law 11", "unready in probation") in h.kinds()) is false


def test_a_replacement_is_not_proved_while_the_old_machine_is_there() -> None:
    h = History().starts().asks().after(20).joins("m-9", "node-9").after(5)
    more = {"replacementMachine": "m-9", "replacement": "node-9"}
    h.record("node-0", "proving", **more).after(121).unmarks("node-0").record("node-0", "recovered", **more)
    assert ("law 11", "old machine") in h.kinds()


def test_one_machine_takes_the_place_of_one() -> None:
    h = whole(History(budget=2, budgetPer={}, brake="60%"))
    h.after(10).starts("node-1").after(5).asks("node-1").after(6).replaced("node-1", "m-10")
    more = {"replacementMachine": "m-9", "replacement": "node-9"}
    h.after(5).record("node-1", "proving", by=agent("node-2"), **more).after(121)
    found = h.record("node-1", "recovered", by=agent("node-2"), **more).kinds()
    assert ("law 11", "one for two") in found


def test_a_machine_that_its_group_removes_again_takes_nobodys_place() -> None:
    def gone(claimed: bool) -> History:
        h = whole(History())
        claims = {"status": {"replacementsClaimed": [{"machine": "m-9", "insteadOf": "m-0"}]}}
        if claimed:
            h.write("RecoveryGate", "fleet", claims, by=agent("node-1"))
        return h.happens(facts.MACHINE_GONE, "m-9", group="workers", node="node-9", by=facts.SURPLUS)

    assert gone(claimed=True).kinds() == [("law 11", "surplus")]
    assert gone(claimed=False).kinds() == []


@pytest.mark.parametrize(("desired", "laws"), [(5, ["law 6"]), (6, [])])
def test_a_group_that_was_scaled_in_and_has_all_it_wants_is_not_handed_over_as_one_that_is_short(
    desired: int, laws: list[str]
) -> None:
    h = History().starts().asks().after(2)
    h.happens(facts.CAPACITY, "workers", desired=desired, can_launch=True, scaled="in").after(4)
    h.happens(facts.MACHINE_GONE, "m-0", group="workers", node="node-0")
    h.delete("Node", "node-0", by="cloud-controller").after(1800)
    said = "handed over to a person: replace did not succeed within 30 min: m-0 is gone"
    h.record("node-0", "handedOver", by=agent("node-1"), sentence=said)
    assert [law for law, _ in h.kinds()] == laws


def test_a_start_counts_where_the_gate_forgets_an_earlier_one_for_it() -> None:
    h = History(attempts={"max": 1, "within": "1h"}).starts().asks(action="reboot").after(5)
    h.mended("node-0").boots().after(1).record("node-0", "proving").after(121).unmarks("node-0")
    h.record("node-0", "recovered").frees("node-0").after(30).breaks("node-0").record("node-0", "suspect")
    slots, starts = [{"node": "node-0", "recordUID": "uid-node-0"}], [{"at": f"{h.at}", "node": "node-0"}]
    h.record("node-0", "waiting").after(1)
    h.write("RecoveryGate", "fleet", {"status": {"slots": slots, "starts": starts}}, by=agent("node-0"))
    assert h.kinds() == [("law 1", "attempts")]


# ---------------------------------------------------------------- ends


def test_an_open_record_at_the_end_is_a_fault_without_an_end() -> None:
    assert ("ends", "open") in History().starts().calm().after(10000).ends("time").kinds()


def test_an_open_record_of_an_excluded_node_is_none() -> None:
    h = History().starts().exclude("node-0").calm()
    assert ("ends", "open") not in h.after(10000).ends("time").kinds()


def test_a_fault_without_a_record_is_lost() -> None:
    h = History().breaks("node-0").calm().after(10000)
    assert h.ends("time").kinds() == [("ends", "fault lost")]


def test_a_fault_that_the_policy_only_reports_is_not_lost() -> None:
    h = History().policy(remedy=({"do": "notify"},)).breaks("node-0").calm().after(10000)
    assert h.ends("time").kinds() == []


def test_marks_left_on_a_recovered_node_are_found() -> None:
    h = History().starts().asks(action="reboot").after(5).mended("node-0").boots().after(1)
    h.record("node-0", "proving").after(121).record("node-0", "recovered").frees("node-0").calm()
    assert ("ends", "marks left") in h.after(10000).ends("time").kinds()


def test_a_slot_without_an_open_record_is_left_over() -> None:
    h = History().starts().mended("node-0", "itself").unmarks("node-0").record("node-0", "withdrawn").calm()
    assert h.after(10000).ends("time").kinds() == [("ends", "slots left")]


def test_nobody_is_left_to_free_it_where_all_agents_are_gone() -> None:
    h = History(nodes=1).starts().asks().after(5).happens(facts.MACHINE_GONE, "m-0", node="node-0")
    h.delete("Node", "node-0", by="cloud-controller").delete("NodeRecovery", "node-0", by="a person")
    h.happens(facts.PROCESS, agent("node-0"), state="killed", node="node-0").calm()
    assert ("ends", "slots left") not in h.after(10000).ends("time").kinds()


def test_a_closed_record_is_small() -> None:
    h = whole(History()).write(
        "NodeRecovery", "node-0", {"status": {"sentence": "x" * 5000}}, by="agent of node-1"
    )
    assert h.after(5).ends().kinds() == [("ends", "closed record")]


# ---------------------------------------------------------------- words


def test_before_anything_destructive_is_false_after_an_accepted_call() -> None:
    h = History().starts().asks(action="reboot").after(30).mended("node-0").boots()
    h.says("node-0", "DMA_ERROR was taken back by its own source before anything destructive")
    assert [law for law, _ in h.kinds()] == ["words"]


def test_before_anything_destructive_is_true_after_a_refused_one() -> None:
    h = History().starts().intends().calls(answer="refused").after(30)
    h.says("node-0", "DMA_ERROR was taken back by its own source before anything destructive")
    assert h.kinds() == []


def test_back_in_service_is_false_while_a_mark_of_ours_is_on() -> None:
    assert [law for law, _ in History().starts().says("node-0", "node-0 is back in service").kinds()] == [
        "words"
    ]


def test_back_in_service_is_false_while_the_request_stands() -> None:
    h = History().starts().asks().after(60).unmarks("node-0").says("node-0", "node-0 is back in service")
    assert [law for law, _ in h.kinds()] == ["words"]


def test_back_in_service_is_true_once_it_was_taken_back() -> None:
    h = (
        History()
        .starts()
        .asks()
        .after(60)
        .takes_back()
        .unmarks("node-0")
        .says("node-0", "node-0 is back in service")
    )
    assert h.kinds() == []


def test_accepted_is_false_where_the_cloud_refused() -> None:
    h = (
        History()
        .starts()
        .intends()
        .calls(answer="refused")
        .logs("node-0", "replace of m-0 was accepted by fake")
    )
    assert [law for law, _ in h.kinds()] == ["words"]


def test_a_new_boot_is_not_said_before_it_is() -> None:
    h = History().starts().asks(action="reboot").after(5).logs("node-0", "reboot is proved by a new boot ID")
    assert [law for law, _ in h.kinds()] == ["words"]


def test_a_new_boot_is_said_once_it_is() -> None:
    h = (
        History()
        .starts()
        .asks(action="reboot")
        .after(5)
        .boots()
        .logs("node-0", "reboot is proved by a new boot ID")
    )
    assert h.kinds() == []


@pytest.mark.parametrize(
    ("restored", "again", "laws"),
    [(False, False, ["words"]), (True, False, []), (True, True, ["words"])],
    ids=["no", "to the call before", "and asked again"],
)
def test_a_restored_record_speaks_of_the_call_that_it_names(
    restored: bool, again: bool, laws: list[str]
) -> None:
    """The machine had booted for the first call, and has not for the second."""
    h = History().starts()
    asked = f"{datetime(2026, 11, 21, 3, tzinfo=UTC) + timedelta(seconds=h.at):%Y-%m-%dT%H:%M:%SZ}"
    h.asks(action="reboot").after(5).boots().after(60).record("node-0", "proving").after(1)
    h.record("node-0", "recovering").asks(action="reboot", attempt=2).after(5)
    if restored:
        h.happens(facts.RESTORED, "etcd", to=h.at - 60)
        named = {"action": "reboot", "attempt": 1, "at": asked}
        h.write("NodeRecovery", "node-0", {"status": {"intent": named}}, by="etcd").after(5)
    if again:
        h.asks(action="reboot", attempt=3).after(5)
    h.logs("node-0", "reboot is proved by a new boot ID")
    assert [law for law, _ in h.kinds() if law == "words"] == laws


OWN = "proved: m-0 is gone and node-9 (m-9) was healthy, by its Node, whose own agent reports no fault"


@pytest.mark.parametrize(("on", "laws"), [(True, []), (False, ["words"])])
def test_an_agent_that_is_off_reports_nothing(on: bool, laws: list[str]) -> None:
    h = History().starts().asks().after(6).replaced().happens(facts.SWITCHED, agent("node-9"), on=on).after(5)
    h.record("node-0", "proving", by=agent("node-1"), replacement="node-9", replacementMachine="m-9")
    assert [law for law, _ in h.after(60).logs("node-0", OWN).kinds()] == laws


@pytest.mark.parametrize(("state", "laws"), [("unreadable", ["words"]), ("fresh", [])])
def test_a_page_that_cannot_be_read_proves_nothing(state: str, laws: list[str]) -> None:
    h = History().starts().asks().after(6).replaced().happens(facts.PAGE, "node-9", state=state).after(5)
    h.record("node-0", "proving", by=agent("node-1"), replacement="node-9", replacementMachine="m-9")
    said = "proved: m-0 is gone and node-9 (m-9) was healthy for 2 min, by its own detector's page"
    assert [law for law, _ in h.after(121).logs("node-0", said).kinds()] == laws


def drained(held: float, tried: float, anew: bool = False) -> History:
    """A drain that is left as over, with a pod on the node, after so much time held and tried. ``anew``: its
    agent was started meanwhile."""
    h = History().pod("train", "node-0").starts()
    if held:
        h.pause().after(held).resume()
    if anew:
        h.happens(facts.PROCESS, agent("node-0"), state="started", node="node-0")
    h.after(tried)
    line = {
        "event": "rung",
        "sentence": "the drain did not end within 10 min: 1 pod left; going on without them",
    }
    return h.record("node-0", "recovering", rung=1, rungSince=None, history=[line])


def test_held_is_not_tried() -> None:
    assert drained(held=660, tried=3).kinds() == [("words", "held is not tried")]


@pytest.mark.parametrize(
    ("held", "anew", "kinds"),
    [
        (30, True, []),
        (30, False, [("words", "held is not tried")]),
        (60, True, [("words", "held is not tried")]),
    ],
)
def test_an_agent_that_was_started_anew_cannot_tell_a_short_hold_from_a_gap_between_renewals(
    held: float, anew: bool, kinds: list[tuple[str, str]]
) -> None:
    assert drained(held=held, tried=600 - held, anew=anew).kinds() == kinds


def test_tried_for_as_long_as_the_policy_says_is_tried() -> None:
    assert drained(held=660, tried=601).kinds() == []


def test_a_drain_is_not_held_by_a_page_that_cannot_be_read() -> None:
    h = History().pod("train", "node-0").starts().happens(facts.PAGE, "node-0", state="unreadable")
    line = {"event": "rung", "sentence": "the drain did not end within 10 min: 1 pod left"}
    h.after(601).record("node-0", "recovering", rung=1, rungSince=None, history=[line])
    assert h.kinds() == []


@pytest.mark.parametrize(("state", "laws"), [("submitted", []), ("notApplied", ["words"])])
def test_who_waits_for_a_call_that_may_have_arrived_is_not_held_by_the_brake(
    state: str, laws: list[str]
) -> None:
    h = History(brake="20%").starts().intends(state=state).calls(answer="lost-before")
    h.after(60).breaks("node-1").record("node-1", "suspect").breaks("node-2").record("node-2", "suspect")
    line = {"event": "rung", "sentence": "replace did not succeed within 30 min: it was asked for"}
    h.after(1741).record("node-0", "recovering", rung=2, rungSince=None, intent=None, history=[line])
    assert [law for law, _ in h.kinds()] == laws


def test_drained_is_false_while_pods_run() -> None:
    h = History().pod("train", "node-0").starts().after(30)
    line = {"event": "rung", "sentence": "drained in 30 s; next: replace"}
    assert h.record("node-0", "recovering", rung=1, history=[line]).kinds() == [("words", "not drained")]


def test_drained_is_true_once_they_are_evicted() -> None:
    h = History().pod("train", "node-0").starts().evicts("train", "node-0").after(30)
    line = {"event": "rung", "sentence": "drained in 30 s; next: replace"}
    assert h.record("node-0", "recovering", rung=1, history=[line]).kinds() == []


# ---------------------------------------------------------------- how fast


@pytest.mark.slow
def test_a_long_history_takes_time_by_its_length_only() -> None:
    h = History(attempts={"max": 999, "within": "1h"}, perGroup={"max": 999, "within": "1h"})
    for i in range(200):
        whole(h, f"node-{0 if not i else i + 8}", f"m-{i + 9}").after(30)
    assert len(h.facts) > 3000
    assert h.found() == []
