"""A heartbeat metric for the cloud's monitor, so that its absence can alarm. Off without HEARTBEAT_INTERVAL.

Without it, a healthy cluster and one without agents look the same there, since faults are published only
while they last. It also shows that permissions, region and network are right.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from recovery.clock import Clock
from recovery.report.publish import Publisher


class Heartbeat:
    """Publishes once in every ``interval``; missed ones are not made up for. ``now`` stamps them."""

    def __init__(
        self, publisher: Publisher, clock: Clock, now: Callable[[], datetime], interval: timedelta
    ) -> None:
        self._publisher = publisher
        self._clock = clock
        self._now = now
        self._interval = interval.total_seconds()
        # The first comes after a whole interval: a process that always crashes sooner must not look alive.
        self._next = clock.monotonic() + self._interval

    def beat(self, watching: bool) -> None:
        """Call it each cycle. ``watching``: signals could be read, and the last cycle did not fail."""
        late = self._clock.monotonic() - self._next
        if late < 0:
            return
        self._next += self._interval * (1 + late // self._interval)
        self._publisher.heartbeat(watching, self._now())
