"""How long to leave a server alone that is overloaded, or does not answer."""

from __future__ import annotations

import random
from datetime import timedelta

from recovery.clock import Clock

LONGEST_RETRY_AFTER = 300.0
"""The longest Retry-After that is obeyed, in seconds."""


class Backoff:
    """Pauses that double with each failure, up to ``most`` seconds, with jitter.

    Half of a pause is by chance, so that clients that were turned away together do not come back together. A
    server's Retry-After is never cut short: what is by chance comes on top of it.
    """

    def __init__(self, clock: Clock, first: float, most: float, chance: random.Random) -> None:
        self._clock = clock
        self._first = first
        self._most = most
        self._chance = chance
        self._failures = 0
        self.until = 0.0
        """Until when not to ask, on the monotonic clock."""

    @property
    def left(self) -> float:
        """Seconds until the server may be asked again."""
        return max(0.0, self.until - self._clock.monotonic())

    @property
    def failing(self) -> bool:
        """Whether it failed the last time."""
        return self._failures > 0

    def failed(self, retry_after: float | None = None) -> float:
        """Note a failure. Returns how many seconds to wait."""
        pause = pause_after(self._failures, self._first, self._most, self._chance)
        asked = min(retry_after or 0.0, LONGEST_RETRY_AFTER)
        pause = max(pause, asked * self._chance.uniform(1.0, 1.25))
        self._failures += 1
        self.until = self._clock.monotonic() + pause
        return pause

    def answered(self) -> None:
        """The server answered: the next failure is a first one again."""
        self._failures = 0


class Outage:
    """Whether the API server was away for so long that others wait before they ask it again.

    All parts of a process tell it, since an agent whose node is healthy asks seldom. Any thread may.
    """

    LONG = 30.0
    """Seconds: the longest pause of an agent that has something to tell."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._over: float | None = None

    def away(self, now: float) -> None:
        """It did not answer at monotonic time ``now``."""
        if self._since is None:
            self._since = now

    def answered(self, now: float) -> None:
        if self._since is not None and now - self._since >= self.LONG:
            self._over = now
        self._since = None

    def over_for(self, now: float) -> timedelta | None:
        """How long the last long outage has been over; None where there was none."""
        return timedelta(seconds=now - self._over) if self._over is not None else None


def pause_after(failures: int, first: float, most: float, chance: random.Random) -> float:
    """The pause after ``failures`` failures before this one."""
    return doubled(first, failures, most) * chance.uniform(0.5, 1.0)


def doubled(first: float, times: int, most: float) -> float:
    """``first``, doubled so many times, up to ``most``. A client may be refused a thousand times in a row,
    and a thousand doublings are more than a float can hold."""
    return min(most, first * 2.0 ** min(times, 30))
