"""Servers that answer without end: a byte now and then, so that no single wait on the socket times out.

Whoever asks must be done within the bound that it declares: with a Content-Length and chunked, for headers
and for the body, and over TLS. So must a process that is told to stop.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from providers.aws.session import AwsSession
from providers.aws.session import Limits as AwsLimits
from providers.azure.monitor import AzureMonitor
from providers.azure.session import AzureSession
from providers.azure.session import Limits as AzureLimits
from providers.baremetal.bmc import Limits as BmcLimits
from providers.baremetal.bmc import Wire
from providers.baremetal.machine import Bmc, Credentials
from recovery import cli
from recovery.clock import SystemClock
from recovery.deadline import in_time
from recovery.errors import Ambiguous, ApiUnavailable, NodeRecoveryError, Retry
from recovery.kube import transport
from recovery.kube.cluster import Cluster
from recovery.kube.kubeconfig import Target
from recovery.kube.transport import KubernetesTransport
from recovery.model import ClusterDelete
from recovery.provider.monitor import Metric
from recovery.provider.protocol import ObjectRef
from recovery.signals.prometheus_http import PrometheusClient
from tests.builders.tls import certified

real_getaddrinfo = socket.getaddrinfo
OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"
KINDS = {
    "length": (OK + b"content-length: 5000\r\n\r\n", b" "),
    "chunked": (CHUNKED, b"1\r\n \r\n"),
    "headers": (OK, b"x: y\r\n"),
}
PAUSE, PIECES = 0.1, 60
BOUND = 2.0
"""Seconds: twice as much as the limits below allow, and a third of what the server takes."""


class Dripping:
    """A server that begins each answer at once, and takes six seconds for it, or as many ``pieces``.

    ``first``: what it sends with the head. ``asked``: the first lines of what it was asked.
    """

    def __init__(
        self,
        head: bytes,
        piece: bytes,
        *,
        pieces: int = PIECES,
        first: tuple[bytes, ...] = (),
        over: ssl.SSLContext | None = None,
    ) -> None:
        self._head, self._pieces, self._tls = head, (*first, *(piece for _ in range(pieces))), over
        self._over = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        scheme = "http" if over is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._listening.getsockname()[1]}"
        self.asked: list[str] = []
        self.was_asked = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                one, _ = self._listening.accept()
                threading.Thread(target=self._drip, args=(one,), daemon=True).start()

    def _drip(self, plain: socket.socket) -> None:
        with suppress(OSError), plain, self._tls.wrap_socket(plain, True) if self._tls else plain as one:
            self.asked.append(one.recv(65536).split(b"\r\n")[0].decode())
            self.was_asked.set()
            one.sendall(self._head)
            for piece in self._pieces:
                if self._over.wait(PAUSE):
                    return
                one.sendall(piece)

    def close(self) -> None:
        self._over.set()
        self._listening.close()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(params=KINDS)
def dripping(request: pytest.FixtureRequest) -> Iterator[Dripping]:
    found = Dripping(*KINDS[request.param])
    yield found
    found.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., Dripping]]:
    """Servers of one kind, with more of their own."""
    made: list[Dripping] = []

    def one(kind: str, **more: Any) -> Dripping:
        made.append(Dripping(*KINDS[kind], **more))
        return made[-1]

    yield one
    for each in made:
        each.close()


def seconds_of(ask: Callable[[], Any], error: type[Exception] = NodeRecoveryError) -> float:
    began = time.monotonic()
    with pytest.raises(error):
        ask()
    return time.monotonic() - began


# ---------------------------------------------------------------- the API server


def kubeconfig(url: str, folder: Path) -> str:
    where = folder / "kubeconfig"
    named = {"name": "x", "cluster": {"server": url, "insecure-skip-tls-verify": True}}
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
    return str(where)


def connected(url: str, folder: Path) -> KubernetesTransport:
    return KubernetesTransport(SystemClock(), Target(kubeconfig=kubeconfig(url, folder)))


def test_a_request_to_the_api_server_ends_in_time(
    dripping: Dripping, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of an answer that was given up is nobody's: the next request has a connection of its own."""
    monkeypatch.setattr(transport, "READ_TIMEOUT", 0.5)
    api = connected(dripping.url, tmp_path)
    for _ in range(2):
        assert (
            seconds_of(lambda: api.request("PATCH", "/api/v1/nodes/node-0", body={}), ApiUnavailable) < BOUND
        )
    assert dripping.asked == ["PATCH /api/v1/nodes/node-0 HTTP/1.1"] * 2, "each was asked once"


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_over_tls_ends_in_time(
    kind: str, serve: Callable[..., Dripping], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "READ_TIMEOUT", 0.5)
    api = connected(serve(kind, over=certified(tmp_path)[0]).url, tmp_path)
    assert seconds_of(lambda: api.request("GET", "/api/v1/nodes/node-0"), ApiUnavailable) < BOUND


def test_a_watch_lasts_as_long_as_events_come_and_a_byte_is_no_event(
    serve: Callable[..., Dripping], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten events in a second, and then no whole one."""
    monkeypatch.setattr(transport, "READ_TIMEOUT", 0.3)
    monkeypatch.setattr(transport, "WATCH_TIMEOUT", 0.6)
    event = b'{"type": "BOOKMARK"}\n'
    server = serve("chunked", first=(b"%x\r\n%s\r\n" % (len(event), event),) * 10)
    api, came = connected(server.url, tmp_path), list[bytes]()

    def follow() -> None:
        for line in api.stream("/api/v1/nodes", {"watch": "true"}):
            if not came:
                time.sleep(0.7)  # longer than it may be silent: what is done with an event is no silence
            came.append(line)

    assert 10 * PAUSE < seconds_of(follow, ApiUnavailable) < 10 * PAUSE + BOUND
    assert came == [event.strip()] * 10


def test_the_headers_of_a_watch_end_in_time(
    serve: Callable[..., Dripping], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "WATCH_TIMEOUT", 0.5)
    api = connected(serve("headers").url, tmp_path)
    assert seconds_of(lambda: list(api.stream("/api/v1/nodes", {})), ApiUnavailable) < BOUND


def test_a_connection_that_is_used_again_has_its_whole_time_again() -> None:
    """What its last answer had left would be too little to send the next question."""
    import urllib3

    with socket.create_server(("127.0.0.1", 0)) as listening:
        way = in_time(urllib3.connection.HTTPConnection)(*listening.getsockname(), timeout=1.0)
        way.request("GET", "/")
        far = listening.accept()[0]
        with far:
            for _ in range(2):
                far.recv(65536)
                far.sendall(OK + b"content-length: 2\r\n\r\n{}")
                assert way.getresponse().data == b"{}"
                assert way.sock.gettimeout() < way.timeout
                way.timeout = 3.0
                way.request("GET", "/")
                assert way.sock.gettimeout() == 3.0
        way.close()


@pytest.mark.parametrize(
    "command",
    [("status",), ("explain", "node-0"), ("doctor",), ("resume", "--yes"), ("release", "node-0", "--yes")],
    ids=lambda command: command[0],
)
def test_a_command_ends_in_time_and_says_why(
    command: tuple[str, ...],
    serve: Callable[..., Dripping],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(transport, "READ_TIMEOUT", 0.5)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", kubeconfig(serve("length").url, tmp_path))
    began = time.monotonic()
    try:
        code = cli.main(command)
    except SystemExit as ended:
        code = ended.code
    assert code == cli.FAILURE
    assert time.monotonic() - began < BOUND
    told = capsys.readouterr()
    assert "the API server did not answer: Read timed out" in told.out + told.err


PROGRAM = """
import sys
from recovery import cli
from recovery.kube import transport
transport.READ_TIMEOUT = transport.LAST_TIMEOUT = 1.0
sys.exit(cli.main(["run"]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sidecar", "concluder", "fleet"])
def test_an_agent_that_is_told_to_stop_ends_in_time(
    mode: str, serve: Callable[..., Dripping], tmp_path: Path
) -> None:
    """It was held for minutes, past the half minute that the manifests give it."""
    server = serve("length", pieces=600)
    environ = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ} | {
        "KUBECONFIG": kubeconfig(server.url, tmp_path),
        "RECOVERY_MODE": mode,
        "CLUSTER_NAME": "c",
        "METRICS_ADDRESS": "",
        "ENABLE_RECOVERY": "true",
    }
    if mode == "sidecar":
        environ["NODE_NAME"] = "node-0"
    with subprocess.Popen([sys.executable, "-c", PROGRAM], env=environ) as program:  # noqa: S603
        try:
            assert server.was_asked.wait(30)
            program.send_signal(signal.SIGTERM)
            began = time.monotonic()
            assert program.wait(20) == 0
            assert time.monotonic() - began < 6.0, "one answer, and what else it does before it ends"
        finally:
            program.kill()


# ---------------------------------------------------------------- clouds and machines

MARK = {"InstanceId": "i-0123456789abcdef0", "HealthStatus": "Unhealthy"}


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> AwsSession:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    return AwsSession(SystemClock(), AwsLimits(connect=0.5, read=0.5, attempts=1))


def test_a_call_to_aws_ends_in_time_and_is_made_once(
    dripping: Dripping, aws: AwsSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", dripping.url)
    name = "SetInstanceHealth"
    aws._client("autoscaling", "us-west-2", name, mutating=True)  # the SDK is imported: that takes a second
    ask: Callable[[], Any] = lambda: aws.submit("autoscaling", name, "us-west-2", name, **MARK)  # noqa: E731
    assert seconds_of(ask, Ambiguous) < BOUND + 1.0
    assert dripping.asked == ["POST / HTTP/1.1"]


def test_credentials_of_aws_come_in_time_or_not_at_all(
    dripping: Dripping, aws: AwsSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """STS is asked by a client that the SDK makes on its own."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    (tmp_path / "token").write_text("token")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/x")
    monkeypatch.setenv("AWS_ENDPOINT_URL", dripping.url)
    name = "SetInstanceHealth"
    ask: Callable[[], Any] = lambda: aws.submit("autoscaling", name, "us-west-2", name, **MARK)  # noqa: E731
    assert seconds_of(ask, Retry) < BOUND + 1.0
    assert len(dripping.asked) == 1


class _Credential:
    def get_token(self, *_: Any, **__: Any) -> Any:
        from azure.core.credentials import AccessToken

        return AccessToken("t", int(time.time()) + 9999)


def azure(url: str, **environ: str) -> AzureSession:
    environ = {"AZURE_CLIENT_ID": "c", "AZURE_RESOURCE_MANAGER_ENDPOINT": url, **environ}
    return AzureSession(SystemClock(), environ, AzureLimits(connect=0.5, read=0.5))


def test_a_question_to_azure_ends_in_time(dripping: Dripping) -> None:
    session = azure(dripping.url)
    session._credential = _Credential()
    ask = "/subscriptions/s/resourceGroups/g?api-version=1"
    assert seconds_of(lambda: session.get("s", ask, "a look")) < BOUND + 1.0


def test_a_call_to_azure_ends_in_time_and_is_made_once(dripping: Dripping) -> None:
    session = azure(dripping.url)
    session._credential = _Credential()

    def ask() -> None:
        session.submit(
            "s",
            "it",
            lambda c: lambda **hook: c.virtual_machine_scale_set_vms.begin_redeploy("g", "v", "0", **hook),
        )

    assert seconds_of(ask, Ambiguous) < BOUND + 1.0
    assert len(dripping.asked) == 1


def test_a_token_of_azure_comes_in_time_or_not_at_all(
    serve: Callable[..., Dripping], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, authority = certified(tmp_path)
    server = serve("length", over=context)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", authority)
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", server.url)
    (tmp_path / "token").write_text("t")
    more = {"AZURE_TENANT_ID": "t", "AZURE_FEDERATED_TOKEN_FILE": str(tmp_path / "token")}
    session = azure("https://management.azure.com", **more)
    assert seconds_of(lambda: session.token("it"), Retry) < BOUND + 1.0
    assert server.asked


def test_metrics_for_azure_end_in_time(serve: Callable[..., Dripping]) -> None:
    clock = SystemClock()
    group = "/subscriptions/11111111-2222-3333-4444-555555555555/resourceGroups/g"
    cluster = f"{group}/providers/Microsoft.ContainerService/managedClusters/c"
    monitor = AzureMonitor(clock, lambda _: "t", lambda: (cluster, "x"), serve("headers").url, timeout=0.5)
    metric = Metric("GPUMissing", 1.0, clock.now() - timedelta(seconds=1), {})
    assert seconds_of(lambda: monitor.publish([metric]), Retry) < BOUND


@pytest.mark.parametrize(("method", "error"), [("get", Retry), ("post", Ambiguous)])
def test_a_bmc_that_drips_is_given_up(
    method: str, error: type[Exception], serve: Callable[..., Dripping]
) -> None:
    limits = BmcLimits(connect=0.5, read=0.5, patience=60.0)
    server = serve("headers")
    wire = Wire("the BMC", Bmc(server.url), Credentials("u", "p"), limits, SystemClock())
    more: dict[str, Any] = {"data": {}} if method == "post" else {}
    assert seconds_of(lambda: getattr(wire, method)("/redfish/v1/", **more), error) < BOUND
    assert len(server.asked) == 1


def test_a_question_to_prometheus_ends_in_time(dripping: Dripping) -> None:
    assert seconds_of(lambda: PrometheusClient(dripping.url, timeout=0.5).ask("up")) < BOUND
    assert len(dripping.asked) == 1


# ---------------------------------------------------------------- addresses that are found too late


class Late(SystemClock):
    """A clock that is put forward by half a minute for each address: a resolver may take as long."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead = 0.0
        resolve = socket.getaddrinfo

        def slow(*args: Any, **more: Any) -> Any:
            self.ahead += 30.0
            return resolve(*args, **more)

        monkeypatch.setattr(socket, "getaddrinfo", slow)

    def boottime(self) -> float:
        return super().boottime() + self.ahead


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> Late:
    return Late(monkeypatch)


def asked(server: Dripping) -> list[str]:
    """What it was asked; a connection that is closed again asks nothing."""
    return [line for line in server.asked if line]


def test_a_call_to_aws_is_not_sent_once_it_has_surely_ended(
    serve: Callable[..., Dripping], aws: AwsSession, late: Late, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No time-out bounds the resolver of the system, and others act once the call timeout is over."""
    server = serve("headers")
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    name = "SetInstanceHealth"
    aws._client("autoscaling", "us-west-2", name, mutating=True)  # the SDK is imported: that takes a second
    aws._clock = late
    with pytest.raises(Retry, match="was not sent, AWS could not be reached"):
        aws.submit("autoscaling", name, "us-west-2", name, **MARK)
    assert asked(server) == []


def test_a_call_to_azure_is_not_sent_once_it_has_surely_ended(
    serve: Callable[..., Dripping], late: Late
) -> None:
    server = serve("headers")
    session = azure(server.url)
    session._credential, session._clock = _Credential(), late
    with pytest.raises(Retry, match="was not sent"):
        session.submit(
            "s",
            "it",
            lambda c: lambda **hook: c.virtual_machine_scale_set_vms.begin_redeploy("g", "v", "0", **hook),
        )
    assert asked(server) == []


def test_a_reset_by_a_bmc_is_not_sent_once_it_has_surely_ended(
    serve: Callable[..., Dripping], late: Late
) -> None:
    server = serve("headers")
    limits = BmcLimits(connect=0.5, read=0.5, patience=60.0)
    wire = Wire("the BMC", Bmc(server.url), Credentials("u", "p"), limits, late)
    with pytest.raises(Retry, match="the BMC did not answer: it took too long to connect: nothing was sent"):
        wire.post("/redfish/v1/", data={})
    assert asked(server) == []


NODE_CLAIM = ClusterDelete("karpenter.sh/v1", "nodeclaims", "claim-1", "uid-1", "NodeClaim", "Karpenter")
HOST = ObjectRef("metal3.io/v1alpha1", "baremetalhosts", "metal", "host-1")
ORDERS: dict[str, Callable[[Cluster], None]] = {
    "the deletion of a NodeClaim": lambda cluster: cluster.delete(NODE_CLAIM),
    "the annotation of a BareMetalHost": lambda cluster: cluster.patch_object(HOST, {"metadata": {}}),
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_what_ends_or_boots_a_machine_is_not_asked_of_the_api_server_once_it_has_surely_ended(
    serve: Callable[..., Dripping], late: Late, tmp_path: Path, order: Callable[[Cluster], None]
) -> None:
    """Of the clouds it was not, and of the API server it was: a NodeClaim was deleted minutes late."""
    server = serve("headers")
    with pytest.raises(ApiUnavailable, match="nothing was sent"):
        order(Cluster(connected(server.url, tmp_path), late, "here"))
    assert asked(server) == []


def test_nor_where_it_is_its_own_credentials_that_come_late(
    serve: Callable[..., Dripping], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plugin of the kubeconfig is run for them, and the connection may be there already."""
    server, clock = serve("length", pieces=0), Late(monkeypatch)
    api = connected(server.url, tmp_path)
    prepared = api._prepared

    def slowly(*args: Any) -> Any:
        clock.ahead += 30.0
        return prepared(*args)

    monkeypatch.setattr(api, "_prepared", slowly)
    monkeypatch.setattr(socket, "getaddrinfo", real_getaddrinfo)
    with pytest.raises(ApiUnavailable, match="nothing was sent"):
        Cluster(api, clock, "here").delete(NODE_CLAIM)
    assert asked(server) == []
