"""Item 07 without its mend: a slot counts in the scopes of its grant, so a changed budgetPer is exceeded."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from recovery.decide import brakes
from recovery.decide.situation import Situation
from recovery.model import Gate, Slot

STORY = "tests/stories/test_gate_keeps.py::test_a_slot_counts_in_the_scopes_of_the_policy_as_it_is_now"
PLOTS = ("another_budget",)


def take_out(put: Callable[[object, str, object], None]) -> None:
    put(brakes, "scopes_now", _scopes_of_the_grant)


def _scopes_of_the_grant(s: Situation, gate: Gate, scope: str) -> int:
    """By what the slot's own policy budgeted, which is what its record noted of a policy without a budget
    per label: nothing but the fleet."""
    return sum(1 for slot in gate.slots if scope in _granted(slot.labels, slot))


def _granted(labels: Mapping[str, str | None] | None, slot: Slot) -> tuple[str, ...]:
    kept = ("topology.kubernetes.io/zone",)
    if labels is None:
        return slot.scopes
    return ("fleet", *(f"{key}={labels[key]}" for key in kept if key in labels))
