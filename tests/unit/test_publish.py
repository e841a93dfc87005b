"""Telling never blocks doing (law 9)."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta
from typing import Any

import pytest
from making import NOW

from recovery.errors import ApiUnavailable, NotFound, Refused, Retry
from recovery.metrics import Metrics
from recovery.publish import QUEUE, Notice, Publisher
from recovery.testing.clock import FakeClock


class Events:
    def __init__(self) -> None:
        self.created: list[dict[str, Any]] = []
        self.patched: list[tuple[str, dict[str, Any]]] = []
        self.error: Exception | None = None
        self.patch_error: Exception | None = None

    def create_event(self, body: dict[str, Any]) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        self.created.append(body)
        return body

    def patch_event(self, name: str, patch: dict[str, Any]) -> None:
        if self.patch_error is not None:
            raise self.patch_error
        self.patched.append((name, patch))


class Monitor:
    name = "monitor"

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.error: Exception | None = None
        self.answering = threading.Event()
        self.answering.set()

    def publish(self, metrics: Any) -> None:
        self.answering.wait(60)
        if self.error is not None:
            raise self.error
        self.batches.append(list(metrics))


class Stand:
    def __init__(self, threaded: bool = False) -> None:
        self.events, self.monitor, self.metrics = Events(), Monitor(), Metrics()
        self.publisher = Publisher(
            self.events, lambda: self.monitor, self.metrics, FakeClock(), cluster_name="c", threaded=threaded
        )

    def untold(self, sink: str) -> float:
        found = self.metrics.registry.get_sample_value("node_recovery_untold_total", {"sink": sink})
        return found or 0.0


@pytest.fixture
def stand() -> Stand:
    return Stand()


def notice(sentence: str = "recovery starts", warning: bool = True, **changes: Any) -> Notice:
    plain = {"node": "node-0", "node_uid": "uid-0", "reason": "RecoveryStarted", "at": NOW}
    return Notice(sentence=sentence, warning=warning, **{**plain, **changes})


def test_an_event_is_found_by_describing_its_node(stand: Stand) -> None:
    stand.publisher.event(notice())
    assert stand.publisher.flush()
    (event,) = stand.events.created
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "node-0", "uid": "uid-0"}
    assert (event["reason"], event["message"], event["type"]) == (
        "RecoveryStarted",
        "recovery starts",
        "Warning",
    )
    assert (event["firstTimestamp"], event["count"]) == ("2026-11-21T03:00:00Z", 1)
    assert event["metadata"]["namespace"] == "default"


def test_what_is_said_again_counts_up(stand: Stand) -> None:
    for minutes in range(3):
        stand.publisher.event(notice(at=NOW + timedelta(minutes=minutes)))
        stand.publisher.drain()
    name = stand.events.created[0]["metadata"]["name"]
    assert len(stand.events.created) == 1
    assert stand.events.patched == [
        (name, {"count": 2, "lastTimestamp": "2026-11-21T03:01:00Z"}),
        (name, {"count": 3, "lastTimestamp": "2026-11-21T03:02:00Z"}),
    ]


@pytest.mark.parametrize("change", [{"sentence": "other"}, {"node": "node-1"}, {"reason": "Held"}])
def test_something_else_is_another_event(stand: Stand, change: dict[str, Any]) -> None:
    stand.publisher.event(notice())
    stand.publisher.event(notice(**change))
    stand.publisher.drain()
    names = {event["metadata"]["name"] for event in stand.events.created}
    assert len(names) == 2


def test_an_event_that_is_gone_is_posted_anew(stand: Stand) -> None:
    stand.publisher.event(notice())
    stand.publisher.drain()
    stand.events.patch_error = NotFound("it lived for an hour")
    stand.publisher.event(notice(at=NOW + timedelta(hours=2)))
    stand.publisher.drain()
    assert [event["count"] for event in stand.events.created] == [1, 1]


def test_a_long_sentence_is_cut_to_what_an_event_may_hold(stand: Stand) -> None:
    stand.publisher.event(notice("x" * 5000))
    stand.publisher.drain()
    assert len(stand.events.created[0]["message"]) == 1024


def test_a_fault_is_a_metric_named_after_its_reason(stand: Stand) -> None:
    stand.publisher.fault("NeuronHasError_DMA_ERROR", NOW)
    stand.publisher.drain()
    (metric,) = stand.monitor.batches[0]
    assert (metric.name, metric.value, metric.at) == ("NeuronHasError_DMA_ERROR", 1.0, NOW)
    assert dict(metric.dimensions) == {}


def test_an_outcome_goes_to_prometheus_and_to_the_clouds_monitor(stand: Stand) -> None:
    stand.publisher.outcome("aws", "replace", "started", NOW)
    stand.publisher.outcome("", "", "withdrawn", NOW)
    stand.publisher.drain()
    one, two = stand.monitor.batches[0]
    assert dict(one.dimensions) == {
        "ClusterName": "c",
        "Provider": "aws",
        "Action": "replace",
        "Outcome": "started",
    }
    assert (two.dimensions["Provider"], two.dimensions["Action"]) == ("none", "none")
    labels = {"action": "replace", "outcome": "started"}
    assert stand.metrics.registry.get_sample_value("node_recovery_actions_total", labels) == 1


def test_the_queue_is_bounded_and_what_does_not_fit_is_counted(stand: Stand) -> None:
    for _ in range(QUEUE + 7):
        stand.publisher.fault("x", NOW)
    assert stand.untold("queue") == 7
    stand.publisher.drain()
    assert sum(len(batch) for batch in stand.monitor.batches) == QUEUE


@pytest.mark.parametrize("error", [Retry("throttled"), Refused("no permission"), RuntimeError("a bug")])
def test_a_monitor_that_fails_stops_no_event(stand: Stand, error: Exception) -> None:
    stand.monitor.error = error
    stand.publisher.fault("x", NOW)
    stand.publisher.event(notice())
    assert stand.publisher.flush()
    assert len(stand.events.created) == 1
    assert stand.untold("monitor") == 1


def test_events_that_fail_stop_no_metric(stand: Stand) -> None:
    stand.events.error = ApiUnavailable("no answer")
    stand.publisher.event(notice())
    stand.publisher.fault("x", NOW)
    stand.publisher.drain()
    assert len(stand.monitor.batches) == 1
    assert stand.untold("events") == 1


def test_the_same_failure_is_said_once(stand: Stand, caplog: pytest.LogCaptureFixture) -> None:
    stand.monitor.error = Retry("throttled")
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            stand.publisher.fault("x", NOW)
            stand.publisher.drain()
    assert [record.getMessage() for record in caplog.records] == ["monitor: not told: throttled"]
    assert stand.untold("monitor") == 5


def test_a_sink_that_fails_on_a_bug_says_where_to_look(
    stand: Stand, caplog: pytest.LogCaptureFixture
) -> None:
    stand.monitor.error = RuntimeError("a bug")
    stand.publisher.fault("x", NOW)
    stand.publisher.drain()
    (said,) = caplog.records
    assert said.getMessage() == "monitor: not told, and that is a bug"
    assert said.exc_info is not None  # with the traceback, which a bug needs


def test_without_a_monitor_metrics_go_nowhere(stand: Stand) -> None:
    publisher = Publisher(stand.events, lambda: None, stand.metrics, FakeClock(), threaded=False)
    publisher.fault("x", NOW)
    assert publisher.flush()
    assert stand.untold("monitor") == 0


def test_a_dead_monitor_delays_a_flush_by_no_more_than_it_is_given() -> None:
    stand = Stand(threaded=True)
    stand.monitor.answering.clear()
    stand.publisher.event(notice())
    stand.publisher.fault("x", NOW)
    assert stand.publisher.flush(0.05) is False
    assert len(stand.events.created) == 1
    stand.monitor.answering.set()
    assert stand.publisher.flush(5.0) is True
    assert len(stand.monitor.batches) == 1


def test_taking_waits_for_nobody() -> None:
    stand = Stand(threaded=True)
    stand.monitor.answering.clear()
    for _ in range(QUEUE * 2):
        stand.publisher.fault("x", NOW)
    assert stand.untold("queue") > 0
    stand.monitor.answering.set()
    assert stand.publisher.flush(5.0)
