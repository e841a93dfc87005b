"""A server over real HTTP that answers as a test says, and remembers what it was asked."""

from __future__ import annotations

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
    questions so far. ``delay``: seconds before each answer, of a server that hangs."""

    def __init__(self) -> None:
        self.answer: tuple[int, bytes] | None = None
        self.asked: list[dict[str, str]] = []
        self.headers: list[Mapping[str, str]] = []
        self.delay = 0.0
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
        status, body = self.of.answer or self.of.respond(parts.path, asked, headers)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        if 300 <= status < 400:
            self.send_header("Location", "http://127.0.0.1:1/")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""


@contextmanager
def answering(server: AnsweringServer) -> Iterator[None]:
    """``server`` answers at its ``url`` until the end of the block."""
    handler = type("Handler", (_Handler,), {"of": server})
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    server.url = f"http://127.0.0.1:{http.server_address[1]}"
    try:
        yield
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
