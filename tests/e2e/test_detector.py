"""A detector without an agent writes the conditions of its own node, and no other's: on a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from plane import Plane

from recovery.kube.transport import Response
from tests.builders.manifests import DEPLOY, documents

GPU = DEPLOY / "npd-gpu"
NAME = "gpu-problem-detector"
"""Its namespace, its account, its roles."""
FILES = tuple(GPU / file for file in ("namespace.yaml", "rbac.yaml", "admission.yaml"))
POLICY = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/node-recovery-detector"
MINE, OTHER = "gpu-mine", "gpu-other"
PODS = f"/api/v1/namespaces/{NAME}/pods"
STRATEGIC = "application/strategic-merge-patch+json"
Json = dict[str, Any]


class Thief:
    """Who holds the token of the detector on ``MINE``."""

    def __init__(self, plane: Plane, token: str) -> None:
        self.plane, self.token = plane, token

    def patches(self, node: str, body: Json, part: str = "/status") -> Response:
        path = f"/api/v1/nodes/{node}{part}"
        return self.plane.request("PATCH", path, body=body, content_type=STRATEGIC, bearer=self.token)

    def states(self, node: str, reason: str = "GpuXid79") -> Response:
        condition = {"type": "GpuXid", "status": "True", "reason": reason, "message": "XID 79"}
        return self.patches(node, {"status": {"conditions": [condition]}})


def token_of(plane: Plane, pod: str) -> str:
    """As the pod's kubelet asks for it: it names the node."""
    account = f"/api/v1/namespaces/{NAME}/serviceaccounts/{NAME}/token"
    uid = plane.get(f"{PODS}/{pod}")["metadata"]["uid"]
    bound = {"kind": "Pod", "apiVersion": "v1", "name": pod, "uid": uid}
    answer = plane.request("POST", account, body={"spec": {"boundObjectRef": bound}})
    assert answer.status == 201, answer.body
    return str(answer.body["status"]["token"])


@pytest.fixture(scope="module")
def thief(plane: Plane) -> Iterator[Thief]:
    for file in FILES:
        plane.kubectl("apply", "--namespace", NAME, "-f", str(file))
    for node in (MINE, OTHER):
        assert plane.request("POST", "/api/v1/nodes", body={"metadata": {"name": node}}).status == 201
        gpus = {part: {"nvidia.com/gpu": "8"} for part in ("capacity", "allocatable")}
        path = f"/api/v1/nodes/{node}/status"
        assert plane.request("PATCH", path, body={"status": gpus}, content_type=STRATEGIC).status == 200
    spec = {"nodeName": MINE, "serviceAccountName": NAME, "containers": [{"name": "npd", "image": "none"}]}
    made = plane.request("POST", PODS, body={"metadata": {"name": "npd"}, "spec": spec})
    assert made.status == 201, made.body
    found = Thief(plane, token_of(plane, "npd"))
    plane.until("the policy binds", lambda: found.states(OTHER).status == 403)
    yield found
    for path in (f"{PODS}/npd", f"/api/v1/nodes/{MINE}", f"/api/v1/nodes/{OTHER}"):
        plane.request("DELETE", path, query={"gracePeriodSeconds": "0"})
    for file in reversed(FILES):
        plane.kubectl("delete", "--ignore-not-found", "--wait=false", "--namespace", NAME, "-f", str(file))


def test_it_states_a_condition_of_its_own_node(thief: Thief) -> None:
    assert thief.states(MINE).status == 200
    conditions = thief.plane.get(f"/api/v1/nodes/{MINE}")["status"]["conditions"]
    assert "GpuXid79" in {condition["reason"] for condition in conditions}


def test_what_it_says_of_another_node_is_refused_with_the_reason(thief: Thief) -> None:
    answer = thief.states(OTHER, "GpuXid48")
    assert answer.status == 403
    assert f"its own node only; this token is for '{MINE}'" in answer.body["message"]
    assert "GpuXid48" not in str(thief.plane.get(f"/api/v1/nodes/{OTHER}").get("status"))


@pytest.mark.parametrize(
    "body",
    [
        {"metadata": {"labels": {"nvidia.com/gpu.present": "true"}}},
        {"metadata": {"annotations": {"noderecovery.dev/bmc-address": "10.0.0.1"}}},
        {"metadata": {"finalizers": ["example.com/for-ever"]}},
        {"status": {"capacity": {"nvidia.com/gpu": "0"}}},
        {"status": {"allocatable": {"nvidia.com/gpu": "0"}}},
        {"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]}},
        {"status": {"nodeInfo": {"bootID": "another", "systemUUID": "another's"}}},
    ],
    ids=[
        "a label",
        "an annotation",
        "a finalizer",
        "capacity",
        "allocatable",
        "an address",
        "a boot and a machine",
    ],
)
def test_of_its_own_node_it_changes_nothing_but_conditions(thief: Thief, body: Json) -> None:
    answer = thief.patches(MINE, body)
    assert answer.status == 403, answer.body
    assert "nothing of a node but its conditions" in answer.body["message"]


def test_a_token_that_names_no_node_writes_nothing(thief: Thief) -> None:
    path = f"/api/v1/namespaces/{NAME}/serviceaccounts/{NAME}/token"
    token = thief.plane.request("POST", path, body={"spec": {}}).body["status"]["token"]
    assert Thief(thief.plane, token).states(MINE).status == 403


def test_rbac_leaves_it_nothing_else_of_a_node(thief: Thief) -> None:
    assert thief.patches(MINE, {"spec": {"unschedulable": True}}, part="").status == 403
    assert thief.plane.request("DELETE", f"/api/v1/nodes/{MINE}", bearer=thief.token).status == 403


def test_others_are_not_limited_by_it_and_its_types_are_checked(thief: Thief) -> None:
    path = f"/api/v1/nodes/{OTHER}/status"
    body = {"status": {"capacity": {"nvidia.com/gpu": "8"}}}
    assert thief.plane.request("PATCH", path, body=body, content_type=STRATEGIC).status == 200

    def checked() -> Any:
        return thief.plane.get(POLICY).get("status", {}).get("typeChecking")

    thief.plane.until("its types are checked", lambda: checked() is not None)
    assert checked().get("expressionWarnings", []) == []


def test_the_policy_names_the_account_that_the_manifests_make() -> None:
    found = [d for file in FILES for d in documents(file)]
    (account,) = [d["metadata"]["name"] for d in found if d["kind"] == "ServiceAccount"]
    (policy,) = [d for d in found if d["kind"] == "ValidatingAdmissionPolicy"]
    (condition,) = policy["spec"]["matchConditions"]
    assert condition["expression"].endswith(f'"system:serviceaccount:{NAME}:{account}"')
