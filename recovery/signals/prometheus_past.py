"""What a Prometheus server has recorded of the nodes that had a fault: for ``node-recovery replay``. Pure.

A whole fleet's series over a month are too many to read. So a row's query is narrowed to the nodes of which
any series was bad in the time that is asked for.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from recovery.errors import Unreadable
from recovery.model import MetricRow
from recovery.signals.prometheus_answer import Series, State, Stated, read

OVERLAP = timedelta(minutes=10)
"""A node whose last bad sample was so long before is still asked for: its good ones take the fault back."""
NO_GAP = 1.5
"""Of steps between two samples: a longer time is a gap."""
Key = tuple[str, str, str]


def narrowed(row: MetricRow, length: timedelta, step: timedelta) -> str:
    """``row``'s query, for a range of this ``length``, without the nodes of which nothing was bad in it.

    ``@ end()`` has the server work that out once for the range (Prometheus 2.33, and later).
    """
    labels = ", ".join(dict.fromkeys((row.node, "instance")))
    reach = f"{(length + OVERLAP).total_seconds():.0f}s:{step.total_seconds():.0f}s"
    sick = f"max_over_time((({row.query}) {row.bad})[{reach}] @ end())"
    return f"({row.query}) and on ({labels}) ({sick})"


@dataclass(frozen=True, slots=True)
class Run:
    """One series said the same, as far as faults go, from ``start`` to ``end``."""

    start: datetime
    end: datetime
    stated: Stated


@dataclass
class Past:
    """What was recorded of one node at each ``step``, by series, in the order of time."""

    step: timedelta
    runs: dict[tuple[MetricRow, Key], list[Run]] = field(default_factory=dict)

    def add(self, row: MetricRow, run: Run) -> None:
        """Add a run, which begins after those that are known. One that goes on is one run."""
        known = self.runs.setdefault((row, run.stated.key), [])
        last = known[-1] if known else None
        if last and last.stated.state is run.stated.state and run.start - last.end <= self.step * NO_GAP:
            known[-1] = Run(last.start, max(last.end, run.end), last.stated)
        else:
            known.append(run)

    def edges(self) -> Iterator[datetime]:
        """When something changed: at the start of each run, and a step after its end."""
        for runs in self.runs.values():
            for run in runs:
                yield run.start
                yield run.end + self.step * NO_GAP

    def at(self, now: datetime) -> Iterator[Stated]:
        """What each series said ``now``. One that is gone is unknown; an alert that is gone is over."""
        for (row, _), runs in self.runs.items():
            i = bisect_right(runs, now, key=lambda run: run.start) - 1
            if i < 0:
                continue
            run = runs[i]
            if now < run.end + self.step * NO_GAP:
                yield run.stated._replace(at=now)
            elif row.of_alerts:
                yield run.stated._replace(at=now, state=State.GOOD, said="it does not fire")
            else:
                yield run.stated._replace(at=now, state=State.UNKNOWN, said="its series is gone")

    def of(self, pair: tuple[str, str]) -> list[Run]:
        """The last run of each series that speaks of this type and reason."""
        return [runs[-1] for runs in self.runs.values() if runs[-1].stated.pair == pair]


def runs_of(row: MetricRow, result: Sequence[Any], step: timedelta) -> Iterator[tuple[Series, Run]]:
    """The runs of each series in the answer to a range query. Raises ``Unreadable``."""
    for found in result:
        samples = _samples(found)
        for first, last in _alike(row, samples, step.total_seconds()):
            when = datetime.fromtimestamp(first[0], UTC)
            series = read(row, [{"metric": found.get("metric"), "value": list(first)}], None, when)
            if series:
                yield series[0], Run(when, datetime.fromtimestamp(last[0], UTC), series[0].stated)


def _samples(found: Any) -> list[tuple[float, float]]:
    values = found.get("values") if isinstance(found, dict) else None
    if not isinstance(values, list):
        raise Unreadable("the answer is no range of plain numbers")
    try:
        return [(float(at), float(value)) for at, value in values]
    except (TypeError, ValueError):
        raise Unreadable("the answer is no range of plain numbers") from None


def _alike(
    row: MetricRow, samples: Sequence[tuple[float, float]], step: float
) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
    """The first and the last sample of each stretch that says the same and has no gap."""
    first = last = None
    for sample in samples:
        if first is None or last is None:
            first = last = sample
        elif sample[0] - last[0] <= step * NO_GAP and _judged(row, sample[1]) is _judged(row, first[1]):
            last = sample
        else:
            yield first, last
            first = last = sample
    if first is not None and last is not None:
        yield first, last


def _judged(row: MetricRow, value: float) -> bool | None:
    return row.bad.holds(value) if math.isfinite(value) else None
