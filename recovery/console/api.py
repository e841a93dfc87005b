"""What the commands ask of the API server beside what an agent does."""

from __future__ import annotations

import getpass
import shlex
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from recovery.clock import SystemClock
from recovery.console.output import say
from recovery.console.stored import check_conditions, check_stored
from recovery.errors import ApiError, ApiUnavailable, Dropped, TooLong
from recovery.kube import shapes
from recovery.kube.cluster import MERGE_PATCH, Cluster
from recovery.kube.kubeconfig import USUAL, Place, Target, is_usual
from recovery.kube.transport import KubernetesTransport, Transport
from recovery.model import PodView
from recovery.report.asked_by import ACCOUNT, HEADER, PATH, audience

CONTAINER = "node-recovery"
"""The name of the agent's container in the manifests. Its pod is found by this name and its account."""
PORT = 9108
OURS, COMPONENT = "app.kubernetes.io/name=node-recovery", "app.kubernetes.io/component"
SHORTEST = 600
"""Seconds that a token lives, where the API server lets it live no shorter."""


@dataclass(frozen=True)
class AgentPod:
    """The pod that an agent runs in, and the port that it serves on."""

    namespace: str
    name: str
    port: int
    running: bool

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Named:
    """The way to a cluster. Where no answer comes, it says what was asked, of whom, and what to look at."""

    def __init__(self, way: Transport, place: Place, target: Target) -> None:
        self._way = way
        self._place = place
        self._target = target

    def request(self, method: str, path: str, **more: Any) -> Any:
        """As the transport's. Raises ``ApiUnavailable``."""
        try:
            return self._way.request(method, path, **more)
        except TooLong:
            raise  # a smaller page is asked for
        except ApiUnavailable as error:
            what = f"{method} {path} of {self._place}: {error.reason}"
            raise ApiUnavailable(f"{what}. {self._advice()}", error.status, error.retry_after) from None

    def _advice(self) -> str:
        t = self._target
        if t.in_cluster:
            return "Does a network policy keep this pod from it, and do other pods reach it?"
        named = f" --kubeconfig {shlex.quote(t.kubeconfig)}" if t.kubeconfig else ""
        named += f" --context {shlex.quote(self._place.context)}"
        return (
            f"Does it answer to kubectl{named} get --raw /readyz? If not: is it up, and do you need a VPN? "
            "--context and --kubeconfig name another cluster."
        )


class UserApi(Cluster):
    """The API server with the credentials of who runs the command. Agents need none of these rights.

    ``usual``: a plain kubectl would talk to the same cluster.
    """

    place: Place = Place("", "")
    usual: bool = True

    @property
    def elsewhere(self) -> str:
        """What is said before a question where a plain kubectl would talk to another cluster; else empty."""
        return "" if self.usual else f"{self.place} is not your current context. "

    def as_json(self) -> dict[str, str]:
        """The cluster, as the commands that change it print it for programs."""
        return {"context": self.place.context, "server": self.place.server}

    def agent_pod(self, node: str) -> AgentPod | None:
        """The pod on ``node`` that has the agent's container; a running one if there are several.

        Only pods of the agents' accounts count: anybody may name a container as ours is named. Where nobody
        is bound to our role (it was installed by other means), the name has to do.
        """
        ours = self._accounts()
        items = self._pages("/api/v1/pods", {"fieldSelector": f"spec.nodeName={node}"})
        of_ours = (item for item in items if not ours or _account(item) in ours)
        found = [pod for item in of_ours if (pod := agent_pod(item)) is not None]
        return next((pod for pod in found if pod.running), found[0] if found else None)

    def all_pods(self, node: str = "") -> Iterator[dict[str, Any]]:
        """The pods of all namespaces as they are written, a page at a time; those of ``node``, if named."""
        yield from self._pages("/api/v1/pods", {"fieldSelector": f"spec.nodeName={node}"} if node else {})

    def controllers(self) -> list[AgentPod]:
        """The controller's pods that run, of accounts that an administrator bound to our role."""
        ours = self._accounts()
        items = self._pages("/api/v1/pods", {"labelSelector": f"{OURS},{COMPONENT}=fleet"})
        of_ours = (item for item in items if not ours or _account(item) in ours)
        return [pod for item in of_ours if (pod := agent_pod(item)) is not None and pod.running]

    def some_sidecar(self) -> AgentPod | None:
        """A sidecar's pod that runs, the first that is found. One that was patched into a DaemonSet of others
        has not our labels, and is not found."""
        ours = self._accounts()
        items = self._pages("/api/v1/pods", {"labelSelector": f"{OURS},{COMPONENT}=sidecar"})
        of_ours = (item for item in items if not ours or _account(item) in ours)
        found = (agent_pod(item) for item in of_ours)
        return next((pod for pod in found if pod is not None and pod.running), None)

    def _accounts(self) -> set[tuple[str, str]]:
        """Namespace and name of the agents' accounts: whom an administrator bound to the agents' role."""
        bindings = self._pages(
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            {"labelSelector": f"{OURS},{COMPONENT}!=concluder"},
        )
        subjects = (subject for binding in bindings for subject in binding.get("subjects") or ())
        accounts = (s for s in subjects if s.get("kind") == "ServiceAccount")
        return {(s.get("namespace", ""), s.get("name", "")) for s in accounts}

    def ask_agent(self, pod: AgentPod, node: str) -> Any:
        """What the agent of ``node`` says of it, as JSON, through the API server's proxy of pods.

        The token that lets us ask is good for this and for nothing else: an impostor may have it (decision
        0025). Namespace, account and audience are never what somebody else named.
        """
        spec = {"audiences": [audience(node)], "expirationSeconds": SHORTEST}
        token, _ = self._request_token(pod.namespace, ACCOUNT, spec)
        return self._call(
            "GET",
            f"/api/v1/namespaces/{quote(pod.namespace)}/pods/{quote(pod.name)}:{pod.port}/proxy{PATH}",
            query={"node": node},
            headers={HEADER: token},
        )

    def unannotate_pod(self, pod: PodView, key: str) -> None:
        """Take the annotation ``key`` off the very pod (by uid)."""
        patch = {"metadata": {"uid": pod.uid, "annotations": {key: None}}}
        where = f"/api/v1/namespaces/{quote(pod.namespace)}/pods/{quote(pod.name)}"
        found = self._stored("PATCH", where, body=patch, content_type=MERGE_PATCH)
        if key in (found["metadata"].get("annotations") or {}):
            raise Dropped(f"the annotation {key} is still on {pod}, though the API server said yes")

    def create_gate(self, body: dict[str, Any]) -> dict[str, Any]:
        """As an agent does. Raises ``Dropped`` where it was not stored as it was written."""
        return _as_written(body, super().create_gate(body), "spec", "status")

    def replace_gate(self, body: dict[str, Any]) -> dict[str, Any]:
        """As an agent does. Raises ``Dropped`` where it was not stored as it was written."""
        return _as_written(body, super().replace_gate(body), "spec", "status")

    def replace_record(self, body: dict[str, Any]) -> dict[str, Any]:
        """As an agent does. Raises ``Dropped`` where it was not stored as it was written."""
        return _as_written(body, super().replace_record(body), "status")

    def conditions_of(self, node: str) -> tuple[str, list[dict[str, Any]]]:
        """The Node's version, and its conditions as they are written."""
        obj = self._stored("GET", f"/api/v1/nodes/{quote(node)}")
        return obj["metadata"]["resourceVersion"], _conditions(obj, f"GET Node {node}")

    def replace_conditions(self, node: str, version: str, conditions: list[dict[str, Any]]) -> None:
        """Write all conditions of the Node. ``Conflict`` where it is of another version by now; ``Dropped``
        where they are not stored so."""
        patch = {"metadata": {"resourceVersion": version}, "status": {"conditions": conditions}}
        path = f"/api/v1/nodes/{quote(node)}/status"
        found = self._stored("PATCH", path, body=patch, content_type=MERGE_PATCH)
        check_conditions(node, conditions, _conditions(found, f"PATCH {path}"))

    def caller(self) -> str:
        """The caller's user name at the API server; USER@HOST of this machine before Kubernetes 1.28."""
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        try:
            found = self._call("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body=review)
            status = shapes.part_of(found, "status", "the question who asks")
            name = shapes.part_of(status, "userInfo", "the question who asks").get("username")
        except ApiError:
            name = None
        if not name or name == "system:anonymous":
            return f"{_on_this_machine()}@{socket.gethostname()}"
        return str(name)


def _on_this_machine() -> str:
    """The user name here. In a pod of ours the user is a number without a name."""
    try:
        return getpass.getuser()
    except (KeyError, ImportError, OSError):  # as Python's version and the system have it
        return "somebody"


def connect(target: Target = USUAL) -> UserApi:
    """The cluster that the caller named, or that a plain kubectl would use. Raises ``SettingsError``."""
    clock = SystemClock()
    transport = KubernetesTransport(clock, target)
    api = UserApi(Named(transport, transport.place, target), clock, transport.namespace)
    api.place, api.usual = transport.place, is_usual(target, transport.place)
    return api


def connect_to_change(target: Target) -> UserApi:
    """``connect``, for a command that changes something: it says first which cluster that is."""
    api = connect(target)
    say(f"Cluster: {api.place}", err=True)
    return api


def _as_written(body: dict[str, Any], answer: dict[str, Any], *parts: str) -> dict[str, Any]:
    for part in parts:
        check_stored(part, body, answer)
    return answer


def _conditions(obj: Mapping[str, Any], what: str) -> list[dict[str, Any]]:
    found = shapes.part_of(obj, "status", what).get("conditions") or []
    if not isinstance(found, list) or not all(isinstance(c, dict) and c.get("type") for c in found):
        raise shapes.strange(what, "its conditions are none")
    return found


def _account(pod: Mapping[str, Any]) -> tuple[str, str]:
    return pod["metadata"].get("namespace", ""), (pod.get("spec") or {}).get(
        "serviceAccountName"
    ) or "default"


def agent_pod(obj: Mapping[str, Any]) -> AgentPod | None:
    """The pod, where it has a container that is named as the agent's is."""
    containers = (obj.get("spec") or {}).get("containers") or []
    ours = next((c for c in containers if c.get("name") == CONTAINER), None)
    if ours is None:
        return None
    meta, status = obj["metadata"], obj.get("status") or {}
    running = status.get("phase") == "Running" and not meta.get("deletionTimestamp")
    return AgentPod(meta.get("namespace", ""), meta["name"], _port(ours), running)


def _port(container: Mapping[str, Any]) -> int:
    """The port that the agent serves on: METRICS_ADDRESS first, then the declared container port."""
    address = next((e.get("value") for e in container.get("env") or [] if e["name"] == "METRICS_ADDRESS"), "")
    port = str(address or "").rpartition(":")[2]
    if port.isdecimal() and int(port):
        return int(port)
    return next((int(p["containerPort"]) for p in container.get("ports") or []), PORT)
