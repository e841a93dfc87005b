"""The agent's own small HTTP server, read-only: metrics, health, and its own view of its node.

Whoever reaches the port may ask for metrics and health; for the view, who brings a token (``asked_by``). So
there are few handlers, a request's head is small, and all of it has to
be done in a few seconds. Where all handlers are taken the oldest gives way: a probe is answered beside those
who are slow on purpose (decision 0023).
"""

from __future__ import annotations

import io
import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from typing import Any
from urllib.parse import parse_qs

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from recovery.report.asked_by import HEADER, PATH

log = logging.getLogger(__name__)

Check = Callable[[], str | None]
"""None is fine; otherwise the reason why not."""
OwnView = Callable[[str], dict[str, Any] | str]
"""What ``/api/v1/explain`` answers about a node, "" is the agent's own; or why there is nothing to answer."""
Refused = Callable[[str, str], str | None]
"""Why who brings this token is not told the view of this node; None if they are."""


NOTHING_MORE: Mapping[str, str] = {}
HANDLERS = 16
"""Requests that are served at a time."""
HEAD = 8 * 1024
"""Bytes of a request's first line and headers."""
WHOLE = 5.0
"""Seconds from the connection to the last byte of the answer."""
GIVES_WAY = 0.2
"""Seconds until a handler whose connection was taken away is gone. Later, the new one is turned away."""


class Server(ThreadingHTTPServer):
    """At most ``HANDLERS`` threads, which end with the process. Few connections may wait."""

    daemon_threads = True
    request_queue_size = 16

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        host, port = address
        if not host and socket.has_dualstack_ipv6():  # every address: the kubelet may use IPv4 or IPv6
            host = "::"
        if ":" in host:
            self.address_family = socket.AF_INET6
        self._handled: dict[Any, None] = {}  # connections, the oldest first
        self._freed = threading.Condition()
        super().__init__((host, port), handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._freed:
            if len(self._handled) >= HANDLERS:
                with suppress(OSError):
                    next(iter(self._handled)).shutdown(socket.SHUT_RDWR)
                self._freed.wait_for(lambda: len(self._handled) < HANDLERS, GIVES_WAY)
            full = len(self._handled) >= HANDLERS
            if not full:
                self._handled[request] = None
        if full:
            super().shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        with self._freed:
            self._handled.pop(request, None)
            self._freed.notify()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A bug is logged. A client that goes away in the middle is not: it could fill the log."""
        if not isinstance(sys.exc_info()[1], OSError):
            log.exception("a bug: a request over HTTP was not answered")

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


def serve(
    address: tuple[str, int],
    registry: CollectorRegistry,
    healthy: Check,
    ready: Check,
    explain: OwnView,
    refused: Refused,
) -> Server:
    """Serve on ``address`` in a thread of its own; port 0 is any free one. Raises ``OSError``."""

    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "node-recovery", ""  # which Python it is, is nobody's business

        def setup(self) -> None:
            super().setup()
            self.rfile = io.BytesIO(_head(self.connection))

        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            if path == "/metrics":
                self._answer(200, generate_latest(registry), CONTENT_TYPE_LATEST)
            elif path in ("/healthz", "/readyz"):
                reason = (healthy if path == "/healthz" else ready)()
                self._answer(503 if reason else 200, (reason or "ok").encode() + b"\n", "text/plain")
            elif path == "/":
                self._answer(200, _front_page(healthy(), ready()), "text/html; charset=utf-8")
            elif path == PATH:
                self._explain((parse_qs(query).get("node") or [""])[0])
            else:
                self._answer(404, b"not found\n", "text/plain")

        def do_HEAD(self) -> None:
            self.do_GET()

        def _refuse(self) -> None:
            self._answer(405, b"read-only: GET and HEAD\n", "text/plain", {"Allow": "GET, HEAD"})

        def _explain(self, node: str) -> None:
            found = explain(node)
            if isinstance(found, str):
                self._say(404, {"message": found})
            elif why := refused(self.headers.get(HEADER, ""), node):
                self._say(403, {"message": why})
            else:
                self._say(200, found)

        def _say(self, status: int, body: dict[str, Any]) -> None:
            self._answer(status, json.dumps(body).encode() + b"\n", "application/json")

        def _answer(
            self, status: int, body: bytes, kind: str, more: Mapping[str, str] = NOTHING_MORE
        ) -> None:
            self.send_response(status)
            for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **more}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return

    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        setattr(Handler, f"do_{method}", Handler._refuse)
    server = Server(address, Handler)
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    return server


def _front_page(sick: str | None, unready: str | None) -> bytes:
    """What the program is and how it is, as the probes say it, and where the rest is: nothing of its node."""
    links = "".join(f'<li><a href="{path}">{path}</a></li>' for path in ("/metrics", "/healthz", "/readyz"))
    name = f"node-recovery {escape(version('node-recovery'))}"
    return (
        f"<!doctype html><title>{name}</title><h1>{name}</h1>"
        f"<p>health: {escape(sick or 'ok')}</p><p>ready: {escape(unready or 'ok')}</p>"
        f"<ul>{links}<li>{PATH}: for those who bring a token, as node-recovery explain does</li></ul>\n"
    ).encode()


def _head(connection: socket.socket) -> bytes:
    """The request's first line and headers; empty where they do not come in time, or are too long.

    What is left of the time is the answer's: ``sendall`` takes a socket's timeout for the whole of it.
    """
    end, head = time.monotonic() + WHOLE, b""
    while b"\r\n\r\n" not in head:
        connection.settimeout(max(end - time.monotonic(), 0.001))
        try:
            more = connection.recv(HEAD)
        except OSError:
            return b""
        head += more
        if not more or len(head) > HEAD:
            return b""
    connection.settimeout(max(end - time.monotonic(), 0.001))
    return head
