"""A clock that tests move by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class FakeClock:
    """Stands still but for ``advance``. ``step`` moves only the wall clock, as a bad NTP server would."""

    def __init__(self, start: datetime = datetime(2026, 11, 21, 3, 0, tzinfo=UTC)) -> None:
        self._start = start
        self._elapsed = 0.0
        self._true: datetime | None = start  # None: to be made of what has elapsed
        self._stepped = timedelta(0)
        self._booted = 0.0  # when the machine of the one who asks has booted, by ``monotonic``

    def now(self) -> datetime:
        return self.true_time() + self._stepped

    def true_time(self) -> datetime:
        """What a clock that nobody steps says: the API server's."""
        if self._true is None:
            self._true = self._start + timedelta(seconds=self._elapsed)
        return self._true

    def monotonic(self) -> float:
        return self._elapsed

    def boottime(self) -> float:
        return self._elapsed - self._booted

    def advance(self, seconds: float) -> None:
        self._elapsed += seconds
        self._true = None

    def step(self, by: timedelta) -> None:
        self._stepped += by
