"""Which pods a drain still waits for, and which it asks for. PURE.

As ``kubectl drain --ignore-daemonsets``: everything is evicted through the eviction API, so disruption
budgets are honoured and failure policies see it; DaemonSet and mirror pods stay; finished pods do not matter.
A pod is never deleted with grace 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from recovery.model import PodView

FINISHED = ("Succeeded", "Failed")


def stays(pod: PodView) -> bool:
    """Pods a drain leaves alone."""
    return pod.owner_kind == "DaemonSet" or pod.mirror or pod.phase in FINISHED


def remaining(pods: Iterable[PodView], now: datetime) -> tuple[PodView, ...]:
    """Pods that still keep the node from being empty.

    One that was evicted and is past its own grace period no longer blocks: its kubelet is not
    going to report its end.
    """
    left = (p for p in pods if not stays(p))
    return tuple(p for p in left if p.deletion_timestamp is None or p.deletion_timestamp > now)


def to_evict(pods: Iterable[PodView], refused: Mapping[str, str]) -> tuple[PodView, ...]:
    """Pods to ask for now: not on their way out, and not refused a moment ago."""
    return tuple(p for p in pods if p.deletion_timestamp is None and str(p) not in refused)


def told(left: tuple[PodView, ...], refused: Mapping[str, str]) -> str:
    """The state of a drain in one clause, naming a pod and the budget that keeps it."""
    waits = [str(p) for p in left if str(p) in refused]
    count = f"{len(left)} pod{'s' if len(left) != 1 else ''} left"
    if waits:
        return f"{count}; {waits[0]} may not go yet: {refused[waits[0]]}"
    leaving = [str(p) for p in left if p.deletion_timestamp is not None]
    return f"{count}; {leaving[0]} is terminating" if leaving else count
