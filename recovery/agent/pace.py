"""How often does an agent look at the gate and at other agents' Leases?

The fleet as a whole has to look often, and not each agent. In a fleet of three each agent reads the gate once
a minute; in one of 5,000 every eight minutes. Then all together read it ten times a second, and a dead
agent's record is found as soon.
"""

from __future__ import annotations

import contextlib
from datetime import timedelta

from recovery.agent.world import World
from recovery.errors import ApiError
from recovery.model import Gate

GATE_READS = 10.0
"""How often a second all agents together read the gate, however many they are."""
LEASE_READS = 30.0
"""How often a second all agents together look at Leases of others, while records are open."""
WATCHED = 10
"""The most records that one agent watches."""
NODE_READS = 8.0
"""How often a second all agents together read their own Nodes for their conditions."""
OWN_NODE = 30.0
"""Seconds: no healthy agent reads its own Node more often."""
LONGEST = 1800.0
"""Seconds: every agent reads the gate at least this often. 50,000 agents then read it 28 times a second."""
ONE_OF_MANY = timedelta(milliseconds=80)
COUNTED_AGAIN = 3600.0
"""Seconds for which the size of the fleet is good. It is on the gate, in the census; where no census was made
lately, an agent asks for the number of Nodes, which costs one short list."""


def pause_among(slots: int) -> timedelta:
    """How long one of so many recoveries under way waits at least before it looks again.

    With up to 12 that is no longer than it waits anyway; with 50 they look every 4 s, not every 1 or 2 s.
    """
    return slots * ONE_OF_MANY


def own_node_every(population: int, *, alone: bool) -> float:
    """Seconds between two reads of the own Node. ``alone``: nothing else would tell of a fault sooner, so
    that it is read as often in any fleet."""
    return OWN_NODE if alone else max(OWN_NODE, min(population / NODE_READS, LONGEST))


class Pace:
    """One agent's share of the watching. ``shortest``: seconds between two looks in a small fleet.

    ``alone``: a concluder, of which there is one, looks as often in any fleet, and at all records.
    """

    def __init__(self, world: World, shortest: float, *, alone: bool) -> None:
        self._w = world
        self._shortest = shortest
        self._alone = alone
        self._counted_at: float | None = None
        self.population = 0

    def learn(self, gate: Gate | None) -> None:
        """Learn how large the fleet is, by the census on ``gate``, or else by a count."""
        if self._alone:
            return
        census = gate.census if gate is not None else None
        if census is not None and self._w.cluster.time.now() - census.at <= timedelta(seconds=COUNTED_AGAIN):
            self.population = census.nodes
            return
        now = self._w.clock.monotonic()
        if self._counted_at is not None and now - self._counted_at < COUNTED_AGAIN:
            return
        self._counted_at = now
        with contextlib.suppress(ApiError):
            self.population = self._w.cluster.count_nodes()

    def interval(self) -> float:
        """Seconds between two looks at the gate."""
        if self._alone:
            return self._shortest
        return max(self._shortest, min(self.population / GATE_READS, LONGEST))

    def watched(self) -> int:
        """How many of the open records this agent watches."""
        looks_a_second = self.population / self.interval()
        return (
            WATCHED if looks_a_second * WATCHED <= LEASE_READS else max(1, int(LEASE_READS / looks_a_second))
        )
