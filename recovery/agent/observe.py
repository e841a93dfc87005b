"""Reading the world, once per cycle, into a frozen ``Situation``.

The core says what it needs to know next, and exactly that is read: a healthy node without a record costs the
API server nothing. An error while reading is never a kind of healthy: it ends the cycle, or becomes a reason
in the situation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from recovery.agent.memory import Memory
from recovery.catalog import claim_by_events, event_claims, foreign_claim, lookup, types
from recovery.clock import Clock
from recovery.decide.budget import ahead_of
from recovery.decide.census import count
from recovery.decide.needs import needed
from recovery.decide.situation import (
    ClaimsByEvent,
    Counted,
    GateMadeReady,
    Need,
    NewNode,
    PodsLeft,
    PowerState,
    Preflighted,
    Progressed,
    Role,
    Situation,
    ValidationJob,
)
from recovery.errors import ApiError, ApiUnavailable, NotFound, Refused, Retry, SettingsError, Undecodable
from recovery.kube.cluster import Cluster
from recovery.model import (
    Census,
    ClusterDelete,
    Deleting,
    Done,
    Gate,
    IntentState,
    NodeView,
    NotApplied,
    Phase,
    Policy,
    Reading,
    Record,
    Running,
    Standing,
    Step,
)
from recovery.provider.protocol import PowerSensor
from recovery.provider.registry import Identified, Providers
from recovery.store.gate import Gates
from recovery.store.lease import Leases
from recovery.store.record import Records

NODES_A_SECOND = 500
"""How many Nodes are read to find a new machine among them: 5,000 in ten seconds, then once more."""
LEEWAY = timedelta(seconds=5)
EVENTS_AGE = 30.0
"""Seconds for which what others say of a node in Events is not read again; before a call it is."""
DOWN_AGE = 15.0
"""Seconds for which it is taken as read whether a machine is down: a BMC that is dead takes long to be so."""


@dataclass
class World:
    """Everything outside that the shell reads and writes; put together in one place, ``run``."""

    clock: Clock
    cluster: Cluster
    records: Records
    gates: Gates
    leases: Leases
    providers: Providers
    policy: Policy
    on: bool
    settle: timedelta = timedelta(seconds=0.5)


class Observer:
    """Builds situations."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._memory: dict[str, Memory] = {}

    def memory(self, node: str) -> Memory:
        return self._memory.setdefault(node, Memory())

    def forget(self, node: str) -> None:
        self._memory.pop(node, None)

    # ------------------------------------------------------------ the whole

    def situation(
        self,
        node_name: str,
        role: Role,
        readings: tuple[Reading, ...] = (),
        *,
        me: str = "",
        fresh: bool = False,
    ) -> Situation:
        """All that a decision about ``node_name`` may depend on, read now. ``fresh``: nothing of it as it was
        known a moment ago.

        ``me`` is this agent's own node. Raises ``ApiError`` where the node, record or gate cannot be read.
        """
        w = self.world
        node = self._node(node_name)
        now = w.cluster.time.now()
        identified = w.providers.identify(node) if node else Identified()
        s = Situation(
            now=now,
            node_name=node_name,
            policy=w.policy,
            on=w.on,
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
        while (need := needed(s)) is not None:
            assert s.record is not None
            s = replace(self._read(s, s.record, need, me, fresh), read=(*s.read, need))
        return replace(s, skew=w.cluster.time.skew())

    def _node(self, name: str) -> NodeView | None:
        try:
            return self.world.cluster.get_node(name)
        except NotFound:
            return None

    def _ours(self, node: str, now: datetime, fresh: bool) -> dict[str, Any]:
        """Record, gate and Lease, and what is wrong with them: fields of a situation."""
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
        return replace(
            s,
            refusals=memory.refusals(now),
            intent_seen_for=memory.intent_seen_for(r, self.world.clock.boottime())
            if written
            else timedelta(0),
            owner_gone_for=memory.gone_for(now) if s.role is Role.CONCLUDER else timedelta(0),
            watched_for=memory.watched_for(now) if watching else None,
            turn_waited=memory.head_waits(head[0], now) if head else timedelta(0),
            finish_refused=memory.finish_refused[1]
            if r.intent and memory.finish_refused[0] == r.intent.token
            else "",
        )

    def _read(self, s: Situation, r: Record, need: Need, me: str, fresh: bool) -> Situation:
        """``s`` with what is needed next."""
        memory = self.memory(r.node)
        match need:
            case GateMadeReady():
                return replace(s, gate=self._made_ready(s))
            case Progressed():
                return replace(s, poll=self._poll(s, r))
            case NewNode():
                return self._new_node(s, r, memory, me)
            case ValidationJob():
                return self._job(s, r, memory)
            case PowerState():
                return replace(s, down=self._down(s, memory))
            case PodsLeft(evicting):
                return self._pods(s, r, memory, evicting)
            case ClaimsByEvent():
                return replace(s, forbidden=self._claim_by_event(s, memory, fresh))
            case Preflighted(action):
                return self._preflight(s, action)
            case Counted(age, since, known):
                latest = None if fresh and not known else self._known_census(s, memory, age)
                if latest is None or (since is not None and latest.at < since):
                    latest = None if known else self._count(s, memory)
                return replace(s, census=latest)

    # ------------------------------------------------------------ single readings

    def _made_ready(self, s: Situation) -> Gate | None:
        try:
            return self.world.gates.ready(s.gate, s.now)
        except ApiError:
            return None

    def _down(self, s: Situation, memory: Memory) -> str:
        assert s.machine is not None
        assert s.provider is not None
        provider = self.world.providers.get(s.provider.name)
        assert isinstance(provider, PowerSensor)  # it declared it
        now = self.world.clock.monotonic()
        if memory.down is None or now - memory.down[0] >= DOWN_AGE:
            try:
                memory.down = (now, provider.down(s.machine) or "")
            except (Retry, Refused):
                memory.down = (now, "")  # not proved
        return memory.down[1]

    def _pods(self, s: Situation, r: Record, memory: Memory, evicting: bool) -> Situation:
        most, now = s.policy.drain.evictions_per_second, self.world.clock.monotonic()
        free = memory.evictions_free(most, now) if evicting else s.evictions_free
        return replace(s, pods=self.world.cluster.list_pods(r.node), evictions_free=free)

    def _job(self, s: Situation, r: Record, memory: Memory) -> Situation:
        """The validation Job on record, as it is now."""
        assert r.validation is not None
        try:
            return replace(s, job=self.world.cluster.get_job(r.validation.job))
        except NotFound:
            due = self.world.clock.monotonic() >= memory.job_again
            return replace(s, job_problem=memory.job_problem, job_due=due)
        except ApiUnavailable:
            raise
        except ApiError as error:
            why = f"Job {r.validation.job} cannot be read: {error.reason}"
            return replace(s, job_problem=why, job_due=False)

    def _claim_by_event(self, s: Situation, memory: Memory, fresh: bool) -> str:
        """Who else is at work on the node, by its own Events. What cannot be read may not be assumed."""
        now = self.world.clock.monotonic()
        if memory.claim is not None and not fresh and now - memory.claim[0] < EVENTS_AGE:
            return memory.claim[1]
        found = ""
        for teller in event_claims():
            if s.machine is None or s.machine.provider != teller.provider:
                continue
            try:
                events = self.world.cluster.list_node_events(s.node_name, teller.source)
            except ApiUnavailable:
                raise
            except ApiError as error:
                found = found or f"whether {teller.system} is at work here cannot be read: {error.reason}"
                continue
            found = found or claim_by_events(teller, s.node_name, events, s.now) or ""
        memory.claim = (now, found)
        return found

    def _preflight(self, s: Situation, action: Step) -> Situation:
        """Ask the provider about a destructive step, before anything is done to the node."""
        assert s.provider is not None
        assert s.machine is not None
        provider = self.world.providers.get(s.provider.name)
        if action not in s.provider.actions:
            return replace(s, preflight_refused=f"provider {provider.name} cannot {action.value} {s.machine}")
        try:
            return replace(s, preflight=provider.preflight(s.machine, action))
        except Refused as error:
            return replace(s, preflight_refused=error.reason)
        except Retry as error:
            return replace(s, preflight_retry=error.reason)

    # ------------------------------------------------------------ the census

    def _count(self, s: Situation, memory: Memory) -> Census:
        """The sick, counted now."""
        w = self.world
        labels = {*s.policy.limits.brake_per, *s.policy.limits.budget_per}
        records, unknown = [], []
        for found in w.records.all():
            if isinstance(found, Undecodable):
                unknown.append(found.name)
            else:
                records.append(found)
        now = w.cluster.time.now()
        memory.census = count(w.cluster.list_nodes(), records, own_fault, labels, now, unknown)
        return memory.census

    def _known_census(self, s: Situation, memory: Memory, age: timedelta) -> Census | None:
        """The latest count that we or another made, if it is no older than ``age``."""
        counts = [known for known in (memory.census, s.gate.census if s.gate else None) if known is not None]
        for known in sorted(counts, key=lambda census: census.at, reverse=True):
            if any(scope not in known.by_label for scope in self._scopes(s)):
                continue  # counted under another policy
            if timedelta(0) <= s.now - known.at <= age:
                return known
        return None

    def _scopes(self, s: Situation) -> list[str]:
        """The scopes in which this node's neighbours have to be counted."""
        labels = s.node.labels if s.node else {}
        keys = {*s.policy.limits.brake_per, *s.policy.limits.budget_per}
        return [f"{key}={labels[key]}" for key in keys if key in labels]

    # ------------------------------------------------------------ after a call

    def _poll(self, s: Situation, r: Record) -> Standing:
        assert r.intent is not None
        try:
            found = self.world.providers.get(r.machine.provider).poll(r.machine, r.intent.reference)
        except (Retry, Refused, SettingsError) as error:
            return Running(f"{r.intent.action}: {error}")  # the rung's deadline decides
        return self._deleted(s, r, found.what) if isinstance(found, Deleting) else found

    def _deleted(self, s: Situation, r: Record, what: ClusterDelete) -> Standing:
        """A replacement by deletion is seen through the Kubernetes API: the object gone, and the Node."""
        deleting = self.world.cluster.deleting(what)
        if deleting is not None:
            if not deleting:
                return NotApplied(f"{what} is there, and nobody deletes it")
            return Running(f"{what} is being deleted{f' by {what.by}' if what.by else ''}")
        if s.node is not None and (s.machine is None or s.machine.id == r.machine.id):
            return Running(f"{what} is gone, and Node {r.node} is not yet")
        return Done(f"Node {r.node} and {what} are gone", final=True)

    def _new_node(self, s: Situation, r: Record, memory: Memory, me: str) -> Situation:
        """The node that the new machine has become."""
        found = self._node(r.replacement) if r.replacement else None
        if found is None or not self._is(found, r.replacement_machine):
            found = self._seek(r.replacement_machine, memory)
        if found is None:
            return s
        return replace(
            s,
            replacement=found,
            replacement_is_me=found.name == me,
            replacement_problem=_complaint(found),
            replacement_record=self._own_record(found),
        )

    def _seek(self, machine: str, memory: Memory) -> NodeView | None:
        """The Node of a machine, among all; the more there are, the less often it is looked for."""
        now = self.world.clock.monotonic()
        if now < memory.seek_again:
            return None
        seen = 0
        for node in self.world.cluster.list_nodes():
            if self._is(node, machine):
                return node
            seen += 1
        memory.seek_again = now + seen / NODES_A_SECOND
        return None

    def _own_record(self, node: NodeView) -> str:
        """What a record of the node's own, for the very machine it runs on, says of it."""
        record = self.world.records.read(node.name)
        ours = record is not None and record.phase.sick and self._is(node, record.machine.id)
        return record.sentence if record is not None and ours else ""

    def _is(self, node: NodeView, machine: str) -> bool:
        """Whether ``node`` runs on the machine with this ID, as its Node or as its provider names it."""
        if is_machine(node, machine):
            return True
        found = self.world.providers.identify(node).machine
        return found is not None and found.id == machine


def _complaint(node: NodeView) -> str:
    """A condition that counts, by which a node is not to be trusted."""
    for kind, (status, reason) in node.conditions.items():
        if status == "True" and own_fault(kind, reason):
            return f"its condition {kind} is True ({reason})"
    return ""


def past(r: Record | None, now: datetime) -> Record | None:
    """A moment in the future counts as now. What is within ``LEEWAY`` is two clocks rounding."""
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
    """Those that timers count from."""
    return [r.phase_since, *([r.rung_since] if r.rung_since else []), *(f.since for f in r.faults)]


def is_machine(node: NodeView, machine: str) -> bool:
    """Whether ``node`` runs on the machine with this ID."""
    return bool(machine) and (
        node.provider_id.rsplit("/", 1)[-1].lower() == machine.lower()
        or node.system_uuid.lower() == machine.lower()
    )


def own_fault(kind: str, reason: str) -> bool:
    """Whether a condition or fault is catalogued as the node's own, or at least its type is."""
    row = lookup(kind, reason)
    return row.this_node if row is not None else kind in types()
