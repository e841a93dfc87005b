"""Marks that other systems' checks leave on the Node: labels, annotations and taints, as sources of signals.

A mark stays until somebody takes it off, over boots and restarts. So a mark that goes away proves nothing,
and one that is still there after a boot states nothing new (``Problem.lasting``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from recovery.decide.boot import APART
from recovery.model import NodeView, Problem, Reading
from recovery.quick import replace
from recovery.signals.own_node import EVIDENCE, Looks, OwnNodeSource, Seen
from recovery.units import parse_moment

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Mark:
    """One fault that a mark states. ``identity``: all that makes it this mark and no other; hashed. ``put``:
    see ``Problem``. ``beside``: what else was put there for the same fault. Where one comes, the fault is
    stated anew; where one goes, nothing is: somebody takes off one mark after the other."""

    type: str
    reason: str
    evidence: str
    identity: str
    put: datetime | None = None
    beside: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Said:
    """What all marks of one system say. ``unknown``: condition type -> why nothing is known of it.

    ``passed``: (type, reason) of what the system itself says is over; the reason ``*`` stands for all of the
    type.
    """

    marks: tuple[Mark, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)
    passed: frozenset[tuple[str, str]] = frozenset()


def added_at(moments: Iterable[str]) -> datetime | None:
    """The last of the taints' ``timeAdded``; None where one of them says none. kubectl writes none."""
    try:
        return max(map(parse_moment, moments), default=None)
    except ValueError:
        return None


class MarksSource(OwnNodeSource):
    """The marks of one system, which ``read`` finds on a Node.

    ``stands_since``: when the boot with this ID began, or etcd was restored in it. What was put there before
    that may be over. None where it is not known. ``put_since``: when somebody has seen a mark being put there
    in this boot, before this source first looked.
    """

    def __init__(
        self,
        name: str,
        look: Looks,
        read: Callable[[NodeView], Said],
        stands_since: Callable[[str], datetime | None] = lambda _: None,
        put_since: Callable[[], datetime | None] = lambda: None,
    ) -> None:
        super().__init__(name, look)
        self._said_by = read
        self._stands_since = stands_since
        self._put_since = put_since
        self._boot_id = ""
        self._beside: Mapping[Pair, frozenset[tuple[str, str]]] = {}

    def _read(self, seen: Seen, node: NodeView, boot_id: str) -> Reading:
        earlier, was = self._last_of(node), self._boot_id
        self._boot_id = boot_id
        before = self._reading if boot_id == was else None
        said = self._said_by(node)
        reading = observed(self.name, before, said, seen, self._stands_since(boot_id))
        anew = self._stated_by_more(said)
        known = {(p.key, p.life): p for p in earlier.problems} if earlier is not None else {}
        marks = (_as_first_seen(p, known.get((p.key, p.life)), boot_id, was) for p in reading.problems)
        if before is not None:
            marks = (replace(p, stated=seen.at) if (p.type, p.reason) in anew else p for p in marks)
        elif earlier is None and (put := self._put_since()) is not None:
            marks = (replace(p, stated=put) for p in marks)
        return replace(reading, problems=tuple(marks))

    def _stated_by_more(self, said: Said) -> frozenset[Pair]:
        """The faults for which more was put there since the last look."""
        was, self._beside = self._beside, {(m.type, m.reason): m.beside for m in said.marks}
        return frozenset(pair for pair, now in self._beside.items() if now - was.get(pair, frozenset()))


def _as_first_seen(p: Problem, old: Problem | None, boot_id: str, was: str) -> Problem:
    """``p``, with the boot in which it was first seen. ``old``: the same mark at the last look, in boot
    ``was``.

    A mark that was first seen moments before a new boot, and does not say that it is older, may belong to the
    new boot: the Node names its boot a little late.
    """
    if old is None:
        return replace(p, first_in=boot_id)
    seen = old.stated or old.since
    late = old.first_in == was != boot_id and p.since - min(seen, p.put or seen) < APART
    return replace(p, first_in=boot_id if late else old.first_in)


def observed(
    source: str, before: Reading | None, said: Said, seen: Seen, stands_since: datetime | None = None
) -> Reading:
    """``said`` as a reading. ``before``: the reading of the last look in this boot.

    Its faults are still there unless the system says that they are over: a mark that is gone says nothing. A
    mark that is there again, but was put there before ``stands_since``, states nothing anew: it came back
    when etcd was restored.
    """
    fresh_until = seen.at + seen.fresh_for
    held = {(p.type, p.reason): p for p in (before.problems if before else ())}
    shown = {}
    for mark in said.marks:
        pair, life = (mark.type, mark.reason), hashlib.sha256(mark.identity.encode()).hexdigest()[:16]
        old = held.get(pair)
        anew = before is not None and (old is None or old.life != life or pair in before.gone)
        put_back = mark.put is not None and stands_since is not None and mark.put < stands_since - APART
        shown[pair] = Problem(
            source=source,
            type=mark.type,
            reason=mark.reason,
            message=mark.evidence[:EVIDENCE],
            since=old.since if old else seen.at,
            fresh_until=fresh_until,
            latched=True,
            life=life,
            stated=seen.at if anew and not put_back else old.stated if old else None,
            lasting=True,
            put=mark.put,
        )
    problems = {**held, **shown}
    there = [p for (t, r), p in sorted(problems.items()) if not {(t, r), (t, "*")} & said.passed]
    since = before.unknown_since if before else {}
    return Reading(
        source=source,
        at=seen.at,
        problems=tuple(there),
        unknown=said.unknown,
        unknown_since={t: since.get(t, seen.at) for t in said.unknown},
        cleared=said.passed,
        listed=frozenset(problems),
        gone=frozenset((p.type, p.reason) for p in there if (p.type, p.reason) not in shown),
    )
