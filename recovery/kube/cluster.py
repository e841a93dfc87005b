"""The Kubernetes API, as this program uses it. The only module that imports the Kubernetes client.

It speaks plain JSON over the client's transport: the generated model classes cost 17 MiB and strip what they
do not know. Every read is bounded in size and time; nothing is retried here, and nothing is rate-limited on
this side (the server's priority and fairness is: 429 and Retry-After).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Protocol
from urllib.parse import quote

from recovery.clock import ApiTime, Clock
from recovery.errors import ApiError, ApiUnavailable, Conflict, NotFound, SettingsError, TooManyRequests
from recovery.model import GROUP, VERSION, ClusterDelete, JobView, NodeEvent, NodeView, PodView
from recovery.provider.protocol import ObjectRef
from recovery.units import parse_moment

log = logging.getLogger(__name__)

CONNECT_TIMEOUT = 3.0
READ_TIMEOUT = 10.0
MAX_BODY = 32 * 1024 * 1024
PAGE = 100
UNAUTHORIZED = 401
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MERGE_PATCH = "application/merge-patch+json"
GANGS = (
    "kueue.x-k8s.io/workload",  # annotation of a Job's pods while its Workload is admitted
    "kueue.x-k8s.io/pod-group-name",  # label of a group of plain pods
    "jobset.sigs.k8s.io/jobset-uid",  # label and annotation; the name alone may be used again
    "jobset.sigs.k8s.io/jobset-name",
)
"""Where Kueue (controller/constants) and JobSet (jobset/v1alpha2) write which workload a pod is of."""
_OURS = f"/apis/{GROUP}/{VERSION}"


@dataclass(frozen=True)
class Response:
    """An answer: HTTP status, headers (any case), parsed JSON body."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None


class Transport(Protocol):
    """One request, one answer. Raises ``ApiUnavailable`` when there is none."""

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str | None = None,
    ) -> Any: ...


class KubernetesTransport:
    """The official client's connection, credentials and proxies, without its models."""

    def __init__(self, clock: Clock) -> None:
        from kubernetes.client import ApiClient, Configuration

        configuration = Configuration()
        self.namespace = _load_credentials(configuration)
        configuration.retries = False
        if not configuration.verify_ssl:
            _warn_once_of_insecurity()
        self._client = ApiClient(configuration)
        self._client.user_agent = "node-recovery"
        self._clock = clock

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str | None = None,
    ) -> Response:
        from urllib3.exceptions import HTTPError

        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = content_type or "application/json"
        request = self._client.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            header_params=headers,
            auth_settings=["BearerToken"],
        )
        payload = None if body is None else json.dumps(body).encode()
        try:
            answer = self._client.rest_client.pool_manager.request(
                method,
                request[1],
                body=payload,
                headers=request[2],
                timeout=_timeout(),
                preload_content=False,
                redirect=False,
            )
            try:
                raw = _read_bounded(answer, self._clock)
            finally:
                answer.release_conn()
        except (HTTPError, OSError) as error:
            raise ApiUnavailable(f"the API server did not answer: {_short(error)}") from None
        if answer.status == UNAUTHORIZED:
            self._read_credentials_again()
        return Response(answer.status, answer.headers, _parse(raw))

    def _read_credentials_again(self) -> None:
        """For the next request. The client itself looks for a renewed token once a minute, or never."""
        with contextlib.suppress(SettingsError):
            _load_credentials(self._client.configuration)


def _warn_once_of_insecurity() -> None:
    """A kubeconfig that skips TLS verification is its owner's choice: said once, not with every request."""
    from urllib3 import disable_warnings
    from urllib3.exceptions import InsecureRequestWarning

    disable_warnings(InsecureRequestWarning)
    log.warning("the kubeconfig says not to verify the API server's certificate: anybody may answer for it")


def _timeout() -> Any:
    from urllib3 import Timeout

    return Timeout(connect=CONNECT_TIMEOUT, read=READ_TIMEOUT)


def _load_credentials(configuration: Any) -> str:
    """Fill in address and credentials; returns the namespace they belong to."""
    from kubernetes import config
    from kubernetes.config.config_exception import ConfigException

    if os.environ.get("KUBECONFIG") or "KUBERNETES_SERVICE_HOST" not in os.environ:
        # Named, for the client itself would go by what KUBECONFIG was when it was imported.
        path = os.environ.get("KUBECONFIG") or "~/.kube/config"
        try:
            config.load_kube_config(path, client_configuration=configuration)  # type: ignore[no-untyped-call]
            _, active = config.list_kube_config_contexts(path)  # type: ignore[no-untyped-call]
        except Exception as error:  # TypeError, YAMLError, UnicodeDecodeError ...: as the file is broken
            told = f"KUBECONFIG: {path} cannot be used: {_short(error)}; expected a file that kubectl takes"
            raise SettingsError([told]) from None
        return str((active or {}).get("context", {}).get("namespace") or "default")
    try:
        config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        with open("/var/run/secrets/kubernetes.io/serviceaccount/namespace", encoding="utf-8") as file:
            return file.read().strip() or "default"
    except (ConfigException, OSError) as error:
        told = f"in-cluster credentials: {_short(error)}; expected a service account's token in this pod"
        raise SettingsError([f"{told} (automountServiceAccountToken)"]) from None


def _read_bounded(answer: Any, clock: Clock) -> bytes:
    """The body, at most ``MAX_BODY`` bytes within ``READ_TIMEOUT`` seconds in all."""
    end = clock.monotonic() + READ_TIMEOUT
    chunks, size = [], 0
    for chunk in answer.stream(65536):
        chunks.append(chunk)
        size += len(chunk)
        if size > MAX_BODY:
            raise ApiUnavailable(f"the API server's answer is longer than {MAX_BODY} bytes")
        if clock.monotonic() > end:
            raise ApiUnavailable(f"the API server's answer took longer than {READ_TIMEOUT:g} s")
    return b"".join(chunks)


def _parse(raw: bytes) -> Any:
    if not raw:
        return None
    try:
        return json.loads(raw)
    except ValueError:
        return {"message": raw[:200].decode("utf-8", "replace")}


def _short(error: object) -> str:
    return " ".join(str(error).split())[:200]


class Cluster:
    """What this program reads and writes through the Kubernetes API, each a verb that RBAC must grant."""

    def __init__(self, transport: Transport, clock: Clock, namespace: str) -> None:
        self._transport = transport
        self._clock = clock
        self.namespace = namespace
        self.time = ApiTime(clock)
        self._date = ("", EPOCH)  # the last Date header, and what it says: parsed once a second at most

    # ------------------------------------------------------------ one request

    def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str | None = None,
    ) -> Any:
        asked = self._clock.monotonic()
        answer = self._transport.request(method, path, query=query, body=body, content_type=content_type)
        self._learn_time(answer.headers, asked)
        if 200 <= answer.status < 300:
            return answer.body
        raise _error(answer.status, answer.body, answer.headers, f"{method} {path}")

    def _learn_time(self, headers: Mapping[str, str], asked: float) -> None:
        date = headers.get("Date") or headers.get("date")
        if not date:
            return
        if date != self._date[0]:
            try:
                self._date = (date, parsedate_to_datetime(date))
            except ValueError:
                return
        self.time.learn(self._date[1], asked)

    # ------------------------------------------------------------ nodes and pods

    def get_node(self, name: str) -> NodeView:
        return node_view(self._call("GET", f"/api/v1/nodes/{quote(name)}"))

    def list_nodes(self) -> Iterator[NodeView]:
        for item in self._pages("/api/v1/nodes", {}):
            yield node_view(item)

    def patch_node(self, name: str, patch: dict[str, Any]) -> NodeView:
        """A merge patch. Put ``metadata.resourceVersion`` into it: merge patch replaces whole lists."""
        return node_view(
            self._call("PATCH", f"/api/v1/nodes/{quote(name)}", body=patch, content_type=MERGE_PATCH)
        )

    def list_pods(self, node: str) -> tuple[PodView, ...]:
        items = self._pages("/api/v1/pods", {"fieldSelector": f"spec.nodeName={node}"})
        return tuple(pod_view(item) for item in items)

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
        self._call("POST", f"{_pod(pod)}/eviction", query={"dryRun": "All"} if only_ask else None, body=body)

    def annotate_pod(self, pod: PodView, annotations: Mapping[str, str]) -> None:
        """Put ``annotations`` on the very pod (by uid)."""
        patch = {"metadata": {"uid": pod.uid, "annotations": dict(annotations)}}
        self._call("PATCH", _pod(pod), body=patch, content_type=MERGE_PATCH)

    def _pages(self, path: str, query: dict[str, str]) -> Iterator[dict[str, Any]]:
        """All items, a page at a time. Never with resourceVersion=0, which makes ``limit`` void."""
        token = ""
        while True:
            page = {**query, "limit": str(PAGE)} | ({"continue": token} if token else {})
            body = self._call("GET", path, query=page) or {}
            yield from body.get("items") or []
            token = (body.get("metadata") or {}).get("continue") or ""
            if not token:
                return

    # ------------------------------------------------------------ our own objects

    def get_record(self, node: str) -> dict[str, Any]:
        return dict(self._call("GET", f"{_OURS}/noderecoveries/{quote(node)}"))

    def list_records(self) -> list[dict[str, Any]]:
        return list(self._pages(f"{_OURS}/noderecoveries", {}))

    def create_record(self, body: dict[str, Any]) -> dict[str, Any]:
        return dict(self._call("POST", f"{_OURS}/noderecoveries", body=body))

    def replace_record(self, body: dict[str, Any]) -> dict[str, Any]:
        name = body["metadata"]["name"]
        return dict(self._call("PUT", f"{_OURS}/noderecoveries/{quote(name)}", body=body))

    def get_gate(self) -> dict[str, Any]:
        return dict(self._call("GET", f"{_OURS}/recoverygates/fleet"))

    def create_gate(self, body: dict[str, Any]) -> dict[str, Any]:
        return dict(self._call("POST", f"{_OURS}/recoverygates", body=body))

    def replace_gate(self, body: dict[str, Any]) -> dict[str, Any]:
        return dict(self._call("PUT", f"{_OURS}/recoverygates/fleet", body=body))

    # ------------------------------------------------------------ leases, events, node claims

    def _leases(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{quote(self.namespace)}/leases"

    def get_lease(self, name: str) -> dict[str, Any]:
        return dict(self._call("GET", f"{self._leases()}/{quote(name)}"))

    def create_lease(self, body: dict[str, Any]) -> dict[str, Any]:
        return dict(self._call("POST", self._leases(), body=body))

    def replace_lease(self, body: dict[str, Any]) -> dict[str, Any]:
        return dict(self._call("PUT", f"{self._leases()}/{quote(body['metadata']['name'])}", body=body))

    def create_event(self, body: dict[str, Any]) -> dict[str, Any]:
        return dict(self._call("POST", "/api/v1/namespaces/default/events", body=body))

    def list_node_events(self, node: str, source: str) -> tuple[NodeEvent, ...]:
        """What ``source`` has told of ``node`` of late (the server keeps Events for an hour)."""
        wanted = f"involvedObject.kind=Node,involvedObject.name={node},source={source}"
        items = self._pages("/api/v1/namespaces/default/events", {"fieldSelector": wanted})
        return tuple(event_view(item) for item in items)

    def patch_event(self, name: str, patch: dict[str, Any]) -> None:
        path = f"/api/v1/namespaces/default/events/{quote(name)}"
        self._call("PATCH", path, body=patch, content_type=MERGE_PATCH)

    def deleting(self, item: ClusterDelete) -> bool | None:
        """Whether the very object (by uid) is on its way out; None where it is gone."""
        try:
            found = self._call("GET", f"/apis/{item.api_version}/{item.plural}/{quote(item.name)}")
        except NotFound:
            return None
        metadata = found["metadata"]
        return bool(metadata.get("deletionTimestamp")) if metadata.get("uid") == item.uid else None

    # ------------------------------------------------------------ validation of a node by a Job

    def _batch(self, plural: str) -> str:
        return f"/apis/batch/v1/namespaces/{quote(self.namespace)}/{plural}"

    def get_cron_job(self, name: str) -> dict[str, Any]:
        return dict(self._call("GET", f"{self._batch('cronjobs')}/{quote(name, safe='')}"))

    def get_job(self, name: str) -> JobView:
        return job_view(self._call("GET", f"{self._batch('jobs')}/{quote(name, safe='')}"))

    def create_job(self, body: dict[str, Any]) -> None:
        self._call("POST", self._batch("jobs"), body=body)

    # ------------------------------------------------------------ objects of others, which providers name

    def get_object(self, ref: ObjectRef) -> dict[str, Any]:
        return dict(self._call("GET", _object(ref)))

    def patch_object(self, ref: ObjectRef, patch: dict[str, Any]) -> None:
        """A merge patch. Put ``metadata.uid`` and ``metadata.resourceVersion`` into it."""
        self._call("PATCH", _object(ref), body=patch, content_type=MERGE_PATCH)

    def delete(self, item: ClusterDelete) -> None:
        """Delete the very object; ``Conflict`` if another has taken its name."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": item.uid}}
        self._call("DELETE", f"/apis/{item.api_version}/{item.plural}/{quote(item.name)}", body=options)


def _pod(pod: PodView) -> str:
    return f"/api/v1/namespaces/{quote(pod.namespace)}/pods/{quote(pod.name)}"


def _object(ref: ObjectRef) -> str:
    root = "/api" if "/" not in ref.api_version else "/apis"
    inside = f"/namespaces/{quote(ref.namespace, safe='')}" if ref.namespace else ""
    return f"{root}/{ref.api_version}{inside}/{ref.plural}/{quote(ref.name, safe='')}"


# ---------------------------------------------------------------- answers


def _error(status: int, body: Any, headers: Mapping[str, str], what: str) -> ApiError:
    """The error for a refused request. A 422 on a uid precondition is a conflict."""
    message = str((body or {}).get("message") or "") if isinstance(body, dict) else ""
    reason = f"{what}: {status} {_short(message)}".strip()
    if status == 404:
        return NotFound(reason, status)
    if status == 409 or (status == 422 and "uid" in message.lower() and "precondition" in message.lower()):
        return Conflict(reason, status)
    if status == 422 and "metadata.uid" in message:
        return Conflict(reason, status)
    if status == 429:
        return TooManyRequests(_refusal(body) or reason, status, _retry_after(headers))
    if status >= 500:
        return ApiUnavailable(reason, status)
    return ApiError(reason, status)


def _refusal(body: Any) -> str:
    """The disruption budget's own words, where a 429 is its refusal."""
    causes = ((body or {}).get("details") or {}).get("causes") or []
    return next((str(c.get("message")) for c in causes if c.get("reason") == "DisruptionBudget"), "")


def _retry_after(headers: Mapping[str, str]) -> float | None:
    try:
        return float(headers.get("Retry-After") or headers.get("retry-after") or "")
    except ValueError:
        return None


# ---------------------------------------------------------------- views


def _moment(text: Any) -> datetime | None:
    return parse_moment(text) if text else None


def node_view(obj: Mapping[str, Any]) -> NodeView:
    """A Node object as the core sees it."""
    meta, spec, status = obj.get("metadata") or {}, obj.get("spec") or {}, obj.get("status") or {}
    info = status.get("nodeInfo") or {}
    return NodeView(
        name=meta.get("name", ""),
        uid=meta.get("uid", ""),
        resource_version=meta.get("resourceVersion", ""),
        provider_id=spec.get("providerID") or "",
        boot_id=info.get("bootID") or "",
        system_uuid=info.get("systemUUID") or "",
        unschedulable=bool(spec.get("unschedulable")),
        labels=meta.get("labels") or {},
        annotations=meta.get("annotations") or {},
        taints=tuple(
            (t.get("key", ""), t.get("value") or "", t.get("effect", "")) for t in spec.get("taints") or []
        ),
        tainted_at={
            (t.get("key", ""), t.get("effect", "")): t["timeAdded"]
            for t in spec.get("taints") or []
            if t.get("timeAdded")
        },
        conditions={
            c["type"]: (c.get("status", "Unknown"), c.get("reason") or "")
            for c in status.get("conditions") or []
        },
        addresses=tuple(a.get("address", "") for a in status.get("addresses") or []),
        owners=tuple(
            (o.get("kind", ""), o.get("name", ""), o.get("uid", ""))
            for o in meta.get("ownerReferences") or []
        ),
        created=_moment(meta.get("creationTimestamp")),
        deleting=bool(meta.get("deletionTimestamp")),
    )


def pod_view(obj: Mapping[str, Any]) -> PodView:
    """A Pod object as the drain sees it."""
    meta, spec, status = obj.get("metadata") or {}, obj.get("spec") or {}, obj.get("status") or {}
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    controller: Mapping[str, Any] = next(
        (o for o in meta.get("ownerReferences") or [] if o.get("controller")), {}
    )
    return PodView(
        namespace=meta.get("namespace", ""),
        name=meta.get("name", ""),
        uid=meta.get("uid", ""),
        phase=status.get("phase") or "",
        owner_kind=controller.get("kind") or "",
        mirror="kubernetes.io/config.mirror" in annotations,
        deletion_timestamp=_moment(meta.get("deletionTimestamp")),
        labels=labels,
        annotations=annotations,
        local_storage=any("emptyDir" in volume for volume in spec.get("volumes") or []),
        gang=next((f"{k}={v}" for k in GANGS if (v := annotations.get(k) or labels.get(k))), ""),
    )


def job_view(obj: Mapping[str, Any]) -> JobView:
    """A Job. It has ended with a condition Complete or Failed that is True, and not before."""
    template = ((obj.get("spec") or {}).get("template") or {}).get("spec") or {}
    ended = {
        c.get("type"): " ".join(filter(None, (c.get("reason"), c.get("message"))))
        for c in (obj.get("status") or {}).get("conditions") or []
        if c.get("status") == "True"
    }
    succeeded = True if "Complete" in ended else False if "Failed" in ended else None
    return JobView(template.get("nodeName") or "", succeeded, ended.get("Failed", ""))


def event_view(obj: Mapping[str, Any]) -> NodeEvent:
    """An Event, of either API's shape. One that is told again has its latest moment in one of four places."""
    told = (
        (obj.get("series") or {}).get("lastObservedTime"),
        obj.get("lastTimestamp"),
        obj.get("eventTime"),
        (obj.get("metadata") or {}).get("creationTimestamp"),
    )
    return NodeEvent(obj.get("reason") or "", max(filter(None, map(_moment, told)), default=EPOCH))
