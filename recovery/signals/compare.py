"""One page of node-problem-detector compared with what is remembered: the next state. Pure.

The rules by which a fault is held or cleared are in ``_zeros``, ``_held`` and ``_problem``. What the detector
does, and so why they are as they are, is in ``tracker``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime

from recovery.model import Detector, Kind, Problem, Reading
from recovery.quick import replace
from recovery.signals.detectors import detectors, plugins
from recovery.signals.memory import (
    EDGE_LIMIT,
    SETTLE,
    SOURCE,
    State,
    gone,
    known_long,
    listed,
    looks_back,
    problems,
    recent,
    settled,
)
from recovery.signals.page import EDGES, WHOLE, Page, Pair
from recovery.units import hour

ZEROS = 3
"""How many fresh zeros in a row clear a plugin's fault."""


class Comparison:
    """One page and the state before it. Each method answers one question about the state after it."""

    def __init__(self, state: State, page: Page, at: datetime, fresh_until: datetime) -> None:
        self.state = state
        self.page = page
        self.at = at
        self.fresh_until = fresh_until
        self.whole = WHOLE not in page.unknown
        self.first = self.whole and state.first_at is None
        fell = any(page.counters.get(r, v) < v for r, v in state.counters.items())
        another = bool(page.started and state.started) and page.started != state.started
        self.restarted = self.whole and (fell or another)
        self.rebased = self.restarted or (state.gap and not page.unknown)
        self.pairs = page.pairs if self.rebased else state.pairs | page.pairs
        self.active = frozenset(pair for pair, value in page.gauges.items() if value != 0)
        self.busy = frozenset(type_ for type_, _ in self.active)
        self.unknown = {**self._vanished(), **page.unknown}
        self.uncounted = self._uncounted()
        self.known_to_be = detectors(self.pairs)
        self.plugins = plugins(self.uncounted, self.known_to_be)
        self.rising = self._rising()
        self.unexplained = self._unexplained_since()
        self.unknown = {**self._not_run(), **self._unexplained(), **self.unknown}

    def following(self) -> State:
        """The state after this page, but for its reading."""
        zeros = self._zeros()
        return replace(
            self.state,
            pairs=self.pairs,
            counters=self._counters(),
            uncounted=self.uncounted,
            held=self._held(zeros),
            zeros=zeros,
            edges=self._edges(),
            unknown_since={key: self._unknown_since(key) for key in self.unknown},
            missing_since=None,
            restarted_at=self.at if self.restarted else self.state.restarted_at,
            gap=self.state.gap and bool(self.page.unknown),
            said=self._said(),
            absent=(absent := self._absent()),
            slow=frozenset(p for p in absent if self.known_to_be.get(p[0]) is not Detector.LOG),
            started=self.page.started if self.whole else self.state.started,
            shown=self.active if self.whole else self.state.shown,
            unexplained=self.unexplained,
            first_at=self.at if self.first else self.state.first_at,
            began_at=self.at if self.first and self.state.gap else self.state.began_at,
        )

    def reading(self, state: State) -> Reading:
        return Reading(
            source=SOURCE,
            at=self.at,
            problems=problems(state),
            unknown=self.unknown,
            unknown_since=state.unknown_since,
            cleared=frozenset(pair for pair, count in state.zeros.items() if count >= ZEROS),
            listed=listed(state),
            gone=gone(state, self.at),
            unconfirmed=self._unconfirmed(state),
            counters=self.page.counters if self.whole else {},
        )

    def _unconfirmed(self, state: State) -> dict[str, str]:
        """Why the good status of a type, of which a plugin's fault is held, does not count yet."""
        why = "is no longer shown, for too short a time to count as taken back"
        if not settled(state, self.at):
            why = "is not shown since node-problem-detector was restarted: its check may not have run yet"
        return {
            type_: f"{reason} {why}"
            for type_, reason in sorted(state.held, reverse=True)
            if type_ in self.plugins and type_ not in self.busy and self._known(type_)
        }

    def _known(self, type_: str) -> bool:
        return self.whole and type_ not in self.unknown

    # ------------------------------------------------------------ what is unknown

    def _vanished(self) -> dict[str, str]:
        """Series that are gone although the detector lives: it never takes one off its page.

        After a restart, or a time without a page, its configuration may be another: then only what a fault
        is held for is missed.
        """
        if not self.whole:
            return {}
        gone = {pair for pair in {*self.pairs, *self.state.held} if pair not in self.page.pairs}
        unknown = {type_: f"{reason} ({type_}) is no longer on the page" for type_, reason in sorted(gone)}
        lost = set() if self.rebased else self.state.counters.keys() - self.page.counters.keys()
        for reason in sorted(lost):
            for type_ in {t for t, r in self.pairs if r == reason} or {EDGES}:
                unknown.setdefault(type_, f"the counter of {reason} is no longer on the page")
        return unknown

    def _rising(self) -> frozenset[str]:
        """Reasons that were counted since the last page."""
        if not self.whole or self.restarted:
            return frozenset()
        before = self.state.counters
        return frozenset(r for r, value in self.page.counters.items() if value > before.get(r, value))

    def _unexplained(self) -> dict[str, str]:
        """Types with a reason that was counted although no gauge shows it and none hides it."""
        shown = {reason for _, reason in self.active}
        return {
            type_: f"{reason} was counted again but {type_} shows nothing: its check may not have run through"
            for type_, reason in sorted(self.page.gauges)
            if reason in self.rising and reason not in shown and type_ not in self.busy
        }

    def _unexplained_since(self) -> dict[str, datetime]:
        """Types of which a fault is held, and when ``_unexplained`` was last true of them. A plugin's run
        that came to nothing is counted once, and the pages until its next run show the same zeros."""
        held = {type_ for type_, _ in self.state.held}
        lately = {t: at for t, at in self.state.unexplained.items() if self.at - at < SETTLE}
        now = dict.fromkeys(self._unexplained(), self.at)
        return {t: at for t, at in {**lately, **now}.items() if t in held and t not in self.busy}

    def _not_run(self) -> dict[str, str]:
        return {
            type_: f"{type_} shows nothing, and at {hour(at, self.at)} its check may not have run through"
            for type_, at in sorted(self.unexplained.items())
        }

    def _unknown_since(self, key: str) -> datetime:
        since = self.state.unknown_since.get(key)
        if since is None and key == WHOLE:
            since = self.state.missing_since
        return since or self.at

    # ------------------------------------------------------------ log rule or plugin

    def _uncounted(self) -> frozenset[Pair]:
        """Pairs whose reason has no counter, by this page and those before it.

        A damaged page may lack a counter that is really there, so it teaches nothing; neither does one
        without any counter. Remembered, because a restarted detector lists no healthy reason at first.
        """
        before = frozenset(p for p in self.state.uncounted if p[1] not in self.page.counters)
        if not self.whole or not self.page.counters:
            return before
        return before | frozenset(
            pair for pair in self.page.pairs if pair[1] not in self.page.counters and self._known(pair[0])
        )

    def _zeros(self) -> dict[Pair, int]:
        """How many successive fresh zeros each plugin's reason has shown.

        A zero beside another active reason of the type is hidden, not clear. A zero counts only on a page
        that lists the type's healthy reason: proof that the plugin's configuration has had a result.
        """
        if not self.whole or self.restarted or not settled(self.state, self.at):
            return {}
        reported = {type_ for type_, _ in self.uncounted & self.page.pairs} - self.busy
        return {
            pair: min(self.state.zeros.get(pair, 0) + 1, ZEROS)
            for pair in self.page.gauges
            if pair[0] in reported and self._known(pair[0]) and self._has_run(pair)
        }

    def _has_run(self, pair: Pair) -> bool:
        """Whether a plugin's check has run since its detector's start: it has counted or stated the fault, or
        has had the time to. The detector may have been started together with this agent."""
        stated = pair in self.state.held or pair in self.state.zeros or self.page.counters.get(pair[1], 0) > 0
        return stated or known_long(self.state, self.at)

    def _absent(self) -> dict[Pair, datetime]:
        """Since when no page has shown each pair of a log rule.

        A page that cannot say so leaves it as it was: a fault that was gone is not there again for that. What
        this life of the detector has never counted is not hidden by another reason of its type.
        """
        absent = {pair: since for pair, since in self.state.absent.items() if pair in self.pairs}
        there = self.active | self._hidden()
        for pair in self.pairs:
            type_ = pair[0]
            if pair in there or type_ in self.plugins:
                absent.pop(pair, None)
            elif self._known(type_) and pair in self.page.gauges and self._shows_nothing_of(pair):
                absent.setdefault(pair, self.at)
        return absent

    def _shows_nothing_of(self, pair: Pair) -> bool:
        return pair[0] not in self.busy or self.page.counters.get(pair[1]) == 0

    # ------------------------------------------------------------ faults

    def _held(self, zeros: Mapping[Pair, int]) -> dict[Pair, Problem]:
        pairs = {*self.state.held, *self.active, *self._hidden()}
        return {pair: self._problem(pair) for pair in sorted(pairs) if zeros.get(pair, 0) < ZEROS}

    def _hidden(self) -> frozenset[Pair]:
        """Log rules' faults that another reason hides: counted, and never taken back.

        A reason that several types share has one counter for all, which cannot say whose it is.
        """
        types = [t for t in self.busy if self._known(t) and t not in self.plugins]
        sharing = Counter(reason for _, reason in self.pairs)
        return frozenset(
            (type_, reason)
            for type_, reason in self.page.gauges
            if type_ in types
            and (type_, reason) not in self.active
            and self.page.counters.get(reason, 0) > 0
            and sharing[reason] == 1
        )

    def _problem(self, pair: Pair) -> Problem:
        """The fault as it stands after this page. What a page cannot say leaves it as it was."""
        type_, reason = pair
        old = self.state.held.get(pair)
        shown, hidden = pair in self.active, type_ in self.busy
        latched = type_ not in self.plugins
        if old is not None and not shown and not self._known(type_):
            return old
        fresh = shown or (self._known(type_) and latched)
        return Problem(
            source=SOURCE,
            type=type_,
            reason=reason,
            message=f"node-problem-detector reports {reason} ({type_})",
            since=old.since if old else self.at,
            fresh_until=self.fresh_until if fresh or old is None else old.fresh_until,
            latched=latched,
            masked=hidden and not shown,
            counter=count_of_statement(self, pair, old),
            life=self._life(type_, old, self.there(pair)),
            stated=self._stated(pair, old, shown),
        )

    def _stated(self, pair: Pair, old: Problem | None, shown: bool) -> datetime | None:
        """When the fault was last stated anew: it was counted, or a detector that was restarted shows it.

        The first page cannot say when. A plugin states at each run, and at each start, what it finds: that is
        no news until it takes it back.
        """
        if old is None:
            return self.at if self.state.reading is not None else None
        again = pair[1] in self.rising or (self.restarted and shown)
        return self.at if again and pair[0] not in self.plugins else old.stated

    def _life(self, type_: str, old: Problem | None, there: bool) -> str:
        """A plugin states at each start what it finds, so that its statements have no life."""
        if self.known_to_be.get(type_) is not Detector.LOG or type_ in self.plugins:
            return ""
        before = old.life if old else ""
        return self.page.started or before if there else before

    def there(self, pair: Pair) -> bool:
        """Whether this life of the detector has stated it: its page shows it, or hides and has counted it."""
        return pair in self.active or (pair[0] in self.busy and self.page.counters.get(pair[1], 0) > 0)

    def counted(self, pair: Pair, old: Problem | None) -> float | None:
        """The count of a fault that the page shows or hides; a restart's 0 is no count of it."""
        before = old.counter if old else None
        return self.page.counters.get(pair[1], before) if self.there(pair) else before

    def others(self, pair: Pair) -> frozenset[str]:
        """The other reasons of the pair's type, as far as this page counts them."""
        return frozenset(r for t, r in self.page.pairs if t == pair[0] and r != pair[1])

    def went_on(self, pair: Pair) -> bool:
        """Whether the last page showed it too, and no other reason of its type was counted in between."""
        return pair in self.state.shown and not self.restarted and not self.rising & self.others(pair)

    # ------------------------------------------------------------ counters and edges

    def _counters(self) -> dict[str, float]:
        """The next page's baseline.

        While temporary rules are unknown theirs stays, so that what happens meanwhile is not lost.
        """
        if not self.whole:
            return dict(self.state.counters)
        if self.rebased:
            return dict(self.page.counters)
        gauged = {reason for _, reason in self.pairs}
        waiting = self.state.counters.keys() - gauged if EDGES in self.unknown else frozenset()
        return {**self.state.counters, **{r: v for r, v in self.page.counters.items() if r not in waiting}}

    def _edges(self) -> dict[str, Problem]:
        gauged = {reason for _, reason in self.pairs}
        readable = self.whole and EDGES not in self.unknown
        again = looks_back(self.state, self.at)
        counted = sorted(self.rising - gauged) if readable and not again else []
        edges = {r: self._edge(r, 0, readable) for r in self.state.edges if r not in counted}
        for reason in counted:
            rise = self.page.counters[reason] - self.state.counters[reason]
            edges[reason] = self._edge(reason, int(min(rise, EDGE_LIMIT)), readable)
        return {reason: edge for reason, edge in edges.items() if edge.times}

    def _edge(self, reason: str, new: int, readable: bool) -> Problem:
        old = self.state.edges.get(reason)
        times = recent((*(old.times if old else ()), *([self.at] * new)), self.at)
        return Problem(
            source=SOURCE,
            type=EDGES,
            reason=reason,
            message=f"node-problem-detector counts {reason}",
            since=old.since if old else self.at,
            fresh_until=self.fresh_until if readable or old is None else old.fresh_until,
            kind=Kind.EDGE,
            counter=times[-1].timestamp() if times else None,
            times=times,
        )

    def _said(self) -> tuple[str, ...]:
        if not self.restarted:
            return ()
        held = [f"{reason} ({type_})" for type_, reason in sorted(self.state.held.keys() - self.active)]
        tail = f"; still held: {', '.join(held)}" if held else ""
        return (f"node-problem-detector was restarted: its counters begin again{tail}",)


def count_of_statement(page: Comparison, pair: Pair, old: Problem | None) -> float | None:
    """The count of a fault when it was last stated anew.

    A log rule counts a reason once, and again only after another reason of its type. Where it is not known
    to be one, a count that grows beyond that is a plugin's, which may count each of its runs.
    """
    shown, count = pair in page.active, page.counted(pair, old)
    log_rule = page.known_to_be.get(pair[0]) is Detector.LOG
    if log_rule or not shown or count is None or not page.whole:
        return count
    if old is not None and page.went_on(pair):
        return old.counter
    alone = not any(page.page.counters.get(reason) for reason in page.others(pair))
    return min(count, 1.0) if alone else count
