"""What Jobs do on bare metal: trainers that write a checkpoint when they are asked to, and validation Jobs.

It does what the Job controller, the scheduler and the kubelets would do, through the API alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from recovery.units import moment
from recovery_demo import manifests, metal_manifests, seen
from recovery_demo.kubeapi import KubeApi, Refusal
from recovery_demo.workload import PODS, Workload

Json = dict[str, Any]

CHECKPOINT = 3.0  # seconds from the annotation to the end of a trainer
VALIDATES = 2.0  # seconds from the start of a validation's pod to its end


class TrainingJob(Workload):
    """A Job of ``replicas`` trainers. When asked, one writes a checkpoint, ends, and starts elsewhere."""

    controller = "Job"

    def __init__(self, api: KubeApi, replicas: int, plugin: str) -> None:
        super().__init__(api, replicas, plugin)
        self._writing: dict[str, float] = {}

    def _objects(self) -> list[tuple[str, Json]]:
        return metal_manifests.training(self._replicas)

    def _trainer(self, name: str, on: str) -> Json:
        return metal_manifests.trainer(name, on, self._owner)

    def tick(self, at_once: bool = False) -> None:
        super().tick(at_once)
        for pod in self._api.items(PODS):
            if manifests.CHECKPOINT in (pod["metadata"].get("annotations") or {}):
                self._checkpoint(pod)

    def _checkpoint(self, pod: Json) -> None:
        """Begin to write at the first look, and end once it is written."""
        name = pod["metadata"]["name"]
        due = self._writing.setdefault(name, time.monotonic() + CHECKPOINT)
        running = (pod.get("status") or {}).get("phase") == "Running" and not pod["metadata"].get(
            "deletionTimestamp"
        )
        if running and time.monotonic() >= due:
            _report(
                self._api,
                f"{PODS}/{name}",
                metal_manifests.ended(manifests.APP, manifests.CHECKPOINTED, _now()),
            )


class Validations:
    """The Job controller and the kubelets, for the Jobs in the agents' namespace.

    ``well`` says of a node whether its GPUs are all there: a validation on one that is not fails.
    """

    def __init__(self, api: KubeApi, well: Callable[[str], bool]) -> None:
        self._api = api
        self._well = well
        self._began: dict[str, float] = {}
        api.post(*metal_manifests.cron_job())

    def tick(self) -> None:
        for job in self._api.items(seen.JOBS):
            if not (job.get("status") or {}).get("conditions"):
                self._advance(job)

    def _advance(self, job: Json) -> None:
        """One thing at a time: the pod made, then running, then ended, and with it the Job."""
        name = job["metadata"]["name"]
        pod = f"{metal_manifests.HOME_PODS}/{name}-0"
        if name not in self._began:
            self._began[name] = time.monotonic()
            self._api.post(metal_manifests.HOME_PODS, metal_manifests.pod_of(job))
            _report(self._api, pod, manifests.RUNNING)
        elif time.monotonic() >= self._began[name] + VALIDATES:
            passed = self._well(job["spec"]["template"]["spec"]["nodeName"])
            _report(self._api, pod, metal_manifests.ended(manifests.VALIDATION, 0 if passed else 1, _now()))
            _report(self._api, f"{seen.JOBS}/{name}", metal_manifests.verdict(passed))


def _now() -> str:
    return moment(datetime.now(UTC))


def _report(api: KubeApi, path: str, status: Json) -> None:
    """Write a status. If the object is gone, or another writer was first, the next look decides anew."""
    try:
        api.put(f"{path}/status", {**api.get(path), "status": status})
    except Refusal as refusal:
        if refusal.status not in (404, 409):
            raise
