"""Everything outside the process that an agent reads and writes, in one value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from recovery.clock import Clock
from recovery.errors import NotFound
from recovery.kube.cluster import Cluster
from recovery.model import NodeView, Policy, Statement
from recovery.provider.registry import Providers
from recovery.store.gate import Gates
from recovery.store.lease import Leases
from recovery.store.record import Records


@dataclass
class World:
    """Made once, by ``program``. ``on``: ENABLE_RECOVERY.

    ``settle``: how long a queue entry waits before a slot is granted, so that a fault that hits several
    nodes at once is counted on all of them first. ``kernel_boot``: the boot ID of this process's own kernel,
    "" where it cannot be read. ``witnesses``: the second witnesses of this machine, by name.
    """

    clock: Clock
    cluster: Cluster
    records: Records
    gates: Gates
    leases: Leases
    providers: Providers
    policy: Policy
    on: bool
    settle: timedelta = timedelta(seconds=0.5)
    kernel_boot: Callable[[], str] = str
    witnesses: Mapping[str, Callable[[tuple[str, ...]], Statement]] = field(default_factory=dict)

    def node(self, name: str) -> NodeView | None:
        """The Node ``name``, or None where there is none."""
        try:
            return self.cluster.get_node(name)
        except NotFound:
            return None
