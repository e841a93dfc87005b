"""On AKS no pod takes the port of the node's own detector: a policy, on a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from plane import Plane

from recovery.kube.transport import Response
from tests.builders.manifests import DEPLOY

FILE = str(DEPLOY / "aks-gpu" / "agents" / "host-port.yaml")
POLICY = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/node-recovery-host-port"


@pytest.fixture
def guarded(plane: Plane) -> Iterator[Plane]:
    plane.kubectl("apply", "-f", FILE)
    plane.until("the policy binds", lambda: made(plane, ports=port(20257)).status == 403)
    yield plane
    plane.kubectl("delete", "-f", FILE)


def made(plane: Plane, spec: dict[str, Any] | None = None, **container: Any) -> Response:
    """Whether such a pod would be made."""
    only = {"name": "main", "image": "registry.example/none:1", **container}
    body = {"metadata": {"generateName": "p-"}, "spec": {"containers": [only], **(spec or {})}}
    return plane.request("POST", "/api/v1/namespaces/default/pods", query={"dryRun": "All"}, body=body)


def port(host: int = 0, **more: Any) -> list[dict[str, Any]]:
    return [{"containerPort": 20257, **({"hostPort": host} if host else {}), **more}]


def test_a_pod_that_would_answer_in_the_detectors_place_is_refused_and_no_other(guarded: Plane) -> None:
    answer = made(guarded, ports=port(20257))
    assert "the port 20257 of a node is its node-problem-detector's" in answer.body["message"]
    first = {"name": "first", "image": "registry.example/none:1", "ports": port(20257)}
    for spec in ({"hostNetwork": True}, {"initContainers": [first]}):
        ports = port() if "hostNetwork" in spec else []
        assert made(guarded, spec, ports=ports).status == 403, spec
    assert made(guarded, ports=[{"containerPort": 80}, *port(20257, hostIP="127.0.0.1")]).status == 403
    for ports in ([], port(), port(20258)):
        assert made(guarded, ports=ports).status == 201, ports

    def checked() -> Any:
        return guarded.get(POLICY).get("status", {}).get("typeChecking")

    guarded.until("its types are checked", lambda: checked() is not None)
    assert checked().get("expressionWarnings", []) == []
