"""What does the gate hold, and how does it change: the queue, the slots, the starts, the claims? PURE.

Every change is a function from gate to gate. The store writes the result by compare-and-swap, so the budget
holds for any number of agents. A slot is freed by evidence only: its record was closed first.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from operator import attrgetter

from recovery.decide.situation import Situation
from recovery.model import (
    LONGEST_RULE,
    Census,
    Claim,
    Gate,
    GroupStart,
    Limits,
    Line,
    NodeView,
    Phase,
    Record,
    Slot,
)
from recovery.quick import replace

STARTS = 20
"""How many starts the gate keeps at most. The records keep all that a limit may count."""
CLAIMS = 40
"""How many claims the gate keeps at most. Older ones are on the records."""
QUEUE, LEAST_QUEUE = 24, 4
"""How many nodes may stand in the queue on the gate: fewer, down to the second number, the more slots there
are. All others wait on their records, behind those."""
LABEL_VALUES, NAMES = 12, 5
"""How many label values the census has on the gate, and how many names of sick nodes."""
PLACED = 20
"""While no more nodes may be out than this, slots keep the providerID of their machine. With 50 slots the
gate has no room for it, and an agent may not shorten another's slot later."""
DELETED = "deleted"
"""The UID on the slot of a deleted record, once the gate was made again: nobody knows the real one."""
KEPT = (
    "topology.kubernetes.io/zone",
    "node.kubernetes.io/instance-type",
    "eks.amazonaws.com/nodegroup",
    "karpenter.sh/nodepool",
    "kubernetes.azure.com/agentpool",
)
"""Labels that a slot keeps besides those that the policy names, since a later policy may name them."""


def join(gate: Gate, node: str, record_uid: str, now: datetime) -> Gate:
    """Put an open record at the end of the queue. The line of an earlier record of the same node goes."""
    if any(x.node == node and x.record_uid == record_uid for x in gate.open):
        return gate
    others = tuple(x for x in gate.open if x.node != node)
    return replace(gate, open=(*others, Line(node, record_uid, now)))


def grant(gate: Gate, slot: Slot, start: GroupStart, census: Census | None) -> Gate:
    """Take ``slot``. The caller asked every question on this very gate, and the compare-and-swap fails if it
    has changed since."""
    if gate.slot_of(slot.node, slot.record_uid):
        return gate
    return replace(
        gate,
        slots=(*gate.slots, slot),
        open=tuple(x for x in gate.open if x.record_uid != slot.record_uid),
        last_start=start.at,
        starts=(*gate.starts, start)[-STARTS:],
        census=census or gate.census,
    )


def restore(gate: Gate, slot: Slot) -> Gate:
    """Put back the slot of a node that is out of service already. No start is counted."""
    if gate.slot_of(slot.node, slot.record_uid):
        return gate
    return replace(gate, slots=_with(gate.slots, slot))


def _with(slots: tuple[Slot, ...], slot: Slot) -> tuple[Slot, ...]:
    """``slots`` and ``slot``, which was made from its record. It keeps its providerID only among few
    slots."""
    return (*slots, slot if len(slots) < PLACED else replace(slot, provider_id=""))


def free(gate: Gate, node: str, record_uid: str) -> Gate:
    """Remove a closed record's slot, and its line in the queue."""
    slots = tuple(s for s in gate.slots if (s.node, s.record_uid) != (node, record_uid))
    lines = tuple(x for x in gate.open if (x.node, x.record_uid) != (node, record_uid))
    if (slots, lines) == (gate.slots, gate.open):
        return gate
    return replace(gate, slots=slots, open=lines)


def claim(gate: Gate, machine: str, instead_of: str) -> Gate:
    """Claim ``machine`` as the replacement of ``instead_of``. The caller saw that it is unclaimed."""
    return replace(gate, claimed=(*gate.claimed, Claim(machine, instead_of))[-CLAIMS:])


def replacement_of(gate: Gate, machine: str) -> str:
    """The machine that was claimed last as the replacement of ``machine``, or an empty string."""
    return next((c.machine for c in reversed(gate.claimed) if c.instead_of == machine), "")


def lineage(gate: Gate, machine: str, starts: Iterable[GroupStart] = ()) -> tuple[str, ...]:
    """``machine`` and the machines before it, each the replacement of the next: newest first."""
    before = {s.replacement: s.machine for s in starts if s.replacement}
    before |= {c.machine: c.instead_of for c in gate.claimed}
    chain = [machine]
    while older := before.get(chain[-1], ""):
        if older in chain:
            break
        chain.append(older)
    return tuple(chain)


# ---------------------------------------------------------------- the scopes of a slot


def scopes_of(labels: Mapping[str, str], budget_per: Iterable[str]) -> tuple[str, ...]:
    """The budget scopes of a node: ``fleet``, and ``key=value`` for each label with a budget of its own."""
    return ("fleet", *(f"{key}={labels[key]}" for key in sorted(budget_per) if key in labels))


def kept_labels(labels: Mapping[str, str], budget_per: Iterable[str]) -> dict[str, str | None]:
    """The labels of a node that its slot keeps. A key of the policy that it does not have is kept, too."""
    kept: dict[str, str | None] = {key: labels.get(key) for key in sorted(budget_per)}
    return kept | {key: labels[key] for key in KEPT if key in labels}


def noted_scopes(slot: Slot) -> tuple[str, ...]:
    """``fleet``, and ``key=value`` for each label that the slot keeps."""
    if slot.labels is None:
        return slot.scopes
    return ("fleet", *(f"{key}={value}" for key, value in slot.labels.items() if value is not None))


def known_labels(slot: Slot) -> Mapping[str, str | None]:
    """What the slot tells of its node's labels."""
    if slot.labels is not None:
        return slot.labels
    return told_labels(slot.scopes)


def told_labels(scopes: Iterable[str]) -> dict[str, str]:
    """The labels that the scopes of a slot or a record name."""
    return dict(scope.split("=", 1) for scope in scopes if "=" in scope)


def labels_told_of(node: NodeView, r: Record) -> Mapping[str, str]:
    """The labels by which ``node`` counts: its own, and those that it has lost since they were put on its
    record ``r``. Where it has another value now, that counts."""
    told = told_labels(r.scopes)
    return node.labels if told.keys() <= node.labels.keys() else {**told, **node.labels}


def labels_counted(s: Situation) -> Mapping[str, str]:
    """The labels by which brake and budget count this node. One that lost its labels in the queue would else
    start beside another of its zone, and above the brake of its pool."""
    if s.node is None:
        return {}
    r = s.record
    return labels_told_of(s.node, r) if r is not None and r.phase.open else s.node.labels


def counts_in(slot: Slot, scope: str, labels: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether ``slot`` counts in ``scope``, by the labels that its node had when the slot was taken.

    ``labels`` are those of Nodes, by name, for slots that do not tell. Where nothing tells, the slot counts
    in *every* value of the label: too many nodes must not be out.
    """
    if scope == "fleet":
        return True
    key, value = scope.split("=", 1)
    known = known_labels(slot)
    if key in known:
        return known[key] == value
    return slot.node not in labels or labels[slot.node].get(key) == value


def noted_rule(name: str) -> str:
    """A rule's name as slots keep it."""
    return name[:LONGEST_RULE]


def out_by(gate: Gate, rule: str, rules: Iterable[str]) -> list[str]:
    """The nodes with a slot because of ``rule``.

    A slot that names none, or one that is not among ``rules``, those of the policy as it is now, counts for
    *every* rule: too many nodes must not be out.
    """
    known = {noted_rule(name) for name in rules}
    return [s.node for s in gate.slots if s.rule == noted_rule(rule) or s.rule not in known]


def silent(gate: Gate, budget_per: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Node and machine of the slots that do not tell one of these labels."""
    keys = set(budget_per)
    return tuple((s.node, s.machine) for s in gate.slots if not keys <= set(known_labels(s)))


def rebuild(gate: Gate, records: Iterable[Record]) -> Gate:
    """The gate, made again from the records, for an object that is new or was emptied.

    Open records past suspect get their line, and a slot where their node may be out of service. So does what
    was written in place of a deleted record that had one: it is free once its machine is as it was, or gone.
    Starts and claims come from all records.
    """
    open_lines, starts, claimed = [], list(gate.starts), list(gate.claimed)
    slots: tuple[Slot, ...] = ()
    new_machines = {c.machine for c in claimed}
    for r in records:  # thousands: one page of them is in memory at a time
        if r.phase.open and r.phase is not Phase.SUSPECT:
            open_lines.append(Line(r.node, r.uid, r.phase_since))
            if r.phase is Phase.RECOVERING or r.marks or r.intent:
                slots = _with(slots, slot_again(r, r.phase_since))
        elif r.phase is Phase.LOST and r.scopes:
            slots = _with(slots, replace(slot_again(r, r.phase_since), record_uid=DELETED))
        starts = list(union(starts, starts_of(r)))
        if len(starts) > 2 * STARTS:  # only the latest are kept
            starts = sorted(starts, key=lambda s: s.at)[-STARTS:]
        if r.replacement_machine and r.replacement_machine not in new_machines:
            new_machines.add(r.replacement_machine)
            claimed.append(Claim(r.replacement_machine, r.machine.id))
    starts.sort(key=lambda s: s.at)
    return replace(
        gate,
        stamp=gate.uid,
        open=tuple(sorted(open_lines, key=lambda x: x.since)),
        slots=slots,
        starts=tuple(starts[-STARTS:]),
        last_start=max((s.at for s in starts), default=None),
        claimed=tuple(claimed[-CLAIMS:]),
    )


def slot_again(r: Record, now: datetime) -> Slot:
    """The slot of a recovery that is under way, made again from its record."""
    scopes = r.scopes or ("fleet",)
    m, rule = r.machine, noted_rule(r.rule)
    return Slot(r.node, r.uid, r.attempt, scopes, now, None, m.id, m.group, rule, m.provider_id)


def starts_of(r: Record) -> tuple[GroupStart, ...]:
    """The starts on a record, the last one with the machine that took this one's place."""
    found = [
        GroupStart(s.at, r.node, s.group, s.machine, s.reason, s.hardware, s.replacement) for s in r.starts
    ]
    if found and r.replacement_machine and found[-1].machine == r.machine.id:
        found[-1] = replace(found[-1], replacement=r.replacement_machine)
    return tuple(found)


class Past:
    """What the records tell of earlier recoveries, folded record by record: only what still counts is kept.

    ``starts``: those since ``oldest``. ``taken``: the machines that took another's place, and whose.
    """

    def __init__(self, oldest: datetime) -> None:
        self._oldest = oldest
        self.starts: list[GroupStart] = []
        self.taken: dict[str, str] = {}

    def add_last(self, r: Record) -> None:
        """The last start of ``r``, where it is not among them."""
        known = {(s.machine, s.at) for s in self.starts}
        self.starts += [s for s in starts_of(r)[-1:] if (s.machine, s.at) not in known]

    def add(self, r: Record) -> None:
        if r.replacement_machine:
            self.taken[r.replacement_machine] = r.machine.id
        for start in starts_of(r):
            if start.at >= self._oldest:
                self.starts.append(start)
                if start.replacement:
                    self.taken[start.replacement] = start.machine


def union(on_gate: Iterable[GroupStart], on_records: Iterable[GroupStart]) -> tuple[GroupStart, ...]:
    """The starts of both, oldest first. One that both have is the record's, which tells more of it."""
    recorded, on_gate = tuple(on_records), tuple(on_gate)
    machines = {s.machine for s in on_gate}
    known = {(s.machine, s.at) for s in recorded if s.machine in machines}
    only_on_gate = (s for s in on_gate if (s.machine, s.at) not in known)
    return tuple(sorted((*recorded, *only_on_gate), key=attrgetter("at")))


def longest_window(limits: Limits) -> timedelta:
    """How long a start may count for any limit of this policy."""
    return max(limits.attempts.within, limits.per_group.within, limits.cooldown)


def bounded(gate: Gate, oldest: datetime | None = None) -> Gate:
    """``gate`` with no more than it keeps for everybody to read. What is left out is on the records.

    ``oldest``: starts before it count for nothing any more.
    """
    out = {s.record_uid for s in gate.slots}
    lines = [x for x in gate.open if x.record_uid not in out]
    starts = [s for s in gate.starts if oldest is None or s.at >= oldest]
    return replace(
        gate,
        open=tuple(lines[: queue_length(gate)]),
        starts=tuple(replace(s, hardware=()) for s in starts[-STARTS:]),
        claimed=gate.claimed[-CLAIMS:],
        census=bounded_census(gate.census) if gate.census else None,
    )


def bounded_census(c: Census, own: Iterable[str] = ()) -> Census:
    """``c`` with the label values that most agents ask for: those with sick nodes, and of these the largest.

    ``own``: values that are kept in any case.
    """
    sick = sorted((x for x in c.by_label.items() if x[1][0]), key=lambda x: (-x[1][1], x[0]))
    kept = dict(sick[:LABEL_VALUES]) | {x: c.by_label[x] for x in own if x in c.by_label}
    return replace(c, sick=c.sick[:NAMES], total=c.how_many, by_label=kept)


def queue_length(gate: Gate) -> int:
    """How many nodes may stand in the queue on the gate."""
    return max(LEAST_QUEUE, QUEUE - len(gate.slots) // 2)


def queue_is_full(gate: Gate) -> bool:
    return len(_waiting(gate, gate.open)) >= queue_length(gate)


def waits_behind(gate: Gate, record_uid: str) -> bool:
    """Whether the record has no line in the queue on the gate, since that is full."""
    return line_of(gate, record_uid) is None and queue_is_full(gate)


def is_to_be_proved(gate: Gate, machine: str) -> bool:
    """Whether ``machine`` replaces one whose record is open still, or may be."""
    old = {c.instead_of for c in gate.claimed if c.machine == machine}
    started = {x.node for x in gate.starts if x.machine in old}
    return bool(old) and (not started or any(node in started for node, _ in places(gate)))


def places(gate: Gate) -> set[tuple[str, str]]:
    """Node and record UID of every line and slot."""
    return {(x.node, x.record_uid) for x in gate.open} | holders(gate)


def holders(gate: Gate) -> set[tuple[str, str]]:
    """Node and record UID of every slot."""
    return {(x.node, x.record_uid) for x in gate.slots}


def ahead_of(gate: Gate, record_uid: str) -> list[str]:
    """The nodes before this record's in the queue that have no slot yet."""
    return _waiting(gate, itertools.takewhile(lambda line: line.record_uid != record_uid, gate.open))


def next_in_line(gate: Gate, most: int) -> list[str]:
    """The first ``most`` nodes of the queue that have no slot yet."""
    return _waiting(gate, gate.open)[:most]


def _waiting(gate: Gate, lines: Iterable[Line]) -> list[str]:
    """The nodes of these lines that have no slot yet."""
    out = {x.record_uid for x in gate.slots}
    return [line.node for line in lines if line.record_uid not in out]


def line_of(gate: Gate | None, record_uid: str) -> Line | None:
    """The record's place in the queue, if it has joined it."""
    return next((x for x in gate.open if x.record_uid == record_uid), None) if gate else None


def out_in(gate: Gate, scope: str, labels: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The nodes with a slot in ``scope``."""
    return [s.node for s in gate.slots if counts_in(s, scope, labels)]


def starts_within(starts: Iterable[GroupStart], now: datetime, window: timedelta) -> list[GroupStart]:
    """The starts of the last ``window``. One in the future, by a clock that stepped, counts as now."""
    oldest = now - window
    return [s for s in starts if s.at >= oldest]
