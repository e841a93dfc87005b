"""CloudWatch's part of an alarm, as far as it is documented: which data it reads, and what it makes of them.

moto stores alarms and weighs none. Left out: CloudWatch also looks a little further back than an alarm's
periods where data are missing, which keeps an alarm up for some minutes more, and never raises one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from recovery.provider.monitor import Metric

QUERY = re.compile(
    r"SELECT (?P<function>AVG|SUM)\((?P<metric>\w+)\)"
    r' FROM (?:"(?P<namespace>[^"]+)"|SCHEMA\("(?P<schema>[^"]+)"(?P<labels>(?:, "\w+")+)\))'
    r"(?: WHERE (?P<where>.+))?"
)
EQUAL = re.compile(r"\"(\w+)\" = '([^']+)'")
STATISTICS = {"AVG": "Average", "SUM": "Sum"}


@dataclass(frozen=True)
class Selection:
    """What an alarm reads. ``dimensions``: names of which a metric has exactly these; None is any."""

    namespace: str
    metric: str
    statistic: str
    period: int
    dimensions: frozenset[str] | None
    values: Mapping[str, str] = field(default_factory=dict)

    def takes(self, m: Metric) -> bool:
        return (
            m.name == self.metric
            and (self.dimensions is None or set(m.dimensions) == self.dimensions)
            and all(m.dimensions.get(name) == value for name, value in self.values.items())
        )


def selection(alarm: Mapping[str, Any]) -> Selection:
    """From an alarm as DescribeAlarms tells it, on one metric or on one Metrics Insights query."""
    if not alarm.get("Metrics"):
        values = {d["Name"]: d["Value"] for d in alarm["Dimensions"]}
        names = frozenset(values)
        return Selection(
            alarm["Namespace"], alarm["MetricName"], alarm["Statistic"], alarm["Period"], names, values
        )
    (query,) = alarm["Metrics"]
    found = QUERY.fullmatch(query["Expression"])
    assert found is not None, f"not a query with all names quoted: {query['Expression']}"
    labels = frozenset(re.findall(r"\w+", found["labels"])) if found["labels"] else None
    where = found["where"] or ""
    values = dict(EQUAL.findall(where))
    assert len(values) == where.count("="), f"a name or value that is not quoted: {where}"
    return Selection(
        found["namespace"] or found["schema"],
        found["metric"],
        STATISTICS[found["function"]],
        query["Period"],
        labels,
        values,
    )


def states(alarm: Mapping[str, Any], told: Iterable[Metric], begin: float, end: float) -> list[bool]:
    """Whether the alarm is raised at the end of each period between two moments (seconds since 1970)."""
    chosen = selection(alarm)
    points: dict[int, list[float]] = {}
    for m in told:
        if chosen.takes(m):
            points.setdefault(int(m.at.timestamp() // chosen.period), []).append(m.value)
    first, last = int(begin // chosen.period), int(end // chosen.period)
    bad = {b: _breaching(alarm, chosen, points.get(b)) for b in range(first, last)}
    size, enough = alarm["EvaluationPeriods"], alarm["DatapointsToAlarm"]
    return [sum(bad.get(x, False) for x in range(b - size + 1, b + 1)) >= enough for b in range(first, last)]


def _breaching(alarm: Mapping[str, Any], chosen: Selection, values: list[float] | None) -> bool:
    if not values:
        return bool(alarm["TreatMissingData"] == "breaching")
    value = {"Average": sum(values) / len(values), "Sum": sum(values), "Maximum": max(values)}[
        chosen.statistic
    ]
    if alarm["ComparisonOperator"] == "GreaterThanThreshold":
        return bool(value > alarm["Threshold"])
    assert alarm["ComparisonOperator"] == "LessThanThreshold"
    return bool(value < alarm["Threshold"])
