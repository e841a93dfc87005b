"""A fake endpoint of Azure Monitor's custom metrics: takes what Azure takes, refuses the rest, keeps points.

``MetricsEndpoint`` is a callable, so that any server can answer with it; ``serve`` is one by itself::

    endpoint = MetricsEndpoint(clock)
    with serve(endpoint) as url:
        os.environ["AZURE_MONITOR_ENDPOINT"] = url
        endpoint.throttle(60)                        # for the next request
        ...
        assert [p.metric for p in endpoint.points] == ["GPUMissing"]

Sources: the REST API reference, "Metrics - Custom - Create" (content types, required fields); the Azure
Monitor documentation, "Custom metrics" (10 dimensions, 256 characters); the words of the refusals from
influxdata/telegraf#7318, #16448 and MicrosoftDocs/azure-docs#20651. Two time windows are
known, one documented (20 minutes back, 5 ahead) and one observed (30 and 4); it takes what lies in both.

Not known of Azure, and chosen here: that one bad document refuses its whole request, and the status for a
subject that is no resource (400). Left out: which region a request comes to, the number of series and the
length of all names, gzip, and that a new metric takes minutes to be seen.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from recovery.clock import Clock, SystemClock

Answer = tuple[int, dict[str, str], bytes]

DIMENSIONS = 10
CHARACTERS = 256
LARGEST = 4_000_000
OLDEST = timedelta(minutes=20)
FURTHEST = timedelta(minutes=4)
NDJSON = "application/x-ndjson"

_NAME = r"/[^/?#]{1,260}"
_RESOURCE = re.compile(
    rf"(/subscriptions/[0-9a-f-]{{36}}/resourcegroups{_NAME}/providers{_NAME}(?:{_NAME}{_NAME})+)/metrics",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Point:
    """What was stored of one series of one document."""

    subject: str
    namespace: str
    metric: str
    at: datetime
    dimensions: Mapping[str, str]
    minimum: float
    maximum: float
    total: float
    count: int


@dataclass(frozen=True)
class Asked:
    """A request as it came. Header names are in lower case."""

    path: str
    headers: Mapping[str, str]
    body: bytes


class _BadError(Exception):
    """Why Azure would refuse a request, and with which status and code."""

    def __init__(self, message: str, status: int = 400, code: str = "BadRequest") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class MetricsEndpoint:
    """Answers each POST. With a ``token``, no other is accepted.

    What ``throttle``, ``deny``, ``fail``, ``hang`` and ``answer`` ask for is done to the next requests, in
    the order in which it was asked for, and ``times`` times each.
    """

    def __init__(self, clock: Clock | None = None, token: str = "") -> None:
        self._clock = clock or SystemClock()
        self._token = token
        self._next: deque[Callable[[Asked], Answer]] = deque()
        self._let_go = threading.Event()
        self._lock = threading.Lock()
        self.points: list[Point] = []
        self.asked: list[Asked] = []

    def named(self, metric: str) -> list[Point]:
        """The points of one metric."""
        return [p for p in self.points if p.metric == metric]

    # ------------------------------------------------------------ what may go wrong

    def throttle(self, seconds: float | str = 60, times: int = 1) -> None:
        """429, with ``seconds`` as Retry-After, which may also be a date; empty for none."""
        headers = {"Retry-After": f"{seconds:g}" if isinstance(seconds, float) else str(seconds)}
        self.answer(429, _error("TooManyRequests", "throttled"), headers if seconds != "" else {}, times)

    def deny(self, times: int = 1) -> None:
        """403, as for an identity without the role Monitoring Metrics Publisher."""
        self._script(_denied, times)

    def fail(self, status: int = 500, times: int = 1) -> None:
        self.answer(status, _error("InternalServerError", "try again"), {}, times)

    def answer(
        self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None, times: int = 1
    ) -> None:
        """Exactly this answer."""
        self._script(lambda _: (status, dict(headers or {}), body), times)

    def hang(self, seconds: float = 60, times: int = 1) -> None:
        """Take the request, and answer after ``seconds``, or when let go."""

        def late(asked: Asked) -> Answer:
            answer = self._take(asked)
            self._let_go.wait(seconds)
            return answer

        self._script(late, times)

    def let_go(self) -> None:
        """End every ``hang``, and do not hang again."""
        self._let_go.set()

    def _script(self, answer: Callable[[Asked], Answer], times: int) -> None:
        with self._lock:
            self._next.extend([answer] * times)

    # ------------------------------------------------------------ answering

    def __call__(self, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Status, headers and body. ``path`` is as it came, still quoted."""
        asked = Asked(path, {name.lower(): value for name, value in headers.items()}, body)
        with self._lock:
            self.asked.append(asked)
            answer = self._next.popleft() if self._next else self._take
        return answer(asked)

    def _take(self, asked: Asked) -> Answer:
        try:
            self._check(asked)
            points = [p for document in _documents(asked) for p in self._points(asked, document)]
        except _BadError as bad:
            return bad.status, {"Content-Type": "application/json"}, _error(bad.code, str(bad))
        with self._lock:
            self.points += points
        return 200, {}, b""

    def _check(self, asked: Asked) -> None:
        scheme, _, token = asked.headers.get("authorization", "").partition(" ")
        if scheme != "Bearer" or not token or (self._token and token != self._token):
            raise _BadError("Authentication failed.", 401, "AuthenticationFailed")
        if "chunked" in asked.headers.get("transfer-encoding", "").lower():
            raise _BadError("Content-Length is required", 411, "LengthRequired")
        if len(asked.body) > LARGEST:
            raise _BadError("the request is too large", 413, "RequestEntityTooLarge")
        if not _RESOURCE.fullmatch(asked.path):
            raise _BadError("the path should be the ID of a resource, with /metrics behind it")

    def _points(self, asked: Asked, document: Any) -> Iterator[Point]:
        at = self._moment(_field(document, "time", str))
        base = _field(_field(document, "data", dict), "baseData", dict)
        metric, namespace = (_named(_field(base, key, str), key) for key in ("metric", "namespace"))
        names = _strings(base, "dimNames")
        if len(set(names)) != len(names):
            raise _BadError("'dimNames' should not repeat")
        series = _field(base, "series", list)
        if not series:
            raise _BadError("'series' should not be empty")
        subject = unquote(asked.path.removesuffix("/metrics"))
        for one in series:
            values = _strings(one, "dimValues")
            if len(values) != len(names):
                raise _BadError("'dimValues' and 'dimNames' lengths should be equal")
            yield Point(subject, namespace, metric, at, dict(zip(names, values, strict=True)), *_numbers(one))

    def _moment(self, text: str) -> datetime:
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            raise _BadError("'time' should be in ISO 8601 format") from None
        at = at.replace(tzinfo=at.tzinfo or UTC)
        now = self._clock.now()
        if not now - OLDEST <= at <= now + FURTHEST:
            raise _BadError(
                "'time' should not be older than 20 minutes and not more than 4 minutes in the future\r\n"
            )
        return at


# ---------------------------------------------------------------- documents


def _documents(asked: Asked) -> list[Any]:
    kind = asked.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("application/json", NDJSON) or asked.headers.get("content-encoding"):
        raise _BadError(f"the content type {kind!r} is not supported", 415, "UnsupportedMediaType")
    lines = [asked.body] if kind != NDJSON else [line for line in asked.body.split(b"\n") if line.strip()]
    try:
        documents = [json.loads(line, parse_constant=_no_number) for line in lines]
    except ValueError:
        raise _BadError("the body is no JSON") from None
    if not documents:
        raise _BadError("the body is empty")
    return documents


def _no_number(text: str) -> float:
    raise ValueError(text)


def _field(holder: Any, key: str, kind: type) -> Any:
    value = holder.get(key) if isinstance(holder, dict) else None
    if not isinstance(value, kind):
        raise _BadError(f"'{key}' is required")
    return value


def _named(text: Any, key: str) -> str:
    if not isinstance(text, str) or not 1 <= len(text) <= CHARACTERS:
        raise _BadError(f"'{key}' should have 1 to {CHARACTERS} characters")
    return text


def _strings(holder: Any, key: str) -> list[str]:
    found = holder.get(key, []) if isinstance(holder, dict) else None
    if not isinstance(found, list):
        raise _BadError(f"'{key}' should be a list")
    if len(found) > DIMENSIONS:
        raise _BadError("'dimValues' and 'dimNames' lengths should be lesser than 10\r\n")
    return [_named(text, key) for text in found]


def _numbers(series: Any) -> tuple[float, float, float, int]:
    """min, max, sum and count."""
    low, high, total, count = (_number(series, key) for key in ("min", "max", "sum", "count"))
    if count < 1 or count != int(count) or low > high:
        raise _BadError("'count' should be a whole number from 1, and 'min' not more than 'max'")
    return low, high, total, int(count)


def _number(series: Any, key: str) -> float:
    value = series.get(key) if isinstance(series, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _BadError(f"'{key}' is required, and a number")
    return float(value)


def _error(code: str, message: str) -> bytes:
    return json.dumps({"error": {"code": code, "message": message}}).encode()


def _denied(asked: Asked) -> Answer:
    scope = asked.path.removesuffix("/metrics")
    message = (
        "The Azure AD object '00000000-0000-0000-0000-000000000001' does not have permissions to perform "
        f"action 'Microsoft.Insights/Metrics/write' over scope '{scope}'. "
    )
    return 403, {"Content-Type": "application/json"}, _error("AuthenticationFailed", message)


# ---------------------------------------------------------------- a server


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients give up on purpose."""


@contextlib.contextmanager
def serve(endpoint: MetricsEndpoint, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Answers with ``endpoint`` on a free port of the loopback interface; gives its address."""
    server = _Server(("127.0.0.1", 0), _handler(endpoint))
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_port}"
    finally:
        endpoint.let_go()
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(endpoint: MetricsEndpoint) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # one write for headers and body
        timeout = 30

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "")
            size = min(int(length), LARGEST + 1) if length.isdigit() else 0
            status, headers, body = endpoint(self.path, dict(self.headers.items()), self.rfile.read(size))
            self.close_connection = self.close_connection or str(size) != length
            with contextlib.suppress(OSError):  # nobody waits any more
                self._say(status, headers, body)

        def _say(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    return Handler
