"""A real Karpenter beside the controller, as ``docs/karpenter.md`` says that the two behave."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from karpenter_site import BINARY, REPAIR_AFTER, KarpenterSite
from plane import Plane

pytestmark = pytest.mark.skipif(
    not BINARY, reason="KARPENTER_BINARY names no program of tests/e2e/tools/karpenter: see its README.md"
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KarpenterSite]:
    folder = tmp_path_factory.mktemp("karpenter")
    (folder / "plane").mkdir()
    with Plane(folder / "plane") as plane, KarpenterSite(plane, folder / "site") as site:
        yield site


@pytest.fixture
def site(whole: KarpenterSite) -> Iterator[KarpenterSite]:
    whole.clear()
    whole.installed()
    whole.ready([])
    yield whole
    assert whole.refused() == []


def sick(site: KarpenterSite, node: str) -> None:
    site.states(node, "NeuronHealth", "True", "NeuronHasError_DMA_ERROR")


def unwell(site: KarpenterSite, node: str, reason: str = "NvidiaXID79Error") -> None:
    site.states(node, "AcceleratedHardwareReady", "False", reason)


def well(site: KarpenterSite, node: str) -> None:
    site.states(node, "AcceleratedHardwareReady", "True", "NoError")


def rebooted(site: KarpenterSite) -> list[str]:
    """The machines that we had rebooted."""
    return [r.params["InstanceId.1"] for r in site.proxy.requests if r.action == "RebootInstances"]


def told(site: KarpenterSite, node: str) -> list[str]:
    return [f"{line['event']}: {line['sentence']}" for line in site.records()[node]["history"]]


def ended(site: KarpenterSite, node: str, seconds: float = 120) -> str:
    over = ("recovered", "superseded", "handedOver", "withdrawn")
    site.until(f"{node} is at its end", lambda: site.phase(node) in over, seconds)
    return site.phase(node)


def changing_calls(site: KarpenterSite) -> list[str]:
    return [r.action for r in site.proxy.requests if not r.action.startswith(("Describe", "PutMetric"))]


def test_a_node_is_replaced_by_deleting_its_claim_and_karpenter_makes_another(site: KarpenterSite) -> None:
    site.karpenter_runs()
    site.pool()
    node, *_ = site.work(3)
    machine = site.nodes()[node]["spec"]["providerID"].rpartition("/")[2]
    claim = site.claim_of(node)
    sick(site, node)
    assert ended(site, node) == "recovered"
    assert site.records()[node]["sentence"] == f"proved: Node {node} and NodeClaim {claim} are gone"
    assert changing_calls(site) == []
    assert state(site, machine) == "terminated"
    site.until("all the work runs again", lambda: len(site.working()) == 3, 60)
    assert len(site.nodes()) == 3


def state(site: KarpenterSite, machine: str) -> str:
    found = site.aws.client("ec2").describe_instances(InstanceIds=[machine])
    return str(found["Reservations"][0]["Instances"][0]["State"]["Name"])


def test_a_drain_that_karpenter_cannot_end_is_a_persons_at_the_deadline_though_karpenter_marks_the_node(
    site: KarpenterSite,
) -> None:
    site.karpenter_runs()
    site.pool()
    node, *_ = site.work(2)
    site.most_out(0)
    sick(site, node)
    assert ended(site, node) == "handedOver"
    assert {"karpenter.sh/disrupted", "noderecovery.dev/unhealthy"} <= site.taints(node)
    late = (
        f"replace did not succeed within 60 s: NodeClaim {site.claim_of(node)} is being deleted by Karpenter"
    )
    assert late in site.records()[node]["sentence"]
    assert node in site.working().values(), "its budget was respected, by both"
    site.until("its place is free", lambda: not site.slots())
    site.most_out(1)
    site.until("Karpenter ends it", lambda: site.phase(node) == "superseded", 200)


def test_with_a_grace_period_karpenter_ends_what_the_drain_could_not(site: KarpenterSite) -> None:
    site.karpenter_runs()
    site.pool(grace="15s")
    node, *_ = site.work(2)
    site.most_out(0)
    sick(site, node)
    assert ended(site, node) == "recovered"
    assert any("going on without them, as the policy says; next: replace" in x for x in told(site, node))


def test_a_node_that_our_drain_emptied_is_consolidated_and_no_person_is_called(site: KarpenterSite) -> None:
    site.karpenter_runs()
    site.pool(consolidate_after="0s")
    node, *_ = site.work(2)
    unwell(site, node)
    assert ended(site, node) == "superseded"
    assert not any(x.startswith("handedOver") for x in told(site, node))


def test_do_not_disrupt_keeps_karpenter_from_a_node_that_is_rebooted(site: KarpenterSite) -> None:
    site.karpenter_runs()
    site.pool(consolidate_after="0s")
    node, *_ = site.work(2)
    site.annotate(f"/api/v1/nodes/{node}", do_not_disrupt="true")
    machine = site.nodes()[node]["spec"]["providerID"].rpartition("/")[2]
    unwell(site, node)
    site.until("it is rebooted", lambda: site.phase(node) == "proving")
    well(site, node)
    assert ended(site, node) == "recovered"
    assert rebooted(site) == [machine]
    assert site.taints(node) == set()


def test_karpenters_node_repair_overtakes_a_drain_and_we_hold_back(site: KarpenterSite) -> None:
    site.karpenter_runs(repair=True)
    site.pool()
    node, *_ = site.work(6)
    site.most_out(0)
    unwell(site, node)
    site.until("Karpenter takes it", lambda: "karpenter.sh/disrupted" in site.taints(node), REPAIR_AFTER + 90)
    holds = f"Karpenter holds {node} (taint karpenter.sh/disrupted)"
    site.until("we hold back", lambda: holds in site.logs())
    assert ended(site, node) == "superseded"
    assert changing_calls(site) == []


def test_each_of_the_two_can_be_kept_from_one_node(site: KarpenterSite) -> None:
    site.karpenter_runs(repair=True)
    site.pool()
    node, *_ = site.work(6)
    site.annotate(f"/api/v1/nodes/{node}", do_not_repair="true")
    site.plane.kubectl("label", "node", node, "noderecovery.dev/exclude=true")
    unwell(site, node)
    blocked = 'repair is blocked through the "karpenter.sh/do-not-repair" annotation'
    events = ("get", "events", "-A", "--field-selector", f"involvedObject.name={node}")
    site.until("Karpenter says so", lambda: blocked in site.plane.kubectl(*events), REPAIR_AFTER + 90)
    assert node not in site.records()
    assert site.taints(node) == set()
