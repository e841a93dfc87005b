"""What the sources that go by the own Node share: the last look at it, and what may be said of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from recovery.model import NodeView, Reading

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Seen:
    """The last look at the Node, at ``at``. None: there was none yet. ``fresh_for``: how long it may be
    relied on. ``why``: why it is too old for that, "" while it is not."""

    node: NodeView | None
    at: datetime
    fresh_for: timedelta
    why: str = ""


Looks = Callable[[float | None], Seen]
"""Looks at the Node, unless the last look is no older than these seconds; None: as old as may be."""


def as_known(seen: Seen, reading: Reading) -> Reading:
    """``reading``, which was made of the last look: unknown as a whole where that is too old.

    It has no ``unknown_since``: that the API server does not answer is told by itself, and is no silence of
    those who write to the Node.
    """
    if not seen.why:
        return reading
    return replace(reading, unknown={**reading.unknown, "*": seen.why}, cleared=frozenset())


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
