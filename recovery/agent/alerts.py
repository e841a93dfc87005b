"""Asks the Prometheus server which alerts fire, for the policy's blockers.

In fleet mode one thread asks, off the path of every decision, and the others read what it last heard. A
sidecar asks itself, and only while its own node waits for something that an alert may block.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Protocol

from recovery.agent.world import World
from recovery.clock import Clock
from recovery.errors import Unreadable
from recovery.model import Alerts
from recovery.units import span

log = logging.getLogger(__name__)

QUERY = 'count by (alertname) (ALERTS{alertstate="firing"})'
"""One series for each name: the answer stays small however many alerts fire. Prometheus makes the series
ALERTS itself (prometheus.io/docs/prometheus/latest/configuration/alerting_rules/)."""
EVERY = 15.0
"""Seconds between two questions to a Prometheus server."""
FRESH_FOR = 60.0
"""Seconds for which an answer counts."""
FORGETS = timedelta(minutes=15)
"""How long after its start a server may not state yet what it stated before. Prometheus has to evaluate an
alert again, and holds one of a long ``for`` back for ten minutes (``--rules.alert.for-grace-period``)."""
MOST, LONGEST = 1000, 200
"""The most names in an answer, and characters in a name. A larger answer is not used at all."""


class Asks(Protocol):
    """A Prometheus server."""

    def ask(self, query: str, at: float | None = None) -> list[Any]:
        """The series of an instant query. Raises ``Unreadable``, nothing else."""


class AlertWatch:
    """What fires, as ``server`` last said. One thread calls ``once`` or ``ask``; any may ask ``now``.

    A server that was down may have been started anew. What fired right before that, and is not there now,
    counts for ``FORGETS`` as if it fired.
    """

    def __init__(self, server: Asks, clock: Clock) -> None:
        self._server = server
        self._clock = clock
        self._heard: tuple[float, tuple[str, ...]] | None = None
        self._why = "Prometheus has not been asked yet"
        self._asked_at = float("-inf")
        self._at_outage: tuple[str, ...] = ()
        self._forgot: Mapping[str, float] = {}

    def ask(self) -> None:
        """``once``, unless it was asked less than ``EVERY`` seconds ago."""
        if self._clock.monotonic() - self._asked_at >= EVERY:
            self._asked_at = self._clock.monotonic()
            self.once()

    def once(self) -> None:
        """Ask once. Raises nothing: what cannot be read is unknown."""
        try:
            found = _names(self._server.ask(QUERY))
        except Unreadable as error:
            if error.reason != self._why:
                log.warning("Prometheus, alerts that block: %s", error.reason)
            if not self._why and self.now().unknown == "":
                self._at_outage = self._heard[1] if self._heard is not None else ()
            self._why = error.reason
            return
        now = self._clock.monotonic()
        forgot = {**dict.fromkeys(self._at_outage, now + FORGETS.total_seconds()), **self._forgot}
        self._at_outage = ()
        self._forgot = {name: until for name, until in forgot.items() if name not in found and now < until}
        self._heard, self._why = (now, found), ""

    def now(self) -> Alerts:
        """What is known: an old answer is none."""
        heard = self._heard
        if heard is None:
            return Alerts(unknown=self._why)
        age = self._clock.monotonic() - heard[0]
        if age <= FRESH_FOR:
            return Alerts(tuple(sorted({*heard[1], *self._forgot})), unknown="")
        return Alerts(
            unknown=f"{self._why or 'Prometheus was not asked'}, for {span(timedelta(seconds=age))}"
        )


def ask_when_needed(world: World, server: Asks) -> None:
    """Have ``world`` ask ``server`` for alerts, whenever a decision goes by them."""
    watch = AlertWatch(server, world.clock)
    world.alerts, world.ask_for_alerts = watch.now, watch.ask


def _names(result: list[object]) -> tuple[str, ...]:
    """The names in an answer. Raises ``Unreadable`` where one is missing."""
    names = [_name(series) for series in result]
    if len(names) > MOST:
        raise Unreadable(f"more than {MOST} alerts fire")
    return tuple(sorted(names))


def _name(series: object) -> str:
    labels = series.get("metric") if isinstance(series, dict) else None
    name = labels.get("alertname") if isinstance(labels, dict) else None
    if not isinstance(name, str) or not name or len(name) > LONGEST or not name.isprintable():
        raise Unreadable("a series of ALERTS has no name that can be read")
    return name
