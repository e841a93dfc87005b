"""What is missing on Azure, for ``node-recovery doctor``: a token, the machine, each permission, the metrics.

Imported by ``doctor`` alone. Nothing is changed: reads are tried, as a recovery would read, and what has no
harmless form is looked up in the permissions that Resource Manager lists for whoever asks ("Permissions -
List For Resource" and "... For Resource Group" of the authorization API). Its documentation does not say what
one needs to be told one's own, so a list that is denied is no finding against the agent.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Protocol

from providers.azure.identity import VM
from providers.azure.machines import named, set_id
from providers.azure.options import Options
from providers.azure.permissions import BY_ROUTE, CAPACITY, PERMISSIONS
from providers.azure.session import WORKLOAD, AzureSession
from providers.azure.settings import CLUSTER_ID, COMPUTE, MONITOR, Cluster
from recovery.errors import NodeRecoveryError, Refused, Retry, SettingsError
from recovery.model import Machine, Preflight, Step
from recovery.provider.declaration import check_all
from recovery.provider.protocol import Abilities, Finding

AREA = "azure"
ROLES = "compare the identity's role assignments with iam/azure"
VERSION = "2022-04-01"  # of Microsoft.Authorization/permissions
STATUS = frozenset({"Microsoft.Compute/locations/operations/read"})
DENIED = "Azure denied"


class Asked(Protocol):
    """The provider, as far as it is asked here."""

    def abilities(self, machine: Machine) -> Abilities: ...

    def preflight(self, machine: Machine, action: Step) -> Preflight: ...


@dataclass(frozen=True)
class Right:
    """Actions that the identity needs on a scope. ``without``: what is lost, where it can do without."""

    scope: str
    place: str
    actions: frozenset[str]
    without: str = ""
    data: bool = False

    @property
    def subscription(self) -> str:
        return self.scope.split("/")[2]


def examine(
    provider: Asked,
    session: AzureSession,
    options: Options,
    machine: Machine | None,
    steps: frozenset[Step],
    own: bool,
    environ: Mapping[str, str] = os.environ,
) -> Iterator[Finding]:
    """Each thing that ``steps`` would need, and telling Azure Monitor. ``own``: see ``Examiner``."""
    try:
        session.token("doctor's question")
    except NodeRecoveryError as error:
        yield _nobody(error, own)
        return
    yield _somebody(session, environ, own)
    rights: list[Right] = []
    if machine is not None:
        able = provider.abilities(machine)
        yield from _route(options, machine, able, steps)
        for step in sorted(steps & able.actions):
            finding, ready = _possible(provider, machine, step, own)
            yield finding
            rights += _needed(options, machine, step, ready)
    try:
        rights += _to_tell(environ)
    except SettingsError as error:
        yield from (Finding(AREA, False, mistake, "mend the setting") for mistake in error.mistakes)
    else:
        yield from _silent(environ)
    if own:  # another's permissions are no answer
        yield from _permitted(session, _by_scope(rights))


# ---------------------------------------------------------------- who asks


def _nobody(error: NodeRecoveryError, own: bool) -> Finding:
    if own:
        remedy = "iam/azure says how the pod gets an identity: the account's annotation, and the pod's label"
        return Finding(AREA, False, str(error), remedy)
    return Finding(AREA, None, f"Azure was not asked: {error}", "run doctor in the agent's pod")


def _somebody(session: AzureSession, environ: Mapping[str, str], own: bool) -> Finding:
    workload = all(environ.get(name) for name in WORKLOAD)
    kind = "workload identity" if workload else "managed identity"
    who = f"{kind} {environ.get('AZURE_CLIENT_ID', '')}".strip()
    if own:
        return Finding(AREA, True, f"there is a token for {session.endpoint}, as {who}")
    told = f"what the agent may do: {session.endpoint} is asked as {who}, with this shell's own credentials"
    return Finding(AREA, None, told, "run doctor in the agent's pod to try the agent's")


# ---------------------------------------------------------------- the machine


def _route(options: Options, machine: Machine, able: Abilities, steps: frozenset[Step]) -> Iterator[Finding]:
    """The steps that this machine cannot have, and what AKS supports of the others."""
    on_aks = "aks" in machine.route
    if lacking := ", ".join(sorted(steps - able.actions)):
        note = f": {able.note}" if able.note else ""
        told = f"{named(machine.route)} cannot have {lacking}{note}"
        yield Finding(AREA, True, told, "`run` ends at once where POLICY_FILE asks for it: leave it out")
    elif on_aks and able.note:
        yield Finding(AREA, True, able.note)
    if on_aks and COMPUTE in options.allow:
        told = (
            f"AZURE_ALLOW has {COMPUTE}: AKS's support policy covers no change of its nodes by the compute "
            "API, and a locked node resource group refuses it"
        )
        yield Finding(AREA, True, told, "leave it out, unless that is accepted: see docs/azure.md")


def _possible(provider: Asked, machine: Machine, step: Step, own: bool) -> tuple[Finding, Preflight | None]:
    """Whether ``step`` could be asked for now, as a recovery would find out."""
    what = f"{step.value} of {named(machine.route)}"
    try:
        found = provider.preflight(machine, step)
    except Retry as error:
        return Finding(AREA, None, f"{what}: {error.reason}", "ask again"), None
    except Refused as error:
        denied = error.reason.startswith(DENIED)
        remedy = ROLES if denied else f"if that stays so, leave {step.value} out of the policy"
        return Finding(AREA, False if own or not denied else None, f"{what}: {error.reason}", remedy), None
    if found.adopt:
        return Finding(AREA, True, f"{what} would not be asked for: {found.adopt}"), found
    if found.not_yet or found.short_by:
        why = found.not_yet or f"{found.group} is short by {found.short_by}"
        return Finding(AREA, True, f"{what} would have to wait: {why}"), found
    return Finding(AREA, True, f"{what} could be asked for"), found


# ---------------------------------------------------------------- permissions


def _needed(options: Options, machine: Machine, step: Step, ready: Preflight | None) -> Iterator[Right]:
    """What ``step`` needs beyond the reads, which were tried. A capacity is set back only without an
    autoscaler."""
    route = machine.route
    kind = "flexible" if route["kind"] == VM else "uniform"
    vm = Right(machine.provider_id.removeprefix("azure://"), named(route), BY_ROUTE[kind][step])
    if step is not Step.REPLACE:
        yield from (vm, _status(route))
        return
    data = ready.reference.data if ready is not None else {}
    restore = bool(data.get("restore", not options.autoscaler))
    if "aks" in route:
        if options.cluster is not None:
            actions = BY_ROUTE["aks"][step] - (frozenset() if restore else CAPACITY["aks"])
            yield Right(_path_of(options.cluster), f"AKS cluster {options.cluster.name}", actions)
        return
    actions = BY_ROUTE[kind][step] - (frozenset() if restore else CAPACITY[kind])
    of_set = frozenset(action for action in actions if "/virtualMachines/" not in action)
    yield from (Right(vm.scope, vm.place, actions - of_set), _status(route))
    if name := data.get("scale_set") or route.get("scale_set"):
        yield Right(set_id({**route, "scale_set": name}), f"scale set {name}", of_set)


def _status(route: Mapping[str, str]) -> Right:
    """Reading an operation's status is a permission on the resource group, not on a scale set or VM."""
    scope = f"/subscriptions/{route['subscription']}/resourceGroups/{route['resource_group']}"
    lost = "how an operation stands is then unknown, until the node boots or the step's deadline"
    return Right(scope, f"resource group {route['resource_group']}", STATUS, lost)


def _path_of(cluster: Cluster) -> str:
    return (
        f"/subscriptions/{cluster.subscription}/resourceGroups/{cluster.group}"
        f"/providers/Microsoft.ContainerService/managedClusters/{cluster.name}"
    )


def _by_scope(rights: Iterable[Right]) -> Iterable[Right]:
    """The rights grouped by scope, so that each scope's permissions are listed once."""
    found: dict[tuple[str, str], Right] = {}
    for right in rights:
        known = found.setdefault((right.scope, right.without), right)
        found[right.scope, right.without] = replace(known, actions=known.actions | right.actions)
    return found.values()


def _permitted(session: AzureSession, rights: Iterable[Right]) -> Iterator[Finding]:
    """One request for each scope. Once one is denied, no more are made: the others would be denied too."""
    for right in rights:
        path = f"{right.scope}/providers/Microsoft.Authorization/permissions?api-version={VERSION}"
        try:
            answer = session.get(right.subscription, path, "a list of one's own permissions")
        except (Retry, Refused) as error:
            told = f"what the identity may do on {right.place} is not known: {error.reason}"
            yield Finding(AREA, None, told, f"as an administrator, {ROLES}")
            if isinstance(error, Refused):
                return
            continue
        yield _weighed(right, answer)


def _weighed(right: Right, answer: Mapping[str, Any]) -> Finding:
    listed = answer.get("value") or ()
    missing = ", ".join(sorted(a for a in right.actions if not granted(a, listed, right.data)))
    if not missing:
        told = ", ".join(sorted(right.actions))
        return Finding(AREA, True, f"the identity may use {told} on {right.place}")
    told = f"the identity may not use {missing} on {right.place}"
    if answer.get("nextLink"):
        return Finding(AREA, None, f"{told}, by the first page of a longer list", ROLES)
    if right.without:
        return Finding(AREA, True, f"{told}: {right.without}", ROLES)
    return Finding(AREA, False, told, ROLES)


def granted(action: str, permissions: Iterable[Mapping[str, Any]], data: bool = False) -> bool:
    """Whether one of ``permissions`` allows ``action`` and does not exclude it again."""
    field, back = ("dataActions", "notDataActions") if data else ("actions", "notActions")

    def fits(patterns: Any) -> bool:
        return any(fnmatchcase(action.lower(), str(p).lower()) for p in patterns or ())

    return any(fits(p.get(field)) and not fits(p.get(back)) for p in permissions)


# ---------------------------------------------------------------- Azure Monitor


def _to_tell(environ: Mapping[str, str]) -> Iterator[Right]:
    """The right to publish metrics of AZURE_CLUSTER_ID, if that is set. Raises ``SettingsError``."""
    check_all((CLUSTER_ID, MONITOR), environ)
    if subject := CLUSTER_ID.of(environ).id:
        lost = "it recovers, and Azure Monitor hears nothing"
        yield Right(subject, subject.rpartition("/")[2], PERMISSIONS["monitor"], lost, data=True)


def _silent(environ: Mapping[str, str]) -> Iterator[Finding]:
    missing = [name for name in ("AZURE_CLUSTER_ID", "AZURE_REGION") if not environ.get(name)]
    if missing:
        told = f"{' and '.join(missing)} not set: it recovers, and Azure Monitor hears nothing"
        yield Finding(AREA, True, told, "set both, or have Prometheus read the agents' own pages")
