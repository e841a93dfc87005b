"""Does a concluder run, and where nobody whose node it judges can reach it?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from recovery.config.environment import Mode
from recovery.console.api import COMPONENT
from recovery.console.doctor.api import DoctorApi
from recovery.console.doctor.context import CheckContext, why_not
from recovery.errors import ApiError
from recovery.provider.protocol import Finding

AREA = "concluder"
WHERE = (
    "deploy/README.md, Where the concluder runs (in the chart: concluder.nodeSelector, concluder.affinity)"
)


def check(context: CheckContext) -> Iterator[Finding]:
    """One finding for each of its pods, or that there is none. Agents work without it: that is advice."""
    if context.api is None or context.in_fleet_mode or _is_it(context):
        return
    try:
        found = [_pod(context.api, pod) for pod in context.api.concluders()]
    except ApiError as error:
        yield Finding(
            AREA, None, f"whether a concluder runs: {why_not(error)}", "your user needs list on pods"
        )
        return
    yield from found or [_none()]


def _is_it(context: CheckContext) -> bool:
    return context.in_pod and context.settings is not None and context.settings.mode is Mode.CONCLUDER


def _none() -> Finding:
    return Finding(
        AREA,
        True,
        "no concluder runs: what the agents of dead nodes left open waits until another agent finds it, and "
        "no dead machine is rebooted through its BMC",
        "none is needed in fleet mode or while recovery is off, and deploy/observe runs none. Every other "
        "installation of deploy/ has one (in the chart: concluder.create); look for it: "
        f"kubectl get deployments -A -l {COMPONENT}=concluder",
    )


def _pod(api: DoctorApi, pod: Mapping[str, Any]) -> Finding:
    meta, status = pod["metadata"], pod.get("status") or {}
    name, node = f"{meta['namespace']}/{meta['name']}", (pod.get("spec") or {}).get("nodeName") or ""
    if not node:
        return Finding(
            AREA,
            True,
            f"the concluder {name} is Pending: {_unscheduled(status)}",
            "it must not run on the nodes that it judges; if there are no others, say where it may run: "
            f"{WHERE}",
        )
    if status.get("phase") != "Running":
        how = f"kubectl -n {meta['namespace']} describe pod {meta['name']}"
        return Finding(AREA, True, f"the concluder {name} does not run", how)
    if agent := api.judged_by(node, name):
        return Finding(
            AREA,
            True,
            f"the concluder {name} runs on {node}, which it judges (the agent {agent} is there): who is root "
            "on that node has the concluder's rights, and the credentials of BMCs",
            f"keep it off the nodes that run agents: {WHERE}",
        )
    return Finding(AREA, True, f"the concluder {name} runs on {node}, where no agent does")


def _unscheduled(status: Mapping[str, Any]) -> str:
    """What the scheduler says of it."""
    conditions = status.get("conditions") or []
    said = next((c.get("message") for c in conditions if c.get("type") == "PodScheduled"), "")
    return said or "no scheduler has looked at it yet"
