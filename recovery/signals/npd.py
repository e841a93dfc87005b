"""node-problem-detector's page as a source of signals: read, parsed when it changed, tracked over time."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from recovery.clock import Clock
from recovery.errors import Unreadable
from recovery.model import Reading
from recovery.signals.memory import SOURCE, State
from recovery.signals.page import Page, parse
from recovery.signals.tracker import missed, observe

__all__ = ["SOURCE", "NpdSource", "Unreadable", "stale_after"]

log = logging.getLogger(__name__)

SHORTEST_STALENESS = timedelta(seconds=10)


def stale_after(poll_interval: timedelta) -> timedelta:
    """How old a page may be: three polls, at least 10 s."""
    return max(3 * poll_interval, SHORTEST_STALENESS)


class NpdSource:
    """This node's detector.

    ``read`` returns the page's bytes or raises; whatever it raises makes the source unknown, never healthy.
    ``clock`` measures a page's age, also while the process is stopped; ``now`` is the API server's time, for
    the moments in readings. ``node`` is for the log. Not for use by several threads.
    """

    name = SOURCE

    def __init__(
        self,
        read: Callable[[], bytes],
        clock: Clock,
        now: Callable[[], datetime],
        poll_interval: timedelta,
        node: str = "",
    ) -> None:
        self._read = read
        self._clock = clock
        self._now = now
        self._who = f"{node}: {SOURCE}" if node else SOURCE
        self._fresh_for = stale_after(poll_interval)
        self._state = State()
        self._digest = b""
        self._page = Page()
        self._page_at: float | None = None
        self._complaints: frozenset[str] = frozenset()

    def poll(self, boot_id: str, within: float | None = None) -> Reading:
        """Read the page, each time, and return what is known now. ``boot_id`` is the node's, "" where not
        known.

        Raises nothing that ``read`` raises. Complaints are logged when they change.
        """
        began, at = self._clock.boottime(), self._now()
        page, why = self._fetch()
        if page is not None and self._age(began) > self._fresh_for:
            page, why = None, "it was out of date before it could be looked at"
        if page is None:
            age = None if self._page_at is None else self._age(self._page_at)
            self._state, reading = missed(self._state, why, at, age, boot_id, self._fresh_for)
        else:
            self._page_at = began
            self._state, reading = observe(self._state, page, at, boot_id, self._fresh_for)
        self._log(reading, why)
        return reading

    def _fetch(self) -> tuple[Page | None, str]:
        """The page, or None and why not."""
        try:
            body = self._read()
        except Unreadable as error:
            return None, error.reason
        except Exception as error:  # a reader's bug must not stop the other sources
            why = f"{type(error).__name__}: {error}"
            if why not in self._complaints:
                log.exception("%s: reading the page failed, because of a bug", self._who)
            return None, why
        digest = hashlib.sha256(body).digest()
        if digest != self._digest:
            self._page = parse(body.decode("utf-8", errors="replace"))
            self._digest = digest
        return self._page, ""

    def _age(self, since: float) -> timedelta:
        return timedelta(seconds=self._clock.boottime() - since)

    def _log(self, reading: Reading, why: str) -> None:
        for sentence in self._state.said:
            log.warning("%s: %s", self._who, sentence)
        complaints = frozenset({*reading.unknown.values(), *([why] if why else [])})
        for sentence in sorted(complaints - self._complaints):
            log.warning("%s: %s", self._who, sentence)
        if self._complaints and not complaints:
            log.info("%s: the page is readable again", self._who)
        self._complaints = complaints
