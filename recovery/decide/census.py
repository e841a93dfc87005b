"""How many nodes are sick, in the fleet and by label? The brake goes by this count. PURE.

A node is sick if it has an open or handed-over record, is not Ready, or has a catalogued condition that is
bad. A node with such a condition Unknown counts as well, and so does one of which its own sources have said
nothing for ten minutes. A node with a record that counts is counted even when its Node object is gone, or has
lost its labels; one whose record cannot be decoded is not: a name that nobody has is no sick node.

Where the policy says which nodes are the population, only those are counted so. All others are outside of it,
and counted for themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from datetime import datetime
from fnmatch import fnmatchcase

from recovery.catalog import bad_status
from recovery.decide.budget import labels_told_of, told_labels
from recovery.decide.diagnosis import SIGNAL_UNKNOWN
from recovery.decide.selector import identity, selects
from recovery.judged import Judged
from recovery.model import Census, Fault, NodeView, Record
from recovery.quick import replace

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

    A fault that a rule treats counts from its first statement, also of a type that no catalogue has. So does
    what a person was given before, and has not released, while the record is about something else.
    """
    if not record.phase.sick:
        return False
    if record.ladder or record.marks or record.intent:
        return True
    if blind(record):
        return True
    return any(f.treated or own_fault(f.type, f.reason) for f in _there(record)) or not record.faults


def blind(record: Record) -> bool:
    """Whether nothing is known of the node: for the brake it counts as unknown, whatever its fault means."""
    return any(f.type == SIGNAL_UNKNOWN for f in _there(record))


def _there(record: Record) -> Iterable[Fault]:
    """The faults of ``record``, and those of this machine and boot that are in a person's hands besides."""
    yield from record.faults
    now = record.machine.id, record.boot_id
    yield from (f for f in record.acknowledged if f.handed_over and (f.machine, f.boot_id) == now)


class Sums:
    """Nodes as a census counts them, added one by one.

    ``keys``: the label keys of which each value is counted apart. ``wanted``: the labels of the nodes that
    are counted, all others being outside.
    """

    def __init__(self, keys: Iterable[str], wanted: Mapping[str, str] | None = None) -> None:
        self._keys = sorted(set(keys))
        self._wanted = wanted or {}
        self._inside = 0
        self._outside = [0, 0]
        self._sick: set[str] = set()
        self._population: Counter[str] = Counter()
        self._affected: Counter[str] = Counter()

    def add(self, node: NodeView, sick: bool, times: int = 1) -> None:
        """``times``: -1 takes it off again, just as it was added."""
        if not selects(self._wanted, node.labels):
            self._outside[0] += times * sick
            self._outside[1] += times
            return
        self._inside += times
        for scope in _scopes(node.labels, self._keys):
            self._population[scope] += times
            self._affected[scope] += times * sick
        if sick:
            (self._sick.add if times > 0 else self._sick.discard)(node.name)

    def alike(self, one: NodeView, other: NodeView) -> bool:
        """Whether it makes no difference which of the two was added, if both are sick, or neither is."""
        return (
            one.name == other.name
            and selects(self._wanted, one.labels) == selects(self._wanted, other.labels)
            and all(one.labels.get(key) == other.labels.get(key) for key in self._keys)
        )

    def copy(self) -> Sums:
        found = copy(self)
        found._outside = list(self._outside)
        found._sick = set(self._sick)
        found._population, found._affected = Counter(self._population), Counter(self._affected)
        return found

    def census(self, ghosts: Iterable[Record], now: datetime) -> Census:
        """``ghosts``: the records that count, of nodes that have no Node any more."""
        ghosts = sorted(ghosts, key=lambda r: r.node)
        inside = {r.node: _is_inside(r, self._wanted) for r in ghosts}
        gone_outside = sum(x is False for x in inside.values())
        gone = Counter(x for r in ghosts if inside[r.node] is not False for x in _told_scopes(r, self._keys))
        affected = self._affected + gone
        population = sorted(x for x in (self._population + gone).items() if x[1])
        return Census(
            at=now,
            population=self._inside + sum(x is True for x in inside.values()),
            sick=(*sorted(self._sick), *(name for name, x in inside.items() if x is not False)),
            by_label={scope: (affected[scope], n) for scope, n in population},
            of=identity(self._wanted),
            outside=(self._outside[0] + gone_outside, self._outside[1] + gone_outside),
        )


def count(
    nodes: Iterable[NodeView],
    records: Iterable[Record],
    own_fault: OwnFault,
    labels: Iterable[str],
    now: datetime,
    unknown: Iterable[str] = (),
    wanted: Mapping[str, str] | None = None,
) -> Census:
    """The census of a fleet, Node by Node. ``labels`` and ``wanted`` are those of ``Sums``.

    ``unknown``: the names of records that cannot be decoded. A Node of that name counts as sick, since
    nothing is known of it.
    """
    sums = Sums(labels, wanted)
    in_records = {r.node: r for r in records if counts(r, own_fault)}
    unknown = set(unknown)
    ghosts = dict(in_records)
    is_ill = _judged(own_fault)
    for node in nodes:
        ghosts.pop(node.name, None)
        r = in_records.get(node.name)
        sick = r is not None or node.name in unknown or is_ill(node)
        sums.add(_as_told(node, r) if r is not None else node, sick)
    return sums.census(ghosts.values(), now)


class Kept:
    """The same count, kept up to date: it is known by what has changed, not by all Nodes. ``count`` says what
    it has to be."""

    def __init__(
        self, own_fault: OwnFault, labels: Iterable[str], wanted: Mapping[str, str] | None = None
    ) -> None:
        self._own_fault = own_fault
        self._sums = Sums(labels, wanted)
        self._is_ill = _judged(own_fault)

    def change(self, old: NodeView | None, new: NodeView | None) -> None:
        """``new`` is there in place of ``old``. None: there is no such Node."""
        if old is not None and new is not None and self._are_alike(old, new):
            return
        if old is not None:
            self._sums.add(old, self._is_ill(old), -1)
        if new is not None:
            self._sums.add(new, self._is_ill(new))

    def _are_alike(self, old: NodeView, new: NodeView) -> bool:
        """As nearly always: a heartbeat changes nothing but times."""
        if not self._sums.alike(old, new):
            return False
        return old.conditions is new.conditions or self._is_ill(old) == self._is_ill(new)

    def census(
        self,
        find: Callable[[str], NodeView | None],
        records: Iterable[Record],
        now: datetime,
        unknown: Iterable[str] = (),
    ) -> Census:
        """``find``: the Node of a name, as it was told of last."""
        sums = self._sums.copy()
        in_records = {r.node: r for r in records if counts(r, self._own_fault)}
        for name in in_records.keys() | set(unknown):
            node = find(name)
            if node is None:
                continue
            r, was = in_records.pop(name, None), self._is_ill(node)
            as_told = _as_told(node, r) if r is not None else node
            if as_told is not node or not was:
                sums.add(node, was, -1)
                sums.add(as_told, True)
        return sums.census(in_records.values(), now)


def _as_told(node: NodeView, r: Record) -> NodeView:
    """``node`` with the labels that it has lost since they were put on its record: it counts where it did."""
    labels = labels_told_of(node, r)
    return node if labels is node.labels else replace(node, labels=labels)


def _is_inside(r: Record, wanted: Mapping[str, str]) -> bool | None:
    """Whether a node that has no Node any more is one of the population, by the labels on its record.

    None where they do not tell: it counts as sick, and makes the population no larger.
    """
    told = told_labels(r.scopes)
    if any(not fnmatchcase(told[key], pattern) for key, pattern in wanted.items() if key in told):
        return False
    return True if wanted.keys() <= told.keys() else None


def _judged(own_fault: OwnFault) -> Judged:
    return Judged(lambda node: ill(node, own_fault))


def _told_scopes(r: Record, keys: Iterable[str]) -> Iterable[str]:
    """The label values of a node that has no Node any more, as far as its record tells them."""
    return (x for x in r.scopes if x.partition("=")[0] in keys)


def _scopes(labels: Mapping[str, str], keys: Iterable[str]) -> Iterable[str]:
    return (f"{key}={labels[key]}" for key in keys if key in labels)
