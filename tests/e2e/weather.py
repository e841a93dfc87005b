"""A proxy between the agents and the API server that loses, delays and refuses requests, by chance.

It has the API server's own certificate, so that the agents take it for the server. Tokens go through it.
"""

from __future__ import annotations

import contextlib
import http.client
import random
import socket
import ssl
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from tls_server import TlsServer, of_the_api_server

FAIR: dict[str, float] = {}
WEATHERS: dict[str, dict[str, float]] = {
    "lossy": {"lost before": 0.15, "lost after": 0.15},
    "slow": {"slow": 0.5},
    "throttled": {"429": 0.4},
    "failing": {"503": 0.6},
    "away": {"lost before": 1.0},
}
"""Of each weather: what happens to a request, and how probable that is."""
LEFT_OUT = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})


class Weather:
    """Listens from ``start`` to ``stop``. ``now`` is the weather of the moment."""

    def __init__(self, port: int, certificates: Path, chance: random.Random) -> None:
        self.upstream = port
        self.now: dict[str, float] = FAIR
        self.counted: Counter[str] = Counter()
        self.lock = threading.Lock()
        self.chance = chance
        self.stopping = threading.Event()
        self.connections: set[socket.socket] = set()
        self._certificates = certificates

    def start(self) -> Weather:
        weather = self

        class Handler(_Handler):
            sky = weather

        class Quiet(TlsServer):
            daemon_threads = False  # they end with their connections, and leave none open

            def handle_error(self, request: Any, client_address: Any) -> None:
                return  # an agent was killed in the middle

        self._server = Quiet(Handler, of_the_api_server(self._certificates))
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def stop(self) -> None:
        self.stopping.set()
        self._server.shutdown()
        for connection in list(self.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()

    def strikes(self) -> str:
        """What happens to this request; empty: nothing."""
        with self.lock:
            drawn = self.chance.random()
            for what, share in self.now.items():
                if drawn < share:
                    self.counted[what] += 1
                    return what
                drawn -= share
        return ""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    sky: Weather

    def setup(self) -> None:
        super().setup()
        self.sky.connections.add(self.connection)

    def finish(self) -> None:
        self.sky.connections.discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        what = self.sky.strikes()
        if what == "lost before":
            self._cut()
        elif what in ("429", "503"):
            self._refuse(int(what))
        else:
            if what == "slow":
                self.sky.stopping.wait(self.sky.chance.uniform(0.2, 4.0))
            self._forward(body, lost=what == "lost after")

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 (named by http.server)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def _forward(self, body: bytes, lost: bool) -> None:
        """Ask the API server, once: a write that a proxy repeats would look like the agent's fault."""
        headers = {k: v for k, v in self.headers.items() if k.lower() not in ("connection", "host")}
        trusting = ssl._create_unverified_context()  # noqa: S323 (loopback, and the tokens are the tests' own)
        upstream = http.client.HTTPSConnection("127.0.0.1", self.sky.upstream, timeout=30, context=trusting)
        try:
            upstream.request(self.command, self.path, body or None, headers)
            answer = upstream.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException):
            self._cut()
            return
        finally:
            upstream.close()
        if lost:
            self._cut()
            return
        kept = {k: v for k, v in answer.getheaders() if k.lower() not in LEFT_OUT}
        self._answer(answer.status, kept, content)

    def _refuse(self, status: int) -> None:
        body = b'{"kind": "Status", "status": "Failure", "message": "the weather", "code": %d}' % status
        self._answer(status, {"Content-Type": "application/json", "Retry-After": "1"}, body)

    def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
        with contextlib.suppress(OSError):
            self.send_response_only(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            self.wfile.flush()

    def _cut(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
