"""A Node is read from its bytes as from a whole object, without what nobody reads."""

from __future__ import annotations

import json
import tracemalloc
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from recovery.errors import ApiError, ApiUnavailable, Expired
from recovery.kube import node_rows
from recovery.kube.node_rows import view_of
from recovery.kube.transport import answered
from recovery.kube.views import failed_pod, node_view, pod_view
from recovery.kube.watch import Change, watch_nodes
from recovery.model import Condition

NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "n",
        "uid": "u",
        "resourceVersion": "7",
        "creationTimestamp": "2026-11-23T12:00:00+02:00",
        "deletionTimestamp": "2026-11-23T13:00:00Z",
        "labels": {"kubernetes.io/hostname": "n", "zone": "a"},
        "annotations": {"note": '\u00fc "images": ['},
        "ownerReferences": [{"kind": "NodeClaim", "name": "c", "uid": "cu", "controller": True}],
        "managedFields": [{"fieldsV1": {"f:status": {}}}],
    },
    "spec": {
        "providerID": "aws:///a/i-1",
        "unschedulable": True,
        "taints": [
            {"key": "k", "effect": "NoSchedule"},
            {"key": "t", "value": "v", "effect": "NoExecute", "timeAdded": "2026-11-23T12:00:00Z"},
        ],
    },
    "status": {
        "capacity": {"cpu": "8", "nvidia.com/gpu": "8"},
        "allocatable": {"cpu": "8", "nvidia.com/gpu": "7"},
        "nodeInfo": {"bootID": "b", "systemUUID": "s", "kernelVersion": "6.1", "osImage": "Linux"},
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "n"}],
        "images": [{"names": ["x" * 200], "sizeBytes": 1}] * 50,
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "KubeletReady",
                "message": "posting",
                "lastHeartbeatTime": "2026-11-23T12:00:00Z",
                "lastTransitionTime": "2026-11-23T11:00:00Z",
            },
            {"type": "Odd", "lastHeartbeatTime": None, "lastTransitionTime": "0001-01-01T00:00:00Z"},
        ],
    },
}


def view(obj: Any) -> Any:
    return view_of(node_rows.event(json.dumps({"type": "ADDED", "object": obj}).encode()).object, whole=True)


def test_everything_that_is_said_of_a_node_is_read() -> None:
    node = view(NODE)
    assert (node.name, node.uid, node.resource_version, node.provider_id) == ("n", "u", "7", "aws:///a/i-1")
    assert (node.boot_id, node.system_uuid, node.unschedulable, node.deleting) == ("b", "s", True, True)
    assert dict(node.labels) == NODE["metadata"]["labels"]
    assert dict(node.annotations) == NODE["metadata"]["annotations"]
    assert node.taints == (("k", "", "NoSchedule"), ("t", "v", "NoExecute"))
    assert node.tainted_at == {("t", "NoExecute"): "2026-11-23T12:00:00Z"}
    assert node.conditions == {"Ready": ("True", "KubeletReady"), "Odd": ("Unknown", "")}
    ready, heard = (datetime(2026, 11, 23, hour, tzinfo=UTC) for hour in (11, 12))
    assert tuple(node.stated) == (
        Condition("Ready", "True", "KubeletReady", "posting", heard, ready),
        Condition("Odd", "Unknown", "", "", None, datetime(1, 1, 1, tzinfo=UTC)),
    )
    assert node.addresses == ("10.0.0.1", "n")
    assert node.owners == (("NodeClaim", "c", "cu"),)
    assert (node.created, node.ready_since) == (heard - timedelta(hours=2), ready)
    assert node.system == {"kernel": "6.1", "image": "Linux", "runtime": ""}
    assert node.devices == {"nvidia.com/gpu": (8, 7)}


@pytest.mark.parametrize("whole", [True, False])
def test_bytes_and_a_whole_object_are_the_same_node(whole: bool) -> None:
    row = node_rows.event(json.dumps({"type": "ADDED", "object": NODE}).encode()).object
    assert view_of(row, whole=whole) == node_view(NODE, whole=whole)


def test_a_status_that_is_none_is_unknown() -> None:
    listed = [
        {"type": "Ready", "status": "true", "reason": "KubeletReady"},
        {"type": "Own", "status": "\x1b" * 99},
    ]
    node = view({"metadata": {"name": "n"}, "status": {"conditions": listed}})
    assert node.conditions["Ready"] == ("Unknown", "its status is 'true'")
    assert node.conditions["Own"][0] == "Unknown"
    assert node.conditions["Own"][1].isprintable()
    assert len(node.conditions["Own"][1]) < 200
    assert not node.ready


NULLS = {part: dict.fromkeys(NODE[part]) for part in ("spec", "status")}


@pytest.mark.parametrize("rest", [{}, {"spec": None, "status": None}, NULLS])
def test_what_a_node_does_not_say_is_not_known(rest: dict[str, Any]) -> None:
    node = view({"metadata": {"name": "n"}, **rest})
    assert node == node_view({"metadata": {"name": "n"}}, whole=True)
    assert (node.boot_id, node.taints, tuple(node.stated), node.ready) == ("", (), (), False)


def test_a_page_takes_less_memory_than_its_own_bytes() -> None:
    raw = json.dumps({"metadata": {"resourceVersion": "5", "continue": "t"}, "items": [NODE] * 200}).encode()
    tracemalloc.start()
    try:
        page = answered(200, {}, raw, node_rows.page).body
        used = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (page.metadata.resource_version, page.metadata.more, len(page.items)) == ("5", "t", 200)
    assert used < len(raw)


def test_a_success_that_is_no_list_is_not_the_api_servers_and_a_refusal_is_read_as_ever() -> None:
    with pytest.raises(ApiUnavailable, match="not the API server's"):
        answered(200, {}, b"<html>", node_rows.page)
    assert answered(410, {}, b'{"message": "old"}', node_rows.page).body == {"message": "old"}


class Lines:
    def __init__(self, *lines: bytes) -> None:
        self._lines = lines

    def stream(self, path: str, query: Any) -> Any:
        return iter(self._lines)


def changes(*lines: bytes) -> list[Change]:
    return list(watch_nodes(Lines(*lines), "", "1"))


def test_an_event_is_a_node_that_came_one_that_went_or_a_bookmark() -> None:
    there = json.dumps({"type": "MODIFIED", "object": NODE}).encode()
    gone = json.dumps({"type": "DELETED", "object": NODE}).encode()
    bookmark = b'{"type": "BOOKMARK", "object": {"kind": "Node", "metadata": {"resourceVersion": "9"}}}'
    assert changes(there, b"", gone, bookmark) == [
        Change("7", node=node_view(NODE, whole=True)),
        Change("7", gone="n"),
        Change("9"),
    ]


STATUS = {"kind": "Status", "status": "Failure", "metadata": {}, "message": "too old"}


@pytest.mark.parametrize(("code", "raised"), [(410, Expired), (500, ApiUnavailable), (403, ApiError)])
def test_an_error_within_a_watch_is_that_error(code: int, raised: type[ApiError]) -> None:
    with pytest.raises(raised, match="too old"):
        changes(json.dumps({"type": "ERROR", "object": STATUS | {"code": code}}).encode())


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b'{"type": 3, "object": {}}',
        b'{"type": "ADDED"}',
        b'{"type": "ADDED", "object": 7}',
        b'{"type": "ADDED", "object": {"metadata": {"name": 7}}}',
        b'{"type": "MODIFIED", "object": ' + b'{"a":' * 100_000,
    ],
)
def test_an_event_that_cannot_be_read_breaks_the_watch(line: bytes) -> None:
    with pytest.raises(ApiUnavailable, match="an event of the watch of /api/v1/nodes cannot be read"):
        changes(line)


# ---------------------------------------------------------------- times that no datetime holds


ODD = ("0000-12-31T19:00:00Z", "10000-01-01T04:59:59Z", "-0001-12-31T19:00:00Z")


@pytest.mark.parametrize("odd", ODD)
def test_one_odd_time_on_a_page_is_as_if_nobody_had_written_it_and_the_rest_is_read(odd: str) -> None:
    bad = json.loads(json.dumps(NODE))
    bad["metadata"]["creationTimestamp"] = odd
    bad["status"]["conditions"][0]["lastHeartbeatTime"] = odd
    raw = json.dumps({"metadata": {"resourceVersion": "9"}, "items": [NODE, bad]}).encode()
    page = node_rows.page(raw)
    assert page.metadata is not None
    assert page.metadata.resource_version == "9"
    good, other = (view_of(row, whole=True) for row in page.items or ())
    assert good == node_view(NODE, whole=True)
    assert (other.created, other.stated[0].heartbeat) == (None, None)
    assert other.stated[0].transition == good.stated[0].transition
    assert other == node_view(bad, whole=True)


@pytest.mark.parametrize("odd", ODD)
def test_a_pod_with_odd_times_is_still_one_that_is_being_deleted_or_has_failed(odd: str) -> None:
    pod = {
        "metadata": {"name": "p", "deletionTimestamp": odd},
        "status": {"startTime": odd, "phase": "Failed"},
    }
    assert pod_view(pod).deletion_timestamp == datetime(2100, 1, 1, tzinfo=UTC)
    ended = [{"state": {"terminated": {"finishedAt": odd}}}]
    failed = failed_pod({**pod, "status": {**pod["status"], "containerStatuses": ended}})
    assert (failed.began, failed.ended) == (None, None)


OURS = {"key": "noderecovery.dev/unhealthy", "operator": "Exists"}
CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("tolerations", "comes"),
    [
        (None, False),
        ([{"operator": "Exists"}], True),
        ([{"operator": "Exists", "effect": "NoSchedule"}], True),
        ([{"operator": "Exists", "effect": "NoExecute"}], False),
        ([{"key": "nvidia.com/gpu", "operator": "Exists"}], False),
        ([CORDON], False),
        ([OURS], False),
        ([OURS, CORDON], True),
        ([OURS, {**CORDON, "value": "x"}], False),
    ],
)
def test_a_pod_tolerates_our_marks_as_the_scheduler_reads_its_tolerations(
    tolerations: list[dict[str, str]] | None, comes: bool
) -> None:
    assert pod_view({"spec": {"tolerations": tolerations}}).tolerates is comes
