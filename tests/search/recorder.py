"""Writes down each write that the API in memory applies, as a fact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from recovery_testkit.kubeshelf import Origin, object_key
from recovery_testkit.kubestore import KubernetesStore

from tests.search.facts import Fact, Wrote

EVICTED = "the eviction API"
"""Who deletes a pod whose eviction was granted. That it was asked for is a fact of its own."""


def record_writes(store: KubernetesStore, now: Callable[[], float], note: Callable[[Fact], None]) -> None:
    """From now on every write of ``store`` is noted. Stored objects are never changed, so none is copied."""
    shelf = store._shelf
    put, drop = shelf.put, shelf.drop

    def noted_put(resource: Any, before: Any, after: Any, origin: Origin) -> Any:
        stored = put(resource, before, after, origin)
        kept = shelf.objects[resource.key].get(object_key(after)) is stored
        if kept and not origin.dry_run:  # what was only waiting for its end has been dropped, and noted there
            note(_fact(now(), origin, resource.kind, before, stored))
        return stored

    def noted_drop(resource: Any, obj: Any, origin: Origin) -> None:
        drop(resource, obj, origin)
        if not origin.dry_run:
            note(_fact(now(), origin, resource.kind, obj, None))

    shelf.put, shelf.drop = noted_put, noted_drop  # type: ignore[method-assign]


def _fact(at: float, origin: Origin, kind: str, before: Any, after: Any) -> Wrote:
    meta = (after or before)["metadata"]
    verb = "delete" if after is None else "create" if before is None else origin.verb
    if verb == "evict":
        verb = "delete"
    return Wrote(
        at,
        EVICTED if origin.verb == "evict" else origin.actor,
        verb,
        kind,
        meta.get("namespace", ""),
        meta["name"],
        meta.get("uid", ""),
        before,
        after,
    )
