"""Single questions of a node's own agent, each at its edge, where a story would need a rare coincidence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from recovery.decide import brakes
from recovery.decide.assessment import assess
from recovery.decide.decision import SELDOM, Cancel, Decision, OutOfService, WriteRecord
from recovery.decide.idle import in_a_persons_hands, same_boot
from recovery.decide.marks import mark_patch, marked
from recovery.decide.orphan import conclude
from recovery.decide.own_node import decide
from recovery.decide.provider_step import not_now
from recovery.decide.room import MOST_BOOTS
from recovery.decide.situation import Lease, Role, Situation
from recovery.model import (
    CORDONED_BY,
    OUT_OF_SERVICE,
    OUT_OF_SERVICE_BY,
    TAINT,
    TAINTED,
    Attempt,
    Cause,
    Claim,
    Done,
    Evidence,
    Failed,
    GroupStart,
    Holding,
    IntentState,
    Line,
    Marks,
    Phase,
    PodMode,
    PodRule,
    Preflight,
    Progress,
    Record,
    Reference,
    Rung,
    Running,
    Step,
    Taint,
    Then,
    Validation,
    ValidationRun,
)
from tests.builders.faults import DMA, HBM, fault, problem, reading
from tests.builders.gates import gate, slot
from tests.builders.nodes import FAKE, MACHINE, node, pod
from tests.builders.policies import LADDER, policy
from tests.builders.records import intent, record
from tests.builders.situations import situation
from tests.builders.times import HOUR, MINUTE, NOW, SECOND

HELD = gate(slots=(slot(),))
BOTH = Marks(cordoned=True, tainted=True)
OUR_TAINT = (TAINT, "", "NoSchedule")
OURS = node(unschedulable=True, taints=(OUR_TAINT,), annotations={CORDONED_BY: "node-recovery"})
BOOTED = replace(OURS, boot_id="boot-2")
CLEAR = reading(cleared=frozenset({("NeuronHealth", DMA)}))
M9 = replace(MACHINE, id="m-9")
ASKED = Progress(submitted=(Attempt(1, "reboot"),))
MINE = Lease("concluder", mine=True, stale=False)


def on(r: Record, **changes: Any) -> Situation:
    return situation(**{"record": r, "gate": HELD, "node": OURS, "pods": ()} | changes)


def of(phase: Phase = Phase.RECOVERING, **changes: Any) -> Record:
    return record(phase, **{"marks": BOTH, "rung": 1, "rung_since": NOW} | changes)


def by_peer(r: Record, **changes: Any) -> Situation:
    return on(r, **{"role": Role.CONCLUDER, "readings": (), "lease": MINE} | changes)


def written(d: Decision) -> Record:
    assert isinstance(d.effect, WriteRecord), d.reason
    return d.effect.record


def effect(d: Decision) -> str:
    return type(d.effect).__name__ if d.effect is not None else d.key


# ---------------------------------------------------------------- the assessment


def test_an_assessment_knows_who_is_ahead_and_what_was_taken_back_without_a_gate() -> None:
    ahead = gate(open=(Line("node-9", "record-9", NOW - MINUTE), *gate().open))
    assert assess(situation(gate=ahead)).ahead == ("node-9",)
    assert assess(situation(gate=None, readings=(CLEAR,))).taken_back
    assert not assess(situation(gate=None)).taken_back


def test_the_further_back_in_the_queue_the_less_often_it_is_looked() -> None:
    lines = [Line(f"node-{i}", f"record-{i}", NOW - MINUTE) for i in range(20, 30)]
    full = gate(open=(*lines, *gate().open), slots=(slot("node-1", "record-1"),))
    assert decide(situation(gate=full)).look_again == 4.5 * SECOND
    assert decide(situation(gate=replace(full, slots=()))).look_again == 2 * SECOND
    more = [Line(f"node-{i}", f"record-{i}", NOW - MINUTE) for i in range(30, 130)]
    assert decide(situation(gate=replace(full, open=(*more, *gate().open)))).look_again == SELDOM


# ---------------------------------------------------------------- confirmed, and started


def test_a_confirmed_record_begins_with_nothing_of_an_earlier_recovery() -> None:
    left = record(
        Phase.SUSPECT,
        rung=1,
        rung_since=NOW,
        intent=intent(),
        replacement="node-9",
        replacement_machine="m-9",
        validation=ValidationRun("job", NOW),
        probation=HOUR,
    )
    queued = written(decide(on(left, gate=gate(), node=node())))
    assert queued.phase is Phase.WAITING
    assert (queued.rung, queued.rung_since, queued.intent) == (0, None, None)
    assert (queued.replacement, queued.replacement_machine, queued.validation) == ("", "", None)
    assert (queued.ladder, queued.probation) == (LADDER, 2 * MINUTE)


def test_a_start_is_remembered_with_the_group_that_the_gate_noted_last() -> None:
    starts = [GroupStart(NOW, "node-0", group, "m-0", DMA) for group in ("older", "newer")]
    held = gate(slots=(slot("node-0", "record-0", "fleet"),), starts=tuple(starts))
    started = written(decide(on(record(), gate=held, node=node(), preflight=None)))
    assert [(x.at, x.machine, x.group) for x in started.starts] == [(NOW, "m-0", "newer")]
    by_the_brake = "node.kubernetes.io/instance-type=trn1.32xlarge"
    assert (started.machine.group, started.scopes) == ("newer", ("fleet", by_the_brake))


# ---------------------------------------------------------------- one machine of a group at a time


def alone(mine: Any, other: Any, group: str = "workers", **changes: Any) -> str | None:
    """node-0 and node-1 hold slots, taken at these moments; node-1 is of ``group``."""
    slots = (replace(slot(), since=mine), replace(slot("node-1", "record-1"), since=other))
    starts = (GroupStart(NOW, "node-1", group, "m-1", DMA),)
    asked = Preflight(Reference("fake", "replace"), "workers", **{"alone": True} | changes)
    return brakes.not_alone(situation(gate=gate(slots=slots, starts=starts), preflight=asked))


def test_of_two_machines_of_a_group_the_older_place_goes_first() -> None:
    assert alone(NOW, NOW - SECOND) == "node-1 of group workers is out, which replaces one machine at a time"
    assert alone(NOW - SECOND, NOW) is None
    assert alone(NOW, NOW) is None  # by their names


@pytest.mark.parametrize("changes", [{"alone": False}, {"adopt": "it is under way"}, {"group": "others"}])
def test_nobody_waits_for_another_group_nor_where_it_does_not_matter(changes: dict[str, Any]) -> None:
    group = changes.pop("group", "workers")
    assert alone(NOW, NOW - SECOND, group, **changes) is None


def test_a_pending_replacement_is_not_waited_for_by_the_machine_that_it_replaces() -> None:
    starts = (GroupStart(NOW - MINUTE, "node-1", "workers", "m-0", DMA),)
    held = gate(slots=(slot("node-1", "record-1"),), starts=starts)
    created = node(created=NOW)
    assert brakes.pending_replacement(situation(gate=held, node=created)) is None
    another = gate(slots=held.slots, starts=(replace(starts[0], machine="m-1"),))
    assert brakes.pending_replacement(situation(gate=another, node=created))
    claimed = replace(another, claimed=(Claim("m-0", "m-7"),))
    assert brakes.pending_replacement(situation(gate=claimed, node=created)) is None


# ---------------------------------------------------------------- another machine, another boot


def test_another_machine_proves_nothing_of_a_reboot() -> None:
    r = of(intent=intent(action="reboot"), ladder=(LADDER[0], Rung(Step.REBOOT, MINUTE)), marks=Marks())
    changed = written(decide(on(r, machine=M9, node=node(boot_id="boot-2"), poll=Running("so"))))
    assert changed.phase is Phase.SUPERSEDED
    assert changed.sentence.endswith("its reboot cannot be proved any more")
    later = by_peer(r, machine=M9, node=node(boot_id="boot-2"), poll=Running("so"))
    assert conclude(later).key == "running so"


def test_a_new_boot_proves_no_replacement_to_a_peer_either() -> None:
    assert conclude(by_peer(of(intent=intent()), node=BOOTED, poll=Running("so"))).key == "running so"


def test_a_node_of_an_unknown_machine_is_not_taken_for_registered_anew() -> None:
    d = decide(on(of(), machine=None, machine_problem="no providerID", node=replace(OURS, uid="another")))
    assert "registered anew" not in d.reason


def test_a_record_that_knows_no_boot_sees_no_unexpected_one() -> None:
    assert effect(decide(on(of(boot_id=""), node=BOOTED))) == "Submit"
    s = on(of(boot_id=""), node=BOOTED)
    assert not_now(s, assess(s), Step.REPLACE) is None


@pytest.mark.parametrize("state", [IntentState.ABANDONED, IntentState.NOT_APPLIED])
def test_after_a_call_that_was_never_made_a_boot_is_unexpected(state: IntentState) -> None:
    assert written(decide(on(of(intent=intent(state)), node=BOOTED))).phase is Phase.PROVING


def test_so_many_boots_as_attempts_are_assessed_anew() -> None:
    most = situation().policy.limits.attempts.max
    few, many = ("boot-0",) * (most - 1), ("boot-0",) * most
    assert written(decide(on(of(progress=Progress(boots=few)), node=BOOTED))).phase is Phase.PROVING
    assert written(decide(on(of(progress=Progress(boots=many)), node=BOOTED))).phase is Phase.HANDED_OVER


def test_a_policy_of_endless_attempts_asks_a_person_before_the_record_is_full_of_boots() -> None:
    s = situation()
    endless = replace(s.policy.limits, attempts=replace(s.policy.limits.attempts, max=10_000))
    for count, phase in ((MOST_BOOTS - 1, Phase.PROVING), (MOST_BOOTS, Phase.HANDED_OVER)):
        booted = on(of(progress=Progress(boots=("boot-0",) * count)), node=BOOTED)
        changed = written(decide(replace(booted, policy=replace(s.policy, limits=endless))))
        assert changed.phase is phase


def test_a_boot_in_a_validation_is_a_failure_that_is_noted() -> None:
    r = of(
        Phase.PROVING,
        rung=0,
        intent=intent(action="reboot"),
        progress=ASKED,
        validate=Validation("burn", HOUR),
        validation=ValidationRun("job", NOW),
    )
    changed = written(decide(on(r, node=BOOTED)))
    assert (changed.phase, changed.rung, changed.boot_id) == (Phase.RECOVERING, 1, "boot-2")
    assert (changed.validation, changed.sentence) == (
        None,
        "the machine booted while it was validated by Job job",
    )


def test_a_record_has_so_many_faults_and_no_more() -> None:
    many = tuple(fault(f"reason-{i}") for i in range(20))
    seen = (reading(problem(), problem(HBM)),)
    assert "was seen too" not in decide(on(of(faults=many), readings=seen)).reason
    assert len(written(decide(on(of(faults=many[1:]), readings=seen))).faults) == 20


# ---------------------------------------------------------------- before and after a call


def test_a_provider_that_cannot_say_is_waited_for_as_long_as_the_step_may_take() -> None:
    unsaid = {"preflight": None, "preflight_retry": "no answer"}
    assert decide(on(of(), **unsaid)).key == "preflight"
    assert written(decide(on(of(rung_since=NOW - HOUR), **unsaid))).phase is Phase.HANDED_OVER


def test_a_provider_that_names_no_moment_is_waited_for_as_long_as_the_step_may_take() -> None:
    later = Preflight(Reference("fake", "replace"), "workers", not_yet="it is updating")
    late = of(rung_since=NOW - HOUR)
    assert written(decide(on(late, preflight=later))).phase is Phase.HANDED_OVER
    assert decide(on(late, preflight=replace(later, not_before=NOW + HOUR))).key == "not-yet"


def test_only_a_replacement_is_asked_of_its_group() -> None:
    short = Preflight(Reference("fake", "replace"), "workers", short_by=1)
    reboots = of(ladder=(LADDER[0], Rung(Step.REBOOT, MINUTE)))
    assert decide(on(of(), preflight=short)).key == "group-short"
    assert effect(decide(on(reboots, preflight=short))) == "Submit"
    s = on(of(), preflight=short)
    assert not_now(s, assess(s), Step.REPLACE) is not None
    assert not_now(s, assess(s), Step.REBOOT) is None


def test_right_before_a_call_a_provider_that_says_not_yet_is_waited_for() -> None:
    busy = Preflight(Reference("fake", "reboot"), "workers", not_yet="it is updating")
    s = on(of(), preflight=busy)
    kept = not_now(s, assess(s), Step.REBOOT)
    assert kept is not None
    assert (kept.reason, kept.key) == ("reboot is not asked for: it is updating", "not-yet")
    due = on(of(), preflight=replace(busy, not_before=NOW))
    assert not_now(due, assess(due), Step.REBOOT) is None
    theirs = on(of(), preflight=replace(busy, adopt="it is being rebooted"))
    assert not_now(theirs, assess(theirs), Step.REBOOT) is None


def test_right_before_a_call_a_record_that_is_gone_is_one_that_has_changed() -> None:
    s = on(of())
    gone = replace(s, record=None)
    assert not_now(s, assess(s), Step.REPLACE) is None
    kept = not_now(gone, assess(gone), Step.REPLACE)
    assert kept is not None
    assert kept.reason == "replace is not asked for: the record has changed"


def test_a_node_that_is_ready_again_keeps_a_concluder_alone() -> None:
    s = on(of())
    peer = replace(s, role=Role.CONCLUDER)
    kept = not_now(peer, assess(peer), Step.REPLACE)
    assert kept is not None
    assert kept.reason.endswith("node-0 is Ready again")


def test_a_drain_that_may_never_end_is_not_forced() -> None:
    never = situation().policy
    rules = replace(never.drain, pods=(PodRule(PodMode.NEVER),))
    r = of(rung=0, rung_since=NOW - HOUR, ladder=(Rung(Step.DRAIN, MINUTE, Then.FORCE), LADDER[1]))
    changed = written(decide(on(r, pods=(pod(),), policy=replace(never, drain=rules))))
    assert changed.phase is Phase.HANDED_OVER


# ---------------------------------------------------------------- proof


def replaced(**changes: Any) -> Record:
    evidence = Evidence(1, NOW, "Node node-0 is gone")
    plain = {"intent": intent(), "progress": replace(ASKED, evidence=evidence), "phase_since": NOW}
    return of(Phase.PROVING, **plain | changes)


def test_evidence_of_no_machine_is_of_the_very_call_and_of_a_replacement() -> None:
    assert conclude(by_peer(replaced())).reason == "proved: Node node-0 is gone"
    others = [
        replaced(intent=replace(intent(), attempt=2)),
        replaced(intent=intent(action="reboot")),
        replaced(intent=intent(IntentState.NOT_APPLIED)),
    ]
    assert not any(decide(on(r, readings=(reading(),))).reason.startswith("proved: Node") for r in others)


@pytest.mark.parametrize(("asked", "action"), [(None, "reboot"), (intent(action="replace"), "replace")])
def test_what_brought_it_back_is_in_the_outcome(asked: Any, action: str) -> None:
    r = of(Phase.PROVING, intent=asked, progress=ASKED, phase_since=NOW - HOUR, marks=Marks())
    d = decide(on(r, node=node(), readings=(reading(),), watched_for=HOUR))
    assert d.report is not None
    assert (d.report.outcome, d.report.action) == ("succeeded", action)


# ---------------------------------------------------------------- marks


@pytest.mark.parametrize(
    ("found", "ours"),
    [
        (node(), False),
        (node(taints=(OUR_TAINT,)), True),
        (node(annotations={CORDONED_BY: "node-recovery"}), True),
        (node(annotations={CORDONED_BY: "somebody"}), False),
        (node(annotations={OUT_OF_SERVICE_BY: "node-recovery"}), True),
        (node(annotations={TAINTED: "aznhc:NoSchedule"}), True),
        (node(unschedulable=True, taints=((OUT_OF_SERVICE, "", "NoExecute"),)), False),
    ],
)
def test_each_mark_of_ours_is_one_and_no_mark_of_others(found: Any, ours: bool) -> None:
    assert marked(found) is ours


@pytest.mark.parametrize(
    ("there", "ours"),
    [
        ({"unschedulable": True, "taints": (OUR_TAINT,)}, Marks(tainted=True)),
        (
            {"unschedulable": True, "taints": (OUR_TAINT,), "annotations": {CORDONED_BY: "node-recovery"}},
            Marks(cordoned=True, tainted=True),
        ),
        ({"annotations": {OUT_OF_SERVICE_BY: "node-recovery"}}, Marks(out_of_service=True)),
        (
            {
                "taints": (("a", "", "NoSchedule"), ("b", "", "NoSchedule")),
                "annotations": {TAINTED: "a:NoSchedule"},
            },
            Marks(taints=(Taint("a", "", "NoSchedule"),)),
        ),
    ],
)
def test_the_marks_of_a_node_that_a_person_has_are_put_on_its_record(
    there: dict[str, Any], ours: Marks
) -> None:
    r = record(Phase.HANDED_OVER)
    s = situation(node=node(**there), record=r, gate=gate(open=()))
    assert in_a_persons_hands(s, assess(s), r).effect == WriteRecord(replace(r, marks=ours))


def test_a_foreign_cordon_is_left_without_our_annotation() -> None:
    patch = mark_patch(node(unschedulable=True), BOTH)
    assert patch is not None
    assert "annotations" not in patch["metadata"]
    assert set(patch["spec"]) == {"taints"}


@pytest.mark.parametrize(
    ("taints", "annotated", "cordoned"),
    [((OUR_TAINT,), True, True), ((OUR_TAINT,), False, False), ((), True, False), ((), False, False)],
)
def test_a_cordon_is_ours_where_our_taint_and_annotation_are(
    taints: Any, annotated: bool, cordoned: bool
) -> None:
    notes = {CORDONED_BY: "node-recovery"} if annotated else {}
    there = node(unschedulable=True, taints=taints, annotations=notes)
    d = decide(on(of(marks=Marks(), rung=0, rung_since=None), node=there))
    assert effect(d) == "Mark"
    assert d.effect.marks == Marks(cordoned, True)  # type: ignore[union-attr]


# ---------------------------------------------------------------- closed records


def test_what_ended_otherwise_is_not_called_off() -> None:
    cancels = replace(FAKE, cancels=True)

    def closed(phase: Phase, **changes: Any) -> Decision:
        r = of(phase, intent=intent(action="reboot"), marks=Marks())
        s = on(
            r,
            **{"gate": gate(open=()), "node": node(), "provider": cancels, "readings": (reading(),)}
            | changes,
        )
        return decide(s)

    assert isinstance(closed(Phase.HANDED_OVER).effect, Cancel)
    assert isinstance(closed(Phase.RELEASED).effect, Cancel)
    assert closed(Phase.RECOVERED).effect is None
    assert closed(Phase.RELEASED, machine=None).effect is None
    assert closed(Phase.RELEASED, machine=M9).effect is None
    assert closed(Phase.RELEASED, node=node(boot_id="boot-2")).effect is None


def test_another_machine_or_boot_is_not_the_same_boot() -> None:
    assert same_boot(on(of()), of())
    assert not same_boot(on(of(), machine=M9), of())
    assert not same_boot(on(of(), node=BOOTED), of())


@pytest.mark.parametrize("phase", [Phase.RECOVERING, Phase.RECOVERED])
def test_the_out_of_service_taint_comes_off_a_node_whose_agent_runs(phase: Phase) -> None:
    found = replace(OURS, annotations={**OURS.annotations, OUT_OF_SERVICE_BY: "node-recovery"})
    s = on(of(phase), node=found, gate=HELD if phase.open else gate(open=()))
    assert decide(s).effect == OutOfService(False)


def test_marks_of_a_lost_record_stay_until_a_boot() -> None:
    lost = record(Phase.LOST, marks=BOTH)
    empty = gate(open=())
    assert decide(on(lost, gate=empty)).key == "lost"
    assert effect(decide(on(lost, gate=empty, node=BOOTED))) == "Unmark"


def test_a_concluder_takes_no_marks_off_and_climbs_no_ladder() -> None:
    gone = replaced()
    assert written(conclude(by_peer(gone))).phase is Phase.RECOVERED
    ladder = (*LADDER, Rung(Step.REBOOT, MINUTE))
    failed = conclude(by_peer(of(intent=intent(), ladder=ladder), poll=Failed("no capacity")))
    assert written(failed).phase is Phase.HANDED_OVER


def test_an_oldest_new_machine_is_claimed() -> None:
    d = decide(on(of(intent=intent()), poll=Done("m-0 is gone", ("m-7", "m-8"))))
    assert d.reason == "m-7 is claimed as the replacement of m-0"


def test_a_hold_ends_in_the_proof_of_a_machine_that_took_the_old_ones_name_too() -> None:
    held = Holding(Cause.UNREADABLE, NOW - HOUR)
    evidence = Evidence(1, NOW - HOUR, "m-0 is gone")
    r = of(
        Phase.PROVING,
        intent=intent(),
        replacement="node-0",
        replacement_machine="m-9",
        phase_since=NOW - MINUTE,
        progress=Progress(submitted=(Attempt(1, "replace"),), evidence=evidence, holding=held),
    )
    new = node(provider_id="fake:///workers/m-9")
    s = on(r, node=new, machine=M9, replacement=new, replacement_is_me=True, readings=(reading(),))
    changed = written(decide(s))
    assert changed.progress.holding is None
    assert [(x.cause, x.time) for x in changed.progress.held] == [(Cause.UNREADABLE, HOUR)]


def test_a_fault_that_returns_is_on_the_record_with_the_life_that_it_has_now() -> None:
    r = of(Phase.PROVING, boot_id="boot-2", faults=(fault(life="before the boot"),), progress=ASKED)
    back = replace(problem(), life="after it", counter=3.0)
    (changed,) = written(decide(on(r, node=BOOTED, readings=(reading(back),)))).faults
    assert (changed.boot_id, changed.life, changed.counter) == ("boot-2", "after it", 3.0)


EARLIER = policy("""
  - {name: dma, match: {reason: NeuronHasError_DMA_ERROR}, remedy: [{do: replace}]}
  - {name: hbm, match: {reason: "*_HBM_*"}, remedy: [{do: reboot}, {do: replace}]}
""")
BY_HBM: dict[str, Any] = {"rule": "hbm", "ladder": EARLIER.rules[1].remedy}


@pytest.mark.parametrize(
    ("changes", "chosen"),
    [
        ({}, "dma"),
        ({"rung": 1}, "hbm"),  # it has started before, and waits again
        ({"progress": Progress(submitted=(Attempt(1, "reboot"),))}, "hbm"),
        ({"phase_since": NOW}, "hbm"),  # the fault was there when the ladder was chosen
    ],
)
def test_an_earlier_rule_takes_over_a_ladder_that_has_not_started(
    changes: dict[str, Any], chosen: str
) -> None:
    waits = {"faults": (fault(HBM), fault(DMA)), "phase_since": NOW - HOUR} | changes
    s = situation(
        policy=EARLIER, record=record(**BY_HBM, **waits), readings=(reading(problem(HBM), problem(DMA)),)
    )
    effect = decide(s).effect
    assert (effect.record.rule if isinstance(effect, WriteRecord) else "hbm") == chosen


def test_an_earlier_rule_that_is_not_urgent_takes_nothing_from_one_that_is() -> None:
    """Or they would take turns, where the urgent one has just taken over outside the window."""
    rules = tuple(replace(x, urgent=x.name == "hbm") for x in EARLIER.rules)
    waits = record(**BY_HBM, faults=(fault(HBM), fault(DMA)), phase_since=NOW - HOUR)
    pages = (reading(problem(HBM), problem(DMA)),)
    s = situation(policy=replace(EARLIER, rules=rules), record=waits, readings=pages)
    assert not isinstance(decide(s).effect, WriteRecord)
