"""Which marks on a Node are ours, and which patch puts them on or takes them off? PURE.

Marks of others are never touched (law 5). A merge patch replaces the whole list of taints, so it repeats the
taints of others as they are, and carries the resourceVersion of the Node that was read.

A taint that a remedy names may also be another system's. So the patch that sets it writes it into an
annotation too: ours is what is named there and is on the Node just so. A crash cannot come between the two.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from recovery.model import (
    CORDONED_BY,
    OUT_OF_SERVICE,
    OUT_OF_SERVICE_BY,
    OWNER_OF_MARKS,
    TAINT,
    TAINTED,
    Marks,
    NodeView,
    Taint,
)

Patch = dict[str, Any]
CORDON = "the cordon"
"""What a patch of the Node that sets our own marks is called among the refusals."""
OUR_MARKS = "our marks"
"""And one that takes them off."""


def marked(node: NodeView) -> bool:
    """Whether ``node`` has a mark of ours: taint, cordon or out-of-service taint, or a note of one."""
    return node.has_taint(TAINT) or _noted(node) or out_of_service(node) or TAINTED in node.annotations


def of_no_record(node: str) -> str:
    """The sentence of a Node that has marks of ours, and of which there is no record."""
    return (
        f"{node} has marks of ours, and no record says why. They keep pods off until a person has looked at "
        f"the node: node-recovery release {node} takes them off"
    )


def _noted(node: NodeView) -> bool:
    return node.annotations.get(CORDONED_BY) == OWNER_OF_MARKS


def cordoned_by_us(node: NodeView) -> bool:
    """Whether a cordon of ``node`` is ours: with our taint and annotation it is, whatever its record says."""
    return node.has_taint(TAINT) and _noted(node)


def found_on(node: NodeView) -> Marks:
    """The marks of ours that ``node`` has, whatever its record says."""
    cordoned = node.unschedulable and cordoned_by_us(node)
    return Marks(cordoned, node.has_taint(TAINT), out_of_service(node), node.our_taints)


def undone(node: NodeView, marks: Marks) -> str | None:
    """A sentence: which of our ``marks`` somebody took off ``node``, and what to do about it; or None."""
    if marks.cordoned and not node.unschedulable:
        return uncordoned(node)
    gone = list(map(str, not_on(node, marks.taints)))
    if marks.tainted and not node.has_taint(TAINT):
        gone.insert(0, TAINT)
    if gone:
        what = f"the taint {gone[0]}" if len(gone) == 1 else f"the taints {' and '.join(gone)}"
        back = "it" if len(gone) == 1 else "them"
        return f"somebody took {what} off {node.name}; exclude or release it, or put {back} back to go on"
    if marks.cordoned and not _noted(node):
        back = f"annotate it with {CORDONED_BY}={OWNER_OF_MARKS} to go on"
        return f"somebody made the cordon of {node.name} their own; exclude or release it, or {back}"
    return None


def uncordoned(node: NodeView) -> str:
    """That somebody took a cordon off ``node``, and what to do about it."""
    return f"somebody uncordoned {node.name}; exclude or release it, or cordon it again to go on"


def anothers(node: NodeView, taint: Taint) -> bool:
    """Whether a taint of another has the place of ``taint``: a Node has one of each key and effect."""
    return taint not in node.our_taints and node.has_taint(taint.key, taint.effect)


def not_on(node: NodeView, taints: Iterable[Taint]) -> list[Taint]:
    """Those whose place on ``node``, by key and effect, is free."""
    return [t for t in taints if not node.has_taint(t.key, t.effect)]


def mark_patch(node: NodeView, marks: Marks) -> Patch | None:
    """The patch that puts ``marks`` on: the taints, and the cordon where wanted. None: nothing to do."""
    patch = _under_version(node)
    new = not_on(node, marks.taints)
    added = [*([] if node.has_taint(TAINT) else [Taint(TAINT, "", "NoSchedule")]), *new]
    if added:
        patch["spec"]["taints"] = [*_taints(node), *map(_written, added)]
    if new:
        patch["metadata"]["annotations"] = {TAINTED: _note((*node.our_taints, *new))}
    if marks.cordoned and not node.unschedulable:
        patch["spec"]["unschedulable"] = True
        patch["metadata"].setdefault("annotations", {})[CORDONED_BY] = OWNER_OF_MARKS
    return patch if patch["spec"] else None


def unmark_patch(node: NodeView) -> Patch | None:
    """The patch that takes off our taints, and a cordon with our annotation. None: nothing to do."""
    patch, notes = _under_version(node), dict[str, str | None]()
    keys, named = set[str](), node.our_taints
    if node.has_taint(TAINT):
        keys.add(TAINT)
    if _noted(node):
        notes[CORDONED_BY] = None
        patch["spec"]["unschedulable"] = None
    if out_of_service(node):
        keys.add(OUT_OF_SERVICE)
        notes[OUT_OF_SERVICE_BY] = None
    if TAINTED in node.annotations:
        notes[TAINTED] = None
    if keys or named:
        patch["spec"]["taints"] = _taints(node, but=named, keys=keys) or None
    if notes:
        patch["metadata"]["annotations"] = notes
    return patch if patch["spec"] or notes else None


def disown_patch(node: NodeView, taints: Iterable[Taint]) -> Patch | None:
    """The patch after which ``taints`` are not ours any more. They stay as they are. None: nothing to do."""
    if TAINTED not in node.annotations:
        return None
    patch, theirs = _under_version(node), tuple(taints)
    note = _note(t for t in node.our_taints if t not in theirs)
    patch["metadata"]["annotations"] = {TAINTED: note or None}
    return patch


def out_of_service(node: NodeView) -> bool:
    """Whether ``node`` has the out-of-service taint, and it is ours by its annotation."""
    return node.annotations.get(OUT_OF_SERVICE_BY) == OWNER_OF_MARKS


def out_of_service_patch(node: NodeView, on: bool) -> Patch | None:
    """The patch that sets the out-of-service taint, or removes ours. None: nothing to do, or not ours."""
    patch = _under_version(node)
    if on and not node.has_taint(OUT_OF_SERVICE):
        taint = Taint(OUT_OF_SERVICE, "nodeshutdown", "NoExecute")
        patch["spec"]["taints"] = [*_taints(node), _written(taint)]
        patch["metadata"]["annotations"] = {OUT_OF_SERVICE_BY: OWNER_OF_MARKS}
    if not on and out_of_service(node):
        patch["spec"]["taints"] = _taints(node, keys={OUT_OF_SERVICE}) or None
        patch["metadata"]["annotations"] = {OUT_OF_SERVICE_BY: None}
    return patch if patch["spec"] else None


def _under_version(node: NodeView) -> Patch:
    return {"metadata": {"resourceVersion": node.resource_version}, "spec": {}}


def _taints(
    node: NodeView, *, but: Collection[Taint] = (), keys: Collection[str] = ()
) -> list[dict[str, str]]:
    """Those of the Node as they are, but for some."""
    left = [t for t in (Taint(*each) for each in node.taints) if t not in but and t.key not in keys]
    return [_written(t, node.tainted_at.get((t.key, t.effect), "")) for t in left]


def _written(taint: Taint, added: str = "") -> dict[str, str]:
    """A taint as the API has it."""
    rest = {"value": taint.value, "timeAdded": added}
    return {"key": taint.key, "effect": taint.effect} | {k: v for k, v in rest.items() if v}


def _note(taints: Iterable[Taint]) -> str:
    return ",".join(sorted(set(map(str, taints))))
