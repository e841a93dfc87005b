"""What many Nodes have alike is in memory once: of tens of thousands, only what is each one's own is kept."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import _lru_cache_wrapper, lru_cache
from itertools import chain, islice
from sys import byteorder, intern
from typing import Any, SupportsIndex, TypeVar, overload

from msgspec import msgpack

from recovery.model import Condition, NodeView

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
NEVER = -(2**63)
UNWRITTEN = 2**32 - 1  # a moment in 2106
SHORT = b"\xd6\xff"
BYTES = range(3, -1, -1) if byteorder == "little" else range(4)
"""Where the bytes of a number that is written with the highest first are in memory."""
SHAPES, LONGEST = 1024, 4096
"""So many of a kind are remembered, of at most so many characters each: strangers write to Nodes. Others are
as good, and take more memory."""
UNREAD = frozenset({"csi.volume.kubernetes.io/nodeid"})
"""Annotations that nothing here reads, and that each Node has its own value of: CSI drivers' names of it."""
Made = TypeVar("Made")
Value = TypeVar("Value")
Said = tuple[str, str, str, str]
"""Type, status, reason and message of a condition: all but its times."""


class Texts(Mapping[str, str]):
    """Labels or annotations. The keys are shared with all Nodes that have the same ones in the same order."""

    __slots__ = ("_at", "_values")

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._at = _once(_places, tuple(texts), texts)
        self._values = tuple(map(intern, texts.values()))

    def __getitem__(self, key: str) -> str:
        return self._values[self._at[key]]

    def __contains__(self, key: object) -> bool:
        return key in self._at

    @overload
    def get(self, key: str, /) -> str | None: ...
    @overload
    def get(self, key: str, default: Value, /) -> str | Value: ...
    def get(self, key: str, default: Any = None, /) -> Any:
        """Most keys that are asked for are not there: no error is raised and caught for each."""
        at = self._at.get(key)
        return default if at is None else self._values[at]

    def __iter__(self) -> Iterator[str]:
        return iter(self._at)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(dict(self))


@dataclass(frozen=True, slots=True, eq=False)
class Statements:
    """What the conditions of a Node say, without their times. Most Nodes of a fleet say the same.

    ``by_type``: type -> (status, reason). It is shared: nobody changes it.
    """

    each: tuple[Said, ...]
    by_type: Mapping[str, tuple[str, str]]


class Conditions(Sequence[Condition]):
    """Conditions as they were written, each made when it is asked for. Often only the times differ."""

    __slots__ = ("_said", "_times")

    def __init__(self, said: Statements, times: Sequence[datetime | None]) -> None:
        """``times``: of each condition its heartbeat and its transition."""
        self._said = said
        # Of 50,000 Nodes they are more than a million: as datetimes they took most of the memory.
        self._times = _packed(times)

    @overload
    def __getitem__(self, at: SupportsIndex) -> Condition: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Condition]: ...
    def __getitem__(self, at: SupportsIndex | slice) -> Condition | Sequence[Condition]:
        return tuple(self)[at]

    def heartbeat(self, type_: str) -> datetime | None:
        """When the condition of this type was last renewed. Asked at each event of the watch."""
        found = (at for at, said in enumerate(self._said.each) if said[0] == type_)
        at = next(found, None)
        return None if at is None else next(islice(self._moments(), 2 * at, None))

    def says_the_same(self, other: object) -> bool:
        """Whether ``other`` has the same conditions, at whatever times."""
        return isinstance(other, Conditions) and other._said is self._said

    def heartbeats(self) -> list[int] | None:
        """When each was last renewed, as numbers to be compared; None where they are no whole seconds."""
        whole = len(self._times) == 8 * len(self._said.each)
        return memoryview(self._times).cast("I")[::2].tolist() if whole else None

    def _moments(self) -> Iterator[datetime | None]:
        return _unpacked(self._times, 2 * len(self._said.each))

    def __iter__(self) -> Iterator[Condition]:
        times = self._moments()
        for said in self._said.each:
            yield Condition(*said, heartbeat=next(times), transition=next(times))

    def __len__(self) -> int:
        return len(self._said.each)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # as a NodeView has none

    def __repr__(self) -> str:
        return repr(tuple(self))


def turned_back(was: NodeView, now: NodeView) -> bool:
    """Whether ``now`` is from an earlier moment than ``was``, which was seen before: a condition of the same
    machine was renewed earlier. Asked at each event of the watch, of which most change no more than times.

    No writer takes a heartbeat back, unless its clock was set back. So etcd was restored. What stands on the
    Node may have been taken back since, and its writer does not know: it says so once it renews it.
    """
    if was.provider_id != now.provider_id or was.stated is now.stated:
        return False
    if isinstance(now.stated, Conditions) and now.stated.says_the_same(was.stated):
        assert isinstance(was.stated, Conditions)
        before, later = was.stated.heartbeats(), now.stated.heartbeats()
        if before is not None and later is not None:
            return any(at < then != UNWRITTEN for then, at in zip(before, later, strict=True))
    renewed = {c.type: c.heartbeat for c in was.stated}
    return any(c.heartbeat and (then := renewed.get(c.type)) and c.heartbeat < then for c in now.stated)


def _packed(times: Sequence[datetime | None]) -> bytes:
    """Whole seconds, which is how Kubernetes writes them, in four bytes each; others in eight.

    ``msgspec`` says all of them at once: the shortest of MessagePack's timestamps are two bytes that say so,
    and those four, the highest first. To ask each datetime took a third of what is made of a Node.
    """
    how_many = len(times)
    stamps = msgpack.encode(times)[-6 * how_many :]
    if stamps[::6] == SHORT[:1] * how_many and stamps[1::6] == SHORT[1:] * how_many:
        packed = bytearray(4 * how_many)
        for at, byte in enumerate(BYTES):
            packed[byte::4] = stamps[2 + at :: 6]
        return bytes(packed)
    return _packed_one_by_one(times)


def _packed_one_by_one(times: Sequence[datetime | None]) -> bytes:
    """The same, where one was not written, is before 1970, or has a fraction."""
    stamps = [UNWRITTEN if at is None else at.timestamp() for at in times]
    seconds = list(map(int, stamps))
    if seconds == stamps:
        with suppress(OverflowError):  # Go's zero time, which is the year 1
            return array("I", seconds).tobytes()
    return array("q", map(_number, times)).tobytes()


def _unpacked(packed: bytes, how_many: int) -> Iterator[datetime | None]:
    if len(packed) == 4 * how_many:
        return map(_second, memoryview(packed).cast("I"))
    return map(_moment, memoryview(packed).cast("q"))


@lru_cache(SHAPES)  # many Nodes were heard in the same second, and it is kept of each
def _second(number: int) -> datetime | None:
    return None if number == UNWRITTEN else datetime.fromtimestamp(number, UTC)


def _number(at: datetime | None) -> int:
    return NEVER if at is None else (at - EPOCH) // MICROSECOND


def _moment(number: int) -> datetime | None:
    return None if number == NEVER else EPOCH + number * MICROSECOND


def annotated(texts: Mapping[str, str]) -> Texts:
    """Annotations of a Node, but for those of ``UNREAD``. What is left, most Nodes have alike: it is shared,
    and nobody changes it."""
    read = tuple([(key, text) for key, text in texts.items() if key not in UNREAD])
    return _once(_texts, read, chain.from_iterable(read))


def said(conditions: Sequence[Said]) -> Statements:
    """What these conditions say."""
    return _once(_statements, tuple(conditions), chain.from_iterable(conditions))


def facts(named: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """Facts by name. They are shared: nobody changes them."""
    return _once(_facts, named, chain.from_iterable(named))


def devices(counted: tuple[tuple[str, str, str], ...]) -> Mapping[str, tuple[int, int]]:
    """Resource -> capacity and allocatable, of those that are whole numbers. It is shared, too."""
    return _once(_devices, counted, chain.from_iterable(counted))


def _once(made: _lru_cache_wrapper[Made], of: Hashable, texts: Iterable[str]) -> Made:
    """What is made of ``of``, from memory unless the ``texts`` in it are too long for that."""
    return made(of) if sum(map(len, texts)) <= LONGEST else made.__wrapped__(of)


@lru_cache(SHAPES)
def _same(value: Any) -> Any:
    return value


@lru_cache(SHAPES)
def _places(keys: tuple[str, ...]) -> dict[str, int]:
    return {intern(key): at for at, key in enumerate(keys)}


@lru_cache(SHAPES)
def _texts(named: tuple[tuple[str, str], ...]) -> Texts:
    return Texts(dict(named))


@lru_cache(SHAPES)
def _statements(conditions: tuple[Said, ...]) -> Statements:
    each = tuple([_once(_same, one, one) for one in conditions])
    triples = tuple([said[:3] for said in each])
    return Statements(each, _once(_by_type, triples, chain.from_iterable(triples)))


@lru_cache(SHAPES)
def _by_type(conditions: tuple[tuple[str, str, str], ...]) -> Mapping[str, tuple[str, str]]:
    return {intern(kind): (status, reason) for kind, status, reason in conditions}


@lru_cache(SHAPES)
def _devices(counted: tuple[tuple[str, str, str], ...]) -> Mapping[str, tuple[int, int]]:
    whole = [x for x in counted if x[1].isdecimal()]
    return {
        intern(name): (int(there), int(given) if given.isdecimal() else 0) for name, there, given in whole
    }


@lru_cache(SHAPES)
def _facts(named: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return dict(named)
