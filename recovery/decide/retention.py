"""When may a closed record be removed, and what speaks against it? PURE.

A record is what is known of a node's past. It stays for as long as anything goes by it: a person has the
node, our marks are on it, a limit counts its starts, or it keeps a fault from being treated again.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from recovery.decide.marks import marked
from recovery.decide.selector import excluded_by_label
from recovery.decide.standing import standing
from recovery.model import Kind, Limits, NodeView, Phase, Reading, Record

LEAST = timedelta(days=1)
"""No record is removed sooner after it was closed, however many there are. To an agent that was cut off
meanwhile, its open record would have been deleted."""


def still_counts(r: Record, limits: Limits, now: datetime) -> str | None:
    """What the record is still needed for, by itself; None if nothing goes by it any more."""
    if r.phase.sick:
        return "a person has the node" if r.phase is Phase.HANDED_OVER else "it is open"
    if r.marks:
        return "it names marks on its node"
    if now - r.phase_since < LEAST:
        return "it was closed within a day"
    windows = max(limits.attempts.within, limits.per_group.within)
    if any(now - start.at <= windows for start in r.starts):
        return "a limit counts its starts"
    if r.recovered_at is not None and now - r.recovered_at <= limits.same_incident:
        return "the same fault would be the same incident"
    if r.validation is not None and r.validate is not None:
        return "its validation runs" if now - r.validation.since <= r.validate.within else None
    return None


def counts_on(r: Record, node: NodeView, machine: str) -> str | None:
    """What the record is still needed for, by the Node of its name. ``machine`` is the Node's, or empty."""
    if marked(node):
        return "our marks are on its node"
    if excluded_by_label(node.labels):
        return "its node is excluded"
    if not machine:
        return "which machine its node is on is not known"
    if machine != r.machine.id:
        return None
    if r.phase is not Phase.RECOVERED and standing(r, node):
        return "what was asked of its machine may still come"
    if r.phase is Phase.LOST and node.boot_id == r.boot_id:
        return "nothing starts on its node until the machine boots"
    return None


def keeps_from_treatment(r: Record, node: NodeView, machine: str) -> bool:
    """Whether a fault of this machine and boot was dealt with. Without the record it would be new."""
    if machine == r.machine.id and node.boot_id == r.boot_id and r.acknowledged_more:
        return True
    return any((f.machine, f.boot_id) == (machine, node.boot_id) for f in r.acknowledged)


def nothing_wrong(readings: Iterable[Reading]) -> bool:
    """Whether every source can be read, and shows no fault that a record could be about."""
    found = tuple(readings)
    shown = any(p.kind is Kind.LEVEL for reading in found for p in reading.problems)
    return bool(found) and not shown and not any(reading.unknown for reading in found)


def expired(r: Record, limits: Limits, now: datetime) -> bool:
    """Whether the record was closed longer ago than the policy keeps it."""
    return now - r.phase_since > limits.records.keep
