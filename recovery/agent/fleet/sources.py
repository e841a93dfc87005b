"""The sources of signals in fleet mode: what stands on the Nodes, as the watch shows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

from recovery.agent.cycle import Source
from recovery.agent.fleet.alike import Alike
from recovery.agent.fleet.kubelet_leases import KubeletLeases
from recovery.agent.fleet.loki import LogReader
from recovery.agent.fleet.lost_pods import PodWatch
from recovery.agent.fleet.never_joined import Roll
from recovery.agent.fleet.nodes import FRESH_FOR, Nodes, life_of
from recovery.agent.fleet.prometheus import Poller
from recovery.catalog import polarity
from recovery.decide.marks import marked
from recovery.errors import ApiError
from recovery.judged import Judged
from recovery.kube.watch import later
from recovery.model import NodeView, Policy, Reading
from recovery.quick import replace
from recovery.signals import black_hole, device_counts, kubelet, never_joined
from recovery.signals.conditions import ConditionsSource
from recovery.signals.loki import LokiSource
from recovery.signals.marks import MarksSource
from recovery.signals.own_node import Seen
from recovery.signals.prometheus import PrometheusSource
from recovery.signals.systems import MARKS

GONE = 1024
"""Of how many Nodes that have gone it is remembered that they had no marks."""


class Says:
    """What the policy's sources have to go by on a Node."""

    def __init__(
        self,
        policy: Policy,
        nodes: Nodes,
        alike: Alike,
        poller: Poller | None = None,
        logs: LogReader | None = None,
        pods: PodWatch | None = None,
        roll: Roll | None = None,
        leases: KubeletLeases | None = None,
    ) -> None:
        self._policy = policy
        self._nodes = nodes
        self._alike = alike
        self._poller = poller
        self._counts = policy.source(device_counts.SOURCE) is not None
        self._logs = logs
        self._pods = pods
        self._roll = roll
        self._leases = leases
        named = frozenset(rule.match.type for rule in policy.rules)
        self._named = named - {kubelet.READY, never_joined.TYPE}
        conditions = policy.source("conditions")
        self._rows = conditions.rows if conditions is not None else None
        self._is_bad = Judged(self._bad)
        self._marks = {x.name: MARKS[x.name] for x in policy.sources if x.name in MARKS}
        self._bare: dict[tuple[str, str], tuple[str, datetime | None]] = {}
        """Of which Nodes a source saw no mark, in which life; and when one was put there since."""

    def anything(self, node: NodeView) -> bool:
        """Whether something stands on ``node`` that is not good, or a mark of ours. Asked at each of its
        events."""
        marks = self._marks_of(node)
        if self._leases is not None and (not node.ready or self._leases.stays(node)):
            return True
        if self._poller is not None and self._poller.anything(node.name):
            return True
        if self._counts and device_counts.short(node.devices, self._alike.norms(node)):
            return True
        if self._logs is not None and self._logs.anything(node.name):
            return True
        if self._pods is not None and self._pods.of(node) is not None:
            return True
        if self._rows is not None and self._is_bad(node):
            return True
        if marked(node):
            return True
        return marks

    def _marks_of(self, node: NodeView) -> bool:
        """Whether there are marks of other systems. It is remembered that there were none: nobody else looks
        at the node then, and one that is put there later would pass for one that has always been there."""
        found = False
        for source, read in self._marks.items():
            said, key, life = read(node), (node.name, source), life_of(node)
            found = found or bool(said.marks or said.unknown)
            known = self._bare.get(key)
            if said.marks and known == (life, None):
                self._bare[key] = (life, self._nodes.now())
            elif not said.marks and not said.unknown and known != (life, None):
                if len(self._bare) > 2 * len(self._marks) * (len(self._nodes) + GONE):
                    self._bare.clear()  # most of them are gone
                self._bare[key] = (life, None)
        return found

    def _put_since(self, name: str, source: str) -> datetime | None:
        """When a mark of ``source`` was seen to be put there, in the node's life of now. One that came back
        with etcd was not."""
        node, (life, since) = self._nodes.get(name), self._bare.get((name, source), ("", None))
        if node is None or life != life_of(node) or since is None:
            return None
        restored = self._nodes.restored_at(name)
        return since if restored is None or abs(since - restored) > kubelet.RENEWS else None

    def _bad(self, node: NodeView) -> bool:
        """Whether one of its conditions is bad, or Unknown."""
        return any(
            status in (row.bad, "Unknown")
            for type_, (status, _) in node.conditions.items()
            if (row := polarity(type_, self._rows or (), self._named))
        )

    def sources(self, name: str, now: Callable[[], datetime]) -> Sequence[Source]:
        """The sources of one node, new: they have seen nothing yet."""

        if self._roll is not None and never_joined.is_name(name):
            return [never_joined.NeverJoinedSource(name, self._roll.word)]

        look = Look(self._nodes, name, now)
        made: list[Source] = []
        if self._leases is not None:
            made.append(
                kubelet.KubeletSource(look, self._leases.heard, partial(self._nodes.restored_at, name))
            )
        began = partial(self._nodes.stands_since, name)
        for choice in self._policy.sources:
            if choice.name == "conditions":
                made.append(ConditionsSource(look, began, choice.rows, self._named))
            elif choice.name == device_counts.SOURCE:
                counts = device_counts.DeviceCountsSource(look, self._alike.norms, began)
                made.append(_WithPods(counts, partial(self._swallows, name)) if self._pods else counts)
            elif choice.name in MARKS:
                since = partial(self._put_since, name, choice.name)
                made.append(MarksSource(choice.name, look, MARKS[choice.name], began, since))
        if self._poller is not None:
            made.append(PrometheusSource(name, partial(self._poller.look, name)))
        if self._logs is not None:
            made.append(LokiSource(name, partial(self._logs.look, name)))
        return made

    def _swallows(self, name: str) -> black_hole.Swallows | None:
        node = self._nodes.get(name)
        return self._pods.of(node) if self._pods is not None and node is not None else None


class Look:
    """Looks at one Node: as the watch shows it, and right before something is done to it as it is now.

    A watch may be late by minutes and send bookmarks all the same. One that was found to be is not relied on:
    until it has caught up, the Node is read.
    """

    def __init__(self, nodes: Nodes, name: str, now: Callable[[], datetime]) -> None:
        self._nodes = nodes
        self._name = name
        self._now = now
        self._read: tuple[datetime, NodeView] | None = None

    def __call__(self, within: float | None = None) -> Seen:
        """The Node by a look no older than ``within`` seconds, where that is 0 or the watch is late. None or
        infinity: as old as may be."""
        seen = self._nodes.seen(self._name, self._now())
        if seen.node is None or seen.why:
            return seen
        if within is not None and self._due(seen, seen.node, within):
            try:
                found = self._nodes.read(self._name)
            except ApiError as error:
                return replace(seen, why=f"the Node cannot be read: {error}")
            if found is None:
                return replace(seen, node=None, why="there is no such Node")
            self._read = seen.at, found
        return replace(seen, node=self._latest(seen, seen.node))

    def _due(self, seen: Seen, shown: NodeView, within: float) -> bool:
        if self._read is None or within <= 0:
            return within <= 0
        late = self._latest(seen, shown) is not shown
        return late and (seen.at - self._read[0]).total_seconds() >= within

    def _latest(self, seen: Seen, shown: NodeView) -> NodeView:
        """What was read is forgotten in time: after a restore of etcd its version may stay the later one."""
        if self._read is None or seen.at - self._read[0] > FRESH_FOR:
            return shown
        read = self._read[1]
        return replace(read) if later(read.resource_version, shown.resource_version) else shown


class _WithPods:
    """The source ``api``: the counts on the Node, and the pods that the node has swallowed."""

    name = device_counts.SOURCE

    def __init__(self, counts: Source, swallows: Callable[[], black_hole.Swallows | None]) -> None:
        self._counts = counts
        self._swallows = swallows

    def poll(self, boot_id: str, within: float | None = None) -> Reading:
        """What is known now, by a look at the Node no older than ``within`` seconds."""
        return black_hole.with_pods(self._counts.poll(boot_id, within), self._swallows(), FRESH_FOR)
