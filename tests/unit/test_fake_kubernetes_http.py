"""The HTTP front of the in-memory Kubernetes API: the wire. kubectl meets it in tests/e2e/test_kubectl.py."""

from __future__ import annotations

import http.client
import json
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from recovery_testkit import kubeserver
from recovery_testkit.kubernetes import FaultyApi, KubernetesServer, KubernetesStore, lost_answer, throttled

from tests.builders.objects import node_object

pytestmark = pytest.mark.slow

MERGE = "application/merge-patch+json"
Json = dict[str, Any]
Ask = Callable[..., tuple[int, dict[str, str], Json]]


@pytest.fixture
def store() -> KubernetesStore:
    return KubernetesStore()


@pytest.fixture
def faulty(store: KubernetesStore) -> FaultyApi:
    return FaultyApi(store)


@pytest.fixture
def server(store: KubernetesStore, faulty: FaultyApi) -> Iterator[KubernetesServer]:
    with KubernetesServer(store, api=faulty) as running:
        yield running


@pytest.fixture
def connection(server: KubernetesServer) -> Iterator[http.client.HTTPConnection]:
    opened = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=10)
    yield opened
    opened.close()


@pytest.fixture
def ask(connection: http.client.HTTPConnection) -> Ask:
    def asked(method: str, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, str], Json]:
        sent = json.dumps(body) if isinstance(body, dict | list) else body
        kinds = {"Content-Type": "application/json"} if body is not None else {}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body=sent, headers={**kinds, **named})
        answer = connection.getresponse()
        raw = answer.read()
        found = json.loads(raw) if raw.startswith(b"{") else {"raw": raw.decode()}
        return answer.status, dict(answer.getheaders()), found

    return asked


def test_a_connection_is_kept_and_dated_once(ask: Ask, connection: http.client.HTTPConnection) -> None:
    ask("GET", "/version")
    first = connection.sock
    status, headers, _ = ask("POST", "/api/v1/nodes", node_object(), User_Agent="agent")
    assert connection.sock is first
    assert status == 201
    assert headers["Content-Type"] == "application/json"
    assert "," not in headers["Date"].replace(", ", "", 1)


def test_the_user_agent_is_in_the_history(ask: Ask, store: KubernetesStore) -> None:
    ask("POST", "/api/v1/nodes", node_object(), User_Agent="agent/1")
    assert store.history[-1].actor == "agent/1"


def test_probes_answer_in_plain_words(ask: Ask) -> None:
    for path in ("/healthz", "/readyz", "/livez"):
        assert ask("GET", path)[::2] == (200, {"raw": "ok"})


def test_a_body_over_three_mebibytes_is_413(ask: Ask) -> None:
    assert ask("POST", "/api/v1/nodes", "x", Content_Length=str(4 * 1024 * 1024))[0] == 413


@pytest.mark.parametrize("body", ["{", "rubbish", "[" * 100_000, "\x00", "[]", "7", '"x"'])
def test_a_body_that_is_no_object_is_400(ask: Ask, body: str) -> None:
    assert ask("POST", "/api/v1/nodes", body)[0] == 400


def test_bodies_of_other_kinds_are_415(ask: Ask) -> None:
    kind = "application/vnd.kubernetes.protobuf"
    assert ask("POST", "/api/v1/nodes", "k8s", Content_Type=kind)[0] == 415
    assert ask("POST", "/api/v1/nodes", "{}", Content_Type="text/plain")[0] == 415


def test_chunked_bodies_are_411_and_bad_lengths_400(ask: Ask) -> None:
    assert ask("POST", "/api/v1/nodes", "0\r\n\r\n", Transfer_Encoding="chunked")[0] == 411
    assert ask("POST", "/api/v1/nodes", "x", Content_Length="many")[0] == 400


def test_methods_nobody_knows_are_a_status_too(ask: Ask) -> None:
    status, _, body = ask("BREW", "/api/v1/nodes")
    assert (status, body["kind"]) == (405, "Status")


def test_rubbish_on_the_wire_ends_nothing(server: KubernetesServer, ask: Ask) -> None:
    host, _, port = server.url.removeprefix("http://").partition(":")
    rng = random.Random(7)  # noqa: S311 - the same rubbish in every run
    for _ in range(50):
        with socket.create_connection((host, int(port)), timeout=5) as wire:
            wire.sendall(rng.randbytes(rng.randrange(1, 300)) + b"\r\n\r\n")
    for _ in range(50):
        path = "/" + "".join(rng.choices("/api1v%sn?&=:.\\'\"{}[]é", k=rng.randrange(30)))
        wire_path = path.encode("utf-8", "replace").decode("latin-1")
        with socket.create_connection((host, int(port)), timeout=5) as wire:
            wire.sendall(
                f"GET {wire_path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode("latin-1")
            )
            assert wire.recv(12).startswith(b"HTTP/1.1 ")
    assert ask("GET", "/api/v1/nodes")[0] == 200


def test_a_lost_answer_is_a_broken_connection(ask: Ask, faulty: FaultyApi, store: KubernetesStore) -> None:
    store.load(node_object())
    faulty.fail_next(lambda asked: asked.method == "PATCH", lost_answer)
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        ask("PATCH", "/api/v1/nodes/n1", {"spec": {"unschedulable": True}}, Content_Type=MERGE)
    assert store.request("GET", "/api/v1/nodes/n1").body["spec"] == {"unschedulable": True}


def test_throttling_carries_its_header(ask: Ask, faulty: FaultyApi) -> None:
    faulty.fail_next(lambda asked: True, throttled(2))
    status, headers, _ = ask("GET", "/api/v1/nodes")
    assert (status, headers["Retry-After"]) == (429, "2")


def test_a_watch_streams_lines_until_it_is_over(
    connection: http.client.HTTPConnection, store: KubernetesStore
) -> None:
    connection.request("GET", "/api/v1/nodes?watch=1&timeoutSeconds=1&allowWatchBookmarks=true")
    answer = connection.getresponse()
    store.load(node_object())
    lines = [json.loads(line) for line in answer]
    assert [each["type"] for each in lines] == ["ADDED", "BOOKMARK"]
    connection.request("GET", "/version")
    assert connection.getresponse().status == 200, "the connection serves on after a watch"


def test_a_quiet_watch_hears_bookmarks(store: KubernetesStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubeserver, "BOOKMARKS", 0.05)
    with KubernetesServer(store) as server:
        opened = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=10)
        opened.request("GET", "/api/v1/nodes?watch=1&allowWatchBookmarks=true")
        stream = opened.getresponse()
        for _ in range(2):
            assert json.loads(stream.readline())["type"] == "BOOKMARK"
        opened.close()


def test_a_watch_that_cannot_open_is_a_plain_answer(ask: Ask) -> None:
    assert ask("GET", "/api/v1/rubbish?watch=1")[0] == 404
    assert ask("GET", "/api/v1/nodes?watch=1&fieldSelector=a=b")[0] == 400


def test_stopping_ends_watches_and_idle_connections(store: KubernetesStore) -> None:
    server = KubernetesServer(store).start()
    host = server.url.removeprefix("http://")
    idle, watching = (http.client.HTTPConnection(host, timeout=10) for _ in range(2))
    idle.request("GET", "/version")
    idle.getresponse().read()
    watching.request("GET", "/api/v1/nodes?watch=1")
    stream = watching.getresponse()
    stopper = threading.Thread(target=server.stop)
    stopper.start()
    assert stream.read() == b""
    stopper.join(timeout=5)
    assert not stopper.is_alive()
    for each in (idle, watching):
        each.close()


def test_lists_can_be_tables(ask: Ask, store: KubernetesStore) -> None:
    store.load(node_object())
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    _, _, body = ask("GET", "/api/v1/nodes", Accept=accept)
    assert body["kind"] == "Table"
    assert [column["name"] for column in body["columnDefinitions"]] == [
        "Name",
        "Status",
        "Roles",
        "Age",
        "Version",
    ]
    assert body["rows"][0]["cells"][:2] == ["n1", "Ready"]


# The program


def test_the_program_serves_until_it_is_told_to_stop(tmp_path: Path) -> None:
    objects = tmp_path / "objects.yaml"
    objects.write_text(json.dumps(node_object()), encoding="utf-8")
    command = [sys.executable, "-m", "recovery_testkit.kubernetes", "--port", "0"]
    more = ["--kubeconfig", str(tmp_path / "kubeconfig"), "--load", str(objects)]
    with subprocess.Popen([*command, *more], stdout=subprocess.PIPE, text=True) as program:  # noqa: S603
        assert program.stdout is not None
        url = program.stdout.readline().strip()
        assert json.loads((tmp_path / "kubeconfig").read_text())["clusters"][0]["cluster"]["server"] == url
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
        connection.request("GET", "/api/v1/nodes/n1")
        assert connection.getresponse().status == 200
        program.send_signal(signal.SIGTERM)
        assert program.wait(timeout=10) == 0
        connection.close()
