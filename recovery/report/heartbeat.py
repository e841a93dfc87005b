"""A sign of life for the cloud's monitor, so that silence can alarm there. Off without HEARTBEAT_INTERVAL.

Faults are told while they last and nothing is told otherwise, so that a healthy cluster and one whose agents
are gone look the same from outside. A beat also proves the whole way: permissions, region, network.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from recovery.clock import Clock
from recovery.report.publish import Publisher


class Heartbeat:
    """Beats once in every ``interval``; late ones don't add up. ``now`` is the time that is told."""

    def __init__(
        self, publisher: Publisher, clock: Clock, now: Callable[[], datetime], interval: timedelta
    ) -> None:
        self._publisher = publisher
        self._clock = clock
        self._now = now
        self._interval = interval.total_seconds()
        # The first comes after a whole interval: a process that dies sooner, again and again, never beats.
        self._next = clock.monotonic() + self._interval

    def beat(self, watching: bool) -> None:
        """Called each cycle. ``watching``: the node's signals are read, and decided upon."""
        late = self._clock.monotonic() - self._next
        if late < 0:
            return
        self._next += self._interval * (1 + late // self._interval)
        self._publisher.heartbeat(watching, self._now())
