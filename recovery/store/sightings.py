"""The store of what is seen while recovery is off: one RecoveryReport named ``fleet``, shared by all agents.

It is the only object that is written with ENABLE_RECOVERY=false (law 7). Each change is a pure function of
``decide.sightings``, written by compare-and-swap.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol

from recovery.decide.sightings import Report, Sighting, Would, least_needed, trimmed, without
from recovery.errors import Dropped, Undecodable
from recovery.model import GROUP, VERSION, Step
from recovery.store.carried import carried
from recovery.store.codec import Reader, dropped
from recovery.store.room import REPORT, within
from recovery.units import moment

KIND, NAME, CODEC = "RecoveryReport", "fleet", 1
MOST_BYTES = 96 * 1024
"""The size of the report's status: some two hundred sightings. Agents read it at their start and before they
write."""


def encode(report: Report, was: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The whole object. ``was``: the object as it was read. What others put on it stays (law 5)."""
    foreign = carried(was)
    return {
        **foreign,
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "metadata": {**foreign.get("metadata", {}), "name": NAME},
        "status": within(_status(report), REPORT),
    }


def _status(report: Report) -> dict[str, Any]:
    status: dict[str, Any] = {
        "version": CODEC,
        "since": moment(report.since),
        "sightings": [_sighting(x) for x in report.sightings],
    }
    if report.dropped_until is not None:
        status |= {"dropped": report.dropped, "droppedUntil": moment(report.dropped_until)}
    if report.full_since is not None:
        status["fullSince"] = moment(report.full_since)
    return status


def _sighting(x: Sighting) -> dict[str, Any]:
    found: dict[str, Any] = {
        "node": x.node,
        "machine": x.machine,
        "boot": x.boot,
        "source": x.source,
        "type": x.type,
        "reason": x.reason,
        "rule": x.rule,
        "would": x.would.value,
        "steps": [step.value for step in x.steps],
        "why": x.why,
        "since": moment(x.since),
        "seen": moment(x.seen),
        "times": x.times,
        "how": x.how,
    }
    found |= {"due": moment(x.due)} if x.due else {}
    found |= {"ended": moment(x.ended)} if x.ended else {}
    return {key: value for key, value in found.items() if value}


def decode(obj: Any) -> Report:
    """The report in ``obj``. Raises ``Undecodable``."""
    s = Reader(obj, KIND).child("status")
    if s is None:
        raise Undecodable(f"{KIND} {NAME} has no status")
    if (codec := s.integer("version", CODEC)) != CODEC:
        raise Undecodable(
            f"{KIND} {NAME} was written in version {codec}; this program understands version {CODEC}"
        )
    sightings = tuple(_read(x) for x in s.children("sightings"))
    return Report(
        s.at("since"), sightings, s.integer("dropped"), s.maybe_at("droppedUntil"), s.maybe_at("fullSince")
    )


def _read(r: Reader) -> Sighting:
    return Sighting(
        node=r.text("node", ...),
        machine=r.text("machine"),
        boot=r.text("boot"),
        source=r.text("source"),
        type=r.text("type"),
        reason=r.text("reason"),
        rule=r.text("rule"),
        would=r.member("would", Would),
        steps=r.members("steps", Step),
        why=r.text("why"),
        since=r.at("since"),
        seen=r.at("seen"),
        due=r.maybe_at("due"),
        times=r.integer("times", 1),
        ended=r.maybe_at("ended"),
        how=r.text("how"),
    )


def fitted(report: Report, now: datetime, most: int = MOST_BYTES) -> Report:
    """``report`` without what there is no room for in ``most`` bytes."""
    left = _size(_status(report)) - most
    dropped = []
    for x in least_needed(report):
        if left <= 0:
            break
        dropped.append(x)
        left -= _size(_sighting(x)) + len(",")
    return without(report, dropped, now)


def _size(value: Any) -> int:
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(errors="replace"))


class ReportObjects(Protocol):
    """The part of the cluster that the store of the report needs."""

    def get_report(self) -> dict[str, Any]: ...
    def create_report(self, body: dict[str, Any]) -> dict[str, Any]: ...
    def replace_report(self, body: dict[str, Any]) -> dict[str, Any]: ...


class Reports:
    """Reads and swaps the report."""

    def __init__(self, cluster: ReportObjects) -> None:
        self._cluster = cluster
        self._was: dict[str, Any] = {}

    def read(self) -> Report:
        """The report. Raises ``NotFound`` where there is none yet, ``Undecodable``."""
        self._was = self._cluster.get_report()
        return decode(self._was)

    def create(self, now: datetime) -> Report:
        """An empty report, from ``now`` on. ``Conflict``: another has made it meanwhile."""
        self._was = self._cluster.create_report(encode(Report(since=now)))
        return decode(self._was)

    def write(self, report: Report, now: datetime, keep: timedelta) -> None:
        """Swap the report, without what is older than ``keep`` or has no room; nothing where that is what is
        there. Raises ``Conflict`` when another writer was first, ``Dropped`` if a field was pruned."""
        body = encode(fitted(trimmed(report, now, keep), now), self._was)
        if body["status"] == self._was.get("status"):
            return
        self._was = self._cluster.replace_report(body)
        if lost := dropped(body["status"], self._was.get("status"), "status"):
            raise Dropped(f"the API server dropped {lost} of {KIND} {NAME}: kubectl apply -k deploy/crds")
