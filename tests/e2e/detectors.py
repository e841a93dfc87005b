"""The detectors of the nodes: a real node-problem-detector where there is one, else its captured pages.

A kernel line is written to a node's log, in the driver's words. The real one (``NPD_BINARY``, or the PATH)
reads it there through its ``filelog`` plugin, with the shipped rules; where there is none, the page that a
real one answered to the same line is served on the same address.
"""

from __future__ import annotations

import http.server
import json
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

from launcher import bound_to_us, launch
from plane import free_port

ROOT = Path(__file__).parents[2]
MONITOR = ROOT / "deploy" / "eks-neuron" / "agents" / "neuron-monitor.json"
CAPTURES = ROOT / "tests" / "captures"
HEALTHY = CAPTURES / "neuron-dma-error" / "00-healthy.prom"
CAPTURED = {
    "DMA_ERROR": CAPTURES / "neuron-dma-error" / "01-dma-error.prom",
    "HBM_UNCORRECTABLE_ERROR": CAPTURES / "neuron-masking-and-restart" / "01-hbm-error.prom",
}
DRIVER = "neuron:ncdev: NEURON_HW_ERR={} instance-id={} hostname={} nd-id=0 action=TERMINATE_INSTANCE"


def real() -> str | None:
    """The node-problem-detector of this machine, if it has one."""
    return os.environ.get("NPD_BINARY") or shutil.which("node-problem-detector")


class PlayedBack:
    """A page of a real detector, served as it serves it."""

    def __init__(self, node: str, folder: Path) -> None:
        self.page = HEALTHY.read_bytes()
        self._dead = False
        played = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                if played._dead:  # with a process, the connections that it kept are gone too
                    self.close_connection = True
                    return
                page = played.page
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                self.wfile.write(page)

            def log_message(self, format: str, *args: object) -> None:
                return

        class Quiet(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                return  # a reader was killed in the middle

        self._make = lambda port: Quiet(("127.0.0.1", port), Handler)
        self._server = self._make(0)
        self.port = int(self._server.server_address[1])
        self._serve()

    def _serve(self) -> None:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def kernel(self, code: str, line: str) -> None:
        self.page = CAPTURED[code].read_bytes()

    def kill(self) -> None:
        self._dead = True
        self._server.shutdown()
        self._server.server_close()

    def start_again(self) -> None:
        """As a real one does: it reads the kernel log from the boot on, and finds it all again."""
        self._server = self._make(self.port)
        self._dead = False
        self._serve()

    def flood(self, lines: int) -> None:
        """Lines of the kernel that no rule is about change nothing on the page."""


class Real:
    """A node-problem-detector with the shipped rules, that reads a file in place of /dev/kmsg."""

    def __init__(self, node: str, folder: Path) -> None:
        self.port = free_port()
        self._log = folder / f"{node}.kernel.log"
        self._log.touch()
        rules = json.loads(MONITOR.read_text())
        rules |= {
            "plugin": "filelog",
            "logPath": str(self._log),
            "pluginConfig": {
                "timestamp": "^.{15}",
                "message": r"kernel: \[.*\] (.*)",
                "timestampFormat": "Jan _2 15:04:05",
            },
        }
        self._rules = folder / f"{node}.monitor.json"
        self._rules.write_text(json.dumps(rules))
        self._environ = {"PATH": os.environ["PATH"], "NODE_NAME": node}
        self._out = folder / f"{node}.npd.log"
        self.start_again()

    def start_again(self) -> None:
        command = [
            str(real()),
            "--logtostderr",
            f"--config.system-log-monitor={self._rules}",
            "--prometheus-address=127.0.0.1",
            f"--prometheus-port={self.port}",
            *self.exporter,
        ]
        with self._out.open("ab") as out:
            self._process = launch(self.wrapped(command), env=self._environ, stdout=out, stderr=out)

    exporter = ("--enable-k8s-exporter=false",)

    def wrapped(self, command: list[str]) -> list[str]:
        return bound_to_us(command)

    def kernel(self, code: str, line: str) -> None:
        self._write(line)

    def _write(self, *lines: str) -> None:
        now = time.strftime("%b %e %H:%M:%S")
        with self._log.open("a") as log:
            log.writelines(f"{now} host kernel: [{time.monotonic():12.6f}] {line}\n" for line in lines)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def flood(self, lines: int) -> None:
        self._write(*(f"neuron:ncdev: nothing to see here, line {i}" for i in range(lines)))


class Detectors:
    """One detector for each node."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.kind = Real if real() else PlayedBack
        self._of: dict[str, Real | PlayedBack] = {}

    def described(self) -> str:
        if self.kind is Real:
            return f"node-problem-detector: {real()}, reading a file through filelog in place of /dev/kmsg"
        return "node-problem-detector: its captured pages, played back (NPD_BINARY names no real one)"

    def install(self, node: str) -> None:
        """Nothing where it has one: a Node that could not be registered is registered once more."""
        if node not in self._of:
            self._of[node] = self.kind(node, self._folder)

    def of_another_kind(self, node: str, detector: Real | PlayedBack) -> None:
        self._of[node] = detector

    def url(self, node: str) -> str:
        return f"http://127.0.0.1:{self._of[node].port}/metrics" if node in self._of else ""

    def kernel(self, node: str, code: str, instance: str) -> None:
        """The driver writes a hardware error into the node's kernel log."""
        self._of[node].kernel(code, DRIVER.format(code, instance, node))

    def of(self, node: str) -> Real | PlayedBack:
        return self._of[node]

    def kill(self, node: str) -> None:
        if node in self._of:
            self._of.pop(node).kill()

    def stop(self) -> None:
        for node in list(self._of):
            self.kill(node)
