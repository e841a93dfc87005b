"""Telling never blocks doing (law 9)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from recovery.errors import ApiUnavailable, NotFound, Refused, Retry, SettingsError
from recovery.report import publish
from recovery.report.metrics import Metrics
from recovery.report.notice import Notice
from recovery.report.publish import PATIENCE, QUEUE, Publisher
from tests.builders.times import NOW


def until(true: Callable[[], bool]) -> None:
    """Wait for what another thread is about to do."""
    end = time.monotonic() + 10
    while not true() and time.monotonic() < end:
        time.sleep(0.001)
    assert true()


class Events:
    def __init__(self) -> None:
        self.answering = threading.Event()
        self.answering.set()
        self.created: list[dict[str, Any]] = []
        self.patched: list[tuple[str, dict[str, Any]]] = []
        self.error: Exception | None = None
        self.patch_error: Exception | None = None

    def create_event(self, body: dict[str, Any]) -> dict[str, Any]:
        self.answering.wait(60)
        if self.error is not None:
            raise self.error
        self.created.append(body)
        return body

    def patch_event(self, name: str, patch: dict[str, Any]) -> None:
        if self.patch_error is not None:
            raise self.patch_error
        self.patched.append((name, patch))


class Monitor:
    def __init__(self, name: str = "monitor") -> None:
        self.name = name
        self.batches: list[list[Any]] = []
        self.error: Exception | None = None
        self.answering = threading.Event()
        self.answering.set()

    def publish(self, metrics: Any) -> None:
        self.answering.wait(60)
        if self.error is not None:
            raise self.error
        self.batches.append(list(metrics))

    @property
    def told(self) -> list[str]:
        return [metric.name for batch in self.batches for metric in batch]


class Stand:
    """``monitor`` is always there, ``others`` stand beside it."""

    def __init__(self, threaded: bool = False, others: Sequence[Monitor] = ()) -> None:
        self.events, self.monitor, self.metrics = Events(), Monitor(), Metrics()
        self.publisher = Publisher(
            self.events,
            lambda: (self.monitor, *others),
            self.metrics,
            cluster_name="c",
            threaded=threaded,
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
    assert [record.getMessage() for record in caplog.records] == ["monitor: not delivered: throttled"]
    assert stand.untold("monitor") == 5


def test_a_failure_that_stays_or_comes_again_is_said_again_after_an_hour(
    stand: Stand, caplog: pytest.LogCaptureFixture
) -> None:
    """An alert says that something is not delivered, and to read the log: which begins anew now and then."""
    now = 0.0
    publisher = Publisher(
        stand.events, lambda: stand.monitor, stand.metrics, threaded=False, monotonic=lambda: now
    )
    for minute in range(0, 150, 10):
        now = minute * 60.0
        stand.monitor.error = None if 60 <= minute < 90 else Retry("throttled")
        publisher.fault("x", NOW)
        publisher.flush()
    assert [record.getMessage() for record in caplog.records] == ["monitor: not delivered: throttled"] * 2


def test_a_sink_that_fails_on_a_bug_says_where_to_look(
    stand: Stand, caplog: pytest.LogCaptureFixture
) -> None:
    stand.monitor.error = RuntimeError("a bug")
    stand.publisher.fault("x", NOW)
    stand.publisher.drain()
    (said,) = caplog.records
    assert said.getMessage() == "monitor: not delivered, because of a bug"
    assert said.exc_info is not None  # with the traceback, which a bug needs


@pytest.mark.parametrize("none", [None, ()])
def test_without_a_monitor_metrics_go_nowhere(stand: Stand, none: Any) -> None:
    publisher = Publisher(stand.events, lambda: none, stand.metrics, threaded=False)
    publisher.fault("x", NOW)
    assert publisher.flush()
    assert stand.untold("monitor") == 0


def test_a_monitor_alone_need_not_be_in_a_list(stand: Stand) -> None:
    publisher = Publisher(stand.events, lambda: stand.monitor, stand.metrics, threaded=False)
    publisher.fault("x", NOW)
    assert publisher.flush()
    assert stand.monitor.told == ["x"]


def test_a_monitor_that_cannot_be_made_is_counted_and_said_once(
    stand: Stand, caplog: pytest.LogCaptureFixture
) -> None:
    def none() -> Any:
        raise SettingsError(["CLOUDWATCH_NAMESPACE=AWS/x: no"])

    publisher = Publisher(stand.events, none, stand.metrics, threaded=False)
    for _ in range(2):
        publisher.fault("x", NOW)
        assert publisher.flush()
    said = [record.getMessage() for record in caplog.records]
    assert said == ["monitor: not delivered: CLOUDWATCH_NAMESPACE=AWS/x: no"]
    assert stand.untold("monitor") == 2


# ---------------------------------------------------------------- several monitors


@pytest.mark.parametrize("threaded", [False, True])
def test_one_event_is_told_to_all_monitors(threaded: bool) -> None:
    others = [Monitor("cloudwatch"), Monitor("azuremonitor")]
    stand = Stand(threaded, others)
    stand.publisher.fault("x", NOW)
    stand.publisher.outcome("azure", "redeploy", "started", NOW)
    assert stand.publisher.flush()
    told = [(m.name, dict(m.dimensions)) for batch in stand.monitor.batches for m in batch]
    assert [name for name, _ in told] == ["x", "RecoveryAction"]
    for other in others:
        assert [(m.name, dict(m.dimensions)) for batch in other.batches for m in batch] == told


def test_each_monitor_has_an_error_of_its_own_that_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    others = [Monitor("cloudwatch"), Monitor("azuremonitor")]
    others[0].error, others[1].error = Retry("throttled"), Refused("no permission")
    stand = Stand(others=others)
    stand.events.error = ApiUnavailable("no answer")
    for _ in range(3):
        stand.publisher.event(notice())
        stand.publisher.fault("x", NOW)
        assert stand.publisher.flush()
    assert sorted(record.getMessage() for record in caplog.records) == [
        "azuremonitor: not delivered: no permission",
        "cloudwatch: not delivered: throttled",
        "node-0: events: not delivered: no answer",
    ]
    assert [stand.untold(sink) for sink in ("cloudwatch", "azuremonitor", "events", "monitor")] == [
        3,
        3,
        3,
        0,
    ]
    assert stand.monitor.told == ["x", "x", "x"]


def test_a_dead_monitor_keeps_no_other_from_being_told() -> None:
    dead = Monitor("azuremonitor")
    dead.answering.clear()
    stand = Stand(threaded=True, others=[dead])
    try:
        for n in range(3):
            stand.publisher.fault(f"x{n}", NOW)
            stand.publisher.event(notice(f"{n}"))
            until(lambda n=n: stand.monitor.told == [f"x{m}" for m in range(n + 1)])  # type: ignore[misc]
            until(lambda n=n: len(stand.events.created) == n + 1)  # type: ignore[misc]
        assert stand.publisher.flush(0.01) is False
        assert dead.told == []
    finally:
        dead.answering.set()
    assert stand.publisher.flush(5.0)
    assert dead.told == ["x0", "x1", "x2"]


def test_a_dead_api_server_keeps_no_monitor_from_being_told() -> None:
    stand = Stand(threaded=True)
    stand.events.answering.clear()
    try:
        stand.publisher.event(notice())
        stand.publisher.fault("x", NOW)
        until(lambda: stand.monitor.told == ["x"])
        assert stand.publisher.flush(0.01) is False
    finally:
        stand.events.answering.set()
    assert stand.publisher.flush(5.0)
    assert len(stand.events.created) == 1


def test_what_a_dead_monitors_queue_does_not_hold_is_counted_for_it_alone() -> None:
    dead = Monitor("azuremonitor")
    dead.answering.clear()
    stand = Stand(threaded=True, others=[dead])
    try:
        for n in range(QUEUE * 2):
            stand.publisher.fault("x", NOW)
            if n % 100 == 0:
                until(lambda n=n: len(stand.monitor.told) == n + 1)  # type: ignore[misc]
        until(lambda: len(stand.monitor.told) == QUEUE * 2)
        assert stand.untold("azuremonitor") > 0
        assert stand.untold("queue") == stand.untold("monitor") == 0
    finally:
        dead.answering.set()
    assert stand.publisher.flush(5.0)
    assert len(dead.told) + stand.untold("azuremonitor") == QUEUE * 2


def test_what_a_monitor_drops_is_counted(stand: Stand) -> None:
    class Dropping(Monitor):
        dropped = 5

        def publish(self, metrics: Any) -> None:
            self.dropped += 2

    stand.monitor = Dropping("azuremonitor")
    for _ in range(2):
        stand.publisher.fault("x", NOW)
        stand.publisher.drain()
    assert stand.untold("azuremonitor") == 4


@pytest.mark.parametrize("dropped", [0, 3])
def test_each_metric_of_a_batch_that_was_lost_is_counted_once(stand: Stand, dropped: int) -> None:
    """Forty lost points counted as one, and an alert that waits for more than three stayed silent."""

    class Failing(Monitor):
        dropped = 0

        def publish(self, metrics: Any) -> None:
            self.dropped += dropped
            raise Retry("turned away (429)")

    stand.monitor = Failing("azuremonitor")
    for n in range(40):
        stand.publisher.fault(f"R{n}", NOW)
    stand.publisher.flush()
    assert stand.untold("azuremonitor") == 40


# ---------------------------------------------------------------- how long it takes


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


def test_of_a_thousand_nodes_that_fail_at_once_no_event_is_lost(stand: Stand) -> None:
    """All are decided on before the API server has taken the first Event."""
    reasons = ["FaultSeen", "Confirmed", "RecoveryStarted", "Cordoned", "HandedOver"]
    for node in range(1000):
        for reason in reasons:
            stand.publisher.event(notice(f"{reason} of {node}", node=f"node-{node}", reason=reason))
    stand.publisher.drain()
    assert (len(stand.events.created), stand.untold("queue")) == (5000, 0)


def test_taking_waits_for_nobody() -> None:
    stand = Stand(threaded=True)
    stand.monitor.answering.clear()
    for _ in range(QUEUE * 2):
        stand.publisher.fault("x", NOW)
    until(lambda: stand.untold("queue") + stand.untold("monitor") > 0)
    stand.monitor.answering.set()
    assert stand.publisher.flush(5.0)


class Hands:
    """Who looks after nodes, and how long Events have waited for them."""

    def __init__(self) -> None:
        self.full = True
        self.waited: list[float] = []
        self.go_on = threading.Semaphore(0)
        self.events = Events()
        self.publisher = Publisher(
            self.events, lambda: None, Metrics(), busy=lambda: self.full, pause=self._pause
        )

    def _pause(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.go_on.acquire(timeout=60)

    def let_go_on(self, times: int) -> None:
        self.go_on.release(times)


@pytest.fixture
def hands() -> Iterator[Hands]:
    found = Hands()
    yield found
    found.full = False
    found.let_go_on(1)
    until(lambda: found.publisher._pending._count == 0)


def test_events_are_sent_once_no_node_is_looked_after(hands: Hands) -> None:
    hands.publisher.event(notice())
    hands.let_go_on(20)
    until(lambda: len(hands.waited) == 21)
    assert hands.events.created == []
    hands.full = False
    hands.let_go_on(1)
    until(lambda: len(hands.events.created) == 1)


def test_events_wait_for_half_a_minute_at_most_and_again_once_all_are_sent(hands: Hands) -> None:
    for told in (1, 2):
        before = sum(hands.waited)
        hands.publisher.event(notice(f"told {told}"))
        hands.let_go_on(2000)
        until(lambda: hands.publisher._pending._count == 0)
        assert len(hands.events.created) == told
        assert sum(hands.waited) - before == pytest.approx(PATIENCE, abs=0.1)


def test_before_a_call_events_are_sent_at_once(hands: Hands) -> None:
    hands.publisher.event(notice())
    until(lambda: len(hands.waited) == 1)
    flushed: list[bool] = []
    flush = threading.Thread(target=lambda: flushed.append(hands.publisher.flush()))
    flush.start()
    until(lambda: hands.publisher._pending.hurries)
    hands.let_go_on(1)
    flush.join(10)
    assert flushed == [True]
    assert len(hands.events.created) == 1


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "MOST_WAITING", 4)
    monkeypatch.setattr(publish, "BATCH", 1)


def test_of_many_events_only_so_many_wait_as_a_flush_can_send(few: None, hands: Hands) -> None:
    for i in range(8):
        hands.publisher.event(notice(f"{i}"))
    hands.let_go_on(1)  # the first one may have begun to wait before the others came
    until(lambda: len(hands.events.created) >= 3)
    assert len(hands.waited) <= 2
