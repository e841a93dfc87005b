"""What goes on beside a recovery on Azure: a process that is stopped, VMs that are Failed, sets that go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.stories.scenery import pass_time, records
from tests.stories.test_azure import REPLACES, AzureStage
from tests.stories.test_azure_slow import FleetOnAzure, restarts
from tests.stories.test_conditions import NEURON, writes

GOOD = ("NeuronHealth", "False", "NeuronHasNoError")


def test_a_controller_that_stood_still_in_its_look_asks_for_nothing_once_another_has_gone_on() -> None:
    """It was stopped for 25 minutes between its last look at the VM and the request. Its replica had the VM
    restarted, proved it and gave the node back; then the first one's restart came to a healthy node."""
    azure = FleetOnAzure(boot_takes=60)
    look, stood = azure.provider._same_machine, []
    first = azure.node("node-0")["status"]["nodeInfo"]["bootID"]

    def goes_on() -> None:
        azure.clock.advance(5)
        azure.act()
        mended = azure.node("node-0")["status"]["nodeInfo"]["bootID"] != first
        writes(azure, GOOD if mended else NEURON)  # the detector renews what it says
        azure.turns()

    def stands_still(machine: Any) -> Any:
        found = look(machine)
        if azure.provider.calls and not stood:
            stood.append(machine)
            azure.actors["controller"].alive = False
            azure.fleet("controller-2")
            for _ in range(300):
                goes_on()
            azure.actors["controller"].alive = True
            assert (restarts(azure), records(azure)) == (["restart"], {"node-0": "recovered"})
        return found

    azure.provider._same_machine = stands_still
    for _ in range(60):
        goes_on()
    azure.arm.stop()
    assert stood
    assert restarts(azure) == ["restart"]


@pytest.fixture
def stage() -> Iterator[AzureStage]:
    stage = AzureStage(REPLACES)
    yield stage
    stage.arm.stop()


def test_a_vm_that_is_failed_and_runs_on_keeps_no_other_of_its_set_from_being_replaced(
    stage: AzureStage,
) -> None:
    """A failing extension is enough for that. Its set counted as short of it, and nothing came for it."""
    stage.concluder()
    stage.begin()
    stage.arm.put(stage.arm.instances(stage.set)[1].id, provisioning="Failed")
    pass_time(stage, 1800, stage, step=5.0)  # type: ignore[arg-type]
    assert stage.asked() == ["DELETE", "PATCH"]
    assert records(stage)["node-0"] in ("recovered", "superseded")
    assert not stage.gate().slots
