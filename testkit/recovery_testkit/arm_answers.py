"""The parts of every answer of the fake Azure Resource Manager: routes, 404s, accepted operations, bodies.

Texts and codes of errors are Azure's own where they are known: from azure-cli's recordings of real calls and
from the pages on Compute's error messages. Where they are not known, the closest of those is used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from recovery_testkit.arm_http import Answer
from recovery_testkit.arm_state import AKS, ArmError, ArmState, Instance, Operation, ScaleSet

Json = dict[str, Any]

SUBSCRIPTION = "/subscriptions/(?P<subscription>[^/]+)"
GROUP = SUBSCRIPTION + "/resourceGroups/(?P<group>[^/]+)/providers/"
VERBS = (
    "restart",
    "reimage",
    "reimageAll",
    "redeploy",
    "start",
    "powerOff",
    "deallocate",
    "reapply",
    "delete",
)


@dataclass(frozen=True)
class Call:
    """One request on its way to its answer."""

    parts: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    raw: bytes
    path: str
    base: str
    page_size: int
    retry_after: float | None

    @property
    def verb(self) -> str:
        return self.parts["verb"]

    @property
    def body(self) -> Json:
        """Empty without one."""
        try:
            body = json.loads(self.raw or b"{}")
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise ArmError(400, "InvalidRequestContent", "The request content was invalid.")
        return body


Handler = Callable[[ArmState, Call], Answer]
ROUTES: list[tuple[str, re.Pattern[str], str, Handler]] = []


def find(method: str, path: str) -> tuple[Handler | None, dict[str, str], str]:
    """The handler of a request, the parts of its path, and the permission that it needs."""
    for route_method, pattern, action, handler in ROUTES:
        if method == route_method and (match := pattern.fullmatch(path)):
            parts = match.groupdict()
            if "verb" in parts:
                parts["verb"] = next((v for v in VERBS if v.lower() == parts["verb"].lower()), parts["verb"])
            return handler, parts, action.format(**parts)
    return None, {}, ""


def route(method: str, path: str, action: str) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        ROUTES.append((method, re.compile(path, re.IGNORECASE), action, handler))
        return handler

    return register


def key_of(azure: ArmState, call: Call, path: str) -> str:
    """The key of a resource in the request's group, which is there."""
    subscription, group = call.parts["subscription"], call.parts["group"]
    if subscription.lower() != azure.subscription.lower():
        raise ArmError(404, "SubscriptionNotFound", f"The subscription '{subscription}' could not be found.")
    if group.lower() not in azure.groups:
        raise ArmError(404, "ResourceGroupNotFound", f"Resource group '{group}' could not be found.")
    return f"/subscriptions/{subscription}/resourceGroups/{group}/providers/{path}".lower()


def require(azure: ArmState, call: Call, path: str, found: Mapping[str, Any]) -> Any:
    """A resource by its path under providers/, or 404."""
    if (resource := found.get(key_of(azure, call, path))) is None:
        message = f"The Resource '{path}' under resource group '{call.parts['group']}' was not found. "
        message += "For more details please go to https://aka.ms/ARMResourceNotFoundFix"
        raise ArmError(404, "ResourceNotFound", message)
    return resource


def unknown(what: str) -> ArmError:
    """501 for what this Azure does not have: a wrong answer would mislead a test."""
    return ArmError(501, "NotImplemented", f"recovery_testkit.arm does not know {what}.")


def accepted(azure: ArmState, call: Call, operation: Operation, answer: Answer) -> Answer:
    """The answer with the addresses of the operation's status. They are signed, as ARM's are: over 3 KB."""
    place = f"{call.base}/subscriptions/{azure.subscription}/providers/{operation.provider}/locations/"
    place += quote(operation.location)
    aks = operation.provider == AKS
    query = urlencode(
        {
            "api-version": "2016-03-30" if aks else call.query["api-version"],
            "t": str(int(operation.started * 1e7)),
            "c": "MIIH" * 650,
            "s": "s" * 342,
            "h": operation.signature,
        }
    )
    status = f"{place}/operations/{operation.id}?{query}"
    headers = {"Azure-AsyncOperation": status, **wait(call)}
    if answer.status == 202:
        result = f"{place}/operationresults/{operation.id}?{query}"
        headers["Location"] = result if aks else f"{status}&monitor=true"
    return Answer(answer.status, answer.body, headers)


def wait(call: Call) -> dict[str, str]:
    """The header that asks to wait, if any."""
    return {} if call.retry_after is None else {"Retry-After": f"{call.retry_after:g}"}


# ---------------------------------------------------------------- bodies


def set_body(azure: ArmState, scale_set: ScaleSet) -> Json:
    profile = {
        "osProfile": {"computerNamePrefix": scale_set.name.lower()},
        "storageProfile": {"osDisk": _os_disk(scale_set.ephemeral)},
    }
    properties = {
        "orchestrationMode": scale_set.orchestration,
        "overprovision": bool(scale_set.overprovision),
        "provisioningState": "Updating" if azure.running(scale_set.id) else "Succeeded",
        "singlePlacementGroup": False,
        "timeCreated": iso(scale_set.created),
        "virtualMachineProfile": profile,
    }
    return {
        "name": scale_set.name,
        "id": scale_set.id,
        "type": "Microsoft.Compute/virtualMachineScaleSets",
        "location": scale_set.location,
        "sku": {"name": scale_set.size, "tier": "Standard", "capacity": scale_set.capacity},
        "etag": etag(scale_set),
        "properties": properties,
    }


def machine_body(azure: ArmState, machine: Instance, with_view: bool) -> Json:
    properties: Json = {
        "vmId": machine.vm_id,
        "provisioningState": machine.provisioning,
        "timeCreated": iso(machine.created),
        "osProfile": {"computerName": machine.computer_name},
        "storageProfile": {"osDisk": _os_disk(machine.ephemeral)},
    }
    body: Json = {"name": machine.name, "id": _shouted(machine.id), "location": machine.location}
    if machine.instance_id:
        body |= {"instanceId": machine.instance_id, "sku": {"name": machine.size, "tier": "Standard"}}
        body["type"] = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines"
        properties["latestModelApplied"] = True
    else:
        body["type"] = "Microsoft.Compute/virtualMachines"
        properties["hardwareProfile"] = {"vmSize": machine.size}
        if machine.scale_set:
            properties["virtualMachineScaleSet"] = {"id": _shouted(machine.scale_set)}
    if with_view:
        properties["instanceView"] = view(azure, machine)
    return {**body, "properties": properties}


def view(azure: ArmState, machine: Instance) -> Json:
    state, power = machine.provisioning.lower(), machine.power
    code = f"ProvisioningState/{state}" + (f"/{machine.why}" if machine.why else "")
    provisioning = {"code": code, "displayStatus": f"Provisioning {state}"}
    running = {"code": f"PowerState/{power}", "displayStatus": f"VM {power}"}
    if state in ("updating", "deleting", "creating"):
        provisioning["displayStatus"] = state.capitalize()
    statuses = [{**provisioning, "level": "Info", "time": iso(machine.since)}, {**running, "level": "Info"}]
    return {"computerName": machine.computer_name, "hyperVGeneration": "V2", "statuses": statuses}


def _os_disk(ephemeral: bool) -> Json:
    disk: Json = {"osType": "Linux", "createOption": "FromImage", "caching": "ReadOnly"}
    return {**disk, "diffDiskSettings": {"option": "Local"}} if ephemeral else disk


def _shouted(resource: str) -> str:
    """Compute gives back some ids with the resource group in capitals: ids are compared without case."""
    before, group, after = re.split("(?<=/resourceGroups/)([^/]+)", resource, maxsplit=1)
    return before + group.upper() + after


def etag(scale_set: ScaleSet) -> str:
    return f'"{scale_set.version}"'


def expanded(call: Call) -> bool:
    return call.query.get("$expand", "").lower() == "instanceview"


def page(call: Call, everything: Iterable[Json]) -> Answer:
    """A page of a list, and the address of the next."""
    items, begin = list(everything), int(call.query.get("$skiptoken", "0"))
    end = begin + call.page_size
    body: Json = {"value": items[begin:end]}
    if end < len(items):
        body["nextLink"] = (
            f"{call.base}{quote(call.path)}?{urlencode({**call.query, '$skiptoken': str(end)})}"
        )
    return Answer(200, body)


def iso(at: float) -> str:
    """Unix time as ARM writes it."""
    return datetime.fromtimestamp(at, UTC).isoformat()
