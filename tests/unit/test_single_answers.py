"""Answers before a start and after an end, each by itself: what else would give them is out of the way."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from recovery.agent.observe import LEEWAY, past
from recovery.decide import brakes, budget
from recovery.decide.chosen_ladder import without_tried
from recovery.decide.decision import Decision, TakeSlot, WriteRecord
from recovery.decide.diagnosis import diagnose, silent_sources
from recovery.decide.endings import close
from recovery.decide.idle import steps_in_vain
from recovery.decide.latch import taken_back
from recovery.decide.lifecycle import Event
from recovery.decide.marks import unmark_patch
from recovery.decide.needs import needed
from recovery.decide.orphan import OWN_AGENT_FIRST, conclude
from recovery.decide.own_node import decide
from recovery.decide.situation import ClaimsByEvent, Lease, Preflighted, Role, Situation
from recovery.model import (
    HARDWARE_ID,
    TAINT,
    Claim,
    GroupStart,
    Line,
    Marks,
    Phase,
    Preflight,
    Progress,
    Record,
    Reference,
    ReleaseRequest,
    Rung,
    Share,
    Start,
    Step,
    Validation,
)
from tests.builders.faults import DMA, HBM, fault, problem, reading
from tests.builders.gates import census, gate, slot, start
from tests.builders.nodes import MACHINE, ZONE, node
from tests.builders.policies import LADDER, policy
from tests.builders.records import intent, record
from tests.builders.situations import situation
from tests.builders.times import HOUR, MINUTE, NOW, SECOND

AHEAD = Line("node-9", "record-9", NOW - MINUTE)
REFERENCE = Reference("fake", "replace")
SERIAL = node(annotations={HARDWARE_ID: "serial-1"})


def written(d: Decision) -> Record:
    assert isinstance(d.effect, WriteRecord), d.reason
    return d.effect.record


# ---------------------------------------------------------------- before a start


def test_nothing_is_started_before_the_sick_are_counted() -> None:
    """Law 10: also where nobody is ahead, and nothing else is in the way."""
    assert decide(situation(census=None)).key == "brake"


def test_who_is_not_at_the_head_still_says_what_its_group_lacks() -> None:
    short = Preflight(REFERENCE, "workers", short_by=1)
    queue = gate(open=(AHEAD, *gate().open))
    assert decide(situation(census=None, gate=queue, preflight=short)).key == "group-short"


def test_each_hold_of_a_group_holds_a_start() -> None:
    limits = replace(policy().limits, budget=Share(count=2), budget_per={})
    two = replace(policy(), limits=limits)
    out = gate(
        slots=(slot("node-1", "record-1"),),
        starts=(GroupStart(NOW - HOUR, "node-1", "workers", "m-1", DMA),),
        open=gate().open,
    )
    alone = Preflight(REFERENCE, "workers", alone=True)
    assert decide(situation(gate=out, policy=two, preflight=alone)).key == "not-alone"
    assert decide(situation(gate=out, policy=two, node=node(created=NOW))).key == "heir"


def test_a_slot_is_taken_for_the_next_attempt_with_all_that_is_counted_later() -> None:
    asked = Preflight(REFERENCE, "group-by-its-provider")
    d = decide(situation(record=record(attempt=2), preflight=asked, node=replace(SERIAL, labels={ZONE: "a"})))
    assert isinstance(d.effect, TakeSlot)
    assert d.effect.slot.attempt == 3
    assert (d.effect.start.group, d.effect.start.hardware) == ("group-by-its-provider", ("serial-1",))


def test_a_line_of_a_clock_that_stepped_back_does_not_settle_for_ever() -> None:
    future = gate(open=(Line("node-0", "record-0", NOW + HOUR),))
    assert isinstance(decide(situation(gate=future)).effect, TakeSlot)


@pytest.mark.parametrize("ahead", [0.2, 1.0])
def test_a_line_that_was_written_before_the_time_was_put_back_by_a_second_settles(ahead: float) -> None:
    """The Date of an answer is in whole seconds, so what is known of the time moves by as much. Without the
    settle time the first of many faults would be acted on before the brake has seen the others."""
    just = gate(open=(Line("node-0", "record-0", NOW + ahead * SECOND),))
    s = situation(gate=just, census=None)
    assert (decide(s).key, needed(replace(s, read=(ClaimsByEvent(), Preflighted(Step.REPLACE))))) == (
        "settle",
        None,
    )


def test_attempts_are_counted_by_hardware_under_whatever_name() -> None:
    most = policy().limits.attempts.max
    starts = tuple(start(i * HOUR, machine=f"m-{i + 50}", hardware=("serial-1",)) for i in range(most))
    assert brakes.attempts_used(situation(gate=gate(starts=starts), node=SERIAL))
    assert brakes.attempts_used(situation(gate=gate(starts=starts))) is None


def test_a_percentage_of_a_label_is_of_the_nodes_that_bear_it() -> None:
    limits = replace(policy().limits, budget=Share(count=9), budget_per={ZONE: {"*": Share(percent=50)}})
    counted = census(1, 100, **{f"{ZONE}=a": (1, 2)})
    used = gate(slots=(slot("node-1", "record-1"),))
    s = situation(gate=used, policy=replace(policy(), limits=limits), census=counted)
    assert (
        brakes.budget(s)
        == "the budget of topology.kubernetes.io/zone=a is used up: 1 of 1 may be out (node-1)"
    )


# ---------------------------------------------------------------- suspect


TWO_RULES = """
  - name: patient
    match: {type: NeuronHealth, reason: NeuronHasError_DMA_ERROR}
    after: 1h
    remedy: [{do: reboot, within: 30m}]
    probation: 2m
    validate: {cronJob: burn, within: 20m}
  - name: quick
    match: {type: NeuronHealth, reason: NeuronHasError_HBM_UNCORRECTABLE_ERROR}
    after: 0s
    remedy: [{do: replace, within: 30m}]
    probation: 7m
"""


def suspected(*reasons: str, ago: Any = 0 * SECOND, rules: str = TWO_RULES, **changes: Any) -> Situation:
    faults = tuple(fault(reason, since=NOW - ago) for reason in reasons)
    problems = tuple(problem(reason, since=NOW - ago) for reason in reasons)
    r = record(Phase.SUSPECT, faults=faults, **changes)
    return situation(record=r, readings=(reading(*problems),), policy=policy(rules), gate=gate(open=()))


def test_a_fault_that_is_tolerated_holds_up_no_other() -> None:
    assert written(decide(suspected(DMA, HBM))).rule == "quick"
    assert written(decide(suspected(DMA, HBM, ago=HOUR))).rule == "patient"


def test_a_fault_that_is_only_reported_holds_up_no_treatment() -> None:
    only = TWO_RULES.replace("{do: reboot, within: 30m}", "{do: notify}").replace("after: 1h", "after: 0s")
    only = only.replace("    validate: {cronJob: burn, within: 20m}\n", "")
    assert written(decide(suspected(DMA, HBM, rules=only))).rule == "quick"


def test_a_confirmed_record_has_its_rules_probation_and_validation() -> None:
    queued = written(decide(suspected(DMA, ago=HOUR)))
    assert (queued.probation, queued.validate) == (2 * MINUTE, Validation("burn", 20 * MINUTE))
    assert written(decide(suspected(HBM))).probation == 7 * MINUTE


def test_what_was_tried_in_vain_is_left_out_once_for_each_time() -> None:
    queued = written(decide(suspected(HBM, tried=(Step.REPLACE,))))
    assert [x.do for x in queued.ladder] == [Step.CORDON]
    twice = (Rung(Step.REBOOT, MINUTE), Rung(Step.REBOOT, MINUTE), Rung(Step.REPLACE, MINUTE))
    assert without_tried(twice, (Step.REBOOT,)) == twice[1:]


# ---------------------------------------------------------------- what was said before


def test_a_closed_record_remembers_its_faults_where_they_were_not_taken_back() -> None:
    for event in (Event.PROVED, Event.GAVE_UP, Event.RELEASED):
        assert close(record(Phase.PROVING), NOW, event, "so").acknowledged == (fault(),)
    for event in (Event.CLEARED, Event.OTHER_MACHINE):
        assert close(record(Phase.PROVING), NOW, event, "so").acknowledged == ()


def test_the_next_record_has_the_memory_of_the_one_before() -> None:
    old = record(
        Phase.RECOVERED,
        attempt=4,
        starts=(start(HOUR),),
        acknowledged=(fault(HBM),),
        recovered_at=NOW - 9 * HOUR,
        phase_since=NOW - HOUR,
    )
    new = written(decide(situation(record=old, gate=gate(open=()))))
    assert (new.phase, new.uid, new.resource_version, new.attempt) == (Phase.SUSPECT, "record-0", "11", 4)
    assert (new.starts, new.acknowledged, new.recovered_at) == (
        old.starts,
        old.acknowledged,
        old.recovered_at,
    )
    assert new.history[:-1] == old.history


def test_the_same_fault_soon_after_is_the_same_incident() -> None:
    old = record(Phase.WITHDRAWN, tried=(Step.REBOOT,), ladder=LADDER, rung=1, recovered_at=NOW - MINUTE)
    new = written(decide(situation(record=old, gate=gate(open=()))))
    assert new.tried == (Step.REBOOT,)
    assert steps_in_vain(situation(), old, record(Phase.SUSPECT)) == (Step.REBOOT,)


def test_a_boot_ends_no_hand_over_of_a_node_that_was_treated() -> None:
    handed = record(Phase.HANDED_OVER, marks=Marks(cordoned=True, tainted=True))
    s = situation(record=handed, gate=gate(open=()), readings=(reading(),))
    assert decide(replace(s, node=node(boot_id="boot-2"))).key == "handedOver"
    told = replace(s, record=record(Phase.HANDED_OVER), node=node(boot_id="boot-2"))
    assert written(decide(told)).phase is Phase.WITHDRAWN


PLUGIN = fault("GpuCountBad", type="GpuCount", latched=False)
BACK = frozenset({("GpuCount", "GpuCountBad")})


def test_a_plugins_count_is_no_news_and_what_it_takes_back_is_forgotten() -> None:
    seen = problem("GpuCountBad", type="GpuCount", latched=False, counter=9.0)
    old = record(Phase.RECOVERED, acknowledged=(PLUGIN,))
    s = situation(record=old, readings=(reading(seen),), gate=gate(open=()))
    assert diagnose(s) == ()
    assert written(decide(replace(s, readings=(reading(cleared=BACK),)))).acknowledged == ()


def test_a_fault_is_taken_back_where_all_that_is_treated_is() -> None:
    one = reading(cleared=frozenset({("NeuronHealth", DMA)}))
    s = suspected(DMA, HBM)
    s = replace(s, readings=(one,))
    assert s.record is not None
    assert not taken_back(s, diagnose(s), s.record)
    only = TWO_RULES.replace("{do: replace, within: 30m}", "{do: notify}")
    s = replace(s, policy=policy(only))
    assert s.record is not None
    assert taken_back(s, diagnose(s), s.record)


def test_what_is_known_by_now_is_no_silence() -> None:
    known = reading(unknown={}, unknown_since={"*": NOW - HOUR})
    assert list(silent_sources(situation(readings=(known,)))) == []


# ---------------------------------------------------------------- the gate, a Node, a clock


def test_a_grant_leaves_the_count_that_it_went_by() -> None:
    counted = census()
    granted = budget.grant(gate(), slot(), start(0 * SECOND), counted)
    assert granted.census == counted
    assert budget.grant(granted, slot("node-1", "record-1"), start(0 * SECOND), None).census == counted


def test_a_gate_that_is_rebuilt_has_each_start_and_claim_once_and_the_oldest_first() -> None:
    young = record(phase_since=NOW, starts=(Start(NOW, "m-0", DMA, "workers"),))
    old = replace(young, node="node-1", uid="record-1", phase_since=NOW - HOUR, starts=())
    old = replace(old, machine=replace(MACHINE, id="m-1"), replacement_machine="m-9")
    counted = gate(stamp="", open=(), starts=(start(0 * SECOND),))
    rebuilt = budget.rebuild(counted, [young, old])
    assert [x.node for x in rebuilt.open] == ["node-1", "node-0"]
    assert len(rebuilt.starts) == 1
    assert rebuilt.claimed == (Claim("m-9", "m-1"),)


def test_anothers_taint_keeps_the_moment_when_it_was_added() -> None:
    key = ("maintenance", "NoExecute")
    taints = ((TAINT, "", "NoSchedule"), ("maintenance", "", "NoExecute"))
    patch = unmark_patch(node(taints=taints, tainted_at={key: "2026-11-21T02:00:00Z"}))
    assert patch is not None
    expected = {"key": "maintenance", "effect": "NoExecute", "timeAdded": "2026-11-21T02:00:00Z"}
    assert patch["spec"]["taints"] == [expected]


FUTURE = NOW + LEEWAY + SECOND


@pytest.mark.parametrize("at", [NOW, NOW + LEEWAY, NOW - HOUR])
def test_a_moment_that_has_passed_or_nearly_stays(at: datetime) -> None:
    r = record(phase_since=at, rung_since=at, faults=(fault(since=at),))
    assert past(r, NOW) == r


@pytest.mark.parametrize("field", ["phase_since", "rung_since", "fault"])
def test_a_moment_in_the_future_counts_as_now(field: str) -> None:
    at = {"phase_since": NOW - HOUR, "rung_since": NOW - HOUR, "fault": NOW - HOUR, field: FUTURE}
    r = record(phase_since=at["phase_since"], rung_since=at["rung_since"], faults=(fault(since=at["fault"]),))
    found = past(r, NOW)
    assert found is not None
    moments = {
        "phase_since": found.phase_since,
        "rung_since": found.rung_since,
        "fault": found.faults[0].since,
    }
    assert moments == at | {field: NOW}


def test_so_do_those_of_its_call_and_of_its_node_and_what_was_put_off_is_so_no_more() -> None:
    """Each look's own now would be no moment to count from: they have been seen so for a minute."""
    asked = Progress(retry_at=FUTURE + MINUTE, taking_back=FUTURE)
    call = replace(intent(), at=FUTURE)
    found = past(record(intent=call, node_gone_since=FUTURE, progress=asked), NOW, MINUTE)
    assert found is not None
    assert found.intent is not None
    assert (found.intent.at, found.node_gone_since) == (NOW - MINUTE, NOW - MINUTE)
    assert (found.progress.retry_at, found.progress.taking_back) == (None, NOW - MINUTE)
    for other in ({"intent": call}, {"node_gone_since": FUTURE}, {"progress": Progress(taking_back=FUTURE)}):
        assert past(record(**other), NOW) != record(**other), other


def test_what_was_put_off_before_the_clock_was_set_back_by_nothing_stays_so() -> None:
    r = record(intent=intent(), progress=Progress(retry_at=FUTURE + MINUTE), phase_since=FUTURE)
    found = past(r, NOW)
    assert found is not None
    assert (found.phase_since, found.progress.retry_at) == (NOW, FUTURE + MINUTE)


@pytest.mark.parametrize(
    ("asked_at", "answered"),
    [(NOW - OWN_AGENT_FIRST, True), (NOW - MINUTE, False), (NOW + SECOND, False), (NOW + HOUR, True)],
)
def test_a_release_is_left_to_the_own_agent_first_but_not_until_a_moment_in_the_future(
    asked_at: datetime, answered: bool
) -> None:
    r = record(Phase.HANDED_OVER, release=ReleaseRequest("ada", asked_at))
    s = situation(record=r, gate=gate(open=()), role=Role.CONCLUDER, lease=Lease())
    assert isinstance(conclude(s).effect, WriteRecord) is answered
