"""Counting the sick. PURE.

Sick is a node with an open or handed-over record, a catalogued condition that is True, or NotReady; unknown
is one with such a condition Unknown. Both count (ruling B13). A handed-over node counts on when its Node is
gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime

from recovery.model import Census, NodeView, Record


def ill(node: NodeView, catalogued: frozenset[str]) -> bool:
    """Whether the Node itself says that it is sick or not known to be well."""
    if not node.ready:
        return True
    return any(
        t in catalogued and status in ("True", "Unknown") for t, (status, _) in node.conditions.items()
    )


def count(
    nodes: Iterable[NodeView],
    records: Iterable[Record],
    catalogued: frozenset[str],
    labels: Iterable[str],
    now: datetime,
) -> Census:
    """The census of a fleet. ``labels``: for which label keys each value's share is wanted."""
    keys = sorted(set(labels))
    in_records = {r.node for r in records if r.phase.sick}
    sick: list[str] = []
    population: Counter[str] = Counter()
    affected: Counter[str] = Counter()
    seen: set[str] = set()
    for node in nodes:
        seen.add(node.name)
        is_sick = node.name in in_records or ill(node, catalogued)
        if is_sick:
            sick.append(node.name)
        for scope in _scopes(node.labels, keys):
            population[scope] += 1
            affected[scope] += is_sick
    ghosts = sorted(in_records - seen)
    return Census(
        at=now,
        population=len(seen) + len(ghosts),
        sick=tuple(sorted(sick) + ghosts),
        by_label={scope: (affected[scope], n) for scope, n in sorted(population.items())},
    )


def _scopes(labels: Mapping[str, str], keys: Iterable[str]) -> Iterable[str]:
    return (f"{key}={labels[key]}" for key in keys if key in labels)
