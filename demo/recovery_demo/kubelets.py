"""What happens on a machine: it serves its detector's page, registers its Node, and runs its sidecar."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from recovery_demo import manifests, processes
from recovery_demo.kubeapi import KubeApi

_NODES = "/api/v1/nodes"
_PORT = re.compile(r"serving /metrics, /healthz and /readyz on port (\d+)")


class Detector:
    """A node's problem page over HTTP, as node-problem-detector's Prometheus exporter serves it. It is served
    from the moment at which somebody wants to know where."""

    def __init__(self, page: str) -> None:
        self.body = manifests.page(page)
        self._server: ThreadingHTTPServer | None = None

    def _start(self) -> ThreadingHTTPServer:
        detector = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = self.path == "/metrics"
                body = detector.body if found else b"404 page not found\n"
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                return

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return server

    @property
    def url(self) -> str:
        self._server = self._server or self._start()
        return f"http://127.0.0.1:{self._server.server_address[1]}/metrics"

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


def ready_on(log: bytes) -> int | None:
    """The port on which a process with this log says that it is ready, or None."""
    found = _PORT.search(log.decode(errors="replace"))
    if found is None:
        return None
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{found[1]}/readyz", timeout=1):
            return int(found[1])
    except OSError:
        return None


class Machine:
    """One machine with its kubelet, its detector and its sidecar. ``instance`` is its cloud's name for it,
    empty on bare metal; ``page`` is what its detector shows while it is well."""

    def __init__(
        self, name: str, instance: str, hardware: manifests.Hardware, api: KubeApi, log: Path, page: str
    ) -> None:
        self.name = name
        self.instance = instance
        self.detector = Detector(page)
        self.sidecar: subprocess.Popen[bytes] | None = None
        self.ready = False
        self.settings: dict[str, str] = {}
        """Environment variables of its sidecar alone."""
        self._hardware = hardware
        self._api = api
        self._log = log
        self._log_read = 0
        self._page = page

    def join(self) -> None:
        """Register the Node, then its status."""
        node = manifests.node(self.name, self._hardware)
        made = self._api.post(_NODES, node)
        self._api.put(f"{_NODES}/{self.name}/status", {**made, "status": node["status"]})

    def run_sidecar(self, environment: Mapping[str, str]) -> None:
        """Start the shipped program, configured by its environment alone."""
        self._log_read = self._log.stat().st_size if self._log.exists() else 0
        own = {"NODE_NAME": self.name, "NPD_METRICS_URL": self.detector.url, **self.settings}
        self.sidecar = processes.start(
            [sys.executable, "-m", "recovery", "run"], environment={**environment, **own}, log=self._log
        )

    def became_ready(self) -> bool:
        """True once: when the sidecar's own /readyz says so."""
        if self.ready or self.sidecar is None:
            return False
        port = ready_on(self._log.read_bytes()[self._log_read :])
        if port is None:
            return False
        self.ready = True
        self._report_pod(port)
        return True

    def _report_pod(self, port: int) -> None:
        """Report the pod that the sidecar runs in, as its kubelet would. Its address is this computer's."""
        pod = manifests.detector_pod(self.name, port)
        path = f"/api/v1/namespaces/{manifests.HOME}/pods"
        self._api.delete(
            f"{path}/{pod['metadata']['name']}", at_once=True
        )  # before a boot it had another port
        made = self._api.post(path, pod)
        status = {**manifests.RUNNING, "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}
        self._api.put(f"{path}/{pod['metadata']['name']}/status", {**made, "status": status})

    @property
    def process(self) -> int | None:
        """The process id of its sidecar."""
        return self.sidecar.pid if self.sidecar is not None else None

    def ended(self) -> int | None:
        """The exit code of a sidecar that nobody killed, or None."""
        return self.sidecar.poll() if self.sidecar is not None else None

    def die(self) -> int | None:
        """The machine is off: its sidecar ends as by ``kill -9``. Returns the process id."""
        sidecar, self.sidecar = self.sidecar, None
        if sidecar is not None:
            processes.kill(sidecar)
        self.detector.stop()
        self.ready = False
        return sidecar.pid if sidecar is not None else None

    def fall_silent(self) -> None:
        """Mark the Node as the node controller marks one with a silent kubelet. It would wait 40 s."""
        self._api.patch(f"{_NODES}/{self.name}/status", {"status": manifests.SILENT})

    def boot(self, boot_id: str) -> None:
        """Back after a boot: the same Node, and a detector that has found nothing yet."""
        self._hardware = replace(self._hardware, boot_id=boot_id)
        self.detector = Detector(self._page)
        status = manifests.node_status(self.name, self._hardware)
        self._api.patch(f"{_NODES}/{self.name}/status", {"status": status})

    def forget(self) -> None:
        """Delete the pods and the Node, as the pod garbage collector and the cloud's node controller do."""
        for pod in self._api.items("/api/v1/pods", fieldSelector=f"spec.nodeName={self.name}"):
            meta = pod["metadata"]
            path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
            self._api.delete(path, at_once=True)
        self._api.delete(f"{_NODES}/{self.name}")
