"""Who is told what an agent thinks of its node: real agents, asked directly and through a real API server."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import urllib3
from click.testing import CliRunner
from fleet_site import NAMESPACE, Site
from plane import Plane, free_port

from recovery import cli
from recovery.console import api as console
from recovery.report.asked_by import HEADER, PATH, audience

ACCOUNTS = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
Json = dict[str, Any]


def address() -> str:
    """An address of this machine that is not loopback: an API server proxies to no such pod."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.connect(("192.0.2.1", 9))  # nothing is sent
        return str(asked.getsockname()[0])


class Doors:
    """Two nodes whose agents are reached as pods are: at an address, and by the API server's proxy."""

    def __init__(self, site: Site, here: str, ports: dict[str, int], nodes: list[str]) -> None:
        self.site, self.here, self.ports, self.nodes = site, here, ports, nodes

    def reached(self, node: str, token: str = "", path: str = PATH) -> tuple[int, str]:
        """What any pod gets that reaches the agent's port."""
        url = f"http://{self.here}:{self.ports[node]}{path}"
        answer = urllib3.request(
            "GET", url, headers={HEADER: token} if token else {}, timeout=8, retries=False
        )
        return answer.status, answer.data.decode()

    def token(self, account: str, *audiences: str, namespace: str = NAMESPACE) -> str:
        """As an administrator has it made."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        spec = {"audiences": list(audiences)} if audiences else {}
        made = self.site.plane.request("POST", path, body={"spec": spec})
        assert made.status == 201, made.body
        return str(made.body["status"]["token"])


@pytest.fixture
def doors(site: Site, monkeypatch: pytest.MonkeyPatch) -> Doors:
    here, ports = address(), dict[str, int]()
    beside = site.kubelets._beside

    def listening(node: str) -> dict[str, str]:
        port = ports.setdefault(node, free_port())
        return {**beside(node), "METRICS_ADDRESS": f"{here}:{port}"}

    monkeypatch.setattr(site.kubelets, "_beside", listening)
    site.recovering()
    nodes = sorted(site.group(2))
    for node in nodes:
        pod = f"/api/v1/namespaces/{NAMESPACE}/pods/{site.kubelets.of(node).pod}"
        status = {"podIP": here, "podIPs": [{"ip": here}]}
        kind = "application/merge-patch+json"
        done = site.plane.request("PATCH", f"{pod}/status", body={"status": status}, content_type=kind)
        assert done.status == 200, done.body
    monkeypatch.setattr(
        console, "agent_pod", lambda obj, known=console.agent_pod: with_port(known(obj), obj, ports)
    )
    return Doors(site, here, ports, nodes)


def with_port(pod: Any, obj: Any, ports: dict[str, int]) -> Any:
    """Each agent has a port of its own here, where it has no address of its own."""
    if pod is None:
        return None
    return console.AgentPod(pod.namespace, pod.name, ports[obj["spec"]["nodeName"]], pod.running)


def explained(plane: Plane, node: str, monkeypatch: pytest.MonkeyPatch, user: str = "admin") -> Json:
    monkeypatch.setenv("KUBECONFIG", str(plane.kubeconfig(user)))
    with CliRunner().isolation() as (out, err, _):
        code = cli.main(["explain", node, "-o", "json"])
    assert code == 0, err.getvalue()
    return dict(json.loads(out.getvalue()))


def test_a_pod_that_reaches_an_agent_has_its_metrics_and_not_its_view_while_explain_has_both(
    doors: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, (mine, other) = doors.site, doors.nodes
    for path in ("/metrics", "/healthz", "/readyz"):
        assert doors.reached(mine, path=path)[0] == 200, path
    status, front = doors.reached(mine, path="/")
    assert (status, mine in front) == (200, False), "it says how the agent is, and nothing of its node"
    tenant = "/api/v1/namespaces/tenant"
    site.plane.request("POST", "/api/v1/namespaces", body={"metadata": {"name": "tenant"}})
    site.plane.until(
        "it has an account",
        lambda: site.plane.request("GET", f"{tenant}/serviceaccounts/default").status == 200,
    )
    forged = {
        "no token": "",
        "no token at all": "a.b.c",
        "the token of the agent beside it": site.kubelets.of(other).token,
        "its own": site.kubelets.of(mine).token,
        "one for the API server": doors.token("default"),
        "one for another node's agent": doors.token("default", audience(other)),
        "one of the agents' account": doors.token("node-problem-detector", audience(mine)),
        "one of a tenant, for this very agent": doors.token("default", audience(mine), namespace="tenant"),
        "a kubelet's": "token-of-kubelet",
    }
    for what, token in forged.items():
        status, said = doors.reached(mine, token)
        assert (status, mine in json.loads(said)["message"].replace(audience(mine), "")) == (403, False), what
        assert "decision" not in said, what
    assert doors.reached(mine, doors.token("default", audience(mine)))[0] == 200, "what explain brings"
    for node in doors.nodes:
        found = explained(site.plane, node, monkeypatch)
        assert found["agentProblem"] is None
        assert found["agent"]["node"] == node
        assert found["agent"]["decision"]["reason"] == "healthy: no confirmed problem"


def test_explain_needs_no_more_rights_than_it_says_and_the_token_it_makes_is_good_for_nothing_else(
    doors: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane, node = doors.site.plane, doors.nodes[0]
    with reader(plane, doors) as user:
        found = explained(plane, node, monkeypatch, user)
        assert found["agentProblem"] is None, found["agentProblem"]
    with reader(plane, doors, but="serviceaccounts/token") as user:
        found = explained(plane, node, monkeypatch, user)
        assert found["agent"] is None
        assert 'cannot create resource "serviceaccounts/token"' in found["agentProblem"]
    answer = plane.request("GET", "/api/v1/nodes", bearer=doors.token("default", audience(node)))
    assert answer.status == 401, "no API server takes it"


READS = (
    ("", "pods", "list"),
    ("", "nodes", "get"),
    ("rbac.authorization.k8s.io", "clusterrolebindings", "list"),
    ("noderecovery.dev", "noderecoveries", "get"),
    ("noderecovery.dev", "noderecoveries", "list"),
    ("noderecovery.dev", "recoverygates", "get"),
    ("", "pods/proxy", "get"),
    ("", "serviceaccounts/token", "create"),
)


@contextmanager
def reader(plane: Plane, doors: Doors, but: str = "") -> Iterator[str]:
    """A person with the rights that ``explain`` names, and no other."""
    rules = [
        {"apiGroups": [group], "resources": [kind], "verbs": [verb]}
        | ({"resourceNames": ["default"]} if kind == "serviceaccounts/token" else {})
        for group, kind, verb in READS
        if kind != but
    ]
    who = {"kind": "ServiceAccount", "name": "reader", "namespace": "default"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"}
    made: list[tuple[str, Json]] = [
        ("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "reader"}}),
        (f"{RBAC}/clusterroles", {"metadata": {"name": "reader"}, "rules": rules}),
        (
            f"{RBAC}/clusterrolebindings",
            {"metadata": {"name": "reader"}, "roleRef": role, "subjects": [who]},
        ),
    ]
    for path, body in made:
        assert plane.request("POST", path, body=body).status == 201, path
    try:
        token = doors.token("reader", namespace="default")
        plane.kubeconfig("reader").write_text(
            plane.kubeconfig("admin").read_text().replace("token-of-admin", token)
        )
        reads: Callable[[], bool] = lambda: plane.request("GET", "/api/v1/pods", bearer=token).status == 200  # noqa: E731
        plane.until("the rights are known", reads)
        yield "reader"
    finally:
        for path, _ in made:
            plane.request("DELETE", f"{path}/reader")
