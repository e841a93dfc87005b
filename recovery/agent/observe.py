"""Reading the world, once per cycle, into a frozen ``Situation``.

Only what the record's phase asks for is read: a healthy node without a record costs the API server nothing.
An error while reading is never a kind of healthy: it ends the cycle, or becomes a reason in the situation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from recovery.catalog import claim_by_events, event_claims, foreign_claim, lookup, types
from recovery.clock import Clock
from recovery.decide import brakes
from recovery.decide.budget import ahead_of
from recovery.decide.census import count
from recovery.decide.endings import UNSETTLED
from recovery.decide.situation import Role, Situation
from recovery.errors import ApiError, ApiUnavailable, NotFound, Refused, Retry, SettingsError, Undecodable
from recovery.kube.cluster import Cluster
from recovery.model import (
    Census,
    ClusterDelete,
    Done,
    Gate,
    IntentState,
    NodeView,
    NotApplied,
    Phase,
    Policy,
    Poll,
    Preflight,
    Reading,
    Record,
    Running,
    Step,
)
from recovery.provider.protocol import Witness
from recovery.provider.registry import Identified, Providers
from recovery.store.gate import Gates
from recovery.store.lease import Leases
from recovery.store.record import Records, decode

CENSUS_AGE = timedelta(seconds=10)
"""How old a count may be for evictions of a drain under way. Provider calls are always counted anew."""
NODES_A_SECOND = 500
"""How many Nodes are read to find a new machine among them: 5,000 in ten seconds, then once more."""
LEEWAY = timedelta(seconds=5)
EVENTS_AGE = 30.0
"""Seconds for which what others tell of a node is not read again; before a call it is."""
FIRST_REFUSAL, WORST_REFUSAL = 2.0, 10.0
"""Seconds after which a pod that a disruption budget kept is asked for again; each time twice as many."""
LONGEST_REFUSAL = 30.0
"""Seconds for which a server may send us away; and between two tries of what it forbids."""
RATE_WINDOW = 1.0
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


@dataclass(frozen=True)
class Refusal:
    """What was said when a pod was asked for, how often in a row, and until when it is left alone."""

    reason: str
    times: int
    until: float


@dataclass
class Memory:
    """What an observer remembers of one node between cycles. Losing it costs time, never safety."""

    refused: dict[str, Refusal] = field(default_factory=dict)
    evicted: list[float] = field(default_factory=list)  # when evictions were asked for, of late
    intents: dict[str, float] = field(default_factory=dict)
    gone_since: float | None = None
    turn: tuple[str, float] | None = None  # who is at the head of the queue, and since when
    census: Census | None = None
    proving_since: float | None = None
    seek_again: float = 0.0  # when to look for its new machine again
    down: tuple[float, str] | None = None  # by what a machine was seen to be down, and when that was asked
    job_problem: str = ""  # why the validation Job could not be made
    job_again: float = 0.0  # when to try again
    told: tuple[float, str] | None = None  # what others tell of the node in Events, and when that was read

    def refuse(self, what: str, reason: str, now: float, retry_after: float | None = None) -> None:
        """``what`` is not asked for again for a while, which doubles with each time."""
        before = self.refused.get(what)
        times = before.times + 1 if before else 1
        pause = min(FIRST_REFUSAL * 2 ** (times - 1), WORST_REFUSAL)
        pause = max(pause, min(retry_after or 0.0, LONGEST_REFUSAL))
        self.refused[what] = Refusal(reason, times, now + pause)

    def evictions_free(self, most: int | None, now: float) -> int | None:
        """How many of ``most`` evictions a second are left now."""
        if most is None:
            return None
        self.evicted = [at for at in self.evicted if now - at < RATE_WINDOW]
        return max(0, most - len(self.evicted))


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
        """All that a decision about ``node_name`` may depend on, read now. ``fresh``: count the sick anew.

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
            forbidden=(foreign_claim(node) or "") if node else "",
            **self._ours(node_name, now, fresh),
        )
        if s.record is not None and s.record.phase.open and w.on:
            s = self._for_phase(s, s.record, me, fresh)
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

    # ------------------------------------------------------------ what a phase asks for

    def _for_phase(self, s: Situation, r: Record, me: str, fresh: bool) -> Situation:
        memory = self.memory(r.node)
        s = replace(s, refusals=self._refusals(memory), intent_seen_for=self._intent_age(memory, r))
        if s.role is Role.CONCLUDER:
            s = self._of_the_dead(s, r, memory, me)
        needs_gate = s.gate is None and not s.gate_problem and r.phase is not Phase.SUSPECT
        if needs_gate or (s.gate is not None and s.gate.stamp != s.gate.uid):
            s = replace(s, gate=self._made_ready(s))
        unsettled = r.intent is not None and r.intent.state in UNSETTLED
        if unsettled and r.phase is Phase.RECOVERING:
            return replace(s, poll=self._poll(s, r))
        if r.phase is not Phase.PROVING:
            memory.proving_since = None
        elif r.replacement_machine:
            return self._replacement(s, r, memory, me)
        else:
            return self._job(replace(s, watched_for=self._watched(memory)), r)
        if s.role is Role.CONCLUDER:
            return self._on_the_rung(s, r, memory, fresh) if s.may_power else s
        if not s.forbidden:
            s = replace(s, forbidden=self._told(s, memory, fresh))
        if r.phase is Phase.WAITING:
            return self._before_start(s, r, memory, fresh)
        if r.phase is Phase.RECOVERING:
            return self._on_the_rung(s, r, memory, fresh)
        return s

    def _made_ready(self, s: Situation) -> Gate | None:
        try:
            return self.world.gates.ready(s.gate, s.now)
        except ApiError:
            return None

    def _refusals(self, memory: Memory) -> Mapping[str, str]:
        now = self.world.clock.monotonic()
        return {pod: each.reason for pod, each in memory.refused.items() if now < each.until}

    def _gone_for(self, memory: Memory) -> timedelta:
        now = self.world.clock.monotonic()
        memory.gone_since = now if memory.gone_since is None else memory.gone_since
        return timedelta(seconds=now - memory.gone_since)

    def _watched(self, memory: Memory) -> timedelta:
        now = self.world.clock.monotonic()
        memory.proving_since = now if memory.proving_since is None else memory.proving_since
        return timedelta(seconds=now - memory.proving_since)

    def _intent_age(self, memory: Memory, r: Record) -> timedelta:
        """How long *we* have seen this very intent, on the clock that a stopped process cannot fool."""
        if r.intent is None or r.intent.state is not IntentState.WRITTEN:
            return timedelta(0)
        first = memory.intents.setdefault(f"{r.intent.token}/{r.intent.attempt}", self.world.clock.boottime())
        return timedelta(seconds=self.world.clock.boottime() - first)

    def _before_start(self, s: Situation, r: Record, memory: Memory, fresh: bool) -> Situation:
        if s.gate is None or (line := next((x for x in s.gate.open if x.record_uid == r.uid), None)) is None:
            return s
        if memory.turn is not None and memory.turn[0] in ahead_of(s.gate, r.uid)[:1]:
            s = replace(s, turn_waited=timedelta(seconds=self.world.clock.monotonic() - memory.turn[1]))
        if brakes.first_reason(brakes.UNASKED, s):
            return s  # nothing to ask the cloud about yet
        s = self._preflight(s, r)
        joined = min(line.since, s.now)
        if brakes.first_reason(brakes.CHEAP, s) or (line.since <= s.now and s.now - joined < s.settle):
            return s
        s = replace(s, census=self._known_census(s, memory, CENSUS_AGE))
        if brakes.turn(s):  # those at the head of the queue count, for all
            return s
        return replace(s, census=self._census(s, memory, not_before=joined + s.settle, fresh=fresh))

    def _on_the_rung(self, s: Situation, r: Record, memory: Memory, fresh: bool) -> Situation:
        rung = r.step
        if rung is None or rung.do is Step.NOTIFY:
            return s
        if rung.do is Step.DRAIN and r.rung_since is not None and s.role is Role.OWNER:
            free = memory.evictions_free(s.policy.drain.evictions_per_second, self.world.clock.monotonic())
            s = replace(s, pods=self.world.cluster.list_pods(r.node), evictions_free=free)
        s = replace(s, census=self._census(s, memory, fresh=fresh, age=CENSUS_AGE))
        return self._preflight(s, r) if rung.do.provider_action else s

    def _of_the_dead(self, s: Situation, r: Record, memory: Memory, me: str) -> Situation:
        """What a concluder asks of a node whose agent is gone: is its machine down, and what is stuck?"""
        powers = not me and s.provider is not None and bool(s.provider.from_outside)
        s = replace(s, owner_gone_for=self._gone_for(memory), may_power=powers)
        provider = self.world.providers.get(s.provider.name) if s.provider is not None else None
        if me or s.node is None or s.node.ready or s.machine is None or not isinstance(provider, Witness):
            return s
        now = self.world.clock.monotonic()
        if memory.down is None or now - memory.down[0] >= DOWN_AGE:
            try:
                memory.down = (now, provider.down(s.machine) or "")
            except (Retry, Refused):
                memory.down = (now, "")  # not proved
        down = memory.down[1]
        return replace(s, down=down, pods=self.world.cluster.list_pods(r.node) if down else None)

    def _job(self, s: Situation, r: Record) -> Situation:
        """The validation Job on record, as it is now."""
        if r.validation is None or s.role is not Role.OWNER:
            return s
        memory = self.memory(r.node)
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

    # ------------------------------------------------------------ single readings

    def _told(self, s: Situation, memory: Memory, fresh: bool) -> str:
        """Who else is at work on the node, by its own Events. What cannot be read may not be assumed."""
        now = self.world.clock.monotonic()
        if memory.told is not None and not fresh and now - memory.told[0] < EVENTS_AGE:
            return memory.told[1]
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
        memory.told = (now, found)
        return found

    def _preflight(self, s: Situation, r: Record) -> Situation:
        """Ask the provider about the ladder's next destructive step, before anything is done to the node."""
        action = next((x.do for x in r.ladder[r.rung :] if x.do.provider_action), None)
        if action is None or s.provider is None or s.machine is None:
            return s
        if s.role is Role.OWNER and action in s.provider.from_outside:
            return s  # another one's to ask
        provider = self.world.providers.get(s.provider.name)
        if action not in s.provider.actions:
            return replace(s, preflight_refused=f"provider {provider.name} cannot {action.value} {s.machine}")
        try:
            found: Preflight = provider.preflight(s.machine, action)
        except Refused as error:
            return replace(s, preflight_refused=error.reason)
        except Retry as error:
            return replace(s, preflight_retry=error.reason)
        return replace(s, preflight=found)

    def _census(
        self,
        s: Situation,
        memory: Memory,
        *,
        not_before: datetime | None = None,
        fresh: bool = False,
        age: timedelta | None = None,
    ) -> Census:
        """The sick, counted now; or as somebody counted them a moment ago."""
        known = None if fresh else self._known_census(s, memory, age or s.settle)
        if known is not None and (not_before is None or known.at >= not_before):
            return known
        w = self.world
        labels = {*s.policy.limits.brake_per, *s.policy.limits.budget_per}
        records, unknown = [], []
        for obj in w.cluster.list_records():
            try:
                records.append(decode(obj))
            except Undecodable:
                unknown.append(str(obj["metadata"]["name"]))
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

    def _poll(self, s: Situation, r: Record) -> Poll | None:
        assert r.intent is not None
        if r.machine.route.get("nodeclaim") and r.intent.action == Step.REPLACE.value:
            return self._node_claim(s, r)
        try:
            return self.world.providers.get(r.machine.provider).poll(r.machine, r.intent.reference)
        except (Retry, Refused, SettingsError) as error:
            return Running(f"{r.intent.action}: {error}")  # the rung's deadline decides

    def _node_claim(self, s: Situation, r: Record) -> Poll:
        """Karpenter's way is seen through the Kubernetes API: Node and NodeClaim gone."""
        deleting = self.world.cluster.deleting(node_claim(r))
        if deleting is not None:
            name = r.machine.route["nodeclaim"]
            if not deleting:
                return NotApplied(f"NodeClaim {name} is there, and nobody deletes it")
            return Running(f"NodeClaim {name} is being deleted by Karpenter")
        if s.node is not None and (s.machine is None or s.machine.id == r.machine.id):
            return Running(f"NodeClaim {r.machine.route['nodeclaim']} is gone, and Node {r.node} is not yet")
        return Done(f"Node {r.node} and NodeClaim {r.machine.route['nodeclaim']} are gone")

    def _replacement(self, s: Situation, r: Record, memory: Memory, me: str) -> Situation:
        """The node that the new machine has become."""
        found = None
        if r.replacement:
            found = self._node(r.replacement)
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


def node_claim(r: Record) -> ClusterDelete:
    """The object whose deletion replaces a Karpenter node."""
    route = r.machine.route
    return ClusterDelete("karpenter.sh/v1", "nodeclaims", route["nodeclaim"], route["nodeclaim_uid"])


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
