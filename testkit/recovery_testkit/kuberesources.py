"""The kinds that the in-memory API serves, and its discovery documents (`/api`, `/apis`, `/version`, ...)."""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

Json = dict[str, Any]

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
CRD_GROUP = "apiextensions.k8s.io"
_NAMES = {"metadata.name": "", "metadata.namespace": ""}


@dataclass(frozen=True)
class Resource:
    """One resource type of one API version, with those of its habits that clients feel.

    `status`: has a status subresource, so the main path leaves `.status` alone. `unconditional`: a PUT
    without a resourceVersion is taken. `upsert`: a PUT of a missing object creates it. `generation`: counts
    changes of the spec. `selectable`: fields for field selectors, with what an absent one reads as. `schema`:
    a custom kind's openAPIV3Schema.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    status: bool = False
    unconditional: bool = True
    upsert: bool = False
    generation: bool = False
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    selectable: Mapping[str, str] = field(default_factory=lambda: _NAMES)
    custom: bool = False
    schema: Json | None = None
    columns: tuple[Json, ...] = ()

    @cached_property
    def api_version(self) -> str:
        """`v1` for the core group, else `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def qualified(self) -> str:
        """`plural.group`, as error messages name the resource."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @cached_property
    def qualified_kind(self) -> str:
        """`Kind.group`, as validation messages name it."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @cached_property
    def key(self) -> tuple[str, str]:
        """Where the store keeps the objects of this resource."""
        return self.group, self.plural


def _also(**more: str) -> dict[str, str]:
    return {**_NAMES, **{name.replace("__", "."): absent for name, absent in more.items()}}


_POD_FIELDS = _also(
    spec__nodeName="",
    spec__restartPolicy="",
    spec__schedulerName="",
    spec__serviceAccountName="",
    spec__hostNetwork="false",
    status__phase="",
    status__podIP="",
    status__nominatedNodeName="",
)
_EVENT_FIELDS = _also(
    involvedObject__kind="",
    involvedObject__namespace="",
    involvedObject__name="",
    involvedObject__uid="",
    involvedObject__apiVersion="",
    involvedObject__resourceVersion="",
    involvedObject__fieldPath="",
    reason="",
    reportingComponent="",
    source="",
    type="",
)


def _apps(plural: str, kind: str, short: str) -> Resource:
    return Resource(
        "apps", "v1", plural, kind, status=True, generation=True, short_names=(short,), categories=("all",)
    )


BUILTIN: tuple[Resource, ...] = (
    Resource(
        "", "v1", "nodes", "Node", False, status=True, short_names=("no",),
        selectable=_also(spec__unschedulable="false"),
    ),
    Resource(
        "", "v1", "pods", "Pod", status=True, generation=True, short_names=("po",), categories=("all",),
        selectable=_POD_FIELDS,
    ),
    Resource("", "v1", "events", "Event", upsert=True, short_names=("ev",), selectable=_EVENT_FIELDS),
    Resource(
        "", "v1", "namespaces", "Namespace", False, status=True, short_names=("ns",),
        selectable=_also(status__phase=""),
    ),
    Resource("", "v1", "configmaps", "ConfigMap", short_names=("cm",)),
    Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False),
    Resource("coordination.k8s.io", "v1", "leases", "Lease", unconditional=False, upsert=True),
    _apps("daemonsets", "DaemonSet", "ds"),
    _apps("replicasets", "ReplicaSet", "rs"),
    _apps("deployments", "Deployment", "deploy"),
    _apps("statefulsets", "StatefulSet", "sts"),
    Resource(
        "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget",
        status=True, unconditional=False, generation=True, short_names=("pdb",),
    ),
    Resource("batch", "v1", "jobs", "Job", status=True, generation=True, categories=("all",)),
    Resource(
        "batch",
        "v1",
        "cronjobs",
        "CronJob",
        status=True,
        generation=True,
        short_names=("cj",),
        categories=("all",),
    ),
    Resource(
        CRD_GROUP, "v1", "customresourcedefinitions", "CustomResourceDefinition", False,
        status=True, unconditional=False, generation=True, short_names=("crd", "crds"),
        categories=("api-extensions",),
    ),
)  # fmt: skip


_schemas: dict[bytes, Json] = {}


def _one_of_a_kind(schema: Json) -> Json:
    """The same schema as the same object, for what is prepared once per schema."""
    return _schemas.setdefault(marshal.dumps(schema), schema)


def from_crd(crd: Mapping[str, Any]) -> list[Resource]:
    """The resources that a CustomResourceDefinition (apiextensions.k8s.io/v1) serves, one per served version.

    Raises `KeyError` when the definition lacks what a server insists on.
    """
    spec = crd["spec"]
    names = spec["names"]
    return [
        Resource(
            spec["group"],
            version["name"],
            names["plural"],
            names["kind"],
            spec["scope"] == "Namespaced",
            status="status" in (version.get("subresources") or {}),
            unconditional=False,
            generation=True,
            short_names=tuple(names.get("shortNames") or ()),
            categories=tuple(names.get("categories") or ()),
            custom=True,
            schema=_one_of_a_kind((version.get("schema") or {}).get("openAPIV3Schema") or {}),
            columns=tuple(version.get("additionalPrinterColumns") or ()),
        )
        for version in spec["versions"]
        if version.get("served", True)
    ]


def node_claim_crd() -> Json:
    """A CustomResourceDefinition for Karpenter's NodeClaim (karpenter.sh/v1): cluster scoped, with a
    status subresource, and a schema that keeps every field (nothing here needs the real one)."""
    keep = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": keep, "status": keep}}},
    }
    names = {
        "plural": "nodeclaims",
        "singular": "nodeclaim",
        "kind": "NodeClaim",
        "listKind": "NodeClaimList",
    }
    return {
        "apiVersion": f"{CRD_GROUP}/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "nodeclaims.karpenter.sh"},
        "spec": {"group": "karpenter.sh", "scope": "Cluster", "names": names, "versions": [version]},
    }


def discovery(path: str, resources: Iterable[Resource]) -> Json | None:
    """The discovery document at `path`, or None when there is none. Sources: what kubectl asks a v1.36
    server."""
    served = list(resources)
    parts = [part for part in path.split("/") if part]
    if parts == ["version"]:
        return {"major": "1", "minor": "36", "gitVersion": "v1.36.0", "platform": "linux/amd64"}
    if parts == ["api"]:
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if parts == ["apis"]:
        names = dict.fromkeys([each.group for each in served if each.group] + ["authorization.k8s.io"])
        groups = [_group(name, served) for name in names]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    if parts == ["api", "v1"]:
        return _resource_list("", "v1", served)
    if parts[:1] == ["apis"] and len(parts) == 2 and _versions(parts[1], served):
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(parts[1], served)}
    if parts[:1] == ["apis"] and len(parts) == 3 and parts[2] in _versions(parts[1], served):
        return _resource_list(parts[1], parts[2], served)
    if parts[:3] == ["openapi", "v3", "apis"] and len(parts) == 5:
        return _openapi(parts[3], parts[4], served)
    return None


def _openapi(group: str, version: str, served: list[Resource]) -> Json | None:
    """The schemas of a group's custom kinds; those of built-in ones are not here."""
    schemas = {
        f"{version}.{each.kind}": {
            **(each.schema or {}),
            "x-kubernetes-group-version-kind": [{"group": group, "kind": each.kind, "version": version}],
        }
        for each in served
        if each.custom and (each.group, each.version) == (group, version)
    }
    return {"openapi": "3.0.0", "components": {"schemas": schemas}} if schemas else None


def _versions(group: str, served: list[Resource]) -> list[str]:
    if group == "authorization.k8s.io":
        return ["v1"]
    return list(dict.fromkeys(each.version for each in served if each.group == group))


def _group(name: str, served: list[Resource]) -> Json:
    versions = [
        {"groupVersion": f"{name}/{version}", "version": version} for version in _versions(name, served)
    ]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _resource_list(group: str, version: str, served: list[Resource]) -> Json:
    entries: list[Json] = []
    for each in served:
        if (each.group, each.version) == (group, version):
            entries += _entries(each)
    if group == "authorization.k8s.io":
        review = {
            "kind": "SelfSubjectAccessReview",
            "namespaced": False,
            "verbs": ["create"],
            "singularName": "",
        }
        entries.append({"name": "selfsubjectaccessreviews", **review})
    name = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": entries}


def _entries(resource: Resource) -> list[Json]:
    main: Json = {
        "name": resource.plural,
        "singularName": resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(VERBS),
    }
    if resource.short_names:
        main["shortNames"] = list(resource.short_names)
    if resource.categories:
        main["categories"] = list(resource.categories)
    rest = {"singularName": "", "namespaced": resource.namespaced, "kind": resource.kind}
    entries = [main]
    if resource.status:
        entries.append({"name": f"{resource.plural}/status", **rest, "verbs": ["get", "patch", "update"]})
    if resource.key == ("", "pods"):
        eviction = {"kind": "Eviction", "group": "policy", "version": "v1", "verbs": ["create"]}
        entries.append({"name": "pods/eviction", **rest, **eviction})
    return entries
