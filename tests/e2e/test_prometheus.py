"""A real Prometheus server: what it answers, and a fault that only it knows of, from its alert to the
replacement."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import toolbox
from fleet_site import DEPLOY, Site, edit
from plane import Plane, free_port
from test_fleet_mode import FleetSite

from recovery.catalog import metric_rows
from recovery.cli import main
from recovery.clock import SystemClock
from recovery.config.policy_file import load_builtin
from recovery.errors import Unreadable
from recovery.model import Census, Gate, Slot
from recovery.report.fleet_gauges import FleetGauges
from recovery.report.metrics import Metrics
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
      - {alert: ClusterUpgradeRunning, expr: "upgrade_running > 0"}
"""
POLICY = """\
apiVersion: noderecovery.dev/v1alpha1
kind: RecoveryPolicy
sources: [conditions, {prometheus: {rows: [dcgm, alerts]}}]
limits:
  {budget: 1, cooldown: 0s, brake: 100%, brakePer: {}, budgetPer: {}, blockers: [{alerts: [ClusterUpgrade*]}]}
rules:
  - name: gpu
    match: {source: prometheus, type: GpuFellOffTheBus}
    remedy: [{do: drain, within: 1m, then: force}, {do: replace, within: 5m}]
    probation: 5s
"""


NOW = SystemClock().now()
GATE = Gate(
    "uid",
    "1",
    "uid",
    slots=(Slot("n0", "r", 1, ("fleet",), NOW),),
    census=Census(NOW, 40, ("n0", "n1", "n2")),
)


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

    def __init__(self, folder: Path, before: Callable[[Path], None] = lambda _: None) -> None:
        self.exporter = Exporter()
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        folder.mkdir()
        before(folder)
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


def until(what: str, true: Callable[[], bool], seconds: float = 90) -> None:
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


def metrics_of(*processes: Callable[[Metrics], None]) -> str:
    """The pages of several processes as one server scrapes them, each with a label ``node`` of its own."""
    lines: dict[str, None] = {}
    for number, process in enumerate(processes):
        metrics = Metrics()
        metrics.running(True)
        process(metrics)
        for family in metrics.registry.collect():
            for sample in family.samples:
                labels = {"node": f"n{number}", **sample.labels}
                words = ",".join(f'{key}="{value}"' for key, value in labels.items())
                lines[f"{sample.name}{{{words}}} {sample.value}"] = None
    return "\n".join([*lines, ""])


def test_the_dashboard_counts_each_hand_over_once_and_knows_nothing_as_nothing(
    prometheus: Prometheus,
) -> None:
    """All its queries, of a sidecar and the concluder beside it, and of an agent that is off."""

    def sidecar(m: Metrics) -> None:
        m.share(m.open_handovers, 1, "n0")
        FleetGauges(m, load_builtin().policy, 50).show(GATE, NOW, 0)
        for seconds in (100, 100, 1000):
            m.duration.labels("replace", "recovered").observe(seconds)

    def concluder(m: Metrics) -> None:
        m.share(m.open_handovers, 2, "(the sweeper)")
        FleetGauges(m, load_builtin().policy, 50).show(GATE, NOW, 0)

    prometheus.exporter.page = metrics_of(sidecar, concluder, lambda _: None)
    dashboard = json.loads((DEPLOY / "alarms" / "grafana" / "node-recovery.json").read_text())
    panels = {panel["title"]: panel.get("targets", []) for panel in dashboard["panels"][::-1]}
    found: dict[str, list[float]] = {}

    def asked(expr: str) -> list[float]:
        for variable, value in {
            "$__rate_interval": "1m",
            "$__range": "1m",
            "$cluster": ".*",
            "$node": ".*",
        }.items():
            expr = expr.replace(variable, value)
        query = urllib.parse.urlencode({"query": expr})
        with urllib.request.urlopen(f"{prometheus.url}/api/v1/query?{query}", timeout=5) as answer:  # noqa: S310
            said = json.load(answer)
        assert said["status"] == "success"
        return [float(series["value"][1]) for series in said["data"]["result"]]

    until("it was scraped", lambda: asked("count(node_recovery_build_info)") == [3])
    for title, targets in panels.items():
        found[title] = [value for target in targets for value in asked(target["expr"])]
    assert found["In a person's hands"] == [2]
    assert found["Paused"] == [0]
    assert found["Budget of the fleet"] == [1, 1]
    assert found["Last count"] == [3, 40]
    assert found["Versions"] == [3]
    half, most = found["How long recoveries take"]
    assert 60 < half <= 120 < 900 < most <= 1800
    assert found["Budgets"] == [1, 1]


@pytest.fixture
def upgrading(prometheus: Prometheus) -> Prometheus:
    """While the cluster is upgraded, and says so before the controller starts."""
    prometheus.exporter.page = "upgrade_running 1\n"
    return prometheus


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


def test_an_alert_that_the_policy_names_holds_a_node_until_it_stops(
    upgrading: Prometheus, fleet: FleetSite
) -> None:
    sick, _ = fleet.group(2)
    upgrading.exporter.page = f'upgrade_running 1\ngpu_lost{{node="{sick}"}} 1\n'
    blocked = f"{sick}: GpuFellOffTheBus: waiting: blocked: alert ClusterUpgradeRunning fires"
    fleet.until("it says for what it waits", lambda: blocked in fleet.logs())
    assert (fleet.phase(sick), fleet.slots(), fleet.marked()) == ("waiting", [], [])
    assert not fleet.plane.get(f"/api/v1/nodes/{sick}")["spec"].get("unschedulable")
    upgrading.exporter.page = f'upgrade_running 0\ngpu_lost{{node="{sick}"}} 1\n'
    fleet.until("it is recovered", lambda: fleet.phase(sick) == "recovered", 180)
    assert len(fleet.marked()) == 1


# ---------------------------------------------------------------- what it has recorded


def test_an_alert_holds_a_sidecars_node_while_it_fires(upgrading: Prometheus, tmp_path: Path) -> None:
    """The same server, asked by an agent on its node. A healthy node asks it nothing."""
    (tmp_path / "plane").mkdir()
    with Plane(tmp_path / "plane") as plane, Site(plane, tmp_path / "site") as site:
        site.clear()
        until("the alert fires", lambda: bool(PrometheusClient(upgrading.url).ask("ALERTS")))
        limits = "{cooldown: 0s, brake: 100%, brakePer: {}, budgetPer: {}, blockers: [{alerts: ClusterUp*}]}"
        site.install(
            POLICY.split("sources:")[0]
            + f"limits: {limits}\nrules:\n  - name: neuron\n    match: {{type: NeuronHealth}}\n"
            "    remedy: [{do: replace, within: 5m}]\n    probation: 2s\n",
            ENABLE_RECOVERY="true",
            LEASE_DURATION="5s",
            PROMETHEUS_URL=upgrading.url,
        )
        sick, _ = site.group(2)
        site.breaks(sick)
        held = "waiting: blocked: alert ClusterUpgradeRunning fires"
        site.until("its record says so", lambda: held in site.records().get(sick, {}).get("sentence", ""))
        assert (site.phase(sick), site.slots(), site.marked()) == ("waiting", [], [])
        upgrading.exporter.page = ""
        site.until("it is recovered", lambda: site.phase(sick) == "recovered" and not site.slots(), 180)
        assert len(site.marked()) == 1
        site.check_laws(faulty=[sick], finished=True)
        site.clear()


def recorded(folder: Path, now: float) -> None:
    """The pages of two detectors in the last eight hours, as the blocks of a server that scraped them."""
    lines = ["# TYPE problem_gauge gauge"]
    for node, bad in (("node-1", range(120, 180)), ("node-2", range(0))):
        labels = (
            f'node="{node}",instance="10.0.0.1:20257",type="NeuronHealth",reason="NeuronHasError_DMA_ERROR"'
        )
        lines += [f"problem_gauge{{{labels}}} {int(m in bad)} {now - 60 * (480 - m):.0f}" for m in range(480)]
    text = folder / "past.om"
    text.write_text("\n".join([*lines, "# EOF", ""]))
    command = [
        str(toolbox.program("promtool")),
        "tsdb",
        "create-blocks-from",
        "openmetrics",
        str(text),
        "data",
    ]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)  # noqa: S603


def test_a_policy_is_replayed_over_what_the_server_has_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if not toolbox.has("prometheus"):
        pytest.skip("there is no Prometheus server here: make e2e-tools PROMETHEUS=1 builds one")
    now = time.time() // 60 * 60
    server = Prometheus(tmp_path / "server", lambda folder: recorded(folder, now))
    try:
        until("the server answers", server.ready)
        assert main(["replay", "--prometheus", server.url, "--since", "7h", "-o", "json"]) == 0
    finally:
        server.stop()
    found = json.loads(capsys.readouterr().out)
    (seen,) = found["sightings"]
    assert (seen["node"], seen["rule"], seen["would"]) == ("node-1", "neuron-hardware", "recover")
    lasted = datetime.fromisoformat(seen["ended"]) - datetime.fromisoformat(seen["since"])
    assert timedelta(minutes=58) < lasted < timedelta(minutes=65), lasted
    assert abs(datetime.fromisoformat(seen["since"]).timestamp() - (now - 360 * 60)) <= 120
