"""The in-memory Kubernetes API: what the cluster kit does not state, because only tests can ask for it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from recovery_testkit import kubeevict, kubepatch, kubeschema, kubeselect
from recovery_testkit.kubernetes import (
    ApiError,
    FaultyApi,
    KubernetesStore,
    NoAnswerError,
    Response,
    lost_answer,
    lost_request,
    node_claim_crd,
    refused,
    server_error,
    throttled,
)

from tests.builders.objects import budget_object, node_object, pod_object

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
NODE = "/api/v1/nodes/n1"
PODS = "/api/v1/namespaces/default/pods"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
BUDGET = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/budget"
EVENTS = "/api/v1/namespaces/default/events"
Json = dict[str, Any]


class Clock:
    def __init__(self) -> None:
        self.time = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time

    def pass_(self, **duration: float) -> None:
        self.time += timedelta(**duration)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> KubernetesStore:
    return KubernetesStore(now=clock.now)


def owned_by(owner: Json) -> list[Json]:
    meta = owner["metadata"]
    return [{"kind": owner["kind"], "name": meta["name"], "uid": meta["uid"], "controller": True}]


def replicas(name: str, count: int, kind: str = "ReplicaSet", **metadata: Any) -> Json:
    metadata = {"name": name, "namespace": "default", **metadata}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": {"replicas": count}}


def evict(store: KubernetesStore, name: str, **options: Any) -> Response:
    body = {"metadata": {"name": name}, "deleteOptions": options}
    return store.request("POST", f"{PODS}/{name}/eviction", body=body)


def there(store: KubernetesStore, path: str) -> bool:
    return store.request("GET", path).status == 200


def patch(store: KubernetesStore, path: str, body: Any, kind: str = MERGE) -> Response:
    return store.request("PATCH", path, body=body, content_type=kind)


# Time


def test_stamps_and_dates_follow_the_clock(store: KubernetesStore, clock: Clock) -> None:
    assert store.load(node_object())[0]["metadata"]["creationTimestamp"] == "2026-03-01T12:00:00Z"
    clock.pass_(seconds=90)
    assert store.request("GET", NODE).headers["Date"] == "Sun, 01 Mar 2026 12:01:30 GMT"
    assert store.request("GET", "/nowhere").headers["Date"] == "Sun, 01 Mar 2026 12:01:30 GMT"


def test_a_terminating_pod_goes_at_the_end_of_its_grace_period(store: KubernetesStore, clock: Clock) -> None:
    store.load(pod_object("p"))
    store.request("DELETE", f"{PODS}/p")
    clock.pass_(seconds=29)
    assert there(store, f"{PODS}/p")
    clock.pass_(seconds=1)
    store.tick()
    assert not there(store, f"{PODS}/p")
    assert (store.history[-1].verb, store.history[-1].actor) == ("delete", "kubelet")


def test_on_a_dead_machine_terminating_pods_stay(store: KubernetesStore, clock: Clock) -> None:
    store.load(pod_object("p"), pod_object("other", on="n2"))
    store.stop_kubelet("n1")
    for name in ("p", "other"):
        store.request("DELETE", f"{PODS}/{name}")
    clock.pass_(hours=1)
    assert there(store, f"{PODS}/p")
    assert not there(store, f"{PODS}/other")
    store.start_kubelet("n1")
    assert not there(store, f"{PODS}/p")


def test_a_kubelet_may_be_dead_by_what_the_node_controller_says(clock: Clock) -> None:
    store = KubernetesStore(now=clock.now, kubelets_by_ready=True)
    store.load(node_object("n1"), node_object("n2"), pod_object("p", on="n1"), pod_object("other", on="n2"))
    says_ready(store, "n1", "Unknown")
    for name in ("p", "other"):
        store.request("DELETE", f"{PODS}/{name}")
    clock.pass_(hours=1)
    assert there(store, f"{PODS}/p")
    assert not there(store, f"{PODS}/other")
    says_ready(store, "n1", "True")
    assert not there(store, f"{PODS}/p")


def says_ready(store: KubernetesStore, node: str, status: str) -> None:
    body = {"status": {"conditions": [{"type": "Ready", "status": status}]}}
    assert store.request("PATCH", f"/api/v1/nodes/{node}/status", body=body, content_type=MERGE).ok


def test_a_shorter_grace_period_counts_and_a_longer_does_not(store: KubernetesStore) -> None:
    store.load(pod_object("p"))
    ends = []
    for seconds in (20, 5, 50):
        answer = store.request("DELETE", f"{PODS}/p", body={"gracePeriodSeconds": seconds})
        ends.append(answer.body["metadata"]["deletionTimestamp"])
    assert ends == ["2026-03-01T12:00:20Z", "2026-03-01T12:00:05Z", "2026-03-01T12:00:05Z"]
    store.request("DELETE", f"{PODS}/p", query={"gracePeriodSeconds": "0"})
    assert not there(store, f"{PODS}/p")


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_is_deleted_at_once(store: KubernetesStore, phase: str) -> None:
    store.load(pod_object("p", phase=phase, ready=False))
    assert store.request("DELETE", f"{PODS}/p").body["kind"] == "Pod"
    assert not there(store, f"{PODS}/p")


def test_a_pod_with_a_finalizer_outlives_its_grace_period(store: KubernetesStore, clock: Clock) -> None:
    store.load(pod_object("p", finalizers=["a.b/c"]))
    store.request("DELETE", f"{PODS}/p")
    clock.pass_(minutes=1)
    assert store.request("GET", f"{PODS}/p").body["metadata"]["deletionGracePeriodSeconds"] == 0
    patch(store, f"{PODS}/p", {"metadata": {"finalizers": []}})
    assert not there(store, f"{PODS}/p")


# Evictions and budgets


@pytest.mark.parametrize(
    ("spec", "wanted", "pods", "allowed", "desired"),
    [
        ({"minAvailable": 1}, 3, 3, 2, 1),
        ({"minAvailable": 3}, 3, 3, 0, 3),
        ({"minAvailable": "50%"}, 3, 3, 1, 2),
        ({"minAvailable": "100%"}, 3, 3, 0, 3),
        ({"maxUnavailable": 1}, 3, 3, 1, 2),
        ({"maxUnavailable": 1}, 3, 2, 0, 2),
        ({"maxUnavailable": "50%"}, 3, 3, 2, 1),
        ({"maxUnavailable": "0%"}, 3, 3, 0, 3),
        ({"maxUnavailable": 5}, 3, 1, 1, 0),
        ({"minAvailable": 0}, 3, 0, 0, 0),
    ],
)
def test_what_a_budget_allows(
    store: KubernetesStore, spec: Json, wanted: int, pods: int, allowed: int, desired: int
) -> None:
    (owner,) = store.load(replicas("rs", wanted))
    store.load(
        budget_object(**spec),
        *(pod_object(f"p{index}", ownerReferences=owned_by(owner)) for index in range(pods)),
    )
    status = store.request("GET", BUDGET).body["status"]
    assert (status["disruptionsAllowed"], status["desiredHealthy"]) == (allowed, desired)
    assert status["currentHealthy"] == pods


def test_a_deployment_counts_and_not_its_replica_sets(store: KubernetesStore) -> None:
    (deployment,) = store.load(replicas("d", 4, "Deployment"))
    old, new = store.load(
        *(replicas(each, 1, ownerReferences=owned_by(deployment)) for each in ("old", "new"))
    )
    store.load(pod_object("a", ownerReferences=owned_by(old)), pod_object("b", ownerReferences=owned_by(new)))
    store.load(budget_object(maxUnavailable=1))
    assert store.request("GET", BUDGET).body["status"]["expectedPods"] == 4


def test_a_budget_over_pods_with_a_missing_controller_does_not_sync(store: KubernetesStore) -> None:
    gone = {"kind": "ReplicaSet", "metadata": {"name": "gone", "uid": "u"}}
    store.load(pod_object("p", ownerReferences=owned_by(gone)), budget_object(maxUnavailable=1))
    assert store.request("GET", BUDGET).body["status"]["conditions"][0]["reason"] == "SyncFailed"
    answer = evict(store, "p")
    assert (answer.status, answer.headers["Retry-After"]) == (429, "10")
    assert "still being processed" in answer.body["details"]["causes"][0]["message"]


def test_a_refusal_names_the_budget_and_its_counts(store: KubernetesStore) -> None:
    store.load(pod_object("p"), budget_object(minAvailable=1))
    answer = evict(store, "p")
    assert answer.body["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    message = "The disruption budget budget needs 1 healthy pods and has 1 currently"
    assert answer.body["details"]["causes"] == [{"reason": "DisruptionBudget", "message": message}]


@pytest.mark.parametrize(("phase", "stays"), [("Pending", True), ("Succeeded", False), ("Failed", False)])
def test_pods_that_serve_nothing_need_no_budget(store: KubernetesStore, phase: str, stays: bool) -> None:
    store.load(pod_object("p", phase=phase, ready=False), budget_object(minAvailable=1))
    assert evict(store, "p").status == 201
    assert there(store, f"{PODS}/p") is stays


@pytest.mark.parametrize(
    ("policy", "healthy", "status"),
    [({}, 0, 429), ({}, 1, 201), ({"unhealthyPodEvictionPolicy": "AlwaysAllow"}, 0, 201)],
)
def test_a_pod_that_is_not_ready_goes_if_the_budget_is_met_or_does_not_mind(
    store: KubernetesStore, policy: Json, healthy: int, status: int
) -> None:
    store.load(pod_object("sick", ready=False), *(pod_object(f"p{index}") for index in range(healthy)))
    store.load(budget_object(minAvailable=1, **policy))
    assert evict(store, "sick").status == status


def test_pods_without_labels_and_other_namespaces_have_no_budget(store: KubernetesStore) -> None:
    store.load({**budget_object(minAvailable=9), "spec": {"minAvailable": 9, "selector": {}}})
    store.load(pod_object("bare", labels={}), pod_object("far", namespace="kube-system"))
    assert evict(store, "bare").status == 201
    body = {"metadata": {"name": "far"}}
    assert store.request("POST", "/api/v1/namespaces/kube-system/pods/far/eviction", body=body).status == 201


def test_a_failed_eviction_uses_the_budget_for_two_minutes(store: KubernetesStore, clock: Clock) -> None:
    store.load(pod_object("a"), pod_object("b"), budget_object(minAvailable=1))
    assert evict(store, "a", preconditions={"uid": "other"}).status == 409
    assert evict(store, "b").status == 429
    clock.pass_(minutes=2)
    assert evict(store, "b").status == 201


def test_an_eviction_of_an_evicted_pod_is_no_second_disruption(store: KubernetesStore) -> None:
    store.load(pod_object("a"), pod_object("b"), pod_object("c"), budget_object(minAvailable=1))
    assert [evict(store, name).status for name in ("a", "a", "b", "c")] == [201, 201, 201, 429]


def test_evictions_are_in_the_history_and_are_counted(store: KubernetesStore) -> None:
    store.load(pod_object("a"))
    evict(store, "a")
    assert store.requests["create", "pods/eviction"] == 1
    assert {write.verb for write in store.history if write.path.endswith("/eviction")} == {"evict"}
    assert store.history[-1].object["metadata"]["deletionTimestamp"]


def test_an_eviction_names_its_pod(store: KubernetesStore) -> None:
    store.load(pod_object("a"))
    assert store.request("POST", f"{PODS}/a/eviction", body={"metadata": {"name": "b"}}).status == 400
    assert store.request("GET", f"{PODS}/a/eviction").status == 405
    assert store.request("POST", f"{PODS}/a/eviction", body=[]).status == 400


def test_ready_is_a_condition_and_no_phase() -> None:
    assert kubeevict.ready(pod_object("p", phase="Pending"))
    assert not kubeevict.ready({"status": {"phase": "Running"}})


# Watches and versions


def test_broken_watches_end_with_410(store: KubernetesStore) -> None:
    watch = store.watch("/api/v1/nodes")
    store.break_watches()
    assert [(event["type"], event["object"]["code"]) for event in watch.poll()] == [("ERROR", 410)]
    assert watch.ended
    assert watch.poll() == []
    assert store.watch("/api/v1/nodes").poll() == []


def test_compaction_expires_old_versions_only(store: KubernetesStore) -> None:
    store.load(node_object())
    listed = store.request("GET", "/api/v1/nodes").body["metadata"]["resourceVersion"]
    store.load(node_object("n2"))
    store.compact()
    newest = store.request("GET", "/api/v1/nodes").body["metadata"]["resourceVersion"]
    assert store.watch("/api/v1/nodes", {"resourceVersion": listed}).poll()[0]["object"]["code"] == 410
    assert store.watch("/api/v1/nodes", {"resourceVersion": newest}).poll() == []


def test_the_history_of_watches_is_bounded() -> None:
    store = KubernetesStore(window=3)
    store.load(node_object())
    watch = store.watch("/api/v1/nodes")
    watch.poll()
    for index in range(20):
        patch(store, NODE, {"metadata": {"annotations": {"i": str(index)}}})
    assert watch.poll()[-1]["object"]["code"] == 410


def test_expired_continue_tokens_are_410(store: KubernetesStore) -> None:
    store.load(node_object("n1"), node_object("n2"))
    first = store.request("GET", "/api/v1/nodes", query={"limit": "1"}).body["metadata"]
    assert first["remainingItemCount"] == 1
    store.compact()
    answer = store.request("GET", "/api/v1/nodes", query={"limit": "1", "continue": first["continue"]})
    assert (answer.status, answer.body["reason"]) == (410, "Expired")


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"continue": "rubbish"}, 400),
        ({"continue": "e30"}, 400),
        ({"limit": "x"}, 400),
        ({"resourceVersion": "x"}, 400),
        ({"resourceVersion": "999999"}, 504),
        ({"labelSelector": "a in b"}, 400),
        ({"fieldSelector": "spec.x=1"}, 400),
        ({"fieldSelector": "rubbish"}, 400),
        ({"watch": "1"}, 400),
    ],
)
def test_lists_that_cannot_be_answered(store: KubernetesStore, query: dict[str, str], status: int) -> None:
    assert store.request("GET", "/api/v1/nodes", query=query).status == status


def test_a_continue_token_and_a_version_exclude_each_other(store: KubernetesStore) -> None:
    store.load(node_object("n1"), node_object("n2"))
    token = store.request("GET", "/api/v1/nodes", query={"limit": "1"}).body["metadata"]["continue"]
    query = {"continue": token, "resourceVersion": "1"}
    assert store.request("GET", "/api/v1/nodes", query=query).status == 400


def test_bookmarks_are_for_those_who_allow_them(store: KubernetesStore) -> None:
    plain = store.watch("/api/v1/nodes")
    marked = store.watch("/api/v1/nodes", {"allowWatchBookmarks": "true"})
    store.load(node_object())
    store.bookmark()
    assert [event["type"] for event in plain.poll()] == ["ADDED"]
    events = marked.poll()
    assert [event["type"] for event in events] == ["ADDED", "BOOKMARK"]
    assert (
        events[1]["object"]["metadata"]["resourceVersion"]
        == events[0]["object"]["metadata"]["resourceVersion"]
    )


def test_a_streamed_list_ends_with_its_own_bookmark(store: KubernetesStore) -> None:
    store.load(node_object())
    query = {
        "sendInitialEvents": "true",
        "allowWatchBookmarks": "true",
        "resourceVersionMatch": "NotOlderThan",
    }
    events = store.watch("/api/v1/nodes", query).poll()
    assert [event["type"] for event in events] == ["ADDED", "BOOKMARK"]
    assert events[1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_a_watch_of_one_object_sees_only_that(store: KubernetesStore) -> None:
    watch = store.watch(NODE)
    store.load(node_object("n1"), node_object("n2"))
    assert [event["object"]["metadata"]["name"] for event in watch.poll()] == ["n1"]


def test_a_watch_that_cannot_open_says_why(store: KubernetesStore) -> None:
    for path, query, status in (
        ("/api/v1/rubbish", {}, 404),
        ("/api/v1/nodes", {"resourceVersion": "x"}, 500),
        ("/api/v1/nodes", {"fieldSelector": "spec.x=1"}, 400),
    ):
        with pytest.raises(ApiError) as refusal:
            store.watch(path, query)
        assert refusal.value.status == status


def test_a_closed_watch_is_silent(store: KubernetesStore) -> None:
    watch = store.watch("/api/v1/nodes")
    watch.close()
    store.load(node_object())
    assert watch.poll() == []
    assert watch.next(0) is None
    assert list(watch) == []


def test_next_gives_events_one_by_one(store: KubernetesStore) -> None:
    watch = store.watch("/api/v1/nodes")
    store.load(node_object("n1"), node_object("n2"))
    found = [watch.next(0), watch.next(0), watch.next(0)]
    assert [each and each["object"]["metadata"]["name"] for each in found] == ["n1", "n2", None]


def test_what_a_client_gets_is_its_own(store: KubernetesStore) -> None:
    store.load(node_object())
    watch = store.watch("/api/v1/nodes")
    store.request("GET", NODE).body["metadata"]["name"] = "mine"
    watch.poll()[0]["object"]["metadata"]["name"] = "mine"
    body = node_object("n2", spec={"taints": []})
    store.request("POST", "/api/v1/nodes", body=body)
    body["metadata"]["name"] = "mine"
    assert {write.object["metadata"]["name"] for write in store.history[-2:]} == {"n1", "n2"}
    assert there(store, NODE)


# Objects


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"metadata": {"labels": {"a": "no label"}}}, "metadata.labels"),
        ({"metadata": {"labels": {"a": "x" * 64}}}, "metadata.labels"),
        ({"metadata": {"labels": {"-a": "x"}}}, "metadata.labels"),
        ({"metadata": {"annotations": {"a b": "x"}}}, "metadata.annotations"),
        ({"metadata": {"annotations": {"a": "x" * 300_000}}}, "metadata.annotations"),
        ({"metadata": {"uid": "other"}}, "metadata.uid"),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, "metadata.deletionTimestamp"),
        ({"spec": {"taints": [{"key": "a", "effect": "Never"}]}}, "metadata.taints[0].effect"),
        ({"spec": {"taints": [{"key": "", "effect": "NoSchedule"}]}}, "metadata.taints[0].key"),
        ({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}] * 2}}, "metadata.taints[1]"),
        ({"spec": {"providerID": "aws:///z/i-2"}}, "spec.providerID"),
    ],
)
def test_a_node_that_would_be_wrong_is_refused(store: KubernetesStore, body: Json, field: str) -> None:
    store.load(node_object(spec={"providerID": "aws:///z/i-1"}))
    answer = patch(store, NODE, body)
    assert (answer.status, answer.body["details"]["causes"][0]["field"]) == (422, field)


def test_a_pod_stays_on_its_node(store: KubernetesStore) -> None:
    store.load(pod_object("p"))
    assert patch(store, f"{PODS}/p", {"spec": {"nodeName": "n2"}}).status == 422
    image = {"spec": {"containers": [{"name": "c", "image": "j"}], "tolerations": [{"operator": "Exists"}]}}
    assert patch(store, f"{PODS}/p", image).status == 200


@pytest.mark.parametrize("name", ["Upper", "-a", "a_b", "a" * 254])
def test_names_are_subdomains(store: KubernetesStore, name: str) -> None:
    assert store.request("POST", "/api/v1/nodes", body=node_object(name)).status == 422


def test_an_object_needs_a_name_and_its_own_kind(store: KubernetesStore) -> None:
    for body, status in (
        ({"metadata": {}}, 422),
        ({"kind": "Pod", "metadata": {"name": "a"}}, 400),
        ({"apiVersion": "v2", "metadata": {"name": "a"}}, 400),
        ({"metadata": {"name": "a", "resourceVersion": "7"}}, 500),
        ({"metadata": "rubbish"}, 400),
        ([], 400),
        (None, 400),
    ):
        assert store.request("POST", "/api/v1/nodes", body=body).status == status, body


@pytest.mark.parametrize(
    ("spec", "status"),
    [
        ({"renewTime": "2026-03-01T12:00:00.000000Z"}, 201),
        ({"renewTime": "2026-03-01T12:00:00.000000+01:00"}, 201),
        ({"renewTime": "2026-03-01T12:00:00Z"}, 400),
        ({"acquireTime": "2026-03-01T12:00:00.123Z"}, 400),
        ({"leaseDurationSeconds": 0}, 422),
    ],
)
def test_the_times_of_a_lease_have_six_decimals(store: KubernetesStore, spec: Json, status: int) -> None:
    assert store.request("POST", LEASES, body={"metadata": {"name": "l"}, "spec": spec}).status == status


def test_events_are_where_their_object_is(store: KubernetesStore) -> None:
    about = {"kind": "Node", "name": "n1", "uid": "n1"}
    body = {
        "metadata": {"generateName": "e-"},
        "involvedObject": about,
        "reason": "Cordoned",
        "type": "Normal",
    }
    assert store.request("POST", EVENTS, body=body).status == 201
    assert store.request("POST", EVENTS.replace("default", "kube-system"), body=body).status == 422
    query = {"fieldSelector": "involvedObject.name=n1,involvedObject.kind=Node,reason=Cordoned"}
    assert len(store.request("GET", "/api/v1/events", query=query).body["items"]) == 1


def test_unknown_fields_of_a_spec_are_pruned_with_a_warning(store: KubernetesStore) -> None:
    store.load(node_object())
    answer = patch(store, NODE, {"spec": {"unschedulabel": True}})
    assert answer.headers["Warning"] == '299 - "unknown field \\"spec.unschedulabel\\""'
    assert "unschedulabel" not in answer.body["spec"]
    strict = {"fieldValidation": "Strict"}
    body = {"spec": {"unschedulabel": True}}
    assert store.request("PATCH", NODE, body=body, query=strict, content_type=MERGE).status == 400


def test_what_is_empty_is_not_kept(store: KubernetesStore) -> None:
    store.load(node_object(spec={"unschedulable": True, "taints": [{"key": "a", "effect": "NoSchedule"}]}))
    answer = patch(store, NODE, {"spec": {"unschedulable": False, "taints": []}, "metadata": {"labels": {}}})
    assert answer.body["spec"] == {}


def test_a_namespace_must_be_there_and_takes_its_objects_along(store: KubernetesStore) -> None:
    there_is_none = CONFIG_MAPS.replace("default", "team")
    assert store.request("POST", there_is_none, body={"metadata": {"name": "c"}}).status == 404
    store.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    assert store.request("POST", there_is_none, body={"metadata": {"name": "c"}}).status == 201
    store.request("DELETE", "/api/v1/namespaces/team")
    assert store.request("GET", "/api/v1/configmaps").body["items"] == []


def test_a_dry_run_changes_nothing(store: KubernetesStore) -> None:
    store.load(node_object(), pod_object("p"), pod_object("q"), budget_object(minAvailable=1))
    before = len(store.history)
    dry = {"dryRun": "All"}
    assert store.request("POST", "/api/v1/nodes", body=node_object("n2"), query=dry).status == 201
    answer = store.request(
        "PATCH", NODE, body={"spec": {"unschedulable": True}}, query=dry, content_type=MERGE
    )
    assert answer.body["spec"]["unschedulable"] is True
    assert store.request("DELETE", NODE, query=dry).status == 200
    assert store.request("DELETE", f"{PODS}/p", query=dry).status == 200
    assert store.request("DELETE", f"{PODS}/p", body={"dryRun": ["All"]}).status == 200
    assert (
        store.request("POST", f"{PODS}/p/eviction", body={"metadata": {"name": "p"}}, query=dry).status == 201
    )
    assert store.request("DELETE", NODE, query={"dryRun": "Some"}).status == 422
    assert len(store.history) == before


def test_deleting_a_collection_deletes_what_matches(store: KubernetesStore) -> None:
    for name, label in (("a", "x"), ("b", "y")):
        store.request("POST", CONFIG_MAPS, body={"metadata": {"name": name, "labels": {"l": label}}})
    store.request("DELETE", CONFIG_MAPS, query={"labelSelector": "l=x"})
    assert [each["metadata"]["name"] for each in store.request("GET", CONFIG_MAPS).body["items"]] == ["b"]
    assert store.request("DELETE", "/api/v1/configmaps").status == 405


def test_no_new_finalizers_on_what_is_going(store: KubernetesStore) -> None:
    store.load({**node_object(), "metadata": {"name": "n1", "finalizers": ["a.b/c"]}})
    store.request("DELETE", NODE)
    assert patch(store, NODE, {"metadata": {"finalizers": ["a.b/c", "a.b/d"]}}).status == 422
    again = store.request("POST", "/api/v1/nodes", body=node_object())
    assert again.body["message"] == 'object is being deleted: nodes "n1" already exists'


def test_generations_count_specs_and_not_marks(store: KubernetesStore) -> None:
    store.load(replicas("rs", 1))
    path = "/apis/apps/v1/namespaces/default/replicasets/rs"
    patch(store, path, {"metadata": {"labels": {"a": "b"}}})
    patch(store, f"{path}/status", {"status": {"replicas": 1}})
    assert store.request("GET", path).body["metadata"]["generation"] == 1
    assert patch(store, path, {"spec": {"replicas": 2}}).body["metadata"]["generation"] == 2


def test_only_the_server_sets_system_fields(store: KubernetesStore) -> None:
    (made,) = store.load(node_object())
    patch(store, NODE, {"metadata": {"generation": 7, "creationTimestamp": "2001-01-01T00:00:00Z"}})
    assert store.request("GET", NODE).body == made


# Custom kinds


def definition(schema: Json, **version: Any) -> Json:
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "shortNames": ["th"]}
    versions = [
        {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.org"},
        "spec": {"group": "example.org", "scope": "Cluster", "names": names, "versions": versions},
    }


THINGS = "/apis/example.org/v1/things"
OBJECT = {"type": "object"}


def thing(**fields: Any) -> Json:
    return {"apiVersion": "example.org/v1", "kind": "Thing", "metadata": {"name": "t"}, **fields}


def test_a_custom_kind_is_served_from_its_definition_on(store: KubernetesStore) -> None:
    answer = store.request("GET", THINGS)
    assert (answer.status, answer.body["message"]) == (
        404,
        "the server could not find the requested resource",
    )
    store.install_crd(definition(OBJECT))
    assert store.request("GET", THINGS).status == 200
    listed = store.request("GET", "/apis/example.org/v1").body["resources"]
    assert listed[0]["shortNames"] == ["th"]
    store.request("POST", THINGS, body=thing())
    store.request("DELETE", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.org")
    assert store.request("GET", THINGS).status == 404
    store.install_crd(definition(OBJECT))
    assert store.request("GET", THINGS).body["items"] == []


def test_a_new_definition_holds_for_what_is_written_from_then_on(store: KubernetesStore) -> None:
    store.install_crd(definition({**OBJECT, "properties": {"spec": {"type": "object"}}}))
    store.request("POST", THINGS, body=thing(spec={"a": 1}))
    assert store.request("GET", f"{THINGS}/t").body["spec"] == {}
    wider = {"type": "object", "properties": {"a": {"type": "integer"}}}
    store.install_crd(definition({**OBJECT, "properties": {"spec": wider}}))
    assert patch(store, f"{THINGS}/t", {"spec": {"a": 1}}).body["spec"] == {"a": 1}


def test_a_definition_that_is_none_is_refused(store: KubernetesStore) -> None:
    with pytest.raises(AssertionError, match="lacks"):
        store.install_crd({**definition(OBJECT), "spec": {}})
    with pytest.raises(AssertionError, match=r"metadata\.name"):
        store.install_crd({**definition(OBJECT), "metadata": {"name": "other.example.org"}})


def test_node_claims_have_a_status_subresource(store: KubernetesStore) -> None:
    store.install_crd(node_claim_crd())
    claim = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "c"}}
    store.load({**claim, "spec": {"any": 1}, "status": {"nodeName": "n1"}})
    path = "/apis/karpenter.sh/v1/nodeclaims/c"
    patch(store, path, {"status": {"nodeName": "n2"}})
    patch(store, f"{path}/status", {"spec": {"any": 2}, "metadata": {"labels": {"a": "b"}}})
    held = store.request("GET", path).body
    assert (held["spec"], held["status"]) == ({"any": 1}, {"nodeName": "n1"})
    assert "labels" not in held["metadata"]


def test_what_a_custom_object_must_say(store: KubernetesStore) -> None:
    store.install_crd(definition(OBJECT))
    for body, status in (
        ({"metadata": {"name": "t"}}, 400),
        ({**thing(), "kind": "Other"}, 422),
        ({**thing(), "apiVersion": "example.org/v2"}, 400),
    ):
        assert store.request("POST", THINGS, body=body).status == status
    strict = store.request("POST", THINGS, body=thing(extra=1), query={"fieldValidation": "Strict"})
    assert 'unknown field "extra"' in strict.body["message"]


FIELD_CASES: list[tuple[Json, Any, str]] = [
    ({"type": "integer"}, 1, ""),
    ({"type": "integer"}, 2.0, ""),
    ({"type": "integer"}, 1.5, "FieldValueTypeInvalid"),
    ({"type": "integer"}, True, "FieldValueTypeInvalid"),
    ({"type": "number"}, 1, ""),
    ({"type": "boolean"}, "true", "FieldValueTypeInvalid"),
    ({"type": "integer", "minimum": 1}, 0, "FieldValueInvalid"),
    ({"type": "integer", "maximum": 1}, 2, "FieldValueInvalid"),
    ({"type": "string", "enum": ["a", "b"]}, "c", "FieldValueNotSupported"),
    ({"type": "string", "pattern": "^a"}, "b", "FieldValueInvalid"),
    ({"type": "string", "maxLength": 1}, "ab", "FieldValueTooLong"),
    ({"type": "string", "minLength": 1}, "", "FieldValueInvalid"),
    ({"type": "array", "maxItems": 1}, [1, 2], "FieldValueTooMany"),
    ({"type": "string", "format": "date-time"}, "2026-03-01T12:00:00.5Z", ""),
    ({"type": "string", "format": "date-time"}, "yesterday", "FieldValueTypeInvalid"),
    ({"type": "string", "nullable": True}, None, ""),
    ({"x-kubernetes-int-or-string": True}, "50%", ""),
    ({"x-kubernetes-int-or-string": True}, [], "FieldValueTypeInvalid"),
    ({"type": "object", "additionalProperties": {"type": "string"}}, {"a": 1}, "FieldValueTypeInvalid"),
    ({"type": "object", "required": ["a"]}, {}, "FieldValueRequired"),
    ({"type": "array", "items": {"type": "string"}}, ["a", 1], "FieldValueTypeInvalid"),
]


@pytest.mark.parametrize(("schema", "value", "reason"), FIELD_CASES)
def test_schemas(schema: Json, value: Any, reason: str) -> None:
    root = {"type": "object", "properties": {"spec": schema}}
    settled, _ = kubeschema.settle(root, {"spec": value})
    assert [cause.reason for cause in kubeschema.violations(root, settled)] == ([reason] if reason else [])


def test_defaults_and_nulls_of_a_schema() -> None:
    fields = {
        "size": {"type": "integer", "default": 3},
        "note": {"type": "string", "nullable": True},
        "plain": {"type": "string"},
        "any": {"x-kubernetes-preserve-unknown-fields": True},
    }
    root = {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}
    spec = {"size": None, "note": None, "plain": None, "any": {"x": 1}, "stray": 1}
    settled, pruned = kubeschema.settle(root, {"spec": spec})
    assert settled == {"spec": {"note": None, "any": {"x": 1}, "size": 3}}
    assert pruned == ["spec.stray"]


# Patches and selectors


@pytest.mark.parametrize(
    ("operations", "after"),
    [
        ([{"op": "add", "path": "/list/1", "value": 9}], {"list": [1, 9, 2], "a/b": {"x": 1}}),
        ([{"op": "add", "path": "/list/-", "value": 9}], {"list": [1, 2, 9], "a/b": {"x": 1}}),
        ([{"op": "replace", "path": "/list/0", "value": 9}], {"list": [9, 2], "a/b": {"x": 1}}),
        ([{"op": "remove", "path": "/list/0"}], {"list": [2], "a/b": {"x": 1}}),
        ([{"op": "replace", "path": "/a~1b/x", "value": 2}], {"list": [1, 2], "a/b": {"x": 2}}),
        ([{"op": "move", "from": "/a~1b/x", "path": "/y"}], {"list": [1, 2], "a/b": {}, "y": 1}),
        ([{"op": "copy", "from": "/a~1b", "path": "/y"}], {"list": [1, 2], "a/b": {"x": 1}, "y": {"x": 1}}),
        ([{"op": "test", "path": "/list", "value": [1, 2]}], {"list": [1, 2], "a/b": {"x": 1}}),
        ([{"op": "replace", "path": "", "value": {}}], {}),
    ],
)
def test_json_patches(operations: Any, after: Json) -> None:
    before = {"list": [1, 2], "a/b": {"x": 1}}
    assert kubepatch.json_patch(before, operations) == after
    assert before == {"list": [1, 2], "a/b": {"x": 1}}


@pytest.mark.parametrize(
    ("operations", "status"),
    [
        ({}, 400),
        (["x"], 400),
        ([{"op": "remove", "path": "/none"}], 422),
        ([{"op": "replace", "path": "/none", "value": 1}], 422),
        ([{"op": "add", "path": "/none/deep", "value": 1}], 422),
        ([{"op": "add", "path": "/list/9", "value": 1}], 422),
        ([{"op": "add", "path": "/a/x/y", "value": 1}], 422),
        ([{"op": "test", "path": "/list", "value": []}], 422),
        ([{"op": "dance", "path": "/list"}], 422),
        ([{"op": "add", "path": "rubbish", "value": 1}], 422),
    ],
)
def test_json_patches_that_do_not_apply(operations: Any, status: int) -> None:
    with pytest.raises(kubepatch.PatchError) as refusal:
        kubepatch.json_patch({"list": [1], "a": {"x": 1}}, operations)
    assert refusal.value.status == status


def test_strategic_patches() -> None:
    before = {
        "conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}],
        "finalizers": ["a"],
        "labels": {"x": "1", "y": "1"},
        "taints": [{"key": "a"}],
    }
    change = {
        "conditions": [{"type": "A", "status": "False"}, {"$patch": "delete", "type": "B"}, {"type": "C"}],
        "finalizers": ["b"],
        "labels": {"$patch": "replace", "z": "1"},
        "$setElementOrder/conditions": [],
        "taints": None,
    }
    assert kubepatch.strategic_merge(before, change) == {
        "conditions": [{"type": "A", "status": "False"}, {"type": "C"}],
        "finalizers": ["a", "b"],
        "labels": {"z": "1"},
    }
    assert (
        kubepatch.strategic_merge(before, {"$deleteFromPrimitiveList/finalizers": ["a"]})["finalizers"] == []
    )
    with pytest.raises(kubepatch.PatchError):
        kubepatch.strategic_merge(before, {"conditions": [{"status": "True"}]})


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("", True),
        ("a=1", True),
        ("a==1,b", True),
        ("a!=1", False),
        ("c!=1", True),
        ("a in (1, 2)", True),
        ("a notin (1)", False),
        ("c notin (1)", True),
        ("!c", True),
        ("!a", False),
        ("c", False),
        ("c=", False),
        ("example.org/x=y", True),
    ],
)
def test_label_selectors(selector: str, matches: bool) -> None:
    labels = {"a": "1", "b": "", "example.org/x": "y"}
    assert kubeselect.label_selector(selector)(labels) is matches


@pytest.mark.parametrize("selector", ["a in b", "a=b=c", "a b", "(a)", "a in (b", "=a"])
def test_label_selectors_that_cannot_be_read(selector: str) -> None:
    with pytest.raises(kubeselect.SelectorError):
        kubeselect.label_selector(selector)


def test_selector_objects() -> None:
    def matches(operator: str, *values: str) -> bool:
        each = {"key": "a", "operator": operator, "values": list(values)}
        return kubeselect.object_selector({"matchExpressions": [each]})({"a": "1"})

    assert matches("In", "1")
    assert not matches("NotIn", "1")
    assert matches("Exists")
    assert not matches("DoesNotExist")
    assert kubeselect.object_selector({})({})
    assert not kubeselect.object_selector(None)({})
    with pytest.raises(kubeselect.SelectorError):
        matches("Near")


def test_field_selectors_know_what_absent_means(store: KubernetesStore) -> None:
    store.load(node_object("n1", spec={"unschedulable": True}), node_object("n2"))
    query = {"fieldSelector": "spec.unschedulable=false"}
    listed = store.request("GET", "/api/v1/nodes", query=query).body["items"]
    assert [each["metadata"]["name"] for each in listed] == ["n2"]


# Paths, discovery, counting


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/api/v2/nodes",
        "/apis/apps",
        "/apis/apps/v9/deployments",
        "/api/v1/nodes/n1/nothing",
        "/api/v1/nodes/n1/status/more",
        "/api/v1/namespaces/default/nodes",
        "/api/v1/pods/p",
        "/api/v1/nodes/n1/eviction",
        "/api/v1//nodes",
        "/%00",
    ],
)
def test_paths_that_are_not_served(store: KubernetesStore, path: str) -> None:
    answer = store.request("PUT", path, body={})
    assert (answer.status, answer.body["kind"]) == (404, "Status")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", NODE),
        ("PUT", "/api/v1/nodes"),
        ("PATCH", "/api/v1/nodes"),
        ("BREW", NODE),
        ("POST", "/api/v1/pods"),
    ],
)
def test_verbs_that_are_not_served(store: KubernetesStore, method: str, path: str) -> None:
    store.load(node_object())
    assert store.request(method, path, body={}).status == 405


def test_discovery(store: KubernetesStore) -> None:
    assert store.request("GET", "/version").body["major"] == "1"
    assert store.request("GET", "/api").body["versions"] == ["v1"]
    groups = {each["name"] for each in store.request("GET", "/apis").body["groups"]}
    assert {"apps", "policy", "coordination.k8s.io", "authorization.k8s.io"} <= groups
    assert store.request("GET", "/apis/policy").body["preferredVersion"]["groupVersion"] == "policy/v1"
    core = {each["name"]: each for each in store.request("GET", "/api/v1").body["resources"]}
    assert core["pods/eviction"]["kind"] == "Eviction"
    assert core["nodes"]["shortNames"] == ["no"]


def test_access_reviews_say_yes(store: KubernetesStore) -> None:
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert store.request("POST", path, body={"spec": {}}).body["status"] == {"allowed": True}


def test_requests_are_counted_as_rbac_names_them(store: KubernetesStore) -> None:
    store.load(node_object())
    store.requests.clear()
    store.request("GET", NODE)
    store.request("GET", "/api/v1/nodes")
    store.watch("/api/v1/nodes")
    patch(store, f"{NODE}/status", {})
    store.request("DELETE", "/api/v1/nodes/none")
    assert dict(store.requests) == {
        ("get", "nodes"): 1,
        ("list", "nodes"): 1,
        ("watch", "nodes"): 1,
        ("patch", "nodes/status"): 1,
        ("delete", "nodes"): 1,
    }


def test_the_history_says_who_wrote_what(store: KubernetesStore, clock: Clock) -> None:
    store.load(node_object())
    agent = store.client("agent-a")
    clock.pass_(seconds=1)
    agent.request("PATCH", NODE, body={"spec": {"unschedulable": True}}, content_type=MERGE)
    agent.request("PATCH", NODE, body={"spec": {"unschedulable": True}}, content_type=MERGE)
    agent.watch("/api/v1/nodes").close()
    last = store.history[-1]
    assert (last.verb, last.path, last.actor) == ("patch", NODE, "agent-a")
    assert last.time == clock.now()
    assert last.object["spec"] == {"unschedulable": True}
    assert [each.resource_version for each in store.history] == sorted(
        each.resource_version for each in store.history
    )
    assert len([each for each in store.history if each.actor == "agent-a"]) == 1


def test_two_stores_are_alike() -> None:
    made = [KubernetesStore().load(node_object())[0]["metadata"]["uid"] for _ in range(2)]
    assert made[0] == made[1]
    assert KubernetesStore(seed=1).load(node_object())[0]["metadata"]["uid"] != made[0]


def test_loading_something_wrong_fails_loudly(store: KubernetesStore) -> None:
    with pytest.raises(AssertionError, match="not served"):
        store.load({"apiVersion": "v9", "kind": "Node", "metadata": {"name": "a"}})
    with pytest.raises(AssertionError, match="invalid"):
        store.load(node_object("Wrong Name"))


# Faults


@pytest.fixture
def faulty(store: KubernetesStore) -> Iterator[FaultyApi]:
    store.load(node_object())
    api = FaultyApi(store)
    yield api
    assert api.pending == 0


def cordon(api: FaultyApi) -> Response:
    return api.request("PATCH", NODE, body={"spec": {"unschedulable": True}}, content_type=MERGE)


def cordoned(api: FaultyApi) -> bool:
    return bool(api.request("GET", NODE).body["spec"].get("unschedulable"))


def test_a_lost_request_changes_nothing(faulty: FaultyApi) -> None:
    faulty.fail_next(lambda asked: asked.method == "PATCH", lost_request)
    with pytest.raises(NoAnswerError):
        cordon(faulty)
    assert not cordoned(faulty)
    assert cordon(faulty).ok


def test_a_lost_answer_changes_all_the_same(faulty: FaultyApi) -> None:
    faulty.fail_next(lambda asked: asked.path == NODE and asked.method == "PATCH", lost_answer)
    with pytest.raises(NoAnswerError):
        cordon(faulty)
    assert cordoned(faulty)


def test_refusals_come_as_often_as_asked(faulty: FaultyApi) -> None:
    faulty.fail_next(lambda asked: asked.method == "PATCH", throttled(3), times=2)
    faulty.fail_next(lambda asked: asked.method == "PATCH", server_error())
    faulty.fail_next(lambda asked: asked.method == "PATCH", refused(403, "Forbidden", "no"))
    answers = [cordon(faulty) for _ in range(5)]
    assert [answer.status for answer in answers] == [429, 429, 500, 403, 200]
    assert answers[0].headers["Retry-After"] == "3"
    assert answers[0].body["details"]["retryAfterSeconds"] == 3


def test_watches_can_fail_to_open(faulty: FaultyApi) -> None:
    faulty.fail_next(lambda asked: asked.method == "WATCH", server_error())
    with pytest.raises(ApiError) as refusal:
        faulty.watch("/api/v1/nodes")
    assert refusal.value.status == 500
    assert faulty.watch("/api/v1/nodes").poll()


def test_healing_drops_what_has_not_struck(faulty: FaultyApi) -> None:
    faulty.fail_next(lambda asked: True, server_error(), times=9)
    faulty.heal()
    assert cordon(faulty).ok
