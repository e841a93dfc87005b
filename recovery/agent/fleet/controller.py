"""The leader's work: an agent for each node that something is said of, and for no other.

A node has an agent from the moment at which its conditions or marks say anything but good, or a record of it
that counts is found. Work grows with what changed, not with the fleet: a node that is well costs an event of
the watch now and then.
"""

from __future__ import annotations

import heapq
import logging
import math
import threading
from collections.abc import Callable

from recovery.agent import bugs
from recovery.agent.cycle import Agent
from recovery.agent.desk import Desk
from recovery.agent.execute import Executor
from recovery.agent.fleet.crowd import Crowd
from recovery.agent.fleet.nodes import Nodes
from recovery.agent.fleet.sources import Says
from recovery.agent.observe import Observer
from recovery.agent.world import World
from recovery.decide.decision import SOON, Decision, Verb
from recovery.decide.marks import marked
from recovery.decide.sightings import News
from recovery.report.metrics import Metrics
from recovery.report.own_view import View
from recovery.report.publish import Publisher
from recovery.signals.never_joined import is_name

log = logging.getLogger(__name__)

LOOK_AGAIN = 30.0
"""Seconds after which an agent looks again, whatever its last decision says: a heartbeat may have failed."""
AT_REST = 600.0
"""Seconds for which a node keeps its agent after nothing more was said of it, or after its Node has gone."""
MOST_AT_ONCE = 100
"""How many agents have their turn in one step. With more, a stop would have to wait."""
MOST_IN_A_ROW = 8
"""How many things an agent does in one turn, one after the other: what it has read and written is still
fresh. If each of a hundred did one thing and waited for the others, all would be read anew for every one."""
WRITTEN_WITHIN = 45.0
"""Seconds for which others wait for a node whose agent cannot write down what is stated: it tries again after
30 s at most. One that never can is no reason to treat no other node."""
AT_ONCE = float("-inf")
"""When an agent is due that goes before all others."""


class Controller:
    """Looks after a share of the fleet's nodes, one after the other. One thread calls ``step``; any may call
    ``look_at``."""

    def __init__(
        self,
        world: World,
        observer: Observer,
        executor: Executor,
        publisher: Publisher,
        metrics: Metrics,
        nodes: Nodes,
        says: Says,
        crowd: Crowd,
        desk: Desk,
        tell: Callable[[News], None],
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._w = world
        self._observer = observer
        self._executor = executor
        self._publisher = publisher
        self._metrics = metrics
        self._nodes = nodes
        self._says = says
        self._crowd = crowd
        self._desk = desk
        self._tell = tell
        self._beat = beat
        self._agents: dict[str, Agent] = {}
        self._due: list[tuple[float, str]] = []
        self._due_at: dict[str, float] = {}
        self._resting: dict[str, float] = {}
        self._news: dict[str, bool] = {}
        self._hurried: dict[str, bool] = {}
        self._unseen: dict[str, float] = {}  # nodes with news that is on no record, and since when
        self._unwritten: dict[str, float] = {}  # those whose agents fail to write it down, and since when
        self._lock = threading.Lock()
        self.woken = threading.Event()  # there is news; whoever waits before a step may stop waiting
        self.busy = False
        """Whether a step is under way. Any thread may ask."""

    @property
    def agents(self) -> int:
        """How many nodes have an agent now."""
        return len(self._agents)

    def view(self, node: str) -> View | None:
        """What the agent of ``node`` last saw and decided; None where it has none. Any thread may ask."""
        agent = self._agents.get(node)
        return agent.view if agent is not None else None

    def knows(self, node: str) -> bool:
        """Whether ``node`` has an agent. Any thread may ask."""
        return node in self._agents

    def look_at(self, node: str, *, record: bool = False) -> None:
        """``node`` has changed. ``record``: there is a record of it that counts.

        A heartbeat of a node that is well wakes nobody. An agent that is being made meanwhile looks at the
        node after this, so it misses nothing.
        """
        if not record and node not in self._agents and not self._said_of(node):
            return
        agent = self._agents.get(node)
        on_record = record or (agent is not None and agent.busy)
        with self._lock:
            self._news[node] = self._news.get(node, False) or record
            if not on_record:
                self._unseen.setdefault(node, self._w.clock.monotonic())
        self.woken.set()

    def unseen_since(self, but: str) -> float | None:
        """Since which monotonic moment there is news of a node (but this one) that is on no record, and that
        its agent has not looked at, or not for long been unable to write. None where there is none. Any
        thread may ask."""
        with self._lock:
            return next((at for name, at in self._unseen.items() if name != but), None)

    def _has_seen(self, name: str, began: float) -> None:
        """``name`` was looked at from the moment ``began`` on."""
        if self._is_being_written(name):
            return
        with self._lock:
            if self._unseen.get(name, math.inf) <= began:
                del self._unseen[name]

    def _is_being_written(self, name: str) -> bool:
        """Whether what is stated of ``name`` could not be written down, and that is tried again soon: the API
        server has turned the write away, say, as it does where many fail at once."""
        agent, now = self._agents.get(name), self._w.clock.monotonic()
        if agent is None or agent.busy or not agent.has_failed:
            self._unwritten.pop(name, None)
            return False
        return now - self._unwritten.setdefault(name, now) < WRITTEN_WITHIN

    def hurry(self, node: str, *, first: bool = False) -> None:
        """What ``node`` waited for may have come: its turn, or a slot. Any thread may say so.

        ``first``: it goes before all that are due. Of a crowd, those that hold a slot would else wait until
        each of the others has opened its record, and the gate would be full of them.
        """
        with self._lock:
            self._hurried[node] = self._hurried.get(node, False) or first
        self.woken.set()

    def _said_of(self, name: str) -> bool:
        node = self._nodes.get(name)
        try:
            return node is not None and self._says.anything(node)
        except Exception:  # whatever this Node has on it: ``step`` tells of it, and the watch goes on
            return True

    def forget_all(self) -> None:
        """This replica leads no more: what it knew of recoveries is another's to know."""
        for name in list(self._agents):
            self._drop(name)
        with self._lock:
            self._news.clear()
            self._hurried.clear()
            self._unseen.clear()

    def step(self) -> float:
        """Give each agent that is due its turn. Seconds until the next one is."""
        self.busy = True
        try:
            return self._step()
        finally:
            self.busy = False

    def _step(self) -> float:
        self.woken.clear()
        with self._lock:
            news, self._news = self._news, {}
        for name in sorted(news, key=self._is_marked):  # one that has just broken waits for no crowd in hand
            try:
                self._hear(name, news[name])
            except Exception:  # whatever this Node has on it: the others are to be heard
                bugs.survived(self._metrics, name, "the node is looked at when it changes")
            if name not in self._agents:
                self._has_seen(name, self._w.clock.monotonic())
        for _ in range(MOST_AT_ONCE):
            self._wake_the_hurried()
            if not self._is_one_due():
                if not self._desk.write():
                    break
                continue
            at, name = heapq.heappop(self._due)
            if self._due_at.get(name) == at:
                self._turns(name)
            if self._desk.is_due():
                self._desk.write()
        return max(0.0, self._due[0][0] - self._w.clock.monotonic()) if self._due else LOOK_AGAIN

    def _is_marked(self, name: str) -> bool:
        node = self._nodes.get(name)
        return node is not None and marked(node)

    def _is_one_due(self) -> bool:
        return bool(self._due) and self._due[0][0] <= self._w.clock.monotonic()

    def _wake_the_hurried(self) -> None:
        with self._lock:
            hurried, self._hurried = self._hurried, {}
        for name in sorted(hurried.keys() & self._agents.keys()):
            self._agents[name].look_again()
            self._schedule(name, AT_ONCE if hurried[name] else 0.0)

    # ------------------------------------------------------------ one node

    def _hear(self, name: str, record: bool) -> None:
        node = self._nodes.get(name)
        if name not in self._agents:
            if not record and (node is None or not self._says.anything(node)):
                return
            self._agents[name] = self._made(name)
        if record:
            self._agents[name].look_at_record()
        self._schedule(name, 0.0)

    def _made(self, name: str) -> Agent:
        return Agent(
            self._w,
            self._observer,
            self._executor,
            self._publisher,
            self._metrics,
            self._says.sources(name, self._w.cluster.time.now),
            name,
            own=lambda _: self._nodes.get(name),
            gone=lambda: self._nodes.get(name) is None and not is_name(name),
            tell=self._tell,
        )

    def _turns(self, name: str) -> None:
        """Turn after turn, as long as each does something, and there is more to do at once. By then its fault
        is on record, and what its machine may share with others is known."""
        began = self._w.clock.monotonic()
        try:
            self._in_a_row(name)
        finally:
            self._has_seen(name, began)

    def _in_a_row(self, name: str) -> None:
        for _ in range(MOST_IN_A_ROW):
            try:
                d = self._turn(name)
            except Exception:  # whatever there is about this node: it keeps its turn, and others theirs
                bugs.survived(self._metrics, name, "the node is looked at again later")
                self._schedule(name, LOOK_AGAIN)
                return
            self._beat()
            if d.effect is None or d.look_again > SOON or name not in self._agents:
                return

    def _turn(self, name: str) -> Decision:
        agent = self._agents[name]
        d = agent.cycle()
        if (s := agent.view.situation) is not None:
            self._crowd.tell(name, s, d)
        node = self._nodes.get(name)
        # Of a Node that is gone its last fault is still known to its agent, and no more can be done about it.
        away = node is None and d.effect is None and not agent.busy
        well = d.verb is Verb.LEAVE and not agent.busy and (node is None or not self._says.anything(node))
        if away or well:
            since = self._resting.setdefault(name, self._w.clock.monotonic())
            if self._w.clock.monotonic() - since >= AT_REST:
                self._drop(name)
                return d
        else:
            self._resting.pop(name, None)
        # A Node that comes back is news, and so is a record of it that counts: both are looked at at once.
        self._schedule(name, LOOK_AGAIN if away else min(d.look_again.total_seconds(), LOOK_AGAIN))
        return d

    def _schedule(self, name: str, seconds: float) -> None:
        at = self._w.clock.monotonic() + seconds
        self._due_at[name] = at
        heapq.heappush(self._due, (at, name))

    def _drop(self, name: str) -> None:
        self._agents.pop(name, None)
        self._due_at.pop(name, None)
        self._resting.pop(name, None)
        self._observer.forget(name)
        self._metrics.forget(name)
        self._crowd.forget(name)
        self._unwritten.pop(name, None)
        with self._lock:
            self._unseen.pop(name, None)
