"""Where the objects are stored: versions, the journal for watches, the history for checkers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from recovery_testkit.kubepaths import Target
from recovery_testkit.kuberesources import BUILTIN, CRD_GROUP, Resource, from_crd
from recovery_testkit.kubestatus import Json, not_found
from recovery_testkit.kubewatch import Change, Journal

# A server with a past: a watch from a low version is too old, as it is on most real clusters.
FIRST_VERSION = 1000

CRDS = (CRD_GROUP, "customresourcedefinitions")
NODES = ("", "nodes")
PODS = ("", "pods")
PDBS = ("policy", "poddisruptionbudgets")
NAMESPACES = ("", "namespaces")


@dataclass(frozen=True)
class Write:
    """One accepted write, for checkers: who wrote what, when, and the object afterwards (of a deletion:
    its last state). `verb` is create, update, patch, delete or evict; what controllers do carries their
    name as the actor."""

    resource_version: int
    time: datetime
    verb: str
    path: str
    actor: str
    object: Json


@dataclass(frozen=True)
class Origin:
    """Who writes, by which verb and path. A dry run is answered and not kept."""

    verb: str
    path: str
    actor: str
    dry_run: bool = False


Listener = Callable[[Resource, Json, bool], None]


class Shelf:
    """The objects by resource, then by (namespace, name). Stored objects are never changed in place.

    `listener(resource, object, gone)` is called after every write that is kept: that is where controllers
    live. Callers hold `journal.changed`, the one lock of everything.
    """

    def __init__(self, now: Callable[[], datetime], window: int) -> None:
        self.now = now
        self.journal = Journal(FIRST_VERSION, window)
        self.history: list[Write] = []
        self.resources: list[Resource] = list(BUILTIN)
        self.objects: dict[tuple[str, str], dict[tuple[str, str], Json]] = {each.key: {} for each in BUILTIN}
        self.listener: Listener = lambda resource, obj, gone: None

    def find(self, target: Target) -> Json | None:
        """The stored object, or None."""
        return self.objects[target.resource.key].get((target.namespace, target.name))

    def held(self, target: Target) -> Json:
        """The stored object. Raises `ApiError` 404."""
        found = self.find(target)
        if found is None:
            raise not_found(target.resource.qualified, target.name)
        return found

    def resource(self, key: tuple[str, str]) -> Resource:
        """The resource type of a key that is served."""
        return next(each for each in self.resources if each.key == key)

    def put(self, resource: Resource, before: Json | None, after: Json, origin: Origin) -> Json:
        """Gives the object its version and keeps it. An object that was only waiting for its last
        finalizer, or for the end of its grace period, goes instead. Returns the object as stored (of a dry
        run: as it would be)."""
        if origin.dry_run:
            return after
        if released(after):
            self.drop(resource, after, origin)
            return after
        version = self.journal.newest + 1
        after = _with_version(after, version)
        self.objects[resource.key][object_key(after)] = after
        self._note(version, origin, after)
        self.journal.append(Change(version, resource.key, before, after, after))
        self.listener(resource, after, False)
        return after

    def drop(self, resource: Resource, obj: Json, origin: Origin) -> None:
        """Takes an object out, whatever state it is in."""
        if origin.dry_run:
            return
        before = self.objects[resource.key].pop(object_key(obj))
        version = self.journal.newest + 1
        last = _with_version(obj, version)
        self._note(version, origin, last)
        self.journal.append(Change(version, resource.key, before, None, last))
        self.listener(resource, last, True)

    def serve(self, crd: Mapping[str, object]) -> None:
        """Serves the kinds of a definition, instead of what was served under the same names."""
        served = from_crd(crd)
        keys = {each.key for each in served}
        self.resources = [each for each in self.resources if each.key not in keys] + served
        for key in keys:
            self.objects.setdefault(key, {})

    def unserve(self, crd: Mapping[str, object]) -> None:
        """Ends what `serve` began; the objects must be gone."""
        keys = {each.key for each in from_crd(crd)}
        self.resources = [each for each in self.resources if each.key not in keys]

    def _note(self, version: int, origin: Origin, obj: Json) -> None:
        self.history.append(Write(version, self.now(), origin.verb, origin.path, origin.actor, obj))


def object_key(obj: Json) -> tuple[str, str]:
    """(namespace, name); the namespace of a cluster-scoped object is empty."""
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def released(obj: Json) -> bool:
    """True when nothing holds a deleted object any more: no finalizer, no grace left."""
    meta = obj["metadata"]
    held = meta.get("finalizers") or meta.get("deletionGracePeriodSeconds")
    return bool(meta.get("deletionTimestamp")) and not held


def _with_version(obj: Json, version: int) -> Json:
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}}
