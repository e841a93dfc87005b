"""What the provider ``azure`` reads, and the providerIDs that are its own.

The SDK has no variables for these. Those of workload identity are looked at when there is a token to be got:
``providers.azure.session``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from recovery.provider.declaration import Declaration, Expected, Setting, did_you_mean, switch

PUBLIC = "https://management.azure.com"
COMPUTE, DELETE, REIMAGE = "aks-compute", "aks-replace", "flexible-reimage"
ALLOWED = (DELETE, COMPUTE, REIMAGE)

# Patterns are not compiled here: most agents have nothing to match.
_CASELESS = re.IGNORECASE | re.ASCII
_RESOURCE = r"/subscriptions/[^/]+/resourcegroups/[^/]+/providers(/[^/]+){3,}"
_CLUSTER = (
    r"/subscriptions/(?P<subscription>[0-9a-f-]{36})/resourcegroups/(?P<group>[-\w.()]{1,90})"
    r"/providers/microsoft\.containerservice/managedclusters/(?P<name>[-\w]{1,63})"
)
_SCALE_SET = (
    r"/subscriptions/[0-9a-f-]{36}/resourcegroups/[-\w.()]{1,90}"
    r"/providers/microsoft\.compute/virtualmachinescalesets/[-\w.]{1,80}"
)


@dataclass(frozen=True)
class Cluster:
    """A managed cluster, as AZURE_CLUSTER_ID names it."""

    subscription: str
    group: str
    name: str


@dataclass(frozen=True)
class Resource:
    """What AZURE_CLUSTER_ID names: a managed cluster, or a scale set, which has no ``cluster``."""

    id: str = ""
    cluster: Cluster | None = None


# ---------------------------------------------------------------- one check per kind of value


def _resource(text: str) -> Resource:
    if not text:
        return Resource()
    if cluster := re.fullmatch(_CLUSTER, text, _CASELESS):
        return Resource(text, Cluster(**cluster.groupdict()))
    if re.fullmatch(_SCALE_SET, text, _CASELESS):
        return Resource(text)
    if re.fullmatch(_RESOURCE, text, _CASELESS):
        raise Expected(
            "the resource ID of an AKS cluster (.../Microsoft.ContainerService/managedClusters/NAME) or of a "
            "scale set (.../Microsoft.Compute/virtualMachineScaleSets/NAME)"
        )
    raise Expected("a resource ID: /subscriptions/ID/resourceGroups/GROUP/providers/...")


def _region(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9 ]{0,40}", text):
        raise Expected("the name of a region such as westeurope")
    return text


def _allow(text: str) -> frozenset[str]:
    words = [word for word in text.replace(" ", "").split(",") if word]
    for word in words:
        if word not in ALLOWED:
            raise Expected(f"any of {', '.join(ALLOWED)}{did_you_mean(word, ALLOWED)}")
    return frozenset(words)


def _autoscaler(text: str) -> bool:
    return switch(text or "false")


def endpoint(text: str) -> str:
    """An address in lower case, without a slash at its end. Raises ``Expected``.

    A bearer token is sent there, hence https, and nothing that could lead elsewhere.
    """
    from recovery.provider.address import NO_SCHEME, Address, parsed  # most agents have no such address

    found = parsed(text)
    if found == NO_SCHEME:
        raise Expected("an http:// or https:// URL")
    if isinstance(found, Address) and found.path:
        found = f"the path {found.path[:80]!r}"
    if isinstance(found, str):
        raise Expected("https:// and a host, with a port at most (http:// on loopback only)", found)
    if found.readable:
        raise Expected("https://, for a token is sent there (http:// on loopback only)")
    return found.origin


# ---------------------------------------------------------------- the variables

CLUSTER_ID = Setting(
    "AZURE_CLUSTER_ID",
    "",
    "the resource ID of the AKS cluster, or of the scale set: Azure Monitor stores the metrics under it, and "
    "`aks-replace` asks this cluster to delete a machine",
    _resource,
)
REGION = Setting(
    "AZURE_REGION",
    "",
    "the region of that resource; without both no metrics are sent to Azure Monitor",
    _region,
)
ALLOW = Setting(
    "AZURE_ALLOW",
    "",
    "what is allowed on Azure beyond the default, separated by commas: `aks-replace`, "
    "`aks-compute`, `flexible-reimage`",
    _allow,
)
AUTOSCALER = Setting(
    "AZURE_AUTOSCALER",
    "false",
    "who adds the new machine after a `replace` on Azure: an autoscaler (`true`), or the agents (`false`)",
    _autoscaler,
)
MANAGER = Setting(
    "AZURE_RESOURCE_MANAGER_ENDPOINT",
    PUBLIC,
    "the address of Azure Resource Manager; set it in clouds other than the public one",
    lambda text: endpoint(text) if text else PUBLIC,
)
MONITOR = Setting(
    "AZURE_MONITOR_ENDPOINT",
    "",
    "the address to which metrics are sent; empty: `https://REGION.monitoring.azure.com`",
    lambda text: endpoint(text) if text else "",
)

DECLARATION = Declaration((CLUSTER_ID, REGION, ALLOW, AUTOSCALER, MANAGER, MONITOR), schemes=("azure",))
