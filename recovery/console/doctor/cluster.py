"""Does the API server answer? Do the clocks agree? Are the CRDs complete? Is anything paused?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from recovery.console.doctor import samples
from recovery.console.doctor.api import DoctorApi
from recovery.console.doctor.context import CheckContext, why_not
from recovery.console.recoveries import read_recoveries
from recovery.console.status import pause_sentence
from recovery.decide.brakes import MOST_SKEW
from recovery.errors import ApiError, NotFound, SettingsError
from recovery.kube.transport import KubernetesTransport
from recovery.model import GROUP, VERSION, Gate
from recovery.provider.protocol import Finding
from recovery.units import few, span

AREA = "cluster"
KINDS = {"noderecoveries": "NodeRecovery", "recoverygates": "RecoveryGate"}
INSTALL = "kubectl apply -k deploy/crds"


def check(context: CheckContext) -> Iterator[Finding]:
    """The API server of the kubeconfig or the pod. Without an answer, later checks do not ask it either."""
    try:
        transport = KubernetesTransport(context.clock, context.target)
    except SettingsError as error:
        fix = "fix the pod's service account" if context.in_pod else "set KUBECONFIG"
        yield Finding(AREA, False, str(error), f"{fix}, or run this in the agent's pod")
        return
    settings = context.settings
    namespace = (settings.agents_namespace if settings else "") or transport.namespace
    yield from check_api(context, DoctorApi(transport, context.clock, namespace))


def check_api(context: CheckContext, api: DoctorApi) -> Iterator[Finding]:
    """Version, clock, CRDs and what all agents share, as ``api`` answers."""
    try:
        version = api.server_version()
    except ApiError as error:
        yield _no_answer(error)
        return
    context.api = api
    yield Finding(AREA, True, f"the API server answers (Kubernetes {version})")
    yield _clock(context, api)
    installed = list(_kinds(api))
    yield from installed
    if all(finding.ok is not False for finding in installed):
        yield from _recoveries(context, api)


def _no_answer(error: ApiError) -> Finding:
    if error.status in (401, 403):
        return Finding(
            AREA,
            False,
            f"the API server does not accept these credentials: {error.reason}",
            "log in again, or look at the service account's token; `kubectl auth whoami` shows who you are",
        )
    return Finding(
        AREA,
        False,
        f"{_trouble(error)}{error.reason}",
        "does `kubectl version` get an answer from here? In a pod a NetworkPolicy may be in the way",
    )


def _trouble(error: ApiError) -> str:
    """What an error answer means. Without any answer the reason already says it."""
    if error.status == 0:
        return ""
    return "the API server is in trouble: " if error.status >= 500 else "what answers is no API server: "


def _clock(context: CheckContext, api: DoctorApi) -> Finding:
    skew, most = api.time.skew(), span(MOST_SKEW)
    if skew <= MOST_SKEW:
        return Finding(AREA, True, f"this clock and the API server's are at most {most} apart")
    off = f"this clock is {span(skew)} off the API server's"
    if context.in_pod:
        return Finding(
            AREA,
            False,
            f"{off}: with more than {most} the agent starts nothing",
            "fix time synchronisation on this node (chronyc tracking, timedatectl)",
        )
    return Finding(
        AREA,
        True,
        f"{off}; this is not the node, where more than {most} would start nothing",
        "run doctor in the agent's pod to know the node's clock",
    )


# ---------------------------------------------------------------- our kinds


def _kinds(api: DoctorApi) -> Iterator[Finding]:
    try:
        served = api.served()
    except NotFound:
        yield _not_served(api)
        return
    if absent := [kind for plural, kind in KINDS.items() if plural not in served]:
        yield Finding(AREA, False, f"{' and '.join(absent)} of {GROUP}/{VERSION}: not installed", INSTALL)
        return
    if divided := [kind for plural, kind in KINDS.items() if f"{plural}/status" in served]:
        yield Finding(
            AREA,
            False,
            f"{' and '.join(divided)}: a status subresource is on, so what an agent writes would be dropped",
            f"these are not our CRDs: {INSTALL}",
        )
        return
    if "recoveryreports" not in served:
        lost = "RecoveryReport is not installed: what is seen with recovery off is not kept"
        yield Finding(AREA, True, lost, INSTALL)
    yield Finding(AREA, True, f"{' and '.join(KINDS.values())} are served as {GROUP}/{VERSION}")
    yield _fields(api)


def _not_served(api: DoctorApi) -> Finding:
    try:
        others = api.versions()
    except NotFound:
        return Finding(
            AREA, False, f"the CRDs of {GROUP} are not installed: nothing can be remembered", INSTALL
        )
    found = ", ".join(others)
    return Finding(
        AREA, False, f"the CRDs of {GROUP} are served as {found}; this program uses {VERSION}", INSTALL
    )


def _fields(api: DoctorApi) -> Finding:
    """The API server drops fields that a schema lacks, without an error: state would be lost."""
    try:
        schemas = api.schemas()
    except ApiError as error:
        return Finding(
            AREA,
            None,
            f"whether the CRDs have every field that this version writes: {why_not(error)}",
            f"if in doubt, apply them again: {INSTALL}",
        )
    lost = [
        f"{kind}.{path}"
        for kind, written in samples.full_objects().items()
        for path in missing(schemas.get(kind, {}), written)
    ]
    if lost:
        shown = few(lost, 4)
        return Finding(
            AREA,
            False,
            f"the CRDs are older than this program: the API server would silently drop {shown}",
            INSTALL,
        )
    return Finding(AREA, True, "the CRDs have every field that this version writes")


def missing(schema: Mapping[str, Any], written: Any, path: str = "") -> Iterator[str]:
    """The paths of the fields of ``written`` that ``schema`` would prune."""
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    if isinstance(written, list):
        for item in written:
            yield from missing(schema.get("items") or {}, item, f"{path}[]")
    elif isinstance(written, Mapping):
        named, free = schema.get("properties") or {}, schema.get("additionalProperties")
        for key, value in written.items():
            if key in named:
                yield from missing(named[key], value, f"{path}.{key}".lstrip("."))
            elif not free:
                yield f"{path}.{key}".lstrip(".")


# ---------------------------------------------------------------- what all agents share


def _recoveries(context: CheckContext, api: DoctorApi) -> Iterator[Finding]:
    try:
        recoveries = read_recoveries(api)
    except ApiError as error:
        yield Finding(
            AREA,
            None,
            f"pause and records: {why_not(error)}",
            "ask with rights to get and list noderecoveries",
        )
        return
    for node, why in recoveries.unreadable.items():
        yield Finding(
            AREA,
            node != context.node_name,
            f"the record of {node} cannot be read, so it is held and never touched: {why}",
            f"look at it: kubectl get noderecovery {node} -o yaml; deleting it ends the recovery unproved",
        )
    yield _gate(api, recoveries.gate, recoveries.gate_problem, len(recoveries.records))


def _gate(api: DoctorApi, gate: Gate | None, problem: str, known: int) -> Finding:
    if problem:
        return Finding(
            AREA,
            False,
            f"the gate cannot be read, and nothing starts anywhere: {problem}",
            "look at it: kubectl get recoverygate fleet -o yaml; when it is deleted, agents rebuild it from "
            "the records",
        )
    now = api.time.now()
    if gate is not None and gate.pause is not None and gate.pause.in_force(now):
        pause = click.unstyle(pause_sentence(gate, now))
        return Finding(AREA, True, f"{pause}. Nothing is started meanwhile", "to go on: node-recovery resume")
    return Finding(
        AREA, True, f"nothing is paused; there {'is 1 record' if known == 1 else f'are {known} records'}"
    )
