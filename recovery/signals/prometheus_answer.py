"""What a Prometheus server answers to a row of the policy, and how old it is. Pure.

An instant query returns the last sample of each series, up to five minutes old, under the moment of the
query. So the samples' own time is asked for by a second query, where it can be made of the first, and the
server is told (``lookback_delta``) to leave out what is older than that.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from recovery.errors import Unreadable
from recovery.model import MetricRow
from recovery.units import span
from recovery.visible import visible

OLDEST = timedelta(seconds=180)
"""A sample that is older says nothing: two scrapes, of a minute each, and a minute."""
LOOKBACK = timedelta(minutes=5)
"""How old a sample may be where its own time is not known: the server's default."""
LONGEST_NAME = 128
LONGEST_DEVICE = 80
MOST_SERIES = 300
"""Series of one node in one answer."""
OF_THE_SCRAPE = frozenset(
    {
        *("__name__", "alertname", "alertstate", "container", "endpoint", "instance", "job", "namespace"),
        *("pod", "prometheus", "prometheus_replica", "replica", "service", "severity"),
        *("exported_container", "exported_instance", "exported_job", "exported_namespace", "exported_pod"),
        "DCGM_FI_DRIVER_VERSION",
    }
)
"""Labels that say nothing of which device it is. dcgm-exporter names the pod that a GPU was given to, which
Prometheus calls ``exported_pod``, and its driver: without this pod, and with another driver, it is the same
GPU."""
OF_THE_VALUE = frozenset({"err_code", "err_msg"})
"""Labels that say the value of the series, as dcgm-exporter's XIDs have them: the good value is in another
series. An alert with another code is another alert."""

Ages = Mapping[int, float]
_SELECTOR = r"[a-zA-Z_:][a-zA-Z0-9_:]*(?:\{(?:[^{}\"']|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')*\})?"
_PLAIN = re.compile(_SELECTOR)
_AGGREGATED = re.compile(rf"(?:max|min|sum|avg) *by *(\([^()]*\)) *\( *({_SELECTOR}) *\)")


class State(StrEnum):
    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"


class Stated(NamedTuple):
    """What one series says of a node. ``said``: its value, or why nothing is known by it. ``at``: no sample
    of it is older than this, in the API server's time. ``begun``: when it was seen to turn bad, None where it
    was so from the first answer on. ``owed``: it was bad in the boot before, and has to speak of this one."""

    row: MetricRow
    type: str
    reason: str
    device: str
    state: State
    said: str
    at: datetime
    begun: datetime | None = None
    owed: bool = False

    @property
    def pair(self) -> tuple[str, str]:
        return (self.type, self.reason)

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.type, self.reason, self.device)


class Series(NamedTuple):
    """One series: what names its node, its label ``instance``, and what it says."""

    node: str
    instance: str
    stated: Stated


def time_of(query: str) -> str:
    """The query for the time of the samples that ``query`` is made of; "" where that is not plain to see."""
    if _PLAIN.fullmatch(query):
        return f"timestamp({query})"
    found = _AGGREGATED.fullmatch(query)
    return f"min by {found[1]} (timestamp({found[2]}))" if found else ""


def asked_at(result: Sequence[Any]) -> float | None:
    """The moment of the query, by the server's clock; None where it returned nothing. Raises
    ``Unreadable``."""
    return None if not result else _value(result[0])[0]


def ages(times: Sequence[Any]) -> Ages:
    """How many seconds ago each series' sample was taken, by the answer to ``time_of``. Raises
    ``Unreadable``."""
    return {_identity(_labels(x)): _age(x) for x in times}


def read(
    row: MetricRow, result: Sequence[Any], old: Ages | None, now: datetime, late: float = 0.0
) -> list[Series]:
    """The series of an answer that came ``now``. ``old``: how old each is, None where that cannot be known.
    ``late``: so many seconds older than it says is the answer itself.

    Raises ``Unreadable`` for what is no answer of this kind.
    """
    return [found for x in result if (found := _series(row, x, old, now, late)) is not None]


def unnamed(row: MetricRow, result: Sequence[Any]) -> int:
    """How many series have a bad value, and no name for their fault: ``read`` leaves them out. Raises
    ``Unreadable``."""
    return sum(not _names(row, _labels(x)) and row.bad.holds(_value(x)[1]) for x in result)


def _names(row: MetricRow, labels: Mapping[str, str]) -> bool:
    return _fit(row.type.of(labels)) and _fit(row.reason.of(labels))


def _series(row: MetricRow, found: Any, old: Ages | None, now: datetime, late: float) -> Series | None:
    labels = _labels(found)
    if not _names(row, labels):
        return None
    age = LOOKBACK.total_seconds() if old is None else old.get(_identity(labels), math.inf)
    state, said = _judged(row, _value(found)[1], late + (age if old is not None else 0.0))
    at = now - min(timedelta(seconds=max(age, 0.0)), LOOKBACK) if math.isfinite(age) else now - LOOKBACK
    at -= timedelta(seconds=late)
    stated = Stated(
        row,
        sys.intern(row.type.of(labels)),
        sys.intern(row.reason.of(labels)),
        sys.intern(visible(_device(row, labels))[:LONGEST_DEVICE]),
        state,
        sys.intern(said),
        at,
    )
    return Series(labels.get(row.node, ""), labels.get("instance", ""), stated)


def _device(row: MetricRow, labels: Mapping[str, str]) -> str:
    """Which device of its node a series is about: what is left of its labels."""
    said = {row.node, "node", row.type.label, row.reason.label}
    left = ((k, v) for k, v in sorted(labels.items()) if k not in OF_THE_SCRAPE and k not in said)
    return ",".join(f"{k}={v}" for k, v in left if k not in OF_THE_VALUE or row.of_alerts)


def _fit(name: str) -> bool:
    return bool(name) and len(name) <= LONGEST_NAME and name.isprintable()


def _judged(row: MetricRow, value: float, age: float) -> tuple[State, str]:
    if not math.isfinite(age):
        return State.UNKNOWN, "the time of its sample is not known"
    if age > OLDEST.total_seconds():
        return State.UNKNOWN, f"its last sample is {span(timedelta(seconds=age))} old"
    if not math.isfinite(value):
        return State.UNKNOWN, "its value is no number"
    return (State.BAD if row.bad.holds(value) else State.GOOD), f"{value:g}"


def _labels(found: Any) -> Mapping[str, str]:
    metric = found.get("metric") if isinstance(found, dict) else None
    if not isinstance(metric, dict) or not all(isinstance(v, str) for v in metric.values()):
        raise Unreadable("the answer is no list of series")
    return metric


def _identity(labels: Mapping[str, str]) -> int:
    """A hash, since there may be 100,000 of them."""
    return hash(frozenset((k, v) for k, v in labels.items() if k != "__name__"))


def _value(found: Any) -> tuple[float, float]:
    """The moment of the query, and the value; NaN where it is no number."""
    pair = found.get("value") if isinstance(found, dict) else None
    if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], int | float):
        raise Unreadable("the answer is no instant vector of plain numbers")
    try:
        return float(pair[0]), float(pair[1])
    except (TypeError, ValueError):
        return float(pair[0]), math.nan


def _age(found: Any) -> float:
    asked, stamp = _value(found)
    return asked - stamp if math.isfinite(stamp) else math.inf
