"""How objects of the API are read: by their documented fields, and by nothing of the agent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

Json = Mapping[str, Any]
NOTHING: Json = {}

GROUP = "noderecovery.dev"
TAINT = f"{GROUP}/unhealthy"
BY = f"{GROUP}/cordoned-by"
EXCLUDE = f"{GROUP}/exclude"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
OUT_OF_SERVICE_BY = f"{GROUP}/out-of-service-by"
TAINTED = f"{GROUP}/taints"
ZONE, TYPE = "topology.kubernetes.io/zone", "node.kubernetes.io/instance-type"

OPEN = frozenset({"suspect", "waiting", "recovering", "proving"})
IN_A_PERSONS_HANDS = frozenset({"handedOver", "lost"})
DESTRUCTIVE = frozenset({"reboot", "reimage", "redeploy", "replace"})

CLAIMED_BY_TAINT = {
    "medik8s.io/remediation": "medik8s",
    "medik8s.io/drain": "medik8s",
    "karpenter.sh/disrupted": "Karpenter",
    "karpenter.sh/rebooting": "Karpenter",
    "ToBeDeletedByClusterAutoscaler": "Cluster Autoscaler",
    "nvsentinel.dgxc.nvidia.com/external-remediation": "NVSentinel",
}
NVSENTINEL = "dgxc.nvidia.com/nvsentinel-state"
NVSENTINEL_AT_WORK = frozenset(
    {
        "quarantined",
        "draining",
        "drain-succeeded",
        "drain-failed",
        "remediating",
        "remediation-succeeded",
        "remediation-failed",
    }
)
CLAIMED_BY_ANNOTATION = {
    "weave.works/kured-reboot-in-progress": "kured",
    "quarantineHealthEvent": "NVSentinel",
}


def metadata(obj: Json) -> Json:
    return obj.get("metadata") or NOTHING


def status(obj: Json | None) -> Json:
    return (obj or NOTHING).get("status") or NOTHING


def spec(obj: Json | None) -> Json:
    return (obj or NOTHING).get("spec") or NOTHING


def labels(obj: Json | None) -> Json:
    return metadata(obj or NOTHING).get("labels") or NOTHING


def notes(obj: Json | None) -> Json:
    return metadata(obj or NOTHING).get("annotations") or NOTHING


def taints(node: Json | None) -> list[Json]:
    return list(spec(node).get("taints") or ())


def cordoned(node: Json | None) -> bool:
    return bool(spec(node).get("unschedulable"))


def marked(node: Json | None) -> bool:
    """Whether a mark of ours is on the node."""
    return bool({BY, TAINTED} & {*notes(node)}) or any(t.get("key") == TAINT for t in taints(node))


def named(node: Json | None) -> set[str]:
    """The taints that a remedy has set, as kubectl writes them, by the annotation."""
    return {*filter(None, str(notes(node).get(TAINTED) or "").split(","))}


def as_text(taint: Json) -> str:
    """A taint as kubectl writes it."""
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key')}{value}:{taint.get('effect')}"


def excluded(node: Json | None) -> bool:
    return labels(node).get(EXCLUDE) == "true"


def claimed(node: Json | None) -> str:
    """The other remediator that works on this node; empty if none does."""
    for taint in taints(node):
        if owner := CLAIMED_BY_TAINT.get(str(taint.get("key"))):
            return owner
    if labels(node).get(NVSENTINEL) in NVSENTINEL_AT_WORK:
        return "NVSentinel"
    found = notes(node)
    return next((owner for key, owner in CLAIMED_BY_ANNOTATION.items() if key in found), "")


def ready(node: Json | None) -> bool:
    return any(
        c.get("type") == "Ready" and c.get("status") == "True" for c in status(node).get("conditions") or ()
    )


def boot_id(node: Json | None) -> str:
    return str((status(node).get("nodeInfo") or NOTHING).get("bootID") or "")


def machine_of(node: Json | None) -> str:
    """The cloud's name of the machine behind a Node: the end of its providerID, else its system UUID."""
    provider = str(spec(node).get("providerID") or "")
    if provider:
        return provider.rpartition("/")[2]
    return str((status(node).get("nodeInfo") or NOTHING).get("systemUUID") or "")


def stays_in_a_drain(pod: Json) -> bool:
    """A pod that a drain leaves alone: of a DaemonSet, mirrored, or finished."""
    owners = metadata(pod).get("ownerReferences") or ()
    if any(o.get("kind") == "DaemonSet" for o in owners) or "kubernetes.io/config.mirror" in notes(pod):
        return True
    return status(pod).get("phase") in ("Succeeded", "Failed")


@lru_cache(maxsize=4096)
def moment(text: str) -> float | None:
    """Seconds since 1970 of an RFC 3339 moment; None for what is none."""
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return found.timestamp() if found.tzinfo else None


UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


@lru_cache(maxsize=1024)
def duration(text: str | float | int | None, default: float = 0.0) -> float:
    """Seconds of ``10m``, ``1h30m``, ``600s`` or a plain number."""
    if text is None or text == "":
        return default
    if isinstance(text, int | float):
        return float(text)
    parts = PART.findall(text)
    if parts and "".join(n + u for n, u in parts) == text:
        return sum(float(n) * UNITS[u] for n, u in parts)
    try:
        return float(text)
    except ValueError:
        return default
