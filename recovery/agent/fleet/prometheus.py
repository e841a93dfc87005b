"""Asks the Prometheus server about all nodes at once: each row of the policy is one question, whatever the
fleet.

It remembers what each series said last, since one that goes away must not pass for a good one. What is
unknown on many nodes at once is told once, and not on each of them: it says something of the monitoring, not
of the nodes.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from recovery.agent.alerts import FORGETS, Asks
from recovery.agent.fleet.names import NodeNames
from recovery.agent.fleet.nodes import Changed, Nodes
from recovery.errors import NoAnswer, Unreadable
from recovery.model import MetricRow, NodeView
from recovery.quick import replace
from recovery.report.metrics import Metrics
from recovery.signals.prometheus import Look, RowWord
from recovery.signals.prometheus_answer import (
    MOST_SERIES,
    Series,
    State,
    Stated,
    ages,
    asked_at,
    read,
    time_of,
    unnamed,
)
from recovery.units import hour, span

log = logging.getLogger(__name__)

MOST_TOLD = 20
"""What is unknown on more nodes than this is told once for all of them."""
FORGOTTEN = timedelta(hours=1)
"""A series that was good and is gone for so long is one that nobody exports any more."""
CLOCKS_APART = 30.0
"""Seconds by which the server's clock may differ from the API server's and still counts as right."""
MOST_COMPLAINTS = 100
Key = tuple[str, str, str]


@dataclass
class _Known:
    """What is known of one node by one row. ``life``: the Node and its boot, which ``began`` then at the
    latest, as far as is known, or else the Node was made then. ``gone``: since when a series is not in the
    answer any more, which was there before; ``bad``: those of them that were a fault then. ``owed``: those
    that were a fault when the boot before ended. ``forgot``: alerts that the server may have forgotten as it
    was started anew, and until when they count as the same."""

    life: tuple[str, str]
    began: datetime | None = None
    stated: Mapping[Key, Stated] = field(default_factory=dict)
    gone: Mapping[Key, datetime] = field(default_factory=dict)
    bad: frozenset[Key] = frozenset()
    owed: frozenset[Key] = frozenset()
    forgot: Mapping[Key, tuple[Stated, datetime]] = field(default_factory=dict)


@dataclass
class _Row:
    """One row, and what is known by it. ``latest``: the latest time on an answer, by the server's clock, and
    when that answer came. ``began``: when it was answered first. ``back``: when it was first answered after
    an outage."""

    row: MetricRow
    word: RowWord
    latest: tuple[float, datetime] | None = None
    began: datetime | None = None
    back: datetime | None = None
    nodes: dict[str, _Known] = field(default_factory=dict)
    unresolved: int = 0


class Poller:
    """Asks ``server`` about the nodes. One thread calls ``once``; any may ask what is known."""

    def __init__(
        self,
        rows: Sequence[MetricRow],
        server: Asks,
        nodes: Nodes,
        changed: Changed,
        metrics: Metrics,
        whole_fleet: bool = True,
    ) -> None:
        self._rows = [_Row(row, RowWord(row)) for row in rows]
        self._server = server
        self._nodes = nodes
        self._now = nodes.now
        self._changed = changed
        self._metrics = metrics
        self._whole_fleet = whole_fleet
        self._told: tuple[Sequence[RowWord], Mapping[str, Sequence[Stated]]] = (self._words(), {})
        self._telling: Mapping[str, frozenset[tuple[Key, State]]] = {}
        self._complaints: set[tuple[str, str]] = set()

    # ------------------------------------------------------------ any thread

    def anything(self, node: str) -> bool:
        """Whether anything but good is known of ``node``."""
        return node in self._telling

    def look(self, node: str, boot_id: str) -> Look:
        """What is known of ``node`` now. ``boot_id``: of the boot that is asked about, "" for that of now."""
        words, of = self._told
        view = self._nodes.get(node)
        booted = view.boot_id if view is not None else ""
        why = self._nodes.silent()
        if view is not None and boot_id and boot_id != booted:
            why = why or "the watch of Nodes shows another boot"
        return Look(self._now(), words, of.get(node, ()), booted, self._nodes.known_since(node, booted), why)

    def _words(self) -> Sequence[RowWord]:
        return tuple(r.word for r in self._rows)

    # ------------------------------------------------------------ one round

    def once(self) -> None:
        """Ask every row once, and say which nodes have changed. Never raises."""
        views = {node.name: node for node in self._nodes.all()}
        names = NodeNames(views.values())
        down = ""
        for r in self._rows:
            began = self._now()
            try:
                if down:
                    raise Unreadable(down)
                found, left_out = self._ask(r, began)
                self._take(r, found, left_out, names, views, began)
            except Unreadable as error:
                down = error.reason if isinstance(error, NoAnswer) else down
                self._fail(r, error.reason, began)
            except Exception as error:
                log.exception("Prometheus, row %s: a bug", r.row.name)
                self._fail(r, f"{type(error).__name__}: {error}", began)
        self._tell(views)

    def _ask(self, r: _Row, now: datetime) -> tuple[list[Series], int]:
        """The series, and how many more have a fault and no name for it."""
        result = self._server.ask(r.row.query)
        at = asked_at(result)
        when = time_of(r.row.query)
        old = ages(self._server.ask(when, at)) if at is not None and when else None
        found = read(r.row, result, old, now, _late(r, at, now) if at is not None else 0.0)
        return found, unnamed(r.row, result) if len(found) < len(result) else 0

    def _fail(self, r: _Row, why: str, now: datetime) -> None:
        if r.word.why != why:
            log.warning("Prometheus, row %s: %s", r.row.name, why)
        r.word = replace(r.word, why=why, since=r.word.since or now)

    def _take(
        self,
        r: _Row,
        found: list[Series],
        left_out: int,
        names: NodeNames,
        views: Mapping[str, NodeView],
        now: datetime,
    ) -> None:
        said, unresolved = _by_node(found, names)
        if not self._whole_fleet:
            unresolved.clear()  # they may be of nodes that are not watched
        if left_out:
            labels = " or ".join(r.row.naming_labels)
            unresolved[f"a bad series has no label {labels} that is a name, so it finds no fault"] = left_out
        r.unresolved = sum(unresolved.values())
        self._complain(r.row, unresolved)
        for name in r.nodes.keys() - views.keys():
            del r.nodes[name]
        if not said and r.nodes and not r.row.of_alerts:
            raise Unreadable(f"the answer names no node; the one before named {len(r.nodes)}")
        if r.word.why:
            log.info("Prometheus, row %s: it is answered again", r.row.name)
        first = r.word.at is None
        if first and views and not said and not r.row.of_alerts and time_of(r.row.query):
            log.warning("Prometheus, row %s: the answer names no node, so it finds no fault", r.row.name)
        r.began = r.began or now
        r.back = now if first or r.word.why else r.back
        r.word = RowWord(r.row, now)
        # Who has just begun to ask does not know what the server has forgotten.
        new = r.row.of_alerts and now - r.began < FORGETS
        forgets = r.back is not None and now - r.back < FORGETS
        back = r.row.looks_back
        for name in r.nodes.keys() | said.keys():
            old = _in_its_life(r.nodes.get(name), views[name], self._nodes.booted_at, now)
            of_node = _of_its_life(_bounded(said.get(name, {}), r.row), back, old.began, now)
            known = _followed(old, of_node, now, first or new)
            if r.row.of_alerts:
                there = {k: s for k, s in known.stated.items() if k not in known.gone}
                known = _Known(old.life, stated=there, forgot=_forgot(old, there, now, forgets))
            if known.stated or known.forgot:
                r.nodes[name] = known
            else:
                r.nodes.pop(name, None)

    def _complain(self, row: MetricRow, unresolved: Mapping[str, int]) -> None:
        """Log each series once that belongs to no node, or whose fault has no name."""
        for why in sorted(unresolved):
            if len(self._complaints) < MOST_COMPLAINTS:
                if (row.name, why) not in self._complaints:
                    log.warning("Prometheus, row %s: %s", row.name, why)
                self._complaints.add((row.name, why))

    # ------------------------------------------------------------ telling

    def _tell(self, views: Mapping[str, NodeView]) -> None:
        """Publish what is known now."""
        of: dict[str, list[Stated]] = {}
        telling: dict[str, set[tuple[Key, State]]] = {}
        told_once: Counter[str] = Counter()
        for r in self._rows:
            unknown = r.nodes.keys() if r.word.why else {n for n, k in r.nodes.items() if _unknown(k)}
            few = len(unknown) <= MOST_TOLD
            if r.word.why or not few:
                told_once[r.row.name] = 1
            for name, known in r.nodes.items():
                of.setdefault(name, []).extend(known.stated.values())
                for key, s in known.stated.items():
                    state = State.UNKNOWN if r.word.why and s.state is State.GOOD else s.state
                    if state is State.BAD or key in known.bad or (state is State.UNKNOWN and few):
                        telling.setdefault(name, set()).add((key, state))
        for name in {r.row.name for r in self._rows}:
            unresolved = sum(r.unresolved for r in self._rows if r.row.name == name)
            self._metrics.prometheus_unknown.labels(name).set(told_once[name])
            self._metrics.prometheus_unresolved.labels(name).set(unresolved)
        self._told = (self._words(), of)
        before, self._telling = self._telling, {name: frozenset(what) for name, what in telling.items()}
        for name in before.keys() | self._telling.keys():
            if before.get(name) != self._telling.get(name) and name in views:
                self._changed(name)


def _late(r: _Row, at: float, now: datetime) -> float:
    """By how many seconds an answer of the server's time ``at`` is older than it says.

    It is older where the server's clock was set back, so that it repeats what it said, and where a cache
    answers in its place. The age of each sample is measured by that clock.
    """
    latest = r.latest
    put_right = latest is not None and at < latest[0] and abs(now.timestamp() - at) <= CLOCKS_APART
    if latest is None or at > latest[0] or put_right:
        r.latest = (at, now)
        return 0.0
    return max(0.0, latest[0] - at + (now - latest[1]).total_seconds())


def _unknown(known: _Known) -> bool:
    return any(s.state is State.UNKNOWN for s in known.stated.values())


_RANK = {State.GOOD: 0, State.UNKNOWN: 1, State.BAD: 2}
"""Of two series that speak of the same thing the worse one counts."""


def _by_node(
    found: Iterable[Series], names: NodeNames
) -> tuple[Mapping[str, Mapping[Key, Stated]], Counter[str]]:
    """What the series say of each node; and how many are of none, by the reason."""
    said: dict[str, dict[Key, Stated]] = {}
    unresolved: Counter[str] = Counter()
    for series in found:
        # A label that names no Node may be an address. Then ``instance`` may be another machine's by now.
        name, why = names.node_of(series.node or series.instance, "a series")
        if not name:
            unresolved[why] += 1
            continue
        of_node = said.setdefault(name, {})
        old = of_node.get(series.stated.key)
        if old is None or _RANK[series.stated.state] > _RANK[old.state]:
            of_node[series.stated.key] = series.stated
    return said, unresolved


def _bounded(said: Mapping[Key, Stated], row: MetricRow) -> Mapping[Key, Stated]:
    if len(said) <= MOST_SERIES:
        return said
    worst = sorted(said.values(), key=lambda s: (-_RANK[s.state], s.key))[:MOST_SERIES]
    log.warning("Prometheus, row %s: %d series of one node; %d are read", row.name, len(said), MOST_SERIES)
    return {s.key: s for s in worst}


def _in_its_life(
    old: _Known | None, view: NodeView, booted_at: Callable[[str], datetime | None], now: datetime
) -> _Known:
    """What was known of a node before, as far as it counts in its life of now, which began at the latest when
    ``booted_at`` says. A query may have no series of a node that is well, and so none before the boot."""
    life = (view.uid, view.boot_id)
    if old is None or old.life[0] != view.uid:
        return _Known(life, max(filter(None, (view.created, booted_at(view.name))), default=None))
    if old.life == life:
        return old
    # A boot: what is gone since then may be gone for good.
    owed = old.bad | {key for key, s in old.stated.items() if s.state is State.BAD}
    return replace(old, life=life, began=now, bad=frozenset(), owed=owed)


def _of_its_life(
    said: Mapping[Key, Stated], back: timedelta, began: datetime | None, now: datetime
) -> Mapping[Key, Stated]:
    """``said``, without faults where the query looks ``back`` to before this life of the node ``began``."""
    if began is None or now - began >= back:
        return said
    why = f"its query looks back {span(back)}, to before the node was booted"
    return {
        key: s._replace(state=State.UNKNOWN, said=why) if s.state is State.BAD else s
        for key, s in said.items()
    }


def _followed(old: _Known, said: Mapping[Key, Stated], now: datetime, first: bool) -> _Known:
    """What is known of a node after an answer. ``first``: there was none before it."""
    booted = old.began == now
    stated = {key: _begun(s, old, now, first) for key, s in said.items()}
    gone = {key: old.gone.get(key, now) for key in old.stated.keys() - said.keys()}
    was_bad = old.bad | {k for k, s in old.stated.items() if s.state is State.BAD and not booted}
    bad = was_bad & (gone.keys() | {k for k, s in said.items() if s.state is State.UNKNOWN})
    gone = {key: since for key, since in gone.items() if key in bad or now - since < FORGOTTEN}
    for key, since in gone.items():
        why = f"its series is gone since {hour(since, now)}"
        stated[key] = old.stated[key]._replace(state=State.UNKNOWN, said=why)
    for key in old.owed & stated.keys():
        stated[key] = stated[key]._replace(owed=True)
    return _Known(old.life, old.began, stated, gone, bad, old.owed)


def _forgot(
    old: _Known, there: Mapping[Key, Stated], now: datetime, forgets: bool
) -> Mapping[Key, tuple[Stated, datetime]]:
    """The alerts that fire no more, and are the same if they fire again soon. ``forgets``: the server may
    have been started anew."""
    went = {k: (s, now + FORGETS) for k, s in old.stated.items() if forgets and k not in there}
    return went | {k: (s, until) for k, (s, until) in old.forgot.items() if k not in there and now < until}


def _begun(s: Stated, old: _Known, now: datetime, first: bool) -> Stated:
    """``s``, with the moment at which it was seen to turn bad."""
    if s.state is not State.BAD:
        return s
    before = old.stated.get(s.key) or (old.forgot[s.key][0] if s.key in old.forgot else None)
    if before is not None and before.state is State.BAD:
        return s._replace(begun=before.begun)
    return s if first else s._replace(begun=now)
