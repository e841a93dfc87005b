"""``node-recovery policy check --cluster``: what in the policy limits nothing in the caller's cluster?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from itertools import islice
from typing import Any

from recovery.config.policy_file import PolicyFile
from recovery.config.policy_reach import Grace, Reach
from recovery.console.api import UserApi
from recovery.kube.paging import folded

MOST = 200_000
"""Nodes, and pods, that are looked at."""
DEFAULT_GRACE = 30
"""Seconds, where a pod says nothing: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/"""
OVER = ("Succeeded", "Failed")


def findings(api: UserApi, file: PolicyFile) -> list[str]:
    """The findings by all Nodes and pods. Raises ``ApiError``, also where the caller may not list them."""
    return folded(lambda: list(_looked_at(api, file).findings()))


def _looked_at(api: UserApi, file: PolicyFile) -> Reach:
    reach, labels = Reach(file), dict[str, Mapping[str, str]]()
    for node in islice(api.list_nodes(), MOST):
        labels[node.name] = node.labels
        reach.node(node.labels)
    for name, pod in islice(_pods(api), MOST):
        if name in labels:
            reach.pod(labels[name], pod)
    return reach


def _pods(api: UserApi) -> Iterator[tuple[str, Grace]]:
    """The name of its Node, and the pod: those that a drain would evict."""
    for item in api.all_pods():
        spec = item.get("spec") or {}
        if spec.get("nodeName") and evicted(item):
            yield str(spec["nodeName"]), grace_of(item)


def evicted(item: Mapping[str, Any]) -> bool:
    """Whether a drain has to wait for this pod: it runs, and is no DaemonSet's and no static pod."""
    meta = item.get("metadata") or {}
    kinds = {owner.get("kind") for owner in meta.get("ownerReferences") or ()}
    over = (item.get("status") or {}).get("phase") in OVER
    return not over and not kinds & {"DaemonSet", "Node"}


def grace_of(item: Mapping[str, Any]) -> Grace:
    """The pod as the policy's deadlines see it."""
    meta, spec = item.get("metadata") or {}, item.get("spec") or {}
    seconds = spec.get("terminationGracePeriodSeconds")
    takes = timedelta(seconds=DEFAULT_GRACE if seconds is None else seconds)
    return Grace(str(meta.get("name")), str(meta.get("namespace")), meta.get("labels") or {}, takes)
