"""What the checks know when they begin, and what each finds out for those that come after it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recovery.clock import Clock
from recovery.config.environment import Mode
from recovery.config.settings import Settings
from recovery.console.api import AgentPod
from recovery.console.doctor.api import DoctorApi
from recovery.errors import ApiError
from recovery.kube.kubeconfig import USUAL, Target
from recovery.model import NodeView
from recovery.provider.registry import Identified


@dataclass
class CheckContext:
    """One run of ``doctor``. A field that is None or empty was not found, or could not be asked."""

    environ: Mapping[str, str]
    clock: Clock
    node_name: str = ""
    account: str = ""
    target: Target = USUAL
    in_pod: bool = False  # in the agent's own pod: the API server answers as it would answer the agent
    settings: Settings | None = None
    api: DoctorApi | None = None
    node: NodeView | None = None
    identified: Identified = field(default_factory=Identified)
    pod: AgentPod | None = None
    controller: AgentPod | None = None  # a replica of fleet mode's, where no sidecar runs on the node
    some_agent: AgentPod | None = None  # where no node was named: one of the agents that run
    agent_view: dict[str, Any] = field(default_factory=dict)  # the agent's answer to /api/v1/explain

    @property
    def is_controller(self) -> bool:
        """Whether this is a pod of fleet mode's controller."""
        return self.in_pod and self.settings is not None and self.settings.mode is Mode.FLEET

    @property
    def controllers(self) -> bool:
        """Whether replicas of fleet mode's controller run, and no sidecar on the node."""
        return self.controller is not None

    @property
    def in_fleet_mode(self) -> bool:
        """Whether a controller looks after the node, as far as can be told from here."""
        return self.is_controller or self.controllers

    @property
    def reads_page(self) -> bool:
        """Whether the detector's page can be read from here: in its pod, or where NPD_METRICS_URL is set."""
        if self.in_pod:
            return self.node_name == self.environ.get("NODE_NAME", "")
        return "NPD_METRICS_URL" in self.environ


def why_not(error: ApiError) -> str:
    """Why the API server did not answer; a 403 in plain words."""
    return "you have no right to ask (403)" if error.status == 403 else error.reason


def runs_in_pod(environ: Mapping[str, str], target: Target) -> bool:
    """Whether this is a pod that uses its own service account."""
    named = environ.get("KUBECONFIG") or target != USUAL
    return bool(environ.get("KUBERNETES_SERVICE_HOST")) and not named


def new_context(
    node: str,
    account: str,
    clock: Clock,
    environ: Mapping[str, str] = os.environ,
    target: Target = USUAL,
) -> CheckContext:
    """The context before the first check; without ``node`` it is NODE_NAME."""
    name = node or environ.get("NODE_NAME", "")
    return CheckContext(environ, clock, name, account, target, runs_in_pod(environ, target))
