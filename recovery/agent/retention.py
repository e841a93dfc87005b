"""Removes closed records that nothing goes by: those of nodes that are gone, and the oldest of too many.

On the way it finds the records that wait for somebody, and that the gate does not list.

A node's own agent removes its record by itself. The concluder looks through all records once an hour, and so
does about one of all agents, drawn by lot. One page of the list is in memory at a time.
"""

from __future__ import annotations

import heapq
import logging
import random
import zlib
from collections.abc import Iterator
from datetime import datetime
from functools import partial

from recovery.agent.world import World
from recovery.decide.budget import places
from recovery.decide.retention import counts_on, expired, keeps_from_treatment, still_counts
from recovery.errors import Conflict, NodeRecoveryError, NotFound
from recovery.kube.paging import folded
from recovery.model import Gate, NodeView, Record
from recovery.store.record import WELL

log = logging.getLogger(__name__)

EVERY = 3600.0
SOON = 300.0
"""Seconds until the next look, where more than ``AT_ONCE`` are due. To remove all at once would delay the
sweep."""
AT_ONCE = 50
POPULATION = 1000
"""How many agents are taken to draw lots while nobody has counted the nodes."""
MOST_KEPT = 5000


class Remover:
    """``me`` is this agent's own node, empty for a concluder."""

    def __init__(self, world: World, me: str) -> None:
        self._w = world
        self._me = me
        self._chance = random.Random(me)  # noqa: S311 - jitter, by which agents differ
        self._due = world.clock.monotonic() + self._chance.uniform(0, EVERY)
        self._kept: set[tuple[str, str]] = set()  # record UID and version that a look at the Node kept
        self.hidden: set[tuple[str, str]] = set()
        """Node and UID of records that wait for somebody, and that the gate does not list: an agent died
        before it joined the queue, a person wants a node back, or somebody edited the label."""

    def turn(self, gate: Gate | None) -> None:
        """Remove what is due, if it is time to, and this agent's turn. Never raises: it can wait."""
        now = self._w.clock.monotonic()
        if now < self._due:
            return
        self._due = now + EVERY * self._chance.uniform(0.8, 1.2)
        try:
            if self._drawn(gate) and self._remove(folded(partial(self._candidates, gate))) >= AT_ONCE:
                self._due = now + SOON
        except NodeRecoveryError as error:
            log.warning("old records are not removed now: %s", error)

    def _drawn(self, gate: Gate | None) -> bool:
        if not self._me:
            return True
        known = gate.census.nodes if gate is not None and gate.census is not None else POPULATION
        hour = int(self._w.cluster.time.now().timestamp() // EVERY)
        return zlib.crc32(f"{self._me} {hour}".encode()) % max(1, known) == 0

    def _candidates(self, gate: Gate | None) -> list[Record]:
        """The oldest closed records that are due, of all there are."""
        listed = places(gate) if gate is not None else set()
        limits, now = self._w.policy.limits, self._w.cluster.time.now()
        closed, hidden = 0, set[tuple[str, str]]()

        def removable() -> Iterator[Record]:
            nonlocal closed
            for r, label in self._w.records.with_labels():
                unseen = label in WELL if not self._me else (r.node, r.uid) not in listed
                if r.node != self._me and ((r.phase.open and unseen) or (self._me and r.release is not None)):
                    hidden.add((r.node, r.uid))  # the concluder lists those whose label is right each minute
                closed += not r.phase.sick
                if (r.uid, r.resource_version) not in self._kept and not still_counts(r, limits, now):
                    yield r

        oldest = heapq.nsmallest(AT_ONCE, removable(), key=lambda r: r.phase_since)
        self.hidden = hidden
        over = max(0, closed - limits.records.max)
        return [r for i, r in enumerate(oldest) if i < over or expired(r, limits, now)]

    def _remove(self, found: list[Record]) -> int:
        """Remove those of ``found`` that neither the gate nor their Node needs. How many were looked at."""
        gate = self._w.gates.read() if found else None
        listed = {uid for _, uid in places(gate)} if gate is not None else set()
        for r in found:
            if r.uid in listed:
                continue  # its place is freed first
            node = self._w.node(r.node)
            if node is not None and self._needed(r, node):
                self._keep(r)
                continue
            try:
                self._w.records.remove(r)
            except (Conflict, NotFound):
                continue
            log.info("%s: its record is removed: %s since %s", r.node, r.phase.value, _day(r.phase_since))
        return len(found)

    def _needed(self, r: Record, node: NodeView) -> bool:
        """Whether the record still counts on its Node, whose detector only its own agent can ask."""
        machine = self._w.providers.identify(node).machine
        known = machine.id if machine else ""
        return counts_on(r, node, known) is not None or keeps_from_treatment(r, node, known)

    def _keep(self, r: Record) -> None:
        """Do not look at it again until it changes, or others would never get their turn."""
        if len(self._kept) >= MOST_KEPT:
            self._kept.clear()
        self._kept.add((r.uid, r.resource_version))


def _day(at: datetime) -> str:
    return f"{at:%Y-%m-%d}"
