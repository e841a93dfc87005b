"""What does the gate hold, and how does it change: the queue, the slots, the starts, the claims? PURE.

Every change is a function from gate to gate. The store writes the result by compare-and-swap, so the budget
holds for any number of agents. A slot is freed by evidence only: its record was closed first.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from recovery.model import Census, Claim, Gate, GroupStart, Line, Phase, Record, Slot

STARTS = 500
CLAIMS = 500


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
        last_start=start.at,
        starts=(*gate.starts, start)[-STARTS:],
        census=census or gate.census,
    )


def restore(gate: Gate, slot: Slot) -> Gate:
    """Put back the slot of a node that is out of service already. No start is counted."""
    return gate if gate.slot_of(slot.node, slot.record_uid) else replace(gate, slots=(*gate.slots, slot))


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
    """The machine claimed as the replacement of ``machine``, or an empty string."""
    return next((c.machine for c in gate.claimed if c.instead_of == machine), "")


def lineage(gate: Gate, machine: str) -> tuple[str, ...]:
    """``machine`` and the machines before it, each the replacement of the next: newest first."""
    chain = [machine]
    while older := next((c.instead_of for c in gate.claimed if c.machine == chain[-1]), ""):
        if older in chain:
            break
        chain.append(older)
    return tuple(chain)


def scopes_of(labels: dict[str, str] | Any, budget_per: Iterable[str]) -> tuple[str, ...]:
    """The budget scopes of a node: ``fleet``, and ``key=value`` for each label with a budget of its own."""
    return ("fleet", *(f"{key}={labels[key]}" for key in sorted(budget_per) if key in labels))


def rebuild(gate: Gate, records: Iterable[Record], now: datetime) -> Gate:
    """The gate, made again from the records, for an object that is new or was emptied.

    Open records past suspect get their line, and a slot where their node may be out of service. Starts and
    claims come from all records.
    """
    open_lines, slots, starts, claimed = [], [], list(gate.starts), list(gate.claimed)
    records = tuple(records)
    for r in records:
        if not r.phase.open or r.phase is Phase.SUSPECT:
            continue
        open_lines.append(Line(r.node, r.uid, r.phase_since))
        if r.phase is Phase.RECOVERING or r.marks or r.intent:
            slots.append(Slot(r.node, r.uid, r.attempt, r.scopes or ("fleet",), r.phase_since))
    counted = {(s.at, s.machine) for s in starts}
    for r in records:
        fresh = [s for s in r.starts if (s.at, s.machine) not in counted]
        starts += [GroupStart(s.at, r.node, s.group, s.machine, s.reason, s.hardware) for s in fresh]
        if r.replacement_machine and not any(c.machine == r.replacement_machine for c in claimed):
            claimed.append(Claim(r.replacement_machine, r.machine.id))
    starts.sort(key=lambda s: s.at)
    return replace(
        gate,
        stamp=gate.uid,
        open=tuple(sorted(open_lines, key=lambda x: x.since)),
        slots=tuple(slots),
        starts=tuple(starts[-STARTS:]),
        last_start=max((s.at for s in starts), default=None),
        claimed=tuple(claimed[-CLAIMS:]),
    )


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
    out = {x.record_uid for x in gate.slots}
    before = itertools.takewhile(lambda line: line.record_uid != record_uid, gate.open)
    return [line.node for line in before if line.record_uid not in out]


def line_of(gate: Gate | None, record_uid: str) -> Line | None:
    """The record's place in the queue, if it has joined it."""
    return next((x for x in gate.open if x.record_uid == record_uid), None) if gate else None


def in_use(gate: Gate, scope: str) -> int:
    """How many slots are taken in ``scope``."""
    return sum(1 for s in gate.slots if scope in s.scopes)


def starts_within(gate: Gate, now: datetime, window: timedelta) -> list[GroupStart]:
    """The starts of the last ``window``. One in the future, by a clock that stepped, counts as now."""
    return [s for s in gate.starts if now - s.at <= window]
