"""The sources of signals that the policy chooses, each with what it reads from."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from recovery.agent.cycle import Source
from recovery.agent.node_look import NodeLook
from recovery.agent.pace import own_node_every
from recovery.agent.pods_look import PodsLook
from recovery.agent.world import World
from recovery.model import PodChoice, SourceChoice
from recovery.signals import autopilot, conditions, dcgm, npd
from recovery.signals.autopilot_gauge import AutopilotSource, GaugeSource
from recovery.signals.marks import MarksSource
from recovery.signals.pod_page import Open, over_http
from recovery.signals.systems import MARKS


class SourcesOfNode:
    """Makes the sources of one node's agent.

    ``page`` reads node-problem-detector's page, and what ``open_page`` makes that of a pod. ``population``:
    how many Nodes there are, 0 where that is not known yet; in a large fleet each agent reads its own Node
    less often. ``look`` is to be told of each Node that the agent reads.
    """

    def __init__(
        self,
        world: World,
        node: str,
        page: Callable[[], bytes],
        poll_interval: timedelta,
        population: Callable[[], int],
        open_page: Open = over_http,
    ) -> None:
        self._w = world
        self._node = node
        self._page = page
        self._poll_interval = poll_interval
        self._open_page = open_page
        pods = {each.name: each.pod for each in world.policy.sources if each.pod is not None}
        self._pods = PodsLook(world, node, pods, population)
        alone = world.policy.source("npd") is None
        self.look = NodeLook(world, node, lambda: own_node_every(population(), alone=alone))

    def made(self) -> list[Source]:
        """One source for each that the policy names, in its order."""
        return [self._made(choice) for choice in self._w.policy.sources]

    def _made(self, choice: SourceChoice) -> Source:
        if choice.name == npd.SOURCE:
            now = self._w.cluster.time.now
            return npd.NpdSource(self._page, self._w.clock, now, self._poll_interval, self._node)
        if choice.pod is not None:
            return self._of_pod(choice, choice.pod)
        if choice.name == conditions.SOURCE:
            named = {rule.match.type for rule in self._w.policy.rules}
            return conditions.ConditionsSource(self.look, self._stands_since, choice.rows, named)
        return MarksSource(choice.name, self.look, MARKS[choice.name], self._stands_since)

    def _of_pod(self, choice: SourceChoice, pod: PodChoice) -> Source:
        now = self._w.cluster.time.now
        given = (choice.name, self._node, pod.port, self._pods.find, self._w.clock, now, self._open_page)
        if choice.name == dcgm.SOURCE:
            return dcgm.DcgmSource(*given)
        marks = MarksSource(choice.name, self.look, autopilot.read, self._stands_since)
        return AutopilotSource(marks, GaugeSource(*given, slow=choice.slow_pcie))

    def _stands_since(self, boot_id: str) -> datetime | None:
        """What was written to the Node before that may be over: the boot began then, or etcd was restored."""
        moments = (self._boot_began(boot_id), self.look.restored)
        return max((at for at in moments if at is not None), default=None)

    def _boot_began(self, boot_id: str) -> datetime | None:
        """When the node's boot began, by its own clock; None where its kernel is not this process's."""
        if boot_id != self._w.kernel_boot():
            return None
        return self._w.clock.now() - timedelta(seconds=self._w.clock.boottime())
