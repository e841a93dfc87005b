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
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Protocol

from recovery.clock import Clock
from recovery.decide.situation import Lease, Role
from recovery.errors import Conflict, NotFound
from recovery.model import GROUP
from recovery.short import object_name
from recovery.units import moment, parse_moment

IDLE_SINCE = f"{GROUP}/idle-since"
"""Annotation on a Lease: when it was last renewed before its present holder took it, or took it again."""
EVER = datetime(1970, 1, 1, tzinfo=UTC)
"""Nothing is known of who was at work before."""
LATE = 5.0
"""Seconds by which a renewal may be late."""
LISTED_EVERY = timedelta(minutes=1)
"""How often a concluder lists all records, and so finds those that are not on the gate."""

LONGEST_PLACE = 80
"""Characters of what is locked: a socket's address has 107 bytes."""

Idle = tuple[datetime, datetime]


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
        """Whether ``holder`` was a process of this pod: it has ended, since we hold the instance lock.

        That counts only for the Lease of our own node's record. Leases that it held as a concluder run out,
        and others take them: a process that is killed every half minute would keep them for ever.
        """
        return self.alone and holder.startswith(f"{Role.OWNER.value}/{self.node}/{self.pod}/")


class InstanceLock:
    """A single-instance lock: an abstract socket that one process of a pod and node can hold. Linux only."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None

    def take(self, node: str) -> bool:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.bind("\0node-recovery/" + object_name(node, LONGEST_PLACE))
        except OSError:
            self._socket.close()
            self._socket = None
            return False
        return True

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def identified(node: str, lock: InstanceLock, place: str) -> Identity:
    """This process, which takes ``lock`` for ``place``.

    Two pods in the node's own network look like one pod. The one that does not get the lock gets a name of
    its own, so that nobody takes the other one for a process of this pod that has ended.
    """
    alone = lock.take(place)
    return Identity(node, this_pod() if alone else f"{this_pod()}+{uuid.uuid4().hex[:8]}", alone=alone)


def this_pod() -> str:
    """Host name (the pod's) and network namespace: what processes of one pod share."""
    try:
        network = os.stat("/proc/self/ns/net").st_ino
    except OSError:
        network = 0
    return f"{socket.gethostname()}:{network}"


WORD = "noderecovery.dev/page"
"""Annotation of a Lease: what the agent of a new node tells of its detector's page (``agent.word``)."""


@dataclass(frozen=True, slots=True)
class Word:
    """What a Lease says of its node's detector page.

    ``again``: an agent of the node renewed the Lease a moment ago, while we were listening. ``owned``: an
    agent of the node holds it. ``dead``: it has not changed for so long that no agent of the node is alive.
    """

    text: str = ""
    again: bool = False
    owned: bool = False
    dead: bool = True


@dataclass
class _Seen:
    version: str
    at: float
    looked: float
    other_at: float | None = None  # when another version of it was last seen


class Leases:
    """Reads, takes, renews and releases the Leases of records. Never deletes one."""

    def __init__(
        self,
        cluster: LeaseObjects,
        clock: Clock,
        identity: Identity,
        duration: timedelta = timedelta(seconds=60),
        *,
        named: Callable[[str], str] | None = None,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._identity = identity
        self._duration = duration
        self._named = named or lease_name
        self._seen: dict[str, _Seen] = {}
        self._held: dict[str, tuple[Role, float]] = {}
        self._written: dict[str, dict[str, Any]] = {}
        self._words: dict[str, str] = {}
        self._beside: set[str] = set()
        self._idle: dict[str, Idle | None] = {}
        self._renewed: dict[str, datetime] = {}

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
            return self._judge(node, self._cluster.get_lease(self._named(node)))
        except NotFound:
            self._held.pop(node, None)
            idle = (self._renewed.get(node, EVER), self._cluster.time.now())
            return Lease(holder="", mine=False, stale=True, idle=idle)

    def _judge(self, node: str, obj: dict[str, Any]) -> Lease:
        spec = obj.get("spec") or {}
        holder = str(spec.get("holderIdentity") or "")
        version = str(obj["metadata"].get("resourceVersion"))
        now = self._clock.boottime()
        seen = self._seen.get(node)
        if seen is None or seen.version != version:
            before = seen.looked if seen is not None else None
            seen = self._seen[node] = _Seen(version, now, now, other_at=before)
        seen.looked = now
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
        idle = idle_of(obj, self._cluster.time.now(), self._idle_after(holder))
        silent = self._cluster.time.now() - _at(obj, "renewTime") > timedelta(seconds=length / 2)
        return Lease(holder=holder, mine=mine, stale=stale, silent=silent, idle=idle)

    def stale_in(self, node: str) -> float:
        """Seconds until the Lease may be taken from another, if it stays as it was last seen."""
        seen, now = self._seen.get(node), self._clock.boottime()
        return max(0.0, seen.at + self._duration.total_seconds() - now) if seen is not None else 0.0

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

        A change is written ``at_once``, or when the Lease is due. ``at_once`` writes it even while the agent
        before us still holds the Lease.
        """
        if node not in self._words or (at_once and self._words[node] != word):
            self._held.pop(node, None)  # due now
        self._words[node] = word
        lease = self.hold(node, Role.OWNER)
        if at_once and not lease.mine and lease.holder.startswith(f"{Role.OWNER.value}/"):
            self._tell_beside(node, word)

    def _tell_beside(self, node: str, word: str) -> None:
        """Tell it in the Lease that another agent of the node holds. Only once, as each write prolongs it."""
        if node in self._beside:
            return
        obj = self._cluster.get_lease(self._named(node))
        notes = {**(obj["metadata"].get("annotations") or {}), WORD: word}
        with contextlib.suppress(Conflict):
            self._cluster.replace_lease({**obj, "metadata": {**obj["metadata"], "annotations": notes}})
            self._beside.add(node)

    def fall_silent(self, node: str) -> None:
        """Tell nothing more. What was told last stays on the Lease, and goes stale with it."""
        self._words.pop(node, None)

    def word(self, node: str) -> Word:
        """What the agent of ``node`` told last.

        After an agent has died, its successor can tell nothing until the Lease has run out. So an agent
        counts as silent only after twice the length of the Lease. A peer that looks again after minutes does
        not know when the Lease was renewed: the agent may have died right after that.
        """
        try:
            obj = self._cluster.get_lease(self._named(node))
        except NotFound:
            return Word()
        lease = self._judge(node, obj)
        seen = self._seen[node]
        owned = lease.holder.startswith(f"{Role.OWNER.value}/")
        now, silence = self._clock.boottime(), 2 * self._duration.total_seconds()
        renewed = seen.other_at is not None and now - seen.other_at < silence
        again = renewed and owned and not lease.stale
        text = str((obj["metadata"].get("annotations") or {}).get(WORD, ""))
        return Word(text, again=again, owned=owned and not lease.mine, dead=now - seen.at >= silence)

    # ------------------------------------------------------------ holding

    def hold(self, node: str, role: Role) -> Lease:
        """Take the Lease if it is stale, renew it if it is ours and due. Returns who holds it now."""
        if (known := self._just_renewed(node)) is not None:
            return known
        asked = self._clock.boottime()
        if (renewed := self._renew(node, role, asked)) is not None:
            return renewed
        try:
            obj = self._cluster.get_lease(self._named(node))
        except NotFound:
            return self._create(node, role, asked)
        lease = self._judge(node, obj)
        if not lease.mine and not lease.stale:
            self._held.pop(node, None)
            return lease
        body = self._body(node, role, obj)
        try:
            stored = self._cluster.replace_lease(body)
        except Conflict:
            self._held.pop(node, None)
            return Lease(holder="one that has just changed its Lease", mine=False, stale=False)
        return self._got(node, role, asked, body, stored)

    def _renew(self, node: str, role: Role, asked: float) -> Lease | None:
        """Renew what we hold as we wrote it, without reading it. None: it is to be read.

        It names the version that we wrote, so the API server refuses where anybody has changed it since.
        """
        written = self._written.pop(node, None)
        if written is None or not self.held(node):
            return None
        body = self._body(node, role, written)
        try:
            stored = self._cluster.replace_lease(body)
        except (Conflict, NotFound):
            return None
        return self._got(node, role, asked, body, stored)

    def _just_renewed(self, node: str) -> Lease | None:
        held = self._held.get(node)
        if held is None or self._clock.boottime() - held[1] >= self.renew_every:
            return None
        return Lease(self._identity.holder(held[0]), mine=True, stale=False, idle=self._idle.get(node))

    def _create(self, node: str, role: Role, asked: float) -> Lease:
        body = self._body(node, role, None)
        try:
            stored = self._cluster.create_lease(body)
        except Conflict:
            return Lease(holder="one that took it first", mine=False, stale=False)
        return self._got(node, role, asked, body, stored)

    def _got(
        self, node: str, role: Role, asked: float, body: dict[str, Any], stored: dict[str, Any]
    ) -> Lease:
        self._held[node] = (role, asked)
        self._written[node] = stored
        self._renewed[node] = now = self._cluster.time.now()
        holder = self._identity.holder(role)
        self._idle[node] = idle = idle_of(body, now, self._idle_after(holder))
        return Lease(holder, mine=True, stale=False, idle=idle)

    def _idle_after(self, holder: str) -> timedelta:
        """How long ``holder`` may leave its Lease as it is and still count as at work.

        It may miss one renewal. A concluder that only waits renews once a sweep, which is about as long as a
        Lease. It finds a record that is not on the gate once a minute, and renews in the sweep after that.
        Another concluder that takes its place waits for the same agent, so it is allowed twice as long.
        """
        if not holder.startswith(Role.CONCLUDER.value + "/"):
            return timedelta(seconds=2 * self.renew_every + LATE)
        ours = holder.endswith(f"/{self._identity.token}")
        seldom = max(2 * self._duration, LISTED_EVERY + self._duration)
        return (1 if ours else 2) * seldom + timedelta(seconds=LATE)

    def _body(self, node: str, role: Role, old: dict[str, Any] | None) -> dict[str, Any]:
        metadata: dict[str, Any] = {"name": self._named(node), "namespace": self._cluster.namespace}
        spec = dict((old or {}).get("spec") or {})
        holder = self._identity.holder(role)
        at = self._cluster.time.now()
        now = moment(at)
        idle: Idle | None = (self._renewed.get(node, EVER), at)
        if old is not None:
            metadata = dict(old["metadata"])
            allowed = self._idle_after(str(spec.get("holderIdentity") or ""))
            idle = idle_until(old, at, allowed, holder)
        notes = {k: v for k, v in (metadata.get("annotations") or {}).items() if k != WORD}
        if node in self._words:
            notes[WORD] = self._words[node]
        if spec.get("holderIdentity") != holder or idle is not None:
            spec["acquireTime"] = now
            notes.pop(IDLE_SINCE, None)
        if idle is not None:
            notes[IDLE_SINCE] = moment(idle[0])
        metadata["annotations"] = notes
        if spec.get("holderIdentity") != holder:
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + (1 if old else 0)
        spec |= {
            "holderIdentity": holder,
            "renewTime": now,
            "leaseDurationSeconds": max(1, round(self._duration.total_seconds())),
        }
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}

    def release(self, node: str) -> None:
        """Release it, so that the next agent need not wait. Best effort: a Lease goes stale by itself."""
        self._written.pop(node, None)
        if self._held.pop(node, None) is None:
            return
        with contextlib.suppress(Exception):
            obj = self._cluster.get_lease(self._named(node))
            if str(obj["spec"].get("holderIdentity", "")).endswith(f"/{self._identity.token}"):
                self._cluster.replace_lease({**obj, "spec": {**obj["spec"], "holderIdentity": ""}})

    def release_all(self) -> None:
        for node in list(self._held):
            self.release(node)


def idle_of(obj: dict[str, Any], now: datetime, allowed: timedelta) -> Idle | None:
    """From when to when nobody renewed the Lease: until now, or until its holder took it. None where it was
    never left alone for longer than is ``allowed``."""
    if now - _at(obj, "renewTime") >= allowed:
        return idle_until(obj, now, allowed, "")
    before, taken = _noted(obj), _at(obj, "acquireTime")
    if before is None or taken - now > timedelta(seconds=LATE):
        return None  # a clock was set back since, or it would have been idle until a moment in the future
    return before, taken


def idle_until(obj: dict[str, Any], now: datetime, allowed: timedelta, holder: str) -> Idle | None:
    """The same for ``holder``, who takes or renews it ``now``.

    A holder before it that never renewed the Lease may have died before it wrote down what was idle before
    its own time. So that still counts.
    """
    spec = obj.get("spec") or {}
    before = _noted(obj)
    old = str(spec.get("holderIdentity") or "")
    waits = Role.CONCLUDER.value + "/"  # one that takes another's place goes on with the same patience
    same = old == holder or (old.startswith(waits) and holder.startswith(waits))
    if before is not None and not same and spec.get("renewTime") == spec.get("acquireTime"):
        return before, now
    renewed = _at(obj, "renewTime")
    return (renewed, now) if now - renewed >= allowed else None


def _noted(obj: dict[str, Any]) -> datetime | None:
    text = (obj["metadata"].get("annotations") or {}).get(IDLE_SINCE)
    try:
        return parse_moment(str(text)) if text else None
    except ValueError:
        return EVER


def _at(obj: dict[str, Any], field: str) -> datetime:
    try:
        return parse_moment(str((obj.get("spec") or {}).get(field)))
    except ValueError:
        return EVER


@lru_cache(1024)
def lease_name(node: str) -> str:
    """``nr-`` and a hash: node names may be longer than an object's name may."""
    return "nr-" + hashlib.sha256(node.encode()).hexdigest()[:16]
