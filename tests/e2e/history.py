"""The API server's audit log, read as what was done: by whom, to what, and what came of it.

It knows the log's format and nothing of the agent.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Json = dict[str, Any]
KINDS = {"nodes": "Node", "noderecoveries": "NodeRecovery", "recoverygates": "RecoveryGate"}
EXTRA = "authentication.kubernetes.io/"
CONCLUDER = "node-recovery-concluder"
"""The concluder's account, and the namespace of its own."""
OF_CONCLUDER = f"system:serviceaccount:{CONCLUDER}:{CONCLUDER}"
CONTROLLER = "node-recovery-fleet"
"""The controller's account, its namespace, and the Lease by which its replicas elect one."""
OF_CONTROLLER = f"system:serviceaccount:{CONTROLLER}:{CONTROLLER}"
EVENT = b'{"kind":"Event",'
"""How each line of the log begins."""
LONGEST_LINE = 4 << 20
"""Bytes, of the log: it holds whole objects."""
THIEF = "thief"
"""The user agent of who holds a stolen token in the tests."""


@dataclass(frozen=True)
class Request:
    """One request that the API server answered."""

    time: datetime  # when it was received
    done: datetime  # when it was answered
    user: str
    agent: str  # the client's own name for itself
    node: str  # of the pod that the token is bound to
    pod: str
    verb: str
    group: str
    resource: str  # with its subresource: pods/eviction
    name: str
    status: int
    path: str
    query: dict[str, list[str]]
    message: str
    object: Json = field(repr=False, default_factory=dict)


@dataclass(frozen=True)
class Write:
    """One change of an object, as the checker of the stories reads it."""

    time: datetime
    actor: str
    verb: str
    path: str
    object: Json
    resource_version: int


class Audit:
    """The requests since this was made, or since ``mark``. ``account`` is the agents'."""

    def __init__(self, path: Path, account: str) -> None:
        self._path = path
        self.account = account
        self._read = 0  # bytes
        self._known: list[Request] = []
        self.mark()

    def mark(self) -> None:
        """Forget what was until now."""
        self._known = []
        if not self._path.exists():
            return
        self._read = end = self._path.stat().st_size
        with self._path.open("rb") as log:  # the API server may be in the middle of a line
            log.seek(max(0, end - LONGEST_LINE))
            tail = log.read(end - log.tell())
        self._read -= len(tail) - (tail.rfind(b"\n") + 1)

    def requests(self) -> list[Request]:
        """In the order in which they were answered. Each line is read once: tests ask many times a second."""
        with self._path.open("rb") as log:
            log.seek(self._read)
            for line in log:
                if not line.endswith(b"\n"):
                    break
                self._read += len(line)
                whole = line[line.rfind(EVENT) :]  # before it: what a killed API server left
                self._known.append(parsed(json.loads(whole)))
        return self._known

    def ours(self) -> list[Request]:
        """What the product's own accounts asked for."""
        return [r for r in self.requests() if r.user in self.accounts and r.agent != THIEF]

    @property
    def accounts(self) -> tuple[str, str]:
        return self.account, OF_CONCLUDER

    def writes(self) -> list[Write]:
        """Every change of Nodes, records and gate, by anybody, in the order of the store's versions."""
        found: list[Write] = []
        version = 0
        for r in self.requests():
            kind = KINDS.get(r.resource.partition("/")[0])
            changing = r.verb in ("create", "update", "patch", "delete")
            if kind is None or not changing or not 200 <= r.status < 300:
                continue
            obj = r.object if r.object.get("kind") == kind else {"kind": kind, "metadata": {"name": r.name}}
            known = obj["metadata"].get("resourceVersion")
            version = int(known) if known else version
            found.append(Write(r.done, self._actor(r), r.verb, r.path, obj, version))
        deletes_last = sorted(found, key=lambda w: (w.resource_version, w.verb == "delete"))
        seen: set[tuple[str, int]] = set()
        return [w for w in deletes_last if w.verb == "delete" or not _again(w, seen)]

    def _actor(self, r: Request) -> str:
        if r.user not in self.accounts:
            return r.user
        return f"{'concluder' if r.user == OF_CONCLUDER else 'agent'} on {r.node}"


def _again(write: Write, seen: set[tuple[str, int]]) -> bool:
    """Whether this write changed nothing: the object had this version already."""
    key = (write.object["metadata"]["name"], write.resource_version)
    known = key in seen
    seen.add(key)
    return known


def parsed(event: Json) -> Request:
    """One line of the log."""
    user, ref = event.get("user", {}), event.get("objectRef", {})
    extra = user.get("extra", {})
    resource = ref.get("resource", "")
    if ref.get("subresource"):
        resource += f"/{ref['subresource']}"
    status = event.get("responseStatus", {})
    url = urlsplit(event["requestURI"])
    return Request(
        time=moment(event["requestReceivedTimestamp"]),
        done=moment(event["stageTimestamp"]),
        user=user.get("username", ""),
        agent=event.get("userAgent", ""),
        node=extra.get(f"{EXTRA}node-name", [""])[0],
        pod=extra.get(f"{EXTRA}pod-name", [""])[0],
        verb=event["verb"],
        group=ref.get("apiGroup", ""),
        resource=resource,
        name=ref.get("name", ""),
        status=int(status.get("code", 0)),
        path=url.path,
        query=parse_qs(url.query),
        message=str(status.get("message", "")),
        object=event.get("responseObject") or {},
    )


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
