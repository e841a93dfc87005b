"""A server over real HTTP that answers as a test says, and remembers what it was asked."""

from __future__ import annotations

import contextlib
import ssl
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


class AnsweringServer(ABC):
    """``answer``: what is sent instead of what is right, (status, body). ``asked``, ``headers``: the
    questions so far. ``delay``: seconds before each answer, of a server that hangs.

    ``paths`` and ``bodies``: of what was posted. ``more``: headers of the answers. ``cuts``: how many
    requests are taken and not answered. ``drips``: an answer of which a byte comes every now and then."""

    def __init__(self) -> None:
        self.answer: tuple[int, bytes] | None = None
        self.asked: list[dict[str, str]] = []
        self.headers: list[Mapping[str, str]] = []
        self.delay = 0.0
        self.paths: list[str] = []
        self.bodies: list[bytes] = []
        self.more: dict[str, str] = {}
        self.cuts = 0
        self.drips = False
        self.url = ""

    @abstractmethod
    def respond(self, path: str, asked: Mapping[str, str], headers: Mapping[str, str]) -> tuple[int, bytes]:
        """The right answer to a question."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    of: AnsweringServer

    def do_GET(self) -> None:
        parts, headers = urlsplit(self.path), dict(self.headers.items())
        asked = {k: v[0] for k, v in parse_qs(parts.query).items()}
        self.of.asked.append(asked)
        self.of.headers.append(headers)
        if self.of.delay:
            time.sleep(self.of.delay)  # for a client that really waits
        if self.of.cuts:
            self.of.cuts -= 1
            self.close_connection = True
            return
        if self.of.drips:
            self._drip()
            return
        status, body = self.of.answer or self.of.respond(parts.path, asked, headers)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        if 300 <= status < 400:
            self.send_header("Location", "http://127.0.0.1:1/")
        for name, value in self.of.more.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.of.paths.append(self.path)
        self.of.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.do_GET()

    def _drip(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self.wfile.write(b"H")
                time.sleep(0.02)

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """A client that hangs up is a part of some tests."""


@contextmanager
def answering(server: AnsweringServer, tls: ssl.SSLContext | None = None) -> Iterator[None]:
    """``server`` answers at its ``url`` until the end of the block."""
    handler = type("Handler", (_Handler,), {"of": server})
    http = _Http(("127.0.0.1", 0), handler)
    if tls is not None:
        http.socket = tls.wrap_socket(http.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    server.url = f"{'https' if tls is not None else 'http'}://127.0.0.1:{http.server_address[1]}"
    try:
        yield
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
