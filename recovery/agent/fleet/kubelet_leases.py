"""Finds kubelets that have fallen silent while their Nodes still say Ready, by their Leases.

The node controller (kube-controller-manager) sets Ready to Unknown within a minute. While it is away, nobody
does. Each kubelet renews its Lease every ten seconds, and tens of thousands of Leases are too many to watch.
So a Lease is read only where the kubelet has not written to its Node for longer than any kubelet waits. No
kubelet's clock is trusted: a Lease counts as not renewed once several looks have found it unchanged.
"""

from __future__ import annotations

import logging
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain

from recovery.agent.fleet.nodes import Changed, Nodes, life_of
from recovery.clock import Clock
from recovery.errors import ApiError, NotFound
from recovery.kube.alike import Conditions
from recovery.kube.cluster import Cluster
from recovery.model import NodeView
from recovery.signals.kubelet import READY, WELL, Heard
from recovery.units import hour

log = logging.getLogger(__name__)

NAMESPACE = "kube-node-lease"
QUIET = timedelta(minutes=8)
"""A kubelet writes to its Node every five minutes (nodeStatusReportFrequency), and newer ones half as late
again after a change (https://github.com/kubernetes/kubernetes/pull/130919)."""
EVERY = 20.0
"""Seconds between two rounds."""
UNCHANGED = 60.0
"""A Lease that has stayed as it is for so many seconds is not renewed. The node controller waits for 50."""
MOST_APART = 2.5 * EVERY
"""Seconds between two looks at a Lease, above which it may have been the API server that was away."""
KNOWN_FOR = 300.0
"""Seconds for which a kubelet that renews its Lease is not looked at again, however quiet its Node is."""
MOST = 100
"""Leases that are read in one round."""
SPARE = 20
"""Of how many kubelets more than seem silent it is asked whether they are alive. Where three of ten have one
cause with the first, that none of these has is less likely than one in a thousand."""
MOST_REFUSED = 3
"""After so many Leases that cannot be read, a round ends: the cause may be another than these Leases. The
next round begins with others."""
NEVER = float("-inf")


@dataclass(frozen=True, slots=True)
class _Lease:
    """A Lease that was seen in this ``version`` from ``since`` (``first``, by the API server's time) to
    ``at``.

    ``renewed``: when it was last seen to change. ``alive``: when it was looked at before that, so it was
    renewed after this moment. ``stays``: it is renewed no more. Seconds are boot time.
    """

    life: str
    version: str
    since: float
    at: float
    first: datetime
    renewed: float
    alive: float = NEVER
    stays: bool = False

    @property
    def is_unchanged(self) -> bool:
        """Whether its last looks, one after the other, have found it unchanged."""
        return self.stays or self.at > self.since


_Word = tuple[datetime, datetime]
"""When a kubelet last wrote to its Node, by its clock and by ours."""


class KubeletLeases:
    """One thread calls ``round``; any may ask what is known. ``cluster`` is at home in ``NAMESPACE``."""

    def __init__(self, cluster: Cluster, clock: Clock, nodes: Nodes, changed: Changed) -> None:
        self._cluster = cluster
        self._clock = clock
        self._nodes = nodes
        self._changed = changed
        self._leases: dict[str, _Lease] = {}
        self._ahead: Mapping[str, _Word] = {}
        """Last words that were yet to come, by the name of the Node."""
        self._lock = threading.Lock()
        self._refused: list[str] = []
        self._unreadable: set[str] = set()
        self._silent: set[str] = set()
        """Those that the last round has told of."""
        self._doubt = ""
        """Why no kubelet is called silent, whatever its Lease shows; "" where that counts."""

    # ------------------------------------------------------------ any thread

    def stays(self, node: NodeView) -> bool:
        """Whether the kubelet of ``node`` renews its Lease no more. Asked at each event of the watch."""
        lease = self._of(node)
        return lease is not None and lease.stays and self._quiet_since(node) is not None

    def heard(self, node: NodeView, within: float | None = None) -> Heard:
        """What is known of the kubelet of ``node``, which is Ready. ``within``: that it is silent is known by
        a look no older than so many seconds."""
        written = self._quiet_since(node)
        if written is None:
            return WELL
        if within is not None and self.stays(node) and self._age(node) >= within:
            try:
                self._look(node)
            except ApiError as error:
                return Heard(unknown=f"the Lease of its kubelet cannot be read: {error}")
        lease = self._of(node)
        quiet = f"its kubelet last wrote to the Node at {hour(written, self._nodes.now())}"
        if lease is not None and lease.stays and self._doubt:
            return Heard(unknown=f"{quiet}, and renews its Lease no more; {self._doubt}")
        if lease is not None and lease.stays:
            return Heard(f"{quiet}, and renews its Lease no more", since=lease.first)
        if lease is None or self._clock.boottime() - lease.renewed > 2 * KNOWN_FOR:
            return Heard(unknown=f"{quiet}, and whether it renews its Lease is not known yet")
        return WELL

    def _age(self, node: NodeView) -> float:
        lease = self._of(node)
        return self._clock.boottime() - lease.at if lease is not None else float("inf")

    def _of(self, node: NodeView) -> _Lease | None:
        lease = self._leases.get(node.name)
        return lease if lease is not None and lease.life == life_of(node) else None

    def _quiet_since(self, node: NodeView) -> datetime | None:
        """When its kubelet last wrote, where that is too long ago for a Node that is Ready; else None."""
        if not node.ready:
            return None
        now = self._nodes.now()
        word = self._last_word(node, now)
        return word[1] if word is not None and now - word[1] > QUIET else None

    def _wrote(self, node: NodeView, since: datetime) -> bool:
        """Whether its kubelet has written to the Node since: it is alive, whatever becomes of its Lease."""
        word = self._last_word(node, self._nodes.now())
        return word is not None and word[1] > since

    def _last_word(self, node: NodeView, now: datetime) -> _Word | None:
        """When its kubelet last wrote to the Node. By a clock that is ahead, the last word of one that has
        died is yet to come: it counts from when it was first seen."""
        stated, known = node.stated, self._ahead.get(node.name)
        written = stated.heartbeat(READY) if isinstance(stated, Conditions) else node.heard
        if written is None:
            return None
        return known if known is not None and known[0] == written else (written, min(written, now))

    # ------------------------------------------------------------ one thread

    def round(self) -> float:
        """Look at the Leases of quiet Nodes. Seconds until the next round. Never raises ``ApiError``."""
        quiet = self._quiet()
        with self._lock:
            known = dict(self._leases)
        witnesses = self._witnesses(quiet, known)
        asked, since = {**quiet, **witnesses}, _unchanged_since(known.values())
        with self._lock:
            for name in known.keys() - asked.keys():
                del self._leases[name]
        if not witnesses:  # else one that cannot be read would be asked again instead of others
            self._unreadable &= quiet.keys()
        refused: list[str] = []
        looks: dict[str, _Lease] = {}
        due = (x for x in asked.values() if self._is_due(x, since if x.name in witnesses else NEVER))
        for node in sorted(due, key=self._turn)[:MOST]:
            try:
                looks[node.name] = self._read(node)
                self._unreadable.discard(node.name)
            except ApiError as error:  # one that the server cannot read hides no other
                self._unreadable.add(node.name)
                refused.append(str(error))
                if len(refused) == MOST_REFUSED:
                    break
        for why in refused:
            if why not in self._refused:
                log.warning("whether kubelets renew their Leases is not known, and asked again: %s", why)
        self._refused = refused
        self._tell_all(quiet, asked, looks)
        return EVERY

    def _witnesses(self, quiet: Mapping[str, NodeView], known: Mapping[str, _Lease]) -> dict[str, NodeView]:
        """Where some seem silent: them, and others whose kubelets show whether there is one cause. Those may
        have written to their Nodes lately, or been alive minutes ago: the brake counts none of them for as
        long (law 10)."""
        silent = {name for name, lease in known.items() if lease.is_unchanged}
        found: dict[str, NodeView] = {}
        if not silent & quiet.keys():
            return found
        first = sorted(known, key=lambda name: (name not in silent, -known[name].alive, name))
        wanted = len(silent) + SPARE
        for node in chain(map(self._nodes.get, first), self._at_random()):
            if node is None or not node.ready or node.name in found or not self._may_show(node):
                continue
            found[node.name] = node
            wanted -= node.name not in silent
            if not wanted:
                break
        return found

    def _at_random(self) -> Iterator[NodeView]:
        """All Nodes, in an order that stays the same and has nothing to do with racks, as names have."""
        yield from sorted(self._nodes.all(), key=lambda node: zlib.crc32(node.name.encode()))

    def _may_show(self, node: NodeView) -> bool:
        """Whether its Lease may show that its kubelet is alive, by what is known of it."""
        lease = self._of(node)
        return node.name not in self._unreadable and (lease is None or bool(lease.version))

    def _tell_all(
        self, quiet: Mapping[str, NodeView], asked: Mapping[str, NodeView], looks: Mapping[str, _Lease]
    ) -> None:
        """What a round has seen, at once. Reads may take seconds each, and the first one that is silent would
        be dealt with before the brake could count the others (law 10)."""
        before, self._doubt = self._doubt, self._weighed(quiet, asked, looks)
        if self._doubt and not before:
            log.warning("no kubelet counts as silent yet: %s", self._doubt)
        turned = self._take_in(looks)
        told = {name for name, node in quiet.items() if self.stays(node)} if not self._doubt else set[str]()
        for name in dict.fromkeys((*turned, *sorted(told ^ self._silent))):
            self._changed(name)
        self._silent = told

    def _weighed(
        self, quiet: Mapping[str, NodeView], asked: Mapping[str, NodeView], looks: Mapping[str, _Lease]
    ) -> str:
        """Why those that are silent may have one cause: others seem to be, and their Nodes do not show it;
        or fewer are known to have been alive since, and of more it is not known yet. A certificate has run
        out, say, or a rack has lost its network. The brake could not count them (law 10). One that cannot be
        read is not waited for."""
        known = {name: looks.get(name) or self._of(node) for name, node in asked.items()}
        leases = {name: x for name, x in known.items() if x is not None}
        write = {name for name, x in leases.items() if self._wrote(asked[name], x.first)} - quiet.keys()
        silent = {name for name, x in leases.items() if x.stays} - write
        hidden = {name for name, x in leases.items() if x.is_unchanged} - write - quiet.keys()
        if hidden and silent & quiet.keys():
            return f"of {len(hidden)} more whose Leases stay as they are the Nodes do not show it yet"
        since = _unchanged_since(x for name, x in leases.items() if x.stays and name in quiet)
        alive = {name for name, x in leases.items() if x.alive >= since and not x.stays} | write
        without = {name for name, x in leases.items() if not x.version}
        others = asked.keys() - alive - without - self._unreadable - (silent & quiet.keys())
        if not others or len(silent) <= len(alive):
            return ""
        return (
            f"{len(silent)} kubelets do not renew their Leases, {len(alive)} have done so since, and "
            f"{len(others)} more have still to be counted: they may have one cause"
        )

    def _quiet(self) -> dict[str, NodeView]:
        """The Nodes that are Ready and whose kubelets last wrote too long ago. What is yet to come is
        remembered in the same pass, as it goes over the whole fleet."""
        now, ahead, quiet = self._nodes.now(), dict[str, _Word](), dict[str, NodeView]()
        for node in self._nodes.all():
            if (word := self._last_word(node, now)) is None:
                continue
            if word[0] != word[1]:
                ahead[node.name] = word
            if node.ready and now - word[1] > QUIET:
                quiet[node.name] = node
        self._ahead = ahead
        return quiet

    def stands_down(self) -> None:
        """Another looks now. What this one knew is out of date."""
        self._ahead = {}
        self._doubt = ""
        self._silent = set()
        with self._lock:
            self._leases.clear()

    def _turn(self, node: NodeView) -> tuple[bool, bool, float]:
        """First the Leases that were looked at a moment ago: a Lease has to be seen several times in a row.
        Last those that could not be read."""
        lease, age = self._of(node), self._age(node)
        late = lease is None or lease.stays or age > MOST_APART
        return late, node.name in self._unreadable, -age

    def _is_due(self, node: NodeView, since: float) -> bool:
        """``since``: from when on its kubelet has to have been alive."""
        lease = self._of(node)
        if lease is None or lease.stays or lease.alive < since:
            return True
        return self._clock.boottime() - lease.renewed > KNOWN_FOR

    def _look(self, node: NodeView) -> None:
        """Read its Lease, right before something is done."""
        for name in self._take_in({node.name: self._read(node)}):
            self._changed(name)

    def _read(self, node: NodeView) -> _Lease:
        """What its Lease shows now. A kubelet that has none is asked nothing more: there is nothing to go
        by."""
        try:
            version = str(self._cluster.get_lease(node.name)["metadata"]["resourceVersion"])
        except NotFound:
            version = ""
        return _seen(self._of(node), version, life_of(node), self._clock.boottime(), self._nodes.now())

    def _take_in(self, looks: Mapping[str, _Lease]) -> list[str]:
        """Remember what was seen. The names of those that are silent by that, or no longer."""
        turned = []
        with self._lock:
            for name, lease in looks.items():
                before = self._leases.get(name)
                if before is not None and before.at > lease.at:
                    continue  # it was looked at once more meanwhile
                self._leases[name] = lease
                if lease.stays != (before is not None and before.life == lease.life and before.stays):
                    turned.append(name)
        for name in turned:
            no_more = "renews its Lease no more, though the Node is Ready"
            does = no_more if looks[name].stays else "renews its Lease again"
            log.warning("%s: its kubelet %s", name, does)
        return turned


def _unchanged_since(leases: Iterable[_Lease]) -> float:
    """Since when the last of those that are unchanged is so; ``NEVER`` where none is."""
    return max((x.since for x in leases if x.is_unchanged), default=NEVER)


def _seen(before: _Lease | None, version: str, life: str, now: float, at: datetime) -> _Lease:
    """What is known after a look ``now``. A Lease that is gone tells nothing: a silent kubelet stays so."""
    if not version:
        if before is not None and before.stays:
            return replace(before, at=now)
        return _Lease(life, "", now, now, at, renewed=now)
    if before is None or not before.version:
        return _Lease(life, version, now, now, at, renewed=NEVER if before is None else now)
    if before.version != version:
        return _Lease(life, version, now, now, at, renewed=now, alive=before.at)
    if now - before.at > MOST_APART and not before.stays:
        return _Lease(life, version, now, now, at, before.renewed, before.alive)
    return replace(before, at=now, stays=before.stays or now - before.since >= UNCHANGED)
