"""Single lines of defence, each alone: what another line would keep in most stories is kept by this one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from recovery.decide.decision import Decision, OutOfService, RestoreSlot, WriteRecord
from recovery.decide.endings import close
from recovery.decide.lifecycle import Event
from recovery.decide.orphan import DEAD_AFTER, PATIENCE, conclude
from recovery.decide.own_node import decide
from recovery.decide.situation import Lease, Role, Situation
from recovery.model import (
    CORDONED_BY,
    OUT_OF_SERVICE,
    TAINT,
    Attempt,
    IntentState,
    Marks,
    Outcome,
    Phase,
    Preflight,
    Progress,
    Record,
    Reference,
    Rung,
    Running,
    Step,
    Unfinished,
)
from recovery.store.upgrade import upgraded
from tests.builders.faults import fault, reading
from tests.builders.gates import gate, slot
from tests.builders.nodes import FAKE, MACHINE, ZONE, node, pod
from tests.builders.records import intent, record
from tests.builders.situations import situation
from tests.builders.times import HOUR, MINUTE, NOW, SECOND

HELD = gate(slots=(slot(),))
BOTH = Marks(cordoned=True, tainted=True)
OURS = node(
    unschedulable=True, taints=((TAINT, "", "NoSchedule"),), annotations={CORDONED_BY: "node-recovery"}
)
DEAD = replace(OURS, conditions={"Ready": ("Unknown", "NodeStatusUnknown")})
LADDER = (Rung(Step.DRAIN, 10 * MINUTE), Rung(Step.REBOOT, 10 * MINUTE), Rung(Step.REPLACE, 30 * MINUTE))
POWERED = replace(FAKE, out_of_band=frozenset({Step.REBOOT}), sees_power=True)
M9 = replace(MACHINE, id="m-9")


def on(r: Record, **changes: Any) -> Situation:
    return situation(**{"record": r, "gate": HELD, "node": OURS, "pods": ()} | changes)


def of(phase: Phase = Phase.RECOVERING, **changes: Any) -> Record:
    return record(phase, **{"marks": BOTH, "ladder": LADDER, "rung_since": NOW} | changes)


def effect(d: Decision) -> str:
    return type(d.effect).__name__ if d.effect is not None else d.key


def written(d: Decision) -> Record:
    assert isinstance(d.effect, WriteRecord), d.reason
    return d.effect.record


# ---------------------------------------------------------------- by the concluder


def dead(r: Record, **changes: Any) -> Situation:
    plain = {"role": Role.CONCLUDER, "apart": True, "provider": POWERED, "node": DEAD, "readings": ()}
    plain |= {"owner_gone_for": DEAD_AFTER, "down": "the power is off"}
    return on(r, **plain | {"lease": Lease("concluder", mine=True, stale=False)} | changes)


STUCK = (pod(deletion_timestamp=NOW - SECOND),)
GOING = (pod(deletion_timestamp=NOW + SECOND),)
LEFT_ALONE: dict[str, Situation] = {
    "a slot that is not held": dead(of(), pods=STUCK, gate=gate()),
    "a person's own taint": dead(
        of(), pods=STUCK, node=replace(DEAD, taints=(*DEAD.taints, (OUT_OF_SERVICE, "", "NoExecute")))
    ),
    "refused a moment ago": dead(of(), pods=STUCK, refusals={OUT_OF_SERVICE: "forbidden"}),
    "another machine": dead(of(intent=intent()), pods=STUCK, machine=M9, poll=Unfinished("so")),
    "nobody waits for it any more": dead(of(), pods=STUCK, owner_gone_for=PATIENCE),
    "nothing is under way": dead(of(Phase.WAITING), pods=STUCK),
    "pods within their grace": dead(of(), pods=GOING),
    "not proved down": dead(of(), pods=STUCK, down=""),
    "off for the moment of its power cycle": dead(of(intent=intent()), pods=STUCK, poll=Running("so")),
}


@pytest.mark.parametrize("row", LEFT_ALONE)
def test_pods_are_not_given_up(row: str) -> None:
    assert not isinstance(conclude(LEFT_ALONE[row]).effect, OutOfService)


@pytest.mark.parametrize("poll", [None, Unfinished("the group wants one less")])
def test_pods_are_given_up(poll: Any) -> None:
    s = dead(of(intent=intent() if poll else None), pods=STUCK, poll=poll)
    assert conclude(s).effect == OutOfService(True)


def test_a_dead_machine_is_power_cycled_from_outside() -> None:
    assert written(conclude(dead(of()))).rung == 1
    assert effect(conclude(dead(of(rung=1)))) == "Submit"


@pytest.mark.parametrize(
    "s",
    [
        dead(of(Phase.WAITING)),
        dead(of(marks=Marks())),
        dead(of(rung=2)),
        dead(of(), node=OURS),
        dead(of(), owner_gone_for=DEAD_AFTER - SECOND),
        dead(of(), apart=False),
    ],
    ids=["waiting", "unmarked", "the step is past", "Ready", "just gone", "by an agent"],
)
def test_what_is_not_known_to_be_dead_is_not_power_cycled(s: Situation) -> None:
    assert conclude(s).key == "patience"


def test_without_its_slot_a_dead_machine_gets_that_back_first() -> None:
    d = conclude(dead(of(rung=1), gate=gate()))
    assert isinstance(d.effect, RestoreSlot)


def test_a_step_that_has_not_begun_lengthens_nobodys_patience() -> None:
    s = dead(of(rung=2, rung_since=None), apart=False, owner_gone_for=PATIENCE)
    assert written(conclude(s)).phase is Phase.HANDED_OVER
    later = dead(of(rung=2), apart=False, owner_gone_for=PATIENCE)
    assert conclude(later).key == "patience"


# ---------------------------------------------------------------- the slot that was lost

FULL = gate(slots=(slot("node-1", "record-1"),))
ASKED = Progress(submitted=(Attempt(1, "reboot"),))
PLAIN = node()
OUT: dict[str, Situation] = {
    "marks on record": on(of(), gate=FULL, node=replace(PLAIN, unschedulable=True)),
    "marks on its Node": on(of(marks=Marks()), gate=FULL),
    "a call that was made": on(of(marks=Marks(), progress=ASKED), gate=FULL, node=PLAIN),
}


@pytest.mark.parametrize("row", OUT)
def test_who_is_out_gets_its_slot_back_whatever_the_budget_says(row: str) -> None:
    d = decide(OUT[row])
    assert isinstance(d.effect, RestoreSlot)
    assert d.effect.slot.scopes == ("fleet", f"{ZONE}=a")


def test_who_is_not_out_waits_for_the_budget() -> None:
    assert decide(on(of(marks=Marks()), gate=FULL, node=PLAIN)).key == "budget"


# ---------------------------------------------------------------- its own agent


def test_a_new_boot_id_proves_no_replacement() -> None:
    r = of(rung=2, intent=intent())
    changed = written(decide(on(r, node=replace(OURS, boot_id="boot-2"), poll=Running("so"))))
    assert (changed.phase, changed.boot_id) == (Phase.RECOVERING, "boot-2")


def test_no_boot_id_is_no_new_one() -> None:
    r = of(rung=1, intent=intent(action="reboot"))
    assert decide(on(r, node=replace(OURS, boot_id=""), poll=Running("so"))).key == "running so"


def test_a_boot_id_that_is_not_told_is_no_boot() -> None:
    d = decide(on(of(), node=replace(OURS, boot_id=""), pods=(pod(),)))
    assert effect(d) == "Evict"


def test_the_faults_of_before_an_unexpected_boot_are_cleared_and_its_validation_forgotten() -> None:
    changed = written(decide(on(of(), node=replace(OURS, boot_id="boot-2"))))
    assert [f.cleared for f in changed.faults] == [True]


def test_a_fault_that_came_back_is_not_cleared_and_is_of_this_boot() -> None:
    r = of(Phase.PROVING, faults=(fault(cleared=True),), phase_since=NOW - HOUR, boot_id="boot-1")
    changed = written(decide(on(r)))
    assert [(f.cleared, f.boot_id) for f in changed.faults] == [(False, "boot-1")]
    assert (changed.phase, changed.phase_since, changed.rung) == (Phase.RECOVERING, NOW, 0)


def test_where_a_machine_is_gone_its_ladder_is_not_climbed_on() -> None:
    """A replacement that failed, while another machine goes by the name."""
    r = of(rung=1, intent=intent(), rung_since=NOW - HOUR)
    changed = written(decide(on(r, machine=M9, poll=Running("so"))))
    assert changed.phase is Phase.HANDED_OVER


@pytest.mark.parametrize(("of_node", "ends"), [("uid-node-0", "Unmark"), ("uid-of-another", "WriteRecord")])
def test_marks_on_record_come_off_where_they_can_be(of_node: str, ends: str) -> None:
    r = of(Phase.WAITING, node_uid=of_node)
    cleared = reading(cleared=frozenset({("NeuronHealth", fault().reason)}))
    s = on(r, node=replace(PLAIN, uid="uid-node-0"), gate=gate(), readings=(cleared,), machine=None)
    assert effect(decide(s)) == ends


@pytest.mark.parametrize(
    ("progress", "start"), [(ASKED, "no further step is taken"), (Progress(), "closed without a destr")]
)
def test_what_was_done_before_an_exclusion_is_said(progress: Progress, start: str) -> None:
    excluded = replace(OURS, labels={"noderecovery.dev/exclude": "true"})
    assert decide(on(of(progress=progress), node=excluded)).reason.startswith(start)


def test_a_provider_that_says_not_yet_is_waited_for_until_its_moment() -> None:
    def later(**changes: Any) -> Decision:
        asked = Preflight(Reference("fake", "reboot"), "workers", not_yet="it is updating", **changes)
        return decide(on(of(rung=1), preflight=asked))

    assert later().key == "not-yet"
    assert later(not_before=NOW + SECOND).key == "not-yet"
    assert effect(later(not_before=NOW)) == "Submit"
    assert effect(later(adopt="it is under way")) == "Submit"


@pytest.mark.parametrize("event", [Event.PROVED, Event.GAVE_UP, Event.RELEASED])
def test_a_fault_that_was_settled_is_remembered_once(event: Event) -> None:
    closed = close(of(Phase.PROVING, acknowledged=(fault(),), phase_since=NOW - HOUR), NOW, event, "so")
    assert (closed.acknowledged, closed.phase_since) == ((fault(),), NOW)


# ---------------------------------------------------------------- records of before


def lines(*of_history: tuple[str, int, Any]) -> tuple[Outcome, ...]:
    return tuple(
        Outcome(NOW - ago, attempt, event, f"{event} {attempt}") for event, attempt, ago in of_history
    )


def before(*history: tuple[str, int, Any], **changes: Any) -> Progress:
    return upgraded(replace(of(**changes), history=lines(*history))).progress


def test_the_attempts_of_a_record_of_before_are_in_order_and_each_once() -> None:
    found = before(
        ("submitted", 1, 9 * MINUTE),
        ("started", 1, 8 * MINUTE),
        ("ambiguous", 2, 7 * MINUTE),
        ("submitted", 2, 6 * MINUTE),
        ("adopted", 3, 5 * MINUTE),
        intent=replace(intent(), attempt=3),
    )
    assert found.submitted == (Attempt(2, ""), Attempt(3, "replace"))


@pytest.mark.parametrize(
    ("rung_since", "tries"), [(NOW - 2 * MINUTE, 1), (NOW - 4 * MINUTE, 2), (None, 2), (NOW - HOUR, 3)]
)
def test_the_tries_of_a_record_of_before_are_those_of_its_step(rung_since: Any, tries: int) -> None:
    history = [("notApplied", 1, 9 * MINUTE), ("rung", 1, 5 * MINUTE), ("notApplied", 2, 3 * MINUTE)]
    found = before(*history, ("notApplied", 3, MINUTE), rung_since=rung_since, phase_since=NOW - 10 * MINUTE)
    assert (found.tries, found.step_since) == (tries, NOW - 5 * MINUTE)


def test_the_last_words_of_a_record_of_before_count() -> None:
    found = before(("evidence", 1, HOUR), ("evidence", 2, MINUTE), ("notYet", 3, SECOND))
    assert found.evidence is not None
    assert (found.evidence.attempt, found.evidence.what) == (2, "evidence 2")
    assert found.retry_at == NOW + 14 * SECOND
    assert found.proving_since == NOW - MINUTE


@pytest.mark.parametrize("state", [IntentState.ABANDONED, IntentState.REFUSED, IntentState.NOT_APPLIED])
def test_a_call_that_came_to_nothing_is_not_another_machines(state: IntentState) -> None:
    """Law 4: what goes by the name now was not asked for, be there an intent or not."""
    r = of(rung=2, intent=intent(state), marks=Marks())
    changed = written(decide(on(r, machine=M9, node=PLAIN)))
    assert changed.phase is Phase.SUPERSEDED
    assert changed.sentence.endswith("nothing is called")
