"""What the tracker of node-problem-detector's pages remembers between two pages. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from recovery.model import Problem, Reading
from recovery.quick import quick
from recovery.signals.page import EDGES, Page, Pair

SOURCE = "npd"
INSTANT = timedelta(seconds=1)
"""How long a page may lack a log rule's fault that is still there."""
EDGE_MEMORY, EDGE_LIMIT = timedelta(hours=24), 100
"""How long an edge is remembered, and how many times: the last ones, and as many of the first."""
LOOKS_BACK = timedelta(seconds=10)
"""How long after its start a detector may still read, and count, log lines from before it."""
SETTLE = timedelta(minutes=5)
"""How long after a detector's restart its zeros say nothing: its plugins may not have run yet. Once one check
of a configuration has a result, the page lists all of them, and some run only every five minutes."""


@quick
@dataclass(frozen=True, slots=True)
class State:
    """What must be remembered between two pages of one boot.

    ``pairs`` and ``counters`` are what was on the pages so far; ``uncounted`` the pairs whose reason has no
    counter: their types are custom plugins'. ``held`` are the faults, ``edges`` the temporary rules' events.
    ``absent``: since when no page shows a pair of a log rule. ``slow``: those that may be a plugin's.
    ``unexplained``: types of a held fault that show nothing, and when a reason of theirs was counted last.
    ``shown``: the pairs that the last good page showed. ``started``: when the detector's process began, as
    its page says. ``gap``: a read failed since the last undamaged page, so the detector may be another one.
    ``first_at``: when the first whole page of this boot was read. ``began_at``: the same, where reads had
    failed before it, so that the detector was just started. ``said``: what to log of the last page.
    ``steady``: the page that changes nothing more when it is read again.
    """

    boot_id: str = ""
    reading: Reading | None = None
    pairs: frozenset[Pair] = frozenset()
    counters: Mapping[str, float] = field(default_factory=dict)
    uncounted: frozenset[Pair] = frozenset()
    held: Mapping[Pair, Problem] = field(default_factory=dict)
    zeros: Mapping[Pair, int] = field(default_factory=dict)
    edges: Mapping[str, Problem] = field(default_factory=dict)
    unknown_since: Mapping[str, datetime] = field(default_factory=dict)
    missing_since: datetime | None = None
    restarted_at: datetime | None = None
    gap: bool = False
    said: tuple[str, ...] = ()
    steady: Page | None = None
    absent: Mapping[Pair, datetime] = field(default_factory=dict)
    slow: frozenset[Pair] = frozenset()
    started: str = ""
    shown: frozenset[Pair] = frozenset()
    unexplained: Mapping[str, datetime] = field(default_factory=dict)
    first_at: datetime | None = None
    began_at: datetime | None = None


def looks_back(state: State, at: datetime) -> bool:
    """Whether a detector that was just started may still read what one before it has counted (its
    ``lookback``). Where clocks were set back by hours since, that is not so for hours."""
    started = (x for x in (state.restarted_at, state.began_at) if x is not None)
    return any(abs(at - x) < LOOKS_BACK for x in started)


def problems(state: State) -> tuple[Problem, ...]:
    """Faults and events, in an order that stays the same."""
    return (*(p for _, p in sorted(state.held.items())), *(p for _, p in sorted(state.edges.items())))


def listed(state: State) -> frozenset[Pair]:
    """Every pair that the detector can report; a temporary rule's reason has the type ``EDGES``."""
    gauged = {reason for _, reason in state.pairs}
    return state.pairs | {(EDGES, reason) for reason in state.counters if reason not in gauged}


def gone(state: State, at: datetime) -> frozenset[Pair]:
    """The pairs of log rules that have not been shown for so long that their detector surely does not.

    It writes 0 for an instant whenever it writes 1. And what may be a plugin shows nothing between its
    detector's start and its own first run.
    """
    return frozenset(
        pair
        for pair, since in state.absent.items()
        if at - since >= (SETTLE if pair in state.slow else INSTANT)
    )


def settled(state: State, at: datetime) -> bool:
    """Whether a restart, if there was one, is so long ago that zeros count; or so far ahead, as it is where
    clocks were set back since: nobody waits for hours until it is over."""
    return state.restarted_at is None or abs(at - state.restarted_at) >= SETTLE


def known_long(state: State, at: datetime) -> bool:
    """Whether pages were read for so long that each check of the detector has run. Of clocks: see
    ``settled``."""
    return state.first_at is not None and abs(at - state.first_at) >= SETTLE


def recent(times: Sequence[datetime], now: datetime) -> tuple[datetime, ...]:
    """Those of ``times`` that are remembered.

    The last ones say how often it happens. The first ones say since when: without them that moment would move
    on for as long as it happens, and a rule that tolerates it for a while would tolerate it for ever.
    """
    known = tuple(moment for moment in times if now - moment <= EDGE_MEMORY)
    return (*known[:-EDGE_LIMIT][:EDGE_LIMIT], *known[-EDGE_LIMIT:])
