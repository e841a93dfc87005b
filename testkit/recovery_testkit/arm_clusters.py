"""What the fake Azure Resource Manager answers for managed clusters, their pools, and operations.

Deleting machines lowers a pool's count and launches nothing in their place, as in azure-cli's recording
test_aks_nodepool_delete_machines.
"""

from __future__ import annotations

from recovery_testkit.arm_answers import (
    GROUP,
    SUBSCRIPTION,
    Call,
    Json,
    accepted,
    etag,
    iso,
    page,
    require,
    route,
    wait,
)
from recovery_testkit.arm_http import Answer
from recovery_testkit.arm_scale_sets import resize, unchanged
from recovery_testkit.arm_state import AKS, ArmError, ArmState, Cluster, Instance, ScaleSet

_CLUSTER = GROUP + r"Microsoft\.ContainerService/managedClusters/(?P<cluster>[^/]+)"
_POOL = _CLUSTER + "/agentPools/(?P<pool>[^/]+)"
_OPERATION = (
    SUBSCRIPTION
    + r"/providers/(?P<provider>Microsoft\.(?:Compute|ContainerService))/locations/(?P<location>[^/]+)"
    + "/(?P<kind>operations|operationresults)/(?P<operation>[^/]+)"
)
_ACTION = "Microsoft.ContainerService/managedClusters"
_STRANGER = (
    "Only the original caller of an asynchronous operation is allowed to retrieve the results. The content "
    "hash provided in the query params of the request uri does not match the expected hash"
)
"""Azure's own words (MicrosoftDocs/azure-docs issue 119301)."""
_PENDING = (
    "Operation is not allowed: Another operation (Updating) is in progress, please wait for it to finish "
    "before starting a new operation. See https://aka.ms/aks-pending-operation for more details"
)
"""Likewise (Azure/terraform-azurerm-avm-ptn-aks-production pull request 25)."""


@route("GET", _CLUSTER, _ACTION + "/read")
def _read_cluster(azure: ArmState, call: Call) -> Answer:
    cluster = _cluster(azure, call)
    pools = [{"name": name, **_pool_properties(azure, cluster, name)} for name in cluster.pools]
    properties = {"provisioningState": "Succeeded", "agentPoolProfiles": pools}
    body = {"id": cluster.id, "name": cluster.name, "location": cluster.location, "properties": properties}
    return Answer(200, {**body, "type": "Microsoft.ContainerService/ManagedClusters"})


@route("GET", _CLUSTER + "/agentPools", _ACTION + "/agentPools/read")
def _list_pools(azure: ArmState, call: Call) -> Answer:
    cluster = _cluster(azure, call)
    return page(call, [_pool_body(azure, cluster, name) for name in cluster.pools])


@route("GET", _POOL, _ACTION + "/agentPools/read")
def _read_pool(azure: ArmState, call: Call) -> Answer:
    return Answer(200, _pool_body(azure, *_pool(azure, call)))


@route("PUT", _POOL, _ACTION + "/agentPools/write")
def _write_pool(azure: ArmState, call: Call) -> Answer:
    """Set the count of a pool that is there; what else a pool is made of stays as it is."""
    cluster, name = _pool(azure, call)
    scale_set = _scale_set(azure, cluster, name)
    unchanged(call, scale_set)
    wanted = call.body.get("properties", {})
    if wanted.get("vmSize") != scale_set.size:
        message = "Changing property 'properties.vmSize' is not allowed."
        raise ArmError(400, "PropertyChangeNotAllowed", message, "properties.vmSize")
    owner = f"{cluster.id}/agentPools/{name}"
    if azure.running(owner):
        raise ArmError(409, "OperationNotAllowed", _PENDING)
    operation = resize(azure, scale_set, wanted.get("count"), "count", owner, AKS)
    return accepted(azure, call, operation, Answer(200, _pool_body(azure, cluster, name)))


@route("GET", _POOL + "/machines", _ACTION + "/agentPools/machines/read")
def _list_machines(azure: ArmState, call: Call) -> Answer:
    cluster, name = _pool(azure, call)
    members = azure.members(cluster.pools[name])
    return page(call, [_machine_body(cluster, name, m) for m in members])


@route("GET", _POOL + "/machines/(?P<machine>[^/]+)", _ACTION + "/agentPools/machines/read")
def _read_machine(azure: ArmState, call: Call) -> Answer:
    cluster, name = _pool(azure, call)
    wanted = call.parts["machine"].lower()
    found = (m for m in azure.members(cluster.pools[name]) if m.computer_name == wanted)
    if (machine := next(found, None)) is None:
        raise ArmError(404, "NotFound", f"Machine '{call.parts['machine']}' was not found in pool '{name}'.")
    return Answer(200, _machine_body(cluster, name, machine))


@route("POST", _POOL + "/deleteMachines", _ACTION + "/agentPools/deleteMachines/action")
def _delete_machines(azure: ArmState, call: Call) -> Answer:
    cluster, name = _pool(azure, call)
    owner = f"{cluster.id}/agentPools/{name}"
    members = {m.computer_name: m for m in azure.members(cluster.pools[name])}
    wanted = call.body.get("machineNames")
    if not wanted or not set(wanted) <= set(members):
        raise ArmError(
            400, "InvalidParameter", "The value of parameter machineNames is invalid.", "machineNames"
        )
    if azure.running(owner, *(members[w].id for w in wanted)):
        raise ArmError(409, "OperationNotAllowed", _PENDING)
    operation = azure.begin("delete", [members[w].id for w in wanted], cluster.location, owner, AKS)
    return accepted(azure, call, operation, Answer(202))


@route("GET", _OPERATION, "{provider}/locations/{kind}/read")
def _read_operation(azure: ArmState, call: Call) -> Answer:
    """Its status; a failure comes under 200. The result, at Location, is 202 until the end, then empty."""
    operation = azure.operations.get(call.parts["operation"].lower())
    asked = (call.parts["provider"].lower(), call.parts["location"].lower())
    if operation is None or asked != (operation.provider.lower(), operation.location.lower()):
        raise ArmError(404, "NotFound", "The entity was not found in this Azure location.")
    if azure.signatures_required and call.query.get("h") != operation.signature:
        raise ArmError(403, "AuthorizationFailed", _STRANGER)
    if call.parts["kind"] == "operationresults" or call.query.get("monitor") == "true":
        if operation.ended is None:
            return Answer(202, headers={"Location": f"{call.base}{call.path}", **wait(call)})
        if operation.failure is None:
            return Answer(204 if operation.provider == AKS else 200)
    body: Json = {"name": operation.id, "status": operation.status, "startTime": iso(operation.started)}
    if operation.ended is not None:
        body["endTime"] = iso(operation.ended)
        if operation.failure:
            body["error"] = dict(zip(("code", "message"), operation.failure, strict=True))
    return Answer(200, body, {} if operation.ended is not None else wait(call))


# ---------------------------------------------------------------- what there is


def _cluster(azure: ArmState, call: Call) -> Cluster:
    path = f"{AKS}/managedClusters/{call.parts['cluster']}"
    found: Cluster = require(azure, call, path, azure.clusters)
    return found


def _pool(azure: ArmState, call: Call) -> tuple[Cluster, str]:
    cluster = _cluster(azure, call)
    name = next((p for p in cluster.pools if p.lower() == call.parts["pool"].lower()), None)
    if name is None:
        raise ArmError(404, "NotFound", f"Agent pool '{call.parts['pool']}' was not found.")
    return cluster, name


def _scale_set(azure: ArmState, cluster: Cluster, pool: str) -> ScaleSet:
    return azure.scale_sets[cluster.pools[pool].lower()]


def _pool_body(azure: ArmState, cluster: Cluster, name: str) -> Json:
    kind = "Microsoft.ContainerService/managedClusters/agentPools"
    body = {"id": f"{cluster.id}/agentPools/{name}", "name": name, "type": kind}
    return {**body, "properties": _pool_properties(azure, cluster, name)}


def _pool_properties(azure: ArmState, cluster: Cluster, name: str) -> Json:
    scale_set = _scale_set(azure, cluster, name)
    return {
        "eTag": etag(scale_set),
        "count": scale_set.capacity,
        "vmSize": scale_set.size,
        "type": "VirtualMachineScaleSets",
        "mode": "User",
        "enableAutoScaling": cluster.autoscaler,
        "provisioningState": "Updating" if azure.running(f"{cluster.id}/agentPools/{name}") else "Succeeded",
        "powerState": {"code": "Running"},
    }


def _machine_body(cluster: Cluster, pool: str, machine: Instance) -> Json:
    return {
        "id": f"{cluster.id}/agentPools/{pool}/machines/{machine.computer_name}",
        "name": machine.computer_name,
        "type": "Microsoft.ContainerService/managedClusters/agentPools/machines",
        "properties": {"resourceId": machine.id, "provisioningState": machine.provisioning},
    }
