"""Is an answer an object of the API server's, or a list of them? PURE.

Something else may answer in its place, with status 200: a proxy, a captive portal, another service that has
taken its address. What has not what the API server puts on each object says nothing of the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recovery.errors import ApiUnavailable


def strange(what: str, why: str) -> ApiUnavailable:
    """``what``: the request. ``why``: what its answer lacks."""
    return ApiUnavailable(f"the answer to {what} is not the API server's: {why}")


def stored(found: Any, what: str) -> dict[str, Any]:
    """``found``, an object that the API server has stored. Raises ``ApiUnavailable``."""
    obj = listed(found, what)
    for key in ("uid", "resourceVersion"):
        if not _is_text(obj["metadata"].get(key)):
            raise strange(what, f"it has no metadata.{key}")
    return obj


def listed(found: Any, what: str) -> dict[str, Any]:
    """``found``, an object with a name, as lists have it. Raises ``ApiUnavailable``."""
    obj = body_of(found, what)
    meta = obj.get("metadata")
    if not isinstance(meta, dict) or not _is_text(meta.get("name")):
        raise strange(what, "an object has no metadata.name")
    for key in ("labels", "annotations"):
        if not isinstance(meta.get(key) or {}, dict):
            raise strange(what, f"metadata.{key} is no map")
    for key in ("spec", "status"):
        if not isinstance(obj.get(key) or {}, dict):
            raise strange(what, f"{key} is no object")
    return obj


def body_of(found: Any, what: str) -> dict[str, Any]:
    """``found``, a JSON object. Raises ``ApiUnavailable``."""
    if not isinstance(found, dict):
        raise strange(what, f"{type(found).__name__} in place of an object")
    return found


def granted(found: Any, what: str) -> None:
    """``found`` says that an eviction is granted. Raises ``ApiUnavailable`` if it is no Status.

    (pkg/registry/core/pod/storage/eviction.go answers each eviction, a dry run too, with a Status.)
    """
    if body_of(found, what).get("kind") != "Status":
        raise strange(what, "it is no Status")


def part_of(found: Any, key: str, what: str) -> Mapping[str, Any]:
    """The object ``key`` of ``found``, empty where it has none. Raises ``ApiUnavailable``."""
    part = body_of(found, what).get(key) or {}
    if not isinstance(part, dict):
        raise strange(what, f"{key} is no object")
    return part


def page(found: Any, what: str) -> tuple[Mapping[str, Any], list[Any]]:
    """Metadata and items of a page of a list. Raises ``ApiUnavailable``: an empty object is no empty list."""
    body = body_of(found, what)
    meta, items = body.get("metadata"), body.get("items", ...)
    if not isinstance(meta, dict) or not (items is None or isinstance(items, list)):
        raise strange(what, "it is no list of objects")
    return meta, items or []


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""
