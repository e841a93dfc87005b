"""What the gate says of the fleet, as gauges: how much of each budget is used, the pause, the last count.

Every process that reads the gate shows the same, as of its last look: the fleet's value is their ``max``.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from recovery.decide.brakes import OF_RULE, budget_allows
from recovery.decide.budget import known_labels, out_by, out_in
from recovery.decide.selector import identity
from recovery.model import Census, Gate, Policy, Slot, share_for
from recovery.report.metrics import UNKNOWN, Metrics

Scope = tuple[str, int, int | None]
"""Its name, how many nodes of it are out, and how many may be; None where that is not known."""


class FleetGauges:
    """``most``: the highest number of slots that any budget comes to."""

    def __init__(self, metrics: Metrics, policy: Policy, most: int) -> None:
        self._metrics = metrics
        self._policy = policy
        self._most = most

    def show(self, gate: Gate | None, now: datetime, population: int) -> None:
        """``population``: how many nodes there are, where the gate has no count; 0: not known."""
        m = self._metrics
        m.paused.set(gate is not None and gate.pause is not None and gate.pause.in_force(now))
        census = _census(gate, self._policy)
        m.census_sick.set(census.how_many if census is not None else UNKNOWN)
        m.census_population.set(census.population if census is not None else UNKNOWN)
        scopes = list(scopes_of(gate, self._policy, self._most, population))
        m.only(m.budget_used, {(name,): used for name, used, _ in scopes})
        m.only(m.budget_limit, {(name,): most for name, _, most in scopes if most is not None})

    def forget(self) -> None:
        """This process reads the gate no more."""
        m = self._metrics
        for gauge in (m.paused, m.census_sick, m.census_population):
            gauge.set(UNKNOWN)
        m.only(m.budget_used, {})
        m.only(m.budget_limit, {})


def scopes_of(gate: Gate | None, policy: Policy, most: int, population: int) -> Iterator[Scope]:
    """The fleet, each rule with a budget of its own, and each label value with one that a node is out of.

    So there are never more than rules and slots. A label whose value is the node's own name makes no scope:
    its series would grow with the nodes.
    """
    gate = gate or Gate("", "", "")
    census = _census(gate, policy)
    everybody = population if not policy.limits.population else 0
    nodes = (census.population if census is not None else everybody) or None
    yield "fleet", len(gate.slots), budget_allows(policy.limits.budget, nodes, most)
    for rule in policy.rules:
        if rule.budget is not None:
            out = out_by(gate, rule.name, (x.name for x in policy.rules))
            yield f"{OF_RULE}{rule.name}", len(out), budget_allows(rule.budget, nodes, most)
    for key, per in sorted(policy.limits.budget_per.items()):
        for value in sorted({value for slot in gate.slots if (value := _value(slot, key))}):
            share, scope = share_for(per, value), f"{key}={value}"
            counted = census.by_label.get(scope) if census is not None else None
            if share is not None:
                allowed = budget_allows(share, counted[1] if counted is not None else None, most)
                yield scope, len(out_in(gate, scope, {})), allowed


def _census(gate: Gate | None, policy: Policy) -> Census | None:
    """The last count, if it is of the nodes that this policy counts."""
    census = gate.census if gate is not None else None
    return census if census is not None and census.of == identity(policy.limits.population) else None


def _value(slot: Slot, key: str) -> str:
    value = known_labels(slot).get(key) or ""
    return "" if value == slot.node else value
