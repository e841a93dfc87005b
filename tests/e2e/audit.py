"""The API server's audit log as facts for the independent judge (``tests/search/facts.py``).

A line says what came of a request. What was there before it is what the lines before it say. It shares no
line with the agent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from history import EXTRA, OF_CONCLUDER, OF_CONTROLLER, moment

from tests.search.facts import Wrote

Json = dict[str, Any]
Objects = dict[tuple[str, str, str], Any]
"""Kind, namespace and name -> the object; None for one that is gone."""
KINDS = {
    "nodes": "Node",
    "pods": "Pod",
    "events": "Event",
    "leases": "Lease",
    "noderecoveries": "NodeRecovery",
    "recoverygates": "RecoveryGate",
    "recoveryreports": "RecoveryReport",
}
CHANGES = frozenset({"create", "update", "patch", "delete"})


@dataclass(frozen=True)
class Line:
    """A write and its place: the store's version after it, 0 where the answer does not have one."""

    wrote: Wrote
    version: int


class AuditLog:
    """Reads a log that grows. ``began``: the moment of ``at`` 0, Unix time. ``account`` is the agents'."""

    def __init__(self, path: Path, account: str, began: float) -> None:
        self._path, self._account, self._began = path, account, began
        self._read = path.stat().st_size if path.exists() else 0
        self._lives: list[list[Line]] = [[]]  # of the store: versions begin again when it is restored
        self._restores: list[tuple[float, Objects]] = []

    def take(self) -> None:
        """Read what was added to the log."""
        with self._path.open("rb") as log:
            log.seek(self._read)
            for raw in log:
                if not raw.endswith(b"\n"):
                    break
                self._read += len(raw)
                if (line := parsed(json.loads(raw), self._account, self._began)) is not None:
                    self._lives[-1].append(line)

    def restored(self, at: float, then: Objects) -> None:
        """The store was restored, and has these objects now. All that was read so far happened before."""
        self.take()
        self._lives.append([])
        self._restores.append((at, then))

    def facts(self) -> list[Wrote]:
        """Every write, in the order of the store; those of a restore are etcd's."""
        self.take()
        found = with_before(ordered(self._lives[0]), objects := {}, self._began)
        for life, (at, then) in zip(self._lives[1:], self._restores, strict=True):
            found += with_before(restored_to(at, objects, then), objects, self._began)
            found += with_before(ordered(life), objects, self._began)
        return found


def ordered(lines: list[Line]) -> Iterator[Wrote]:
    """By the store's versions, and where there is none by time. No write is later than one that follows it:
    a request that is answered late was not stored late."""
    place, placed = 0, []
    for line in sorted(lines, key=lambda x: x.wrote.at):
        place = line.version or place
        placed.append((place, line.version == 0, line.wrote))
    placed.sort(key=lambda x: x[:2])
    latest, kept = float("inf"), []
    seen: set[tuple[str, str, str, int]] = set()
    for version, unversioned, wrote in reversed(placed):
        latest = min(latest, wrote.at)
        kept.append((version, unversioned, replace(wrote, at=latest)))
    for version, unversioned, wrote in reversed(kept):
        key = (wrote.kind, wrote.namespace, wrote.name, version)
        if unversioned or key not in seen:  # a write that changes nothing has the version of the last one
            seen.add(key)
            yield wrote


def with_before(writes: Iterable[Wrote], objects: Objects, began: float) -> list[Wrote]:
    """Each write with the object before it. ``objects``: as they were, and afterwards as they are."""
    found = []
    for w in writes:
        key = ("Pod" if w.kind == "Eviction" else w.kind, w.namespace, w.name)
        before = objects.get(key)
        if w.kind == "Eviction" and before is not None and w.status == 201 and not w.dry:
            w = replace(w, kind="Pod", verb="evict", status=200, after=evicted(before, began + w.at))
        if w.kind != "Eviction":
            objects[key] = w.after
        found.append(replace(w, before=before))
    return found


def evicted(pod: Json, at: float) -> Json:
    """``pod`` once its eviction was granted at ``at``, Unix time. The log has no line of that write."""
    if pod["metadata"].get("deletionTimestamp"):
        return pod
    grace = (pod.get("spec") or {}).get("terminationGracePeriodSeconds", 30)
    by = f"{datetime.fromtimestamp(at + grace, UTC):%Y-%m-%dT%H:%M:%SZ}"
    return {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": by}}


def parsed(event: Json, account: str, began: float) -> Line | None:
    """A line of the log; None for one that changed nothing, and was no eviction."""
    ref = event.get("objectRef") or {}
    kind, sub = KINDS.get(ref.get("resource", "")), ref.get("subresource", "")
    status = int((event.get("responseStatus") or {}).get("code", 0))
    if kind is None or event["verb"] not in CHANGES or sub not in ("", "status", "eviction"):
        return None
    at = moment(event["stageTimestamp"]).timestamp() - began
    obj = event.get("responseObject") or {}
    meta = obj.get("metadata") or {} if obj.get("kind") == kind else {}
    name, namespace = ref.get("name") or meta.get("name", ""), ref.get("namespace", "")
    dry = "dryRun=" in event["requestURI"]
    wrote = Wrote(at, actor(event, account), event["verb"], kind, namespace, name, status=status, dry=dry)
    if sub == "eviction":
        return Line(replace(wrote, kind="Eviction", verb="create"), 0)
    if not 200 <= status < 300:
        return None
    if event["verb"] == "delete" and not going(obj, kind):
        return Line(replace(wrote, uid=meta.get("uid", "")), 0)
    if not meta:
        return None
    verb = "update" if event["verb"] == "delete" else event["verb"]
    return Line(replace(wrote, verb=verb, uid=meta["uid"], after=obj), int(meta["resourceVersion"]))


def going(obj: Json, kind: str) -> bool:
    """Whether the object was only marked for deletion: its grace period runs."""
    meta = obj.get("metadata") or {}
    return obj.get("kind") == kind and bool(meta.get("deletionGracePeriodSeconds") or meta.get("finalizers"))


def actor(event: Json, account: str) -> str:
    """Who: ``agent on NODE``, ``concluder on NODE``, ``controller POD``, or the user's name."""
    user = event.get("user") or {}
    if user.get("username") not in (account, OF_CONCLUDER, OF_CONTROLLER):
        return str(user.get("username", ""))
    extra = user.get("extra") or {}
    pod, node = (extra.get(f"{EXTRA}{x}-name", [""])[0] for x in ("pod", "node"))
    if user["username"] == OF_CONTROLLER:
        return f"controller {pod}"
    return f"{'concluder' if 'concluder' in pod else 'agent'} on {node}"


def ours(name: str) -> bool:
    return name.startswith(("agent on ", "concluder on ", "controller "))


def restored_to(at: float, now: Objects, then: Objects) -> list[Wrote]:
    """What a restored store changed: one write for each object that is another one, is gone or is back."""
    found = []
    for key in sorted({*now, *then}):
        before, after = now.get(key), then.get(key)
        if key[0] != "Event" and stamp(before) != stamp(after):
            verb = "delete" if after is None else "update" if before else "create"
            found.append(Wrote(at, "etcd", verb, *key, stamp(after or before)[0], None, after))
    return found


def stamp(obj: Any) -> tuple[str, str]:
    meta = (obj or {}).get("metadata") or {}
    return meta.get("uid", ""), meta.get("resourceVersion", "")


def lists(get: Callable[[str], Any]) -> Objects:
    """The objects that the judge reads, as the API server lists them now."""
    found: Objects = {}
    for kind, path in {
        "Node": "/api/v1/nodes",
        "Pod": "/api/v1/pods",
        "Lease": "/apis/coordination.k8s.io/v1/leases",
        "NodeRecovery": "/apis/noderecovery.dev/v1alpha1/noderecoveries",
        "RecoveryGate": "/apis/noderecovery.dev/v1alpha1/recoverygates",
    }.items():
        for item in get(path)["items"]:
            meta = item["metadata"]
            meta.pop("managedFields", None)
            found[kind, meta.get("namespace", ""), meta["name"]] = {"kind": kind, **item}
    return found
