"""What runs beside the controller in ``bench_fleet.py``: its nodes, their heartbeats, and the floor.

The floor is what no controller can beat: a bare watch of all Nodes and one PATCH for each fault, without a
record, a budget or a brake. Heartbeats and floor are processes of their own, so that their work is not the
controller's: ``python fleet_parts.py floor|heartbeats``, told by a line of JSON what they need.
"""

from __future__ import annotations

import json
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from http.client import HTTPException, HTTPSConnection
from typing import Any

NODES = "/api/v1/nodes"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
FAULT, FLOORS_FAULT = "KernelDeadlock", "FaultForTheFloor"
"""The types of the two faults. No rule and no catalogue knows the second one: the controller lets it be."""
FAULT_REASON = "FoundByTheBench"
CONDITIONS = {
    "MemoryPressure": "kubelet has sufficient memory available",
    "DiskPressure": "kubelet has no disk pressure",
    "PIDPressure": "kubelet has sufficient PID available",
    "Ready": "kubelet is posting ready status",
    "FrequentUnregisterNetDevice": "node is functioning properly",
    "FrequentKubeletRestart": "kubelet is functioning properly",
    "FrequentDockerRestart": "docker is functioning properly",
    "FrequentContainerdRestart": "containerd is functioning properly",
    "ReadonlyFilesystem": "Filesystem is not read-only",
    "CorruptDockerOverlay2": "docker overlay2 is functioning properly",
    "NeuronHealth": "Neuron has no error",
    "XfsShutdown": "XFS has not shutdown",
    FAULT: "kernel has no deadlock",
    FLOORS_FAULT: "nothing is wrong",
}
IMAGES = 33
Json = dict[str, Any]


@dataclass(frozen=True)
class Api:
    """Where the API server is, and who asks. One connection for each thread."""

    host: str
    port: int
    certificate: str
    token: str

    def connection(self, timeout: float = 60) -> HTTPSConnection:
        context = ssl.create_default_context(cafile=self.certificate)
        return HTTPSConnection(self.host, self.port, context=context, timeout=timeout)

    def request(
        self, connection: HTTPSConnection, method: str, path: str, body: Any = None, kind: str = ""
    ) -> bytes:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind or "application/json"}
        payload = None if body is None else json.dumps(body)
        try:
            connection.request(method, path, payload, headers)
            answer = connection.getresponse()
        except (OSError, HTTPException):  # the server ends connections that were idle for long
            connection.close()
            connection.request(method, path, payload, headers)
            answer = connection.getresponse()
        raw = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {raw[:300]!r}")
        return raw

    def lines(self, path: str) -> Iterator[bytes]:
        """The lines of a watch, until the server ends it."""
        connection = self.connection(timeout=3600)  # one of few Nodes is silent for long
        connection.request("GET", path, headers={"Authorization": f"Bearer {self.token}"})
        answer, rest = connection.getresponse(), b""
        if answer.status != 200:
            raise RuntimeError(f"GET {path}: {answer.status} {answer.read(300)!r}")
        while chunk := answer.read1(65536):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from lines
        connection.close()


class Writers:
    """Threads that write to the API server, each over a connection of its own."""

    def __init__(self, api: Api, threads: int) -> None:
        self._api = api
        self._mine = threading.local()
        self._pool = ThreadPoolExecutor(threads)

    def write(self, method: str, path: str, body: Any, kind: str = "") -> None:
        """One request, on the calling thread's connection."""
        if not hasattr(self._mine, "connection"):
            self._mine.connection = self._api.connection()
        self._api.request(self._mine.connection, method, path, body, kind)

    def all(self, requests: list[tuple[str, str, Any, str]]) -> None:
        """Those requests, as fast as they go. Raises what one of them raises."""
        list(self._pool.map(lambda request: self.write(*request), requests))


# ---------------------------------------------------------------- nodes


def now(ago: int = 0) -> str:
    return f"{datetime.now(UTC) - timedelta(seconds=ago):%Y-%m-%dT%H:%M:%SZ}"


def name(number: int) -> str:
    return f"gpu-{number:05d}"


def node(number: int) -> Json:
    """A Node as an accelerated one is: some 12 KB with what the API server adds."""
    zone = f"region-1{'abc'[number % 3]}"
    has = {"memory": "527632Mi", "pods": "247", "aws.amazon.com/neuron": "16"}
    address = f"10.{number // 62500}.{number // 250 % 250}.{number % 250}"
    system = f"{number:08x}-1111-4222-8333-444444444444"
    at = now()
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name(number),
            "labels": {
                "beta.kubernetes.io/arch": "amd64",
                "beta.kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux",
                "kubernetes.io/hostname": name(number),
                "node.kubernetes.io/instance-type": "trn1.32xlarge",
                "topology.kubernetes.io/region": "region-1",
                "topology.kubernetes.io/zone": zone,
                "topology.k8s.aws/zone-id": f"r1-{zone[-1]}",
                "eks.amazonaws.com/nodegroup": f"training-{number % 8}",
                "eks.amazonaws.com/capacityType": "ON_DEMAND",
                "rack": f"r{number // 40}",
            },
            "annotations": {
                "node.alpha.kubernetes.io/ttl": "0",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
                "csi.volume.kubernetes.io/nodeid": json.dumps({"ebs.csi.aws.com": f"i-{number:017x}"}),
            },
        },
        "spec": {"podCIDR": f"10.{number // 250 % 250}.{number % 250}.0/24"},
        "status": {
            "capacity": {"cpu": "128", **has},
            "allocatable": {"cpu": "127", **has},
            "addresses": [
                {"type": "InternalIP", "address": address},
                {"type": "Hostname", "address": name(number)},
            ],
            "nodeInfo": {
                "machineID": f"{number:032x}",
                "systemUUID": system,
                "bootID": f"{number:08x}-5555-4666-8777-888888888888",
                "kernelVersion": "6.1.141-155.222.amzn2023.x86_64",
                "osImage": "Amazon Linux 2023.7.20250623",
                "containerRuntimeVersion": "containerd://1.7.27",
                "kubeletVersion": "v1.36.3",
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
            "conditions": [
                {
                    "type": kind,
                    "status": "True" if kind == "Ready" else "False",
                    "reason": f"{kind}IsAsItShouldBe",
                    "message": message,
                    "lastHeartbeatTime": at,
                    "lastTransitionTime": now(ago=number * 7919 % 99991 + i * 61),
                }
                for i, (kind, message) in enumerate(CONDITIONS.items())
            ],
            "images": [
                {
                    "names": [
                        f"registry.example/training/workload-{image}@sha256:{image:064x}",
                        f"registry.example/training/workload-{image}:v{image}",
                    ],
                    "sizeBytes": 123456789 + image,
                }
                for image in range(IMAGES)
            ],
        },
    }


def fault(kind: str) -> tuple[Json, str]:
    """The patch of a Node's status that states a fault of this type, and its content type."""
    at = now()
    stated = {"type": kind, "status": "True", "reason": FAULT_REASON, "message": "as the bench says"}
    return {
        "status": {"conditions": [{**stated, "lastHeartbeatTime": at, "lastTransitionTime": at}]}
    }, STRATEGIC


# ---------------------------------------------------------------- processes of their own


def heartbeats(api: Api, nodes: int, rate: float) -> None:
    """Renew the conditions of one Node after the other, ``rate`` a second, for as long as nobody stops us."""
    writers = Writers(api, 4)
    began, sent = time.monotonic(), 0
    while True:
        due = int((time.monotonic() - began) * rate) - sent
        body = {"status": {"conditions": [{"type": kind, "lastHeartbeatTime": now()} for kind in CONDITIONS]}}
        writers.all(
            [
                ("PATCH", f"{NODES}/{name((sent + i) % nodes)}/status", body, STRATEGIC)
                for i in range(min(due, 100))
            ]
        )
        sent += min(due, 100)
        print(sent, flush=True)
        time.sleep(0.05)


def floor(api: Api) -> None:
    """Cordon each Node that has the floor's fault."""
    began = time.monotonic()
    connection, token, version = api.connection(), "", ""
    while True:
        page = json.loads(api.request(connection, "GET", f"{NODES}?limit=500&continue={token}"))
        version = version or page["metadata"]["resourceVersion"]
        token = page["metadata"].get("continue") or ""
        if not token:
            break
    del page
    print(time.monotonic() - began, flush=True)
    while True:
        for line in api.lines(f"{NODES}?watch=true&allowWatchBookmarks=true&resourceVersion={version}"):
            event = json.loads(line)
            obj = event["object"]
            version = obj["metadata"]["resourceVersion"]
            if event["type"] == "BOOKMARK" or obj["spec"].get("unschedulable"):
                continue
            if any(c["type"] == FLOORS_FAULT and c["status"] == "True" for c in obj["status"]["conditions"]):
                path = f"{NODES}/{obj['metadata']['name']}"
                api.request(connection, "PATCH", path, {"spec": {"unschedulable": True}}, MERGE)


def told(api: Api, **more: Any) -> bytes:
    """What one of the processes needs to know, as it reads it."""
    return json.dumps(asdict(api) | more).encode() + b"\n"


def main() -> None:
    needed = json.loads(sys.stdin.readline())
    api = Api(**{key: needed.pop(key) for key in ("host", "port", "certificate", "token")})
    {"floor": floor, "heartbeats": heartbeats}[sys.argv[1]](api, **needed)


if __name__ == "__main__":
    main()
