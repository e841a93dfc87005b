"""What others put on our objects: labels, annotations, finalizers, owners, fields that we do not know. PURE.

A PUT replaces the whole object, so each of ours starts from the object that was read (law 5).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOST = 64 * 1024
"""Characters of metadata up to which an object is kept in memory. A larger one is read again before a PUT."""


def carried(was: Mapping[str, Any] | None) -> dict[str, Any]:
    """All of ``was`` but its status, and without ``managedFields``, which the API server keeps by itself."""
    if was is None:
        return {}
    kept = {key: value for key, value in was.items() if key != "status"}
    metadata = kept.get("metadata") or {}
    return {**kept, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}


def small(was: Mapping[str, Any]) -> bool:
    """Whether the metadata of ``was`` is small enough to be kept in memory."""
    metadata = was.get("metadata") or {}
    parts = (metadata.get("labels") or {}, metadata.get("annotations") or {})
    return sum(len(str(key)) + len(str(value)) for part in parts for key, value in part.items()) <= MOST
