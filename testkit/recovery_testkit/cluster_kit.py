"""What a Kubernetes API must do for us, as tests: the contract that the in-memory API and a real one both
keep.

    class TestStore(ClusterKit):
        @pytest.fixture
        def api(self) -> Iterator[ClusterApi]:
            yield ...

An API here is anything with `request` and `watch`. The kit makes a namespace and objects with unique names,
gives its pods their status itself (there is no kubelet), and takes everything away again. What controllers
do, it waits for: `eventually` asks again after `pause()`, which does nothing by default; for a real server
let it sleep a little. A real server needs the disruption controller, and no ServiceAccount admission (or the
controllers that serve it).

`failures(api)` runs the kit without pytest: that is how a test shows that the kit can fail.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from email.utils import parsedate_to_datetime
from typing import Any

import pytest

from recovery_testkit.cluster_bench import NODES, Cluster, ClusterApi, reason_of, version_of
from recovery_testkit.kubepatch import JSON_PATCH, MERGE, STRATEGIC
from recovery_testkit.kubestatus import Json

__all__ = ["Cluster", "ClusterApi", "ClusterKit", "failures"]


class ClusterKit:
    """The contract. A subclass gives the fixture `api`; for a real server it also overrides `pause`."""

    def pause(self) -> None:
        """What to do between two looks at something that a controller does. A real server: sleep 50 ms."""

    @pytest.fixture
    def cluster(self, api: ClusterApi) -> Iterator[Cluster]:
        """A corner of the API under test."""
        with Cluster(api, self.pause) as mine:
            yield mine

    # Writing: nobody's write is lost, and nobody writes about something else than he read

    def test_a_created_object_gets_its_identity_from_the_server(self, cluster: Cluster) -> None:
        made = cluster.config_map("one", uid="mine")
        meta = made["metadata"]
        assert meta["uid"] not in ("", "mine")
        assert int(meta["resourceVersion"]) > 0
        assert meta["creationTimestamp"].endswith("Z")
        assert cluster.get(f"{cluster.config_maps}/one")["metadata"]["uid"] == meta["uid"]

    def test_a_name_exists_once(self, cluster: Cluster) -> None:
        cluster.config_map("one")
        body = {"metadata": {"name": "one"}}
        assert reason_of(cluster.ask("POST", cluster.config_maps, body)) == (409, "AlreadyExists")

    def test_generated_names_differ(self, cluster: Cluster) -> None:
        made = [cluster.create(cluster.config_maps, {"metadata": {"generateName": "any-"}}) for _ in range(3)]
        names = {each["metadata"]["name"] for each in made}
        assert len(names) == 3
        assert all(name.startswith("any-") for name in names)

    def test_versions_grow_over_all_objects(self, cluster: Cluster) -> None:
        one, two = cluster.config_map("one"), cluster.config_map("two")
        again = cluster.patch(f"{cluster.config_maps}/one", {"data": {"a": "2"}})
        assert int(version_of(one)) < int(version_of(two)) < int(version_of(again))

    def test_a_write_that_changes_nothing_keeps_the_version(self, cluster: Cluster) -> None:
        one = cluster.config_map("one")
        same = cluster.ask("PUT", f"{cluster.config_maps}/one", one)
        assert (same.status, version_of(dict(same.body))) == (200, version_of(one))
        assert version_of(cluster.patch(f"{cluster.config_maps}/one", {"data": {"a": "1"}})) == version_of(
            one
        )

    def test_a_put_with_a_stale_version_conflicts(self, cluster: Cluster) -> None:
        old = cluster.config_map("one")
        cluster.patch(f"{cluster.config_maps}/one", {"data": {"a": "2"}})
        late = cluster.ask("PUT", f"{cluster.config_maps}/one", {**old, "data": {"a": "3"}})
        assert reason_of(late) == (409, "Conflict")
        assert cluster.get(f"{cluster.config_maps}/one")["data"] == {"a": "2"}

    def test_a_patch_with_a_stale_version_conflicts(self, cluster: Cluster) -> None:
        old = cluster.node()
        path = f"{NODES}/{old['metadata']['name']}"
        cluster.patch(path, {"metadata": {"annotations": {"a": "1"}}})
        late = {"metadata": {"resourceVersion": version_of(old)}, "spec": {"unschedulable": True}}
        assert reason_of(cluster.ask("PATCH", path, late, MERGE)) == (409, "Conflict")
        assert "unschedulable" not in cluster.get(path)["spec"]

    def test_a_put_without_a_version_is_for_some_core_kinds_only(self, cluster: Cluster) -> None:
        cluster.config_map("one")
        blind = cluster.ask("PUT", f"{cluster.config_maps}/one", {"metadata": {"name": "one"}})
        assert blind.status == 200
        cluster.create(cluster.leases, {"metadata": {"name": "one"}})
        blind = cluster.ask("PUT", f"{cluster.leases}/one", {"metadata": {"name": "one"}})
        assert reason_of(blind) == (422, "Invalid")
        assert "metadata.resourceVersion" in blind.body["message"]

    def test_a_write_about_another_incarnation_is_refused(self, cluster: Cluster) -> None:
        node = cluster.node()
        name, other = node["metadata"]["name"], {"uid": "00000000-0000-4000-8000-000000000000"}
        put = cluster.ask("PUT", f"{NODES}/{name}", {"metadata": {"name": name, **other}})
        assert reason_of(put) == (409, "Conflict")
        patch = cluster.ask("PATCH", f"{NODES}/{name}", {"metadata": other}, MERGE)
        assert reason_of(patch) == (422, "Invalid")
        assert "metadata.uid" in patch.body["message"]

    def test_a_body_about_another_name_or_namespace_is_refused(self, cluster: Cluster) -> None:
        cluster.config_map("one")
        path = f"{cluster.config_maps}/one"
        assert cluster.ask("PUT", path, {"metadata": {"name": "two"}}).status == 400
        assert cluster.ask("PATCH", path, {"metadata": {"name": "two"}}, MERGE).status == 400
        elsewhere = {"metadata": {"name": "one", "namespace": "default"}}
        assert cluster.ask("PUT", path, elsewhere).status == 400

    def test_what_is_not_there_is_404(self, cluster: Cluster) -> None:
        path = f"{cluster.config_maps}/none"
        for method, body, kind in (("GET", None, None), ("DELETE", None, None), ("PATCH", {}, MERGE)):
            assert reason_of(cluster.ask(method, path, body, kind)) == (404, "NotFound"), method
        assert reason_of(cluster.ask("PUT", path, {"metadata": {"name": "none"}})) == (404, "NotFound")

    def test_a_lease_that_is_gone_comes_back_by_put_unless_a_uid_is_named(self, cluster: Cluster) -> None:
        lease = cluster.create(cluster.leases, {"metadata": {"name": "one"}})
        path = f"{cluster.leases}/one"
        cluster.ask("DELETE", path)
        assert reason_of(cluster.ask("PUT", path, lease)) == (409, "Conflict")
        nameless = {**lease, "metadata": {"name": "one", "resourceVersion": version_of(lease)}}
        assert cluster.ask("PUT", path, nameless).status == 201

    def test_of_two_writers_from_one_version_exactly_one_wins(self, cluster: Cluster) -> None:
        for attempt in range(5):
            old = cluster.config_map(f"race-{attempt}")
            path, start = f"{cluster.config_maps}/race-{attempt}", threading.Barrier(4)
            answers: list[int] = []

            def write(
                who: int, old: Json = old, path: str = path, start: Any = start, to: Any = answers
            ) -> None:
                start.wait()
                to.append(cluster.ask("PUT", path, {**old, "data": {"who": str(who)}}).status)

            writers = [threading.Thread(target=write, args=(who,)) for who in range(4)]
            for writer in writers:
                writer.start()
            for writer in writers:
                writer.join()
            assert sorted(answers) == [200, 409, 409, 409]

    # Patches

    def test_a_merge_patch_merges_maps_deletes_by_null_and_replaces_lists(self, cluster: Cluster) -> None:
        node = cluster.node(annotations={"keep": "1", "drop": "1"})
        path = f"{NODES}/{node['metadata']['name']}"
        taints = [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoSchedule"}]
        cluster.patch(path, {"spec": {"taints": taints}})
        change = {"metadata": {"annotations": {"drop": None, "new": "1"}}, "spec": {"taints": taints[1:]}}
        after = cluster.patch(path, change)
        assert after["metadata"]["annotations"] == {"keep": "1", "new": "1"}
        assert after["metadata"]["labels"] == {"kit": cluster.tag}
        assert after["spec"]["taints"] == taints[1:]

    def test_a_json_patch_is_applied_whole_or_not_at_all(self, cluster: Cluster) -> None:
        cluster.config_map("one")
        path = f"{cluster.config_maps}/one"
        change = [
            {"op": "replace", "path": "/data/a", "value": "2"},
            {"op": "add", "path": "/data/b", "value": "1"},
        ]
        wrong = [*change, {"op": "test", "path": "/data/a", "value": "7"}]
        assert reason_of(cluster.ask("PATCH", path, wrong, JSON_PATCH)) == (422, "Invalid")
        assert cluster.get(path)["data"] == {"a": "1"}
        right = [{"op": "test", "path": "/data/a", "value": "1"}, *change]
        assert cluster.patch(path, right, JSON_PATCH)["data"] == {"a": "2", "b": "1"}

    def test_a_strategic_patch_merges_conditions_and_replaces_taints(self, cluster: Cluster) -> None:
        path = f"{NODES}/{cluster.node()['metadata']['name']}"
        for kind in ("One", "Two"):
            condition = {"type": kind, "status": "True"}
            cluster.patch(f"{path}/status", {"status": {"conditions": [condition]}}, STRATEGIC)
            cluster.patch(path, {"spec": {"taints": [{"key": kind, "effect": "NoSchedule"}]}}, STRATEGIC)
        node = cluster.get(path)
        assert {each["type"] for each in node["status"]["conditions"]} == {"One", "Two"}
        assert [each["key"] for each in node["spec"]["taints"]] == ["Two"]

    def test_an_unknown_kind_of_patch_is_415(self, cluster: Cluster) -> None:
        cluster.config_map("one")
        assert cluster.ask("PATCH", f"{cluster.config_maps}/one", {}, "application/json").status == 415

    # The status subresource

    def test_the_main_path_leaves_the_status_alone_and_the_other_way_round(self, cluster: Cluster) -> None:
        path = f"{NODES}/{cluster.node()['metadata']['name']}"
        conditions = [{"type": "Ready", "status": "True"}]
        cluster.patch(path, {"spec": {"unschedulable": True}, "status": {"conditions": conditions}})
        assert not (cluster.get(path).get("status") or {}).get("conditions")
        cluster.patch(
            f"{path}/status", {"spec": {"unschedulable": None}, "status": {"conditions": conditions}}
        )
        node = cluster.get(path)
        assert node["status"]["conditions"][0]["status"] == "True"
        assert node["spec"]["unschedulable"] is True

    # Reading

    def test_answers_carry_the_servers_time(self, cluster: Cluster) -> None:
        made = cluster.config_map("one")["metadata"]["creationTimestamp"]
        answer = cluster.ask("GET", f"{cluster.config_maps}/one")
        date = {name.lower(): value for name, value in answer.headers.items()}["date"]
        assert date.endswith(" GMT")
        assert parsedate_to_datetime(date).strftime("%Y-%m-%dT%H:%M:%SZ") >= made

    def test_a_token_is_known_where_it_was_made_for_and_nowhere_else(self, cluster: Cluster) -> None:
        account = f"/api/v1/namespaces/{cluster.namespace}/serviceaccounts/default"
        wanted = {"spec": {"audiences": ["for-the-kit"], "expirationSeconds": 600}}
        cluster.eventually(lambda: cluster.ask("POST", f"{account}/token", wanted).status == 201)
        token = cluster.ask("POST", f"{account}/token", wanted).body["status"]["token"]

        def review(token: str, *audiences: str) -> Json:
            spec = {"token": token, "audiences": list(audiences)}
            answer = cluster.ask("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": spec})
            assert answer.status == 201
            return dict(answer.body["status"])

        known = review(token, "for-the-kit", "for-another")
        assert (known["authenticated"], known["audiences"]) == (True, ["for-the-kit"])
        assert known["user"]["username"] == f"system:serviceaccount:{cluster.namespace}:default"
        for other in (review(token), review(token, "for-another"), review("no.token.this", "for-the-kit")):
            assert not other.get("authenticated")

    def test_a_token_that_is_bound_to_a_node_names_it(self, cluster: Cluster) -> None:
        account = f"/api/v1/namespaces/{cluster.namespace}/serviceaccounts/default"

        def token(node: str) -> Any:
            bound = {"apiVersion": "v1", "kind": "Node", "name": node}
            spec = {"boundObjectRef": bound, "expirationSeconds": 6 * 3600}
            return cluster.ask("POST", f"{account}/token", {"spec": spec})

        node = cluster.node()["metadata"]["name"]
        cluster.eventually(lambda: token(node).status == 201)
        made = token(node).body
        assert made["spec"]["expirationSeconds"] == 6 * 3600
        review = {"spec": {"token": made["status"]["token"]}}
        answer = cluster.ask("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)
        assert answer.body["status"]["user"]["extra"]["authentication.kubernetes.io/node-name"] == [node]
        assert reason_of(token("no-such-node")) == (404, "NotFound")

    def test_lists_are_cut_by_labels_and_fields(self, cluster: Cluster) -> None:
        cluster.config_map("one", labels={"pool": "a", "gpu": "yes"})
        cluster.config_map("two", labels={"pool": "b"})
        cluster.config_map("three")

        def names(**query: str) -> set[str]:
            answer = cluster.ask("GET", cluster.config_maps, **query)
            listed = {each["metadata"]["name"] for each in answer.body["items"]}
            return listed - {"kube-root-ca.crt"}

        assert names(labelSelector="pool=a") == {"one"}
        assert names(labelSelector="pool in (a, b),!gpu") == {"two"}
        assert names(labelSelector="pool!=a") == names(labelSelector="pool notin (a)") == {"two", "three"}
        assert names(labelSelector="gpu") == {"one"}
        assert names(fieldSelector="metadata.name=two") == {"two"}
        assert names(fieldSelector="metadata.name!=two,metadata.name!=one") == {"three"}
        unknown = cluster.ask("GET", cluster.config_maps, fieldSelector="data.a=1")
        assert reason_of(unknown) == (400, "BadRequest")

    def test_pods_are_found_by_their_node(self, cluster: Cluster) -> None:
        cluster.pod("one", on="here")
        cluster.pod("two", on="there")
        for path in (cluster.pods, "/api/v1/pods"):
            query = {"fieldSelector": f"spec.nodeName=here,metadata.namespace={cluster.namespace}"}
            found = cluster.ask("GET", path, **query).body["items"]
            assert [each["metadata"]["name"] for each in found] == ["one"]

    def test_events_are_found_by_their_node_and_by_who_told_them(self, cluster: Cluster) -> None:
        older = {"source": {"component": "a-repairer"}}
        newer = {
            "reportingComponent": "a-repairer",
            "reportingInstance": "one",
            "action": "Rebooting",
            "eventTime": "2026-11-21T10:00:00.000000Z",
        }
        for name, on, told in (
            ("e1", "here", older),
            ("e2", "here", newer),
            ("e3", "there", older),
            ("e4", "here", {}),
        ):
            body = {
                "metadata": {"name": name},
                "involvedObject": {"kind": "Node", "name": on},
                "reason": "NodeRebootStart",
                "type": "Normal",
                **told,
            }
            made = cluster.ask("POST", "/api/v1/namespaces/default/events", body=body)
            assert made.status == 201, made.body
        wanted = "involvedObject.kind=Node,involvedObject.name=here,source=a-repairer"
        found = cluster.ask("GET", "/api/v1/namespaces/default/events", fieldSelector=wanted).body["items"]
        assert [each["metadata"]["name"] for each in found] == ["e1", "e2"]

    def test_a_list_comes_in_pages_that_are_one_state(self, cluster: Cluster) -> None:
        for index in range(5):
            cluster.config_map(f"c{index}", labels={"page": "yes"})
        query = {"limit": "2", "labelSelector": "page=yes"}
        first = cluster.ask("GET", cluster.config_maps, **query).body
        cluster.ask("DELETE", f"{cluster.config_maps}/c4")
        names = [each["metadata"]["name"] for each in first["items"]]
        assert names == ["c0", "c1"]
        token, pages = first["metadata"]["continue"], 1
        while token:
            page = cluster.ask("GET", cluster.config_maps, **query, **{"continue": token}).body
            assert version_of(page) == version_of(first)
            names += [each["metadata"]["name"] for each in page["items"]]
            token, pages = page["metadata"].get("continue"), pages + 1
        assert (names, pages) == (["c0", "c1", "c2", "c3", "c4"], 3)

    def test_a_list_at_any_version_is_not_paged(self, cluster: Cluster) -> None:
        for index in range(3):
            cluster.config_map(f"c{index}", labels={"page": "yes"})
        query = {"limit": "1", "resourceVersion": "0", "labelSelector": "page=yes"}
        cluster.eventually(lambda: len(cluster.ask("GET", cluster.config_maps, **query).body["items"]) == 3)

    # Watches

    def test_a_watch_goes_on_from_a_list(self, cluster: Cluster) -> None:
        listed = cluster.ask("GET", cluster.config_maps, labelSelector="w=1").body
        cluster.config_map("one", labels={"w": "1"})
        cluster.config_map("other")
        cluster.patch(f"{cluster.config_maps}/one", {"data": {"a": "2"}})
        cluster.patch(f"{cluster.config_maps}/one", {"metadata": {"labels": {"w": "2"}}})
        cluster.patch(f"{cluster.config_maps}/one", {"metadata": {"labels": {"w": "1"}}})
        cluster.ask("DELETE", f"{cluster.config_maps}/one")
        query = {"resourceVersion": version_of(listed), "labelSelector": "w=1"}
        seen = cluster.events(cluster.config_maps, 5, **query)
        assert [each["type"] for each in seen] == ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]
        versions = [int(version_of(each["object"])) for each in seen]
        assert versions == sorted(set(versions))
        assert versions[0] > int(version_of(listed))
        assert seen[1]["object"]["data"] == {"a": "2"}

    def test_a_watch_without_a_version_begins_with_what_is_there(self, cluster: Cluster) -> None:
        cluster.config_map("one")
        seen = cluster.events(cluster.config_maps, 1, fieldSelector="metadata.name=one")
        assert [(each["type"], each["object"]["metadata"]["name"]) for each in seen] == [("ADDED", "one")]

    def test_a_watch_from_too_long_ago_is_told_so(self, cluster: Cluster) -> None:
        cluster.serve_widgets()
        seen = cluster.events(cluster.widgets, 1, resourceVersion="1")
        assert [(each["type"], each["object"].get("code")) for each in seen] == [("ERROR", 410)]
        assert seen[0]["object"]["reason"] in ("Expired", "Gone")

    # Deleting

    def test_a_delete_about_another_state_or_incarnation_is_refused(self, cluster: Cluster) -> None:
        one = cluster.config_map("one")
        path = f"{cluster.config_maps}/one"
        later = cluster.patch(path, {"data": {"a": "2"}})
        for wrong in ({"uid": "00000000-0000-4000-8000-000000000000"}, {"resourceVersion": version_of(one)}):
            answer = cluster.ask("DELETE", path, {"preconditions": wrong})
            assert reason_of(answer) == (409, "Conflict"), wrong
        right = {"uid": one["metadata"]["uid"], "resourceVersion": version_of(later)}
        assert cluster.ask("DELETE", path, {"preconditions": right}).status == 200
        assert cluster.ask("GET", path).status == 404

    def test_a_pod_is_given_its_grace_period(self, cluster: Cluster) -> None:
        cluster.pod("one")
        path = f"{cluster.pods}/one"
        answer = cluster.ask("DELETE", path)
        assert answer.status == 200
        assert answer.body["metadata"]["deletionGracePeriodSeconds"] == 30
        assert (
            cluster.get(path)["metadata"]["deletionTimestamp"] >= answer.body["metadata"]["creationTimestamp"]
        )
        assert cluster.ask("DELETE", path, {"gracePeriodSeconds": 0}).status == 200
        assert cluster.ask("GET", path).status == 404

    def test_a_finalizer_holds_an_object(self, cluster: Cluster) -> None:
        cluster.config_map("one", finalizers=["kit.noderecovery.dev/hold"])
        path = f"{cluster.config_maps}/one"
        assert cluster.ask("DELETE", path).status == 200
        assert cluster.get(path)["metadata"]["deletionTimestamp"]
        cluster.ask("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)
        assert cluster.ask("GET", path).status == 404

    # Evictions

    def test_an_eviction_without_a_budget_is_a_graceful_delete(self, cluster: Cluster) -> None:
        cluster.pod("one")
        answer = cluster.evict("one")
        assert (answer.status, answer.body["kind"]) == (201, "Status")
        pod = cluster.get(f"{cluster.pods}/one")
        assert pod["metadata"]["deletionGracePeriodSeconds"] == 30
        assert "DisruptionTarget" in {each["type"] for each in pod["status"]["conditions"]}
        assert reason_of(cluster.evict("none")) == (404, "NotFound")

    def test_a_budget_is_weighed_at_each_eviction(self, cluster: Cluster) -> None:
        cluster.pod("one")
        cluster.pod("two")
        cluster.budget(minAvailable=1)
        cluster.eventually(lambda: cluster.budget_status()["disruptionsAllowed"] == 1)
        assert cluster.evict("one").status == 201
        refused = cluster.evict("two")
        assert reason_of(refused) == (429, "TooManyRequests")
        cause = refused.body["details"]["causes"][0]
        assert cause["reason"] == "DisruptionBudget"
        assert "budget" in cause["message"]
        assert "deletionTimestamp" not in cluster.get(f"{cluster.pods}/two")["metadata"]

    def test_a_ready_replacement_makes_room_for_the_next_eviction(self, cluster: Cluster) -> None:
        cluster.pod("one")
        cluster.budget(minAvailable=1)
        cluster.eventually(lambda: cluster.budget_status()["currentHealthy"] == 1)
        assert cluster.evict("one").status == 429
        cluster.pod("replacement", ready=False)
        assert cluster.evict("one").status == 429
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        cluster.patch(f"{cluster.pods}/replacement/status", ready, STRATEGIC)
        cluster.eventually(lambda: cluster.evict("one").status == 201)
        assert cluster.get(f"{cluster.pods}/one")["metadata"]["deletionTimestamp"]

    def test_a_percentage_counts_what_controllers_want_so_bare_pods_stay(self, cluster: Cluster) -> None:
        cluster.pod("one")
        cluster.pod("two")
        cluster.budget(minAvailable="50%")
        cluster.eventually(lambda: cluster.budget_status()["currentHealthy"] == 2)
        assert cluster.budget_status()["disruptionsAllowed"] == 0
        assert cluster.evict("one").status == 429

    def test_two_budgets_on_a_pod_are_an_error(self, cluster: Cluster) -> None:
        cluster.pod("one")
        cluster.budget(minAvailable=0)
        spec = {"minAvailable": 0, "selector": {}}
        cluster.create(cluster.budgets, {"metadata": {"name": "second"}, "spec": spec})
        assert cluster.evict("one").status == 500

    def test_an_eviction_keeps_its_preconditions(self, cluster: Cluster) -> None:
        one = cluster.pod("one")
        wrong = {"uid": "00000000-0000-4000-8000-000000000000"}
        assert reason_of(cluster.evict("one", preconditions=wrong)) == (409, "Conflict")
        assert cluster.evict("one", preconditions={"uid": one["metadata"]["uid"]}).status == 201

    # Custom kinds without a status subresource, as ours are

    def test_one_put_writes_spec_and_status_of_a_custom_kind(self, cluster: Cluster) -> None:
        cluster.serve_widgets()
        made = cluster.create(cluster.widgets, cluster.widget(spec={"size": 1}))
        path = f"{cluster.widgets}/w"
        whole = {**made, "spec": {"size": 2}, "status": {"phase": "open"}}
        answer = cluster.ask("PUT", path, whole)
        assert answer.status == 200, answer.body
        held = cluster.get(path)
        assert (held["spec"], held["status"]) == ({"size": 2}, {"phase": "open"})
        assert held["metadata"]["generation"] == made["metadata"]["generation"] + 1
        assert reason_of(cluster.ask("PUT", path, whole)) == (409, "Conflict")
        assert reason_of(cluster.ask("PUT", path, cluster.widget())) == (422, "Invalid")
        assert cluster.ask("PATCH", path, {}, STRATEGIC).status == 415
        assert cluster.ask("GET", f"{path}/status").status == 404

    def test_a_custom_kind_keeps_what_its_schema_knows_and_no_more(self, cluster: Cluster) -> None:
        cluster.serve_widgets()
        lines = [{"text": "a", "stray": 1}]
        status = {"phase": "open", "stray": 1, "free": {"stray": 1}, "lines": lines}
        cluster.create(cluster.widgets, cluster.widget(spec={"size": 1, "stray": 1}, status=status, stray=1))
        held = cluster.get(f"{cluster.widgets}/w")
        assert held["spec"] == {"size": 1}
        assert held["status"] == {"phase": "open", "free": {"stray": 1}, "lines": [{"text": "a"}]}
        assert "stray" not in held

    def test_a_custom_kind_refuses_what_its_schema_forbids(self, cluster: Cluster) -> None:
        cluster.serve_widgets()
        cases: list[tuple[Json, str]] = [
            ({"spec": {"size": "big"}}, "spec.size"),
            ({"status": {"phase": "ajar"}}, "status.phase"),
            ({"status": {}}, "status.phase"),
            ({"status": {"phase": "open", "lines": [{"text": 1}]}}, "status.lines[0].text"),
        ]
        for wrong, field in cases:
            answer = cluster.ask("POST", cluster.widgets, cluster.widget(**wrong))
            assert reason_of(answer) == (422, "Invalid"), wrong
            assert [each["field"] for each in answer.body["details"]["causes"]] == [field]


def failures(api: ClusterApi, only: Iterable[str] = (), kit: ClusterKit | None = None) -> dict[str, str]:
    """Runs the kit's tests (or `only` these) on an API, without pytest. Returns what failed: name and
    sentence."""
    subject = kit or ClusterKit()
    failed: dict[str, str] = {}
    for name in list(only) or [each for each in dir(subject) if each.startswith("test_")]:
        try:
            with Cluster(api, subject.pause, attempts=20) as cluster:
                getattr(subject, name)(cluster)
        except (AssertionError, KeyError, IndexError, TypeError) as error:
            failed[name] = f"{type(error).__name__}: {error}"
    return failed
