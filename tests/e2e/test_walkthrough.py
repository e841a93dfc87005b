"""A Neuron node fails and is replaced: all parts real but the group's and, without one, the detector."""

from __future__ import annotations

import time
from collections.abc import Callable

from fleet_site import ACCOUNT, INFRA, NAMESPACE, Site, training
from history import Request
from kubelets import claims

PHASES = (
    "the fault is on the page",
    "it is on record",
    "a slot of the budget",
    "cordoned",
    "first eviction",
    "drained",
    "the group is asked",
    "the replacement is a node",
    "it is on probation",
    "recovered",
)

COLUMNS = ("NAME", "PHASE", "SINCE", "FAULT")


def phases(site: Site, node: str, fault: float) -> dict[str, float]:
    """Seconds since the kernel's line, by audit log, cloud and group, which have the same clock."""
    done = [r for r in site.audit.requests() if 200 <= r.status < 300]

    def first(what: Callable[[Request], object]) -> float:
        return next(r.done.timestamp() for r in done if what(r))

    def on_record(event: str) -> Callable[[Request], object]:
        return lambda r: (
            r.resource == "noderecoveries"
            and r.name == node
            and event in [line["event"] for line in r.object.get("status", {}).get("history", [])]
        )

    def slot(r: Request) -> object:
        slots = r.object.get("status", {}).get("slots", [])
        return r.resource == "recoverygates" and any(slot["node"] == node for slot in slots)

    at = {
        "it is on record": first(lambda r: r.resource == "noderecoveries" and r.verb == "create"),
        "a slot of the budget": first(slot),
        "cordoned": first(lambda r: r.resource == "nodes" and r.verb == "patch" and r.name == r.node),
        "first eviction": first(lambda r: r.resource == "pods/eviction"),
        "drained": first(on_record("rung")),
        "the group is asked": next(r.at for r in site.proxy.requests if r.action == "SetInstanceHealth"),
        "the replacement is a node": next(t for t, what in site.played if "joined" in what),
        "it is on probation": first(on_record("joined")),
        "recovered": first(on_record("recovered")),
    }
    return {"the fault is on the page": 0.0} | {name: when - fault for name, when in at.items()}


def test_a_neuron_node_fails_and_is_replaced(site: Site, tell: Callable[[str], None]) -> None:
    site.recovering()
    nodes = site.group(3)
    training(site.plane, replicas=6, most_out=1)
    sick, *well = nodes
    token = claims(site.kubelets.of(sick).token)
    assert token["sub"] == f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
    assert token["kubernetes.io"]["node"]["name"] == sick

    began = time.time()
    site.breaks(sick)
    site.until("the node is recovered", lambda: site.phase(sick) == "recovered", 120)
    site.until("its slot is free", lambda: not site.slots())
    site.check_laws([sick], finished=True)

    assert site.marked() == [nodes[sick]]
    (new,) = set(site.instances) - set(nodes)
    record = site.records()[sick]
    assert record["replacement"] == new
    assert record["replacementMachine"] == site.instances[new]
    left = [n for n in site.plane.get("/api/v1/nodes")["items"] if n["metadata"]["name"] != INFRA]
    assert sorted(n["metadata"]["name"] for n in left) == sorted([new, *well])
    assert not [n for n in left if n["spec"].get("unschedulable") or n["spec"].get("taints")]

    evicted = [r for r in site.audit.ours() if r.resource == "pods/eviction"]
    assert {r.status for r in evicted} <= {201, 429}
    assert len([r for r in evicted if r.status == 201]) >= 2, "a budget of one had to be waited for"
    concluded = [r for r in site.audit.ours() if r.resource == "noderecoveries" and r.verb == "update"]
    assert concluded[-1].name == sick
    assert concluded[-1].node != sick, "proved by a peer: the agent of the node is gone with it"

    metrics = site.aws.client("cloudwatch").list_metrics(Namespace="NeuronHealthCheck")["Metrics"]
    assert "NeuronHasError_DMA_ERROR" in {m["MetricName"] for m in metrics}

    table = site.plane.kubectl("get", "nr")
    assert table.splitlines()[0].split() == list(COLUMNS)
    assert sick in table
    assert "recovered" in table
    assert "NeuronHasError_DMA_ERROR" in table
    events = site.plane.kubectl("get", "events", "--field-selector", f"involvedObject.name={sick}")
    for reason in ("FaultSeen", "RecoveryStarted", "Cordoned", "Draining", "Replacing", "Recovered"):
        assert reason in events

    found = phases(site, sick, began)
    assert list(found) == list(PHASES)
    assert sorted(found.values()) == list(found.values()), found
    tell("Seconds since the kernel's line, in the walkthrough:")
    for name, seconds in found.items():
        tell(f"{seconds:7.2f}  {name}")


def test_kubectl_describe_shows_what_goes_on_while_it_goes_on(site: Site) -> None:
    site.recovering()
    nodes = site.group(2)
    sick = next(iter(nodes))
    site.groups.clear()  # nobody terminates anything: it stays as it is
    site.breaks(sick)
    site.until("the group is asked", site.marked)
    site.until("it is followed", lambda: "Submitted" in site.plane.kubectl("describe", "node", sick))
    told = site.plane.kubectl("describe", "node", sick)
    assert "noderecovery.dev/cordoned-by: node-recovery" in told
    assert "Unschedulable:      true" in told
    assert "noderecovery.dev/unhealthy" in told
    for reason in ("FaultSeen", "Cordoned", "Replacing"):
        assert reason in told


def test_as_it_ships_it_tells_what_it_would_do_and_changes_nothing(site: Site) -> None:
    site.watching()
    nodes = site.group(2)
    sick = next(iter(nodes))
    site.breaks(sick)
    site.until("it says so", lambda: f"would drain {sick}; then replace" in site.log(sick))
    assert site.marked() == []
    assert site.records() == {}
    changed = [r for r in site.audit.ours() if r.verb not in ("get", "list") and r.resource != "events"]
    stored = [r for r in changed if r.resource != "serviceaccounts/token"]  # of a token nothing is kept
    assert {(r.resource, r.name) for r in stored} <= {("recoveryreports", "fleet")}, "law 7 names it"
