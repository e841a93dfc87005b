"""The world of one history in fleet mode: replicas of the controller, and no agent on any machine."""

from __future__ import annotations

from collections.abc import Iterator

from recovery.agent.cycle import Agent
from tests.search import facts
from tests.search.facts import Said, Wrote
from tests.search.machines import Machine
from tests.search.world import Process, World

BUSY, QUIET = 1.0, 5.0
"""Seconds between two rounds of a replica that looks after nodes, at least, and of one that has nothing to do, or
has seen nothing new for a while. The Lease is 15 s long."""
STANDBY = 3.0
"""Seconds between two rounds of one that does not lead."""


class FleetWorld(World):
    """As ``World``. A seat is that of a replica, wherever it runs."""

    def _set_up(self) -> None:
        self._said: dict[str, str] = {}
        self._leads: set[str] = set()
        super()._set_up()
        for seat in self.seats:
            self.start(seat, delay=0.5 + seat)

    @property
    def seats(self) -> range:
        return range(self.scene.replicas)

    def rises(self, machine: Machine, delay: float, *, new_pod: bool = False) -> None:
        """No replica runs on the machines that it looks after."""

    def falls(self, machine: Machine) -> None:
        """Nor goes with them."""

    def start(
        self, place: int, *, delay: float = 1.0, new_pod: bool = False, on: bool = True
    ) -> Process | None:
        pod = self.pod_of.setdefault(place, 0)
        if new_pod:
            pod = self.pod_of[place] = pod + 1
        name = f"controller-{place}, {next(self._numbers)}"
        actor = self.fleet(name, on=on, place=f"controller-{place}-{pod}", alone=True)
        actor.is_still = self.boundary.is_still
        p = self.processes[name] = Process(actor, place, self.now + delay, on)
        self.note(facts.PROCESS, name, state="started", node="", everywhere=True)
        if not on:
            self.note(facts.SWITCHED, name, on=False)
        return p

    def agent_on(self, place: int) -> tuple[Process, Agent] | None:
        node = self.places[place].node
        for p in self.processes.values():
            if p.alive and p.actor.replica.leader.leads:
                for agent in _agents(p):
                    if agent.node == node:
                        return p, agent
        return None

    def _booted(self, p: Process) -> float:
        return 0.0

    def _step(self, p: Process) -> float:
        before = len(self.facts)
        p.actor.turn()
        leads = p.on and p.actor.replica.leader.leads
        if leads != (p.actor.name in self._leads):
            (self._leads.add if leads else self._leads.discard)(p.actor.name)
            self.note(facts.PROCESS, p.actor.name, state="resumed", node="", leads=leads)
        for agent in _agents(p):
            self._hear(p, agent)
        if not p.actor.replica.leader.leads:
            return 2 * STANDBY if self.scene.unhurried else STANDBY
        p.still = min(p.still + 1, 4) if self.scene.patient and self._nothing_since(before) else 0
        busy = 2 * BUSY if self.scene.unhurried else BUSY
        return max(busy, min(p.actor.due_in, QUIET), min(BUSY * 2.0 ** (p.still - 1), QUIET))

    def _nothing_since(self, before: int) -> bool:
        """Whether nothing has happened since so many facts, but that Leases were renewed."""
        return all(isinstance(f, Wrote) and f.kind == "Lease" for f in self.facts[before:])

    def _about(self, fact: Wrote, p: Process) -> bool:
        return True

    def _hear(self, p: Process, agent: Agent) -> None:
        d = agent.last
        if d is not None and self._said.get(agent.node) != d.reason:
            self._said[agent.node] = d.reason
            self.facts.append(Said(self.now, p.actor.name, agent.node, d.key, d.reason))


def _agents(p: Process) -> Iterator[Agent]:
    for controller in p.actor.replica.controllers:
        yield from controller._agents.values()
