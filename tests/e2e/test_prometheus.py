"""A real Prometheus server: what it answers, and a fault that only it knows of, from its alert to the
replacement."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import toolbox
from fleet_site import DEPLOY, edit
from plane import Plane, free_port
from test_fleet_mode import FleetSite

from recovery.catalog import metric_rows
from recovery.clock import SystemClock
from recovery.errors import Unreadable
from recovery.signals.prometheus_answer import Series, State, ages, asked_at, read, time_of
from recovery.signals.prometheus_http import PrometheusClient

CONFIG = """\
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: exporter
    static_configs: [{{targets: ["{exporter}"]}}]
"""
RULES = """\
groups:
  - name: gpu
    rules:
      - {alert: GpuFellOffTheBus, expr: "gpu_lost > 0", labels: {severity: page}}
"""
POLICY = """\
apiVersion: noderecovery.dev/v1alpha1
kind: RecoveryPolicy
sources: [conditions, {prometheus: {rows: [dcgm, alerts]}}]
limits: {budget: 1, cooldown: 0s, brake: 100%, brakePer: {}, budgetPer: {}}
rules:
  - name: gpu
    match: {source: prometheus, type: GpuFellOffTheBus}
    remedy: [{do: drain, within: 1m, then: force}, {do: replace, within: 5m}]
    probation: 5s
"""


class Exporter:
    """A page of metrics that the test writes."""

    def __init__(self) -> None:
        self.page = ""
        of = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = of.page.encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Nobody reads it."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.server_address[1]}"


class Prometheus:
    """The server, scraping one exporter every second."""

    def __init__(self, folder: Path) -> None:
        self.exporter = Exporter()
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        folder.mkdir()
        (folder / "rules.yaml").write_text(RULES)
        config = folder / "prometheus.yaml"
        config.write_text(CONFIG.format(rules=folder / "rules.yaml", exporter=self.exporter.address))
        command = [
            str(toolbox.program("prometheus")),
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        self._log = (folder / "log").open("w")
        self._process = subprocess.Popen(command, cwd=folder, stdout=self._log, stderr=self._log)  # noqa: S603

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()
        self.exporter.server.shutdown()
        self.exporter.server.server_close()

    def ready(self) -> bool:
        with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as answer:  # noqa: S310
            return bool(answer.status == 200)


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Prometheus]:
    """A server of the test's own: an alert outlives the page it was made of by a scrape and an evaluation."""
    if not toolbox.has("prometheus"):
        pytest.skip("there is no Prometheus server here: make e2e-tools PROMETHEUS=1 builds one")
    made = Prometheus(tmp_path / "server")
    try:
        until("the server answers", made.ready)
        yield made
    finally:
        made.stop()


def until(what: str, true: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError, Unreadable):
            if true():
                return
        assert time.monotonic() < end, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.2)


def answered(server: Prometheus, name: str) -> list[Series]:
    """What a ready-made row says now, as the controller asks it."""
    (row,) = metric_rows()[name]
    client = PrometheusClient(server.url)
    result = client.ask(row.query)
    times = client.ask(time_of(row.query), asked_at(result)) if result else []
    return read(row, result, ages(times), SystemClock().now())


def test_values_their_age_and_alerts_are_as_the_rows_read_them(prometheus: Prometheus) -> None:
    prometheus.exporter.page = (
        'DCGM_FI_DEV_ROW_REMAP_FAILURE{gpu="0",UUID="GPU-1",node="gpu-1"} 0\n'
        'DCGM_FI_DEV_ROW_REMAP_FAILURE{gpu="1",UUID="GPU-2",node="gpu-1"} 1\n'
        'problem_gauge{type="GpuCount",reason="GpuCountBad",node="gpu-1"} 1\n'
        'gpu_lost{node="gpu-1"} 1\n'
    )
    until("it was scraped, and the alert fires", lambda: bool(answered(prometheus, "alerts")))
    until("with a value for each device", lambda: len(answered(prometheus, "dcgm")) == 2)
    until("and of the detector", lambda: len(answered(prometheus, "npd")) == 1)
    said = {s.stated.device: s.stated.state for s in answered(prometheus, "dcgm")}
    assert said == {"gpu=0": State.GOOD, "gpu=1": State.BAD}
    (npd,) = answered(prometheus, "npd")
    assert (npd.node, npd.stated.pair, npd.stated.state) == ("gpu-1", ("GpuCount", "GpuCountBad"), State.BAD)
    assert npd.instance == prometheus.exporter.address
    (alert,) = answered(prometheus, "alerts")
    assert (alert.node, alert.stated.type, alert.stated.state) == ("gpu-1", "GpuFellOffTheBus", State.BAD)
    now = SystemClock().now()
    assert all(0 <= (now - s.stated.at).total_seconds() < 30 for s in (npd, alert))


def test_a_sample_is_not_returned_for_longer_than_was_asked_for(prometheus: Prometheus) -> None:
    stamp = int((time.time() - 200) * 1000)
    prometheus.exporter.page = f'with_a_stamp_of_its_own{{node="gpu-1"}} 1 {stamp}\n'
    client = PrometheusClient(prometheus.url)
    query = "present_over_time(with_a_stamp_of_its_own[10m])"
    until("it was scraped", lambda: bool(client.ask(query)))
    assert client.ask("with_a_stamp_of_its_own") == []  # by itself the server goes back five minutes


def test_the_servers_own_doubts_make_an_answer_none(prometheus: Prometheus) -> None:
    client = PrometheusClient(prometheus.url)
    until("it was scraped twice", lambda: bool(client.ask("count_over_time(up[1m]) > 1")))
    with pytest.raises(Unreadable, match="infos"):
        client.ask("rate(up[1m])")
    with pytest.raises(Unreadable, match=r"400: .*parse error"):
        client.ask("max by (")
    with pytest.raises(Unreadable, match="no instant vector"):
        client.ask("1")


@pytest.fixture
def fleet(prometheus: Prometheus, tmp_path: Path) -> Iterator[FleetSite]:
    """On a control plane of its own: the controller looks after all nodes that there are."""
    (tmp_path / "plane").mkdir()
    with Plane(tmp_path / "plane") as plane, FleetSite(plane, tmp_path / "site") as site:
        site.clear()
        copy = site.folder / "deploy"
        shutil.copytree(DEPLOY, copy)
        edit(copy / "fleet" / "settings.env", "ENABLE_RECOVERY=true", f"PROMETHEUS_URL={prometheus.url}")
        (copy / "fleet" / "policy.yaml").write_text(POLICY)
        plane.apply(copy / "fleet")
        site.lawless = True  # the laws are read from what agents with a node of their own wrote
        yield site
        site.clear()


def test_an_alert_ends_in_a_replacement(fleet: FleetSite, prometheus: Prometheus) -> None:
    prometheus.exporter.page = ""
    sick, well = fleet.group(2)
    prometheus.exporter.page = f'gpu_lost{{node="{sick}"}} 1\ngpu_lost{{node="{well}"}} 0\n'
    fleet.until("it is recovered", lambda: fleet.phase(sick) == "recovered", 180)
    assert len(fleet.marked()) == 1
    assert well not in fleet.records()
