"""RBAC is exact: every verb that deploy/ grants to the agents is used, and nothing they ask is refused."""

from __future__ import annotations

import threading
from collections.abc import Callable

import yaml
from fleet_site import DEPLOY, GATE, INFRA, Site, let_go, training
from history import OF_CONCLUDER
from recovery_testkit.kubernetes import node_claim_crd

from recovery.store.lease import lease_name

MERGE = "application/merge-patch+json"
CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"


HEARD = ("list", "", "events")
"""What AKS auto-repair tells is asked for on Azure alone: test_azure."""
REMOVES = ("delete", "noderecovery.dev", "noderecoveries")
"""No record is removed within a day after it was closed. That it may be is asked by ``test_admission``."""
ASKED = ("create", "authentication.k8s.io", "tokenreviews")
"""Who asks for `explain` is looked up where somebody asks: test_explain."""
REPORTS = {(verb, "noderecovery.dev", "recoveryreports") for verb in ("get", "create", "update")}
"""What is seen with recovery off is kept by who is off: test_observe. Read once at each start."""
ON_IT = 2
"""Pods on the node that breaks."""


def granted() -> set[tuple[str, str, str]]:
    """(verb, API group, resource) of the agents' roles. The detector's own are for the detector."""
    found = set()
    for file in ("rbac/clusterrole.yaml", "rbac/role.yaml", "npd-account/rbac.yaml"):
        role, *_ = yaml.safe_load_all((DEPLOY / file).read_text())
        for rule in role["rules"]:
            found |= {(v, g, r) for v in rule["verbs"] for g in rule["apiGroups"] for r in rule["resources"]}
    return found


def karpenter(site: Site, node: str, stopped: threading.Event) -> None:
    """Karpenter's part: it ends the machine of a NodeClaim that is deleted, and lets go of it."""
    path = f"{CLAIMS}/of-{node}"
    while not stopped.wait(0.2):
        claim = site.plane.request("GET", path).body
        if claim.get("metadata", {}).get("deletionTimestamp"):
            site.power_off(node)
            site.plane.request("DELETE", f"/api/v1/nodes/{node}", user="cloud")
            site.plane.request("PATCH", path, body={"metadata": {"finalizers": None}}, content_type=MERGE)
            return


def karpenters_node(site: Site) -> str:
    """A machine that Karpenter launched, and its Node with the NodeClaim that owns it."""
    plane = site.plane
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    plane.request("POST", crds, body=node_claim_crd())
    plane.until("NodeClaims are served", lambda: plane.request("GET", CLAIMS).status == 200)
    ec2 = site.aws.client("ec2")
    launched = ec2.run_instances(ImageId="ami-12c6146b", MinCount=1, MaxCount=1)["Instances"]
    machine = str(launched[0]["InstanceId"])
    node = f"ip-{machine[-8:]}"
    meta = {"name": f"of-{node}", "finalizers": ["karpenter.sh/termination"]}
    claim = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": meta, "spec": {}}
    made = plane.request("POST", CLAIMS, body=claim)
    assert made.status == 201, made.body
    for path in (f"{CLAIMS}/of-{node}/status", f"{CLAIMS}/of-{node}"):
        plane.request("PATCH", path, body={"status": {"nodeName": node}}, content_type=MERGE)
    site.detectors.install(node)
    labels = {"karpenter.sh/nodepool": "trn", "node.kubernetes.io/instance-type": "trn1.32xlarge"}
    site.register(node, machine, f"aws:///us-west-2a/{machine}", labels)
    owner = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "name": f"of-{node}",
        "uid": made.body["metadata"]["uid"],
    }
    patch = {"metadata": {"ownerReferences": [owner]}}
    assert plane.request("PATCH", f"/api/v1/nodes/{node}", body=patch, content_type=MERGE).status == 200
    return node


def paused_twice(site: Site) -> None:
    """What is told of the second pause is what was told of the first, so that its Event is counted up.

    Between them the pods are asked for twice, and it is told that they are waited for: that is other news.
    """

    def evictions() -> int:
        return sum(r.resource == "pods/eviction" for r in site.audit.ours())

    def told() -> int:
        events = site.plane.get("/api/v1/namespaces/default/events")["items"]
        return sum(e["count"] for e in events if "ada paused all recoveries" in e.get("message", ""))

    for times in (1, 2):
        before = evictions()
        site.until("pods are asked for, and again", lambda known=before: evictions() > known + ON_IT)
        pause = {"owner": "ada", "reason": "a network change"}
        site.plane.request("PATCH", GATE, body={"spec": {"pause": pause}}, content_type=MERGE)
        site.until("the pause is told", lambda expected=times: told() == expected)
        site.plane.request("PATCH", GATE, body={"spec": {"pause": None}}, content_type=MERGE)


def test_every_right_is_used_and_none_is_missing(site: Site, tell: Callable[[str], None]) -> None:
    site.recovering()
    nodes = site.group(2)
    training(site.plane, replicas=2 * ON_IT, most_out=0)
    sick = next(iter(nodes))
    site.breaks(sick)
    paused_twice(site)
    let_go(site.plane, 1)
    site.until("the group's node is recovered", lambda: site.phase(sick) == "recovered", 120)

    claimed = karpenters_node(site)
    site.ready([claimed])
    stopped = threading.Event()
    player = threading.Thread(target=karpenter, args=(site, claimed, stopped), daemon=True)
    site.breaks(claimed)
    looked = ("get", "karpenter.sh", "nodeclaims")
    site.until("its agent looks how far Karpenter is", lambda: looked in used(site))
    player.start()
    try:
        site.until("Karpenter's node is recovered", lambda: site.phase(claimed) == "recovered", 120)
    finally:
        stopped.set()
        player.join()
    site.until("every slot is free", lambda: not site.slots())

    assert granted() - used(site) - REPORTS == {HEARD, REMOVES, ASKED}, "granted, and never used"
    assert used(site) - granted() == set(), "used, and granted by something else"
    site.check_laws([sick, claimed], finished=True)
    here, count = len(granted() & used(site)), len(granted())
    tell(f"RBAC: {here} of {count} rights of deploy/rbac were used here, none was refused")


def test_the_concluder_is_granted_what_it_uses_and_is_refused_nothing(
    site: Site, tell: Callable[[str], None]
) -> None:
    """It ends what the only agent there was had begun."""
    site.recovering()
    (sick,) = site.group(1)
    site.until("it runs where nobody is judged", lambda: runs_on(site) == INFRA)
    groups = list(site.groups)
    site.groups.clear()  # the machine is not terminated yet
    site.breaks(sick)
    site.until("it is followed", lambda: "was accepted by aws" in site.log(sick))
    site.power_off(sick)
    site.until("the concluder has taken its Lease", lambda: OF_CONCLUDER in holders_of(site, sick))
    site.groups += groups
    site.until("it is recovered", lambda: site.phase(sick) == "recovered", 120)
    site.until("every slot is free", lambda: not site.slots())
    used = used_by(site, OF_CONCLUDER)
    assert WRITES in used, "it was the concluder that ended it"
    assert used - concluders() == set(), "used, and granted by something else"
    assert ("patch", "", "nodes") not in concluders()
    assert ("create", "", "pods/eviction") not in concluders()
    tell(f"RBAC: the concluder used {len(used)} of {len(concluders())} rights of its own, none was refused")


WRITES = ("update", "noderecovery.dev", "noderecoveries")


def runs_on(site: Site) -> str:
    found = site.kubelets.concluder()
    return found.node if found is not None else ""


def concluders() -> set[tuple[str, str, str]]:
    """(verb, API group, resource) of the concluder's role, and of the agents' in their namespace."""
    found = set()
    for file in ("concluder/rbac.yaml", "rbac/role.yaml"):
        for document in yaml.safe_load_all((DEPLOY / file).read_text()):
            for rule in document.get("rules", ()):
                found |= {
                    (v, g, r) for v in rule["verbs"] for g in rule["apiGroups"] for r in rule["resources"]
                }
    return found


def used_by(site: Site, account: str) -> set[tuple[str, str, str]]:
    ours = [r for r in site.audit.ours() if r.user == account]
    return {(r.verb, r.group, r.resource) for r in ours if r.status < 400}


def holders_of(site: Site, node: str) -> set[str]:
    """Who wrote the Lease of ``node``."""
    return {r.user for r in site.audit.ours() if (r.verb, r.name) == ("update", lease_name(node))}


def used(site: Site) -> set[tuple[str, str, str]]:
    """By the agents' account."""
    return used_by(site, site.audit.account)
