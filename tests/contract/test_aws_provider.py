"""The AWS provider over the real SDK, through a proxy that loses and refuses, against moto."""

from __future__ import annotations

import functools
import json
import os
import re
import socket
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from recovery_testkit.aws import LocalAws, environment, shared_aws
from recovery_testkit.provider_kit import ActionKit, MembersKit
from recovery_testkit.proxy import CountingProxy

from providers.aws.asg import AwsProvider
from providers.aws.lookup import MOST_PAGES
from providers.aws.outcome import AGAIN
from providers.aws.session import AwsSession, Limits
from recovery.catalog import foreign_claim
from recovery.clock import SystemClock
from recovery.errors import Ambiguous, Refused, Retry
from recovery.model import (
    ClusterDelete,
    Deleting,
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
    Unseen,
)
from recovery.provider.known import KEY, pack
from recovery.provider.lacking import SURE

MUTATING = ("SetInstanceHealth", "RebootInstances")
QUICK = Limits(connect=5.0, read=1.5, attempts=1)
PATIENT = Limits(connect=60.0, read=60.0)
"""For setting the scene, however busy this machine is."""
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
INSTANCES, GROUPS = "DescribeAutoScalingInstances", "DescribeAutoScalingGroups"
HISTORY = "DescribeScalingActivities"
LOGIN_PAGE = b"<html><body>Please log in</body></html>"


class StillClock(SystemClock):
    def now(self) -> datetime:
        return NOW


class RunningClock(StillClock):
    """A clock that can be put forward, past what the provider remembers."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


class AwsWorld:
    """A group of two and a proxy on the way to it."""

    def __init__(self, aws: LocalAws, proxy: CountingProxy) -> None:
        self.aws, self.proxy = aws, proxy
        self.reference: Reference | None = None
        self.group = aws.create_group(2)
        zones = {str(m["InstanceId"]): m["AvailabilityZone"] for m in aws.members(self.group)}
        self.instance, self.sibling = sorted(zones)
        provider_id = f"aws:///{zones[self.instance]}/{self.instance}"
        self.node = NodeView("worker-1", "node-uid", "1", provider_id)

    def provider(self) -> AwsProvider:
        """One that shares its clients with the other tests'."""
        return AwsProvider(_shared_session(), StillClock(), os.environ)

    def fresh(self, limits: Limits = QUICK) -> AwsProvider:
        """One that reads its environment anew."""
        return AwsProvider(AwsSession(StillClock(), limits), StillClock(), os.environ)

    def calls(self) -> int:
        return self.proxy.count()

    def mutating_calls(self) -> int:
        return self.proxy.count(*MUTATING)

    def lose_answer(self) -> None:
        for action in MUTATING:
            self.proxy.lose_answer(action)

    def delay(self) -> None:
        for action in MUTATING:
            self.proxy.delay(action, QUICK.read + 0.5)

    def refuse(self, kind: str) -> None:
        status, code = {
            "throttled": (400, "Throttling"),
            "denied": (403, "AccessDenied"),
            "broken": (500, "InternalFailure"),
        }[kind]
        for action in MUTATING:
            self.proxy.fail(action, status, code, f"it was {kind}")

    def remove_machine(self) -> None:
        self.aws.terminate(self.instance)

    def launch_member(self) -> str:
        (new,) = self.aws.launch(self.group)
        return new

    def take_out(self, machine: str) -> None:
        self.aws.set_lifecycle(machine, "Standby")

    def finish_action(self, action: Step) -> Sequence[str]:
        return self.aws.replace(self.instance, self.group) if action is Step.REPLACE else ()


@functools.cache
def _shared_session(limits: Limits = QUICK) -> AwsSession:
    return AwsSession(StillClock(), limits)


@pytest.fixture(scope="module")
def proxy() -> Iterator[CountingProxy]:
    with CountingProxy(shared_aws().address) as proxy, environment(proxy.url):
        yield proxy
    _shared_session.cache_clear()


@pytest.fixture
def world(proxy: CountingProxy) -> AwsWorld:
    proxy.forget()
    return AwsWorld(shared_aws(), proxy)


@pytest.fixture
def provider(world: AwsWorld) -> AwsProvider:
    return world.provider()


@pytest.fixture
def machine(world: AwsWorld, provider: AwsProvider) -> Machine:
    return provider.identify(world.node)


class TestAwsProvider(ActionKit, MembersKit):
    actions = (Step.REBOOT, Step.REPLACE)
    rubbish = (
        "",
        "i-0123456789abcdef0",
        "aws:///us-west-2a/i-xyz",
        "aws://us-west-2a/i-0123456789abcdef0",
        "azure:///subscriptions/s/resourceGroups/g",
        "kind://docker/kind/worker",
    )

    @pytest.fixture
    def node(self, world: AwsWorld) -> NodeView:
        return world.node

    @pytest.fixture
    def provider(self, world: AwsWorld) -> AwsProvider:
        return world.provider()


# ---------------------------------------------------------------- preflight


def test_a_group_in_good_standing_is_noted_down_with_all_it_has(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    found = provider.preflight(machine, Step.REPLACE)
    assert found.group == world.group
    assert found.notes == ()
    assert found.reference.data == {
        "kind": "instance",
        "instance": world.instance,
        "region": "us-west-2",
        "group": world.group,
        "known": sorted([world.instance, world.sibling]),
        "desired": 2,
        "had": 2,
        "count": 2,
        "grace_seconds": 300,
        "at": NOW.isoformat(),
    }
    assert (found.cannot_launch, found.loses_one) == ("", False)
    assert world.proxy.count() == world.proxy.count(INSTANCES, GROUPS, HISTORY) == 3


def test_an_instance_outside_any_group_is_refused(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    world.aws.detach(world.instance, world.group)
    _refused_for(world, Step.REPLACE, "is in no Auto Scaling group of us-west-2")
    assert provider.preflight(machine, Step.REBOOT).notes == ()


def test_an_instance_that_one_answer_left_out_is_asked_for_again(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    """It was handed over at once, as if no group had it."""
    world.proxy.answer(INSTANCES, _instances_xml(""), times=1)
    with pytest.raises(Retry, match=f"and EC2 says that it is in group {world.group}"):
        provider.preflight(machine, Step.REPLACE)
    assert provider.preflight(machine, Step.REPLACE).group == world.group


def test_where_ec2_may_not_be_asked_the_word_of_auto_scaling_counts(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    world.aws.detach(world.instance, world.group)
    world.proxy.fail("DescribeInstances", 403, "UnauthorizedOperation", "You are not authorized", times=2)
    _refused_for(world, Step.REPLACE, "is in no Auto Scaling group of us-west-2")


@pytest.mark.parametrize("ec2", ["may be asked", "may not be asked"])
def test_an_instance_that_is_moved_to_another_group_is_no_persons_in_between(
    world: AwsWorld, ec2: str
) -> None:
    """It is detached first. And where EC2 may not be asked, one old answer of Auto Scaling was enough."""
    clock = RunningClock()
    provider = AwsProvider(_shared_session(), clock, os.environ)
    machine = provider.identify(world.node)
    for _ in range(2):
        world.aws.detach(world.instance, world.group)
        if ec2 == "may not be asked":
            world.proxy.fail("DescribeInstances", 403, "UnauthorizedOperation", "You are not authorized")
        with pytest.raises(Retry, match=f"is in no Auto Scaling group of us-west-2; {AGAIN}"):
            provider.preflight(machine, Step.REPLACE)
        world.aws.client("autoscaling").attach_instances(
            InstanceIds=[world.instance], AutoScalingGroupName=world.group
        )
        clock.ahead += SURE
        assert provider.preflight(machine, Step.REPLACE).group == world.group


being_ended = pytest.mark.parametrize(
    "state", ["Terminating", "Terminating:Wait", "Terminating:Proceed", "Terminated"]
)


@being_ended
def test_a_termination_under_way_is_adopted(
    world: AwsWorld, provider: AwsProvider, machine: Machine, state: str
) -> None:
    world.aws.set_lifecycle(world.instance, state)
    found = provider.preflight(machine, Step.REPLACE)
    assert found.adopt == f"{machine} is already {state} in group {world.group}"
    assert found.short_by == 1
    assert found.reference.data["group"] == world.group


@being_ended
def test_an_instance_that_its_group_ends_is_no_persons_for_the_reboot_that_it_cannot_have(
    world: AwsWorld, provider: AwsProvider, machine: Machine, state: str
) -> None:
    world.aws.set_lifecycle(world.instance, state)
    found = provider.preflight(machine, Step.REBOOT)
    assert found.not_yet == f"{machine} is {state} in group {world.group}: there is nothing to reboot"


def test_an_instance_that_its_group_retains_is_a_persons_to_end(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    world.aws.set_lifecycle(world.instance, "Terminating:Retained")
    with pytest.raises(Refused, match=r"is Terminating:Retained .*, and a person has to terminate it"):
        provider.preflight(machine, Step.REBOOT)


def test_an_instance_already_marked_is_adopted_and_not_marked_twice(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    provider.start(machine, Step.REPLACE, "t", provider.preflight(machine, Step.REPLACE).reference)
    assert provider.preflight(machine, Step.REPLACE).adopt == (
        f"{machine} is already marked unhealthy in group {world.group}"
    )


def _begun_by_others(world: AwsWorld, state: str, *history: str) -> str:
    """``world.reference`` is one that was adopted, while the group had launched the next one. Its ID."""
    (new,) = world.aws.launch(world.group)
    world.aws.set_desired(world.group, 2)
    world.aws.set_lifecycle(new, state)
    world.aws.set_lifecycle(world.instance, "Terminating:Wait")
    world.proxy.answer(HISTORY, _history_xml(*(x.replace("NEW", new) for x in history)))
    provider = world.provider()
    found = provider.preflight(provider.identify(world.node), Step.REPLACE)
    assert found.adopt
    world.reference = found.reference
    return new


def _ended_by_its_group(world: AwsWorld, *history: str) -> Poll:
    """What is told once the old one is gone, and its group has the two that it wants."""
    world.aws.set_desired(world.group, 3)
    world.aws.terminate(world.instance)
    world.proxy.answer(HISTORY, _history_xml(*history))
    return _poll(world)


@pytest.mark.parametrize("state", ["Pending", "Pending:Wait"])
def test_what_a_group_is_launching_while_a_termination_is_adopted_may_take_the_place(
    world: AwsWorld, state: str
) -> None:
    """It counted as known: a recovery waited half an hour beside the new node, and went to a person."""
    new = _begun_by_others(world, state, _launching("NEW", "12:00:00"), _terminating(world.instance))
    world.aws.set_lifecycle(new, "InService")
    outcome = _ended_by_its_group(world)
    assert isinstance(outcome, Done)
    assert (outcome.replacements, outcome.complete, outcome.fewer) == ((new,), True, False)


def test_what_is_being_launched_while_a_mark_is_adopted_may_take_the_place(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    (new,) = world.aws.launch(world.group)
    world.aws.set_desired(world.group, 2)
    world.aws.set_lifecycle(new, "Pending")
    world.aws.client("autoscaling").set_instance_health(
        InstanceId=world.instance, HealthStatus="Unhealthy", ShouldRespectGracePeriod=False
    )
    world.proxy.answer(HISTORY, _history_xml(_launching(new, "12:00:00")))
    found = provider.preflight(machine, Step.REPLACE)
    assert found.adopt
    assert found.reference.data["known"] == sorted([world.instance, world.sibling])


def test_what_was_launched_since_the_end_of_an_adopted_one_began_may_take_the_place(world: AwsWorld) -> None:
    """It was in service already, so it was said that nothing takes the place; and it never joined."""
    new = _begun_by_others(world, "InService", _launching("NEW", "12:02:00"), _terminating(world.instance))
    outcome = _ended_by_its_group(world, _terminating(world.instance))
    assert isinstance(outcome, Done)
    assert (outcome.replacements, outcome.complete, outcome.fewer) == ((new,), True, False)


@pytest.mark.parametrize("launched", ["12:00:00", ""], ids=["before it", "at an unknown time"])
def test_what_may_have_served_before_an_adopted_one_began_to_end_does_not_take_its_place(
    world: AwsWorld, launched: str
) -> None:
    history = [_launching("NEW", launched)] if launched else []
    _begun_by_others(world, "InService", _terminating(world.instance), *history)
    assert _ended_by_its_group(world, _terminating(world.instance)) == Running(
        f"{world.instance} is gone, and group {world.group} has the 2 that it wants: "
        "whether one of them took its place is not known"
    )


def test_an_end_without_a_beginning_makes_nobody_its_successor(world: AwsWorld) -> None:
    ended = re.sub("<StartTime>.*</StartTime>", "", _terminating(world.instance))
    new = _begun_by_others(world, "InService", _launching("NEW", "12:02:00"), ended)
    assert world.reference is not None
    assert new in world.reference.data["known"]


@pytest.mark.parametrize(
    "how", ["Moving EC2 instance out of Standby: NEW", "Attaching an existing EC2 instance: NEW", ""]
)
def test_one_that_has_served_and_comes_back_does_not_take_the_place_of_an_adopted_one(
    world: AwsWorld, how: str
) -> None:
    """Nor does one of which the history says nothing: AWS may not have told it."""
    back = [_activity(how, "InProgress", "", "12:02:00")] if how else []
    launched = [_launching("NEW", "11:00:00")] if how else []
    new = _begun_by_others(world, "Pending", *back, _terminating(world.instance), *launched)
    assert world.reference is not None
    assert new in world.reference.data["known"]


def test_an_adopted_one_by_whose_end_the_group_shrinks_has_no_successor(world: AwsWorld) -> None:
    """A scale-in, or an autoscaler, had lowered what the group wants before anybody looked."""
    request = (
        "instance was taken out of service in response to a user request, shrinking the capacity from 3 to 2."
    )
    shrinks = _terminating(world.instance).replace("a cause", request)
    _begun_by_others(world, "InService", shrinks)
    gone = f"{world.instance} is gone, and group {world.group} has the 2 that it wants"
    assert _ended_by_its_group(world, shrinks) == Done(gone, (), complete=True, fewer=True)


@pytest.mark.parametrize("health", ["", "Unknown"])
def test_a_health_that_is_not_told_is_no_mark(
    world: AwsWorld, provider: AwsProvider, machine: Machine, health: str
) -> None:
    """It was adopted as somebody's mark, and a replacement was waited for that nobody had asked for."""
    world.proxy.edit(INSTANCES, ">Healthy<", f">{health}<")
    found = provider.preflight(machine, Step.REPLACE)
    assert found.adopt == ""
    assert found.not_yet == f"AWS does not say whether {machine} is healthy in group {world.group}"


def test_a_marked_instance_that_its_group_would_keep_is_a_persons_business(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    provider.start(machine, Step.REPLACE, "t", provider.preflight(machine, Step.REPLACE).reference)
    world.aws.client("autoscaling").suspend_processes(
        AutoScalingGroupName=world.group, ScalingProcesses=["ReplaceUnhealthy"]
    )
    with pytest.raises(Refused, match="has ReplaceUnhealthy suspended"):
        provider.preflight(machine, Step.REPLACE)


@pytest.mark.parametrize("state", ["Standby", "EnteringStandby", "Detaching", "Detached"])
def test_an_instance_somebody_took_out_of_service_is_refused(
    world: AwsWorld, machine: Machine, state: str
) -> None:
    world.aws.set_lifecycle(world.instance, state)
    _refused_for(world, Step.REPLACE, f"is {state} in group {world.group}: somebody has taken it out")


@pytest.mark.parametrize("state", ["Stopped", "Running", "Pending:Wait", "Terminating:Wait", "Terminated"])
def test_an_instance_in_the_warm_pool_was_not_taken_out_of_service_by_somebody(
    world: AwsWorld, provider: AwsProvider, machine: Machine, state: str
) -> None:
    world.aws.set_lifecycle(world.instance, f"Warmed:{state}")
    _refused_for(world, Step.REPLACE, f"is Warmed:{state} in group .*: it is in the warm pool")
    if state.startswith("Terminat"):
        assert "there is nothing to reboot" in provider.preflight(machine, Step.REBOOT).not_yet


@pytest.mark.parametrize("state", ["Pending", "Pending:Wait", "ReplacingRootVolume"])
def test_an_instance_that_is_not_in_service_yet_has_to_wait(
    world: AwsWorld, provider: AwsProvider, machine: Machine, state: str
) -> None:
    world.aws.set_lifecycle(world.instance, state)
    assert provider.preflight(machine, Step.REPLACE).not_yet == (
        f"{machine} is still {state} in group {world.group}"
    )


@pytest.mark.parametrize("process", ["ReplaceUnhealthy", "Terminate", "Launch"])
def test_a_suspended_process_that_matters_is_refused_by_name(
    world: AwsWorld, provider: AwsProvider, machine: Machine, process: str
) -> None:
    world.aws.client("autoscaling").suspend_processes(
        AutoScalingGroupName=world.group, ScalingProcesses=[process, "AZRebalance"]
    )
    with pytest.raises(Refused, match=f"group {world.group} has {process} suspended: an instance marked"):
        provider.preflight(machine, Step.REPLACE)


def test_suspended_processes_that_do_not_matter_do_not_stop_it(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    world.aws.client("autoscaling").suspend_processes(
        AutoScalingGroupName=world.group,
        ScalingProcesses=["AZRebalance", "HealthCheck", "AlarmNotification", "ScheduledActions"],
    )
    assert not provider.preflight(machine, Step.REPLACE).adopt


def test_the_reason_of_a_suspension_is_told(world: AwsWorld, provider: AwsProvider, machine: Machine) -> None:
    why = "User suspended at 2026-11-20T09:00:00Z"
    world.proxy.edit(
        GROUPS,
        "<SuspendedProcesses/>",
        "<SuspendedProcesses><member><ProcessName>ReplaceUnhealthy</ProcessName>"
        f"<SuspensionReason>{why}</SuspensionReason></member></SuspendedProcesses>",
    )
    with pytest.raises(Refused, match=rf"has ReplaceUnhealthy suspended \({why}\): an instance"):
        provider.preflight(machine, Step.REPLACE)


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        (
            "<Operator><Principal>eks-capacity.amazonaws.com</Principal></Operator>",
            "is managed by eks-capacity.amazonaws.com, and only that may change it",
        ),
        ("<Status>Delete in progress</Status>", r"is being deleted \(Delete in progress\)"),
    ],
)
def test_a_group_that_is_not_ours_to_change_is_refused(
    world: AwsWorld, provider: AwsProvider, machine: Machine, extra: str, sentence: str
) -> None:
    world.proxy.edit(GROUPS, "<DesiredCapacity>", extra + "<DesiredCapacity>")
    with pytest.raises(Refused, match=f"group {world.group} {sentence}"):
        provider.preflight(machine, Step.REPLACE)


def test_a_group_that_one_answer_does_not_list_is_asked_for_again(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    """Another answer has an instance in it, so it is there, or was a moment ago."""
    world.proxy.answer(GROUPS, _groups_xml(""), times=1)
    with pytest.raises(Retry, match=f"{machine} is in group {world.group}, and does not list that group"):
        provider.preflight(machine, Step.REPLACE)
    assert provider.preflight(machine, Step.REPLACE).group == world.group


def test_a_group_says_by_how_many_it_is_short(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    world.aws.set_lifecycle(world.sibling, "Pending")
    assert provider.preflight(machine, Step.REPLACE).short_by == 1
    world.aws.set_desired(world.group, 4)
    assert provider.preflight(machine, Step.REPLACE).short_by == 3


NO_CAPACITY = (
    "We currently do not have sufficient trn1.32xlarge capacity in the Availability Zone you requested "
    "(us-west-2a). Launching EC2 instance failed."
)
FULL = "The requested reservation does not have sufficient compatible and available capacity."


def _failed(message: str = NO_CAPACITY, at: str = "11:57:00", status: str = "Failed") -> str:
    return _activity("Launching a new EC2 instance.  Status Reason: x", status, message, at)


def test_a_group_that_found_no_capacity_says_when_and_that_a_machine_would_be_lost(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    world.proxy.answer(HISTORY, _history_xml(_failed()))
    found = provider.preflight(machine, Step.REPLACE)
    assert found.cannot_launch == (
        f"group {world.group} could not launch at 11:57Z ({NO_CAPACITY.rstrip('.')})"
    )
    assert found.loses_one


def test_a_launch_that_a_hook_holds_does_not_hide_that_newer_ones_have_failed(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    """AWS names what is still in progress first, whenever that began."""
    held = _launching(world.sibling, "11:40:00").replace("Successful", "MidLifecycleAction")
    world.proxy.answer(HISTORY, _history_xml(held, _failed()))
    assert "could not launch at 11:57Z" in provider.preflight(machine, Step.REPLACE).cannot_launch


def test_a_history_that_comes_in_short_pages_is_read_on(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    """AWS may answer with fewer activities than there are, and a token for the rest."""
    empty = _result(HISTORY, "<Activities/><NextToken>more</NextToken>")
    world.proxy.answer(HISTORY, empty)
    world.proxy.answer(HISTORY, _history_xml(_failed()))
    assert "could not launch at 11:57Z" in provider.preflight(machine, Step.REPLACE).cannot_launch
    asked = [r.params.get("NextToken", "") for r in world.proxy.requests if r.action == HISTORY]
    assert asked == ["", "more"]


def test_many_launches_that_are_in_progress_do_not_hide_that_newer_ones_have_failed(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    """Each launch of a node group of EKS is held by a hook, and the group has just grown by as many."""
    held = _launching(world.sibling, "11:40:00").replace("Successful", "MidLifecycleAction")
    first = _result(HISTORY, f"<Activities>{held * 50}</Activities><NextToken>more</NextToken>")
    world.proxy.answer(HISTORY, first)
    world.proxy.answer(HISTORY, _history_xml(_failed()))
    assert "could not launch at 11:57Z" in provider.preflight(machine, Step.REPLACE).cannot_launch


def test_a_history_whose_pages_do_not_end_is_not_read_for_ever(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    empty = _result(HISTORY, "<Activities/><NextToken>more</NextToken>")
    world.proxy.answer(HISTORY, empty, times=99)
    assert provider.preflight(machine, Step.REPLACE).cannot_launch == ""
    assert world.proxy.count(HISTORY) == MOST_PAGES


def test_a_group_that_launches_first_loses_nothing_while_it_cannot(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    least = "<MinHealthyPercentage>100</MinHealthyPercentage>"
    policy = f"<InstanceMaintenancePolicy>{least}</InstanceMaintenancePolicy>"
    world.proxy.edit(GROUPS, "<DesiredCapacity>", policy + "<DesiredCapacity>")
    world.proxy.answer(HISTORY, _history_xml(_failed()))
    found = provider.preflight(machine, Step.REPLACE)
    assert (found.cannot_launch != "", found.loses_one) == (True, False)


def test_a_machine_gives_its_place_in_a_full_reservation_back_when_it_ends(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    world.proxy.answer(HISTORY, _history_xml(_failed(FULL)))
    found = provider.preflight(machine, Step.REPLACE)
    assert (found.cannot_launch != "", found.loses_one) == (True, False)


def test_the_history_is_asked_for_a_replacement_alone_and_once_for_all_nodes_of_a_group(
    world: AwsWorld, proxy: CountingProxy
) -> None:
    provider = world.provider()
    one = provider.identify(world.node)
    two = provider.identify(replace(world.node, provider_id=world.aws.provider_id(world.sibling)))
    provider.preflight(one, Step.REBOOT)
    assert world.proxy.count(HISTORY) == 0
    for machine in (one, two, one, two):
        provider.preflight(machine, Step.REPLACE)
    assert world.proxy.count(HISTORY) == 1


def test_what_a_group_did_is_asked_again_and_stays_known_where_aws_does_not_answer(world: AwsWorld) -> None:
    clock = RunningClock()
    provider = AwsProvider(_shared_session(), clock, os.environ)
    machine = provider.identify(world.node)
    world.proxy.answer(HISTORY, _history_xml(_failed()))
    assert provider.preflight(machine, Step.REPLACE).cannot_launch
    clock.ahead += 31
    world.proxy.fail(HISTORY, 400, "Throttling", "too many")
    assert provider.preflight(machine, Step.REPLACE).cannot_launch
    clock.ahead += 31
    launched = _launching(world.sibling, "11:59:00")
    world.proxy.answer(HISTORY, _history_xml(launched, _failed()))
    assert not provider.preflight(machine, Step.REPLACE).cannot_launch
    assert world.proxy.count(HISTORY) == 3


def test_whether_the_group_could_launch_is_no_matter_once_a_replacement_is_under_way(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    world.aws.set_lifecycle(world.instance, "Terminating")
    world.proxy.answer(HISTORY, _history_xml(_failed()))
    assert not provider.preflight(machine, Step.REPLACE).cannot_launch


def test_a_group_that_counts_in_weights_is_counted_in_weights(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    world.aws.set_desired(world.group, 16)
    world.proxy.edit(GROUPS, "<HealthStatus>", "<WeightedCapacity>8</WeightedCapacity><HealthStatus>")
    assert provider.preflight(machine, Step.REPLACE).short_by == 0


def test_a_group_that_counts_in_vcpu_says_that_it_cannot_be_counted(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    world.proxy.edit(
        GROUPS, "<DesiredCapacity>2<", "<DesiredCapacityType>vcpu</DesiredCapacityType><DesiredCapacity>384<"
    )
    found = provider.preflight(machine, Step.REPLACE)
    assert found.short_by == 0
    assert "counts in vCPU or memory" in found.notes[0]


def test_scale_in_protection_is_noted_and_does_not_stop_it(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    world.aws.client("autoscaling").set_instance_protection(
        InstanceIds=[world.instance], AutoScalingGroupName=world.group, ProtectedFromScaleIn=True
    )
    assert "is protected from scale-in" in provider.preflight(machine, Step.REPLACE).notes[0]


def test_a_group_that_launches_first_is_noted(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    world.proxy.edit(
        GROUPS,
        "<DesiredCapacity>",
        "<InstanceMaintenancePolicy><MinHealthyPercentage>100</MinHealthyPercentage>"
        "<MaxHealthyPercentage>110</MaxHealthyPercentage></InstanceMaintenancePolicy><DesiredCapacity>",
    )
    assert "launches the replacement first" in provider.preflight(machine, Step.REPLACE).notes[0]


def test_a_node_younger_than_its_groups_grace_period_has_to_wait_until_its_end(
    world: AwsWorld, provider: AwsProvider
) -> None:
    created = NOW - timedelta(seconds=100)
    young = provider.identify(replace(world.node, created=created))
    found = provider.preflight(young, Step.REPLACE)
    assert found.not_before == created + timedelta(seconds=300)
    assert found.not_yet == (
        f"{young} is inside the grace period of group {world.group} until {found.not_before:%H:%M:%SZ}"
    )
    old = provider.identify(replace(world.node, created=NOW - timedelta(seconds=301)))
    assert provider.preflight(old, Step.REPLACE).not_before is None


def test_the_end_of_a_long_grace_period_is_told_with_its_day(world: AwsWorld, provider: AwsProvider) -> None:
    young = provider.identify(replace(world.node, created=NOW))
    world.proxy.edit(GROUPS, "<HealthCheckGracePeriod>300<", "<HealthCheckGracePeriod>2592000<")
    found = provider.preflight(young, Step.REPLACE)
    assert found.not_yet.endswith(f"the grace period of group {world.group} until 2026-12-21 12:00:00Z")


def test_a_grace_period_lasts_from_when_the_instance_came_into_service(
    world: AwsWorld, provider: AwsProvider
) -> None:
    """A lifecycle hook may have held the instance for longer than that, with its Node Ready."""
    world.proxy.answer(HISTORY, _history_xml(_in_service(world.instance, "11:58:00")))
    old = provider.identify(replace(world.node, created=NOW - timedelta(minutes=30)))
    found = provider.preflight(old, Step.REPLACE)
    assert found.not_before == NOW + timedelta(minutes=3)
    assert found.not_yet == f"{old} is inside the grace period of group {world.group} until 12:03:00Z"


def test_a_reboot_in_a_group_is_noted_as_a_risk(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    found = provider.preflight(machine, Step.REBOOT)
    assert found.group == world.group
    assert "may replace" in found.notes[0]


def test_a_denied_question_is_refused_with_the_permission_that_lacks(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    world.proxy.fail(INSTANCES, 403, "AccessDenied", "User: arn:aws:iam::123456789012:user/x may not")
    with pytest.raises(Refused) as refused:
        provider.preflight(machine, Step.REPLACE)
    assert refused.value.reason == (
        f"AWS denied autoscaling:DescribeAutoScalingInstances for {machine}: allow that to the agent's role, "
        "as iam/aws/policy.json does; AWS says AccessDenied: User: (an ARN) may not"
    )


def test_a_question_without_a_usable_answer_is_asked_again_later(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    world.proxy.fail(INSTANCES, 503, "ServiceUnavailable", "try later")
    with pytest.raises(Retry, match="got no usable answer"):
        provider.preflight(machine, Step.REPLACE)


@pytest.mark.slow
def test_a_question_is_repeated_by_the_sdk(world: AwsWorld) -> None:
    provider = world.fresh(Limits(connect=1.0, read=1.0))
    world.proxy.fail(INSTANCES, 503, "ServiceUnavailable", "try later")
    assert provider.preflight(provider.identify(world.node), Step.REPLACE).group == world.group
    assert world.proxy.count(INSTANCES) == 2


# ---------------------------------------------------------------- Karpenter


def test_karpenters_machine_is_replaced_through_its_nodeclaim_without_a_call_to_aws(world: AwsWorld) -> None:
    provider = world.provider()
    node = replace(
        world.node,
        labels={"karpenter.sh/nodepool": "gpu"},
        owners=(("NodeClaim", "gpu-x7k2p", "claim-uid"),),
    )
    machine = provider.identify(node)
    found = provider.preflight(machine, Step.REPLACE)
    assert (machine.group, found.group) == ("gpu", "gpu")
    assert found.reference.data["kind"] == "nodeclaim"
    claim = ClusterDelete("karpenter.sh/v1", "nodeclaims", "gpu-x7k2p", "claim-uid", "NodeClaim", "Karpenter")
    assert provider.start(machine, Step.REPLACE, "t", found.reference) == claim
    assert provider.poll(machine, found.reference) == Deleting(claim)
    assert world.calls() == 0


def test_karpenters_marks_on_a_machine_that_it_was_asked_to_replace_are_of_that_request(
    world: AwsWorld,
) -> None:
    labels = {"karpenter.sh/nodepool": "gpu"}
    node = replace(world.node, labels=labels, owners=(("NodeClaim", "gpu-x7k2p", "claim-uid"),))
    provider = world.provider()
    reference = provider.preflight(provider.identify(node), Step.REPLACE).reference
    marked = replace(node, taints=(("karpenter.sh/disrupted", "", "NoSchedule"),))
    assert foreign_claim(marked) is not None
    assert foreign_claim(marked, reference.by) is None


def test_karpenters_machine_without_a_nodeclaim_is_refused(world: AwsWorld) -> None:
    provider = world.provider()
    machine = provider.identify(replace(world.node, labels={"karpenter.sh/nodepool": "gpu"}))
    with pytest.raises(Refused, match="nodepool gpu, but no NodeClaim owns its Node"):
        provider.preflight(machine, Step.REPLACE)


# ---------------------------------------------------------------- start


def test_the_grace_period_is_always_respected(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    provider.start(machine, Step.REPLACE, "t", provider.preflight(machine, Step.REPLACE).reference)
    (request,) = [r for r in world.proxy.requests if r.action == "SetInstanceHealth"]
    assert request.params["ShouldRespectGracePeriod"] == "true"
    assert request.params["HealthStatus"] == "Unhealthy"
    assert request.params["InstanceId"] == world.instance
    assert world.aws.health(world.instance) == "Unhealthy"
    assert world.aws.health(world.sibling) == "Healthy"


def _start_after(world: AwsWorld, provider: AwsProvider, machine: Machine) -> None:
    provider.start(machine, Step.REPLACE, "t", provider.preflight(machine, Step.REPLACE).reference)


def test_a_refusal_within_the_grace_period_says_until_when(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    world.proxy.fail(
        "SetInstanceHealth",
        400,
        "ValidationError",
        "The age of the instance (986 seconds) is less than the configured grace period of 1500 seconds",
    )
    with pytest.raises(Retry, match="is not yet possible") as retry:
        _start_after(world, provider, machine)
    assert retry.value.not_before == NOW + timedelta(seconds=515)
    assert world.mutating_calls() == 1


@pytest.mark.parametrize("state", ["Terminating:Wait", "Terminated", ""])
def test_an_instance_that_its_group_ends_just_then_is_no_persons_business(
    world: AwsWorld, provider: AwsProvider, machine: Machine, state: str
) -> None:
    """A spot interruption, a refresh, a health check of its own: the next look follows that end."""
    reference = provider.preflight(machine, Step.REPLACE).reference
    if state:
        world.aws.set_lifecycle(world.instance, state)
    else:
        world.aws.terminate(world.instance)
    told = f"The instance {world.instance} is not in a state in which its health can be set"
    world.proxy.fail("SetInstanceHealth", 400, "ValidationError", told)
    with pytest.raises(Retry, match=r"its group (has ended it just then|is ending it)"):
        provider.start(machine, Step.REPLACE, "t", reference)
    assert world.mutating_calls() == 1


@pytest.mark.parametrize(
    ("status", "code", "message", "expected", "sentence"),
    [
        (400, "ValidationError", "No managed instance found for instance ID: i-1", Retry, "a moment ago"),
        (400, "ValidationError", "HealthStatus is wrong", Refused, "AWS refused autoscaling"),
        (400, "ScalingActivityInProgress", "busy", Retry, "turned .* away for now"),
        (400, "ResourceContention", "busy", Retry, "turned .* away for now"),
        (429, "Anything", "slow down", Retry, "turned .* away for now"),
        (403, "ExpiredToken", "The security token is expired", Retry, "no good AWS credentials"),
        (403, "InvalidClientTokenId", "invalid", Retry, "no good AWS credentials"),
        (503, "ServiceUnavailable", "temporary", Ambiguous, "its answer was lost"),
        (502, "", "", Ambiguous, "its answer was lost"),
    ],
)
def test_every_answer_of_aws_becomes_one_of_our_errors(
    world: AwsWorld,
    provider: AwsProvider,
    machine: Machine,
    status: int,
    code: str,
    message: str,
    expected: type[Exception],
    sentence: str,
) -> None:
    world.proxy.fail("SetInstanceHealth", status, code, message)
    with pytest.raises(expected, match=sentence):
        _start_after(world, provider, machine)
    assert world.mutating_calls() == 1


def test_an_answer_that_is_not_awss_is_ambiguous(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    world.proxy.answer("SetInstanceHealth", b"<html>Please log in<br>", "text/html")
    with pytest.raises(Ambiguous):
        _start_after(world, provider, machine)


@pytest.mark.parametrize(
    ("step", "action"), [(Step.REPLACE, "SetInstanceHealth"), (Step.REBOOT, "RebootInstances")]
)
def test_a_well_formed_page_of_somebody_elses_accepts_nothing(
    world: AwsWorld, provider: AwsProvider, machine: Machine, step: Step, action: str
) -> None:
    """Each answer of AWS has a request ID. A login page has none; to the SDK it is an empty answer."""
    reference = provider.preflight(machine, step).reference
    world.proxy.answer(action, LOGIN_PAGE, "text/html")
    with pytest.raises(Ambiguous, match="not AWS answered"):
        provider.start(machine, step, "t", reference)
    assert world.mutating_calls() == 1


@pytest.mark.parametrize("page", [LOGIN_PAGE, b"<DescribeAutoScalingInstancesResponse/>"])
@pytest.mark.parametrize("action", [INSTANCES, GROUPS])
def test_a_question_answered_by_a_well_formed_page_of_somebody_elses_is_asked_again(
    world: AwsWorld, provider: AwsProvider, machine: Machine, action: str, page: bytes
) -> None:
    """The SDK's parser raises a KeyError for it."""
    world.proxy.answer(action, page, "text/html", times=1)
    with pytest.raises(Retry, match=f"{action} for .* got no usable answer"):
        provider.preflight(machine, Step.REPLACE)
    assert provider.preflight(machine, Step.REPLACE).group == world.group


@pytest.mark.parametrize("status", [400, 403, 404, 407, 408])
def test_a_well_formed_error_page_of_somebody_elses_is_no_refusal_of_awss(
    world: AwsWorld, provider: AwsProvider, machine: Machine, status: int
) -> None:
    """Each error of AWS has a code. One page of a proxy's handed the node to a person."""
    world.proxy.answer(INSTANCES, LOGIN_PAGE, "text/html", status=status, times=1)
    with pytest.raises(Retry, match="got no usable answer"):
        provider.preflight(machine, Step.REPLACE)
    reference = provider.preflight(machine, Step.REPLACE).reference
    world.proxy.answer("SetInstanceHealth", LOGIN_PAGE, "text/html", status=status, times=1)
    with pytest.raises(Ambiguous, match="its answer was lost"):
        provider.start(machine, Step.REPLACE, "t", reference)
    assert world.mutating_calls() == 1


def test_how_a_call_stands_is_asked_again_after_a_page_of_somebody_elses(begun: AwsWorld) -> None:
    begun.proxy.answer(INSTANCES, LOGIN_PAGE, "text/html", times=1)
    with pytest.raises(Retry, match="got no usable answer"):
        _poll(begun)
    assert isinstance(_poll(begun), Running)


def test_a_reset_connection_is_ambiguous(world: AwsWorld, provider: AwsProvider, machine: Machine) -> None:
    world.proxy.reset("SetInstanceHealth")
    with pytest.raises(Ambiguous):
        _start_after(world, provider, machine)
    assert world.aws.health(world.instance) == "Healthy"
    assert world.mutating_calls() == 1


def test_a_refused_connection_submitted_nothing(
    world: AwsWorld, provider: AwsProvider, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = provider.preflight(machine, Step.REPLACE).reference
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, and nobody listens
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{closed.getsockname()[1]}")
        with pytest.raises(Retry, match="was not sent, AWS could not be reached"):
            world.fresh().start(machine, Step.REPLACE, "t", reference)


def test_the_environment_cannot_make_the_sdk_repeat_a_call(
    world: AwsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "7")
    monkeypatch.setenv("AWS_RETRY_MODE", "adaptive")
    provider = world.fresh()
    machine = provider.identify(world.node)
    world.proxy.fail("SetInstanceHealth", 500, "InternalFailure", "oops", times=9)
    with pytest.raises(Ambiguous):
        _start_after(world, provider, machine)
    assert world.mutating_calls() == 1


def test_missing_credentials_are_not_the_nodes_fault(
    world: AwsWorld, provider: AwsProvider, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = provider.preflight(machine, Step.REPLACE).reference
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(Retry, match="no good AWS credentials") as retry:
        world.fresh().start(machine, Step.REPLACE, "t", reference)
    assert retry.value.after == timedelta(seconds=60)
    assert world.mutating_calls() == 0


def test_credentials_that_come_later_are_used_without_a_restart(
    world: AwsWorld, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that was made while the node's role could not be asked for never had any."""
    key, secret = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    provider = world.fresh()
    with pytest.raises(Retry, match="no good AWS credentials"):
        provider.preflight(machine, Step.REPLACE)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    _start_after(world, provider, machine)
    assert world.mutating_calls() == 1


@pytest.mark.parametrize("code", ["ExpiredToken", "InvalidClientTokenId"])
def test_credentials_that_are_not_good_any_more_are_read_anew_from_where_they_are_kept(
    world: AwsWorld, machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str
) -> None:
    """A mounted Secret is rotated in a running pod. The SDK reads such a file once, so all that was asked
    until the next restart was turned away."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    file.write_text("[default]\naws_access_key_id = OLD\naws_secret_access_key = s\n")
    session = AwsSession(StillClock(), QUICK)
    provider = AwsProvider(session, StillClock(), os.environ)
    provider.preflight(machine, Step.REPLACE)
    file.write_text("[default]\naws_access_key_id = NEW\naws_secret_access_key = s\n")
    world.proxy.fail("DescribeAutoScalingInstances", 403, code, "it is not good")
    with pytest.raises(Retry, match="no good AWS credentials"):
        provider.preflight(machine, Step.REPLACE)
    provider.preflight(machine, Step.REPLACE)
    assert session._sdk.get_credentials().access_key == "NEW"


@pytest.mark.parametrize("code", ["ExpiredToken", "InvalidClientTokenId"])
def test_credentials_by_which_a_role_is_taken_are_read_anew_as_well(
    world: AwsWorld, machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str
) -> None:
    """The SDK renews the role's, and goes on to ask with those that it read from the file at its start."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    file, settings = tmp_path / "credentials", tmp_path / "config"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(settings))
    settings.write_text("[default]\nrole_arn = arn:aws:iam::123456789012:role/x\nsource_profile = keys\n")
    file.write_text("[keys]\naws_access_key_id = OLD\naws_secret_access_key = s\n")
    session = AwsSession(StillClock(), QUICK)
    provider = AwsProvider(session, StillClock(), os.environ)
    world.proxy.fail("AssumeRole", 403, code, "it is not good")
    with pytest.raises(Retry, match="no good AWS credentials"):
        provider.preflight(machine, Step.REPLACE)
    file.write_text("[keys]\naws_access_key_id = NEW\naws_secret_access_key = s\n")
    provider.preflight(machine, Step.REPLACE)
    role = session._sdk.get_credentials()._refresh_using.__self__
    assert role._source_credentials.access_key == "NEW"


def test_credentials_that_take_too_long_are_not_used_for_a_late_call(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    class SlowClock(StillClock):
        seconds = 0.0

        def boottime(self) -> float:
            self.seconds += 3.5
            return self.seconds

    slow = AwsProvider(AwsSession(SlowClock(), QUICK), SlowClock(), os.environ)
    with pytest.raises(Retry, match="getting credentials took more than 3 s"):
        slow.start(machine, Step.REPLACE, "t", provider.preflight(machine, Step.REPLACE).reference)
    assert world.mutating_calls() == 0


@pytest.mark.slow
@pytest.mark.parametrize("trouble", ["lost", "denied", "a login page"])
def test_trouble_with_sts_submitted_nothing(
    world: AwsWorld,
    provider: AwsProvider,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    trouble: str,
) -> None:
    reference = provider.preflight(machine, Step.REPLACE).reference
    (tmp_path / "token").write_text("a.web.identity")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/node-recovery")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    if trouble == "lost":
        world.proxy.lose_answer("AssumeRoleWithWebIdentity", times=5)
    elif trouble == "a login page":
        world.proxy.answer("AssumeRoleWithWebIdentity", LOGIN_PAGE, "text/html", times=5)
    else:
        world.proxy.fail("AssumeRoleWithWebIdentity", 403, "AccessDenied", "not you")
    with pytest.raises(Retry, match="no good AWS credentials"):
        world.fresh().start(machine, Step.REPLACE, "t", reference)
    assert world.mutating_calls() == 0


def test_settings_that_the_sdk_refuses_are_a_persons_business(
    world: AwsWorld, provider: AwsProvider, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "not an address")
    with pytest.raises(Refused, match="check its settings"):
        world.fresh().preflight(machine, Step.REPLACE)


def test_an_instance_ec2_does_not_know_cannot_be_rebooted(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    reference = provider.preflight(machine, Step.REBOOT).reference
    world.proxy.fail("RebootInstances", 400, "InvalidInstanceID.NotFound", "does not exist")
    with pytest.raises(Refused, match="does not know the machine any more"):
        provider.start(machine, Step.REBOOT, "t", reference)


# ---------------------------------------------------------------- poll


@pytest.fixture
def begun(world: AwsWorld, machine: Machine) -> AwsWorld:
    """The instance is marked unhealthy; ``world.reference`` is how it is found again."""
    provider = AwsProvider(_shared_session(PATIENT), StillClock(), os.environ)
    world.reference = provider.preflight(machine, Step.REPLACE).reference
    provider.start(machine, Step.REPLACE, "t", world.reference)
    return world


def _poll(world: AwsWorld) -> Poll:
    provider = world.provider()
    assert world.reference is not None
    return provider.poll(provider.identify(world.node), world.reference)


def _polled_for(world: AwsWorld, seconds: float) -> tuple[Poll, Poll]:
    """The first answer of a provider, and the one so many seconds later."""
    clock = RunningClock()
    provider = AwsProvider(_shared_session(), clock, os.environ)
    assert world.reference is not None
    machine = provider.identify(world.node)
    first = provider.poll(machine, world.reference)
    clock.ahead += seconds
    return first, provider.poll(machine, world.reference)


def _sentence(world: AwsWorld, provider: AwsProvider) -> str:
    assert world.reference is not None
    found = provider.poll(provider.identify(world.node), world.reference)
    assert isinstance(found, Running | Unseen)
    return found.sentence


def test_a_marked_instance_is_under_way(begun: AwsWorld) -> None:
    assert _poll(begun) == Running(f"{begun.instance} is marked unhealthy in group {begun.group}")


def test_healthy_and_in_service_means_not_applied(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    reference = provider.preflight(machine, Step.REPLACE).reference
    assert provider.poll(machine, reference) == NotApplied(
        f"{machine} is healthy and in service in group {world.group}"
    )


def test_a_mark_that_was_accepted_within_the_grace_period_came_too_soon(
    begun: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    begun.aws.client("autoscaling").set_instance_health(InstanceId=begun.instance, HealthStatus="Healthy")
    begun.proxy.forget()
    begun.proxy.answer(HISTORY, _history_xml(_in_service(begun.instance, "11:58:00")))
    said = f"{machine} is healthy and in service in group {begun.group}"
    too_soon = NotApplied(f"{said}, whose grace period lasts until 12:03:00Z", NOW + timedelta(minutes=3))
    assert provider.poll(machine, begun.reference) == too_soon
    assert provider.poll(machine, begun.reference) == too_soon
    assert begun.proxy.count(HISTORY) == 1


def test_an_instance_in_another_state_of_its_life_is_named_with_it(begun: AwsWorld) -> None:
    begun.aws.set_lifecycle(begun.instance, "Pending:Wait")
    assert _poll(begun) == Running(f"{begun.instance} is Pending:Wait and unhealthy in group {begun.group}")


def test_what_keeps_the_group_from_acting_is_said(begun: AwsWorld) -> None:
    begun.aws.client("autoscaling").suspend_processes(
        AutoScalingGroupName=begun.group, ScalingProcesses=["ReplaceUnhealthy"]
    )
    outcome = _poll(begun)
    assert isinstance(outcome, Running)
    assert "but group" in outcome.sentence
    assert "has ReplaceUnhealthy suspended" in outcome.sentence


def test_a_group_that_launches_first_and_cannot_says_so_while_the_old_one_stands(begun: AwsWorld) -> None:
    least = "<MinHealthyPercentage>100</MinHealthyPercentage>"
    policy = f"<InstanceMaintenancePolicy>{least}</InstanceMaintenancePolicy>"
    begun.proxy.edit(GROUPS, "<DesiredCapacity>", policy + "<DesiredCapacity>")
    failed = _activity("Launching a new EC2 instance", "Failed", "no capacity", "12:05:00")
    begun.proxy.answer(HISTORY, _history_xml(failed))
    outcome = _poll(begun)
    assert isinstance(outcome, Running)
    assert outcome.sentence.endswith(f"but group {begun.group} has not launched a replacement: no capacity")


def test_a_reference_of_another_action_is_refused(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    reference = provider.preflight(machine, Step.REPLACE).reference
    with pytest.raises(Refused, match="the provider aws cannot redeploy; it can reboot, replace"):
        provider.poll(machine, replace(reference, action="redeploy"))
    with pytest.raises(Refused, match="the reference of aws replace is not one of reboot"):
        provider.start(machine, Step.REBOOT, "t", reference)
    another = replace(reference, data={**reference.data, "instance": "i-0123456789abcdef0"})
    with pytest.raises(Refused, match=f"the reference is one of i-0123456789abcdef0, not of {machine}"):
        provider.start(machine, Step.REPLACE, "t", another)
    assert world.mutating_calls() == 0


def test_a_retained_instance_is_not_gone(begun: AwsWorld) -> None:
    begun.aws.set_lifecycle(begun.instance, "Terminating:Retained")
    begun.aws.launch(begun.group)
    outcome = _poll(begun)
    assert isinstance(outcome, Running)
    assert outcome.sentence == (
        f"group {begun.group} keeps {begun.instance} (Terminating:Retained): its lifecycle hook was "
        "abandoned, and a person has to terminate it"
    )


def test_a_replacement_launched_first_is_not_the_end(begun: AwsWorld) -> None:
    begun.aws.set_lifecycle(begun.instance, "Terminating:Wait")
    begun.aws.launch(begun.group)
    assert _poll(begun) == Running(f"group {begun.group} is terminating {begun.instance} (Terminating:Wait)")


def test_an_instance_put_in_standby_is_not_gone(begun: AwsWorld) -> None:
    begun.aws.set_lifecycle(begun.instance, "Standby")
    first, last = _polled_for(begun, SURE)
    assert first == Unseen(f"{begun.instance} is Standby in group {begun.group}: {AGAIN}")
    assert last == Failed(
        f"{begun.instance} is Standby in group {begun.group}: somebody has kept it from being replaced"
    )


def test_an_instance_that_was_detached_is_not_gone(begun: AwsWorld) -> None:
    begun.aws.detach(begun.instance, begun.group)
    begun.aws.launch(begun.group)
    first, last = _polled_for(begun, SURE)
    assert first == Unseen(
        f"{begun.instance} is running, and group {begun.group} does not list it any more: {AGAIN}"
    )
    assert last == Failed(f"{begun.instance} was detached from group {begun.group} and is still running")


def test_an_instance_that_was_listed_again_meanwhile_is_not_detached(begun: AwsWorld) -> None:
    """Three answers are old, and EC2's, too: its group has just ended it."""
    begun.proxy.answer(INSTANCES, _instances_xml(""), times=1)
    begun.proxy.answer(GROUPS, _groups_xml(_empty(begun.group)), times=1)
    clock = RunningClock()
    provider = AwsProvider(_shared_session(), clock, os.environ)
    assert "does not list it any more" in _sentence(begun, provider)
    clock.ahead += SURE
    assert _sentence(begun, provider) == f"{begun.instance} is marked unhealthy in group {begun.group}"
    begun.proxy.answer(INSTANCES, _instances_xml(""), times=1)
    begun.proxy.answer(GROUPS, _groups_xml(_empty(begun.group)), times=1)
    clock.ahead += SURE
    assert "does not list it any more" in _sentence(begun, provider)


def test_an_instance_that_one_answer_left_out_is_not_detached(begun: AwsWorld) -> None:
    """Auto Scaling's answers differ for moments. The recovery failed, and called the instance detached."""
    begun.proxy.answer(INSTANCES, _instances_xml(""), times=1)
    differ = f"{begun.instance} is running, and group {begun.group} still lists it: AWS's answers differ"
    assert _poll(begun) == Unseen(f"{differ}, asking again")
    assert _poll(begun) == Running(f"{begun.instance} is marked unhealthy in group {begun.group}")


def test_an_instance_that_ec2_calls_running_after_its_end_is_not_detached(begun: AwsWorld) -> None:
    begun.aws.set_lifecycle(begun.instance, "Terminated")
    outcome = _poll(begun)
    assert isinstance(outcome, Unseen)
    assert outcome.sentence.endswith("AWS's answers differ, asking again")


def test_a_group_that_is_gone_replaces_nothing(begun: AwsWorld) -> None:
    begun.aws.terminate(begun.instance)
    begun.aws.client("autoscaling").delete_auto_scaling_group(
        AutoScalingGroupName=begun.group, ForceDelete=True
    )
    first, last = _polled_for(begun, SURE)
    missing = f"{begun.instance} is in no group any more, and AWS does not list group {begun.group}"
    assert first == Unseen(f"{missing}: {AGAIN}")
    assert last == Failed(
        f"group {begun.group} no longer exists: nothing will take the place of {begun.instance}"
    )


def test_a_group_that_one_answer_does_not_list_has_not_gone(begun: AwsWorld) -> None:
    """The instance is gone. That the group was, too, failed the recovery."""
    new = begun.aws.replace(begun.instance, begun.group)
    begun.proxy.answer(GROUPS, _groups_xml(""), times=1)
    first, last = _polled_for(begun, SURE)
    assert isinstance(first, Unseen)
    assert isinstance(last, Done)
    assert list(last.replacements) == new


def test_a_new_machine_that_dies_is_none_of_those_that_may_be_claimed(begun: AwsWorld) -> None:
    """The recovery that had claimed it claims the one that its group launched instead."""
    (dead,) = begun.aws.replace(begun.instance, begun.group)
    (other,) = begun.aws.replace(dead, begun.group)
    outcome = _poll(begun)
    assert isinstance(outcome, Done)
    assert (outcome.replacements, outcome.complete) == ((other,), True)


@pytest.mark.parametrize(
    ("state", "surely"),
    [
        ("running", False),
        ("stopping", False),
        ("stopped", True),
        ("shutting-down", False),
        ("terminated", True),
    ],
)
def test_an_instance_is_down_once_ec2_says_that_it_is_stopped_or_terminated(
    world: AwsWorld, machine: Machine, state: str, surely: bool
) -> None:
    if state != "running":
        world.proxy.edit("DescribeInstances", "<name>running</name>", f"<name>{state}</name>")
    assert world.provider().down(machine) == (f"EC2 says that {machine} is {state}" if surely else None)


def test_a_stopped_instance_of_the_emulator_is_down_and_an_unknown_one_is_not(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    assert provider.down(machine) is None
    world.aws.client("ec2").stop_instances(InstanceIds=[world.instance])
    assert provider.down(machine) == f"EC2 says that {machine} is stopped"
    assert provider.down(replace(machine, id="i-0123456789abcdef0")) is None
    world.proxy.fail("DescribeInstances", 403, "UnauthorizedOperation", "You are not authorized")
    with pytest.raises(Refused, match="DescribeInstances"):
        provider.down(machine)


_NO_INSTANCE = (
    '<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>x</requestId>'
    "<reservationSet>{}</reservationSet></DescribeInstancesResponse>"
)
_STATELESS = "<item><instancesSet><item><instanceId>{}</instanceId></item></instancesSet></item>"


@pytest.mark.parametrize("about", ["none", "another", "no state"])
def test_an_answer_of_ec2_that_does_not_speak_of_the_instance_is_no_evidence_of_its_end(
    world: AwsWorld, provider: AwsProvider, machine: Machine, about: str
) -> None:
    """One such answer ended a hand-over, and a reboot, while the instance ran."""
    reference = provider.preflight(machine, Step.REBOOT).reference
    if about == "another":
        world.proxy.edit("DescribeInstances", machine.id, world.sibling, times=9)
    else:
        inner = _STATELESS.format(machine) if about == "no state" else ""
        world.proxy.answer("DescribeInstances", _NO_INSTANCE.format(inner).encode(), times=9)
    asks = (
        lambda: provider.gone(machine),
        lambda: provider.down(machine),
        lambda: provider.poll(machine, reference),
        lambda: provider.take_back(machine, reference),
    )
    for ask in asks:
        with pytest.raises(Retry, match="EC2's answer"):
            ask()


def test_an_instance_is_gone_once_ec2_has_not_known_it_for_a_while(world: AwsWorld) -> None:
    clock = RunningClock()
    provider = AwsProvider(_shared_session(PATIENT), clock, os.environ)
    machine = provider.identify(world.node)

    def told(known: bool) -> str | None:
        clock.ahead += SURE
        if not known:
            world.proxy.fail("DescribeInstances", 400, "InvalidInstanceID.NotFound", "It does not exist")
        return provider.gone(machine)

    assert [told(known) for known in (False, True, False)] == [None, None, None]
    assert told(known=False) == f"{machine} is unknown to EC2"


@pytest.mark.parametrize("known_by", ["EC2", "Auto Scaling", "the list of groups"])
def test_that_an_account_does_not_know_an_instance_proves_nothing_before_it_has_known_one(
    world: AwsWorld, known_by: str
) -> None:
    """With the credentials of another account each machine was gone after a minute, and so a hand-over ended
    while its machine was there."""
    clock = RunningClock()
    provider = AwsProvider(AwsSession(clock, PATIENT), clock, os.environ)
    machine = provider.identify(world.node)
    world.proxy.fail("DescribeInstances", 400, "InvalidInstanceID.NotFound", "It does not exist", times=3)
    for _ in range(3):
        with pytest.raises(Retry, match="they may be another account's"):
            provider.gone(machine)
        clock.ahead += SURE
    if known_by == "EC2":
        assert provider.gone(machine) is None
    elif known_by == "Auto Scaling":
        provider.preflight(machine, Step.REPLACE)
    else:
        assert list(provider.members([machine]))
    world.proxy.fail("DescribeInstances", 400, "InvalidInstanceID.NotFound", "It does not exist", times=2)
    if known_by == "EC2":
        assert provider.gone(machine) is None
        clock.ahead += SURE
    assert provider.gone(machine) == f"{machine} is unknown to EC2"


def test_an_instance_ec2_has_forgotten_is_gone(begun: AwsWorld) -> None:
    new = begun.aws.replace(begun.instance, begun.group)
    begun.proxy.fail("DescribeInstances", 400, "InvalidInstanceID.NotFound", "The instance ID does not exist")
    outcome = _poll(begun)
    assert outcome == Done(
        f"{begun.instance} is gone from group {begun.group}; new in service there: {new[0]}", tuple(new)
    )


def test_a_termination_in_the_groups_history_spares_the_question_to_ec2(begun: AwsWorld) -> None:
    new = begun.aws.replace(begun.instance, begun.group)
    begun.proxy.answer(HISTORY, _history_xml(_terminating(begun.instance)))
    outcome = _poll(begun)
    assert isinstance(outcome, Done)
    assert list(outcome.replacements) == new
    assert begun.proxy.count("DescribeInstances") == 0


def test_of_two_new_machines_the_one_launched_first_is_named_first(begun: AwsWorld) -> None:
    """By the group's history; where that tells nothing, in the order in which the group lists them."""
    (one,) = begun.aws.replace(begun.instance, begun.group)
    (two,) = begun.aws.launch(begun.group)
    outcome = _poll(begun)
    assert isinstance(outcome, Done)
    assert outcome.replacements == (one, two)
    begun.proxy.answer(HISTORY, _history_xml(_launching(one, "12:03:00"), _launching(two, "12:02:00")))
    outcome = _poll(begun)
    assert isinstance(outcome, Done)
    assert outcome.replacements == (two, one)


def test_of_two_from_a_warm_pool_the_one_that_left_it_first_is_named_first(begun: AwsWorld) -> None:
    """Two recoveries of one group were crossed: the earlier one took what was launched for the later one."""
    (one,) = begun.aws.replace(begun.instance, begun.group)
    (two,) = begun.aws.launch(begun.group)
    warmed = [_launching(two, "11:00:00", " into warm pool"), _launching(one, "11:01:00", " into warm pool")]
    left = [_launching(one, "12:03:00", " from warm pool"), _launching(two, "12:02:00", " from warm pool")]
    begun.proxy.answer(HISTORY, _history_xml(*left, *warmed))
    outcome = _poll(begun)
    assert isinstance(outcome, Done)
    assert outcome.replacements == (two, one)
    slow = _launching(one, "12:01:00")
    begun.proxy.answer(HISTORY, _history_xml(left[1], slow, warmed[0]))
    outcome = _poll(begun)
    assert isinstance(outcome, Done)
    assert outcome.replacements == (one, two), "one that was launched without the pool is as old as it is"


@pytest.mark.parametrize("state", ["Stopped", "Running", "Hibernated", "Pending:Wait"])
def test_what_comes_out_of_the_warm_pool_may_take_the_place(
    world: AwsWorld, provider: AwsProvider, machine: Machine, state: str
) -> None:
    """If the group lists it among its instances, as the lifecycle states that it may show allow."""
    (warm,) = world.aws.launch(world.group)
    world.aws.set_desired(world.group, 2)
    world.aws.set_lifecycle(warm, f"Warmed:{state}")
    world.reference = provider.preflight(machine, Step.REPLACE).reference
    assert world.reference.data["known"] == sorted([world.instance, world.sibling])
    world.aws.set_lifecycle(warm, "InService")
    world.aws.set_desired(world.group, 3)
    world.aws.terminate(world.instance)
    outcome = _poll(world)
    assert isinstance(outcome, Done)
    assert (outcome.replacements, outcome.complete) == ((warm,), True)


def test_a_termination_that_has_not_ended_is_still_running(begun: AwsWorld) -> None:
    begun.proxy.answer(INSTANCES, _instances_xml(""))
    begun.proxy.answer(HISTORY, _history_xml(_terminating(begun.instance, "InProgress")))
    assert _poll(begun) == Running(f"group {begun.group} is terminating {begun.instance}, which is running")


def test_the_groups_own_reason_for_launching_nothing_is_told(begun: AwsWorld) -> None:
    begun.aws.terminate(begun.instance)
    begun.aws.set_desired(begun.group, 2)
    why = "We currently do not have sufficient trn1.32xlarge capacity in the Availability Zone you requested"
    failed = _activity("Launching a new EC2 instance.  Status Reason: x", "Failed", why, "12:05:00")
    begun.proxy.answer(HISTORY, _history_xml(failed, _terminating(begun.instance)))
    assert _poll(begun) == Running(
        f"{begun.instance} is gone, but group {begun.group} has not launched a replacement: {why}"
    )


def test_an_old_failure_is_not_todays_reason(begun: AwsWorld) -> None:
    begun.aws.terminate(begun.instance)
    begun.aws.set_desired(begun.group, 2)
    old = _activity("Launching a new EC2 instance", "Failed", "long ago", "11:00:00")
    begun.proxy.answer(HISTORY, _history_xml(_terminating(begun.instance), old))
    assert _poll(begun) == Running(
        f"{begun.instance} is gone, and group {begun.group} has no new instance in service yet"
    )


def test_a_group_that_wants_fewer_now_and_has_them_launches_nothing_in_its_place(begun: AwsWorld) -> None:
    begun.aws.terminate(begun.instance)
    gone = f"{begun.instance} is gone, and group {begun.group} wants 1 now instead of 2"
    assert _poll(begun) == Done(gone, (), complete=True, fewer=True)


def test_a_group_that_had_one_too_many_when_it_was_asked_launches_nothing_in_its_place(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    """Somebody had lowered the number, and the group had ended none yet."""
    world.aws.set_desired(world.group, 1)
    reference = provider.preflight(machine, Step.REPLACE).reference
    world.aws.set_desired(world.group, 2)  # moto's group ends one more where it has more than it wants
    world.aws.terminate(world.instance)
    gone = f"{world.instance} is gone, and group {world.group} has the 1 that it wants"
    assert world.provider().poll(machine, reference) == Done(gone, (), complete=True, fewer=True)
    world.aws.terminate(world.sibling)
    world.aws.set_desired(world.group, 1)
    outcome = world.provider().poll(machine, reference)
    assert isinstance(outcome, Running)
    assert outcome.sentence.endswith("has no new instance in service yet")


@pytest.mark.parametrize("state", ["Pending", "Pending:Wait"])
def test_a_group_that_was_launching_one_too_many_when_it_was_asked_launches_nothing_more(
    world: AwsWorld, provider: AwsProvider, machine: Machine, state: str
) -> None:
    """As it does to balance its zones, or before a spot instance is interrupted. What was launched serves by
    the time the old one is gone, so the group has all that it wants."""
    (extra,) = world.aws.launch(world.group)
    world.aws.set_desired(world.group, 2)
    world.aws.set_lifecycle(extra, state)
    found = provider.preflight(machine, Step.REPLACE)
    assert found.short_by == 0
    world.aws.set_lifecycle(extra, "InService")
    world.aws.set_desired(world.group, 3)  # moto's group ends one more where it has more than it wants
    world.aws.terminate(world.instance)
    world.aws.set_lifecycle(extra, state)
    still = world.provider().poll(machine, found.reference)
    assert isinstance(still, Running)
    world.aws.set_lifecycle(extra, "InService")
    gone = f"{world.instance} is gone, and group {world.group} has the 2 that it wants"
    assert world.provider().poll(machine, found.reference) == Done(gone, (), complete=True, fewer=True)


def test_one_instance_that_counts_for_two_takes_the_place_of_two(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    """Desired capacity counts units. The second recovery waited for an instance that was never to come."""
    weighs = "<WeightedCapacity>{}</WeightedCapacity><HealthStatus>"
    world.aws.set_desired(world.group, 8)
    world.proxy.edit(GROUPS, "<HealthStatus>", weighs.format(4))
    reference = provider.preflight(machine, Step.REPLACE).reference
    world.aws.set_desired(world.group, 2)  # moto counts instances
    (heavy,) = world.aws.replace(world.instance, world.group)
    world.aws.terminate(world.sibling)
    world.aws.set_desired(world.group, 8)
    told = f"{machine} is gone from group {world.group}; new in service there: {heavy}"
    world.proxy.edit(GROUPS, "<HealthStatus>", weighs.format(4))
    assert world.provider().poll(machine, reference) == Done(told, (heavy,), complete=False, fewer=False)
    world.proxy.edit(GROUPS, "<HealthStatus>", weighs.format(8))
    assert world.provider().poll(machine, reference) == Done(told, (heavy,), complete=True, fewer=True)


def test_a_group_that_wants_fewer_now_and_has_not_got_them_is_said_so(begun: AwsWorld) -> None:
    begun.aws.terminate(begun.instance)
    begun.aws.set_lifecycle(begun.sibling, "Terminating")
    gone = f"{begun.instance} is gone, and group {begun.group} wants 1 now instead of 2"
    assert _poll(begun) == Running(gone)


def test_a_group_that_was_scaled_in_meanwhile_is_complete_with_fewer(begun: AwsWorld) -> None:
    (new,) = begun.aws.replace(begun.instance, begun.group)
    begun.aws.terminate(begun.sibling)  # by a scale-in: the group wants one now
    outcome = _poll(begun)
    assert isinstance(outcome, Done)
    assert (outcome.replacements, outcome.complete, outcome.fewer) == ((new,), True, True)


def test_a_group_that_was_scaled_out_meanwhile_need_not_be_complete_with_those(begun: AwsWorld) -> None:
    begun.aws.replace(begun.instance, begun.group)
    begun.aws.set_desired(begun.group, 5)
    outcome = _poll(begun)
    assert isinstance(outcome, Done)
    assert outcome.complete


def test_launching_that_is_suspended_later_is_said_so(begun: AwsWorld) -> None:
    begun.aws.terminate(begun.instance)
    begun.aws.set_desired(begun.group, 2)
    begun.aws.client("autoscaling").suspend_processes(
        AutoScalingGroupName=begun.group, ScalingProcesses=["Launch"]
    )
    outcome = _poll(begun)
    assert isinstance(outcome, Running)
    assert "has Launch suspended" in outcome.sentence


def test_a_replacement_that_is_not_in_service_yet_does_not_count(begun: AwsWorld) -> None:
    (new,) = begun.aws.replace(begun.instance, begun.group)
    begun.aws.set_lifecycle(new, "Pending:Wait")
    assert isinstance(_poll(begun), Running)
    begun.aws.set_lifecycle(new, "InService")
    assert isinstance(_poll(begun), Done)


def test_a_group_still_short_is_done_but_not_complete(begun: AwsWorld) -> None:
    begun.aws.replace(begun.instance, begun.group)
    begun.aws.set_lifecycle(begun.sibling, "Terminating")
    outcome = _poll(begun)
    assert isinstance(outcome, Done)
    assert not outcome.complete
    assert begun.sibling not in outcome.replacements


def test_a_machine_whose_own_replacement_is_to_come_keeps_no_other_from_its_new_one(begun: AwsWorld) -> None:
    """Two of a group are replaced one after the other. Without capacity for the second one, the recovery of
    the first was called late, though its new machine served."""
    (new,) = begun.aws.replace(begun.instance, begun.group)
    _mark(begun, begun.sibling)
    outcome = _poll(begun)
    assert isinstance(outcome, Done)
    assert (outcome.replacements, outcome.complete, outcome.fewer) == ((new,), True, False)


def test_a_new_machine_that_is_marked_unhealthy_does_not_make_its_group_complete(begun: AwsWorld) -> None:
    (sick,) = begun.aws.replace(begun.instance, begun.group)
    (well,) = begun.aws.replace(begun.sibling, begun.group)
    _mark(begun, sick)
    outcome = _poll(begun)
    assert isinstance(outcome, Done)
    assert (outcome.replacements, outcome.complete) == ((well,), False)


def _mark(world: AwsWorld, instance: str) -> None:
    world.aws.client("autoscaling").set_instance_health(InstanceId=instance, HealthStatus="Unhealthy")


def test_an_instance_that_runs_is_no_sign_that_ec2_accepted_its_reboot(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    """So after a lost answer it stays unknown. What was accepted for sure is under way."""
    ready = provider.preflight(machine, Step.REBOOT).reference
    told = f"{machine} is running; only a new boot ID on its Node would show that it has rebooted"
    world.proxy.reset("RebootInstances")
    with pytest.raises(Ambiguous):
        provider.start(machine, Step.REBOOT, "1", ready)
    assert provider.poll(machine, ready) == Unseen(told)
    with pytest.raises(Refused, match=f"EC2 may have accepted a reboot of {machine}, takes none back"):
        provider.take_back(machine, ready)
    begun = provider.start(machine, Step.REBOOT, "2", ready)
    assert isinstance(begun, Reference)
    assert provider.poll(machine, begun) == Running(told)
    with pytest.raises(Refused, match=f"EC2 accepted a reboot of {machine}, takes none back"):
        provider.take_back(machine, begun)


def test_one_answer_of_ec2_from_before_a_stopped_machine_was_started_ends_no_reboot(world: AwsWorld) -> None:
    """A person had stopped and started it, its fault was there again, and it was rebooted. One old answer had
    it replaced as it booted."""
    clock = RunningClock()
    provider = AwsProvider(_shared_session(PATIENT), clock, os.environ)
    machine = provider.identify(world.node)
    ready = provider.preflight(machine, Step.REBOOT).reference
    begun = provider.start(machine, Step.REBOOT, "t", ready)
    assert isinstance(begun, Reference)
    for state in "stopping", "stopped":
        world.proxy.edit("DescribeInstances", "<name>running</name>", f"<name>{state}</name>")
        assert isinstance(provider.poll(machine, begun), Running)
        world.proxy.edit("DescribeInstances", "<name>running</name>", f"<name>{state}</name>")
        assert isinstance(provider.poll(machine, ready), Unseen), "its answer was lost"
        clock.ahead += SURE
        assert "is running" in provider.poll(machine, begun).sentence  # type: ignore[union-attr]
    world.proxy.edit("DescribeInstances", "<name>running</name>", "<name>stopped</name>")
    with pytest.raises(Retry, match="one answer of AWS may be an old one"):
        provider.take_back(machine, begun)


def test_a_rebooting_instance_that_was_terminated_is_gone(world: AwsWorld) -> None:
    clock = RunningClock()
    provider = AwsProvider(_shared_session(PATIENT), clock, os.environ)
    machine = provider.identify(world.node)
    reference = provider.preflight(machine, Step.REBOOT).reference
    world.aws.client("ec2").stop_instances(InstanceIds=[world.instance])
    assert isinstance(provider.poll(machine, reference), Unseen)
    clock.ahead += SURE
    stopped = provider.poll(machine, reference)
    assert isinstance(stopped, Failed)
    assert re.fullmatch(f"{machine} is stopp(ing|ed): somebody has stopped it", stopped.reason)
    world.aws.terminate(world.instance)
    ended = provider.poll(machine, reference)
    assert isinstance(ended, Gone)
    assert re.fullmatch(f"{machine} is (shutting-down|terminated): it will not boot again", ended.sentence)


def test_one_answer_of_ec2_that_does_not_know_the_instance_says_nothing_of_its_reboot(
    world: AwsWorld,
) -> None:
    """Else it passed for a sign that a reboot was accepted whose answer was lost, or for one that is not to
    come any more, and its node was released."""
    clock = RunningClock()
    provider = AwsProvider(_shared_session(PATIENT), clock, os.environ)
    machine = provider.identify(world.node)
    reference = provider.preflight(machine, Step.REBOOT).reference

    def unknown() -> None:
        error = "InvalidInstanceID.NotFound"
        world.proxy.fail("DescribeInstances", 400, error, "The instance ID does not exist")

    unknown()
    said = f"EC2 does not know {machine}: asking again, for one answer of AWS may be an old one"
    assert provider.poll(machine, reference) == Unseen(said)
    unknown()
    with pytest.raises(Retry, match=said):
        provider.take_back(machine, reference)
    clock.ahead += SURE
    unknown()
    assert provider.poll(machine, reference) == Gone(f"{machine} is unknown to EC2: it will not boot again")
    unknown()
    assert provider.take_back(machine, reference) == f"{machine} is unknown to EC2"


# ---------------------------------------------------------------- the wrong region knows nothing

ELSEWHERE = "eu-central-1"
BOTH = f"asked in {ELSEWHERE}, .* is in us-west-2; set AWS_REGION"


@pytest.fixture
def misled() -> AwsProvider:
    """One whose AWS_REGION is not the region of the machine."""
    return AwsProvider(_shared_session(PATIENT), StillClock(), {**os.environ, "AWS_REGION": ELSEWHERE})


def test_a_machine_that_another_region_does_not_know_is_not_gone(
    world: AwsWorld, misled: AwsProvider
) -> None:
    machine = misled.identify(world.node)
    assert machine.route["region"] == ELSEWHERE
    assert misled.gone(machine) is None
    assert misled.down(machine) is None
    world.aws.terminate(world.instance)
    assert misled.gone(machine) == f"{machine} is terminated"
    assert misled.down(machine) == f"EC2 says that {machine} is terminated"


def test_whether_a_machine_without_a_zone_is_gone_is_not_known(world: AwsWorld, misled: AwsProvider) -> None:
    nowhere = Machine("aws", world.instance, "", "", {"region": ELSEWHERE})
    assert (misled.gone(nowhere), misled.down(nowhere)) == (None, None)


def test_a_reboot_is_not_at_its_end_because_another_region_does_not_know_the_machine(
    world: AwsWorld, misled: AwsProvider
) -> None:
    machine = misled.identify(world.node)
    reference = misled.preflight(machine, Step.REBOOT).reference
    for ask in (misled.poll, misled.take_back):
        with pytest.raises(Refused, match=BOTH):
            ask(machine, reference)


def test_a_replacement_is_not_judged_by_a_group_of_the_same_name_in_another_region(
    begun: AwsWorld, misled: AwsProvider
) -> None:
    """The record is of an agent that had the right region, but for the region that it wrote down."""
    assert begun.reference is not None
    reference = replace(begun.reference, data={**begun.reference.data, "region": ELSEWHERE})
    machine = misled.identify(begun.node)
    for ask in (misled.poll, misled.take_back):
        with pytest.raises(Refused, match=BOTH):
            ask(machine, reference)


def test_a_replacement_that_was_begun_in_the_right_region_is_followed_there(
    begun: AwsWorld, misled: AwsProvider
) -> None:
    assert begun.reference is not None
    machine = misled.identify(begun.node)
    assert misled.poll(machine, begun.reference) == _poll(begun)
    begun.aws.replace(begun.instance, begun.group)
    outcome = misled.poll(machine, begun.reference)
    assert isinstance(outcome, Done)
    assert begun.instance not in outcome.replacements


def test_permissions_are_those_that_were_used(
    world: AwsWorld, provider: AwsProvider, machine: Machine
) -> None:
    """What is declared is what is called."""
    used: dict[str, set[str]] = {}

    def note(use: str) -> None:
        calls = {f"{r.service}:{r.action}" for r in world.proxy.requests}
        used.setdefault(use, set()).update(calls)
        world.proxy.forget()

    for action in (Step.REBOOT, Step.REPLACE):
        reference = provider.preflight(machine, action).reference
        note("preflight")
        if action is Step.REPLACE:
            world.proxy.answer(INSTANCES, _instances_xml(""), times=1)
            with pytest.raises(Retry):
                provider.preflight(machine, action)
            note("preflight")
        provider.start(machine, action, "t", reference)
        note(action)
        provider.poll(machine, reference)
        note("poll")
    assert list(provider.members([machine]))
    note("members")
    world.aws.replace(world.instance, world.group)
    provider.poll(machine, reference)
    note("poll")
    assert used == {use: set(actions) for use, actions in provider.permissions.items() if use != "monitor"}


# ---------------------------------------------------------------- what moto cannot say

_NAMESPACE = 'xmlns="http://autoscaling.amazonaws.com/doc/2011-01-01/"'


def _result(action: str, inner: str) -> bytes:
    return (
        f"<{action}Response {_NAMESPACE}><{action}Result>{inner}</{action}Result>"
        f"<ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></{action}Response>"
    ).encode()


def _groups_xml(inner: str) -> bytes:
    return _result(GROUPS, f"<AutoScalingGroups>{inner}</AutoScalingGroups>")


def _empty(group: str) -> str:
    return f"<member><AutoScalingGroupName>{group}</AutoScalingGroupName></member>"


def _instances_xml(inner: str) -> bytes:
    return _result(INSTANCES, f"<AutoScalingInstances>{inner}</AutoScalingInstances>")


def _history_xml(*activities: str) -> bytes:
    return _result(HISTORY, f"<Activities>{''.join(activities)}</Activities>")


def _activity(description: str, status: str, message: str, at: str) -> str:
    return (
        f"<member><ActivityId>1</ActivityId><Description>{description}</Description><Cause>a cause</Cause>"
        f"<StartTime>2026-11-21T{at}Z</StartTime><StatusCode>{status}</StatusCode>"
        f"<StatusMessage>{message}</StatusMessage></member>"
    )


def _launching(instance: str, at: str, where: str = "") -> str:
    return _activity(f"Launching a new EC2 instance{where}: {instance}", "Successful", "", at)


def _in_service(instance: str, at: str) -> str:
    launched = _launching(instance, "11:20:00")
    return launched.replace("</StartTime>", f"</StartTime><EndTime>2026-11-21T{at}Z</EndTime>")


def _terminating(instance: str, status: str = "Successful") -> str:
    return _activity(f"Terminating EC2 instance: {instance}", status, "", "12:01:00")


def test_the_reference_fits_on_a_record_even_for_a_large_group() -> None:
    ids = [f"i-{n:017x}" for n in range(1000)]
    assert len(json.dumps(ids)) < 24_000


# ---------------------------------------------------------------- taking it back


def _take_back(world: AwsWorld) -> str | ClusterDelete:
    provider = world.provider()
    assert world.reference is not None
    return provider.take_back(provider.identify(world.node), world.reference)


def test_a_mark_is_taken_back_and_read_back(begun: AwsWorld) -> None:
    begun.proxy.forget()
    assert _take_back(begun) == f"{begun.instance} is healthy and in service in group {begun.group}"
    assert begun.aws.health(begun.instance).lower() == "healthy"
    asked = [x for x in (INSTANCES, "SetInstanceHealth", GROUPS) if begun.proxy.count(x)]
    assert (begun.mutating_calls(), asked) == (1, [INSTANCES, "SetInstanceHealth", GROUPS])
    assert begun.proxy.count(INSTANCES) == 2, "read again after it was taken back"


def test_what_is_healthy_already_is_only_read(begun: AwsWorld) -> None:
    _take_back(begun)
    begun.proxy.forget()
    assert "is healthy and in service" in str(_take_back(begun))
    assert begun.mutating_calls() == 0


def test_a_mark_that_does_not_come_off_is_not_proved(begun: AwsWorld) -> None:
    begun.proxy.answer("SetInstanceHealth", _result("SetInstanceHealth", ""))
    with pytest.raises(Retry, match=r"is InService and unhealthy in group .*, after it was set to Healthy"):
        _take_back(begun)


def test_a_lost_answer_to_taking_back_is_asked_again_and_not_taken_for_proof(begun: AwsWorld) -> None:
    begun.lose_answer()
    with pytest.raises(Retry):
        _take_back(begun)
    assert "is healthy and in service" in str(_take_back(begun))


def test_an_instance_that_is_being_terminated_is_not_taken_back(begun: AwsWorld) -> None:
    begun.proxy.forget()
    begun.aws.set_lifecycle(begun.instance, "Terminating:Wait")
    with pytest.raises(Refused, match=r"is Terminating:Wait .*: nothing takes that back; wait until"):
        _take_back(begun)
    assert begun.mutating_calls() == 0


def test_an_instance_on_standby_is_a_persons_to_bring_into_service_first(begun: AwsWorld) -> None:
    begun.aws.set_lifecycle(begun.instance, "Standby")
    with pytest.raises(Refused, match="aws autoscaling exit-standby"):
        _take_back(begun)


def test_somebody_elses_mark_is_theirs_to_take_off(world: AwsWorld) -> None:
    world.aws.client("autoscaling").set_instance_health(
        InstanceId=world.instance, HealthStatus="Unhealthy", ShouldRespectGracePeriod=False
    )
    provider = world.provider()
    machine = provider.identify(world.node)
    found = provider.preflight(machine, Step.REPLACE)
    assert found.adopt
    world.proxy.forget()
    with pytest.raises(Refused, match=f"set-instance-health --instance-id {machine} --health-status Healthy"):
        provider.take_back(machine, found.reference)
    assert world.mutating_calls() == 0


def test_a_group_that_launches_first_may_end_it_all_the_same(begun: AwsWorld) -> None:
    least = "<MinHealthyPercentage>100</MinHealthyPercentage>"
    policy = f"<InstanceMaintenancePolicy>{least}</InstanceMaintenancePolicy>"
    begun.proxy.edit(GROUPS, "<DesiredCapacity>", policy + "<DesiredCapacity>")
    (new,) = begun.aws.launch(begun.group)
    begun.aws.set_lifecycle(new, "Pending")
    with pytest.raises(Retry, match=f"launches {new} first, and may end {begun.instance} once that serves"):
        _take_back(begun)


def test_an_instance_that_one_answer_left_out_is_not_released_with_its_mark(begun: AwsWorld) -> None:
    """It was: and the group terminated a machine that was called released."""
    begun.proxy.forget()
    begun.proxy.answer(INSTANCES, _instances_xml(""), times=1)
    with pytest.raises(Retry, match=f"still lists {begun.instance}, which Auto Scaling does not know"):
        _take_back(begun)
    assert begun.aws.health(begun.instance) == "Unhealthy"
    assert "is healthy and in service" in str(_take_back(begun))


def test_an_instance_that_left_its_group_is_ended_by_none(begun: AwsWorld) -> None:
    begun.aws.terminate(begun.instance)
    assert _take_back(begun) == f"{begun.instance} is in no Auto Scaling group any more"


def test_a_reboot_that_ec2_accepted_may_still_come(world: AwsWorld) -> None:
    provider = AwsProvider(_shared_session(PATIENT), StillClock(), os.environ)
    machine = provider.identify(world.node)
    reference = provider.preflight(machine, Step.REBOOT).reference
    with pytest.raises(Refused, match=f"aws ec2 reboot-instances --instance-ids {machine}"):
        provider.take_back(machine, reference)


def test_the_deletion_of_a_node_claim_is_the_clusters_to_say(world: AwsWorld) -> None:
    node = replace(
        world.node,
        labels={"karpenter.sh/nodepool": "gpu"},
        owners=(("NodeClaim", "gpu-1", "uid-1"),),
    )
    provider = world.provider()
    machine = provider.identify(node)
    found = provider.take_back(machine, provider.preflight(machine, Step.REPLACE).reference)
    assert isinstance(found, ClusterDelete)
    assert found.name == "gpu-1"


# ---------------------------------------------------------------- many that wait at once


def test_all_that_wait_in_one_process_are_asked_for_together(proxy: CountingProxy) -> None:
    """Twenty instances of one group, ten rounds: one request a round, instead of twenty."""
    aws = shared_aws()
    group = aws.create_group(20)
    clock = RunningClock()
    provider = AwsProvider(_shared_session(PATIENT), clock, os.environ)
    waiting = []
    for instance in aws.instances(group):
        machine = provider.identify(NodeView(instance, "u", "1", aws.provider_id(instance)))
        reference = provider.preflight(machine, Step.REPLACE).reference
        aws.client("autoscaling").set_instance_health(InstanceId=instance, HealthStatus="Unhealthy")
        waiting.append((machine, reference))
    for machine, reference in waiting:
        provider.poll(machine, reference)  # from now on they are known to wait
    clock.ahead += 10
    proxy.forget()
    for _ in range(10):
        for machine, reference in waiting:
            found = provider.poll(machine, reference)
            assert found == Running(f"{machine} is marked unhealthy in group {group}")
        clock.ahead += 10
    assert (proxy.count(INSTANCES), proxy.count(GROUPS)) == (10, 10)


def test_a_node_that_asks_again_gets_a_new_answer(begun: AwsWorld) -> None:
    provider = begun.provider()
    assert begun.reference is not None
    machine = provider.identify(begun.node)
    assert isinstance(provider.poll(machine, begun.reference), Running)
    begun.aws.client("autoscaling").set_instance_health(InstanceId=begun.instance, HealthStatus="Healthy")
    assert isinstance(provider.poll(machine, begun.reference), NotApplied)


def test_a_replacement_that_is_being_launched_is_asked_about_more_often(begun: AwsWorld) -> None:
    (new,) = begun.aws.replace(begun.instance, begun.group)
    assert isinstance(_poll(begun), Done)
    begun.aws.set_lifecycle(new, "Pending")
    outcome = _poll(begun)
    assert isinstance(outcome, Running)
    assert outcome.soon


def test_one_that_was_being_launched_before_is_no_reason_to_ask_more_often_in_a_large_group(
    begun: AwsWorld,
) -> None:
    """Its history was read every two seconds for as long as a hook kept that one, up to two hours."""
    begun.aws.terminate(begun.instance)
    begun.aws.set_desired(begun.group, 2)
    begun.aws.set_lifecycle(begun.sibling, "Pending:Wait")
    assert begun.reference is not None
    many = pack([begun.instance, begun.sibling, *(f"i-{n:017x}" for n in range(200))])
    assert isinstance(many, str)
    begun.reference = replace(begun.reference, data={**begun.reference.data, KEY: many})
    outcome = _poll(begun)
    assert isinstance(outcome, Running)
    assert not outcome.soon


@pytest.mark.parametrize("state", ["EnteringStandby", "Standby"])
def test_an_instance_on_standby_is_not_rebooted_under_the_hands_of_whoever_put_it_there(
    world: AwsWorld, machine: Machine, state: str
) -> None:
    world.aws.set_lifecycle(world.instance, state)
    _refused_for(world, Step.REBOOT, f"is {state} in group {world.group}: somebody has taken it out")


@pytest.mark.parametrize("state", ["EnteringStandby", "Standby"])
@pytest.mark.parametrize("action", [Step.REPLACE, Step.REBOOT])
def test_one_answer_from_before_an_instance_was_brought_back_into_service_refuses_nothing(
    world: AwsWorld, action: Step, state: str
) -> None:
    """Somebody had worked on it. Its next fault was a person's at once, as one answer was older than that."""
    clock = RunningClock()
    provider = AwsProvider(_shared_session(), clock, os.environ)
    machine = provider.identify(world.node)
    for _ in range(2):
        world.proxy.edit(INSTANCES, ">InService<", f">{state}<")
        with pytest.raises(Retry, match=f"is {state} in group {world.group}: .* may be an old one"):
            provider.preflight(machine, action)
        clock.ahead += SURE
        assert provider.preflight(machine, action).not_yet == ""


@pytest.mark.parametrize("state", ["EnteringStandby", "Standby", "Detached"])
def test_one_answer_from_before_an_instance_was_brought_back_into_service_ends_no_replacement(
    begun: AwsWorld, state: str
) -> None:
    """Its group ended it as it was asked to, and launched another, and a person had the node."""
    clock = RunningClock()
    provider = AwsProvider(_shared_session(), clock, os.environ)
    for _ in range(2):
        begun.proxy.edit(INSTANCES, ">InService<", f">{state}<")
        assert _sentence(begun, provider) == f"{begun.instance} is {state} in group {begun.group}: {AGAIN}"
        clock.ahead += SURE
        assert _sentence(begun, provider) == f"{begun.instance} is marked unhealthy in group {begun.group}"


def test_what_is_in_a_warm_pool_is_refused_though_each_step_is_asked_about_in_turn(world: AwsWorld) -> None:
    world.aws.set_lifecycle(world.instance, "Warmed:Running")
    clock = RunningClock()
    provider = AwsProvider(_shared_session(), clock, os.environ)
    machine = provider.identify(world.node)
    for _ in range(2):
        provider.preflight(machine, Step.REBOOT)
        with pytest.raises((Retry, Refused)) as said:
            provider.preflight(machine, Step.REPLACE)
        clock.ahead += SURE
    assert said.type is Refused


def _refused_for(world: AwsWorld, action: Step, words: str) -> None:
    """By each answer of a minute, and not by the first one."""
    clock = RunningClock()
    provider = AwsProvider(_shared_session(), clock, os.environ)
    machine = provider.identify(world.node)
    with pytest.raises(Retry, match=words):
        provider.preflight(machine, action)
    clock.ahead += SURE
    with pytest.raises(Refused, match=words):
        provider.preflight(machine, action)
