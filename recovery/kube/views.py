"""Kubernetes objects as JSON, made into the views of them that the rest of the program reads."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from recovery.kube import alike
from recovery.model import FailedPod, JobView, NodeEvent, NodeView, PodView
from recovery.units import parse_moment

Json = Mapping[str, Any]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
GANGS = (
    "kueue.x-k8s.io/workload",  # annotation of a Job's pods while its Workload is admitted
    "kueue.x-k8s.io/pod-group-name",  # label of a group of plain pods
    "jobset.sigs.k8s.io/jobset-uid",  # label and annotation; the name alone may be used again
    "jobset.sigs.k8s.io/jobset-name",
)
"""Where Kueue (controller/constants) and JobSet (jobset/v1alpha2) write which workload a pod is of."""


NONE: Mapping[tuple[str, str], str] = {}
SYSTEM = {"kernel": "kernelVersion", "image": "osImage", "runtime": "containerRuntimeVersion"}
"""What many machines may share, and what of a Node's nodeInfo says it."""


def node_view(obj: Json, *, whole: bool = False) -> NodeView:
    """A Node; ``whole``: with its conditions as they were written."""
    meta, spec, status = _parts(obj)
    info = status.get("nodeInfo") or {}
    return NodeView(
        name=meta.get("name", ""),
        uid=meta.get("uid", ""),
        resource_version=meta.get("resourceVersion", ""),
        provider_id=spec.get("providerID") or "",
        boot_id=info.get("bootID") or "",
        system_uuid=info.get("systemUUID") or "",
        unschedulable=bool(spec.get("unschedulable")),
        labels=alike.Texts(meta.get("labels") or {}),
        annotations=alike.Texts(meta.get("annotations") or {}),
        taints=_taints(spec),
        tainted_at=_tainted_at(spec),
        conditions=_conditions(status),
        stated=alike.Conditions(map(_stated, status.get("conditions") or [])) if whole else (),
        addresses=tuple(a.get("address", "") for a in status.get("addresses") or []),
        owners=_owners(meta),
        created=_moment(meta.get("creationTimestamp")),
        deleting=bool(meta.get("deletionTimestamp")),
        ready_since=_ready_since(status),
        system=_system(info) if whole else {},
        devices=_devices(status) if whole else {},
    )


def _devices(status: Json) -> Mapping[str, tuple[int, int]]:
    """Of each resource of a device plugin: capacity and allocatable. Their names have a domain, those of
    Kubernetes' own resources have none."""
    given = status.get("allocatable") or {}
    return alike.devices(
        tuple(
            (name, str(there), str(given.get(name, "0")))
            for name, there in (status.get("capacity") or {}).items()
            if "/" in name
        )
    )


def _ready_since(status: Json) -> datetime | None:
    found = (c for c in status.get("conditions") or [] if c.get("type") == "Ready")
    return next((_moment(c.get("lastTransitionTime")) for c in found if c.get("status") == "True"), None)


def _parts(obj: Json) -> tuple[Json, Json, Json]:
    """Metadata, spec and status, each of which may be missing."""
    return obj.get("metadata") or {}, obj.get("spec") or {}, obj.get("status") or {}


def _taints(spec: Json) -> tuple[tuple[str, str, str], ...]:
    """(key, value, effect) of each taint."""
    return tuple(
        (t.get("key", ""), t.get("value") or "", t.get("effect", "")) for t in spec.get("taints") or []
    )


def _tainted_at(spec: Json) -> Mapping[tuple[str, str], str]:
    """(key, effect) of each taint that says when it was added."""
    found = {
        (t.get("key", ""), t.get("effect", "")): t["timeAdded"]
        for t in spec.get("taints") or []
        if t.get("timeAdded")
    }
    return found or NONE


def _conditions(status: Json) -> Mapping[str, tuple[str, str]]:
    """Type -> (status, reason)."""
    return alike.by_type(
        tuple(
            (c["type"], c.get("status", "Unknown"), c.get("reason") or "")
            for c in status.get("conditions") or []
        )
    )


def _stated(c: Json) -> tuple[alike.Said, datetime | None, datetime | None]:
    said = (c["type"], c.get("status", "Unknown"), c.get("reason") or "", c.get("message") or "")
    return said, _moment(c.get("lastHeartbeatTime")), _moment(c.get("lastTransitionTime"))


def _system(info: Json) -> Mapping[str, str]:
    return alike.facts(tuple((name, str(info.get(key) or "")) for name, key in SYSTEM.items()))


def _owners(meta: Json) -> tuple[tuple[str, str, str], ...]:
    """(kind, name, uid) of each owner."""
    return tuple(
        (o.get("kind", ""), o.get("name", ""), o.get("uid", "")) for o in meta.get("ownerReferences") or []
    )


def pod_view(obj: Json) -> PodView:
    """A Pod, as a drain needs it."""
    meta, spec, status = _parts(obj)
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    return PodView(
        namespace=meta.get("namespace", ""),
        name=meta.get("name", ""),
        uid=meta.get("uid", ""),
        phase=status.get("phase") or "",
        owner_kind=_controller_kind(meta),
        mirror="kubernetes.io/config.mirror" in annotations,
        deletion_timestamp=_moment(meta.get("deletionTimestamp")),
        labels=labels,
        annotations=annotations,
        local_storage=any("emptyDir" in volume for volume in spec.get("volumes") or []),
        ip=status.get("podIP") or "",
        gang=next((f"{k}={v}" for k in GANGS if (v := annotations.get(k) or labels.get(k))), ""),
        grace=_grace(spec),
    )


def _grace(spec: Json) -> timedelta:
    """30 s where a pod says nothing: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/"""
    seconds = spec.get("terminationGracePeriodSeconds")
    return timedelta(seconds=30 if seconds is None else seconds)


def _controller_kind(meta: Json) -> str:
    return str(_controller(meta).get("kind") or "")


def _controller(meta: Json) -> Json:
    return next((o for o in meta.get("ownerReferences") or [] if o.get("controller")), {})


def owner_and_node(obj: Json) -> tuple[str, str]:
    """Of a pod: the UID of its controller, and its Node; "" for what it has not."""
    meta, spec, _ = _parts(obj)
    return str(_controller(meta).get("uid") or ""), str(spec.get("nodeName") or "")


def failed_pod(obj: Json) -> FailedPod:
    """A pod whose phase is Failed."""
    meta, _, status = _parts(obj)
    owner, node = owner_and_node(obj)
    containers = status.get("containerStatuses") or []
    ends = [((c.get("state") or {}).get("terminated") or {}).get("finishedAt") for c in containers]
    return FailedPod(
        namespace=meta.get("namespace", ""),
        name=meta.get("name", ""),
        uid=meta.get("uid", ""),
        node=node,
        owner=owner,
        reason=status.get("reason") or "",
        began=_moment(status.get("startTime")),
        ended=max(filter(None, map(_moment, ends)), default=None),
    )


def job_view(obj: Json) -> JobView:
    """A Job. It has ended when its condition Complete or Failed is True, and not before."""
    template = ((obj.get("spec") or {}).get("template") or {}).get("spec") or {}
    ended = {
        c.get("type"): " ".join(filter(None, (c.get("reason"), c.get("message"))))
        for c in (obj.get("status") or {}).get("conditions") or []
        if c.get("status") == "True"
    }
    succeeded = True if "Complete" in ended else False if "Failed" in ended else None
    return JobView(template.get("nodeName") or "", succeeded, ended.get("Failed", ""))


def event_view(obj: Json) -> NodeEvent:
    """An Event of either API. A repeated one has its latest moment in one of four fields."""
    moments = (
        (obj.get("series") or {}).get("lastObservedTime"),
        obj.get("lastTimestamp"),
        obj.get("eventTime"),
        (obj.get("metadata") or {}).get("creationTimestamp"),
    )
    writers = (obj.get("metadata") or {}).get("managedFields") or [{}]
    at = max(filter(None, map(_moment, moments)), default=EPOCH)
    return NodeEvent(obj.get("reason") or "", at, str(writers[-1].get("manager") or ""))


@lru_cache(1024)  # most times on a Node are those of its last heartbeat
def _moment(text: Any) -> datetime | None:
    return parse_moment(text) if text else None
