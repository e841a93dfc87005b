"""The gate: one RecoveryGate named ``fleet``, shared by all agents through the API server.

It holds the queue of open records (``open``), who is out (``slots``), when recoveries were started, the last
census, and the pause. Every change is a pure function of ``decide.budget``, and is written by
compare-and-swap, so that budgets hold over any number of agents. A slot is freed by evidence only: its record
was swapped to a terminal phase first.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol

from recovery.decide.budget import CLAIMS, STARTS, rebuild
from recovery.errors import Conflict, NotFound, Undecodable
from recovery.model import (
    GROUP,
    VERSION,
    Census,
    Claim,
    Gate,
    GroupStart,
    Line,
    Pause,
    Record,
    Slot,
)
from recovery.store.codec import Reader, Unchanged
from recovery.units import moment, parse_moment

CODEC = 1
NAME = "fleet"


# ---------------------------------------------------------------- encode


def encode(gate: Gate, spec: dict[str, Any]) -> dict[str, Any]:
    """The whole object. ``spec`` (the pause) belongs to people, and is written back as it was read."""
    metadata: dict[str, Any] = {"name": NAME}
    if gate.resource_version:
        metadata |= {"resourceVersion": gate.resource_version, "uid": gate.uid}
    status: dict[str, Any] = {
        "version": CODEC,
        "stamp": gate.stamp,
        "open": [{"node": x.node, "recordUID": x.record_uid, "since": moment(x.since)} for x in gate.open],
        "slots": [
            {
                "node": s.node,
                "recordUID": s.record_uid,
                "attempt": s.attempt,
                "scopes": list(s.scopes),
                "since": moment(s.since),
            }
            for s in gate.slots
        ],
        "starts": [
            {
                "at": moment(s.at),
                "node": s.node,
                "group": s.group,
                "machine": s.machine,
                "reason": s.reason,
                "hardware": list(s.hardware),
            }
            for s in gate.starts[-STARTS:]
        ],
        "replacementsClaimed": [
            {"machine": c.machine, "insteadOf": c.instead_of} for c in gate.claimed[-CLAIMS:]
        ],
    }
    if gate.last_start:
        status["lastStart"] = moment(gate.last_start)
    if gate.census:
        status["census"] = {
            "at": moment(gate.census.at),
            "population": gate.census.population,
            "sick": list(gate.census.sick),
            "byLabel": {k: {"sick": s, "population": n} for k, (s, n) in gate.census.by_label.items()},
            "seconds": gate.census.seconds,
        }
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "RecoveryGate",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }


# ---------------------------------------------------------------- decode


def read_pause(spec: Any) -> Pause | None:
    """The pause in a gate's spec. What cannot be understood is a pause without end."""
    raw = spec.get("pause") if isinstance(spec, dict) else None
    if raw is None:
        return None
    if not isinstance(raw, dict):
        return Pause("somebody", f"spec.pause cannot be read ({raw!r}), which counts as paused", None)
    owner, reason = str(raw.get("owner") or "somebody"), str(raw.get("reason") or "no reason given")
    until = raw.get("until")
    if until in (None, ""):
        return Pause(owner, reason, None)
    try:
        return Pause(owner, reason, parse_moment(str(until)))
    except ValueError:
        return Pause(owner, f"{reason}; its end {until!r} cannot be read, which counts as paused", None)


def _read_census(r: Reader | None) -> Census | None:
    if r is None:
        return None
    by_label = {}
    for key, value in r.mapping("byLabel").items():
        pair = Reader(value, f"status.census.byLabel[{key}]")
        by_label[key] = (pair.integer("sick"), pair.integer("population"))
    seconds = max(0, r.integer("seconds"))
    return Census(r.at("at"), r.integer("population"), r.strings("sick"), by_label, seconds=seconds)


def decode(obj: Any) -> Gate:
    """The gate in ``obj``. Raises ``Undecodable``."""
    meta = Reader(obj.get("metadata"), "metadata")
    pause = read_pause(obj.get("spec") or {})
    uid, version = meta.text("uid"), meta.text("resourceVersion")
    s = Reader(obj, "RecoveryGate").child("status")
    if s is None:
        return Gate(uid=uid, resource_version=version, stamp="", pause=pause)
    codec = s.integer("version", CODEC)
    if codec != CODEC:
        raise Undecodable(
            f"RecoveryGate {NAME} was written in version {codec}; this program understands version {CODEC}"
        )
    return Gate(
        uid=uid,
        resource_version=version,
        stamp=s.text("stamp"),
        pause=pause,
        open=tuple(
            Line(x.text("node", ...), x.text("recordUID", ...), x.at("since")) for x in s.children("open")
        ),
        slots=tuple(
            Slot(
                x.text("node", ...),
                x.text("recordUID", ...),
                x.integer("attempt"),
                x.strings("scopes"),
                x.at("since"),
            )
            for x in s.children("slots")
        ),
        last_start=s.maybe_at("lastStart"),
        starts=tuple(
            GroupStart(
                x.at("at"),
                x.text("node"),
                x.text("group"),
                x.text("machine"),
                x.text("reason"),
                x.strings("hardware"),
            )
            for x in s.children("starts")
        ),
        census=_read_census(s.child("census")),
        claimed=tuple(
            Claim(c.text("machine", ...), c.text("insteadOf")) for c in s.children("replacementsClaimed")
        ),
    )


# ---------------------------------------------------------------- store


class GateObjects(Protocol):
    """The part of the cluster that the store of the gate needs."""

    def get_gate(self) -> dict[str, Any]: ...
    def create_gate(self, body: dict[str, Any]) -> dict[str, Any]: ...
    def replace_gate(self, body: dict[str, Any]) -> dict[str, Any]: ...


class Gates:
    """Reads and swaps the gate."""

    def __init__(self, cluster: GateObjects, records: Callable[[], list[Record]]) -> None:
        self._cluster = cluster
        self._records = records
        self._decode = Unchanged(decode)
        self._spec: dict[str, Any] = {}

    def read(self) -> Gate | None:
        """The gate, or None where there is none yet. Raises ``Undecodable``. Changes nothing."""
        try:
            return self._take(self._cluster.get_gate())
        except NotFound:
            return None

    def _take(self, obj: dict[str, Any]) -> Gate:
        spec = obj.get("spec")
        self._spec = dict(spec) if isinstance(spec, dict) else {}
        return self._decode(obj)

    def write(self, gate: Gate) -> Gate:
        """Swap the gate. Raises ``Conflict`` when another writer was first."""
        return self._take(self._cluster.replace_gate(encode(gate, self._spec)))

    def ready(self, gate: Gate | None, now: datetime) -> Gate:
        """A gate that slots may be taken from: created if missing, rebuilt from the records if made anew."""
        if gate is None:
            empty = Gate(uid="", resource_version="", stamp="")
            try:
                gate = self._take(self._cluster.create_gate(encode(empty, {})))
            except Conflict:
                gate = self._take(self._cluster.get_gate())
        if gate.stamp != gate.uid:
            gate = self.write(rebuild(gate, self._records(), now))
        return gate
