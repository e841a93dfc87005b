"""Whole recoveries on Azure: the real provider and SDK against a local Resource Manager, whose counter is the
witness. One POST or DELETE for each attempt, always."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from recovery_testkit.arm import FakeArm
from recovery_testkit.stage import Page, Stage, npd_page

from providers.azure.identity import canonical
from providers.azure.options import Options
from providers.azure.session import AzureSession, Limits
from providers.azure.vmss import AzureProvider
from recovery.model import Machine, Reference, Step
from tests.builders.objects import node_object
from tests.builders.policies import policy_file
from tests.stories.scenery import Reaper, change_node, judge, pass_time, records, to_the_end

LADDER = "{do: drain, within: 10m, then: force}, {do: reimage, within: 30m}, {do: redeploy, within: 30m}"
REPLACES = "{do: drain, within: 10m, then: force}, {do: replace, within: 30m}"
REBOOTS = "{do: drain, within: 10m, then: force}, {do: reboot, within: 1h}"


class Counted(AzureProvider):
    """The provider as it ships, with its calls written down."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.calls: list[tuple[Step, str, str]] = []
        self.before_call: Callable[[], None] = lambda: None
        self.after_call: Callable[[], None] = lambda: None

    def start(self, machine: Machine, action: Step, token: str, reference: Reference) -> Reference:
        self.before_call()
        self.calls.append((action, machine.id, token))
        found = super().start(machine, action, token, reference)
        self.after_call()
        return found


class AzureStage(Stage):
    """A scale set of three whose instances are nodes with agents; each operation takes 20 s.

    ``act`` plays what lies between Azure and the cluster: a boot is a new boot ID and a new agent, a deleted
    instance takes its Node along, a new one becomes a node. ``cured_by``: the fault stays until then.
    """

    def __init__(
        self, remedy: str, cured_by: str = "host", overprovision: int = 0, show_late: bool = False
    ) -> None:
        super().__init__(policy_file(remedy, limits="cooldown: 0s, budgetPer: {}"))
        self.cured_by = cured_by
        self.arm = FakeArm(now=lambda: self.clock.now().timestamp(), operation_seconds=20)
        self.arm.start()
        self.arm.show_capacity_late(show_late)
        self.set = self.arm.scale_set("gpu", size=3, overprovision=overprovision)
        self.known: dict[str, Any] = {}
        session = AzureSession(self.clock, self.arm.environ(), Limits(connect=5, read=5))
        session.token = lambda what, scope="": "a-token"  # type: ignore[method-assign]
        self.provider: Any = Counted(session, self.clock, Options())
        self.agents = 0

    def begin(self) -> AzureStage:
        self.act()
        self.run(0)
        self.arm.forget()
        self.pages["node-0"].body = npd_page("DMA_ERROR")
        return self

    def name_of(self, vm: Any) -> str:
        return f"node-{vm.instance_id}"

    def act(self) -> None:
        present = {vm.id: vm for vm in self.arm.instances(self.set) if vm.boots}
        for path in [p for p in self.known if p not in present or self.known[p].vm_id != present[p].vm_id]:
            self._left(self.known.pop(path))
        for path, vm in present.items():
            before = self.known.get(path)
            if before is None:
                self._joined(vm)
            elif before.boot_id != vm.boot_id:
                self._booted(before, vm)
            self.known[path] = vm

    def _left(self, vm: Any) -> None:
        self.delete_node(self.name_of(vm))
        self._end_agent(self.name_of(vm))

    def _joined(self, vm: Any) -> None:
        name = self.name_of(vm)
        self.pages[name] = Page()
        info = {"bootID": vm.boot_id, "systemUUID": vm.vm_id}
        self.store.load(node_object(name, spec={"providerID": f"azure://{vm.id}"}, info=info, labels={}))
        self._new_agent(name)

    def _booted(self, before: Any, vm: Any) -> None:
        name = self.name_of(vm)
        change_node(self, name, lambda n: n["status"]["nodeInfo"].update(bootID=vm.boot_id))
        if before.host != vm.host or self.cured_by == "boot":
            self.pages[name].body = npd_page()
        self._end_agent(name)
        self._new_agent(name)

    def _end_agent(self, node: str) -> None:
        for actor in self.actors.values():
            if actor.node == node:
                self.kill(actor)

    def _new_agent(self, node: str) -> None:
        self.agents += 1
        self.agent(node, name=f"agent of {node} ({self.agents})", alone=True)

    def asked(self) -> list[str]:
        """What Resource Manager was asked to change, in short."""
        return [
            f"{r.method} {r.path.rsplit('/', 1)[-1] if r.method == 'POST' else ''}".strip()
            for r in self.arm.mutating()
        ]


@pytest.fixture
def on_azure() -> Iterator[Callable[..., AzureStage]]:
    made: list[AzureStage] = []

    def make(*args: Any, **more: Any) -> AzureStage:
        made.append(AzureStage(*args, **more))
        return made[-1].begin()

    yield make
    for stage in made:
        assert stage.arm.whole_set_calls == 0
        assert stage.arm.scaled_in == 0
        stage.arm.stop()


def ended(stage: AzureStage, **more: Any) -> dict[str, str]:
    to_the_end(stage, stage, **more)  # type: ignore[arg-type]
    judge(stage, faulty=["node-0"])
    return records(stage)


Make = Callable[..., AzureStage]


def test_a_host_that_is_broken_is_left_by_a_redeployment_when_a_new_system_did_not_help(
    on_azure: Make,
) -> None:
    stage = on_azure(LADDER)
    hosts = [vm.host for vm in stage.arm.instances(stage.set)]
    assert ended(stage) == {"node-0": "recovered"}
    assert stage.asked() == ["POST reimage", "POST redeploy"]
    assert stage.arm.instances(stage.set)[0].host not in hosts
    record = stage.record("node-0")
    assert record is not None
    told = [line.sentence for line in record.history]
    assert "reimage is proved by a new boot ID; probation begins" in told or any(
        "new boot ID" in x for x in told
    )
    assert any("came back in probation" in x for x in told)


def test_a_replaced_instance_comes_back_with_its_number_and_the_capacity_is_set_back_by_a_peer(
    on_azure: Make,
) -> None:
    stage = on_azure(REPLACES)
    first = stage.arm.instances(stage.set)[0].vm_id
    assert ended(stage)["node-0"] in ("recovered", "superseded")
    assert stage.asked() == ["DELETE", "PATCH"]
    assert stage.arm.capacity(stage.set) == 3
    assert stage.arm.instances(stage.set)[0].vm_id != first


def test_a_capacity_that_shows_late_is_set_back_once(on_azure: Make) -> None:
    stage = on_azure(REPLACES, show_late=True)
    assert ended(stage, step=1.0)["node-0"] in ("recovered", "superseded")
    assert stage.asked() == ["DELETE", "PATCH"]
    assert stage.arm.capacity(stage.set) == 3


def test_a_capacity_that_azure_says_it_has_set_and_has_not_is_asked_for_again_but_seldom(
    on_azure: Make,
) -> None:
    stage = on_azure(REPLACES)
    pass_time(stage, 200, stage, until=lambda: "DELETE" in stage.asked())  # type: ignore[arg-type]
    stage.arm.refuse(409, "OperationNotAllowed", times=1000, on="PATCH *")
    pass_time(stage, 600, stage, step=1.0)  # type: ignore[arg-type]
    assert 5 <= stage.asked().count("PATCH") <= 42, "once in 15 s at most"


def test_a_vm_that_azure_may_remove_again_is_no_replacement(on_azure: Make) -> None:
    stage = on_azure(REPLACES, overprovision=2)
    assert ended(stage, step=1.0)["node-0"] in ("recovered", "superseded")
    present = {canonical(vm.vm_id) for vm in stage.arm.instances(stage.set)}
    record = stage.record("node-0")
    assert record is not None
    claimed = {claim.machine for claim in stage.gate().claimed} | {record.replacement_machine} - {""}
    assert claimed
    assert claimed <= present
    assert stage.arm.capacity(stage.set) == 3
    assert stage.asked() == ["DELETE", "PATCH"]


@pytest.mark.parametrize("remedy", [LADDER, REPLACES, REBOOTS], ids=["reimage", "replace", "reboot"])
def test_an_answer_that_is_lost_after_acceptance_is_not_asked_for_again(on_azure: Make, remedy: str) -> None:
    stage = on_azure(remedy, cured_by="boot")
    stage.arm.lose_answer()
    ended(stage)
    assert len([x for x in stage.asked() if x != "PATCH"]) == 1


def test_what_azure_carries_out_twenty_minutes_later_is_waited_for(on_azure: Make) -> None:
    stage = on_azure(REBOOTS, cured_by="boot")
    stage.arm.late(1200)
    assert ended(stage) == {"node-0": "recovered"}
    assert stage.asked() == ["POST restart"]


def test_a_storm_of_throttling_is_sat_out(on_azure: Make) -> None:
    stage = on_azure(REBOOTS, cured_by="boot")
    stage.arm.refuse(429, retry_after=60, times=3, on="POST *")
    assert ended(stage) == {"node-0": "recovered"}
    attempts = [attempt for _, _, attempt in stage.provider.calls]
    assert len(attempts) == len(set(attempts)), "each attempt asked once"
    assert 2 <= len(stage.asked()) <= 4


def test_a_number_that_was_given_to_another_machine_meanwhile_is_left_alone(on_azure: Make) -> None:
    stage = on_azure(REBOOTS)
    swapped: list[bool] = []

    def swap() -> None:
        if not swapped:
            swapped.append(True)
            stage.arm.remove(stage.arm.instances(stage.set)[0].id)
            stage.arm.scale(stage.set, 3)

    stage.provider.before_call = swap
    ended(stage)
    assert stage.asked() == []


def test_a_failed_operation_is_the_next_steps_reason(on_azure: Make) -> None:
    stage = on_azure(LADDER)
    stage.arm.fail_next("AllocationFailed", "There is no room.")
    assert ended(stage) == {"node-0": "recovered"}
    assert any("AllocationFailed: There is no room." in message for _, message in stage.events("node-0"))
    assert stage.asked() == ["POST reimage", "POST redeploy"]


# ---------------------------------------------------------------- killed at every boundary


class Life(Reaper):
    """Kills the agents of node-0."""

    def __init__(self, stage: AzureStage, at: int | None = None, side: str = "") -> None:
        super().__init__(stage, lambda actor: actor.startswith("agent of node-0"), at, side)


@functools.cache
def boundaries(remedy: str) -> tuple[str, ...]:
    stage = AzureStage(remedy, cured_by="boot")
    life = Life(stage)
    to_the_end(stage.begin(), stage)  # type: ignore[arg-type]
    stage.arm.stop()
    return tuple(life.seen)


def points(remedy: str) -> list[tuple[str, int]]:
    """From right before the call on: until then the story is the same on any cloud (test_crashes.py).

    Right after one boundary is right before the next: a killed process leaves the same world.
    """
    seen = boundaries(remedy)
    first = seen.index("call") - 1
    return [(remedy, n) for n in range(first, min(len(seen), first + 10))]


POINTS = points(REPLACES) + points(REBOOTS)


@pytest.mark.parametrize(("remedy", "at"), POINTS)
def test_an_agent_that_is_killed_anywhere_and_restarted_asks_once(remedy: str, at: int) -> None:
    stage = AzureStage(remedy, cured_by="boot")
    life = Life(stage, at, "after")
    stage.begin()
    pass_time(stage, 900, stage, until=lambda: life.fired)  # type: ignore[arg-type]
    assert life.fired
    if any(vm.instance_id == "0" for vm in stage.arm.instances(stage.set)):
        stage._new_agent("node-0")
    phases = ended(stage)
    assert phases["node-0"] in ("recovered", "superseded")
    assert len([x for x in stage.asked() if x != "PATCH"]) == 1
    assert stage.arm.capacity(stage.set) == 3
    assert stage.arm.whole_set_calls == 0
    stage.arm.stop()
