"""The sources of signals that the policy chooses, each with what it reads from."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from recovery.agent.cycle import Source
from recovery.agent.node_look import NodeLook
from recovery.agent.pace import own_node_every
from recovery.agent.world import World
from recovery.model import NodeView, SourceChoice
from recovery.signals import autopilot, aznhc, konduktor
from recovery.signals.conditions import ConditionsSource
from recovery.signals.marks import MarksSource, Said
from recovery.signals.npd import NpdSource


class SourcesOfNode:
    """Makes the sources of one node's agent.

    ``page`` reads node-problem-detector's page. ``population``: how many Nodes there are, 0 where that is not
    known yet; in a large fleet each agent reads its own Node less often. ``look`` is to be told of each Node
    that the agent reads.
    """

    def __init__(
        self,
        world: World,
        node: str,
        page: Callable[[], bytes],
        poll_interval: timedelta,
        population: Callable[[], int],
    ) -> None:
        self._w = world
        self._node = node
        self._page = page
        self._poll_interval = poll_interval
        alone = world.policy.source("npd") is None
        self.look = NodeLook(world, node, lambda: own_node_every(population(), alone=alone))

    def made(self) -> list[Source]:
        """One source for each that the policy names, in its order."""
        makers = {
            "npd": self._npd,
            "conditions": self._conditions,
            "aznhc": self._marks(aznhc.read),
            "autopilot": self._marks(autopilot.read),
            "konduktor": self._marks(konduktor.read),
        }
        return [makers[choice.name](choice) for choice in self._w.policy.sources]

    def _npd(self, _: SourceChoice) -> Source:
        now = self._w.cluster.time.now
        return NpdSource(self._page, self._w.clock, now, self._poll_interval, self._node)

    def _conditions(self, choice: SourceChoice) -> Source:
        named = {rule.match.type for rule in self._w.policy.rules}
        return ConditionsSource(self.look, self._boot_began, choice.rows, named)

    def _marks(self, read: Callable[[NodeView], Said]) -> Callable[[SourceChoice], Source]:
        return lambda choice: MarksSource(choice.name, self.look, read)

    def _boot_began(self, boot_id: str) -> datetime | None:
        """When the node's boot began, by its own clock; None where its kernel is not this process's."""
        if boot_id != self._w.kernel_boot():
            return None
        return self._w.clock.now() - timedelta(seconds=self._w.clock.boottime())
