"""What time is it, and on which clock? A clock is a constructor argument, so tests never sleep."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Protocol, TypeVar

log = logging.getLogger(__name__)
Answer = TypeVar("Answer")

FORGOTTEN = 3600.0
"""Seconds without an outlier after which the next one is said again."""


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

    There may be several API servers, and one of them may be minutes off. So the time is the median of the
    last ``ANSWERS`` answers, and what was believed is given up only for what ``MOST_OF_THEM`` say: one server
    of three is then never believed, whichever of them happens to answer. A step of the true time is followed
    after some twenty answers. Until then ``skew`` is large, and nothing is started. Any thread may ask.
    """

    RESOLUTION = timedelta(seconds=1)
    NEAR = timedelta(seconds=3)
    """Two answers this close may mean the same time: whole seconds, and up to 2 s on the way."""
    FAR = timedelta(seconds=30)
    """An answer this far off the others is an outlier, and is reported."""
    ANSWERS = 31
    FIRST_ANSWERS = 5
    MOST_OF_THEM = 2 / 3
    STEPS = 8
    """So many steps of the server's clock are remembered."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # Each answer, and what is believed, as the server's time at which the monotonic clock was 0.
        self._answers: deque[datetime] = deque(maxlen=self.ANSWERS)
        self._believed: datetime | None = None
        self._steps: deque[tuple[datetime, datetime]] = deque(maxlen=self.STEPS)
        self._outlier_at: float | None = None
        self.outlier = timedelta(0)
        """How far the latest outlier was off; zero once there was none for an hour."""

    def learn(self, date: datetime, asked_at: float) -> None:
        """Take the ``Date`` of an answer to a request sent at monotonic time ``asked_at``."""
        mono = self._clock.monotonic()
        if mono - asked_at > 2.0:  # a slow answer says little about now
            return
        answer = date - timedelta(seconds=mono)
        with self._lock:
            self._answers.append(answer)
            held, self._believed = self._believed, self.weighed(self._believed)
            settled = len(self._answers) > self.FIRST_ANSWERS  # else the first belief was wrong, and no clock
            if held is not None and settled and abs(self._believed - held) > self.FAR:
                passed = timedelta(seconds=mono)
                self._steps.append((held + passed, self._believed + passed))
            self._note_outlier(answer - self._believed, mono)

    def weighed(self, held: datetime | None) -> datetime:
        """What to believe by the answers there are; ``held``: what was believed so far."""
        newest = max(self._answers)
        if newest - min(self._answers) <= self.RESOLUTION:  # all mean the same second
            return newest
        own = self._clock.now() - timedelta(seconds=self._clock.monotonic())
        found = _median(self._answers)
        if abs(found - own) > self.FAR:  # this machine's own clock is one more witness
            agree = [x for x in self._answers if abs(x - own) <= self.FAR]
            found = _median(agree) if len(agree) >= max(2, len(self._answers) // 4) else found
        if held is not None and abs(held - found) > self.NEAR and not self._prevails(found, held, own):
            found = held
        return max((x for x in self._answers if abs(x - found) <= self.RESOLUTION), default=found)

    def _prevails(self, found: datetime, held: datetime, own: datetime) -> bool:
        """Whether what most answers say takes the place of what was believed."""
        if len(self._answers) < 3 or abs(found - own) <= self.FAR < abs(held - own):
            return True
        agree = sum(1 for x in self._answers if abs(x - found) <= self.NEAR)
        return agree >= self.MOST_OF_THEM * len(self._answers)

    def _note_outlier(self, off: timedelta, mono: float) -> None:
        if abs(off) > self.FAR:
            if self._outlier_at is None:
                side = "ahead of" if off > timedelta(0) else "behind"
                log.warning(
                    "the clock of an API server is %.0f s %s the others: its time is not used",
                    abs(off).total_seconds(),
                    side,
                )
            self._outlier_at, self.outlier = mono, abs(off)
        elif self._outlier_at is not None and mono - self._outlier_at > FORGOTTEN:
            self._outlier_at, self.outlier = None, timedelta(0)

    @property
    def doubtful(self) -> bool:
        """Whether more answers are needed: the first few, where they contradict the machine's own clock."""
        return 0 < len(self._answers) < self.FIRST_ANSWERS and self.skew() > self.FAR

    def beyond_doubt(self, ask: Callable[[], Answer]) -> Answer:
        """What ``ask`` returns, asked again while the time is ``doubtful``.

        The first API server that answers a new process may be one whose clock is wrong.
        """
        found = ask()
        for _ in range(self.FIRST_ANSWERS):
            if not self.doubtful:
                break
            found = ask()
        return found

    def now(self) -> datetime:
        """The API server's time, or the machine's own until an answer has come."""
        if self._believed is None:
            return self._clock.now()
        return self._believed + timedelta(seconds=self._clock.monotonic())

    @property
    def steps(self) -> tuple[tuple[datetime, datetime], ...]:
        """The last steps of the server's clock by more than ``FAR``: what it showed before each, and then."""
        with self._lock:
            return tuple(self._steps)

    def skew(self) -> timedelta:
        """How far this machine's wall clock is off the server's, never negative."""
        return abs(self._clock.now() - self.now())


def _median(answers: Iterable[datetime]) -> datetime:
    """The middle one; of two in the middle the earlier, by which timers run longer."""
    found = sorted(answers)
    return found[(len(found) - 1) // 2]
