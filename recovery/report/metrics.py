"""The program's own Prometheus metrics. Prefix ``node_recovery_``, base units."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from threading import Lock

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

UNKNOWN = math.nan
MINUTE, HOUR = 60, 3600
DURATIONS = (
    *(30, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE),
    *(HOUR, 2 * HOUR, 4 * HOUR, 6 * HOUR),
)
"""Upper bounds of the histogram's buckets, in seconds: 30 s to 6 h."""


class Metrics:
    """All metric families, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._shares: dict[str, dict[tuple[Gauge, tuple[str, ...]], float]] = {}
        self._sums: dict[tuple[Gauge, tuple[str, ...]], float] = {}
        self._shown: set[tuple[Gauge, tuple[str, ...]]] = set()
        self._only: dict[Gauge, frozenset[tuple[str, ...]]] = {}
        self._lock = Lock()
        r = self.registry
        self.build_info = Gauge(
            "node_recovery_build_info", "1, with the version of the program.", ["version"], registry=r
        )
        self.enabled = Gauge("node_recovery_enabled", "1 if ENABLE_RECOVERY is true.", registry=r)
        self.faults = Gauge(
            "node_recovery_faults",
            "Its nodes that have this fault now. One that is only counted is shown for five minutes.",
            ["type", "reason"],
            registry=r,
        )
        self.signal_unknown = Gauge(
            "node_recovery_signal_unknown",
            "Its nodes for which this source cannot be read.",
            ["source"],
            registry=r,
        )
        self.prometheus_unknown = Gauge(
            "node_recovery_prometheus_unknown",
            "1 while a row of the source prometheus gets no answer, or says nothing about many nodes.",
            ["row"],
            registry=r,
        )
        self.prometheus_unresolved = Gauge(
            "node_recovery_prometheus_unresolved_series",
            "Series in the last answer whose fault has no name, or that belong to no node, or to several.",
            ["row"],
            registry=r,
        )
        self.loki_unknown = Gauge(
            "node_recovery_loki_unknown",
            "1 while Loki does not answer, or some of its lines were not read.",
            registry=r,
        )
        self.loki_unresolved = Counter(
            "node_recovery_loki_unresolved_lines",
            "Lines in Loki that belong to no node, or not to exactly one, or have a form that is not read.",
            registry=r,
        )
        self.never_joined = Gauge(
            "node_recovery_never_joined_machines",
            "Machines of this group that are in service for longer than is tolerated, and are no Nodes.",
            ["group"],
            registry=r,
        )
        self.never_joined_unknown = Gauge(
            "node_recovery_never_joined_unknown",
            "1 while it is not known which machines of the groups are no Nodes.",
            registry=r,
        )
        self.phase = Gauge(
            "node_recovery_phase",
            "Its nodes with an open record, or a record in a person's hands, by phase.",
            ["phase"],
            registry=r,
        )
        self.held = Gauge(
            "node_recovery_held", "Its nodes whose recovery is held, by reason.", ["reason"], registry=r
        )
        self.open_handovers = Gauge(
            "node_recovery_open_handovers",
            "Nodes that this process knows to be in a person's hands.",
            registry=r,
        )
        self.abandoned = Gauge(
            "node_recovery_abandoned",
            "Its nodes that were being recovered when recovery was switched off.",
            registry=r,
        )
        self.paused = Gauge(
            "node_recovery_paused",
            "1 while recovery is paused in the fleet. NaN: not known, for example while recovery is off.",
            registry=r,
        )
        self.budget_used = Gauge(
            "node_recovery_budget_used",
            "Nodes that are out of service, or may be, and count in this budget.",
            ["scope"],
            registry=r,
        )
        self.budget_limit = Gauge(
            "node_recovery_budget_limit",
            "How many nodes this budget allows, by the policy and the last count of the fleet.",
            ["scope"],
            registry=r,
        )
        self.census_sick = Gauge(
            "node_recovery_census_sick",
            "Nodes that were sick or unknown at the last count of the fleet. NaN: not known.",
            registry=r,
        )
        self.census_population = Gauge(
            "node_recovery_census_population",
            "Nodes that were counted at the last count of the fleet. NaN: not known.",
            registry=r,
        )
        for gauge in (self.paused, self.census_sick, self.census_population):
            gauge.set(UNKNOWN)
        self.actions = Counter(
            "node_recovery_actions", "Actions, by outcome.", ["action", "outcome"], registry=r
        )
        self.duration = Histogram(
            "node_recovery_recovery_duration_seconds",
            "Time from a confirmed fault to the end of its recovery, by the last step that was tried.",
            ["action", "outcome"],
            buckets=DURATIONS,
            registry=r,
        )
        self.would_act = Counter(
            "node_recovery_would_act",
            "Decisions that would have acted if recovery had been on.",
            ["rule", "action"],
            registry=r,
        )
        self.cycles = Counter(
            "node_recovery_cycles", "Cycles: each is one look at one of its nodes.", registry=r
        )
        self.errors = Counter("node_recovery_errors", "Errors, by kind.", ["kind"], registry=r)
        self.undelivered = Counter(
            "node_recovery_untold",
            "Events, metrics and messages that could not be delivered.",
            ["sink"],
            registry=r,
        )
        self.clock_outlier = Gauge(
            "node_recovery_api_clock_outlier_seconds",
            "How far one API server's clock was off from the others in the last hour. Its time is not used.",
            registry=r,
        )
        self.last_cycle = Gauge(
            "node_recovery_last_cycle_timestamp_seconds", "When the last cycle ended.", registry=r
        )

    def running(self, on: bool) -> None:
        """What a process says of itself, once. ``on``: ENABLE_RECOVERY."""
        self.enabled.set(1 if on else 0)
        self.build_info.labels(version("node-recovery")).set(1)

    def only(self, gauge: Gauge, series: Mapping[tuple[str, ...], float]) -> None:
        """Have ``gauge`` show these series, by their labels, and no others. One thread at a time."""
        for gone in self._only.get(gauge, frozenset()) - series.keys():
            gauge.remove(*gone)
        for labels, value in series.items():
            gauge.labels(*labels).set(value)
        self._only[gauge] = frozenset(series)

    def describe(self) -> list[tuple[str, tuple[str, ...], str]]:
        """(name as it is scraped, labels, help) of every family, for docs/metrics.md."""
        families = [x for x in vars(self).values() if isinstance(x, Gauge | Counter | Histogram)]
        return [
            (
                f"{f._name}_total" if isinstance(f, Counter) else f._name,
                tuple(f._labelnames),
                f._documentation,
            )
            for f in families
        ]

    def share(self, gauge: Gauge, value: float, by: str, *labels: str) -> None:
        """Have ``by`` contribute ``value`` to a series of ``gauge``: the sum over the nodes that this process
        looks after, and its sweeper."""
        with self._lock:
            self._add(gauge, labels, value, by)

    def one_of(self, gauge: Gauge, label: str, by: str) -> None:
        """Have ``by`` count in the series ``label`` of ``gauge`` alone; in none where it is empty."""
        self.these(gauge, [(label,)] if label else [], by)

    def these(self, gauge: Gauge, series: Sequence[tuple[str, ...]], by: str) -> None:
        """Have ``by`` count in these series of ``gauge``, by their labels, and in no others."""
        with self._lock:
            before = dict.fromkeys(labels for of, labels in self._shares.get(by, ()) if of is gauge)
            now = dict.fromkeys(series)
            if before.keys() == now.keys():
                return  # asked in each cycle
            for labels in before | now:
                self._add(gauge, labels, float(labels in now), by)

    def forget(self, by: str) -> None:
        """``by`` contributes nothing any more."""
        with self._lock:
            for gauge, labels in list(self._shares.get(by, ())):
                self._add(gauge, labels, 0.0, by)

    def _add(self, gauge: Gauge, labels: tuple[str, ...], value: float, by: str) -> None:
        shares, key = self._shares.setdefault(by, {}), (gauge, labels)
        if shares.get(key, 0.0) == value and (gauge is not self.signal_unknown or key in self._shown):
            return  # asked in each cycle
        if gauge is self.signal_unknown:
            self._shown.add(key)
        more = value - shares.pop(key, 0.0)
        if value:
            shares[key] = value
        series = gauge.labels(*labels) if labels else gauge
        series.inc(more)
        left = self._sums.pop(key, 0.0) + more
        if left:
            self._sums[key] = left
        elif labels and gauge is not self.signal_unknown:
            gauge.remove(*labels)
