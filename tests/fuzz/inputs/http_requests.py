"""Requests to the agent's own server, over a real socket."""

from __future__ import annotations

import socket
from contextlib import suppress
from random import Random

from recovery.errors import ApiError
from recovery.report import http as web
from recovery.report.asked_by import HEADER, AskedBy
from recovery.report.metrics import Metrics
from tests.fuzz.engine import Called, Input

WEIGHT = 2.5
EXAMPLES = [
    f"{method} {path} HTTP/{version}\r\nHost: 127.0.0.1\r\n{header}\r\n".encode()
    for method in ("GET", "POST", "HEAD")
    for path in ("/metrics", "/healthz", "/readyz?verbose", "/api/v1/explain", "/", "http://x/healthz", "//x")
    for version, header in (
        ("1.1", ""),
        ("1.0", "Connection: keep-alive\r\n"),
        ("1.1", "Content-Length: 9\r\nExpect: 100-continue\r\n"),
    )
]
VIEW, TOKEN = "what-it-thinks", "a-token-of-the-account"
WORDS = (
    b"Noderecovery-Token: a-token-of-the-account\r\n", b"Noderecovery-Token: x\r\n", b"GET ", b"POST ", b" HTTP/1.1", b" HTTP/0.9", b" HTTP/2.0", b" HTTP/9999999999.1", b"\r\n", b"\r\n\r\n", b"\n\n", b"Host: ", b"%2e%2e/",
    b"Transfer-Encoding: chunked\r\n", b"Content-Length: -1\r\n", b"Content-Length: 99999999999\r\n", b"Connection: keep-alive\r\n",
    b"Expect: 100-continue\r\n", b"Range: bytes=0-\r\n", b"\t", b": ", b"?", b"#", b"http://", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01",
)  # fmt: skip


class Site:
    """A server whose answers are as large as a busy agent's. ``feed`` is the client."""

    def __init__(self) -> None:
        asked = AskedBy(self._whose, "node-recovery", "node-0")
        asked._wait = lambda seconds: True  # type: ignore[method-assign] # wrong tokens are many here
        server = web.serve(
            ("127.0.0.1", 0),
            Metrics().registry,
            lambda: None,
            lambda: "not yet",
            lambda _: {"faults": VIEW},
            asked.refused,
        )
        self.port, self.fed = server.server_address[1], 0

    @staticmethod
    def _whose(token: str, audience: str) -> str:
        if token != TOKEN:
            raise ApiError("nobody's")
        return "system:serviceaccount:node-recovery:default"

    def feed(self, case: bytes) -> None:
        answer = self.ask(case)
        kinds = (b"HTTP/1.", b"<!DOCTYPE", b"not found", b"ok", b"not yet", b"{", b"#")
        assert answer == b"" or answer.startswith(kinds), answer[:80]
        if VIEW.encode() in answer and TOKEN.encode() not in case:
            raise Called("somebody without a token was told what the agent thinks of its node")
        self.fed += 1
        if self.fed % 50 == 0:
            assert self.ask(b"GET /healthz HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.0 200"), (
                "it does not answer any more"
            )

    def ask(self, case: bytes) -> bytes:
        found = b""
        with suppress(ConnectionError), socket.create_connection(("127.0.0.1", self.port), timeout=8) as sock:
            with suppress(OSError):
                sock.sendall(case)
                sock.shutdown(socket.SHUT_WR)
            while more := sock.recv(65536):
                found += more
        return found


def made(rng: Random) -> bytes:
    headers = b"".join(
        rng.choice((b"X", b"Host", b"Connection", b"Content-Length", b"", b" y", b"\xff")) + rng.choice((b": ", b":", b"", b" : "))
        + rng.choice((b"x", b"close", b"0", b"a" * 9000, b"\0")) + rng.choice((b"\r\n", b"\n", b"\r"))
        for _ in range(rng.choice((0, 1, 3, 101)))
    )  # fmt: skip
    path = rng.choice(
        (b"/metrics", b"/healthz", b"/api/v1/explain", b"/" + b"a" * rng.choice((1, 8200, 70_000)), b"*", b"")
    )
    return (
        rng.choice((b"GET ", b"get ", b"G\0T ", b""))
        + path
        + rng.choice((b" HTTP/1.1", b"", b" ", b" HTTP/x"))
        + b"\r\n"
        + headers
        + b"\r\n"
    )


def make() -> Input:
    told = f"GET /api/v1/explain HTTP/1.1\r\n{HEADER}: {TOKEN}\r\n\r\n".encode()
    endless = b"GET /healthz HTTP/1.1\r\nX: " + b"a" * 20_000_000
    return Input(
        "HTTP requests",
        Site().feed,
        [*EXAMPLES, b"x" * 100_000, endless, told],
        made,
        WORDS,
        WEIGHT,
        ("recovery.report.http", "recovery.report.asked_by"),
    )
