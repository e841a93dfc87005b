"""A real Karpenter beside the controller, as ``docs/karpenter.md`` says that the two behave."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from karpenter_site import BINARY, KarpenterSite
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
