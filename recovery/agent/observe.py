"""Reads the world, once a cycle, into a frozen ``Situation``.

Node and record are always read; gate and Lease with recovery on. Everything else is read when
``decide.needs`` asks for it, one ``Need`` after another (``fetch``), so a node that waits for its budget
costs the cloud nothing. An error is never taken for "healthy": it ends the cycle, or becomes a reason in the
situation.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from recovery.agent.fetch import Fetcher
from recovery.agent.memory import LAST_READS, Memory
from recovery.agent.world import World
from recovery.catalog import foreign_claim
from recovery.decide.budget import ahead_of
from recovery.decide.needs import needed
from recovery.decide.orphan import is_paused
from recovery.decide.situation import ClaimsByEvent, Counted, Need, Preflighted, Role, Situation
from recovery.errors import Undecodable
from recovery.model import IntentState, Phase, Reading, Record
from recovery.provider.registry import Identified
from recovery.store.lease import Gone

LONG_READS = ClaimsByEvent | Counted | Preflighted
"""What is read before a destructive call and may take long: pages of Events, Nodes and records; the cloud."""
LEEWAY = timedelta(seconds=5)
"""So far ahead of now, a moment on a record is only the difference between two machines' clocks."""


class Observer:
    """Builds situations, and keeps what an agent remembers of each node between them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._fetcher = Fetcher(world)
        self._memory: dict[str, Memory] = {}

    def memory(self, node: str) -> Memory:
        return self._memory.setdefault(node, Memory())

    def forget(self, node: str) -> None:
        self._memory.pop(node, None)

    def situation(
        self,
        node_name: str,
        role: Role,
        readings: tuple[Reading, ...] = (),
        *,
        me: str = "",
        fresh: bool = False,
    ) -> Situation:
        """All that a decision about ``node_name`` may depend on.

        ``me`` is this agent's own node, empty for the concluder. ``fresh``, as right before a destructive
        call: the Lease, the census and other remediators' Events are read again, not taken from a cache.
        Raises ``ApiError`` where the node, record or gate cannot be read.
        """
        s = self._first_reads(node_name, role, readings, me, fresh)
        read_at: dict[Need, float] = {}
        while (need := needed(s)) is not None:
            s = self._read(s, need, me, fresh)
            read_at[need] = self.world.clock.monotonic()
        for need in [x for x in read_at if fresh and isinstance(x, LONG_READS)]:
            if self.world.clock.monotonic() - read_at[need] > LAST_READS:
                s = self._read(s, need, me, fresh)  # what was read after it took long
        return s

    def last_reads(self, before: Situation, readings: tuple[Reading, ...] = (), *, me: str = "") -> Situation:
        """``before``, with what a person or another agent may have changed since: Node, record, gate, Lease.

        They are the last reads before a destructive call. What takes long, the census and the provider's
        preflight, was read first, and is kept.
        """
        s = self._first_reads(before.node_name, before.role, readings, me, fresh=True)
        return replace(
            s,
            read=before.read,
            census=before.census,
            preflight=before.preflight,
            preflight_refused=before.preflight_refused,
            preflight_retry=before.preflight_retry,
            forbidden=s.forbidden or before.forbidden,
            pods=before.pods,
            evictions_free=before.evictions_free,
            poll=before.poll,
            down=before.down,
        )

    def looked_for(self, node_name: str) -> float:
        """Seconds since this agent began to read Node, record, gate and Lease of ``node_name``."""
        return self.world.clock.monotonic() - self.memory(node_name).looked_at

    def _read(self, s: Situation, need: Need, me: str, fresh: bool) -> Situation:
        assert s.record is not None
        memory = self.memory(s.record.node)
        found = self._fetcher.fetch(s, s.record, need, memory, me=me, fresh=fresh)
        return replace(found, read=(*s.read, need))

    def _first_reads(
        self, node_name: str, role: Role, readings: tuple[Reading, ...], me: str, fresh: bool
    ) -> Situation:
        """Node, record, gate and Lease: quick, and about as volatile as it gets."""
        w = self.world
        self.memory(node_name).looked_at = w.clock.monotonic()
        node = w.node(node_name)
        for _ in range(w.cluster.time.FIRST_ANSWERS):
            if w.cluster.time.doubtful:  # of a new process: the first API server that answers may be wrong
                node = w.node(node_name)
        now = w.cluster.time.now()
        identified = w.providers.identify(node) if node else Identified()
        s = Situation(
            now=now,
            node_name=node_name,
            policy=w.policy,
            on=w.on,
            skew=w.cluster.time.skew(),
            role=role,
            readings=readings,
            node=node,
            settle=w.settle,
            machine=identified.machine,
            machine_wait=identified.wait,
            machine_problem=identified.problem,
            provider=identified.facts,
            apart=not me,
            forbidden=(foreign_claim(node) or "") if node else "",
            **self._ours(node_name, now, fresh),
        )
        if s.record is not None and s.record.phase.open and w.on:
            s = self._remembered(s, s.record)
        return s

    def _ours(self, node: str, now: datetime, fresh: bool) -> dict[str, Any]:
        """The situation's fields for record, gate and Lease. One that cannot be decoded becomes a problem."""
        w = self.world
        found: dict[str, Any] = {}
        try:
            found["record"] = past(w.records.read(node), now)
        except Undecodable as error:
            return {"record_problem": str(error)}
        if not w.on:
            return found
        try:
            found["gate"] = w.gates.read()
        except Undecodable as error:
            found["gate_problem"] = str(error)
        return {**found, "lease": w.leases.look(node, fresh=fresh)}

    def _remembered(self, s: Situation, r: Record) -> Situation:
        """What this agent has seen of this record in earlier cycles."""
        memory, now = self.memory(r.node), self.world.clock.monotonic()
        watching = r.phase is Phase.PROVING and not r.replacement_machine
        if r.phase is not Phase.PROVING:
            memory.proving_since = None
        written = r.intent is not None and r.intent.state is IntentState.WRITTEN
        head = ahead_of(s.gate, r.uid)[:1] if s.gate is not None and r.phase is Phase.WAITING else []
        gone = self.gone(s, r, now) if s.role is Role.CONCLUDER else Gone()
        return replace(
            s,
            refusals=memory.refusals(now),
            intent_seen_for=memory.intent_seen_for(r, self.world.clock.boottime())
            if written
            else timedelta(0),
            owner_gone_for=timedelta(seconds=gone.seconds),
            owner_paused_for=timedelta(seconds=gone.paused),
            watched_for=memory.watched_for(now) if watching else None,
            turn_waited=memory.head_waits(head[0], now) if head else timedelta(0),
            finish_refused=memory.finish_refused[1]
            if r.intent and memory.finish_refused[0] == r.intent.token
            else "",
        )

    def gone(self, s: Situation, r: Record, now: float) -> Gone:
        """How long the agent of this record is gone; also on the Lease, where we hold that."""
        leases = self.world.leases
        before = leases.gone_for(r.node) if s.lease.mine else Gone()
        found = self.memory(r.node).note_gone(now, before, paused=is_paused(s))
        if s.lease.mine:
            leases.note_gone(r.node, found)
        return found


def past(r: Record | None, now: datetime) -> Record | None:
    """``r`` with moments in the future set to ``now``: a timer that counts from one would run too long.

    Up to ``LEEWAY`` ahead they stay as they are.
    """
    if r is None or not any(at - now > LEEWAY for at in _moments(r)):
        return r

    def no_later(at: datetime) -> datetime:
        return now if at - now > LEEWAY else at

    return replace(
        r,
        phase_since=no_later(r.phase_since),
        rung_since=no_later(r.rung_since) if r.rung_since else None,
        faults=tuple(replace(f, since=no_later(f.since)) for f in r.faults),
    )


def _moments(r: Record) -> list[datetime]:
    """The moments that timers count from."""
    return [r.phase_since, *([r.rung_since] if r.rung_since else []), *(f.since for f in r.faults)]
