"""The record of a recovery: fault, phase, intent, and what was done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from recovery.model.nodes import Machine, NodeView, Taint
from recovery.model.policy import Validation
from recovery.model.remedy import Rung, Step
from recovery.model.signals import Kind
from recovery.quick import quick


class Phase(StrEnum):
    """How far a recovery is. The table of moves is in ``recovery.decide.lifecycle``."""

    SUSPECT = "suspect"
    WAITING = "waiting"
    RECOVERING = "recovering"
    PROVING = "proving"
    RECOVERED = "recovered"
    WITHDRAWN = "withdrawn"
    SUPERSEDED = "superseded"
    HANDED_OVER = "handedOver"
    RELEASED = "released"
    LOST = "lost"

    @property
    def open(self) -> bool:
        return self in _OPEN

    @property
    def sick(self) -> bool:
        """Whether the node counts as sick for the brake: its record is open, or handed over to a person."""
        return self.open or self is Phase.HANDED_OVER


_OPEN = frozenset({Phase.SUSPECT, Phase.WAITING, Phase.RECOVERING, Phase.PROVING})


@quick
@dataclass(frozen=True, slots=True)
class Fault:
    """A fault on a record. It is evidence for as long as ``machine`` and ``boot_id`` are the node's.

    ``cleared``: of a fault that was dealt with, the life of the detector that stated it has ended, or its
    source has taken it back and another has not: stated once more, it is a new one. ``quiet_since``: since
    when its source has taken it back, while the rule's ``hold`` keeps it. ``life``: see ``Problem``.
    ``treated``: whether the policy said more than to report it when the record was made; None: not known.
    ``device``: see ``Problem``, for people alone. ``handed_over``: of one that was dealt with before what
    the record is about now, a person was given it, and has not released the node since.
    """

    source: str
    type: str
    reason: str
    message: str
    since: datetime
    machine: str
    boot_id: str
    counter: float | None = None
    kind: Kind = Kind.LEVEL
    latched: bool = False
    cleared: bool = False
    life: str = ""
    quiet_since: datetime | None = None
    treated: bool | None = None
    device: str = ""
    handed_over: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.source, self.type, self.reason)


class IntentState(StrEnum):
    """What is known of a destructive call."""

    WRITTEN = "written"  # the call may or may not have been made
    SUBMITTED = "submitted"  # the provider accepted it
    AMBIGUOUS = "ambiguous"  # it was made; its answer was lost
    ABANDONED = "abandoned"  # nothing was submitted
    REFUSED = "refused"  # the provider said no
    NOT_APPLIED = "notApplied"  # it may have been made, but the provider shows no effect of it


_UNSETTLED = frozenset({IntentState.WRITTEN, IntentState.SUBMITTED, IntentState.AMBIGUOUS})


@quick
@dataclass(frozen=True, slots=True)
class Reference:
    """How a provider finds its running action again after a restart. Plain strings and numbers only."""

    provider: str
    action: str
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def by(self) -> str:
        """``data["by"]``: the system that carries it out for the provider, by its name in the catalogue of
        marks; "" for none. Until its deadline that system's marks on the Node are the action's own."""
        return str(self.data.get("by", ""))


@quick
@dataclass(frozen=True, slots=True)
class Intent:
    """The destructive call that is about to be made, written to the record before it is made (law 2).

    ``submit_within`` and ``call_timeout`` are seconds. Once both and a margin have passed on an observer's
    own clock, a process that was stopped can no longer make this call. ``kernel_boot``: the boot ID of the
    kernel that its author ran on, "" where it is not known.
    """

    action: str
    attempt: int
    token: str
    at: datetime
    machine: str
    boot_id: str
    reference: Reference
    state: IntentState = IntentState.WRITTEN
    submit_within: float = 10.0
    call_timeout: float = 10.0
    kernel_boot: str = ""

    @property
    def replaces(self) -> bool:
        """Whether it ends the machine. Every other action boots it."""
        return self.action == Step.REPLACE.value

    def booted_since(self, node: NodeView) -> bool:
        """Whether ``node`` shows a boot that began after this call was decided on.

        The boot of its author's kernel did not: a Node that names it only now was behind.
        """
        return bool(node.boot_id) and node.boot_id not in (self.boot_id, self.kernel_boot)


@dataclass(frozen=True, slots=True)
class Marks:
    """What this recovery has put on its Node, and must take off again.

    ``tainted``: the taint that all recoveries set. ``taints``: those that the remedy names beside it.
    """

    cordoned: bool = False
    tainted: bool = False
    out_of_service: bool = False
    taints: tuple[Taint, ...] = ()

    def __bool__(self) -> bool:
        return self.cordoned or self.tainted or self.out_of_service or bool(self.taints)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What showed that the call of this attempt had its effect, for example a new boot ID."""

    attempt: int
    at: datetime
    what: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """A destructive call that was made, or may have been. ``action`` is empty where it is not known."""

    number: int
    action: str


class Cause(StrEnum):
    """What holds a step, so that it is not tried meanwhile. The values are on records, so they are API."""

    PAUSE = "paused"
    EXCLUDED = "excluded"
    CLAIM = "claimed"
    BRAKE = "brake"
    WINDOW = "window"  # it is outside its windows
    BLOCKED = "blocked"  # an alert or a pod that the policy names
    UNREADABLE = "unreadable"  # the detector's page
    SLOT = "slot"  # it has no slot of the budget
    GATE = "gate"  # the gate cannot be read
    MARKS = "marks"  # somebody took our marks off
    GROUP = "group"  # the group is short, cannot launch, or replaces one machine at a time
    WITNESS = "witness"  # the second witness does not agree
    CLOCK = "clock"  # this machine's clock is off
    NODE = "node"  # the Node is not initialised, or which boot it is in is not known
    API = "api"  # the API server did not answer, or refused
    AGENT = "agent"  # the node's agent is dead, and another agent waits for it
    NOBODY = "nobody"  # no agent at all was at work: recovery was off, or all were dead


@dataclass(frozen=True, slots=True)
class Held:
    """How long one cause has held the current step, all together."""

    cause: Cause
    time: timedelta


@dataclass(frozen=True, slots=True)
class Holding:
    """What holds the current step now, and since when."""

    cause: Cause
    since: datetime


@quick
@dataclass(frozen=True, slots=True)
class Progress:
    """What this recovery has done so far. Steps go by this and never by the history, which is for people.

    ``submitted``: the attempts whose call was made, or may have been, but not those that had no effect.
    ``tries``: calls of the current step that had none. ``boots``: boot IDs of unexpected boots.
    ``called_off``: the attempt whose call was cancelled. ``step_since``: when the current step became the
    current one; None before the first one, and again in the queue. ``proving_since``: when the proof began,
    however often probation began again. ``retry_at``: when a call that was put off may be made again.
    ``left``: calls that this recovery went on without, and that may still be carried out. ``taken_back``: the
    attempts of which a read has proved that they never will be. ``taking_back``: since when that is tried.

    ``held``, ``holding`` and ``accounted`` belong to ``decide.tried``: what has held the current step and for
    how long, what holds it now, and up to when time is accounted for.
    """

    submitted: tuple[Attempt, ...] = ()
    tries: int = 0
    boots: tuple[str, ...] = ()
    evidence: Evidence | None = None
    called_off: int = 0
    step_since: datetime | None = None
    proving_since: datetime | None = None
    retry_at: datetime | None = None
    left: tuple[Intent, ...] = ()
    taken_back: tuple[int, ...] = ()
    taking_back: datetime | None = None
    held: tuple[Held, ...] = ()
    holding: Holding | None = None
    accounted: datetime | None = None

    @property
    def acted(self) -> bool:
        """Whether a destructive call was made, or may have been."""
        return bool(self.submitted)


@dataclass(frozen=True, slots=True)
class ReleaseRequest:
    """A person wants the node back, and what was asked of its provider has to be taken back first."""

    by: str
    at: datetime
    reason: str = ""

    def __str__(self) -> str:
        return f"released by {self.by}" + (f": {self.reason}" if self.reason else "")


@quick
@dataclass(frozen=True, slots=True)
class Outcome:
    """One line of a record's history, for people. ``event``: a ``HistoryEvent``, or a later version's."""

    at: datetime
    attempt: int
    event: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Start:
    """A recovery that was granted a slot, as its record keeps it. The limits on attempts and groups count it.

    ``replacement``: the machine that took this one's place.
    """

    at: datetime
    machine: str
    reason: str
    group: str = ""
    hardware: tuple[str, ...] = ()
    replacement: str = ""


@dataclass(frozen=True, slots=True)
class ValidationRun:
    """The Job that validates a node, and when that was decided."""

    job: str
    since: datetime


@quick
@dataclass(frozen=True, slots=True)
class Record:
    """A NodeRecovery: everything about one node's recovery that must survive a restart."""

    node: str
    phase: Phase
    machine: Machine
    node_uid: str
    boot_id: str
    faults: tuple[Fault, ...]
    phase_since: datetime
    uid: str = ""
    resource_version: str = ""
    rule: str = ""
    ladder: tuple[Rung, ...] = ()
    probation: timedelta = timedelta(0)
    after: timedelta = timedelta(0)
    rung: int = 0
    rung_since: datetime | None = None
    attempt: int = 0
    intent: Intent | None = None
    replacement: str = ""  # the Node that the replacement machine has joined as
    replacement_machine: str = ""
    marks: Marks = Marks()
    sentence: str = ""
    history: tuple[Outcome, ...] = ()
    starts: tuple[Start, ...] = ()
    acknowledged: tuple[Fault, ...] = ()
    scopes: tuple[str, ...] = ()  # by which budget and brake count it, also once its Node is gone
    validate: Validation | None = None
    validation: ValidationRun | None = None
    tried: tuple[Step, ...] = ()  # steps that did not help earlier in the same incident
    progress: Progress = Progress()
    recovered_at: datetime | None = None  # when a recovery of this node was last proved
    node_gone_since: datetime | None = None  # since when a node that nobody's agent looks after has no Node
    acknowledged_more: str = ""  # digests of the faults that ``acknowledged`` has no room for
    boot_confirmed: bool = False  # on this machine, the kernel and the Node named the same boot
    release: ReleaseRequest | None = None  # not answered yet
    release_heard: bool = False  # an agent has read the node's sources since it was released

    @property
    def step(self) -> Rung | None:
        return self.ladder[self.rung] if self.rung < len(self.ladder) else None

    @property
    def begun(self) -> bool:
        """Whether a slot was taken for it. Else marks of ours on its Node are those of a record that somebody
        deleted."""
        return self.progress.step_since is not None

    @property
    def in_flight(self) -> bool:
        """Whether a destructive call was made, or may have been, and may still have its effect."""
        return self.intent is not None and self.intent.state in _UNSETTLED

    @property
    def being_replaced(self) -> bool:
        """Whether the call in flight is a replacement of its machine."""
        return self.in_flight and self.intent is not None and self.intent.replaces

    @property
    def treated_faults(self) -> tuple[Fault, ...]:
        """Its faults without those that the policy only reported. They are what has to be proved gone."""
        return tuple(f for f in self.faults if f.treated is not False)

    @property
    def works_for_us(self) -> str:
        """The system that was asked to carry out the action in flight; "" for none. Its marks then are the
        effect of that request, and no other remediator's."""
        if self.intent is None or self.intent.state not in (IntentState.SUBMITTED, IntentState.AMBIGUOUS):
            return ""
        return self.intent.reference.by
