"""What the sources that go by the own Node share: the last look at it, and what may be said of it."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from recovery.model import NodeView, Reading
from recovery.quick import quick, replace
from recovery.short import without_uuid

log = logging.getLogger(__name__)

EVIDENCE = 256
"""The most characters that are kept of what another program wrote."""
LONGEST_DEVICES = 160


def devices(names: Iterable[str]) -> str:
    """The devices that one fault is about. One has its whole name, several have theirs without the UUID."""
    told = sorted({name for name in names if name})
    if len(told) > 1:
        told = sorted({without_uuid(name) for name in told})
    return ", ".join(told)[:LONGEST_DEVICES]


@quick
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


def read_from(node: NodeView) -> str:
    """Which Node, in which boot: what ``Reading.node`` holds."""
    return f"{node.uid}/{node.boot_id}"


class Complaints:
    """Logs what a source does not know, once for each change."""

    def __init__(self) -> None:
        self._before: frozenset[str] = frozenset()

    def of(self, who: str, reading: Reading, but: str = "") -> None:
        """``but``: a sentence that is told by itself."""
        unknown = frozenset(reading.unknown.values()) - {but}
        for sentence in sorted(unknown - self._before):
            log.warning("%s: %s", who, sentence)
        self._before = unknown


class OwnNodeSource(ABC):
    """A source that goes by the own Node: it reads each new look at it once."""

    def __init__(self, name: str, look: Looks) -> None:
        self.name = name
        self._look = look
        self._node: NodeView | None = None
        self._reading: Reading | None = None
        self._complaints = Complaints()

    def poll(self, boot_id: str, within: float | None = None) -> Reading:
        """What is known now, by a look at the Node no older than ``within`` seconds."""
        seen = self._look(within)
        if seen.node is not None and seen.node is not self._node:
            self._node = seen.node
            # A look that is behind is at the boot before, or at another machine of this name.
            reading = self._read(seen, seen.node, seen.node.boot_id or boot_id)
            self._reading = replace(reading, node=read_from(seen.node))
        reading = as_known(seen, self._reading or Reading(self.name, seen.at))
        who = f"{self._node.name}: {self.name}" if self._node is not None else self.name
        self._complaints.of(who, reading)
        return reading

    def _last_of(self, node: NodeView) -> Reading | None:
        """What the last look has shown, if it was at this Node object, and not at another of its name."""
        last = self._reading
        return last if last is not None and last.node.startswith(f"{node.uid}/") else None

    @abstractmethod
    def _read(self, seen: Seen, node: NodeView, boot_id: str) -> Reading:
        """What ``node`` says. ``boot_id``: "" where it is not known."""
