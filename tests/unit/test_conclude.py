"""What a peer makes of a record whose agent is gone: situation -> verb, effect and sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from recovery.decide.decision import WriteRecord
from recovery.decide.orphan import PATIENCE, conclude
from recovery.decide.situation import Lease, Role, Situation
from recovery.model import (
    EXCLUDE,
    Attempt,
    Cause,
    Census,
    IntentState,
    Marks,
    Pause,
    Phase,
    Progress,
    Running,
)
from tests.builders.faults import DMA
from tests.builders.gates import gate, slot
from tests.builders.nodes import MACHINE, node
from tests.builders.records import intent, record
from tests.builders.situations import situation
from tests.builders.times import MINUTE, NOW, SECOND

ALIVE = Lease("owner/node-0/pod/1234", mine=False, stale=False)


def left(phase: Phase = Phase.RECOVERING, **changes: Any) -> Situation:
    """node-0's record as its agent left it, seen by a concluder that holds its Lease."""
    of_record = {k: changes.pop(k) for k in ("intent", "rung", "rung_since") if k in changes}
    plain = {"role": Role.CONCLUDER, "record": record(phase, **of_record), "readings": ()}
    return situation(**plain | changes)


def proving() -> Situation:
    asked = Progress(submitted=(Attempt(1, "reboot"),))
    return left(record=record(Phase.PROVING, intent=intent(action="reboot"), phase_since=NOW, progress=asked))


def rebooted_in_vain(**changes: Any) -> Situation:
    """Its reboot did not help, and the next step has not been asked for yet."""
    asked = Progress(submitted=(Attempt(1, "reboot"),))
    return left(record=record(Phase.RECOVERING, rung=2, progress=asked), **changes)


Row = tuple[Situation, str, str, str]
"""A situation; verb and effect; the phase that a record is swapped to, or the key; the sentence's start."""
ROWS: dict[str, Row] = {
    "off": (left(on=False), "leave", "leave", "recovery is off (ENABLE_RECOVERY=false)"),
    "undecodable record": (
        left(record=None, record_problem="status.phase: is missing"),
        "hold",
        "undecodable",
        "the record cannot be used, and is not touched: status.phase: is missing",
    ),
    "record deleted": (
        left(record=None),
        "act WriteRecord",
        "lost",
        "lost: somebody deleted the record of a recovery that was open",
    ),
    "closed": (
        left(Phase.RECOVERED),
        "act FreeSlot",
        "FreeSlot",
        "node-0: the record is closed; its place in the budget is free again",
    ),
    "agent alive after all": (
        left(lease=ALIVE),
        "leave",
        "alive",
        "node-0: another process works on it (owner/node-0/pod/1234)",
    ),
    "intent without an outcome": (
        left(intent=intent(IntentState.WRITTEN), intent_seen_for=5 * SECOND),
        "wait",
        "fence",
        "node-0: who looked after it may still ask for replace within the next 20 s",
    ),
    "intent that can no longer be carried out": (
        left(intent=intent(IntentState.WRITTEN), intent_seen_for=MINUTE),
        "act WriteRecord",
        "recovering",
        "replace may or may not have been asked for before the process stopped: observing",
    ),
    "call under way": (
        left(intent=intent(), rung=1, poll=Running("m-0 is being ended")),
        "wait",
        "running m-0 is being ended",
        "m-0 is being ended",
    ),
    "node gone": (
        left(node=None, machine=None),
        "act WriteRecord",
        "superseded",
        "the Node node-0 is gone, and nothing was called for it",
    ),
    "another machine": (
        left(machine=replace(MACHINE, id="m-9")),
        "act WriteRecord",
        "superseded",
        "the machine behind node-0 is m-9 now, not m-0: nothing was called",
    ),
    "node gone after a step": (
        rebooted_in_vain(node=None, machine=None),
        "act WriteRecord",
        "superseded",
        "the Node node-0 is gone, and nothing was called for it after reboot",
    ),
    "another machine after a step": (
        rebooted_in_vain(machine=replace(MACHINE, id="m-9")),
        "act WriteRecord",
        "superseded",
        "the machine behind node-0 is m-9 now, not m-0: nothing was called after reboot",
    ),
    "patience": (
        left(owner_gone_for=5 * MINUTE),
        "wait",
        "patience",
        "node-0: nobody looks after it now; who did has another 10 min to come back",
    ),
    "patience with a step of its own length": (
        left(owner_gone_for=PATIENCE, rung=1, rung_since=NOW),
        "wait",
        "patience",
        "node-0: nobody looks after it now; who did has another 15 min to come back",
    ),
    "patience ended": (
        left(owner_gone_for=PATIENCE),
        "act WriteRecord",
        "handedOver",
        f"handed over to a person: nobody has looked after node-0 for 15 min ({DMA} was seen)",
    ),
    "a reboot that only its own agent can prove": (
        proving(),
        "wait",
        "unproved nobody looks after node-0 to prove it",
        "probation: nobody looks after node-0 to prove it",
    ),
    "a reboot that nobody can prove any more, as its machine is gone": (
        replace(proving(), node=None, machine=None, machine_gone="m-0 is terminated"),
        "act WriteRecord",
        "superseded",
        "m-0 is terminated, and its Node node-0 is gone: nothing is left to prove",
    ),
}


HELD: dict[Cause, dict[str, Any]] = {
    Cause.PAUSE: {"gate": gate(slots=(slot(),), pause=Pause("ada", "a drill", None))},
    Cause.CLAIM: {"forbidden": "Karpenter is at work"},
    Cause.BRAKE: {"census": Census(NOW, 4, ("n-1", "n-2", "n-3"), total=3)},
}


@pytest.mark.parametrize("cause", HELD)
def test_what_holds_a_recovery_is_not_time_in_which_its_agent_could_come_back(cause: Cause) -> None:
    d = conclude(left(owner_gone_for=PATIENCE, **HELD[cause]))
    assert (d.effect, d.key, d.held) == (None, "patience", cause)


def test_an_exclusion_ends_the_recovery_of_an_agent_that_was_waited_for_in_vain() -> None:
    marked = record(Phase.RECOVERING, marks=Marks(cordoned=True, tainted=True))
    excluded = left(record=marked, node=node(labels={EXCLUDE: "true"}), owner_gone_for=PATIENCE - SECOND)
    d = conclude(excluded)
    assert (d.effect, d.key, d.held) == (None, "patience", Cause.AGENT)
    d = conclude(replace(excluded, owner_gone_for=PATIENCE))
    assert isinstance(d.effect, WriteRecord)
    assert d.effect.record.phase is Phase.HANDED_OVER
    assert d.reason.endswith("so our marks are on it still")


@pytest.mark.parametrize("row", ROWS)
def test_a_record_without_its_agent_has_its_conclusion(row: str) -> None:
    s, verb, expected, sentence = ROWS[row]
    d = conclude(s)
    effect = f" {type(d.effect).__name__}" if d.effect else ""
    what = d.effect.record.phase.value if isinstance(d.effect, WriteRecord) else d.key
    assert (f"{d.verb.value}{effect}", what) == (verb, expected)
    assert d.reason.startswith(sentence), d.reason


@pytest.mark.parametrize("row", ROWS)
def test_off_nothing_is_concluded(row: str) -> None:
    assert conclude(replace(ROWS[row][0], on=False)).effect is None
