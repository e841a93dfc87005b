"""An answer in place of the detector's, its head included, over a real socket to the reader of pages."""

from __future__ import annotations

import gzip
import zlib
from contextlib import suppress
from random import Random

from recovery.errors import Unreadable
from recovery.signals.scrape import PageReader
from tests.fuzz.engine import Input
from tests.fuzz.inputs.npd_page import EXAMPLES as PAGES
from tests.fuzz.server import Answering

WEIGHT = 0.8
WORDS = (
    b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 302 Found\r\nLocation: http://evil.example/\r\n", b"Content-Type: text/plain\r\n", b"\r\n\r\n",
    b"Content-Encoding: gzip\r\n", b"Content-Encoding: deflate\r\n", b"Content-Encoding: br\r\n", b"Transfer-Encoding: chunked\r\n",
    b"Content-Length: 5\r\n", b"Content-Length: -1\r\n", b"Content-Length: 99999999999\r\n", b"ffffffff\r\n", b"0\r\n\r\n", b"Connection: close\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n", b"\x1f\x8b", b"x\x9c",
)  # fmt: skip


class Site:
    def __init__(self) -> None:
        self.server = Answering()
        self.reader = PageReader(f"http://127.0.0.1:{self.server.port}/metrics", deadline=0.8)

    def feed(self, case: bytes) -> None:
        self.server.raw = case
        with suppress(Unreadable):
            assert len(self.reader.read()) <= 4 * 1024 * 1024


def said(body: bytes, *headers: str) -> bytes:
    lines = [
        "HTTP/1.1 200 OK",
        "Content-Type: text/plain; version=0.0.4",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def chunked(body: bytes, size: int = 100) -> bytes:
    pieces = b"".join(
        b"%x\r\n%s\r\n" % (len(body[i : i + size]), body[i : i + size]) for i in range(0, len(body), size)
    )
    return (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
        + pieces
        + b"0\r\n\r\n"
    )


def made(rng: Random) -> bytes:
    body = rng.choice(PAGES)
    return rng.choice((said, lambda b: chunked(b, rng.choice((50, 1000)))))(body)


def make() -> Input:
    page, zeros = PAGES[0], bytes(64 * 1024 * 1024)
    bombs = [
        said(gzip.compress(zeros), "Content-Encoding: gzip"),
        said(zlib.compress(zeros), "Content-Encoding: deflate"),
    ]
    good = [
        said(page),
        said(gzip.compress(page), "Content-Encoding: gzip"),
        said(zlib.compress(page), "Content-Encoding: deflate"),
        chunked(page),
    ]
    much = [
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 50_000 + b"\r\n",
        b"HTTP/1.1 200 " + b"x" * 100_000,
        b"HTTP/1.1 100 C\r\n\r\n" * 5000,
    ]
    endless = [b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n" + b"a" * (5 * 1024 * 1024)]
    modules = ("recovery.signals.scrape", "recovery.signals.bounded_http")
    return Input("NPD's answer", Site().feed, [*good, *bombs, *much, *endless], made, WORDS, WEIGHT, modules)
