"""One watch of all Nodes of a selector, one of the pods that fail, and those of our own objects.

What the API server does to a watch (kube-apiserver 1.36): one that is slow, or old, is ended like any answer,
which says nothing about the Nodes. A version that is too old comes as status 410, or as an event of type
ERROR within a 200. Bookmarks come about once a minute. Of a version that is still to come, where etcd was
restored to an earlier moment, it tells nothing until then, but for bookmarks of earlier versions (tried).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from recovery.errors import ApiUnavailable, Expired
from recovery.kube import node_rows, shapes
from recovery.kube.bounded import view_of
from recovery.kube.transport import Streams, api_error
from recovery.kube.views import failed_pod
from recovery.model import FailedPod, NodeView

NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
FAILED = "status.phase=Failed"
THERE = ("ADDED", "MODIFIED")
BOOKMARK = "BOOKMARK"
KINDS = (*THERE, "DELETED", BOOKMARK)
LASTS = 300
"""Seconds after which the API server is to end a watch: the next one may go to another replica of it."""


@dataclass(frozen=True, slots=True)
class Change:
    """One event. ``version``: from which to watch after it. ``node``: a Node as it is now. ``gone``: the name
    of one that was deleted, or is no longer of the selector. A bookmark has neither."""

    version: str
    node: NodeView | None = None
    gone: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """One event. ``version``: from which to watch after it. ``pod``: one that has failed, or has changed
    since; None for a bookmark, or for one that is gone."""

    version: str
    pod: FailedPod | None = None


@dataclass(frozen=True, slots=True)
class Named:
    """One event. ``version``: from which to watch after it. ``name``: of the object; "" for a bookmark.
    ``found``: the object as it is now; None where it is gone, or no longer selected."""

    version: str
    name: str = ""
    found: dict[str, Any] | None = None


def watch_nodes(streams: Streams, selector: str, version: str) -> Iterator[Change]:
    """The changes since ``version``, until the server ends the watch.

    Raises ``Expired`` where ``version`` is too old, another ``ApiError`` where the watch breaks.
    """
    more = {"labelSelector": selector} if selector else {}
    for line in _lines(streams, NODES, version, more):
        try:
            event = node_rows.event(line)
        except node_rows.Unreadable:
            _read(line, NODES)  # raises what the API server says; what it does not, is no Node
            raise _unreadable(NODES) from None
        meta = event.object.metadata or node_rows.NO_METADATA
        _sound(event.type, meta.name, meta.resource_version, NODES)
        version = _onward(version, meta.resource_version, NODES)
        if event.type == "DELETED":
            yield Change(meta.resource_version, gone=meta.name)
        elif event.type in THERE:
            yield Change(meta.resource_version, view_of(event.object, whole=True))
        else:
            yield Change(meta.resource_version)


def watch_failed_pods(streams: Streams, version: str) -> Iterator[Failure]:
    """The pods that fail after ``version``, until the server ends the watch. Raises as ``watch_nodes``."""
    for line in _lines(streams, PODS, version, {"fieldSelector": FAILED}):
        kind, obj = _read(line, PODS)
        version = at = _onward(version, obj["metadata"]["resourceVersion"], PODS)
        yield Failure(at, failed_pod(obj) if kind in THERE else None)


def watch_ours(streams: Streams, path: str, selected: dict[str, str], version: str) -> Iterator[Named]:
    """Which objects change after ``version``, until the server ends the watch. Raises as ``watch_nodes``."""
    for line in _lines(streams, path, version, selected):
        kind, obj = _read(line, path)
        version = at = _onward(version, obj["metadata"]["resourceVersion"], path)
        name = "" if kind == BOOKMARK else obj["metadata"]["name"]
        yield Named(at, name, obj if kind in THERE else None)


def later(version: str, than: str) -> bool:
    """Whether ``version`` is a later one. Kubernetes' versions are numbers, of one sequence for each kind."""
    return version.isdigit() and than.isdigit() and int(version) > int(than)


def _onward(before: str, version: str, path: str) -> str:
    """``version``, which an event has. Raises ``Expired`` where it is an earlier one: what happened between
    the two was not told."""
    if later(before, version):
        raise Expired(f"{path} is at version {version}, and was at {before}: etcd was restored", 410)
    return version or before


def _lines(streams: Streams, path: str, version: str, more: dict[str, str]) -> Iterator[bytes]:
    """Each event as it came.

    Raises ``ApiUnavailable`` where the watch ends without any: an API server sends a bookmark at least. A
    proxy that ends each at once would be asked without a pause, and its silence taken for a healthy fleet.
    """
    told = False
    query = {
        "watch": "true",
        "resourceVersion": version,
        "allowWatchBookmarks": "true",
        "timeoutSeconds": str(LASTS),
        **more,
    }
    for line in streams.stream(path, query):
        if line.strip():
            told = True
            yield line
    if not told:
        raise ApiUnavailable(
            f"the watch of {path} ended, and had told nothing, not even a bookmark; it is opened again"
        )


def _read(line: bytes, path: str) -> tuple[str, dict[str, Any]]:
    """Type and object of an event. Raises the error that it is."""
    try:
        event = json.loads(line)
        kind, obj = event["type"], event["object"]
    except (ValueError, RecursionError, KeyError, TypeError):
        raise _unreadable(path) from None
    if not isinstance(kind, str) or not isinstance(obj, dict):
        raise _unreadable(path)
    if kind == "ERROR":
        code = obj.get("code")
        raise api_error(code if isinstance(code, int) and code else 500, obj, {}, f"watch of {path}")
    meta = shapes.part_of(obj, "metadata", f"the watch of {path}")
    _sound(kind, meta.get("name"), meta.get("resourceVersion"), path)
    if kind != BOOKMARK:
        shapes.listed(obj, f"the watch of {path}")
    return kind, obj


def _sound(kind: str, name: object, version: object, path: str) -> None:
    """Raises ``ApiUnavailable`` for an event that lacks what the API server puts into each of its kind."""
    if kind not in KINDS:
        raise _unreadable(path)
    if not (version and isinstance(version, str)) or (kind != BOOKMARK and not name):
        raise _unreadable(path)


def _unreadable(path: str) -> ApiUnavailable:
    return ApiUnavailable(f"an event of the watch of {path} cannot be read")
