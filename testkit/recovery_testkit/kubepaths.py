"""Reads a request's path: which resource, namespace, object and subresource it is about. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import unquote

from recovery_testkit.kuberesources import Resource
from recovery_testkit.kubestatus import bad_request, no_such_resource

_NAMESPACE_SUBRESOURCES = ("status", "finalize")


@dataclass(frozen=True)
class Target:
    """What a path points at. An empty name is the collection, an empty namespace the whole cluster."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @cached_property
    def rbac_name(self) -> str:
        """The resource as RBAC rules name it: `pods` or `pods/eviction`."""
        plural = self.resource.plural
        return f"{plural}/{self.subresource}" if self.subresource else plural


def parse(path: str, resources: Iterable[Resource]) -> Target:
    """The target of a path like `/api/v1/namespaces/ns/pods/name/eviction`. Raises `ApiError` 404 for one
    not served."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if parts[:2] == ["api", "v1"]:
        group, version, rest = "", "v1", parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        raise no_such_resource()
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in _NAMESPACE_SUBRESOURCES:
        namespace, rest = rest[1], rest[2:]
    if not rest or len(rest) > 3 or "" in rest:
        raise no_such_resource()
    plural, name, subresource = (*rest, "", "")[:3]
    for each in resources:
        if (each.group, each.version, each.plural) == (group, version, plural):
            return _target(each, namespace, name, subresource)
    raise no_such_resource()


def _target(resource: Resource, namespace: str, name: str, subresource: str) -> Target:
    served = {""}
    if resource.status:
        served.add("status")
    if resource.key == ("", "pods"):
        served.add("eviction")
    if subresource not in served or (namespace and not resource.namespaced):
        raise no_such_resource()
    if name and resource.namespaced and not namespace:
        raise no_such_resource()
    return Target(resource, namespace, name, subresource)


def flag(query: Mapping[str, str], name: str) -> bool:
    """A boolean query parameter, as Go reads one."""
    return query.get(name, "").lower() in ("1", "t", "true")


def number(query: Mapping[str, str], name: str) -> int:
    """A whole number in the query; absent or empty is 0. Raises `ApiError` 400 when it is none."""
    text = query.get(name) or "0"
    if not text.isdecimal():
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text)
