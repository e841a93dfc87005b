"""Machines, and what the API server shows of Nodes, pods and Jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from recovery.model.names import TAINTED
from recovery.quick import quick


@quick
@dataclass(frozen=True, slots=True)
class Machine:
    """One machine. Its Node's name may pass to another machine, so it is known by ``id``.

    ``id`` is the instance ID (AWS), the vmId (Azure) or the system UUID (bare metal).
    """

    provider: str
    id: str
    provider_id: str = ""
    group: str = ""
    route: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.id


@dataclass(frozen=True, slots=True)
class Member:
    """A machine of a group. ``name``: what people know it by, where its ID says little to them.

    ``in_service``: it runs, and its group counts on it. ``state`` is the cloud's own word for how it is.
    ``launched``: when, by the cloud's clock; None where that is not known, or was not asked.
    """

    machine: Machine
    in_service: bool
    state: str
    launched: datetime | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class GroupMembers:
    """All machines of a group ``at`` a moment of the cloud's own clock. ``unknown``: why they are not
    known."""

    group: str
    at: datetime
    members: tuple[Member, ...] = ()
    unknown: str = ""


class Taint(NamedTuple):
    """A taint of a Node. ``KEY=VALUE:EFFECT`` as text, or without a value ``KEY:EFFECT``."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@quick
@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a Node as it was written. ``heartbeat``: when its writer last said so; ``transition``:
    when its status last changed. Both are as its writer gives them, and may be missing."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    heartbeat: datetime | None = None
    transition: datetime | None = None


@quick
@dataclass(frozen=True, slots=True)
class NodeView:
    """A Node as the core needs it. ``conditions`` maps type to (status, reason). ``stated`` has them whole,
    where the Node was read by itself: a list of all Nodes leaves it empty."""

    name: str
    uid: str
    resource_version: str
    provider_id: str = ""
    boot_id: str = ""
    system_uuid: str = ""
    unschedulable: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[tuple[str, str, str], ...] = ()  # key, value, effect
    tainted_at: Mapping[tuple[str, str], str] = field(default_factory=dict)  # (key, effect) -> timeAdded
    conditions: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    stated: Sequence[Condition] = ()
    addresses: tuple[str, ...] = ()
    owners: tuple[tuple[str, str, str], ...] = ()  # kind, name, uid
    created: datetime | None = None
    deleting: bool = False
    system: Mapping[str, str] = field(default_factory=dict)  # kernel, image: where the Node was read whole
    devices: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # capacity, allocatable: the same
    registered: bool = True  # False: there is no such Node, but a machine of a group that never became one

    @property
    def ready(self) -> bool:
        return self.conditions.get("Ready", ("Unknown", ""))[0] == "True"

    @property
    def heard(self) -> datetime | None:
        """When its kubelet last wrote, by its own clock. None: not said, or read in a list."""
        return next((c.heartbeat for c in self.stated if c.type == "Ready"), None)

    @property
    def ready_since(self) -> datetime | None:
        """None: it is not Ready, does not say since when, or was read in a list."""
        found = (c for c in self.stated if c.type == "Ready")
        return next((c.transition for c in found if c.status == "True"), None)

    def has_taint(self, key: str, effect: str = "") -> bool:
        """Whether it has such a taint, with any value. ``effect`` empty: with any effect."""
        return any(k == key and effect in ("", e) for k, _, e in self.taints)

    @property
    def our_taints(self) -> tuple[Taint, ...]:
        """Those that a ``taint`` step has set, and that are as it set them: the annotation names each.

        One that has another value by now is somebody else's.
        """
        named = self.annotations.get(TAINTED, "").split(",")
        return tuple(t for t in (Taint(*each) for each in self.taints) if str(t) in named)

    @property
    def taints_of_others(self) -> tuple[tuple[str, str, str], ...]:
        """All but ``our_taints``. Of ours, those who read the marks of other systems learn nothing."""
        ours = self.our_taints
        return tuple(t for t in self.taints if t not in ours)


@quick
@dataclass(frozen=True, slots=True)
class PodView:
    """A pod on the node, as the drain needs it. Pods with the same ``gang`` belong to one workload."""

    namespace: str
    name: str
    uid: str
    phase: str
    owner_kind: str = ""
    mirror: bool = False
    deletion_timestamp: datetime | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    local_storage: bool = False
    gang: str = ""
    ip: str = ""
    grace: timedelta = timedelta(seconds=30)  # how long it may take to end
    created: datetime | None = None
    tolerates: bool = False  # our cordon and our taint: they keep it off no node

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class FailedPod:
    """A pod that has failed. ``owner``: the UID of its controller, "" where it has none.

    ``began`` and ``ended`` are by its kubelet's clock. One that was not admitted never ran, so has no end.
    """

    namespace: str
    name: str
    uid: str
    node: str
    owner: str = ""
    reason: str = ""
    began: datetime | None = None
    ended: datetime | None = None
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class JobView:
    """A Job. ``succeeded`` is None while it runs. ``why``: the reason that its status gives for a failure.
    ``made``: when it was created, by the API server's clock; None where it does not say.
    ``unrun``: why no pod of it can have found anything; empty where one runs, or ran."""

    node: str
    succeeded: bool | None = None
    why: str = ""
    made: datetime | None = None
    unrun: str = ""


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """An Event about a node, posted by another program. ``at``: when it was last seen to happen.

    ``by``: by which program it was written, as the API server has it from that program.
    """

    reason: str
    at: datetime
    by: str = ""
