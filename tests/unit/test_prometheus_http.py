"""What is asked of a Prometheus server, over a real connection, with the real library in between."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from recovery_testkit.clock import FakeClock

from recovery.errors import NoAnswer, Unreadable
from recovery.signals import prometheus_http
from tests.stories.prometheus_server import Server, serving

VECTOR = {"resultType": "vector", "result": []}


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(FakeClock()) as made:
        made.put("ib_dev", 3, node="node-0")
        yield made


def said(server: Server, **more: Any) -> str:
    with pytest.raises(Unreadable) as caught:
        server.client(**more).ask("ib_dev")
    return caught.value.reason


def answers(server: Server, body: Any, status: int = 200) -> None:
    server.answer = (status, body if isinstance(body, bytes) else json.dumps(body).encode())


def test_a_question_is_asked_once_with_a_deadline_and_a_lookback(server: Server) -> None:
    (found,) = server.client().ask("ib_dev")
    assert (found["metric"], found["value"][1]) == ({"__name__": "ib_dev", "node": "node-0"}, "3")
    assert server.asked == [{"query": "ib_dev", "lookback_delta": "180s", "timeout": "10s"}]
    server.client().ask("ib_dev", found["value"][0])
    assert float(server.asked[1]["time"]) == found["value"][0]


def test_the_token_is_read_for_each_question(server: Server, tmp_path: Path) -> None:
    token = tmp_path / "token"
    client = server.client(token_file=str(token))
    for each in ("first", "second"):
        token.write_text(f"{each}\n")
        client.ask("ib_dev")
    assert [h["Authorization"] for h in server.headers] == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize("content", [None, b"", b"a b", b"\xff", b"a\nb"])
def test_without_a_token_that_can_be_read_nothing_is_asked(
    server: Server, tmp_path: Path, content: bytes | None
) -> None:
    token = tmp_path / "token"
    if content is not None:
        token.write_bytes(content)
    assert said(server, token_file=str(token)).startswith("PROMETHEUS_TOKEN_FILE")
    assert server.asked == []


@pytest.mark.parametrize("status", [400, 401, 403, 408, 422, 429, 500, 502, 503, 504])
def test_an_error_is_not_asked_about_again(server: Server, status: int) -> None:
    answers(server, {"status": "error", "errorType": "x", "error": "expanding series: no space"}, status)
    assert said(server) == f"the server answers {status}: expanding series: no space"
    assert len(server.asked) == 1


def test_a_redirect_is_not_followed(server: Server, tmp_path: Path) -> None:
    answers(server, b"", 302)
    assert said(server) == "the server answers 302: redirects are not followed"


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"warnings": ["results may be truncated"]}, "(warnings): results may be truncated"),
        ({"infos": ["metric might not be a counter"]}, "(infos): metric might not be a counter"),
        ({"isPartial": True}, "partial"),
        ({"data": {**VECTOR, "isPartial": True}}, "partial"),
        ({"data": {"resultType": "matrix", "result": []}}, "no instant vector"),
        ({"data": {"resultType": "scalar", "result": [1, "1"]}}, "no instant vector"),
        ({"status": "error"}, "no success"),
        ({"data": {"resultType": "vector", "result": {}}}, "no list of series"),
        ({"data": {}}, "not Prometheus' JSON"),
        ({"data": None}, "not Prometheus' JSON"),
    ],
)
def test_an_answer_that_is_not_whole_is_none(server: Server, more: dict[str, Any], reason: str) -> None:
    answers(server, {"status": "success", "data": VECTOR, **more})
    assert reason in said(server)


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"null", b"[" * 100_000, gzip.compress(b"{}", mtime=0), b"\xff"]
)
def test_rubbish_is_no_answer(server: Server, body: bytes) -> None:
    answers(server, body)
    assert said(server)


def test_a_long_answer_is_not_read_to_its_end(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus_http, "MAX_BYTES", 1000)
    answers(server, b" " * 2000)
    assert said(server) == "the answer is longer than 1000 bytes"


@pytest.mark.slow
def test_a_server_that_hangs_is_waited_for_no_longer_than_said(server: Server) -> None:
    server.delay = 3.0
    began = time.monotonic()
    with pytest.raises(NoAnswer, match="in time"):
        server.client(timeout=0.3).ask("ib_dev")
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
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    assert server.client().ask("ib_dev")


@pytest.mark.slow
def test_neither_a_sidecar_nor_a_controller_without_prometheus_imports_the_library() -> None:
    code = (
        "import sys, recovery.agent.program, recovery.agent.fleet.program\n"
        "sys.exit(any(m in sys.modules for m in ('prometheus_api_client', 'pandas', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0  # noqa: S603
