"""What ten thousand closed records cost a process that reads them: its size with and without them.

A server of the Kubernetes API in a process of its own, over real sockets; in another process the real reads:
the count of the sick, the gate rebuilt, and the look for records that may go.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from figures import Figure, report
from recovery_testkit.kubeselect import label_selector
from recovery_testkit.kubeserver import KubernetesServer
from recovery_testkit.kubestatus import Response
from recovery_testkit.kubestore import KubernetesStore

MANY = 10_000
BUDGET = 10.0
WAYS = {"labelled": True, "without a label": False}


def serve(folder: Path, many: int, labelled: bool) -> None:
    """Serve so many closed records, each close to 4 KiB, until killed."""
    from recovery.decide.history import HistoryEvent, note
    from recovery.model import Machine, Phase, Record, Start
    from recovery.store.record_codec import encode
    from recovery.units import parse_moment

    at = parse_moment("2026-01-01T00:00:00Z")
    serials = tuple(f"GPU-8f2c4c44-0000-0000-0000-{x:012x}" for x in range(8))
    start = Start(at, "i-0123456789abcdef0", "NeuronHasError_DMA_ERROR", "workers", serials)
    machine = Machine("aws", "i-0123456789abcdef0", "aws:///eu-central-1a/i-0123456789abcdef0", "workers")
    plain = Record("n", Phase.RECOVERED, machine, "uid", "boot", (), at, starts=(start,) * 3)
    for _ in range(20):
        plain = note(plain, at, HistoryEvent.NOT_YET, "the group is short of capacity " * 4)
    body = encode(plain)
    if not labelled:
        del body["metadata"]["labels"]
    server = KubernetesServer(KubernetesStore(), api=Crowd(body, many))
    server.start().write_kubeconfig(folder / "new")
    (folder / "new").rename(folder / "kubeconfig")
    time.sleep(3600)


class Crowd:
    """Answers lists: so many copies of a record, and nothing else. The store itself takes minutes to fill."""

    def __init__(self, body: dict[str, Any], many: int) -> None:
        self._body, self._many = body, many

    def request(self, method: str, path: str, *, query: Any = None, **_: Any) -> Response:
        asked = query or {}
        matches = label_selector(asked.get("labelSelector", ""))
        here = path.endswith("/noderecoveries") and matches(self._body["metadata"].get("labels") or {})
        start, end = int(asked.get("continue") or 0), self._many if here else 0
        stop = min(end, start + int(asked["limit"]))
        metadata = {"continue": str(stop)} if stop < end else {}
        return Response(200, {}, {"items": [self._copy(x) for x in range(start, stop)], "metadata": metadata})

    def _copy(self, number: int) -> dict[str, Any]:
        name = f"ip-10-{number // 256}-{number % 256}-1.ec2.internal"
        metadata = {**self._body["metadata"], "name": name, "uid": f"uid-{number}", "resourceVersion": "1"}
        return {**self._body, "metadata": metadata}

    def watch(self, path: str, query: Any = None, *, user_agent: str = "") -> Any:
        raise NotImplementedError


def read() -> None:
    """All that an agent or a concluder reads of records, once; then its own peak size, in KiB."""
    from recovery.agent.retention import Remover
    from recovery.agent.world import World
    from recovery.catalog import own_fault
    from recovery.clock import SystemClock
    from recovery.config.policy_file import load_builtin
    from recovery.decide.budget import rebuild
    from recovery.decide.census import count
    from recovery.kube.cluster import Cluster
    from recovery.kube.paging import folded
    from recovery.kube.transport import KubernetesTransport
    from recovery.model import Gate, Record
    from recovery.provider.registry import Providers
    from recovery.store.gate import Gates
    from recovery.store.lease import Identity, Leases
    from recovery.store.record import Records

    clock = SystemClock()
    cluster = Cluster(KubernetesTransport(clock), clock, "default")
    records = Records(cluster)
    now = clock.now()

    def sick() -> int:
        found = (r for r in records.sick() if isinstance(r, Record))
        return len(count(cluster.list_nodes(), found, own_fault, [], now).sick)

    leases = Leases(cluster, clock, Identity("bench", "bench"))
    policy = load_builtin().policy
    gates, providers = Gates(cluster, records.readable), Providers("auto", lambda name: None)  # type: ignore[arg-type,return-value]
    world = World(clock, cluster, records, gates, leases, providers, policy, on=True)
    folded(sick)
    folded(lambda: rebuild(Gate("g", "1", "g"), records.readable()))
    folded(Remover(world, "")._candidates)
    lines = Path("/proc/self/status").read_text().splitlines()
    print(next(line.split()[1] for line in lines if line.startswith("VmHWM")))


def size_of_a_reader(many: int, labelled: bool) -> float:
    """MiB at its peak."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "kubeconfig")
        here = [sys.executable, __file__]
        server = subprocess.Popen([*here, "serve", folder, str(many), str(int(labelled))])  # noqa: S603
        try:
            while not config.exists():
                time.sleep(0.1)
                if server.poll() is not None:
                    raise SystemExit("the server ended")
            environ = {**os.environ, "KUBECONFIG": str(config)}
            read = [*here, "read"]
            done = subprocess.run(read, env=environ, check=True, capture_output=True, text=True)  # noqa: S603
            return int(done.stdout) / 1024
        finally:
            server.kill()
            server.wait()


def main() -> int:
    figures = []
    for way, labelled in WAYS.items():
        more = size_of_a_reader(MANY, labelled) - size_of_a_reader(0, labelled)
        figures.append(Figure(f"{MANY} closed records, {way}: peak RSS more", more, "MiB", BUDGET))
    return report(figures)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", folder, many, labelled]:
            serve(Path(folder), int(many), bool(int(labelled)))
        case ["read"]:
            read()
        case _:
            sys.exit(main())
