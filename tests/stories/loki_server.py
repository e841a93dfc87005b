"""A Loki server in this process, over real HTTP: ``query_range`` with a selector of streams and a filter.

It answers as the real one does (3.7): the first lines from ``start`` on and before ``end``, over all streams
together; more of them than it may give in one answer, a missing tenant and a query that it cannot read are
refused in plain text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from recovery_testkit.clock import FakeClock

from recovery.signals.loki_http import PATH, LokiClient
from tests.builders.http_server import AnsweringServer, answering

MOST = 5000
_QUERY = re.compile(r'\{(.*?)\} \|= "([^"]*)"')
_EQUAL = re.compile(r'(\w+)="([^"]*)"')
DMESG = {"k8s_daemonset_name": "dmesg", "k8s_namespace_name": "dmesg-logging"}


class Server(AnsweringServer):
    """``lines``: what was pushed, (nanoseconds, labels, line). ``tenant``: whose it is, "" for no tenants.
    ``more``: fields that are sent beside the data."""

    def __init__(self, clock: FakeClock, tenant: str = "") -> None:
        super().__init__()
        self.clock = clock
        self.tenant = tenant
        self.lines: list[tuple[int, Mapping[str, str], str]] = []
        self.more: dict[str, Any] = {}

    def put(self, line: str, *, ago: float = 0.0, ns: int = 0, **labels: str) -> None:
        """A line of the kernel's log, as Konduktor's DaemonSet has it shipped; ``node`` is its node."""
        if "node" in labels:
            labels["k8s_node_name"] = labels.pop("node")
        at = ns or int((self.clock.true_time().timestamp() - ago) * 1e6) * 1000
        self.lines.append((at, {**DMESG, **labels}, line))

    def client(self, **more: Any) -> LokiClient:
        return LokiClient(self.url, **more)

    def respond(self, path: str, asked: Mapping[str, str], headers: Mapping[str, str]) -> tuple[int, bytes]:
        if self.tenant and headers.get("X-Scope-OrgID") != self.tenant:
            return 401, b"no org id\n"
        query = _QUERY.fullmatch(asked["query"])
        if query is None:
            return 400, b"parse error at line 1, col 2: syntax error: unexpected $end\n"
        start, end, limit = int(asked["start"]), int(asked["end"]), int(asked["limit"])
        if limit > MOST:
            return 400, f"max entries limit per query exceeded ({limit} > {MOST})\n".encode()
        assert (path, asked["direction"]) == (PATH, "forward")
        wanted = dict(_EQUAL.findall(query[1])).items()
        found = sorted(
            (x for x in self.lines if start <= x[0] < end and wanted <= x[1].items() and query[2] in x[2]),
            key=lambda x: x[0],
        )
        streams: dict[tuple[tuple[str, str], ...], list[list[str]]] = {}
        for ns, labels, line in found[:limit]:
            streams.setdefault(tuple(sorted(labels.items())), []).append([str(ns), line])
        result = [{"stream": dict(labels), "values": values} for labels, values in streams.items()]
        data = {"resultType": "streams", "result": result, "stats": {}}
        return 200, json.dumps({"status": "success", "data": data, **self.more}).encode()


@contextmanager
def serving(clock: FakeClock, tenant: str = "") -> Iterator[Server]:
    """A server that answers until the end of the block."""
    made = Server(clock, tenant)
    with answering(made):
        yield made


def xid(code: int, up: float = 1235733.431527, pci: str = "0000:4e:00") -> str:
    """A line of the kernel, ``up`` seconds after the boot."""
    return f"[{up:.6f}] NVRM: Xid (PCI:{pci}): {code}, pid='<unknown>', name=<unknown>, words"
