"""The verbs of the API on a shelf of objects: get, list, create, update, patch, delete, evict."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from recovery.quick import quick
from recovery_testkit import kubeevict, kubewrite
from recovery_testkit.kubelist import Lister
from recovery_testkit.kubepaths import Target, flag, number
from recovery_testkit.kuberesources import Resource, from_crd
from recovery_testkit.kubeshelf import CRDS, NAMESPACES, PDBS, PODS, Origin, Shelf, released
from recovery_testkit.kubestatus import (
    Cause,
    Json,
    already_exists,
    bad_request,
    conflict,
    invalid,
    method_not_allowed,
    not_found,
    success,
    unsupported_media_type,
)

Answer = tuple[int, Json, dict[str, str]]

_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_ONE = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_MANY = {**_ONE, "GET": "list", "DELETE": "deletecollection"}


@quick
@dataclass(frozen=True, slots=True)
class Call:
    """One request, its path already read into a target."""

    method: str
    path: str
    target: Target
    query: Mapping[str, str]
    body: Any
    content_type: str
    actor: str

    @property
    def verb(self) -> str:
        """The RBAC verb."""
        return (_ONE if self.target.name else _MANY).get(self.method, self.method.lower())

    @property
    def options(self) -> Json:
        """The body as DeleteOptions; empty when there is none."""
        return self.body if isinstance(self.body, dict) else {}

    @property
    def origin(self) -> Origin:
        """The call as the history notes it."""
        verb = "evict" if self.target.subresource == "eviction" else _ONE[self.method]
        dry = bool(self.query.get("dryRun")) or (self.method == "DELETE" and bool(self.options.get("dryRun")))
        return Origin(verb, self.path, self.actor, dry)


class Verbs:
    """Answers calls; a refusal raises `ApiError`. Callers hold the shelf's lock."""

    def __init__(self, shelf: Shelf, seed: int) -> None:
        self.lister = Lister()
        self._shelf = shelf
        self._random = random.Random(seed)  # noqa: S311 - names and uids of tests, the same in every run
        self._one: dict[str, Callable[[Call], Answer]] = {
            "GET": self._get,
            "PUT": self._write,
            "PATCH": self._write,
            "DELETE": self._delete,
        }
        self._many: dict[str, Callable[[Call], Answer]] = {
            "GET": self._list,
            "POST": self._create,
            "DELETE": self._delete_all,
        }

    def answer(self, call: Call) -> Answer:
        """Status code, body (not to be changed: it may be the stored object) and further header fields."""
        if call.query.get("dryRun", "All") != "All":
            words = 'Unsupported value: supported values: "All"'
            raise invalid("Options.meta.k8s.io", "", [Cause("FieldValueNotSupported", words, "dryRun")])
        target = call.target
        if target.subresource == "eviction":
            return self._evict(call)
        handler = (self._one if target.name else self._many).get(call.method)
        if target.subresource and call.method == "DELETE":
            handler = None
        whole_cluster = target.resource.namespaced and not target.namespace
        if handler is None or (whole_cluster and call.method != "GET"):
            raise method_not_allowed()
        return handler(call)

    def _get(self, call: Call) -> Answer:
        return 200, self._shelf.held(call.target), {}

    def _list(self, call: Call) -> Answer:
        if flag(call.query, "watch"):
            raise bad_request("use watch() for a watch")
        held = self._shelf.objects[call.target.resource.key]
        return 200, self.lister.page(call.target, call.query, held, self._shelf.journal.newest), {}

    def _create(self, call: Call) -> Answer:
        _check_json(call)
        return self._insert(call, kubewrite.check_identity(call.target, call.body))

    def _insert(self, call: Call, proposed: Json) -> Answer:
        target, resource = call.target, call.target.resource
        if resource.namespaced and ("", target.namespace) not in self._shelf.objects[NAMESPACES]:
            raise not_found("namespaces", target.namespace)
        suffix = "".join(self._random.choices(_SUFFIX, k=5))
        fresh = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        obj, pruned = kubewrite.created(target, proposed, uid=fresh, suffix=suffix, now=self._shelf.now())
        headers = _pruning(resource, pruned, call.query)
        held = self._shelf.objects[resource.key].get((target.namespace, obj["metadata"]["name"]))
        if held is not None:
            raise already_exists(resource.qualified, held["metadata"])
        if resource.key == CRDS:
            obj = _established(obj)
        return 201, self._shelf.put(resource, None, obj, call.origin), headers

    def _write(self, call: Call) -> Answer:
        """PUT and PATCH, of an object or its status."""
        target, put = call.target, call.method == "PUT"
        if put:
            _check_json(call)
            proposed = kubewrite.check_identity(target, call.body)
            if target.resource.upsert and not target.subresource and self._shelf.find(target) is None:
                return self._upsert(call, proposed)
        current = self._shelf.held(target)
        if not put:
            proposed = kubewrite.patched(target, current, call.body, call.content_type)
        kubewrite.check_version(target.resource, current, proposed, put=put)
        obj, pruned = kubewrite.updated(target, current, proposed)
        headers = _pruning(target.resource, pruned, call.query)
        if obj == current:
            return 200, current, headers
        return 200, self._shelf.put(target.resource, current, obj, call.origin), headers

    def _upsert(self, call: Call, proposed: Json) -> Answer:
        """A PUT of a missing Lease or Event creates it, whatever version it names; one that names a uid is
        a 409."""
        meta = proposed["metadata"]
        if meta.get("uid"):
            why = f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: "
            raise conflict(call.target.resource.qualified, call.target.name, why)
        return self._insert(call, {**proposed, "metadata": {**meta, "resourceVersion": None}})

    def _delete(self, call: Call) -> Answer:
        target, options = call.target, call.options
        if call.query.get("gracePeriodSeconds"):
            options = {**options, "gracePeriodSeconds": number(call.query, "gracePeriodSeconds")}
        current = self._shelf.held(target)
        _check_preconditions(target.resource, current, options)
        left = self._remove(call.origin, target.resource, current, options)
        if left is not None:
            return 200, left, {}
        if target.resource.key == PODS:
            return 200, self._marked(current, 0), {}
        meta, resource = current["metadata"], target.resource
        details = {"name": meta["name"], "group": resource.group, "kind": resource.plural, "uid": meta["uid"]}
        return 200, success(details={key: value for key, value in details.items() if value}), {}

    def _delete_all(self, call: Call) -> Answer:
        _, listed, _ = self._list(call)
        resource = call.target.resource
        for item in listed["items"]:
            one = Target(resource, call.target.namespace, item["metadata"]["name"])
            self._remove(call.origin, resource, self._shelf.held(one), call.options)
        return 200, listed, {}

    def _remove(self, origin: Origin, resource: Resource, obj: Json, options: Json) -> Json | None:
        """Deletes as the kind does it. Returns the object while it stays (grace, finalizers), None once it
        is gone."""
        meta = obj["metadata"]
        grace = _grace(obj, options) if resource.key == PODS else 0
        going = bool(meta.get("deletionTimestamp"))
        if going and grace >= meta.get("deletionGracePeriodSeconds", 0) and (grace or meta.get("finalizers")):
            return obj
        if not going and not grace and not meta.get("finalizers"):
            self._shelf.drop(resource, obj, origin)
            return None
        left = self._shelf.put(resource, obj, self._marked(obj, grace), origin)
        return None if released(left) else left

    def _marked(self, obj: Json, grace: int) -> Json:
        """The object as it is while it goes; `grace` in seconds from now."""
        meta = obj["metadata"]
        nanoseconds = (grace * 10**9 + 2**63) % 2**64 - 2**63  # as Go's durations overflow
        deadline = kubewrite.timestamp(self._shelf.now() + timedelta(microseconds=nanoseconds // 1000))
        marked = {**meta, "deletionTimestamp": deadline, "deletionGracePeriodSeconds": grace}
        if "generation" in meta and "deletionTimestamp" not in meta:
            marked["generation"] = meta["generation"] + 1
        return {**obj, "metadata": marked}

    def _evict(self, call: Call) -> Answer:
        """policy/v1 Eviction. The budget is charged before the preconditions are read, as in a real
        server."""
        if call.method != "POST":
            raise method_not_allowed()
        if (call.options.get("metadata") or {}).get("name") != call.target.name:
            raise bad_request("name in URL does not match name in Eviction object")
        target = Target(call.target.resource, call.target.namespace, call.target.name)
        pod, options = self._shelf.held(target), call.options.get("deleteOptions") or {}
        if pod["metadata"].get("labels"):
            budgets = [each for each in self._shelf.objects[PDBS].values() if kubeevict.covers(each, pod)]
            charged = kubeevict.weigh(pod, budgets)
            if charged is not None:
                self._charge(call.origin, charged, target.name)
        _check_preconditions(target.resource, pod, options)
        if not (call.origin.dry_run or options.get("dryRun")):
            marked = self._mark_disrupted(call.origin, target, pod)
            self._remove(call.origin, target.resource, marked, options)
        return 201, success(201), {}

    def _charge(self, origin: Origin, pdb: Json, pod: str) -> None:
        status, since = pdb["status"], kubewrite.timestamp(self._shelf.now())
        disrupted = {**(status.get("disruptedPods") or {}), pod: since}
        less = {**status, "disruptionsAllowed": status["disruptionsAllowed"] - 1, "disruptedPods": disrupted}
        self._shelf.put(self._shelf.resource(PDBS), pdb, {**pdb, "status": less}, origin)

    def _mark_disrupted(self, origin: Origin, target: Target, pod: Json) -> Json:
        """The pod with the DisruptionTarget condition that the eviction API leaves on it."""
        if pod["metadata"].get("deletionTimestamp"):
            return pod
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "lastTransitionTime": kubewrite.timestamp(self._shelf.now()),
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        }
        status = pod.get("status") or {}
        others = [each for each in status.get("conditions") or [] if each.get("type") != "DisruptionTarget"]
        marked = {**pod, "status": {**status, "conditions": [*others, condition]}}
        return self._shelf.put(target.resource, pod, marked, origin)


def _check_json(call: Call) -> None:
    if call.content_type not in ("", "application/json"):
        raise unsupported_media_type(["application/json"])


def _check_preconditions(resource: Resource, obj: Json, options: Json) -> None:
    meta, wanted = obj["metadata"], options.get("preconditions") or {}
    uid, version = wanted.get("uid"), wanted.get("resourceVersion")
    if uid and uid != meta["uid"]:
        why = (
            f"the UID in the precondition ({uid}) does not match the UID in record ({meta['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise conflict(resource.qualified_kind, meta["name"], why)
    if version and version != meta["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in "
            f"record ({meta['resourceVersion']}). The object might have been modified"
        )
        raise conflict(resource.qualified_kind, meta["name"], why)


def _grace(pod: Json, options: Json) -> int:
    """Seconds that a pod gets, as the API server decides: none when it is bound to no node, or done."""
    spec, phase = pod.get("spec") or {}, (pod.get("status") or {}).get("phase")
    asked = options.get("gracePeriodSeconds")
    seconds = asked if asked is not None else spec.get("terminationGracePeriodSeconds", 30)
    if not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
        return 0
    return 1 if seconds < 0 else int(seconds)


def _pruning(resource: Resource, pruned: list[str], query: Mapping[str, str]) -> dict[str, str]:
    """The Warning header for pruned fields; with `fieldValidation=Strict` a refusal."""
    words = [f'unknown field "{path}"' for path in pruned]
    if not words or query.get("fieldValidation") == "Ignore":
        return {}
    if query.get("fieldValidation") == "Strict":
        why = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}'
        raise bad_request(f"{why}: strict decoding error: {', '.join(words)}")
    return {"Warning": ", ".join("299 - " + json.dumps(each) for each in words)}


def _established(crd: Json) -> Json:
    """A definition as it is once its controllers have accepted it. Raises `ApiError` 400 for one that is
    incomplete."""
    try:
        served = from_crd(crd)
    except (KeyError, TypeError) as missing:
        raise bad_request(f"the definition lacks {missing}") from None
    if not served or crd["metadata"]["name"] != served[0].qualified:
        raise bad_request(
            'metadata.name: must be spec.names.plural+"."+spec.group, and a version must be served'
        )
    since = crd["metadata"]["creationTimestamp"]
    conditions = [
        {"type": each, "status": "True", "lastTransitionTime": since}
        for each in ("NamesAccepted", "Established")
    ]
    return {**crd, "status": {"conditions": conditions, "acceptedNames": crd["spec"]["names"]}}
