"""The training job's part: ReplicaSet and DaemonSet controller, scheduler, and the start of pods."""

from __future__ import annotations

import itertools
import time
from typing import Any

from recovery_demo import manifests
from recovery_demo.kubeapi import KubeApi, Refusal

Json = dict[str, Any]

START = 1.5  # seconds from bound to Running
PODS = f"/api/v1/namespaces/{manifests.NAMESPACE}/pods"


class Workload:
    """Keeps ``replicas`` trainers on schedulable nodes, and the DaemonSet ``plugin``'s pod on every node.

    A pod's end after its grace period is the API's part (``recovery_testkit.kubecontrol``).
    """

    controller = "ReplicaSet"
    """The kind that owns the trainers."""

    def __init__(self, api: KubeApi, replicas: int, plugin: str) -> None:
        self._api = api
        self._replicas = replicas
        self._numbers = itertools.count(1)
        self._starting: dict[str, float] = {}
        for collection, obj in self._objects():
            made = api.post(collection, obj)
            if obj["kind"] == self.controller:
                self._owner = _owner(made)
        self._plugin = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": plugin, "uid": "plugin"}

    def _objects(self) -> list[tuple[str, Json]]:
        return manifests.workload(self._replicas)

    def _trainer(self, name: str, on: str) -> Json:
        return manifests.pod(name, on, app=manifests.APP, owner=self._owner)

    def tick(self, at_once: bool = False) -> None:
        """One pass of the controllers. ``at_once``: pods run immediately, as at the beginning."""
        pods = self._api.items(PODS)
        nodes = self._api.items("/api/v1/nodes")
        for node in nodes:
            self._plugin_on(node["metadata"]["name"], pods)
        kept = [p for p in pods if p["metadata"]["labels"]["app"] == manifests.APP and _staying(p)]
        for _ in range(self._replicas - len(kept)):
            made = self._create(nodes, kept)
            if made is not None:
                kept.append(made)
        self._run(at_once)

    def _plugin_on(self, node: str, pods: list[Json]) -> None:
        plugin = str(self._plugin["name"])
        name = f"{plugin}-{node}"
        if not any(p["metadata"]["name"] == name for p in pods):
            self._bind(manifests.pod(name, node, app=plugin, owner=self._plugin))

    def _create(self, nodes: list[Json], kept: list[Json]) -> Json | None:
        """A new trainer on the node with the fewest; none where no node takes any."""
        load = {n["metadata"]["name"]: 0 for n in nodes if _schedulable(n)}
        for pod in kept:
            if pod["spec"]["nodeName"] in load:
                load[pod["spec"]["nodeName"]] += 1
        if not load:
            return None
        best = min(load, key=lambda name: (load[name], name))
        return self._bind(self._trainer(f"{manifests.APP}-{next(self._numbers)}", best))

    def _bind(self, pod: Json) -> Json:
        made = self._api.post(PODS, pod)
        self._starting[pod["metadata"]["name"]] = time.monotonic() + START
        return made

    def _run(self, at_once: bool) -> None:
        for name, due in list(self._starting.items()):
            if not at_once and time.monotonic() < due:
                continue
            del self._starting[name]
            try:
                pod = self._api.get(f"{PODS}/{name}")
                self._api.put(f"{PODS}/{name}/status", {**pod, "status": manifests.RUNNING})
            except Refusal as refusal:
                if refusal.status not in (404, 409):
                    raise


def _owner(obj: Json) -> Json:
    meta = obj["metadata"]
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
    }


def _staying(pod: Json) -> bool:
    finished = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return not finished and not pod["metadata"].get("deletionTimestamp")


def _schedulable(node: Json) -> bool:
    spec = node.get("spec") or {}
    ready = any(
        c["type"] == "Ready" and c["status"] == "True"
        for c in (node.get("status") or {}).get("conditions") or []
    )
    closed = any(t.get("effect") in ("NoSchedule", "NoExecute") for t in spec.get("taints") or [])
    return ready and not spec.get("unschedulable") and not closed
