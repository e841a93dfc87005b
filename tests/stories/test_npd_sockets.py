"""A page's server in every bad mood, over real sockets. Nothing but ``Unreadable`` comes out, in time."""

from __future__ import annotations

import gzip
import socket
import threading
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from recovery.errors import Unreadable
from recovery.signals.page_url import check_url
from recovery.signals.scrape import PageReader

PAGE = b'problem_counter{reason="A"} 0\nproblem_gauge{reason="A",type="T"} 0\n'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
Mood = Callable[[socket.socket, threading.Event], None]


def whole(body: bytes = PAGE, head: bytes = HEAD, more: bytes = b"") -> bytes:
    """A complete answer."""
    return head + more + b"Content-Length: %d\r\n\r\n" % len(body) + body


def request(sock: socket.socket) -> bytes:
    """One request's bytes, empty when the other side is gone."""
    data = b""
    while not data.endswith(b"\r\n\r\n"):
        piece = sock.recv(4096)
        if not piece:
            return b""
        data += piece
    return data


class Server:
    """Plays a mood on each connection; connections beyond the moods get the last one."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.moods: list[Mood] = []
        self.accepted = 0
        self.requests: list[bytes] = []
        self.stop = threading.Event()
        self.threads: list[threading.Thread] = []
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/metrics"

    def serve(self, *moods: Mood) -> None:
        self.moods = list(moods)
        self._thread(self._accept)

    def answers(self, *answers: bytes) -> None:
        """Each connection gets one of these after its request, then is closed."""
        self.serve(*(self.answer(a) for a in answers))

    def answer(self, data: bytes, then: Mood | None = None) -> Mood:
        def play(sock: socket.socket, stop: threading.Event) -> None:
            self.requests.append(request(sock))
            sock.sendall(data)
            if then is not None:
                then(sock, stop)

        return play

    def close(self) -> None:
        self.stop.set()
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join()
        self.listener.close()

    def _thread(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target)
        self.threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while not self.stop.is_set():
                sock, _ = self.listener.accept()
                mood = self.moods[min(self.accepted, len(self.moods) - 1)]
                self.accepted += 1
                self._thread(lambda sock=sock, mood=mood: self._play(sock, mood))  # type: ignore[misc]

    def _play(self, sock: socket.socket, mood: Mood) -> None:
        with sock, suppress(OSError):
            mood(sock, self.stop)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def reader(server: Server) -> Iterator[PageReader]:
    reader = PageReader(server.url, deadline=2.0, max_bytes=100_000)
    yield reader
    reader.close()


@pytest.fixture
def hasty(server: Server) -> Iterator[PageReader]:
    reader = PageReader(server.url, deadline=0.2, max_bytes=100_000)
    yield reader
    reader.close()


def refusal(reader: PageReader) -> str:
    with pytest.raises(Unreadable) as caught:
        reader.read()
    return caught.value.reason


def forever(piece: bytes, every: float) -> Mood:
    """Sends the piece again and again."""

    def play(sock: socket.socket, stop: threading.Event) -> None:
        while not stop.wait(every):
            sock.sendall(piece)

    return play


def silence(sock: socket.socket, stop: threading.Event) -> None:
    stop.wait(10)


def keeping(server: Server, answer: bytes = b"") -> Mood:
    """Answers every request on one connection."""

    def play(sock: socket.socket, stop: threading.Event) -> None:
        while data := request(sock):
            server.requests.append(data)
            sock.sendall(answer or whole())

    return play


# ---------------------------------------------------------------- what works


def test_a_page_is_read_and_asked_for_uncompressed(server: Server, reader: PageReader) -> None:
    server.answers(whole())
    assert reader.read() == PAGE
    assert b"GET /metrics HTTP/1.1\r\n" in server.requests[0]
    assert b"Accept-Encoding: identity\r\n" in server.requests[0]


def test_the_connection_is_kept_between_polls(server: Server, reader: PageReader) -> None:
    server.serve(keeping(server))
    assert [reader.read() for _ in range(5)] == [PAGE] * 5
    assert server.accepted == 1


def test_a_connection_that_the_server_closed_between_polls_is_opened_anew(
    server: Server, reader: PageReader
) -> None:
    server.answers(whole())
    assert [reader.read() for _ in range(4)] == [PAGE] * 4
    assert server.accepted == 4


def test_a_connection_that_the_server_closes_on_the_next_request_is_opened_anew(
    server: Server, reader: PageReader
) -> None:
    server.serve(
        server.answer(whole(), lambda sock, _: server.requests.append(request(sock))), keeping(server)
    )
    assert [reader.read(), reader.read()] == [PAGE, PAGE]
    assert (server.accepted, len(server.requests)) == (2, 3)


def test_an_answer_nobody_asked_for_is_not_taken_for_the_next_page(
    server: Server, reader: PageReader
) -> None:
    was_read, sent = threading.Event(), threading.Event()

    def unasked(sock: socket.socket, stop: threading.Event) -> None:
        was_read.wait(5)
        sock.sendall(whole(b"stale\n"))
        sent.set()
        silence(sock, stop)

    server.serve(server.answer(whole(b"old\n"), unasked), keeping(server))
    assert reader.read() == b"old\n"
    was_read.set()
    assert sent.wait(5)
    assert reader.read() == PAGE


def test_an_answer_that_ends_with_its_connection_is_read(server: Server, reader: PageReader) -> None:
    server.answers(HEAD + b"Connection: close\r\n\r\n" + PAGE)
    assert [reader.read(), reader.read()] == [PAGE, PAGE]


def test_an_http_1_0_answer_is_read(server: Server, reader: PageReader) -> None:
    server.answers(HEAD.replace(b"HTTP/1.1", b"HTTP/1.0") + b"\r\n" + PAGE)
    assert reader.read() == PAGE


def test_a_chunked_answer_is_read(server: Server, reader: PageReader) -> None:
    chunks = b"5\r\n" + PAGE[:5] + b"\r\n" + b"%x\r\n" % len(PAGE[5:]) + PAGE[5:] + b"\r\n0\r\n\r\n"
    server.serve(keeping(server, HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks))
    assert [reader.read(), reader.read()] == [PAGE, PAGE]
    assert server.accepted == 1


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        (b"gzip", gzip.compress(PAGE, mtime=0)),  # the bytes are in the name: the same in every worker
        (b"x-gzip", gzip.compress(PAGE, mtime=0)),
        (b"deflate", zlib.compress(PAGE)),
        (b"identity", PAGE),
    ],
)
def test_a_compressed_answer_is_unpacked_though_not_asked_for(
    server: Server, reader: PageReader, encoding: bytes, packed: bytes
) -> None:
    server.answers(whole(packed, more=b"Content-Encoding: " + encoding + b"\r\n"))
    assert reader.read() == PAGE


def test_openmetrics_is_accepted(server: Server, reader: PageReader) -> None:
    server.answers(
        whole(head=b"HTTP/1.1 200 OK\r\nContent-Type: Application/OpenMetrics-Text; version=1.0.0\r\n")
    )
    assert reader.read() == PAGE


def test_proxy_variables_are_not_used(
    server: Server, reader: PageReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")
    server.answers(whole())
    assert reader.read() == PAGE


def test_a_page_is_read_again_after_every_kind_of_failure(server: Server, reader: PageReader) -> None:
    bad = [b"HTTP/1.1 500 Oh\r\n\r\n", b"garbage\r\n\r\n", b"", HEAD + b"Content-Length: 999\r\n\r\n" + PAGE]
    server.answers(*(answer for each in bad for answer in (each, whole())))
    for _ in bad:
        refusal(reader)
        assert reader.read() == PAGE


# ---------------------------------------------------------------- too slow


@pytest.mark.parametrize(
    "before",
    [b"", b"HTTP/1.1 200 OK\r\nX-Slow: ", HEAD + b"\r\n", HEAD + b"Transfer-Encoding: chunked\r\n\r\n1"],
    ids=["status line", "headers", "body", "chunk size"],
)
def test_a_slow_drip_ends_at_the_deadline_wherever_it_drips(
    server: Server, hasty: PageReader, before: bytes
) -> None:
    server.serve(server.answer(before, forever(b"1", 0.01)))
    began = time.monotonic()
    assert refusal(hasty) == "no complete answer within 0.2 s"
    assert 0.15 < time.monotonic() - began < 1.5


@pytest.mark.parametrize("mood", [silence], ids=["never answers"])
def test_a_server_that_never_answers_ends_at_the_deadline(
    server: Server, hasty: PageReader, mood: Mood
) -> None:
    server.serve(mood)
    assert refusal(hasty) == "no complete answer within 0.2 s"


def test_a_server_that_stops_answering_on_a_kept_connection_ends_at_the_deadline(
    server: Server, hasty: PageReader
) -> None:
    server.serve(server.answer(whole(), silence))
    assert hasty.read() == PAGE
    assert refusal(hasty) == "no complete answer within 0.2 s"
    assert server.accepted == 1


def test_a_deadline_that_is_over_before_the_connection_is_made_ends_the_read() -> None:
    """As when a name took all the time there was to be resolved."""
    assert refusal(PageReader("http://127.0.0.1:1/metrics", deadline=0)) == "no complete answer within 0 s"


def test_a_full_backlog_ends_at_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        address = listener.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for sock in waiting:
            sock.setblocking(False)
            sock.connect_ex(address)
        reader = PageReader(f"http://127.0.0.1:{address[1]}/metrics", deadline=0.2)
        assert refusal(reader) == "no complete answer within 0.2 s"
        for sock in waiting:
            sock.close()


# ---------------------------------------------------------------- too large


def test_an_endless_body_ends_at_the_size_limit(server: Server, reader: PageReader) -> None:
    server.serve(server.answer(HEAD + b"\r\n", forever(b"x" * 50_000, 0)))
    assert refusal(reader) == "the page is larger than 100000 bytes"


def test_endless_headers_are_refused(server: Server, reader: PageReader) -> None:
    server.serve(server.answer(HEAD, forever(b"X-More: " + b"y" * 5000 + b"\r\n", 0)))
    assert "too large" in refusal(reader) or "not HTTP" in refusal(reader)


def test_one_huge_header_is_refused(server: Server, reader: PageReader) -> None:
    server.answers(whole(more=b"X-Huge: " + b"y" * 70_000 + b"\r\n"))
    assert refusal(reader) == "the answer's headers are too large"


def test_endless_interim_answers_are_refused(server: Server, reader: PageReader) -> None:
    server.serve(server.answer(b"", forever(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000, 0)))
    assert refusal(reader) == "the answer is too large"


@pytest.mark.parametrize("encoding", [b"gzip", b"deflate"])
def test_a_compression_bomb_is_refused_without_being_unpacked(
    server: Server, reader: PageReader, encoding: bytes
) -> None:
    packer = zlib.compressobj(9, wbits=31 if encoding == b"gzip" else 15)
    bomb = packer.compress(b"\0" * 20_000_000) + packer.flush()
    assert len(bomb) < 100_000
    server.answers(whole(bomb, more=b"Content-Encoding: " + encoding + b"\r\n"))
    tracemalloc.start()
    try:
        assert refusal(reader) == "the page is larger than 100000 bytes"
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


# ---------------------------------------------------------------- cut and broken


def test_a_page_cut_in_the_line_is_refused(server: Server, reader: PageReader) -> None:
    server.answers(whole()[:-10])
    assert refusal(reader) == "the answer was cut: shorter than its Content-Length"


def test_a_chunk_of_a_negative_size_is_refused(server: Server, reader: PageReader) -> None:
    """``http.client`` takes it for a number, and no number of bytes can be read by it."""
    server.answers(HEAD + b"Transfer-Encoding: chunked\r\n\r\n-9223372036854775809\r\n")
    assert refusal(reader)


@pytest.mark.parametrize("tail", [b"", b"\r\n", b"\r\n40\r\nproblem_g"])
def test_a_chunked_answer_cut_short_is_refused(server: Server, reader: PageReader, tail: bytes) -> None:
    chunk = b"%x\r\n" % len(PAGE) + PAGE
    server.answers(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk + tail)
    assert "cut" in refusal(reader)


def test_a_compressed_page_cut_short_is_refused(server: Server, reader: PageReader) -> None:
    server.answers(whole(gzip.compress(PAGE)[:-12], more=b"Content-Encoding: gzip\r\n"))
    assert refusal(reader) == "the compressed page was cut"


def test_a_compressed_page_that_goes_on_after_its_end_is_refused(server: Server, reader: PageReader) -> None:
    server.answers(whole(gzip.compress(PAGE) + b"more", more=b"Content-Encoding: gzip\r\n"))
    assert refusal(reader) == "the compressed page goes on after its end"


def test_a_broken_compressed_page_is_refused(server: Server, reader: PageReader) -> None:
    server.answers(whole(PAGE, more=b"Content-Encoding: gzip\r\n"))
    assert refusal(reader) == "the compressed page is broken"


def test_an_encoding_that_was_not_asked_for_is_refused(server: Server, reader: PageReader) -> None:
    server.answers(whole(PAGE, more=b"Content-Encoding: br\r\n"))
    assert refusal(reader) == "the answer is encoded as br, which was not asked for"


@pytest.mark.parametrize("answer", [b"garbage\r\n\r\n", b"\0" * 100 + b"\r\n", b"HTTP/1.1 abc\r\n\r\n"])
def test_an_answer_that_is_not_http_is_refused(server: Server, reader: PageReader, answer: bytes) -> None:
    server.answers(answer)
    assert refusal(reader).startswith("the answer is not HTTP: ")


def test_a_connection_closed_without_an_answer_is_said(server: Server, reader: PageReader) -> None:
    server.answers(b"")
    assert refusal(reader) == "the server closed the connection without an answer"


# ---------------------------------------------------------------- not the page


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_said_and_not_followed(server: Server, reader: PageReader, status: int) -> None:
    server.answers(
        b"HTTP/1.1 %d Go\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % (status, server.url.encode())
    )
    assert refusal(reader) == f"the server redirects to {server.url} ({status}); redirects are not followed"
    assert server.accepted == 1


@pytest.mark.parametrize(
    "status", [b"500 Internal Server Error", b"404 Not Found", b"204 No Content", b"503 "]
)
def test_any_status_but_200_is_refused(server: Server, reader: PageReader, status: bytes) -> None:
    server.answers(whole(head=b"HTTP/1.1 " + status + b"\r\nContent-Type: text/plain\r\n"))
    assert refusal(reader) == f"the server answers {status.decode().strip()}"


@pytest.mark.parametrize("content_type", [b"text/html", b"application/json", b"text/plainish", b""])
def test_another_content_type_is_refused(server: Server, reader: PageReader, content_type: bytes) -> None:
    server.answers(whole(head=b"HTTP/1.1 200 OK\r\nContent-Type: " + content_type + b"\r\n"))
    shown = content_type.decode() or "of no content type"
    assert refusal(reader) == f"/metrics is {shown}, not metrics"


def test_a_refused_connection_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert refusal(PageReader(f"http://127.0.0.1:{port}/metrics")).startswith("the connection was refused")


def test_a_page_behind_tls_that_speaks_no_tls_is_refused(server: Server) -> None:
    server.answers(whole())
    reader = PageReader(server.url.replace("http:", "https:"), deadline=1.0)
    server.serve(lambda sock, stop: sock.sendall(b"not tls at all"))
    assert "SSL" in refusal(reader)


# ---------------------------------------------------------------- whose page


NODE = ("10.0.1.5", "fd00::5", "ip-10-0-1-5.ec2.internal")
NAMES = {
    "localhost": ["127.0.0.1", "::1"],
    "npd.monitoring.svc": ["10.96.0.7"],
    "ip-10-0-1-5.ec2.internal": ["10.0.1.5"],
    "mixed": ["10.0.1.5", "10.0.1.6"],
    "empty": [],
}


def names(name: str) -> list[str]:
    if name not in NAMES:
        raise OSError("no such name")
    return NAMES[name]


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:20257/metrics",
        "http://127.8.8.8/metrics",
        "http://[::1]:20257/metrics",
        "http://[::ffff:127.0.0.1]:20257/metrics",
        "http://localhost:20257/metrics",
        "http://10.0.1.5:20257/metrics",
        "https://[fd00:0::5]:20257/metrics",
        "http://[fd00::5%25eth0]:20257/metrics",
        "HTTP://ip-10-0-1-5.ec2.internal:20257/metrics",
    ],
)
def test_loopback_and_the_nodes_own_addresses_may_be_read(url: str) -> None:
    assert check_url(url, NODE, names) is None


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://10.0.1.6:20257/metrics", "leads to 10.0.1.6, which is neither loopback nor"),
        ("http://npd.monitoring.svc/metrics", "leads to npd.monitoring.svc (10.96.0.7), which is neither"),
        ("http://mixed/metrics", "leads to mixed (10.0.1.6), which is neither"),
        ("http://0.0.0.0:20257/metrics", "neither loopback"),
        ("http://empty/", "neither loopback"),
        ("http://nowhere/", "the host nowhere of NPD_METRICS_URL does not resolve: no such name"),
        ("ftp://127.0.0.1/", "must begin with http:// or https://"),
        ("127.0.0.1:20257/metrics", "must begin with http:// or https://"),
        ("", "must begin with http:// or https://"),
        ("http:///metrics", "names no host"),
        ("http://127.0.0.1:99999/", "is no URL"),
        ("http://127.0.0.1:x/", "is no URL"),
        ("http://[::1/", "is no URL"),
        ("http://127.0.0.1@10.0.1.6/", "must not hold a user name"),
    ],
)
def test_any_other_url_is_refused_with_its_reason(url: str, reason: str) -> None:
    assert reason in (check_url(url, NODE, names) or "")


def test_localhost_resolves_to_loopback_on_this_machine() -> None:
    assert check_url("http://localhost:20257/metrics", ()) is None


def test_a_name_that_comes_to_lead_elsewhere_is_noticed_at_the_connection(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers(whole())
    reader = PageReader(server.url, node_addresses=())
    assert reader.read() == PAGE
    reader.close()
    monkeypatch.setattr("recovery.signals.scrape.is_own", lambda *_: False)
    assert refusal(reader) == "127.0.0.1 leads to 127.0.0.1, which is not this node"
