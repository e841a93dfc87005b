"""Which faults did sources take back and then state again?

A closed record forgets a fault that its source took back, so that the next one is a new fault. While the API
server is away that cannot be written down. So this process remembers it: else a fault that came back
meanwhile would pass for the one that was dealt with.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from recovery.decide.acknowledged import yet_to_learn
from recovery.decide.devices import names_one_device
from recovery.decide.remembered import Key
from recovery.decide.situation import Situation
from recovery.model import Kind, Problem, Reading

EVERY = "*"


class Restated:
    """When this process saw each fault stated again that its source had taken back, in one boot."""

    def __init__(self) -> None:
        self._back: set[Key] = set()
        self._devices: dict[Key, frozenset[str]] = {}
        self._shown: set[Key] = set()
        self._at: Mapping[Key, datetime] = {}

    def hear(self, readings: tuple[Reading, ...], now: datetime) -> None:
        """Note what ``readings``, which were made ``now``, take back and state again."""
        for r in readings:
            back = {(r.source, type_, reason) for type_, reason in r.cleared}
            self._back |= back
            self._devices |= {(r.source, *pair): r.devices[pair] for pair in r.cleared & r.devices.keys()}
            self._shown = {key for key in self._shown if not _among(key, back)}
            shown = {p.key for p in r.problems if p.kind is Kind.LEVEL}
            unheard = {p.key for p in r.problems if self._was_unheard(p)}
            new = {key for key in shown - self._shown - unheard if _among(key, self._back)}
            self._at = {**self._at, **dict.fromkeys(new, now)} if new else self._at
            self._shown |= shown

    def _was_unheard(self, p: Problem) -> bool:
        """Whether ``p`` is about a device of which nothing was said when it was taken back for other
        devices."""
        there = self._devices.get(p.key)
        return there is not None and names_one_device(p.device) and p.device not in there

    def untold(self, s: Situation) -> Mapping[Key, datetime]:
        """What the record of ``s`` has yet to learn. The rest is forgotten."""
        self._at = yet_to_learn(self._at, s)
        return self._at


def _among(key: Key, back: set[Key]) -> bool:
    return key in back or (*key[:2], EVERY) in back
