"""Bare metal, on a real control plane: kured is asked by a file, a BMC once the machine is dead.

``DEAD_AFTER`` is how many seconds a machine has to be silent before it is taken for dead: 30 here, with
``DEAD_AFTER=shipped`` the five minutes that the program ships with.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from baremetal_site import ALONE, MERGE, NAMESPACE, RACK, BareMetalSite, MetalPlane
from fleet_site import GATE, RECORDS, any_right
from history import CONCLUDER, OF_CONCLUDER, THIEF, Request, moment

from recovery.kube.transport import Response

PODS = "/api/v1/namespaces/default/pods"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
OURS = "noderecovery.dev/unhealthy"
REDFISH = "components/redfish"
GRACE = 8
"""Seconds that a pod has to end. Its agent dies meanwhile, and Kubernetes misses its node later."""


@pytest.fixture(scope="module")
def _metal(tmp_path_factory: pytest.TempPathFactory, tell: Callable[[str], None]) -> Iterator[BareMetalSite]:
    wanted = os.environ.get("DEAD_AFTER", "30")
    seconds = 0.0 if wanted == "shipped" else float(wanted)
    tell(f"Bare metal: a machine is taken for dead after {f'{seconds:g} s' if seconds else 'five minutes'}")
    with (
        MetalPlane(tmp_path_factory.mktemp("plane")) as plane,
        BareMetalSite(plane, tmp_path_factory.mktemp("metal") / "site", seconds) as site,
    ):
        yield site


@pytest.fixture
def metal(_metal: BareMetalSite) -> BareMetalSite:
    _metal.clear()
    return _metal


def test_kured_is_asked_by_a_file_and_a_new_boot_proves_it_and_another_ones_cordon_stays(
    metal: BareMetalSite,
) -> None:
    metal.install("components/kured")
    sick = "metal-0"
    metal.join(sick, "metal-1")
    metal.plane.kubectl("cordon", sick)
    metal.breaks(sick)
    metal.until("kured is asked", metal.sentinel(sick).exists)
    assert f"node-recovery: {sick} is to be rebooted" in metal.sentinel(sick).read_text()
    assert OURS in metal.taints(sick)
    asked = "kured has been asked; it reboots"
    metal.until("it is waited for", lambda: asked in metal.log(sick))
    assert metal.phase(sick) == "recovering", "a file proves nothing"
    metal.boots(sick)
    sentence = metal.ends(sick, "recovered")
    assert sentence == f"proved: {sick} was healthy for 2 s on its own page"
    assert metal.node(sick)["spec"]["unschedulable"], "somebody else's cordon"
    assert OURS not in metal.taints(sick)
    metal.check_laws(sick, "kured")


def test_a_node_that_lives_is_drained_and_handed_over_and_its_power_is_not_touched(
    metal: BareMetalSite,
) -> None:
    metal.install(REDFISH)
    sick = "metal-0"
    metal.join(sick, "metal-1")
    pod(metal, "batch", sick)
    metal.breaks(sick)
    sentence = metal.ends(sick, "handedOver")
    never = f"handed over to a person: reboot of {sick} is never asked for by the node's own agent"
    assert sentence.startswith(never)
    assert not there(metal, "batch")
    assert metal.node(sick)["spec"]["unschedulable"]
    assert metal.resets() == []
    secret = f"/api/v1/namespaces/{CONCLUDER}/secrets/{RACK}"
    token = metal.kubelets.of(sick).token
    assert metal.plane.request("GET", secret, bearer=token, agent=THIEF).status == 403
    metal.check_laws(sick)


def test_a_machine_that_died_in_its_drain_gives_up_its_pods_and_is_switched_on_once(
    metal: BareMetalSite, tell: Callable[[str], None]
) -> None:
    metal.install(REDFISH)
    sick = "metal-0"
    metal.join("metal-1", "metal-2")
    metal.join(sick, kubelet=ALONE)
    pod(metal, "worker", sick)
    metal.kubelet_dies()
    metal.breaks(sick)
    metal.until("it is evicted", lambda: leaves(metal, "worker"))
    metal.hangs(sick)
    metal.until("Kubernetes misses it", lambda: not ready(metal, sick))
    metal.until("its time to end is over", lambda: overdue(metal, "worker"))
    seen = metal.looks()
    metal.until("its BMC is asked, and again", lambda: metal.looks() >= seen + 2)
    assert OUT_OF_SERVICE not in metal.taints(sick), "it has power: what runs on it nobody knows"

    metal.power_fails(sick)
    metal.until("its pods are given up", lambda: OUT_OF_SERVICE in metal.taints(sick))
    metal.until("the pods' garbage collector has them", lambda: not there(metal, "worker"))
    metal.until("the taint is off again", lambda: OUT_OF_SERVICE not in metal.taints(sick))
    metal.until("it is switched on", lambda: metal.resets() == [metal.nodes[sick]], 400)
    metal.bmc.release()
    metal.until("it has power", lambda: metal.bmc.power(metal.nodes[sick]) == "On")
    metal.boots(sick, kubelet=ALONE)
    sentence = metal.ends(sick, "recovered")
    assert sentence == f"proved: {sick} was healthy for 2 s on its own page"
    assert {OURS, OUT_OF_SERVICE} & set(metal.taints(sick)) == set()
    assert "unschedulable" not in metal.node(sick)["spec"]
    assert metal.resets() == [metal.nodes[sick]], "one reset, and no more"
    assert {r.name for r in changes_by_the_concluder(metal)} == {sick}
    metal.check_laws(sick, "reboot")
    tell("  a machine that died in its drain: its pods were given up, and it was switched on, once")


def test_root_on_one_node_does_not_have_anothers_power_switched(
    metal: BareMetalSite, tell: Callable[[str], None]
) -> None:
    """It lets its machine die in a drain, and writes another's system UUID into its Node and its record."""
    metal.install(REDFISH)
    victim, thief = "metal-1", "metal-0"
    metal.join("metal-2", victim)
    metal.join(thief, kubelet=ALONE)
    stolen = metal.kubelets.of(thief).token
    pod(metal, "worker", thief)
    metal.kubelet_dies()
    metal.breaks(thief)
    metal.until("it is evicted", lambda: leaves(metal, "worker"))
    metal.hangs(thief)
    metal.claims(thief, metal.nodes[victim])
    record = metal.plane.get(f"{RECORDS}/{thief}")
    record["status"]["machine"]["id"] = metal.nodes[victim]
    answer = metal.plane.request("PUT", f"{RECORDS}/{thief}", body=record, bearer=stolen, agent=THIEF)
    assert answer.status == 200, answer.body["message"]
    metal.until("Kubernetes misses it", lambda: not ready(metal, thief))
    sentence = metal.ends(thief, "handedOver")
    assert f"{thief} and {victim} claim to be one machine, {metal.nodes[victim]}" in sentence
    assert metal.resets() == []
    assert OUT_OF_SERVICE not in metal.taints(thief)
    tell("  root on one node claimed another's UUID: no power was switched, a person was told of both")


def test_the_concluders_token_changes_of_a_node_the_one_taint_and_nothing_else(metal: BareMetalSite) -> None:
    metal.install(REDFISH)
    metal.join("metal-0", "metal-1")
    token = concluders_token(metal)
    node = "/api/v1/nodes/metal-0"

    def asks(method: str, path: str, body: Any = None) -> Response:
        how = MERGE if method == "PATCH" else None
        return metal.plane.request(method, path, body=body, content_type=how, bearer=token, agent=THIEF)

    with any_right(metal.plane, CONCLUDER, CONCLUDER, token):
        metal.until("it is held back", lambda: asks("PATCH", node, FORGED["a cordon"]).status == 403)
        for what, patch in FORGED.items():
            answer = asks("PATCH", node, patch)
            assert answer.status == 403, (what, answer.body)
            assert "of a node the concluder changes the taint" in answer.body["message"]
        assert asks("PATCH", f"{node}/status", {"status": {"phase": "Terminated"}}).status == 403
        assert asks("DELETE", node).status == 403
        assert asks("POST", "/api/v1/nodes", {"metadata": {"name": "made-up"}}).status == 403
        metal.plane.request("POST", LEASES, body={"metadata": {"name": "somebodys"}})
        assert asks("DELETE", f"{LEASES}/somebodys").status == 403
        path, kept = GATE.rpartition("/")[0], {"finalizers": ["example.com/never"]}
        bare = {"apiVersion": "noderecovery.dev/v1alpha1", "kind": "RecoveryGate"}
        assert asks("POST", path, {**bare, "metadata": {"name": "fleet", **kept}}).status == 403
        assert asks("POST", path, {**bare, "metadata": {"name": "fleet"}}).status in (201, 409)
        assert asks("PATCH", GATE, {"metadata": kept}).status == 403
    taint = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}
    notes = {"noderecovery.dev/out-of-service-by": "node-recovery"}
    patch = {"metadata": {"annotations": notes}, "spec": {"taints": [taint]}}
    assert asks("PATCH", node, patch).status == 200


def concluders_token(site: BareMetalSite) -> str:
    """That of the installation as it is now. One of before it is worth nothing soon: its pod goes."""
    deployment = "deployment/node-recovery-concluder"
    site.plane.kubectl("rollout", "status", deployment, "-n", CONCLUDER, "--timeout=60s")
    site.until("a concluder runs", site.kubelets.concluder)
    found = site.kubelets.concluder()
    assert found is not None
    return found.token


OWNER = {"apiVersion": "v1", "uid": "00000000-0000-0000-0000-000000000000"}
FORGED: dict[str, Any] = {
    "a cordon": {"spec": {"unschedulable": True}},
    "another taint": {"spec": {"taints": [{"key": OURS, "effect": "NoExecute"}]}},
    "a label": {"metadata": {"labels": {"pool": "none"}}},
    "an owner": {"metadata": {"ownerReferences": [{**OWNER, "kind": "ConfigMap", "name": "none"}]}},
    "a finalizer": {"metadata": {"finalizers": ["example.com/never"]}},
    "an annotation": {"metadata": {"annotations": {"noderecovery.dev/bmc-address": "https://192.0.2.1"}}},
}


def test_the_expressions_of_its_policies_pass_the_servers_own_check_of_types(metal: BareMetalSite) -> None:
    metal.install(REDFISH)
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"

    def checked() -> list[Any]:
        found = [p for p in metal.plane.get(path)["items"] if CONCLUDER in p["metadata"]["name"]]
        return [p["status"].get("typeChecking") for p in found if "status" in p]

    metal.until("all are checked", lambda: len(checked()) == 5 and None not in checked())
    assert [c for c in checked() if c.get("expressionWarnings")] == []


def changes_by_the_concluder(site: BareMetalSite) -> list[Request]:
    """Of Nodes. Nobody of its account is refused anything."""
    asked = [r for r in site.audit.requests() if r.user == OF_CONCLUDER and r.agent != THIEF]
    refused = [r for r in asked if 400 <= r.status < 500 and r.status not in (404, 409, 429)]
    assert not refused, refused[:3]
    return [r for r in asked if r.resource.startswith("nodes") and r.verb not in ("get", "list")]


def ready(site: BareMetalSite, node: str) -> bool:
    found = {c["type"]: c["status"] for c in site.node(node)["status"].get("conditions", [])}
    return found.get("Ready") == "True"


def there(site: BareMetalSite, name: str) -> bool:
    return site.plane.request("GET", f"{PODS}/{name}").status == 200


def leaves(site: BareMetalSite, name: str) -> str:
    """Until when the pod may take to end; empty where nobody wants it to."""
    return str(site.plane.get(f"{PODS}/{name}")["metadata"].get("deletionTimestamp", ""))


def overdue(site: BareMetalSite, name: str) -> bool:
    return (datetime.now(UTC) - moment(leaves(site, name))).total_seconds() > 1


def pod(site: BareMetalSite, name: str, node: str) -> None:
    """One that nobody makes again, and that takes its time."""
    spec = {
        "nodeName": node,
        "terminationGracePeriodSeconds": GRACE,
        "containers": [{"name": "a", "image": "a"}],
    }
    answer = site.plane.request("POST", PODS, body={"metadata": {"name": name}, "spec": spec})
    assert answer.status == 201, answer.body
    path = f"{PODS}/{name}"
    site.until(f"{name} runs", lambda: site.plane.get(path)["status"].get("phase") == "Running")
