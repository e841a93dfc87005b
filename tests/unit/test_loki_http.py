"""What is asked of a Loki server, over a real connection, and what of its answers is believed."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from recovery_testkit.clock import FakeClock

from recovery.errors import NoAnswer, Unreadable
from recovery.signals import loki_http
from recovery.signals.loki_answer import Line, read
from tests.stories.loki_server import Server, serving, xid

QUERY = '{k8s_daemonset_name="dmesg"} |= "Xid (PCI:"'
END = 10**18
STREAMS = {"resultType": "streams", "result": []}


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(FakeClock()) as made:
        made.put(xid(79), ns=5, node="node-0")
        yield made


def asked(server: Server, **more: Any) -> list[Line]:
    return read(server.client(**more).ask(QUERY, 0, END, 1000), "k8s_node_name", 0, END)


def said(server: Server, **more: Any) -> str:
    with pytest.raises(Unreadable) as caught:
        asked(server, **more)
    return caught.value.reason


def answers(server: Server, body: Any, status: int = 200) -> None:
    server.answer = (status, body if isinstance(body, bytes) else json.dumps(body).encode())


def result(*streams: Any) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": "streams", "result": list(streams)}}


def test_a_question_names_its_time_in_nanoseconds_and_the_oldest_lines_come_first(server: Server) -> None:
    assert asked(server) == [Line(5, "node-0", xid(79))]
    assert server.asked == [
        {"query": QUERY, "start": "0", "end": str(END), "limit": "1000", "direction": "forward"}
    ]


def test_every_value_of_every_stream_is_read(server: Server) -> None:
    for ns in (9, 7, 8):
        server.put(xid(79, ns), ns=ns, node=f"node-{ns % 2}")
    assert [(line.ns, line.node) for line in asked(server)] == [
        (5, "node-0"),
        (7, "node-1"),
        (8, "node-0"),
        (9, "node-1"),
    ]


def test_the_tenant_is_a_header_and_the_token_is_read_for_each_question(
    server: Server, tmp_path: Path
) -> None:
    server.tenant = "fleet-1"
    assert said(server) == "the server answers 401: no org id"
    token = tmp_path / "token"
    client = server.client(tenant="fleet-1", token_file=str(token))
    for each in ("first", "second"):
        token.write_text(f"{each}\n")
        client.ask(QUERY, 0, END, 10)
    assert [h.get("Authorization") for h in server.headers] == [None, "Bearer first", "Bearer second"]
    token.unlink()
    assert said(server, token_file=str(token)) == "LOKI_TOKEN_FILE cannot be read: FileNotFoundError"
    assert len(server.asked) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500, 502, 503, 504])
def test_an_error_is_told_in_one_line_and_not_asked_about_again(server: Server, status: int) -> None:
    answers(server, b"max entries limit\n\x1b[2Jper query exceeded\n", status)
    assert said(server) == f"the server answers {status}: max entries limit  [2Jper query exceeded"
    assert len(server.asked) == 1


def test_a_redirect_is_not_followed(server: Server) -> None:
    answers(server, b"", 302)
    assert said(server) == "the server answers 302: redirects are not followed"


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"warnings": ["partial"]}, "the server says of its answer (warnings): partial"),
        ({"data": {"resultType": "matrix", "result": []}}, "the answer has no streams of lines"),
        ({"status": "error"}, "the answer is no success"),
        ({"data": {"resultType": "streams", "result": {}}}, "the answer is no list of streams"),
        ({"data": {"resultType": "streams"}}, "the answer is no list of streams"),
        ({"data": None}, "the answer has no streams of lines"),
    ],
)
def test_an_answer_that_is_not_whole_is_none(server: Server, more: dict[str, Any], reason: str) -> None:
    answers(server, {"status": "success", "data": STREAMS, **more})
    assert said(server) == reason


@pytest.mark.parametrize(
    "stream",
    [
        None,
        [],
        "x",
        {},
        {"stream": {}},
        {"stream": [], "values": []},
        {"stream": {}, "values": {}},
        {"stream": {"k8s_node_name": 7}, "values": []},
        *(
            {"stream": {}, "values": [v]}
            for v in (None, [], ["5"], [5, "x"], ["5", None], ["5", {}], {"5": 1})
        ),
        *({"stream": {}, "values": [[ns, "x"]]} for ns in ("", "-5", "5.0", "1e3", "٥", "9" * 20, "x", " 5")),
        {"stream": {}, "values": [[str(END), "x"]]},
    ],
    ids=str,
)
def test_what_is_of_the_wrong_kind_or_time_is_no_answer(server: Server, stream: Any) -> None:
    answers(server, result({"stream": {"k8s_node_name": "node-0"}, "values": [["5", "x"]]}, stream))
    assert said(server).startswith("the answer ")


def test_a_third_part_of_a_value_is_left_out(server: Server) -> None:
    answers(server, result({"stream": {}, "values": [["5", "x", {"structuredMetadata": {}}]]}))
    assert asked(server) == [Line(5, "", "x")]


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b"null", b"[" * 100_000, gzip.compress(b"{}", mtime=0), b"\xff", b"9" * 9999],
)
def test_rubbish_is_no_answer(server: Server, body: bytes) -> None:
    answers(server, body)
    assert said(server)


def test_a_long_answer_is_not_read_to_its_end(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loki_http, "MAX_BYTES", 1000)
    answers(server, b" " * 2000)
    assert said(server) == "the answer is longer than 1000 bytes"


@pytest.mark.slow
def test_a_server_that_hangs_is_waited_for_no_longer_than_said(server: Server) -> None:
    server.delay = 3.0
    began = time.monotonic()
    with pytest.raises(NoAnswer, match="in time"):
        asked(server, timeout=0.3)
    assert time.monotonic() - began < 2


def test_a_name_that_no_host_can_have_is_no_answer(server: Server) -> None:
    server.url = "http://h..example"
    assert said(server) == "it cannot be asked: LocationParseError"


def test_a_server_that_is_not_there_and_a_file_that_is_none_are_no_answers(
    server: Server, tmp_path: Path
) -> None:
    server.url = "http://127.0.0.1:1"
    assert said(server) == "no connection"
    server.url = "https://127.0.0.1:1"
    assert said(server, ca_file=str(tmp_path / "none.pem"))


def test_no_proxy_of_the_environment_is_used(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert asked(server)
