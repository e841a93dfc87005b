"""What a Prometheus server knows of one node, as a source of signals. Pure but for the question to the
poller.

A value that is bad is a fault from the first time on. A good one takes it back after it was scraped twice, 30
s apart. What is not there, too old, of the boot before, or no number is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from recovery.model import Ends, Latch, MetricRow, Problem, Reading
from recovery.quick import replace
from recovery.signals.detectors import detectors, plugins
from recovery.signals.own_node import EVIDENCE, Complaints, devices
from recovery.signals.prometheus_answer import LOOKBACK, Stated, time_of
from recovery.signals.prometheus_answer import State as Is
from recovery.units import hour

SOURCE = "prometheus"
FRESH_FOR = timedelta(seconds=60)
"""An answer may be relied on for so long: four rounds of the poller."""
TWICE = timedelta(seconds=30)
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class RowWord:
    """How one row was answered last. ``at``: when it was asked, None: it was never answered. ``why``: why
    nothing is known by it since ``since``; "" while something is."""

    row: MetricRow
    at: datetime | None = None
    why: str = ""
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """What is known of one node ``at`` this moment. ``boot_id``: "" where it is not known. ``boot_began``: no
    sample from before it counts; None: it is not known. ``why``: why nothing of all this counts now."""

    at: datetime
    rows: Sequence[RowWord]
    stated: Sequence[Stated]
    boot_id: str = ""
    boot_began: datetime | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class State:
    """What must be remembered between two looks, of one boot. ``good``: since which sample each pair is
    good. ``over``: those of them whose fault a good value has ended."""

    boot_id: str = ""
    held: Mapping[Pair, Problem] = field(default_factory=dict)
    good: Mapping[Pair, datetime] = field(default_factory=dict)
    over: frozenset[Pair] = frozenset()
    unknown_since: Mapping[str, datetime] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Words:
    """What the series say at one look. ``bad``: the faults. ``good``: since which sample each pair is good.
    ``back``: those of them whose fault is over. ``unknown``: why nothing is known of a type. ``owed``: why a
    series that was bad in the boot before says nothing in this one."""

    bad: dict[Pair, Problem] = field(default_factory=dict)
    good: dict[Pair, datetime] = field(default_factory=dict)
    back: set[Pair] = field(default_factory=set)
    unknown: dict[str, str] = field(default_factory=dict)
    owed: list[str] = field(default_factory=list)


def observe(state: State, look: Look) -> tuple[State, Reading]:
    """What the server's answers say now."""
    if look.boot_id and look.boot_id != state.boot_id:
        state = State(boot_id=look.boot_id) if state.boot_id else replace(state, boot_id=look.boot_id)
    failing = _failing(look)
    pairs: dict[Pair, list[Stated]] = {}
    for stated in look.stated:
        pairs.setdefault(stated.pair, []).append(stated)
    words = _words(state, pairs, look, failing)
    unknown = words.unknown
    for pair in sorted(state.held.keys() - pairs.keys()):  # an alert that is over, or a row that is no more
        if not state.held[pair].latched:
            unknown[pair[0]] = f"nothing is said of {pair[1]} any more"
    bad = {type_ for type_, _ in words.bad}
    unknown = {t: why for t, why in unknown.items() if t not in bad}
    if whole := look.why or _as_a_whole(look, failing) or "".join(words.owed[:1]):
        unknown["*"] = whole
    held = {**state.held, **words.bad}
    gone = frozenset(p for p, x in held.items() if x.latched and p not in words.bad and p[0] not in unknown)
    # A fault that nothing takes back is as fresh as this look.
    fresh = look.at + FRESH_FOR
    held = {p: replace(x, fresh_until=fresh) if p in gone else x for p, x in held.items()}
    held = {p: x for p, x in held.items() if p not in words.back}
    over = (state.over & words.good.keys()) | words.back
    # That the API server is silent is told by itself.
    since = {
        t: state.unknown_since.get(t, _since(look, t, failing))
        for t, why in unknown.items()
        if why != look.why
    }
    known = State(state.boot_id, held, words.good, over, since)
    reading = Reading(
        source=SOURCE,
        at=look.at,
        problems=tuple(p for _, p in sorted(held.items())),
        unknown=unknown,
        unknown_since=since,
        cleared=frozenset(words.back) if "*" not in unknown else frozenset(),
        listed=frozenset({*pairs, *held, *((w.row.type.text, "") for w in look.rows if w.row.type.text)}),
        gone=gone,
        ends={p: ends for p, s in pairs.items() if (ends := _ends(known, p, s)) != Ends()},
        devices={pair: frozenset(s.device for s in said) for pair, said in pairs.items()},
    )
    return known, reading


def _words(
    state: State, pairs: Mapping[Pair, Sequence[Stated]], look: Look, failing: Mapping[MetricRow, str]
) -> _Words:
    """What the series of each pair say. If one of them is bad, that counts."""
    words = _Words()
    for pair, said in sorted(pairs.items()):
        judged = [(s, _says_nothing(s, look, failing)) for s in said]
        whys = [why for _, why in judged if why]
        # What looks back to before the boot says nothing for that long, and must not silence all other rows.
        words.owed.extend(why for s, why in judged if s.owed and why and not s.row.looks_back)
        if bad := [s for s, why in judged if s.state is Is.BAD and not why]:
            words.bad[pair] = _problem(state, pair, bad, look)
        elif whys:
            words.unknown.setdefault(pair[0], whys[0])
        else:
            oldest = min(s.at for s in said)
            words.good[pair] = state.good.get(pair, oldest)
            if _is_latched(state, pair, said):
                continue
            if oldest - words.good[pair] >= max(_scraped_twice(s) for s in said):
                words.back.add(pair)
            elif pair in state.held:
                words.unknown[pair[0]] = f"{pair[1]} is good now, which counts once it is scraped again"
    return words


def _failing(look: Look) -> Mapping[MetricRow, str]:
    """The rows by which nothing is known, and why."""
    return {w.row: why for w in look.rows if (why := _why(w, look.at))}


def _why(w: RowWord, now: datetime) -> str:
    if w.why or w.at is None:
        return f"Prometheus, row {w.row.name}: {w.why or 'not asked yet'}"
    if now - w.at > FRESH_FOR:
        return f"Prometheus, row {w.row.name}: last answered at {hour(w.at, now)}"
    return ""


def _as_a_whole(look: Look, failing: Mapping[MetricRow, str]) -> str:
    """Why the source as a whole is unknown: no row is answered, or one has not been since this process
    began."""
    whys = [failing[w.row] for w in look.rows if w.row in failing]
    never = [failing[w.row] for w in look.rows if w.at is None]
    return [*(whys if len(whys) == len(look.rows) else never), ""][0]


def _says_nothing(s: Stated, look: Look, failing: Mapping[MetricRow, str]) -> str:
    """Why this series says nothing now, "" if it does."""
    where = f" ({s.device})" if s.device else ""
    if why := failing.get(s.row):
        return why
    if s.state is Is.UNKNOWN:
        return f"{s.reason}{where}: {s.said}"
    if look.boot_began is not None and s.at < look.boot_began:
        return f"{s.reason}{where}: not scraped yet since the node was booted"
    return ""


def _scraped_twice(s: Stated) -> timedelta:
    """How far apart two looks have to be. Where the samples' time is not known, both may be at the same
    one."""
    return TWICE if time_of(s.row.query) else LOOKBACK


def latched(s: Stated) -> bool:
    """Whether no good value takes this fault back."""
    if s.row.plugins_only and s.row.takes_back:
        return s.type not in plugins((), detectors([s.pair]))
    return not s.row.takes_back


def _is_latched(state: State, pair: Pair, said: Sequence[Stated]) -> bool:
    """Whether no good value takes back the fault ``pair``. Rows may state one fault, and end it in different
    ways: those that have stated it count. Where nobody knows which ones did, the stricter ones do."""
    if (fault := state.held.get(pair)) is not None:
        return fault.latched
    return pair not in state.over and any(map(latched, _of_each_row(said)))


def _of_each_row(said: Sequence[Stated]) -> Sequence[Stated]:
    """One series of each row: what ends their faults is the same for all of them."""
    return tuple({id(s.row): s for s in said}.values())


def _ends(state: State, pair: Pair, said: Sequence[Stated]) -> Ends:
    """What the rows that ``_is_latched`` goes by say of the end of that fault."""
    if len(each := _of_each_row(said)) == 1:
        return each[0].row.ends
    strict = _is_latched(state, pair, each)
    rows = [s.row.ends for s in each if latched(s) is strict]
    return Ends(
        max((e.latch for e in rows if e.latch is not None), key=list(Latch).index, default=None),
        max((e.hold for e in rows if e.hold is not None), default=None),
    )


def _problem(state: State, pair: Pair, bad: Sequence[Stated], look: Look) -> Problem:
    old, row = state.held.get(pair), bad[0].row
    began = max((s.begun for s in bad if s.begun is not None), default=None)
    if began is not None and look.boot_began is not None and began < look.boot_began:
        began = None  # it went on over the boot
    where = devices(s.device for s in bad)
    said = f"Prometheus, row {row.name}: {bad[0].said} ({row.bad} is the fault)"
    return Problem(
        source=SOURCE,
        type=pair[0],
        reason=pair[1],
        message=said[:EVIDENCE],
        since=old.since if old else look.at,
        fresh_until=look.at + FRESH_FOR,
        latched=(old is not None and old.latched) or any(map(latched, bad)),
        life=row.name,
        stated=began or (old.stated if old else None),
        lasting=all(s.row.of_alerts for s in bad),
        device=where,
    )


def _since(look: Look, type_: str, failing: Mapping[MetricRow, str]) -> datetime:
    """Since when nothing is known of ``type_``: where a row is not answered, since then."""
    rows = [w for w in look.rows if w.row in failing and w.since is not None]
    of_type = [
        w for w in rows if type_ == "*" or any(s.row is w.row and s.type == type_ for s in look.stated)
    ]
    return min((w.since for w in of_type if w.since is not None), default=look.at)


class PrometheusSource:
    """What the server knows of one node. ``look`` has it, for a boot ID."""

    name = SOURCE

    def __init__(self, node: str, look: Callable[[str], Look]) -> None:
        self._node = node
        self._look = look
        self._state = State()
        self._complaints = Complaints()

    def poll(self, boot_id: str, within: float | None = None) -> Reading:
        """What is known now. The server is asked at the poller's own pace."""
        look = self._look(boot_id)
        self._state, reading = observe(self._state, look)
        self._complaints.of(self._node, reading, but=look.why)
        return reading
