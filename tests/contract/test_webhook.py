"""What a webhook is sent, over a real connection, and what is made of each answer."""

from __future__ import annotations

import json
import logging
import re
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from recovery.errors import NodeRecoveryError, Refused, Retry
from recovery.report import post
from recovery.report.metrics import Metrics
from recovery.report.notice import About, Notice
from recovery.report.publish import Publisher
from recovery.report.webhook import LINES, body_of
from tests.builders.receiver import SECRET, Receiver, receiving
from tests.builders.times import NOW
from tests.builders.tls import certified

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    with receiving(tmp_path) as made:
        yield made


def notice(sentence: str = "node-0 is out of the way", reason: str = "HandedOver", **more: Any) -> Notice:
    plain = {"node": "node-0", "node_uid": "uid-0", "warning": True, "at": NOW}
    return Notice(reason=reason, sentence=sentence, **{**plain, **more})


def why(receiver: Receiver, **more: Any) -> str:
    """Why the message was not delivered."""
    with pytest.raises((Retry, Refused)) as caught:
        receiver.webhook(**more).tell([notice()])
    return str(caught.value)


# ---------------------------------------------------------------- what is sent


def test_json_says_all_that_is_known_of_the_notice(receiver: Receiver) -> None:
    about = About("NeuronHasError_DMA_ERROR", "neuron-hardware", "replace")
    receiver.webhook().tell([notice(key="handedOver", about=about)])
    (told,) = receiver.told
    assert told.pop("id") == body_of(notice(key="handedOver", about=about), "prod")["id"]
    assert told == {
        "version": 1,
        "cluster": "prod",
        "node": "node-0",
        "reason": "HandedOver",
        "warning": True,
        "sentence": "node-0 is out of the way",
        "at": "2026-11-21T03:00:00.000000Z",
        "fault": "NeuronHasError_DMA_ERROR",
        "rule": "neuron-hardware",
        "step": "replace",
        "key": "handedOver",
    }
    assert receiver.headers[0]["Content-Type"] == "application/json"
    assert receiver.paths == [SECRET]


def test_the_page_shows_each_field_of_the_json() -> None:
    shown = re.search(r"```json\n(.*?)```", (ROOT / "docs" / "webhook.md").read_text(), re.DOTALL)
    assert shown is not None
    assert list(json.loads(shown[1])) == list(body_of(notice(), "prod"))


def test_one_notice_has_one_id_and_another_has_another() -> None:
    one, same, other = body_of(notice(), "a"), body_of(notice(), "a"), body_of(notice("another"), "a")
    assert one["id"] == same["id"] != other["id"]


def test_slack_is_told_several_lines_in_one_message(receiver: Receiver) -> None:
    webhook = receiver.webhook(slack=True)
    assert webhook.most == LINES > 1
    webhook.tell([notice(), notice("as good as new", "Recovered", node="node-1")])
    (told,) = receiver.told
    assert told["text"] == (
        "*HandedOver* node-0 (prod): node-0 is out of the way\n*Recovered* node-1 (prod): as good as new"
    )
    assert (told["unfurl_links"], told["unfurl_media"]) == (False, False)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("<!channel> all is lost", "&lt;!channel&gt; all is lost"),
        (
            "<@U024BE7LH> & <https://evil.example|here>",
            "&lt;@\u200bU024BE7LH&gt; &amp; &lt;https://evil.example|here&gt;",
        ),
        ("&lt;!here&gt;", "&amp;lt;!here&amp;gt;"),
        ("@channel @all", "@\u200bchannel @\u200ball"),
        ("one\n*Recovered* node-7 (prod): forged", "one\\n*Recovered* node-7 (prod): forged"),
        ("x" * 5000, "x" * 1024),
    ],
)
def test_a_node_s_words_call_nobody_and_forge_no_line(receiver: Receiver, words: str, text: str) -> None:
    receiver.webhook(slack=True).tell([notice(words)])
    assert receiver.told[0]["text"] == f"*HandedOver* node-0 (prod): {text}"


def test_slack_is_told_no_faster_than_it_takes(receiver: Receiver) -> None:
    webhook = receiver.webhook(slack=True)
    for _ in range(3):
        webhook.tell([notice()])
    assert receiver.pauses == [1.0, 1.0]


# ---------------------------------------------------------------- the URL


def test_the_url_is_read_for_each_message(receiver: Receiver) -> None:
    webhook = receiver.webhook()
    webhook.tell([notice()])
    receiver.file.write_text(f"{receiver.url}/rotated?key=1\n")
    webhook.tell([notice()])
    assert receiver.paths == [SECRET, "/rotated?key=1"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hunter2",
        b"ftp://receiver.example/hunter2",
        b"http://receiver.example/hunter2",
        b"http://10.0.0.1/hunter2",
        b"http://127.0.0.1.evil.example/hunter2",
        b"https://user:hunter2@receiver.example/",
        b"https:///hunter2",
        b"https://receiver.example:hunter2/",
        b"https://receiver.example/hunter2\r\nX: 1",
        b"https://receiver.example/hunter2 x",
        b"https://receiver.example/hunter2\n1",
        b"https://receiver.example/\xc3\xbc/hunter2",
        b"https://receiver.example/\xff/hunter2",
        b"https://[receiver/hunter2",
    ],
)
def test_what_is_no_url_to_be_used_is_refused_without_a_word_of_it(
    receiver: Receiver, content: bytes
) -> None:
    receiver.file.write_bytes(content)
    said = why(receiver)
    assert said.startswith("WEBHOOK_URL_FILE")
    assert receiver.webhook().problem() == said
    assert "hunter2" not in said
    assert "example" not in said
    assert receiver.bodies == []


def test_without_a_file_nothing_is_sent(receiver: Receiver) -> None:
    receiver.file.unlink()
    assert why(receiver) == "WEBHOOK_URL_FILE cannot be read: FileNotFoundError"
    assert receiver.bodies == []


def test_no_more_of_the_file_is_read_than_a_url_has(receiver: Receiver) -> None:
    receiver.file.write_text(f"{receiver.url}/{'x' * 100_000}")
    receiver.webhook().tell([notice()])
    assert len(receiver.paths[0]) < 4096


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "127.8.8.8"])
def test_http_goes_to_this_host_alone(host: str) -> None:
    assert post.usable(f"http://{host}:8080/x").scheme == "http"


# ---------------------------------------------------------------- what comes back


@pytest.mark.parametrize("status", [200, 201, 202, 204])
def test_a_success_is_one(receiver: Receiver, status: int) -> None:
    receiver.answer = (status, b"")
    receiver.webhook().tell([notice()])
    assert len(receiver.bodies) == 1


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_what_may_succeed_is_tried_three_times(receiver: Receiver, status: int) -> None:
    receiver.answer = (status, b"")
    assert why(receiver) == f"the receiver answers {status}"
    assert (len(receiver.bodies), receiver.pauses) == (3, [1.0, 1.0])


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 410, 413, 422])
def test_a_refusal_is_not_sent_again(receiver: Receiver, status: int) -> None:
    receiver.answer = (status, f"Cannot POST {SECRET}".encode())
    assert why(receiver) == f"the receiver answers {status}"
    assert len(receiver.bodies) == 1


@pytest.mark.parametrize(
    ("after", "pause"),
    [("7", 7.0), ("3600", 30.0), ("0", 0.0), ("-1", 1.0), ("Wed, 21 Oct 2026", 1.0), ("9" * 99, 1.0)],
)
def test_the_receiver_says_how_long_to_wait_within_bounds(
    receiver: Receiver, after: str, pause: float
) -> None:
    receiver.answer, receiver.more = (429, b""), {"Retry-After": after}
    why(receiver)
    assert receiver.pauses == [pause, pause]


def test_while_it_fails_each_further_message_is_tried_once(receiver: Receiver) -> None:
    webhook = receiver.webhook()
    receiver.answer = (500, b"")
    for _ in range(3):
        with pytest.raises(Retry):
            webhook.tell([notice()])
    assert len(receiver.bodies) == 3 + 1 + 1
    receiver.answer = None
    webhook.tell([notice()])
    receiver.answer = (500, b"")
    with pytest.raises(Retry):
        webhook.tell([notice()])
    assert len(receiver.bodies) == 5 + 1 + 3


def test_a_lost_answer_is_asked_for_again_with_the_same_id(receiver: Receiver) -> None:
    receiver.cuts = 1
    receiver.webhook().tell([notice()])
    first, second = receiver.told
    assert first == second
    assert receiver.pauses == [1.0]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(receiver: Receiver, status: int) -> None:
    receiver.answer = (status, b"")
    assert why(receiver) == f"the receiver redirects ({status}), and the URL is not given to another"
    assert len(receiver.bodies) == 1


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"no_service", ": no_service"),
        (b"channel_is_archived", ": channel_is_archived"),
        (b"<html>", ""),
        (b"x" * 100_000, ""),
        (b"\xff\xfe", ""),
        (b"services", ""),  # a part of the path
    ],
)
def test_slacks_own_word_is_said_and_nothing_else(receiver: Receiver, body: bytes, said: str) -> None:
    receiver.answer = (404, body)
    assert why(receiver, slack=True) == f"the receiver answers 404{said}"


def test_what_another_receiver_says_is_not_repeated(receiver: Receiver) -> None:
    receiver.answer = (404, b"no_service")
    assert why(receiver) == "the receiver answers 404"


@pytest.mark.slow
def test_a_receiver_that_hangs_is_waited_for_no_longer_than_said(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(post, "SECONDS", 0.1)
    receiver.delay = 1.0
    began = time.monotonic()
    assert why(receiver) == "the receiver gave no answer within 0.1 s"
    assert time.monotonic() - began < 0.9


@pytest.mark.slow
def test_an_answer_that_never_ends_is_not_waited_for(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timeout of the socket alone would begin anew with each byte."""
    monkeypatch.setattr(post, "SECONDS", 0.2)
    receiver.drips = True
    began = time.monotonic()
    assert re.fullmatch("the receiver.* no (complete )?answer within 0.2 s", why(receiver))
    assert time.monotonic() - began < 3


def test_headers_without_end_are_not_read(receiver: Receiver) -> None:
    receiver.more = {f"X-{n}": "y" * 1000 for n in range(90)}
    assert why(receiver) == "the receiver: the answer is too large"


def test_a_receiver_that_is_not_there_is_said_without_its_address(receiver: Receiver) -> None:
    receiver.file.write_text(f"http://127.0.0.1:1{SECRET}")
    assert why(receiver) == "the receiver could not be reached, or gave no answer: ConnectionRefusedError"


# ---------------------------------------------------------------- TLS and proxies


@pytest.fixture
def tls(tmp_path: Path) -> tuple[ssl.SSLContext, str]:
    return certified(tmp_path)


def test_over_tls_only_a_receiver_that_is_certified_is_told(
    tmp_path: Path, tls: tuple[ssl.SSLContext, str]
) -> None:
    context, ca = tls
    with receiving(tmp_path, context) as receiver:
        assert why(receiver) == "the receiver's certificate is not trusted"
        assert receiver.bodies == []
        receiver.webhook(ca_file=ca).tell([notice()])
        assert receiver.paths == [SECRET]
        assert why(receiver, ca_file=str(tmp_path / "none.pem")).endswith("FileNotFoundError")


class Proxy:
    """An HTTP proxy that connects to wherever it is asked to, or refuses."""

    def __init__(self) -> None:
        import select
        import socket

        self.asked: list[tuple[str, str]] = []
        self.status = 200
        of = self

        class Handler(BaseHTTPRequestHandler):
            def do_CONNECT(self) -> None:
                of.asked.append((self.path, self.headers.get("Proxy-Authorization", "")))
                self.send_response(of.status)
                self.end_headers()
                if of.status != 200:
                    return
                host, _, port = self.path.rpartition(":")
                with socket.create_connection((host, int(port))) as far:
                    ends = {self.connection: far, far: self.connection}
                    while True:
                        for end in select.select(list(ends), [], [], 5)[0]:
                            data = end.recv(65536)
                            if not data:
                                return
                            ends[end].sendall(data)

            def log_message(self, *_: Any) -> None:
                """Nobody reads it."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    made = Proxy()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_the_proxy_of_the_environment_is_used_and_learns_the_host_alone(
    tmp_path: Path, tls: tuple[ssl.SSLContext, str], proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, ca = tls
    with receiving(tmp_path, context) as receiver:
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:pass%40word@{proxy.address}")
        receiver.webhook(ca_file=ca).tell([notice()])
        assert proxy.asked == [(receiver.url.removeprefix("https://"), "Basic bWU6cGFzc0B3b3Jk")]
        assert receiver.paths == [SECRET]
        proxy.status = 407
        assert why(receiver, ca_file=ca) == "HTTPS_PROXY: the proxy answers 407"
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        receiver.webhook(ca_file=ca).tell([notice()])
        monkeypatch.delenv("NO_PROXY")
        monkeypatch.setenv("HTTPS_PROXY", "socks5://me:hunter2@proxy.example:1080")
        assert why(receiver, ca_file=ca) == (
            "HTTPS_PROXY: found no address of an HTTP proxy; expected http://HOST:PORT"
        )


# ---------------------------------------------------------------- the secret, and the publisher


def test_no_part_of_the_url_gets_into_a_log(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    webhook = receiver.webhook(slack=True)
    metrics = Metrics()
    publisher = Publisher(NoEvents(), lambda: None, metrics, threaded=False, tellers=(webhook,))
    url = receiver.file.read_text().strip()
    address = receiver.url.removeprefix("http://")
    for n, (content, answer) in enumerate(
        [
            (url, (404, f"Cannot POST {SECRET}".encode())),
            (url, (404, b"services")),
            (url, (500, SECRET.encode())),
            (url, (302, b"")),
            (f"http://127.0.0.1:1{SECRET}", None),
            (f"https://{address}{SECRET}", None),
            (f"http://{address}{SECRET}\x7f", None),
            (f"http://{'x' * 300}.localhost{SECRET}", None),
            (f"https://{'x' * 300}{SECRET}", None),
            (f"ftp://{address}{SECRET}", None),
        ]
    ):
        receiver.file.write_text(content)
        receiver.answer = answer
        publisher.event(notice(f"number {n}", "Recovered"))
        publisher.drain()
    said = caplog.text + "".join(str(record.exc_info) for record in caplog.records)
    assert len(caplog.records) >= 6
    for part in ("SECRET", "hunter2", "services", address, "127.0.0.1", "localhost", "xxx"):
        assert part not in said
    assert metrics.registry.get_sample_value("node_recovery_untold_total", {"sink": "webhook"}) == 10


class NoEvents:
    def create_event(self, body: dict[str, Any]) -> dict[str, Any]:
        return body

    def patch_event(self, name: str, patch: dict[str, Any]) -> None:
        """Nobody looks."""


def test_each_notice_of_a_lost_message_is_counted(receiver: Receiver) -> None:
    receiver.answer = (403, b"")
    metrics = Metrics()
    webhook = receiver.webhook(slack=True)
    publisher = Publisher(NoEvents(), lambda: None, metrics, threaded=False, tellers=(webhook,))
    for n in range(LINES + 5):
        publisher.event(notice(f"number {n}", "Recovered"))
    publisher.drain()
    assert len(receiver.bodies) == 2
    assert metrics.registry.get_sample_value("node_recovery_untold_total", {"sink": "webhook"}) == LINES + 5


def test_every_error_of_the_webhook_is_one_that_the_publisher_counts() -> None:
    assert issubclass(Retry, NodeRecoveryError)
    assert issubclass(Refused, NodeRecoveryError)
