"""LIST: selectors, order, paging with continue tokens over a snapshot."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

from recovery_testkit.kubepaths import Target, number
from recovery_testkit.kubeselect import SelectorError, field_selector, label_selector
from recovery_testkit.kubestatus import ApiError, Cause, Json, bad_request, expired

_KEPT_SNAPSHOTS = 64
_GONE = (
    "The provided continue parameter is too old to display a consistent list result. "
    "You can start a new list without the continue parameter."
)

Objects = Mapping[tuple[str, str], Json]


def matcher(target: Target, query: Mapping[str, str]) -> Callable[[Json], bool]:
    """The predicate of a list or watch: namespace, labelSelector, fieldSelector. Raises `ApiError` 400."""
    try:
        labels = label_selector(query.get("labelSelector", ""))
        fields = field_selector(query.get("fieldSelector", ""), target.resource.selectable, _read)
    except SelectorError as error:
        raise bad_request(str(error)) from None

    def matches(obj: Json) -> bool:
        meta = obj["metadata"]
        inside = not target.namespace or meta.get("namespace") == target.namespace
        return inside and labels(meta.get("labels") or {}) and fields(obj)

    return matches


class Lister:
    """Answers lists. A page remembers the state it was cut from, so that the next one continues the same
    list."""

    def __init__(self) -> None:
        self._snapshots: dict[tuple[int, tuple[str, str]], list[Json]] = {}

    def forget(self) -> None:
        """Every continue token given so far is too old from now on."""
        self._snapshots.clear()

    def page(self, target: Target, query: Mapping[str, str], held: Objects, newest: int) -> Json:
        """A list body. Raises `ApiError` 400, 410 (token too old) or 504 (a version that is not there
        yet)."""
        matches, limit, token = matcher(target, query), number(query, "limit"), query.get("continue", "")
        _check_version(query, newest)
        if token:
            version, start = _decode(token)
            everything = self._snapshots.get((version, target.resource.key))
            if everything is None:
                raise expired(_GONE)
        else:
            version, start = newest, ("", "")
            everything = [obj for _, obj in sorted(held.items())]
        items = [obj for obj in everything if _key(obj) > start and matches(obj)]
        metadata: Json = {"resourceVersion": str(version)}
        # A list "at any version" is answered from the watch cache, which does not page: a real server's
        # habit.
        if 0 < limit < len(items) and (token or query.get("resourceVersion") != "0"):
            self._keep(version, target, everything)
            metadata["continue"] = _encode(version, _key(items[limit - 1]))
            if not (query.get("labelSelector") or query.get("fieldSelector")):
                metadata["remainingItemCount"] = len(items) - limit
            items = items[:limit]
        resource = target.resource
        listed = items if resource.custom else [_bare(obj) for obj in items]
        kind = f"{resource.kind}List"
        return {"kind": kind, "apiVersion": resource.api_version, "metadata": metadata, "items": listed}

    def _keep(self, version: int, target: Target, everything: list[Json]) -> None:
        self._snapshots[version, target.resource.key] = everything
        while len(self._snapshots) > _KEPT_SNAPSHOTS:
            del self._snapshots[next(iter(self._snapshots))]


def _check_version(query: Mapping[str, str], newest: int) -> None:
    text = query.get("resourceVersion") or "0"
    if not text.isdecimal():
        why = f'invalid resource version: resourceVersion: Invalid value: "{text}": invalid syntax'
        raise bad_request(why)
    if query.get("continue") and int(text):
        raise bad_request("specifying resource version is not allowed when using continue")
    if int(text) > newest:
        cause = Cause("ResourceVersionTooLarge", "Too large resource version")
        message = f"Timeout: Too large resource version: {text}, current: {newest}"
        raise ApiError(504, "Timeout", message, causes=[cause], retry_after=1)


def _encode(version: int, key: tuple[str, str]) -> str:
    token = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": "/".join(key)})
    return base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")


def _decode(token: str) -> tuple[int, tuple[str, str]]:
    try:
        data = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        namespace, _, name = str(data["start"]).partition("/")
        return int(data["rv"]), (namespace, name)
    except (ValueError, KeyError, TypeError):
        raise bad_request("invalid continue token: continue key is not valid") from None


def _key(obj: Json) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _bare(obj: Json) -> Json:
    """An item of a built-in kind: lists leave its kind and apiVersion out."""
    return {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}


def _event_source(obj: Any) -> str:
    """Of either API's shape: the older one has a source, the newer one a reporting controller."""
    return (obj.get("source") or {}).get("component") or obj.get("reportingComponent") or ""


def _read(obj: Any, path: str) -> str:
    value = _event_source(obj) if path == "source" else obj
    for part in path.split(".") if path != "source" else []:
        value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
