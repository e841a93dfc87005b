"""An HTTP proxy between an SDK and a local server. It counts requests, and loses, delays or refuses answers.

::

    with CountingProxy(("127.0.0.1", moto_port)) as proxy:
        os.environ["AWS_ENDPOINT_URL"] = proxy.url
        proxy.lose_answer("SetInstanceHealth")      # forwarded, and then the connection is cut
        ...
        assert proxy.count("SetInstanceHealth") == 1

An action is AWS's name of it; for any other server it is method and path: ``POST /machines/m-1/cycle``. You
may give a shell pattern (``POST *``). A rule is used up after ``times`` requests of its action;
rules of one action are used in order.
"""

from __future__ import annotations

import http.client
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape

_SCOPE = re.compile(r"Credential=[^/]+/\d+/[^/]+/([^/]+)/aws4_request")
_RPC = re.compile(r"/service/[^/]+/operation/([A-Za-z]+)")
_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "server", "date"})
_UPSTREAM = 30.0  # seconds


@dataclass(frozen=True)
class Request:
    """One request as it arrived. ``params`` holds the fields of a query-form body; ``at`` is Unix time.

    ``outcome``: what a rule did to it: ``lose``, ``reset`` or ``answer``; empty where nothing was done.
    """

    service: str
    action: str
    params: Mapping[str, str]
    body: bytes
    forwarded: bool
    at: float = field(default_factory=time.time)
    outcome: str = ""


@dataclass
class _Rule:
    action: str
    times: int
    delay: float = 0.0
    refuse: bool = False
    lose: bool = False
    answer: tuple[int, str, bytes] | None = None
    edit: Callable[[bytes], bytes] | None = None


@dataclass
class _State:
    upstream: tuple[str, int]
    requests: list[Request] = field(default_factory=list)
    rules: list[_Rule] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    stopping: threading.Event = field(default_factory=threading.Event)


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: the client was killed in the middle, as tests do it."""


class CountingProxy:
    """Listens on a free port of the loopback interface from ``start`` to ``stop``."""

    def __init__(self, upstream: tuple[str, int]) -> None:
        self._state = _State(upstream)
        self._server = _Server(("127.0.0.1", 0), _handler(self._state))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def start(self) -> CountingProxy:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._state.stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> CountingProxy:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # ------------------------------------------------------------ what was asked

    @property
    def requests(self) -> tuple[Request, ...]:
        """All requests since the last ``forget``, refused ones included."""
        with self._state.lock:
            return tuple(self._state.requests)

    def count(self, *actions: str) -> int:
        """How many requests of ``actions`` arrived; of all, without any."""
        return sum(1 for r in self.requests if not actions or any(fnmatchcase(r.action, a) for a in actions))

    def forget(self) -> None:
        """Drop all requests and rules."""
        with self._state.lock:
            self._state.requests.clear()
            self._state.rules.clear()

    # ------------------------------------------------------------ rules

    def forgive(self) -> None:
        """Drop all rules, and keep what was asked."""
        with self._state.lock:
            self._state.rules.clear()

    def delay(self, action: str, seconds: float, times: int = 1) -> None:
        """Forward, and keep the answer back for ``seconds``."""
        self._add(_Rule(action, times, delay=seconds))

    def lose_answer(self, action: str, times: int = 1) -> None:
        """Forward, and close the connection instead of answering."""
        self._add(_Rule(action, times, lose=True))

    def reset(self, action: str, times: int = 1) -> None:
        """Reset the connection without forwarding. The client cannot know that nothing was done."""
        self._add(_Rule(action, times, refuse=True))

    def fail(self, action: str, status: int, code: str, message: str, times: int = 1) -> None:
        """Answer an error in the query protocol's shape, without forwarding."""
        self._add(_Rule(action, times, answer=(status, "text/xml", _error_xml(status, code, message))))

    def answer(
        self, action: str, body: bytes, content_type: str = "text/xml", times: int = 1, status: int = 200
    ) -> None:
        """Answer ``body`` without forwarding."""
        self._add(_Rule(action, times, answer=(status, content_type, body)))

    def edit(self, action: str, old: str, new: str, times: int = 1) -> None:
        """Forward, and replace text in the answer: for what the server behind cannot say."""
        before, after = old.encode(), new.encode()

        def change(body: bytes) -> bytes:
            assert before in body, f"{old!r} is not in the answer to {action}: {body[:2000]!r}"
            return body.replace(before, after)

        self._add(_Rule(action, times, edit=change))

    def _add(self, rule: _Rule) -> None:
        with self._state.lock:
            self._state.rules.append(rule)


def _error_xml(status: int, code: str, message: str) -> bytes:
    kind = "Sender" if status < 500 else "Receiver"
    return (
        '<ErrorResponse xmlns="http://autoscaling.amazonaws.com/doc/2011-01-01/"><Error>'
        f"<Type>{kind}</Type><Code>{escape(code)}</Code><Message>{escape(message)}</Message></Error>"
        "<RequestId>00000000-0000-0000-0000-000000000000</RequestId></ErrorResponse>"
    ).encode()


def describe(
    method: str, path: str, headers: Mapping[str, str], body: bytes
) -> tuple[str, str, dict[str, str]]:
    """Service, action and fields of a request: AWS's three ways (query, JSON 1.0, RPC v2), and all others."""
    scope = _SCOPE.search(headers.get("Authorization", ""))
    service = scope[1] if scope else ""
    rpc = _RPC.search(urlsplit(path).path)
    if rpc:
        return service, rpc[1], {}
    if target := headers.get("X-Amz-Target"):
        return service, target.rpartition(".")[2], {}
    form = parse_qs(body.decode("utf-8", "replace")) if body[:1].isalpha() else {}
    params = {key: values[0] for key, values in form.items()}
    return service, params.get("Action") or f"{method} {urlsplit(path).path}", params


def _handler(state: _State) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        proxy_state = state

    return Handler


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else every answer waits 40 ms for an acknowledgement
    wbufsize = -1
    proxy_state: _State

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        rule = self._note(body)
        if rule.refuse:
            self._reset()
            return
        if rule.answer is not None:
            self._answer(*rule.answer)
            return
        status, headers, answer = self._forward(body)
        if rule.lose:
            self._close()
            return
        if rule.delay:
            self.proxy_state.stopping.wait(rule.delay)
        if rule.edit is not None:
            answer = rule.edit(answer)
            headers.pop("x-amz-crc32", None)
        self._answer(status, headers.pop("Content-Type", "text/xml"), answer, headers)

    do_GET = do_PUT = do_PATCH = do_DELETE = do_POST  # noqa: N815 (named by http.server)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def _note(self, body: bytes) -> _Rule:
        """Record the request and take the first rule that fits it."""
        state = self.proxy_state
        service, action, params = describe(self.command, self.path, dict(self.headers.items()), body)
        with state.lock:
            fitting = (r for r in state.rules if fnmatchcase(action, r.action) and r.times > 0)
            rule = next(fitting, _Rule(action, 1))
            rule.times -= 1
            forwarded = not rule.refuse and rule.answer is None
            outcome = "lose" if rule.lose else "reset" if rule.refuse else "answer" if rule.answer else ""
            state.requests.append(Request(service, action, params, body, forwarded, outcome=outcome))
        return rule

    def _forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        upstream = http.client.HTTPConnection(*self.proxy_state.upstream, timeout=_UPSTREAM)
        try:
            headers = {k: v for k, v in self.headers.items() if k.lower() not in ("connection", "expect")}
            upstream.request(self.command, self.path, body, headers)
            answer = upstream.getresponse()
            kept = {k: v for k, v in answer.getheaders() if k.lower() not in _HOP}
            return answer.status, kept, answer.read()
        finally:
            upstream.close()

    def _answer(self, status: int, content_type: str, body: bytes, headers: Mapping[str, str] = {}) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()
        except OSError:  # the client has given up waiting
            self.close_connection = True

    def _close(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _reset(self) -> None:
        """Close with RST instead of FIN."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.rfile.close()  # the last reference to the socket
