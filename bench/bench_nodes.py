"""What fleet mode does with each Node: read the list and the heartbeats from their bytes, and keep them.

CPU and memory of the controller alone, without an API server: it is right on a busy machine, too.

    python bench/bench_nodes.py [NODES]      # 10,000 by default
"""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from figures import Figure, report
from fleet_parts import node

from recovery.agent.fleet.alike import Alike
from recovery.agent.fleet.nodes import Nodes
from recovery.agent.fleet.sources import Says
from recovery.catalog import own_fault
from recovery.clock import SystemClock
from recovery.config.policy_file import load_builtin
from recovery.decide.census import Kept
from recovery.kube.cluster import Cluster
from recovery.kube.transport import answered

EVENTS = 4000
BODY = json.dumps(node(7))


def body(number: int, version: int) -> bytes:
    """A Node as the API server writes it, with times of its own."""
    made = BODY.replace("gpu-00007", f"gpu-{number:05d}").replace("00000007", f"{number:08x}")
    made = made.replace("10.0.0.7", f"10.{number // 62500}.{number // 250 % 250}.{number % 250}")
    head, *conditions = made.split('"lastTransitionTime": "')
    for i, rest in enumerate(conditions):
        second = (number * 7919 + i * 61) % 86400
        at = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
        conditions[i] = f"2026-11-{1 + (number + i) % 20:02d}T{at}Z{rest[20:]}"
    made = '"lastTransitionTime": "'.join((head, *conditions))
    own = {"uid": f"{number:08x}-7777-4222-8333-444444444444", "resourceVersion": str(version)}
    own["creationTimestamp"] = f"2026-11-{1 + number % 20:02d}T03:{number % 60:02d}:00Z"
    return made.replace('"metadata": {', f'"metadata": {{{json.dumps(own)[1:-1]}, ', 1).encode()


class Server:
    """Pages and events. The time that it takes to make them is not the controller's."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self.made_in = 0.0

    def request(self, method: str, path: str, *, query: Any = None, read: Any = None, **_: Any) -> Any:
        began, limit, first = time.process_time(), int(query["limit"]), int(query.get("continue") or 0)
        last = min(first + limit, self.nodes)
        more = str(last) if last < self.nodes else ""
        items = b",".join(body(i, 1000 + i) for i in range(first, last))
        raw = b'{"metadata":{"resourceVersion":"5","continue":"%s"},"items":[%s]}' % (more.encode(), items)
        self.made_in += time.process_time() - began
        return answered(200, {}, raw, read)

    def stream(self, path: str, query: Any) -> Iterator[bytes]:
        for i in range(EVENTS):
            began = time.process_time()
            line = b'{"type":"MODIFIED","object":%s}' % body(i % self.nodes, 10**6 + i)
            self.made_in += time.process_time() - began
            yield line

    def cpu(self) -> float:
        return time.process_time() - self.made_in


def rss() -> float:
    """MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4 / 1024


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    server, clock = Server(count), SystemClock()

    def changed(name: str) -> None:
        if (found := nodes.get(name)) is not None:
            says.anything(found)

    policy = load_builtin().policy
    limits = policy.limits
    counted = Kept(own_fault, {*limits.brake_per, *limits.budget_per}, limits.population)
    nodes = Nodes(Cluster(server, clock, "default"), server, clock, "", changed, counted)
    says = Says(policy, nodes, Alike(nodes, clock))
    before, began = rss(), server.cpu()
    nodes.once(threading.Event())
    both = server.cpu() - began
    gc.collect()
    kept, began = rss() - before, server.cpu()
    nodes.once(threading.Event())
    events = server.cpu() - began
    return report(
        [
            Figure("CPU for each Node of the list", (both - events) / count * 1000, "ms"),
            Figure("CPU for each heartbeat", events / EVENTS * 1000, "ms", 0.3),
            Figure("memory of each Node", kept * 1024 / count, "KiB", 1.8),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
