"""Records and gate as the commands read them: what cannot be read is listed, never left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from recovery.console.api import Desk
from recovery.errors import Conflict, NodeRecoveryError, NotFound, Undecodable
from recovery.model import Gate, Line, Record
from recovery.store import gate as gates
from recovery.store import record as records
from recovery.units import moment

Found = TypeVar("Found")
TRIES = 8
"""How often a write is tried again that somebody else was quicker than."""


class NotInstalled(NodeRecoveryError):
    """The API server does not know our kinds."""

    def __init__(self) -> None:
        super().__init__(
            "the API server knows no NodeRecovery: the CRDs are not installed (kubectl apply -k deploy/crds)"
        )


@dataclass(frozen=True)
class Fleet:
    """All there is on the API server. ``unreadable``: node -> why its record cannot be understood."""

    records: tuple[Record, ...]
    unreadable: dict[str, str]
    gate: Gate | None
    gate_problem: str = ""


def read_fleet(desk: Desk) -> Fleet:
    """Every record, and the gate. Raises ``NotInstalled``, ``ApiError``."""
    try:
        objects = desk.list_records()
    except NotFound:
        raise NotInstalled from None
    found, unreadable = [], {}
    for obj in objects:
        try:
            found.append(records.decode(obj))
        except Undecodable as error:
            unreadable[str(obj["metadata"]["name"])] = str(error)
    gate, problem = read_gate(desk)
    return Fleet(tuple(sorted(found, key=lambda r: r.node)), unreadable, gate, problem)


def read_gate(desk: Desk) -> tuple[Gate | None, str]:
    """The gate, None where nobody has needed one yet; and why it cannot be understood."""
    try:
        return gates.decode(desk.get_gate()), ""
    except NotFound:
        return None, ""
    except Undecodable as error:
        return None, str(error)


def swap(change: Callable[[], Found]) -> Found:
    """Do ``change`` (read, then write under what was read) again while others write first."""
    for _ in range(TRIES - 1):
        try:
            return change()
        except Conflict:
            continue
    return change()


def gate_as_json(gate: Gate) -> dict[str, Any]:
    """What people and programs want to know of the gate."""
    return {
        "slots": [
            {"node": s.node, "since": moment(s.since), "scopes": list(s.scopes), "attempt": s.attempt}
            for s in gate.slots
        ],
        "queue": [{"node": x.node, "since": moment(x.since)} for x in waiting(gate)],
        "lastStart": moment(gate.last_start) if gate.last_start else None,
        "pause": pause_as_json(gate),
        "count": {
            "at": moment(gate.census.at),
            "sick": list(gate.census.sick),
            "population": gate.census.population,
        }
        if gate.census
        else None,
    }


def waiting(gate: Gate) -> list[Line]:
    """The lines of those that have no slot, in the order of the queue."""
    holders = {s.record_uid for s in gate.slots}
    return [x for x in gate.open if x.record_uid not in holders]


def pause_as_json(gate: Gate) -> dict[str, Any] | None:
    p = gate.pause
    if p is None:
        return None
    return {"owner": p.owner, "reason": p.reason, "until": moment(p.until) if p.until else None}
