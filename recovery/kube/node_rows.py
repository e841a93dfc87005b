"""Nodes as the API server writes them, decoded without what nobody here reads.

Most of a Node are its images and managed fields. ``msgspec`` passes over what these rows do not name, and
makes nothing of it: with tens of thousands of Nodes, that was most of the work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from sys import intern
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from recovery.kube import alike
from recovery.model import NodeView

NONE: Mapping[tuple[str, str], str] = {}
Moment = Annotated[datetime, Meta(tz=True)]
"""As RFC 3339 has it, with its offset."""
Quantities = dict[str, str | int | float]


def _in_json(field: str) -> str:
    """``boot_id`` is ``bootID``, and ``resource_version`` is ``resourceVersion``."""
    first, *rest = field.split("_")
    return first + "".join(word.upper() if word in ("id", "uuid") else word.title() for word in rest)


class Row(Struct, gc=False, rename=_in_json):
    """A part of a Node. It holds no cycle, so the collector need not look at it."""


class Owner(Row):
    kind: str = ""
    name: str = ""
    uid: str = ""


class Metadata(Row):
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[Owner] | None = None
    creation_timestamp: Moment | None = None
    deletion_timestamp: str | None = None


class TaintRow(Row):
    key: str = ""
    value: str | None = None
    effect: str = ""
    time_added: str | None = None


class Spec(Row):
    provider_id: str | None = None
    unschedulable: bool | None = None
    taints: list[TaintRow] | None = None


STATUSES = frozenset({"True", "False", "Unknown"})


class ConditionRow(Row):
    type: str
    status: str = "Unknown"
    reason: str | None = None
    message: str | None = None
    last_heartbeat_time: Moment | None = None
    last_transition_time: Moment | None = None


class Address(Row):
    address: str = ""


class System(Row):
    boot_id: str | None = None
    system_uuid: str | None = None
    kernel_version: str | None = None
    os_image: str | None = None
    container_runtime_version: str | None = None


class Status(Row):
    capacity: Quantities | None = None
    allocatable: Quantities | None = None
    conditions: list[ConditionRow] | None = None
    addresses: list[Address] | None = None
    node_info: System | None = None


class NodeRow(Row):
    """A Node. A bookmark is one of which only the version is known."""

    metadata: Metadata | None = None
    spec: Spec | None = None
    status: Status | None = None


class ListMetadata(Row, rename={"resource_version": "resourceVersion", "more": "continue"}):
    resource_version: str | None = None
    more: str | None = None


class NodePage(Row):
    """A page of a list of Nodes. ``metadata.more``: what the next one is asked for with."""

    metadata: ListMetadata | None = None
    items: list[NodeRow] | None = None


class LoosePage(Row):
    """A page whose items are decoded one by one."""

    metadata: ListMetadata | None = None
    items: list[Any] | None = None


class NodeEvent(Row):
    """An event of a watch of Nodes that is none of its errors."""

    type: str
    object: NodeRow


class LooseEvent(Row):
    """An event whose object is decoded by itself."""

    type: str
    object: Any


_page = msgspec.json.Decoder(NodePage).decode
_event = msgspec.json.Decoder(NodeEvent).decode
Unreadable = (msgspec.DecodeError, RecursionError)
"""Bytes that are no JSON, or no such object."""


def page(body: bytes | bytearray) -> NodePage:
    """A page of a list. Raises ``Unreadable``."""
    try:
        return _page(body)
    except msgspec.ValidationError:
        return page_of(msgspec.json.decode(body))


def event(line: bytes) -> NodeEvent:
    """An event of a watch. Raises ``Unreadable``."""
    try:
        return _event(line)
    except msgspec.ValidationError:
        loose = msgspec.json.decode(line, type=LooseEvent)
        return NodeEvent(loose.type, row_of(loose.object))


def row_of(obj: Any) -> NodeRow:
    """A Node that was decoded whole. Raises ``Unreadable``."""
    try:
        return msgspec.convert(obj, NodeRow)
    except msgspec.ValidationError:
        return msgspec.convert(_without_odd_times(obj), NodeRow)


def page_of(body: Any) -> NodePage:
    """A page that was decoded whole. Raises ``Unreadable``."""
    if isinstance(body, NodePage):
        return body
    loose = msgspec.convert(body, LoosePage)
    return NodePage(loose.metadata, [row_of(item) for item in loose.items or []])


def _without_odd_times(obj: Any) -> Any:
    """``obj`` without the times that no ``datetime`` holds. The API server takes such times from whoever may
    write a Node, and one Node with one must not hide all others. It is as if nobody had written that time."""
    if not isinstance(obj, dict):
        return obj
    meta, status = obj.get("metadata"), obj.get("status")
    if isinstance(meta, dict):
        obj = {**obj, "metadata": _with_times(meta, "creationTimestamp")}
    if isinstance(status, dict) and isinstance(status.get("conditions"), list):
        said = [_with_times(c, "lastHeartbeatTime", "lastTransitionTime") for c in status["conditions"]]
        obj = {**obj, "status": {**status, "conditions": said}}
    return obj


def _with_times(part: Any, *fields: str) -> Any:
    if not isinstance(part, dict):
        return part
    return part | {field: None for field in fields if field in part and not _is_time(part[field])}


def _is_time(text: Any) -> bool:
    try:
        msgspec.convert(text, Moment)
    except msgspec.ValidationError:
        return False
    return True


NO_METADATA, NO_SPEC, NO_STATUS, NO_SYSTEM = Metadata(), Spec(), Status(), System()


def view_of(row: NodeRow, *, whole: bool) -> NodeView:
    """``whole``: with its conditions as they were written."""
    meta, spec, status = row.metadata or NO_METADATA, row.spec or NO_SPEC, row.status or NO_STATUS
    info = status.node_info or NO_SYSTEM
    conditions = status.conditions or []
    name = intern(meta.name)  # its label and its address are the same text
    said = alike.said([_said(c) for c in conditions])
    return NodeView(
        name=name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        provider_id=spec.provider_id or "",
        boot_id=info.boot_id or "",
        system_uuid=info.system_uuid or "",
        unschedulable=bool(spec.unschedulable),
        labels=alike.Texts(meta.labels or {}),
        annotations=alike.annotated(meta.annotations or {}),
        taints=tuple((t.key, t.value or "", t.effect) for t in spec.taints or ()),
        tainted_at=_tainted_at(spec.taints or ()),
        conditions=said.by_type,
        stated=alike.Conditions(said, _times(conditions)) if whole else (),
        addresses=tuple([name if a.address == name else a.address for a in status.addresses or ()]),
        owners=tuple((o.kind, o.name, o.uid) for o in meta.owner_references or ()),
        created=_utc(meta.creation_timestamp),
        deleting=bool(meta.deletion_timestamp),
        system=_system(info) if whole else {},
        devices=_devices(status) if whole else {},
    )


def _said(c: ConditionRow) -> alike.Said:
    """A status that is none, such as ``true``, is neither good nor bad. The API server takes any text."""
    if c.status in STATUSES:
        return c.type, c.status, c.reason or "", c.message or ""
    return c.type, "Unknown", f"its status is {c.status[:40]!r}", c.message or ""


def _utc(at: datetime | None) -> datetime | None:
    return at if at is None or at.tzinfo is UTC else at.astimezone(UTC)


def _times(conditions: Sequence[ConditionRow]) -> list[datetime | None]:
    return [at for c in conditions for at in (c.last_heartbeat_time, c.last_transition_time)]


def _tainted_at(taints: Sequence[TaintRow]) -> Mapping[tuple[str, str], str]:
    """(key, effect) of each taint that says when it was added."""
    return {(t.key, t.effect): t.time_added for t in taints if t.time_added} or NONE


def _devices(status: Status) -> Mapping[str, tuple[int, int]]:
    """Of each resource of a device plugin: capacity and allocatable. Their names have a domain, those of
    Kubernetes' own resources have none."""
    given, there = status.allocatable or {}, status.capacity or {}
    return alike.devices(
        tuple([(name, str(there[name]), str(given.get(name, "0"))) for name in there if "/" in name])
    )


def _system(info: System) -> Mapping[str, str]:
    """What many machines may share."""
    return alike.facts(
        (
            ("kernel", info.kernel_version or ""),
            ("image", info.os_image or ""),
            ("runtime", info.container_runtime_version or ""),
        )
    )
