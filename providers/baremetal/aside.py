"""Looks at BMCs, beside whoever asks for them: one that does not answer keeps no other machine waiting.

One thread looks after many machines. The BMCs of a rack that has lost its power, or its network, take seconds
each until they are known not to answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from datetime import timedelta
from typing import Any

from recovery.clock import Clock
from recovery.errors import Retry

GOOD_FOR = 5.0
"""Seconds for which an answer that came too late for who asked is good: power changes within seconds. An
older one only shows that its BMC answers."""
LATELY = 600.0
"""Seconds for which a BMC that gave an answer is waited for. A whole rack may have gone dark since."""
AGAIN = timedelta(seconds=2)


class Aside:
    """One look at a time for each question about a machine. ``patience``: seconds that are waited for a BMC
    that gave no answer last time, or has given none lately; ``longest``: for one that has.

    One thread may ask.
    """

    def __init__(self, clock: Clock, patience: float, longest: float) -> None:
        self._clock, self._patience, self._longest = clock, patience, longest
        self._looks: dict[tuple[str, Hashable], _Look] = {}
        self._answered: dict[str, float] = {}  # machine -> when its BMC answered, if it did at the last look

    def ask(self, machine: str, question: Hashable, who: str, look: Callable[[], Any]) -> Any:
        """What ``look`` returns, or raises. Raises ``Retry`` while it is under way. ``who`` is asked."""
        key = (machine, question)
        under_way = self._looks.get(key)
        if under_way is not None and under_way.is_old(self._clock.monotonic()):
            self._note(machine, under_way)  # who is asked once in minutes would else never be waited for
            under_way = None
        if under_way is None:
            under_way = self._looks[key] = _Look(self._clock, look)
        if not under_way.done.wait(self._longest if self._answers(machine) else self._patience):
            self._answered.pop(machine, None)
            raise Retry(f"{who} was asked, and has not answered yet", AGAIN)
        del self._looks[key]
        self._note(machine, under_way)
        if under_way.error is not None:
            raise under_way.error
        return under_way.found

    def _note(self, machine: str, ended: _Look) -> None:
        """Whether, and when, its BMC gave an answer at its last look."""
        self._answered.pop(machine, None)
        if not isinstance(ended.error, Retry):
            self._answered[machine] = ended.came

    def _answers(self, machine: str) -> bool:
        at = self._answered.get(machine)
        return at is not None and self._clock.monotonic() - at <= LATELY

    def forget(self, machine: str) -> None:
        """What was begun before is not what is there now."""
        for key in [key for key in self._looks if key[0] == machine]:
            del self._looks[key]


class _Look:
    """A look in a thread of its own, which ends by itself: each request is bounded in time."""

    def __init__(self, clock: Clock, look: Callable[[], Any]) -> None:
        self._clock, self._look = clock, look
        self.done = threading.Event()
        self.found: Any = None
        self.error: Exception | None = None
        self.came = 0.0
        threading.Thread(target=self._run, name="look at a BMC", daemon=True).start()

    def is_old(self, now: float) -> bool:
        return self.done.is_set() and now - self.came > GOOD_FOR

    def _run(self) -> None:
        try:
            self.found = self._look()
        except Exception as error:
            self.error = error
        self.came = self._clock.monotonic()
        self.done.set()
