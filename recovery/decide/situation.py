"""What the pure core is given, and what it answers. PURE.

The agent reads the world and the clock once per cycle into a ``Situation``. The same situation always gives
the same ``Decision``, so a bug report is a situation and a test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from recovery.model import (
    Census,
    Gate,
    GroupStart,
    JobView,
    Machine,
    Marks,
    NodeView,
    PodView,
    Policy,
    Poll,
    Preflight,
    ProviderFacts,
    Reading,
    Record,
    Slot,
    Step,
)

SOON = timedelta(0)
POLLED = timedelta(seconds=2)
REPEAT = timedelta(seconds=60)


class Role(StrEnum):
    """An *owner* recovers its own node. A *concluder* ends what an agent that is gone left open."""

    OWNER = "owner"
    CONCLUDER = "concluder"


@dataclass(frozen=True, slots=True)
class Lease:
    """Who works on a record. ``stale``: unchanged for its whole length on *this* agent's clock."""

    holder: str = ""
    mine: bool = False
    stale: bool = True


@dataclass(frozen=True, slots=True)
class Situation:
    """All that one decision may depend on. What was not read, because nothing asks for it, is None."""

    now: datetime
    node_name: str
    policy: Policy
    on: bool = True
    role: Role = Role.OWNER
    skew: timedelta = timedelta(0)
    readings: tuple[Reading, ...] = ()
    node: NodeView | None = None
    machine: Machine | None = None
    machine_problem: str = ""  # why the machine behind the node cannot be named, or is not ours to treat
    machine_wait: str = ""  # the node is not initialised yet
    provider: ProviderFacts | None = None
    record: Record | None = None
    record_problem: str = ""
    vanished: bool = False  # this agent had an open record, and somebody deleted it
    gate: Gate | None = None
    gate_problem: str = ""
    census: Census | None = None
    preflight: Preflight | None = None
    preflight_refused: str = ""
    preflight_retry: str = ""
    pods: tuple[PodView, ...] | None = None
    refusals: Mapping[str, str] = field(default_factory=dict)  # pod -> what its disruption budget said last
    evictions_free: int | None = None  # how many may be asked for now; None: as many as there are
    poll: Poll | None = None
    replacement: NodeView | None = None
    replacement_is_me: bool = False
    replacement_problem: str = ""  # a condition of the new node that counts
    replacement_record: str = ""  # what the new node's own open record says
    lease: Lease = Lease()
    turn_waited: timedelta = timedelta(0)  # how long a slot has been free for the first in the queue
    intent_seen_for: timedelta = timedelta(
        0
    )  # how long this agent has seen this very intent, on its own clock
    owner_gone_for: timedelta = timedelta(
        0
    )  # how long a concluder has seen its Lease stale, on its own clock
    job: JobView | None = None  # the validation Job on record
    job_problem: str = ""  # why it cannot be read or made
    job_due: bool = True  # whether it may be made now, where it is not there
    down: str = ""  # by what it is seen that the machine is powered down
    may_power: bool = False  # this concluder may start what the machine's own agent may not
    watched_for: timedelta | None = None  # how long this very agent has looked on at the proof
    settle: timedelta = timedelta(seconds=0.5)
    forbidden: str = ""  # a claim by another remediator


# ---------------------------------------------------------------- effects


@dataclass(frozen=True, slots=True)
class WriteRecord:
    """Swap the record for this one."""

    record: Record


@dataclass(frozen=True, slots=True)
class Join:
    """Put the record in the gate's queue."""

    record_uid: str


@dataclass(frozen=True, slots=True)
class TakeSlot:
    """Take a slot of the budget, on the very gate that was weighed."""

    slot: Slot
    start: GroupStart


@dataclass(frozen=True, slots=True)
class RestoreSlot:
    """Put back the slot of a node that is out already."""

    slot: Slot


@dataclass(frozen=True, slots=True)
class FreeSlot:
    """Take a closed record off the gate."""

    record_uid: str


@dataclass(frozen=True, slots=True)
class ClaimReplacement:
    """Claim a new machine on the gate as the one that took this machine's place."""

    machine: str
    instead_of: str


@dataclass(frozen=True, slots=True)
class Mark:
    """Put our marks on the node in one patch: the taint, and the cordon where ``marks`` says so."""

    marks: Marks


@dataclass(frozen=True, slots=True)
class Unmark:
    """Take off our marks, and only ours."""


@dataclass(frozen=True, slots=True)
class TellPods:
    """Put these annotations on these pods, before they are evicted."""

    pods: tuple[tuple[PodView, Mapping[str, str]], ...]


@dataclass(frozen=True, slots=True)
class Evict:
    """Ask once for the eviction of these pods. Those of one group go together, or none of them."""

    groups: tuple[tuple[PodView, ...], ...]


@dataclass(frozen=True, slots=True)
class Submit:
    """The one destructive effect: preflight, tell, read again, write the intent, call once."""

    action: Step


@dataclass(frozen=True, slots=True)
class Finish:
    """Have the provider do what is left of the action on the record. It may be done more than once."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Have the provider take back the order behind the intent on record, which nobody has carried out."""


@dataclass(frozen=True, slots=True)
class OutOfService:
    """Put Kubernetes' own taint on a machine that is surely down, so that its pods are given up; or off."""

    on: bool


@dataclass(frozen=True, slots=True)
class CreateJob:
    """Make the validation Job ``name`` of the CronJob ``cron_job``."""

    cron_job: str
    name: str
    within: timedelta


Effect = (
    WriteRecord
    | Join
    | TakeSlot
    | RestoreSlot
    | FreeSlot
    | ClaimReplacement
    | Mark
    | Unmark
    | TellPods
    | Evict
    | Submit
    | Finish
    | Cancel
    | OutOfService
    | CreateJob
)


class Verb(StrEnum):
    """What kind of decision it is."""

    LEAVE = "leave"
    WAIT = "wait"
    HOLD = "hold"
    ACT = "act"


@dataclass(frozen=True, slots=True)
class Tell:
    """What to tell people once the effect is done: an Event's reason, and an outcome for the metrics."""

    event: str
    warning: bool = False
    outcome: str = ""
    action: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do now, why (a sentence for people), and when to look again.

    ``key`` names the kind of reason without its figures, so that a sentence is told once and not every cycle.
    """

    verb: Verb
    reason: str
    look_again: timedelta = POLLED
    effect: Effect | None = None
    tell: Tell | None = None
    key: str = ""


def leave(reason: str, look_again: timedelta = POLLED, key: str = "leave") -> Decision:
    return Decision(Verb.LEAVE, reason, look_again, key=key)


def wait(reason: str, look_again: timedelta = POLLED, key: str = "wait") -> Decision:
    return Decision(Verb.WAIT, reason, look_again, key=key)


def hold(reason: str, look_again: timedelta = POLLED, key: str = "hold") -> Decision:
    return Decision(Verb.HOLD, reason, look_again, key=key)


def act(effect: Effect, reason: str, tell: Tell | None = None) -> Decision:
    return Decision(Verb.ACT, reason, SOON, effect, tell, key=type(effect).__name__)


def until(moment: datetime, now: datetime, most: timedelta = timedelta(seconds=30)) -> timedelta:
    """How long to wait for ``moment``: never less than 50 ms, never more than ``most``."""
    return min(max(moment - now, timedelta(milliseconds=50)), most)


def span(value: timedelta) -> str:
    """A duration as people read it: ``0.5 s``, ``45 s``, ``12 min``, ``3.5 h``."""
    seconds = max(value.total_seconds(), 0.0)
    if seconds < 10:
        return f"{seconds:.1f}".rstrip("0").rstrip(".") + " s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f}".rstrip("0").rstrip(".") + " h"


def hour(at: datetime) -> str:
    """A moment as people read it in a sentence: ``10:15:03Z``."""
    return at.strftime("%H:%M:%SZ")
