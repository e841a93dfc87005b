"""The corner of a cluster in which `cluster_kit` works: unique names, helpers that state what they expect,
a clean-up."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from recovery_testkit.kubepatch import MERGE
from recovery_testkit.kubestatus import Json, Response

NODES = "/api/v1/nodes"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class ClusterApi(Protocol):
    """The API under test. `request` never raises for an HTTP status. `watch` yields `{"type", "object"}`
    events; when the watch cannot even be opened it yields one `ERROR` event with the Status."""

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str | None = None,
    ) -> Response:
        """One request, one answer."""
        ...

    def watch(self, path: str, query: Mapping[str, str]) -> Iterable[Json]:
        """The events of a watch. It may end by itself once there is nothing more."""
        ...


class Cluster:
    """An API with a corner of its own: unique names, helpers that state what they expect, and a clean-up."""

    def __init__(self, api: ClusterApi, pause: Callable[[], None], attempts: int = 400) -> None:
        self.api = api
        self.tag = f"kit-{secrets.token_hex(4)}"
        self.group = f"{self.tag}.noderecovery.dev"
        self.namespace = self.tag
        self.pods = f"/api/v1/namespaces/{self.namespace}/pods"
        self.config_maps = f"/api/v1/namespaces/{self.namespace}/configmaps"
        self.leases = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"
        self.budgets = f"/apis/policy/v1/namespaces/{self.namespace}/poddisruptionbudgets"
        self.widgets = f"/apis/{self.group}/v1/widgets"
        self._pause = pause
        self._attempts = attempts
        self._made: list[str] = []

    def __enter__(self) -> Cluster:
        self.create("/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        return self

    def __exit__(self, *exc: object) -> None:
        for path in reversed(self._made):
            now = {"gracePeriodSeconds": 0}
            self.api.request("DELETE", path, body=now, content_type="application/json")

    def ask(
        self, method: str, path: str, body: Any = None, kind: str | None = None, **query: str
    ) -> Response:
        """One request; JSON bodies are said to be JSON unless `kind` says otherwise."""
        said = kind or ("application/json" if body is not None else None)
        return self.api.request(method, path, query=query, body=body, content_type=said)

    def create(self, collection: str, body: Json) -> Json:
        """Creates an object, to be cleaned up, and returns it as the server answered."""
        answer = self.ask("POST", collection, body)
        assert answer.status == 201, answer.body
        made = dict(answer.body)
        self._made.append(f"{collection}/{made['metadata']['name']}")
        return made

    def get(self, path: str) -> Json:
        """An object that must be there."""
        answer = self.ask("GET", path)
        assert answer.status == 200, answer.body
        return dict(answer.body)

    def patch(self, path: str, patch: Any, kind: str = MERGE) -> Json:
        """A patch that must be taken."""
        answer = self.ask("PATCH", path, patch, kind)
        assert answer.status == 200, answer.body
        return dict(answer.body)

    def node(self, name: str = "node", **more: Any) -> Json:
        """A node of this kit."""
        metadata = {"name": f"{self.tag}-{name}", "labels": {"kit": self.tag}, **more}
        return self.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})

    def config_map(self, name: str, **more: Any) -> Json:
        """An object with no habits of its own, for everything that is true of all kinds."""
        metadata = {"name": name, "namespace": self.namespace, **more}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "1"}}
        return self.create(self.config_maps, body)

    def pod(self, name: str, *, ready: bool = True, on: str = "elsewhere") -> Json:
        """A running pod bound to a node that needs not exist."""
        containers = [{"name": "main", "image": "registry.example/none:1"}]
        spec = {"nodeName": on, "containers": containers, "terminationGracePeriodSeconds": 30}
        metadata = {"name": name, "namespace": self.namespace, "labels": {"app": "kit"}}
        self.create(self.pods, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
        status = {"phase": "Running", "conditions": conditions}
        return self.patch(f"{self.pods}/{name}/status", {"status": status})

    def budget(self, **spec: Any) -> None:
        """A PodDisruptionBudget on this kit's pods, whose status is there when this returns."""
        selector = {"matchLabels": {"app": "kit"}}
        metadata = {"name": "budget", "namespace": self.namespace}
        body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata}
        self.create(self.budgets, {**body, "spec": {"selector": selector, **spec}})
        self.eventually(lambda: "observedGeneration" in self.budget_status())

    def budget_status(self) -> Json:
        """The status of the budget, as the disruption controller wrote it last."""
        return dict(self.get(f"{self.budgets}/budget").get("status") or {})

    def evict(self, name: str, **options: Any) -> Response:
        """Asks for an eviction."""
        metadata = {"name": name, "namespace": self.namespace}
        body: Json = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        if options:
            body["deleteOptions"] = options
        return self.ask("POST", f"{self.pods}/{name}/eviction", body)

    def serve_widgets(self) -> None:
        """Installs a custom kind without status subresource, and waits until it is served."""
        names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": _WIDGET}}
        spec = {"group": self.group, "scope": "Cluster", "names": names, "versions": [version]}
        body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": spec}
        assert self.ask("GET", self.widgets).status == 404, "a kind is served before its definition is there"
        self.create(_CRDS, {**body, "metadata": {"name": f"widgets.{self.group}"}})
        self.eventually(lambda: self.ask("GET", self.widgets).status == 200)

    def widget(self, name: str = "w", **more: Any) -> Json:
        """The body of a widget."""
        return {"apiVersion": f"{self.group}/v1", "kind": "Widget", "metadata": {"name": name}, **more}

    def events(self, path: str, count: int, **query: str) -> list[Json]:
        """The first `count` events of a watch (fewer when it ends before); a watch waits 5 s at most."""
        found: list[Json] = []
        for event in self.api.watch(path, {"watch": "1", "timeoutSeconds": "5", **query}):
            found.append(event)
            if len(found) == count:
                break
        return found

    def eventually(self, holds: Callable[[], bool]) -> None:
        """Waits for something that a controller does. Fails when it has not come true in time."""
        for _ in range(self._attempts):
            if holds():
                return
            self._pause()
        raise AssertionError("what a controller should have done did not come true")


_WIDGET: Json = {
    "type": "object",
    "properties": {
        "spec": {"type": "object", "properties": {"size": {"type": "integer"}, "colour": {"type": "string"}}},
        "status": {
            "type": "object",
            "required": ["phase"],
            "properties": {
                "phase": {"type": "string", "enum": ["open", "closed"]},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "lines": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"text": {"type": "string"}}},
                },
            },
        },
    },
}


def version_of(obj: Json) -> str:
    """The object's resourceVersion."""
    return str(obj["metadata"]["resourceVersion"])


def reason_of(answer: Response) -> tuple[int, str]:
    """Status code and reason of a refusal."""
    return answer.status, str(answer.body.get("reason", ""))
