"""What is the core given, and what does it answer? A ``Situation``, and a ``Decision`` with one effect. PURE.

The agent reads the cluster, the provider and the clock into a ``Situation``: once a cycle, and once more
right before a destructive call. The same situation always gives the same decision, so a situation is a bug
report and a test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import ParamSpec

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
    Preflight,
    ProviderFacts,
    Reading,
    Record,
    Slot,
    Standing,
    Step,
)

SOON = timedelta(0)
POLLED = timedelta(seconds=2)
SELDOM = timedelta(seconds=10)
"""How often to look at what only a person or a cloud changes."""
REPEAT = timedelta(seconds=60)
RETRY_AFTER = timedelta(seconds=15)
"""How long a call that was put off is not made again."""


class Role(StrEnum):
    """An *owner* recovers its own node. A *concluder* ends the recovery of a node whose agent is gone."""

    OWNER = "owner"
    CONCLUDER = "concluder"


@dataclass(frozen=True, slots=True)
class Lease:
    """Who works on a record. ``stale``: not renewed for its whole duration, on *this* agent's clock."""

    holder: str = ""
    mine: bool = False
    stale: bool = True


# ---------------------------------------------------------------- needs: what may have to be read


@dataclass(frozen=True, slots=True)
class GateMadeReady:
    """The gate: created where there is none, and rebuilt from the records where it was emptied."""


@dataclass(frozen=True, slots=True)
class Progressed:
    """How the call in flight stands, by a poll of its provider."""


@dataclass(frozen=True, slots=True)
class NewNode:
    """The Node that the replacement machine has joined as."""


@dataclass(frozen=True, slots=True)
class ValidationJob:
    """The validation Job that the record names."""


@dataclass(frozen=True, slots=True)
class PowerState:
    """Whether a machine whose agent is gone is surely powered down."""


@dataclass(frozen=True, slots=True)
class PodsLeft:
    """The pods on the node. ``evicting``: also how many evictions are left now."""

    evicting: bool = True


@dataclass(frozen=True, slots=True)
class ClaimsByEvent:
    """Whether another remediator's Events say that it is at work on the node."""


@dataclass(frozen=True, slots=True)
class Preflighted:
    """The provider's preflight: whether it could do ``action`` now."""

    action: Step


@dataclass(frozen=True, slots=True)
class Counted:
    """The census of sick nodes, no older than ``age`` and made at ``since`` or later.

    ``known``: only one that this agent or another has made already; nothing is counted for it.
    """

    age: timedelta
    since: datetime | None = None
    known: bool = False


Need = (
    GateMadeReady
    | Progressed
    | NewNode
    | ValidationJob
    | PowerState
    | PodsLeft
    | ClaimsByEvent
    | Preflighted
    | Counted
)


@dataclass(frozen=True, slots=True)
class Situation:
    """All that one decision may depend on. What ``needs`` did not ask for was not read: None or empty."""

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
    refusals: Mapping[str, str] = field(default_factory=dict)  # pod or taint -> why it was refused just now
    evictions_free: int | None = None  # how many may be asked for now; None: without a limit
    poll: Standing | None = None
    replacement: NodeView | None = None
    replacement_is_me: bool = False
    replacement_problem: str = ""  # a condition of the new node that counts against it
    replacement_record: str = ""  # the sentence of the new node's own record, if it is sick
    lease: Lease = Lease()
    # The next three are on this agent's own clock.
    turn_waited: timedelta = timedelta(0)  # how long the head of the queue has not taken a free slot
    intent_seen_for: timedelta = timedelta(0)  # how long this very intent was seen
    owner_gone_for: timedelta = timedelta(0)  # how long the node's own agent was seen gone
    job: JobView | None = None  # the validation Job that the record names
    job_problem: str = ""  # why it cannot be read or created
    job_due: bool = True  # whether it may be created now, if it does not exist
    down: str = ""  # what shows that the machine is powered down; empty: nothing does
    apart: bool = False  # this agent has no node of its own (RECOVERY_MODE=concluder)
    finish_refused: str = ""  # why the provider refused the last step of an unfinished action
    watched_for: timedelta | None = None  # how long this very process has watched the probation
    settle: timedelta = timedelta(seconds=0.5)  # how long to wait in the queue for other faults to show
    forbidden: str = ""  # another remediator's claim on the node
    read: tuple[Need, ...] = ()  # the needs that have been read

    @property
    def may_power(self) -> bool:
        """Whether this concluder may start out-of-band steps, which a node's own agent never may."""
        return (
            self.role is Role.CONCLUDER and self.apart and bool(self.provider and self.provider.out_of_band)
        )


# ---------------------------------------------------------------- effects


@dataclass(frozen=True, slots=True)
class WriteRecord:
    """Write the record, by compare-and-swap."""

    record: Record


@dataclass(frozen=True, slots=True)
class Join:
    """Put the record in the gate's queue."""

    record_uid: str


@dataclass(frozen=True, slots=True)
class TakeSlot:
    """Take a slot of the budget, by compare-and-swap on the gate that was read for the decision."""

    slot: Slot
    start: GroupStart


@dataclass(frozen=True, slots=True)
class RestoreSlot:
    """Put back the slot of a recovery that is under way."""

    slot: Slot


@dataclass(frozen=True, slots=True)
class FreeSlot:
    """Remove a closed record's slot and queue line from the gate."""

    record_uid: str


@dataclass(frozen=True, slots=True)
class ClaimReplacement:
    """Claim a new machine on the gate as the replacement of ``instead_of``."""

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
    """Annotate these pods, before they are evicted."""

    pods: tuple[tuple[PodView, Mapping[str, str]], ...]


@dataclass(frozen=True, slots=True)
class Evict:
    """Ask once for the eviction of these pods: those of one group together, or none of them."""

    groups: tuple[tuple[PodView, ...], ...]


@dataclass(frozen=True, slots=True)
class Submit:
    """The one destructive effect: preflight, report, read again, write the intent, call once."""

    action: Step


@dataclass(frozen=True, slots=True)
class Finish:
    """Have the provider do the last step of an unfinished action. It may be repeated."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Have the provider cancel the call of the intent, which has not been carried out.

    ``last_try``: it was tried for long enough. If it cannot be cancelled now, the recovery goes on without.
    """

    last_try: bool = False


@dataclass(frozen=True, slots=True)
class OutOfService:
    """Set the out-of-service taint, so that the pods of a machine that is down are deleted; or remove it."""

    on: bool


@dataclass(frozen=True, slots=True)
class CreateJob:
    """Create the validation Job ``name`` from the CronJob ``cron_job``."""

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


class EventReason(StrEnum):
    """The reasons of our Events on Nodes. People alert on them: they are API."""

    FAULT_SEEN = "FaultSeen"
    CONFIRMED = "Confirmed"
    WAITING = "Waiting"
    HELD = "Held"
    WOULD_RECOVER = "WouldRecover"
    RECOVERY_STARTED = "RecoveryStarted"
    CORDONED = "Cordoned"
    UNCORDONED = "Uncordoned"
    PODS_TOLD = "PodsTold"
    PODS_UNTOLD = "PodsUntold"
    DRAINING = "Draining"
    NEXT_STEP = "NextStep"
    REBOOTING = "Rebooting"
    REIMAGING = "Reimaging"
    REDEPLOYING = "Redeploying"
    REPLACING = "Replacing"
    SUBMITTED = "Submitted"
    ADOPTED = "Adopted"
    AMBIGUOUS = "Ambiguous"
    NOT_APPLIED = "NotApplied"
    NOT_YET = "NotYet"
    REFUSED = "Refused"
    ABANDONED = "Abandoned"
    CALLED_OFF = "CalledOff"
    OUT_OF_SERVICE = "OutOfService"
    PROVING = "Proving"
    JOINED = "Joined"
    VALIDATING = "Validating"
    FAULT_RETURNED = "FaultReturned"
    REBOOTED = "Rebooted"
    REGISTERED_ANEW = "RegisteredAnew"
    RECOVERED = "Recovered"
    WITHDRAWN = "Withdrawn"
    SUPERSEDED = "Superseded"
    HANDED_OVER = "HandedOver"
    RELEASED = "Released"
    ABANDONED_BY_SWITCH_OFF = "AbandonedBySwitchOff"
    LOST = "Lost"
    FAILED = "Failed"


class Verb(StrEnum):
    """What kind of decision it is: nothing to do, wait for time or a read, held by a reason, or an effect."""

    LEAVE = "leave"
    WAIT = "wait"
    HOLD = "hold"
    ACT = "act"


@dataclass(frozen=True, slots=True)
class Report:
    """What to report to people once the effect is done: an Event's reason, and an outcome for the metrics."""

    event: EventReason
    warning: bool = False
    outcome: str = ""
    action: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do now, why (a sentence for people), and when to look again.

    ``key`` names the kind of reason without its figures, so that it is reported once and not every cycle.
    """

    verb: Verb
    reason: str
    look_again: timedelta = POLLED
    effect: Effect | None = None
    report: Report | None = None
    key: str = ""


def leave(reason: str, look_again: timedelta = POLLED, key: str = "leave") -> Decision:
    return Decision(Verb.LEAVE, reason, look_again, key=key)


def wait(reason: str, look_again: timedelta = POLLED, key: str = "wait") -> Decision:
    return Decision(Verb.WAIT, reason, look_again, key=key)


def hold(reason: str, look_again: timedelta = POLLED, key: str = "hold") -> Decision:
    return Decision(Verb.HOLD, reason, look_again, key=key)


def act(effect: Effect, reason: str, report: Report | None = None) -> Decision:
    return Decision(Verb.ACT, reason, SOON, effect, report, key=type(effect).__name__)


Asked = ParamSpec("Asked")


def first_answer(
    questions: Iterable[Callable[Asked, Decision | None]], *args: Asked.args, **more: Asked.kwargs
) -> Decision | None:
    """The answer of the first of ``questions`` that has one, or None."""
    return next((d for question in questions if (d := question(*args, **more)) is not None), None)


def until(moment: datetime, now: datetime, most: timedelta = timedelta(seconds=30)) -> timedelta:
    """How long to wait for ``moment``: never less than 50 ms, never more than ``most``."""
    return min(max(moment - now, timedelta(milliseconds=50)), most)


def span(value: timedelta) -> str:
    """A duration as sentences have it: ``0.5 s``, ``45 s``, ``12 min``, ``3.5 h``."""
    seconds = max(value.total_seconds(), 0.0)
    if seconds < 10:
        return f"{seconds:.1f}".rstrip("0").rstrip(".") + " s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f}".rstrip("0").rstrip(".") + " h"


def hour(at: datetime) -> str:
    """A moment as sentences have it: ``10:15:03Z``."""
    return at.strftime("%H:%M:%SZ")
