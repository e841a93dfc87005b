"""What goes on beside a recovery on Azure: a process that is stopped, VMs that are Failed, sets that go."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from recovery_testkit.arm import FakeArm
from recovery_testkit.stage import Page, Stage

from providers.azure.options import Options
from providers.azure.session import AzureSession, Limits
from providers.azure.vmss import AzureProvider
from recovery.errors import Ambiguous
from tests.builders.objects import node_object
from tests.stories.scenery import pass_time, records
from tests.stories.scenes import messages, value
from tests.stories.test_azure import REPLACES, AzureStage
from tests.stories.test_azure_slow import FleetOnAzure, ready, restarts
from tests.stories.test_conditions import NEURON, policy, writes

GOOD = ("NeuronHealth", "False", "NeuronHasNoError")
NOT_FOUND = json.dumps({"error": {"code": "NotFound", "message": "It was not found."}}).encode()


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

    def stands_still(machine: Any, **more: Any) -> Any:
        found = look(machine, **more)
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


def test_one_answer_that_lacks_a_vm_does_not_end_its_hand_over() -> None:
    """Azure's answers differ for moments. The node was cordoned still, did not count, and nobody was told."""
    stage = AzureStage("{do: cordon}")
    stage.concluder()
    stage.begin()
    pass_time(stage, 120, stage, step=5.0)  # type: ignore[arg-type]
    assert records(stage) == {"node-0": "handedOver"}
    stage._end_agent("node-0")
    stage.store.stop_kubelet("node-0")
    ready(stage, "node-0", "Unknown")  # type: ignore[arg-type]
    pass_time(stage, 300, stage, step=5.0)  # type: ignore[arg-type]
    (vm, *_) = stage.arm.instances(stage.set)
    stage.arm.answer(f"GET {vm.id}", NOT_FOUND, status=404, times=1)
    pass_time(stage, 300, stage, step=5.0)  # type: ignore[arg-type]
    assert records(stage) == {"node-0": "handedOver"}
    stage.arm.remove(vm.id)
    pass_time(stage, 600, step=5.0)
    stage.arm.stop()
    assert records(stage) == {"node-0": "superseded"}


def lacked_once(azure: FleetOnAzure) -> None:
    """The next answer about the VM of node-0 lacks it."""
    (vm, *_) = azure.arm.instances(azure.set)
    azure.arm.answer(f"GET {vm.id}", NOT_FOUND, status=404, times=1)


def test_a_vm_that_somebody_deletes_in_its_probation_calls_no_person() -> None:
    """It counts as gone once it has been lacked for a minute. By then the time for its proof was over."""
    stage = AzureStage("{do: reboot, within: 10m}", cured_by="boot")
    stage.concluder()
    stage.begin()

    def proving() -> bool:
        return records(stage) == {"node-0": "proving"}

    pass_time(stage, 300, stage, step=2.0, until=proving)  # type: ignore[arg-type]
    assert proving()
    (vm, *_) = stage.arm.instances(stage.set)
    stage.arm.remove(vm.id)
    pass_time(stage, 1200, stage, step=5.0)  # type: ignore[arg-type]
    stage.arm.stop()
    assert records(stage) == {"node-0": "superseded"}
    assert not messages(stage, "HandedOver")


@pytest.mark.parametrize("lost", [False, True], ids=["right before the call", "after a call that got lost"])
def test_one_answer_that_lacks_a_vm_neither_refuses_its_restart_nor_shows_that_it_was_asked_for(
    lost: bool,
) -> None:
    """The node was handed over: at once, or after all the time of a reboot that was never asked for."""
    azure = FleetOnAzure(boot_takes=60)
    start, asked = azure.provider.start, []

    def disturbed(*given: Any) -> Any:
        asked.append(given)
        if len(asked) == 1:
            lacked_once(azure)
            if lost:
                raise Ambiguous("no answer")
        return start(*given)

    azure.provider.start = disturbed
    writes(azure, NEURON)
    pass_time(azure, 400, azure, step=5.0)  # type: ignore[arg-type]
    azure.arm.stop()
    assert (len(asked), restarts(azure)) == (2, ["restart"])
    assert records(azure) == {"node-0": "proving"}


class TwoSets(Stage):
    """Two scale sets of two, ``blue`` and ``green``, all of whose machines are Nodes."""

    def __init__(self) -> None:
        super().__init__(policy("{type: NeverJoined}", "{do: notify}"))
        self.arm = FakeArm(now=lambda: self.clock.now().timestamp(), operation_seconds=40)
        self.arm.start()
        session = AzureSession(self.clock, self.arm.environ(), Limits(connect=5, read=5))
        session.token = lambda what, scope="": "a-token"  # type: ignore[method-assign]
        self.provider: Any = AzureProvider(session, self.clock, Options())
        self.blue, self.green = (self.arm.scale_set(name, size=2) for name in ("blue", "green"))
        for vm in (*self.arm.instances(self.blue), *self.arm.instances(self.green)):
            self.pages[vm.computer_name] = Page()
            info = {"bootID": vm.boot_id, "systemUUID": vm.vm_id}
            spec = {"providerID": f"azure://{vm.id}"}
            self.store.load(node_object(vm.computer_name, spec=spec, info=info, labels={}))
        self.fleet("controller")

    def act(self) -> None:
        """Nothing comes of itself."""


def test_the_record_of_a_machine_that_never_joined_ends_though_another_set_was_deleted_meanwhile() -> None:
    """That set was asked for again and again, and unknown; so no machine was known to be in none, and the
    alarm that groups are unknown stayed for good."""
    s = TwoSets()
    (lost,) = s.arm.scale(s.green, 3)
    pass_time(s, 20 * 60, s, step=15)  # type: ignore[arg-type]
    ((name, phase),) = records(s).items()
    assert (name.startswith("never-joined."), phase) == (True, "handedOver")
    for vm in s.arm.instances(s.blue):
        s.delete_node(vm.computer_name)
    s.arm.remove_set(s.blue)
    pass_time(s, 300, s, step=15)  # type: ignore[arg-type]
    assert value(s.actors["controller"], "node_recovery_never_joined_unknown") == 0
    s.arm.remove(lost)
    pass_time(s, 1800, s, step=15)  # type: ignore[arg-type]
    assert records(s)[name] in ("withdrawn", "superseded")
    s.arm.stop()
