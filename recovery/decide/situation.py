"""What the pure core is given, and what it answers. PURE.

The agent reads the world and the clock once per cycle into a ``Situation``. The same situation always gives
the same ``Decision``, so a bug report is a situation and a test.
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
"""Between two looks at what only a person or a cloud changes."""
REPEAT = timedelta(seconds=60)
RETRY_AFTER = timedelta(seconds=15)
"""A call that was put off is not made again sooner."""


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


# ---------------------------------------------------------------- what a decision needs to know


@dataclass(frozen=True, slots=True)
class GateMadeReady:
    """The gate, made where there is none, and rebuilt where somebody emptied it."""


@dataclass(frozen=True, slots=True)
class Progressed:
    """How the action on the record stands, from its provider."""


@dataclass(frozen=True, slots=True)
class NewNode:
    """The node that the new machine has become."""


@dataclass(frozen=True, slots=True)
class ValidationJob:
    """The validation Job on the record."""


@dataclass(frozen=True, slots=True)
class PowerState:
    """Whether the machine of an agent that is gone is surely down."""


@dataclass(frozen=True, slots=True)
class PodsLeft:
    """The pods on the node. ``evicting``: and how many may be asked to go now."""

    evicting: bool = True


@dataclass(frozen=True, slots=True)
class ClaimsByEvent:
    """Whether another remediator says in Events that it is at work on the node."""


@dataclass(frozen=True, slots=True)
class Preflighted:
    """Whether the provider could do ``action`` now."""

    action: Step


@dataclass(frozen=True, slots=True)
class Counted:
    """How many are sick: a count no older than ``age``, made at ``since`` or later. ``known``: only one that
    this agent or another has made already."""

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
    poll: Standing | None = None
    replacement: NodeView | None = None
    replacement_is_me: bool = False
    replacement_problem: str = ""  # a condition of the new node that counts
    replacement_record: str = ""  # what the new node's own open record says
    lease: Lease = Lease()
    # On this agent's own clock: how long the first in the queue could have taken a slot and has not, how long
    # this very intent was seen, how long the Lease of a dead agent was seen stale.
    turn_waited: timedelta = timedelta(0)
    intent_seen_for: timedelta = timedelta(0)
    owner_gone_for: timedelta = timedelta(0)
    job: JobView | None = None  # the validation Job on record
    job_problem: str = ""  # why it cannot be read or made
    job_due: bool = True  # whether it may be made now, where it is not there
    down: str = ""  # by what it is seen that the machine is powered down
    apart: bool = False  # this agent has no node of its own (RECOVERY_MODE=concluder)
    finish_refused: str = ""  # what its provider said, asked to do what is left of the action
    watched_for: timedelta | None = None  # how long this very agent has looked on at the proof
    settle: timedelta = timedelta(seconds=0.5)
    forbidden: str = ""  # a claim by another remediator
    read: tuple[Need, ...] = ()  # what of ``needed`` has been read

    @property
    def may_power(self) -> bool:
        """Whether this concluder may start what a machine's own agent never does."""
        return (
            self.role is Role.CONCLUDER and self.apart and bool(self.provider and self.provider.out_of_band)
        )


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
    """The one destructive effect: preflight, report, read again, write the intent, call once."""

    action: Step


@dataclass(frozen=True, slots=True)
class Finish:
    """Have the provider do what is left of the action on the record. It may be done more than once."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Have the provider take back the order behind the intent on record, which nobody has carried out.

    ``last_try``: it has been tried for long enough; what cannot be taken back now is given up.
    """

    last_try: bool = False


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
    """What kind of decision it is."""

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

    ``key`` names the kind of reason without its figures, so that a sentence is said once, not every cycle.
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
    """The first of ``questions`` that has an answer gives it; the order is theirs."""
    return next((d for question in questions if (d := question(*args, **more)) is not None), None)


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
