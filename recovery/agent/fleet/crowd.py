"""Where many nodes fail at once, each waits for another: for its turn, a slot, or a place in the queue.

A sidecar looks at the gate again after a while. In fleet mode one process looks after all of them. So after
one node has moved on, those that waited for it look at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from recovery.decide.budget import next_in_line, waits_behind
from recovery.decide.decision import Decision, FreeSlot, TakeSlot
from recovery.decide.situation import Situation
from recovery.model import Phase

NEXT = 2
"""How many at the head of the queue look at once: those that may start at the same time."""


class Crowd:
    """``hurry`` is told the node that is to look at once. Any thread may tell of a node."""

    def __init__(self, hurry: Callable[[str], None]) -> None:
        self._hurry = hurry
        self._lock = threading.Lock()
        self._behind: dict[str, None] = {}

    def tell(self, node: str, s: Situation, d: Decision) -> None:
        """``node`` has looked, and this was decided on and carried out."""
        with self._lock:
            if d.effect is None and _is_behind(s):
                self._behind[node] = None
            else:
                self._behind.pop(node, None)
        if s.gate is None or not isinstance(d.effect, TakeSlot | FreeSlot):
            return
        for other in (*next_in_line(s.gate, NEXT), *self._first_behind()):
            if other != node:
                self._hurry(other)

    def forget(self, node: str) -> None:
        """Nobody looks after ``node`` any more."""
        with self._lock:
            self._behind.pop(node, None)

    def _first_behind(self) -> list[str]:
        """Who has waited longest for a place in the queue."""
        with self._lock:
            first = next(iter(self._behind), None)
            if first is None:
                return []
            del self._behind[first]
            return [first]


def _is_behind(s: Situation) -> bool:
    """Whether the node waits, without a place in the queue."""
    if s.gate is None or s.record is None or s.record.phase is not Phase.WAITING:
        return False
    return waits_behind(s.gate, s.record.uid)
