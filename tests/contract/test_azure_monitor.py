"""Azure Monitor over HTTP, against a far end that validates as Azure does."""

from __future__ import annotations

import json
import logging
import ssl
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
import urllib3
from recovery_testkit.azure_metrics import MetricsEndpoint, serve
from recovery_testkit.clock import FakeClock

from providers.azure import documents
from providers.azure import monitor as monitoring
from providers.azure.endpoint import pool_to, trust
from providers.azure.monitor import AzureMonitor, scope_of
from providers.azure.settings import MONITOR
from recovery.errors import Refused, Retry, SettingsError
from recovery.provider.monitor import Metric
from recovery.report.metrics import Metrics
from recovery.report.publish import Publisher
from tests.builders.tls import certified

GROUP = "/subscriptions/11111111-2222-3333-4444-555555555555/resourceGroups/gpu"
CLUSTER = f"{GROUP}/providers/Microsoft.ContainerService/managedClusters/trainers"
SET = f"{GROUP}/providers/Microsoft.Compute/virtualMachineScaleSets/workers"
TOKEN = "opaque-Secret.1"  # noqa: S105 (of nobody)
PUBLIC = "https://monitoring.azure.com//.default"
OUTCOME = {"ClusterName": "c", "Provider": "azure", "Action": "redeploy", "Outcome": "started"}


class Way:
    """A monitor, its far end, and what the monitor asked for on its way."""

    def __init__(self, url: str, far: MetricsEndpoint, clock: FakeClock) -> None:
        self.url, self.far, self.clock = url, far, clock
        self.token = TOKEN
        self.scopes: list[str] = []
        self.subject: tuple[str, str] | None = (CLUSTER, "westeurope")
        self.monitor = self.new(url)

    def new(self, endpoint: str, **settings: Any) -> AzureMonitor:
        return AzureMonitor(self.clock, self._give, lambda: self.subject, endpoint, **settings)

    def _give(self, scope: str) -> str:
        self.scopes.append(scope)
        return self.token

    def metric(self, name: str = "GPUMissing", value: float = 1.0, age: float = 0.0, **dims: str) -> Metric:
        return Metric(name, value, self.clock.now() - timedelta(seconds=age), dims)

    def publish(self, *metrics: Metric) -> None:
        self.monitor.publish(metrics or [self.metric()])

    @property
    def stored(self) -> list[str]:
        return [p.metric for p in self.far.points]


@pytest.fixture
def way() -> Iterator[Way]:
    clock = FakeClock()
    far = MetricsEndpoint(clock, TOKEN)
    with serve(far) as url:
        yield Way(url, far, clock)


# ---------------------------------------------------------------- what is told


def test_a_fault_is_one_point_of_the_cluster_without_dimensions(way: Way) -> None:
    way.publish(way.metric("GPUMissing"))
    (point,) = way.far.points
    assert (point.subject, point.namespace, point.metric) == (CLUSTER, "NodeRecovery", "GPUMissing")
    assert (point.at, point.dimensions) == (way.clock.now(), {})
    assert (point.minimum, point.maximum, point.total, point.count) == (1.0, 1.0, 1.0, 1)


def test_an_outcome_has_its_dimensions_and_none_is_empty(way: Way) -> None:
    way.publish(way.metric("RecoveryAction", **OUTCOME | {"ClusterName": ""}))
    (point,) = way.far.points
    assert point.dimensions == OUTCOME | {"ClusterName": "none"}


def test_a_scale_set_may_be_the_subject_whatever_its_casing(way: Way) -> None:
    way.subject = (SET.upper(), "westeurope")
    way.publish()
    assert way.far.points[0].subject == SET.upper()


def test_a_resource_groups_name_is_quoted(way: Way) -> None:
    subject = CLUSTER.replace("/gpu/", "/gpü(1)/")
    way.subject = (subject, "westeurope")
    way.publish()
    assert way.far.points[0].subject == subject
    assert "/gp%C3%BC(1)/" in way.far.asked[0].path


def test_many_metrics_are_one_request_with_a_document_on_each_line(way: Way) -> None:
    way.publish(way.metric("A"), way.metric("B", 0.0), way.metric("RecoveryAction", **OUTCOME))
    (asked,) = way.far.asked
    assert asked.path == f"{CLUSTER}/metrics"
    assert asked.headers["content-type"] == "application/x-ndjson"
    assert asked.headers["content-length"] == str(len(asked.body))
    first, *_ = lines = [json.loads(line) for line in asked.body.splitlines()]
    assert len(lines) == 3
    assert first == {
        "time": "2026-11-21T03:00:00.000000Z",
        "data": {
            "baseData": {
                "metric": "A",
                "namespace": "NodeRecovery",
                "series": [{"min": 1.0, "max": 1.0, "sum": 1.0, "count": 1}],
            }
        },
    }
    assert way.stored == ["A", "B", "RecoveryAction"]


def test_points_of_one_minute_are_one_document_and_no_others(way: Way) -> None:
    way.publish(
        way.metric("Heartbeat", 1.0, 70),
        way.metric("Heartbeat", 0.0, 80),
        way.metric("Heartbeat", 1.0, 10),
        way.metric("Heartbeat", 1.0, 10, ClusterName="c"),
    )
    told = [(p.minimum, p.maximum, p.total, p.count) for p in way.far.points]
    assert told == [(0.0, 1.0, 1.0, 2), (1.0, 1.0, 1.0, 1), (1.0, 1.0, 1.0, 1)]
    assert way.far.points[0].at == way.clock.now() - timedelta(seconds=80)


def test_a_moment_of_another_zone_is_told_in_utc(way: Way) -> None:
    at = way.clock.now().astimezone(tz=datetime.strptime("+0530", "%z").tzinfo)
    way.publish(Metric("x", 1.0, at, {}))
    assert way.far.points[0].at == way.clock.now()


def test_nothing_to_say_is_no_request_and_no_token(way: Way) -> None:
    way.monitor.publish([])
    assert (way.far.asked, way.scopes) == ([], [])


def test_all_that_the_agent_tells_arrives(way: Way) -> None:
    events: Any = None
    publisher = Publisher(events, lambda: [way.monitor], Metrics(), cluster_name="c", threaded=False)
    publisher.fault("XIDErrors", way.clock.now())
    publisher.outcome("azure", "redeploy", "started", way.clock.now())
    publisher.held("budget", way.clock.now())
    publisher.heartbeat(True, way.clock.now())
    assert publisher.flush()
    assert {p.metric: dict(p.dimensions) for p in way.far.points} == {
        "XIDErrors": {},
        "RecoveryAction": OUTCOME,
        "RecoveryHeld": {"ClusterName": "c", "Reason": "budget"},
        "Heartbeat": {"ClusterName": "c"},
    }
    assert len(way.far.asked) == 1


# ---------------------------------------------------------------- the window of time


def test_points_out_of_the_window_are_dropped_and_counted_and_the_rest_is_sent(way: Way) -> None:
    way.publish(
        way.metric("old", age=20 * 60),
        way.metric("older", age=20 * 60 + 0.001),
        way.metric("ahead", age=-4 * 60),
        way.metric("further", age=-4 * 60 - 0.001),
    )
    assert way.stored == ["old", "ahead"]
    assert way.monitor.dropped == 2


def test_what_is_dropped_is_said_once_for_as_long_as_it_lasts(
    way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        way.publish(way.metric(age=3600))
    assert len(caplog.records) == 1
    assert caplog.records[0].getMessage().startswith("azuremonitor: 1 of 1 metrics are dropped: ")
    way.publish()
    way.publish(way.metric(), way.metric(age=3600))
    assert len(caplog.records) == 2
    assert way.monitor.dropped == 4
    assert len(way.far.asked) == 2


def test_points_that_are_all_dropped_are_no_request_and_no_error(way: Way) -> None:
    way.publish(way.metric(age=3600))
    assert (way.far.asked, way.scopes) == ([], [])


# ---------------------------------------------------------------- limits, before anything is sent


@pytest.mark.parametrize(
    ("name", "value", "dimensions", "sentence"),
    [
        ("", 1.0, {}, "metric '' has a name of 0 characters, not 1-256"),
        ("x" * 257, 1.0, {}, f"metric '{'x' * 40}' has a name of 257 characters, not 1-256"),
        ("x", 1.0, {f"d{n}": "v" for n in range(11)}, "metric x has 11 dimensions, not at most 10"),
        ("x", 1.0, {"d": "v" * 257}, "metric x has a dimension 'd' with a name or value of 257 characters, "),
        ("x", 1.0, {"d" * 257: "v"}, f"metric x has a dimension '{'d' * 40}' with a name or value of 257"),
        ("x", float("nan"), {}, "metric x has the value nan, which Azure Monitor does not take"),
        ("x", float("-inf"), {}, "metric x has the value -inf, which Azure Monitor does not take"),
    ],
)
def test_what_azure_monitor_does_not_take_is_refused_and_the_rest_is_sent(
    way: Way, name: str, value: float, dimensions: dict[str, str], sentence: str
) -> None:
    with pytest.raises(Refused) as caught:
        way.publish(
            way.metric("before"), Metric(name, value, way.clock.now(), dimensions), way.metric("after")
        )
    assert str(caught.value).startswith(sentence)
    assert way.stored == ["before", "after"]


def test_the_most_that_azure_monitor_takes_is_sent(way: Way) -> None:
    dimensions = {f"{n}{'d' * 255}": "v" * 256 for n in range(10)}
    way.publish(Metric("x" * 256, 1.0, way.clock.now(), dimensions))
    assert way.far.points[0].dimensions == dimensions


def test_a_request_is_never_larger_than_azure_monitor_takes(
    way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert documents.LARGEST == 4_000_000
    monkeypatch.setattr(documents, "LARGEST", 1000)
    way.publish(*(way.metric(f"Reason{n}") for n in range(20)))
    assert len(way.stored) == 20
    assert len(way.far.asked) > 1
    assert all(500 < len(asked.body) <= 1000 for asked in way.far.asked[:-1])


# ---------------------------------------------------------------- subject, endpoint, scope


@pytest.mark.parametrize(
    ("subject", "sentence"),
    [
        (None, "there is no resource to tell Azure Monitor about: set AZURE_CLUSTER_ID and AZURE_REGION"),
        ((GROUP, "x"), f"Azure Monitor takes metrics of a resource, and '{GROUP}' is the ID of none: "),
        ((GROUP[:51], "x"), "Azure Monitor takes metrics of a resource, and '/subscriptions/1"),
        ((f"{CLUSTER}/../x", "x"), "Azure Monitor takes metrics of a resource, and "),
        ((f"{CLUSTER}?a=b", "x"), "Azure Monitor takes metrics of a resource, and "),
        ((f"{SET}/virtualMachines/3", "x"), f"{SET}/virtualMachines/3 is a machine, which may be gone"),
        (
            (f"{GROUP}/providers/microsoft.compute/virtualmachines/a", "x"),
            f"{GROUP}/providers/microsoft.compute/virtualmachines/a is a machine, which may be gone tomorrow",
        ),
    ],
)
def test_a_subject_that_would_not_last_or_is_none_is_refused_before_anything_is_sent(
    way: Way, subject: tuple[str, str] | None, sentence: str
) -> None:
    way.subject = subject
    with pytest.raises(Refused) as caught:
        way.publish()
    assert str(caught.value).startswith(sentence)
    assert (way.far.asked, way.scopes) == ([], [])


def endpoint_of(way: Way, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where a monitor without a configured endpoint would go."""
    gone: list[str] = []

    def stop(endpoint: str, _: Any) -> Any:
        gone.append(endpoint)
        raise Refused("far enough")

    monkeypatch.setattr(monitoring, "pool_to", stop)
    monkeypatch.setattr(monitoring, "trust", lambda: None)
    with pytest.raises(Refused, match="far enough"):
        way.new("").publish([way.metric()])
    return gone[0]


@pytest.mark.parametrize("region", ["westeurope", "West Europe"])
def test_without_an_endpoint_it_is_that_of_the_subjects_region(
    way: Way, monkeypatch: pytest.MonkeyPatch, region: str
) -> None:
    way.subject = (CLUSTER, region)
    assert endpoint_of(way, monkeypatch) == "https://westeurope.monitoring.azure.com"
    assert way.scopes == [PUBLIC]


@pytest.mark.parametrize("region", ["", "evil.example/", "a@b", "west_europe"])
def test_a_region_that_is_none_is_refused_before_a_token_is_asked_for(way: Way, region: str) -> None:
    way.subject = (CLUSTER, region)
    with pytest.raises(Refused, match=r"needs the region of .*, found '.*': set AZURE_REGION"):
        way.new("").publish([way.metric()])
    assert way.scopes == []


def test_a_scope_has_the_audience_with_its_slash_and_one_more() -> None:
    assert scope_of("") == scope_of("https://westeurope.monitoring.azure.com") == PUBLIC
    assert scope_of("https://monitoring.azure.com") == PUBLIC
    assert scope_of("https://usgovarizona.monitoring.azure.us") == "https://monitoring.azure.us//.default"
    assert scope_of("https://chinaeast2.monitoring.azure.cn:443") == "https://monitoring.azure.cn//.default"
    assert scope_of("http://127.0.0.1:8080") == scope_of("https://proxy.example") == PUBLIC


def test_a_scope_that_is_given_is_the_one_asked_for(way: Way) -> None:
    way.publish()
    way.new(way.url, scope="https://metrics.example//.default").publish([way.metric()])
    assert way.scopes == [PUBLIC, "https://metrics.example//.default"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("https://management.azure.com", "https://management.azure.com"),
        ("https://Management.Azure.com/", "https://management.azure.com"),
        ("HTTPS://management.usgovcloudapi.net:8443/", "https://management.usgovcloudapi.net:8443"),
        ("http://127.0.0.1:5000", "http://127.0.0.1:5000"),
        ("http://localhost:5000/", "http://localhost:5000"),
        ("http://[::1]:5000", "http://[::1]:5000"),
        ("https://10.0.0.4", "https://10.0.0.4"),
    ],
)
def test_an_endpoint_is_https_or_this_machine(value: str, expected: str) -> None:
    assert MONITOR.of({"AZURE_MONITOR_ENDPOINT": value}) == expected


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("http://localhost@evil.example", "a user name or password"),
        ("https://user:hunter2@x", "a user name or password"),
        ("https://x?sig=hunter2", "a query or a fragment"),
        ("https://x#hunter2", "a query or a fragment"),
        ("https://x?", "a query or a fragment"),
        ("https://x/metrics", "the path '/metrics'"),
        ("https://x//", "the path '//'"),
        ("https://x/../y", "the path '/../y'"),
        ("https://", "'' for a host"),
        ("https://:443", "':443' for a host"),
        ("https://x:", "'x:' for a host"),
        ("https://a b", "a blank, or another character that no address holds"),
        ("https://x\n", "a blank, or another character that no address holds"),
        ("https://x\\@y", "a blank, or another character that no address holds"),
        ("https://exämple.com", "a blank, or another character that no address holds"),
        ("https://x:99999", "what is no address"),
        ("https://[::1", "what is no address"),
        ("https://{region}.x", "'{region}.x' for a host"),
    ],
)
def test_an_endpoint_that_a_token_must_not_go_to_is_named(value: str, found: str) -> None:
    with pytest.raises(SettingsError) as caught:
        MONITOR.of({"AZURE_MONITOR_ENDPOINT": value})
    said = str(caught.value)
    assert said.startswith(f"AZURE_MONITOR_ENDPOINT: found {found}")
    assert said.endswith("; expected https:// and a host, with a port at most (http:// on loopback only)")
    assert "hunter2" not in said


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("management.azure.com", "an http:// or https:// URL"),
        ("ftp://x", "an http:// or https:// URL"),
        ("http://management.azure.com", "https://, for a token is sent there (http:// on loopback only)"),
        ("http://127.0.0.1.evil.example", "https://, for a token is sent there (http:// on loopback only)"),
        ("http://2130706433", "https://, for a token is sent there (http:// on loopback only)"),
    ],
)
def test_an_endpoint_that_is_not_https_is_repeated(value: str, expected: str) -> None:
    with pytest.raises(SettingsError) as caught:
        MONITOR.of({"AZURE_MONITOR_ENDPOINT": value})
    assert str(caught.value) == f'AZURE_MONITOR_ENDPOINT: found "{value}", expected {expected}'


def test_a_monitor_checks_its_endpoint(way: Way) -> None:
    with pytest.raises(SettingsError, match='AZURE_MONITOR_ENDPOINT: found "http://x", expected https://'):
        way.new("http://x")


# ---------------------------------------------------------------- the way there


def test_a_proxy_of_the_environment_is_used_but_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://user:hunter2@proxy.example:3128")
    monkeypatch.setenv("no_proxy", "inside.example")
    way = pool_to("https://westeurope.monitoring.azure.com", None)
    assert isinstance(way, urllib3.ProxyManager)
    assert way.proxy is not None
    assert way.proxy.host == "proxy.example"
    assert way.proxy_headers == {"proxy-authorization": "Basic dXNlcjpodW50ZXIy"}
    for direct in ("https://inside.example", "http://127.0.0.1:1", "https://localhost:1"):
        assert not isinstance(pool_to(direct, None), urllib3.ProxyManager)
    monkeypatch.setenv("https_proxy", "proxy.example:3128")
    assert isinstance(pool_to("https://x.example", None), urllib3.ProxyManager)


def test_a_proxy_that_is_none_is_refused_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "socks5://user:hunter2@proxy.example:1080")
    with pytest.raises(Refused) as caught:
        pool_to("https://x.example", None)
    assert str(caught.value) == ("HTTPS_PROXY: found no address of an HTTP proxy; expected http://HOST:PORT")


@pytest.fixture
def tls(tmp_path: Path) -> tuple[ssl.SSLContext, Path]:
    """A server's side of TLS for 127.0.0.1, and the certificate that it can be known by."""
    context, file = certified(tmp_path)
    return context, Path(file)


def test_over_tls_only_a_server_that_is_certified_is_told(
    way: Way, tls: tuple[ssl.SSLContext, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    context, file = tls
    far = MetricsEndpoint(way.clock, TOKEN)
    with serve(far, context) as url:
        monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
        with pytest.raises(Retry, match="could not be reached: SSLError"):
            way.new(url).publish([way.metric()])
        assert far.asked == []
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(file))
        way.new(url).publish([way.metric()])
    assert [p.metric for p in far.points] == ["GPUMissing"]


def test_authorities_that_cannot_be_read_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path))
    assert isinstance(trust(), ssl.SSLContext)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "none"))
    with pytest.raises(Refused, match=r"REQUESTS_CA_BUNDLE: found '.*none', which cannot be used"):
        trust()


# ---------------------------------------------------------------- what Azure answers


def test_a_request_that_azure_refuses_is_not_sent_again(way: Way) -> None:
    way.far.answer(400, b'{"error": {"code": "BadRequest", "message": "\'time\' should not be older\\r\\n"}}')
    with pytest.raises(Refused) as caught:
        way.publish()
    assert str(caught.value) == (
        f"Azure Monitor refused metrics of {CLUSTER} (400): BadRequest: 'time' should not be older"
    )
    way.publish(way.metric("next"))
    assert (len(way.far.asked), way.stored) == (2, ["next"])


@pytest.mark.parametrize("status", [401, 403])
def test_a_denial_names_the_role_and_the_subject(way: Way, status: int) -> None:
    if status == 401:
        way.token = f"no-{TOKEN}"
    else:
        way.far.deny()
    with pytest.raises(Refused) as caught:
        way.publish()
    assert str(caught.value).startswith(
        f"Azure Monitor denied metrics of {CLUSTER} ({status}): give the agent's identity the role "
        "Monitoring Metrics Publisher on it; Azure says AuthenticationFailed: "
    )
    assert len(way.far.asked) == 1


def test_a_subject_that_azure_does_not_know_may_be_of_another_region(way: Way) -> None:
    way.far.answer(404)
    with pytest.raises(Refused) as caught:
        way.publish()
    assert str(caught.value) == (
        f"Azure Monitor at {way.url} does not know {CLUSTER} (404): check AZURE_CLUSTER_ID, and that "
        "AZURE_REGION is where it is; Azure says nothing"
    )


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(way: Way, status: int) -> None:
    elsewhere = MetricsEndpoint(way.clock)
    with serve(elsewhere) as url:
        way.far.answer(status, headers={"Location": f"{url}{CLUSTER}/metrics"})
        with pytest.raises(Refused) as caught:
            way.publish()
    assert str(caught.value) == (
        f"{way.url} redirects to {url[7:]} ({status}), and a token does not follow: "
        "check AZURE_MONITOR_ENDPOINT"
    )
    assert (len(way.far.asked), elsewhere.asked) == (1, [])


@pytest.mark.parametrize("status", [408, 500, 502, 503, 504])
def test_a_failure_of_azures_is_worth_another_try_and_is_tried_once(way: Way, status: int) -> None:
    way.far.fail(status)
    with pytest.raises(Retry) as caught:
        way.publish()
    assert str(caught.value) == (
        f"Azure Monitor failed to take metrics of {CLUSTER} ({status}): InternalServerError: try again"
    )
    assert len(way.far.asked) == 1
    way.publish(way.metric("next"))
    assert way.stored == ["next"]


def test_a_silent_azure_costs_no_more_than_the_timeout(way: Way) -> None:
    way.far.hang()
    begun = time.monotonic()
    with pytest.raises(Retry) as caught:
        way.new(way.url, timeout=0.05).publish([way.metric()])
    assert time.monotonic() - begun < 2
    assert str(caught.value) == (
        f"metrics of {CLUSTER} may have been stored, Azure Monitor's answer was lost: ReadTimeoutError"
    )
    while not way.far.points:  # it is stored, though nobody waited for the answer
        time.sleep(0.001)
    assert len(way.far.asked) == 1


def test_an_azure_that_cannot_be_reached_is_worth_another_try(way: Way) -> None:
    with serve(MetricsEndpoint()) as gone:
        pass
    with pytest.raises(Retry) as caught:
        way.new(gone).publish([way.metric()])
    assert str(caught.value) == f"Azure Monitor at {gone} could not be reached: NewConnectionError"


def test_a_long_answer_is_not_read_to_its_end(way: Way) -> None:
    way.far.answer(400, b"no " * 3_000_000)
    with pytest.raises(Refused) as caught:
        way.publish()
    assert str(caught.value).startswith(f"Azure Monitor refused metrics of {CLUSTER} (400): no no no")
    assert len(str(caught.value)) < 500


class Trickle:
    """An answer of which half a second brings a piece."""

    def __init__(self, clock: FakeClock, piece: bytes) -> None:
        self._clock, self._piece = clock, piece

    def read1(self, most: int) -> bytes:
        self._clock.advance(0.5)
        return self._piece[:most]


@pytest.mark.parametrize(("piece", "size"), [(b"x", 4), (b"x" * 10_000, 16 * 1024), (b"", 0)])
def test_of_an_answer_only_so_much_is_read_and_only_for_so_long(way: Way, piece: bytes, size: int) -> None:
    answer: Any = Trickle(way.clock, piece)
    assert len(way.monitor._read(answer)) == size


# ---------------------------------------------------------------- throttling


def test_nothing_is_sent_before_retry_after_has_passed(way: Way) -> None:
    way.far.throttle(90)
    with pytest.raises(Retry) as first:
        way.publish()
    assert first.value.after == timedelta(seconds=90)
    way.clock.advance(89.9)
    with pytest.raises(Retry) as second:
        way.publish(way.metric("meanwhile"))
    assert second.value.after == pytest.approx(timedelta(seconds=0.1), abs=timedelta(milliseconds=1))
    assert (len(way.far.asked), len(way.scopes)) == (1, 1)
    assert (
        str(first.value)
        == str(second.value)
        == (f"Azure Monitor turns metrics of {CLUSTER} away (429): it is told nothing for a while")
    )
    way.clock.advance(0.2)
    way.publish(way.metric("after"))
    assert way.stored == ["after"]


def test_a_step_of_the_wall_clock_does_not_shorten_the_rest(way: Way) -> None:
    way.far.throttle(90)
    with pytest.raises(Retry):
        way.publish()
    way.clock.step(timedelta(hours=1))
    with pytest.raises(Retry):
        way.publish()
    assert len(way.far.asked) == 1


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [
        ("0", 0),
        ("7", 7),
        (format_datetime(FakeClock().now() + timedelta(seconds=120), usegmt=True), 120),
        (format_datetime(FakeClock().now() - timedelta(seconds=120), usegmt=True), 0),
        ("", 60),
        ("soon", 60),
        ("-5", 60),
        ("١", 60),
        ("9" * 400, 86400),
    ],
)
def test_what_retry_after_says_is_understood(way: Way, retry_after: str, seconds: float) -> None:
    answer = urllib3.HTTPResponse(headers={"Retry-After": retry_after} if retry_after else {})
    assert monitoring._seconds(answer.headers, way.clock.now()) == seconds


def test_a_service_that_is_away_for_a_time_is_left_alone_for_that_time(way: Way) -> None:
    way.far.answer(503, headers={"Retry-After": "30"})
    with pytest.raises(Retry):
        way.publish()
    way.clock.advance(29)
    with pytest.raises(Retry, match=r"\(503\): it is told nothing for a while"):
        way.publish()
    way.clock.advance(2)
    way.publish()
    assert len(way.far.asked) == 2


def test_a_throttled_monitor_does_not_send_the_rest_of_what_it_was_given(
    way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "LARGEST", 200)
    way.far.throttle(60)
    with pytest.raises(Retry):
        way.publish(*(way.metric(f"Reason{n}") for n in range(5)))
    assert (len(way.far.asked), way.stored) == (1, [])


# ---------------------------------------------------------------- the token


def test_the_token_is_in_no_error_log_or_repr(way: Way, caplog: pytest.LogCaptureFixture) -> None:
    echo = json.dumps({"error": {"code": "Bad", "message": f"what is Bearer {TOKEN}?"}}).encode()
    texts = [repr(way.monitor), str(vars(way.monitor))]
    with caplog.at_level(logging.DEBUG):
        for status in (200, 302, 400, 401, 403, 404, 429):
            way.far.answer(status, echo, {"Location": f"https://{TOKEN}@x/{TOKEN}"})
            try:
                way.publish()
            except (Refused, Retry) as error:
                texts += [repr(error), repr(error.__cause__), repr(error.__context__)]
    assert len(way.far.asked) == 7
    assert all(asked.headers["authorization"] == f"Bearer {TOKEN}" for asked in way.far.asked)
    texts += [record.getMessage() for record in caplog.records]
    assert "what is Bearer (the token)?" in " ".join(texts)
    assert not [text for text in texts if TOKEN in text]


@pytest.mark.parametrize("token", ["", "two words", "a\nHost: evil.example", "ä"])
def test_a_token_that_is_none_is_refused_without_repeating_it(way: Way, token: str) -> None:
    way.token = token
    with pytest.raises(Refused) as caught:
        way.publish()
    assert str(caught.value) == "the credential gave a token for Azure Monitor that is none"
    assert way.far.asked == []


def test_an_error_of_the_credential_is_told_as_it_is(way: Way) -> None:
    def none(_: str) -> str:
        raise Retry("no token yet")

    monitor = AzureMonitor(way.clock, none, lambda: way.subject, way.url)
    with pytest.raises(Retry, match="no token yet"):
        monitor.publish([way.metric()])


# ---------------------------------------------------------------- the far end


def document(**changes: Any) -> dict[str, Any]:
    series = {"dimValues": ["v"], "min": 1, "max": 2.5, "sum": 3.5, "count": 2}
    base = {"metric": "m", "namespace": "n", "dimNames": ["d"], "series": [series]}
    plain = {"time": "2026-11-21T02:59:00Z", "data": {"baseData": base}}
    for place in (plain, base, series):
        for key in set(changes) & set(place):
            place[key] = changes.pop(key)
    assert not changes
    return plain


def asked(far: MetricsEndpoint, body: Any, path: str = f"{CLUSTER}/metrics", **headers: str) -> Any:
    sent = {"Content-Type": "application/json", "Authorization": "Bearer t"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return far(path, sent, raw)


def test_the_far_end_takes_one_document_as_json_and_many_on_lines() -> None:
    far = MetricsEndpoint(FakeClock())
    assert asked(far, document())[0] == 200
    lines = b"\n".join(json.dumps(document(metric=name)).encode() for name in ("a", "b"))
    assert asked(far, lines, Content_Type="application/x-ndjson")[0] == 200
    assert [p.metric for p in far.points] == ["m", "a", "b"]
    assert (far.points[0].dimensions, far.points[0].total, far.points[0].count) == ({"d": "v"}, 3.5, 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"time": "2026-11-21T02:39:59Z"},
            "'time' should not be older than 20 minutes and not more than 4 mi",
        ),
        (
            {"time": "2026-11-21T03:04:01Z"},
            "'time' should not be older than 20 minutes and not more than 4 mi",
        ),
        ({"time": "yesterday"}, "'time' should be in ISO 8601 format"),
        ({"time": None}, "'time' is required"),
        ({"data": {}}, "'baseData' is required"),
        ({"metric": ""}, "'metric' should have 1 to 256 characters"),
        ({"namespace": "n" * 257}, "'namespace' should have 1 to 256 characters"),
        ({"series": []}, "'series' should not be empty"),
        ({"series": None}, "'series' is required"),
        ({"dimNames": ["d", "e"]}, "'dimValues' and 'dimNames' lengths should be equal"),
        ({"dimNames": ["d", "d"]}, "'dimNames' should not repeat"),
        (
            {"dimNames": [f"{n}" for n in range(11)]},
            "'dimValues' and 'dimNames' lengths should be lesser than",
        ),
        ({"dimValues": ["v" * 257]}, "'dimValues' should have 1 to 256 characters"),
        ({"dimValues": [""]}, "'dimValues' should have 1 to 256 characters"),
        ({"min": None}, "'min' is required, and a number"),
        ({"max": "2"}, "'max' is required, and a number"),
        ({"sum": True}, "'sum' is required, and a number"),
        ({"count": 0}, "'count' should be a whole number from 1"),
        ({"count": 1.5}, "'count' should be a whole number from 1"),
        ({"min": 3}, "'count' should be a whole number from 1, and 'min' not more than 'max'"),
        ({"sum": float("nan")}, "the body is no JSON"),
    ],
)
def test_the_far_end_refuses_what_azure_refuses(changes: dict[str, Any], message: str) -> None:
    far = MetricsEndpoint(FakeClock())
    good, bad = json.dumps(document()), json.dumps(document(**changes))
    status, _, body = asked(far, f"{good}\n{bad}\n".encode(), Content_Type="application/x-ndjson")
    error = json.loads(body)["error"]
    assert (status, error["code"]) == (400, "BadRequest")
    assert error["message"].startswith(message)
    assert far.points == []


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        ({"path": f"{GROUP}/metrics"}, 400),
        ({"path": f"{GROUP[:51]}/metrics"}, 400),
        ({"path": CLUSTER}, 400),
        ({"Content_Type": "text/plain"}, 415),
        ({"Content_Encoding": "gzip"}, 415),
        ({"Transfer_Encoding": "chunked"}, 411),
        ({"Authorization": "Basic t"}, 401),
        ({"Authorization": ""}, 401),
        ({"body": b" " * 4_000_001}, 413),
        ({"body": b"[]"}, 400),
        ({"body": b""}, 400),
    ],
)
def test_the_far_end_refuses_requests_that_azure_would_not_read(
    request_: dict[str, Any], status: int
) -> None:
    far = MetricsEndpoint(FakeClock())
    assert asked(far, **{"body": document(), **request_})[0] == status
    assert far.points == []
