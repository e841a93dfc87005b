"""What a person is told whose API server does not answer: what was asked, of whom, and what to look at."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from recovery import cli

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: prod
contexts: [{{name: prod, context: {{cluster: c, user: u}}}}]
clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: u, user: {{}}}}]
"""


@pytest.fixture
def closed() -> Iterator[int]:
    """A port that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.mark.parametrize(
    "command",
    [
        ("status",),
        ("report",),
        ("explain", "node-1"),
        ("pause", "--for", "1h", "--reason", "x", "--yes"),
        ("resume", "--yes"),
        ("release", "node-1", "--yes"),
        ("uninstall", "--yes"),
    ],
    ids=lambda command: command[0],
)
def test_a_server_that_does_not_answer_is_told_in_a_sentence(
    command: tuple[str, ...],
    closed: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "config"
    file.write_text(KUBECONFIG.format(port=closed))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(file))
    assert cli.main(command) == cli.FAILURE
    told = capsys.readouterr().err
    (line,) = [x for x in told.splitlines() if not x.startswith("Cluster: ")]
    what, rest = line.split(" of ", 1)
    assert what.rpartition(": ")[2].startswith(("GET /", "POST /"))
    assert rest == (
        f"prod (127.0.0.1:{closed}): the API server did not answer: Connection refused. Does it answer to "
        "kubectl --context prod get --raw /readyz? If not: is it up, and do you need a VPN? --context and "
        "--kubeconfig name another cluster."
    )


def test_the_command_to_look_with_is_one_that_a_shell_takes(
    closed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "my config"
    file.write_text(KUBECONFIG.format(port=closed).replace("prod", "prod (eu)"))
    assert cli.main(["status", "--kubeconfig", str(file)]) == cli.FAILURE
    asked = capsys.readouterr().err.partition("Does it answer to ")[2].partition("? If not")[0]
    named = ["--kubeconfig", str(file), "--context", "prod (eu)"]
    assert shlex.split(asked) == ["kubectl", *named, "get", "--raw", "/readyz"]
