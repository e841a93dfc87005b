"""Which values are decisions made of? Frozen dataclasses and enums, without I/O; this is the vocabulary.

All moments are timezone-aware UTC datetimes, in the API server's time. All durations are timedeltas.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta, tzinfo
from enum import StrEnum
from typing import Any, NamedTuple

from recovery.quick import quick

# ---------------------------------------------------------------- names that users depend on

GROUP = "noderecovery.dev"
VERSION = "v1alpha1"
CORDONED_BY = f"{GROUP}/cordoned-by"
OWNER_OF_MARKS = "node-recovery"
TAINT = f"{GROUP}/unhealthy"
EXCLUDE = f"{GROUP}/exclude"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
"""Kubernetes' own taint: the pods of a machine that is surely down are deleted, their volumes detached."""
OUT_OF_SERVICE_BY = f"{GROUP}/out-of-service-by"
TAINTED = f"{GROUP}/taints"
"""Annotation: the taints that a ``taint`` step has set, as kubectl writes them, separated by commas."""
PHASE_LABEL = f"{GROUP}/phase"
"""Label of a record: its phase, so that a list can leave closed records out. Nothing is decided by it."""
HARDWARE_ID = f"{GROUP}/hardware-id"
"""Label or annotation: serial numbers of the hardware (DMI, GPU UUIDs), separated by commas."""


# ---------------------------------------------------------------- what sources say


class Kind(StrEnum):
    """A *level* is on or off, like a node condition. An *edge* happens and is over, like an Event."""

    LEVEL = "level"
    EDGE = "edge"


@quick
@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that one source says is wrong with a node.

    ``latched``: the source never clears it (a log rule). Only a new boot or machine does.
    ``masked``: the source's gauge shows another reason now, but this one was never cleared.
    ``counter``: the source's count of it when it was last stated anew. ``life``: which run of the detector
    stated it, "" where that cannot be told. ``times``: when an edge was seen to happen. ``stated``: when it
    was last seen to be stated anew; None where it is as it was on the first page that was read. ``lasting``:
    a mark that stays as it is over a boot, with the same ``life``. ``put``: when that says that it was put
    there, None where it does not. ``device``: which part of the node it is about, as people read it, "" where
    the source does not say.
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
    life: str = ""
    stated: datetime | None = None
    lasting: bool = False
    put: datetime | None = None
    device: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.source, self.type, self.reason)


@quick
@dataclass(frozen=True, slots=True)
class Reading:
    """What one source says of one node at one moment.

    ``unknown`` maps a condition type, or ``*`` for the whole source, to why nothing is known of it.
    ``cleared`` holds the (type, reason) pairs that the source cleared by its *own* rule; the reason ``*``
    stands for every one of its type. Silence never clears one, nor does a restart of the detector. ``listed``
    holds all pairs that the source can report. ``unconfirmed``: condition type -> why its good status, which
    may be from before its first check, does not count yet. ``gone`` holds pairs that the source, which never
    takes one back, does not show any more: its life may have ended. ``counters`` holds its count of each
    reason. ``silent`` maps a condition type, or ``*``, to why it has no word on it: as little is known as of
    what is unknown, but that is in order and nobody is told. ``ends`` holds what ends a fault of a pair, as
    far as the policy's own row of the source says it. ``ended`` maps a condition type that was cleared to how
    that came, where the source knows.
    """

    source: str
    at: datetime
    problems: tuple[Problem, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)
    unknown_since: Mapping[str, datetime] = field(default_factory=dict)
    cleared: frozenset[tuple[str, str]] = frozenset()
    listed: frozenset[tuple[str, str]] = frozenset()
    gone: frozenset[tuple[str, str]] = frozenset()
    unconfirmed: Mapping[str, str] = field(default_factory=dict)
    counters: Mapping[str, float] = field(default_factory=dict)
    silent: Mapping[str, str] = field(default_factory=dict)
    ends: Mapping[tuple[str, str], Ends] = field(default_factory=dict)
    ended: Mapping[str, str] = field(default_factory=dict)

    @property
    def readable(self) -> bool:
        """Whether the source as a whole could be read. Single types may still be unknown."""
        return "*" not in self.unknown

    def took_back(self, type: str, reason: str) -> bool:
        """Whether the source cleared this pair by its own rule."""
        return (type, reason) in self.cleared or (type, "*") in self.cleared


# ---------------------------------------------------------------- machines and nodes


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


@dataclass(frozen=True, slots=True)
class JobView:
    """A Job. ``succeeded`` is None while it runs. ``why``: the reason that its status gives for a failure."""

    node: str
    succeeded: bool | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """An Event about a node, posted by another program. ``at``: when it was last seen to happen.

    ``by``: by which program it was written, as the API server has it from that program.
    """

    reason: str
    at: datetime
    by: str = ""


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
        """Whether the machine's provider does it. Such a step is destructive and needs an intent."""
        return self in _PROVIDER_ACTIONS


_PROVIDER_ACTIONS = frozenset({Step.REBOOT, Step.REIMAGE, Step.REDEPLOY, Step.REPLACE})


class Absent(StrEnum):
    """What follows where a rule's second witness is not on the machine, or has no word for the fault."""

    HOLD = "hold"
    ACT = "act"


@dataclass(frozen=True, slots=True)
class Witness:
    """Who has to agree with the fault's own source before anything destructive is done."""

    source: str
    absent: Absent = Absent.HOLD


class Says(StrEnum):
    """What a witness answers. *Absent*: there is none on this machine."""

    AGREES = "agrees"
    DISAGREES = "disagrees"
    UNREADABLE = "unreadable"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Statement:
    """What a witness says of a fault, and a sentence of what it saw."""

    says: Says
    sentence: str


class Latch(StrEnum):
    """What ends a fault that its source no longer states.

    *source*: the source's own rule for taking it back. *boot*: another boot or machine. *proof*: another
    machine, another boot with its probation, or a validation that succeeded.
    """

    SOURCE = "source"
    BOOT = "boot"
    PROOF = "proof"


class Then(StrEnum):
    """What follows when a drain misses its deadline.

    A reboot with ``force`` is one that the policy does not name (``decide.reboot_first``): where it is
    refused, the next step follows and not a person.
    """

    FORCE = "force"
    HAND_OVER = "handOver"
    HOLD = "hold"


@dataclass(frozen=True, slots=True)
class Rung:
    """One step of a remedy's ladder. ``within``: how long it may take, counted from its first effect.

    ``taint``: the taint that a ``taint`` step sets beside ours, None where it names none.
    """

    do: Step
    within: timedelta
    then: Then = Then.HAND_OVER
    taint: Taint | None = None

    def __str__(self) -> str:
        return f"{self.do.value} {self.taint}" if self.taint else self.do.value


@dataclass(frozen=True, slots=True)
class Share:
    """A limit as it is written: a count, or a percentage of a population."""

    count: int | None = None
    percent: float | None = None

    def __str__(self) -> str:
        return f"{self.percent:g}%" if self.count is None else str(self.count)


PerValue = Mapping[str, Share]
"""A limit for each value of a label. ``*`` is for every value that is not named; else they have none."""
EVERY_OTHER = "*"


def share_for(per: PerValue, value: str) -> Share | None:
    """The limit for this value of the label; None where it has none."""
    return per.get(value, per.get(EVERY_OTHER))


@dataclass(frozen=True, slots=True)
class Rate:
    """At most ``max`` in any window of length ``within``."""

    max: int
    within: timedelta


@dataclass(frozen=True, slots=True)
class Retention:
    """How long a closed record is kept, and how many are."""

    keep: timedelta = timedelta(days=30)
    max: int = 5000


DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
"""As ``datetime.weekday`` counts them."""


@dataclass(frozen=True, slots=True)
class Window:
    """A time of the week in which recoveries may start, by the wall clock of ``zone``.

    It begins at ``opens`` on each of ``days`` (0 is Monday), and ends at ``closes``: on the next day where
    that is not later.
    """

    days: frozenset[int]
    opens: time
    closes: time
    zone: tzinfo


@dataclass(frozen=True, slots=True)
class Pods:
    """Pods in one of these namespaces, with all of these labels. Names and values are shell patterns."""

    namespaces: tuple[str, ...] = ("*",)
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Blocker:
    """While an alert with such a name fires, or such a pod runs on the node itself, nothing starts there.

    ``alerts`` are shell patterns. A blocker has one of the two.
    """

    alerts: tuple[str, ...] = ()
    pods: Pods | None = None


@quick
@dataclass(frozen=True, slots=True)
class Alerts:
    """The names of the alerts that fire. ``unknown``: why nothing is known of them; "" where it is known."""

    firing: tuple[str, ...] = ()
    unknown: str = "no Prometheus server is asked"


class UnderWay(StrEnum):
    """What becomes of a recovery that is under way when its window closes or a blocker begins."""

    FINISH = "finish"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Limits:
    """The policy's limits; docs/policy.md says of each what it means.

    ``population``: labels (shell patterns) of the nodes that percentages, census and brake count; none: all.
    """

    budget: Share
    budget_per: Mapping[str, PerValue]
    brake: Share
    brake_per: Mapping[str, PerValue]
    cooldown: timedelta
    attempts: Rate
    per_group: Rate
    same_incident: timedelta = timedelta(hours=1)
    records: Retention = Retention()
    windows: tuple[Window, ...] = ()  # none: always open
    blockers: tuple[Blocker, ...] = ()
    under_way: UnderWay = UnderWay.FINISH
    population: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Match:
    """Which faults a rule is about. ``type``, ``reasons`` and the label values are shell patterns.

    ``source``: the one source that it is about, "" for any. ``times``: the rule is about an edge, and holds
    once it happened that often.
    """

    type: str = "*"
    reasons: tuple[str, ...] = ("*",)
    node_labels: Mapping[str, str] = field(default_factory=dict)
    times: Rate | None = None
    source: str = ""


LONGEST_RULE = 63
"""So many characters of a rule's name are on the gate."""


class PodMode(StrEnum):
    """What a drain does about a pod."""

    EVICT = "evict"
    WAIT = "wait"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class PodRule:
    """How pods of these namespaces and with these labels (shell patterns) are drained.

    *wait*: they are annotated with ``annotate``, have ``within`` to end by themselves, and are evicted then.
    *never*: a node with such a pod is handed over to a person, and nothing is evicted from it.
    """

    mode: PodMode
    namespaces: tuple[str, ...] = ("*",)
    labels: Mapping[str, str] = field(default_factory=dict)
    within: timedelta = timedelta(0)
    annotate: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DrainPolicy:
    """How nodes are drained. ``force`` and ``delete_emptydir_data`` are kubectl's flags of the same names.

    ``evictions_per_second``: the most that one agent asks for. None: as many as the API server takes.
    """

    force: bool = True
    delete_emptydir_data: bool = True
    evictions_per_second: int | None = None
    pods: tuple[PodRule, ...] = ()


@dataclass(frozen=True, slots=True)
class Validation:
    """The Job that must succeed on a node before it is given back.

    It is created from the CronJob ``cron_job``, in the agents' namespace.
    """

    cron_job: str
    within: timedelta


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the policy.

    ``after``: how long the fault is tolerated. ``remedy`` None: the catalogue's remedy, or else the
    provider's default. ``hold``: how long a fault stays after its source has taken it back. ``latch``: what
    ends it. Of both, None: the catalogue's. ``budget``: how many nodes may be out because of this rule; None:
    as many as the other budgets allow. ``windows``: None for those of the limits. ``urgent``: it waits for no
    window and no blocker.
    """

    name: str
    match: Match
    after: timedelta
    remedy: tuple[Rung, ...] | None
    probation: timedelta
    validate: Validation | None = None
    hold: timedelta | None = None
    latch: Latch | None = None
    witness: Witness | None = None
    budget: Share | None = None
    windows: tuple[Window, ...] | None = None
    urgent: bool = False


class Detector(StrEnum):
    """What in node-problem-detector states a fault. Only a plugin ever takes one back."""

    LOG = "log"
    PLUGIN = "plugin"
    TEMPORARY = "temporary"


@dataclass(frozen=True, slots=True)
class CatalogueRow:
    """What is known of a (type, reason): whether it is this node's fault, what usually helps, who says so.

    ``software``: a reimage of the same machine helps, where its provider can do one. ``detector``: what
    states it, None where it is not node-problem-detector. ``latch``, ``hold``: see ``Rule``.
    """

    type: str
    reason: str
    remedy: tuple[Rung, ...] | None
    this_node: bool
    why: str
    source: str
    software: bool = False
    detector: Detector | None = None
    latch: Latch | None = None
    hold: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Polarity:
    """What a Node condition of a type like one of ``types`` says, and what its good status is worth.

    ``bad`` is the status that is the fault. ``takes_back``: the good one says that the fault is over; else it
    says only that its writer was started anew. ``only_named``: of use only where a rule names the type.
    ``first``: another remediator, which acts on it ``first_after`` by default.
    """

    writer: str
    types: tuple[str, ...]
    bad: str
    takes_back: bool
    only_named: bool = False
    first: str = ""
    first_after: timedelta | None = None


@dataclass(frozen=True, slots=True)
class PodChoice:
    """A pod on the own node whose metrics are read at ``port``: of a DaemonSet in one of ``namespaces``, with
    all labels of one of ``selectors``."""

    namespaces: tuple[str, ...]
    selectors: tuple[Mapping[str, str], ...]
    port: int


@dataclass(frozen=True, slots=True)
class Ends:
    """What ends a fault, and how long it stays after its source has taken it back; None: not said here."""

    latch: Latch | None = None
    hold: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """A comparison with a number: ``> 0``."""

    sign: str
    number: float

    def holds(self, value: float) -> bool:
        return _COMPARES[self.sign](value, self.number)

    def __str__(self) -> str:
        return f"{self.sign} {self.number:g}"


_COMPARES: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}


@dataclass(frozen=True, slots=True)
class Named:
    """A condition type or a reason: ``text``, or what the series has as its label ``label``."""

    text: str = ""
    label: str = ""

    def of(self, labels: Mapping[str, str]) -> str:
        """Empty where the series has no such label."""
        return labels.get(self.label, "") if self.label else self.text


def asks_for_alerts(query: str) -> bool:
    return re.search(r"\bALERTS\b", query) is not None


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One question to a Prometheus server, and which of its answers are faults.

    ``node``: the label that names the Node. ``bad``: which values are the fault. ``plugins_only``: of types
    that are not known to be a plugin's, a good value takes nothing back.
    """

    name: str
    query: str
    node: str
    bad: Bound
    type: Named
    reason: Named
    ends: Ends = Ends()
    plugins_only: bool = False

    @property
    def of_alerts(self) -> bool:
        """Whether it asks for alerts: a series of one is there only while it fires."""
        return asks_for_alerts(self.query)

    @property
    def takes_back(self) -> bool:
        """Whether a good value ends its fault. Of an alert there is none."""
        return self.ends.latch in (None, Latch.SOURCE) and not self.of_alerts


@dataclass(frozen=True, slots=True)
class LogChoice:
    """Which lines Loki is asked for, by LogQL's ``selector`` of streams. ``node``: the label that names the
    Node."""

    selector: str
    node: str


@dataclass(frozen=True, slots=True)
class SourceChoice:
    """A source of signals that the policy reads. ``rows``: conditions of a Node beside the known ones.

    ``pod``: the pod that it reads, where it reads one. ``slow_pcie``: GB/s, see ``signals.autopilot_gauge``.
    ``metrics``: what a Prometheus server is asked. ``logs``: what a Loki server is asked.
    """

    name: str
    rows: tuple[Polarity, ...] = ()
    pod: PodChoice | None = None
    slow_pcie: float = 0.0
    metrics: tuple[MetricRow, ...] = ()
    logs: LogChoice | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """A whole policy, as parsed."""

    limits: Limits
    rules: tuple[Rule, ...]
    exclude: tuple[Mapping[str, str], ...]
    name: str = "built-in"
    drain: DrainPolicy = DrainPolicy()
    sources: tuple[SourceChoice, ...] = (SourceChoice("npd"), SourceChoice("conditions"))

    def source(self, name: str) -> SourceChoice | None:
        """How the policy reads this source; None where it does not."""
        return next((x for x in self.sources if x.name == name), None)


# ---------------------------------------------------------------- the record


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
    ``device``: see ``Problem``, for people alone.
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
    API = "api"  # the API server did not answer
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
    """What this recovery has done so far. Decisions go by this and never by the history, which is for people.

    ``submitted``: the attempts whose call was made, or may have been. ``tries``: calls of the current step
    that had no effect. ``boots``: boot IDs of unexpected boots. ``called_off``: the attempt whose call was
    cancelled. ``step_since``: when the current step became the current one. ``proving_since``: when the proof
    began, however often probation began again. ``retry_at``: when a call that was put off may be made again.
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
    scopes: tuple[str, ...] = ()  # the budget scopes its slot counts in
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
    def in_flight(self) -> bool:
        """Whether a destructive call was made, or may have been, and may still have its effect."""
        return self.intent is not None and self.intent.state in _UNSETTLED

    @property
    def works_for_us(self) -> str:
        """The system that was asked to carry out the action in flight; "" for none. Its marks then are the
        effect of that request, and no other remediator's."""
        if self.intent is None or self.intent.state not in (IntentState.SUBMITTED, IntentState.AMBIGUOUS):
            return ""
        return self.intent.reference.by


# ---------------------------------------------------------------- the gate


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


# ---------------------------------------------------------------- providers


@quick
@dataclass(frozen=True, slots=True)
class ProviderFacts:
    """What a provider declares for this machine.

    ``software_remedy``: the default for a fault of software. ``out_of_band``: steps that only the concluder
    may start. ``cancels``: a call can be cancelled. ``sees_power``: it can show that it runs nothing.
    ``cloud``: it can tell whether it exists.
    """

    name: str
    actions: frozenset[Step] = frozenset()
    default_remedy: tuple[Rung, ...] = ()
    call_timeout: float = 10.0
    software_remedy: tuple[Rung, ...] = ()
    note: str = ""
    out_of_band: frozenset[Step] = frozenset()
    cancels: bool = False
    sees_power: bool = False
    cloud: bool = False


@dataclass(frozen=True, slots=True)
class Preflight:
    """What a provider found before an action: that it can be done, and how it would be found again.

    ``reference`` is known before the call, so that the intent can carry it. ``adopt``: the action is already
    under way; do not repeat it. ``short_by``: how many machines the group still lacks. ``not_yet``: why it
    would not be accepted now. ``not_before``: when it could first be accepted. ``alone``: only one machine of
    the group may be replaced at a time, since what the reference says of the group would be wrong for two.
    ``cannot_launch``: when and why the group could not launch a machine lately, by its own word, and nothing
    was launched since; empty where that is not so, or not known. ``loses_one``: were the machine ended now,
    the group would be without it for as long as that lasts.
    """

    reference: Reference
    group: str = ""
    short_by: int = 0
    adopt: str = ""
    not_before: datetime | None = None
    not_yet: str = ""
    alone: bool = False
    notes: tuple[str, ...] = ()
    cannot_launch: str = ""
    loses_one: bool = False


@dataclass(frozen=True, slots=True)
class ClusterDelete:
    """The provider replaces this machine by the deletion of this object in the Kubernetes API.

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
    """It was accepted, and is not done yet. ``soon``: it may be done within seconds, so it is asked often."""

    sentence: str
    soon: bool = False


@dataclass(frozen=True, slots=True)
class Unfinished:
    """All is done but a last step. The reference names it, and it may be repeated."""

    sentence: str


@dataclass(frozen=True, slots=True)
class NotApplied:
    """The provider shows no sign that the action was ever submitted."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Done:
    """It is done, and this is the evidence. (Of a reboot only the Node's new boot ID is.)

    ``replacements``: IDs of machines that are new, oldest first.

    A recovery claims the oldest one that is unclaimed. The younger ones are for recoveries that began later,
    to which the older ones are not new. Where the group wants ``fewer`` machines than when the action began,
    one of the recoveries finds none: nothing takes the place of its machine.
    """

    evidence: str
    replacements: tuple[str, ...] = ()
    complete: bool = True  # the group has as many machines in service as it wants
    fewer: bool = False
    final: bool = False  # no machine takes its place, so there is nothing more to prove


@dataclass(frozen=True, slots=True)
class Deleting:
    """It is done once this object is gone from the Kubernetes API, and the Node with it."""

    what: ClusterDelete


@dataclass(frozen=True, slots=True)
class Failed:
    """It failed for good. ``reason`` is for people."""

    reason: str


@dataclass(frozen=True, slots=True)
class Gone:
    """The machine no longer exists."""

    sentence: str


Standing = Running | Unfinished | NotApplied | Done | Failed | Gone
"""How an action stands."""
Poll = Standing | Deleting
"""What a provider's ``poll`` answers. The agent resolves ``Deleting`` to a ``Standing`` by itself."""
