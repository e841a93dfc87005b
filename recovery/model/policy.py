"""A policy as parsed: rules, limits, windows and blockers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import time, timedelta, tzinfo
from enum import StrEnum

from recovery.model.remedy import Latch, Rung
from recovery.model.sources import SourceChoice
from recovery.quick import quick


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

    @property
    def goes_by_alerts(self) -> bool:
        """Whether a blocker names alerts."""
        return any(x.alerts for x in self.blockers)


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
"""How many characters of a rule's name are on the gate."""


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
