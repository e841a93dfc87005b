"""The world of one history: the real agents on the API in memory, machines that break, and virtual time.

Time goes from one thing to do to the next. Every request to the API server and every call to the provider is
a *touch*: there an agent can be killed, stopped for minutes, or lose the answer. While one is stopped in the
middle of a request the others go on, in the same thread: the world is run inside the request.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import yaml
from recovery_testkit.kubepatch import pack_json, unpack_json
from recovery_testkit.stage import Actor, Killed, Page, Stage, read_policy

from recovery.agent.cycle import Agent
from recovery.decide.decision import Decision
from recovery.errors import Unreadable
from recovery.model import Phase, Share
from tests.search import facts
from tests.search.boundary import Boundary, Trap
from tests.search.cloud import Cloud
from tests.search.etcd import restore
from tests.search.facts import Fact, Happened, Said
from tests.search.machines import (
    EKS,
    LOG,
    MARK,
    ONCE,
    PLUGIN_REASON,
    READY,
    SILENT_REASON,
    TYPES,
    XID,
    Detector,
    Machine,
    Sickness,
)
from tests.search.policies import COUNTED, DEAD
from tests.search.recorder import record_writes
from tests.search.script import Scene
from tests.search.signals import LOADER, SOURCES, Signals, policy_text
from tests.search.terminal import approve, release

NEVER_TAKEN_BACK = (EKS, MARK)
"""What stands though its condition or mark goes away."""
OURS = ("agent", "concluder", "controller")
QUIET_POLL, BUSY_POLL = 30.0, 10.0
ASK_AGAIN = 2.0
"""Seconds until a program asks for its Node again that has not begun yet."""
OFTEN, SELDOM = 1.0, 4.0
"""Seconds between two rounds, at least, of an agent whose node is being recovered, and of all others."""
WAITING_POLL = 12.0
ALERT, OFTEN_READ = 12.0, 3.0
"""So long after its page has changed an agent reads it that often: what shows for seconds only is seen."""
DEEPEST = 3
"""So many agents may be stopped in the middle of a request at once."""
PATIENCE = 12.0
"""Where agents are patient, one that sees nothing new waits ever longer, at most so long: its Lease is renewed each
fifteen seconds."""
PLUGIN_EVERY = 30.0
SILENT = 40.0
"""So long a Node is called Ready after its kubelet has fallen silent."""
ZONES = ("a", "b")
UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
WHOLE = Share(percent=100)


MOST_FACTS, MOST_WRITES = 20_000, 400
"""A history with more facts, or with more writes of one actor in ten seconds, is one in which somebody writes in a
circle."""


CHECKED_EVERY = 8
"""One history in so many is checked for an agent that changes an object that it has read: ``unchanged``."""


class TooMuchError(BaseException):
    """The history is ended here; the judge has enough to go by."""


@dataclass
class Process:
    """One agent, concluder or replica. ``place``: its seat; -1 for a concluder."""

    actor: Any
    place: int
    next_at: float
    on: bool = True
    busy: bool = False
    alert_until: float = 0.0
    stopped_until: float = 0.0
    traps: list[Trap] = field(default_factory=list)
    said: str = ""
    key: str = ""
    still: int = 0
    """So many rounds in a row it has done nothing, for the same reason."""

    @property
    def alive(self) -> bool:
        return self.actor.alive

    @property
    def waits(self) -> bool:
        """Whether its node waits for its turn."""
        record = self.actor.agent._record if self.actor.agent is not None else None
        return record is not None and record.phase is Phase.WAITING


class World(Stage):
    """A stage whose time runs by itself. ``facts`` is what came of it, for the judge."""

    def __init__(self, scene: Scene, seed: int) -> None:
        super().__init__(policy_text(scene.policy, scene.sources))
        self.scene = scene
        self.policy_name = scene.policy
        self.facts: list[Fact] = []
        self.written: Counter[tuple[str, int]] = Counter()
        self.processes: dict[str, Process] = {}
        self.machines: dict[str, Machine] = {}
        self.places: list[Machine] = []
        self.offsets: dict[int, float] = {}
        self.frozen: set[int] = set()
        self.shown: dict[str, dict[str, list[str]]] = {}
        """By machine: each reason that is stated, and which sources state it."""
        self.on_page: dict[str, set[str]] = {}
        self.reads_page = not scene.sources or SOURCES[scene.sources].page
        self.reads_detector = self.reads_page or SOURCES[scene.sources].writer == "conditions"
        self.pod_of: dict[int, int] = {}
        self.absent: set[int] = set()
        self.off: set[int] = set()
        self.new_are_sick: list[str] = []
        self.tolerant: set[str] = set()
        """Pods that come back wherever they are evicted from."""
        self.linger: list[float] = []
        """How long the Node of each of the next machines that are gone stays."""
        self.new_are_raw: list[float] = []
        self.made_raw: dict[str, dict[str, Any]] = {}  # of machine: the spec that its raw Node was to get
        """How long it takes until each of the next new Nodes has its providerID and is Ready."""
        self.new_are_blind: list[float] = []
        """For how long the page of each of the next new machines cannot be read."""
        self.acting: Process | None = None
        self.depth = 0
        self.seed = seed
        self._snapshots: list[tuple[float, dict[Any, dict[Any, Any]]]] = []
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._ids = itertools.count(scene.nodes)
        self.signals = Signals(self)
        self.boundary = Boundary(self)
        self.provider = self.cloud = Cloud(self)
        self.wrap = self.boundary.around
        self.wrap_streams = self.boundary.around_streams
        self.store.shares = True
        self._as_written: list[tuple[Any, bytes]] = []
        record_writes(self.store, self.clock.monotonic, self._wrote)
        self.note(facts.BEGAN, "", wall=f"{self.clock.true_time():%Y-%m-%dT%H:%M:%SZ}")
        self.note(facts.POLICY, "", **self.policy_of(scene.policy))
        self._set_up()
        self.keep_snapshots()
        if scene.policy in DEAD:
            self.later(200.0, self.keep_alive)

    # ------------------------------------------------------------ what it is made of

    @property
    def now(self) -> float:
        return self.clock.monotonic()

    def note(self, what: str, subject: str, **detail: Any) -> None:
        self.facts.append(Happened(self.now, what, subject, detail))
        if self.scene.patient and what in SEEN_BY_ALL:
            self._look_soon(p for p in self.processes.values() if p.still)

    def _wrote(self, fact: Fact) -> None:
        """A write was applied. Who waits for the gate looks at it soon."""
        self.facts.append(fact)
        if not isinstance(fact, facts.Wrote):
            return
        if self.seed % CHECKED_EVERY == 0:
            self._as_written.append((fact.after, pack_json(fact.after)))
        window = (fact.actor, int(self.now // 10.0))
        self.written[window] += 1
        if len(self.facts) > MOST_FACTS or self.written[window] > MOST_WRITES:
            raise TooMuchError
        if fact.kind == "RecoveryGate" and not (self.scene.patient and _same_gate(fact)):
            self._look_soon(p for p in self.processes.values() if p.waits)
        elif self.scene.patient and fact.kind in LOOKED_AT and not is_ours(fact.actor):
            self._look_soon(p for p in self.processes.values() if p.still and self._about(fact, p))

    def unchanged(self) -> None:
        """Agents are given the stored objects themselves, which is quick. A program that changes what it has read
        would change what is stored. Raises ``AssertionError`` where that has happened."""
        for written, packed in self._as_written:
            assert written == unpack_json(packed), f"somebody changed what was read: {written}"

    def _about(self, fact: facts.Wrote, p: Process) -> bool:
        """Whether a write is about what this process works on. A concluder may work on any node."""
        node = fact.name if fact.kind in ("Node", "NodeRecovery") else _node_of(fact)
        return not node or p.place < 0 or p.actor.node == node

    def _look_soon(self, who: Iterable[Process]) -> None:
        """They look again within two seconds, whatever they waited for."""
        for p in [p for p in who if p.alive]:
            soon = self.now + self.dice("gate", p.actor.name, len(self.facts)).uniform(0.1, 2.0)
            p.next_at, p.still = min(p.next_at, soon), 0

    def dice(self, *about: object) -> random.Random:
        """Chance that depends on what it is about, and on nothing that happened before: a shorter script
        leaves the rest as it was."""
        return random.Random(f"{self.seed} {about}")

    def policy_of(self, name: str) -> dict[str, Any]:
        return dict(_read(name, self.scene.sources))

    def _set_up(self) -> None:
        for i in range(self.scene.nodes):
            alike = {"rack": "r1"} if i < self.scene.alike else {}
            self.add_node(f"node-{i}", f"m-{i}", topology_kubernetes_io__zone=ZONES[i % 2], **alike)
            machine = Machine(f"m-{i}", "workers", i, f"node-{i}")
            self.machines[machine.id] = machine
            self.places.append(machine)
            machine.detector = self._detector(machine)
            self._kernel(machine)
            self.note(
                facts.MACHINE_JOINED, machine.id, node=machine.node, group="workers", boot=machine.boot_id
            )
            self.signals.start(machine, 0.0)
            self.refresh(machine)
            for n in range(self.scene.pods):
                self.add_pod(f"train-{i}-{n}", machine.node)
            self.rises(machine, 0.1 * i)
        self.cloud.groups["workers"].shrinks = self.scene.shrinks
        self.cloud.groups["workers"].slow = self.scene.slow
        if self.scene.concluder:
            self._process(super().concluder("concluder"), -1, 1.0)

    # ------------------------------------------------------------ processes

    @property
    def seats(self) -> range:
        """Where processes run: an agent on each place."""
        return range(len(self.places))

    def rises(self, machine: Machine, delay: float, *, new_pod: bool = False) -> None:
        """A machine is up, and its agent is started with it."""
        if machine.place not in self.absent:
            self.start(machine.place, delay=delay, new_pod=new_pod, on=machine.place not in self.off)

    def falls(self, machine: Machine) -> None:
        """A machine is down, and its agent with it."""
        self.end_agents(machine.place)

    def agent_on(self, place: int) -> tuple[Process, Agent] | None:
        """The agent that works on the node of this place, and the process it is of."""
        living = self.agents_at(place)
        agent = living[0].actor.agent if living else None
        return None if agent is None else (living[0], agent)

    def start(
        self, place: int, *, delay: float = 1.0, new_pod: bool = False, on: bool = True
    ) -> Process | None:
        """A new process of the agent on this place's node: in the same pod, or in a new one."""
        machine = self.places[place]
        if machine.gone or not machine.up or not machine.node:
            return None
        pod = self.pod_of.setdefault(place, 0)
        if new_pod:
            pod = self.pod_of[place] = pod + 1
        name = f"agent of {machine.node}, {next(self._numbers)}"
        where = f"pod-{pod}-of-{machine.node}"
        return self._process(
            self.agent(machine.node, on=on, name=name, place=where, alone=True), place, delay, on
        )

    def _process(self, actor: Actor, place: int, delay: float, on: bool = True) -> Process:
        p = self.processes[actor.name] = Process(actor, place, self.now + delay, on)
        p.alert_until = self.now + delay + ALERT
        actor.sweeper._chance = self.dice("sweeper", actor.name)
        self.note(facts.PROCESS, actor.name, state="started", node=actor.node)
        if not on:
            self.note(facts.SWITCHED, actor.name, on=False)
        return p

    def agents_at(self, place: int) -> list[Process]:
        """The living processes of a seat, the youngest first."""
        return [p for p in reversed(self.processes.values()) if p.place == place and p.alive]

    def end(self, p: Process) -> None:
        """``kill -9``."""
        if p.alive:
            p.actor.alive = False
            self.note(facts.PROCESS, p.actor.name, state="killed", node=p.actor.node)

    def end_agents(self, place: int) -> None:
        for p in self.agents_at(place):
            self.end(p)

    def wake(self, node: str) -> None:
        """Its page has changed: who reads it looks at once."""
        for p in self.processes.values():
            if p.alive and p.actor.node == node:
                p.next_at = min(p.next_at, self.now + 1.0)
                p.alert_until = self.now + ALERT

    @contextmanager
    def by(self, p: Process | None) -> Iterator[None]:
        """Whose turn it is: the clock, the cloud and the facts go by it."""
        before, stepped, booted = self.acting, self.clock._stepped, self.clock._booted
        self.acting = p
        self.clock._booted = self._booted(p) if p is not None else 0.0
        self.clock._stepped = timedelta(seconds=self.offsets.get(p.place, 0.0) if p else 0.0)
        try:
            yield
        finally:
            self.acting, self.clock._stepped, self.clock._booted = before, stepped, booted

    def _booted(self, p: Process) -> float:
        """When the machine was booted that this process runs on."""
        return self.places[p.place].booted if p.place >= 0 else 0.0

    # ------------------------------------------------------------ time

    def later(self, seconds: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (self.now + seconds, next(self._numbers), do))

    def run_until(self, end: float) -> None:
        """Everything that is due until ``end`` happens, in the order of its moments."""
        while True:
            first, at = self._next()
            timer = self._timers[0][0] if self._timers else math.inf
            if min(at, timer) > end:
                break
            self._advance_to(min(at, timer))
            if timer <= at:
                heapq.heappop(self._timers)[2]()
            elif first is not None:
                self.turn_of(first)
        self._advance_to(end)

    def _next(self) -> tuple[Process | None, float]:
        """The process whose turn is next, the oldest of several, and when. Asked before each turn, so it loops
        plainly."""
        first, at = None, math.inf
        for p in self.processes.values():
            if p.actor.alive and not p.busy:
                due = p.next_at if p.next_at > p.stopped_until else p.stopped_until
                if due < at:
                    first, at = p, due
        return first, at

    def _advance_to(self, at: float) -> None:
        if at > self.now:
            self.clock.advance(at - self.now)
            self.store.tick()

    def stop_here(self, p: Process, seconds: float) -> None:
        """The process is stopped in the middle of a request, and the world goes on without it."""
        if self.depth >= DEEPEST:
            self.clock.advance(0.1)
            return
        self.depth += 1
        try:
            with self.by(None):
                self.run_until(self.now + seconds)
        finally:
            self.depth -= 1
        if not p.alive:
            raise Killed

    def turn_of(self, p: Process) -> None:
        """One round of a process, as the program does it."""
        p.busy = True
        try:
            with self.by(p):
                p.next_at = self.now + self._step(p)
        except Killed:
            self.end(p)
        finally:
            p.busy = False

    def _step(self, p: Process) -> float:
        actor, pause, d = p.actor, QUIET_POLL, None
        if not actor.began():
            return ASK_AGAIN
        if actor.agent is not None:
            d = actor.agent.cycle()
            pause = BUSY_POLL if self._busy(p) else QUIET_POLL
            pause = min(pause, d.look_again.total_seconds())
            self._heard(p, d)
        left = actor.sweeper.sweep(actor.agent is not None and actor.agent.next_in_queue)
        if actor.agent is not None and actor.sweeper.own_place:
            actor.sweeper.own_place = False
            actor.agent.look_at_record()
        actor.publisher.drain()
        if d is not None and d.effect is not None:
            return 0.05
        least = self._least(p, d)
        pause = max(least, min(pause, left), self._patience(p, d, least))
        pause = max(least, min(pause, self._due_in(p)))
        return min(pause, OFTEN_READ) if self.now < p.alert_until else pause

    def _due_in(self, p: Process) -> float:
        """Seconds until an agent that cannot read its page decides anew: what is unknown for too long is on a
        record in time. A long time for all others."""
        agent = p.actor.agent
        if agent is None or agent._record is not None or all(r.readable for r in agent._view.readings):
            return QUIET_POLL
        return float(max(0.0, agent._due - self.now))

    def _least(self, p: Process, d: Decision | None) -> float:
        """The program looks more often than that while it waits; nothing more would be seen."""
        if d is None or p.actor.agent is None or p.actor.agent._record is None:
            return SELDOM
        phase = p.actor.agent._record.phase
        if phase is Phase.WAITING and d.key not in ("turn", "settle"):
            return 2 * WAITING_POLL if self.scene.patient else WAITING_POLL  # a gate that changes wakes it
        return OFTEN if phase is Phase.RECOVERING or d.key in ("turn", "settle") else SELDOM

    def _patience(self, p: Process, d: Decision | None, least: float) -> float:
        """The longer nothing new was seen, the longer it waits. What changes wakes it."""
        if not self.scene.patient:
            return 0.0
        key = d.key if d is not None else ""
        p.still = min(p.still + 1, 5) if key == p.key else 0
        p.key = key
        return min(least * 2.0**p.still, PATIENCE)

    def _busy(self, p: Process) -> bool:
        machine = self.places[p.place]
        return bool(machine.sick) or (p.actor.agent is not None and p.actor.agent._record is not None)

    def _heard(self, p: Process, d: Decision) -> None:
        if d.reason != p.said:
            p.said = d.reason
            self.facts.append(Said(self.now, p.actor.name, p.actor.node, d.key, d.reason))

    # ------------------------------------------------------------ sickness and detectors

    def sicken(self, machine: Machine, reason: str, cure: tuple[str, ...]) -> bool:
        """Something breaks in a machine, and its detector is going to say so. False: it is broken already."""
        if machine.gone or reason in machine.sick:
            return False
        machine.sick[reason] = Sickness(reason, cure, self.now)
        self.note(
            facts.FAULT_BEGAN, machine.id, type=TYPES[reason], reason=reason, cure=list(cure), shown=False
        )
        self.state(machine, reason)
        return True

    def heal(self, machine: Machine, reason: str, by: str, *, cleared: bool = False) -> None:
        """``cleared``: its source takes it back by its own rule."""
        if machine.sick.pop(reason, None) is not None:
            cleared = cleared and not self.signals.stuck(machine, TYPES[reason])
            told = {"type": TYPES[reason], "reason": reason, "by": by, "cleared": cleared}
            self.note(facts.FAULT_ENDED, machine.id, **told)

    def state(self, machine: Machine, reason: str) -> None:
        """The detector states a fault: the kernel logs its line, or the plugin runs."""
        if machine.gone or not machine.up or (reason != PLUGIN_REASON and reason not in machine.sick):
            return
        if reason in (EKS, MARK):
            self.signals.state(machine, reason)
            return
        new = reason != PLUGIN_REASON or not machine.detector.bad
        if reason == PLUGIN_REASON:
            machine.detector.run(reason in machine.sick)
            if reason in machine.sick and not machine.detector.ran:
                self.later(PLUGIN_EVERY, lambda d=machine.detector: self._runs_again(machine, d))  # type: ignore[misc]
        else:
            machine.detector.line(reason)
            again = self.dice("line", machine.id, reason, self.now).uniform(60, 240)
            self.later(again, lambda: self.state(machine, reason))
        if reason in machine.sick and new:
            rule = "plugin" if reason == PLUGIN_REASON else "log"
            rule = "none" if TYPES[reason] in machine.detector.lacks else rule
            self.note(facts.FAULT_STATED, machine.id, type=TYPES[reason], reason=reason, rule=rule)
        self.refresh(machine)

    def _runs_again(self, machine: Machine, detector: Detector) -> None:
        """A plugin that was sick at its detector's start counts each run, and states nothing new."""
        if machine.detector is detector and detector.bad:
            self.state(machine, PLUGIN_REASON)

    def flash_xid(self, machine: Machine, seconds: float) -> None:
        """A check of XIDs finds a line in the log, and does not look back as far as that later."""
        if machine.gone or not machine.up or XID in machine.sick:
            return
        machine.sick[XID] = Sickness(XID, ("reboot",), self.now)
        told = {"type": TYPES[XID], "reason": XID}
        self.note(facts.FAULT_BEGAN, machine.id, **told, cure=["reboot"], shown=False)
        self.note(facts.FAULT_STATED, machine.id, **told)
        machine.detector.xid = True
        machine.detector.counts[XID] = machine.detector.counts.get(XID, 0) + 1
        self.refresh(machine)
        self.later(seconds, lambda d=machine.detector: self._xid_over(machine, d))  # type: ignore[misc]

    def _xid_over(self, machine: Machine, detector: Detector) -> None:
        detector.xid = False
        if machine.detector is detector:
            self.refresh(machine)

    def restart_detector(self, machine: Machine) -> None:
        """The detector is started anew: it has forgotten everything, and repairs nothing."""
        if machine.gone or not machine.up:
            return
        machine.detector = self._detector(machine)
        self.note(facts.DETECTOR_RESTARTED, machine.node)
        self.signals.start(machine, 0.0)
        self.refresh(machine, "restart")
        for i, reason in enumerate(r for r in machine.sick if r not in ONCE):
            self.later(12.0 + 20 * i, lambda reason=reason: self.state(machine, reason))  # type: ignore[misc]

    def _detector(self, machine: Machine) -> Detector:
        started = self.now if self.scene.tells_start else None
        often = self.policy_name in COUNTED
        return Detector(started=started, ran=PLUGIN_REASON not in machine.sick, counts_often=often)

    def refresh(self, machine: Machine, because: str = "masked") -> None:
        """Its page is what its detector says now, unless the page lies still. ``because``: why it may state
        less than before. A machine that is gone shows nothing: its Node's name may be another's by now."""
        if not machine.node or machine.gone or machine.place in self.frozen:
            return
        self.signals.changed(machine)
        page = self.pages.setdefault(machine.node, Page())
        body = machine.detector.page()
        if page.body != body:
            page.body = body
            self.wake(machine.node)
        self._note_shown(machine, page.error is None, because)

    def hide_page(self, machine: Machine, seconds: float) -> None:
        """Its page cannot be read for so long."""
        self.pages[machine.node].error = Unreadable("the connection was refused")
        self.wake(machine.node)
        self.note_page(machine.node, "unreadable")
        self.later(seconds, lambda: self.show_page(machine))

    def show_page(self, machine: Machine) -> None:
        page = self.pages.get(machine.node)
        if page is not None and page.error is not None:
            page.error = None
            self.wake(machine.node)
            self.note_page(machine.node, "fresh")
            self.refresh(machine)

    def note_page(self, node: str, state: str) -> None:
        """What became of a page, where agents read pages."""
        if self.reads_page:
            self.note(facts.PAGE, node, state=state)

    def _note_shown(self, machine: Machine, readable: bool, because: str) -> None:
        d = machine.detector
        showing = (
            {
                r
                for r in machine.sick
                if r == d.shown or (r == PLUGIN_REASON and d.bad) or (r == XID and d.xid)
                if TYPES[r] not in d.lacks
            }
            if readable and self.reads_page
            else set()
        )
        self.on_page[machine.id] = showing
        self.note_sources(machine, because if readable else "page")

    def note_sources(self, machine: Machine, because: str = "masked") -> None:
        """Which faults the sources state now, by what can be read of them. ``because``: see ``refresh``."""
        showing = {reason: ["npd"] for reason in self.on_page.get(machine.id, set())}
        for reason, source in self.signals.showing(machine):
            showing.setdefault(reason, []).append(source)
        before = self.shown.get(machine.id, {})
        for reason in sorted(r for r, by in showing.items() if before.get(r) != by):
            told = {"by": showing[reason]} if self.scene.sources else {}
            stays = {"stays": True} if reason in NEVER_TAKEN_BACK else {}
            told = {"type": TYPES[reason], "reason": reason, "node": machine.node, **told, **stays}
            self.note(facts.FAULT_SHOWN, machine.id, **told)
        for reason in sorted((before.keys() - showing.keys()) & machine.sick.keys()):
            told = {"type": TYPES[reason], "reason": reason, "because": because}
            self.note(facts.FAULT_HIDDEN, machine.id, **told)
        self.shown[machine.id] = showing

    # ------------------------------------------------------------ machines come, boot and go

    def boot(self, machine: Machine, by: str, seconds: float, *, hangs: bool = False) -> bool:
        """The machine goes down, and comes up under another boot ID ``seconds`` later. ``hangs``: whoever boots
        it before is heard."""
        if machine.gone or not (machine.up or machine.hangs):
            return False
        machine.up, machine.hangs = False, hangs
        machine.downs += 1
        down = machine.downs
        self.falls(machine)
        self.kubelet(machine, "Unknown")
        self.later(seconds, lambda: self._up(machine, by) if machine.downs == down else None)
        return True

    def _up(self, machine: Machine, by: str) -> None:
        if machine.gone:
            return
        machine.up, machine.hangs = True, False
        machine.boots += 1
        machine.booted = self.now
        machine.not_ready = False
        machine.detector = self._detector(machine)
        self.signals.start(machine, self.signals.up_after(machine))
        self.cloud.rebooting.discard(machine.id)
        self._kernel(machine)
        self.note(facts.MACHINE_BOOTED, machine.id, boot=machine.boot_id, node=machine.node, by=by)
        if machine.place in self.frozen:  # the detector that lay still has ended with the boot
            self.frozen.discard(machine.place)
            self.note_page(machine.node, "fresh")
        for reason, sickness in list(machine.sick.items()):
            if "reboot" in sickness.cure:
                self.heal(machine, reason, "reboot")
        self.refresh(machine, "restart")
        self.kubelet(machine, "True")
        for reason in (r for r in machine.sick if r not in ONCE):
            wait = self.dice("again", machine.id, reason, machine.boots).uniform(2, 40)
            self.later(wait, lambda reason=reason: self.state(machine, reason))  # type: ignore[misc]
        self.rises(machine, 3.0)

    def _kernel(self, machine: Machine) -> None:
        """What an agent on the machine reads of its own kernel."""
        if self.scene.kernel and machine.node:
            self.kernels[machine.node] = machine.boot_id

    def kubelet(self, machine: Machine, status: str) -> None:
        """What the machine's kubelet says of itself on its Node."""
        if not machine.node or (status != "Unknown" and self._is_cut(machine)):
            return  # that it is silent is another's word
        patch = {
            "status": {
                "nodeInfo": {"bootID": machine.boot_id, "systemUUID": machine.id},
                "conditions": [
                    *self.signals.others(machine),
                    {"type": "Ready", "status": status, "reason": "Kubelet", **self._heartbeat()},
                ],
            }
        }
        self.write("PATCH", f"/api/v1/nodes/{machine.node}/status", patch, "kubelet")
        if self.policy_name in DEAD:
            self._note_ready(machine, status == "True")

    def _is_cut(self, machine: Machine) -> bool:
        """Whether it is cut off. In fleet mode controllers are."""
        return not self.scene.replicas and self.now < self.boundary.cut.get(machine.place, 0.0)

    def _note_ready(self, machine: Machine, ready: bool) -> None:
        """A Node that is not Ready is a fault of its own here, until it has been Ready for a minute."""
        told = {"type": READY, "reason": SILENT_REASON}
        if not ready and machine.unready is None:
            self.note(facts.FAULT_BEGAN, machine.id, **told, cure=["reboot"], shown=False)
            machine.unready = self.now
        elif ready and machine.unready is not None:
            since = machine.unready
            machine.well = self.now

            def over(well: float = machine.well) -> None:
                if machine.unready == since and machine.well == well and not machine.gone:
                    machine.unready = None
                    self.note(facts.FAULT_ENDED, machine.id, **told, by="itself", cleared=True)

            self.later(60.0, over)
        if not ready:
            machine.well = 0.0

    def keep_alive(self) -> None:
        """Kubelets write to their Nodes now and then, or they would pass for silent."""
        for machine in self.machines.values():
            if machine.up and not machine.gone and machine.node and machine.unready is None:
                self.kubelet(machine, "True")
        self.later(200.0, self.keep_alive)

    def _heartbeat(self) -> dict[str, str]:
        return {"lastHeartbeatTime": f"{self.clock.true_time():%Y-%m-%dT%H:%M:%SZ}"}

    def terminate_machine(self, machine: Machine, by: str, *, refill: bool = True) -> bool:
        """The machine is gone, and its agent with it. Its Node goes a little later."""
        if machine.gone:
            return False
        machine.gone = True
        self.falls(machine)
        self.cloud.leave(machine)
        self.note(facts.MACHINE_GONE, machine.id, group=machine.group, node=machine.node, by=by)
        node, uid = machine.node, self._uid(machine.node)
        forgotten = self.dice("node", machine.id).uniform(2, 30)
        if self.linger:
            forgotten = self.linger.pop()
            self.later(SILENT, lambda: self._falls_silent(machine, uid))
        self.later(forgotten, lambda: self._forget_node(node, uid))
        if refill:
            self.cloud.fill(machine.group, machine.place)
        return True

    def _falls_silent(self, machine: Machine, uid: str) -> None:
        """The Node of a machine that is gone is called so."""
        if self._uid(machine.node) == uid:
            self.kubelet(machine, "Unknown")

    def _uid(self, node: str) -> str:
        if not node:
            return ""
        answer = self.store.request("GET", f"/api/v1/nodes/{node}")
        return str(answer.body["metadata"]["uid"]) if answer.ok else ""

    def _forget_node(self, node: str, uid: str) -> None:
        if node and self._uid(node) == uid:
            self.write("DELETE", f"/api/v1/nodes/{node}", None, "cloud-controller")
            self._drop_pods(node)

    def _drop_pods(self, node: str) -> None:
        pods = self.store.request("GET", "/api/v1/pods").body["items"]
        for pod in pods:
            if pod["spec"].get("nodeName") == node:
                m = pod["metadata"]
                path = f"/api/v1/namespaces/{m['namespace']}/pods/{m['name']}"
                self.write("DELETE", path, {"gracePeriodSeconds": 0}, "pod-collector")

    def launch_machine(self, group: str, place: int) -> Machine:
        """The group launches a machine, which joins a little later."""
        number = next(self._ids)
        machine = Machine(f"m-{number}", group, place)
        self.machines[machine.id] = machine
        self.places[place] = machine
        self.cloud.enter(machine)
        self.note(facts.MACHINE_LAUNCHED, machine.id, group=group, boot=machine.boot_id)
        seconds = self.dice("join", machine.id).uniform(8, 40)
        self.later(seconds, lambda: self._join(machine))
        return machine

    def _join(self, machine: Machine) -> None:
        if machine.gone:
            return
        machine.node = f"node-{machine.place}" if self.scene.same_name else machine.id.replace("m-", "node-")
        if self._uid(machine.node):
            self.write("DELETE", f"/api/v1/nodes/{machine.node}", None, "cloud-controller")
            self._drop_pods(machine.node)
        self.pages[machine.node] = Page()
        self.note_page(machine.node, "fresh")
        if self.new_are_blind:
            self.hide_page(machine, self.new_are_blind.pop())
        machine.detector = self._detector(machine)
        self._kernel(machine)
        if not self.scene.replicas:
            self.boundary.cut.pop(machine.place, None)  # who was cut off was the one before it
        raw = self.new_are_raw.pop() if self.new_are_raw else 0.0
        self._register(machine, raw)
        self.note(
            facts.MACHINE_JOINED, machine.id, node=machine.node, group=machine.group, boot=machine.boot_id
        )
        if raw and self.policy_name in DEAD:
            self._note_ready(machine, False)  # its Node is not Ready from the first moment on
        machine.booted = self.now
        self.signals.start(machine, self.signals.up_after(machine))
        self.refresh(machine)
        self.rises(machine, 2.0, new_pod=True)
        if self.new_are_sick:
            reason = self.new_are_sick.pop()
            self.later(5.0, lambda: self.sicken(machine, reason, ()))

    def register_again(self, machine: Machine) -> bool:
        """Somebody deletes the Node, and the kubelet registers it anew."""
        if machine.gone or not machine.up or not machine.node:
            return False
        self.write("DELETE", f"/api/v1/nodes/{machine.node}", None, "a person")
        self.signals.note(machine)
        self.later(20.0, lambda: self._registered(machine))
        return True

    def _registered(self, machine: Machine) -> None:
        if not machine.gone and not self._uid(machine.node):
            self._register(machine)
            self.note(
                facts.MACHINE_JOINED, machine.id, node=machine.node, group=machine.group, boot=machine.boot_id
            )

    def _register(self, machine: Machine, raw: float = 0.0) -> None:
        """Its kubelet registers its Node. ``raw``: so many seconds pass until the cloud's controller has put the
        providerID on it, and it is Ready."""
        zone, boot = ZONES[machine.place % 2], f"boot-{machine.boots}"
        if not raw:
            self.register(machine.node, machine.id, machine.group, boot, topology_kubernetes_io__zone=zone)
            return
        made = self.registered(
            machine.node, machine.id, machine.group, boot, topology_kubernetes_io__zone=zone
        )
        self.made_raw[machine.id] = whole = dict(made["spec"])
        made["spec"] = {"taints": [{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]}
        made["status"]["conditions"][0]["status"] = "False"
        self.store.load(made)
        self.later(raw, lambda: self._initialized(machine, whole))

    def _initialized(self, machine: Machine, spec: dict[str, Any]) -> None:
        """The cloud's controller has seen its Node, and its network is there."""
        found = self.store.request("GET", f"/api/v1/nodes/{machine.node}")
        taints = (found.body["spec"].get("taints") or []) if found.ok else []
        if machine.gone or not any(t["key"] == UNINITIALIZED for t in taints):
            return
        taints = [t for t in taints if t["key"] != UNINITIALIZED]
        patch = {"spec": {**spec, "taints": taints or None}}
        self.write("PATCH", f"/api/v1/nodes/{machine.node}", patch, "cloud-controller")
        if machine.up:
            self.kubelet(machine, "True")

    def scale_out(self) -> None:
        """The group wants one machine more."""
        group = self.cloud.groups["workers"]
        group.desired += 1
        self.note(facts.CAPACITY, "workers", desired=group.desired, can_launch=not self.cloud.short)
        self.cloud.fill("workers", self.new_place())

    def new_place(self) -> int:
        """A place more, without a machine."""
        self.places.append(Machine(f"none-{len(self.places)}", "workers", len(self.places), gone=True))
        return len(self.places) - 1

    # ------------------------------------------------------------ etcd

    def keep_snapshots(self) -> None:
        """A snapshot of etcd every twenty seconds."""
        shelf = self.store._shelf
        self._snapshots.append((self.now, {key: dict(held) for key, held in shelf.objects.items()}))
        del self._snapshots[:-20]
        self.later(20.0, self.keep_snapshots)

    def restore(self, ago: float, slowest: float = 30.0) -> None:
        """Every object is as it was ``ago`` seconds before. Versions go on, as with ``--bump-revision``. The
        slowest kubelet writes again after so many seconds."""
        at, old = min(self._snapshots, key=lambda kept: abs(kept[0] - (self.now - ago)))
        self.note(facts.RESTORED, "etcd", to=at)
        restore(self.store, old)
        for machine in self.machines.values():
            self.later(
                self.dice("after", machine.id).uniform(5, slowest), lambda m=machine: self._true_again(m)
            )  # type: ignore[misc]

    def _true_again(self, machine: Machine) -> None:
        """Kubelets and controllers put right what the restored objects say of them."""
        if machine.gone:
            node = self.store.request("GET", f"/api/v1/nodes/{machine.node}") if machine.node else None
            if (
                node is not None
                and node.ok
                and node.body["spec"].get("providerID", "").endswith(f"/{machine.id}")
            ):
                self._forget_node(machine.node, self._uid(machine.node))
        elif machine.up and machine.node:
            self._registered(machine)
            if whole := self.made_raw.get(machine.id):
                self._initialized(machine, whole)  # its Node may be raw again
            self.kubelet(machine, "True")
            self.signals.renew(machine)

    # ------------------------------------------------------------ hands

    def use_policy(self, name: str) -> None:
        """The policy of processes that start from now on."""
        self.policy_name = name
        self.policy = read_policy(policy_text(name, self.scene.sources))
        self.note(facts.POLICY, "", **self.policy_of(name))

    def lift_brake(self) -> None:
        """A person has looked at the brake, and lifts it."""
        self.policy = replace(self.policy, limits=replace(self.policy.limits, brake=WHOLE, brake_per={}))
        said = self.policy_of(self.policy_name)
        self.note(facts.POLICY, "", **{**said, "limits": {**said["limits"], "brake": str(WHOLE)}})

    def release(self, node: str) -> bool:
        """``node-recovery release NODE``, as a person types it. Whether there was something to release."""
        self.note(facts.PERSON, node, did="release")
        return release(self, node) == 0

    def approve(self, reason: str) -> None:
        """``node-recovery approve REASON``: a person lets go what is held as correlated."""
        approve(self, reason)

    def write(self, method: str, path: str, body: Any, actor: str) -> Any:
        """Somebody who is none of ours writes. What is refused is refused."""
        kind = "application/merge-patch+json" if method == "PATCH" else None
        return self.store.request(method, path, body=body, content_type=kind, user_agent=actor)


@functools.cache
def _read(policy: str, sources: str) -> dict[str, Any]:
    """A policy as it is written. Nobody changes it."""
    return dict(yaml.load(policy_text(policy, sources), Loader=LOADER))  # noqa: S506 - a safe one


LOOKED_AT = ("Node", "NodeRecovery", "Pod", "PodDisruptionBudget")
SEEN_BY_ALL = (facts.MACHINE_GONE, facts.MACHINE_JOINED, facts.MACHINE_BOOTED, facts.CAPACITY, facts.CALM)


def _node_of(fact: facts.Wrote) -> str:
    """The node that a written pod runs on."""
    return str(((fact.after or fact.before or {}).get("spec") or {}).get("nodeName") or "")


def _same_gate(fact: facts.Wrote) -> bool:
    """Whether a write of the gate changed nothing that somebody waits for: a new count of the sick, say."""

    def told(obj: Any) -> Any:
        s = (obj or {}).get("status") or {}
        return (obj or {}).get("spec"), *(s.get(key) for key in ("open", "slots", "lastStart"))

    return told(fact.before) == told(fact.after)


def is_ours(actor: str) -> bool:
    """Whether a writer is an agent, a concluder or a replica of the controller."""
    return actor.startswith(OURS)


__all__ = ["LOG", "World", "is_ours"]
