"""What the core answers: a ``Decision`` with a sentence, and at most one effect. PURE."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import ParamSpec

from recovery.model import Cause, GroupStart, Marks, PodView, Record, Slot, Step, Taint
from recovery.quick import quick

SOON = timedelta(0)
POLLED = timedelta(seconds=2)
SELDOM = timedelta(seconds=10)
"""How often to look at what only a person or a cloud changes."""
REPEAT = timedelta(seconds=60)
RETRY_AFTER = timedelta(seconds=15)
"""How long a call that was put off is not made again, at least."""
LONGEST_RETRY = timedelta(minutes=10)
"""A provider that wants to be left alone for longer, without saying when it could succeed, is asked then."""


# ---------------------------------------------------------------- effects


@dataclass(frozen=True, slots=True)
class WriteRecord:
    """Write the record, by compare-and-swap."""

    record: Record


@dataclass(frozen=True, slots=True)
class RemoveRecord:
    """Delete the closed record, as it was read."""


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
    """Put our marks on the node in one patch: the taints, and the cordon where ``marks`` says so.

    ``then``: the record as it is written after that, where the step ends with it; None: with these marks.
    """

    marks: Marks
    then: Record | None = None


@dataclass(frozen=True, slots=True)
class Unmark:
    """Take off our marks, and only ours."""


@dataclass(frozen=True, slots=True)
class Disown:
    """These taints are not ours any more: somebody took them off, or changed them. They stay as they are."""

    taints: tuple[Taint, ...]


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
    """The one destructive effect: announce, read again, ask once more, write the intent, call once."""

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
class TakeBack:
    """Have the provider take back what may still be carried out, and prove it by a read."""


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


GateEffect = Join | TakeSlot | RestoreSlot | FreeSlot | ClaimReplacement
Effect = (
    WriteRecord
    | RemoveRecord
    | Join
    | TakeSlot
    | RestoreSlot
    | FreeSlot
    | ClaimReplacement
    | Mark
    | Unmark
    | Disown
    | TellPods
    | Evict
    | Submit
    | Finish
    | Cancel
    | TakeBack
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
    RELEASE_REFUSED = "ReleaseRefused"
    TAKEN_BACK = "TakenBack"
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


@quick
@dataclass(frozen=True, slots=True)
class Decision:
    """What to do now, why (a sentence for people), and when to look again.

    ``key`` names the kind of reason without its figures, so that it is reported once and not every cycle.
    ``held``: what keeps the current step from being tried, so that the time does not count (``tried``).
    ``before``: what was decided right before, and is carried out by the same effect.
    """

    verb: Verb
    reason: str
    look_again: timedelta = POLLED
    effect: Effect | None = None
    report: Report | None = None
    key: str = ""
    held: Cause | None = None
    before: Decision | None = None


def leave(reason: str, look_again: timedelta = POLLED, key: str = "leave") -> Decision:
    return Decision(Verb.LEAVE, reason, look_again, key=key)


def wait(
    reason: str, look_again: timedelta = POLLED, key: str = "wait", *, held: Cause | None = None
) -> Decision:
    return Decision(Verb.WAIT, reason, look_again, key=key, held=held)


def hold(
    reason: str, look_again: timedelta = POLLED, key: str = "hold", *, held: Cause | None = None
) -> Decision:
    return Decision(Verb.HOLD, reason, look_again, key=key, held=held)


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
