"""How an action stands, from what Azure says now. Accepted is not done: Azure may carry it out much later."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from providers.azure import aks, machines
from providers.azure.errors import operation_failed
from providers.azure.identity import UNIFORM, route_of
from providers.azure.machines import Vm, named
from providers.azure.session import AzureSession, operation_id
from providers.azure.settings import Cluster
from recovery.errors import Refused, Retry
from recovery.model import Done, Failed, Gone, Machine, NotApplied, Poll, Running, Unfinished, Unseen
from recovery.provider.known import KEY, has

VERSION = "2024-07-01"
"""The API version of an operation's status, for which the SDK has no method."""
IN_THE_MACHINE = ("VMExtension", "VMAgent", "OSProvisioning", "VMStartTimedOut")
"""How the code of an error begins that is about what runs in the VM. Azure has done its own part: an
extension failed, and each step that boots a VM tries it again, or the guest did not say in time that it is
up. "The VM may still finish provisioning successfully" is Azure's word of that."""
MAY_BOOT = (*IN_THE_MACHINE, "OperationPreempted")
"""How the code begins of an operation that is Failed or Canceled, and whose VM may boot all the same. One
that a more recent operation has ended may have done its part by then (azure-sdk-for-java#1783)."""
Data = Mapping[str, Any]
PROOF = "a new boot ID is the proof"
Look = Callable[[Data], machines.ScaleSet | None]
"""None: what is looked at is surely not there. Raises ``Retry`` or ``Refused``."""


@dataclass(frozen=True)
class Operation:
    """``state`` is InProgress, Succeeded, Failed or Canceled; ``code`` is that of the error."""

    state: str
    reason: str = ""
    code: str = ""

    @property
    def failed(self) -> bool:
        return self.state in ("Failed", "Canceled")


def operation(session: AzureSession, data: Data) -> Operation | None:
    """The operation on the record; None where there is none, or where it cannot be read.

    Its address is made here, of the configured endpoint: one from a record would be given the token.
    """
    found, location = operation_id(str(data.get("operation", ""))), str(data.get("location", ""))
    if not found or not location.isalnum():
        return None
    path = (
        f"/subscriptions/{data['subscription']}/providers/Microsoft.Compute/locations/{location}"
        f"/operations/{found}?api-version={VERSION}"
    )
    try:
        answer = session.get(str(data["subscription"]), path, f"a look at operation {found}")
    except (Retry, Refused):
        return None  # not permitted, or forgotten by Azure: unknown, and not failed
    state = answer.get("status")
    if not isinstance(state, str) or not state:
        return None  # it is no operation's status
    error = answer.get("error")
    code = str(error.get("code") or "") if isinstance(error, Mapping) else ""
    return Operation(state, operation_failed(error), code)


def in_place(session: AzureSession, machine: Machine, data: Data, action: str) -> Poll:
    """Restart, reimage, redeploy. Whether it has booted is not known here: the agent compares boot IDs."""
    what = named(data)
    known = operation(session, data)
    found = machines.vm(session, data)
    if found is None or found.id != machine.id:
        return _gone(what, found)
    if found.state == "Deleting":  # which ends whatever was under way
        return Unseen(f"{what} is being deleted: it will not boot again")
    if known is not None and known.failed and not known.code.startswith(MAY_BOOT):
        return Failed(f"the {action} of {what} {known.state.lower()}: {known.reason}")
    if known is not None and known.failed:
        where = " in the VM" if known.code.startswith(IN_THE_MACHINE) else ""
        return Running(f"the {action} of {what} {known.state.lower()}{where}: {known.reason}; {PROOF}")
    if known is not None and known.state == "Succeeded":
        return Running(f"Azure has ended the {action} of {what}, which has not booted anew yet")
    if known is not None:
        return Running(f"Azure has accepted the {action} of {what}, and has not ended it")
    if stands_still(found.state):
        return Running(f"{what} is {found.state}")
    if _failed_since(data, found.state):
        why = _why(session, data)
        if why.startswith(MAY_BOOT):
            by = ", by what is in it" if why.startswith(IN_THE_MACHINE) else ""
            return Running(f"{what} is {found.state} after the {action}{by} ({why}); {PROOF}")
        return Failed(f"{what} is {found.state} after the {action}")
    if data.get("operation"):
        return Running(f"Azure has accepted the {action} of {what}, which is {found.state}")
    return _without_answer(session, machine, data, action)


def _without_answer(session: AzureSession, machine: Machine, data: Data, action: str) -> Poll:
    """The answer was lost, and no operation is under way: was there one since?

    Azure ends a restart long before the machine is up, and shows no more of it than from when the VM is in
    its state ("States and billing of Azure Virtual Machines", Instance View; a restart is an update there).
    To ask again would interrupt that boot.
    """
    what, found = named(data), machines.vm(session, data, since=True)
    if found is None or found.id != machine.id:
        return _gone(what, found)
    if not found.since or not data.get("since"):
        told = f"{what} is {found.state}, and Azure does not say since when"
        return Unseen(f"{told}: whether its {action} was ever accepted is not known")
    if found.since != data["since"]:
        return Running(f"{what} is {found.state}, and Azure has been at work on it since the {action}")
    return NotApplied(f"{what} is {found.state} as before, and no operation is under way")


def _why(session: AzureSession, data: Data) -> str:
    """The code of what the VM is Failed by; "" where Azure does not say."""
    with contextlib.suppress(Retry, Refused):
        found = machines.vm(session, data, since=True)
        return found.why if found is not None else ""
    return ""


def _failed_since(data: Data, state: str) -> bool:
    """Whether it is Failed, or Canceled (``az aks nodepool operation-abort``), by what was asked. It may have
    been so before: a failing extension is enough."""
    return state in ("Failed", "Canceled") and bool(data.get("operation")) and data.get("was") != state


def _gone(what: str, found: Vm | None) -> Gone:
    if found is None:
        return Gone(f"{what} does not exist any more: it will not boot again")
    return Gone(f"the machine that was {what} is gone: another one has its number")


def replaced(session: AzureSession, machine: Machine, data: Data, look: Look) -> Poll:
    """The VM deleted, the capacity set back, another VM in its place. ``look``: at its scale set."""
    what = named(data)
    found = machines.vm(session, data)
    if found is not None and found.id == machine.id:
        return _still_there(session, data, what, found)
    group = look(data)
    if group is None:
        return Failed(
            f"{what} is gone, and so is scale set {data['scale_set']}: nothing will take the place of the VM"
        )
    found_there = machines.members(session, data)
    if any(m.id == machine.id for m in found_there):
        return Running(f"{what} is not there, and scale set {group.name} still lists it: asking again")
    wanted = int(data["capacity"])
    if data.get("restore") and group.capacity == wanted - 1:
        wants = f"scale set {group.name} wants {group.capacity} VMs, and is to want {wanted}"
        if stands_still(group.state):
            return Running(f"{what} is gone; {wants}: it is {group.state}, and is not asked before that ends")
        return Unfinished(f"{what} is gone; {wants}")
    old = data.get(KEY)
    # One that was made since, is Failed and does not run, has taken nobody's place.
    made = machines.with_machine(session, data, [m for m in found_there if not has(old, m.id)])
    present = [m for m in found_there if m.there and has(old, m.id)] + made
    newcomers = tuple(m.id for m in made if m.id)
    if newcomers and (more := may_be_removed(group, len(found_there))):
        return Running(f"{what} is gone; {more}")
    if newcomers:
        return Done(
            f"{what} is gone, and scale set {group.name} has {len(newcomers)} new since",
            newcomers,
            complete=len(present) >= min(group.capacity, wanted),
        )
    if stuck := [m for m in found_there if m.there and not has(old, m.id) and m not in made]:
        new = named({**data, "instance": stuck[0].name, "vm": stuck[0].name})
        return Running(f"{what} is gone, and {new}, which is new, is {stuck[0].state} and got no machine")
    if _made_smaller(data, group.capacity) and len(present) >= group.capacity and not group.under_way:
        wants = f"scale set {group.name} wants {group.capacity} VMs now instead of {wanted}"
        return Done(f"{what} is gone, and {wants}", fewer=True)
    return Running(_nothing_new(what, group, wanted, len(present)))


def _made_smaller(data: Data, wants: int) -> bool:
    """Whether somebody has had the group want fewer machines since the step was asked for, so that none takes
    the old one's place. Where an autoscaler decides, it may still want one."""
    wanted = int(data["capacity"])
    return wants < (wanted - 1 if data.get("restore") else wanted if data.get("adopted") else 0)


def stands_still(state: str) -> bool:
    """Whether Azure is at work on a VM, scale set or pool, so that nothing more is asked of it now."""
    return state not in machines.ENDED


def may_be_removed(group: machines.ScaleSet, there: int) -> str:
    """Why a VM that is new may still be removed by Azure itself; empty where it stays.

    A scale set that overprovisions makes too many, and deletes some once enough are there: old or new, ready
    or not. It is over once it has as many as it wants and nothing is under way.
    """
    if not group.overprovision:
        return ""
    if there > group.capacity:
        many = f"scale set {group.name} has {there} VMs and wants {group.capacity}"
        return f"{many}: it overprovisions, and removes some of the new ones again"
    if group.under_way:
        return f"scale set {group.name} is {group.state}: it overprovisions, and may remove a new VM again"
    return ""


def _still_there(session: AzureSession, data: Data, what: str, found: Vm) -> Poll:
    if found.state == "Deleting":  # by a more recent request, maybe, which has ended ours
        return Running(f"{what} is being deleted")
    known = operation(session, data)
    if known is not None and known.failed:
        return Failed(f"the deletion of {what} {known.state.lower()}: {known.reason}")
    if data.get("operation"):
        return Running(f"Azure has accepted the deletion of {what}, which is {found.state}")
    if stands_still(found.state):
        return Running(f"{what} is {found.state}")
    return NotApplied(f"{what} is {found.state}, and is not being deleted")


def _nothing_new(what: str, group: machines.ScaleSet, wanted: int, there: int) -> str:
    if group.capacity < wanted:
        wants = f"scale set {group.name} wants {group.capacity} VMs and not {wanted} any more"
        return f"{what} is gone, and {wants}: somebody has changed it, or an autoscaler decides"
    if there >= group.capacity:
        has_all = f"{what} is gone, and scale set {group.name} has the {group.capacity} VMs that it wants"
        return f"{has_all}: whether one of them took its place is not known"
    return f"{what} is gone, and scale set {group.name}{_failed(group.state)} has no new VM yet"


def _failed(state: str) -> str:
    """What Azure's last change of it came to, where that is why nothing new comes: it has no room, say."""
    return "" if state == machines.READY or stands_still(state) else f", which is {state},"


def deleted(session: AzureSession, machine: Machine, data: Data, cluster: Cluster) -> Poll:
    """A machine of AKS's, deleted by AKS; the pool's count set back; another machine in its place."""
    pool_name, name = str(data["pool"]), str(data["node"])
    what = f"machine {name} of pool {pool_name}"
    there = machines.vm(session, data)
    pool = aks.pool(session, cluster, pool_name)
    if there is not None and there.id == machine.id:  # a new one may have its name, and its path
        if there.state == "Deleting":  # whatever AKS says of its pool
            return Running(f"{what} is being deleted, and pool {pool_name} is {pool.state}")
        if _failed_since(data, pool.state):
            return Failed(f"pool {pool_name} is {pool.state}, and {what} is still there")
        if stands_still(pool.state) or data.get("operation"):
            return Running(f"{what} is there, and pool {pool_name} is {pool.state}")
        return NotApplied(f"{what} is there, and pool {pool_name} is {pool.state}")
    wanted = int(data["capacity"])
    if data.get("restore") and not pool.scaled and pool.count == wanted - 1:
        wants = f"pool {pool_name} wants {pool.count} machines, and is to want {wanted}"
        if stands_still(pool.state):
            return Running(f"{what} is gone; {wants}: it is {pool.state}, and is not asked before that ends")
        return Unfinished(f"{what} is gone; {wants}")
    present = aks.machines(session, cluster, pool_name)
    old = data.get(KEY)
    made = _made(session, data, cluster, {x: path for x, path in present.items() if not has(old, x)})
    if newcomers := tuple(x for x in made if x and x != machine.id):
        complete = len(present) >= min(pool.count, wanted)
        told = f"{what} is gone, and pool {pool_name} has {len(newcomers)} new since"
        return Done(told, newcomers, complete)
    if _made_smaller(data, pool.count) and len(present) >= pool.count and not stands_still(pool.state):
        wants = f"pool {pool_name} wants {pool.count} machines now instead of {wanted}"
        return Done(f"{what} is gone, and {wants}", fewer=True)
    return Running(f"{what} is gone, and pool {pool_name}{_failed(pool.state)} has no new machine yet")


def _made(session: AzureSession, data: Data, cluster: Cluster, new: Mapping[str, str]) -> list[str]:
    """The unique IDs of the VMs of ``new`` machines of a pool, which AKS does not tell. One that is
    being made has none, or is left out. Those in the scale set of the old machine are asked about by one
    list: it may have grown by hundreds meanwhile."""
    pool = str(data["pool"])
    paths = (path or aks.machine(session, cluster, pool, name) for name, path in new.items())
    routes = [route for path in paths if (route := route_of(f"azure://{path}")) is not None]
    numbers = {route["instance"] for route in routes if _beside(data, route)}
    there = [vm for vm in machines.members(session, data) if vm.name in numbers] if numbers else []
    made = [vm.id for vm in machines.with_machine(session, data, there)]
    return made + [_unique(session, route) for route in routes if not _beside(data, route)]


def _beside(data: Data, route: machines.Route) -> bool:
    """Whether the VM of ``route`` is in the same Uniform scale set as that of ``data``."""
    same = data["kind"] == route["kind"] == UNIFORM
    return same and machines.set_id(route).lower() == machines.set_id(data).lower()


def _unique(session: AzureSession, route: machines.Route) -> str:
    """The unique ID of the VM of a route, where it got a machine; else empty."""
    found = machines.named_or_not(session, route)
    return found.id if found is not None and machines.has_machine(session, route, found) else ""
