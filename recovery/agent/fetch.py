"""Fetches what ``decide.needs`` asks for, one ``Need`` at a time, from the API server or the provider.

A refusal that the core can decide on becomes a field of the situation. Any other error ends the cycle.
"""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

from recovery.agent import counting
from recovery.agent.memory import Memory
from recovery.agent.word import heard
from recovery.agent.world import World
from recovery.catalog import claim_by_events, event_claims, own_fault
from recovery.decide.census import count
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
from recovery.model import (
    Census,
    ClusterDelete,
    Deleting,
    Done,
    Gate,
    NodeView,
    NotApplied,
    Record,
    Running,
    Standing,
    Step,
)
from recovery.provider.protocol import PowerSensor

NODES_A_SECOND = 500
"""All Nodes are listed to find the one that a new machine became. The pause before the next list grows with
their number: ten seconds for 5,000 Nodes."""
EVENTS_AGE = 30.0
"""Seconds for which other remediators' Events on a node are not read again; before a destructive call they
always are."""
DOWN_AGE = 15.0
"""Seconds for which it is not asked again whether the machine is down: a dead BMC takes long to time out."""


class Fetcher:
    """Answers each ``Need``."""

    def __init__(self, world: World) -> None:
        self._w = world
        self._chance = random.Random()  # noqa: S311 - jitter

    def fetch(
        self, s: Situation, r: Record, need: Need, memory: Memory, *, me: str, fresh: bool
    ) -> Situation:
        """``s`` with what was needed. ``me`` and ``fresh`` are those of ``Observer.situation``."""
        match need:
            case GateMadeReady():
                return replace(s, gate=self._made_ready(s))
            case Progressed():
                return replace(s, poll=self._poll(s, r, memory))
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
                return self._preflight(s, action, memory, fresh)
            case Counted():
                return replace(s, census=self._census(s, need, memory, fresh))

    def _made_ready(self, s: Situation) -> Gate | None:
        try:
            return self._w.gates.ready(s.gate, s.now)
        except ApiError:
            return None

    def _down(self, s: Situation, memory: Memory) -> str:
        """What shows that the machine is powered down; empty where nothing does, or it cannot be seen."""
        assert s.machine is not None
        assert s.provider is not None
        provider = self._w.providers.get(s.provider.name)
        assert isinstance(provider, PowerSensor)  # it declared it
        now = self._w.clock.monotonic()
        if memory.down is None or now - memory.down[0] >= DOWN_AGE:
            try:
                memory.down = (now, provider.down(s.machine) or "")
            except (Retry, Refused):
                memory.down = (now, "")  # not proved
        return memory.down[1]

    def _pods(self, s: Situation, r: Record, memory: Memory, evicting: bool) -> Situation:
        most, now = s.policy.drain.evictions_per_second, self._w.clock.monotonic()
        free = memory.evictions_free(most, now) if evicting else s.evictions_free
        return replace(s, pods=self._w.cluster.list_pods(r.node), evictions_free=free)

    def _job(self, s: Situation, r: Record, memory: Memory) -> Situation:
        """The validation Job on record, as it is now."""
        assert r.validation is not None
        try:
            return replace(s, job=self._w.cluster.get_job(r.validation.job))
        except NotFound:
            due = self._w.clock.monotonic() >= memory.job_again
            return replace(s, job_problem=memory.job_problem, job_due=due)
        except ApiUnavailable:
            raise
        except ApiError as error:
            why = f"Job {r.validation.job} cannot be read: {error.reason}"
            return replace(s, job_problem=why, job_due=False)

    def _claim_by_event(self, s: Situation, memory: Memory, fresh: bool) -> str:
        """Who else is at work on the node, by that remediator's own Events.

        Events that may not be read count as somebody at work: "nobody" must not be assumed.
        """
        now = self._w.clock.monotonic()
        if memory.claim is not None and not fresh and now - memory.claim[0] < EVENTS_AGE:
            return memory.claim[1]
        found = ""
        for remediator in event_claims():
            if s.machine is None or s.machine.provider != remediator.provider:
                continue
            try:
                events = self._w.cluster.list_node_events(s.node_name, remediator.source)
            except ApiUnavailable:
                raise
            except ApiError as error:
                found = found or f"whether {remediator.system} is at work here cannot be read: {error.reason}"
                continue
            found = found or claim_by_events(remediator, s.node_name, events, s.now) or ""
        memory.claim = (now, found)
        return found

    def _preflight(self, s: Situation, action: Step, memory: Memory, fresh: bool) -> Situation:
        """Ask the provider about a destructive step, before anything is done to the node."""
        assert s.provider is not None
        assert s.machine is not None
        provider = self._w.providers.get(s.provider.name)
        if action not in s.provider.actions:
            return replace(s, preflight_refused=f"provider {provider.name} cannot {action.value} {s.machine}")
        if (why := memory.cloud_rests(self._w.clock.monotonic())) and not fresh:
            return replace(s, preflight_retry=why)
        try:
            found = provider.preflight(s.machine, action)
        except Refused as error:
            return replace(s, preflight_refused=error.reason)
        except Retry as error:
            memory.cloud_failed(error, self._w.clock.monotonic(), self._chance)
            return replace(s, preflight_retry=error.reason)
        memory.cloud_failures = 0
        return replace(s, preflight=found)

    # ------------------------------------------------------------ the census

    def _census(self, s: Situation, need: Counted, memory: Memory, fresh: bool) -> Census | None:
        """The census that is asked for. Who is about to start counts by itself; others share one count."""
        latest = self._known_census(s, memory, need.age)
        if need.known:
            return latest
        if fresh or need.since is not None:
            old = latest is None or (need.since is not None and latest.at < need.since)
            return self._counted(s, memory) if fresh or old else latest
        newest = max(self._counts(s, memory), key=lambda census: census.at, default=None)
        if counting.my_turn(newest, newest is memory.census, s, need.age):
            return self._counted(s, memory)
        return latest

    def _counted(self, s: Situation, memory: Memory) -> Census:
        """Count, and note how long that took: the others wait for as long before they count themselves."""
        began = self._w.clock.monotonic()
        found = self._count(s, memory)
        memory.census = replace(found, seconds=int(self._w.clock.monotonic() - began))
        return memory.census

    def _count(self, s: Situation, memory: Memory) -> Census:
        """Count the sick now, over all Nodes and records. A record that cannot be decoded counts as sick."""
        w = self._w
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
        """The latest count by this agent or another (on the gate), if it is no older than ``age``."""
        for known in sorted(self._counts(s, memory), key=lambda census: census.at, reverse=True):
            if counting.good(known, s, age):
                return known
        return None

    def _counts(self, s: Situation, memory: Memory) -> list[Census]:
        """The counts that are there: our own, and the one on the gate. Not those under another policy."""
        known = (memory.census, s.gate.census if s.gate else None)
        return [c for c in known if c is not None and all(x in c.by_label for x in self._scopes(s))]

    def _scopes(self, s: Situation) -> list[str]:
        """The scopes (label=value) of this node that the budget or the brake is counted by."""
        labels = s.node.labels if s.node else {}
        keys = {*s.policy.limits.brake_per, *s.policy.limits.budget_per}
        return [f"{key}={labels[key]}" for key in keys if key in labels]

    # ------------------------------------------------------------ after a call

    def _poll(self, s: Situation, r: Record, memory: Memory) -> Standing:
        """How the action on record stands. A provider that cannot say so leaves it to the rung's deadline."""
        assert r.intent is not None
        now = self._w.clock.monotonic()
        if why := memory.cloud_rests(now):
            return Running(f"{r.intent.action}: {why}")
        try:
            found = self._w.providers.get(r.machine.provider).poll(r.machine, r.intent.reference)
        except (Retry, Refused, SettingsError) as error:
            if isinstance(error, Retry):
                memory.cloud_failed(error, now, self._chance)
            return Running(f"{r.intent.action}: {error}")
        memory.cloud_failures = 0
        return self._deleted(s, r, found.what) if isinstance(found, Deleting) else found

    def _deleted(self, s: Situation, r: Record, what: ClusterDelete) -> Standing:
        """A replacement by deletion is done when both the deleted object and the Node are gone."""
        deleting = self._w.cluster.deleting(what)
        if deleting is not None:
            if not deleting:
                return NotApplied(f"{what} is there, and nobody deletes it")
            return Running(f"{what} is being deleted{f' by {what.by}' if what.by else ''}")
        if s.node is not None and (s.machine is None or s.machine.id == r.machine.id):
            return Running(f"{what} is gone, and Node {r.node} is not yet")
        return Done(f"Node {r.node} and {what} are gone", final=True)

    def _new_node(self, s: Situation, r: Record, memory: Memory, me: str) -> Situation:
        """The Node that the new machine has registered, if there is one yet."""
        found = self._w.node(r.replacement) if r.replacement else None
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
            replacement_page=heard(*self._w.leases.word(found.name), r.replacement_machine)
            if s.role is Role.CONCLUDER
            else None,
        )

    def _seek(self, machine: str, memory: Memory) -> NodeView | None:
        """The Node of a machine, searched among all Nodes, less often the more there are."""
        now = self._w.clock.monotonic()
        if now < memory.seek_again:
            return None
        seen = 0
        for node in self._w.cluster.list_nodes():
            if self._is(node, machine):
                return node
            seen += 1
        memory.seek_again = now + seen / NODES_A_SECOND
        return None

    def _own_record(self, node: NodeView) -> str:
        """The sentence of the new node's own record, where that counts its very machine as sick."""
        record = self._w.records.read(node.name)
        ours = record is not None and record.phase.sick and self._is(node, record.machine.id)
        return record.sentence if record is not None and ours else ""

    def _is(self, node: NodeView, machine: str) -> bool:
        """Whether ``node`` runs on the machine with this ID: by its Node, or by its provider."""
        if is_machine(node, machine):
            return True
        found = self._w.providers.identify(node).machine
        return found is not None and found.id == machine


def _complaint(node: NodeView) -> str:
    """A condition of ``node`` that is True and catalogued as the node's own fault."""
    for kind, (status, reason) in node.conditions.items():
        if status == "True" and own_fault(kind, reason):
            return f"its condition {kind} is True ({reason})"
    return ""


def is_machine(node: NodeView, machine: str) -> bool:
    """Whether ``node`` runs on the machine with this ID, by its providerID or system UUID."""
    return bool(machine) and (
        node.provider_id.rsplit("/", 1)[-1].lower() == machine.lower()
        or node.system_uuid.lower() == machine.lower()
    )
