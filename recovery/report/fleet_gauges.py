"""What the gate says of the fleet, as gauges: how much of each budget is used, the pause, the last count.

Every process that reads the gate shows the same, as of its last look: the fleet's value is their ``max``.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from recovery.decide.brakes import budget_allows
from recovery.decide.budget import known_labels, out_in
from recovery.model import Gate, Limits, Slot
from recovery.report.metrics import UNKNOWN, Metrics

Scope = tuple[str, int, int | None]
"""Its name, how many nodes of it are out, and how many may be; None where that is not known."""


class FleetGauges:
    """``most``: the highest number of slots that any budget comes to."""

    def __init__(self, metrics: Metrics, limits: Limits, most: int) -> None:
        self._metrics = metrics
        self._limits = limits
        self._most = most

    def show(self, gate: Gate | None, now: datetime, population: int) -> None:
        """``population``: how many nodes there are, where the gate has no count; 0: not known."""
        m = self._metrics
        m.paused.set(gate is not None and gate.pause is not None and gate.pause.in_force(now))
        census = gate.census if gate is not None else None
        m.census_sick.set(census.how_many if census is not None else UNKNOWN)
        m.census_population.set(census.population if census is not None else UNKNOWN)
        scopes = list(scopes_of(gate, self._limits, self._most, population))
        m.only(m.budget_used, {(name,): used for name, used, _ in scopes})
        m.only(m.budget_limit, {(name,): most for name, _, most in scopes if most is not None})

    def forget(self) -> None:
        """This process reads the gate no more."""
        m = self._metrics
        for gauge in (m.paused, m.census_sick, m.census_population):
            gauge.set(UNKNOWN)
        m.only(m.budget_used, {})
        m.only(m.budget_limit, {})


def scopes_of(gate: Gate | None, limits: Limits, most: int, population: int) -> Iterator[Scope]:
    """The fleet, and each value of a label with a budget of its own that a node is out of.

    So there are never more than slots. A label whose value is the node's own name makes no scope: its series
    would grow with the nodes.
    """
    census = gate.census if gate is not None else None
    nodes = census.population if census is not None else population
    slots = gate.slots if gate is not None else ()
    yield "fleet", len(slots), budget_allows(limits.budget, nodes or None, most)
    for key, share in sorted(limits.budget_per.items()):
        for value in sorted({value for slot in slots if (value := _value(slot, key))}):
            scope = f"{key}={value}"
            counted = census.by_label.get(scope) if census is not None else None
            allowed = budget_allows(share, counted[1] if counted is not None else None, most)
            assert gate is not None
            yield scope, len(out_in(gate, scope, {})), allowed


def _value(slot: Slot, key: str) -> str:
    value = known_labels(slot).get(key) or ""
    return "" if value == slot.node else value
