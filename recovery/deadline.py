"""Answers over HTTP that take a fixed time in all, whatever the other side sends, and when.

A time-out on a socket bounds each wait and not their sum: a server, load balancer or proxy that sends a byte
now and then holds the reader for as long as it likes, in the headers and in the body. Here the socket's
time-out is set before each read to what is left until a deadline. This is done where ``http.client`` reads
from the socket. urllib3, requests and botocore all end there, so it holds for TLS, for a proxy's answer, and
for each way to send a body.

No library is imported before somebody uses it: who has one passes its classes or objects.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, Protocol, TypeVar


class Limit(Protocol):
    """What a reader may still use."""

    def left(self) -> float:
        """Seconds, always more than 0. Raises where there are none."""

    def spend(self, size: int) -> None:
        """``size`` bytes have come. Raises where those are too many."""


class Wire(io.RawIOBase):
    """A socket's incoming side that asks its limit before each piece."""

    def __init__(self, sock: socket.socket, limit: Limit) -> None:
        super().__init__()
        self._sock = sock
        self._file = sock.makefile("rb", buffering=0)  # keeps the socket open until this is closed too
        self._limit = limit

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._file.fileno()

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(self._limit.left())
        size = self._file.readinto(buffer) or 0
        self._limit.spend(size)
        return size

    def close(self) -> None:
        self._file.close()
        super().close()


class Patience:
    """A deadline, ``seconds`` from now, that can be put off."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.renew()

    def renew(self, seconds: float | None = None) -> None:
        """Put it off, or forward: ``seconds`` from now; where they are not given, as many as at first."""
        self._until = time.monotonic() + (self._seconds if seconds is None else seconds)

    def left(self) -> float:
        """Seconds left, always more than 0. Raises ``TimeoutError``, as a socket that waited too long."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left

    def spend(self, size: int) -> None:
        """The size is bounded by who reads."""


M = TypeVar("M")
_GIVEN: ContextVar[Patience | None] = ContextVar("patience", default=None)


@contextmanager
def patient(seconds: float) -> Iterator[Patience]:
    """The answers to what is asked within are read with this patience, to their ends. For those that go on:
    it is renewed whenever something of use has come."""
    patience = Patience(seconds)
    token = _GIVEN.set(patience)
    try:
        yield patience
    finally:
        _GIVEN.reset(token)


_SENT_WHILE: ContextVar[Callable[[], bool] | None] = ContextVar("sent while", default=None)


@contextmanager
def sent_while(may: Callable[[], bool]) -> Iterator[None]:
    """A connection that is made within is not used once ``may`` says no: it was not made in time.

    To find an address takes as long as the system's resolver likes, and no time-out bounds that. It comes
    before the first byte is sent, so a request that would come too late is still not sent. To urllib3 that is
    a ``ConnectTimeoutError``.
    """
    token = _SENT_WHILE.set(may)
    try:
        yield
    finally:
        _SENT_WHILE.reset(token)


def may_be_sent() -> bool:
    """What ``sent_while`` says now. For who does more before a request than to connect."""
    may = _SENT_WHILE.get()
    return may is None or may()


class _Answer(http.client.HTTPResponse):
    """An answer for which the socket's time-out is that of the whole, from the first byte of its headers."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        limit = _GIVEN.get()
        if limit is None and (seconds := sock.gettimeout()) is not None:
            limit = Patience(seconds)
        if limit is not None:
            stock, self.fp = self.fp, io.BufferedReader(Wire(sock, limit))
            stock.close()


class _InTime:
    """What is mixed into a class of connections. To send the next question on one that is used again, urllib3
    sets the socket's time-out anew."""

    response_class = _Answer

    def connect(self) -> None:
        stock: Any = super()
        stock.connect()
        if not may_be_sent():
            from urllib3.exceptions import ConnectTimeoutError

            stock.close()
            raise ConnectTimeoutError("it took too long to connect: nothing was sent")


@cache
def in_time(connection: type) -> type:
    """A class of urllib3's connections, or one derived from it, whose answers end in time: the read time-out
    that a request is given is that of its whole answer."""
    if issubclass(connection, _InTime):
        return connection
    return type(connection.__name__, (_InTime, connection), {})


@cache
def _pool(pool: Any) -> type:
    return type(pool.__name__, (pool,), {"ConnectionCls": in_time(pool.ConnectionCls)})


def bound(manager: M) -> M:
    """``manager``, a pool manager of urllib3's that was not used yet. The answers that come through it end in
    time."""
    made: Any = manager
    by_scheme = made.pool_classes_by_scheme.items()
    made.pool_classes_by_scheme = {scheme: _pool(pool) for scheme, pool in by_scheme}
    return manager


@cache
def adapter_class() -> Any:
    """Of what a session of requests' goes through. The answers that come so end in time."""
    from requests.adapters import HTTPAdapter

    class InTime(HTTPAdapter):
        def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
            super().init_poolmanager(*args, **kwargs)
            bound(self.poolmanager)

        def proxy_manager_for(self, proxy: Any, **kwargs: Any) -> Any:
            known = proxy in self.proxy_manager
            manager = super().proxy_manager_for(proxy, **kwargs)
            return manager if known else bound(manager)

    return InTime
