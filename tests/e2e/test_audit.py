"""What the judge is told of an audit log: who wrote what, in which order, and what was there before."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from audit import AuditLog, ours

ACCOUNT = "system:serviceaccount:ns:agents"
BEGAN = 1_000_000.0
BOUND = {
    "authentication.kubernetes.io/node-name": ["node-0"],
    "authentication.kubernetes.io/pod-name": ["npd-x"],
}


def line(at: float, verb: str, version: int, **more: Any) -> dict[str, Any]:
    """A Node's write by the agent of node-0, unless ``more`` says otherwise."""
    stamp = datetime.fromtimestamp(BEGAN + at, UTC).isoformat()
    obj = {"kind": "Node", "metadata": {"name": "node-0", "uid": "u", "resourceVersion": str(version)}}
    return {
        "verb": verb,
        "user": {"username": ACCOUNT, "extra": BOUND},
        "objectRef": {"resource": "nodes", "name": "node-0"},
        "requestURI": "/api/v1/nodes/node-0",
        "requestReceivedTimestamp": stamp,
        "stageTimestamp": stamp,
        "responseStatus": {"code": 200},
        "responseObject": obj if version else {"kind": "Status"},
        **more,
    }


class Written:
    """A log, and what is read from it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()
        self.log = AuditLog(path, ACCOUNT, BEGAN)

    def __call__(self, *lines: dict[str, Any]) -> Written:
        with self.path.open("a") as log:
            log.writelines(json.dumps(x) + "\n" for x in lines)
        return self

    def versions(self) -> list[str]:
        return [(w.after or {}).get("metadata", {}).get("resourceVersion", "") for w in self.log.facts()]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path / "audit.log")


def test_the_order_is_that_of_the_store_and_not_of_the_answers(written: Written) -> None:
    written(line(1, "create", 5), line(3, "patch", 8), line(2, "update", 9))
    assert written.versions() == ["5", "8", "9"]
    assert [w.at for w in written.log.facts()] == [1, 2, 2], "what was answered late was not stored late"


def test_each_write_has_the_object_as_it_was_before(written: Written) -> None:
    written(line(1, "create", 5), line(2, "patch", 8), line(3, "delete", 0))
    created, patched, deleted = written.log.facts()
    assert created.before is None
    assert patched.before == created.after
    assert (deleted.before, deleted.after) == (patched.after, None)
    assert (patched.actor, patched.kind, patched.name) == ("agent on node-0", "Node", "node-0")


def test_what_was_refused_or_changed_nothing_is_no_write(written: Written) -> None:
    conflict = line(2, "update", 5, responseStatus={"code": 409})
    written(line(1, "create", 5), conflict, line(3, "patch", 5), line(4, "get", 5))
    assert written.versions() == ["5"]


def test_a_pod_whose_eviction_was_granted_is_terminating_though_the_log_has_no_line_of_that(
    written: Written,
) -> None:
    pod: dict[str, Any] = {"kind": "Pod", "metadata": {"name": "train", "uid": "p", "resourceVersion": "1"}}
    pod["spec"] = {"terminationGracePeriodSeconds": 5}
    of = {"resource": "pods", "name": "train", "namespace": "default"}
    evicts = line(2, "create", 0, objectRef=of | {"subresource": "eviction"}, responseStatus={"code": 201})
    written(line(1, "create", 1, objectRef=of, responseObject=pod), evicts)
    _, evicted = written.log.facts()
    assert (evicted.kind, evicted.verb, evicted.before) == ("Pod", "evict", pod)
    assert evicted.after is not None
    assert evicted.after["metadata"]["deletionTimestamp"] == "1970-01-12T13:46:47Z"


def test_an_eviction_counts_also_when_a_budget_refuses_it(written: Written) -> None:
    of = {"resource": "pods", "subresource": "eviction", "name": "train", "namespace": "default"}
    written(
        line(1, "create", 0, objectRef=of, responseStatus={"code": 429}),
        line(2, "create", 0, objectRef=of, responseStatus={"code": 201}),
    )
    assert [(w.kind, w.name, w.status) for w in written.log.facts()] == [
        ("Eviction", "train", 429),
        ("Eviction", "train", 201),
    ]


def test_a_restored_store_is_written_by_etcd_and_its_versions_begin_again(written: Written) -> None:
    written(line(1, "create", 5), line(2, "patch", 8))
    then = {("Node", "", "node-0"): line(1, "create", 5)["responseObject"]}
    written.log.restored(10, then)
    written(line(11, "patch", 7))
    assert [(w.at, w.actor) for w in written.log.facts()][2:] == [(10, "etcd"), (11, "agent on node-0")]
    assert written.versions() == ["5", "8", "5", "7"]


def test_agents_and_concluders_are_ours_and_nobody_else_is(written: Written) -> None:
    concluder = {**BOUND, "authentication.kubernetes.io/pod-name": ["concluder-x"]}
    written(
        line(1, "create", 5, user={"username": "admin"}),
        line(2, "patch", 6, user={"username": ACCOUNT, "extra": concluder}),
        line(3, "patch", 7),
    )
    assert [(w.actor, ours(w.actor)) for w in written.log.facts()] == [
        ("admin", False),
        ("concluder on node-0", True),
        ("agent on node-0", True),
    ]
