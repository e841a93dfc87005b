"""Reads this agent's own Node now and then, for all sources that look at it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from recovery.clock import Clock
from recovery.errors import ApiError
from recovery.model import NodeView, Reading

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Seen:
    """The last look at the Node. ``at``: when it was read, or now if it never was. ``fresh_for``: how long it
    may be relied on. ``why``: why it is too old for that, "" while it is not. ``since``: since when."""

    node: NodeView | None
    at: datetime
    fresh_for: timedelta
    why: str = ""
    since: datetime | None = None


class NodeLook:
    """Looks at the Node with a GET when the last look is older than is asked for.

    ``read`` reads it, None where there is none. ``longest``: seconds between two looks that nobody asks for.
    A look that fails leaves what was known for as long as it may be relied on.
    """

    def __init__(
        self,
        read: Callable[[], NodeView | None],
        clock: Clock,
        now: Callable[[], datetime],
        longest: Callable[[], float],
    ) -> None:
        self._read = read
        self._clock = clock
        self._now = now
        self._longest = longest
        self._seen: Seen | None = None
        self._read_at = 0.0
        self._tried_at: float | None = None
        self._unknown_since: datetime | None = None

    def look(self, within: float | None = None) -> Seen:
        """The Node by a look no older than ``within`` seconds; None: as old as may be."""
        now = self._clock.monotonic()
        longest = self._longest()
        due = longest if within is None else within
        if self._tried_at is None or now - self._tried_at >= due:
            self._tried_at = now
            self._try(timedelta(seconds=3 * longest))
        if self._seen is not None and self._clock.monotonic() - self._read_at <= 3 * longest:
            self._unknown_since = None
            return self._seen
        at = self._now()
        self._unknown_since = self._unknown_since or at
        if self._seen is None:
            why = "the Node could not be read yet"
            return Seen(None, at, timedelta(0), why, self._unknown_since)
        why = f"the Node was last read at {self._seen.at:%H:%M:%SZ}"
        return replace(self._seen, why=why, since=self._unknown_since)

    def _try(self, fresh_for: timedelta) -> None:
        try:
            node = self._read()
        except ApiError as error:
            log.debug("the own Node cannot be read: %s", error)
            return
        if node is not None:
            self._seen = Seen(node, self._now(), fresh_for)
            self._read_at = self._clock.monotonic()

    @staticmethod
    def as_known(seen: Seen, reading: Reading) -> Reading:
        """``reading``, which was made of the last look; unknown as a whole where that is too old."""
        if not seen.why:
            return reading
        return replace(
            reading,
            unknown={**reading.unknown, "*": f"{reading.source}: {seen.why}"},
            unknown_since={**reading.unknown_since, "*": seen.since or reading.at},
            cleared=frozenset(),
        )


class Complaints:
    """Logs what a source cannot say, once for each change."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._before: frozenset[str] = frozenset()

    def of(self, reading: Reading) -> None:
        now = frozenset(reading.unknown.values())
        for sentence in sorted(now - self._before):
            log.warning("%s: %s", self._source, sentence)
        self._before = now
