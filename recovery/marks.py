"""Our marks on a Node, as patches: put on, and taken off again, never another's (law 5). PURE.

A merge patch replaces the whole list of taints, so others' entries come out as they were, and every patch
carries the resourceVersion that was looked at.
"""

from __future__ import annotations

from typing import Any

from recovery.model import CORDONED_BY, OWNER_OF_MARKS, TAINT, Marks, NodeView

Patch = dict[str, Any]


def marked(node: NodeView) -> bool:
    """Whether ``node`` bears a mark of ours."""
    return node.has_taint(TAINT) or node.annotations.get(CORDONED_BY) == OWNER_OF_MARKS


def mark_patch(node: NodeView, marks: Marks) -> Patch | None:
    """The patch that puts ``marks`` on: the taint, and the cordon if none is there. None: nothing to do."""
    patch = _under_version(node)
    if not node.has_taint(TAINT):
        patch["spec"]["taints"] = [*_taints(node), {"key": TAINT, "effect": "NoSchedule"}]
    if marks.cordoned and not node.unschedulable:
        patch["spec"]["unschedulable"] = True
        patch["metadata"]["annotations"] = {CORDONED_BY: OWNER_OF_MARKS}
    return patch if patch["spec"] else None


def unmark_patch(node: NodeView) -> Patch | None:
    """The patch that takes off our taint, and the cordon that bears our annotation. None: nothing to do."""
    patch = _under_version(node)
    if node.has_taint(TAINT):
        patch["spec"]["taints"] = [t for t in _taints(node) if t["key"] != TAINT] or None
    if node.annotations.get(CORDONED_BY) == OWNER_OF_MARKS:
        patch["metadata"]["annotations"] = {CORDONED_BY: None}
        patch["spec"]["unschedulable"] = None
    return patch if patch["spec"] else None


def _under_version(node: NodeView) -> Patch:
    return {"metadata": {"resourceVersion": node.resource_version}, "spec": {}}


def _taints(node: NodeView) -> list[dict[str, str]]:
    taints = []
    for key, value, effect in node.taints:
        rest = {"value": value, "timeAdded": node.tainted_at.get((key, effect), "")}
        taints.append({"key": key, "effect": effect} | {k: v for k, v in rest.items() if v})
    return taints
