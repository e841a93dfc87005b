"""A restored etcd: all objects at once become what they were."""

from __future__ import annotations

from typing import Any

from recovery_testkit.kubeshelf import CRDS, NAMESPACES, Origin
from recovery_testkit.kubestore import KubernetesStore

Kept = dict[Any, dict[Any, Any]]
KEEP = {CRDS, NAMESPACES}


def restore(store: KubernetesStore, old: Kept) -> None:
    """Put ``old`` in place of what is there. Each object that changes is a write by ``etcd``."""
    shelf = store._shelf
    with store._lock:
        for key, held in shelf.objects.items():
            if key in KEEP:
                continue
            resource = shelf.resource(key)
            before = old.get(key, {})
            for name in [name for name in held if name not in before]:
                shelf.drop(resource, held[name], Origin("delete", "etcd", "etcd"))
            for name, obj in before.items():
                if held.get(name) is not obj:
                    now = held.get(name)
                    shelf.put(resource, now, obj, Origin("update" if now else "create", "etcd", "etcd"))
