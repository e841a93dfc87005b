"""All records and the gate, as the commands read them. An unreadable record is listed, not left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from recovery.console.api import UserApi
from recovery.decide.budget import noted_scopes
from recovery.errors import Conflict, NotFound, NotInstalled, Undecodable
from recovery.kube.paging import folded
from recovery.model import Approval, Gate, Line, Phase, Record
from recovery.store import gate as gates
from recovery.store import record_codec as records
from recovery.units import moment

Found = TypeVar("Found")
TRIES = 8
"""How often a write is tried that conflicts with somebody else's."""


@dataclass(frozen=True)
class Recoveries:
    """Every record, and the gate. ``unreadable``: node -> why its record cannot be decoded."""

    records: tuple[Record, ...]
    unreadable: dict[str, str]
    gate: Gate | None
    gate_problem: str = ""


def read_recoveries(api: UserApi) -> Recoveries:
    """Every record, and the gate. Raises ``NotInstalled``, ``ApiError``."""
    try:
        found, unreadable = folded(lambda: _decoded(api.list_records()))
    except NotFound:
        raise NotInstalled from None
    gate, problem = read_gate(api)
    return Recoveries(tuple(sorted(found, key=lambda r: r.node)), unreadable, gate, problem)


def _decoded(objects: Iterable[dict[str, Any]]) -> tuple[list[Record], dict[str, str]]:
    found, unreadable = [], {}
    for obj in objects:
        try:
            found.append(records.decode(obj))
        except Undecodable as error:
            unreadable[str(obj["metadata"]["name"])] = str(error)
    return found, unreadable


def read_gate(api: UserApi) -> tuple[Gate | None, str]:
    """The gate, None where no agent has made it yet; and why it cannot be decoded, else ""."""
    try:
        return gates.decode(api.get_gate()), ""
    except NotFound:
        return None, ""
    except Undecodable as error:
        return None, str(error)


def check_installed(api: UserApi) -> None:
    """Raises ``NotInstalled``: without the CRDs the gate is not there, either."""
    try:
        next(iter(api.list_records()), None)
    except NotFound:
        raise NotInstalled from None


def gate_is_gone(records: Iterable[Record]) -> bool:
    """Whether a gate that is not there was there: each of ``records`` that is beyond *suspect* had a line on
    it."""
    return any(r.phase.open and r.phase is not Phase.SUSPECT for r in records)


def retry_on_conflict(change: Callable[[], Found]) -> Found:
    """Do ``change`` (read, then write with the version that was read) again while it conflicts."""
    for _ in range(TRIES - 1):
        try:
            return change()
        except Conflict:
            continue
    return change()


def gate_as_json(gate: Gate) -> dict[str, Any]:
    """The gate as the commands print it with ``--output json``."""
    return {
        "slots": [
            {
                "node": s.node,
                "since": moment(s.since),
                "scopes": list(noted_scopes(s)),
                "rule": s.rule,
                "attempt": s.attempt,
            }
            for s in gate.slots
        ],
        "queue": [{"node": x.node, "since": moment(x.since)} for x in queued(gate)],
        "lastStart": moment(gate.last_start) if gate.last_start else None,
        "pause": pause_as_json(gate),
        "approved": list(map(approval_as_json, gate.approved)),
        "count": {
            "at": moment(gate.census.at),
            "sick": list(gate.census.sick),
            "sickTotal": gate.census.how_many,
            "population": gate.census.population,
            "outside": {"sick": gate.census.outside[0], "population": gate.census.outside[1]},
        }
        if gate.census
        else None,
    }


def queued(gate: Gate) -> list[Line]:
    """The nodes that have no slot yet, in the order of the queue."""
    holders = {s.record_uid for s in gate.slots}
    return [x for x in gate.open if x.record_uid not in holders]


def pause_as_json(gate: Gate) -> dict[str, Any] | None:
    p = gate.pause
    if p is None:
        return None
    return {"owner": p.owner, "reason": p.reason, "until": moment(p.until) if p.until else None}


def approval_as_json(a: Approval) -> dict[str, str]:
    """An approval as the gate has it, and as the commands print it."""
    return {"reason": a.reason, "by": a.by, "until": moment(a.until)}
