"""Is something gone, when a cloud's answer lacks it? For every provider the same question.

One answer may be older than what it is about. So it is gone once all answers of a minute have lacked it.
"""

from __future__ import annotations

from collections.abc import Hashable

from recovery.clock import Clock

SURE = 60.0
"""For how many seconds all answers have to lack something before that counts."""
LATELY = 3600.0
"""Seconds for which it is remembered of something that nobody asks for any more."""


class Lacking:
    """What the answers to one process have lacked. Not for use by several threads at once.

    ``lately``: where it is asked for more often than that, a longer pause is one in which nothing was known.
    """

    def __init__(self, clock: Clock, lately: float = LATELY) -> None:
        self._clock = clock
        self._lately = lately
        self._lacked: dict[Hashable, tuple[float, float]] = {}  # since when, and when it was asked for last

    def surely(self, what: Hashable, *, lacks: bool) -> bool:
        """Whether each answer of a minute has lacked ``what``, as this one does (``lacks``)."""
        now = self._clock.monotonic()
        self._lacked = {key: x for key, x in self._lacked.items() if now - x[1] <= self._lately}
        if not lacks:
            self._lacked.pop(what, None)
            return False
        since, _ = self._lacked.get(what, (now, now))
        self._lacked[what] = (since, now)
        return now - since >= SURE
