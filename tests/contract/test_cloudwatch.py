"""CloudWatch over the real SDK, through a proxy, against moto."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from recovery_testkit.aws import environment, shared_aws
from recovery_testkit.proxy import CountingProxy

from providers.aws import create_monitor
from providers.aws.cloudwatch import CloudWatchMonitor
from providers.aws.session import AwsSession, Limits
from providers.aws.settings import NAMESPACE
from recovery.clock import SystemClock
from recovery.errors import Refused, Retry, SettingsError
from recovery.provider.monitor import Metric
from recovery.provider.protocol import ProviderContext

PUT = "PutMetricData"
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def way() -> Iterator[CountingProxy]:
    with CountingProxy(shared_aws().address) as proxy, environment(proxy.url):
        yield proxy


@pytest.fixture
def proxy(way: CountingProxy) -> CountingProxy:
    way.forget()
    return way


@pytest.fixture(scope="module")
def session() -> AwsSession:
    return AwsSession(SystemClock(), Limits(connect=1.0, read=1.0, attempts=1))


@pytest.fixture
def namespace() -> str:
    return f"NodeRecovery-{next(_numbers)}"


@pytest.fixture
def monitor(proxy: CountingProxy, session: AwsSession, namespace: str) -> CloudWatchMonitor:
    return CloudWatchMonitor(session, SystemClock(), namespace, "us-west-2")


def metric(name: str = "NeuronHasError_DMA_ERROR", value: float = 1.0, **dimensions: str) -> Metric:
    return Metric(name, value, datetime.now(UTC), dimensions)


def stored(namespace: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        shared_aws().client("cloudwatch").list_metrics(Namespace=namespace)["Metrics"]
    )
    return found


def test_a_fault_is_one_metric_without_dimensions(monitor: CloudWatchMonitor, namespace: str) -> None:
    monitor.publish([metric()])
    (found,) = stored(namespace)
    assert found["MetricName"] == "NeuronHasError_DMA_ERROR"
    assert found["Dimensions"] == []
    now = datetime.now(UTC)
    points = (
        shared_aws()
        .client("cloudwatch")
        .get_metric_statistics(
            Namespace=namespace,
            MetricName="NeuronHasError_DMA_ERROR",
            StartTime=now - timedelta(minutes=5),
            EndTime=now + timedelta(minutes=5),
            Period=60,
            Statistics=["Sum"],
        )["Datapoints"]
    )
    assert [point["Sum"] for point in points] == [1.0]


def test_an_outcome_has_its_dimensions_in_order(monitor: CloudWatchMonitor, namespace: str) -> None:
    monitor.publish([metric("RecoveryAction", ClusterName="", Provider="aws", Action="replace")])
    (found,) = stored(namespace)
    assert found["Dimensions"] == [
        {"Name": "Action", "Value": "replace"},
        {"Name": "ClusterName", "Value": "none"},
        {"Name": "Provider", "Value": "aws"},
    ]


def test_nothing_to_say_is_no_request(monitor: CloudWatchMonitor, proxy: CountingProxy) -> None:
    monitor.publish([])
    assert proxy.count() == 0


@pytest.mark.slow
def test_many_metrics_go_in_requests_of_a_thousand(proxy: CountingProxy, namespace: str) -> None:
    patient = AwsSession(SystemClock(), Limits(connect=5.0, read=60.0, attempts=1))  # moto takes its time
    monitor = CloudWatchMonitor(patient, SystemClock(), namespace, "us-west-2")
    monitor.publish([metric(f"Reason{n}") for n in range(1001)])
    assert proxy.count(PUT) == 2


def test_the_sdk_speaks_to_the_right_service(monitor: CloudWatchMonitor, proxy: CountingProxy) -> None:
    monitor.publish([metric()])
    assert [(r.service, r.action) for r in proxy.requests] == [("monitoring", PUT)]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 2.0**361])
def test_a_value_cloudwatch_does_not_take_is_refused_before_it_is_sent(
    monitor: CloudWatchMonitor, proxy: CountingProxy, value: float
) -> None:
    with pytest.raises(Refused, match="which CloudWatch does not take"):
        monitor.publish([metric(), metric(value=value)])
    assert proxy.count() == 0


def test_names_and_dimensions_that_cloudwatch_does_not_take_are_refused(monitor: CloudWatchMonitor) -> None:
    with pytest.raises(Refused, match="a metric has no name"):
        monitor.publish([metric("")])
    with pytest.raises(Refused, match="metric x has 31 dimensions, not at most 30"):
        monitor.publish([Metric("x", 1.0, datetime.now(UTC), {f"d{n}": "x" for n in range(31)})])


@pytest.mark.parametrize(
    ("name", "sent"), [("GpuÜberhitzt", "Gpu?berhitzt"), ("Gpu\x7fHot\n", "Gpu?Hot?"), ("x" * 256, "x" * 255)]
)
def test_a_name_that_cloudwatch_does_not_take_costs_no_other_metric(
    monitor: CloudWatchMonitor, namespace: str, name: str, sent: str
) -> None:
    """AWS would refuse the whole request, though moto does not."""
    monitor.publish([metric(), metric(name, ClusterName="münchen", Zone=" ")])
    found = {x["MetricName"]: x["Dimensions"] for x in stored(namespace)}
    assert found.keys() == {"NeuronHasError_DMA_ERROR", sent}
    assert [x["Value"] for x in found[sent]] == ["m?nchen", "none"]


def test_a_time_out_of_bounds_is_moved_to_the_bound(session: AwsSession) -> None:
    now = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)

    class StillClock(SystemClock):
        def now(self) -> datetime:
            return now

    monitor = CloudWatchMonitor(session, StillClock(), "N", "us-west-2")
    at = {days: monitor._within(now + timedelta(days=days)) for days in (-400, -1, 0, 1)}
    assert at[-400] == now - timedelta(days=14) + timedelta(minutes=1)
    assert (at[-1], at[0]) == (now - timedelta(days=1), now)
    assert at[1] == now + timedelta(hours=2) - timedelta(minutes=1)


@pytest.mark.parametrize(
    ("status", "code", "expected", "sentence"),
    [
        (403, "AccessDenied", Refused, "AWS denied cloudwatch:PutMetricData in namespace"),
        (400, "Throttling", Retry, "AWS turned cloudwatch:PutMetricData in namespace .* away for now: "),
        (500, "InternalServiceFault", Retry, "its answer was lost"),
        (403, "ExpiredToken", Retry, "no good AWS credentials"),
    ],
)
def test_what_cloudwatch_answers_becomes_one_of_our_errors(
    monitor: CloudWatchMonitor,
    proxy: CountingProxy,
    status: int,
    code: str,
    expected: type[Exception],
    sentence: str,
) -> None:
    body = f'{{"__type": "com.amazonaws.cloudwatch#{code}", "message": "no"}}'.encode()
    proxy.answer(PUT, body, "application/x-amz-json-1.0", status=status)
    with pytest.raises(expected, match=sentence):
        monitor.publish([metric()])
    assert proxy.count(PUT) == 1


def test_a_lost_answer_is_worth_another_try(monitor: CloudWatchMonitor, proxy: CountingProxy) -> None:
    proxy.lose_answer(PUT)
    with pytest.raises(Retry, match="its answer was lost"):
        monitor.publish([metric()])
    assert proxy.count(PUT) == 1


def test_a_dead_service_costs_no_more_than_its_timeouts(proxy: CountingProxy) -> None:
    quick = AwsSession(SystemClock(), Limits(connect=0.1, read=0.1, attempts=1))
    monitor = CloudWatchMonitor(quick, SystemClock(), "N", "us-west-2")
    proxy.delay(PUT, 30)
    begun = time.monotonic()
    with pytest.raises(Retry):
        monitor.publish([metric()])
    assert time.monotonic() - begun < 5
    assert proxy.count(PUT) == 1


def test_without_a_region_a_person_is_told_what_to_set(session: AwsSession) -> None:
    with pytest.raises(Refused, match="CloudWatch needs a region: set AWS_REGION"):
        CloudWatchMonitor(session, SystemClock(), "N").publish([metric()])


def test_the_namespace_comes_from_the_environment_and_is_checked() -> None:
    assert NAMESPACE.of({}) == "NodeRecovery"
    assert NAMESPACE.of({"CLOUDWATCH_NAMESPACE": "NeuronHealthCheck"}) == "NeuronHealthCheck"
    with pytest.raises(
        SettingsError, match='CLOUDWATCH_NAMESPACE: found "AWS/EC2", expected a namespace of your own; AWS/'
    ):
        create_monitor(ProviderContext(SystemClock(), {"CLOUDWATCH_NAMESPACE": "AWS/EC2"}))
    for wrong in ("a" * 256, "tab\t", ":", " ", "a b", ""):
        with pytest.raises(SettingsError) as caught:
            NAMESPACE.of({"CLOUDWATCH_NAMESPACE": wrong})
        assert str(caught.value) == (
            f"CLOUDWATCH_NAMESPACE: found {json.dumps(wrong)}, expected 1 to 255 letters, digits and ._-/#: "
            "not beginning with a colon"
        )


def test_the_monitor_is_made_from_the_environment_and_gives_up_soon() -> None:
    environ = {"CLOUDWATCH_NAMESPACE": "X", "AWS_DEFAULT_REGION": "eu-central-1"}
    monitor = create_monitor(ProviderContext(SystemClock(), environ))
    assert isinstance(monitor, CloudWatchMonitor)
    assert (monitor.name, monitor.region) == ("cloudwatch", "eu-central-1")
    assert "AWS_REGION" not in environ
    assert os.environ is not environ
