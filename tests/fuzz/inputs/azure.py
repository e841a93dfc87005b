"""What Azure answers, read by the real SDK: VMs, scale sets, pools, operations, errors, and heads of answers.

A look asks for no change, whatever the answer; and a change is asked for of the very machine alone (law 4).
"""

from __future__ import annotations

import json
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from zlib import crc32

from providers.azure.options import options_of
from providers.azure.session import AzureSession, Limits
from providers.azure.vmss import AzureProvider
from recovery.clock import SystemClock
from recovery.errors import NodeRecoveryError
from recovery.model import Machine, NodeView, Reference, Step
from tests.fuzz.engine import Called, Input
from tests.fuzz.server import Answering

WEIGHT = 0.35
VM_ID = "4c4c4544-0047-4a10-8051-b7c04f484433"
GROUP = "/subscriptions/11111111-2222-3333-4444-555555555555/resourceGroups/rg-1/providers/Microsoft.Compute"
CLUSTER = "/subscriptions/11111111-2222-3333-4444-555555555555/resourceGroups/rg-1/providers/Microsoft.ContainerService/managedClusters/c"
SET = f"{GROUP}/virtualMachineScaleSets/set-1"
WORDS = (
    b"Succeeded", b"Updating", b"Deleting", b"Failed", b"Canceled", b"InProgress", b"capacity", b"vmId", b"properties", b"nextLink",
    b"value", b"orchestrationMode", b"Flexible", b"provisioningState", b"Retry-After", b"Location", b"http://evil.example/", b"../..",
    b"DenyAssignmentAuthorizationFailed", b"error", b"code", b"message", VM_ID.encode(),
)  # fmt: skip


class Site:
    def __init__(self) -> None:
        self.server = Answering()
        self.environ = {
            "AZURE_RESOURCE_MANAGER_ENDPOINT": f"http://127.0.0.1:{self.server.port}",
            "AZURE_CLIENT_ID": "x",
            "AZURE_ALLOW": "aks-compute,aks-replace,flexible-reimage",
            "AZURE_CLUSTER_ID": CLUSTER,
        }
        self.session = AzureSession(SystemClock(), self.environ, Limits(connect=0.5, read=0.5))
        self.session._credential = SimpleNamespace(get_token=lambda *_: SimpleNamespace(token="t"))  # noqa: S106
        uniform, single = f"azure://{SET}/virtualMachines/7", f"azure://{GROUP}/virtualMachines/vm-1"
        aks = {"kubernetes.azure.com/cluster": "MC_x", "kubernetes.azure.com/agentpool": "gpu"}
        self.nodes = [self._node(uniform), self._node(single), self._node(uniform, aks)]

    @staticmethod
    def _node(provider_id: str, labels: dict[str, str] | None = None) -> NodeView:
        return NodeView("node-3", "u", "1", provider_id, "boot-1", VM_ID, labels=labels or {})

    def feed(self, case: bytes) -> None:
        choice, self.server.raw, self.server.asked = crc32(case), None, []
        try:
            told = json.loads(case)
        except (ValueError, RecursionError):
            told = None
        if isinstance(told, dict):
            self.server.answer = lambda method, path: answered(told, method, path)
        elif case.startswith(b"HTTP/"):
            self.server.raw = case
        else:
            self.server.answer = lambda method, path: (200, {}, case)
        self.session._throttled._held.clear()
        provider = AzureProvider(self.session, SystemClock(), options_of(self.environ))
        machine = provider.identify(self.nodes[choice % 3])
        self._look(provider, machine, choice // 3)
        self._change(provider, machine, choice // 3, told if isinstance(told, dict) else {})

    def _look(self, provider: AzureProvider, machine: Machine, choice: int) -> None:
        action = (Step.REPLACE, Step.REBOOT, Step.REIMAGE, Step.REDEPLOY)[choice % 4]
        reference = reference_to(machine, action)
        looks = (
            lambda: provider.preflight(machine, action),
            lambda: provider.poll(machine, reference),
            lambda: provider.take_back(machine, reference),
            lambda: provider.gone(machine),
            lambda: list(provider.examine(machine, frozenset({action}), True)),
        )
        with suppress(NodeRecoveryError):
            looks[choice // 4 % len(looks)]()
        if changed := [x for x in self.server.asked if x[0] != "GET"]:
            raise Called(f"a look asked for {changed}")

    def _change(self, provider: AzureProvider, machine: Machine, choice: int, told: dict[str, Any]) -> None:
        action = (Step.REPLACE, Step.REBOOT)[choice % 2]
        reference = reference_to(machine, action)
        with suppress(NodeRecoveryError):
            if choice % 3:
                provider.start(machine, action, "token", reference)
            elif action is Step.REPLACE:
                provider.finish(machine, reference)
        changed = [x for x in self.server.asked if x[0] != "GET"]
        if len(changed) > 1:
            raise Called(f"asked more than once: {changed}")
        if (
            changed
            and choice % 3
            and VM_ID not in json.dumps(told.get("vm", self.server.raw and str(self.server.raw)))
        ):
            raise Called(f"asked of another machine: {changed}")


def reference_to(machine: Machine, action: Step) -> Reference:
    data = {
        "scale_set": "set-1",
        **machine.route,
        "machine": machine.id,
        "location": "westeurope",
        "operation": "0a1b2c3d-aaaa",
        "capacity": 3,
    }
    return Reference("azure", action, {**data, "known": ["x"], "restore": True})


def answered(told: dict[str, Any], method: str, path: str) -> tuple[int, dict[str, str], bytes]:
    """The part of the case that is about this path."""
    plain = path.partition("?")[0].lower()
    if "/operations/" in plain:
        part = "operation"
    elif "agentpools" in plain:
        part = "list" if plain.endswith("/machines") else "machine" if "/machines/" in plain else "pool"
    elif plain.endswith("/virtualmachines"):
        part = "list"
    else:
        part = "vm" if "/virtualmachines/" in plain else "set"
    status, headers = told.get("status"), told.get("headers")
    if not (isinstance(status, int) and 200 <= status < 600):
        status = 200 if method == "GET" else 202
    known = (
        {k: v for k, v in headers.items() if isinstance(v, str) and k.isascii()}
        if isinstance(headers, dict)
        else {}
    )
    plainly = {
        k: v for k, v in known.items() if k.replace("-", "").isalnum() and v.isprintable() and v.isascii()
    }
    found = told.get(part)
    if part == "vm" and isinstance(found, dict) and found.get("id") == f"{SET}/virtualMachines/7":
        found = {**found, "id": plain}  # the provider reads no further in an answer about another one
    return status, plainly, json.dumps(found).encode()


def example(**more: Any) -> bytes:
    vm = {
        "id": f"{SET}/virtualMachines/7", "name": "set-1_7", "instanceId": "7", "location": "westeurope",
        "properties": {
            "vmId": VM_ID, "provisioningState": "Succeeded", "timeCreated": "2026-11-21T10:00:00Z",
            "virtualMachineScaleSet": {"id": SET},
            "storageProfile": {"osDisk": {"createOption": "FromImage", "diffDiskSettings": {"option": "Local"}}},
        },
    }  # fmt: skip
    other = {
        **vm,
        "instanceId": "8",
        "name": "set-1_8",
        "properties": {**vm["properties"], "vmId": VM_ID.replace("33", "34")},
    }  # type: ignore[dict-item]
    told: dict[str, Any] = {
        "status": None,
        "headers": {"Azure-AsyncOperation": "http://127.0.0.1/x/operations/0a1b2c3d-aaaa", "x-ms-ratelimit-remaining-resource": ""},
        "vm": vm,
        "list": {"value": [vm, other], "nextLink": None},
        "set": {
            "id": SET, "name": "set-1", "location": "westeurope", "etag": "e", "sku": {"name": "N", "tier": "S", "capacity": 2},
            "properties": {"provisioningState": "Succeeded", "orchestrationMode": "Uniform", "overprovision": False},
        },
        "operation": {"status": "InProgress", "error": {"code": "c", "message": "m"}},
        "machine": {"name": "node-3", "properties": {"resourceId": f"{SET}/virtualMachines/7"}},
        "pool": {"name": "gpu", "properties": {"count": 2, "provisioningState": "Succeeded", "enableAutoScaling": False, "eTag": "e"}},
        "error": {"code": "x", "message": "y"},
    }  # fmt: skip
    return json.dumps(told | more).encode()


def make() -> Input:
    wrong = {"error": {"code": "AuthorizationFailed", "message": "no"}}
    statuses = [
        example(status=s, vm=wrong, set=wrong, headers={"Retry-After": "7"})
        for s in (401, 403, 404, 409, 412, 429, 500, 503)
    ]
    deep = [b"[" * 3000, b'{"vm":' * 3000]
    heads = [
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + json.dumps({"name": "x"}).encode(),
        b"HTTP/1.1 302 F\r\nLocation: http://127.0.0.1:1/\r\n\r\n",
    ]
    large = [b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + b'{"a": "' + b"x" * 40_000_000]
    modules = (
        "providers.azure.machines",
        "providers.azure.outcome",
        "providers.azure.errors",
        "providers.azure.vmss",
        "providers.azure.take_back",
        "providers.azure.session",
        "providers.azure.aks",
    )
    return Input(
        "Azure",
        Site().feed,
        [example(), example(list={"value": []}), *statuses, *deep, *heads, *large],
        None,
        WORDS,
        WEIGHT,
        modules,
    )
