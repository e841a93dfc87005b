"""Finds kubelets that have fallen silent while their Nodes still say Ready, by their Leases.

The node controller (kube-controller-manager) sets Ready to Unknown within a minute. While it is away, nobody
does. Each kubelet renews its Lease every ten seconds, and tens of thousands of Leases are too many to watch.
So a Lease is read only where the kubelet has not written to its Node for longer than any kubelet waits. No
kubelet's clock is trusted: a Lease counts as not renewed once several looks have found it unchanged.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

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
MOST_REFUSED = 3
"""After so many Leases that cannot be read, a round ends: the cause may be another than these Leases. The
next round begins with others."""


@dataclass(frozen=True, slots=True)
class _Lease:
    """A Lease that was seen in this ``version`` from ``since`` (``first``, by the API server's time) to
    ``at``.

    ``renewed``: when it was last seen to change. ``stays``: it is renewed no more. Seconds are boot time.
    """

    life: str
    version: str
    since: float
    at: float
    first: datetime
    renewed: float
    stays: bool = False

    @property
    def is_judged(self) -> bool:
        """Whether it is known of its kubelet that it is alive, or silent."""
        return self.stays or self.renewed > NEVER


NEVER = float("-inf")
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
        quiet = f"its kubelet last wrote to the Node at {hour(written)}"
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
            for name in self._leases.keys() - quiet.keys():
                del self._leases[name]
        self._unreadable &= quiet.keys()
        refused: list[str] = []
        looks: dict[str, _Lease] = {}
        for node in sorted(filter(self._is_due, quiet.values()), key=self._turn)[:MOST]:
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
        self._tell_all(quiet, looks)
        return EVERY

    def _tell_all(self, quiet: Mapping[str, NodeView], looks: Mapping[str, _Lease]) -> None:
        """What a round has seen, at once. Reads may take seconds each, and the first one that is silent would
        be dealt with before the brake could count the others (law 10)."""
        before, self._doubt = self._doubt, self._weighed(quiet, looks)
        if self._doubt and not before:
            log.warning("no kubelet counts as silent yet: %s", self._doubt)
        told = self._take_in(looks)
        if before and not self._doubt:
            told += [name for name, node in quiet.items() if self.stays(node) and name not in told]
        for name in told:
            self._changed(name)

    def _weighed(self, quiet: Mapping[str, NodeView], looks: Mapping[str, _Lease]) -> str:
        """Why those that are silent may have one cause: most of those that were looked at are, and of more it
        is not known yet. A certificate has run out, say. The brake could not count them (law 10). One that
        cannot be read is not waited for."""
        leases = {name: looks.get(name) or self._of(node) for name, node in quiet.items()}
        silent = sum(x.stays for x in leases.values() if x is not None)
        judged = sum(x.is_judged for x in leases.values() if x is not None)
        left = (name for name, x in leases.items() if x is None or not x.is_judged)
        others = sum(name not in self._unreadable for name in left)
        if not others or 2 * silent <= judged:
            return ""
        return (
            f"{silent} of the {judged} kubelets whose Leases were read do not renew them, and {others} more "
            "have still to be read, or once more: they may have one cause"
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
        with self._lock:
            self._leases.clear()

    def _turn(self, node: NodeView) -> tuple[bool, bool, float]:
        """First the Leases that were looked at a moment ago: a Lease has to be seen several times in a row.
        Last those that could not be read."""
        lease, age = self._of(node), self._age(node)
        late = lease is None or lease.stays or age > MOST_APART
        return late, node.name in self._unreadable, -age

    def _is_due(self, node: NodeView) -> bool:
        lease = self._of(node)
        return lease is None or lease.stays or self._clock.boottime() - lease.renewed > KNOWN_FOR

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


def _seen(before: _Lease | None, version: str, life: str, now: float, at: datetime) -> _Lease:
    """What is known after a look ``now``. A Lease that is gone tells nothing: a silent kubelet stays so."""
    if not version:
        if before is not None and before.stays:
            return replace(before, at=now)
        return _Lease(life, "", now, now, at, renewed=now)
    if before is None or before.version != version:
        return _Lease(life, version, now, now, at, renewed=now if before is not None else NEVER)
    if now - before.at > MOST_APART and not before.stays:
        return _Lease(life, version, now, now, at, before.renewed)
    return replace(before, at=now, stays=before.stays or now - before.since >= UNCHANGED)
