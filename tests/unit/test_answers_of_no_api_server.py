"""What a person sees where something else answers for the API server: a sentence, and no false promise."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from recovery_testkit.crds import read_crds
from recovery_testkit.kubeserver import KubernetesServer
from recovery_testkit.stage import Stage

from recovery.cli import main

Tell = Callable[[str], None]


@pytest.fixture
def answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tell]:
    """Says what is answered to every request, with status 200."""
    body = [b""]

    class Front(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body[0])))
            self.end_headers()
            self.wfile.write(body[0])

        do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Front)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    where = tmp_path / "kubeconfig"
    url = f"http://127.0.0.1:{server.server_address[1]}"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "x", "cluster": {"server": url}}],
        "users": [{"name": "x", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "current-context": "x",
    }
    where.write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(where))

    def tell(text: str) -> None:
        body[0] = text.encode()

    yield tell
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("items", ['[{"metadata": {}}]', "[{}]", "[null]"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["status", "-o", "json"],
        ["explain", "node-0"],
        ["approve", "SomeReason", "--yes"],
        ["inject", "node-0", "--remove", "--yes"],
        ["uninstall", "--dry-run", "--yes"],
    ],
    ids=" ".join,
)
def test_a_list_of_what_are_no_objects_is_a_sentence_and_no_traceback(
    answer: Tell, arguments: list[str], items: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(f'{{"items": {items}}}')
    assert main(arguments) in (0, 1)
    assert "Traceback" not in capsys.readouterr().err


COMMANDS = [
    ["status"],
    ["explain", "node-0"],
    ["approve", "SomeReason", "--yes"],
    ["pause", "--for", "1h", "--reason", "a network change", "--yes"],
    ["release", "node-0", "--yes"],
    ["inject", "node-0", "--remove", "--yes"],
    ["inject", "node-0", "--fault", "GpuXidBad", "--really", "--yes"],
    ["uninstall", "--yes"],
    ["report"],
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    "body",
    [
        '{"metadata": {}, "items": [{}]}',
        '{"metadata": {}, "items": [null]}',
        '{"metadata": {"resourceVersion": "7"}, "items": [{"metadata": {}}]}',
        '{"metadata": {"name": "fleet"}, "items": [{"metadata": {"labels": "x", "name": "node-0"}}]}',
        '{"metadata": {"name": "fleet", "uid": "u"}, "items": {}}',
        '{"metadata": {"name": "fleet", "uid": "u", "resourceVersion": 7}, "spec": {}}',
        '{"metadata": {"name": "fleet", "uid": "u", "resourceVersion": "7"}, "spec": "x"}',
    ],
)
def test_what_is_no_object_is_the_api_servers_answer_to_nothing(
    answer: Tell, arguments: list[str], body: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(body)
    assert main(arguments) == 1
    assert " is not the API server's: " in capsys.readouterr().err


def test_a_pause_that_was_not_stored_is_not_told_as_one(
    answer: Tell, capsys: pytest.CaptureFixture[str]
) -> None:
    answer("{}")
    code = main(["pause", "--for", "1h", "--reason", "a network change", "--yes"])
    assert (code, "Paused until" in capsys.readouterr().out) == (1, False)


def test_a_pause_that_older_crds_drop_is_not_told_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = Stage(crds=False)
    for crd in map(copy.deepcopy, read_crds()):
        if crd["spec"]["names"]["kind"] == "RecoveryGate":
            schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
            del schema["properties"]["spec"]["properties"]["pause"]
        stage.store.install_crd(crd)
    with KubernetesServer(stage.store) as server:
        monkeypatch.setenv("KUBECONFIG", str(server.write_kubeconfig(tmp_path / "kubeconfig")))
        code = main(["pause", "--for", "1h", "--reason", "a network change", "--yes"])
    assert (code, "Paused until" in capsys.readouterr().out) == (1, False)


@pytest.mark.parametrize("way", [">&-", "> /dev/full"])
def test_a_standard_output_that_takes_nothing_is_a_failure_and_no_traceback(way: str) -> None:
    command = f"{sys.executable} -m recovery policy schema {way}"
    result = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)  # noqa: S603
    assert (result.returncode, "Traceback" in result.stderr) == (1, False)
    assert result.stderr.startswith("standard output takes nothing: ")
