"""Writes down, as facts, each write that the API in memory applies, each eviction and each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from recovery_testkit.kubeshelf import Origin, object_key, released
from recovery_testkit.kubestatus import ApiError
from recovery_testkit.kubestore import KubernetesStore

from tests.search.facts import Fact, Wrote


def record_writes(store: KubernetesStore, now: Callable[[], float], note: Callable[[Fact], None]) -> None:
    """From now on every write of ``store`` is noted. Stored objects are never changed, so none is copied."""
    shelf, verbs = store._shelf, store._verbs
    put, drop, evict = shelf.put, shelf.drop, verbs._evict

    def noted_put(resource: Any, before: Any, after: Any, origin: Origin) -> Any:
        stored = put(resource, before, after, origin)
        if not origin.dry_run and not released(after):  # what only waited for its end is noted as dropped
            note(_fact(now(), origin, resource.kind, before, stored))
        return stored

    def noted_drop(resource: Any, obj: Any, origin: Origin) -> None:
        before = shelf.objects[resource.key].get(object_key(obj), obj)
        drop(resource, obj, origin)
        if not origin.dry_run:
            note(_fact(now(), origin, resource.kind, before, None))

    def noted_evict(call: Any) -> Any:
        try:
            return evict(call)
        except ApiError as error:
            if not call.origin.dry_run:
                target = call.target
                pod = shelf.find(target)
                note(
                    Wrote(
                        now(), call.actor, "create", "Eviction", target.namespace, target.name, "", pod,
                        None, error.status,
                    )
                )  # fmt: skip
            raise

    shelf.put, shelf.drop = noted_put, noted_drop  # type: ignore[method-assign]
    verbs._evict = noted_evict  # type: ignore[method-assign]


def _fact(at: float, origin: Origin, kind: str, before: Any, after: Any) -> Wrote:
    meta = (after or before)["metadata"]
    verb = origin.verb
    if verb != "evict":
        verb = "delete" if after is None else "create" if before is None else verb
    elif kind != "Pod":
        verb = "update"
    namespace, uid = meta.get("namespace", ""), meta.get("uid", "")
    return Wrote(at, origin.actor, verb, kind, namespace, meta["name"], uid, before, after)
