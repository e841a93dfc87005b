"""A socket and a body that cost no more than a fixed time and size, whatever the other side does."""

from __future__ import annotations

import io
import select
import socket
import time
import zlib
from typing import Any

from recovery.deadline import Wire
from recovery.errors import Unreadable


class Budget:
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


class BoundedSocket:
    """The few methods of a socket that ``http.client`` uses, under a budget set anew for each read."""

    def __init__(self, sock: socket.socket, budget: Budget) -> None:
        self._sock = sock
        self.budget = budget

    def makefile(self, *_: Any, **__: Any) -> io.BufferedReader:
        return io.BufferedReader(Wire(self._sock, self.budget))

    def renew(self, budget: Budget) -> bool:
        """Take the next read's budget; False where the connection is closed or holds bytes nobody asked for.

        Those bytes would be taken for the next answer, and every later answer for the one after it.
        """
        self.budget = budget
        waiting, _, _ = select.select([self._sock], [], [], 0)
        return not waiting

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(self.budget.left())
        self._sock.sendall(data)

    def close(self) -> None:
        self._sock.close()


def dial(host: str, port: int, budget: Budget) -> socket.socket:
    """Connect to the first of the host's addresses that answers, all within the one budget."""
    failure = OSError()  # never raised as it is: without an address getaddrinfo raises its own
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


class Body:
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
