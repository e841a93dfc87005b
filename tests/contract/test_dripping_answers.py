"""Servers that answer without end: a byte now and then, so that no single wait on the socket times out.

Whoever asks must be done within the bound that it declares: with a Content-Length and chunked, for headers
and for the body.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from providers.aws.session import AwsSession
from providers.aws.session import Limits as AwsLimits
from providers.azure.session import AzureSession
from providers.azure.session import Limits as AzureLimits
from recovery.clock import SystemClock
from recovery.errors import NodeRecoveryError
from recovery.kube import transport
from recovery.kube.kubeconfig import Target

OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
KINDS = {
    "length": (OK + b"content-length: 5000\r\n\r\n", b" "),
    "chunked": (OK + b"transfer-encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "headers": (OK, b"x: y\r\n"),
}
PAUSE, PIECES = 0.1, 60
BOUND = 2.0
"""Seconds: twice as much as the limits below allow, and a third of what the server takes."""


class Dripping:
    """A server that begins each answer at once, and takes six seconds for it."""

    def __init__(self, head: bytes, piece: bytes) -> None:
        self._head, self._piece = head, piece
        self._over = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                one, _ = self._listening.accept()
                threading.Thread(target=self._drip, args=(one,), daemon=True).start()

    def _drip(self, one: socket.socket) -> None:
        with suppress(OSError), one:
            one.recv(65536)
            one.sendall(self._head)
            for _ in range(PIECES):
                if self._over.wait(PAUSE):
                    return
                one.sendall(self._piece)

    def close(self) -> None:
        self._over.set()
        self._listening.close()


@pytest.fixture(params=KINDS)
def dripping(request: pytest.FixtureRequest) -> Iterator[Dripping]:
    found = Dripping(*KINDS[request.param])
    yield found
    found.close()


def seconds_of(ask: Callable[[], Any]) -> float:
    began = time.monotonic()
    with pytest.raises(NodeRecoveryError):
        ask()
    return time.monotonic() - began


def test_a_request_to_the_api_server_ends_in_time(
    dripping: Dripping, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "READ_TIMEOUT", 0.5)
    where = tmp_path / "kubeconfig"
    named = {"name": "x", "cluster": {"server": dripping.url}}
    where.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [named],
                "users": [{"name": "x", "user": {}}],
                "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
                "current-context": "x",
            }
        )
    )
    api = transport.KubernetesTransport(SystemClock(), Target(kubeconfig=str(where)))
    assert seconds_of(lambda: api.request("GET", "/api/v1/nodes/node-0")) < BOUND


def test_a_call_to_aws_ends_in_time(dripping: Dripping, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_ENDPOINT_URL", dripping.url)
    session = AwsSession(SystemClock(), AwsLimits(connect=0.5, read=0.5, attempts=1))
    name = "SetInstanceHealth"
    mark = {"InstanceId": "i-0123456789abcdef0", "HealthStatus": "Unhealthy"}
    assert seconds_of(lambda: session.submit("autoscaling", name, "us-west-2", name, **mark)) < BOUND + 1.0


class _Credential:
    def get_token(self, *_: Any, **__: Any) -> Any:
        from azure.core.credentials import AccessToken

        return AccessToken("t", int(time.time()) + 9999)


def test_a_question_to_azure_ends_in_time(dripping: Dripping) -> None:
    environ = {"AZURE_CLIENT_ID": "c", "AZURE_RESOURCE_MANAGER_ENDPOINT": dripping.url}
    session = AzureSession(SystemClock(), environ, AzureLimits(connect=0.5, read=0.5))
    session._credential = _Credential()
    ask = "/subscriptions/s/resourceGroups/g?api-version=1"
    assert seconds_of(lambda: session.get("s", ask, "a look")) < BOUND + 1.0
