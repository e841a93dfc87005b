"""Does the API server answer, with our kinds, at our time of day, and does it let recoveries begin?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from recovery.console.doctor import samples
from recovery.console.doctor.context import Surgery, Visit, why_not
from recovery.console.recoveries import read_fleet
from recovery.console.status import pause_sentence
from recovery.decide.brakes import MOST_SKEW
from recovery.decide.situation import span
from recovery.errors import ApiError, NotFound, SettingsError
from recovery.kube.cluster import KubernetesTransport
from recovery.model import GROUP, VERSION, Gate
from recovery.provider.protocol import Finding

AREA = "cluster"
KINDS = {"noderecoveries": "NodeRecovery", "recoverygates": "RecoveryGate"}
INSTALL = "kubectl apply -k deploy/crds"


def look(visit: Visit) -> Iterator[Finding]:
    """Without an answer of the API server nothing else that needs it is asked."""
    try:
        transport = KubernetesTransport(visit.clock)
    except SettingsError as error:
        mend = "mend the pod's service account" if visit.inside else "set KUBECONFIG"
        yield Finding(AREA, False, str(error), f"{mend}, or run this in the agent's pod")
        return
    settings = visit.settings
    namespace = (settings.pod_namespace if settings else "") or transport.namespace
    yield from examine(visit, Surgery(transport, visit.clock, namespace))


def examine(visit: Visit, desk: Surgery) -> Iterator[Finding]:
    """The cluster behind ``desk``."""
    try:
        version = desk.server_version()
    except ApiError as error:
        yield _silent(error)
        return
    visit.desk = desk
    yield Finding(AREA, True, f"the API server answers (Kubernetes {version})")
    yield _clock(visit, desk)
    installed = list(_kinds(desk))
    yield from installed
    if all(finding.ok is not False for finding in installed):
        yield from _fleet(visit, desk)


def _silent(error: ApiError) -> Finding:
    if error.status in (401, 403):
        return Finding(
            AREA,
            False,
            f"the API server does not accept these credentials: {error.reason}",
            "log in again, or look at the service account's token; `kubectl auth whoami` tells who you are",
        )
    return Finding(
        AREA,
        False,
        f"{_trouble(error)}{error.reason}",
        "does `kubectl version` get an answer from here? In a pod a NetworkPolicy may be in the way",
    )


def _trouble(error: ApiError) -> str:
    """What an answer is that is no version; without an answer the reason speaks for itself."""
    if error.status == 0:
        return ""
    return "the API server is in trouble: " if error.status >= 500 else "what answers is no API server: "


def _clock(visit: Visit, desk: Surgery) -> Finding:
    skew, most = desk.time.skew(), span(MOST_SKEW)
    if skew <= MOST_SKEW:
        return Finding(AREA, True, f"this clock and the API server's are at most {most} apart")
    told = f"this clock is {span(skew)} off the API server's"
    if visit.inside:
        return Finding(
            AREA,
            False,
            f"{told}: with more than {most} the agent starts nothing",
            "mend time synchronisation on this node (chronyc tracking, timedatectl)",
        )
    return Finding(
        AREA,
        True,
        f"{told}; this is not the node, where more than {most} would start nothing",
        "run doctor in the agent's pod to know the node's clock",
    )


# ---------------------------------------------------------------- our kinds


def _kinds(desk: Surgery) -> Iterator[Finding]:
    try:
        served = desk.served()
    except NotFound:
        yield _not_served(desk)
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
    yield Finding(AREA, True, f"{' and '.join(KINDS.values())} are served as {GROUP}/{VERSION}")
    yield _fields(desk)


def _not_served(desk: Surgery) -> Finding:
    try:
        others = desk.versions()
    except NotFound:
        return Finding(
            AREA, False, f"the CRDs of {GROUP} are not installed: nothing can be remembered", INSTALL
        )
    found = ", ".join(others)
    return Finding(
        AREA, False, f"the CRDs of {GROUP} are served as {found}; this program speaks {VERSION}", INSTALL
    )


def _fields(desk: Surgery) -> Finding:
    """A server drops what a schema does not name, without an error: a memory lost."""
    try:
        schemas = desk.schemas()
    except ApiError as error:
        return Finding(
            AREA,
            None,
            f"whether the CRDs have every field that this version writes: {why_not(error)}",
            f"in doubt apply them again: {INSTALL}",
        )
    lost = [
        f"{kind}.{path}"
        for kind, written in samples.written().items()
        for path in missing(schemas.get(kind, {}), written)
    ]
    if lost:
        shown = ", ".join(lost[:4]) + (f" and {len(lost) - 4} more" if len(lost) > 4 else "")
        return Finding(
            AREA,
            False,
            f"the CRDs are older than this program: the API server would silently drop {shown}",
            INSTALL,
        )
    return Finding(AREA, True, "the CRDs have every field that this version writes")


def missing(schema: Mapping[str, Any], written: Any, path: str = "") -> Iterator[str]:
    """The paths of what is ``written`` and would be pruned by ``schema``."""
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


def _fleet(visit: Visit, desk: Surgery) -> Iterator[Finding]:
    try:
        fleet = read_fleet(desk)
    except ApiError as error:
        yield Finding(
            AREA,
            None,
            f"pause and records: {why_not(error)}",
            "ask with rights to get and list noderecoveries",
        )
        return
    for node, why in fleet.unreadable.items():
        yield Finding(
            AREA,
            node != visit.node_name,
            f"the record of {node} cannot be read, so it is held and never touched: {why}",
            f"look at it: kubectl get noderecovery {node} -o yaml; deleting it gives the node up",
        )
    yield _gate(desk, fleet.gate, fleet.gate_problem, len(fleet.records))


def _gate(desk: Surgery, gate: Gate | None, problem: str, known: int) -> Finding:
    if problem:
        return Finding(
            AREA,
            False,
            f"the gate cannot be read, and nothing starts anywhere: {problem}",
            "look at it: kubectl get recoverygate fleet -o yaml; when it is deleted, agents rebuild it from "
            "the records",
        )
    now = desk.time.now()
    if gate is not None and gate.pause is not None and gate.pause.in_force(now):
        told = click.unstyle(pause_sentence(gate, now))
        return Finding(AREA, True, f"{told}. Nothing is started meanwhile", "to go on: node-recovery resume")
    return Finding(
        AREA, True, f"nothing is paused; there {'is 1 record' if known == 1 else f'are {known} records'}"
    )
