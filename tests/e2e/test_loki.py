"""A real Loki, which LOKI_BINARY names: how it answers, and a line in it, from push to replacement."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fleet_site import DEPLOY, edit
from plane import Plane, free_port
from test_fleet_mode import FleetSite
from test_prometheus import until

from recovery.errors import Unreadable
from recovery.signals.loki_answer import Line, read
from recovery.signals.loki_http import LokiClient

BINARY = os.environ.get("LOKI_BINARY", "")
TENANT = "fleet-1"
QUERY = '{k8s_daemonset_name="dmesg"} |= "Xid (PCI:"'
CONFIG = """\
auth_enabled: true
server: {{http_listen_address: 127.0.0.1, http_listen_port: {port}, grpc_listen_port: 0, log_level: warn}}
common:
  instance_addr: 127.0.0.1
  path_prefix: {folder}
  storage: {{filesystem: {{chunks_directory: {folder}/chunks, rules_directory: {folder}/rules}}}}
  replication_factor: 1
  ring: {{kvstore: {{store: inmemory}}}}
schema_config:
  configs:
    - from: 2024-01-01
      store: tsdb
      object_store: filesystem
      schema: v13
      index: {{prefix: index_, period: 24h}}
analytics: {{reporting_enabled: false}}
"""
POLICY = """\
apiVersion: noderecovery.dev/v1alpha1
kind: RecoveryPolicy
sources: [conditions, loki]
limits: {budget: 1, cooldown: 0s, brake: 100%, brakePer: {}, budgetPer: {}}
rules:
  - name: gpu
    match: {source: loki, type: GpuXid}
    remedy: [{do: drain, within: 1m, then: force}, {do: replace, within: 5m}]
    probation: 5s
"""


class Loki:
    """The server, with tenants, on this machine's disk."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        folder.mkdir()
        config = folder / "loki.yaml"
        config.write_text(CONFIG.format(port=port, folder=folder / "data"))
        self._log = (folder / "log").open("w")
        self._process = subprocess.Popen(  # noqa: S603
            [BINARY, f"-config.file={config}"], cwd=folder, stdout=self._log, stderr=self._log
        )

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()

    def ready(self) -> bool:
        with urllib.request.urlopen(f"{self.url}/ready", timeout=5) as answer:  # noqa: S310
            return bool(answer.status == 200)

    def post(self, path: str, body: Any) -> None:
        headers = {"Content-Type": "application/json", "X-Scope-OrgID": TENANT}
        request = urllib.request.Request(f"{self.url}{path}", json.dumps(body).encode(), headers)  # noqa: S310
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            assert answer.status in (200, 204)

    def push(self, node: str, *lines: tuple[int, str]) -> None:
        labels = {"k8s_daemonset_name": "dmesg", "k8s_node_name": node}
        values = [[str(ns), text] for ns, text in lines]
        self.post("/loki/api/v1/push", {"streams": [{"stream": labels, "values": values}]})

    def push_as_the_collector_does(self, node: str, ns: int, line: str) -> None:
        """By OTLP: then the node's name is no label of the stream, but metadata of the line."""
        names = {"k8s.daemonset.name": "dmesg", "k8s.namespace.name": "dmesg-logging", "k8s.node.name": node}
        attributes = [{"key": k, "value": {"stringValue": v}} for k, v in names.items()]
        record = {"timeUnixNano": str(ns), "body": {"stringValue": line}}
        logs = {"resource": {"attributes": attributes}, "scopeLogs": [{"logRecords": [record]}]}
        self.post("/otlp/v1/logs", {"resourceLogs": [logs]})

    def read(self, start: int, end: int, limit: int = 1000, query: str = QUERY) -> list[Line]:
        answer = LokiClient(self.url, tenant=TENANT).ask(query, start, end, limit)
        return read(answer, "k8s_node_name", start, end)


@pytest.fixture(scope="module")
def loki(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loki]:
    if not BINARY:
        pytest.skip("LOKI_BINARY names no Loki server")
    made = Loki(tmp_path_factory.mktemp("loki") / "server")
    try:
        until("the server answers", made.ready, 90)
        yield made
    finally:
        made.stop()


def xid(code: int, up: float) -> str:
    return f"[{up:.6f}] NVRM: Xid (PCI:0000:4e:00): {code}, pid='<unknown>', name=<unknown>, words"


def test_lines_are_read_in_their_order_page_by_page_from_the_first_moment_to_before_the_last(
    loki: Loki,
) -> None:
    now = time.time_ns()
    for which in (0, 1):
        loki.push(f"page-{which}", *((now + 2 * n + which, xid(79, n)) for n in range(5)))
    loki.push("page-0", (now + 99, "[9.0] usb 1-1: new device"))
    times = [now + n for n in range(10)]
    until("they are stored", lambda: len(loki.read(now, now + 100)) == 10)
    assert [line.ns for line in loki.read(now, now + 100)] == times
    assert [(line.ns, line.node) for line in loki.read(now, now + 100, 3)] == [
        (now, "page-0"),
        (now + 1, "page-1"),
        (now + 2, "page-0"),
    ]
    assert [line.ns for line in loki.read(now + 2, now + 9)] == times[2:9]


def test_the_nodes_name_is_found_where_the_collector_ships_it(loki: Loki) -> None:
    now = time.time_ns()
    loki.push_as_the_collector_does("otlp-node", now, xid(119, 1.0))
    until("it is stored", lambda: bool(loki.read(now, now + 1)))
    assert loki.read(now, now + 1) == [Line(now, "otlp-node", xid(119, 1.0))]


def test_what_it_refuses_is_no_answer(loki: Loki) -> None:
    now = time.time_ns()
    for refused, more in (
        ("400: parse error", {"query": "{"}),
        ("400: max entries limit", {"limit": 6000}),
        ("no streams of lines", {"query": 'count_over_time({k8s_daemonset_name="dmesg"}[1m])'}),
    ):
        with pytest.raises(Unreadable, match=refused):
            loki.read(now - 10**9, now, **more)  # type: ignore[arg-type]
    with pytest.raises(Unreadable, match="401: no org id"):
        LokiClient(loki.url).ask(QUERY, now - 10**9, now, 10)


@pytest.fixture
def fleet(loki: Loki, tmp_path: Path) -> Iterator[FleetSite]:
    """On a control plane of its own: the controller looks after all nodes that there are."""
    (tmp_path / "plane").mkdir()
    with Plane(tmp_path / "plane") as plane, FleetSite(plane, tmp_path / "site") as site:
        site.clear()
        copy = site.folder / "deploy"
        shutil.copytree(DEPLOY, copy)
        settings = ("ENABLE_RECOVERY=true", f"LOKI_URL={loki.url}", f"LOKI_TENANT={TENANT}")
        edit(copy / "fleet" / "settings.env", *settings)
        (copy / "fleet" / "policy.yaml").write_text(POLICY)
        plane.apply(copy / "fleet")
        site.lawless = True  # the laws are read from what agents with a node of their own wrote
        yield site
        site.clear()


def test_a_line_ends_in_one_replacement(fleet: FleetSite, loki: Loki) -> None:
    sick, well = fleet.group(2)
    now = time.time_ns()
    for n in range(3):
        loki.push_as_the_collector_does(sick, now + n, xid(79, 100.0 + n))
        loki.push_as_the_collector_does(well, now + n, xid(31, 100.0 + n))
    fleet.until("it is recovered", lambda: fleet.phase(sick) == "recovered", 180)
    assert len(fleet.marked()) == 1
    assert well not in fleet.records()
