"""Peers: finishes the recoveries of agents that are dead.

Each agent sweeps over the others' open records, which are on the gate, about once a minute. While its own
node is next in the queue, it looks at the holders of slots every two seconds. Lease and Node are read only
for open records. ``RECOVERY_MODE=concluder`` is the same sweep without a node of its own.
"""

from __future__ import annotations

import heapq
import logging
import random
import zlib
from dataclasses import dataclass
from functools import partial

from recovery.agent.execute import Executor
from recovery.agent.observe import Observer
from recovery.agent.world import World
from recovery.decide.budget import holders, places
from recovery.decide.decision import REPEAT, Decision, EventReason
from recovery.decide.orphan import conclude
from recovery.decide.situation import Role, Situation
from recovery.errors import ApiError, ApiUnavailable, NodeRecoveryError, SettingsError, Undecodable
from recovery.model import Gate, Phase
from recovery.provider.protocol import OutOfBand, Provider, abilities_of
from recovery.report.metrics import Metrics
from recovery.report.publish import Notice, Publisher
from recovery.store.record_codec import decode

log = logging.getLogger(__name__)

IDLE = 60.0
BUSY = 2.0
WATCHED = 10
SWEEPS_A_TURN = 5
"""For so many sweeps an agent watches the same records: a Lease is stale if it does not change meanwhile."""
MOST_LEFT = 1000
LEFT_TO_THE_CONCLUDER = 20 * 60.0
"""Seconds for which agents leave a record to the concluder, where that alone may power-cycle the machine."""


@dataclass
class _HandOver:
    sentence: str
    node_uid: str
    reported_at: float


class Sweeper:
    """Looks at other nodes' open records, and takes over those of dead agents.

    ``me`` is this agent's own node, empty for a concluder. ``idle``: seconds between two sweeps when nothing
    is going on. It is the duration of a Lease, so that a dead agent's goes stale between two sweeps.
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
    ) -> None:
        self._w = world
        self._idle = idle
        self._observer = observer
        self._executor = executor
        self._publisher = publisher
        self._metrics = metrics
        self._me = me
        self._chance = chance or random.Random()  # noqa: S311 - jitter
        self._due = self._holders_due = 0.0
        self._said: dict[str, str] = {}
        self._handed: dict[str, _HandOver] = {}
        self._left: dict[str, float] = {}
        self._listed_at: float | None = None
        self._gate_uid = ""

    def sweep(self, next_in_queue: bool = False) -> float:
        """Look at others' open records if it is time to. Seconds until the next look. Never raises.

        ``next_in_queue``: the own node is among the next to get a slot, so those that hold one are looked at
        sooner.
        """
        if not self._w.on:
            return self._idle
        now = self._w.clock.monotonic()
        if now < min(self._due, self._holders_due if next_in_queue else self._due):
            return self._due - now
        everybody = now >= self._due
        pause = self._idle * self._chance.uniform(0.8, 1.2)
        try:
            others = self._unlisted() if not self._me else set()
            gate = self._gate()
            if gate is not None:
                others |= self._mine_to_watch(places(gate) if everybody else holders(gate))
            pause = min(pause, self._look_at(others), self._repeat_hand_overs())
        except (ApiError, Undecodable) as error:
            log.debug("sweep: %s", error)
            if isinstance(error, ApiUnavailable):
                self._w.leases.start_over()
            pause = BUSY * 2
        except Exception:
            self._metrics.errors.labels("bug").inc()
            log.exception("sweep: a bug; trying again later")
        now = self._w.clock.monotonic()
        self._holders_due = now + BUSY
        self._due = now + pause if everybody else min(self._due, now + pause)
        return self._due - now

    def _gate(self) -> Gate | None:
        """The gate. One that somebody deleted is rebuilt: the agents it listed may all be dead."""
        gate = self._w.gates.read()
        if self._gate_uid and (gate is None or gate.uid != self._gate_uid):
            gate = self._w.gates.ready(gate, self._w.cluster.time.now())
        self._gate_uid = gate.uid if gate is not None else ""
        return gate

    def _mine_to_watch(self, places: set[tuple[str, str]]) -> set[tuple[str, str]]:
        """This agent's share of the open records: those it has taken over, and ``WATCHED`` others by turns.

        Each record is watched by many agents, but not by all: 600 agents would ask for the Leases of 300 sick
        nodes 3,000 times a second.
        """
        if not self._me:
            return places
        others = {place for place in places if place[0] != self._me}
        begun = {place for place in others if place[0] in self._said}
        turn = int(self._w.clock.monotonic() / (self._idle * SWEEPS_A_TURN))

        def rendezvous(place: tuple[str, str]) -> int:
            return zlib.crc32(f"{self._me} {turn} {place}".encode())

        return begun | set(heapq.nsmallest(WATCHED, others - begun, key=rendezvous))

    def _look_at(self, others: set[tuple[str, str]]) -> float:
        """Look at each of these records. Seconds until one of them needs the next look."""
        return min((self._one(node, uid) for node, uid in sorted(others)), default=self._idle)

    def _one(self, node: str, uid: str) -> float:
        lease = self._w.leases.look(node)
        if lease.stale and not self._for_the_concluder(node):
            # Under the Lease, so that one agent asks the cloud and not all of them.
            lease = self._w.leases.hold(node, Role.CONCLUDER)
        if not lease.mine:
            self._said.pop(node, None)
            self._observer.forget(node)
            return self._idle
        try:
            s = self._observer.situation(node, Role.CONCLUDER, me=self._me)
            ask = partial(conclude, place=uid)
            d = ask(s)
            if s.record is not None:
                held = self._observer.memory(node).holds
                held.looked(s.record, d.held, self._w.clock.monotonic())
            if d.effect is not None:
                d = self._executor.perform(s, d, lambda: self._again(node), ask)
                self._after(s, d)
            elif lease.mine:
                self._w.leases.hold(node, Role.CONCLUDER)
        except NodeRecoveryError as error:
            log.info("%s: not concluded yet: %s", node, error)
            return BUSY
        except Exception:  # a bug with one node must not keep the others from being concluded
            self._metrics.errors.labels("bug").inc()
            log.exception("%s: a bug; trying again later", node)
            return self._idle
        if self._said.get(node) != d.key or d.effect is not None:
            self._said[node] = d.key
            log.info("%s (its agent is gone): %s [key=%s]", node, d.reason, d.key)
        if d.effect is not None:
            return d.look_again.total_seconds()  # at once
        return self._idle if d.key == "patience" else BUSY

    def _again(self, node: str) -> Situation:
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
            record = self._w.records.read(node)
            if record is None or record.phase is not Phase.HANDED_OVER:
                del self._handed[node]
                continue
            handed.reported_at = now
            at = self._w.cluster.time.now()
            self._publisher.event(
                Notice(node, handed.node_uid, EventReason.HANDED_OVER.value, record.sentence, True, at)
            )
            self._publisher.held("handedOver", at)
        self._metrics.hand_overs("sweeper", len(self._handed))
        return min(
            (x.reported_at + REPEAT.total_seconds() - now for x in self._handed.values()), default=self._idle
        )

    def _unlisted(self) -> set[tuple[str, str]]:
        """The open records among all there are, listed by the concluder once a minute. Some may not be on the
        gate: their agents died before they joined the queue, or somebody deleted the gate. Hand-overs of dead
        agents are noted on the way."""
        now = self._w.clock.monotonic()
        if self._listed_at is not None and now - self._listed_at < REPEAT.total_seconds():
            return set()
        self._listed_at = now
        found = set()
        for obj in self._w.cluster.list_records():
            try:
                r = decode(obj)
            except Undecodable as error:
                log.warning("%s", error)
                continue
            if r.phase.open:
                found.add((r.node, r.uid))
            if (
                r.phase is Phase.HANDED_OVER
                and r.node not in self._handed
                and self._w.leases.look(r.node).stale
            ):
                self._handed[r.node] = _HandOver(r.sentence, r.node_uid, 0.0)
        return found
