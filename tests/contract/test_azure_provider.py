"""The Azure provider over the real SDK, against a local Resource Manager that counts, loses and refuses."""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen
from uuid import uuid4

import pytest
import requests
import urllib3
from azure.core.paging import ItemPaged
from recovery_testkit.arm import FakeArm
from recovery_testkit.provider_kit import ActionKit, MembersKit
from recovery_testkit.proxy import CountingProxy
from requests.adapters import HTTPAdapter

from providers.azure.identity import canonical, route_of
from providers.azure.machines import Vm, members, named, scale_set, set_capacity
from providers.azure.options import options_of
from providers.azure.session import LARGEST, PAGES, AzureSession, Limits
from providers.azure.settings import PUBLIC
from providers.azure.vmss import AzureProvider, _set_of
from recovery.clock import SystemClock
from recovery.config.policy_file import check_for, parse_policy
from recovery.errors import Ambiguous, Refused, Retry
from recovery.model import (
    Done,
    Failed,
    Gone,
    Machine,
    NodeView,
    NotApplied,
    Poll,
    Reference,
    Running,
    Step,
    Unfinished,
    Unseen,
)
from recovery.provider.protocol import abilities_of

QUICK = Limits(connect=5.0, read=1.0)
TOKEN = "token"  # noqa: S105 (an idempotency token)
ALL = "aks-compute,aks-replace,flexible-reimage"
NUMBERS = itertools.count()


class SkippingClock(SystemClock):
    """A clock that can be put forward, past what the provider remembers."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self.stopped = 0.0  # seconds that the process was stopped for

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead

    def boottime(self) -> float:
        return super().boottime() + self.stopped


class AzureWorld:
    """A scale set of two, or what else there may be, and Resource Manager in front of it."""

    def __init__(self, arm: FakeArm, kind: str = "Uniform", **environ: str) -> None:
        self.arm = arm
        self.clock = SkippingClock()
        arm.forget()
        arm.release()
        arm.show_capacity_late(False)
        name = f"set-{next(NUMBERS):04}"  # sets are listed in the order of their names
        self.set = arm.scale_set(name, size=2, orchestration=kind, ephemeral=kind == "Flexible")  # type: ignore[arg-type]
        arm.hold()  # nothing ends before it is told to
        self.first, self.second = arm.instances(self.set)
        self.environ = {**os.environ, **arm.environ(), **environ}
        arm.forget()

    @property
    def node(self) -> NodeView:
        return self.node_of(self.first)

    def node_of(self, vm: Any, **labels: str) -> NodeView:
        return NodeView(
            vm.computer_name,
            "node-uid",
            "1",
            f"azure://{vm.id}",
            boot_id=vm.boot_id,
            system_uuid=vm.vm_id.upper(),
            labels=labels,
        )

    def provider(self) -> AzureProvider:
        session = AzureSession(self.clock, self.environ, QUICK)
        return AzureProvider(session, self.clock, options_of(self.environ))

    def later(self) -> None:
        """What was asked a moment ago is asked again."""
        self.clock.ahead += 60

    def calls(self) -> int:
        return self.arm.count()

    def mutating_calls(self) -> int:
        return len(self.arm.mutating())

    def lose_answer(self) -> None:
        self.arm.lose_answer()

    def delay(self) -> None:
        self.arm.delay(QUICK.read + 0.5)

    def refuse(self, kind: str) -> None:
        status, code = {
            "throttled": (429, ""),
            "denied": (403, "AuthorizationFailed"),
            "broken": (500, "InternalServerError"),
        }[kind]
        self.arm.refuse(status, code, retry_after=1 if status == 429 else None)

    def remove_machine(self) -> None:
        self.arm.remove(self.first.id)

    def launch_member(self) -> str:
        (new,) = self.arm.scale(self.set, 3)
        return canonical(self.arm.instance(new).vm_id)

    def take_out(self, machine: str) -> None:
        (vm,) = (vm for vm in self.arm.instances(self.set) if canonical(vm.vm_id) == machine)
        self.arm.put(vm.id, power="deallocated")

    def finish_action(self, action: Step) -> Sequence[str]:
        self.arm.finish()
        known = {self.first.vm_id, self.second.vm_id}
        return [canonical(vm.vm_id) for vm in self.arm.instances(self.set) if vm.vm_id not in known]


@pytest.fixture(scope="module")
def arm() -> Iterator[FakeArm]:
    with FakeArm() as arm, pytest.MonkeyPatch.context() as patch:
        for name, value in arm.environ().items():
            patch.setenv(name, value)  # the SDK reads its own
        yield arm


@pytest.fixture(autouse=True)
def _one_machine_at_a_time(arm: FakeArm) -> Iterator[None]:
    """Whatever a test does: no call is about a whole scale set, and none makes one smaller."""
    yield
    assert arm.whole_set_calls == 0
    assert arm.scaled_in == 0


@pytest.fixture
def world(arm: FakeArm) -> AzureWorld:
    return AzureWorld(arm)


@pytest.fixture
def provider(world: AzureWorld) -> AzureProvider:
    return world.provider()


@pytest.fixture
def machine(world: AzureWorld, provider: AzureProvider) -> Machine:
    return provider.identify(world.node)


GROUP = "/subscriptions/11111111-2222-3333-4444-555555555555/resourceGroups/g/providers/Microsoft.Compute"
RUBBISH = (
    "",
    "aws:///us-west-2a/i-0123456789abcdef0",
    f"azure://{GROUP}/virtualMachineScaleSets/s/virtualMachines/..",
    f"azure://{GROUP}/virtualMachineScaleSets/s/virtualMachines/0/",
    f"azure://{GROUP}/virtualMachineScaleSets/s/virtualMachines/٣",
    f"azure://{GROUP}/virtualMachineScaleSets/s",
    f"azure://{GROUP}/virtualMachines/..",
    f"azure://{GROUP}/virtualMachines/a/b",
    f"azure:/{GROUP}/virtualMachines/a",
    "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/a",
)


class UniformKit(ActionKit):
    actions = (Step.REBOOT, Step.REDEPLOY, Step.REIMAGE, Step.REPLACE)
    rubbish = RUBBISH

    @pytest.fixture
    def world(self, arm: FakeArm) -> AzureWorld:
        return AzureWorld(arm)

    @pytest.fixture
    def provider(self, world: AzureWorld) -> AzureProvider:
        return world.provider()

    @pytest.fixture
    def node(self, world: AzureWorld) -> NodeView:
        return world.node


class TestUniform(UniformKit, MembersKit):
    """The only kind of scale set of which a VM's ID says that it is in it."""


class TestFlexible(UniformKit):
    @pytest.fixture
    def world(self, arm: FakeArm) -> AzureWorld:
        return AzureWorld(arm, "Flexible", AZURE_ALLOW="flexible-reimage")


# ---------------------------------------------------------------- the same machine


def begun(provider: AzureProvider, machine: Machine, action: Step) -> Reference:
    return provider.start(machine, action, TOKEN, provider.preflight(machine, action).reference)


def test_a_number_that_was_given_to_another_machine_is_noticed_right_before_the_call(
    world: AzureWorld, provider: AzureProvider, machine: Machine
) -> None:
    ready = provider.preflight(machine, Step.REDEPLOY)
    world.arm.remove(world.first.id)
    world.arm.scale(world.set, 2)
    assert world.arm.instance(world.first.id).vm_id != world.first.vm_id
    with pytest.raises(Refused, match="is another machine now"):
        provider.start(machine, Step.REDEPLOY, TOKEN, ready.reference)
    assert world.mutating_calls() == 0


def test_a_look_that_took_too_long_is_followed_by_no_request(
    world: AzureWorld, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process was stopped in the look. The number was given to another VM, which was then deleted."""
    provider = world.provider()
    ready = provider.preflight(machine, Step.REPLACE)
    look = provider._same_machine

    def stopped(machine: Machine) -> Vm:
        found = look(machine)
        world.arm.remove(world.first.id)
        world.arm.scale(world.set, 2)
        world.clock.stopped += 600
        return found

    monkeypatch.setattr(provider, "_same_machine", stopped)
    with pytest.raises(Retry, match=r"replace of instance 0 .* was not sent: a look at it took .* 24 s"):
        provider.start(machine, Step.REPLACE, TOKEN, ready.reference)
    assert world.mutating_calls() == 0
    assert provider.call_timeout >= 24 + provider._session.longest - provider._session.look


def test_a_machine_is_known_by_its_unique_id_in_either_order_of_bytes(world: AzureWorld) -> None:
    from uuid import UUID

    swapped = str(UUID(bytes_le=UUID(world.first.vm_id).bytes))
    provider = world.provider()
    one = provider.identify(world.node)
    other = provider.identify(replace(world.node, system_uuid=swapped))
    assert one.id == other.id
    assert provider.preflight(other, Step.REBOOT).not_yet == ""


def test_a_vm_of_a_subscription_that_the_identity_does_not_see_is_not_gone(
    world: AzureWorld, provider: AzureProvider, machine: Machine
) -> None:
    """Of another tenant, or of another cloud: Resource Manager answers 404, as of a VM that is gone."""
    reference = provider.preflight(machine, Step.REBOOT).reference
    elsewhere = replace(machine, route={**machine.route, "subscription": str(uuid4())})
    asks = (
        provider.gone,
        provider.down,
        lambda m: provider.poll(m, reference),
        lambda m: provider.take_back(m, reference),
        lambda m: provider.preflight(m, Step.REDEPLOY),
    )
    for ask in asks:
        world.later()
        with pytest.raises(Refused, match=r"AZURE_TENANT_ID.* SubscriptionNotFound"):
            ask(elsewhere)
    assert provider.gone(machine) is None


def test_a_vm_is_gone_once_each_answer_has_lacked_it_for_a_minute(
    world: AzureWorld, provider: AzureProvider, machine: Machine
) -> None:
    told = json.dumps({"error": {"code": "NotFound", "message": "It was not found."}}).encode()
    world.arm.answer(f"GET {world.first.id}", told, status=404, times=1)
    assert provider.gone(machine) is None
    world.later()
    assert provider.gone(machine) is None  # it is there
    world.remove_machine()
    assert provider.gone(machine) is None
    world.later()
    assert str(provider.gone(machine)).endswith(" does not exist any more")


def test_nothing_is_refused_or_taken_for_gone_before_each_answer_of_a_minute_has_lacked_the_vm(
    world: AzureWorld, provider: AzureProvider, machine: Machine
) -> None:
    ready = provider.preflight(machine, Step.REBOOT)
    world.remove_machine()
    assert isinstance(provider.poll(machine, ready.reference), Unseen)
    for ask in (
        lambda: provider.preflight(machine, Step.REDEPLOY),
        lambda: provider.start(machine, Step.REBOOT, TOKEN, ready.reference),
    ):
        with pytest.raises(Retry, match="one answer may be an old one"):
            ask()
    world.later()
    assert isinstance(provider.poll(machine, ready.reference), Gone)
    with pytest.raises(Refused, match="does not exist"):
        provider.preflight(machine, Step.REDEPLOY)


def test_a_404_without_a_code_of_azures_proves_nothing(
    world: AzureWorld, provider: AzureProvider, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of a proxy, or of a server that is no Resource Manager."""
    monkeypatch.setattr("providers.azure.errors.code_of", lambda _: "")
    world.remove_machine()
    with pytest.raises(Retry, match="got no usable answer"):
        provider.gone(machine)


@pytest.mark.parametrize("uuid", ["", "00000000-0000-0000-0000-000000000000", "not one"])
def test_a_node_without_a_unique_id_is_refused(world: AzureWorld, provider: AzureProvider, uuid: str) -> None:
    with pytest.raises(Refused, match="system UUID"):
        provider.identify(replace(world.node, system_uuid=uuid))


def test_the_casing_of_a_provider_id_makes_no_difference(world: AzureWorld, provider: AzureProvider) -> None:
    shouted = replace(world.node, provider_id="azure://" + world.first.id.upper())
    assert provider.preflight(provider.identify(shouted), Step.REBOOT).not_yet == ""


# ---------------------------------------------------------------- accepted is not done


def test_an_operation_is_followed_by_its_id_and_its_failure_has_azures_reason(
    world: AzureWorld, provider: AzureProvider, machine: Machine
) -> None:
    reference = begun(provider, machine, Step.REDEPLOY)
    assert "/" not in reference.data["operation"]
    assert isinstance(provider.poll(machine, reference), Running)
    world.arm.fail("AllocationFailed", "There is no room in westus3.")
    world.later()
    failed = provider.poll(machine, reference)
    assert isinstance(failed, Failed)
    assert "AllocationFailed: There is no room in westus3." in failed.reason


def test_a_machine_that_is_being_deleted_goes_though_our_own_request_was_ended_by_a_more_recent_one(
    world: AzureWorld, provider: AzureProvider, machine: Machine
) -> None:
    reference = begun(provider, machine, Step.REPLACE)
    world.arm.fail("OperationPreempted", "Preempted by a more recent operation.")
    world.arm.put(world.first.id, provisioning="Deleting")
    world.later()
    assert provider.poll(machine, reference) == Running(f"{named(machine.route)} is being deleted")


def test_what_azure_has_ended_is_not_done_before_the_machine_has_booted(
    world: AzureWorld, provider: AzureProvider, machine: Machine
) -> None:
    reference = begun(provider, machine, Step.REBOOT)
    world.arm.finish()
    world.later()
    told = provider.poll(machine, reference)
    assert isinstance(told, Running)
    assert "has not booted anew yet" in told.sentence


@pytest.mark.parametrize("code", ["AuthorizationFailed"])
def test_a_status_that_may_not_be_read_is_unknown_and_no_failure(
    world: AzureWorld, provider: AzureProvider, machine: Machine, code: str
) -> None:
    reference = begun(provider, machine, Step.REDEPLOY)
    world.arm.deny("operations/read", code)
    assert isinstance(provider.poll(machine, reference), Running)
    world.arm.permit()


def test_an_answer_that_was_lost_is_followed_by_the_machines_own_state(
    world: AzureWorld, provider: AzureProvider, machine: Machine
) -> None:
    ready = provider.preflight(machine, Step.REIMAGE)
    world.lose_answer()
    with pytest.raises(Ambiguous):
        provider.start(machine, Step.REIMAGE, TOKEN, ready.reference)
    assert isinstance(provider.poll(machine, ready.reference), Running)
    assert world.mutating_calls() == 1


@pytest.mark.parametrize("status", [200, 202])
@pytest.mark.parametrize(
    ("step", "line"), [(Step.REBOOT, "POST *"), (Step.REDEPLOY, "POST *"), (Step.REPLACE, "DELETE *")]
)
def test_a_page_of_somebody_elses_accepts_nothing(arm: FakeArm, step: Step, line: str, status: int) -> None:
    """A login page has no request ID, as each answer of Azure has. To the SDK it is an acceptance."""
    address = urlsplit(arm.url)
    with CountingProxy((str(address.hostname), int(address.port or 0))) as proxy:
        world = AzureWorld(arm, AZURE_RESOURCE_MANAGER_ENDPOINT=proxy.url)
        provider, machine = world.provider(), world.provider().identify(world.node)
        ready = provider.preflight(machine, step)
        proxy.answer(line, b"<html><body>Please log in</body></html>", "text/html", status=status)
        with pytest.raises(Ambiguous, match="not Azure answered"):
            provider.start(machine, step, TOKEN, ready.reference)
        assert proxy.count(line) == 1
        assert isinstance(provider.poll(machine, ready.reference), NotApplied)


def test_a_call_that_never_arrived_has_left_no_trace(
    world: AzureWorld, provider: AzureProvider, machine: Machine
) -> None:
    ready = provider.preflight(machine, Step.REBOOT)
    world.arm.reset()
    with pytest.raises(Ambiguous):
        provider.start(machine, Step.REBOOT, TOKEN, ready.reference)
    assert isinstance(provider.poll(machine, ready.reference), NotApplied)


def test_a_restart_without_an_answer_that_azure_has_ended_was_asked_for(
    world: AzureWorld, provider: AzureProvider, machine: Machine
) -> None:
    """Azure ends it minutes before the machine is up. Asked for again, it would interrupt that boot."""
    ready = provider.preflight(machine, Step.REBOOT)
    world.lose_answer()
    with pytest.raises(Ambiguous):
        provider.start(machine, Step.REBOOT, TOKEN, ready.reference)
    world.arm.finish()
    outcome = provider.poll(machine, ready.reference)
    assert isinstance(outcome, Running)
    assert outcome.sentence.endswith("is Succeeded, and Azure has been at work on it since the reboot")


@pytest.mark.parametrize("unsaid", ["before", "after"])
def test_where_azure_does_not_say_since_when_a_vm_is_as_it_is_nothing_is_known_of_a_lost_answer(
    world: AzureWorld, provider: AzureProvider, machine: Machine, unsaid: str
) -> None:
    if unsaid == "before":
        world.arm.refuse(500, on="GET *")  # the look at the VM's host; the one without it is answered
    reference = provider.preflight(machine, Step.REBOOT).reference
    world.arm.forget()
    world.later()
    if unsaid == "after":
        view = {"statuses": [{"code": "ProvisioningState/succeeded"}, {"code": "PowerState/running"}]}
        told = {"vmId": world.first.vm_id, "provisioningState": "Succeeded", "instanceView": view}
        body = {"id": world.first.id, "name": world.first.name, "properties": told}
        world.arm.answer(f"GET {world.first.id}", json.dumps(body).encode())
    outcome = provider.poll(machine, reference)
    assert isinstance(outcome, Unseen)
    assert outcome.sentence.endswith("since when: whether its reboot was ever accepted is not known")


def test_a_record_that_somebody_changed_does_not_send_the_token_elsewhere(
    world: AzureWorld, provider: AzureProvider, machine: Machine
) -> None:
    reference = begun(provider, machine, Step.REBOOT)
    with FakeArm() as thief:
        for stolen in (f"{thief.url}/take/it", f"..//{thief.url}", "a@" + thief.url, "../../../../"):
            for field in ("operation", "location", "subscription", "resource_group", "instance"):
                world.later()
                changed = Reference("azure", reference.action, {**reference.data, field: stolen})
                provider.poll(machine, changed)
        assert thief.count() == 0
    assert not [r.path for r in world.arm.requests if "take" in r.path or ".." in r.path]
    asked = [r for r in world.arm.requests if r.mutating]
    assert len(asked) == 1


def test_a_reference_to_another_machine_is_not_followed_either(
    world: AzureWorld, provider: AzureProvider, machine: Machine
) -> None:
    reference = begun(provider, machine, Step.REPLACE)
    asked = world.calls()
    other = replace(machine, id=canonical(world.second.vm_id))
    for do in (provider.poll, provider.finish):
        with pytest.raises(Refused, match="the reference is one of"):
            do(other, reference)
    assert world.calls() == asked


def test_without_an_identity_a_person_is_told_what_to_set(world: AzureWorld) -> None:
    del world.environ["AZURE_CLIENT_ID"]
    provider = world.provider()
    with pytest.raises(Refused, match="AZURE_CLIENT_ID: expected the client ID"):
        provider.preflight(provider.identify(world.node), Step.REBOOT)
    assert world.calls() == 0


def test_a_machine_is_in_one_group_whatever_is_done_to_it(arm: FakeArm) -> None:
    """Limits count by it, and one that is replaced alone is known by it."""
    world = AzureWorld(arm, "Flexible", AZURE_ALLOW="flexible-reimage")
    provider = world.provider()
    machine = provider.identify(world.node)
    groups = {provider.preflight(machine, action).group for action in provider.actions}
    assert groups == {f"nodes/{world.set.rsplit('/', 1)[1]}"}
    provider, machine, _ = on_aks(AzureWorld(arm), AZURE_ALLOW="aks-replace,aks-compute,flexible-reimage")
    assert {provider.preflight(machine, action).group for action in provider.actions} == {"mc_x/gpu"}


def test_another_operation_that_runs_is_waited_for(
    world: AzureWorld, provider: AzureProvider, machine: Machine
) -> None:
    begun(provider, machine, Step.REBOOT)
    world.later()
    assert "another operation is under way" in provider.preflight(machine, Step.REDEPLOY).not_yet
    ready = Reference("azure", Step.REDEPLOY, {"machine": machine.id})
    with pytest.raises(Retry, match="another operation is under way"):
        provider.start(machine, Step.REDEPLOY, TOKEN, ready)


def test_a_scale_set_that_is_being_scaled_is_waited_for(
    world: AzureWorld, provider: AzureProvider, machine: Machine
) -> None:
    """The capacity may show late. The VMs that were being made counted as old, and none took the place of the
    one that was deleted: the recovery waited until its deadline."""
    world.arm.show_capacity_late()
    asked = provider._session  # the same way that an autoscaler goes
    set_capacity(asked, machine.route, scale_set(asked, machine.route), 4)
    found = provider.preflight(machine, Step.REPLACE)
    assert (found.reference.data["capacity"], found.adopt) == (2, "")
    name = machine.route["scale_set"]
    assert found.not_yet == f"scale set {name} is Updating: what it wants may show only once that ends"
    assert not provider.preflight(machine, Step.REBOOT).not_yet, "nothing in place hangs on it"
    world.arm.finish()
    world.later()
    found = provider.preflight(machine, Step.REPLACE)
    assert (found.reference.data["capacity"], found.not_yet) == (4, "")


@pytest.mark.parametrize(
    ("code", "why"),
    [("ScopeLocked", "a person removes the lock"), ("ReadOnlyDisabledSubscription", "a person enables it")],
)
def test_a_conflict_that_no_waiting_ends_is_a_persons_business(
    world: AzureWorld, provider: AzureProvider, machine: Machine, code: str, why: str
) -> None:
    """It was told as another operation that was under way, and waited for until the deadline."""
    reference = provider.preflight(machine, Step.REPLACE).reference
    world.arm.refuse(409, code, "The scope cannot perform the operation.")
    with pytest.raises(Refused, match=f"{why}; Azure says {code}"):
        provider.start(machine, Step.REPLACE, TOKEN, reference)


def test_a_vm_that_was_stopped_is_not_asked_to_restart_again_and_again(
    world: AzureWorld, provider: AzureProvider, machine: Machine
) -> None:
    """That was told as another operation that was under way, and asked for each half minute."""
    reference = provider.preflight(machine, Step.REBOOT).reference
    world.arm.put(world.first.id, power="deallocated")
    why = "it does not run, until a person starts it; Azure says OperationNotAllowed: The operation requires"
    with pytest.raises(Refused, match=why):
        provider.start(machine, Step.REBOOT, TOKEN, reference)


@pytest.mark.parametrize(
    ("code", "message", "told"),
    [
        ("Conflict", "conflict with a concurrent request", "is not yet possible, another operation is under"),
        ("AnotherOperationInProgress", "Wait.", "is not yet possible, another operation is under way: "),
        (
            "OperationNotAllowed",
            "exceeding approved Total Regional Cores quota",
            "is not possible now, Azure",
        ),
        ("AllocationFailed", "There is no room.", "is not possible now, Azure says AllocationFailed: There"),
        ("RetryableError", "A retryable error occurred.", "is not possible now, Azure says RetryableError: "),
    ],
)
def test_a_conflict_is_told_in_azures_own_words(
    world: AzureWorld, provider: AzureProvider, machine: Machine, code: str, message: str, told: str
) -> None:
    reference = provider.preflight(machine, Step.REPLACE).reference
    world.arm.refuse(409, code, message)
    with pytest.raises(Retry, match=told):
        provider.start(machine, Step.REPLACE, TOKEN, reference)


def test_a_throttled_api_is_not_asked_before_its_time(
    world: AzureWorld, provider: AzureProvider, machine: Machine
) -> None:
    world.arm.refuse(429, retry_after=120, on="GET *")
    with pytest.raises(Retry) as first:
        provider.preflight(machine, Step.REBOOT)
    assert first.value.after.total_seconds() == 120
    asked = world.calls()
    with pytest.raises(Retry, match="was not sent: Azure throttles"):
        provider.preflight(machine, Step.REBOOT)
    assert world.calls() == asked
    world.clock.ahead += 121
    assert provider.preflight(machine, Step.REBOOT).not_yet == ""


def test_a_machine_that_is_throttled_holds_no_other_one(
    world: AzureWorld, provider: AzureProvider, machine: Machine
) -> None:
    """Each VM has a limit of its own, so that it does not "throttle other resources". Twenty minutes are seen
    in the field, and one controller asks for all nodes."""
    other = provider.identify(world.node_of(world.second))
    world.arm.refuse(429, retry_after=1200, on="GET *")
    with pytest.raises(Retry, match=r"Azure throttles a look at instance 0"):
        provider.preflight(machine, Step.REDEPLOY)
    assert provider.preflight(other, Step.REDEPLOY).not_yet == ""


def test_two_things_that_are_throttled_at_once_hold_all_of_their_subscription(
    world: AzureWorld, provider: AzureProvider, machine: Machine
) -> None:
    """It is then the subscription's limit that is used up, which each more request would only prolong."""
    other, third = provider.identify(world.node_of(world.second)), AzureWorld(world.arm)
    for each, wait in ((machine, 120), (other, 60)):
        world.arm.refuse(429, retry_after=wait, on="GET *")
        with pytest.raises(Retry, match="Azure throttles"):
            provider.preflight(each, Step.REBOOT)
    asked = world.calls()
    with pytest.raises(Retry, match="was not sent: Azure throttles") as held:
        provider.preflight(provider.identify(third.node), Step.REBOOT)
    assert world.calls() == asked
    assert held.value.after.total_seconds() <= 60
    world.clock.ahead += 61
    assert provider.preflight(provider.identify(third.node), Step.REBOOT).not_yet == ""


def test_what_was_asked_a_moment_ago_is_not_asked_again(
    world: AzureWorld, provider: AzureProvider, machine: Machine
) -> None:
    """A VM may be read twelve times a minute, and the agent looks every second."""
    reference = begun(provider, machine, Step.REBOOT)
    provider.poll(machine, reference)
    asked = world.calls()
    for _ in range(10):
        provider.poll(machine, reference)
    assert world.calls() == asked


# ---------------------------------------------------------------- replace, and its second step


def gone(world: AzureWorld, provider: AzureProvider, machine: Machine) -> tuple[Reference, Poll]:
    """Deleted, and what the provider says next."""
    reference = begun(provider, machine, Step.REPLACE)
    world.arm.finish()
    world.later()
    return reference, provider.poll(machine, reference)


def test_a_deletion_leaves_the_capacity_to_be_set_back_to_what_it_was(
    world: AzureWorld, provider: AzureProvider, machine: Machine
) -> None:
    reference, found = gone(world, provider, machine)
    assert isinstance(found, Unfinished)
    assert "wants 1 VMs, and is to want 2" in found.sentence
    world.arm.lose_answer()
    with pytest.raises(Retry):
        provider.finish(machine, reference)
    provider.finish(machine, reference)  # it was done: nothing is asked
    assert (world.arm.capacity(world.set), world.mutating_calls()) == (2, 2)
    world.arm.finish()
    world.later()
    done = provider.poll(machine, reference)
    assert isinstance(done, Done)
    assert done.complete


@pytest.mark.parametrize(
    ("state", "short_by"),
    [("Succeeded", 0), ("Failed", 0), ("Canceled", 0), ("Creating", 1), ("Updating", 1), ("Migrating", 1)],
)
def test_a_set_is_short_of_what_is_to_come_and_not_of_what_has_failed(
    world: AzureWorld, provider: AzureProvider, machine: Machine, state: str, short_by: int
) -> None:
    """Nothing comes in the place of a VM that is Failed, and it may run: a set was short of it for ever."""
    world.arm.put(world.second.id, provisioning=state)
    assert provider.preflight(machine, Step.REPLACE).short_by == short_by


def test_a_set_is_short_of_a_vm_that_never_got_a_machine(
    world: AzureWorld, provider: AzureProvider, machine: Machine
) -> None:
    """Its allocation has failed: there is no room, and the sick machine is worth more than none."""
    world.arm.put(world.second.id, provisioning="Failed", power="deallocated")
    assert provider.preflight(machine, Step.REPLACE).short_by == 1


def scale_set_name(world: AzureWorld) -> str:
    return world.set.rpartition("/")[2]


def test_a_replacement_beside_a_vm_that_was_failed_before_is_complete(
    world: AzureWorld, provider: AzureProvider, machine: Machine
) -> None:
    world.arm.put(world.second.id, provisioning="Failed")
    reference, _ = gone(world, provider, machine)
    (new,) = world.arm.scale(world.set, 2)
    world.arm.put(new, provisioning="Failed", power="deallocated")
    world.later()
    found = provider.poll(machine, reference)
    assert isinstance(found, Running), "it was made, and got no machine"
    number = world.arm.instance(new).instance_id
    new_one = f"instance {number} of scale set {scale_set_name(world)}"
    assert found.sentence.endswith(f"{new_one}, which is new, is Failed and got no machine")
    world.arm.put(new, provisioning="Succeeded", power="running")
    world.later()
    done = provider.poll(machine, reference)
    assert isinstance(done, Done)
    assert (done.replacements, done.complete) == ((canonical(world.arm.instance(new).vm_id),), True)


def test_a_new_vm_in_which_an_extension_fails_may_be_the_replacement(
    world: AzureWorld, provider: AzureProvider, machine: Machine
) -> None:
    """One fails on each machine of some scale sets, and does no harm (Azure/vm-scale-sets#76). There a person
    got each node, though the new one was Ready."""
    reference, _ = gone(world, provider, machine)
    (new,) = world.arm.scale(world.set, 2)
    world.arm.put(new, provisioning="Failed")
    world.later()
    done = provider.poll(machine, reference)
    assert isinstance(done, Done)
    assert (done.replacements, done.complete) == ((canonical(world.arm.instance(new).vm_id),), True)


@pytest.mark.parametrize("kind", ["Uniform", "Flexible"])
def test_however_many_vms_of_a_set_are_failed_they_are_asked_about_at_once(arm: FakeArm, kind: str) -> None:
    """An extension may fail on each machine. One request for each of them, with every look: they took so long
    that a controller came to nothing else, and all who waited together read each VM too often for Azure."""
    world = AzureWorld(arm, kind)
    provider = world.provider()
    machine = provider.identify(world.node)
    for path in [world.second.id, *arm.scale(world.set, 20)]:
        arm.put(path, provisioning="Failed")
    arm.put(arm.instances(world.set)[-1].id, power="deallocated")  # it never got a machine
    arm.forget()
    assert provider.preflight(machine, Step.REPLACE).short_by == 1
    assert arm.count("GET */providers/*") == 4, "the VM, the set, its VMs, and those that are Failed"
    reference = begun(provider, machine, Step.REPLACE)
    arm.finish()
    for path in arm.scale(world.set, 22):
        arm.put(path, provisioning="Failed")
    world.later()
    arm.forget()
    done = provider.poll(machine, reference)
    assert isinstance(done, Done)
    assert (len(done.replacements), arm.count("GET */providers/*")) == (3, 4)


def test_where_an_autoscaler_is_declared_the_capacity_is_its_business(world: AzureWorld) -> None:
    world.environ["AZURE_AUTOSCALER"] = "true"
    provider = world.provider()
    machine = provider.identify(world.node)
    _, found = gone(world, provider, machine)
    assert isinstance(found, Running)
    assert world.arm.capacity(world.set) == 1


def made_smaller(world: AzureWorld, provider: AzureProvider, machine: Machine) -> Poll:
    """What is seen of a replacement during which somebody has taken the other machine out of the group."""
    reference = begun(provider, machine, Step.REPLACE)
    world.arm.finish()
    world.arm.remove(world.second.id)
    world.later()
    return provider.poll(machine, reference)


def test_a_scale_set_that_somebody_made_smaller_meanwhile_is_not_made_larger(
    world: AzureWorld, provider: AzureProvider, machine: Machine
) -> None:
    found = made_smaller(world, provider, machine)
    assert isinstance(found, Done)
    assert (found.replacements, found.complete, found.fewer) == ((), True, True)
    assert found.evidence.endswith("wants 0 VMs now instead of 2")


def test_a_scale_set_that_wants_fewer_and_is_still_at_work_is_waited_for(
    world: AzureWorld, provider: AzureProvider, machine: Machine
) -> None:
    reference = begun(provider, machine, Step.REPLACE)
    world.arm.finish()
    world.arm.remove(world.second.id)
    told = json.loads(answer_of(world, world.set))
    told["properties"]["provisioningState"] = "Updating"
    world.arm.answer(f"GET {world.set}", json.dumps(told).encode(), times=1)
    world.later()
    assert isinstance(provider.poll(machine, reference), Running)


def test_where_an_autoscaler_wants_fewer_it_may_want_one_more_yet(world: AzureWorld) -> None:
    world.environ["AZURE_AUTOSCALER"] = "true"
    provider = world.provider()
    machine = provider.identify(world.node)
    assert isinstance(made_smaller(world, provider, machine), Running)


def test_a_pool_that_somebody_made_smaller_meanwhile_puts_none_in_its_place(world: AzureWorld) -> None:
    provider, machine, _ = on_aks(world, AZURE_ALLOW="aks-replace")
    found = made_smaller(world, provider, machine)
    assert isinstance(found, Done)
    assert (found.replacements, found.complete, found.fewer) == ((), True, True)
    assert found.evidence.endswith("pool gpu wants 0 machines now instead of 2")


@pytest.mark.parametrize("kind", ["Uniform", "Flexible"])
@pytest.mark.parametrize("state", ["Creating", "Succeeded"])
def test_what_is_being_made_while_a_deletion_is_adopted_may_take_the_place(
    arm: FakeArm, kind: str, state: str
) -> None:
    """Somebody had deleted the VM, and raised the capacity again. The new one counted as known: a recovery
    waited half an hour beside the new node. One that is there already may have served before."""
    world = AzureWorld(arm, kind)
    provider = world.provider()
    machine = provider.identify(world.node)
    begun(world.provider(), machine, Step.REPLACE)
    (path,) = arm.scale(world.set, 2)
    arm.put(path, provisioning=state)
    found = provider.preflight(machine, Step.REPLACE)
    assert found.adopt == f"{named(machine.route)} is already being deleted"
    arm.finish()
    arm.put(path, provisioning="Succeeded")
    outcome = provider.poll(machine, found.reference)
    if state == "Creating":
        assert isinstance(outcome, Done)
        assert (outcome.replacements, outcome.complete) == ((canonical(arm.instance(path).vm_id),), True)
    else:
        assert isinstance(outcome, Running)
        assert outcome.sentence.endswith(
            "has the 2 VMs that it wants: whether one of them took its place is not known"
        )


def test_a_scale_in_that_takes_the_sick_machine_is_not_undone(
    world: AzureWorld, provider: AzureProvider, machine: Machine
) -> None:
    """Its capacity shows late. It was recorded as it was before, and set back to that afterwards."""
    begun(world.provider(), machine, Step.REPLACE)  # as a person's scale-in
    of_set = world.arm._state.scale_sets[world.set.lower()]
    of_set.capacity = 2
    found = provider.preflight(machine, Step.REPLACE)
    assert (bool(found.adopt), found.reference.data["capacity"]) == (True, 2)
    world.arm.finish()
    of_set.capacity = 1
    world.later()
    outcome = provider.poll(machine, found.reference)
    assert isinstance(outcome, Done)
    assert outcome.fewer
    assert outcome.evidence.endswith("wants 1 VMs now instead of 2")


def test_a_machine_that_is_given_the_old_ones_number_is_the_new_one(
    world: AzureWorld, provider: AzureProvider, machine: Machine
) -> None:
    reference, _ = gone(world, provider, machine)
    provider.finish(machine, reference)
    world.arm.finish()
    world.later()
    found = provider.poll(machine, reference)
    new = world.arm.instance(world.first.id)
    assert isinstance(found, Done)
    assert found.replacements == (canonical(new.vm_id),)


def test_a_machine_that_stands_alone_has_no_replacement(arm: FakeArm) -> None:
    world = AzureWorld(arm)
    arm.release()
    vm = arm.instance(arm.vm("alone-1"))
    provider = world.provider()
    machine = provider.identify(world.node_of(vm))
    with pytest.raises(Refused, match="in no scale set"):
        provider.preflight(machine, Step.REPLACE)
    with pytest.raises(Refused, match="flexible-reimage"):
        provider.preflight(machine, Step.REIMAGE)
    assert provider.preflight(machine, Step.REDEPLOY).not_yet == ""
    arm.remove(vm.id)


# ---------------------------------------------------------------- AKS


def on_aks(world: AzureWorld, **environ: str) -> tuple[AzureProvider, Machine, str]:
    name = f"cluster-{world.set.rsplit('-', 1)[1]}"
    cluster = world.arm.managed_cluster(name, pools={"gpu": world.set})
    world.environ |= {"AZURE_CLUSTER_ID": cluster, **environ}
    provider = world.provider()
    labels = {"kubernetes.azure.com/cluster": "MC_x", "kubernetes.azure.com/agentpool": "gpu"}
    node = replace(world.node, labels=labels)
    return provider, provider.identify(node), cluster


def test_on_aks_nothing_is_done_to_a_machine_unless_it_is_allowed(world: AzureWorld) -> None:
    provider, machine, _ = on_aks(world)
    able = provider.abilities(machine)
    assert (able.actions, [r.do for r in able.default_remedy]) == (frozenset(), [Step.DRAIN])
    for action in provider.actions:
        with pytest.raises(Refused, match="AKS supports only"):
            provider.preflight(machine, action)
        with pytest.raises(Refused):
            provider.start(machine, action, TOKEN, Reference("azure", action, {"machine": machine.id}))
    assert world.calls() == 0


@pytest.mark.parametrize("state", ["Succeeded", "Failed"])
def test_aks_deletes_a_machine_itself_and_its_pool_is_told_to_want_as_many_as_before(
    world: AzureWorld, state: str
) -> None:
    provider, machine, _ = on_aks(world, AZURE_ALLOW="aks-replace")
    assert provider.abilities(machine).actions == {Step.REPLACE}
    reference = begun(provider, machine, Step.REPLACE)
    assert next(r.line for r in world.arm.mutating()).endswith("/agentPools/gpu/deleteMachines")
    assert isinstance(provider.poll(machine, reference), Running)
    world.arm.finish()
    world.later()
    assert isinstance(provider.poll(machine, reference), Unfinished)
    provider.finish(machine, reference)
    provider.finish(machine, reference)
    assert world.mutating_calls() == 2
    world.arm.finish()
    world.later()
    known = {world.first.vm_id, world.second.vm_id}
    (vm,) = (x for x in world.arm.instances(world.set) if x.vm_id not in known)
    world.arm.put(vm.id, provisioning=state)
    done = provider.poll(machine, reference)
    assert isinstance(done, Done)
    new = [canonical(vm.vm_id)]
    assert (list(done.replacements), done.complete) == (new, True)


def test_a_machine_of_aks_in_no_pool_is_a_persons_and_aks_is_not_asked(world: AzureWorld) -> None:
    """Karpenter made it (node auto-provisioning). AKS was asked for a machine of a pool without a name."""
    provider, _, _ = on_aks(world, AZURE_ALLOW="aks-replace")
    labels = {"kubernetes.azure.com/cluster": "MC_x", "karpenter.sh/nodepool": "gpu"}
    machine = provider.identify(replace(world.node, labels=labels))
    with pytest.raises(Refused, match=r"has no label kubernetes\.azure\.com/agentpool: AKS deletes only"):
        provider.preflight(machine, Step.REPLACE)
    assert world.arm.count("* */managedClusters/*") == 0


@pytest.mark.parametrize("scaled", ["true", "false"])
def test_a_machine_of_aks_that_is_being_deleted_already_is_not_deleted_once_more(
    world: AzureWorld, scaled: str
) -> None:
    """The autoscaler of a pool deletes a node that was drained, and an eviction a spot VM: both at its scale
    set, so that the pool shows nothing of it."""
    provider, machine, _ = on_aks(world, AZURE_ALLOW="aks-replace", AZURE_AUTOSCALER=scaled)
    world.arm.put(world.first.id, provisioning="Deleting")
    found = provider.preflight(machine, Step.REPLACE)
    assert found.adopt == f"{named(machine.route)} is already being deleted"
    world.later()
    assert provider.poll(machine, found.reference) == Running(
        f"machine {machine.route['node']} of pool gpu is being deleted, and pool gpu is Succeeded"
    )
    world.arm.remove(world.first.id)
    world.arm._state.scale_sets[world.set.lower()].capacity = 1
    world.later()
    done = provider.poll(machine, found.reference)
    assert isinstance(done, Done)
    assert (done.complete, done.fewer) == (True, True)
    assert done.evidence.endswith("pool gpu wants 1 machines now instead of 2")


def test_however_many_machines_a_pool_has_new_they_are_asked_about_at_once(world: AzureWorld) -> None:
    """An autoscaler may make hundreds while one is replaced. There were two requests for each of them."""
    provider, machine, _ = on_aks(world, AZURE_ALLOW="aks-replace", AZURE_AUTOSCALER="true")
    reference = begun(provider, machine, Step.REPLACE)
    world.arm.finish()
    new = [world.arm.instance(path) for path in world.arm.scale(world.set, 30)]
    world.arm.put(new[0].id, provisioning="Creating")
    world.arm.put(new[1].id, provisioning="Failed")
    world.arm.put(new[2].id, provisioning="Failed", power="deallocated")
    world.later()
    world.arm.forget()
    done = provider.poll(machine, reference)
    assert isinstance(done, Done)
    assert set(done.replacements) == {canonical(vm.vm_id) for vm in [new[1], *new[3:]]}
    assert world.arm.count("GET */providers/*") == 5, "VM, pool, its machines, VMs, and those that are Failed"


@pytest.mark.parametrize("says", [True, False], ids=["its list says which VMs", "its list does not"])
@pytest.mark.parametrize("kind", ["Uniform", "Flexible"])
def test_a_new_machine_of_aks_is_found_whatever_its_pool_is_made_of(
    arm: FakeArm, kind: str, says: bool
) -> None:
    world = AzureWorld(arm, kind)
    provider, machine, _ = on_aks(world, AZURE_ALLOW="aks-replace", AZURE_AUTOSCALER="true")
    reference = begun(provider, machine, Step.REPLACE)
    arm.finish()
    (new,) = (arm.instance(path) for path in arm.scale(world.set, 2))
    world.later()
    if not says:
        listed = [{"name": vm.computer_name, "properties": {}} for vm in arm.instances(world.set)]
        arm.answer("GET */agentPools/gpu/machines", json.dumps({"value": listed}).encode())
    done = provider.poll(machine, reference)
    assert isinstance(done, Done)
    assert (done.replacements, done.complete) == ((canonical(new.vm_id),), True)


def test_new_machines_of_aks_in_another_scale_set_of_their_pool_are_found(world: AzureWorld) -> None:
    """Somebody has deleted the pool meanwhile, and made it anew under its name: AKS made another set."""
    provider, machine, cluster = on_aks(world, AZURE_ALLOW="aks-replace", AZURE_AUTOSCALER="true")
    reference = begun(provider, machine, Step.REPLACE)
    world.arm.finish()
    anew = world.arm.scale_set(f"anew-{next(NUMBERS):04}", size=2)
    world.arm.managed_cluster(cluster.rsplit("/", 1)[1], pools={"gpu": anew})
    new = world.arm.instances(anew)
    world.arm.put(new[1].id, provisioning="Creating")
    world.later()
    done = provider.poll(machine, reference)
    assert isinstance(done, Done)
    assert done.replacements == (canonical(new[0].vm_id),)


def test_the_compute_api_on_aks_is_allowed_by_name(world: AzureWorld) -> None:
    provider, machine, _ = on_aks(world, AZURE_ALLOW="aks-compute")
    assert provider.abilities(machine).actions == {Step.REBOOT, Step.REIMAGE, Step.REDEPLOY}
    begun(provider, machine, Step.REDEPLOY)
    assert world.mutating_calls() == 1


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("DenyAssignmentAuthorizationFailed", "locks its node resource group: no role outweighs that"),
        ("RequestDisallowedByPolicy", "an assignment of Azure Policy forbids it: no role outweighs that"),
    ],
)
def test_what_no_role_allows_sends_nobody_to_grant_one(world: AzureWorld, code: str, told: str) -> None:
    provider, machine, _ = on_aks(world, AZURE_ALLOW="aks-compute")
    ready = provider.preflight(machine, Step.REBOOT)
    world.arm.refuse(403, code)
    with pytest.raises(Refused, match=told) as refused:
        provider.start(machine, Step.REBOOT, TOKEN, ready.reference)
    assert "iam/azure" not in refused.value.reason


LINKED = (
    "The client '{id}' with object id '{id}' has permission to perform action "
    "'Microsoft.ContainerService/managedClusters/agentPools/write' on scope '/subscriptions/{id}/"
    "resourceGroups/clusters/providers/Microsoft.ContainerService/managedClusters/gpu-7/agentPools/"
    "gpu'; however, it does not have permission to perform action{s} 'Microsoft.Network/"
    "virtualNetworks/subnets/join/action' on the linked scope(s) '/subscriptions/{id}/resourceGroups/"
    "hub/providers/Microsoft.Network/virtualNetworks/hub-1/subnets/nodes-2' or the linked scope(s) are "
    "invalid."
).replace("{id}", "72b61f0d-9bea-401f-ba03-2053af77b5e7")


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (
            LINKED.format(s=""),
            "needs Microsoft.Network/virtualNetworks/subnets/join/action on subnets/nodes-2, too (",
        ),
        (
            LINKED.format(s="(s)"),
            "needs Microsoft.Network/virtualNetworks/subnets/join/action on subnets/nodes-2, too",
        ),
        (
            "The tenant is not authorized to access linked subscription",
            "needs a right on what is linked to it, too (",
        ),
    ],
)
def test_which_linked_permission_lacks_is_told_and_nobody_sent_to_grant_what_is_granted(
    world: AzureWorld, message: str, told: str
) -> None:
    provider, machine, _ = on_aks(world, AZURE_ALLOW="aks-replace")
    reference = begun(provider, machine, Step.REPLACE)
    world.arm.finish()
    world.arm.refuse(403, "LinkedAuthorizationFailed", message=message, on="PUT *")
    with pytest.raises(Refused) as refused:
        provider.finish(machine, reference)
    assert told in refused.value.reason
    assert "give the agent's identity the role" not in refused.value.reason


# ---------------------------------------------------------------- tokens


def test_without_a_token_nothing_is_sent_and_none_is_ever_told(
    world: AzureWorld, provider: AzureProvider, machine: Machine
) -> None:
    world.arm.refuse_tokens(500)
    try:
        with pytest.raises(Retry, match="there is no token for Azure") as raised:
            provider.preflight(machine, Step.REBOOT)
    finally:
        world.arm.refuse_tokens(0)
    assert "eyJ" not in str(raised.value)
    assert not [r for r in world.arm.requests if "virtualMachines" in r.line]


def test_what_a_route_cannot_have_is_a_mistake_of_the_policy_at_the_start(world: AzureWorld) -> None:
    provider, machine, _ = on_aks(world)
    able = abilities_of(provider, machine)
    file = parse_policy(
        b"apiVersion: noderecovery.dev/v1alpha1\nkind: RecoveryPolicy\n"
        b"rules:\n  - {name: all, match: {type: GPUMissing}, remedy: [{do: reimage}]}\n",
        "policy.yaml",
    )
    (mistake,) = check_for(file, able.actions, "azure", "sidecar", able.note)
    assert 'found "reimage", which provider azure cannot do; its actions are none' in mistake
    assert "AKS supports only that it deletes a machine itself" in mistake
    assert check_for(file, provider.actions, "azure", "sidecar") == []


# ---------------------------------------------------------------- taking it back


@pytest.mark.parametrize("action", [Step.REBOOT, Step.REIMAGE, Step.REDEPLOY, Step.REPLACE])
def test_what_azure_has_accepted_is_waited_for_and_never_taken_back(
    world: AzureWorld, provider: AzureProvider, action: Step
) -> None:
    machine = provider.identify(world.node)
    reference = provider.start(machine, action, TOKEN, provider.preflight(machine, action).reference)
    changed = world.mutating_calls()
    with pytest.raises(Refused, match="takes nothing back that it has accepted: wait until it has ended"):
        provider.take_back(machine, reference)
    world.arm.fail("AllocationFailed", "There is no room.")
    assert "no operation is under way" in provider.take_back(machine, reference)
    assert world.mutating_calls() == changed


def test_a_lost_answer_is_seen_on_the_vm(world: AzureWorld, provider: AzureProvider) -> None:
    machine = provider.identify(world.node)
    ready = provider.preflight(machine, Step.REDEPLOY).reference
    assert "is Succeeded: no operation is under way" in provider.take_back(machine, ready)
    world.lose_answer()
    with pytest.raises(Ambiguous):
        provider.start(machine, Step.REDEPLOY, TOKEN, ready)
    with pytest.raises(Refused, match="is Updating; Azure takes nothing back"):
        provider.take_back(machine, ready)


def test_a_vm_that_is_gone_has_nothing_to_come(world: AzureWorld, provider: AzureProvider) -> None:
    machine = provider.identify(world.node)
    reference = provider.start(
        machine, Step.REPLACE, TOKEN, provider.preflight(machine, Step.REPLACE).reference
    )
    world.arm.finish()
    with pytest.raises(Retry, match="one answer may be an old one"):
        provider.take_back(machine, reference)
    world.later()
    assert provider.take_back(machine, reference).endswith("is gone")


def test_one_answer_that_lacks_the_vm_does_not_show_that_nothing_is_to_come(
    world: AzureWorld, provider: AzureProvider, machine: Machine
) -> None:
    reference = begun(provider, machine, Step.REBOOT)
    told = json.dumps({"error": {"code": "NotFound", "message": "It was not found."}}).encode()
    world.arm.answer(f"GET {world.first.id}", told, status=404, times=1)
    with pytest.raises(Retry, match="one answer may be an old one"):
        provider.take_back(machine, reference)
    with pytest.raises(Refused, match="has not ended it"):
        provider.take_back(machine, reference)


# ---------------------------------------------------------------- is it down?


@pytest.mark.parametrize("kind", ["Uniform", "Flexible"])
def test_a_vm_is_down_once_azure_says_that_it_is_stopped_or_deallocated(arm: FakeArm, kind: str) -> None:
    world = AzureWorld(arm, kind)
    provider = world.provider()
    machine = provider.identify(world.node)
    states = ("running", "starting", "stopping", "stopped", "deallocating", "deallocated", "unknown")
    said = {}
    for state in states:
        arm.put(world.first.id, power=state)
        said[state] = provider.down(machine)
    down = {state for state, why in said.items() if why}
    assert down == {"stopped", "deallocated"}
    assert str(said["stopped"]).endswith(" is stopped")


def test_neither_another_vm_under_its_number_nor_none_is_down(
    world: AzureWorld, provider: AzureProvider
) -> None:
    machine = provider.identify(world.node)
    world.arm.put(world.first.id, power="stopped")
    assert provider.down(replace(machine, id="another")) is None
    world.remove_machine()
    assert provider.down(machine) is None


# ---------------------------------------------------------------- answers that are none


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[" * 10_000,
        b"7",
        b'{"properties": 7}',
        b'{"properties": {"timeCreated": "yesterday"}}',
    ],
    ids=lambda body: body[:24].decode(),
)
def test_an_answer_that_is_no_machine_is_asked_for_again(
    world: AzureWorld, provider: AzureProvider, body: bytes
) -> None:
    """It was taken for a bug of the agent's. Of no answer does it follow that the machine is gone."""
    machine = provider.identify(world.node)
    world.arm.answer("GET */virtualMachines/*", body)
    with pytest.raises((Retry, Refused)):
        provider.preflight(machine, Step.REPLACE)
    assert world.mutating_calls() == 0
    world.arm.answer("GET */virtualMachines/*", body)
    with contextlib.suppress(Retry, Refused):
        assert provider.down(machine) is None


NO_WORD = {
    "a gateway's page": b"<html>404 Not Found</html>",
    "an empty answer": b"",
    "another's document": b'{"message": "no Route matched"}',
    "a provider": b'{"error": {"code": "NoRegisteredProviderFound", "message": "For this location."}}',
}


@pytest.mark.parametrize("body", NO_WORD.values(), ids=NO_WORD)
def test_a_404_that_does_not_speak_of_the_machine_is_no_evidence_that_it_is_gone(
    world: AzureWorld, provider: AzureProvider, body: bytes
) -> None:
    """A proxy on the way was enough for ``release`` to call a VM gone that Azure was about to delete."""
    machine = provider.identify(world.node)
    references = [provider.preflight(machine, step).reference for step in (Step.REPLACE, Step.REBOOT)]
    world.arm.answer("GET */virtualMachines/*", body, status=404)
    with pytest.raises(Retry, match="got no usable answer"):
        provider.gone(machine)
    for reference in references:
        with pytest.raises(Retry, match="got no usable answer"):
            provider.poll(machine, reference)
        with pytest.raises(Retry, match="got no usable answer"):
            provider.take_back(machine, reference)


def test_an_error_without_words_is_no_traceback_in_the_log(
    world: AzureWorld, provider: AzureProvider, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    """The SDK logged one for each, of fifteen lines: a traceback is a bug, and an outage has thousands."""
    world.arm.answer("GET */virtualMachines/*", b"", status=502)
    with pytest.raises(Retry, match="got no usable answer"):
        provider.preflight(machine, Step.REDEPLOY)
    assert [x.name for x in caplog.records if x.exc_info] == []


def test_of_a_machine_whose_state_is_not_told_nothing_is_said_to_be_under_way(
    world: AzureWorld, provider: AzureProvider, machine: Machine
) -> None:
    """It was said that another operation is under way, and a release was refused for that."""
    reference = provider.preflight(machine, Step.REDEPLOY).reference
    told = json.loads(answer_of(world, f"{world.set}/virtualMachines/{machine.route['instance']}"))
    del told["properties"]["provisioningState"]
    world.arm.answer("GET */virtualMachines/*", json.dumps(told).encode())
    world.later()
    for ask in (provider.poll, provider.take_back):
        with pytest.raises(Retry, match="does not say in which state it is"):
            ask(machine, reference)
    with pytest.raises(Retry, match="does not say in which state it is"):
        provider.preflight(machine, Step.REPLACE)


@pytest.mark.parametrize("unique", ["", "00000000-0000-0000-0000-000000000000", "no UUID"])
def test_a_machine_whose_unique_id_is_not_told_is_neither_the_same_nor_another(
    world: AzureWorld, provider: AzureProvider, unique: str
) -> None:
    """It was called gone, and another one under its number."""
    machine = provider.identify(world.node)
    references = {step: provider.preflight(machine, step).reference for step in (Step.REPLACE, Step.REBOOT)}
    told = answer_of(world, f"{world.set}/virtualMachines/{machine.route['instance']}")
    body = told.replace(world.first.vm_id, unique).encode()
    world.arm.answer("GET */virtualMachines/*", body)
    world.later()
    with pytest.raises(Retry, match="has no unique ID"):
        provider.gone(machine)
    for step, reference in references.items():
        for ask in (provider.poll, provider.take_back):
            with pytest.raises(Retry, match="has no unique ID"):
                ask(machine, reference)
        with pytest.raises(Retry, match="has no unique ID"):
            provider.start(machine, step, TOKEN, reference)
    assert world.mutating_calls() == 0


@pytest.mark.parametrize("kind", ["Uniform", "Flexible"])
def test_an_answer_about_another_vm_is_no_evidence_that_the_machine_is_gone(arm: FakeArm, kind: str) -> None:
    """It was: one such answer ended a recovery, and a hand-over, while the machine ran."""
    world = AzureWorld(arm, kind)
    provider = world.provider()
    machine = provider.identify(world.node)
    references = [provider.preflight(machine, step).reference for step in (Step.REPLACE, Step.REBOOT)]
    arm.scale(world.set, 3)
    arm.answer(f"GET {world.first.id}", answer_of(world, world.second.id).encode())
    looks = (provider.gone, provider.down, lambda m: provider.preflight(m, Step.REDEPLOY))
    asks = (provider.poll, provider.take_back)
    for ask in (*looks, *(functools.partial(_swapped, ask, x) for ask in asks for x in references)):
        world.later()
        with pytest.raises(Retry, match="is about another resource, or says of none"):
            ask(machine)


def _swapped(ask: Any, reference: Reference, machine: Machine) -> Any:
    return ask(machine, reference)


def test_an_answer_about_another_scale_set_or_pool_is_asked_for_again(world: AzureWorld) -> None:
    """What it wants would be taken for what ours wants, and set back to that."""
    other = AzureWorld(world.arm)
    world.arm.answer(f"GET {world.set}", answer_of(world, other.set).encode(), times=1)
    provider = world.provider()
    with pytest.raises(Retry, match="it is about another scale set"):
        provider.preflight(provider.identify(world.node), Step.REPLACE)
    provider, machine, cluster = on_aks(world, AZURE_ALLOW="aks-replace")
    told = json.loads(answer_of(world, f"{cluster}/agentPools/gpu"))
    world.arm.answer(f"GET {cluster}/agentPools/gpu", json.dumps({**told, "name": "cpu"}).encode(), times=1)
    with pytest.raises(Retry, match="it is about another pool"):
        provider.preflight(machine, Step.REPLACE)


def test_a_machine_that_its_scale_set_lists_is_not_replaced_whatever_one_answer_says(
    world: AzureWorld, provider: AzureProvider, machine: Machine
) -> None:
    reference = provider.preflight(machine, Step.REPLACE).reference
    world.arm.scale(world.set, 3)
    told = json.dumps({"error": {"code": "NotFound", "message": "It was not found."}}).encode()
    world.arm.answer(f"GET {world.first.id}", told, status=404)
    outcome = provider.poll(machine, reference)
    assert isinstance(outcome, Running)
    assert outcome.sentence.endswith("still lists it: asking again")
    world.arm.forget()
    world.later()
    assert isinstance(provider.poll(machine, reference), NotApplied)


@pytest.mark.parametrize("told", [b"{}", b'{"status": null}', b'{"status": 7}'], ids=bytes.decode)
def test_a_document_that_is_no_operations_status_is_no_operation_under_way(
    world: AzureWorld, provider: AzureProvider, told: bytes
) -> None:
    """A VM whose reboot had ended could not be released: it was refused each time."""
    machine = provider.identify(world.node)
    reference = begun(provider, machine, Step.REBOOT)
    world.arm.answer("GET */operations/*", told)
    with pytest.raises(Refused, match="is Updating; Azure takes nothing back"):
        provider.take_back(machine, reference)
    world.arm.finish()
    assert str(provider.take_back(machine, reference)).endswith("is Succeeded: no operation is under way")


def test_a_scale_set_that_is_gone_replaces_nothing(world: AzureWorld, provider: AzureProvider) -> None:
    """It was asked for until the deadline, and told as a machine that Azure does not know."""
    machine = provider.identify(world.node)
    reference = begun(provider, machine, Step.REPLACE)
    world.arm.finish()
    gone = json.dumps({"error": {"code": "ResourceNotFound", "message": "It was not found."}}).encode()
    world.arm.answer(f"GET {world.set}", gone, status=404)
    world.later()
    with pytest.raises(Retry, match="one answer may be an old one"):
        provider.poll(machine, reference)
    world.later()
    outcome = provider.poll(machine, reference)
    assert isinstance(outcome, Failed)
    assert outcome.reason.endswith("nothing will take the place of the VM")
    with pytest.raises(Refused, match="does not exist any more"):
        provider.finish(machine, reference)


def test_one_answer_that_lacks_the_scale_set_ends_no_replacement(
    world: AzureWorld, provider: AzureProvider, machine: Machine
) -> None:
    """It was handed to a person, and the set wanted one VM less from then on."""
    lacking = json.dumps({"error": {"code": "ResourceNotFound", "message": "It was not found."}}).encode()

    def once() -> None:
        world.arm.answer(f"GET {world.set}", lacking, status=404, times=1)
        world.later()

    once()
    with pytest.raises(Retry, match=r"lacks scale set .* one answer may be an old one"):
        provider.preflight(machine, Step.REPLACE)
    reference = begun(provider, machine, Step.REPLACE)
    world.arm.finish()
    once()
    with pytest.raises(Retry, match=r"lacks scale set .* one answer may be an old one"):
        provider.poll(machine, reference)
    assert isinstance(provider.poll(machine, reference), Unfinished)
    once()
    with pytest.raises(Retry, match=r"lacks scale set .* one answer may be an old one"):
        provider.finish(machine, reference)
    provider.finish(machine, reference)


def test_one_answer_that_lacks_a_machine_of_aks_refuses_no_step(world: AzureWorld) -> None:
    provider, machine, cluster = on_aks(world, AZURE_ALLOW="aks-replace")
    lacking = json.dumps({"error": {"code": "NotFound", "message": "It was not found."}}).encode()
    name = machine.route["node"]
    world.arm.answer(f"GET {cluster}/agentPools/gpu/machines/{name}", lacking, status=404, times=1)
    with pytest.raises(Retry, match=f"lacks machine {name} of pool gpu"):
        provider.preflight(machine, Step.REPLACE)
    assert provider.preflight(machine, Step.REPLACE).adopt == ""
    world.arm.answer(f"GET {cluster}/agentPools/gpu/machines/{name}", lacking, status=404)
    for error in (Retry, Refused):
        world.later()
        with pytest.raises(error, match=f"machine {name} of pool gpu"):
            provider.preflight(machine, Step.REPLACE)


NOT_THERE = {
    "it was not found": (404, "NotFound", "The entity was not found in this Azure location."),
    "its deletion has begun": (
        400,
        "InvalidParameter",
        "The provided instanceId 0 is not an active Virtual Machine Scale Set VM instanceId.",
    ),
}


@pytest.mark.parametrize("answer", NOT_THERE.values(), ids=NOT_THERE)
@pytest.mark.parametrize("action", [Step.REPLACE, Step.REBOOT])
def test_one_answer_that_does_not_know_a_vm_which_was_there_a_moment_ago_refuses_no_step(
    world: AzureWorld, provider: AzureProvider, machine: Machine, action: Step, answer: tuple[int, str, str]
) -> None:
    """It may be an old one, or somebody else's deletion has just begun: the next look tells."""
    ready = provider.preflight(machine, action)
    status, code, message = answer
    world.arm.refuse(status, code, message)
    with pytest.raises(Retry, match="was not done, Azure does not know"):
        provider.start(machine, action, TOKEN, ready.reference)
    assert provider.start(machine, action, TOKEN, ready.reference).data["operation"]


@pytest.mark.parametrize("asked", ["agentPools/gpu", "agentPools/gpu/machines"])
def test_one_answer_that_lacks_a_pool_of_aks_refuses_no_step(world: AzureWorld, asked: str) -> None:
    provider, machine, cluster = on_aks(world, AZURE_ALLOW="aks-replace")
    lacking = json.dumps({"error": {"code": "NotFound", "message": "It was not found."}}).encode()
    world.arm.answer(f"GET {cluster}/{asked}", lacking, status=404, times=1)
    with pytest.raises(Retry, match="one answer may be an old one"):
        provider.preflight(machine, Step.REPLACE)
    assert provider.preflight(machine, Step.REPLACE).reference.data["capacity"] == 2


def test_one_answer_that_lacks_a_pool_does_not_leave_it_smaller_by_one(world: AzureWorld) -> None:
    provider, machine, cluster = on_aks(world, AZURE_ALLOW="aks-replace")
    reference = begun(provider, machine, Step.REPLACE)
    world.arm.finish()
    lacking = json.dumps({"error": {"code": "NotFound", "message": "It was not found."}}).encode()
    world.arm.answer(f"GET {cluster}/agentPools/gpu", lacking, status=404, times=1)
    with pytest.raises(Retry, match="one answer may be an old one"):
        provider.finish(machine, reference)


@pytest.mark.parametrize("status", [400, 403, 404, 407])
def test_an_error_page_of_somebody_elses_is_no_refusal_of_azures(
    world: AzureWorld, provider: AzureProvider, machine: Machine, status: int
) -> None:
    """Each error of Azure has a code. One page of a proxy's handed the node to a person."""
    page = b"<html><body>Blocked</body></html>"
    world.arm.answer("GET *", page, status=status, times=1)
    with pytest.raises(Retry, match="got no usable answer"):
        provider.preflight(machine, Step.REPLACE)
    reference = provider.preflight(machine, Step.REDEPLOY).reference
    world.arm.answer("POST *", page, status=status, times=1)
    with pytest.raises(Ambiguous, match="its answer was lost"):
        provider.start(machine, Step.REDEPLOY, TOKEN, reference)


def test_one_answer_that_lacks_a_scale_sets_list_refuses_no_step(
    world: AzureWorld, provider: AzureProvider, machine: Machine
) -> None:
    lacking = json.dumps({"error": {"code": "NotFound", "message": "It was not found."}}).encode()
    world.arm.answer(f"GET {world.set}/virtualMachines", lacking, status=404, times=1)
    with pytest.raises(Retry, match="one answer may be an old one"):
        provider.preflight(machine, Step.REPLACE)


def test_a_vm_whose_deletion_has_begun_is_not_gone(
    world: AzureWorld, provider: AzureProvider, machine: Machine
) -> None:
    """So the cloud provider for Azure reads Compute's "not active"."""
    status, code, message = NOT_THERE["its deletion has begun"]
    body = json.dumps({"error": {"code": code, "message": message}}).encode()
    world.arm.answer(f"GET {world.first.id}", body, status)
    for _ in range(2):
        with pytest.raises(Retry, match="one answer may be an old one"):
            provider.gone(machine)
        world.later()


def test_an_answer_without_end_is_not_read_to_its_end(world: AzureWorld, provider: AzureProvider) -> None:
    machine = provider.identify(world.node)
    world.arm.answer("GET */virtualMachines/*", b'{"name": "' + b"x" * LARGEST)
    with pytest.raises(Retry, match="got no usable answer"):
        provider.preflight(machine, Step.REPLACE)


def test_a_list_that_leads_back_to_a_page_is_given_up_there(
    world: AzureWorld, provider: AzureProvider
) -> None:
    """A hundred pages, each a request, were asked for in one look, and nothing else meanwhile."""
    machine = provider.identify(world.node)
    here = world.arm.environ()["AZURE_RESOURCE_MANAGER_ENDPOINT"] + f"{world.set}/virtualMachines?page=2"
    world.arm.answer("GET */virtualMachines", json.dumps({"value": [], "nextLink": here}).encode())
    asked = world.calls()
    with pytest.raises(Retry, match="leads back to a page"):
        provider.preflight(machine, Step.REPLACE)
    assert world.calls() - asked < 10


def test_a_vm_that_is_on_two_pages_of_a_list_is_one_vm(
    world: AzureWorld, provider: AzureProvider, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It moved to the next page while they were read. A set that was short of one passed for complete."""
    world.arm.scale(world.set, 3)
    third = world.arm.instances(world.set)[2]
    world.arm.put(third.id, provisioning="Creating")
    assert provider.preflight(machine, Step.REPLACE).short_by == 1
    by_page = ItemPaged.by_page
    twice = lambda found: (each for page in by_page(found) for each in [list(page)] * 2)  # noqa: E731
    monkeypatch.setattr(ItemPaged, "by_page", lambda found, *_: Pages(twice(found)))
    world.later()
    assert provider.preflight(machine, Step.REPLACE).short_by == 1


class Pages:
    """Pages of a list, each with an address of its own."""

    def __init__(self, pages: Iterator[Any]) -> None:
        self.pages, self.numbers = pages, itertools.count()

    def __iter__(self) -> Iterator[Any]:
        return self.pages

    @property
    def continuation_token(self) -> str:
        return str(next(self.numbers))


def test_a_list_whose_pages_do_not_end_is_given_up(
    world: AzureWorld, provider: AzureProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = provider.identify(world.node)
    monkeypatch.setattr(ItemPaged, "by_page", lambda *_: Pages(iter(list, None)))
    with pytest.raises(Retry, match=f"more than {PAGES} pages"):
        provider.preflight(machine, Step.REPLACE)


def test_a_list_goes_on_where_azure_names_its_own_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it does after some fifty VMs. Every replacement in a larger scale set was refused for it."""
    group = f"/subscriptions/{uuid4()}/resourceGroups/gpu"
    path = f"{group}/providers/Microsoft.Compute/virtualMachineScaleSets/set/virtualMachines"
    asked: list[tuple[str, str]] = []

    def send(_: HTTPAdapter, request: requests.PreparedRequest, **__: Any) -> requests.Response:
        number, url = len(asked), f"{request.url}"
        asked.append((url, request.headers["Authorization"]))
        body: dict[str, Any] = {"value": [{"id": f"{path}/{number}", "instanceId": f"{number}"}]}
        if not number:
            body["nextLink"] = f"{PUBLIC}:443{path}?api-version=2024-07-01&$skiptoken=Mzk4"
        answer = requests.Response()
        answer.status_code, answer.url, answer.request = 200, url, request
        answer.headers["Content-Type"] = "application/json"
        answer.raw = urllib3.HTTPResponse(io.BytesIO(json.dumps(body).encode()), preload_content=False)
        return answer

    monkeypatch.setattr(HTTPAdapter, "send", send)
    monkeypatch.setattr(AzureSession, "token", lambda *_: "secret")
    monkeypatch.setattr(AzureSession, "_identity", lambda _: object())
    found = members(AzureSession(SystemClock(), {}), route_of(f"azure://{path}/0") or {})
    assert [vm.name for vm in found] == ["0", "1"]
    assert [token for _, token in asked] == ["Bearer secret"] * 2
    assert asked[1][0].startswith(f"{PUBLIC}:443{path}?")


@pytest.mark.parametrize("wrong", [{"capacity": None}, {"capacity": "3"}, {"scale_set": None}], ids=str)
def test_a_reference_that_somebody_has_cut_is_refused_by_name(
    world: AzureWorld, provider: AzureProvider, wrong: dict[str, Any]
) -> None:
    machine = provider.identify(world.node)
    found = provider.preflight(machine, Step.REPLACE).reference
    route = {key: value for key, value in machine.route.items() if key not in wrong}
    cut = replace(found, data={k: v for k, v in {**found.data, **wrong}.items() if v is not None})
    with pytest.raises(Refused, match=f"lacks its {next(iter(wrong))}"):
        provider.finish(replace(machine, route=route), cut)
    assert world.mutating_calls() == 0


@pytest.mark.parametrize(
    ("on", "was", "becomes"),
    [
        ("GET */virtualMachineScaleSets/*", '"capacity": 2', '"capacity": Infinity'),
        ("GET */virtualMachines", '"timeCreated": "20', '"timeCreated": "x20'),
        ("GET */virtualMachines/*", '"timeCreated": "20', '"timeCreated": "x20'),
    ],
    ids=["a capacity", "a moment of one of several", "a moment"],
)
def test_a_value_that_is_none_is_no_bug(
    world: AzureWorld, provider: AzureProvider, on: str, was: str, becomes: str
) -> None:
    machine, path = provider.identify(world.node), on.removeprefix("GET ")
    url = {"*/virtualMachineScaleSets/*": world.set, "*/virtualMachines": f"{world.set}/virtualMachines"}
    told = answer_of(world, url.get(path, f"{world.set}/virtualMachines/{machine.route['instance']}"))
    assert was in told
    world.arm.answer(f"GET {url.get(path, path)}", told.replace(was, becomes, 1).encode())
    with suppress(Retry, Refused):
        provider.preflight(machine, Step.REPLACE)


def answer_of(world: AzureWorld, path: str) -> str:
    """What Resource Manager answers for a path."""
    asked = Request(f"{world.environ['AZURE_RESOURCE_MANAGER_ENDPOINT']}{path}?api-version=2024-07-01")  # noqa: S310
    asked.add_header("Authorization", "Bearer x")
    with urlopen(asked) as answer:  # noqa: S310
        return json.dumps(json.load(answer))


def test_a_scale_set_of_no_resource_group_is_none_of_the_machines() -> None:
    machine = Machine("azure", "x", "y", route={"kind": "vm", "vm": "v", "resource_group": "rg-1"})
    for told, known in {
        "30": {},
        "/subscriptions/s/resourceGroups/RG-1/x/set-1": {"scale_set": "set-1"},
    }.items():
        assert _set_of(Vm("x", "v", "Succeeded", set_id=told), machine) == known


# ---------------------------------------------------------------- the machines of a group


def test_a_set_that_may_not_be_listed_says_so_and_the_others_are_listed(world: AzureWorld) -> None:
    provider, machine = world.provider(), world.provider().identify(world.node)
    other = AzureWorld(world.arm)
    both = [machine, provider.identify(other.node)]
    world.arm.refuse(403, "AuthorizationFailed", on="GET *")
    found = {group.group: group for group in provider.members(both)}
    assert len(found) == 2
    denied = found[machine.group]
    assert "AuthorizationFailed" in denied.unknown
    assert denied.members == ()
    assert [len(group.members) for group in found.values() if not group.unknown] == [2]


def test_a_set_that_was_deleted_is_no_group_any_more(world: AzureWorld) -> None:
    """Its list was unknown for ever, and while one is unknown no machine is known to be in none."""
    provider, other = world.provider(), AzureWorld(world.arm)
    machine, kept = provider.identify(world.node), provider.identify(other.node)
    assert len(list(provider.members([machine, kept]))) == 2
    world.arm.refuse(404, "ResourceNotFound", on="GET */virtualMachines*")
    assert [bool(group.unknown) for group in provider.members([kept])].count(True) == 1, "the set is there"
    world.arm.remove_set(world.set)
    for known in [machine, kept], [kept]:  # its Nodes go later
        assert [(group.group, group.unknown) for group in provider.members(known)] == [(kept.group, "")]


@pytest.mark.parametrize("provisioning", ["Failed", "Canceled"])
def test_a_vm_whose_provisioning_has_failed_and_that_runs_is_in_service(
    world: AzureWorld, provisioning: str
) -> None:
    """A failing extension is what mostly keeps a machine from joining. The scale set counts it, and so nobody
    was told of it; one that was told before ended as soon as an extension failed anew."""
    provider = world.provider()
    world.arm.put(world.second.id, provisioning=provisioning)
    (group,) = provider.members([provider.identify(world.node)])
    states = {m.machine.id: (m.in_service, m.state) for m in group.members}
    assert states[canonical(world.second.vm_id)] == (True, f"{provisioning}, and running")


@pytest.mark.parametrize(
    "state",
    [{"provisioning": "Failed", "power": "stopped"}, {"power": "stopped"}, {"provisioning": "Creating"}],
)
def test_a_vm_that_was_not_provisioned_or_does_not_run_is_not_in_service(
    world: AzureWorld, state: dict[str, str]
) -> None:
    provider = world.provider()
    world.arm.put(world.second.id, **state)
    (group,) = provider.members([provider.identify(world.node)])
    in_service = {m.machine.id: (m.in_service, m.state) for m in group.members}
    assert in_service[canonical(world.second.vm_id)] == (False, next(iter(state.values())))
    assert in_service[canonical(world.first.vm_id)] == (True, "running")


def test_a_flexible_set_cannot_be_listed_by_its_machines(arm: FakeArm) -> None:
    world = AzureWorld(arm, "Flexible")
    provider = world.provider()
    world.arm.forget()
    assert list(provider.members([provider.identify(world.node)])) == []
    assert world.calls() == 0


def test_a_scale_set_whose_capacity_is_not_told_has_no_machine_deleted(
    world: AzureWorld, provider: AzureProvider, machine: Machine
) -> None:
    told = json.loads(answer_of(world, world.set))
    del told["sku"]["capacity"]
    world.arm.answer(f"GET {world.set}", json.dumps(told).encode(), times=1)
    try:
        reference = begun(provider, machine, Step.REPLACE)
    except (Retry, Refused):
        assert world.mutating_calls() == 0
        return
    world.arm.finish()
    world.later()
    outcome = provider.poll(machine, reference)
    assert isinstance(outcome, Unfinished), outcome  # else nobody sets the capacity back


def test_a_pool_that_was_failed_before_it_was_asked_has_not_failed_yet(world: AzureWorld) -> None:
    provider, machine, cluster = on_aks(world, AZURE_ALLOW="aks-replace")
    told = json.loads(answer_of(world, f"{cluster}/agentPools/gpu"))
    told["properties"]["provisioningState"] = "Failed"  # an upgrade of it has failed, days ago
    world.arm.answer(f"GET {cluster}/agentPools/gpu", json.dumps(told).encode(), times=1)
    reference = begun(provider, machine, Step.REPLACE)
    world.arm.answer(f"GET {cluster}/agentPools/gpu", json.dumps(told).encode(), times=1)  # not shown yet
    assert isinstance(provider.poll(machine, reference), Running)


@pytest.mark.parametrize("state", ["Updating", "Deleting", "Scaling", "Upgrading", "Starting", "Succeeded"])
def test_a_deletion_whose_answer_was_lost_is_seen_on_the_vm_whatever_its_pool_says(
    world: AzureWorld, state: str
) -> None:
    """AKS says Scaling of a pool that it makes smaller: the call was said to have had no effect, and the next
    one was refused because of the first."""
    provider, machine, cluster = on_aks(world, AZURE_ALLOW="aks-replace")
    ready = provider.preflight(machine, Step.REPLACE)
    world.lose_answer()
    with pytest.raises(Ambiguous):
        provider.start(machine, Step.REPLACE, TOKEN, ready.reference)
    _pool_says(world, cluster, state)
    outcome = provider.poll(machine, ready.reference)
    assert isinstance(outcome, Running)
    assert outcome.sentence.endswith(f"is being deleted, and pool gpu is {state}")


@pytest.mark.parametrize(("state", "at_it"), [("Scaling", True), ("Upgrading", True), ("Canceled", False)])
def test_a_pool_is_at_work_in_every_state_that_is_no_end(world: AzureWorld, state: str, at_it: bool) -> None:
    provider, machine, cluster = on_aks(world, AZURE_ALLOW="aks-replace")
    reference = provider.preflight(machine, Step.REPLACE).reference
    _pool_says(world, cluster, state)
    outcome = provider.poll(machine, reference)  # it was never asked for
    assert isinstance(outcome, Running if at_it else NotApplied)


def _pool_says(world: AzureWorld, cluster: str, state: str) -> None:
    told = json.loads(answer_of(world, f"{cluster}/agentPools/gpu"))
    told["properties"]["provisioningState"] = state
    world.arm.answer(f"GET {cluster}/agentPools/gpu", json.dumps(told).encode(), times=1)


def test_a_pool_or_set_that_has_failed_to_grow_is_told_of_where_nothing_new_comes(world: AzureWorld) -> None:
    """There is no room, or no quota is left. A person read half an hour later that nothing was there yet."""
    provider, machine, cluster = on_aks(world, AZURE_ALLOW="aks-replace", AZURE_AUTOSCALER="true")
    reference = begun(provider, machine, Step.REPLACE)
    world.arm.finish()
    _pool_says(world, cluster, "Failed")
    found = provider.poll(machine, reference)
    assert isinstance(found, Running)
    assert found.sentence.endswith("is gone, and pool gpu, which is Failed, has no new machine yet")

    other = AzureWorld(world.arm, AZURE_AUTOSCALER="true")
    provider = other.provider()
    machine = provider.identify(other.node)
    reference = begun(provider, machine, Step.REPLACE)
    other.arm.finish()
    told = json.loads(answer_of(other, other.set))
    told["properties"]["provisioningState"], told["sku"]["capacity"] = "Failed", 2
    other.arm.answer(f"GET {other.set}", json.dumps(told).encode(), times=1)
    found = provider.poll(machine, reference)
    assert isinstance(found, Running)
    assert found.sentence.endswith(f"scale set {scale_set_name(other)}, which is Failed, has no new VM yet")


def test_a_pool_whose_last_operation_was_aborted_is_asked_all_the_same(world: AzureWorld) -> None:
    """az aks nodepool operation-abort leaves it Canceled, for days if need be: a fault waited as long."""
    provider, machine, cluster = on_aks(world, AZURE_ALLOW="aks-replace")
    _pool_says(world, cluster, "Canceled")
    ready = provider.preflight(machine, Step.REPLACE)
    assert ready.not_yet == ""
    _pool_says(world, cluster, "Canceled")
    assert "nothing is under way" in provider.take_back(machine, ready.reference)
    reference = provider.start(machine, Step.REPLACE, TOKEN, ready.reference)
    world.arm.put(world.first.id, provisioning="Succeeded")
    _pool_says(world, cluster, "Canceled")
    assert isinstance(provider.poll(machine, reference), Running), "it was so before: not shown yet"


def test_a_deletion_that_was_aborted_has_failed(world: AzureWorld) -> None:
    provider, machine, cluster = on_aks(world, AZURE_ALLOW="aks-replace")
    reference = begun(provider, machine, Step.REPLACE)
    world.arm.put(world.first.id, provisioning="Succeeded")
    _pool_says(world, cluster, "Canceled")
    outcome = provider.poll(machine, reference)
    assert isinstance(outcome, Failed)
    assert outcome.reason.startswith("pool gpu is Canceled, and machine ")


def test_a_vm_whose_last_operation_was_aborted_is_asked_all_the_same(
    world: AzureWorld, provider: AzureProvider, machine: Machine
) -> None:
    world.arm.put(world.first.id, provisioning="Canceled")
    ready = provider.preflight(machine, Step.REBOOT)
    assert ready.not_yet == ""
    assert "is Canceled: no operation is under way" in provider.take_back(machine, ready.reference)
