"""Everything outside the process that an agent reads and writes, in one value."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from recovery.agent.backoff import Outage
from recovery.agent.desk import Desk
from recovery.clock import Clock
from recovery.decide.budget import Past
from recovery.decide.situation import ABREAST, MOST_SLOTS, Lease, Role
from recovery.errors import NotFound
from recovery.kube.cluster import Cluster
from recovery.model import Alerts, NodeView, Policy, Record, Statement
from recovery.provider.registry import Providers
from recovery.store.gate import Gates
from recovery.store.lease import Word
from recovery.store.record import Records


class LeasesOfRecords(Protocol):
    """Who works on a record: ``store.lease.Leases``, or the leader's in fleet mode."""

    @property
    def renew_every(self) -> float: ...
    def look(self, node: str, *, fresh: bool = False) -> Lease: ...
    def hold(self, node: str, role: Role) -> Lease: ...
    def release(self, node: str) -> None: ...
    def release_all(self) -> None: ...
    def start_over(self) -> None: ...
    def word(self, node: str) -> Word: ...
    def tell(self, node: str, word: str, *, at_once: bool) -> None: ...
    def fall_silent(self, node: str) -> None: ...


class LatestPast:
    """What the records told last of earlier recoveries. The threads of a process share it: of several that
    ask at the same time one lists the records, and the others wait for that."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: tuple[float, Past] | None = None

    def known(self, clock: Clock, age: float, listed: Callable[[], Past]) -> tuple[float, Past]:
        """When they were asked, and what they told: ``listed`` where that is older than ``age`` seconds."""
        with self._lock:
            now = clock.monotonic()
            if self._known is None or now - self._known[0] >= age:
                self._known = (now, listed())
            return self._known

    def started(self, r: Record) -> None:
        """This process has written the last start of ``r``. The gate may have no room for it, and the next
        list of the records is seconds away."""
        with self._lock:
            if self._known is not None:
                self._known[1].add_last(r)


@dataclass
class World:
    """Made once, by ``program``. ``on``: ENABLE_RECOVERY. ``survived``: counts and logs a bug (``bugs``).

    ``settle``: how long a queue entry waits before a slot is granted, so that a fault that hits several
    nodes at once is counted on all of them first. ``kernel_boot``: the boot ID of this process's own
    kernel, "" where it cannot be read. ``shared_by``: what the machines with the faults of an open record
    share, as sentences by reason; only fleet mode knows. ``afar``: no agent of this process runs on the node
    that it looks after. ``witnesses``: the second witnesses of this machine, by name. ``alerts``: those
    that fire, as was last asked; ``ask_for_alerts`` asks, where nobody does so in the background. ``past``:
    shared by the worlds of one process. ``unheard_since``: from when on a Node is watched, where its
    kubelet has not written since. ``unseen_since``: since when there is news of another node that is on no
    record yet. ``outside``: whether a Node is none of those that are looked after, as it
    has lost their label; with True, as right before a destructive step, by a read. ``desk``: where the agents
    of one process hand in what they want of the gate. ``abreast``: how many at the head of the queue may
    start at the same time.
    """

    clock: Clock
    cluster: Cluster
    records: Records
    gates: Gates
    leases: LeasesOfRecords
    providers: Providers
    policy: Policy
    on: bool
    survived: Callable[[str, str], None]
    settle: timedelta = timedelta(seconds=0.5)
    kernel_boot: Callable[[], str] = str
    most_slots: int = MOST_SLOTS
    shared_by: Callable[[Record], Mapping[str, str]] = lambda _: {}
    afar: bool = False
    witnesses: Mapping[str, Callable[[tuple[str, ...]], Statement]] = field(default_factory=dict)
    alerts: Callable[[], Alerts] = Alerts
    ask_for_alerts: Callable[[], None] = lambda: None
    past: LatestPast = field(default_factory=LatestPast)
    unheard_since: Callable[[str], datetime | None] = lambda _: None
    unseen_since: Callable[[str], datetime | None] = lambda _: None
    outside: Callable[[str, bool], bool] = lambda *_: False
    outage: Outage = field(default_factory=Outage)
    desk: Desk | None = None
    abreast: int = ABREAST

    def node(self, name: str) -> NodeView | None:
        """The Node ``name``, or None where there is none."""
        try:
            return self.cluster.get_node(name)
        except NotFound:
            return None

    def is_not_ready(self, name: str) -> bool:
        """Whether the node ``name`` has no Node, or one that is not Ready: no agent on it may be alive."""
        node = self.node(name)
        return node is None or not node.ready
