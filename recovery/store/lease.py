"""One Lease per open record: who works on it, and is that agent alive?

Only while a record is open, so a healthy fleet renews nothing. Staleness is judged as client-go does: a Lease
that has not changed for its whole length on *our* clock is stale; its own timestamp is never believed. One
exception goes by evidence, not by time: a process that died in this very pod (docs/decisions/0004).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

from recovery.clock import Clock
from recovery.decide.situation import Lease, Role
from recovery.errors import Conflict, NotFound
from recovery.model import GROUP
from recovery.units import moment, parse_moment

GONE_FOR, PAUSED_FOR = OUR_NOTES = (f"{GROUP}/agent-gone-for", f"{GROUP}/paused-for")
"""Annotations of a Lease that a concluder holds: for how many seconds the node's own agent was seen gone, and
for how many of them all was paused."""
MOST_NOTED = 30 * 86400.0


@dataclass(frozen=True)
class Gone:
    """For how many seconds a node's own agent was seen gone, and for how many of them all was paused."""

    seconds: float = 0.0
    paused: float = 0.0


class LeaseObjects(Protocol):
    """The part of the cluster that Leases need."""

    namespace: str
    time: Any

    def get_lease(self, name: str) -> dict[str, Any]: ...
    def create_lease(self, body: dict[str, Any]) -> dict[str, Any]: ...
    def replace_lease(self, body: dict[str, Any]) -> dict[str, Any]: ...


@dataclass
class Identity:
    """Who we are. All processes of a pod have the same ``pod``, and no other process has it.

    ``alone``: we hold the instance lock, so no other process of this pod and node lives. The kernel lets go
    of the lock with the process, however it ended.
    """

    node: str
    pod: str
    token: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    alone: bool = False

    def holder(self, role: Role) -> str:
        return f"{role.value}/{self.node}/{self.pod}/{self.token}"

    def ended_in_this_pod(self, holder: str) -> bool:
        """Whether ``holder`` was a process of this pod: it has ended, since we hold the instance lock."""
        parts = holder.split("/")
        return self.alone and len(parts) == 4 and parts[1] == self.node and parts[2] == self.pod


class InstanceLock:
    """A single-instance lock: an abstract socket that one process of a pod and node can hold. Linux only."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None

    def take(self, node: str) -> bool:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.bind("\0node-recovery/" + node)
        except OSError:
            self._socket.close()
            self._socket = None
            return False
        return True

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def this_pod() -> str:
    """Host name (the pod's) and network namespace: what processes of one pod share."""
    try:
        network = os.stat("/proc/self/ns/net").st_ino
    except OSError:
        network = 0
    return f"{socket.gethostname()}:{network}"


WORD = "noderecovery.dev/page"
"""Annotation of a Lease: what the agent of a new node tells of its detector's page (``agent.word``)."""


@dataclass
class _Seen:
    version: str
    at: float
    renewed: bool = False  # it changed since we saw it first


class Leases:
    """Reads, takes, renews and releases the Leases of records. Never deletes one."""

    def __init__(
        self,
        cluster: LeaseObjects,
        clock: Clock,
        identity: Identity,
        duration: timedelta = timedelta(seconds=60),
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._identity = identity
        self._duration = duration
        self._seen: dict[str, _Seen] = {}
        self._held: dict[str, tuple[Role, float]] = {}
        self._words: dict[str, str] = {}
        self._gone: dict[str, Gone] = {}

    # ------------------------------------------------------------ for how long its owner is gone

    def gone_for(self, node: str) -> Gone:
        """For how long concluders, this one and those before it, have seen the node's own agent gone.

        That is on the Lease, so a concluder that is restarted goes on counting. Each adds what it saw on its
        own clock; no two clocks are compared.
        """
        return self._gone.get(node, Gone())

    def note_gone(self, node: str, gone: Gone) -> None:
        """What the next renewal writes."""
        self._gone[node] = gone

    def learn_gone(self, node: str, metadata: Mapping[str, Any], holder: str, silent: float) -> None:
        """Take over what the concluder before noted, and the time for which its Lease was seen unchanged."""
        notes = metadata.get("annotations") or {}
        noted = [str(notes.get(key, "")) for key in (GONE_FOR, PAUSED_FOR)]
        self._gone.pop(node, None)
        if holder.startswith(Role.CONCLUDER.value + "/") and all(x.isdecimal() for x in noted):
            gone, paused = (min(float(x), MOST_NOTED) for x in noted)
            self._gone[node] = Gone(gone + silent, paused)

    # ------------------------------------------------------------ looking

    @property
    def renew_every(self) -> float:
        """Seconds after which a Lease of ours is to be renewed."""
        return self._duration.total_seconds() / 4

    def look(self, node: str, *, fresh: bool = False) -> Lease:
        """Who holds the Lease of ``node``'s record, and whether that agent may be taken for dead.

        An owner that renewed its Lease a moment ago reads it again only if ``fresh``. A concluder always
        reads it, since it yields to an agent that is back.
        """
        known = None if fresh else self._just_renewed(node)
        if known is not None and self._held[node][0] is Role.OWNER:
            return known
        try:
            return self._judge(node, self._cluster.get_lease(lease_name(node)))
        except NotFound:
            self._held.pop(node, None)
            return Lease(holder="", mine=False, stale=True)

    def _judge(self, node: str, obj: dict[str, Any]) -> Lease:
        spec = obj.get("spec") or {}
        holder = str(spec.get("holderIdentity") or "")
        version = str(obj["metadata"].get("resourceVersion"))
        now = self._clock.boottime()
        seen = self._seen.get(node)
        if seen is None or seen.version != version:
            seen = self._seen[node] = _Seen(version, now, renewed=seen is not None)
        ours = holder.endswith(f"/{self._identity.token}")
        mine = ours and self.held(node)
        length = float(spec.get("leaseDurationSeconds") or self._duration.total_seconds())
        stale = not mine and (
            not holder
            or ours  # lapsed, or the answer was lost: no other process has our token
            or now - seen.at >= length
            or self._identity.ended_in_this_pod(holder)
            or self._yields(node, holder)
        )
        return Lease(holder=holder, mine=mine, stale=stale, silent=self._silent(spec, length))

    def _silent(self, spec: dict[str, Any], length: float) -> bool:
        """Whether the Lease itself says that it was not renewed for half its length.

        Nothing is decided by this: its holder's clock may be wrong. It is a reason to look again soon.
        """
        try:
            renewed = parse_moment(str(spec.get("renewTime")))
        except ValueError:
            return True
        return bool(self._cluster.time.now() - renewed > timedelta(seconds=length / 2))

    def start_over(self) -> None:
        """Forget since when Leases are unchanged: while the API server was away, nobody could renew."""
        self._seen.clear()

    def _yields(self, node: str, holder: str) -> bool:
        """Whether a concluder holds the Lease of our own node. We may take it at once: a concluder has
        started nothing that two could do twice."""
        return node == self._identity.node and holder.startswith(Role.CONCLUDER.value + "/")

    def held(self, node: str) -> bool:
        """Whether we renewed it so recently that it cannot be stale for anybody."""
        held = self._held.get(node)
        return held is not None and self._clock.boottime() - held[1] < self._duration.total_seconds() * 0.9

    # ------------------------------------------------------------ an agent's word about its page

    def tell(self, node: str, word: str, *, at_once: bool) -> None:
        """Tell ``word`` in the Lease of our own node. The Lease is renewed for as long as this is called.

        A change is written ``at_once``, or when the Lease is due.
        """
        if node not in self._words or (at_once and self._words[node] != word):
            self._held.pop(node, None)  # due now
        self._words[node] = word
        self.hold(node, Role.OWNER)

    def fall_silent(self, node: str) -> None:
        """Tell nothing more. What was told last stays on the Lease, and goes stale with it."""
        self._words.pop(node, None)

    def word(self, node: str) -> tuple[str, bool, bool]:
        """What the agent of ``node`` told last; whether it told it again since we listen; whether it died."""
        try:
            obj = self._cluster.get_lease(lease_name(node))
        except NotFound:
            return "", False, True
        lease = self._judge(node, obj)
        text = str((obj["metadata"].get("annotations") or {}).get(WORD, ""))
        return text, self._seen[node].renewed, lease.stale

    # ------------------------------------------------------------ holding

    def hold(self, node: str, role: Role) -> Lease:
        """Take the Lease if it is stale, renew it if it is ours and due. Returns who holds it now."""
        if (known := self._just_renewed(node)) is not None:
            return known
        asked = self._clock.boottime()
        try:
            obj = self._cluster.get_lease(lease_name(node))
        except NotFound:
            return self._create(node, role, asked)
        lease = self._judge(node, obj)
        if not lease.mine and not lease.stale:
            self._held.pop(node, None)
            return lease
        if not lease.mine and role is Role.CONCLUDER:
            silent = asked - self._seen[node].at
            self.learn_gone(node, obj["metadata"], lease.holder, silent)
        body = self._body(node, role, obj)
        try:
            self._cluster.replace_lease(body)
        except Conflict:
            self._held.pop(node, None)
            return Lease(holder=lease.holder, mine=False, stale=False)
        return self._got(node, role, asked)

    def _just_renewed(self, node: str) -> Lease | None:
        held = self._held.get(node)
        if held is None or self._clock.boottime() - held[1] >= self.renew_every:
            return None
        return Lease(self._identity.holder(held[0]), mine=True, stale=False)

    def _create(self, node: str, role: Role, asked: float) -> Lease:
        try:
            self._cluster.create_lease(self._body(node, role, None))
        except Conflict:
            return Lease(holder="one that took it first", mine=False, stale=False)
        return self._got(node, role, asked)

    def _got(self, node: str, role: Role, asked: float) -> Lease:
        self._held[node] = (role, asked)
        return Lease(self._identity.holder(role), mine=True, stale=False)

    def _body(self, node: str, role: Role, old: dict[str, Any] | None) -> dict[str, Any]:
        metadata: dict[str, Any] = {"name": lease_name(node), "namespace": self._cluster.namespace}
        spec = dict((old or {}).get("spec") or {})
        holder = self._identity.holder(role)
        now = moment(self._cluster.time.now())
        if old is not None:
            metadata = dict(old["metadata"])
        notes = {k: v for k, v in (metadata.get("annotations") or {}).items() if k not in OUR_NOTES}
        if role is Role.CONCLUDER:
            gone = self.gone_for(node)
            notes |= {GONE_FOR: str(int(gone.seconds)), PAUSED_FOR: str(int(gone.paused))}
        if node in self._words:
            notes[WORD] = self._words[node]
        if notes or metadata.get("annotations"):
            metadata["annotations"] = notes
        if spec.get("holderIdentity") != holder:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + (1 if old else 0)
        spec |= {
            "holderIdentity": holder,
            "renewTime": now,
            "leaseDurationSeconds": max(1, round(self._duration.total_seconds())),
        }
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}

    def release(self, node: str) -> None:
        """Release it, so that the next agent need not wait. Best effort: a Lease goes stale by itself."""
        if self._held.pop(node, None) is None:
            return
        with contextlib.suppress(Exception):
            obj = self._cluster.get_lease(lease_name(node))
            if str(obj["spec"].get("holderIdentity", "")).endswith(f"/{self._identity.token}"):
                obj["spec"]["holderIdentity"] = ""
                self._cluster.replace_lease(obj)

    def release_all(self) -> None:
        for node in list(self._held):
            self.release(node)


def lease_name(node: str) -> str:
    """``nr-`` and a hash: node names may be longer than an object's name may."""
    return "nr-" + hashlib.sha256(node.encode()).hexdigest()[:16]
