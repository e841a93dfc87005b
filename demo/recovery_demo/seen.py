"""All that the demo can see: changes in the Kubernetes API, calls to a cloud, the simulator's reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

EVENTS = "/api/v1/namespaces/default/events"
NODES = "/api/v1/nodes"
PODS = "/api/v1/pods"
RECORDS = "/apis/noderecovery.dev/v1alpha1/noderecoveries"
GATES = "/apis/noderecovery.dev/v1alpha1/recoverygates"
REPORTS = "/apis/noderecovery.dev/v1alpha1/recoveryreports"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
WATCHED = (EVENTS, NODES, PODS, RECORDS, GATES, REPORTS, LEASES, JOBS)

SIMULATOR = "simulator"
AWS = "aws"


@dataclass(frozen=True)
class Seen:
    """One thing seen ``at`` seconds since the start.

    From a watch: ``source`` is its path, ``what`` the object, ``gone`` whether it was deleted. From the
    simulator: its line. From AWS: ``{"action": ..., "instance": ...}`` of a call that reached it.
    """

    at: float
    source: str
    what: Json
    gone: bool = False

    @property
    def name(self) -> str:
        return str(self.what["metadata"]["name"])

    @property
    def version(self) -> int:
        """When it was written: this API counts resourceVersions up for all objects together. Two watches may
        arrive in any order."""
        return int(self.what["metadata"]["resourceVersion"])

    @property
    def spec(self) -> Json:
        return dict(self.what.get("spec") or {})

    @property
    def status(self) -> Json:
        return dict(self.what.get("status") or {})


def condition(obj: Json, kind: str) -> str:
    """The status of a Node's or a Pod's condition; empty if it has none."""
    listed = (obj.get("status") or {}).get("conditions") or []
    return next((str(c["status"]) for c in listed if c["type"] == kind), "")
