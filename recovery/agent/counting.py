"""Which agent counts the sick nodes of the fleet? One does for all: its count is on the gate.

To count means to list all Nodes and records, which takes seconds for 5,000 Nodes. A count is good for ``age``
after it was made, and for as long again as it took. Without that, a fleet that takes a minute to count could
never go on.
"""

from __future__ import annotations

from datetime import timedelta

from recovery.decide.situation import Situation
from recovery.model import Census

OWN, OTHERS = 0.75, 0.9
"""Parts of ``age`` after which who counted last counts again, and after which the others begin to."""
STAGGER = timedelta(milliseconds=500)
"""How much later each agent behind begins to count; or as much later as a count takes, if that is longer. By
then the count of another is on the gate."""
MOST_BEHIND = 20


def good(census: Census, s: Situation, age: timedelta) -> bool:
    """Whether ``census`` is recent enough to go on by. One of the future is not."""
    took = timedelta(seconds=census.seconds)
    return timedelta(0) <= s.now - census.at <= age + 2 * took


def my_turn(census: Census | None, mine: bool, s: Situation, age: timedelta) -> bool:
    """Whether this agent is to count, where ``census`` is the latest there is. ``mine``: it made that one."""
    if census is None or census.at > s.now:
        return True
    took = timedelta(seconds=census.seconds)
    old = s.now - census.at - took
    if mine:
        return old >= age * OWN
    return old >= age * OTHERS + max(STAGGER, took) * _behind(s)


def _behind(s: Situation) -> int:
    """How many others with a place on the gate are to count first."""
    gate = s.gate
    nodes = [x.node for x in gate.slots] + [x.node for x in gate.open] if gate is not None else []
    return min(nodes.index(s.node_name) if s.node_name in nodes else len(nodes), MOST_BEHIND)
