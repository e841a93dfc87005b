"""``node-recovery policy check --cluster``: what in the policy limits nothing in the caller's cluster?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from recovery.config.policy_file import PolicyFile
from recovery.config.policy_reach import Reach
from recovery.console.api import UserApi
from recovery.kube.paging import folded
from recovery.kube.views import pod_view
from recovery.model import PodView

MOST = 200_000
"""Nodes, and pods, that are looked at."""


def findings(api: UserApi, file: PolicyFile, mode: str = "sidecar") -> list[str]:
    """The findings by all Nodes and pods. Raises ``ApiError``, also where the caller may not list them."""
    return folded(lambda: list(_looked_at(api, file, mode).findings()))


def _looked_at(api: UserApi, file: PolicyFile, mode: str) -> Reach:
    reach, labels = Reach(file, mode=mode), dict[str, Mapping[str, str]]()
    for node in islice(api.list_nodes(), MOST):
        labels[node.name] = node.labels
        reach.node(node.labels)
    for name, pod in islice(_pods(api), MOST):
        if name in labels:
            reach.pod(labels[name], pod)
    return reach


def _pods(api: UserApi) -> Iterator[tuple[str, PodView]]:
    """The name of its Node, and the pod."""
    for item in api.all_pods():
        spec = item.get("spec") or {}
        if spec.get("nodeName"):
            yield str(spec["nodeName"]), pod_view(item)
