"""The gate: what all recoveries share. Pause, queue, slots, starts and the census."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from recovery.quick import quick


@dataclass(frozen=True, slots=True)
class Pause:
    """No recovery starts anything. ``until`` None: without an end, as for a pause that cannot be parsed."""

    owner: str
    reason: str
    until: datetime | None

    def in_force(self, now: datetime) -> bool:
        return self.until is None or now < self.until


@dataclass(frozen=True, slots=True)
class Approval:
    """A person lets a correlated fault go: its recoveries may start until ``until``."""

    reason: str
    by: str
    until: datetime


@quick
@dataclass(frozen=True, slots=True)
class Slot:
    """A place in the budget: this node may be out of service. A closed record frees it, never age.

    ``labels``: those of the node when the slot was taken, with None for a key that it did not have. Without
    them, as in the slot of an older program, ``scopes`` is all that is known. ``machine``, ``group`` and
    ``provider_id``, which not every slot keeps, are what is known of the machine if somebody deletes the
    record. ``rule``: the one that it was taken for; "" in the slot of an older program.
    """

    node: str
    record_uid: str
    attempt: int
    scopes: tuple[str, ...]
    since: datetime
    labels: Mapping[str, str | None] | None = None
    machine: str = ""
    group: str = ""
    rule: str = ""
    provider_id: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """An open record in the queue for a slot."""

    node: str
    record_uid: str
    since: datetime


@quick
@dataclass(frozen=True, slots=True)
class GroupStart:
    """A start, of any node. The limits on attempts and per group count these, from the gate and the records.

    The gate keeps the latest ones, without serial numbers.
    """

    at: datetime
    node: str
    group: str
    machine: str
    reason: str
    hardware: tuple[str, ...] = ()
    replacement: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """``machine`` is the replacement of ``instead_of``. No other recovery may count it as its own."""

    machine: str
    instead_of: str


@quick
@dataclass(frozen=True, slots=True)
class Census:
    """How many nodes are sick, counted at one moment. ``by_label`` maps "label=value" to (sick, population).

    The gate has the names of a few sick nodes and a few label values only; ``total`` counts all. ``seconds``:
    how long the count took, from ``at`` on. ``of``: which nodes are counted, by the policy of who counted
    (``decide.selector.identity``). ``outside``: how many of all others are sick, and how many there are.
    """

    at: datetime
    population: int
    sick: tuple[str, ...]
    by_label: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    total: int = 0
    seconds: int = 0
    of: str = ""
    outside: tuple[int, int] = (0, 0)

    @property
    def nodes(self) -> int:
        """All nodes, those outside the population included."""
        return self.population + self.outside[1]

    @property
    def how_many(self) -> int:
        return max(self.total, len(self.sick))


@quick
@dataclass(frozen=True, slots=True)
class Gate:
    """The RecoveryGate ``fleet``: budget, queue, census and pause, shared by all agents.

    ``open`` is the head of the queue. ``slots`` are the nodes that may be out of service.
    """

    uid: str
    resource_version: str
    stamp: str  # the uid it was built for; another uid means that it was re-created, and is empty
    pause: Pause | None = None
    open: tuple[Line, ...] = ()
    slots: tuple[Slot, ...] = ()
    last_start: datetime | None = None
    starts: tuple[GroupStart, ...] = ()
    census: Census | None = None
    claimed: tuple[Claim, ...] = ()  # each new machine is the replacement of one machine only
    approved: tuple[Approval, ...] = ()

    def slot_of(self, node: str, record_uid: str) -> Slot | None:
        return next((s for s in self.slots if s.node == node and s.record_uid == record_uid), None)
