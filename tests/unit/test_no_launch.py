"""When does a group's own history say that it could not launch another machine now?"""

from __future__ import annotations

from datetime import timedelta

import pytest

from providers.aws.group import Activity, no_launch
from tests.builders.times import NOW

ICE = "We currently do not have sufficient p5.48xlarge capacity in the Availability Zone you requested"
CODE = "Could not launch On-Demand Instances. InsufficientInstanceCapacity - none. Launching failed."
SPOT = "Could not launch Spot Instances. MaxSpotInstanceCountExceeded - Max spot instance count exceeded."


def launch(message: str = ICE, status: str = "Failed", ago: float = 10, instance: str = "") -> Activity:
    what = f"Launching a new EC2 instance{f': {instance}' if instance else ''}"
    return Activity(what, "a cause", status, message, NOW - timedelta(minutes=ago))


def end(ago: float = 1) -> Activity:
    at = NOW - timedelta(minutes=ago)
    return Activity("Terminating EC2 instance: i-1", "a cause", "Successful", "", at)


@pytest.mark.parametrize(
    ("message", "own_place"),
    [
        (ICE, False),
        (CODE, False),
        ("There is no Spot capacity available that matches your request.", False),
        ("UnfulfillableCapacity - Unable to fulfill capacity due to your request configuration.", False),
        ("ReservationCapacityExceeded: The requested reservation does not have enough", True),
        (SPOT, True),
        ("VcpuLimitExceeded - You have requested more vCPU capacity than your current vCPU limit of 0", True),
        ("192 instance(s) are already running. Launching EC2 instance failed.", True),
    ],
)
def test_a_launch_that_found_no_room_says_so_and_whose_room_it_is(message: str, own_place: bool) -> None:
    found = no_launch((launch(message),), NOW)
    assert found is not None
    assert found.own_place is own_place


@pytest.mark.parametrize(
    "history",
    [
        (),
        (end(),),
        (launch("The image id '[ami-1]' does not exist. Launching EC2 instance failed."),),
        (launch("", "Successful", instance="i-2"),),
        (launch("", "Successful", 5, "i-2"), launch()),
        (launch("", "PreInService", 5, "i-2"), launch()),
        (launch("a hook was abandoned", "Cancelled", 5, "i-2"), launch()),
        (launch(ago=61),),
    ],
    ids=["nothing", "an end", "no image", "launched", "launched since", "an instance", "a hook", "long ago"],
)
def test_a_group_that_may_find_room_is_none_that_cannot_launch(history: tuple[Activity, ...]) -> None:
    assert no_launch(history, NOW) is None


@pytest.mark.parametrize(
    "newer", [end(), launch("", "InProgress", 1), launch("", "WaitingForSpotInstanceId", 1)]
)
def test_what_has_no_instance_yet_takes_nothing_back(newer: Activity) -> None:
    assert no_launch((newer, launch()), NOW) is not None


def test_the_sentence_has_the_moment_and_the_groups_own_words() -> None:
    found = no_launch((launch(ICE + "."),), NOW)
    assert str(found) == f"could not launch at {NOW - timedelta(minutes=10):%H:%MZ} ({ICE})"
