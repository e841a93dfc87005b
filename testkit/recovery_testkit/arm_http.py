"""HTTP for the fake Azure: requests as they are recorded, faults on demand, and the server.

HTTP/1.1 with kept connections, loopback, no TLS. What is answered is up to the ``serve`` of a subclass.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import parse_qsl, urlsplit

TOKEN = "fake-for:"  # noqa: S105 (what a token of the fake identity endpoint begins with; its audience follows)
_SECRETS = ("authorization", "x-identity-header")


@dataclass(frozen=True)
class Request:
    """One request as it arrived. Header names are in lower case, and secrets are not among them."""

    kind: Literal["arm", "token", "metrics"]
    method: str
    path: str
    """Without the query, and otherwise as the client wrote it."""
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    at: float
    """By the clock of the fake."""
    action: str
    """The permission that it needs, such as ``Microsoft.Compute/virtualMachines/read``. May be empty."""
    bearer: bool
    """It bore a bearer token."""
    audience: str
    """What the token is for, if the fake identity endpoint gave it."""

    @property
    def mutating(self) -> bool:
        return self.kind == "arm" and self.method != "GET"

    @property
    def line(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any = None
    """Anything that JSON can say; bytes go out as they are; None is no body."""
    headers: Mapping[str, str] = field(default_factory=dict)


class CutError(Exception):
    """No answer: the connection is closed, or reset."""

    def __init__(self, reset: bool = False) -> None:
        super().__init__()
        self.reset = reset


@dataclass
class Fault:
    """What happens to the next ``times`` requests that match ``on``."""

    on: str = ""
    times: int = 1
    delay: float = 0.0
    lose: bool = False
    reset: bool = False
    answer: Answer | None = None

    def fits(self, request: Request) -> bool:
        if request.kind != "arm" or self.times <= 0:
            return False
        return fnmatchcase(request.line, self.on) if self.on else request.mutating


class RequestLog:
    """Records requests, and has the faults that are meant for coming ones.

    ``on`` is a shell pattern of method and path, such as ``GET */instanceView``; without it a fault waits for
    the next request that changes something.
    """

    def __init__(self) -> None:
        self._requests: list[Request] = []
        self._faults: list[Fault] = []
        self._log_lock = threading.Lock()
        self.stopping = threading.Event()

    @property
    def requests(self) -> tuple[Request, ...]:
        """All since the last ``forget``, refused ones, tokens and metrics included."""
        with self._log_lock:
            return tuple(self._requests)

    def mutating(self) -> tuple[Request, ...]:
        """Those that ask the control plane for a change, whether answered or not."""
        return tuple(r for r in self.requests if r.mutating)

    def count(self, *lines: str) -> int:
        """How many requests fit one of these shell patterns of method and path; all, without any."""
        return sum(1 for r in self.requests if not lines or any(fnmatchcase(r.line, p) for p in lines))

    def forget(self) -> None:
        """Drop all requests and faults."""
        with self._log_lock:
            self._requests.clear()
            self._faults.clear()

    def lose_answer(self, on: str = "", times: int = 1) -> None:
        """Carry it out, and close the connection instead of answering."""
        self._add(Fault(on, times, lose=True))

    def reset(self, on: str = "", times: int = 1) -> None:
        """Reset the connection without carrying it out. The client cannot know that nothing was done."""
        self._add(Fault(on, times, reset=True))

    def delay(self, seconds: float, on: str = "", times: int = 1) -> None:
        """Carry it out, and keep the answer back for ``seconds``."""
        self._add(Fault(on, times, delay=seconds))

    def answer(self, on: str, body: bytes, status: int = 200, times: int = 1000) -> None:
        """Answer with these bytes, and carry nothing out."""
        self._add(Fault(on, times, answer=Answer(status, body)))

    def refuse(
        self,
        status: int,
        code: str = "",
        message: str = "",
        *,
        retry_after: float | None = None,
        headers: Mapping[str, str] = {},
        on: str = "",
        times: int = 1,
    ) -> None:
        """Answer an error without carrying it out. A 429 without ``code`` is Compute's throttling."""
        sent = {**headers, **({} if retry_after is None else {"Retry-After": f"{retry_after:g}"})}
        error: dict[str, Any] = {"code": code or "InternalServerError", "message": message or _MESSAGE}
        if status == 429 and not code:
            error = {**_THROTTLED, **({"message": message} if message else {})}
        self._add(Fault(on, times, answer=Answer(status, {"error": error}, sent)))

    def _add(self, fault: Fault) -> None:
        with self._log_lock:
            self._faults.append(fault)

    def note(self, request: Request) -> Fault:
        """Record it and take the first fault that fits."""
        with self._log_lock:
            self._requests.append(request)
            fault = next((f for f in self._faults if f.fits(request)), Fault())
            fault.times -= 1
            return fault


_MESSAGE = "The server was told to answer so."
_THROTTLED = {
    "code": "OperationNotAllowed",
    "message": "The server rejected the request because too many requests have been received for this "
    "subscription.",
    "details": [{"code": "TooManyRequests", "target": "VMScaleSetVMActionsResource", "message": "{}"}],
}


@dataclass(frozen=True)
class Arrived:
    """A request as it came over the wire, secrets included."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    @property
    def authorization(self) -> str:
        return self.headers.get("authorization", "")

    @property
    def base(self) -> str:
        """Where the client thinks it is talking to, for links back."""
        return f"http://{self.headers.get('host', '')}"

    def note(self, kind: Literal["arm", "token", "metrics"], action: str, at: float) -> Request:
        kept = {name: value for name, value in self.headers.items() if name not in _SECRETS}
        bearer = (
            self.authorization.removeprefix("Bearer ") if self.authorization.startswith("Bearer ") else ""
        )
        audience = bearer.removeprefix(TOKEN) if bearer.startswith(TOKEN) else ""
        return Request(
            kind, self.method, self.path, self.query, kept, self.body, at, action, bool(bearer), audience
        )


class Server(ThreadingHTTPServer):
    """Ends its kept connections with itself, so that nothing answers after ``stop``."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], serve: Callable[[Arrived], Answer]) -> None:
        super().__init__(address, _Handler)
        self.serve = serve
        self._open: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        for connection in tuple(self._open):
            _hang_up(connection)
        super().server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: the client was killed in the middle, as tests do it."""


def _hang_up(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else every answer waits 40 ms for an acknowledgement
    wbufsize = 64 * 1024  # headers and body in one write
    server: Server

    def do_POST(self) -> None:
        url = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length") or 0))
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        try:
            self._answer(self.server.serve(Arrived(self.command, url.path, query, headers, body)))
        except CutError as cut:
            self._cut(cut.reset)
        except OSError:  # the client has given up waiting
            self.close_connection = True

    do_GET = do_PUT = do_PATCH = do_DELETE = do_POST  # noqa: N815 (named by http.server)

    def _answer(self, answer: Answer) -> None:
        body = answer.body if isinstance(answer.body, bytes) else b""
        if answer.body is not None and not isinstance(answer.body, bytes):
            body = json.dumps(answer.body).encode()
        headers = {"Content-Type": "application/json; charset=utf-8"} if body else {}
        self.send_response(answer.status)
        for name, value in {**headers, "x-ms-request-id": str(uuid.uuid4()), **answer.headers}.items():
            self.send_header(name, value)
        if answer.status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def _cut(self, reset: bool) -> None:
        self.close_connection = True
        if reset:  # RST instead of FIN
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            self.rfile.close()  # the last reference to the socket
        else:
            _hang_up(self.connection)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the requests are recorded."""
