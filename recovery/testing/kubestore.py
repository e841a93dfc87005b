"""A Kubernetes API in memory: what a kube-apiserver and the controllers next to it answer, without sockets.

It is held to the real thing by `cluster_kit.py`, which runs on both. Deliberately not there: admission, RBAC, field
ownership and server-side apply, most defaults and most pruning of built-in kinds, garbage collection by owner, the node
lifecycle controller, events.k8s.io.
"""

from __future__ import annotations

import json
import random
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any, Protocol

from recovery.testing import kubeevict, kubewrite
from recovery.testing.kubecontrol import Controllers
from recovery.testing.kubelist import Lister, matcher
from recovery.testing.kubepatch import copy_json
from recovery.testing.kubepaths import Target, flag, number, parse
from recovery.testing.kuberesources import CRD_GROUP, Resource, discovery, from_crd
from recovery.testing.kubeshelf import CRDS, NAMESPACES, PDBS, PODS, Origin, Shelf, Write, object_key, released
from recovery.testing.kubestatus import (
    ApiError,
    Json,
    Response,
    already_exists,
    bad_request,
    conflict,
    method_not_allowed,
    not_found,
    success,
    unsupported_media_type,
)
from recovery.testing.kubewatch import Watch

Query = Mapping[str, str]
Answer = tuple[int, Json, dict[str, str]]

_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class KubernetesApi(Protocol):
    """What the HTTP front, the fault injector and the conformance kit need of an API."""

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Any = None,
        content_type: str | None = None,
        user_agent: str = "",
    ) -> Response:
        """One request, one answer; refusals are answers too."""
        ...

    def watch(self, path: str, query: Query | None = None, *, user_agent: str = "") -> Watch:
        """Opens a watch on a collection; raises `ApiError` when it cannot be opened."""
        ...


@dataclass(frozen=True)
class _Call:
    method: str
    path: str
    query: Query
    body: Any
    content_type: str
    actor: str

    @property
    def origin(self) -> Origin:
        """The call as the history notes it."""
        verbs = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
        verb = "evict" if self.path.endswith("/eviction") else verbs[self.method]
        in_options = self.method == "DELETE" and isinstance(self.body, dict) and bool(self.body.get("dryRun"))
        return Origin(verb, self.path, self.actor, bool(self.query.get("dryRun")) or in_options)


class KubernetesStore:
    """A thread-safe in-memory Kubernetes API. `now` gives the time of every stamp, Date header and deadline.

    `history` is every accepted write, in order; `requests` counts every request by (RBAC verb, resource), refused ones
    too. `window` is how many changes a watch can go back.
    """

    def __init__(
        self, *, now: Callable[[], datetime] | None = None, window: int = 10_000, seed: int = 0
    ) -> None:
        self.history: list[Write] = []
        self.requests: Counter[tuple[str, str]] = Counter()
        self._now = now or (lambda: datetime.now(UTC))
        self._random = random.Random(seed)  # noqa: S311 - names and uids of tests, the same in every run
        self._journal = Journal(FIRST_VERSION, window)
        self._lock = self._journal.changed
        self._resources: list[Resource] = list(BUILTIN)
        self._objects: dict[tuple[str, str], dict[tuple[str, str], Json]] = {each.key: {} for each in BUILTIN}
        self._going: dict[tuple[str, str], datetime] = {}
        self._dead_kubelets: set[str] = set()
        self._watches: list[Watch] = []
        self._lister = Lister()
        for name in ("default", "kube-node-lease", "kube-public", "kube-system"):
            self.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    # -- the API ------------------------------------------------------------------------------------------------------

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Any = None,
        content_type: str | None = None,
        user_agent: str = "",
    ) -> Response:
        """One request and its answer; a refusal is a Response with a Status body. `body` is JSON data (a dict, or a list
        for a JSON patch) and is not kept; `user_agent` is who it says it is, for `history`."""
        kind = (content_type or "").partition(";")[0].strip().lower()
        call = _Call(method.upper(), path.partition("?")[0], dict(query or {}), _json(body), kind, user_agent)
        with self._lock:
            self._advance()
            try:
                status, answer, headers = self._answer(call)
            except ApiError as error:
                status, answer, headers = error.status, error.body, error.headers
            return Response(status, {**self._headers(), **headers}, copy_json(answer))

    def watch(self, path: str, query: Query | None = None, *, user_agent: str = "") -> Watch:
        """Opens a watch on a collection with the query parameters of a real one. Raises `ApiError` for a bad path,
        selector or version; an expired version is an ERROR event, as from a real server."""
        asked = dict(query or {})
        with self._lock:
            self._advance()
            target = parse(path.partition("?")[0], self._resources)
            self._count("watch", target)
            watch = self._open_watch(target, asked)
            self._watches = [each for each in self._watches if not each.ended] + [watch]
            return watch

    def client(self, user_agent: str) -> Client:
        """This API as one named client sees it: its writes carry the name in `history`."""
        return Client(self, user_agent)

    def _answer(self, call: _Call) -> tuple[int, Json, dict[str, str]]:
        document = discovery(call.path, self._resources) if call.method == "GET" else None
        if document is not None:
            return 200, document, {}
        if call.path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" and call.method == "POST":
            self.requests["create", "selfsubjectaccessreviews"] += 1
            return 201, {**(call.body or {}), "status": {"allowed": True}}, {}
        target = parse(call.path, self._resources)
        self._count(_verb(call, target), target)
        if call.query.get("dryRun", "All") != "All":
            raise bad_request('Invalid value: dryRun: supported values: "All"')
        if target.subresource == "eviction":
            return self._evict(call, target)
        verbs = {
            "GET": self._get if target.name else self._list,
            "POST": None if target.name else self._create,
            "PUT": self._write if target.name else None,
            "PATCH": self._write if target.name else None,
            "DELETE": self._delete if target.name else self._delete_all,
        }
        answer = verbs.get(call.method)
        if answer is None or (target.subresource and call.method in ("POST", "DELETE")):
            raise method_not_allowed()
        return answer(call, target)

    def _get(self, call: _Call, target: Target) -> tuple[int, Json, dict[str, str]]:
        return 200, self._held(target), {}

    def _list(self, call: _Call, target: Target) -> tuple[int, Json, dict[str, str]]:
        if flag(call.query, "watch"):
            raise bad_request("use watch() for a watch")
        held = self._objects[target.resource.key]
        return 200, self._lister.page(target, call.query, held, self._journal.newest), {}

    def _create(self, call: _Call, target: Target) -> tuple[int, Json, dict[str, str]]:
        if call.content_type not in ("", "application/json"):
            raise unsupported_media_type(["application/json"])
        if target.resource.namespaced and not target.namespace:
            raise method_not_allowed()
        return self._insert(call, target, kubewrite.check_identity(target, call.body))

    def _insert(self, call: _Call, target: Target, proposed: Json) -> tuple[int, Json, dict[str, str]]:
        resource = target.resource
        if resource.namespaced and ("", target.namespace) not in self._objects[_NAMESPACES]:
            raise not_found("namespaces", target.namespace)
        suffix = "".join(self._random.choices(_SUFFIX, k=5))
        fresh = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        obj, pruned = kubewrite.created(target, proposed, uid=fresh, suffix=suffix, now=self._now())
        headers = _pruning(resource, pruned, call.query)
        name = obj["metadata"]["name"]
        if (target.namespace, name) in self._objects[resource.key]:
            raise already_exists(resource.qualified, name)
        if resource.key == _CRDS:
            obj = self._established(obj)
        return 201, self._store(resource, None, obj, call), headers

    def _write(self, call: _Call, target: Target) -> tuple[int, Json, dict[str, str]]:
        put = call.method == "PUT"
        if put and call.content_type not in ("", "application/json"):
            raise unsupported_media_type(["application/json"])
        proposed = kubewrite.check_identity(target, call.body) if put else None
        current = self._objects[target.resource.key].get((target.namespace, target.name))
        if current is None and proposed is not None and target.resource.upsert and not target.subresource:
            return self._upsert(call, target, proposed)
        current = self._held(target)
        if proposed is None:
            proposed = kubewrite.patched(target, current, call.body, call.content_type)
        kubewrite.check_version(target.resource, current, proposed, put=put)
        obj, pruned = kubewrite.updated(target, current, proposed)
        headers = _pruning(target.resource, pruned, call.query)
        if obj == current:
            return 200, current, headers
        return 200, self._store(target.resource, current, obj, call), headers

    def _upsert(self, call: _Call, target: Target, proposed: Json) -> tuple[int, Json, dict[str, str]]:
        """A PUT of a missing Lease or Event creates it, whatever its version; with a uid it is a 409 (seen on v1.36.3)."""
        meta = proposed["metadata"]
        if meta.get("uid"):
            why = f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: "
            raise conflict(target.resource.qualified, target.name, why)
        return self._insert(call, target, {**proposed, "metadata": {**meta, "resourceVersion": None}})

    def _delete(self, call: _Call, target: Target) -> tuple[int, Json, dict[str, str]]:
        options = call.body if isinstance(call.body, dict) else {}
        if call.query.get("gracePeriodSeconds"):
            options = {**options, "gracePeriodSeconds": number(call.query, "gracePeriodSeconds")}
        current = self._held(target)
        self._check_preconditions(target, current, options.get("preconditions") or {})
        left = self._remove(call, target, current, options)
        meta = current["metadata"]
        if left is not None or target.resource.key == _PODS:
            return 200, left if left is not None else current, {}
        details = {"name": meta["name"], "group": target.resource.group, "kind": target.resource.plural}
        named = {key: value for key, value in details.items() if value}
        return 200, success(details={**named, "uid": meta["uid"]}), {}

    def _delete_all(self, call: _Call, target: Target) -> tuple[int, Json, dict[str, str]]:
        if target.resource.namespaced and not target.namespace:
            raise method_not_allowed()
        _, listed, _ = self._list(call, target)
        for obj in listed["items"]:
            meta = obj["metadata"]
            one = Target(target.resource, target.namespace, meta["name"])
            self._remove(call, one, self._held(one), call.body if isinstance(call.body, dict) else {})
        return 200, listed, {}

    def _evict(self, call: _Call, target: Target) -> tuple[int, Json, dict[str, str]]:
        if call.method != "POST":
            raise method_not_allowed()
        body = call.body if isinstance(call.body, dict) else {}
        if (body.get("metadata") or {}).get("name") != target.name:
            raise bad_request("name in URL does not match name in Eviction object")
        pod_target = Target(target.resource, target.namespace, target.name)
        pod, options = self._held(pod_target), body.get("deleteOptions") or {}
        budgets = [pdb for pdb in self._objects[_PDBS].values() if kubeevict.covers(pdb, pod)]
        charged = kubeevict.weigh(pod, budgets if pod["metadata"].get("labels") else [])
        if charged is not None and not call.dry_run:
            self._charge(call, charged, target.name)
        self._check_preconditions(pod_target, pod, options.get("preconditions") or {})
        if not (call.dry_run or options.get("dryRun")):
            self._remove(call, pod_target, self._disrupted(call, pod_target, pod), options)
        return 201, success(201), {}

    # -- writing ------------------------------------------------------------------------------------------------------

    def _store(self, resource: Resource, before: Json | None, after: Json, call: _Call) -> Json:
        """Gives the object its version and keeps it (unless it was only being let go of, or this is a dry run)."""
        if call.dry_run:
            return after
        if _released(after):
            self._drop(resource, after, call)
            return after
        version = self._journal.newest + 1
        after = {**after, "metadata": {**after["metadata"], "resourceVersion": str(version)}}
        key = _key(after)
        self._objects[resource.key][key] = after
        self._record(call, version, after)
        self._journal.append(Change(version, resource.key, before, after, after))
        if resource.key == _CRDS and before is None:
            self._serve(after)
        self._track(resource, key, after)
        self._settle_budgets(resource, after)
        return after

    def _drop(self, resource: Resource, obj: Json, call: _Call) -> None:
        """Takes an object out of the store, and what goes with it (a namespace's objects, a definition's kind)."""
        key = _key(obj)
        before = self._objects[resource.key].pop(key)
        version = self._journal.newest + 1
        last = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}}
        self._record(call, version, last)
        self._journal.append(Change(version, resource.key, before, None, last))
        self._going.pop(key, None) if resource.key == _PODS else None
        if resource.key == _NAMESPACES:
            self._empty(lambda each: each["metadata"].get("namespace") == key[1], "namespace-controller")
        if resource.key == _CRDS:
            self._unserve(obj)
        self._settle_budgets(resource, last)

    def _remove(self, call: _Call, target: Target, obj: Json, options: Json) -> Json | None:
        """Deletes as the kind does it. Returns the object while it stays (grace period, finalizers), None once gone."""
        meta = obj["metadata"]
        grace = _grace(obj, options) if target.resource.key == _PODS else 0
        if meta.get("deletionTimestamp"):
            if grace >= meta.get("deletionGracePeriodSeconds", 0) and (grace or meta.get("finalizers")):
                return obj
        elif not grace and not meta.get("finalizers"):
            self._drop(target.resource, obj, call) if not call.dry_run else None
            return None
        deadline = self._now() + timedelta(seconds=grace)
        marked = {
            **meta,
            "deletionTimestamp": kubewrite.timestamp(deadline),
            "deletionGracePeriodSeconds": grace,
        }
        if "generation" in meta and not meta.get("deletionTimestamp"):
            marked["generation"] = meta["generation"] + 1
        left = self._store(target.resource, obj, {**obj, "metadata": marked}, call)
        return None if _released(left) else left

    def _check_preconditions(self, target: Target, obj: Json, wanted: Json) -> None:
        meta, resource = obj["metadata"], target.resource
        if wanted.get("uid") and wanted["uid"] != meta["uid"]:
            why = f"the UID in the precondition ({wanted['uid']}) does not match the UID in record ({meta['uid']})."
            more = " The object might have been deleted and then recreated"
            raise conflict(resource.qualified_kind, meta["name"], why + more)
        version = wanted.get("resourceVersion")
        if version and version != meta["resourceVersion"]:
            why = f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record "
            more = f"({meta['resourceVersion']}). The object might have been modified"
            raise conflict(resource.qualified_kind, meta["name"], why + more)

    def _record(self, call: _Call, version: int, obj: Json) -> None:
        verbs = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
        verb = "evict" if call.path.endswith("/eviction") else verbs[call.method]
        self.history.append(Write(version, self._now(), verb, call.path, call.actor, obj))

    # -- what controllers and kubelets do -----------------------------------------------------------------------------

    def tick(self) -> None:
        """Lets what is due at `now()` happen: terminating pods past their grace period go. Every request does it too."""
        with self._lock:
            self._advance()

    def stop_kubelet(self, node: str) -> None:
        """From now on the pods bound to this node, once terminating, stay (as on a machine that died)."""
        with self._lock:
            self._dead_kubelets.add(node)

    def start_kubelet(self, node: str) -> None:
        """The node's kubelet works again: terminating pods past their grace period go at the next tick."""
        with self._lock:
            self._dead_kubelets.discard(node)

    def _advance(self) -> None:
        now = self._now()
        for key in [key for key, due in self._going.items() if due <= now]:
            pod = self._objects[_PODS][key]
            if (pod.get("spec") or {}).get("nodeName") in self._dead_kubelets:
                continue
            self._going.pop(key)
            meta = {**pod["metadata"], "deletionGracePeriodSeconds": 0}
            self._store(
                self._resource(_PODS), pod, {**pod, "metadata": meta}, _internal("DELETE", pod, "kubelet")
            )
        for pdb in list(self._objects[_PDBS].values()):
            if (pdb.get("status") or {}).get("disruptedPods"):
                self._settle_budget(pdb)

    def _track(self, resource: Resource, key: tuple[str, str], obj: Json) -> None:
        meta = obj["metadata"]
        if resource.key == _PODS and meta.get("deletionTimestamp") and meta.get("deletionGracePeriodSeconds"):
            self._going[key] = datetime.fromisoformat(meta["deletionTimestamp"])

    def _settle_budgets(self, resource: Resource, changed: Json) -> None:
        if resource.key in _BUDGET_MATTERS:
            for pdb in list(self._objects[_PDBS].values()):
                if pdb["metadata"]["namespace"] == changed["metadata"].get("namespace"):
                    self._settle_budget(pdb)

    def _settle_budget(self, pdb: Json) -> None:
        def find(kind: str, namespace: str, name: str) -> Json | None:
            return self._objects[_OWNERS[kind]].get((namespace, name))

        status = kubeevict.budget_status(pdb, self._objects[_PODS].values(), find, self._now())
        if status != pdb.get("status"):
            call = _internal("PUT", pdb, "disruption-controller")
            self._store(self._resource(_PDBS), pdb, {**pdb, "status": status}, call)

    def _charge(self, call: _Call, pdb: Json, pod: str) -> None:
        status = pdb["status"]
        disrupted = {**(status.get("disruptedPods") or {}), pod: kubewrite.timestamp(self._now())}
        less = {**status, "disruptionsAllowed": status["disruptionsAllowed"] - 1, "disruptedPods": disrupted}
        self._store(self._resource(_PDBS), pdb, {**pdb, "status": less}, call)

    def _disrupted(self, call: _Call, target: Target, pod: Json) -> Json:
        """The pod with the DisruptionTarget condition that the eviction API leaves."""
        current = self._held(target)
        if current["metadata"].get("deletionTimestamp"):
            return current
        condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
        condition.update(
            message="Eviction API: evicting", lastTransitionTime=kubewrite.timestamp(self._now())
        )
        status = current.get("status") or {}
        others = [each for each in status.get("conditions") or [] if each.get("type") != "DisruptionTarget"]
        marked = {**current, "status": {**status, "conditions": [*others, condition]}}
        return self._store(target.resource, current, marked, call)

    def _empty(self, doomed: Callable[[Json], bool], actor: str) -> None:
        for resource in self._resources:
            for obj in [each for each in self._objects[resource.key].values() if doomed(each)]:
                self._drop(resource, obj, _internal("DELETE", obj, actor))

    # -- definitions, seeds and hooks -----------------------------------------------------------------------------------

    def install_crd(self, crd: Mapping[str, Any]) -> None:
        """Serves the kind of a CustomResourceDefinition (apiextensions.k8s.io/v1) from now on. Again for one that is
        there: the new definition holds. Raises `AssertionError` with the server's words when it is refused."""
        path = f"/apis/{CRD_GROUP}/v1/customresourcedefinitions"
        name = crd["metadata"]["name"]
        with self._lock:
            if ("", name) in self._objects[_CRDS]:
                body = {
                    **crd,
                    "metadata": {
                        **crd["metadata"],
                        "resourceVersion": self._objects[_CRDS]["", name]["metadata"]["resourceVersion"],
                    },
                }
                answer = self.request("PUT", f"{path}/{name}", body=body)
                self._serve(self._objects[_CRDS]["", name])
            else:
                answer = self.request("POST", path, body=dict(crd))
        assert answer.ok, answer.body.get("message")

    def load(self, *objects: Mapping[str, Any]) -> list[Json]:
        """Puts objects in as they are, status included, as if kubelets and controllers had been at work. Returns them as
        stored. Raises `AssertionError` with the server's words when one is refused."""
        stored = []
        for obj in objects:
            with self._lock:
                path = self._path(obj)
                answer = self.request("POST", path, body=dict(obj), user_agent="load")
                assert answer.ok, answer.body.get("message")
                if obj.get("status") and answer.body.get("status") != obj["status"]:
                    path = f"{path}/{answer.body['metadata']['name']}/status"
                    body = {**answer.body, "status": obj["status"]}
                    answer = self.request("PUT", path, body=body, user_agent="load")
                    assert answer.ok, answer.body.get("message")
                stored.append(answer.body)
        return stored

    def compact(self) -> None:
        """Forgets the history that watches and continue tokens need: both answer 410 from here on back."""
        with self._lock:
            self._journal.compact()
            self._lister.forget()

    def break_watches(self) -> None:
        """Ends every open watch with an ERROR event of code 410."""
        self._journal.break_watches()

    def bookmark(self) -> None:
        """Sends a BOOKMARK to every open watch that allows them (a real server does so about once a minute)."""
        with self._lock:
            for watch in self._watches:
                watch.bookmark()

    def resource_at(self, path: str) -> Resource | None:
        """The resource type that a path is about, None when none is."""
        try:
            with self._lock:
                return parse(path, self._resources).resource
        except ApiError:
            return None

    # -- small things -------------------------------------------------------------------------------------------------

    def _open_watch(self, target: Target, query: dict[str, str]) -> Watch:
        resource = target.resource
        if target.name:
            query = {
                **query,
                "fieldSelector": ",".join(
                    filter(None, (query.get("fieldSelector"), f"metadata.name={target.name}"))
                ),
            }
        matches = matcher(target, query)
        since = _watch_version(query)
        first: list[Json] = []
        if not since or flag(query, "sendInitialEvents"):
            held = sorted(self._objects[resource.key].items())
            first = [{"type": "ADDED", "object": obj} for _, obj in held if matches(obj)]
            since = self._journal.newest

        def bookmark(version: int) -> Json:
            metadata = {"resourceVersion": str(version), "creationTimestamp": None}
            return {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}

        if flag(query, "sendInitialEvents"):
            end = bookmark(since)
            end["metadata"]["annotations"] = {"k8s.io/initial-events-end": "true"}
            first.append({"type": "BOOKMARK", "object": end})
        return Watch(
            self._journal,
            resource.key,
            matches,
            since,
            first=first,
            bookmark=bookmark if flag(query, "allowWatchBookmarks") else None,
            timeout=number(query, "timeoutSeconds"),
        )

    def _held(self, target: Target) -> Json:
        found = self._objects[target.resource.key].get((target.namespace, target.name))
        if found is None:
            raise not_found(target.resource.qualified, target.name)
        return found

    def _resource(self, key: tuple[str, str]) -> Resource:
        return next(each for each in self._resources if each.key == key)

    def _established(self, crd: Json) -> Json:
        try:
            served = from_crd(crd)
        except (KeyError, TypeError) as missing:
            raise bad_request(f"the definition lacks {missing}") from None
        if crd["metadata"]["name"] != served[0].qualified:
            raise bad_request(
                f'metadata.name: must be spec.names.plural+"."+spec.group: {served[0].qualified}'
            )
        moment = kubewrite.timestamp(self._now())
        conditions = [
            {"type": each, "status": "True", "lastTransitionTime": moment}
            for each in ("NamesAccepted", "Established")
        ]
        return {**crd, "status": {"conditions": conditions, "acceptedNames": crd["spec"]["names"]}}

    def _serve(self, crd: Json) -> None:
        served = from_crd(crd)
        keys = {each.key for each in served}
        self._resources = [each for each in self._resources if each.key not in keys] + served
        for key in keys:
            self._objects.setdefault(key, {})

    def _unserve(self, crd: Json) -> None:
        keys = {each.key for each in from_crd(crd)}
        for resource in [each for each in self._resources if each.key in keys]:
            for obj in list(self._objects[resource.key].values()):
                self._drop(resource, obj, _internal("DELETE", obj, "apiextensions"))
        self._resources = [each for each in self._resources if each.key not in keys]

    def _path(self, obj: Mapping[str, Any]) -> str:
        for each in self._resources:
            if (each.api_version, each.kind) == (obj.get("apiVersion"), obj.get("kind")):
                prefix = f"/apis/{each.api_version}" if each.group else f"/api/{each.version}"
                namespace = (obj.get("metadata") or {}).get("namespace", "default")
                return (
                    f"{prefix}/namespaces/{namespace}/{each.plural}"
                    if each.namespaced
                    else f"{prefix}/{each.plural}"
                )
        raise AssertionError(
            f"{obj.get('apiVersion')} {obj.get('kind')} is not served; is its definition installed?"
        )

    def _count(self, verb: str, target: Target) -> None:
        self.requests[verb, target.rbac_name] += 1

    def _headers(self) -> dict[str, str]:
        moment = self._now().astimezone(UTC)
        return {"Content-Type": "application/json", "Date": format_datetime(moment, usegmt=True)}


@dataclass(frozen=True)
class Client:
    """An API as one named client sees it."""

    api: KubernetesApi
    user_agent: str

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Any = None,
        content_type: str | None = None,
        user_agent: str = "",
    ) -> Response:
        """As `KubernetesStore.request`, under this client's name unless another is given."""
        who = user_agent or self.user_agent
        return self.api.request(
            method, path, query=query, body=body, content_type=content_type, user_agent=who
        )

    def watch(self, path: str, query: Query | None = None, *, user_agent: str = "") -> Watch:
        """As `KubernetesStore.watch`."""
        return self.api.watch(path, query, user_agent=user_agent or self.user_agent)


def _verb(call: _Call, target: Target) -> str:
    one = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
    many = {"GET": "list", "DELETE": "deletecollection"}
    return (one if target.name else {**one, **many}).get(call.method, call.method.lower())


def _key(obj: Json) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _released(obj: Json) -> bool:
    """True when nothing holds a deleted object any more: no finalizer, no grace left."""
    meta = obj["metadata"]
    return (
        bool(meta.get("deletionTimestamp"))
        and not meta.get("finalizers")
        and not meta.get("deletionGracePeriodSeconds")
    )


def _grace(pod: Json, options: Json) -> int:
    """Seconds a pod gets, as the pod strategy of the API server decides: none when it is not bound to a node or done."""
    spec, phase = pod.get("spec") or {}, (pod.get("status") or {}).get("phase")
    asked = options.get("gracePeriodSeconds")
    seconds = asked if asked is not None else spec.get("terminationGracePeriodSeconds", 30)
    if not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
        return 0
    return 1 if seconds < 0 else int(seconds)


def _pruning(resource: Resource, pruned: list[str], query: Query) -> dict[str, str]:
    """The Warning header for pruned fields; with `fieldValidation=Strict` a refusal."""
    words = [f'unknown field "{path}"' for path in pruned]
    if not words or query.get("fieldValidation") == "Ignore":
        return {}
    if query.get("fieldValidation") == "Strict":
        why = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}'
        raise bad_request(f"{why}: strict decoding error: {', '.join(words)}")
    return {"Warning": ", ".join("299 - " + json.dumps(each) for each in words)}


def _watch_version(query: Query) -> int:
    text = query.get("resourceVersion") or "0"
    if not text.isdecimal():
        why = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise ApiError(500, "", why)
    return int(text)


def _internal(method: str, obj: Json, actor: str) -> _Call:
    meta = obj["metadata"]
    path = "/".join(filter(None, ("", actor, meta.get("namespace"), meta["name"])))
    return _Call(method, path, {}, None, "", actor)


def _json(body: Any) -> Any:
    """A copy of the body as JSON would carry it. Raises `TypeError` for what is no JSON data: a bug of the caller."""
    return None if body is None else json.loads(json.dumps(body))


def events(watch: Watch) -> Iterator[Json]:
    """The events that a watch has now, without waiting."""
    yield from watch.poll()
