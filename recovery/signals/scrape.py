"""Reads one page over HTTP, bounded in time and size whatever the other side does.

No redirects, no proxy variables: the page must be this node's own.
"""

from __future__ import annotations

import http.client
import io
import ipaddress
import select
import socket
import ssl
import time
import zlib
from collections.abc import Callable, Collection, Iterable
from typing import Any, cast
from urllib.parse import SplitResult, urlsplit

from recovery.errors import NodeRecoveryError

DEADLINE = 2.0
MAX_BYTES = 4 * 1024 * 1024

_PIECE = 64 * 1024
_HEADERS = 64 * 1024
_CONTENT_TYPES = ("text/plain", "application/openmetrics-text")
_ENCODINGS = {"": 0, "identity": 0, "gzip": 31, "x-gzip": 31, "deflate": 15}
_REQUEST = {
    "Accept": "text/plain;version=0.0.4",
    "Accept-Encoding": "identity",
    "User-Agent": "node-recovery",
}


class Unreadable(NodeRecoveryError):
    """The page could not be read, or is no page of metrics. ``reason`` is a sentence for people."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


# ---------------------------------------------------------------- whose page it is


def resolve(name: str) -> list[str]:
    """All addresses of a host name, as the system resolves it. Raises OSError."""
    return sorted({str(info[4][0]) for info in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)})


def check_url(
    url: str, node_addresses: Collection[str], resolver: Callable[[str], Iterable[str]] = resolve
) -> str | None:
    """Why this URL may not be read as this node's page, or None.

    ``node_addresses`` are the Node's addresses of any type; those that are no IP address are ignored, since
    only what a name resolves to counts.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        return f"NPD_METRICS_URL {url!r} is no URL: {error}"
    if parts.scheme not in ("http", "https"):
        return f"NPD_METRICS_URL {url!r} must begin with http:// or https://"
    if not host:
        return f"NPD_METRICS_URL {url!r} names no host"
    if parts.username is not None:
        return "NPD_METRICS_URL must not hold a user name or password"
    return _check_host(host, _addresses(node_addresses), resolver)


def _check_host(host: str, own: frozenset[str], resolver: Callable[[str], Iterable[str]]) -> str | None:
    if _plain(host) is None:
        try:
            found = list(resolver(host))
        except (OSError, UnicodeError) as error:
            return f"the host {host} of NPD_METRICS_URL does not resolve: {error}"
    else:
        found = [host]
    foreign = [address for address in found if not _own(address, own)]
    if found and not foreign:
        return None
    what = f"{host} ({', '.join(foreign)})" if foreign and foreign != [host] else host
    return f"NPD_METRICS_URL leads to {what}, which is neither loopback nor one of this node's own addresses"


def _plain(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address without its zone, an IPv4 address in IPv6 clothes as IPv4; None for what is no address."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return mapped or parsed


def _addresses(addresses: Collection[str]) -> frozenset[str]:
    return frozenset(str(plain) for a in addresses if (plain := _plain(a)) is not None)


def _own(address: str, own: frozenset[str]) -> bool:
    plain = _plain(address)
    return plain is not None and (plain.is_loopback or str(plain) in own)


# ---------------------------------------------------------------- time and size


class _Budget:
    """What one read may still use: seconds until its deadline, bytes on the wire."""

    def __init__(self, seconds: float, size: int) -> None:
        self.seconds = seconds
        self.until = time.monotonic() + seconds
        self.bytes = size

    def left(self) -> float:
        """Seconds left, always more than 0. Raises Unreadable when there are none."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise Unreadable(f"no complete answer within {self.seconds:g} s")
        return left

    def spend(self, size: int) -> None:
        self.bytes -= size
        if self.bytes < 0:
            raise Unreadable("the answer is too large")


class _Wire(io.RawIOBase):
    """A socket's incoming side that looks at the budget before each piece.

    A timeout on the socket alone bounds each piece and not their sum: a server that sends one byte a second
    would hold the reader for ever.
    """

    def __init__(self, sock: socket.socket, budget: _Budget) -> None:
        super().__init__()
        self._sock = sock
        self._file = sock.makefile("rb", buffering=0)  # keeps the socket open until this is closed too
        self._budget = budget

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(self._budget.left())
        size = self._file.readinto(buffer) or 0
        self._budget.spend(size)
        return size

    def close(self) -> None:
        self._file.close()
        super().close()


class _Socket:
    """The few methods of a socket that ``http.client`` uses, under a budget set anew for each read."""

    def __init__(self, sock: socket.socket, budget: _Budget) -> None:
        self._sock = sock
        self.budget = budget

    def makefile(self, *_: Any, **__: Any) -> io.BufferedReader:
        return io.BufferedReader(_Wire(self._sock, self.budget))

    def renew(self, budget: _Budget) -> bool:
        """Take the next read's budget; False where the connection is closed or holds bytes nobody asked for.

        Those would be taken for the next page, and each page from then on for the one after it.
        """
        self.budget = budget
        waiting, _, _ = select.select([self._sock], [], [], 0)
        return not waiting

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(self.budget.left())
        self._sock.sendall(data)

    def close(self) -> None:
        self._sock.close()


def _dial(host: str, port: int, budget: _Budget) -> socket.socket:
    """Connect to the first of the host's addresses that answers, all within the one budget."""
    failure = OSError()  # a host without an address is an error of getaddrinfo's own
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        timeout = budget.left()
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(timeout)
            sock.connect(address)
        except OSError as error:
            sock.close()
            failure = error
        else:
            return sock
    raise failure


# ---------------------------------------------------------------- the reader


class PageReader:
    """Reads ``url``, again and again, over one connection where the server keeps it open.

    ``deadline`` is in seconds and covers connecting, headers and body together (resolving a host *name* is
    left to the system's resolver and its own timeouts; literal addresses need none). ``max_bytes`` bounds the
    body, also after decompression. With ``node_addresses``, each new connection must lead to loopback or to
    one of them, so that a name which comes to resolve elsewhere is noticed.
    """

    def __init__(
        self,
        url: str,
        deadline: float = DEADLINE,
        max_bytes: int = MAX_BYTES,
        node_addresses: Collection[str] | None = None,
    ) -> None:
        parts = urlsplit(url)
        self.url = url
        self._deadline = deadline
        self._max_bytes = max_bytes
        self._own = None if node_addresses is None else _addresses(node_addresses)
        self._parts = parts
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._connection: http.client.HTTPConnection | None = None

    def trust(self, node_addresses: Collection[str]) -> None:
        """From now on each new connection must lead to loopback or to one of these addresses."""
        self._own = _addresses(node_addresses)

    def read(self) -> bytes:
        """The page's body, decompressed. Raises ``Unreadable``, nothing else."""
        budget = _Budget(self._deadline, self._max_bytes + _HEADERS)
        try:
            with self._ask(budget) as response:
                return self._body(response)
        except Unreadable:
            self.close()
            raise
        except TimeoutError:
            self.close()
            raise Unreadable(f"no complete answer within {self._deadline:g} s") from None
        except (OSError, http.client.HTTPException, zlib.error, ValueError) as error:
            self.close()
            raise Unreadable(_said(error)) from error

    def close(self) -> None:
        """Close the connection; the next read opens a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, budget: _Budget) -> http.client.HTTPResponse:
        """Send the request and read the headers.

        A kept connection that the server has closed meanwhile says nothing about the page: once more on a
        new one, within the same budget.
        """
        kept = self._connection
        if kept is not None and kept.sock is not None and cast("_Socket", kept.sock).renew(budget):
            try:
                return self._exchange(kept)
            except (ConnectionError, http.client.BadStatusLine):
                pass
        self.close()
        self._connection = self._connect(budget)
        return self._exchange(self._connection)

    def _exchange(self, connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
        connection.request("GET", self._target, headers=_REQUEST)
        return connection.getresponse()

    def _connect(self, budget: _Budget) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        https = self._parts.scheme == "https"
        sock = _dial(host, port or (443 if https else 80), budget)
        try:
            peer = str(sock.getpeername()[0])
            if self._own is not None and not _own(peer, self._own):
                raise Unreadable(f"{host} leads to {peer}, which is not this node")
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if https:
                sock.settimeout(budget.left())
                sock = ssl.create_default_context().wrap_socket(sock, server_hostname=host)
        except BaseException:
            sock.close()
            raise
        connection = http.client.HTTPConnection(host, port)
        connection.sock = cast("socket.socket", _Socket(sock, budget))
        return connection

    def _body(self, response: http.client.HTTPResponse) -> bytes:
        encoding = _accepted(response, self._parts)
        pieces = _Pieces(self._max_bytes, encoding)
        while piece := response.read(_PIECE):
            pieces.add(piece)
        if response.length:
            raise Unreadable("the answer was cut: shorter than its Content-Length")
        body = pieces.end()
        if response.will_close:
            self.close()
        return body


def _accepted(response: http.client.HTTPResponse, parts: SplitResult) -> int:
    """The body's window bits for zlib, 0 for a body as it is. Raises Unreadable unless it can be a page."""
    status = response.status
    if 300 <= status < 400:
        where = response.headers.get("Location", "nowhere")[:200]
        raise Unreadable(f"the server redirects to {where} ({status}); redirects are not followed")
    if status != http.client.OK:
        raise Unreadable(f"the server answers {status} {response.reason[:80]}".rstrip())
    content_type = response.headers.get("Content-Type", "")
    if content_type.partition(";")[0].strip().lower() not in _CONTENT_TYPES:
        raise Unreadable(f"{parts.path or '/'} is {content_type[:80] or 'of no content type'}, not metrics")
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    if encoding not in _ENCODINGS:
        raise Unreadable(f"the answer is encoded as {encoding[:40]}, which was not asked for")
    return _ENCODINGS[encoding]


class _Pieces:
    """A body as it comes in, never larger than ``limit`` bytes, decompressed with that bound."""

    def __init__(self, limit: int, window_bits: int) -> None:
        self._limit = limit
        self._body = bytearray()
        self._unpacker = zlib.decompressobj(window_bits) if window_bits else None

    def add(self, piece: bytes) -> None:
        if self._unpacker is not None:
            piece = self._unpacker.decompress(piece, self._limit - len(self._body) + 1)
        self._body += piece
        if len(self._body) > self._limit:
            raise Unreadable(f"the page is larger than {self._limit} bytes")
        if self._unpacker is not None and self._unpacker.unused_data:
            raise Unreadable("the compressed page goes on after its end")

    def end(self) -> bytes:
        if self._unpacker is not None and not self._unpacker.eof:
            raise Unreadable("the compressed page was cut")
        return bytes(self._body)


def _said(error: Exception) -> str:
    """A foreign error as a sentence that stays the same while its cause does."""
    if isinstance(error, ConnectionRefusedError):
        return "the connection was refused: node-problem-detector does not listen there"
    if isinstance(error, http.client.IncompleteRead):
        return "the answer was cut"
    if isinstance(error, http.client.RemoteDisconnected):
        return "the server closed the connection without an answer"
    if isinstance(error, http.client.LineTooLong):
        return "the answer's headers are too large"
    if isinstance(error, http.client.HTTPException):
        return f"the answer is not HTTP: {type(error).__name__}: {str(error)[:120]}"
    if isinstance(error, zlib.error):
        return "the compressed page is broken"
    return f"{type(error).__name__}: {error}"
