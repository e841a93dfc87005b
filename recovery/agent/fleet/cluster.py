"""The API server as the controller asks it: what the watch knows already is not listed again."""

from __future__ import annotations

from collections.abc import Iterator

from recovery.agent.fleet.nodes import Nodes
from recovery.clock import Clock
from recovery.kube.cluster import Cluster
from recovery.kube.transport import Transport
from recovery.model import NodeView


class WatchedCluster(Cluster):
    """``nodes``: as the watch shows them; ``whole``: it shows all there are."""

    def __init__(
        self, transport: Transport, clock: Clock, namespace: str, nodes: Nodes, *, whole: bool
    ) -> None:
        super().__init__(transport, clock, namespace)
        self._nodes = nodes
        self._whole = whole

    def get_node(self, name: str) -> NodeView:
        return self._nodes.in_its_boot(super().get_node(name))

    def list_nodes(self) -> Iterator[NodeView]:
        return self._nodes.all() if self._knows_all() else super().list_nodes()

    def count_nodes(self) -> int:
        return len(self._nodes) if self._knows_all() else super().count_nodes()

    def _knows_all(self) -> bool:
        return self._whole and self._nodes.in_sync
