"""Metal3's BareMetalHost for the in-memory API: its definition, and a healthy host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Json = dict[str, Any]


def baremetal_host_crd() -> Json:
    """A CustomResourceDefinition for BareMetalHost (metal3.io/v1alpha1): namespaced, with a status
    subresource, and a schema that keeps every field (nothing here needs the real one)."""
    keep = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": keep, "status": keep}}},
    }
    names = {
        "plural": "baremetalhosts",
        "singular": "baremetalhost",
        "kind": "BareMetalHost",
        "listKind": "BareMetalHostList",
        "shortNames": ["bmh", "bmhost"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "baremetalhosts.metal3.io"},
        "spec": {"group": "metal3.io", "scope": "Namespaced", "names": names, "versions": [version]},
    }


def baremetal_host(
    name: str,
    namespace: str = "metal3",
    *,
    consumer: str = "",
    addresses: Sequence[str] = (),
    annotations: Mapping[str, str] | None = None,
    online: bool = True,
    **status: Any,
) -> Json:
    """A provisioned host that is on. ``consumer``: a Metal3Machine that uses it; ``status``: what differs."""
    spec: Json = {"online": online, "bmc": {"address": "redfish://192.0.2.10/redfish/v1/Systems/1"}}
    if consumer:
        kind = {"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3Machine"}
        spec["consumerRef"] = {**kind, "namespace": namespace, "name": consumer}
    nics = [{"name": f"eth{i}", "mac": f"00:5e:00:53:00:{i:02x}", "ip": ip} for i, ip in enumerate(addresses)]
    good: Json = {
        "operationalStatus": "OK",
        "errorMessage": "",
        "poweredOn": True,
        "provisioning": {"state": "provisioned", "ID": "00000000-0000-4000-8000-000000000000"},
    }
    if nics:
        good["hardware"] = {"hostname": name, "nics": nics, "systemVendor": {"serialNumber": "S-1"}}
    return {
        "apiVersion": "metal3.io/v1alpha1",
        "kind": "BareMetalHost",
        "metadata": {"name": name, "namespace": namespace, "annotations": dict(annotations or {})},
        "spec": spec,
        "status": {**good, **status},
    }
