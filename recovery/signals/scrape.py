"""Reads one page over HTTP, bounded in time and size whatever the other side does.

No redirects, no proxy variables: the page must be this node's own.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import zlib
from collections.abc import Collection
from typing import cast
from urllib.parse import SplitResult, urlsplit

from recovery.errors import Unreadable
from recovery.signals.bounded_http import Body, BoundedSocket, Budget, dial
from recovery.signals.page_url import addresses_of, is_own

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


class PageReader:
    """Reads ``url`` again and again, over one connection where the server keeps it open.

    ``deadline`` is in seconds and covers connecting, headers and body together (resolving a host *name* is
    left to the system's resolver and its own timeouts; literal addresses need none). ``max_bytes`` bounds the
    body, also after decompression. With ``node_addresses``, each new connection must lead to loopback or to
    one of them, so that a name which comes to resolve elsewhere is noticed. ``who`` should answer there.
    """

    def __init__(
        self,
        url: str,
        deadline: float = DEADLINE,
        max_bytes: int = MAX_BYTES,
        node_addresses: Collection[str] | None = None,
        who: str = "node-problem-detector",
    ) -> None:
        parts = urlsplit(url)
        self.url = url
        self._deadline = deadline
        self._max_bytes = max_bytes
        self._who = who
        self._own = None if node_addresses is None else addresses_of(node_addresses)
        self._parts = parts
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._connection: http.client.HTTPConnection | None = None

    def trust(self, node_addresses: Collection[str]) -> None:
        """From now on each new connection must lead to loopback or to one of these addresses."""
        self._own = addresses_of(node_addresses)

    def read(self) -> bytes:
        """The page's body, decompressed. Raises ``Unreadable``, nothing else."""
        budget = Budget(self._deadline, self._max_bytes + _HEADERS)
        try:
            with self._ask(budget) as response:
                return self._body(response)
        except Unreadable:
            self.close()
            raise
        except TimeoutError:
            self.close()
            raise Unreadable(f"no complete answer within {self._deadline:g} s") from None
        except (OSError, http.client.HTTPException, zlib.error, ValueError, OverflowError) as error:
            self.close()
            raise Unreadable(_said(error, self._who)) from error

    def close(self) -> None:
        """Close the connection; the next read opens a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, budget: Budget) -> http.client.HTTPResponse:
        """Send the request and read the headers.

        A kept connection that the server has closed meanwhile says nothing about the page: once more on a
        new one, within the same budget.
        """
        kept = self._connection
        if kept is not None and kept.sock is not None and cast("BoundedSocket", kept.sock).renew(budget):
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

    def _connect(self, budget: Budget) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        https = self._parts.scheme == "https"
        sock = dial(host, port or (443 if https else 80), budget)
        try:
            peer = str(sock.getpeername()[0])
            if self._own is not None and not is_own(peer, self._own):
                raise Unreadable(f"{host} leads to {peer}, which is not this node")
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if https:
                sock.settimeout(budget.left())
                sock = ssl.create_default_context().wrap_socket(sock, server_hostname=host)
        except BaseException:
            sock.close()
            raise
        connection = http.client.HTTPConnection(host, port)
        connection.sock = cast("socket.socket", BoundedSocket(sock, budget))
        return connection

    def _body(self, response: http.client.HTTPResponse) -> bytes:
        encoding = _accepted(response, self._parts)
        body = Body(self._max_bytes, encoding)
        while piece := response.read(_PIECE):
            body.add(piece)
        if response.length:
            raise Unreadable("the answer was cut: shorter than its Content-Length")
        content = body.end()
        if response.will_close:
            self.close()
        return content


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


def _said(error: Exception, who: str) -> str:
    """A foreign error as a sentence that stays the same while its cause does."""
    if isinstance(error, ConnectionRefusedError):
        return f"the connection was refused: {who} does not listen there"
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
