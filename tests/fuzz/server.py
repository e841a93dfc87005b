"""A server that answers with whatever a case says, remembers what it was asked, and is otherwise honest."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable
from contextlib import suppress

Answer = Callable[[str, str], tuple[int, dict[str, str], bytes]]
"""Method and path -> status, headers, body."""


class _Threading(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64


class Answering:
    """On loopback, one answer a connection. ``asked``: method and path of each request."""

    def __init__(self) -> None:
        self.answer: Answer = lambda method, path: (404, {}, b"")
        self.raw: bytes | None = None
        """The whole answer, its head included, where this is set."""
        self.asked: list[tuple[str, str]] = []
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                with suppress(OSError, ValueError):
                    outer._handle(self)

        self._server = _Threading(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _handle(self, handler: socketserver.StreamRequestHandler) -> None:
        method, path, _ = handler.rfile.readline().decode("latin-1").split(" ")
        length = 0
        while (line := handler.rfile.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        handler.rfile.read(length)
        self.asked.append((method, path))
        if self.raw is not None:
            handler.wfile.write(self.raw)
            return
        status, headers, body = self.answer(method, path)
        head = {
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            **headers,
            "Connection": "close",
        }
        lines = [f"HTTP/1.1 {status} Said", *(f"{name}: {value}" for name, value in head.items())]
        handler.wfile.write("\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + body)
