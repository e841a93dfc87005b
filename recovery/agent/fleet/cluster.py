"""The API server as the controller asks it: what the watch knows already is not listed again, and what was
read or written a moment ago is not read again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from recovery.agent.fleet.nodes import Nodes
from recovery.agent.fleet.objects import Objects
from recovery.agent.fleet.recent import Key, Recent
from recovery.clock import ApiTime, Clock
from recovery.errors import NotFound
from recovery.kube.cluster import Cluster
from recovery.kube.transport import Transport
from recovery.model import PHASE_LABEL, NodeView
from recovery.store.gate import NAME
from recovery.store.record import NOT_SICK, WELL

NODE = "node"
GATE: Key = ("gate", NAME)


def node_key(name: str) -> Key:
    return (NODE, name)


def record_key(name: str) -> Key:
    return ("record", name)


class WatchedCluster(Cluster):
    """``nodes``: as the watch shows them; ``whole``: it shows all there are. ``recent`` is the replica's.
    ``records`` are those that count as sick, and ``gates`` is the one gate. ``unjoined``: what stands for the
    Node of a machine that never became one."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        namespace: str,
        nodes: Nodes,
        recent: Recent,
        time: ApiTime,
        *,
        whole: bool,
        records: Objects,
        gates: Objects,
        unjoined: Callable[[str], NodeView | None] = lambda _: None,
    ) -> None:
        super().__init__(transport, clock, namespace, time)
        self._nodes = nodes
        self._recent = recent
        self._whole = whole
        self._records = records
        self._gates = gates
        self._unjoined = unjoined

    # ------------------------------------------------------------ what the watch knows

    def list_nodes(self, selector: str = "") -> Iterator[NodeView]:
        return self._nodes.all() if self._knows_all() and not selector else super().list_nodes(selector)

    def all_known(self) -> Nodes | None:
        return self._nodes if self._knows_all() else None

    def count_nodes(self) -> int:
        return len(self._nodes) if self._knows_all() else super().count_nodes()

    def _knows_all(self) -> bool:
        return self._whole and self._nodes.in_sync

    # ------------------------------------------------------------ what was asked for a moment ago

    def read_since(self, node: str) -> float:
        return self._recent.since(node_key(node), record_key(node), GATE)

    def ours_read_since(self, node: str) -> float:
        return self._recent.since(record_key(node), GATE)

    def forget(self, node: str) -> None:
        self._recent.forget(node_key(node), record_key(node), GATE)

    def forget_record(self, node: str) -> None:
        self._recent.forget(record_key(node))

    def get_node(self, name: str) -> NodeView:
        if (machine := self._unjoined(name)) is not None:
            return machine
        found: NodeView = self._recent.read(node_key(name), partial(super().get_node, name))
        return self._nodes.in_its_boot(found)

    def patch_node(self, name: str, patch: dict[str, Any]) -> NodeView:
        found: NodeView = self._recent.write(node_key(name), partial(super().patch_node, name, patch))
        return found

    def get_record(self, node: str) -> dict[str, Any]:
        return dict(self._recent.read(record_key(node), partial(super().get_record, node)))

    def list_records(self, selector: str = "") -> Iterator[dict[str, Any]]:
        known = self._records.all() if selector == NOT_SICK else None
        return super().list_records(selector) if known is None else iter(known)

    def create_record(self, body: dict[str, Any]) -> dict[str, Any]:
        return self._record(body, partial(super().create_record, body))

    def replace_record(self, body: dict[str, Any]) -> dict[str, Any]:
        return self._record(body, partial(super().replace_record, body))

    def _record(self, body: dict[str, Any], ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        name = body["metadata"]["name"]
        written = self._written(record_key(name), ask)
        if body["metadata"].get("labels", {}).get(PHASE_LABEL) not in WELL:
            self._records.written(written)
        return written

    def delete_record(self, name: str, uid: str, version: str) -> None:
        self._recent.forget(record_key(name))
        super().delete_record(name, uid, version)

    def get_gate(self) -> dict[str, Any]:
        if self._gates.all() == []:
            raise NotFound("the watch of the gate shows none")
        return dict(self._recent.read(GATE, super().get_gate))

    def create_gate(self, body: dict[str, Any]) -> dict[str, Any]:
        return self._gate(partial(super().create_gate, body))

    def replace_gate(self, body: dict[str, Any]) -> dict[str, Any]:
        return self._gate(partial(super().replace_gate, body))

    def _gate(self, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        written = self._written(GATE, ask)
        self._gates.written(written)
        return written

    def _written(self, key: Key, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        return dict(self._recent.write(key, ask))
