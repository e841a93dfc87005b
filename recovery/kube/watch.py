"""One watch of all Nodes of a selector.

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
from recovery.kube.views import node_view
from recovery.model import NodeView

NODES = "/api/v1/nodes"
LASTS = 300
"""Seconds after which the API server is to end a watch: the next one may go to another replica of it."""


@dataclass(frozen=True, slots=True)
class Change:
    """One event. ``version``: from which to watch after it. ``node``: a Node as it is now. ``gone``: the name
    of one that was deleted, or is no longer of the selector. A bookmark has neither."""

    version: str
    node: NodeView | None = None
    gone: str = ""


def watch_nodes(streams: Streams, selector: str, version: str) -> Iterator[Change]:
    """The changes since ``version``, until the server ends the watch.

    Raises ``Expired`` where ``version`` is too old, another ``ApiError`` where the watch breaks.
    """
    query = {
        "watch": "true",
        "resourceVersion": version,
        "allowWatchBookmarks": "true",
        "timeoutSeconds": str(LASTS),
        **({"labelSelector": selector} if selector else {}),
    }
    for line in streams.stream(NODES, query):
        if line.strip():
            yield _change(*_event(line))


def _event(line: bytes) -> tuple[str, dict[str, Any]]:
    try:
        event = json.loads(line)
        kind, obj = event["type"], event["object"]
        if isinstance(kind, str) and isinstance(obj, dict):
            return kind, obj
    except (ValueError, RecursionError, KeyError, TypeError):
        pass
    raise ApiUnavailable(f"an event of the watch of {NODES} cannot be read")


def _change(kind: str, obj: dict[str, Any]) -> Change:
    if kind == "ERROR":
        raise api_error(int(obj.get("code") or 500), obj, {}, f"watch of {NODES}")
    metadata = obj.get("metadata") or {}
    version = str(metadata.get("resourceVersion") or "")
    if kind == "DELETED":
        return Change(version, gone=str(metadata.get("name") or ""))
    return Change(version, node_view(obj, whole=True) if kind in ("ADDED", "MODIFIED") else None)
