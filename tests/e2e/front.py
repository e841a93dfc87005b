"""A proxy before the API server or the cloud: who owns it sees each request, and decides what becomes of it.

Kubernetes' watches go through it as they come. It has the API server's own certificate, so that agents take
it for the server. Tokens go through it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Self

from tls_server import TlsServer, of_the_api_server

LEFT_OUT = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})
ANSWERS = 30.0
"""Seconds until an answer begins. A watch may be silent for as long as it is open."""


@dataclass(frozen=True)
class Sent:
    """A request as it came. ``bearer``: the token of who sent it."""

    method: str
    path: str
    body: bytes
    bearer: str

    def json(self) -> Any:
        return json.loads(self.body or b"null")


PASS, CUT = 0, -1
Before = Callable[[Sent], int]
"""What becomes of a request: ``PASS``; ``CUT``: it is not passed on, and its connection ends; or the HTTP
status that it is refused with."""
After = Callable[[Sent, int], bool]
"""Whether the connection ends in place of the answer to a request, which has this status."""


class Front:
    """Listens from ``start`` to ``stop``. ``certificates``: where its certificate is; None for HTTP."""

    def __init__(self, port: int, certificates: Path | None, before: Before, after: After) -> None:
        self.upstream, self.secure = port, certificates is not None
        self.before, self.after = before, after
        self.connections: set[socket.socket] = set()
        self.watches: set[socket.socket] = set()
        """To the server, of the watches that are under way."""
        self.trouble: list[str] = []
        self._certificates = certificates

    def start(self) -> Self:
        this = self

        class Handler(_Handler):
            front = this

        class Quiet(TlsServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                if not isinstance(sys.exception(), OSError):  # its client was killed in the middle
                    this.trouble.append(traceback.format_exc())

        own = of_the_api_server(self._certificates) if self._certificates is not None else None
        self._server = Quiet(Handler, own)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def stop(self) -> None:
        self._server.shutdown()
        _shut(self.connections)
        self._server.server_close()

    def break_watches(self) -> None:
        """Each that is under way ends in the middle."""
        _shut(self.watches)


def _shut(connections: set[socket.socket]) -> None:
    for connection in list(connections):
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    front: Front

    def setup(self) -> None:
        super().setup()
        self.front.connections.add(self.connection)

    def finish(self) -> None:
        self.front.connections.discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if len(body) < length:  # its sender was killed before it had sent the rest
            self._cut()
            return
        bearer = (self.headers.get("Authorization") or "").partition(" ")[2]
        sent = Sent(self.command, self.path, body, bearer)
        fate = self.front.before(sent)
        if fate == PASS:
            self._forward(sent)
        elif fate == CUT:
            self._cut()
        else:
            self._refuse(fate)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 (named by http.server)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def _forward(self, sent: Sent) -> None:
        """Ask the server, once: a write that a proxy repeats would look like the sender's fault."""
        headers = {k: v for k, v in self.headers.items() if k.lower() not in ("connection", "expect")}
        upstream, connection = self._upstream(), None
        try:
            upstream.request(sent.method, sent.path, sent.body or None, headers)
            connection = upstream.sock
            assert connection is not None
            self.front.connections.add(connection)
            answer = upstream.getresponse()
            connection.settimeout(None)
            kept = {k: v for k, v in answer.getheaders() if k.lower() not in LEFT_OUT}
            if "watch=" in sent.path:
                self.front.watches.add(connection)
                self._pass_on(answer, kept)
            else:
                content = answer.read()
                if self.front.after(sent, answer.status):
                    self._cut()
                else:
                    self._answer(answer.status, kept, content)
        except (OSError, http.client.HTTPException):  # its client is dead, or the server is
            self._cut()
        finally:
            if connection is not None:
                self.front.connections.discard(connection)
                self.front.watches.discard(connection)
            upstream.close()

    def _upstream(self) -> http.client.HTTPConnection:
        if not self.front.secure:
            return http.client.HTTPConnection("127.0.0.1", self.front.upstream, timeout=ANSWERS)
        trusting = ssl._create_unverified_context()  # noqa: S323 (loopback, and the tokens are the tests' own)
        return http.client.HTTPSConnection(
            "127.0.0.1", self.front.upstream, timeout=ANSWERS, context=trusting
        )

    def _pass_on(self, answer: http.client.HTTPResponse, headers: Mapping[str, str]) -> None:
        """Each piece as it comes."""
        self._head(answer.status, headers, ("Transfer-Encoding", "chunked"))
        while piece := answer.read1(65536):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _refuse(self, status: int) -> None:
        body = b'{"kind": "Status", "status": "Failure", "message": "not let pass", "code": %d}' % status
        with contextlib.suppress(OSError):
            self._answer(status, {"Content-Type": "application/json", "Retry-After": "1"}, body)

    def _answer(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
        self._head(status, headers, ("Content-Length", str(len(content))))
        self.wfile.write(content)
        self.wfile.flush()

    def _head(self, status: int, headers: Mapping[str, str], length: tuple[str, str]) -> None:
        self.send_response_only(status)
        for name, value in (*headers.items(), length):
            self.send_header(name, value)
        self.end_headers()

    def _cut(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
