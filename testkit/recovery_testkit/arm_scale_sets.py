"""What the fake Azure Resource Manager answers for scale sets and virtual machines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from recovery_testkit.arm_answers import (
    GROUP,
    VERBS,
    Call,
    accepted,
    etag,
    expanded,
    key_of,
    machine_body,
    page,
    require,
    route,
    set_body,
    unknown,
    view,
)
from recovery_testkit.arm_http import Answer
from recovery_testkit.arm_state import COMPUTE, ArmError, ArmState, Instance, Operation, ScaleSet

_SET = GROUP + r"Microsoft\.Compute/virtualMachineScaleSets/(?P<set>[^/]+)"
_MEMBER = _SET + "/virtualMachines/(?P<instance>[^/]+)"
_VMS = GROUP + r"Microsoft\.Compute/virtualMachines"
_VM = _VMS + "/(?P<vm>[^/]+)"
_MUST_RUN = ("restart",)
_FILTER = re.compile(r"'virtualMachineScaleSet/id' eq '?([^']+)'?", re.IGNORECASE)


# ---------------------------------------------------------------- scale sets


@route("GET", _SET, "Microsoft.Compute/virtualMachineScaleSets/read")
def _read_set(azure: ArmState, call: Call) -> Answer:
    return Answer(200, set_body(azure, _scale_set(azure, call)))


@route("PATCH", _SET, "Microsoft.Compute/virtualMachineScaleSets/write")
def _patch_set(azure: ArmState, call: Call) -> Answer:
    """Set the capacity. More launches instances; fewer deletes those with the highest ids, and is counted."""
    scale_set = _scale_set(azure, call)
    unchanged(call, scale_set)
    if set(call.body) - {"sku", "tags"}:
        raise unknown(f"a PATCH of {', '.join(sorted(call.body))}")
    wanted = call.body.get("sku", {}).get("capacity", scale_set.capacity)
    operation = resize(azure, scale_set, wanted, "sku.capacity", scale_set.id)
    return accepted(azure, call, operation, Answer(200, set_body(azure, scale_set)))


def unchanged(call: Call, scale_set: ScaleSet) -> None:
    """412, if the client wants it unchanged since it read it, and it is not."""
    expected = call.headers.get("if-match", "*")
    if expected not in ("*", etag(scale_set)):
        raise ArmError(412, "PreconditionFailed", f"The etag '{expected}' is not that of '{scale_set.name}'.")


def resize(
    azure: ArmState, scale_set: ScaleSet, wanted: Any, name: str, owner: str, provider: str = COMPUTE
) -> Operation:
    """What a new capacity sets going. ``name`` is the parameter's; the state of ``owner`` shows it."""
    if type(wanted) is not int or not 0 <= wanted <= 1000:
        raise ArmError(400, "InvalidParameter", f"The value of parameter {name} is invalid.", name)
    if wanted < scale_set.capacity:
        staying = [i for i in azure.members(scale_set.id) if i.provisioning != "Deleting"]
        leaving = staying[wanted - scale_set.capacity :]
        azure.scaled_in += len(leaving)
        return azure.begin("delete", [i.id for i in leaving], scale_set.location, owner, provider)
    missing = wanted - scale_set.capacity
    surplus = scale_set.overprovision if missing else 0
    new = [azure.launch(scale_set) for _ in range(missing + surplus)]
    operation = azure.begin("create", [i.id for i in new], scale_set.location, owner, provider)
    operation.surplus = surplus
    if azure.capacity_shows_late:
        operation.capacity = wanted
    else:
        scale_set.capacity, scale_set.version = wanted, scale_set.version + 1
    return operation


@route("DELETE", _SET, "Microsoft.Compute/virtualMachineScaleSets/delete")
def _delete_set(azure: ArmState, call: Call) -> Answer:
    """The scale set with all that is in it."""
    scale_set = _scale_set(azure, call)
    azure.whole_set_calls += 1
    answer = _act(azure, call, "delete", azure.members(scale_set.id), scale_set.id)
    del azure.scale_sets[scale_set.id.lower()]
    return answer


@route("POST", _SET + "/(?P<verb>[^/]+)", "Microsoft.Compute/virtualMachineScaleSets/{verb}/action")
def _act_on_set(azure: ArmState, call: Call) -> Answer:
    """Without instanceIds it acts on every instance. (Azure wants them for a delete; this is harsher.)"""
    scale_set = _scale_set(azure, call)
    ids = [str(i) for i in call.body.get("instanceIds") or ["*"]]
    if "*" in ids:
        azure.whole_set_calls += 1
        return _act(azure, call, call.verb, azure.members(scale_set.id), scale_set.id)
    members = {(i.instance_id or i.name): i for i in azure.members(scale_set.id)}
    if absent := [i for i in ids if i not in members]:
        raise _not_active(absent[0])
    return _act(azure, call, call.verb, [members[i] for i in ids], scale_set.id)


# ---------------------------------------------------------------- instances of Uniform scale sets


@route("GET", _SET + "/virtualMachines", "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read")
def _list_members(azure: ArmState, call: Call) -> Answer:
    if set(call.query) & {"$filter", "$select"}:
        raise unknown("$filter and $select of a scale set's instances")
    members = azure.members(_uniform(azure, call, "GET").id)
    return page(call, [machine_body(azure, i, expanded(call)) for i in members])


@route("GET", _MEMBER, "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read")
def _read_member(azure: ArmState, call: Call) -> Answer:
    return Answer(200, machine_body(azure, _member(azure, call), expanded(call)))


@route(
    "GET",
    _MEMBER + "/instanceView",
    "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/instanceView/read",
)
def _view_member(azure: ArmState, call: Call) -> Answer:
    return Answer(200, view(azure, _member(azure, call)))


@route("DELETE", _MEMBER, "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/delete")
def _delete_member(azure: ArmState, call: Call) -> Answer:
    return _act_on_members(azure, call, "delete")


@route(
    "POST",
    _MEMBER + "/(?P<verb>[^/]+)",
    "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/{verb}/action",
)
def _act_on_member(azure: ArmState, call: Call) -> Answer:
    return _act_on_members(azure, call, call.verb)


def _act_on_members(azure: ArmState, call: Call, verb: str) -> Answer:
    scale_set = _uniform(azure, call, verb)
    if call.parts["instance"] == "*":  # azure-cli's test_vmss_vms has DELETE .../virtualmachines/%2A
        azure.whole_set_calls += 1
        return _act(azure, call, verb, azure.members(scale_set.id), scale_set.id)
    machine = azure.instances.get(f"{scale_set.id}/virtualMachines/{_number(call)}".lower())
    if machine is None and verb == "delete":
        return Answer(204)
    if machine is None:
        raise _not_active(call.parts["instance"])
    return _act(azure, call, verb, [machine], scale_set.id if verb == "delete" else "")


# ---------------------------------------------------------------- Flexible members and single machines


@route("GET", _VMS, "Microsoft.Compute/virtualMachines/read")
def _list_vms(azure: ArmState, call: Call) -> Answer:
    prefix = key_of(azure, call, f"{COMPUTE}/virtualMachines/")
    found = [i for key, i in azure.instances.items() if key.startswith(prefix)]
    if wanted := call.query.get("$filter"):
        if not (match := _FILTER.fullmatch(wanted.strip())):
            raise ArmError(400, "BadRequest", f"The filter '{wanted}' is not supported.")
        found = [i for i in found if i.scale_set.lower() == match[1].lower()]
    return page(call, [machine_body(azure, i, expanded(call)) for i in found])


@route("GET", _VM, "Microsoft.Compute/virtualMachines/read")
def _read_vm(azure: ArmState, call: Call) -> Answer:
    return Answer(200, machine_body(azure, _vm(azure, call), expanded(call)))


@route("GET", _VM + "/instanceView", "Microsoft.Compute/virtualMachines/instanceView/read")
def _view_vm(azure: ArmState, call: Call) -> Answer:
    return Answer(200, view(azure, _vm(azure, call)))


@route("DELETE", _VM, "Microsoft.Compute/virtualMachines/delete")
def _delete_vm(azure: ArmState, call: Call) -> Answer:
    machine = azure.instances.get(key_of(azure, call, f"{COMPUTE}/virtualMachines/{call.parts['vm']}"))
    return _act(azure, call, "delete", [machine], machine.scale_set) if machine else Answer(204)


@route("POST", _VM + "/(?P<verb>[^/]+)", "Microsoft.Compute/virtualMachines/{verb}/action")
def _act_on_vm(azure: ArmState, call: Call) -> Answer:
    machine = _vm(azure, call)
    if call.verb == "reimage" and not machine.ephemeral:
        message = f"Operation 'reimage' is not allowed on VM '{machine.name}': its OS disk is not ephemeral."
        raise ArmError(409, "OperationNotAllowed", message)
    return _act(azure, call, call.verb, [machine], "")


# ---------------------------------------------------------------- what is there, and what is not


def _scale_set(azure: ArmState, call: Call) -> ScaleSet:
    path = f"{COMPUTE}/virtualMachineScaleSets/{call.parts['set']}"
    found: ScaleSet = require(azure, call, path, azure.scale_sets)
    return found


def _vm(azure: ArmState, call: Call) -> Instance:
    found: Instance = require(azure, call, f"{COMPUTE}/virtualMachines/{call.parts['vm']}", azure.instances)
    return found


def _uniform(azure: ArmState, call: Call, verb: str) -> ScaleSet:
    """Flexible scale sets have no operations under .../virtualMachines (azure-sdk-for-go issue 19707)."""
    scale_set = _scale_set(azure, call)
    if not scale_set.uniform:
        if "instance" in call.parts:
            _number(call)
        what = f"Operation 'VirtualMachineScaleSets.virtualMachines.{verb}' is not allowed on "
        raise ArmError(400, "BadRequest", f"{what}Virtual Machine Scale Set '{scale_set.name}'.")
    return scale_set


def _number(call: Call) -> str:
    if not call.parts["instance"].isdigit():
        message = "Virtual Machine Scale Set VM instanceId must be a number."
        raise ArmError(400, "InvalidParameter", message, "instanceId")
    return call.parts["instance"]


def _member(azure: ArmState, call: Call) -> Instance:
    scale_set = _uniform(azure, call, "GET")
    machine = azure.instances.get(f"{scale_set.id}/virtualMachines/{_number(call)}".lower())
    if machine is None:
        raise ArmError(404, "NotFound", "The entity was not found in this Azure location.")
    return machine


def _not_active(instance: str) -> ArmError:
    message = f"The provided instanceId {instance} is not an active Virtual Machine Scale Set VM instanceId."
    return ArmError(400, "InvalidParameter", message, "instanceIds")


# ---------------------------------------------------------------- what is done


def _act(azure: ArmState, call: Call, verb: str, machines: Sequence[Instance], owner: str) -> Answer:
    if verb not in VERBS:
        raise unknown(f"the operation {verb}")
    for machine in machines:
        _check(azure, call, verb, machine)
    location = machines[0].location if machines else azure.scale_sets[owner.lower()].location
    return accepted(azure, call, azure.begin(verb, [m.id for m in machines], location, owner), Answer(202))


def _check(azure: ArmState, call: Call, verb: str, machine: Instance) -> None:
    what = f"Operation '{verb}' is not allowed on VM '{machine.name}' since "
    if verb == "delete" and azure.running(machine.id):
        message = "The request failed due to conflict with a concurrent request. To resolve it, please refer "
        message += "to https://aka.ms/activitylog to get more details on the conflicting requests."
        raise ArmError(409, "Conflict", message)
    if machine.provisioning == "Deleting":
        what += "the VM is marked for deletion. You can only retry the Delete operation (or wait for an "
        raise ArmError(409, "OperationNotAllowed", what + "ongoing one to complete).")
    if azure.running(machine.id):
        raise ArmError(409, "OperationNotAllowed", what + "another operation is in progress.")
    if verb in _MUST_RUN and machine.power != "running":
        message = "The operation requires the VM to be running (or set to run)."
        raise ArmError(409, "OperationNotAllowed", message)
    if verb.startswith("reimage") and "tempDisk" in call.body and not machine.ephemeral:
        raise ArmError(400, "InvalidParameter", "The value of parameter tempDisk is invalid.", "tempDisk")
