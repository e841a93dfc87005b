"""PodDisruptionBudget arithmetic and the decision on an eviction, as kube-apiserver and its disruption
controller do it.

Pure. Sources: `pkg/controller/disruption/disruption.go` and `pkg/registry/core/pod/storage/eviction.go`, and
what a v1.36.3 control plane answered: a percentage or `maxUnavailable` counts what the pods' controllers
want, so over pods without a controller it allows nothing, and over pods whose controller is missing the
budget fails to sync.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from recovery_testkit.kubeselect import object_selector
from recovery_testkit.kubestatus import ApiError, Cause, Json

# How long an eviction counts as a disruption when the pod does not go (DeletionTimeout of the controller).
UNCONFIRMED = timedelta(minutes=2)
REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."

FindOwner = Callable[[str, str, str], Json | None]


def ready(pod: Mapping[str, Any]) -> bool:
    """True when the pod's Ready condition is True. (The phase plays no part, as in the real controller.)"""
    listed = (pod.get("status") or {}).get("conditions") or []
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in listed)


def covers(pdb: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """True when the budget is about this pod: same namespace, selector matches, and the pod has labels at
    all."""
    labels = pod["metadata"].get("labels") or {}
    same = pdb["metadata"]["namespace"] == pod["metadata"]["namespace"]
    return same and object_selector((pdb.get("spec") or {}).get("selector"))(labels)


def budget_status(pdb: Json, pods: Iterable[Json], find: FindOwner, now: datetime) -> Json:
    """The `.status` that the disruption controller would write now. `find(kind, namespace, name)` gets an
    owner."""
    matching = [pod for pod in pods if covers(pdb, pod)]
    old = pdb.get("status") or {}
    disrupted = _unconfirmed(old.get("disruptedPods") or {}, matching, now)
    try:
        expected, desired = _expected_and_desired(pdb["spec"], matching, find)
    except LookupError as missing:
        return {
            **old,
            "disruptionsAllowed": 0,
            "conditions": _condition(pdb, "SyncFailed", now, str(missing)),
        }
    healthy = sum(
        1
        for pod in matching
        if ready(pod)
        and not pod["metadata"].get("deletionTimestamp")
        and pod["metadata"]["name"] not in disrupted
    )
    allowed = max(0, healthy - desired) if expected > 0 else 0
    status: Json = {
        "observedGeneration": pdb["metadata"].get("generation", 1),
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
        "conditions": _condition(pdb, "SufficientPods" if allowed else "InsufficientPods", now),
    }
    return {**status, "disruptedPods": disrupted} if disrupted else status


def ignores_budgets(pod: Mapping[str, Any]) -> bool:
    """True for pods whose going disrupts nothing: finished, pending or already going."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or bool(pod["metadata"].get("deletionTimestamp"))


def weigh(pod: Json, budgets: list[Json]) -> Json | None:
    """The budget that this eviction is charged to, or None when it is free. Raises `ApiError` 429 or 500
    (more than one budget). The budgets' statuses must be current."""
    if ignores_budgets(pod) or not budgets:
        return None
    if len(budgets) > 1:
        many = (
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
        raise ApiError(500, "", many)
    pdb = budgets[0]
    status = pdb.get("status") or {}
    healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    if not ready(pod):
        if (pdb.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
            return None
        if healthy >= desired > 0:
            return None
    _check(pdb["metadata"], status, healthy, desired)
    return pdb


def _check(meta: Json, status: Json, healthy: int, desired: int) -> None:
    name = meta["name"]
    if status.get("observedGeneration", 0) < meta.get("generation", 1):
        _refuse(f"The disruption budget {name} is still being processed by the server.", retry_after=10)
    if status.get("disruptionsAllowed", 0) > 0:
        return
    if desired > healthy or desired > 0:
        _refuse(f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently")
    _refuse(f"The disruption budget {name} does not allow evicting pods currently")


def _refuse(why: str, retry_after: int = 0) -> None:
    cause = Cause("DisruptionBudget", why)
    raise ApiError(429, "TooManyRequests", REFUSED, causes=[cause], retry_after=retry_after)


def _expected_and_desired(spec: Json, matching: list[Json], find: FindOwner) -> tuple[int, int]:
    if "maxUnavailable" in spec:
        expected = _wanted_by_controllers(matching, find)
        return expected, max(0, expected - _scaled(spec["maxUnavailable"], expected))
    least = spec.get("minAvailable", 1)
    if isinstance(least, int):
        return len(matching), least
    expected = _wanted_by_controllers(matching, find)
    return expected, _scaled(least, expected)


def _scaled(value: int | str, total: int) -> int:
    """A count or a percentage of `total`; percentages round up, as for both kinds of budget."""
    if isinstance(value, int):
        return value
    return math.ceil(int(value.rstrip("%")) * total / 100)


def _wanted_by_controllers(matching: list[Json], find: FindOwner) -> int:
    scales: dict[tuple[str, str, str], int] = {}
    for pod in matching:
        owner = _controller(pod)
        if owner is None:
            continue
        kind, name, obj = _scale_owner(owner, pod["metadata"]["namespace"], find)
        if obj is None:
            raise LookupError(f'found no controllers for pod "{pod["metadata"]["name"]}"')
        scales[kind, pod["metadata"]["namespace"], name] = (obj.get("spec") or {}).get("replicas", 1)
    return sum(scales.values())


def _scale_owner(owner: Json, namespace: str, find: FindOwner) -> tuple[str, str, Json | None]:
    """The object whose `replicas` counts: of a ReplicaSet of a Deployment, the Deployment."""
    if owner["kind"] not in ("ReplicaSet", "Deployment", "StatefulSet"):
        return owner["kind"], owner["name"], None
    found = find(owner["kind"], namespace, owner["name"])
    if found is None or found["metadata"]["uid"] != owner.get("uid", found["metadata"]["uid"]):
        return owner["kind"], owner["name"], None
    above = _controller(found)
    if above and above["kind"] == "Deployment":
        return "Deployment", above["name"], find("Deployment", namespace, above["name"])
    return owner["kind"], owner["name"], found


def _controller(obj: Json) -> Json | None:
    owners: list[Json] = obj["metadata"].get("ownerReferences") or []
    return next((each for each in owners if each.get("controller")), None)


def _unconfirmed(disrupted: Mapping[str, str], matching: list[Json], now: datetime) -> dict[str, str]:
    staying = {pod["metadata"]["name"] for pod in matching if not pod["metadata"].get("deletionTimestamp")}
    return {
        name: since
        for name, since in disrupted.items()
        if name in staying and datetime.fromisoformat(since) + UNCONFIRMED > now
    }


def _condition(pdb: Json, reason: str, now: datetime, message: str = "") -> list[Json]:
    held = ((pdb.get("status") or {}).get("conditions") or [{}])[0]
    status = "True" if reason == "SufficientPods" else "False"
    since = held.get("lastTransitionTime") if held.get("status") == status else None
    return [
        {
            "type": "DisruptionAllowed",
            "status": status,
            "observedGeneration": pdb["metadata"].get("generation", 1),
            "lastTransitionTime": since or now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "reason": reason,
            "message": message,
        }
    ]
