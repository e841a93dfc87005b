"""Azure, on a real control plane: the shipped manifests and program, and a Resource Manager that counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from azure_site import AzureSite
from fleet_site import GATE
from plane import Plane

LADDER = "{do: drain, within: 1m}, {do: reimage, within: 10m}, {do: redeploy, within: 10m}"
REPLACE = "{do: drain, within: 1m}, {do: replace, within: 10m}"


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureSite]:
    """A plane of its own: what is installed here has the names of what the other tests install."""
    with (
        Plane(tmp_path_factory.mktemp("plane")) as plane,
        AzureSite(plane, tmp_path_factory.mktemp("azure") / "site") as site,
    ):
        yield site


def test_a_gpu_node_is_reimaged_in_vain_and_cured_by_another_host(
    azure: AzureSite, tell: Callable[[str], None]
) -> None:
    azure.install(LADDER)
    sick, *_ = azure.arm.instances(azure.set_of("gpu", 3))
    azure.arm.lose_answer(on="POST *")  # of the reimage: it was accepted, and nobody is told
    azure.breaks(sick.computer_name)
    azure.until("it is recovered", lambda: azure.phase(sick.computer_name) == "recovered")
    assert azure.asked() == ["POST reimage", "POST redeploy"]
    now = azure.arm.instance(sick.id)
    assert (now.vm_id, now.boots) == (sick.vm_id, sick.boots + 2)
    assert now.host != sick.host
    heard = {r.status for r in azure.audit.ours() if (r.verb, r.resource) == ("list", "events")}
    assert heard == {200}, "what AKS auto-repair tells is listened to, and that is granted"
    azure.until("the books are closed", lambda: closed(azure))
    azure.check_laws(sick.vm_id, sick.computer_name)
    tell("Azure: a scale-set node was reimaged in vain, and cured by a redeployment: one request for each")


def test_a_node_of_aks_is_deleted_by_aks_and_its_pool_is_as_large_as_before(
    azure: AzureSite, tell: Callable[[str], None]
) -> None:
    scale_set = azure.arm.scale_set("aks-gpu-1-vmss", size=0)
    cluster = azure.arm.managed_cluster("training", pools={"gpu": scale_set})
    azure.install(REPLACE, AZURE_ALLOW="aks-replace", AZURE_CLUSTER_ID=cluster)
    labels = {"kubernetes.azure.com/cluster": "MC_x", "kubernetes.azure.com/agentpool": "gpu"}
    azure.set_of("aks-gpu-1-vmss", 3, **labels)
    sick, *_ = azure.arm.instances(scale_set)
    azure.breaks(sick.computer_name)
    azure.until("it is recovered", lambda: azure.phase(sick.computer_name) == "recovered")
    assert azure.asked() == ["POST deleteMachines", "PUT"]
    assert azure.arm.capacity(scale_set) == 3
    azure.until("the books are closed", lambda: closed(azure))
    azure.check_laws(sick.vm_id, sick.computer_name)
    tell(
        "Azure: AKS deleted a machine, and its pool was told to want as many as before: one request for each"
    )


def closed(azure: AzureSite) -> bool:
    """Nobody holds a slot, and nobody waits for one."""
    status = azure.plane.get(GATE)["status"]
    return not status.get("slots") and not status.get("open")
