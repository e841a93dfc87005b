"""Which machine is behind a Node, and by which route it is reached. Pure: nothing is asked.

The providerID is written by cloud-provider-azure; its casing varies, so it is compared without. A member of
a Flexible scale set and a machine that stands alone look the same: only Azure can tell them apart.

A Uniform instance ID may be given to the next instance, which then has the old one's name and providerID
(the scale sets documentation, "Understand instance IDs"). So a machine's id is the unique ID of the VM, which
the kernel shows as the system UUID, in one of two byte orders; the smaller one is taken for both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from uuid import UUID

from recovery.errors import Refused
from recovery.model import Machine, NodeView

NAME = "azure"
UNIFORM, VM = "uniform", "vm"
AKS_LABEL = "kubernetes.azure.com/cluster"
POOL_LABELS = ("kubernetes.azure.com/agentpool", "agentpool")

_GROUP = r"/subscriptions/(?P<subscription>[0-9a-f-]{36})/resourcegroups/(?P<resource_group>[-\w.()]{1,90})"
_COMPUTE = rf"azure://{_GROUP}/providers/microsoft\.compute"
_NAME = r"[-\w.]{1,80}"
_UNIFORM = re.compile(
    # Of digits alone: ".." would be taken for the scale set itself by whoever normalises the path.
    rf"{_COMPUTE}/virtualmachinescalesets/(?P<scale_set>{_NAME})/virtualmachines/(?P<instance>\d{{1,10}})",
    re.IGNORECASE | re.ASCII,
)
_VM = re.compile(rf"{_COMPUTE}/virtualmachines/(?P<vm>{_NAME})", re.IGNORECASE | re.ASCII)
_EXAMPLE = (
    "azure:///subscriptions/<id>/resourceGroups/<group>/providers/Microsoft.Compute/"
    "virtualMachineScaleSets/<set>/virtualMachines/<number>"
)


def identify(node: NodeView) -> Machine:
    """The VM behind ``node``. Raises ``Refused``.

    ``route``: kind, subscription, resource_group, node, and by kind scale_set and instance, or vm; on AKS
    also aks (the label's value) and pool.
    """
    found = route_of(node.provider_id)
    if found is None:
        raise Refused(
            f"node {node.name} has the providerID {_quote(node.provider_id)}; expected was {_EXAMPLE}"
        )
    unique = canonical(node.system_uuid)
    if not unique:
        raise Refused(
            f"node {node.name} has the system UUID {_quote(node.system_uuid)}; expected was that of its VM, "
            "by which a new instance could be told from the one whose number it was given"
        )
    route = {**found, "node": node.name}
    if AKS_LABEL in node.labels:
        route["aks"] = node.labels[AKS_LABEL]
        route["pool"] = next((node.labels[k] for k in POOL_LABELS if k in node.labels), "")
    return Machine(NAME, unique, node.provider_id, group_of(route), route)


def route_of(provider_id: str) -> dict[str, str] | None:
    """Kind, subscription, resource_group, and scale_set and instance, or vm. None for anything else."""
    found = _UNIFORM.fullmatch(provider_id) or _VM.fullmatch(provider_id)
    if found is None or any(set(value) == {"."} for value in found.groupdict().values()):
        return None
    return {"kind": UNIFORM if "scale_set" in found.groupdict() else VM, **found.groupdict()}


def group_of(route: Mapping[str, str]) -> str:
    """A scale set as it is named for people and in limits: resource group and name, in lower case."""
    if not route.get("scale_set"):
        return ""
    return f"{route['resource_group']}/{route['scale_set']}".lower()


def canonical(unique: str) -> str:
    """The same text for both byte orders of a VM's unique ID; empty for what is none."""
    try:
        found = UUID(unique.strip())
    except ValueError:
        return ""
    return "" if found.int == 0 else min(str(found), str(UUID(bytes=found.bytes_le)))


def _quote(text: str) -> str:
    return repr(text if len(text) <= 160 else text[:159] + "…")
