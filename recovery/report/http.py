"""The agent's own small HTTP server, read-only: metrics, health, and its own view of its node."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

Check = Callable[[], str | None]
"""None is fine; otherwise the reason why not."""
OwnView = Callable[[], dict[str, Any] | None]
"""What ``/api/v1/explain`` answers; None where the agent has no node of its own."""


class Server(ThreadingHTTPServer):
    """Its threads end with the process. Few connections may wait."""

    daemon_threads = True
    request_queue_size = 16

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        host, port = address
        if not host and socket.has_dualstack_ipv6():  # every address: the kubelet may use IPv4 or IPv6
            host = "::"
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


def serve(
    address: tuple[str, int], registry: CollectorRegistry, healthy: Check, ready: Check, explain: OwnView
) -> Server:
    """Serve on ``address`` in a thread of its own; port 0 is any free one. Raises ``OSError``."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 5  # seconds a client may take

        def do_GET(self) -> None:
            path = self.path.split("?", 1)[0]
            if path == "/metrics":
                self._answer(200, generate_latest(registry), CONTENT_TYPE_LATEST)
            elif path in ("/healthz", "/readyz"):
                reason = (healthy if path == "/healthz" else ready)()
                self._answer(503 if reason else 200, (reason or "ok").encode() + b"\n", "text/plain")
            elif path == "/api/v1/explain":
                self._explain()
            else:
                self._answer(404, b"not found\n", "text/plain")

        def _explain(self) -> None:
            found = explain()
            body = found or {"error": "this agent has no node of its own (RECOVERY_MODE=concluder)"}
            self._answer(200 if found else 404, json.dumps(body).encode() + b"\n", "application/json")

        def _answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return

    server = Server(address, Handler)
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    return server
