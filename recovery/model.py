"""The vocabulary: frozen values that the pure core thinks in. No I/O, no behaviour beyond small questions.

All moments are timezone-aware UTC datetimes in API server time; all durations are timedeltas.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

# ---------------------------------------------------------------- names that users depend on

GROUP = "noderecovery.dev"
VERSION = "v1alpha1"
CORDONED_BY = f"{GROUP}/cordoned-by"
OWNER_OF_MARKS = "node-recovery"
TAINT = f"{GROUP}/unhealthy"
EXCLUDE = f"{GROUP}/exclude"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
"""Kubernetes' own taint by which pods of a machine that is surely down are given up."""
OUT_OF_SERVICE_BY = f"{GROUP}/out-of-service-by"
HARDWARE_ID = f"{GROUP}/hardware-id"
"""Label or annotation: serial numbers of the hardware (DMI, GPU UUIDs), with commas between."""


# ---------------------------------------------------------------- what sources say


class Kind(StrEnum):
    """A *level* is on or off; an *edge* only ever happens."""

    LEVEL = "level"
    EDGE = "edge"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that one source says is wrong with a node.

    ``latched``: the source cannot take it back (a log rule): only a new boot or machine does.
    ``masked``: the source's gauge shows another reason now; this one was never taken back.
    ``counter``: the source's count of it when last read. ``times``: for an edge, when it was seen to happen.
    """

    source: str
    type: str  # "" for an edge: temporary rules have no type
    reason: str
    message: str
    since: datetime
    fresh_until: datetime
    kind: Kind = Kind.LEVEL
    latched: bool = False
    masked: bool = False
    counter: float | None = None
    times: tuple[datetime, ...] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """What one source says of one node at one moment.

    ``unknown`` maps a condition type, or ``*`` for the whole source, to why nothing is known of it.
    ``cleared`` holds the (type, reason) pairs for which the source's *own* rule of recovery is met: never
    silence, never a detector's restart. ``listed`` holds all pairs the source is able to name.
    """

    source: str
    at: datetime
    problems: tuple[Problem, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)
    unknown_since: Mapping[str, datetime] = field(default_factory=dict)
    cleared: frozenset[tuple[str, str]] = frozenset()
    listed: frozenset[tuple[str, str]] = frozenset()

    @property
    def readable(self) -> bool:
        """Whether the source as a whole speaks (single types may still be unknown)."""
        return "*" not in self.unknown


# ---------------------------------------------------------------- machines and nodes


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine, not the name it goes by. ``id`` is the instance ID, vmId or system UUID."""

    provider: str
    id: str
    provider_id: str = ""
    group: str = ""
    route: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.id


@dataclass(frozen=True, slots=True)
class NodeView:
    """A Node as the core needs it. ``conditions`` maps type to (status, reason)."""

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
    addresses: tuple[str, ...] = ()
    owners: tuple[tuple[str, str, str], ...] = ()  # kind, name, uid
    created: datetime | None = None
    deleting: bool = False

    @property
    def ready(self) -> bool:
        return self.conditions.get("Ready", ("Unknown", ""))[0] == "True"

    def has_taint(self, key: str) -> bool:
        return any(k == key for k, _, _ in self.taints)


@dataclass(frozen=True, slots=True)
class PodView:
    """A pod on the node, as the drain needs it. ``gang``: pods with the same one belong to one workload."""

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

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class JobView:
    """A Job. ``succeeded`` is None while it runs; ``why`` is its own reason for having failed."""

    node: str
    succeeded: bool | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """An Event about a node, as somebody else reported it. ``at``: when it was last seen to happen."""

    reason: str
    at: datetime


# ---------------------------------------------------------------- policy


class Step(StrEnum):
    """What a rung of a remedy may do."""

    NOTIFY = "notify"
    CORDON = "cordon"
    TAINT = "taint"
    DRAIN = "drain"
    REBOOT = "reboot"
    REIMAGE = "reimage"
    REDEPLOY = "redeploy"
    REPLACE = "replace"

    @property
    def provider_action(self) -> bool:
        """Done by the machine's provider: destructive, needs an intent."""
        return self in _PROVIDER_ACTIONS


_PROVIDER_ACTIONS = frozenset({Step.REBOOT, Step.REIMAGE, Step.REDEPLOY, Step.REPLACE})


class Then(StrEnum):
    """What follows when a drain does not end in time."""

    FORCE = "force"
    HAND_OVER = "handOver"
    HOLD = "hold"


@dataclass(frozen=True, slots=True)
class Rung:
    """One step of a ladder, and how long it may take from its first effect."""

    do: Step
    within: timedelta
    then: Then = Then.HAND_OVER


@dataclass(frozen=True, slots=True)
class Share:
    """A count or a percentage of a population, as limits are written."""

    count: int | None = None
    percent: float | None = None

    def __str__(self) -> str:
        return f"{self.percent:g}%" if self.count is None else str(self.count)


@dataclass(frozen=True, slots=True)
class Rate:
    """At most ``max`` within a sliding window."""

    max: int
    within: timedelta


@dataclass(frozen=True, slots=True)
class Limits:
    """The policy's limits; the README says of each what it means."""

    budget: Share
    budget_per: Mapping[str, Share]
    brake: Share
    brake_per: Mapping[str, Share]
    cooldown: timedelta
    attempts: Rate
    per_group: Rate
    same_incident: timedelta = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Match:
    """Which faults a rule is about. Patterns are shell patterns; empty means any."""

    type: str = "*"
    reasons: tuple[str, ...] = ("*",)
    node_labels: Mapping[str, str] = field(default_factory=dict)
    times: Rate | None = None


class PodMode(StrEnum):
    """What a drain does about a pod."""

    EVICT = "evict"
    WAIT = "wait"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class PodRule:
    """How pods of these namespaces and with these labels (shell patterns) are drained.

    *wait*: they are annotated with ``annotate``, have ``within`` to end by themselves, and then are evicted.
    *never*: a node with such a pod is handed over, and nothing is evicted from it.
    """

    mode: PodMode
    namespaces: tuple[str, ...] = ("*",)
    labels: Mapping[str, str] = field(default_factory=dict)
    within: timedelta = timedelta(0)
    annotate: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DrainPolicy:
    """How nodes are drained. ``force`` and ``delete_emptydir_data`` are kubectl's flags of the same names.

    ``evictions_per_second``: at most so many, by one agent; None is as many as the API server takes.
    """

    force: bool = True
    delete_emptydir_data: bool = True
    evictions_per_second: int | None = None
    pods: tuple[PodRule, ...] = ()


@dataclass(frozen=True, slots=True)
class Validation:
    """A Job made of the CronJob ``cron_job``, in the agents' namespace, that must succeed on the node."""

    cron_job: str
    within: timedelta


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. ``remedy`` None: the catalogue's, then the provider's default."""

    name: str
    match: Match
    after: timedelta
    remedy: tuple[Rung, ...] | None
    probation: timedelta
    validate: Validation | None = None


@dataclass(frozen=True, slots=True)
class CatalogueRow:
    """What is known of a (type, reason): whose fault it is, what usually helps, and who says so.

    ``software``: a new system on the same machine helps, where the provider can give it one.
    """

    type: str
    reason: str
    remedy: tuple[Rung, ...] | None
    this_node: bool
    why: str
    source: str
    software: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    """A whole policy, as parsed."""

    limits: Limits
    rules: tuple[Rule, ...]
    exclude: tuple[Mapping[str, str], ...]
    name: str = "built-in"
    drain: DrainPolicy = DrainPolicy()


# ---------------------------------------------------------------- the record


class Phase(StrEnum):
    """Where a record is. The table of moves is in ``lifecycle``."""

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
        """Counts for the brake: open, or in a person's hands."""
        return self.open or self is Phase.HANDED_OVER


_OPEN = frozenset({Phase.SUSPECT, Phase.WAITING, Phase.RECOVERING, Phase.PROVING})


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault's identity and history on a record. It is evidence while machine and boot are the same."""

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

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.source, self.type, self.reason)


class IntentState(StrEnum):
    """What is known of a destructive call."""

    WRITTEN = "written"  # the call may or may not have been made
    SUBMITTED = "submitted"  # the provider accepted it
    AMBIGUOUS = "ambiguous"  # it was made; its answer was lost
    ABANDONED = "abandoned"  # it was never made
    REFUSED = "refused"  # the provider said no
    NOT_APPLIED = "notApplied"  # it may have been made; the world shows it had no effect


_UNSETTLED = frozenset({IntentState.WRITTEN, IntentState.SUBMITTED, IntentState.AMBIGUOUS})


@dataclass(frozen=True, slots=True)
class Reference:
    """How a provider finds its running action again. Plain strings and numbers only."""

    provider: str
    action: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Intent:
    """What is about to be done, written before it is done (law 2).

    ``submit_within`` and ``call_timeout`` are seconds; after both, and a margin, on one's own clock, no call
    of this intent can still begin.
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


@dataclass(frozen=True, slots=True)
class Marks:
    """What this record has put on its node, and must take off again."""

    cordoned: bool = False
    tainted: bool = False
    out_of_service: bool = False

    def __bool__(self) -> bool:
        return self.cordoned or self.tainted or self.out_of_service


@dataclass(frozen=True, slots=True)
class Evidence:
    """What showed that the action of this attempt did what it should."""

    attempt: int
    at: datetime
    what: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """A destructive call that was made, or may have been. ``action`` is empty where it is not known."""

    number: int
    action: str


@dataclass(frozen=True, slots=True)
class Progress:
    """What this recovery has done so far. Decisions go by this alone; history is for people.

    ``submitted``: the attempts whose call was made, or may have been. ``tries``: calls of the current step
    that had no effect. ``boots``: boot IDs of boots that nobody here asked for. ``called_off``: the attempt
    whose order was taken back. ``step_since``: when the current step became the current one.
    ``proving_since``: when there was something to prove. ``retry_at``: a call that was put off is not made
    again before.
    """

    submitted: tuple[Attempt, ...] = ()
    tries: int = 0
    boots: tuple[str, ...] = ()
    evidence: Evidence | None = None
    called_off: int = 0
    step_since: datetime | None = None
    proving_since: datetime | None = None
    retry_at: datetime | None = None

    @property
    def acted(self) -> bool:
        """Whether a destructive call was made, or may have been."""
        return bool(self.submitted)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One line of a record's history, for people. ``event``: a ``HistoryEvent``, or a later version's."""

    at: datetime
    attempt: int
    event: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Start:
    """A slot once granted: what attempts and group limits count."""

    at: datetime
    machine: str
    reason: str
    group: str = ""
    hardware: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ValidationRun:
    """The Job by which a node is validated, and when that was decided."""

    job: str
    since: datetime


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
    replacement: str = ""  # node name of the machine that took the place
    replacement_machine: str = ""
    marks: Marks = Marks()
    sentence: str = ""
    history: tuple[Outcome, ...] = ()
    starts: tuple[Start, ...] = ()
    acknowledged: tuple[Fault, ...] = ()
    scopes: tuple[str, ...] = ()  # the budget scopes its slot counts in
    validate: Validation | None = None
    validation: ValidationRun | None = None
    tried: tuple[Step, ...] = ()  # what an earlier recovery of the same incident did in vain
    progress: Progress = Progress()
    recovered_at: datetime | None = None  # when a recovery of this node was last proved

    @property
    def step(self) -> Rung | None:
        return self.ladder[self.rung] if self.rung < len(self.ladder) else None

    @property
    def in_flight(self) -> bool:
        """Whether a destructive call was made, or may have been, and may still come true."""
        return self.intent is not None and self.intent.state in _UNSETTLED


# ---------------------------------------------------------------- the gate


@dataclass(frozen=True, slots=True)
class Pause:
    """Nobody starts anything. An unparsable pause is a pause without end."""

    owner: str
    reason: str
    until: datetime | None

    def in_force(self, now: datetime) -> bool:
        return self.until is None or now < self.until


@dataclass(frozen=True, slots=True)
class Slot:
    """A node that may be out of service. Freed by evidence only."""

    node: str
    record_uid: str
    attempt: int
    scopes: tuple[str, ...]
    since: datetime


@dataclass(frozen=True, slots=True)
class Line:
    """An open record's place in the queue."""

    node: str
    record_uid: str
    since: datetime


@dataclass(frozen=True, slots=True)
class GroupStart:
    """A start as the gate remembers it, for limits per group and the cooldown."""

    at: datetime
    node: str
    group: str
    machine: str
    reason: str
    hardware: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Claim:
    """``machine`` took the place of ``instead_of``. Nobody else may count it."""

    machine: str
    instead_of: str


@dataclass(frozen=True, slots=True)
class Census:
    """Who is sick, counted at one moment. ``by_label`` maps "label=value" to (sick, population)."""

    at: datetime
    population: int
    sick: tuple[str, ...]
    by_label: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gate:
    """The RecoveryGate ``fleet``: budget, brake and pause, shared by all agents."""

    uid: str
    resource_version: str
    stamp: str  # the uid it was built for; another uid means somebody re-created it empty
    pause: Pause | None = None
    open: tuple[Line, ...] = ()
    slots: tuple[Slot, ...] = ()
    last_start: datetime | None = None
    starts: tuple[GroupStart, ...] = ()
    census: Census | None = None
    claimed: tuple[Claim, ...] = ()  # each new machine is somebody's replacement once

    def slot_of(self, node: str, record_uid: str) -> Slot | None:
        return next((s for s in self.slots if s.node == node and s.record_uid == record_uid), None)


# ---------------------------------------------------------------- providers


@dataclass(frozen=True, slots=True)
class ProviderFacts:
    """What a provider declares, for this machine."""

    name: str
    actions: frozenset[Step] = frozenset()
    default_remedy: tuple[Rung, ...] = ()
    call_timeout: float = 10.0
    software_remedy: tuple[Rung, ...] = ()
    note: str = ""
    out_of_band: frozenset[Step] = frozenset()
    cancels: bool = False
    sees_power: bool = False


@dataclass(frozen=True, slots=True)
class Preflight:
    """What a provider found before an action: that it can be done, and where it would be seen.

    ``reference`` is how the action would be found again, known before it is submitted, so that an intent
    can carry it. ``adopt``: the action is already under way; do not repeat it. ``short_by``: machines the
    group still lacks. ``not_before``: the moment it could first be accepted. ``alone``: while another machine
    of the group is out, what the reference holds of the group would not be true for both.
    """

    reference: Reference
    group: str = ""
    short_by: int = 0
    adopt: str = ""
    not_before: datetime | None = None
    not_yet: str = ""
    alone: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterDelete:
    """The provider's way for this machine leads through the Kubernetes API: delete this object.

    ``kind`` and ``by`` are for sentences: what it is, and who ends the machine once it is deleted.
    """

    api_version: str
    plural: str
    name: str
    uid: str
    kind: str = ""
    by: str = ""

    def __str__(self) -> str:
        return f"{self.kind or self.plural} {self.name}"


@dataclass(frozen=True, slots=True)
class Running:
    """Accepted, and not yet done."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What was asked for is done, up to a step that the reference names and that may be repeated."""

    sentence: str


@dataclass(frozen=True, slots=True)
class NotApplied:
    """The world looks as if the action had never been submitted."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Done:
    """Done, with evidence. ``replacements`` are machine IDs that were not there before, oldest first.

    The oldest one that nobody has claimed is claimed: the younger ones are left to the recoveries that began
    later, and do not know the older ones for new.
    """

    evidence: str
    replacements: tuple[str, ...] = ()
    complete: bool = True  # the group has as many machines in service as it wants
    final: bool = False  # no machine has to take its place: there is nothing more to prove


@dataclass(frozen=True, slots=True)
class Deleting:
    """The evidence is that this object is gone from the Kubernetes API, and the Node with it."""

    what: ClusterDelete


@dataclass(frozen=True, slots=True)
class Failed:
    """It will not work out; ``reason`` is for people."""

    reason: str


@dataclass(frozen=True, slots=True)
class Gone:
    """The machine no longer exists."""

    sentence: str


Standing = Running | Unfinished | NotApplied | Done | Failed | Gone
"""How an action stands."""
Poll = Standing | Deleting
"""What a provider may answer to that."""
