"""Reads the world, once a cycle, into a frozen ``Situation``.

Node and record are always read; gate and Lease with recovery on. Everything else is read when
``decide.needs`` asks for it, one ``Need`` after another (``fetch``), so a node that waits for its budget
costs the cloud nothing. An error is never taken for "healthy": it ends the cycle, or becomes a reason in the
situation.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Any

from recovery.agent.boots import Boots, first_seen
from recovery.agent.fetch import Fetcher
from recovery.agent.memory import LAST_READS, Memory, asked_of
from recovery.agent.world import World
from recovery.catalog import foreign_claim
from recovery.decide.boot import KUBELET_WRITES, agrees, by_the_kernel, elsewhere
from recovery.decide.budget import ahead_of
from recovery.decide.claims import by_first_claim
from recovery.decide.doubt import unheard, without_a_word
from recovery.decide.needs import needed, subject
from recovery.decide.situation import ClaimsByEvent, Counted, Need, Preflighted, Role, Situation
from recovery.errors import Undecodable
from recovery.model import IntentState, NodeView, Phase, Reading, Record
from recovery.provider.registry import Identified
from recovery.quick import replace

LONG_READS = ClaimsByEvent | Counted | Preflighted
"""What is read before a destructive call and may take long: pages of Events, Nodes and records; the cloud."""
FIRST_READS = (
    *("now", "skew", "clock_steps", "readings", "node", "machine", "machine_wait", "machine_problem"),
    *("provider", "elsewhere", "record", "record_problem", "gate", "gate_problem", "start_ahead_for"),
    *("lease", "alerts", "outside", "unseen_since"),
)
"""The fields of a situation that do not wait to be needed, except ``forbidden``, which Events add to."""
LEEWAY = timedelta(seconds=5)
"""A moment on a record that is less far in the future only shows that the clocks of two machines differ."""


class Observer:
    """Builds situations, and keeps what an agent remembers of each node between them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._fetcher = Fetcher(world)
        self._memory: dict[str, Memory] = {}
        self._kernel_agreed = False
        self._agreed_on = ""  # the machine of which kernel and Node agreed last
        self._boots: Boots | None = None
        self._first_look: float | None = None
        self._start_ahead: tuple[datetime, float] | None = None

    @property
    def without_node(self) -> set[str]:
        """The nodes that were handed over and had no Node when this agent last counted the fleet."""
        return self._fetcher.without_node

    def memory(self, node: str) -> Memory:
        found = self._memory.get(node)
        if found is None:
            found = self._memory[node] = Memory()
        return found

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
        preflight, was read first, and is kept. But for a census that another agent has made meanwhile: this
        process may have been stopped in the middle of its own.
        """
        s = self._first_reads(before.node_name, before.role, readings, me, fresh=True)
        read = {name: getattr(s, name) for name in FIRST_READS}
        s = replace(before, **read, forbidden=s.forbidden or before.forbidden)
        return replace(s, census=self._fetcher.latest_census(s))

    def looked_for(self, node_name: str, *, ours: bool = False) -> float:
        """Seconds since this agent began to read Node, record, gate and Lease of ``node_name``; ``ours``: all
        but the Node."""
        memory = self.memory(node_name)
        return self.world.clock.monotonic() - (memory.ours_looked_at if ours else memory.looked_at)

    def look_takes(self, node_name: str) -> float:
        """Seconds since this agent's latest look at ``node_name`` began, whatever a watch had told before."""
        return self.world.clock.monotonic() - self.memory(node_name).look_began

    def _read(self, s: Situation, need: Need, me: str, fresh: bool) -> Situation:
        r = subject(s)
        assert r is not None
        found = self._fetcher.fetch(s, r, need, self.memory(r.node), me=me, fresh=fresh)
        return replace(found, read=(*s.read, need))

    def _first_reads(
        self, node_name: str, role: Role, readings: tuple[Reading, ...], me: str, fresh: bool
    ) -> Situation:
        """Node, record, gate and Lease: quick, and about as volatile as it gets."""
        w = self.world
        if fresh:
            w.cluster.forget(node_name)
        memory = self.memory(node_name)
        memory.look_began = w.clock.monotonic()
        memory.looked_at = w.cluster.read_since(node_name)
        memory.ours_looked_at = w.cluster.ours_read_since(node_name)
        node = w.node(node_name)
        if w.cluster.time.doubtful:
            node = w.cluster.time.beyond_doubt(partial(self._asked_anew, node_name))
        now = w.cluster.time.now()
        if node is not None and role is Role.OWNER and not w.afar:
            node = self._in_its_boot(node, now)
        identified = w.providers.identify(node) if node else Identified()
        began = now - timedelta(seconds=w.clock.monotonic() - memory.ours_looked_at)
        ours = self._ours(node_name, now, fresh)
        record: Record | None = ours.get("record")
        if record is not None and record.phase.sick:
            memory.open_at = began
        s = Situation(
            now=now,
            node_name=node_name,
            policy=w.policy,
            on=w.on,
            skew=w.cluster.time.skew(),
            clock_steps=w.cluster.time.steps,
            role=role,
            readings=readings,
            node=node,
            settle=w.settle,
            machine=identified.machine,
            machine_wait=identified.wait,
            machine_problem=identified.problem,
            provider=identified.facts,
            apart=not me,
            afar=w.afar,
            most_slots=w.most_slots,
            abreast=w.abreast,
            alerts=w.alerts(),
            forbidden=_claimed(node, record),
            kernel_boot=w.kernel_boot() if role is Role.OWNER else "",
            booted=self._booted(now) if role is Role.OWNER and not w.afar else None,
            kernel_began=self._kernel_began() if role is Role.OWNER and not w.afar else None,
            unheard_since=w.unheard_since(node_name),
            unseen_since=w.unseen_since(node_name),
            outside=role is Role.OWNER and self._is_outside(node, fresh),
            open_at=memory.open_at,
            **ours,
        )
        return self._weighed(s)

    def _asked_anew(self, name: str) -> NodeView | None:
        self.world.cluster.forget(name)
        return self.world.node(name)

    def _weighed(self, s: Situation) -> Situation:
        """``s``, which was just read, with what follows from it and from earlier cycles."""
        if agrees(s):
            self._kernel_agreed = True
            self._agreed_on = s.machine.id if s.machine is not None else self._agreed_on
        s = replace(s, elsewhere=elsewhere(s, self._agreed_on))
        s = by_first_claim(by_the_kernel(s, self._kernel_agreed))
        if s.record is not None and s.on and (why := self._refused_to_take_back(s.record)):
            s = replace(s, take_back_refused=why)
        if s.record is not None and s.record.phase.open and s.on:
            s = self._remembered(s, s.record)
        return self._heard(s) if s.role is Role.OWNER else s

    def _heard(self, s: Situation) -> Situation:
        """``s``, with each fault of the record as unknown of which its source says nothing.

        The last word on it may have been heard by another process. Nothing is done by that.
        """
        missed, memory = without_a_word(s), self.memory(s.node_name)
        memory.missed = {f.key: memory.missed.get(f.key, s.now) for f in missed}
        return replace(s, readings=unheard(s.readings, {f: memory.missed[f.key] for f in missed}))

    def _is_outside(self, node: NodeView | None, fresh: bool) -> bool:
        return node is not None and node.registered and self.world.outside(node.name, fresh)

    def _in_its_boot(self, node: NodeView, now: datetime) -> NodeView:
        """The own Node with the last boot that its machine was seen in, where it names an earlier one. (In
        fleet mode the watch remembers that, of all Nodes.)"""
        self._boots = self._boots.then(node, now) if self._boots is not None else first_seen(node, now)
        return self._boots.of(node)

    def _booted(self, now: datetime) -> datetime:
        return now - timedelta(seconds=self.world.clock.boottime())

    def _kernel_began(self) -> datetime | None:
        """None once a living kubelet has had time to write: without that a silent one would hold for ever."""
        clock = self.world.clock
        if self._first_look is None:
            self._first_look = clock.monotonic()
        if clock.monotonic() - self._first_look >= KUBELET_WRITES.total_seconds():
            return None
        return clock.now() - timedelta(seconds=clock.boottime())

    def _ours(self, node: str, now: datetime, fresh: bool) -> dict[str, Any]:
        """The situation's fields for record, gate and Lease. One that cannot be decoded becomes a problem."""
        w = self.world
        found: dict[str, Any] = {}
        try:
            found["record"] = self._record(node, now)
        except Undecodable as error:
            return {"record_problem": str(error)}
        if not w.on:
            return found
        try:
            found["gate"] = gate = w.gates.read()
            found["start_ahead_for"] = self._start_ahead_for(gate.last_start if gate else None, now)
        except Undecodable as error:
            found["gate_problem"] = str(error)
        record, memory = found["record"], self.memory(node)
        version = record.resource_version if record is not None else ""
        # Somebody else wrote the record: etcd may have been restored, and the Lease with it.
        known, memory.version = memory.version == version, version
        known = known or (record is not None and w.records.ours(record))
        return {**found, "lease": w.leases.look(node, fresh=fresh or not known)}

    def _start_ahead_for(self, start: datetime | None, now: datetime) -> timedelta:
        """How long the last start of all has been seen to lie in the future: a clock was set back since."""
        if start is None or start - now <= LEEWAY:
            self._start_ahead = None
            return timedelta(0)
        if self._start_ahead is None or self._start_ahead[0] != start:
            self._start_ahead = (start, self.world.clock.monotonic())
        return timedelta(seconds=self.world.clock.monotonic() - self._start_ahead[1])

    def _record(self, node: str, now: datetime) -> Record | None:
        """The record of ``node``, with no timer that counts from a moment in the future."""
        r, memory = self.world.records.read(node), self.memory(node)
        if r is None or not is_ahead(r, now):
            memory.ahead = None
            return r
        return past(r, now, memory.ahead_for(r, self.world.clock.monotonic()))

    def _refused_to_take_back(self, r: Record) -> str:
        known, why = self.memory(r.node).take_back_refused if r.node in self._memory else ("", "")
        return why if known == asked_of(r) else ""

    def _remembered(self, s: Situation, r: Record) -> Situation:
        """What this agent has seen of this record in earlier cycles."""
        memory, now = self.memory(r.node), self.world.clock.monotonic()
        watching = s.node if r.phase is Phase.PROVING and not r.replacement_machine else None
        if r.phase is not Phase.PROVING:
            memory.watch = None
        written = r.intent is not None and r.intent.state is IntentState.WRITTEN
        head = ahead_of(s.gate, r.uid)[:1] if s.gate is not None and r.phase is Phase.WAITING else []
        return replace(
            s,
            correlated=self.world.shared_by(r),
            refusals=memory.refusals(now),
            fenced=memory.fenced_in(r),
            intent_seen_for=memory.intent_seen_for(r, self.world.clock.boottime())
            if written
            else timedelta(0),
            held_last=memory.holds.last(r, now),
            held_before=memory.holds.before_that(r),
            owner_gone_for=memory.gone_for(now) if s.role is Role.CONCLUDER else timedelta(0),
            watched_for=memory.watched_for(watching, now) if watching else None,
            turn_waited=memory.head_waits(head[0], now) if head else timedelta(0),
            finish_refused=memory.finish_refused[1]
            if r.intent and memory.finish_refused[0] == r.intent.token
            else "",
            finish_put_off=memory.finish_put_off[1]
            if r.intent and memory.finish_put_off[0] == r.intent.token
            else "",
            unwritten=memory.outcome_of(r.intent) if r.intent and written else None,
        )


def _claimed(node: NodeView | None, r: Record | None) -> str:
    """Which other remediator is at work on the node; not one that is only because we asked it to be."""
    return (foreign_claim(node, r.works_for_us if r is not None else "") or "") if node is not None else ""


def is_ahead(r: Record, now: datetime) -> bool:
    """Whether a timer on ``r`` counts from a moment in the future: a clock was set back since."""
    return any(at - now > LEEWAY for at in _moments(r))


def past(r: Record | None, now: datetime, seen_for: timedelta = timedelta(0)) -> Record | None:
    """``r`` with moments in the future set to ``now``: a timer that counts from one would run too long.

    Up to ``LEEWAY`` ahead they stay as they are. ``seen_for``: how long ago they were first seen to be in the
    future. They are set to that time. If they were set to each look's own time, no timer would ever run.
    """
    if r is None or not is_ahead(r, now):
        return r

    def no_later(at: datetime) -> datetime:
        return now - seen_for if at - now > LEEWAY else at

    def maybe(at: datetime | None) -> datetime | None:
        return no_later(at) if at else None

    p, call = r.progress, r.intent
    call_is_ahead = call is not None and no_later(call.at) != call.at
    put_off = None if call_is_ahead else p.retry_at  # which would be as far in the future
    return replace(
        r,
        phase_since=no_later(r.phase_since),
        rung_since=maybe(r.rung_since),
        intent=replace(call, at=no_later(call.at)) if call else None,
        node_gone_since=maybe(r.node_gone_since),
        progress=replace(
            p,
            step_since=maybe(p.step_since),
            proving_since=maybe(p.proving_since),
            evidence=replace(p.evidence, at=no_later(p.evidence.at)) if p.evidence else None,
            accounted=maybe(p.accounted),
            retry_at=put_off,
            taking_back=maybe(p.taking_back),
            holding=replace(p.holding, since=no_later(p.holding.since)) if p.holding else None,
        ),
        validation=replace(r.validation, since=no_later(r.validation.since)) if r.validation else None,
        faults=tuple(replace(f, since=no_later(f.since), quiet_since=maybe(f.quiet_since)) for f in r.faults),
    )


def _moments(r: Record) -> list[datetime]:
    """The moments that timers count from."""
    p, v, e = r.progress, r.validation, r.progress.evidence
    maybe = (r.rung_since, p.step_since, p.proving_since, p.accounted, *(f.quiet_since for f in r.faults))
    also = (p.holding.since if p.holding else None, e.at if e else None, v.since if v else None)
    more = (r.intent.at if r.intent else None, p.taking_back, r.node_gone_since)
    there = (at for at in (*maybe, *also, *more) if at is not None)
    return [r.phase_since, *there, *(f.since for f in r.faults)]
