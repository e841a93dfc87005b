"""The controllers and kubelets beside the API, as if they were quick: each acts right after the write it
reacts to.

The disruption controller (PodDisruptionBudget status), the namespace controller (a deleted namespace is
emptied), the CRD controllers (a definition is served, and its objects go with it), the kubelet's part in
deleting a pod.
"""

from __future__ import annotations

from datetime import datetime

from recovery_testkit import kubeevict
from recovery_testkit.kuberesources import Resource
from recovery_testkit.kubeshelf import CRDS, NAMESPACES, NODES, PDBS, PODS, Origin, Shelf, object_key
from recovery_testkit.kubestatus import Json

_OWNERS = {
    "ReplicaSet": ("apps", "replicasets"),
    "Deployment": ("apps", "deployments"),
    "StatefulSet": ("apps", "statefulsets"),
}
_BUDGET_MATTERS = {PODS, PDBS, *_OWNERS.values()}


class Controllers:
    """Reacts to every write on a shelf, and to the passing of time in `advance()`. Callers hold the
    shelf's lock."""

    def __init__(self, shelf: Shelf, kubelets_by_ready: bool = False) -> None:
        self.dead_kubelets: set[str] = set()
        self._by_ready = kubelets_by_ready
        self._shelf = shelf
        self._going: dict[tuple[str, str], datetime] = {}
        shelf.listener = self._changed

    def advance(self) -> None:
        """What is due at the shelf's `now()`: terminating pods past their grace period go, evictions that
        nobody confirmed no longer count as disruptions."""
        if not self._going and not self._shelf.objects[PDBS]:
            return
        due = self._shelf.now()
        for key in [key for key, deadline in self._going.items() if deadline <= due]:
            self._end(key)
        for pdb in list(self._shelf.objects[PDBS].values()):
            if (pdb.get("status") or {}).get("disruptedPods"):
                self._settle_budget(pdb)

    def _changed(self, resource: Resource, obj: Json, gone: bool) -> None:
        if resource.key == PODS:
            self._track(obj, gone)
        if resource.key == NAMESPACES and gone:
            self._empty_namespace(obj["metadata"]["name"])
        if resource.key == CRDS:
            self._definition(obj, gone)
        if resource.key in _BUDGET_MATTERS:
            self._settle_budgets(obj["metadata"]["namespace"])

    def _track(self, pod: Json, gone: bool) -> None:
        meta, key = pod["metadata"], object_key(pod)
        self._going.pop(key, None)
        if not gone and meta.get("deletionTimestamp") and meta.get("deletionGracePeriodSeconds"):
            self._going[key] = datetime.fromisoformat(meta["deletionTimestamp"])

    def _end(self, key: tuple[str, str]) -> None:
        """A kubelet reports its pod as stopped: the API lets it go, unless a finalizer holds it."""
        pod = self._shelf.objects[PODS][key]
        if self._dead(str((pod.get("spec") or {}).get("nodeName"))):
            return
        ended = {**pod, "metadata": {**pod["metadata"], "deletionGracePeriodSeconds": 0}}
        self._shelf.put(self._shelf.resource(PODS), pod, ended, _origin("delete", pod, "kubelet"))

    def _dead(self, node: str) -> bool:
        """Whether no kubelet reports anything of this node's pods."""
        if node in self.dead_kubelets or not self._by_ready:
            return node in self.dead_kubelets
        status = (self._shelf.objects[NODES].get(("", node)) or {}).get("status") or {}
        return any(c["type"] == "Ready" and c["status"] == "Unknown" for c in status.get("conditions") or [])

    def _empty_namespace(self, namespace: str) -> None:
        for resource in self._shelf.resources:
            for obj in list(self._shelf.objects[resource.key].values()):
                if obj["metadata"].get("namespace") == namespace:
                    self._shelf.drop(resource, obj, _origin("delete", obj, "namespace-controller"))

    def _definition(self, crd: Json, gone: bool) -> None:
        if not gone:
            self._shelf.serve(crd)
            return
        spec = crd["spec"]
        key = spec["group"], spec["names"]["plural"]
        for obj in list(self._shelf.objects[key].values()):
            self._shelf.drop(self._shelf.resource(key), obj, _origin("delete", obj, "crd-finalizer"))
        self._shelf.unserve(crd)

    def _settle_budgets(self, namespace: str) -> None:
        for pdb in list(self._shelf.objects[PDBS].values()):
            if pdb["metadata"]["namespace"] == namespace:
                self._settle_budget(pdb)

    def _settle_budget(self, pdb: Json) -> None:
        def find(kind: str, namespace: str, name: str) -> Json | None:
            return self._shelf.objects[_OWNERS[kind]].get((namespace, name))

        pods = self._shelf.objects[PODS].values()
        status = kubeevict.budget_status(pdb, pods, find, self._shelf.now())
        if status != pdb.get("status"):
            origin = _origin("update", pdb, "disruption-controller")
            self._shelf.put(self._shelf.resource(PDBS), pdb, {**pdb, "status": status}, origin)


def _origin(verb: str, obj: Json, actor: str) -> Origin:
    meta = obj["metadata"]
    path = "/".join(filter(None, (actor, obj["kind"], meta.get("namespace"), meta["name"])))
    return Origin(verb, path, actor)
