"""Reads the kernel's log of all nodes from Loki: one question each round, whatever the fleet.

What was read up to some moment is not asked for again, but for an overlap, since lines arrive late. What was
not read for too long is a gap: it is told, and nothing is known meanwhile. Each replica reads for itself, so
that one which takes over has lost nothing.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, Protocol

from recovery.agent.fleet.names import NodeNames
from recovery.agent.fleet.nodes import BOOTS_IN, Changed, Nodes, life_of
from recovery.catalog import kernel_lines
from recovery.catalog.kernel_lines import Said
from recovery.errors import Unreadable
from recovery.model import LogChoice, NodeView, Policy
from recovery.quick import replace
from recovery.report.metrics import Metrics
from recovery.signals.loki import SOURCE, Look, Stated, stated
from recovery.signals.loki_answer import Line, read
from recovery.signals.memory import recent
from recovery.units import span
from recovery.visible import visible

log = logging.getLogger(__name__)

EVERY = 15.0
"""Seconds between two rounds."""
OVERLAP = timedelta(seconds=30)
"""How much of the past each round asks for once more: lines that were written together may arrive apart."""
LOOK_BACK = timedelta(minutes=15)
"""How far back the first round asks, and no round asks further. Nothing is done about what is older."""
APART, AGREE = timedelta(minutes=1), timedelta(seconds=5)
"""Lines that are so far apart, and agree so well on when the kernel began, are printed for the first time."""
MOST_ASIDE = 20
"""Lines of one node that are kept for its next boot."""
LATE_EVERY = timedelta(minutes=5)
"""How often all of ``LOOK_BACK`` is asked for again: a log shipper that was held up sends its lines late."""
LINES, PAGES = 1000, 10
"""Lines of one answer, and answers of one round."""
MOST_SEEN = 50_000
"""How many lines are remembered as read. With more than these, only the overlap is asked for twice."""
MOST_COMPLAINTS = 100
SHOWN = 160
"""Characters that are logged of a line that is not read."""
ONLY = '|= "Xid (PCI:"'
"""Only log lines that contain this are asked for. Each line that ``kernel_lines`` reads has it, SXids too."""
Key = tuple[int, int]
Pair = tuple[str, str]


class Asks(Protocol):
    """A Loki server."""

    def ask(self, query: str, start: int, end: int, limit: int) -> Any:
        """The streams of ``query_range``. Raises ``Unreadable``, nothing else."""


@dataclass
class _Known:
    """What is known of one node in one boot, of which lines are read that were written since it ``began``.

    ``up``: when the kernel had begun at the latest. ``between``: when its kubelet wrote last in the boot
    before, and first in this one, by the node's clock, as lines are. ``aside``: the latest lines that are too
    old for this boot. They may be of the next one, which the watch shows later.
    """

    life: str
    began: datetime | None
    up: datetime | None
    between: tuple[datetime, datetime] | None = None
    stated: dict[Pair, Stated] = field(default_factory=dict)
    aside: tuple[tuple[Said, str, datetime], ...] = ()

    def is_of_now(self, stamp: float | None, at: datetime) -> bool:
        """Whether a line of ``at`` may be of this boot. The clock of a node may be minutes off. Then the
        kernel's own ``stamp`` tells its boots apart."""
        if self.began is None:
            return False
        if self.between is None:
            return at >= self.began
        left, came = self.between
        started = at - timedelta(seconds=stamp) if stamp is not None else None
        if started is not None and started < left - LOOK_BACK:
            return False
        sure = started is not None and started >= left
        return at >= (min if sure else max)(self.began, came - BOOTS_IN)

    def take(self, said: Said, line: str, at: datetime, *, past: bool) -> None:
        """What ``line`` states, in this boot."""
        assert self.up is not None
        if said.stamp is not None and _printed_again(said.stamp, self.up, at):
            self.aside = (*self.aside, (said, line, at))[-MOST_ASIDE:]
            if (began := _agreed(self.aside, said.stamp, at)) is not None:
                self._begin(began)
            return
        if said.stamp is not None:
            self.up = min(self.up, at - timedelta(seconds=said.stamp))
        pair = (said.type, said.reason)
        self.stated[pair] = stated(self.stated.get(pair), said, line, at, past=past)

    def _begin(self, began: datetime) -> None:
        """The kernel began then: nobody saw this boot, and the Node stayed Ready."""
        self.began = self.up = began
        self.stated = {pair: s for pair, s in self.stated.items() if s.last >= began}
        aside, self.aside = self.aside, ()
        for said, line, at in aside:
            if at >= began:
                self.take(said, line, at, past=False)


class LogReader:
    """Reads the lines of ``choice`` from ``server``. One thread calls ``once``; any may ask what is known.

    ``counted``: whether a rule of the policy counts a reason; of others that ask for nothing none is kept.
    """

    def __init__(
        self,
        choice: LogChoice,
        server: Asks,
        nodes: Nodes,
        changed: Changed,
        metrics: Metrics,
        counted: Callable[[str], bool] = lambda _: True,
        whole_fleet: bool = True,
    ) -> None:
        self._query = f"{choice.selector} {ONLY}"
        self._label = choice.node
        self._server = server
        self._nodes = nodes
        self._now = nodes.now
        self._changed = changed
        self._metrics = metrics
        self._counted = counted
        self._whole_fleet = whole_fleet
        self._read_to = 0  # nanoseconds, as is all that Loki is asked for
        self._go_on: int | None = None
        self._late_at = self._now()
        self._gap: tuple[str, datetime] | None = None
        self._answered: datetime | None = None
        self._why = ""
        self._since: datetime | None = None
        self._seen: dict[Key, bool] = {}
        self._at_start: Mapping[str, str] | None = None
        self._started = self._late_at
        self._known: dict[str, _Known] = {}
        self._told: Mapping[str, tuple[str, Sequence[Stated]]] = {}
        self._telling: Mapping[str, object] = {}
        self._complaints: set[str] = set()

    # ------------------------------------------------------------ any thread

    def anything(self, node: str) -> bool:
        """Whether a line speaks against ``node``."""
        return node in self._telling

    def look(self, node: str, boot_id: str) -> Look:
        """What is known of ``node`` now. ``boot_id``: of the boot that is asked about, "" for that of now."""
        view = self._nodes.get(node)
        behind = self._nodes.silent()
        if view is not None and boot_id and boot_id != view.boot_id:
            behind = behind or "the watch of Nodes shows another boot"
        life, said = self._told.get(node, ("", ()))
        if said and view is not None and life != life_of(view):  # what the boot before stated is over
            said, behind = (), behind or "the log was not read yet since the node was booted"
        return Look(self._now(), said, self._answered, self._why, self._since, behind)

    # ------------------------------------------------------------ one round

    def once(self) -> None:
        """Read what is new, and say which nodes have changed. Never raises."""
        now = self._now()
        views = {node.name: node for node in self._nodes.all()}
        if self._at_start is None:
            self._at_start, self._started = {name: life_of(view) for name, view in views.items()}, now
        for name in self._known.keys() - views.keys():
            del self._known[name]
        for name in list(self._known):
            self._of(views[name])
        why = ""
        try:
            self._read(now, views)
        except Unreadable as error:
            why = error.reason
        except Exception as error:
            log.exception("Loki: a bug")
            why = f"{type(error).__name__}: {error}"
        self._judge(why, now)
        self._forget(now)
        self._tell(views)

    def _judge(self, why: str, now: datetime) -> None:
        """Note whether anything is known after this round, and log it when that changes."""
        if not why and self._go_on is not None:
            upto = _moment(self._go_on)
            why = f"there are more lines than are read in a round; all up to {upto:%H:%M:%SZ} are"
        elif not why:
            self._answered = now
        if not why and self._gap is not None:
            said, at = self._gap
            why = said if now - at < LOOK_BACK else ""
            self._gap = self._gap if why else None
        if why not in ("", self._why, self._gap[0] if self._gap else ""):
            log.warning("Loki: %s", why)
        elif self._why and not why:
            log.info("Loki: all lines are read again")
        self._since = (self._since or now) if why else None
        self._why = why
        self._metrics.loki_unknown.set(1 if why else 0)

    def _read(self, now: datetime, views: Mapping[str, NodeView]) -> None:
        end, names = _ns(now), None
        at, late = self._start(now, end)
        for _ in range(PAGES):
            lines = read(self._server.ask(self._query, at, end, LINES), self._label, at, end)
            if lines:
                names = names or NodeNames(views.values())
                self._take(lines, names, views)
            if len(lines) < LINES:
                self._read_to, self._go_on = end, None
                return
            if lines[-1].ns > at:
                at = lines[-1].ns
            else:  # a whole answer of one moment: what else was written in it cannot be had
                self._miss(f"more than {LINES} lines at {_moment(at):%H:%M:%SZ} were not read", now)
                at += 1
            # What is new goes before what may have come late.
            self._go_on = self._read_to if late and at < self._read_to else at
            self._read_to = max(self._read_to, at)

    def _start(self, now: datetime, end: int) -> tuple[int, bool]:
        """From when on this round asks, and whether that is for what may have come late."""
        earliest = end - _nanoseconds(LOOK_BACK)
        self._read_to = self._read_to or end  # what was written before the first round is owed by nobody
        if self._read_to > end:  # the time was set back; what it is now may not have been asked for before
            self._read_to, self._go_on, self._late_at = end, None, now - LATE_EVERY
            self._gap = (self._gap[0], now) if self._gap is not None else None
        if self._read_to < earliest:
            gap = f"the lines from {_moment(self._read_to):%H:%M:%SZ} to {_moment(earliest):%H:%M:%SZ}"
            self._miss(f"{gap} were not read: {span(LOOK_BACK)} are the most that is looked back", now)
            self._read_to, self._go_on = earliest, None
            return earliest, False
        if self._go_on is not None:
            return max(earliest, self._go_on), False
        if self._answered is None:
            self._late_at = now
            return earliest, False
        if now - self._late_at >= LATE_EVERY and len(self._seen) < MOST_SEEN:
            self._late_at = now
            return earliest, True
        return max(earliest, self._read_to - _nanoseconds(OVERLAP)), False

    def _miss(self, what: str, now: datetime) -> None:
        log.warning("Loki: %s", what)
        self._gap = (what, now)

    def _take(self, lines: Sequence[Line], names: NodeNames, views: Mapping[str, NodeView]) -> None:
        unresolved: Counter[str] = Counter()
        for line in lines:
            key = (line.ns, hash((line.node, line.text)))
            if self._seen.get(key):
                continue
            name, why = names.node_of(line.node, "a line")
            # One of a node that is not known yet is read again in the overlap.
            again, self._seen[key] = key in self._seen, bool(name)
            if name:
                self._state(views[name], line)
            elif not again:
                unresolved[why] += 1
        if self._whole_fleet:
            self._complain(unresolved)

    def _complain(self, unresolved: Mapping[str, int]) -> None:
        """What is nobody's is told once. Where the nodes are a part of the fleet, it may be another's."""
        for why in sorted(unresolved):
            self._metrics.loki_unresolved.inc(unresolved[why])
            self._tell_once(why)

    def _unread(self, node: str, text: str) -> None:
        """Only a line of the driver alone is believed: within others, a tenant may have words of its own."""
        self._metrics.loki_unresolved.inc()
        why = f"{node}: a line that names an XID is in a form that is not read"
        self._tell_once(why, f"{why}: {visible(text[:SHOWN])}")

    def _tell_once(self, why: str, sentence: str = "") -> None:
        if why not in self._complaints and len(self._complaints) < MOST_COMPLAINTS:
            self._complaints.add(why)
            log.warning("Loki: %s", sentence or why)

    # ------------------------------------------------------------ one node

    def _state(self, view: NodeView, line: Line) -> None:
        """What ``line`` states of the node, if it is of its boot of now."""
        if not kernel_lines.is_read(line.text):
            self._unread(view.name, line.text)
        said = [x for x in kernel_lines.read(line.text) if x.type or self._counted(x.reason)]
        if not said:
            return
        known, at = self._of(view), _moment(line.ns)
        past = self._answered is None
        for each in said:
            if known.is_of_now(each.stamp, at):
                known.take(each, line.text, at, past=past)

    def _of(self, view: NodeView) -> _Known:
        """What is known of the node in its boot of now.

        A boot ends all that was stated before it. What was stated in its first seconds may have been read
        before the watch showed it.
        """
        life, old = life_of(view), self._known.get(view.name)
        if old is not None and old.life == life:
            return old
        between = self._nodes.between(view.name)
        made = _Known(life, self._began(view, life), self._up(view), between)
        if old is not None and made.began is not None:
            made.stated = {
                pair: replace(s, since=s.last, anew=s.last, times=(s.last,))
                for pair, s in old.stated.items()
                if made.is_of_now(s.stamp, s.last)
            }
            for each, text, at in old.aside:
                if made.is_of_now(each.stamp, at):
                    made.take(each, text, at, past=False)
        self._known[view.name] = made
        return made

    def _began(self, view: NodeView, life: str) -> datetime | None:
        """From when on a line is surely of this boot; None: nothing is known of that.

        Of a node that was there when this reader began: since its kubelet said so, or since it is Ready. A
        kubelet that starts, as it does with each boot, is mostly not Ready at first.
        """
        known = self._nodes.known_since(view.name, view.boot_id)
        there = self._at_start is not None and self._at_start.get(view.name) == life
        if known is None or not there:
            return known
        told = self._nodes.told_at(view.name)
        return min(known, told - BOOTS_IN if told is not None else view.ready_since or known)

    def _up(self, view: NodeView) -> datetime | None:
        """When the kernel of this boot had begun at the latest, whatever the reader has read by then."""
        known = self._nodes.known_since(view.name, view.boot_id)
        return min(known, self._nodes.booted_at(view.name) or known) if known is not None else None

    # ------------------------------------------------------------ after a round

    def _forget(self, now: datetime) -> None:
        if self._at_start and self._answered and now - self._started > 2 * LOOK_BACK:
            self._at_start = {}  # no line from before the start is asked for any more
        earliest = _ns(now - LOOK_BACK - OVERLAP)
        if self._seen:
            kept = [(key, known) for key, known in self._seen.items() if key[0] >= earliest]
            if len(kept) > MOST_SEEN:
                kept = sorted(kept)[-MOST_SEEN:]
            self._seen = dict(kept)
        for known in self._known.values():
            for pair, s in list(known.stated.items()):
                if not s.type and not recent(s.times, now):
                    del known.stated[pair]

    def _tell(self, views: Collection[str]) -> None:
        """Publish what is known now."""
        self._told = {x: (k.life, tuple(k.stated.values())) for x, k in self._known.items() if k.stated}
        before = self._telling
        self._telling = {
            name: (life, frozenset((s.pair, s.anew, s.times if not s.type else ()) for s in said))
            for name, (life, said) in self._told.items()
        }
        for name in before.keys() | self._telling.keys():
            if before.get(name) != self._telling.get(name) and name in views:
                self._changed(name)


def counted_by(policy: Policy) -> Callable[[str], bool]:
    """Whether a rule of ``policy`` counts how often a reason is stated."""
    rules = [r.match for r in policy.rules if r.match.times is not None and r.match.source in ("", SOURCE)]
    patterns = {pattern for match in rules for pattern in match.reasons}
    return lambda reason: any(fnmatchcase(reason, pattern) for pattern in patterns)


def _printed_again(stamp: float, up: datetime, at: datetime) -> bool:
    """Whether a line of ``at`` was written long before that, ``stamp`` seconds after the kernel began, which
    was ``up`` by then. A ``dmesg`` that is started anew prints all that the kernel still has.

    The kernel's clock is never set, and is off by less than a part in a thousand: Linux compares it with
    another one when it starts, to 500 millionths at least (arch/x86/kernel/tsc.c).
    """
    since = (at - up).total_seconds()
    return since - stamp > LOOK_BACK.total_seconds() + since / 1000


def _agreed(lines: Sequence[tuple[Said, str, datetime]], stamp: float, at: datetime) -> datetime | None:
    """When the kernel began, where the last of these lines, of ``at``, agrees on that with one of a minute
    before, and none in between says otherwise. Then neither is printed again: all that a ``dmesg`` prints at
    once is of one moment, and of different ages. None: they do not."""
    began = at - timedelta(seconds=stamp)
    for said, _, of in sorted(lines, key=lambda x: x[2], reverse=True):
        if said.stamp is None or of > at:
            continue
        if abs(of - timedelta(seconds=said.stamp) - began) > AGREE:
            return None
        if at - of >= APART:
            return min(began, of - timedelta(seconds=said.stamp))
    return None


def _ns(at: datetime) -> int:
    return _nanoseconds(at - datetime.fromtimestamp(0, UTC))


def _nanoseconds(time: timedelta) -> int:
    return time // timedelta(microseconds=1) * 1000


def _moment(ns: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=ns // 1000)
