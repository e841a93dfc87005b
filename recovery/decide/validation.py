"""Has the user's own Job succeeded on the node, before the node is given back? PURE.

The Job is created from a CronJob, as ``kubectl create job --from`` does it. Its name is on the record before
it is created, so after a crash the same Job is found, or created under the same name.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from recovery.decide.brakes import MOST_SKEW
from recovery.decide.decision import (
    POLLED,
    CreateJob,
    Decision,
    EventReason,
    Report,
    WriteRecord,
    act,
    hold,
    wait,
)
from recovery.decide.history import HistoryEvent, note
from recovery.decide.situation import Situation
from recovery.decide.tried import over
from recovery.model import GROUP, TAINT, UNSCHEDULABLE, JobView, Record, ValidationRun
from recovery.quick import replace
from recovery.units import span

OF_NODE = f"{GROUP}/node"
KEPT = 24 * 3600
"""Seconds for which an ended Job is kept, if its CronJob has no ``ttlSecondsAfterFinished``."""
LEAST_KEPT = 3600
LOOKED_AT = 300
"""Seconds for which Kubernetes leaves a Job alone once it is late. It deletes the pod then, and counts it as
failed, whether it ever ran or not."""


def failure(s: Situation, r: Record) -> str | None:
    """Why the node failed its validation. None while it runs, and once it passed. ``impossible`` is asked
    before: a Job that could not run says nothing."""
    if r.validate is None or r.validation is None or s.job is None or s.job.node != r.node:
        return None
    job = f"the validation Job {r.validation.job}"
    if s.job.succeeded is False:
        return f"{job} failed: {s.job.why or 'it gives no reason'}"
    if s.job.succeeded is None and late(s, r):
        return f"{job} did not succeed within {span(r.validate.within)}"
    return None


def impossible(s: Situation, r: Record) -> str | None:
    """Why the validation could not run. That says nothing against the machine (law 3)."""
    if r.validate is None or r.validation is None:
        return None
    job = f"the validation Job {r.validation.job}"
    if s.job is not None and s.job.node != r.node:
        return f"{job} is of another node ({s.job.node or 'none'})"
    if s.job is not None:
        return _never_ran(s, r, s.job)
    if not late(s, r):
        return None
    return f"{job} was not seen within {span(r.validate.within)}: {s.job_problem or 'it is not there'}"


def _never_ran(s: Situation, r: Record, job: JobView) -> str | None:
    """That the Job is over, or late, and none of its pods ever ran: a quota or a queue keeps them back, their
    image cannot be pulled, or the kubelet turned them away."""
    assert r.validate is not None
    assert r.validation is not None
    if job.succeeded or not job.unrun or not (job.succeeded is False or late(s, r)):
        return None
    within = f" within {span(r.validate.within)}" if late(s, r) else ""
    why = f"the validation Job {r.validation.job} did not run{within}: {job.unrun}"
    return f"{why} ({job.why})" if job.why else why


def late(s: Situation, r: Record) -> bool:
    """Whether the time for the Job is over."""
    assert r.validate is not None
    assert r.validation is not None
    return over(s, r, since(s, r.validation), r.validate.within)


def since(s: Situation, run: ValidationRun) -> datetime:
    """From when the time for the Job counts. One that could be made only late, or again, has all of it: what
    kept it from being made says nothing against the machine. (By a clock far ahead it would have more.)"""
    made = s.job.made if s.job is not None else None
    return max(run.since, made) if made is not None and made <= s.now + MOST_SKEW else run.since


def pending(s: Situation, r: Record) -> Decision | None:
    """What is still to be done or waited for. None once the Job has succeeded, or if the rule wants none."""
    if r.validate is None:
        return None
    if r.validation is None:
        why = f"{r.node} is healthy; next: validation by a Job of CronJob {r.validate.cron_job}"
        decided = replace(
            note(r, s.now, HistoryEvent.VALIDATING, why), validation=ValidationRun(job_name(s, r), s.now)
        )
        return act(WriteRecord(decided), why, Report(EventReason.VALIDATING))
    if s.job is not None:
        sentence = f"{r.node} is being validated by Job {r.validation.job}"
        return None if s.job.succeeded else wait(sentence, POLLED, "validating")
    if s.job_problem and not s.job_due:
        return hold(f"the validation of {r.node} cannot begin: {s.job_problem}", key="validation")
    sentence = f"validation of {r.node}: Job {r.validation.job} is made of CronJob {r.validate.cron_job}"
    return act(CreateJob(r.validate.cron_job, r.validation.job, r.validate.within), sentence)


def job_name(s: Situation, r: Record) -> str:
    """The name of the Job, new for each validation. At most 63 characters: its pods carry it as a label."""
    of = hashlib.sha256(r.node.encode()).hexdigest()[:10]
    return f"node-recovery-{of}-{int(s.now.timestamp())}"


def job_of(cron_job: Mapping[str, Any], name: str, node: str, seconds: float) -> dict[str, Any]:
    """The Job: the CronJob's template, bound to ``node``, with tolerations for our taint and the cordon."""
    template = copy.deepcopy((cron_job.get("spec") or {}).get("jobTemplate") or {})
    meta, spec = template.get("metadata") or {}, template.get("spec") or {}
    pod = spec.setdefault("template", {}).setdefault("spec", {})
    pod["nodeName"] = node
    pod.pop("nodeSelector", None)
    ours = [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in (TAINT, UNSCHEDULABLE)]
    pod["tolerations"] = [*(pod.get("tolerations") or []), *ours]
    spec.setdefault("backoffLimit", 0)
    # A Job that is gone before its result was read would be created again.
    spec["ttlSecondsAfterFinished"] = max(spec.get("ttlSecondsAfterFinished", KEPT), LEAST_KEPT)
    own = spec.get("activeDeadlineSeconds")
    spec["activeDeadlineSeconds"] = own if own and own < seconds else int(seconds) + LOOKED_AT
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "labels": {**(meta.get("labels") or {}), "app.kubernetes.io/managed-by": "node-recovery"},
            "annotations": {
                **(meta.get("annotations") or {}),
                "cronjob.kubernetes.io/instantiate": "manual",
                OF_NODE: node,
            },
        },
        "spec": spec,
    }
