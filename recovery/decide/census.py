"""How many nodes are sick, in the fleet and by label? The brake goes by this count. PURE.

A node is sick if it has an open or handed-over record, is not Ready, or has a catalogued condition that is
bad. A node with such a condition Unknown counts as well, and so does one of which its own sources have said
nothing for ten minutes. A node with a record that counts is counted even when its Node object is gone; one
whose record cannot be decoded is not: a name that nobody has is no sick node.

Where the policy says which nodes are the population, only those are counted so. All others are outside of it,
and counted for themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from fnmatch import fnmatchcase

from recovery.catalog import bad_status
from recovery.decide.diagnosis import SIGNAL_UNKNOWN
from recovery.decide.selector import identity, selects
from recovery.model import Census, NodeView, Record

OwnFault = Callable[[str, str], bool]
"""Whether a (type, reason) is catalogued as the node's own. A hang that another worker causes is not."""


def ill(node: NodeView, own_fault: OwnFault) -> bool:
    """Whether the Node's own conditions say that it is sick, or not known to be healthy."""
    if not node.ready:
        return True
    return any(
        own_fault(kind, reason) and status in (bad_status(kind), "Unknown")
        for kind, (status, reason) in node.conditions.items()
    )


def counts(record: Record, own_fault: OwnFault) -> bool:
    """Whether a record makes its node count. One that only reports another node's fault does not.

    A fault that a rule treats counts from its first statement, also of a type that no catalogue has.
    """
    if not record.phase.sick:
        return False
    if record.ladder or record.marks or record.intent:
        return True
    if blind(record):
        return True
    return any(f.treated or own_fault(f.type, f.reason) for f in record.faults) or not record.faults


def blind(record: Record) -> bool:
    """Whether nothing is known of the node: for the brake it counts as unknown, whatever its fault means."""
    return any(f.type == SIGNAL_UNKNOWN for f in record.faults)


def count(
    nodes: Iterable[NodeView],
    records: Iterable[Record],
    own_fault: OwnFault,
    labels: Iterable[str],
    now: datetime,
    unknown: Iterable[str] = (),
    wanted: Mapping[str, str] | None = None,
) -> Census:
    """The census of a fleet. ``labels``: the label keys for which each value is counted apart.

    ``unknown``: the names of records that cannot be decoded. A Node of that name counts as sick, since
    nothing is known of it. ``wanted``: the labels of the nodes that are counted, all others being outside.
    """
    keys, wanted = sorted(set(labels)), wanted or {}
    in_records = {r.node: r for r in records if counts(r, own_fault)}
    unknown = set(unknown)
    sick: list[str] = []
    outside = [0, 0]
    seen_inside = 0
    population: Counter[str] = Counter()
    affected: Counter[str] = Counter()
    seen: set[str] = set()
    known: dict[int, tuple[object, bool]] = {}
    for node in nodes:
        seen.add(node.name)
        is_sick = node.name in in_records or node.name in unknown or _ill(node, own_fault, known)
        if not selects(wanted, node.labels):
            outside = [outside[0] + is_sick, outside[1] + 1]
            continue
        seen_inside += 1
        if is_sick:
            sick.append(node.name)
        for scope in _scopes(node.labels, keys):
            population[scope] += 1
            affected[scope] += is_sick
    ghosts = {name: _is_inside(in_records[name], wanted) for name in sorted(in_records.keys() - seen)}
    gone_outside = sum(inside is False for inside in ghosts.values())
    return Census(
        at=now,
        population=seen_inside + sum(inside is True for inside in ghosts.values()),
        sick=(*sorted(sick), *(name for name, inside in ghosts.items() if inside is not False)),
        by_label={scope: (affected[scope], n) for scope, n in sorted(population.items())},
        of=identity(wanted),
        outside=(outside[0] + gone_outside, outside[1] + gone_outside),
    )


def _is_inside(r: Record, wanted: Mapping[str, str]) -> bool | None:
    """Whether a node that has no Node any more is one of the population, by the labels on its record.

    None where they do not tell: it counts as sick, and makes the population no larger.
    """
    told = dict(scope.split("=", 1) for scope in r.scopes if "=" in scope)
    if any(not fnmatchcase(told[key], pattern) for key, pattern in wanted.items() if key in told):
        return False
    return True if wanted.keys() <= told.keys() else None


def _ill(node: NodeView, own_fault: OwnFault, known: dict[int, tuple[object, bool]]) -> bool:
    """``ill``, once for all Nodes that have the same conditions: in a large fleet nearly all of them.

    What is known keeps the conditions alive, or others could be taken for them.
    """
    found = known.get(id(node.conditions))
    if found is None:
        found = known[id(node.conditions)] = node.conditions, ill(node, own_fault)
    return found[1]


def _scopes(labels: Mapping[str, str], keys: Iterable[str]) -> Iterable[str]:
    return (f"{key}={labels[key]}" for key in keys if key in labels)
