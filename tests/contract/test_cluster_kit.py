"""The cluster kit on the in-memory API, directly and through the Kubernetes client; and proof that the kit
can fail."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from kubernetes import config
from kubernetes.client import ApiClient

pytest.register_assert_rewrite("recovery_testkit.cluster_kit", "recovery_testkit.cluster_bench")

from recovery_testkit.cluster_kit import ClusterApi, ClusterKit, failures  # noqa: E402
from recovery_testkit.kubernetes import ApiError, KubernetesServer, KubernetesStore, Response  # noqa: E402

Query = Mapping[str, str]


class Direct:
    """The store as the kit asks for it: a watch gives what there is and ends. Broken APIs below change one
    thing."""

    def __init__(self) -> None:
        self.store = KubernetesStore()

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Any = None,
        content_type: str | None = None,
    ) -> Response:
        return self.store.request(method, path, query=query, body=body, content_type=content_type)

    def watch(self, path: str, query: Query) -> Iterable[dict[str, Any]]:
        try:
            return self.store.watch(path, query).poll()
        except ApiError as error:
            return [{"type": "ERROR", "object": error.body}]


class OverHttp:
    """The store behind its HTTP front, reached with the configuration and connection pool of the Python
    client."""

    def __init__(self, client: ApiClient) -> None:
        self.pool = client.rest_client.pool_manager
        self.host = client.configuration.host

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Any = None,
        content_type: str | None = None,
    ) -> Response:
        headers = {"Content-Type": content_type} if content_type else {}
        sent = None if body is None else json.dumps(body)
        answer = self.pool.request(method, self._url(path, query), body=sent, headers=headers)
        return Response(answer.status, dict(answer.headers), json.loads(answer.data))

    def watch(self, path: str, query: Query) -> Iterator[dict[str, Any]]:
        answer = self.pool.request("GET", self._url(path, query), preload_content=False)
        try:
            if answer.status != 200:
                yield {"type": "ERROR", "object": json.loads(answer.read())}
                return
            for line in answer:
                yield json.loads(line)
        finally:
            answer.close()

    def _url(self, path: str, query: Query | None) -> str:
        return f"{self.host}{path}?{urlencode(query)}" if query else f"{self.host}{path}"


class TestStore(ClusterKit):
    @pytest.fixture
    def api(self) -> ClusterApi:
        return Direct()


@pytest.mark.slow
class TestOverHttp(ClusterKit):
    @pytest.fixture
    def api(self, tmp_path: Path) -> Iterator[ClusterApi]:
        with KubernetesServer(KubernetesStore()) as server:
            kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
            connect: Any = config.new_client_from_config
            client = connect(config_file=str(kubeconfig))
            yield OverHttp(client)
            client.rest_client.pool_manager.clear()


# Each of these is the store with one thing switched off. The kit has to notice.


class PutsBlindly(Direct):
    """A PUT wins whatever version it names."""

    def request(self, method: str, path: str, *, body: Any = None, **rest: Any) -> Response:
        held = self.store.request("GET", path).body.get("metadata", {}) if method == "PUT" else {}
        if held.get("resourceVersion") and body["metadata"].get("resourceVersion"):
            metadata = {**body["metadata"], "resourceVersion": held["resourceVersion"]}
            body = {**body, "metadata": metadata}
        return super().request(method, path, body=body, **rest)


class PatchesBlindly(Direct):
    """A PATCH wins whatever version it names."""

    def request(self, method: str, path: str, *, body: Any = None, **rest: Any) -> Response:
        if method == "PATCH" and isinstance(body, dict):
            body = _without(body, "resourceVersion")
        return super().request(method, path, body=body, **rest)


class ForgetsUids(Direct):
    """Nobody's uid is compared."""

    def request(self, method: str, path: str, *, body: Any = None, **rest: Any) -> Response:
        if method in ("PUT", "PATCH") and isinstance(body, dict):
            body = _without(body, "uid")
        return super().request(method, path, body=body, **rest)


class IgnoresBudgets(Direct):
    """Every eviction is a plain delete."""

    def request(self, method: str, path: str, *, body: Any = None, **rest: Any) -> Response:
        if not path.endswith("/eviction"):
            return super().request(method, path, body=body, **rest)
        answer = super().request(
            "DELETE", path.removesuffix("/eviction"), body=body.get("deleteOptions"), **rest
        )
        return Response(201, answer.headers, answer.body) if answer.ok else answer


class CountsBudgetsOnce(IgnoresBudgets):
    """What the first eviction in a namespace was told, all later ones are told."""

    def __init__(self) -> None:
        super().__init__()
        self.first: dict[str, Response] = {}

    def request(self, method: str, path: str, *, body: Any = None, **rest: Any) -> Response:
        namespace = path.split("/")[4] if path.endswith("/eviction") else ""
        if not namespace:
            return super().request(method, path, body=body, **rest)
        if namespace not in self.first:
            self.first[namespace] = self.store.request(method, path, body=body)
            return self.first[namespace]
        if self.first[namespace].ok:
            return super().request(method, path, body=body, **rest)
        return self.first[namespace]


class KillsOnEviction(Direct):
    """Evicted pods get no grace period."""

    def request(self, method: str, path: str, *, body: Any = None, **rest: Any) -> Response:
        if path.endswith("/eviction"):
            options = {**body.get("deleteOptions", {}), "gracePeriodSeconds": 0}
            body = {**body, "deleteOptions": options}
        return super().request(method, path, body=body, **rest)


class NeverTooOld(Direct):
    """A watch from any version is silently taken as one from now."""

    def watch(self, path: str, query: Query) -> Iterable[dict[str, Any]]:
        return [event for event in super().watch(path, query) if event["type"] != "ERROR"]


class WatchesNothing(Direct):
    """Watches open and stay silent."""

    def watch(self, path: str, query: Query) -> Iterable[dict[str, Any]]:
        return []


class KeepsEverything(Direct):
    """Custom objects are not pruned."""

    def request(self, method: str, path: str, *, body: Any = None, **rest: Any) -> Response:
        if method == "POST" and path.endswith("/customresourcedefinitions"):
            body = _preserving(body)
        return super().request(method, path, body=body, **rest)


class ValidatesNothing(Direct):
    """Custom objects are not compared with their schema."""

    def request(self, method: str, path: str, *, body: Any = None, **rest: Any) -> Response:
        if method == "POST" and path.endswith("/customresourcedefinitions"):
            body = _without(body, "type", "enum", "required")
        return super().request(method, path, body=body, **rest)


class DeletesBlindly(Direct):
    """Preconditions of a delete are not read."""

    def request(self, method: str, path: str, *, body: Any = None, **rest: Any) -> Response:
        if method == "DELETE" and body:
            body = _without(body, "preconditions")
        return super().request(method, path, body=body, **rest)


class OneBigObject(Direct):
    """The main path writes the status too."""

    def request(self, method: str, path: str, *, body: Any = None, **rest: Any) -> Response:
        answer = super().request(method, path, body=body, **rest)
        if method == "PATCH" and answer.ok and isinstance(body, dict) and "status" in body:
            super().request(method, f"{path}/status", body={"status": body["status"]}, **rest)
        return answer


class PagesAlways(Direct):
    """A list at any version is paged like any other."""

    def request(self, method: str, path: str, *, query: Query | None = None, **rest: Any) -> Response:
        kept = {key: value for key, value in (query or {}).items() if key != "resourceVersion"}
        return super().request(method, path, query=kept, **rest)


class HasNoClock(Direct):
    """Answers carry no Date."""

    def request(self, method: str, path: str, **rest: Any) -> Response:
        answer = super().request(method, path, **rest)
        return Response(answer.status, {}, answer.body)


CAUGHT = [
    (PutsBlindly, "test_a_put_with_a_stale_version_conflicts"),
    (PutsBlindly, "test_of_two_writers_from_one_version_exactly_one_wins"),
    (PatchesBlindly, "test_a_patch_with_a_stale_version_conflicts"),
    (ForgetsUids, "test_a_write_about_another_incarnation_is_refused"),
    (IgnoresBudgets, "test_a_budget_is_weighed_at_each_eviction"),
    (CountsBudgetsOnce, "test_a_budget_is_weighed_at_each_eviction"),
    (CountsBudgetsOnce, "test_a_ready_replacement_makes_room_for_the_next_eviction"),
    (KillsOnEviction, "test_an_eviction_without_a_budget_is_a_graceful_delete"),
    (NeverTooOld, "test_a_watch_from_too_long_ago_is_told_so"),
    (WatchesNothing, "test_a_watch_goes_on_from_a_list"),
    (KeepsEverything, "test_a_custom_kind_keeps_what_its_schema_knows_and_no_more"),
    (ValidatesNothing, "test_a_custom_kind_refuses_what_its_schema_forbids"),
    (DeletesBlindly, "test_a_delete_about_another_state_or_incarnation_is_refused"),
    (OneBigObject, "test_the_main_path_leaves_the_status_alone_and_the_other_way_round"),
    (PagesAlways, "test_a_list_at_any_version_is_not_paged"),
    (HasNoClock, "test_answers_carry_the_servers_time"),
]


@pytest.mark.parametrize(("broken", "test"), CAUGHT, ids=lambda each: getattr(each, "__name__", each))
def test_the_kit_fails_on_an_api_that_lacks_one_thing(broken: type[Direct], test: str) -> None:
    assert test in failures(broken(), only=[test])


def test_the_kit_passes_without_pytest_too() -> None:
    assert failures(Direct()) == {}


def _without(value: Any, *names: str) -> Any:
    """A copy of JSON data without these keys, at every depth (a property of a schema may bear such a
    name)."""
    if isinstance(value, dict):
        return {key: _without(item, *names) for key, item in value.items() if key not in names}
    return [_without(item, *names) for item in value] if isinstance(value, list) else value


def _preserving(value: Any) -> Any:
    """A copy of a definition in which every object keeps unknown fields."""
    if isinstance(value, list):
        return [_preserving(item) for item in value]
    if not isinstance(value, dict):
        return value
    copied = {key: _preserving(item) for key, item in value.items()}
    return {**copied, "x-kubernetes-preserve-unknown-fields": True} if "properties" in copied else copied
