"""The objects of the story on bare metal: a Job that trains, and a CronJob that validates. Plain data.

The training is a Job, which starts a pod anew, wherever there is room, once it has ended with an exit code of
its policy. A ReplicaSet's pod that ends is started again by its kubelet, where it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recovery_demo import manifests
from recovery_demo.manifests import APP, HOME, NAMESPACE, VALIDATION

Json = dict[str, Any]

GPUS = 8
ROLE = {"role": "worker"}
HOME_PODS = f"/api/v1/namespaces/{HOME}/pods"
_AGAIN = {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [manifests.CHECKPOINTED]}}


def training(workers: int) -> list[tuple[str, Json]]:
    """(collection, object): a namespace, a Job of ``workers`` trainers, and their disruption budget.

    The budget says ``minAvailable``: a Job has no scale, by which ``maxUnavailable`` would be counted.
    """
    labels = {"app": APP, **ROLE}
    template = {
        "metadata": {"labels": labels},
        "spec": {"restartPolicy": "Never", "containers": [{"name": APP, "image": APP}]},
    }
    return [
        (
            "/api/v1/namespaces",
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        ),
        (
            f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs",
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": APP, "namespace": NAMESPACE, "labels": {"app": APP}},
                "spec": {
                    "parallelism": workers,
                    "completions": workers,
                    "podFailurePolicy": {"rules": [_AGAIN]},
                    "template": template,
                },
            },
        ),
        (
            f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets",
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": APP, "namespace": NAMESPACE},
                "spec": {"minAvailable": workers - 1, "selector": {"matchLabels": {"app": APP}}},
            },
        ),
    ]


def trainer(name: str, on: str, owner: Json) -> Json:
    """A worker of the training Job, bound to node ``on``. It is Pending."""
    made = manifests.pod(name, on, app=APP, owner=owner)
    made["metadata"]["labels"] |= ROLE
    made["spec"]["restartPolicy"] = "Never"
    return made


def cron_job() -> tuple[str, Json]:
    """(collection, object): what validation Jobs are made of. Suspended: it never runs by itself."""
    container = {
        "name": VALIDATION,
        "image": VALIDATION,
        "command": ["sh", "-c", f'test "$(nvidia-smi -L | wc -l)" = {GPUS} && all-reduce-test'],
    }
    pod = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    body = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": VALIDATION, "namespace": HOME},
        "spec": {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": {"template": pod}}},
    }
    return f"/apis/batch/v1/namespaces/{HOME}/cronjobs", body


def pod_of(job: Mapping[str, Any]) -> Json:
    """The pod that the Job controller makes of a validation Job, bound by the Job itself. It is Pending."""
    meta, template = job["metadata"], job["spec"]["template"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{meta['name']}-0",
            "namespace": HOME,
            "labels": {"app": VALIDATION, "batch.kubernetes.io/job-name": meta["name"]},
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        },
        "spec": dict(template["spec"]),
    }


def ended(container: str, code: int, at: str) -> Json:
    """The status of a pod whose one container has ended with the exit code ``code``, ``at`` the moment."""
    reason = "Error" if code else "Completed"
    end = {"exitCode": code, "reason": reason, "finishedAt": at}
    return {
        "phase": "Failed" if code else "Succeeded",
        "conditions": [{"type": "Ready", "status": "False", "reason": f"Pod{reason}"}],
        "containerStatuses": [{"name": container, "ready": False, "state": {"terminated": end}}],
    }


def verdict(passed: bool) -> Json:
    """The status of a validation Job that has ended."""
    if passed:
        return {"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]}
    failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}
    return {"failed": 1, "conditions": [{**failed, "message": "Job has reached the specified backoff limit"}]}
