"""What is made of what sources say: which faults there are, and what is to be done about each."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from recovery.config.policy_file import load_builtin
from recovery.decide.diagnosis import NOTIFY, Diagnosis, diagnose, live
from recovery.decide.doubt import cleared, unreadable
from recovery.decide.room import kept
from recovery.decide.situation import Situation
from recovery.model import Phase, Policy, Problem, ProviderFacts, Reading, Rung, Step
from tests.builders.faults import DMA, HANG, HBM, edge, fault, problem, reading, silent
from tests.builders.nodes import FAKE, node
from tests.builders.policies import RULES, policy
from tests.builders.records import record
from tests.builders.situations import situation
from tests.builders.times import HOUR, MINUTE, NOW, SECOND


def seen(rules: str, *problems: Problem, **changes: Any) -> tuple[Diagnosis, ...]:
    s = situation(policy=policy(rules), record=None, readings=(reading(*problems),))
    return diagnose(replace(s, **changes))


def steps(d: Diagnosis) -> list[str]:
    return [rung.do.value for rung in d.ladder]


def rule(name: str, match: str, remedy: str = "", more: str = "") -> str:
    told = f"\n    remedy: [{remedy}]" if remedy else ""
    return f"\n  - name: {name}\n    match: {{{match}}}{told}{more}"


REBOOT, CORDON, TELL = "{do: reboot}", "{do: cordon}", "{do: notify}"

COUNTED = rule("often", "reason: OOMKilling, times: {count: 3, within: 10m}", REBOOT, "\n    after: 1m")


@pytest.mark.parametrize("ahead", [0.4 * SECOND, HOUR])
@pytest.mark.parametrize("on_record", [False, True])
def test_what_was_counted_by_a_clock_that_was_ahead_is_tolerated_no_shorter(
    ahead: timedelta, on_record: bool
) -> None:
    """What is taken for the API server's time is put right by a moment again and again."""
    counted = edge("OOMKilling", 8 * MINUTE, 4 * MINUTE, -ahead)
    (d,) = seen(COUNTED, counted)
    if on_record:
        opened = record(Phase.SUSPECT, faults=(d.fault,), phase_since=NOW - 10 * SECOND, rule="often")
        (d,) = seen(COUNTED, counted, record=opened)
    assert d.due == NOW + MINUTE - (10 * SECOND if on_record else 0 * SECOND)


# ---------------------------------------------------------------- which rule, which remedy


def test_the_first_rule_that_matches_wins() -> None:
    rules = rule("one", "type: NeuronHealth", REBOOT) + rule("two", "type: NeuronHealth", CORDON)
    (d,) = seen(rules, problem())
    assert (d.rule_name, steps(d)) == ("one", ["reboot"])


def test_a_rule_for_other_labels_does_not_match() -> None:
    labels = "type: NeuronHealth, nodeLabels: {pool: 'gpu-*'}"
    rules = rule("gpu", labels, REBOOT) + rule("all", "type: '*'", CORDON)
    (d,) = seen(rules, problem())
    assert d.rule_name == "all"
    (d,) = seen(rules, problem(), node=node(labels={"pool": "gpu-a"}))
    assert d.rule_name == "gpu"


def test_patterns_tell_capitals_apart() -> None:
    assert seen(rule("one", "type: neuronhealth", REBOOT), problem())[0].rule is None


def test_a_rule_without_a_remedy_takes_the_catalogues() -> None:
    (d,) = seen(rule("one", "type: NeuronHealth"), problem())
    assert steps(d) == ["drain", "replace"]
    (d,) = seen(rule("one", "type: IbDev"), problem("IbDevBad", type="IbDev"))
    assert steps(d) == ["cordon"]


def test_where_the_catalogue_has_no_remedy_the_provider_decides() -> None:
    (d,) = seen(rule("one", "type: GpuCount"), problem("GpuCountBad", type="GpuCount"))
    assert d.ladder == FAKE.default_remedy


@pytest.mark.parametrize(
    ("actions", "ladder"),
    [
        (set(), ["cordon"]),
        ({Step.REBOOT}, ["drain", "reboot", "replace"]),
        ({Step.REBOOT, Step.REPLACE}, ["drain", "reboot", "replace"]),
    ],
)
def test_where_the_provider_cannot_begin_the_catalogues_remedy_it_decides(
    actions: set[Step], ladder: list[str]
) -> None:
    """Handed over at once, the node would take the next job: nobody would have cordoned it."""
    metal = ProviderFacts("metal", frozenset(actions), (Rung(Step.CORDON, MINUTE),))
    told = problem("GpuEccUncorrectable", type="GpuEcc")
    (d,) = seen(rule("one", "type: GpuEcc"), told, provider=metal)
    assert steps(d) == ladder
    (d,) = seen(rule("one", "type: GpuEcc", "{do: drain}, {do: replace}"), told, provider=metal)
    assert steps(d) == ["drain", "replace"], "what a rule says is what its author wants"


def test_where_the_provider_has_none_either_it_is_told() -> None:
    bare = ProviderFacts("bare")
    (d,) = seen(rule("one", "type: Odd"), problem("OddBad", type="Odd"), provider=bare)
    assert d.ladder == NOTIFY
    (d,) = seen(rule("one", "type: Odd"), problem("OddBad", type="Odd"), provider=None)
    assert d.ladder == NOTIFY


def test_a_fault_that_no_rule_matches_is_told_and_not_treated() -> None:
    (d,) = seen("", problem())
    assert (d.treat, steps(d), d.why_only_reported) == (
        False,
        ["notify"],
        "no rule of the policy speaks of it",
    )


@pytest.mark.parametrize(
    ("reason", "treated"),
    [
        (HANG, True),
        (f"['{HANG}']", True),
        ("NeuronHasError_*", False),
        ("'*'", False),
        (f"'{HANG[:-1]}?'", False),
    ],
)
def test_what_is_not_this_nodes_fault_is_treated_only_when_named_in_full(reason: str, treated: bool) -> None:
    (d,) = seen(rule("one", f"type: NeuronHealth, reason: {reason}", REBOOT), problem(HANG))
    assert d.treat is treated
    if not treated:
        assert d.why_only_reported.startswith(
            "it is not this node's own fault: This worker waits for another"
        )


def test_the_built_in_policy_does_what_this_provider_can() -> None:
    builtin: Policy = load_builtin().policy
    metal = ProviderFacts("metal", frozenset(), FAKE.default_remedy[:1])
    s = situation(policy=builtin, record=None, provider=metal)
    assert steps(diagnose(s)[0]) == ["drain"]
    assert steps(diagnose(replace(s, provider=FAKE))[0]) == ["drain", "replace"]


# ---------------------------------------------------------------- several faults


def test_of_several_faults_the_earliest_rule_that_treats_chooses() -> None:
    rules = rule("tell", "type: Odd", TELL) + rule("b", "type: B", CORDON) + rule("a", "type: A", REBOOT)
    found = seen(
        rules,
        problem("OddBad", type="Odd"),
        problem("A1", type="A", since=NOW - HOUR),
        problem("B1", type="B"),
    )
    assert [d.fault.reason for d in found] == ["B1", "A1", "OddBad"]


def test_of_two_faults_of_one_rule_the_older_comes_first() -> None:
    found = seen(RULES, problem(HBM), problem(DMA, since=NOW - MINUTE))
    assert [d.fault.reason for d in found] == [DMA, HBM]


def test_each_type_has_its_own_timer_whatever_reason_is_stated() -> None:
    rules = rule("slow", 'type: "*"', REBOOT, "\n    after: 5m")
    old, same, other = seen(
        rules, problem(DMA, since=NOW - 2 * MINUTE), problem(HBM), problem("GpuCountBad", type="GpuCount")
    )
    assert (old.due, same.due, other.due) == (NOW + 3 * MINUTE, NOW + 3 * MINUTE, NOW + 5 * MINUTE)


def test_the_record_keeps_a_faults_age_through_whatever_the_page_forgets() -> None:
    old = record(Phase.SUSPECT, faults=(fault(since=NOW - HOUR),))
    for readings in ((reading(problem()),), (reading(),), (reading(problem(masked=True)),)):
        (d,) = diagnose(situation(record=old, readings=readings))
        assert d.fault.since == NOW - HOUR


def test_a_future_moment_counts_as_now() -> None:
    (d,) = seen(RULES, problem(since=NOW + HOUR))
    assert d.fault.since == NOW


def test_a_masked_fault_is_a_fault() -> None:
    found = seen(RULES, problem(HANG), problem(HBM, masked=True))
    assert (found[0].fault.reason, found[0].treat) == (HBM, True)


# ---------------------------------------------------------------- temporary rules

OOM = rule("oom", "reason: OOMKilling, times: {count: 3, within: 10m}", REBOOT)
TIMES: dict[str, tuple[tuple[timedelta, ...], bool]] = {
    "often enough": ((9 * MINUTE, 5 * MINUTE, SECOND), True),
    "exactly at the edge": ((10 * MINUTE, 5 * MINUTE, SECOND), True),
    "too rarely": ((9 * MINUTE, SECOND), False),
    "too long ago": ((11 * MINUTE, 5 * MINUTE, SECOND), False),
    "more than enough": (tuple(x * SECOND for x in range(9)), True),
}


@pytest.mark.parametrize("row", TIMES)
def test_an_edge_is_a_fault_when_a_rule_counts_it_often_enough(row: str) -> None:
    ago, is_fault = TIMES[row]
    assert bool(seen(OOM, edge("OOMKilling", *ago))) is is_fault


def test_an_edge_of_a_clock_that_was_ahead_is_no_later_than_now() -> None:
    (d,) = seen(OOM, edge("OOMKilling", -MINUTE, -MINUTE, -MINUTE))
    assert (d.due, d.fault.since) == (NOW, NOW)


def test_an_edge_matches_no_rule_without_times() -> None:
    assert seen(rule("all", "type: '*'", REBOOT), edge("OOMKilling", SECOND, SECOND, SECOND)) == ()


def test_a_level_matches_no_rule_with_times() -> None:
    (d,) = seen(rule("one", "reason: '*', times: {count: 1, within: 10m}", REBOOT), problem())
    assert d.rule is None


def test_an_edge_that_is_not_this_nodes_fault_needs_its_full_name() -> None:
    often = edge("OOMKilling", SECOND, SECOND, SECOND)
    assert seen(OOM, often)[0].treat
    wild = rule("oom", "reason: 'OOM*', times: {count: 3, within: 10m}", REBOOT)
    assert not seen(wild, often)[0].treat


# ---------------------------------------------------------------- unknown too long


def test_a_silent_source_is_a_fault_after_ten_minutes() -> None:
    def at(since: timedelta) -> tuple[Diagnosis, ...]:
        return diagnose(situation(record=None, readings=(silent(NOW - since),)))

    assert at(10 * MINUTE - SECOND) == ()
    (d,) = at(10 * MINUTE)
    assert (d.fault.type, d.fault.reason, d.treat) == ("SignalUnknown", "SignalUnknown", False)
    assert d.fault.message == "nothing is known from npd: the page cannot be read"


def test_a_type_that_is_unknown_for_long_is_named() -> None:
    half = reading(unknown={"GpuXid": "it vanished"}, unknown_since={"GpuXid": NOW - HOUR})
    (d,) = diagnose(situation(record=None, readings=(half,)))
    assert d.fault.message == "nothing is known from npd (GpuXid): it vanished"


def test_a_sources_silence_cancels_no_other_sources_fault() -> None:
    other = replace(silent(NOW - HOUR), source="conditions")
    found = diagnose(situation(record=None, readings=(reading(problem()), other)))
    assert [d.fault.reason for d in found] == [DMA, "SignalUnknown"]
    assert found[0].treat


def test_a_policy_may_treat_silence() -> None:
    rules = rule("quiet", "type: SignalUnknown, reason: SignalUnknown", REBOOT)
    (d,) = diagnose(situation(record=None, policy=policy(rules), readings=(silent(NOW - HOUR),)))
    assert steps(d) == ["reboot"]


# ---------------------------------------------------------------- acknowledged


def finished(**changes: Any) -> Situation:
    return situation(record=record(Phase.RELEASED, acknowledged=(replace(fault(), **changes),)))


def test_an_acknowledged_fault_starts_nothing_again() -> None:
    assert diagnose(finished()) == ()


@pytest.mark.parametrize(
    "changes",
    [{"boot_id": "boot-0"}, {"counter": 2.0}, {"machine": "m-7"}, {"reason": HBM}, {"type": "Other"}],
)
def test_another_boot_machine_count_or_reason_is_another_fault(changes: dict[str, Any]) -> None:
    assert [d.fault.reason for d in diagnose(finished(**changes))] == [DMA]


def test_an_open_records_own_fault_is_not_settled_by_what_it_remembers() -> None:
    assert diagnose(situation(record=record(acknowledged=(fault(),))))


# ---------------------------------------------------------------- cleared, live, unreadable

CLEARED: dict[str, tuple[tuple[Reading, ...], bool]] = {
    "its source says so": ((reading(cleared=frozenset({("NeuronHealth", DMA)})),), True),
    "another reason is cleared": ((reading(cleared=frozenset({("NeuronHealth", HBM)})),), False),
    "another source says so": (
        (reading(source="conditions", cleared=frozenset({("NeuronHealth", DMA)})),),
        False,
    ),
    "silence": ((reading(),), False),
    "unknown": ((silent(NOW),), False),
    "nothing read": ((), False),
}


@pytest.mark.parametrize("row", CLEARED)
def test_only_a_sources_own_rule_clears_its_fault(row: str) -> None:
    readings, expected = CLEARED[row]
    assert cleared(fault(), situation(readings=readings)) is expected


def test_silence_is_cleared_by_speech() -> None:
    quiet = fault("SignalUnknown", type="SignalUnknown")
    assert cleared(quiet, situation(readings=(reading(),)))
    assert not cleared(quiet, situation(readings=(silent(NOW),)))


def found_live(s: Situation) -> tuple[Diagnosis, ...]:
    return live(s, diagnose(s))


def test_a_good_word_counts_for_a_device_whose_name_a_record_of_many_faults_has_cut() -> None:
    port, other = (f"cluster=training-east-1,device=mlx5_{i},port=1" for i in range(2))
    many = kept(fault(f"{DMA}_{i}", device=port, message="x" * 250) for i in range(20))
    assert many[0].device == "cluster=training-east-1,device=mlx5_0"
    back = {(f.type, f.reason) for f in many}

    def over(*there: str) -> bool:
        heard = reading(cleared=frozenset(back), devices=dict.fromkeys(back, frozenset(there)))
        return cleared(many[0], situation(readings=(heard,)))

    assert over(port, other)
    assert not over(other)


def test_a_fault_is_live_while_a_source_states_it_freshly() -> None:
    s = situation(record=record(Phase.PROVING))
    assert [d.fault.reason for d in found_live(s)] == [DMA]
    assert found_live(replace(s, readings=(reading(),))) == ()
    assert found_live(replace(s, readings=(reading(problem(fresh_until=NOW - SECOND)),))) == ()


def test_a_fault_that_is_only_told_is_not_live() -> None:
    assert found_live(situation(record=None, readings=(reading(problem(HANG)),))) == ()


UNREADABLE: dict[str, tuple[tuple[Reading, ...], str | None]] = {
    "fresh": ((reading(),), None),
    "whole source": ((silent(NOW),), "the page cannot be read"),
    "its type": ((reading(unknown={"NeuronHealth": "it vanished"}),), "it vanished"),
    "another type": ((reading(unknown={"GpuXid": "it vanished"}),), None),
    "never read": ((), "npd has not been read"),
    "read no more": ((Reading("conditions", NOW),), "npd is none of the sources that are read now"),
}


@pytest.mark.parametrize("row", UNREADABLE)
def test_a_fault_is_unreadable_when_its_source_or_type_is_unknown(row: str) -> None:
    readings, why = UNREADABLE[row]
    assert unreadable(situation(readings=readings), fault()) == why


def test_a_sources_silence_is_readable_as_what_it_is() -> None:
    quiet = fault("SignalUnknown", type="SignalUnknown")
    assert unreadable(situation(readings=(silent(NOW),)), quiet) is None


@pytest.mark.parametrize("step", [x for x in Step if x is not Step.NOTIFY])
def test_every_step_but_notify_is_treatment(step: Step) -> None:
    if step in FAKE.actions or not step.provider_action:
        (d,) = seen(rule("one", "type: NeuronHealth", f"{{do: {step.value}}}"), problem())
        assert d.treat
