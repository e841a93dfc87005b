"""A node that swallows pods: what it is given is rejected, or fails at once, and runs elsewhere. Pure.

Such a node is the emptiest of all, so it is given one pod after the other; one lost 554 in two hours
(https://github.com/pytorch/ci-infra/issues/1058). No detector sees it, and the Node says that it is Ready.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from recovery.model import FailedPod, NodeView, Problem, Reading
from recovery.quick import replace
from recovery.units import span

TYPE, REASON = "BlackHole", "PodsLost"
TYPES = frozenset({TYPE})
REJECTED = "UnexpectedAdmissionError"
"""What the kubelet says where a device plugin has no device for a pod that was given one."""
WITHIN = timedelta(minutes=5)
PODS, OWNERS = 5, 2
"""How many pods, of how many controllers, have to be lost within ``WITHIN``: more than one application's."""
AT_ONCE = timedelta(seconds=30)
"""A pod that fails sooner than this after its start fails at once."""
RUNS = timedelta(minutes=1)
"""How long a pod on another node has to run before it counts as one that does not fail at once there."""
LEAST = timedelta(minutes=1)
"""How far apart the first and the last have to be. A kubelet that is restarted looks at all its pods again
and may reject many of them in one moment (https://github.com/kubernetes/kubernetes/issues/125579)."""
WELL_FOR = timedelta(minutes=10)
"""The node has to have been Ready for so long: after a boot, drivers and plugins come up."""
QUIET = timedelta(minutes=15)
"""A pod that is lost so long after the last one is a new statement of the fault."""
LATE = timedelta(seconds=60)
"""How long after its start at most a rejected pod is seen. A pod that began earlier had run here."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A pod that a node has swallowed, seen at ``at``."""

    at: datetime
    namespace: str
    owner: str
    rejected: bool


@dataclass(frozen=True, slots=True)
class Swallows:
    """What is stated of one boot of a node. ``since``: the first pod, ``last``: the latest; ``anew``: when it
    was last stated anew."""

    said: str
    since: datetime
    last: datetime
    anew: datetime


def lost(pod: FailedPod, node: NodeView, now: datetime, booted: datetime | None = None) -> Lost | None:
    """``pod`` as one that ``node`` has swallowed; None if it failed for what may be its own reason, or the
    node is one of which that is to be expected. ``booted``: when, where that is known: a Node may stay Ready
    all the while."""
    if not pod.owner or pod.deleted or pod.began is None or not node.ready or node.unschedulable:
        return None
    if node.ready_since is None or now - max(node.ready_since, booted or node.ready_since) < WELL_FOR:
        return None
    rejected = pod.reason == REJECTED and abs(now - pod.began) <= LATE
    at_once = pod.ended is not None and pod.ended - pod.began < AT_ONCE and abs(now - pod.ended) <= LATE
    if not (rejected or at_once):
        return None
    return Lost(now, pod.namespace, pod.owner, rejected)


def recent(pods: Mapping[str, Lost], now: datetime) -> dict[str, Lost]:
    """Those of the last ``WITHIN``, by UID."""
    return {uid: pod for uid, pod in pods.items() if now - pod.at <= WITHIN}


def suspected(pods: Iterable[Lost], on_others: Iterable[Lost] = ()) -> Mapping[str, frozenset[str]]:
    """The controllers of these pods, by namespace, where there are so many that it may be the node. Not those
    whose pods fail at once ``on_others``, too. A rejection is the kubelet's word on its own node."""
    pods = tuple(pods)
    if len(pods) < PODS:
        return {}
    fails = {(pod.namespace, pod.owner) for pod in on_others if not pod.rejected}
    pods = tuple(pod for pod in pods if pod.rejected or (pod.namespace, pod.owner) not in fails)
    owners = {(pod.namespace, pod.owner) for pod in pods}
    if len(pods) < PODS or len(owners) < OWNERS:
        return {}
    if max(p.at for p in pods) - min(p.at for p in pods) < LEAST:
        return {}
    namespaces = {namespace for namespace, _ in owners}
    return {n: frozenset(owner for namespace, owner in owners if namespace == n) for n in namespaces}


def stated(old: Swallows | None, pods: Iterable[Lost], elsewhere: int) -> Swallows | None:
    """What is stated of the node, once ``elsewhere`` says how many of the controllers run on other nodes."""
    pods = tuple(pods)
    if elsewhere < OWNERS:
        return old
    first, last = min(p.at for p in pods), max(p.at for p in pods)
    rejected = sum(1 for p in pods if p.rejected)
    owners = len({p.owner for p in pods})
    said = (
        f"{len(pods)} pods of {owners} controllers were lost here within {span(last - first)}, "
        f"{rejected} of them rejected ({REJECTED}); {elsewhere} of the controllers run on other nodes"
    )
    if old is None:
        return Swallows(said, first, last, last)
    return replace(old, said=said, last=last, anew=last if last - old.last >= QUIET else old.anew)


def with_pods(reading: Reading, found: Swallows | None, fresh_for: timedelta) -> Reading:
    """``reading``, of the same source, with what is known of lost pods. Nothing takes it back but a boot."""
    listed = reading.listed | {(TYPE, ""), (TYPE, REASON)}
    if found is None:
        return replace(reading, listed=listed)
    problem = Problem(
        source=reading.source,
        type=TYPE,
        reason=REASON,
        message=found.said,
        since=found.since,
        fresh_until=reading.at + fresh_for,
        latched=True,
        stated=found.anew,
    )
    quiet = reading.at - found.last >= QUIET
    gone = reading.gone | ({(TYPE, REASON)} if quiet else frozenset())
    return replace(reading, problems=(*reading.problems, problem), listed=listed, gone=gone)
