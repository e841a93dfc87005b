"""Kubernetes objects as JSON, made into the views of them that the rest of the program reads."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from recovery.kube.node_rows import row_of, view_of
from recovery.model import TAINT, UNSCHEDULABLE, FailedPod, JobView, NodeEvent, NodeView, PodView
from recovery.units import parse_moment

Json = Mapping[str, Any]
EPOCH, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
A_YEAR = 365 * 86400
"""Seconds. The API server takes any grace period of a pod that fits into 64 bits."""
GANGS = (
    "kueue.x-k8s.io/workload",  # annotation of a Job's pods while its Workload is admitted
    "kueue.x-k8s.io/pod-group-name",  # label of a group of plain pods
    "jobset.sigs.k8s.io/jobset-uid",  # label and annotation; the name alone may be used again
    "jobset.sigs.k8s.io/jobset-name",
)
"""Where Kueue (controller/constants) and JobSet (jobset/v1alpha2) write which workload a pod is of."""


def node_view(obj: Json, *, whole: bool = False) -> NodeView:
    """A Node; ``whole``: with its conditions as they were written."""
    return view_of(row_of(obj), whole=whole)


def _parts(obj: Json) -> tuple[Json, Json, Json]:
    """Metadata, spec and status, each of which may be missing."""
    return obj.get("metadata") or {}, obj.get("spec") or {}, obj.get("status") or {}


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
        deletion_timestamp=_deletion(meta),
        labels=labels,
        annotations=annotations,
        local_storage=any("emptyDir" in volume for volume in spec.get("volumes") or []),
        ip=status.get("podIP") or "",
        gang=next((f"{k}={v}" for k in GANGS if (v := annotations.get(k) or labels.get(k))), ""),
        grace=_grace(spec),
        created=_moment(meta.get("creationTimestamp")),
        tolerates=all(_tolerates(spec, key) for key in (TAINT, UNSCHEDULABLE)),
    )


def _grace(spec: Json) -> timedelta:
    """30 s where a pod says nothing, and at most a year: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/"""
    seconds = spec.get("terminationGracePeriodSeconds")
    return timedelta(seconds=30) if seconds is None else timedelta(seconds=min(seconds, A_YEAR))


def _tolerates(spec: Json, key: str) -> bool:
    """Whether a pod tolerates a taint ``key`` without a value and with the effect NoSchedule."""
    return any(
        t.get("effect") in (None, "", "NoSchedule")
        and (t.get("key") == key or (not t.get("key") and t.get("operator") == "Exists"))
        and (t.get("operator") == "Exists" or not t.get("value"))
        for t in spec.get("tolerations") or []
    )


def _deletion(meta: Json) -> datetime | None:
    """When a pod that is being deleted has to be gone. A time that cannot be known is in no near future."""
    text = meta.get("deletionTimestamp")
    return (_moment(text) or LATEST) if text else None


def _controller_kind(meta: Json) -> str:
    return str(_controller(meta).get("kind") or "")


def _controller(meta: Json) -> Json:
    return next((o for o in meta.get("ownerReferences") or [] if o.get("controller")), {})


def owner_and_node(obj: Json) -> tuple[str, str]:
    """Of a pod: the UID of its controller, and its Node; "" for what it has not."""
    meta, spec, _ = _parts(obj)
    return str(_controller(meta).get("uid") or ""), str(spec.get("nodeName") or "")


def running_since(obj: Json) -> datetime | None:
    """Since when each container of a pod runs, by its kubelet's clock, and no longer than the pod is there;
    None where one does not run that is not done. One that crashes again and again leaves its pod's phase at
    Running."""
    meta, _, status = _parts(obj)
    states = [c.get("state") or {} for c in status.get("containerStatuses") or []]
    at_work = [state for state in states if (state.get("terminated") or {}).get("exitCode") != 0]
    began = [_moment((state.get("running") or {}).get("startedAt")) for state in at_work]
    if not began or None in began:
        return None
    return max(filter(None, (*began, _moment(meta.get("creationTimestamp")))))


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
        deleted=bool(meta.get("deletionTimestamp")),
    )


def not_admitted(obj: Json) -> str:
    """Why the kubelet did not admit a pod, which never ran then; "" for any other. It is given no device that
    is not free, or not registered yet, and nobody asks the scheduler for a pod that names its node."""
    status = obj.get("status") or {}
    began = status.get("containerStatuses") or status.get("initContainerStatuses")
    if status.get("phase") != "Failed" or began:
        return ""
    return ": ".join(filter(None, (status.get("reason"), status.get("message")))) or "it gives no reason"


def job_view(obj: Json) -> JobView:
    """A Job. It has ended when its condition Complete or Failed is True, and not before."""
    template = ((obj.get("spec") or {}).get("template") or {}).get("spec") or {}
    ended = {
        c.get("type"): " ".join(filter(None, (c.get("reason"), c.get("message"))))
        for c in (obj.get("status") or {}).get("conditions") or []
        if c.get("status") == "True"
    }
    succeeded = True if "Complete" in ended else False if "Failed" in ended else None
    made = _moment((obj.get("metadata") or {}).get("creationTimestamp"))
    unrun = _unrun(obj.get("status") or {})
    return JobView(template.get("nodeName") or "", succeeded, ended.get("Failed", ""), made, unrun)


def _unrun(status: Json) -> str:
    """Why no pod of a Job can have found anything; "" where one runs or has ended, or that is not known."""
    if status.get("failed") or status.get("succeeded"):
        return ""
    if not status.get("active"):
        return "no pod was made of it"
    return "its pod does not run" if status.get("ready") == 0 else ""


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


def reboot_view(obj: Json) -> tuple[str, str, datetime] | None:
    """Of a kubelet's Event that its machine was rebooted: the Node, the boot ID, and when that was said last.

    ``Node x has been rebooted, boot id: y`` (Kubernetes, pkg/kubelet/nodestatus/setters.go).
    """
    node, message = (obj.get("involvedObject") or {}).get("name"), obj.get("message")
    _, found, boot_id = message.partition("boot id: ") if isinstance(message, str) else ("", "", "")
    if not (isinstance(node, str) and node and found and boot_id.strip()):
        return None
    return node, boot_id.strip(), event_view(obj).at


@lru_cache(1024)  # most times on a Node are those of its last heartbeat
def _moment(text: Any) -> datetime | None:
    """None for a time that is none, or is in the far future. The API server takes years that no ``datetime``
    holds from whoever may write the object."""
    try:
        at = parse_moment(text) if text else None
    except (ValueError, TypeError):
        return None
    return at if at is None or at < LATEST else None
