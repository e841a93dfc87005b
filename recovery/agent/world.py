"""Everything outside the process that an agent reads and writes, in one value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from recovery.clock import Clock
from recovery.decide.situation import MOST_SLOTS, Lease, Role
from recovery.errors import NotFound
from recovery.kube.cluster import Cluster
from recovery.model import Alerts, NodeView, Policy, Statement
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


@dataclass
class World:
    """Made once, by ``program``. ``on``: ENABLE_RECOVERY.

    ``settle``: how long a queue entry waits before a slot is granted, so that a fault that hits several
    nodes at once is counted on all of them first. ``kernel_boot``: the boot ID of this process's own kernel,
    "" where it cannot be read. ``shared_by``: what machines with one of these reasons share, as a sentence,
    for a machine; only fleet mode knows. ``afar``: no agent of this process runs on the node that it looks
    after. ``witnesses``: the second witnesses of this machine, by name. ``alerts``: those that fire, as was
    last asked.
    """

    clock: Clock
    cluster: Cluster
    records: Records
    gates: Gates
    leases: LeasesOfRecords
    providers: Providers
    policy: Policy
    on: bool
    settle: timedelta = timedelta(seconds=0.5)
    kernel_boot: Callable[[], str] = str
    most_slots: int = MOST_SLOTS
    shared_by: Callable[[str, Iterable[str], datetime], str] = lambda *_: ""
    afar: bool = False
    witnesses: Mapping[str, Callable[[tuple[str, ...]], Statement]] = field(default_factory=dict)
    alerts: Callable[[], Alerts] = Alerts

    def node(self, name: str) -> NodeView | None:
        """The Node ``name``, or None where there is none."""
        try:
            return self.cluster.get_node(name)
        except NotFound:
            return None
