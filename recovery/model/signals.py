"""What a source says of a node: problems, and what it knows nothing of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from recovery.model.sources import Ends
from recovery.quick import quick


class Kind(StrEnum):
    """A *level* is on or off, like a node condition. An *edge* happens and is over, like an Event."""

    LEVEL = "level"
    EDGE = "edge"


@quick
@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that one source says is wrong with a node.

    ``latched``: the source never clears it (a log rule). Only a new boot or machine does.
    ``masked``: the source's gauge shows another reason now, but this one was never cleared.
    ``counter``: the source's count of it when it was last stated anew; of an edge, the last of its ``times``
    in seconds since 1970, since counts begin anew with a process. ``life``: which run of the detector
    stated it, "" where that cannot be told. ``times``: when an edge was seen to happen. ``stated``: when it
    was last seen to be stated anew; None where it is as it was on the first page that was read. ``lasting``:
    a mark that stays as it is over a boot, with the same ``life``. ``put``: when that says that it was put
    there, or when the last line of a log was written that was there at the first look; else None.
    ``first_in``: the boot in which its source first saw that mark, "" where it cannot tell. ``device``: which
    part of the node it is about, as people read it, "" where the source does not say.
    """

    source: str
    type: str  # "" for an edge: temporary rules have no type
    reason: str
    message: str
    since: datetime
    fresh_until: datetime
    kind: Kind = Kind.LEVEL
    latched: bool = False
    masked: bool = False
    counter: float | None = None
    times: tuple[datetime, ...] = ()
    life: str = ""
    stated: datetime | None = None
    lasting: bool = False
    put: datetime | None = None
    first_in: str = ""
    device: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.source, self.type, self.reason)


@quick
@dataclass(frozen=True, slots=True)
class Reading:
    """What one source says of one node at one moment.

    ``unknown`` maps a condition type, or ``*`` for the whole source, to why nothing is known of it.
    ``cleared`` holds the (type, reason) pairs that the source cleared by its *own* rule; the reason ``*``
    stands for every one of its type. Silence never clears one, nor does a restart of the detector. ``listed``
    holds all pairs that the source can report. ``unconfirmed``: condition type -> why its good status, which
    may be from before its first check, does not count yet. ``gone`` holds pairs that the source, which never
    takes one back, does not show any more: its life may have ended. ``counters`` holds its count of each
    reason. ``silent`` maps a condition type, or ``*``, to why it has no word on it: as little is known as of
    what is unknown, but that is in order and nobody is told. ``ends`` holds what ends a fault of a pair, as
    far as the policy's own row of the source says it. ``ended`` maps a condition type that was cleared to how
    that came, where the source knows. ``early`` maps a condition type to what is wrong with it now, for too
    short a time to be stated: a fault of this boot on the record goes on by that. ``devices`` maps a pair to
    the devices that it is said of, bad or not, where the source tells them apart; the reason ``*`` as above.
    None of them: it says nothing of that. ``node``: which Node it was read from, and in which boot; "" where
    it was read from none.
    """

    source: str
    at: datetime
    problems: tuple[Problem, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)
    unknown_since: Mapping[str, datetime] = field(default_factory=dict)
    cleared: frozenset[tuple[str, str]] = frozenset()
    listed: frozenset[tuple[str, str]] = frozenset()
    gone: frozenset[tuple[str, str]] = frozenset()
    unconfirmed: Mapping[str, str] = field(default_factory=dict)
    counters: Mapping[str, float] = field(default_factory=dict)
    silent: Mapping[str, str] = field(default_factory=dict)
    ends: Mapping[tuple[str, str], Ends] = field(default_factory=dict)
    ended: Mapping[str, str] = field(default_factory=dict)
    early: Mapping[str, str] = field(default_factory=dict)
    devices: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    node: str = ""

    @property
    def readable(self) -> bool:
        """Whether the source as a whole could be read. Single types may still be unknown."""
        return "*" not in self.unknown

    def has_word_of(self, type: str) -> bool:
        """Whether anything is known of this condition type, good or bad: it is neither unknown nor silent."""
        return not {"*", type} & {*self.unknown, *self.silent}

    def took_back(self, type: str, reason: str) -> bool:
        """Whether the source cleared this pair by its own rule."""
        return (type, reason) in self.cleared or (type, "*") in self.cleared
