"""Counting the sick. PURE.

Sick is a node with an open or handed-over record, a catalogued condition that is True, or NotReady; unknown
is one with such a condition Unknown. Both count. A handed-over node counts on when its Node is
gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from recovery.model import Census, NodeView, Record

OwnFault = Callable[[str, str], bool]
"""Whether a (type, reason) is catalogued, and as the node's own: a hang that another worker causes is not."""


def ill(node: NodeView, own_fault: OwnFault) -> bool:
    """Whether the Node itself says that it is sick or not known to be well."""
    if not node.ready:
        return True
    return any(
        status in ("True", "Unknown") and own_fault(kind, reason)
        for kind, (status, reason) in node.conditions.items()
    )


def counts(record: Record, own_fault: OwnFault) -> bool:
    """Whether a record makes its node count: not where it only tells of somebody else's fault."""
    if not record.phase.sick:
        return False
    if record.ladder or record.marks or record.intent:
        return True
    return any(own_fault(f.type, f.reason) for f in record.faults) or not record.faults


def count(
    nodes: Iterable[NodeView],
    records: Iterable[Record],
    own_fault: OwnFault,
    labels: Iterable[str],
    now: datetime,
    unknown: Iterable[str] = (),
) -> Census:
    """The census of a fleet. ``labels``: for which label keys each value's share is wanted.

    ``unknown``: nodes whose records cannot be read; they count, since nothing is known of them.
    """
    keys = sorted(set(labels))
    in_records = {r.node for r in records if counts(r, own_fault)} | set(unknown)
    sick: list[str] = []
    population: Counter[str] = Counter()
    affected: Counter[str] = Counter()
    seen: set[str] = set()
    for node in nodes:
        seen.add(node.name)
        is_sick = node.name in in_records or ill(node, own_fault)
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
