"""The agent's own HTTP server."""

from __future__ import annotations

import http.client
import json
import resource
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from recovery_testkit.kubernetes import KubernetesServer, KubernetesStore
from recovery_testkit.stage import StoreTransport

from recovery.clock import SystemClock
from recovery.console.api import connect
from recovery.errors import ApiError
from recovery.kube.cluster import Cluster
from recovery.report import http as web
from recovery.report.asked_by import HEADER, AskedBy
from recovery.report.metrics import Metrics
from tests.builders.objects import pod_object

pytestmark = pytest.mark.slow


@dataclass
class Site:
    port: int
    metrics: Metrics
    sick: str | None = None
    unready: str | None = "not yet: nothing has been read"
    explained: dict[str, Any] | str = "nothing"
    refused: Callable[[str], str | None] = lambda _: None
    asked_for: str = ""

    def answers(self, node: str) -> dict[str, Any] | str:
        self.asked_for = node
        return self.explained

    def ask(self, path: str, method: str = "GET", token: str = "") -> tuple[int, str, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request(method, path, headers={HEADER: token} if token else {})
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), answer.headers.get("Content-Type", "")
        finally:
            connection.close()


def bound(name: str, namespace: str, account: str) -> dict[str, Any]:
    """What an administrator makes: the agents' role, bound to an account."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "node-recovery"}},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "node-recovery"},
        "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": account}],
    }


@pytest.fixture(scope="module", autouse=True)
def quick_to_stop() -> Iterator[None]:
    """A server looks every half second whether it is to stop; each of these tests would wait for that."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socketserver.BaseServer.serve_forever, "__defaults__", (0.01,))
        yield


@pytest.fixture(scope="module")
def server(quick_to_stop: None) -> Iterator[Site]:
    made = Site(0, Metrics())
    server = web.serve(
        ("127.0.0.1", 0),
        made.metrics.registry,
        lambda: made.sick,
        lambda: made.unready,
        lambda node: made.answers(node),
        lambda token, _: made.refused(token),
    )
    made.port = server.server_address[1]
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def site(server: Site) -> Site:
    server.sick, server.unready = None, "not yet: nothing has been read"
    server.refused = lambda _: None
    return server


def test_healthy_is_200_and_the_reason_why_not_is_503(site: Site) -> None:
    assert site.ask("/healthz")[:2] == (200, "ok\n")
    site.sick = "the main loop has finished no round for 99 s"
    assert site.ask("/healthz")[:2] == (503, "the main loop has finished no round for 99 s\n")


def test_ready_is_asked_apart_from_healthy(site: Site) -> None:
    assert site.ask("/readyz")[:2] == (503, "not yet: nothing has been read\n")
    site.unready = None
    assert site.ask("/readyz?verbose=1")[:2] == (200, "ok\n")


def test_metrics_are_in_prometheus_own_format(site: Site) -> None:
    site.metrics.cycles.inc()
    status, body, kind = site.ask("/metrics")
    assert (status, kind.partition(";")[0]) == (200, "text/plain")
    assert "node_recovery_cycles_total 1.0" in body


def test_the_front_page_says_how_the_program_is_and_nothing_of_its_node(site: Site) -> None:
    site.sick, site.explained = "<the main loop hangs>", {"node": "n1"}
    status, body, kind = site.ask("/")
    assert (status, kind) == (200, "text/html; charset=utf-8")
    assert "<p>health: &lt;the main loop hangs&gt;</p><p>ready: not yet: nothing has been read</p>" in body
    assert 'href="/metrics"' in body
    assert "n1" not in body


def test_other_pages_are_not_there(site: Site) -> None:
    assert site.ask("/secrets")[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_the_agent_can_only_be_read(site: Site, method: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=5)
    with closing(connection):
        connection.request(method, "/metrics")
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")


def test_a_head_is_told_what_a_get_would_be_and_nothing_more(site: Site) -> None:
    status, body, kind = site.ask("/metrics", "HEAD")
    assert (status, body) == (200, "")
    assert kind == site.ask("/metrics")[2]


def test_an_answer_does_not_say_which_python_it_is(site: Site) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", site.port, timeout=5)) as connection:
        connection.request("GET", "/healthz")
        assert connection.getresponse().headers["Server"].strip() == "node-recovery"


def test_what_was_decided_is_served_as_json(site: Site) -> None:
    site.explained = {"node": "n1", "decision": {"reason": "healthy"}}
    status, body, kind = site.ask("/api/v1/explain")
    assert (status, json.loads(body), kind) == (200, site.explained, "application/json")


def test_an_agent_without_a_node_of_its_own_has_nothing_to_explain(site: Site) -> None:
    site.explained = "this agent has no node of its own (RECOVERY_MODE=concluder)"
    status, body, _ = site.ask("/api/v1/explain")
    assert (status, json.loads(body)) == (404, {"message": site.explained})


@pytest.mark.parametrize(("query", "node"), [("", ""), ("?node=n7", "n7"), ("?node=a%2Fb&node=c", "a/b")])
def test_it_may_be_said_which_node_is_asked_about(site: Site, query: str, node: str) -> None:
    site.explained = {"node": "n1"}
    assert site.ask(f"/api/v1/explain{query}")[0] == 200
    assert site.asked_for == node


def test_who_merely_reaches_the_port_is_not_told_what_the_agent_thinks(site: Site) -> None:
    site.explained = {"node": "n1", "decision": {"reason": "healthy"}}
    site.refused = AskedBy(lambda token, audience: "", "guards", "n1").refused
    status, body, _ = site.ask("/api/v1/explain")
    assert (status, json.loads(body)) == (
        403,
        {"message": "this is for those who bring a token for it, as node-recovery explain does"},
    )
    for path in ("/api/v1", "/api/v1/explain/", "/api/v1/explain%3F"):
        assert site.ask(path)[0] == 404, path
    assert site.ask("/metrics")[0] == site.ask("/healthz")[0] == 200


def test_the_api_servers_proxy_of_pods_reaches_it(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over real sockets: the command's connection, the API server's front, the pod's own port."""
    site.explained = {"node": "n1", "decision": {"reason": "healthy"}}
    asked: list[str] = []

    def refused(token: str) -> str | None:
        asked.append(token)
        whose = Cluster(StoreTransport(store, "agent"), SystemClock(), "default").whose
        return AskedBy(whose, "default", "n1").refused(token)

    site.refused = refused
    store = KubernetesStore()
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "npd-x", "namespace": "default"},
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "node-recovery", "ports": [{"containerPort": site.port}]}],
        },
        "status": {"phase": "Running", "podIP": "127.0.0.1"},
    }
    store.load(pod)
    with KubernetesServer(store) as server:
        monkeypatch.setenv("KUBECONFIG", str(server.write_kubeconfig(tmp_path / "kubeconfig")))
        api = connect()
        found = api.agent_pod("n1")
        assert found is not None
        assert (found.port, api.ask_agent(found, "n1")) == (site.port, site.explained)
        assert len(asked[0].split(".")) == 3, "a token, and not the caller's own"
        with pytest.raises(
            ApiError, match=r"403 this token is not one of .* for noderecovery\.dev/explain/n1"
        ):
            api.ask_agent(found, "n2")
        with pytest.raises(ApiError, match="503 error trying to reach service"):
            api.ask_agent(replace(found, port=1), "n1")


def test_an_impostor_that_is_named_as_the_agent_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = KubernetesStore()
    store.load(bound("node-recovery", "guards", "agent"))
    for namespace in ("tenant", "guards"):
        store.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})

    def there_is(name: str, namespace: str, account: str) -> None:
        spec = {"serviceAccountName": account}
        ours = [{"name": "node-recovery"}]
        store.load(pod_object(name, on="n1", namespace=namespace, containers=ours, spec=spec))

    there_is("a", "tenant", "agent")
    there_is("b", "guards", "other")
    with KubernetesServer(store) as server:
        monkeypatch.setenv("KUBECONFIG", str(server.write_kubeconfig(tmp_path / "kubeconfig")))
        assert connect().agent_pod("n1") is None
        there_is("c", "guards", "agent")
        assert str(connect().agent_pod("n1")) == "guards/c"


def handlers(site: Site) -> int:
    """The threads that serve somebody here. Other servers of this process have such threads, too."""
    named = [t for t in threading.enumerate() if "process_request_thread" in t.name]
    servers = (getattr(getattr(t, "_target", None), "__self__", None) for t in named)
    return sum(isinstance(s, web.Server) and s.server_address[1] == site.port for s in servers)


@contextmanager
def clients(site: Site, count: int, said: bytes) -> Iterator[list[socket.socket]]:
    """Who said something, and then nothing more."""
    with ExitStack() as stack:
        found = [
            stack.enter_context(socket.create_connection(("127.0.0.1", site.port), timeout=5))
            for _ in range(count)
        ]
        for client in found:
            client.sendall(said)
        yield found


def ended(client: socket.socket) -> bytes:
    """All that the server says until it closes the connection."""
    said = b""
    try:
        while more := client.recv(65536):
            said += more
    except ConnectionResetError:
        pass
    return said


def test_a_probe_is_answered_beside_clients_that_never_end_their_request(site: Site) -> None:
    with clients(site, 100, b"GET /metrics HTTP/1.1\r\nX: "):
        began = time.monotonic()
        assert site.ask("/healthz")[:2] == (200, "ok\n")
        assert time.monotonic() - began < 2
        assert 1 <= handlers(site) <= web.HANDLERS


def test_headers_without_end_are_cut_off_and_take_no_memory(site: Site) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    line = b"X: " + b"a" * 65_000 + b"\r\n"
    with clients(site, 20, b"GET /metrics HTTP/1.1\r\n") as found:
        for client in found:
            with suppress(OSError):  # it is cut off
                client.sendall(line * 98)
        assert [ended(client) for client in found] == [b""] * 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 * 1024, "KiB"
    assert site.ask("/healthz")[0] == 200


def test_a_whole_request_has_a_deadline_however_often_a_byte_comes(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "WHOLE", 0.3)
    with clients(site, 1, b"GET /metrics HTTP/1.1\r\nX: ") as (slow,):
        began = time.monotonic()
        assert sent_until_it_is_cut_off(slow) > 2
        assert time.monotonic() - began < 3


def sent_until_it_is_cut_off(client: socket.socket) -> int:
    """How many single bytes a client sends, each in time, until it is cut off."""
    client.settimeout(0.05)
    for sent in range(1000):
        try:
            client.sendall(b"a")
            if client.recv(1) == b"":
                return sent
        except TimeoutError:
            continue
        except OSError:
            return sent
    raise AssertionError("it was never cut off")


def test_a_bug_behind_a_page_is_logged_and_a_client_that_goes_away_is_not(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(web, "generate_latest", lambda _: 1 / 0)
    with pytest.raises(http.client.RemoteDisconnected):
        site.ask("/metrics")
    with clients(site, 1, b"GET /metr"):
        pass
    assert site.ask("/healthz")[0] == 200
    assert [r.message for r in caplog.records] == ["a bug: a request over HTTP was not answered"]


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_without_a_host_it_listens_on_every_address_of_both_families(address: str) -> None:
    none = lambda *_: None  # noqa: E731
    server = web.serve(("", 0), Metrics().registry, none, none, none, none)
    try:
        connection = http.client.HTTPConnection(address, server.server_address[1], timeout=5)
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
        connection.close()
    finally:
        server.shutdown()
        server.server_close()
