"""HTTP in front of a Kubernetes API in memory: for real clients (kubectl, the Python client) and for the
demo.

HTTP/1.1 with kept connections, loopback by default, no TLS and no authentication. Watches stream as chunked
JSON lines.
"""

from __future__ import annotations

import json
import select
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

from recovery_testkit.kubefaults import NoAnswerError
from recovery_testkit.kubepaths import flag
from recovery_testkit.kubeproxy import Proxied, ask, proxied
from recovery_testkit.kuberesources import Resource
from recovery_testkit.kubestatus import ApiError, Json, Response, bad_request
from recovery_testkit.kubestore import KubernetesApi, KubernetesStore
from recovery_testkit.kubetable import table
from recovery_testkit.kubewatch import Watch

MAX_BODY = 3 * 1024 * 1024
_IDLE = 0.5
_PROBES = ("/healthz", "/livez", "/readyz")


BOOKMARKS = 60.0
"""Seconds between two bookmarks to every watch that allows them, as kube-apiserver sends them."""


class KubernetesServer:
    """Serves an API on a port. `store` names resources and the time for Table answers; `api` answers the
    requests, by default the store itself, or a `FaultyApi` around it. A context manager: started inside,
    stopped after."""

    def __init__(
        self,
        store: KubernetesStore,
        *,
        api: KubernetesApi | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.store = store
        self.api: KubernetesApi = api or store
        self.watches: set[Watch] = set()
        self._http = _Http((host, port), _Handler)
        self._http.front = self
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._stopping = threading.Event()
        self._bookmarks = threading.Thread(target=self._bookmark, daemon=True)

    @property
    def url(self) -> str:
        """`http://host:port`, with the port that was free."""
        host, port = self._http.server_address[:2]
        return f"http://{host!s}:{port}"

    def start(self) -> KubernetesServer:
        """Begins to answer; returns itself."""
        self._thread.start()
        self._bookmarks.start()
        return self

    def stop(self) -> None:
        """Ends every watch and connection, and frees the port. Waits for the threads."""
        self._stopping.set()
        if self._thread.is_alive():
            self._http.shutdown()
            self._thread.join()
            self._bookmarks.join()
        for watch in list(self.watches):
            watch.close()
        self._http.server_close()

    def _bookmark(self) -> None:
        while not self._stopping.wait(BOOKMARKS):
            self.store.bookmark()

    def __enter__(self) -> KubernetesServer:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def write_kubeconfig(self, path: str | Path) -> Path:
        """Writes a kubeconfig for this server (JSON is YAML); returns its path."""
        name = "node-recovery-demo"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": self.url}}],
            "users": [{"name": name, "user": {}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }
        written = Path(path)
        written.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        return written


class _Http(ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True
    request_queue_size = 128
    front: KubernetesServer

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._open: set[socket.socket] = set()
        self._idle = threading.Condition()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._idle:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._idle:
            self._open.discard(request)
            self._idle.notify_all()
        super().shutdown_request(request)

    def server_close(self) -> None:
        """Lets answers under way be finished for a second; then ends every connection and waits for its
        thread."""
        self._hang_up_all(socket.SHUT_RD)
        with self._idle:
            self._idle.wait_for(lambda: not self._open, timeout=1.0)
        self._hang_up_all(socket.SHUT_RDWR)
        super().server_close()

    def _hang_up_all(self, how: int) -> None:
        with self._idle:
            waiting = list(self._open)
        for each in waiting:
            _hang_up(each, how)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up in the middle is its own business."""


def _hang_up(connection: socket.socket, how: int = socket.SHUT_RDWR) -> None:
    try:
        connection.shutdown(how)
    except OSError:
        return


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    timeout = 300
    server_version = "kubernetes-in-memory"
    _methods: ClassVar[frozenset[str]] = frozenset(("GET", "POST", "PUT", "PATCH", "DELETE"))

    @property
    def _front(self) -> KubernetesServer:
        server = self.server
        assert isinstance(server, _Http)
        return server.front

    def do_GET(self) -> None:
        try:
            self._serve()
        except NoAnswerError:
            self._drop()
        except ApiError as error:
            self._send(Response(error.status, error.headers, error.body))

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - the names that http.server looks for

    def _serve(self) -> None:
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        body = self._read_body()
        if url.path in _PROBES:
            self._send_bytes(200, {"Content-Type": "text/plain"}, b"ok")
        elif self.command == "GET" and (asked := proxied(url.path)):
            self._proxy(asked, url.query)
        elif self.command == "GET" and flag(query, "watch"):
            self._stream(url.path, query)
        else:
            agent = self.headers.get("User-Agent", "")
            kind = self.headers.get("Content-Type")
            answer = self._front.api.request(
                self.command, url.path, query=query, body=body, content_type=kind, user_agent=agent
            )
            self._send(self._as_asked(url.path, answer))

    def _proxy(self, asked: Proxied, query: str) -> None:
        pod = self._front.api.request("GET", asked.pod, user_agent=self.headers.get("User-Agent", ""))
        if not pod.ok:
            self._send(pod)
            return
        status, headers, body = ask(asked, pod.body, query, dict(self.headers.items()))
        self._send_bytes(status, dict(headers), body)

    def _read_body(self) -> Any:
        """The decoded body, None when there is none. Raises `ApiError` 400, 411 or 413 (over 3 MiB)."""
        if self.headers.get("Transfer-Encoding"):
            self.close_connection = True
            raise ApiError(411, "BadRequest", "a body needs a Content-Length")
        length = self.headers.get("Content-Length") or "0"
        if not length.isdecimal():
            self.close_connection = True
            raise bad_request("Content-Length is no number")
        if int(length) > MAX_BODY:
            self.close_connection = True
            message = f"Request entity too large: limit is {MAX_BODY}"
            raise ApiError(413, "RequestEntityTooLarge", message)
        raw = self.rfile.read(int(length))
        if not raw:
            return None
        try:
            return json.loads(raw)
        except (ValueError, RecursionError):
            kind = self.headers.get("Content-Type", "")
            raise _undecodable(kind) from None

    def _as_asked(self, path: str, answer: Response) -> Response:
        resource = self._table_resource(path)
        if not (
            resource and answer.ok and answer.body.get("kind") in (resource.kind, f"{resource.kind}List")
        ):
            return answer
        return Response(answer.status, answer.headers, table(resource, answer.body, self._front.store.now()))

    def _table_resource(self, path: str) -> Resource | None:
        wanted = self.command == "GET" and "as=Table" in self.headers.get("Accept", "")
        return self._front.store.resource_at(path) if wanted else None

    def _stream(self, path: str, query: dict[str, str]) -> None:
        watch = self._front.api.watch(path, query, user_agent=self.headers.get("User-Agent", ""))
        resource = self._table_resource(path)
        self.send_response_only(200)
        for name, value in {**self._front.store.headers(), "Transfer-Encoding": "chunked"}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.flush()
        self._front.watches.add(watch)
        try:
            self._send_events(watch, resource)
        finally:
            watch.close()
            self._front.watches.discard(watch)

    def _send_events(self, watch: Watch, resource: Resource | None) -> None:
        while True:
            event = watch.next(_IDLE)
            if event is not None:
                self._chunk(self._event_line(event, resource))
            elif watch.ended:
                break
            elif _hung_up(self.connection):
                self.close_connection = True
                return
        self._chunk(b"")

    def _event_line(self, event: Json, resource: Resource | None) -> bytes:
        obj = event["object"]
        if resource and obj.get("kind") == resource.kind and event["type"] != "BOOKMARK":
            now = self._front.store.now()
            event = {**event, "object": table(resource, obj, now)}
        return json.dumps(event, separators=(",", ":")).encode() + b"\n"

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _send(self, answer: Response) -> None:
        body = json.dumps(answer.body, separators=(",", ":")).encode() + b"\n"
        headers = {"Content-Type": "application/json", **answer.headers}
        self._send_bytes(answer.status, headers, body)

    def _send_bytes(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response_only(status)
        if "Date" not in headers:
            headers["Date"] = self.date_time_string()
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def _drop(self) -> None:
        self.close_connection = True
        _hang_up(self.connection)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What http.server refuses by itself (an unknown method, a broken request line) is a Status too."""
        self.close_connection = True
        refusal = ApiError(405 if code == 501 else code, "MethodNotAllowed", message or explain or "refused")
        self._send(Response(refusal.status, {}, refusal.body))

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: `store.requests` and `store.history` say what came."""


def _undecodable(kind: str) -> ApiError:
    if "protobuf" in kind or "cbor" in kind:
        return ApiError(
            415, "UnsupportedMediaType", f"the body of the request was in an unknown format: {kind}"
        )
    return bad_request("couldn't get version/kind; json parse error: the body is no JSON")


def _hung_up(connection: socket.socket) -> bool:
    readable, _, _ = select.select([connection], [], [], 0)
    if not readable:
        return False
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except OSError:
        return True
