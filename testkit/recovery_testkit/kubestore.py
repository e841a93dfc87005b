"""A Kubernetes API in memory: what a kube-apiserver and the controllers next to it answer, without sockets.

The tests of `cluster_kit.py` hold it to a real one: they run on both. Left out on purpose: admission, RBAC,
field ownership and server-side apply, most defaults and most pruning of built-in kinds, garbage collection by
owner, the node lifecycle controller, events.k8s.io.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import lru_cache
from typing import Any, Protocol

import msgspec

from recovery_testkit import kubetokens
from recovery_testkit.kubecontrol import Controllers
from recovery_testkit.kubelist import matcher
from recovery_testkit.kubepatch import copy_json, pack_json, unpack_json
from recovery_testkit.kubepaths import Target, flag, number, parse
from recovery_testkit.kuberesources import CRD_GROUP, Resource, discovery
from recovery_testkit.kubeshelf import CRDS, Shelf, Write
from recovery_testkit.kubestatus import ApiError, Json, Response
from recovery_testkit.kubeverbs import Answer, Call, Verbs
from recovery_testkit.kubewatch import Watch

Query = Mapping[str, str]
SECOND = timedelta(seconds=1)
MOST_PACKED = 1000
"""Of so many answers the packed form is kept."""

_REVIEWS = {
    f"/apis/authorization.k8s.io/v1/{kind}" for kind in ("selfsubjectaccessreviews", "subjectaccessreviews")
}
_WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_DEFINITIONS = f"/apis/{CRD_GROUP}/v1/customresourcedefinitions"


class KubernetesApi(Protocol):
    """What the HTTP front, the fault injector and the clients of stories need of an API."""

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


class KubernetesStore:
    """A thread-safe in-memory Kubernetes API.

    `now` gives the time of every stamp, Date header and deadline (aware; default: the real UTC time).
    `window` is how many changes a watch can go back. `seed` makes the uids and generated names.
    `kubelets_by_ready`: a Node whose Ready is Unknown has a dead kubelet, as if by `stop_kubelet`.
    """

    def __init__(
        self,
        *,
        now: Callable[[], datetime] | None = None,
        window: int = 10_000,
        seed: int = 0,
        kubelets_by_ready: bool = False,
    ) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
        self._shelf = Shelf(now or (lambda: datetime.now(UTC)), window)
        self._lock = self._shelf.journal.lock
        self._controllers = Controllers(self._shelf, kubelets_by_ready)
        self._verbs = Verbs(self._shelf, seed)
        self._watches: list[Watch] = []
        self._dated = datetime.min.replace(tzinfo=UTC), {"Content-Type": "application/json"}
        self._packed: dict[int, tuple[Json, bytes]] = {}
        self._targets: tuple[list[Resource], dict[str, Target]] = [], {}
        self.shares = False
        """Whether answers are made of the stored objects themselves, and not of copies: for clients that
        change nothing of what they read."""
        for name in ("default", "kube-node-lease", "kube-public", "kube-system"):
            self.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    @property
    def history(self) -> list[Write]:
        """Every accepted write since the beginning, in order, those of the controllers too. Not to be
        changed."""
        return self._shelf.history

    # The API

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
        """One request and its answer; a refusal is a Response with a Status body, never an exception.

        `body` is JSON data (a map, or a list for a JSON patch) and is copied; `user_agent` is who the client
        says it is, for `history`. Counted in `requests` by (RBAC verb, resource), refused ones too.
        """
        kind = (content_type or "").partition(";")[0].strip().lower()
        copied = None if body is None else self._sent(body)
        with self._lock:
            self._controllers.advance()
            try:
                status, answer, headers = self._answer(
                    method.upper(), path.partition("?")[0], query or {}, copied, kind, user_agent
                )
            except ApiError as error:
                status, answer, headers = error.status, error.body, error.headers
            answer = answer if self.shares else self._copied(answer)
            return Response(status, {**self.headers(), **headers} if headers else self.headers(), answer)

    def watch(self, path: str, query: Query | None = None, *, user_agent: str = "") -> Watch:
        """Opens a watch on a collection (or one object) with the query parameters of a real one.

        Raises `ApiError` for a bad path, selector or version; an expired version is an ERROR event, as from a
        real server.
        """
        with self._lock:
            self._controllers.advance()
            path = path.partition("?")[0]
            target = self._known(path)
            if target is None:
                target = self._targets[1][path] = parse(path, self._shelf.resources)
            self.requests["watch", target.rbac_name] += 1
            opened = self._open_watch(target, dict(query or {}))
            self._watches = [each for each in self._watches if not each.ended] + [opened]
            return opened

    def is_still(self, path: str, version: str) -> bool:
        """Whether a watch of the collection, from a version on, would have nothing to tell but bookmarks."""
        with self._lock:
            self._controllers.advance()
            target = self._known(path) or parse(path, self._shelf.resources)
            journal = self._shelf.journal
            return journal.oldest <= int(version or 0) >= journal.newest_of(target.resource.key)

    def client(self, user_agent: str) -> Client:
        """This API as one named client sees it: its writes carry the name in `history`."""
        return Client(self, user_agent)

    # Setting up

    def load(self, *objects: Mapping[str, Any]) -> list[Json]:
        """Puts objects in, status included, as if kubelets and controllers had been at work. Returns them as
        stored.

        Raises `AssertionError` with the server's words when one is refused.
        """
        return [self._load(dict(obj)) for obj in objects]

    def install_crd(self, crd: Mapping[str, Any]) -> None:
        """Serves the kind of a CustomResourceDefinition (apiextensions.k8s.io/v1) from now on; again for
        one that is there: the new definition holds. Raises `AssertionError` with the server's words when
        it is refused."""
        with self._lock:
            held = self._shelf.objects[CRDS].get(("", crd["metadata"]["name"]))
            if held is None:
                self._must("POST", _DEFINITIONS, dict(crd))
                return
            metadata = {**crd["metadata"], "resourceVersion": held["metadata"]["resourceVersion"]}
            self._must("PUT", f"{_DEFINITIONS}/{metadata['name']}", {**crd, "metadata": metadata})

    def stop_kubelet(self, node: str) -> None:
        """From now on the pods bound to this node stay once they are terminating, as on a machine that
        died."""
        with self._lock:
            self._controllers.dead_kubelets.add(node)

    def start_kubelet(self, node: str) -> None:
        """The node's kubelet works again: terminating pods past their grace period go at the next tick."""
        with self._lock:
            self._controllers.dead_kubelets.discard(node)

    def tick(self) -> None:
        """Lets what is due at `now()` happen: terminating pods past their grace period go. Every request
        does so too."""
        with self._lock:
            self._controllers.advance()

    # Hooks for trouble

    def compact(self) -> None:
        """Forgets the history that watches and continue tokens need: what is older answers 410 from here
        on."""
        with self._lock:
            self._shelf.journal.compact()
            self._verbs.lister.forget()

    def break_watches(self) -> None:
        """Ends every open watch with an ERROR event of code 410."""
        self._shelf.journal.break_watches()

    def bookmark(self) -> None:
        """Sends a BOOKMARK to every open watch that allows them (a real server does so about once a
        minute)."""
        with self._lock:
            for each in self._watches:
                each.bookmark()

    # For the HTTP front

    def resource_at(self, path: str) -> Resource | None:
        """The resource type that a path is about, None when it is about none."""
        try:
            with self._lock:
                return parse(path, self._shelf.resources).resource
        except ApiError:
            return None

    def now(self) -> datetime:
        """The server's time."""
        return self._shelf.now()

    def headers(self) -> dict[str, str]:
        """The header fields of every answer: the type, and the server's time as `Date` (RFC 7231). Not to be
        changed: all answers of a second share them."""
        now = self._shelf.now()
        if not timedelta(0) <= now - self._dated[0] < SECOND:
            moment = now.replace(microsecond=0)
            self._dated = moment, {**self._dated[1], "Date": _date_of(moment)}
        return self._dated[1]

    def _sent(self, body: Any) -> Any:
        """A copy of a body, as JSON carries it."""
        if self.shares:
            return msgspec.json.decode(msgspec.json.encode(body))
        return json.loads(json.dumps(body))  # slower, and stricter: it takes no datetime

    def _copied(self, answer: Json) -> Json:
        """A copy of an answer. Stored objects are never changed in place: one is packed once."""
        if "items" in answer:
            return copy_json(answer)  # type: ignore[no-any-return]
        known = self._packed.get(id(answer))
        if known is None or known[0] is not answer:
            if len(self._packed) >= MOST_PACKED:
                self._packed.clear()
            known = self._packed[id(answer)] = answer, pack_json(answer)
        return unpack_json(known[1])  # type: ignore[no-any-return]

    def _answer(self, method: str, path: str, query: Query, body: Any, kind: str, actor: str) -> Answer:
        target = self._known(path)
        if target is None:
            document = discovery(path, self._shelf.resources) if method == "GET" else None
            if document is not None:
                return 200, document, {}
            if method == "POST" and path in _REVIEWS:  # everybody may do everything
                self.requests["create", path.rpartition("/")[2]] += 1
                review = body if isinstance(body, dict) else {}
                return 201, {**review, "status": {"allowed": True}}, {}
            if (method, path) == ("POST", _WHO):  # nobody is asked who they are
                self.requests["create", "selfsubjectreviews"] += 1
                return 201, {**(body or {}), "status": {"userInfo": {"username": "system:anonymous"}}}, {}
            if method == "POST" and (user := kubetokens.requested(path)):
                self.requests["create", "serviceaccounts/token"] += 1
                name = kubetokens.bound_to(body or {})
                node = self._answer("GET", f"/api/v1/nodes/{name}", {}, None, "", actor)[1] if name else None
                return 201, kubetokens.made(user, body or {}, self.now(), node), {}
            if (method, path) == ("POST", kubetokens.REVIEWS):
                self.requests["create", "tokenreviews"] += 1
                return 201, kubetokens.reviewed(body or {}, self.now()), {}
            target = parse(path, self._shelf.resources)
            self._targets[1][path] = target
        call = Call(method, path, target, query, body, kind, actor)
        self.requests[call.verb, target.rbac_name] += 1
        return self._verbs.answer(call)

    def _known(self, path: str) -> Target | None:
        """The target of a path that was read before, while the same resources are served."""
        if self._targets[0] is not self._shelf.resources:
            self._targets = self._shelf.resources, {}
        return self._targets[1].get(path)

    def _open_watch(self, target: Target, query: dict[str, str]) -> Watch:
        resource = target.resource
        if target.name:
            fields = (query.get("fieldSelector"), f"metadata.name={target.name}")
            query["fieldSelector"] = ",".join(filter(None, fields))
        matches, since = matcher(target, query), _watch_version(query)
        first: list[Json] = []

        def bookmark(version: int) -> Json:
            metadata = {"resourceVersion": str(version), "creationTimestamp": None}
            return {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}

        if not since or flag(query, "sendInitialEvents"):
            held = sorted(self._shelf.objects[resource.key].items())
            first = [{"type": "ADDED", "object": obj} for _, obj in held if matches(obj)]
            since = self._shelf.journal.newest
        if flag(query, "sendInitialEvents"):
            end = bookmark(since)
            end["metadata"]["annotations"] = {"k8s.io/initial-events-end": "true"}
            first.append({"type": "BOOKMARK", "object": end})
        marks = bookmark if flag(query, "allowWatchBookmarks") else None
        seconds = number(query, "timeoutSeconds")
        journal = self._shelf.journal
        return Watch(journal, resource.key, matches, since, first=first, bookmark=marks, timeout=seconds)

    def _load(self, obj: Json) -> Json:
        with self._lock:
            path = self._collection(obj)
            stored = self._must("POST", path, obj)
            if obj.get("status") and stored.get("status") != obj["status"]:
                path = f"{path}/{stored['metadata']['name']}/status"
                stored = self._must("PUT", path, {**stored, "status": obj["status"]})
            return stored

    def _must(self, method: str, path: str, body: Json) -> Json:
        answer = self.request(method, path, body=body, user_agent="load")
        assert answer.ok, answer.body.get("message")
        return dict(answer.body)

    def _collection(self, obj: Json) -> str:
        for each in self._shelf.resources:
            if (each.api_version, each.kind) == (obj.get("apiVersion"), obj.get("kind")):
                prefix = f"/apis/{each.api_version}" if each.group else f"/api/{each.version}"
                namespace = (obj.get("metadata") or {}).get("namespace", "default")
                return (
                    f"{prefix}/namespaces/{namespace}/{each.plural}"
                    if each.namespaced
                    else f"{prefix}/{each.plural}"
                )
        raise AssertionError(
            f"{obj.get('apiVersion')} {obj.get('kind')} is not served: is its definition there?"
        )


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


@lru_cache(20_000)  # stories begin at the same moment, and have the same seconds
def _date_of(moment: datetime) -> str:
    return format_datetime(moment.astimezone(UTC), usegmt=True)


def _watch_version(query: Query) -> int:
    text = query.get("resourceVersion") or "0"
    if not text.isdecimal():
        why = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise ApiError(500, "", why)
    return int(text)
