"""The pods that are stuck on a machine that is down: when are they given up? PURE.

A dead kubelet ends no pod, so its volumes stay where they are. Kubernetes' own answer is the taint
``node.kubernetes.io/out-of-service``: it deletes the stuck pods and detaches their volumes. That is harmless
only where the machine surely runs nothing any more, so its provider has to prove that.
"""

from __future__ import annotations

from datetime import timedelta

from recovery.decide import brakes, tried
from recovery.decide.assessment import Assessment
from recovery.decide.decision import POLLED, Decision, EventReason, OutOfService, Report, act, wait
from recovery.decide.marks import out_of_service
from recovery.decide.situation import Role, Situation
from recovery.model import OUT_OF_SERVICE, Cause, NodeView, Phase, Record, Unfinished

PATIENCE = timedelta(minutes=15)
"""How long a record with no call in flight waits for the node's own agent to come back."""


def gone_so_far(s: Situation, r: Record) -> timedelta:
    """How long the node's own agent is gone at least: what this process saw, or what the record says."""
    return max(s.owner_gone_for, tried.gone_for(s, r))


def stuck_pods(s: Situation, a: Assessment, r: Record) -> Decision | None:
    """Pods are stuck terminating on a machine that is proved down: set the out-of-service taint.

    It comes off once no pod is stuck, or nothing proves any more that the machine is down. If the pods stay,
    the recovery goes on without that.
    """
    if s.node is None or (r.in_flight and not isinstance(s.poll, Unfinished)):
        return None  # the call in flight may have switched the machine off for a moment
    if s.down and s.pods is None:
        return None  # whether some are stuck is not known: they cannot be listed
    past = [p for p in s.pods or () if p.deletion_timestamp is not None and p.deletion_timestamp <= s.now]
    stuck = len(past) if s.down else 0
    if out_of_service(s.node):
        return _taint_is_set(s, r, stuck)
    if not stuck or not _may_set_taint(s, a, r, s.node):
        return None
    why = f"{r.node}: {s.down}; {stuck} of its pods are stuck terminating: the out-of-service taint is set"
    return act(OutOfService(True), why, Report(EventReason.OUT_OF_SERVICE, warning=True))


def _taint_is_set(s: Situation, r: Record, stuck: int) -> Decision | None:
    if not s.down and s.may_be_down:
        return None  # a new process may have to ask twice until there is an answer
    if not stuck:
        why = "no pod is stuck terminating any more" if s.down else "nothing shows any more that it is down"
        return act(OutOfService(False), f"{r.node}: {why}; the out-of-service taint comes off")
    if s.role is Role.OWNER or gone_so_far(s, r) >= PATIENCE:
        return None  # its drain waits for no pod that is past its grace period
    why = f"{r.node}: the out-of-service taint is set for {stuck} stuck pods"
    return wait(why, POLLED, "given-up", held=None if r.in_flight else Cause.AGENT)


def _may_set_taint(s: Situation, a: Assessment, r: Record, node: NodeView) -> bool:
    """Whether our out-of-service taint may be set.

    It may not where the API server refused it a moment ago, where another's taint is set already, for a
    machine that is another than the record's or that another Node claims, or once ``PATIENCE`` is over.
    """
    if OUT_OF_SERVICE in s.refusals or node.has_taint(OUT_OF_SERVICE) or s.rivals:
        return False
    if s.machine is None or s.machine.id != r.machine.id or gone_so_far(s, r) >= PATIENCE:
        return False
    under_way = a.slot is not None and r.phase in (Phase.RECOVERING, Phase.PROVING)
    return under_way and brakes.first_reason(brakes.FORBIDDEN, s) is None
