"""A proxy between the agents and the API server that loses, delays and refuses requests, by chance."""

from __future__ import annotations

import random
import threading
from collections import Counter
from pathlib import Path

from front import CUT, PASS, Front, Sent

FAIR: dict[str, float] = {}
WEATHERS: dict[str, dict[str, float]] = {
    "lossy": {"lost before": 0.15, "lost after": 0.15},
    "slow": {"slow": 0.5},
    "throttled": {"429": 0.4},
    "failing": {"503": 0.6},
    "away": {"lost before": 1.0},
}
"""Of each weather: what happens to a request, and how probable that is."""


class Weather(Front):
    """Listens from ``start`` to ``stop``. ``now`` is the weather of the moment."""

    def __init__(self, port: int, certificates: Path, chance: random.Random) -> None:
        super().__init__(port, certificates, self._strikes, self._loses)
        self.now: dict[str, float] = FAIR
        self.counted: Counter[str] = Counter()
        self._chance = chance
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._lost: set[int] = set()  # requests whose answer is lost

    def stop(self) -> None:
        self._stopping.set()
        super().stop()

    def _strikes(self, sent: Sent) -> int:
        what, slow = self._drawn()
        self._lost.discard(id(sent))  # of one of before, that got no answer
        if what == "slow":
            self._stopping.wait(slow)
        elif what == "lost before":
            return CUT
        elif what == "lost after":
            self._lost.add(id(sent))
        elif what:
            return int(what)
        return PASS

    def _loses(self, sent: Sent, status: int) -> bool:
        lost = id(sent) in self._lost
        self._lost.discard(id(sent))
        return lost

    def _drawn(self) -> tuple[str, float]:
        """What happens to this request, or nothing; and seconds, should it be slow."""
        with self._lock:
            drawn = self._chance.random()
            for what, share in self.now.items():
                if drawn < share:
                    self.counted[what] += 1
                    return what, self._chance.uniform(0.2, 4.0)
                drawn -= share
        return "", 0.0
