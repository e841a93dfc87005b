"""Situation -> what is read next, in order. What is not asked for costs nobody anything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from recovery.decide.needs import CENSUS_AGE, needed
from recovery.decide.situation import (
    ClaimsByEvent,
    Counted,
    GateMadeReady,
    HolderLabels,
    MachineLeft,
    Need,
    NewNode,
    PastStarts,
    PodsLeft,
    PowerState,
    Preflighted,
    Progressed,
    Role,
    Situation,
    ValidationJob,
)
from recovery.model import IntentState, Line, Pause, Phase, Rate, Rung, Share, Step, ValidationRun
from tests.builders.gates import gate, slot, start
from tests.builders.nodes import FAKE, node
from tests.builders.policies import LADDER, policy
from tests.builders.records import intent, record
from tests.builders.situations import situation
from tests.builders.times import HOUR, MINUTE, NOW, SECOND

PAST = PastStarts()
REPLACE, REBOOT = Preflighted(Step.REPLACE), Preflighted(Step.REBOOT)
KNOWN, COUNT = Counted(CENSUS_AGE, known=True), Counted(CENSUS_AGE)
SETTLED = Counted(0.5 * SECOND, since=NOW - 9.5 * SECOND)
POWERED = replace(FAKE, out_of_band=frozenset({Step.REBOOT}), sees_power=True)
SICK = node(conditions={"Ready": ("Unknown", "NodeStatusUnknown")})
ONE_AN_HOUR = replace(policy(), limits=replace(policy().limits, per_group=Rate(1, HOUR)))
PAUSED = Pause("ada", "a network change", None)
REBOOTS = (Rung(Step.DRAIN, 10 * MINUTE), Rung(Step.REBOOT, 10 * MINUTE), Rung(Step.REPLACE, 30 * MINUTE))


def needs(s: Situation) -> list[Need]:
    """What is asked for in turn, where every answer is as ``s`` has it already."""
    found: list[Need] = []
    while (need := needed(s)) is not None:
        found.append(need)
        s = replace(s, read=tuple(found))
    return found


def of(phase: Phase, **changes: Any) -> Situation:
    """An owner's, of a record in ``phase``; fields of the record by their names, others with ``s_``."""
    of_situation = {k[2:]: changes.pop(k) for k in list(changes) if k.startswith("s_")}
    return situation(**{"record": record(phase, **changes)} | of_situation)


def waiting(**changes: Any) -> Situation:
    return of(Phase.WAITING, **changes)


def joined(ago: Any, *others: Line) -> Any:
    return gate(open=(*others, Line("node-0", "record-0", NOW - ago)))


def peers(phase: Phase, **changes: Any) -> Situation:
    """Another agent's look at it."""
    return of(phase, **{"s_role": Role.CONCLUDER} | changes)


def concluders(phase: Phase, **changes: Any) -> Situation:
    """The concluder's: it has no node of its own, and may switch the machine's power."""
    return peers(phase, **{"s_apart": True, "s_provider": POWERED, "s_node": SICK} | changes)


LATELY = Counted(MINUTE, known=True)
AHEAD = Line("node-9", "record-9", NOW - MINUTE)
MADE: dict[str, Any] = {"s_gate": None}
EMPTIED: dict[str, Any] = {"s_gate": gate(stamp="")}
NOTIFIES = (Rung(Step.NOTIFY, MINUTE),)
ON_REPLACE: dict[str, Any] = {"rung": 1, "rung_since": NOW}
IN_FLIGHT: dict[str, Any] = {"rung": 1, "intent": intent()}
PHASES_OPEN = [phase for phase in Phase if phase.open]

ROWS: dict[str, tuple[Situation, list[Need]]] = {
    # The gate
    "suspect": (of(Phase.SUSPECT), [ClaimsByEvent()]),
    "suspect: no gate is made for it": (of(Phase.SUSPECT, **MADE), [ClaimsByEvent()]),
    "suspect: an emptied gate": (of(Phase.SUSPECT, **EMPTIED), [GateMadeReady(), ClaimsByEvent()]),
    "suspect: no step is due": (of(Phase.SUSPECT, ladder=LADDER), [ClaimsByEvent()]),
    "waiting: no gate": (waiting(**MADE), [GateMadeReady(), ClaimsByEvent()]),
    "waiting: a gate that cannot be used": (
        waiting(**MADE, s_gate_problem="status.open: found 7"),
        [ClaimsByEvent()],
    ),
    "recovering: an emptied gate": (
        of(Phase.RECOVERING, **IN_FLIGHT, **EMPTIED),
        [GateMadeReady(), Progressed()],
    ),
    # Before a start
    "waiting": (waiting(), [ClaimsByEvent(), REPLACE, KNOWN, SETTLED, PAST]),
    "waiting: claimed by a label": (waiting(s_forbidden="Karpenter is at work"), []),
    "waiting: not in line": (waiting(s_gate=gate(open=())), [ClaimsByEvent()]),
    "waiting: only another's line": (waiting(s_gate=gate(open=(AHEAD,))), [ClaimsByEvent()]),
    "waiting: paused": (waiting(s_gate=replace(gate(), pause=PAUSED)), [ClaimsByEvent()]),
    "waiting: excluded": (
        waiting(s_node=node(labels={"noderecovery.dev/exclude": "true"})),
        [ClaimsByEvent()],
    ),
    "waiting: the clock is off": (waiting(s_skew=MINUTE), [ClaimsByEvent()]),
    "waiting: the budget is used up": (
        waiting(s_gate=gate(slots=(slot("node-1", "record-1"),))),
        [ClaimsByEvent()],
    ),
    "waiting: cooldown": (waiting(s_gate=gate(last_start=NOW)), [ClaimsByEvent()]),
    "waiting: other faults may still show": (
        waiting(s_gate=joined(0.4 * SECOND)),
        [ClaimsByEvent(), REPLACE],
    ),
    "waiting: they have shown": (
        waiting(s_gate=joined(0.5 * SECOND)),
        [ClaimsByEvent(), REPLACE, KNOWN, Counted(0.5 * SECOND, since=NOW), PAST],
    ),
    "waiting: a clock that stepped back joins it now": (
        waiting(s_gate=joined(-HOUR)),
        [ClaimsByEvent(), REPLACE, KNOWN, Counted(0.5 * SECOND, since=NOW + 0.5 * SECOND), PAST],
    ),
    "waiting: what its provider's group has had is enough": (
        waiting(s_policy=ONE_AN_HOUR, s_gate=gate(starts=(start(MINUTE),))),
        [ClaimsByEvent(), REPLACE],
    ),
    "waiting: another is ahead, who counts": (
        waiting(s_gate=joined(10 * SECOND, AHEAD)),
        [ClaimsByEvent(), REPLACE, KNOWN],
    ),
    # What its provider is asked
    "waiting: a ladder with nothing for its provider": (
        waiting(ladder=(Rung(Step.CORDON, MINUTE),)),
        [ClaimsByEvent(), KNOWN, SETTLED, PAST],
    ),
    "waiting: the first step that is its provider's": (
        waiting(ladder=REBOOTS),
        [ClaimsByEvent(), REBOOT, KNOWN, SETTLED, PAST],
    ),
    "waiting: a step that is past": (
        waiting(ladder=REBOOTS, rung=2),
        [ClaimsByEvent(), REPLACE, KNOWN, SETTLED, PAST],
    ),
    "waiting: no machine": (waiting(s_machine=None), [ClaimsByEvent(), KNOWN, SETTLED, PAST]),
    "waiting: no provider": (waiting(s_provider=None), [ClaimsByEvent(), KNOWN, SETTLED, PAST]),
    "waiting: what no agent asks for its own machine": (
        waiting(ladder=REBOOTS, s_provider=POWERED),
        [ClaimsByEvent(), KNOWN, SETTLED, PAST],
    ),
    # On a rung
    "a drain that has not begun": (of(Phase.RECOVERING), [ClaimsByEvent(), COUNT]),
    "a drain": (of(Phase.RECOVERING, rung_since=NOW), [ClaimsByEvent(), PodsLeft(), COUNT]),
    "a drain, claimed by a label": (
        of(Phase.RECOVERING, rung_since=NOW, s_forbidden="Karpenter is at work"),
        [PodsLeft()],
    ),
    "a drain, paused": (
        of(Phase.RECOVERING, rung_since=NOW, s_gate=replace(gate(), pause=PAUSED)),
        [ClaimsByEvent(), PodsLeft()],
    ),
    "a call that is due, paused": (
        of(Phase.RECOVERING, **ON_REPLACE, s_gate=replace(gate(), pause=PAUSED)),
        [ClaimsByEvent()],
    ),
    "a call that is due": (of(Phase.RECOVERING, **ON_REPLACE), [ClaimsByEvent(), COUNT, REPLACE]),
    "a call that is another's": (
        of(Phase.RECOVERING, ladder=REBOOTS, **ON_REPLACE, s_provider=POWERED),
        [ClaimsByEvent(), COUNT],
    ),
    "notify": (of(Phase.RECOVERING, ladder=NOTIFIES, s_gate=gate(slots=(slot(),))), [ClaimsByEvent()]),
    "notify, and its slot was lost": (of(Phase.RECOVERING, ladder=NOTIFIES), [ClaimsByEvent(), COUNT]),
    "past its ladder": (of(Phase.RECOVERING, rung=2), [ClaimsByEvent()]),
    # After a call
    "a call under way": (of(Phase.RECOVERING, **IN_FLIGHT), [Progressed()]),
    "a call that was never made": (
        of(Phase.RECOVERING, rung=1, intent=intent(IntentState.ABANDONED)),
        [ClaimsByEvent(), COUNT, REPLACE],
    ),
    "proving": (of(Phase.PROVING, intent=intent(action="reboot")), []),
    "proving: no gate": (of(Phase.PROVING, **MADE), [GateMadeReady()]),
    "proving: a new machine": (of(Phase.PROVING, **IN_FLIGHT, replacement_machine="m-9"), [NewNode()]),
    "proving: validated": (of(Phase.PROVING, validation=ValidationRun("job", NOW)), [ValidationJob()]),
    # By a peer
    "peer: suspect": (peers(Phase.SUSPECT), [LATELY]),
    "peer: waiting": (peers(Phase.WAITING), [LATELY]),
    "peer: waiting, no gate": (peers(Phase.WAITING, **MADE), [GateMadeReady(), LATELY]),
    "peer: a drain": (peers(Phase.RECOVERING, rung_since=NOW, s_node=SICK, s_provider=POWERED), [LATELY]),
    "peer: a call that was due": (peers(Phase.RECOVERING, **ON_REPLACE, s_provider=POWERED), [LATELY]),
    "peer: a call under way": (peers(Phase.RECOVERING, **IN_FLIGHT), [Progressed()]),
    "peer: proving": (peers(Phase.PROVING, validation=ValidationRun("job", NOW)), []),
    "peer: proving a new machine": (peers(Phase.PROVING, replacement_machine="m-9"), [NewNode()]),
    # By the concluder
    "concluder: a dead drain": (
        concluders(Phase.RECOVERING, rung_since=NOW, ladder=REBOOTS),
        [PowerState(), COUNT],
    ),
    "concluder: a power cycle that is due": (
        concluders(Phase.RECOVERING, ladder=REBOOTS, **ON_REPLACE),
        [PowerState(), COUNT, REBOOT],
    ),
    "concluder: a machine that is proved down": (
        concluders(Phase.RECOVERING, **IN_FLIGHT, s_down="its BMC says that the power is off"),
        [PowerState(), PodsLeft(evicting=False), Progressed()],
    ),
    "concluder: a node that is Ready": (concluders(Phase.RECOVERING, s_node=node()), [COUNT]),
    "concluder: no Node": (concluders(Phase.RECOVERING, s_node=None), [COUNT]),
    "concluder: no machine": (concluders(Phase.RECOVERING, s_machine=None), [COUNT]),
    "concluder: no provider": (concluders(Phase.RECOVERING, s_provider=None), [LATELY]),
    "concluder: a provider that sees no power": (
        concluders(Phase.RECOVERING, ladder=REBOOTS, s_provider=replace(POWERED, sees_power=False)),
        [COUNT],
    ),
    "concluder: a provider without power of its own": (
        concluders(Phase.RECOVERING, **ON_REPLACE, s_provider=replace(FAKE, sees_power=True)),
        [PowerState(), LATELY],
    ),
    "concluder: a cloud, whose pods are not its own to list": (
        concluders(Phase.RECOVERING, **ON_REPLACE, s_provider=replace(FAKE, sees_power=True, cloud=True)),
        [LATELY],
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_what_a_decision_may_depend_on_is_read_in_this_order(row: str) -> None:
    s, expected = ROWS[row]
    assert needs(s) == expected


@pytest.mark.parametrize("row", ROWS)
def test_off_nothing_more_is_read(row: str) -> None:
    assert needs(replace(ROWS[row][0], on=False)) == []


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("phase", [phase for phase in Phase if not phase.open])
def test_nothing_more_is_read_for_a_closed_record(phase: Phase, role: Role) -> None:
    s = of(phase, intent=intent(), s_role=role, s_apart=True, s_provider=POWERED, s_node=SICK, **MADE)
    ghost = phase is Phase.HANDED_OVER and role is Role.CONCLUDER  # its machine may be gone
    assert needs(s) == ([Progressed(), MachineLeft()] if ghost else [])


def test_the_machine_of_a_deleted_record_is_looked_for_while_that_has_a_slot() -> None:
    held = gate(slots=(slot("node-0", "an earlier one"),))
    assert needs(of(Phase.LOST, s_gate=held)) == [MachineLeft()]
    assert needs(of(Phase.LOST, s_gate=gate(slots=(slot(),)))) == []


def test_the_nodes_of_slots_that_tell_no_labels_are_read_before_the_budget_is_asked() -> None:
    limits = replace(policy().limits, budget_per={"pool": {"*": Share(count=1)}})
    s = waiting(s_policy=replace(policy(), limits=limits), s_gate=gate(slots=(slot("node-1", "record-1"),)))
    assert needs(s)[:2] == [ClaimsByEvent(), HolderLabels((("node-1", ""),))]


def test_nothing_more_is_read_for_a_node_without_a_record() -> None:
    assert needs(situation(record=None, gate=None)) == []


def test_an_owner_needs_no_evidence_that_its_own_machine_is_down() -> None:
    s = of(Phase.WAITING, s_apart=True, s_provider=POWERED, s_node=SICK)
    assert PowerState() not in needs(s)


@pytest.mark.parametrize("phase", PHASES_OPEN)
def test_what_was_read_once_is_not_asked_for_again(phase: Phase) -> None:
    s = of(phase, **IN_FLIGHT)
    assert needed(replace(s, read=tuple(needs(s)))) is None
