"""The Node's conditions as a source of signals. Pure but for the look at the Node.

A condition stays on its Node when its writer dies, is removed, or has not started yet after a boot. So one
counts only while its writer renews it, and in the boot that it was written in. Of those that are good and old
nothing is said: many a Node has some that nobody writes any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from recovery.catalog import polarity
from recovery.decide.boot import APART
from recovery.decide.drill import ends, is_drill
from recovery.model import Condition, ConditionRow, NodeView, Polarity, Problem, Reading
from recovery.quick import quick, replace
from recovery.signals import eks, nvsentinel
from recovery.signals.nvsentinel import Found
from recovery.signals.own_node import EVIDENCE, Looks, OwnNodeSource, Seen

SOURCE = "conditions"
Pair = tuple[str, str]
Rows = Mapping[str, tuple[Condition, Polarity]]
"""The conditions that are known, by type, each with what it says."""
RENEWED = timedelta(minutes=15)
"""What was not renewed for so long says nothing. node-problem-detector and EKS's agent renew every 5 min."""
TWICE = timedelta(seconds=60)
"""A good condition is looked at twice, so far apart, before it takes a fault back."""
MOST_HELD = 32
"""Faults of one type that are held at a time: what it says now, and what it said first. Whoever may write a
Node's status could name thousands, and each is a metric that is looked at in each cycle."""


@quick
@dataclass(frozen=True, slots=True)
class State:
    """What must be remembered between two looks at the Node, of one boot.

    ``before``: the conditions as they were when the last boot ended, where this process saw that. ``first``:
    the condition of each type as it is now, and when it was first seen so. ``heard``: the heartbeat of each,
    and when that was first seen: by a clock that is ahead it is yet to come. ``good``: since when each has
    been seen good.
    """

    boot_id: str = ""
    held: Mapping[Pair, Problem] = field(default_factory=dict)
    before: Mapping[str, Condition] = field(default_factory=dict)
    first: Mapping[str, tuple[Condition, datetime]] = field(default_factory=dict)
    heard: Mapping[str, tuple[datetime | None, datetime]] = field(default_factory=dict)
    good: Mapping[str, datetime] = field(default_factory=dict)
    unknown_since: Mapping[str, datetime] = field(default_factory=dict)


@quick
@dataclass(frozen=True, slots=True)
class Look:
    """One look at the Node. ``at``: the API server's time. ``boot_id``: "" where it is not known.

    ``boot_began``: when this boot began, by the node's own clock, or etcd was restored in it; None where that
    cannot be told.
    """

    at: datetime
    conditions: Sequence[Condition]
    boot_id: str
    boot_began: datetime | None
    fresh_for: timedelta


@dataclass(frozen=True, slots=True)
class _Words:
    """What the conditions say at one look. ``bad``: the faults. ``good``: since when each type was seen good.
    ``unknown``: why nothing is known of a type. ``unsure``: why a good status may be old."""

    bad: dict[Pair, Problem] = field(default_factory=dict)
    good: dict[str, datetime] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    unsure: dict[str, str] = field(default_factory=dict)


def observe(state: State, look: Look, known: Callable[[str], Polarity | None]) -> tuple[State, Reading]:
    """What the Node's conditions say now. ``known``: what a condition of this type says, None for nothing."""
    state = _booted(state, look.boot_id)
    there = (c for c in look.conditions if not _drill_is_over(c, look.at))
    rows = {c.type: (c, row) for c in there if (row := known(c.type)) is not None}
    state = replace(
        state,
        first={t: _first(state, c, look.at) for t, (c, _) in rows.items()},
        heard={t: _heard(state, c, look.at) for t, (c, _) in rows.items()},
    )
    words = _words(state, rows, look)
    shown = {(t, x.reason) for t, (c, row) in rows.items() if c.status == row.bad for x in _stated(c)}
    held = _bounded({**state.held, **words.bad}, shown)
    drills = {pair for pair, p in held.items() if is_drill(p.message) and pair not in shown}
    held = {pair: p for pair, p in held.items() if pair not in drills}
    back, unsure = _taken_back(rows, words, look)
    faulty = {type_ for type_, _ in held}
    unknown = {
        **words.unknown,
        **{t: f"{t} is no longer on the Node" for t in sorted(faulty - rows.keys())},
        **{t: why for t, why in unsure.items() if t in faulty},
    }
    held = {pair: p for pair, p in held.items() if pair[0] not in back}
    held = {pair: _as_shown(pair, p, shown, unknown, look) for pair, p in held.items()}
    since = {t: state.unknown_since.get(t, look.at) for t in unknown}
    reading = Reading(
        source=SOURCE,
        at=look.at,
        problems=tuple(p for _, p in sorted(held.items())),
        unknown=unknown,
        unknown_since=since,
        cleared=frozenset((t, "*") for t in back) | drills,
        listed=frozenset({*held, *((t, "") for t in rows)}),
        gone=frozenset(pair for pair, p in held.items() if p.latched and pair[0] in words.good),
        unconfirmed=unsure,
    )
    return replace(state, held=held, good=words.good, unknown_since=since), reading


def _bounded(held: dict[Pair, Problem], shown: set[Pair]) -> dict[Pair, Problem]:
    if len(held) <= MOST_HELD:
        return held
    kept: dict[Pair, Problem] = {}
    count = Counter[str]()
    for pair, p in sorted(held.items(), key=lambda item: (item[0] not in shown, item[1].since)):
        count[pair[0]] += 1
        if count[pair[0]] <= MOST_HELD:
            kept[pair] = p
    return kept


def _words(state: State, rows: Rows, look: Look) -> _Words:
    """What each condition says by itself."""
    words = _Words()
    # What was unknown, or bad, stays unknown when its writer ends.
    doubted = {*state.unknown_since, *(type_ for type_, _ in state.held)}
    for type_, (c, row) in sorted(rows.items()):
        why = _says_nothing(state, c, look)
        if c.status == row.bad and not why:
            words.bad.update({(type_, x.reason): _problem(state, c, x, row, look) for x in _stated(c)})
        elif c.status == row.bad or (c.status == "Unknown" and (not why or type_ in doubted)):
            words.unknown[type_] = why or f"{type_} is Unknown: {_reason(c)}"
        elif c.status == "Unknown":
            continue
        elif not why:
            words.good[type_] = state.good.get(type_, look.at)
        elif row.takes_back:
            words.unsure[type_] = why
    return words


def _taken_back(rows: Rows, words: _Words, look: Look) -> tuple[set[str], Mapping[str, str]]:
    """The types whose good status takes their faults back; and those whose good status does not count yet,
    and why."""
    may = {t for t in words.good if rows[t][1].takes_back}
    back = {t for t in may if _confirmed(rows[t][0], words.good[t], look.at)}
    counts = "is good now, which counts once it is renewed and seen again"
    return back, {**words.unsure, **{t: f"{t} {counts}" for t in sorted(may - back)}}


def _drill_is_over(c: Condition, at: datetime) -> bool:
    """Nobody has to take a drill off at its end: from then on it is as if it were not there."""
    end = ends(c.message)
    return end is not None and at >= end


def _booted(state: State, boot_id: str) -> State:
    """Another boot forgets everything, but how the conditions were: unchanged, they are not of this boot."""
    if not boot_id or boot_id == state.boot_id:
        return state
    if not state.boot_id:
        return replace(state, boot_id=boot_id)
    return State(boot_id=boot_id, before={t: c for t, (c, _) in state.first.items()})


def _first(state: State, c: Condition, at: datetime) -> tuple[Condition, datetime]:
    old, since = state.first.get(c.type, (None, at))
    same = old is not None and (old.status, old.reason, old.transition) == (c.status, c.reason, c.transition)
    return c, since if same else at


def _heard(state: State, c: Condition, at: datetime) -> tuple[datetime | None, datetime]:
    heartbeat, since = state.heard.get(c.type, (None, at))
    return c.heartbeat, since if heartbeat == c.heartbeat else at


def _says_nothing(state: State, c: Condition, look: Look) -> str:
    """Why ``c`` does not count, "" if it does."""
    if state.before.get(c.type) == c or _written_before(c, look):
        earlier = "from before this boot, or before etcd was restored"
        return f"{c.type} is {c.status} {earlier}, and was not renewed since"
    renewed = min(c.heartbeat, state.heard[c.type][1]) if c.heartbeat else state.first[c.type][1]
    if look.at - renewed > RENEWED:
        return f"{c.type} is {c.status}, but was last renewed at {renewed:%Y-%m-%d %H:%M:%SZ}"
    return ""


def _written_before(c: Condition, look: Look) -> bool:
    moments = [at for at in (c.heartbeat, c.transition) if at is not None]
    if _renewed_since_its_clock_was_set(c, look.at):
        moments.pop()
    return look.boot_began is not None and bool(moments) and max(moments) < look.boot_began


def _renewed_since_its_clock_was_set(c: Condition, at: datetime) -> bool:
    """Whether ``c`` changed while the node's clock was ahead, and was renewed since the clock was set back.
    Its transition is then in the future, so only its heartbeat says when it was written."""
    if c.heartbeat is None or c.transition is None:
        return False
    return c.heartbeat - at <= APART < c.transition - at


def _confirmed(c: Condition, good_since: datetime, at: datetime) -> bool:
    """Whether a good status comes from a check. A detector that starts writes a good status before its first
    check. So it has to be renewed, and seen again."""
    renewed = c.heartbeat is None or c.transition is None or c.heartbeat > c.transition
    return (renewed or _renewed_since_its_clock_was_set(c, at)) and at - good_since >= TWICE


def _reason(c: Condition) -> str:
    return c.reason or c.type


def _stated(c: Condition) -> tuple[Found, ...]:
    """The faults that a bad condition states: one, but with NVSentinel and with EKS's agent."""
    return nvsentinel.found(c) or eks.found(c) or (Found(_reason(c), c.message),)


def _problem(state: State, c: Condition, stated: Found, row: Polarity, look: Look) -> Problem:
    old = state.held.get((c.type, stated.reason))
    life = c.transition.isoformat() if c.transition else ""
    anew = old is not None and old.life != life
    said = f": {stated.said[:EVIDENCE]}" if stated.said else ""
    message = f"the Node's condition {c.type} is {c.status}{said}"
    return Problem(
        source=SOURCE,
        type=c.type,
        reason=stated.reason,
        message=message,
        since=old.since if old else look.at,
        fresh_until=look.at + look.fresh_for,
        latched=not row.takes_back and not is_drill(message),
        life=life,
        stated=look.at if anew else old.stated if old else c.transition,
        device=stated.device,
    )


def _as_shown(pair: Pair, p: Problem, shown: set[Pair], unknown: Mapping[str, str], look: Look) -> Problem:
    """A fault as this look shows it. One that nothing takes back is as fresh as the look that does not."""
    if pair in shown:
        return replace(p, masked=False)
    masked = any(t == pair[0] for t, _ in shown)
    fresh = p.latched and pair[0] not in unknown
    return replace(p, masked=masked, fresh_until=look.at + look.fresh_for if fresh else p.fresh_until)


class ConditionsSource(OwnNodeSource):
    """This Node's conditions. ``boot_began``: see ``Look``, for a boot ID. ``rows``: the policy's own.
    ``named``: the types that its rules name."""

    def __init__(
        self,
        look: Looks,
        boot_began: Callable[[str], datetime | None] = lambda _: None,
        rows: Iterable[ConditionRow] = (),
        named: Iterable[str] = (),
    ) -> None:
        super().__init__(SOURCE, look)
        self._boot_began = boot_began
        self._rows = tuple(rows)
        self._named = frozenset(named)
        self._state = State()

    def _read(self, seen: Seen, node: NodeView, boot_id: str) -> Reading:
        look = Look(seen.at, node.stated, boot_id, self._boot_began(boot_id), seen.fresh_for)
        self._state, reading = observe(self._state, look, self._polarity)
        return reading

    def _polarity(self, type_: str) -> Polarity | None:
        return polarity(type_, self._rows, self._named)
