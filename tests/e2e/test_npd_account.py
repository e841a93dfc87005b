"""node-problem-detector's own account, in the agent's pod: on a real API server, with a real detector."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from detectors import DRIVER, Real, real
from fleet_site import ACCOUNT, NAMESPACE, Site
from kubelets import claims, mounted, shipped
from plane import Plane

from recovery.agent.npd_token import NONE_YET
from recovery.kube.transport import Response

NPD = "node-recovery-npd"
ACCOUNTS = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
STRATEGIC = "application/strategic-merge-patch+json"
Json = dict[str, Any]


class Exporting(Real):
    """Writes conditions and Events by itself, with what its container has mounted for its account."""

    exporter = ("--port=0", "--k8s-exporter-heartbeat-period=2s")

    def __init__(self, plane: Plane, node: str, folder: Path, secrets: Path) -> None:
        self._secrets = secrets
        self._where = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(plane.port)}
        super().__init__(node, folder)

    def wrapped(self, command: list[str]) -> list[str]:
        self._environ |= self._where
        return mounted(self._secrets, command)

    def breaks(self, node: str) -> None:
        self.kernel("DMA_ERROR", DRIVER.format("DMA_ERROR", "i-1", node))

    @property
    def log(self) -> str:
        return self._out.read_text()


class Pods:
    """The pods of two nodes, as they ship: recovery is off."""

    def __init__(self, site: Site) -> None:
        self.site, self.plane = site, site.plane
        self.mine, self.other = site.group(2)
        site.until("the detectors have tokens", lambda: all(map(self.token, (self.mine, self.other))))

    def mount(self, node: str) -> Path:
        """What node-problem-detector's container mounts."""
        return self.site.kubelets.of(node).folder / "root" / "run" / "node-problem-detector"

    def token(self, node: str) -> str:
        """The detector's."""
        file = self.mount(node) / "token"
        return file.read_text() if file.exists() else ""

    def agent(self, node: str) -> str:
        return self.site.kubelets.of(node).token

    def states(self, token: str, node: str, **more: Any) -> Response:
        condition = {"type": "NeuronHealth", "status": "True", "reason": "NeuronHasError_DMA_ERROR"}
        body = {"status": {"conditions": [condition], **more}}
        path = f"/api/v1/nodes/{node}/status"
        return self.plane.request("PATCH", path, body=body, content_type=STRATEGIC, bearer=token)

    def asks(self, node: str, account: str = NPD, life: int = 3600, **bound: str) -> Response:
        """The agent of ``node``, for a token of ``account``."""
        spec: Json = {"expirationSeconds": life}
        spec |= {"boundObjectRef": {"apiVersion": "v1", "kind": "Node", **bound}} if bound else {}
        path = f"{ACCOUNTS}/{account}/token"
        return self.plane.request("POST", path, body={"spec": spec}, bearer=self.agent(node))

    def condition(self, node: str) -> str:
        found = self.plane.get(f"/api/v1/nodes/{node}")["status"].get("conditions", [])
        return next((c["reason"] for c in found if c["type"] == "NeuronHealth"), "")


@pytest.fixture
def pods(_site: Site) -> Iterator[Pods]:
    _site.clear()
    _site.watching()
    _site.lawless = True
    yield Pods(_site)
    _site.clear()


def refused(answer: Response, why: str) -> None:
    assert answer.status == 403, answer.body
    assert why in answer.body["message"]


@pytest.mark.skipif(not real(), reason="NPD_BINARY names no node-problem-detector")
def test_a_real_detector_writes_the_conditions_of_its_node_by_its_own_account(
    pods: Pods, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    detector = Exporting(pods.plane, pods.mine, tmp_path, pods.mount(pods.mine))
    try:
        pods.site.until("it says that all is well", lambda: pods.condition(pods.mine) == "NeuronHasNoError")
        detector.breaks(pods.mine)
        stated = "NeuronHasError_DMA_ERROR"
        pods.site.until("it states the fault", lambda: pods.condition(pods.mine) == stated)
        pods.site.until("the agent goes by it", lambda: f"{pods.mine}: would " in pods.site.log(pods.mine))
    finally:
        detector.kill()
    lines = [json.loads(line) for line in pods.plane.audit_log.read_text().splitlines()]
    user = f"system:serviceaccount:{NAMESPACE}:{NPD}"
    asked = [
        x
        for x in lines
        if (x["user"].get("username"), x["stage"]) == (user, "ResponseComplete")
        and x.get("userAgent", "").startswith("node-problem-detector")
    ]
    used = {(x["verb"], x["objectRef"]["resource"], x["objectRef"].get("subresource", "")) for x in asked}
    assert {x["responseStatus"]["code"] for x in asked} <= {200, 201}, "nothing was refused"
    assert ("patch", "nodes", "status") in used
    assert used <= {("get", "nodes", ""), ("patch", "nodes", "status"), *EVENTS}, "nothing else was asked"
    tell(f"node-problem-detector by its own account: {len(asked)} requests, none refused")


EVENTS = {(verb, "events", "") for verb in ("create", "patch", "update")}


@pytest.mark.skipif(not real(), reason="NPD_BINARY names no node-problem-detector")
def test_a_real_detector_without_a_token_serves_its_page_and_writes_as_soon_as_it_has_one(
    pods: Pods, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "token").write_bytes(NONE_YET)
    (secrets / "ca.crt").write_bytes(pods.plane.certificate.read_bytes())
    detector = Exporting(pods.plane, pods.mine, tmp_path, secrets)
    try:
        pods.site.until("it serves its page", lambda: page(detector), 20)
        assert "Unauthorized" in detector.log
        assert pods.condition(pods.mine) == ""
        began = time.monotonic()
        (secrets / "token").write_text(pods.token(pods.mine))
        well = "NeuronHasNoError"
        pods.site.until("it writes", lambda: pods.condition(pods.mine) == well, 150)
        tell(
            f"node-problem-detector writes conditions {time.monotonic() - began:.0f} s after its first token"
        )
    finally:
        detector.kill()


def page(detector: Real) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{detector.port}/metrics", timeout=5) as answer:
            return b"problem_gauge" in answer.read()
    except OSError:
        return False


def test_its_token_states_the_conditions_of_its_own_node_and_nothing_else(pods: Pods) -> None:
    token = pods.token(pods.mine)
    assert claims(token)["kubernetes.io"]["node"]["name"] == pods.mine
    assert pods.states(token, pods.mine).status == 200
    why = f"its own node only; this token is for '{pods.mine}'"
    refused(pods.states(token, pods.other), why)
    refused(pods.states(token, pods.mine, capacity={"pods": "0"}), "nothing of a node but its conditions")
    body = {"spec": {"unschedulable": True}}
    node = f"/api/v1/nodes/{pods.mine}"
    refused(
        pods.plane.request("PATCH", node, body=body, content_type=STRATEGIC, bearer=token), "cannot patch"
    )
    for path in ("/api/v1/pods", "/apis/noderecovery.dev/v1alpha1/noderecoveries", "/api/v1/secrets"):
        refused(pods.plane.request("GET", path, bearer=token), "cannot list")


def test_the_agents_token_writes_no_status(pods: Pods) -> None:
    refused(pods.states(pods.agent(pods.mine), pods.mine), 'cannot patch resource "nodes/status"')


def test_an_agent_asks_for_a_token_of_that_account_for_its_own_node_alone(pods: Pods) -> None:
    assert pods.asks(pods.mine, name=pods.mine).status == 201
    why = f"for its own node only; this token is of a pod on '{pods.mine}'"
    refused(pods.asks(pods.mine, name=pods.other), why)
    refused(pods.asks(pods.mine), why)
    refused(pods.asks(pods.mine, life=7 * 3600, name=pods.mine), "good for more than six hours")
    for account in (ACCOUNT, "default"):
        refused(pods.asks(pods.mine, account, name=pods.mine), "cannot create resource")


def test_a_token_ends_with_the_node_that_it_names(pods: Pods) -> None:
    token = pods.token(pods.mine)
    pods.site.power_off(pods.mine)
    pods.plane.request("DELETE", f"/api/v1/nodes/{pods.mine}")
    gone = lambda: pods.plane.request("GET", f"/api/v1/nodes/{pods.other}", bearer=token).status == 401  # noqa: E731
    pods.site.until("it is good for nothing", gone)


def test_the_init_container_writes_the_first_one(pods: Pods, tmp_path: Path) -> None:
    container = pods.site.kubelets.of(pods.mine)
    *entrypoint, _ = shipped()
    (tmp_path / "mount").mkdir()
    named = ("PATH", "NODE_NAME", "POD_NAMESPACE", "NPD_ACCOUNT", *container.environ.keys() & HOSTS)
    environ = {name: container.environ[name] for name in named} | {"NPD_TOKEN_DIR": str(tmp_path / "mount")}
    done = subprocess.run(  # noqa: S603
        mounted(container.folder / "secrets", [*entrypoint, "npd-token"]),
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    token = (tmp_path / "mount" / "token").read_text()
    assert pods.states(token, pods.mine).status == 200
    assert (tmp_path / "mount" / "ca.crt").read_bytes() == pods.plane.certificate.read_bytes()


HOSTS = {"KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"}
