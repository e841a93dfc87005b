"""The agent's own HTTP server."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from recovery import web
from recovery.metrics import Metrics

pytestmark = pytest.mark.slow


@dataclass
class Site:
    port: int
    metrics: Metrics
    sick: str | None = None
    unready: str | None = "not yet: nothing has been read"

    def ask(self, path: str, method: str = "GET") -> tuple[int, str, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), answer.headers.get("Content-Type", "")
        finally:
            connection.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Site]:
    made = Site(0, Metrics())
    server = web.serve(("127.0.0.1", 0), made.metrics.registry, lambda: made.sick, lambda: made.unready)
    made.port = server.server_address[1]
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def site(server: Site) -> Site:
    server.sick, server.unready = None, "not yet: nothing has been read"
    return server


def test_healthy_is_200_and_the_reason_why_not_is_503(site: Site) -> None:
    assert site.ask("/healthz")[:2] == (200, "ok\n")
    site.sick = "the loop has not come round for 99 s"
    assert site.ask("/healthz")[:2] == (503, "the loop has not come round for 99 s\n")


def test_ready_is_asked_apart_from_healthy(site: Site) -> None:
    assert site.ask("/readyz")[:2] == (503, "not yet: nothing has been read\n")
    site.unready = None
    assert site.ask("/readyz?verbose=1")[:2] == (200, "ok\n")


def test_metrics_are_in_prometheus_own_format(site: Site) -> None:
    site.metrics.cycles.inc()
    status, body, kind = site.ask("/metrics")
    assert (status, kind.partition(";")[0]) == (200, "text/plain")
    assert "node_recovery_cycles_total 1.0" in body


def test_other_pages_are_not_there(site: Site) -> None:
    assert site.ask("/secrets")[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_changed(site: Site, method: str) -> None:
    assert site.ask("/metrics", method)[0] == 501
