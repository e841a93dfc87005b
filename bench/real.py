"""Real processes of the shipped program, on a Kubernetes API, a moto and NPD pages over real sockets."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from recovery_testkit.aws import LocalAws
from recovery_testkit.crds import read_crds
from recovery_testkit.kubeserver import KubernetesServer
from recovery_testkit.kubestore import KubernetesStore
from recovery_testkit.proxy import CountingProxy

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tests.builders.exporters import autopilot_page, dcgm_page

CAPTURES = ROOT / "tests" / "captures" / "neuron-dma-error"
HEALTHY = (CAPTURES / "00-healthy.prom").read_bytes()
DMA_ERROR = (CAPTURES / "01-dma-error.prom").read_bytes()


class Pages:
    """Every node's NPD, each under a path of its own."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        self.bodies: dict[str, bytes] = {}
        pages = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                body = pages.bodies.get(self.path.split("/")[1], b"")
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                return

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                return  # a sidecar was killed in the middle

        self._server = Quiet((address, 0), Handler)
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def url(self, node: str) -> str:
        self.bodies.setdefault(node, HEALTHY)
        return f"http://127.0.0.1:{self.port}/{node}/metrics"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


DAEMONSET = {"apiVersion": "apps/v1", "kind": "DaemonSet", "controller": True}


class Exporters:
    """The pages of dcgm-exporter and Autopilot, on an address that a pod may have: loopback is none."""

    def __init__(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_route:
            any_route.connect(("192.0.2.1", 9))
            self.address = str(any_route.getsockname()[0])
        self._pages = Pages(self.address)
        self.port = self._pages.port

    def pods(self, node: str) -> list[dict[str, Any]]:
        """The two pods on ``node``, of a DaemonSet each. From now on the page is about this node."""
        self._pages.bodies["metrics"] = dcgm_page() + autopilot_page(node)
        return [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"{app}-{node}",
                    "namespace": namespace,
                    "labels": {"app": app},
                    "ownerReferences": [{**DAEMONSET, "name": app, "uid": app}],
                },
                "spec": {"nodeName": node, "containers": [{"name": app, "image": app}]},
                "status": {
                    "phase": "Running",
                    "podIP": self.address,
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            }
            for namespace, app in (("gpu-operator", "nvidia-dcgm-exporter"), ("autopilot", "autopilot"))
        ]

    def stop(self) -> None:
        self._pages.stop()


GATE = "/apis/noderecovery.dev/v1alpha1/recoverygates/fleet"


class RealStage:
    """A cluster of real sidecars. Use as a context manager: nothing is left behind."""

    def __init__(self, folder: Path, policy: str, exporters: Exporters | None = None) -> None:
        self.folder = folder
        self._exporters = exporters
        self.store = KubernetesStore()
        for crd in read_crds():
            self.store.install_crd(crd)
        self.server = KubernetesServer(self.store)
        self.pages = Pages()
        self.aws = LocalAws()
        self.sidecars: dict[str, subprocess.Popen[bytes]] = {}
        self.policy = folder / "policy.yaml"
        self.policy.write_text(policy)

    def __enter__(self) -> RealStage:
        self.server.start()
        self.server.write_kubeconfig(self.folder / "kubeconfig")
        self.aws.start()
        self.proxy = CountingProxy(self.aws.address)
        self.proxy.start()
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.sidecars:
            self.kill(node)
        self.proxy.stop()
        self.aws.stop()
        self.pages.stop()
        if self._exporters is not None:
            self._exporters.stop()
        self.server.stop()

    # ------------------------------------------------------------ scenery

    def group(self, size: int) -> dict[str, str]:
        """An Auto Scaling group whose instances are Ready nodes. Returns node -> instance."""
        self.group_name = self.aws.create_group(size=size, HealthCheckGracePeriod=1)  # moto takes 0 for 300
        return {self.join(instance): instance for instance in self.aws.instances(self.group_name)}

    def join(self, instance: str) -> str:
        """The Node of ``instance``, as its kubelet registers it."""
        return self.register(f"ip-{instance[-6:]}", self.aws.provider_id(instance), instance)

    def register(self, name: str, provider_id: str, machine: str) -> str:
        """A Ready Node, whose kubelet shows ``machine`` as its system UUID."""
        self.store.load(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name},
                "spec": {"providerID": provider_id},
                "status": {
                    "nodeInfo": {"bootID": f"boot-of-{machine}", "systemUUID": machine},
                    "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
                    "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                },
            }
        )
        for pod in self._exporters.pods(name) if self._exporters is not None else ():
            namespace = pod["metadata"]["namespace"]
            if not self.store.request("GET", f"/api/v1/namespaces/{namespace}").ok:
                self.store.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
            self.store.load(pod)
        return name

    def sidecar(self, node: str, **more: str) -> subprocess.Popen[bytes]:
        """Start the shipped program on ``node`` (again), by its command."""
        # The image has no kubernetes_validate, which the client imports where it can: 0.1 s for each process.
        absent = self.folder / "absent"
        absent.mkdir(exist_ok=True)
        (absent / "kubernetes_validate.py").write_text("raise ImportError\n")
        with self._log(node).open("ab") as log:
            process = subprocess.Popen(  # noqa: S603
                [Path(sys.executable).with_name("node-recovery"), "run"],
                env={**self._environ(node, more), "PYTHONPATH": str(absent)},
                cwd=self.folder,
                stdout=log,
                stderr=log,
            )
        self.sidecars[node] = process
        return process

    def _environ(self, node: str, more: Mapping[str, str]) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "ENABLE_RECOVERY": "true",
            "NODE_NAME": node,
            "NPD_METRICS_URL": self.pages.url(node),
            "POLICY_FILE": str(self.policy),
            "KUBECONFIG": str(self.folder / "kubeconfig"),
            "METRICS_ADDRESS": "127.0.0.1:0",
            "LEASE_DURATION": "5s",
            "AWS_ENDPOINT_URL": self.proxy.url,
            "AWS_REGION": self.aws.region,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            **more,
        }

    def kill(self, node: str) -> None:
        """``kill -9``."""
        process = self.sidecars[node]
        process.kill()
        process.wait()

    def forget(self, node: str) -> None:
        """As if its recovery had ended long ago: its place in the budget is the next one's."""
        gate = self.store.request("GET", GATE).body
        for places in ("slots", "open"):
            gate["status"][places] = [x for x in gate["status"][places] if x["node"] != node]
        assert self.store.request("PUT", GATE, body=gate).status == 200
        for path in (f"/apis/noderecovery.dev/v1alpha1/noderecoveries/{node}", f"/api/v1/nodes/{node}"):
            self.store.request("DELETE", path)

    # ------------------------------------------------------------ looking

    def records(self) -> dict[str, dict[str, Any]]:
        items = self.store.request("GET", "/apis/noderecovery.dev/v1alpha1/noderecoveries").body["items"]
        return {x["metadata"]["name"]: x["status"] for x in items}

    def _log(self, node: str) -> Path:
        return self.folder / f"{node}.log"

    def log(self, node: str) -> str:
        """What the sidecars of ``node`` have said so far."""
        log = self._log(node)
        return log.read_text() if log.exists() else ""

    def until(self, what: str, true: Callable[[], object], seconds: float = 30) -> None:
        """Wait for something observable; fails with the sidecars' logs."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if true():
                return
            time.sleep(0.05)
        phases = {node: (x["phase"], x["sentence"]) for node, x in self.records().items()}
        logs = "\n".join(f"--- {n}\n{self.log(n)[-500:]}" for n in list(self.sidecars)[:3])
        raise AssertionError(f"not within {seconds} s: {what}\n{phases}\n{logs}"[:5000])

    def ready(self) -> None:
        """Until every sidecar has looked at its node once."""
        self.until("sidecars ready", lambda: all("healthy" in self.log(n) for n in self.sidecars), 60)
