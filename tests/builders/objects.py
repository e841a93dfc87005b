"""Objects of the Kubernetes API as they are on the wire: for fakes, stories, and whoever reads them raw."""

from __future__ import annotations

import copy
from typing import Any

Json = dict[str, Any]
OUR_GROUP = "noderecovery.dev/v1alpha1"
CLOSED: Json = {
    "unschedulable": True,
    "taints": [{"key": "noderecovery.dev/unhealthy", "effect": "NoSchedule"}],
}


def condition(kind: str = "Ready", status: str = "True", reason: str = "KubeletReady", **more: str) -> Json:
    return {"type": kind, "status": status, "reason": reason, **more}


def node_object(
    name: str = "n1",
    *,
    closed: bool = False,
    spec: Json | None = None,
    conditions: list[Json] | None = None,
    info: Json | None = None,
    **metadata: Any,
) -> Json:
    """A Ready node. ``closed``: cordoned and tainted by us. ``info``: what differs of its nodeInfo."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, **metadata},
        "spec": {**(copy.deepcopy(CLOSED) if closed else {}), **(spec or {})},
        "status": {
            "conditions": [condition()] if conditions is None else conditions,
            "nodeInfo": {"kubeletVersion": "v1.36.0", "bootID": "boot-1", **(info or {})},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        },
    }


def pod_object(
    name: str,
    *,
    on: str = "n1",
    phase: str = "Running",
    ready: bool = True,
    containers: list[Json] | None = None,
    spec: Json | None = None,
    **metadata: Any,
) -> Json:
    """A pod of the app ``a`` that runs on ``on``. ``spec``: what is said there besides."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "a"}, **metadata},
        "spec": {"nodeName": on, "containers": containers or [{"name": "c", "image": "i"}], **(spec or {})},
        "status": {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def budget_object(name: str = "budget", app: str = "a", **spec: Any) -> Json:
    """A PodDisruptionBudget for the pods of one app: ``minAvailable=1``, ``maxUnavailable=0``."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": app}}, **spec},
    }


def event_object(about: str, reason: str, message: str, count: int = 1) -> Json:
    """An Event about a node."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{about}.1", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": about},
        "reason": reason,
        "message": message,
        "count": count,
    }


def record_object(name: str, phase: str, *history: tuple[str, str], **status: Any) -> Json:
    """A NodeRecovery whose history is these events and sentences."""
    lines = [{"event": event, "sentence": sentence} for event, sentence in history]
    return {
        "apiVersion": OUR_GROUP,
        "kind": "NodeRecovery",
        "metadata": {"name": name},
        "status": {"phase": phase, "sentence": phase, "history": lines, **status},
    }


def gate_object(*holders: str, spec: Json | None = None, **status: Any) -> Json:
    """The RecoveryGate. ``holders``: the nodes whose recoveries hold a slot."""
    taken = {"slots": [{"node": node} for node in holders]} if holders else {}
    made: Json = {"apiVersion": OUR_GROUP, "kind": "RecoveryGate", "metadata": {"name": "fleet"}}
    if spec is not None:
        made["spec"] = spec
    if taken or status:
        made["status"] = {**taken, **status}
    return made
