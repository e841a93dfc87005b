"""What time is it, and on which clock? A clock is a constructor argument, so tests never sleep."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """What the program may know of time."""

    def now(self) -> datetime:
        """The wall clock, UTC. It may step, forward or back."""

    def monotonic(self) -> float:
        """Seconds that never go back, and that do not count the time the machine is suspended."""

    def boottime(self) -> float:
        """Seconds that never go back, and go on while the process is stopped or the machine suspended."""


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def boottime(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)


class ApiTime:
    """The API server's time, which all agents share.

    It is learned from the ``Date`` header of each answer. In between the monotonic clock carries it on, so a
    step of this machine's wall clock moves no timer. ``Date`` is cut down to whole seconds: of two readings,
    the one that puts the server's clock further on is nearer to the truth.
    """

    RESOLUTION = timedelta(seconds=1)

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._anchor: tuple[datetime, float] | None = None

    def learn(self, date: datetime, asked_at: float) -> None:
        """Take the ``Date`` of an answer to a request sent at monotonic time ``asked_at``."""
        mono = self._clock.monotonic()
        if mono - asked_at > 2.0:  # a slow answer says little about now
            return
        if self._anchor is not None:
            believed = self.now()
            if date <= believed <= date + self.RESOLUTION:
                return
        self._anchor = (date, mono)

    def now(self) -> datetime:
        """The API server's time, or the machine's own until an answer has come."""
        if self._anchor is None:
            return self._clock.now()
        date, mono = self._anchor
        return date + timedelta(seconds=self._clock.monotonic() - mono)

    def skew(self) -> timedelta:
        """How far this machine's wall clock is off the server's, never negative."""
        return abs(self._clock.now() - self.now())
