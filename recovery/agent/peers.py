"""Peers: finishes the recoveries of agents that are dead.

Each agent sweeps over the others' open records, which are on the gate: once a minute in a small fleet, less
often in a large one (``pace``). While its own node is next in the queue, it looks at the holders of slots
every two seconds. Lease and Node are read only for open records. ``RECOVERY_MODE=concluder`` is the same
sweep without a node of its own.
"""

from __future__ import annotations

import heapq
import logging
import math
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from recovery.agent import bugs
from recovery.agent.backoff import Backoff, pause_after
from recovery.agent.desk import Ask
from recovery.agent.execute import Executor
from recovery.agent.left_alone import LeftAlone
from recovery.agent.observe import Observer
from recovery.agent.pace import Pace
from recovery.agent.retention import Remover
from recovery.agent.word import Complaint, Readings, Word
from recovery.agent.world import World
from recovery.decide.budget import holders, places, queue_length
from recovery.decide.decision import REPEAT, Decision, EventReason, FreeSlot, WriteRecord
from recovery.decide.gone import lay_to_rest
from recovery.decide.orphan import conclude
from recovery.decide.situation import Lease, Role, Situation
from recovery.errors import (
    ApiError,
    ApiUnavailable,
    NodeRecoveryError,
    SettingsError,
    TooManyRequests,
    Undecodable,
)
from recovery.kube.paging import folded
from recovery.model import Gate, Phase
from recovery.provider.protocol import OutOfBand, Provider, abilities_of
from recovery.report.fleet_gauges import FleetGauges
from recovery.report.metrics import Metrics
from recovery.report.notice import About, Notice
from recovery.report.publish import Publisher
from recovery.store.lease import LISTED_EVERY

log = logging.getLogger(__name__)

SWEEPER = "(the sweeper)"
"""Stands for a node's name where the sweep's own share of a gauge is counted."""
Place = tuple[str, str]
"""Node and record UID, as the gate has them."""
IDLE = 60.0
BUSY = 2.0
HOLDERS, NEXT = 5, 10
"""How many holders of slots one agent watches that is next in the queue, and how many are next."""
LONGEST_SWEEP = 10.0
"""Seconds after which a sweep stops: the own node and the liveness probe must not wait for 300 records."""
HEAD_START = 1.25
"""How much longer than a concluder an agent waits, in Leases, before it takes one that has run out. The
concluder can do more."""
FIRST_PAUSE = 8.0
"""Seconds without a request after the first error; each further one doubles them."""
SWEEPS_A_TURN = 5
"""For how many sweeps an agent watches the same records. Only so it sees that a Lease does not change."""
MOST_LEFT = 1000
MOST_GHOSTS = 50
"""How many handed-over nodes without a Node a sweep looks at: is their machine gone?"""
LEFT_TO_THE_CONCLUDER = 20 * 60.0
"""Seconds for which agents leave a record to the concluder, where that alone may power-cycle the machine."""


@dataclass
class _HandOver:
    """A node that was handed over. ``ours``: by this process. Otherwise its own agent may be alive, and has
    told of it."""

    sentence: str
    node_uid: str
    reported_at: float
    ours: bool = True


def _share(gate: Gate) -> int:
    """How many holders of slots each agent watches that is next in the queue. Where the queue is short,
    more."""
    return HOLDERS * NEXT // min(NEXT, queue_length(gate))


class Sweeper:
    """Looks at other nodes' open records, and takes over those of dead agents.

    ``me`` is this agent's own node, empty for a concluder. ``idle``: seconds between two sweeps when nothing
    is going on in a small fleet (``pace``). It is the duration of a Lease, so that a dead agent's goes stale
    between two sweeps. ``beat`` is called after each record, so that a long sweep does not look stuck.
    ``summon`` is told of each handed-over node that this process has an agent for: that agent repeats it each
    minute. ``left`` is told of each node with a record that counts, with recovery off (``LeftAlone``).
    """

    def __init__(
        self,
        world: World,
        observer: Observer,
        executor: Executor,
        publisher: Publisher,
        metrics: Metrics,
        me: str,
        *,
        idle: float = IDLE,
        chance: random.Random | None = None,
        readings: Readings = tuple,
        complaint: Complaint = str,
        beat: Callable[[], None] = lambda: None,
        summon: Callable[[str], None] = lambda _: None,
        left: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._w = world
        self._word = Word(world, me, readings, complaint)
        self._idle = idle
        self._observer = observer
        self._executor = executor
        self._publisher = publisher
        self._metrics = metrics
        self._gauges = FleetGauges(metrics, world.policy, world.most_slots)
        self._me = me
        self._chance = chance or random.Random()  # noqa: S311 - jitter
        self._beat = beat
        self._summon = summon
        self._pace = Pace(world, idle, alone=not me)
        self._backoff = Backoff(world.clock, FIRST_PAUSE, 2 * idle, self._chance)
        self._remover = Remover(world, me)
        self._left_alone = LeftAlone(world, publisher, metrics, SWEEPER, left)
        self._due = self._holders_due = 0.0
        self._paced = 0.0
        self._hand_overs_due = math.inf
        self._look_at: dict[Place, float] = {}
        """What is watched, and when each is to be looked at next."""
        self._failed: dict[str, int] = {}
        self._doubted: set[str] = set()
        self._said: dict[str, str] = {}
        self._handed: dict[str, _HandOver] = {}
        self._left: dict[str, float] = {}
        self._listed_at: float | None = None
        self._without_node: set[str] = set()
        self._wanted_back: set[tuple[str, str]] = set()
        self._gate_uid = ""
        self.refused = ""
        """Why the last sweep could read nothing; "" where it could."""
        self.own_place = False
        """Whether the gate lists the own node: its agent may not know, where etcd was restored."""

    @property
    def population(self) -> int:
        """How many Nodes there are, as far as is known; 0 at first."""
        return self._pace.population

    def sweep(self, next_in_queue: bool = False) -> float:
        """Look at others' open records if it is time to. Seconds until the next look. Never raises.

        ``next_in_queue``: the own node is among the next to get a slot, so those that hold one are looked at
        sooner. A sweep ends after ``LONGEST_SWEEP``, and the next one goes on where it stopped.
        """
        self._metrics.clock_outlier.set(self._w.cluster.time.outlier.total_seconds())
        if not self._w.on:
            return self._idle if self._me else self._left_alone.tell()
        self._word.tell()
        if (left := self._due_in(next_in_queue)) > 0:
            return left
        try:
            self._round(next_in_queue)
            self._backoff.answered()
            self.refused = ""
            self._w.outage.answered(self._w.clock.monotonic())
        except (ApiError, Undecodable) as error:
            self._tell_of(error)
            if isinstance(error, ApiUnavailable):
                self._w.leases.start_over()
                self._w.outage.away(self._w.clock.monotonic())
            self.rest_after(error)
        except Exception:
            bugs.survived(self._metrics, "sweep", "trying again later")
            self._backoff.until = self._w.clock.monotonic() + self._idle
        return max(0.0, self._due_in(next_in_queue))

    def _tell_of(self, error: ApiError | Undecodable) -> None:
        """Say once, and count, what keeps this from sweeping. An agent says it of its own cycles."""
        known = self._me or str(error) == self.refused
        level = logging.DEBUG if known else logging.WARNING
        log.log(level, "open records are not looked at: %s; it is tried again", error)
        if not self._me:
            self._metrics.errors.labels("api" if isinstance(error, ApiError) else type(error).__name__).inc()
        self.refused = str(error)

    def stands_down(self) -> None:
        """Another sweeps now: what this one knew is shown no more."""
        self.refused = ""
        self._gauges.forget()
        self._metrics.clock_outlier.set(0)
        self._handed.clear()
        self._metrics.forget(SWEEPER)

    def rest_after(self, error: Exception) -> None:
        """Ask for nothing for a while."""
        self._backoff.failed(error.retry_after if isinstance(error, ApiError) else None)

    def _due_in(self, next_in_queue: bool) -> float:
        """Seconds until there is something to look at."""
        due = min([self._due, self._hand_overs_due, *self._look_at.values()])
        if next_in_queue:
            due = min(due, self._holders_due)
        return max(due, self._backoff.until) - self._w.clock.monotonic()

    def _round(self, next_in_queue: bool) -> None:
        """Read the gate, and look at the records that are due.

        In a ``full`` round, which is less frequent, the records to watch are chosen anew.
        """
        now = self._w.clock.monotonic()
        full = now >= self._due
        unlisted = self._unlisted() if full and not self._me else set()
        gate = self._gate()
        on_gate = places(gate) if gate is not None else set()
        if full:
            self._remover.turn(gate)
            unlisted |= self._remover.hidden
        self._gauges.show(gate, self._w.cluster.time.now(), self._pace.population)
        self.own_place = any(node == self._me for node, _ in on_gate)
        if gate is not None:
            self._word.ask(gate)
        there = on_gate | unlisted | self._wanted_back | (self._remover.hidden if self._me else set())
        for gone in [place for place in self._look_at if place not in there]:
            del self._look_at[gone]
        if full:
            self._pace.learn(gate)
            self._doubted.clear()
            chosen = self._mine_to_watch(there, self._pace.watched()) | unlisted
            # One that is overdue since a sweep before goes first.
            self._look_at = {place: min(now, self._look_at.get(place, now)) for place in sorted(chosen)}
            self._due = now + self._until_the_next()
        if next_in_queue and now >= self._holders_due and gate is not None:
            self._look_at |= dict.fromkeys(sorted(self._mine_to_watch(holders(gate), _share(gate))), now)
            self._holders_due = now + BUSY
        self._look_at_due()
        if not self._me:  # an agent goes on with what it has begun
            for place in unlisted - self._wanted_back - on_gate:
                self._look_at.pop(place, None)
        self._hand_overs_due = self._w.clock.monotonic() + self._repeat_hand_overs()
        if full:
            self._lay_to_rest()

    def _until_the_next(self) -> float:
        """Seconds between two looks at the gate. Agents that were started together are spread at once."""
        pause = self._pace.interval()
        if self._paced != pause:
            self._paced = pause
            pause = self._idle + (pause - self._idle) * self._chance.random()
        return pause * self._chance.uniform(0.8, 1.2)

    def _look_at_due(self) -> None:
        """Look at each record that is due, the one that is due longest first."""
        began = now = self._w.clock.monotonic()
        for place in sorted(
            (p for p, due in self._look_at.items() if due <= now), key=self._look_at.__getitem__
        ):
            again = self._one(*place)
            self._beat()
            now = self._w.clock.monotonic()
            self._look_at[place] = now + again
            if now - began >= LONGEST_SWEEP:
                return

    def _gate(self) -> Gate | None:
        """The gate. One that somebody deleted is rebuilt: the agents it listed may all be dead."""
        gate = self._w.gates.read()
        if self._gate_uid and (gate is None or gate.uid != self._gate_uid):
            gate = self._w.gates.ready(gate, self._w.cluster.time.now())
        self._gate_uid = gate.uid if gate is not None else ""
        return gate

    def _mine_to_watch(self, places: set[Place], most: int) -> set[Place]:
        """This agent's share of the open records: those it has taken over, and ``most`` others by turns.

        Each record is watched by many agents, but not by all: 600 agents would ask for the Leases of 300 sick
        nodes 3,000 times a second.
        """
        if not self._me:
            return places
        others = {place for place in places if place[0] != self._me}
        begun = {place for place in others if place[0] in self._said}
        turn = int(self._w.clock.monotonic() / (self._pace.interval() * SWEEPS_A_TURN))

        def rendezvous(place: tuple[str, str]) -> int:
            return zlib.crc32(f"{self._me} {turn} {place}".encode())

        return begun | set(heapq.nsmallest(most, others - begun, key=rendezvous))

    def _lay_to_rest(self) -> None:
        """Look for the machines of nodes that were handed over and have no Node any more.

        A concluder knows these from its list of all records, an agent from its last count of the fleet.
        """
        ghosts = self._without_node if not self._me else self._observer.without_node
        for node in heapq.nsmallest(MOST_GHOSTS, ghosts):
            self._one(node, "", lay_to_rest)
            ghosts.discard(node)

    def _one(self, node: str, uid: str, ask: Ask | None = None) -> float:
        """Look at one record, if its agent is dead. Seconds until it is to be looked at again."""
        lease = self._w.leases.look(node)
        if lease.stale and not self._for_the_concluder(node):
            # Under the Lease, so that one agent asks the cloud and not all of them.
            lease = self._w.leases.hold(node, Role.CONCLUDER)
        if not lease.mine:
            self._said.pop(node, None)
            self._observer.forget(node)
            return self._until_the_next_look(node, lease)
        try:
            d = self._concluded(node, uid, ask or partial(conclude, place=uid))
        except (ApiUnavailable, TooManyRequests):
            raise  # for all of them, not for this one
        except NodeRecoveryError as error:
            log.info("%s: not concluded yet: %s", node, error)
            return self._tried_again(node)
        except Exception:  # a bug with one node must not keep the others from being concluded
            bugs.survived(self._metrics, node, "trying again later")
            return self._idle
        if self._said.get(node) != d.key or d.effect is not None:
            self._said[node] = d.key
            log.info("%s (taken over): %s [key=%s]", node, d.reason, d.key)
        self._failed.pop(node, None)
        if d.effect is not None:
            return d.look_again.total_seconds()  # at once
        # A Lease that is not renewed in time is lost to another.
        longest = 2 * self._w.leases.renew_every
        return longest if d.key == "patience" else min(d.look_again.total_seconds(), longest)

    def _concluded(self, node: str, uid: str, ask: Ask) -> Decision:
        """Decide about the record, whose Lease is ours, and carry that out."""
        s = self._observer.situation(node, Role.CONCLUDER, me=self._me)
        d = ask(s)
        if isinstance(d.effect, WriteRecord | FreeSlot):
            self._wanted_back.discard((node, uid))  # answered
        if isinstance(d.effect, FreeSlot):
            self._remover.hidden.discard((node, uid))  # closed
        if s.record is not None:
            held = self._observer.memory(node).holds
            held.looked(s.record, d.held, self._w.clock.monotonic())
        if d.effect is not None:
            d = self._executor.perform(s, d, partial(self._again, node), ask)
            self._after(s, d)
        else:
            self._w.leases.hold(node, Role.CONCLUDER)
        return d

    def _until_the_next_look(self, node: str, lease: Lease) -> float:
        """Seconds until a record is looked at again that another works on.

        An agent leaves it for its next round. A Lease that seems to have run out it looks at once more.
        """
        if not self._me or lease.stale:
            return self._idle
        if lease.silent and node not in self._doubted:
            self._doubted.add(node)
            return self._idle * HEAD_START
        return math.inf

    def _tried_again(self, node: str) -> float:
        """Seconds until a record is looked at again that could not be concluded."""
        failures = self._failed[node] = self._failed.get(node, -1) + 1
        return pause_after(failures, 2 * BUSY, self._idle, self._chance)

    def _again(self, node: str, before: Situation | None = None) -> Situation:
        if before is not None:
            return self._observer.last_reads(before, me=self._me)
        return self._observer.situation(node, Role.CONCLUDER, me=self._me, fresh=True)

    def _for_the_concluder(self, node: str) -> bool:
        """Whether a dead peer's record is left to the concluder, which may switch the machine's power."""
        if not self._me or not isinstance(self._provider_in_use(), OutOfBand):
            return False
        try:
            r = self._w.records.read(node)
            if r is None or r.phase is not Phase.RECOVERING:
                return False
            able = abilities_of(self._w.providers.get(r.machine.provider), r.machine)
        except (SettingsError, Undecodable):
            return False
        if not any(rung.do in able.out_of_band for rung in r.ladder[r.rung :]):
            return False
        recovery = f"{r.uid}/{r.starts[-1].at if r.starts else ''}"
        if len(self._left) > MOST_LEFT:
            self._left.clear()
        since = self._left.setdefault(recovery, self._w.clock.monotonic())
        return self._w.clock.monotonic() - since < LEFT_TO_THE_CONCLUDER

    def _provider_in_use(self) -> Provider | None:
        name = self._w.providers.in_use()
        try:
            return self._w.providers.get(name) if name else None
        except SettingsError:
            return None

    # ------------------------------------------------------------ hand-overs

    def _after(self, s: Situation, d: Decision) -> None:
        if d.report is not None and d.report.event is EventReason.HANDED_OVER:
            uid = s.node.uid if s.node else ""
            self._handed[s.node_name] = _HandOver(d.reason, uid, self._w.clock.monotonic())

    def _repeat_hand_overs(self) -> float:
        """Report hand-overs of nodes whose agent is dead again every minute, until somebody takes the node.

        Seconds until the next one is due.
        """
        now = self._w.clock.monotonic()
        for node, handed in list(self._handed.items()):
            if now - handed.reported_at < REPEAT.total_seconds():
                continue
            said, about = handed.sentence, About.of(None)
            try:
                record = self._w.records.read(node)
                if record is None or record.phase is not Phase.HANDED_OVER:
                    del self._handed[node]
                    continue
                said, about = record.sentence, About.of(record)
            except Undecodable as error:  # nobody knows whether somebody took it; the others are told of, too
                said = f"{said}; its record cannot be read now: {error}"
            handed.reported_at = now
            at = self._w.cluster.time.now()
            reason = EventReason.HANDED_OVER.value
            self._publisher.event(
                Notice(
                    node,
                    handed.node_uid,
                    reason,
                    said,
                    True,
                    at,
                    "handedOver",
                    about,
                    echo=not handed.ours,
                )
            )
            self._publisher.held("handedOver", at)
        self._metrics.share(self._metrics.open_handovers, len(self._handed), SWEEPER)
        return min(
            (x.reported_at + REPEAT.total_seconds() - now for x in self._handed.values()), default=math.inf
        )

    def _unlisted(self) -> set[Place]:
        """The open records among all there are, and those that a person wants back, once a minute.

        Only the concluder lists them. Some may not be on the gate: their agents died before they joined the
        queue, or somebody deleted the gate. Hand-overs of dead agents are noted on the way.
        """
        now = self._w.clock.monotonic()
        if self._listed_at is not None and now - self._listed_at < LISTED_EVERY.total_seconds():
            return set(self._wanted_back)
        self._listed_at = now
        self._wanted_back.clear()
        return folded(self._open_among_all)

    def _open_among_all(self) -> set[Place]:
        found = set()
        for r in self._w.records.sick():
            if isinstance(r, Undecodable):
                log.warning("%s", r)
                continue
            if r.release is not None:
                self._wanted_back.add((r.node, r.uid))
            if r.phase.open or r.release is not None:
                found.add((r.node, r.uid))
            if r.phase is Phase.HANDED_OVER and self._w.is_not_ready(r.node):
                self._without_node.add(r.node)
            if r.phase is Phase.HANDED_OVER and r.node not in self._handed:
                lease = self._w.leases.look(r.node)
                if lease.stale:
                    self._handed[r.node] = _HandOver(r.sentence, r.node_uid, 0.0, ours=False)
                elif lease.mine:
                    self._summon(r.node)
        return found
