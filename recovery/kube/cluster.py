"""What this program reads and writes through the Kubernetes API: each method is one verb of RBAC."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache, partial
from typing import Any, Protocol
from urllib import parse

from recovery.clock import ApiTime, Clock
from recovery.deadline import sent_while
from recovery.errors import NotFound, TooLong
from recovery.kube import node_rows, shapes
from recovery.kube.bounded import bounded, view_of
from recovery.kube.paging import folded, in_turn, meanwhile
from recovery.kube.transport import Reads, Transport, api_error
from recovery.kube.views import (
    event_view,
    job_view,
    node_view,
    not_admitted,
    owner_and_node,
    pod_view,
    reboot_view,
    running_since,
)
from recovery.kube.watch import FAILED
from recovery.model import (
    GROUP,
    VERSION,
    Census,
    ClusterDelete,
    JobView,
    Machine,
    NodeEvent,
    NodeView,
    PodView,
    Record,
)
from recovery.provider.protocol import ObjectRef

_date = lru_cache(64)(parsedate_to_datetime)
"""The time of a Date header: each is parsed once."""
quote = lru_cache(1024)(parse.quote)
"""Of a name in a path: the same few are asked for again and again."""
NODES = "/api/v1/nodes"
TOKEN_LIFE = 6 * 3600
"""Seconds. An API server may give less (``--service-account-max-token-expiration``), and says so."""
SENT_WITHIN = 5.0
"""Seconds after which what ends or boots a machine is not sent any more. An answer may take ten more, and no
provider's ``call_timeout`` is shorter than both."""
PAGE, NODE_PAGE = 100, 250
"""Objects on a page; and Nodes, of which less is kept while the page is read."""
MERGE_PATCH = "application/merge-patch+json"
_OURS = f"/apis/{GROUP}/{VERSION}"
RECORDS, GATES = f"{_OURS}/noderecoveries", f"{_OURS}/recoverygates"


Page = tuple[str, str, Iterator[Any]]
"""The version of a page, what the next one is asked for with ("" after the last one), and its items."""
When = Callable[[Callable[[], tuple[Page, int]]], Callable[[], tuple[Page, int]]]
"""When the next page is asked for, while the items of this one are used: ``in_turn`` or ``meanwhile``."""


def _page(body: Any, what: str) -> Page:
    """The page that ``body`` is.

    ``what``: the request. Raises ``ApiUnavailable`` for what is no page.
    """
    metadata, items = shapes.page(body, what)
    version, more = metadata.get("resourceVersion"), metadata.get("continue")
    return str(version or ""), str(more or ""), (shapes.listed(item, what) for item in items)


def _selected(selector: str) -> dict[str, str]:
    return {"labelSelector": selector} if selector else {}


def _page_of_nodes(body: Any, what: str) -> Page:
    try:
        page = node_rows.page_of(body)
    except node_rows.Unreadable as error:
        raise shapes.strange(what, str(error)) from None
    metadata = page.metadata
    if metadata is None:
        raise shapes.strange(what, "it is no list of objects")
    items = (_named(row, what) for row in page.items or [])
    return metadata.resource_version or "", metadata.more or "", items


def _named(row: node_rows.NodeRow, what: str) -> node_rows.NodeRow:
    if row.metadata is None or not row.metadata.name:
        raise shapes.strange(what, "a Node has no metadata.name")
    return row


def _node(found: Any, what: str) -> NodeView:
    """A whole Node, as one request was answered."""
    try:
        return bounded(node_view(shapes.stored(found, what), whole=True))
    except node_rows.Unreadable as error:
        raise shapes.strange(what, str(error)) from None


class KnownNodes(Protocol):
    """Nodes of which a count is kept."""

    def get(self, name: str) -> NodeView | None: ...
    def census(self, records: Iterable[Record], now: datetime, unknown: Iterable[str] = ()) -> Census: ...
    def rivals(self, name: str, machine: Machine) -> list[str]: ...


class Cluster:
    """One method for each request. A test compares them with ``rights.py`` and the manifests.

    ``time``: what is known of the API server's time, where several of these learn it together.
    """

    def __init__(
        self, transport: Transport, clock: Clock, namespace: str, time: ApiTime | None = None
    ) -> None:
        self._transport = transport
        self._clock = clock
        self.namespace = namespace
        self.time = time or ApiTime(clock)

    # ------------------------------------------------------------ one request

    def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str | None = None,
        headers: Mapping[str, str] | None = None,
        read: Reads | None = None,
    ) -> Any:
        asked = self._clock.monotonic()
        more: dict[str, Any] = {"headers": headers} if headers else {}
        more |= {"read": read} if read else {}
        answer = self._transport.request(
            method, path, query=query, body=body, content_type=content_type, **more
        )
        self._learn_time(answer.headers, asked)
        if 200 <= answer.status < 300:
            return answer.body
        raise api_error(answer.status, answer.body, answer.headers, f"{method} {path}")

    def _stored(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        """``_call`` for what is answered with an object that is stored. ``ApiUnavailable`` for any other."""
        return shapes.stored(self._call(method, path, **more), f"{method} {path}")

    def _learn_time(self, headers: Mapping[str, str], asked: float) -> None:
        date = headers.get("Date") or headers.get("date")
        if not date:
            return
        try:
            at = _date(date)
        except ValueError:
            return
        self.time.learn(at, asked)

    # ------------------------------------------------------------ what is remembered: here nothing

    def read_since(self, node: str) -> float:
        """The monotonic moment at which the oldest was asked for of ``node``, its record and the gate."""
        return self._clock.monotonic()

    def ours_read_since(self, node: str) -> float:
        """The same of its record and the gate alone."""
        return self._clock.monotonic()

    def forget(self, node: str) -> None:
        """Whatever was remembered of ``node``, its record and the gate is read anew."""

    def forget_record(self, node: str) -> None:
        """The record of ``node`` is read anew."""

    def all_known(self) -> KnownNodes | None:
        """All Nodes, where they are known without a list of them."""
        return None

    # ------------------------------------------------------------ nodes and pods

    def get_node(self, name: str) -> NodeView:
        path = f"/api/v1/nodes/{quote(name)}"
        return _node(self._call("GET", path), f"GET {path}")

    def list_nodes(self, selector: str = "") -> Iterator[NodeView]:
        for row in self._node_rows(_selected(selector)):
            yield view_of(row, whole=False)

    def is_selected(self, name: str, selector: str) -> bool:
        """Whether there is a Node ``name`` that the label selector means."""
        query = {"labelSelector": selector, "fieldSelector": f"metadata.name={name}"}
        return any(True for _ in self._node_rows(query))

    def nodes_of(self, selector: str, found: Callable[[NodeView], None]) -> str:
        """Tells ``found`` of every Node of a label selector, whole; returns from which version to watch them.

        Raises ``Expired`` where the rest of the list cannot be read any more: see ``paging.folded``.
        """
        version = ""

        def paged(of_page: str) -> None:
            nonlocal version
            version = version or of_page

        for row in self._node_rows(_selected(selector), paged, meanwhile):
            found(view_of(row, whole=True))
        return version

    def _node_rows(
        self,
        query: dict[str, str],
        paged: Callable[[str], None] = lambda _: None,
        when: When = in_turn,
    ) -> Iterator[node_rows.NodeRow]:
        yield from self._pages(NODES, query, paged, NODE_PAGE, node_rows.page, _page_of_nodes, when)

    def count_nodes(self) -> int:
        """How many Nodes there are: a list of one, which says how many are left."""
        metadata, items = shapes.page(self._call("GET", NODES, query={"limit": "1"}), f"GET {NODES}")
        left = metadata.get("remainingItemCount") or 0
        if not isinstance(left, int):
            raise shapes.strange(f"GET {NODES}", "metadata.remainingItemCount is no number")
        return len(items) + left

    def patch_node(self, name: str, patch: dict[str, Any]) -> NodeView:
        """A merge patch. Put ``metadata.resourceVersion`` into it: merge patch replaces whole lists."""
        path = f"/api/v1/nodes/{quote(name)}"
        return _node(self._call("PATCH", path, body=patch, content_type=MERGE_PATCH), f"PATCH {path}")

    def list_pods(self, node: str) -> tuple[PodView, ...]:
        query = {"fieldSelector": f"spec.nodeName={node}"}
        return folded(lambda: tuple(pod_view(item) for item in self._pages("/api/v1/pods", query)))

    def pods_lately(self, node: str) -> tuple[PodView, ...]:
        """The pods on ``node`` by the API server's memory, which may be a moment behind etcd. A list of those
        that are there now waits until it has caught up, some 50 ms. No pod is evicted by it.

        All are one page, as ``_pages`` says of resourceVersion=0: a node has some hundreds at most.
        """
        query = {"fieldSelector": f"spec.nodeName={node}", "resourceVersion": "0"}
        _, _, items = _page(self._call("GET", "/api/v1/pods", query=query), "GET /api/v1/pods")
        return tuple(map(pod_view, items))

    def nodes_running(self, namespace: str, label: str, value: str) -> frozenset[str]:
        """The Nodes on which pods with this label are, or were and have not been deleted."""
        path, query = f"/api/v1/namespaces/{quote(namespace)}/pods", {"labelSelector": f"{label}={value}"}

        def found() -> frozenset[str]:
            places = (item.get("spec", {}).get("nodeName") for item in self._pages(path, query))
            return frozenset(place for place in places if place)

        return folded(found)

    def failed_pods_version(self) -> str:
        """From which version on the pods that fail are to be watched."""
        query = {"fieldSelector": FAILED, "limit": "1"}
        metadata, _ = shapes.page(self._call("GET", "/api/v1/pods", query=query), "GET /api/v1/pods")
        return str(metadata.get("resourceVersion") or "")

    def running_elsewhere(
        self, namespace: str, owners: Set[str], but: str, since: datetime
    ) -> frozenset[str]:
        """Which of these controllers (UIDs) have a pod that has run on another Node than ``but`` ``since``
        then, or for longer.

        Reads no further than it has to. Raises ``Expired`` where a long list cannot be read to its end.
        """
        path, found = f"/api/v1/namespaces/{quote(namespace)}/pods", set[str]()
        for item in self._pages(path, {"fieldSelector": "status.phase=Running"}):
            owner, node = owner_and_node(item)
            if owner in owners and node not in ("", but):
                began = running_since(item)
                found |= {owner} if began is not None and began <= since else set()
            if found == owners:
                break
        return frozenset(found)

    def evict(self, pod: PodView, *, only_ask: bool = False) -> None:
        """Ask for the eviction of ``pod``. ``TooManyRequests``: a disruption budget says not now.

        ``only_ask``: whether it would be granted (a dry run); nothing is evicted.
        """
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        path = f"{_pod(pod)}/eviction"
        found = self._call("POST", path, query={"dryRun": "All"} if only_ask else None, body=body)
        shapes.granted(found, f"POST {path}")

    def annotate_pod(self, pod: PodView, annotations: Mapping[str, str]) -> None:
        """Put ``annotations`` on the very pod (by uid)."""
        patch = {"metadata": {"uid": pod.uid, "annotations": dict(annotations)}}
        self._stored("PATCH", _pod(pod), body=patch, content_type=MERGE_PATCH)

    def _pages(
        self,
        path: str,
        query: dict[str, str],
        paged: Callable[[str], None] = lambda _: None,
        many: int = PAGE,
        read: Reads | None = None,
        opened: Callable[[Any, str], Page] = _page,
        when: When = in_turn,
    ) -> Iterator[Any]:
        """All items, ``many`` at a time. Never with resourceVersion=0, which makes ``limit`` void.

        ``paged`` is told each page's version. ``read`` makes a page of its bytes, and ``opened`` says what is
        on it.
        """

        def page(token: str, many: int) -> tuple[Page, int]:
            """A page, and how many items the next one is asked for with.

            A page that is too long to be read is asked for again with half as many objects, down to one:
            objects that somebody has blown up make a list slow, and keep nobody from reading it.
            """
            while True:
                of = {**query, "limit": str(many)} | ({"continue": token} if token else {})
                try:
                    return opened(self._call("GET", path, query=of, read=read), f"GET {path}"), many
                except TooLong:
                    if many == 1:
                        raise
                    many //= 2

        following: Callable[[], tuple[Page, int]] = partial(page, "", many)
        while True:
            (version, token, items), many = following()
            paged(version)
            following = when(partial(page, token, many)) if token else following
            yield from items
            del items  # or two pages would be in memory while the next one is read
            if not token:
                return

    # ------------------------------------------------------------ our own objects

    def get_record(self, node: str) -> dict[str, Any]:
        return self._stored("GET", f"{RECORDS}/{quote(node)}")

    def list_records(self, selector: str = "") -> Iterator[dict[str, Any]]:
        """Raises ``Expired`` where the rest of the list cannot be read any more: see ``paging.folded``."""
        return self._pages(RECORDS, {"labelSelector": selector} if selector else {})

    def named_of(self, path: str, selected: dict[str, str]) -> tuple[str, dict[str, dict[str, Any]]]:
        """From which version to watch the objects of a list, and each by its name.

        Raises ``Expired`` where the rest of the list cannot be read any more: see ``paging.folded``.
        """
        pages: list[str] = []
        found = {str(item["metadata"]["name"]): item for item in self._pages(path, selected, pages.append)}
        return pages[0], found

    def create_record(self, body: dict[str, Any]) -> dict[str, Any]:
        return self._stored("POST", RECORDS, body=body)

    def replace_record(self, body: dict[str, Any]) -> dict[str, Any]:
        name = body["metadata"]["name"]
        return self._stored("PUT", f"{RECORDS}/{quote(name)}", body=body)

    def delete_record(self, name: str, uid: str, version: str) -> None:
        """Delete the very object in the very state; ``Conflict`` if it is another one by now."""
        only = {"uid": uid, "resourceVersion": version}
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": only}
        self._call("DELETE", f"{RECORDS}/{quote(name)}", body=options)

    def get_gate(self) -> dict[str, Any]:
        return self._stored("GET", f"{GATES}/fleet")

    def create_gate(self, body: dict[str, Any]) -> dict[str, Any]:
        return self._stored("POST", GATES, body=body)

    def replace_gate(self, body: dict[str, Any]) -> dict[str, Any]:
        return self._stored("PUT", f"{GATES}/fleet", body=body)

    def get_report(self) -> dict[str, Any]:
        return self._stored("GET", f"{_OURS}/recoveryreports/fleet")

    def create_report(self, body: dict[str, Any]) -> dict[str, Any]:
        return self._stored("POST", f"{_OURS}/recoveryreports", body=body)

    def replace_report(self, body: dict[str, Any]) -> dict[str, Any]:
        return self._stored("PUT", f"{_OURS}/recoveryreports/fleet", body=body)

    # ------------------------------------------------------------ leases, events, node claims

    def _leases(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{quote(self.namespace)}/leases"

    def get_lease(self, name: str) -> dict[str, Any]:
        return self._stored("GET", f"{self._leases()}/{quote(name)}")

    def create_lease(self, body: dict[str, Any]) -> dict[str, Any]:
        return self._stored("POST", self._leases(), body=body)

    def replace_lease(self, body: dict[str, Any]) -> dict[str, Any]:
        return self._stored("PUT", f"{self._leases()}/{quote(body['metadata']['name'])}", body=body)

    def create_event(self, body: dict[str, Any]) -> dict[str, Any]:
        return self._stored("POST", "/api/v1/namespaces/default/events", body=body)

    def list_node_events(self, node: str, source: str) -> tuple[NodeEvent, ...]:
        """The Events of ``source`` about ``node`` (the server keeps Events for an hour)."""
        wanted = f"involvedObject.kind=Node,involvedObject.name={node},source={source}"
        path, query = "/api/v1/namespaces/default/events", {"fieldSelector": wanted}
        return folded(lambda: tuple(event_view(item) for item in self._pages(path, query)))

    def list_reboots(self) -> dict[str, tuple[str, datetime]]:
        """By Node, the last boot that a kubelet has told of: its boot ID, and when it said so, by the node's
        clock. The server keeps Events for an hour."""
        path = "/api/v1/namespaces/default/events"
        query = {"fieldSelector": "involvedObject.kind=Node,reason=Rebooted,source=kubelet"}

        def listed() -> dict[str, tuple[str, datetime]]:
            found: dict[str, tuple[str, datetime]] = {}
            for node, boot_id, at in filter(None, map(reboot_view, self._pages(path, query))):
                if node not in found or at >= found[node][1]:
                    found[node] = (boot_id, at)
            return found

        return folded(listed)

    def patch_event(self, name: str, patch: dict[str, Any]) -> None:
        path = f"/api/v1/namespaces/default/events/{quote(name)}"
        self._stored("PATCH", path, body=patch, content_type=MERGE_PATCH)

    def deleting(self, item: ClusterDelete) -> bool | None:
        """Whether the very object (by uid) is being deleted; None where it is gone."""
        try:
            found = self._stored("GET", f"/apis/{item.api_version}/{item.plural}/{quote(item.name)}")
        except NotFound:
            return None
        metadata = found["metadata"]
        return bool(metadata.get("deletionTimestamp")) if metadata.get("uid") == item.uid else None

    # ------------------------------------------------------------ who asks us

    def whose(self, token: str, audience: str) -> str:
        """The name of whom the API server knows by ``token``, made for ``audience``; empty where by none."""
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [audience]},
        }
        path = "/apis/authentication.k8s.io/v1/tokenreviews"
        status = shapes.part_of(self._call("POST", path, body=review), "status", f"POST {path}")
        if not status.get("authenticated") or audience not in (status.get("audiences") or ()):
            return ""
        return str(shapes.part_of(status, "user", f"POST {path}").get("username") or "")

    # ------------------------------------------------------------ node-problem-detector's own account

    def node_token(self, account: str, node: str) -> tuple[str, float]:
        """A token of ``account``, in our namespace, and for how many seconds it is good.

        It is bound to the Node (Kubernetes 1.31 or later): it names it to admission policies, and is good no
        longer than the Node is there.
        """
        bound = {"apiVersion": "v1", "kind": "Node", "name": node}
        spec = {"boundObjectRef": bound, "expirationSeconds": TOKEN_LIFE}
        token, made = self._request_token(self.namespace, account, spec)
        life = shapes.part_of(made, "spec", "the request for a token").get("expirationSeconds")
        if not isinstance(life, int) or life <= 0:
            raise shapes.strange("the request for a token", "it does not say for how long it is good")
        return token, float(life)

    def _request_token(self, namespace: str, account: str, spec: Mapping[str, Any]) -> tuple[str, Any]:
        """A token of ``account``, and the whole answer."""
        path = f"/api/v1/namespaces/{quote(namespace)}/serviceaccounts/{quote(account, safe='')}/token"
        wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        made = self._call("POST", path, body=wanted)
        token = shapes.part_of(made, "status", "the request for a token").get("token")
        if not isinstance(token, str) or not token:
            raise shapes.strange("the request for a token", "it has none")
        return token, made

    # ------------------------------------------------------------ validation of a node by a Job

    def _batch(self, plural: str) -> str:
        return f"/apis/batch/v1/namespaces/{quote(self.namespace)}/{plural}"

    def get_cron_job(self, name: str) -> dict[str, Any]:
        return self._stored("GET", f"{self._batch('cronjobs')}/{quote(name, safe='')}")

    def get_job(self, name: str) -> JobView:
        return job_view(self._stored("GET", f"{self._batch('jobs')}/{quote(name, safe='')}"))

    def turned_away(self, job: str) -> str:
        """Why the kubelet admitted no pod of the Job ``job``; "" where one ran, or none is there any more."""
        path = f"/api/v1/namespaces/{quote(self.namespace)}/pods"
        query = {"labelSelector": f"job-name={job}"}
        why = folded(lambda: [not_admitted(pod) for pod in self._pages(path, query)])
        return why[-1] if why and all(why) else ""

    def create_job(self, body: dict[str, Any]) -> None:
        self._stored("POST", self._batch("jobs"), body=body)

    # ------------------------------------------------------------ objects of others, which providers name

    def get_object(self, ref: ObjectRef) -> dict[str, Any]:
        return self._stored("GET", _object(ref))

    def patch_object(self, ref: ObjectRef, patch: dict[str, Any]) -> None:
        """A merge patch. Put ``metadata.uid`` and ``metadata.resourceVersion`` into it."""
        with self._in_time():
            self._stored("PATCH", _object(ref), body=patch, content_type=MERGE_PATCH)

    def delete(self, item: ClusterDelete) -> None:
        """Delete the very object; ``Conflict`` if another has taken its name."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": item.uid}}
        with self._in_time():
            self._call("DELETE", f"/apis/{item.api_version}/{item.plural}/{quote(item.name)}", body=options)

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        """For what ends or boots a machine. It is not sent late: others may have gone on by then."""
        begun = self._clock.boottime()
        with sent_while(lambda: self._clock.boottime() - begun <= SENT_WITHIN):
            yield


def _pod(pod: PodView) -> str:
    return f"/api/v1/namespaces/{quote(pod.namespace)}/pods/{quote(pod.name)}"


def _object(ref: ObjectRef) -> str:
    root = "/api" if "/" not in ref.api_version else "/apis"
    inside = f"/namespaces/{quote(ref.namespace, safe='')}" if ref.namespace else ""
    return f"{root}/{ref.api_version}{inside}/{ref.plural}/{quote(ref.name, safe='')}"
