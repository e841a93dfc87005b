"""`kubectl get` columns: an object or a list as a `meta.k8s.io/v1 Table`. Pure, but for the age, which
needs a clock."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from recovery_testkit.kuberesources import Resource
from recovery_testkit.kubestatus import Json

Cell = Callable[[Json], Any]

_ROLE = "node-role.kubernetes.io/"


def table(resource: Resource, body: Json, now: datetime) -> Json:
    """The Table of a list or of one object. Cells are those of a real server for nodes and pods and, for a
    custom kind, its additionalPrinterColumns; other kinds have a name and an age."""
    objects = body["items"] if body.get("kind") == f"{resource.kind}List" else [body]
    columns = _columns(resource, now)
    rows = [
        {"cells": [cell(obj) for _, cell in columns], "object": _partial(resource, obj)} for obj in objects
    ]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": body.get("metadata") if objects is not body else {},
        "columnDefinitions": [column for column, _ in columns],
        "rows": rows,
    }


def _columns(resource: Resource, now: datetime) -> list[tuple[Json, Cell]]:
    def age(obj: Json) -> str:
        return _age(obj["metadata"].get("creationTimestamp"), now)

    name = _column("Name", format="name"), lambda obj: obj["metadata"]["name"]
    if resource.custom and resource.columns:
        return [name, *((_column(each["name"], each), _path_cell(each, now)) for each in resource.columns)]
    between: list[tuple[Json, Cell]] = []
    if resource.kind == "Node":
        between = [(_column("Status"), _node_status), (_column("Roles"), _node_roles)]
    if resource.kind == "Pod":
        between = [
            (_column("Ready"), _pod_ready),
            (_column("Status"), _pod_status),
            (_column("Restarts"), _restarts),
        ]
    after: list[tuple[Json, Cell]] = [(_column("Age"), age)]
    if resource.kind == "Node":
        after.append((_column("Version"), _node_version))
    if resource.kind == "Event":
        after = [
            (_column(each), _event_cell(each.lower(), now))
            for each in ("Last", "Type", "Reason", "Object", "Message")
        ]
    return [name, *between, *after]


def _column(name: str, extra: Mapping[str, Any] | None = None, format: str = "") -> Json:
    given = extra or {}
    return {
        "name": name,
        "type": "string" if given.get("type") == "date" else given.get("type", "string"),
        "format": given.get("format", format),
        "description": given.get("description", ""),
        "priority": given.get("priority", 0),
    }


def _path_cell(column: Mapping[str, Any], now: datetime) -> Cell:
    parts = re.findall(r"[^.\[\]]+", str(column["jsonPath"]))

    def cell(obj: Json) -> Any:
        value: Any = obj
        for part in parts:
            if isinstance(value, list):
                value = (
                    value[int(part)]
                    if part.lstrip("-").isdigit() and -len(value) <= int(part) < len(value)
                    else None
                )
            else:
                value = value.get(part) if isinstance(value, dict) else None
        return _age(value, now) if column.get("type") == "date" else value

    return cell


def _partial(resource: Resource, obj: Json) -> Json:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def _age(since: Any, now: datetime) -> str:
    """A duration as kubectl writes it: 12s, 5m, 3h, 2d."""
    if not since:
        return "<unknown>"
    seconds = max(0, int((now - datetime.fromisoformat(str(since))).total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _conditions(obj: Json) -> dict[str, str]:
    return {each["type"]: each["status"] for each in (obj.get("status") or {}).get("conditions") or []}


def _node_status(obj: Json) -> str:
    ready = {"True": "Ready", "False": "NotReady"}.get(_conditions(obj).get("Ready", ""), "Unknown")
    return f"{ready},SchedulingDisabled" if (obj.get("spec") or {}).get("unschedulable") else ready


def _node_roles(obj: Json) -> str:
    labels = obj["metadata"].get("labels") or {}
    return ",".join(sorted(key[len(_ROLE) :] for key in labels if key.startswith(_ROLE))) or "<none>"


def _node_version(obj: Json) -> str:
    return str(((obj.get("status") or {}).get("nodeInfo") or {}).get("kubeletVersion", ""))


def _pod_ready(obj: Json) -> str:
    count = len((obj.get("spec") or {}).get("containers") or [])
    return f"{count if _conditions(obj).get('Ready') == 'True' else 0}/{count}"


def _pod_status(obj: Json) -> str:
    return (
        "Terminating"
        if obj["metadata"].get("deletionTimestamp")
        else (obj.get("status") or {}).get("phase", "")
    )


def _restarts(obj: Json) -> str:
    listed = (obj.get("status") or {}).get("containerStatuses") or []
    return str(sum(each.get("restartCount", 0) for each in listed))


def _event_cell(name: str, now: datetime) -> Cell:
    def cell(obj: Json) -> Any:
        about = obj.get("involvedObject") or {}
        if name == "last":
            return _age(
                obj.get("lastTimestamp") or obj.get("eventTime") or obj["metadata"].get("creationTimestamp"),
                now,
            )
        if name == "object":
            return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"
        return obj.get(name, "")

    return cell
