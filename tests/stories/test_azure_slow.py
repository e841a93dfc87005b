"""Azure is slow: a machine that boots long after Azure has ended its part, and a deletion that comes late."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from recovery_testkit.arm import FakeArm
from recovery_testkit.stage import Killed, Page, Stage

from providers.azure.options import Options
from providers.azure.session import AzureSession, Limits
from recovery.model import Machine, Preflight, Step
from tests.builders.objects import node_object
from tests.stories.scenery import change_node, pass_time, records
from tests.stories.scenes import messages, record_sentences
from tests.stories.test_azure import LADDER, REPLACES, AzureStage, Counted
from tests.stories.test_conditions import NEURON, policy, writes

REBOOTS = "{do: drain, within: 10m, then: force}, {do: reboot, within: 45m}"


class FleetOnAzure(Stage):
    """A scale set of three, looked after by a controller. Azure ends a restart after 40 s; then the machine
    needs ``boot_takes`` seconds until its kubelet shows the new boot, as a server with accelerators does."""

    def __init__(self, boot_takes: float, remedy: str = REBOOTS, match: str = "{}") -> None:
        super().__init__(policy(match, remedy))
        self.boot_takes = boot_takes
        self.arm = FakeArm(now=lambda: self.clock.now().timestamp(), operation_seconds=40)
        self.arm.start()
        self.set = self.arm.scale_set("gpu", size=3)
        session = AzureSession(self.clock, self.arm.environ(), Limits(connect=5, read=5))
        session.token = lambda what, scope="": "a-token"  # type: ignore[method-assign]
        self.provider: Any = Counted(session, self.clock, Options())
        self.shown: dict[str, tuple[str, float]] = {}  # by node: the boot that it will show, and when
        for vm in self.arm.instances(self.set):
            name = f"node-{vm.instance_id}"
            self.pages[name] = Page()
            info = {"bootID": vm.boot_id, "systemUUID": vm.vm_id}
            self.store.load(node_object(name, spec={"providerID": f"azure://{vm.id}"}, info=info, labels={}))
            self.shown[name] = (vm.boot_id, 0.0)
        self.fleet("controller")
        self.run(5)
        self.arm.forget()

    def act(self) -> None:
        now = self.clock.monotonic()
        for vm in self.arm.instances(self.set):
            name = f"node-{vm.instance_id}"
            boot, at = self.shown[name]
            if vm.boots and vm.boot_id != boot:
                self.shown[name] = (vm.boot_id, now + self.boot_takes)
                self.store.stop_kubelet(name)
                ready(self, name, "Unknown")
            elif at and now >= at:
                self.shown[name] = (boot, 0.0)
                change_node(self, name, lambda n, b=boot: n["status"]["nodeInfo"].update(bootID=b))
                ready(self, name, "True")
                self.store.start_kubelet(name)


def ready(stage: Stage, name: str, status: str) -> None:
    """What the node lifecycle controller, or the kubelet, writes. Other conditions stay."""

    def change(node: dict[str, Any]) -> None:
        for x in node["status"]["conditions"]:
            x.update({"status": status} if x["type"] == "Ready" else {})

    change_node(stage, name, change)


@pytest.fixture
def azure() -> Iterator[FleetOnAzure]:
    stage = FleetOnAzure(boot_takes=240)
    yield stage
    stage.arm.stop()


@pytest.fixture
def dead() -> Iterator[FleetOnAzure]:
    stage = FleetOnAzure(boot_takes=240, match="{type: Ready}")
    yield stage
    stage.arm.stop()


def restarts(stage: FleetOnAzure) -> list[str]:
    return [r.path.rsplit("/", 1)[-1] for r in stage.arm.mutating()]


def test_a_restart_that_was_answered_is_asked_for_once_however_long_the_machine_boots(
    azure: FleetOnAzure,
) -> None:
    writes(azure, NEURON)
    pass_time(azure, 900, azure, step=5.0)  # type: ignore[arg-type]
    assert restarts(azure) == ["restart"]


def test_a_restart_whose_answer_was_lost_and_that_was_seen_under_way_is_asked_for_once(
    azure: FleetOnAzure,
) -> None:
    azure.arm.lose_answer()
    writes(azure, NEURON)
    pass_time(azure, 900, azure, step=5.0)  # type: ignore[arg-type]
    assert any("reboot is under way" in x and "is Updating" in x for x in record_sentences(azure))
    assert restarts(azure) == ["restart"]


@pytest.mark.parametrize("nobody_for", [0, 100], ids=["at once", "once Azure has ended it"])
def test_a_restart_whose_asker_was_killed_is_asked_for_once_by_the_next_controller(
    azure: FleetOnAzure, nobody_for: float
) -> None:
    def die() -> None:
        azure.provider.after_call = lambda: None
        raise Killed

    azure.provider.after_call = die
    writes(azure, NEURON)
    pass_time(azure, 120, azure, step=5.0, until=lambda: bool(restarts(azure)))  # type: ignore[arg-type]
    azure.kill(azure.actors["controller"])
    pass_time(azure, nobody_for, azure, step=5.0)  # type: ignore[arg-type]
    azure.fleet("controller-2")
    pass_time(azure, 900, azure, step=5.0)  # type: ignore[arg-type]
    assert restarts(azure) == ["restart"]


def test_a_dead_node_whose_restart_azure_has_ended_before_anybody_looks_is_not_restarted_in_its_boot(
    dead: FleetOnAzure,
) -> None:
    """Its fault stays as fresh as ever while it boots, since others state it. The leader was killed at the
    call, and the next one came once Azure had ended the restart, and asked for it once more."""

    def die() -> None:
        dead.provider.after_call = lambda: None
        raise Killed

    dead.provider.after_call = die
    dead.store.stop_kubelet("node-0")
    ready(dead, "node-0", "Unknown")
    pass_time(dead, 300, dead, step=5.0, until=lambda: bool(restarts(dead)))  # type: ignore[arg-type]
    dead.kill(dead.actors["controller"])
    pass_time(dead, 100, dead, step=5.0)  # type: ignore[arg-type]
    dead.fleet("controller-2")
    pass_time(dead, 400, dead, step=5.0)  # type: ignore[arg-type]
    assert restarts(dead) == ["restart"]
    assert any("reboot is under way" in x and "since the reboot" in x for x in record_sentences(dead))


THEN_REPLACES = "{do: drain, within: 10m, then: force}, {do: reboot, within: 45m}, {do: replace, within: 30m}"


class FailedBefore(FleetOnAzure):
    """An extension of the VM fails, as it did before: so the VM is Failed, but for what Azure is at."""

    def act(self) -> None:
        super().act()
        vm = self.arm.instances(self.set)[0]
        if vm.provisioning == "Succeeded":
            self.arm.put(vm.id, provisioning="Failed")


@pytest.fixture
def failed() -> Iterator[FailedBefore]:
    stage = FailedBefore(boot_takes=240, remedy=THEN_REPLACES)
    yield stage
    stage.arm.stop()


@pytest.mark.parametrize("status", ["is readable", "may not be read"])
def test_a_machine_that_boots_as_it_was_asked_to_is_not_deleted(failed: FailedBefore, status: str) -> None:
    failed.act()
    if status == "may not be read":
        failed.arm.deny("Microsoft.Compute/locations/operations/read")  # "without that role everything works"
    writes(failed, NEURON)
    pass_time(failed, 900, failed, step=5.0)  # type: ignore[arg-type]
    assert restarts(failed) == ["restart"]


@pytest.fixture
def then_replaces() -> Iterator[FleetOnAzure]:
    stage = FleetOnAzure(boot_takes=240, remedy=THEN_REPLACES)
    yield stage
    stage.arm.stop()


FAILS_AFTER_IT = ["VMExtensionProvisioningError", "VMAgentStatusCommunicationError", "VMStartTimedOut"]


@pytest.mark.parametrize("status", ["is readable", "may not be read"])
@pytest.mark.parametrize("code", [*FAILS_AFTER_IT, "OSProvisioningTimedOut"])
def test_a_machine_in_which_something_fails_after_its_restart_is_not_deleted_as_it_boots(
    then_replaces: FleetOnAzure, code: str, status: str
) -> None:
    """Azure's part is done, and its operation ends as Failed: an extension failed, or it waited in vain for
    the guest to say that it is up."""
    arm = then_replaces.arm
    if status == "may not be read":
        arm.deny("Microsoft.Compute/locations/operations/read")
    arm.fail_next(code, "The VM may still start successfully.", carried_out=True)
    writes(then_replaces, NEURON)
    pass_time(then_replaces, 900, then_replaces, step=5.0)  # type: ignore[arg-type]
    assert restarts(then_replaces) == ["restart"]
    assert any("new boot ID" in x for x in record_sentences(then_replaces))


@pytest.mark.parametrize("ends_as", ["Succeeded", "Failed"])
def test_a_machine_whose_restart_was_ended_by_a_more_recent_operation_is_not_deleted_as_it_boots(
    then_replaces: FleetOnAzure, ends_as: str
) -> None:
    """An upgrade of the scale set, say, came once the VM was restarted, and the restart ends as cancelled."""
    arm = then_replaces.arm
    arm.fail_next("OperationPreempted", "Preempted by a more recent operation.", carried_out=True)
    writes(then_replaces, NEURON)
    vm = arm.instances(then_replaces.set)[0]
    gone_on = lambda: arm.instances(then_replaces.set)[0].boot_id != vm.boot_id  # noqa: E731
    pass_time(then_replaces, 300, then_replaces, step=5.0, until=gone_on)  # type: ignore[arg-type]
    arm.put(vm.id, provisioning=ends_as)
    pass_time(then_replaces, 900, then_replaces, step=5.0)  # type: ignore[arg-type]
    assert restarts(then_replaces) == ["restart"]
    assert any("new boot ID" in x for x in record_sentences(then_replaces))


@pytest.mark.parametrize("status", ["is readable", "may not be read"])
def test_a_restart_that_azure_could_not_do_is_followed_by_the_next_step(
    then_replaces: FleetOnAzure, status: str
) -> None:
    if status == "may not be read":
        then_replaces.arm.deny("Microsoft.Compute/locations/operations/read")
    then_replaces.arm.fail_next("AllocationFailed")
    writes(then_replaces, NEURON)
    asked = lambda: len(restarts(then_replaces)) > 1  # noqa: E731
    pass_time(then_replaces, 300, then_replaces, step=5.0, until=asked)  # type: ignore[arg-type]
    assert len(restarts(then_replaces)) == 2


class SlowBoot(AzureStage):
    """With sidecars. A machine that was asked to boot needs four minutes, in which its agent is down."""

    def __init__(self, *parts: Any, **more: Any) -> None:
        super().__init__(*parts, **more)
        self.booting: dict[str, float] = {}

    def _booted(self, before: Any, vm: Any) -> None:
        self._end_agent(self.name_of(vm))
        self.booting[vm.id] = self.clock.monotonic() + 240

    def act(self) -> None:
        before = dict(self.known)
        super().act()
        for path, at in list(self.booting.items()):
            if self.clock.monotonic() >= at:
                del self.booting[path]
                super()._booted(before[path], self.known[path])


@pytest.fixture
def slow() -> Iterator[SlowBoot]:
    stage = SlowBoot(LADDER, cured_by="host")
    yield stage
    stage.arm.stop()


@pytest.mark.parametrize("lost", [False, True])
def test_a_reimage_that_did_not_help_is_followed_by_the_next_step(slow: SlowBoot, lost: bool) -> None:
    slow.concluder()
    slow.begin()
    slow.arm.operation_seconds = 180
    if lost:
        slow.arm.lose_answer()
    pass_time(slow, 3600, slow, step=5.0, until=lambda: len(slow.asked()) > 1)  # type: ignore[arg-type]
    assert slow.asked() == ["POST reimage", "POST redeploy"]


@pytest.fixture
def replacing() -> Iterator[AzureStage]:
    stage = AzureStage(REPLACES)
    yield stage.begin()
    stage.arm.stop()


@pytest.mark.parametrize("late", [False, True], ids=["it may not be set back", "the machine goes too late"])
def test_what_a_scale_set_still_lacks_is_said_as_the_hand_over_ends_with_its_machine(
    replacing: AzureStage, late: bool
) -> None:
    replacing.concluder()
    if late:
        replacing.arm.late(2400)  # ``within`` of replace is 30 min
    else:
        replacing.arm.deny("Microsoft.Compute/virtualMachineScaleSets/write")
    pass_time(replacing, 3 * 3600, replacing, step=10.0)  # type: ignore[arg-type]
    assert replacing.arm.capacity(replacing.set) == 2
    assert records(replacing)["node-0"] == "superseded"
    assert "scale set gpu wants 2 VMs, and is to want 3: the hand-over of" in record_sentences(replacing)[-1]
    assert messages(replacing, "HandedOver")


def test_where_somebody_makes_the_scale_set_smaller_meanwhile_no_person_is_called(
    replacing: AzureStage,
) -> None:
    """Its recovery held its place in the budget until the deadline, and then a person got a machine that was
    gone: nothing takes its place."""
    replacing.concluder()
    arm = replacing.arm
    pass_time(replacing, 600, replacing, until=lambda: bool(arm.mutating()))  # type: ignore[arg-type]
    arm.remove(arm.instances(replacing.set)[2].id)
    pass_time(replacing, 1200, replacing, step=5.0)  # type: ignore[arg-type]
    assert messages(replacing, "HandedOver") == []
    assert records(replacing)["node-0"] == "recovered"
    assert messages(replacing, "Recovered")[-1].endswith(
        "and scale set gpu wants 1 VMs now instead of 3; nothing takes its place"
    )
    assert (replacing.asked(), arm.capacity(replacing.set)) == (["DELETE"], 1)
    assert replacing.gate().slots == ()


def test_why_a_capacity_could_not_be_set_back_is_told_to_the_person_who_has_to(replacing: AzureStage) -> None:
    """It was in the log alone, and the hand-over said that it was not done in time."""
    replacing.concluder()
    pass_time(replacing, 600, replacing, until=lambda: bool(replacing.arm.mutating()))  # type: ignore[arg-type]
    told = "Operation could not be completed as it results in exceeding approved ND cores quota"
    replacing.arm.refuse(409, "OperationNotAllowed", told, times=9999, on="PATCH *")
    pass_time(replacing, 3600, replacing, step=5.0)  # type: ignore[arg-type]
    (said, *_) = messages(replacing, "HandedOver")
    assert "replace was not finished in time: instance 0 of scale set gpu is gone; " in said
    assert told in said


@pytest.fixture
def to_be_replaced() -> Iterator[FleetOnAzure]:
    stage = FleetOnAzure(boot_takes=240, remedy=REPLACES)
    yield stage
    stage.arm.stop()


def test_what_somebody_else_begins_just_before_the_call_is_waited_for(to_be_replaced: FleetOnAzure) -> None:
    """To tell of it may take seconds. The look right before the call said that another operation was under
    way, and nobody heard that: the VM was deleted in the midst of it."""
    stage, arm = to_be_replaced, to_be_replaced.arm
    vm = arm.instances(stage.set)[0]
    look = stage.provider.preflight

    def meanwhile(machine: Machine, action: Step) -> Preflight:
        if messages(stage, "Replacing") and not began:
            began.append(True)
            stage.clock.advance(3)
            arm.put(vm.id, provisioning="Updating")
        found: Preflight = look(machine, action)
        return found

    began: list[bool] = []
    stage.provider.preflight = meanwhile
    writes(stage, NEURON)
    pass_time(stage, 120, stage, step=1.0)  # type: ignore[arg-type]
    assert began
    assert arm.mutating() == ()
    arm.put(vm.id, provisioning="Succeeded")
    pass_time(stage, 60, stage, step=1.0)  # type: ignore[arg-type]
    assert [r.method for r in arm.mutating()][:1] == ["DELETE"]


def test_a_machine_that_somebody_else_deletes_is_no_persons_for_the_restart_that_it_cannot_have(
    azure: FleetOnAzure,
) -> None:
    """A scale-in, say, or a spot eviction: its kubelet ends first, and its Node outlives it for minutes."""
    vm = azure.arm.instances(azure.set)[0]
    azure.arm.put(vm.id, provisioning="Deleting")
    writes(azure, NEURON)
    pass_time(azure, 600, azure, step=5.0)  # type: ignore[arg-type]
    assert messages(azure, "HandedOver") == []
    assert records(azure)["node-0"] == "waiting"
    azure.arm.remove(vm.id)
    azure.delete_node("node-0")
    pass_time(azure, 300, azure, step=5.0)  # type: ignore[arg-type]
    assert messages(azure, "HandedOver") == []
    assert records(azure)["node-0"] == "superseded"
    assert restarts(azure) == []


def test_a_machine_that_somebody_else_deletes_after_its_restart_was_asked_for_is_no_persons(
    azure: FleetOnAzure,
) -> None:
    """Azure ends the restart as failed then. A person got the node of a machine that was going already."""
    vm = azure.arm.instances(azure.set)[0]
    azure.arm.late(9999)
    writes(azure, NEURON)
    pass_time(azure, 300, azure, step=5.0, until=lambda: bool(restarts(azure)))  # type: ignore[arg-type]
    azure.arm.fail("Conflict", "The VM is being deleted.")
    azure.arm.put(vm.id, provisioning="Deleting")
    pass_time(azure, 120, azure, step=5.0)  # type: ignore[arg-type]
    azure.arm.remove(vm.id)
    pass_time(azure, 30, azure, step=5.0)  # type: ignore[arg-type]
    azure.delete_node("node-0")
    pass_time(azure, 300, azure, step=5.0)  # type: ignore[arg-type]
    assert messages(azure, "HandedOver") == []
    assert records(azure)["node-0"] == "superseded"
    assert restarts(azure) == ["restart"]
