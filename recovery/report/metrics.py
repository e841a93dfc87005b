"""The program's own Prometheus metrics. Prefix ``node_recovery_``, base units."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge


class Metrics:
    """All metric families, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        r = self.registry
        self.enabled = Gauge("node_recovery_enabled", "1 if ENABLE_RECOVERY is true.", registry=r)
        self.faults = Gauge(
            "node_recovery_faults", "1 for each fault seen on this node now.", ["type", "reason"], registry=r
        )
        self.signal_unknown = Gauge(
            "node_recovery_signal_unknown",
            "1 while a source of signals cannot be read.",
            ["source"],
            registry=r,
        )
        self.phase = Gauge(
            "node_recovery_phase", "1 for the phase of this node's record.", ["phase"], registry=r
        )
        self.held = Gauge(
            "node_recovery_held", "1 while a recovery is held, by reason.", ["reason"], registry=r
        )
        self.open_handovers = Gauge(
            "node_recovery_open_handovers",
            "Nodes that this agent knows to be in a person's hands.",
            registry=r,
        )
        self._hand_overs: dict[str, int] = {}
        self._series: dict[Gauge, Sequence[tuple[str, ...]]] = {}
        self.abandoned = Gauge(
            "node_recovery_abandoned",
            "1 if recovery was switched off while this node was being recovered.",
            registry=r,
        )
        self.actions = Counter(
            "node_recovery_actions", "Actions, by outcome.", ["action", "outcome"], registry=r
        )
        self.would_act = Counter(
            "node_recovery_would_act",
            "Decisions that would have acted, had recovery been on.",
            ["rule", "action"],
            registry=r,
        )
        self.cycles = Counter("node_recovery_cycles", "Cycles of the agent.", registry=r)
        self.errors = Counter("node_recovery_errors", "Errors, by kind.", ["kind"], registry=r)
        self.undelivered = Counter(
            "node_recovery_untold",
            "Events and metrics that could not be delivered.",
            ["sink"],
            registry=r,
        )
        self.clock_outlier = Gauge(
            "node_recovery_api_clock_outlier_seconds",
            "How far one API server's clock was off the others' within the last hour. Its time is not used.",
            registry=r,
        )
        self.last_cycle = Gauge(
            "node_recovery_last_cycle_timestamp_seconds", "When the last cycle ended.", registry=r
        )

    def describe(self) -> list[tuple[str, tuple[str, ...], str]]:
        """(name as it is scraped, labels, help) of every family, for the README."""
        families = [x for x in vars(self).values() if isinstance(x, Gauge | Counter)]
        return [
            (
                f"{f._name}_total" if isinstance(f, Counter) else f._name,
                tuple(f._labelnames),
                f._documentation,
            )
            for f in families
        ]

    def hand_overs(self, counted_by: str, count: int) -> None:
        """Set how many open hand-overs ``counted_by`` knows of: agent and sweeper know different ones."""
        self._hand_overs[counted_by] = count
        self.open_handovers.set(sum(self._hand_overs.values()))

    def one_of(self, gauge: Gauge, label: str) -> None:
        """Make ``label`` the only series of ``gauge``; none where it is empty."""
        self.these(gauge, [(label,)] if label else [])

    def these(self, gauge: Gauge, series: Sequence[tuple[str, ...]]) -> None:
        """Make 1 of these series of ``gauge``, by their labels, and remove all others."""
        if self._series.get(gauge) == series:
            return  # asked in each cycle
        gauge.clear()
        for labels in series:
            gauge.labels(*labels).set(1)
        self._series[gauge] = series
