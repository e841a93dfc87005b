"""One watch of all Nodes of a selector, and one of the pods that fail.

What the API server does to a watch (kube-apiserver 1.36): one that is slow, or old, is ended like any answer,
which says nothing about the Nodes. A version that is too old comes as status 410, or as an event of type
ERROR within a 200. Bookmarks come about once a minute.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from recovery.errors import ApiUnavailable
from recovery.kube.transport import Streams, api_error
from recovery.kube.views import failed_pod, node_view
from recovery.model import FailedPod, NodeView

NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
FAILED = "status.phase=Failed"
THERE = ("ADDED", "MODIFIED")
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


def watch_nodes(streams: Streams, selector: str, version: str) -> Iterator[Change]:
    """The changes since ``version``, until the server ends the watch.

    Raises ``Expired`` where ``version`` is too old, another ``ApiError`` where the watch breaks.
    """
    more = {"labelSelector": selector} if selector else {}
    for kind, obj, at in _events(streams, NODES, version, more):
        if kind == "DELETED":
            yield Change(at, gone=str((obj.get("metadata") or {}).get("name") or ""))
        else:
            yield Change(at, node_view(obj, whole=True) if kind in THERE else None)


def watch_failed_pods(streams: Streams, version: str) -> Iterator[Failure]:
    """The pods that fail after ``version``, until the server ends the watch. Raises as ``watch_nodes``."""
    for kind, obj, at in _events(streams, PODS, version, {"fieldSelector": FAILED}):
        yield Failure(at, failed_pod(obj) if kind in THERE else None)


def _events(
    streams: Streams, path: str, version: str, more: dict[str, str]
) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Kind, object and version of each event."""
    query = {
        "watch": "true",
        "resourceVersion": version,
        "allowWatchBookmarks": "true",
        "timeoutSeconds": str(LASTS),
        **more,
    }
    for line in streams.stream(path, query):
        if not line.strip():
            continue
        kind, obj = _event(line, path)
        if kind == "ERROR":
            raise api_error(int(obj.get("code") or 500), obj, {}, f"watch of {path}")
        yield kind, obj, str((obj.get("metadata") or {}).get("resourceVersion") or "")


def _event(line: bytes, path: str) -> tuple[str, dict[str, Any]]:
    try:
        event = json.loads(line)
        kind, obj = event["type"], event["object"]
        if isinstance(kind, str) and isinstance(obj, dict):
            return kind, obj
    except (ValueError, RecursionError, KeyError, TypeError):
        pass
    raise ApiUnavailable(f"an event of the watch of {path} cannot be read")
