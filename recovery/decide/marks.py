"""Which marks on a Node are ours, and which patch puts them on or takes them off? PURE.

Marks of others are never touched (law 5). A merge patch replaces the whole list of taints, so it repeats the
taints of others as they are, and carries the resourceVersion of the Node that was read.
"""

from __future__ import annotations

from typing import Any

from recovery.model import (
    CORDONED_BY,
    OUT_OF_SERVICE,
    OUT_OF_SERVICE_BY,
    OWNER_OF_MARKS,
    TAINT,
    Marks,
    NodeView,
)

Patch = dict[str, Any]


def marked(node: NodeView) -> bool:
    """Whether ``node`` has a mark of ours: taint, cordon or out-of-service taint."""
    cordoned = node.annotations.get(CORDONED_BY) == OWNER_OF_MARKS
    return node.has_taint(TAINT) or cordoned or out_of_service(node)


def undone(node: NodeView, marks: Marks) -> str | None:
    """A sentence: which of our ``marks`` somebody took off ``node``, and what to do about it; or None."""
    if marks.cordoned and not node.unschedulable:
        return f"somebody uncordoned {node.name}; exclude or release it, or cordon it again to go on"
    if marks.tainted and not node.has_taint(TAINT):
        return (
            f"somebody took the taint {TAINT} off {node.name}; exclude or release it, or put it back to go on"
        )
    return None


def mark_patch(node: NodeView, marks: Marks) -> Patch | None:
    """The patch that puts ``marks`` on: the taint, and the cordon where wanted. None: nothing to do."""
    patch = _under_version(node)
    if not node.has_taint(TAINT):
        patch["spec"]["taints"] = [*_taints(node), {"key": TAINT, "effect": "NoSchedule"}]
    if marks.cordoned and not node.unschedulable:
        patch["spec"]["unschedulable"] = True
        patch["metadata"]["annotations"] = {CORDONED_BY: OWNER_OF_MARKS}
    return patch if patch["spec"] else None


def unmark_patch(node: NodeView) -> Patch | None:
    """The patch that takes off our taints, and a cordon with our annotation. None: nothing to do."""
    patch = _under_version(node)
    if node.has_taint(TAINT):
        patch["spec"]["taints"] = [t for t in _taints(node) if t["key"] != TAINT] or None
    if node.annotations.get(CORDONED_BY) == OWNER_OF_MARKS:
        patch["metadata"]["annotations"] = {CORDONED_BY: None}
        patch["spec"]["unschedulable"] = None
    if out_of_service(node):
        keys = {TAINT, OUT_OF_SERVICE}
        patch["spec"]["taints"] = [t for t in _taints(node) if t["key"] not in keys] or None
        patch["metadata"].setdefault("annotations", {})[OUT_OF_SERVICE_BY] = None
    return patch if patch["spec"] else None


def out_of_service(node: NodeView) -> bool:
    """Whether ``node`` has the out-of-service taint, and it is ours by its annotation."""
    return node.annotations.get(OUT_OF_SERVICE_BY) == OWNER_OF_MARKS


def out_of_service_patch(node: NodeView, on: bool) -> Patch | None:
    """The patch that sets the out-of-service taint, or removes ours. None: nothing to do, or not ours."""
    patch = _under_version(node)
    if on and not node.has_taint(OUT_OF_SERVICE):
        taint = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}
        patch["spec"]["taints"] = [*_taints(node), taint]
        patch["metadata"]["annotations"] = {OUT_OF_SERVICE_BY: OWNER_OF_MARKS}
    if not on and out_of_service(node):
        patch["spec"]["taints"] = [t for t in _taints(node) if t["key"] != OUT_OF_SERVICE] or None
        patch["metadata"]["annotations"] = {OUT_OF_SERVICE_BY: None}
    return patch if patch["spec"] else None


def _under_version(node: NodeView) -> Patch:
    return {"metadata": {"resourceVersion": node.resource_version}, "spec": {}}


def _taints(node: NodeView) -> list[dict[str, str]]:
    taints = []
    for key, value, effect in node.taints:
        rest = {"value": value, "timeAdded": node.tainted_at.get((key, effect), "")}
        taints.append({"key": key, "effect": effect} | {k: v for k, v in rest.items() if v})
    return taints
