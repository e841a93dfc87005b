"""Which sources a policy reads, and what is known of what they say."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import lru_cache

from recovery.model.remedy import Latch, Rung


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
class ConditionRow:
    """What a policy says of conditions of a type like ``type``. None: what the catalogue says of it."""

    type: str
    bad: str | None = None
    takes_back: bool | None = None


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


_QUOTED = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|`[^`]*`")
_WORD = re.compile(r"[()]|\[([^\]]*)\]|\boffset\s+(\d\w*)|[a-zA-Z_:][\w:]*", re.IGNORECASE)
_PART = re.compile(r"(\d+)(ms|[smhdwy]?)")
_SECONDS = {
    "ms": 0.001,
    "": 1.0,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 604800.0,
    "y": 31536000.0,
}


@lru_cache(maxsize=256)
def looks_back(query: str) -> timedelta:
    """How far ``query`` looks back at most: by its ranges (``[30m]``), and by ``offset``.

    What is behind another is of that, and adds to it: ``max_over_time(rate(x[5m])[1h:])``. What stands beside
    it, as in ``rate(x[5m]) / rate(y[5m])``, does not.
    """
    longest, before = [0.0], 0.0  # in each pair of brackets that is open, and of what was closed last
    for word in _WORD.finditer(_QUOTED.sub("", query)):
        if word[0] == "(":
            longest.append(0.0)
            continue
        if word[0] == ")" and len(longest) > 1:
            before = longest.pop()
        elif past := word[1] or word[2]:
            before += _seconds(past)
        else:  # something else begins
            before = 0.0
        longest[-1] = max(longest[-1], before)
    return timedelta(seconds=min(max(longest), _SECONDS["y"]))


def _seconds(past: str) -> float:
    return sum(int(number) * _SECONDS[unit] for number, unit in _PART.findall(past.partition(":")[0]))


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
    def naming_labels(self) -> tuple[str, ...]:
        """The labels that have the type or the reason of its faults, where the row does not."""
        return tuple(filter(None, (self.type.label, self.reason.label)))

    @property
    def takes_back(self) -> bool:
        """Whether a good value ends its fault. Of an alert there is none."""
        return self.ends.latch in (None, Latch.SOURCE) and not self.of_alerts

    @property
    def looks_back(self) -> timedelta:
        """For how long after a boot a bad value may be of the time before it. Of alerts nobody knows."""
        return timedelta(0) if self.of_alerts else looks_back(self.query)


@dataclass(frozen=True, slots=True)
class LogChoice:
    """Which lines Loki is asked for, by LogQL's ``selector`` of streams. ``node``: the label that names the
    Node."""

    selector: str
    node: str


@dataclass(frozen=True, slots=True)
class SourceChoice:
    """A source of signals that the policy reads. ``rows``: what it says of a Node's conditions itself.

    ``pod``: the pod that it reads, where it reads one. ``slow_pcie``: GB/s, see ``signals.autopilot_gauge``.
    ``metrics``: what a Prometheus server is asked. ``logs``: what a Loki server is asked.
    """

    name: str
    rows: tuple[ConditionRow, ...] = ()
    pod: PodChoice | None = None
    slow_pcie: float = 0.0
    metrics: tuple[MetricRow, ...] = ()
    logs: LogChoice | None = None
