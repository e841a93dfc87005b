"""What AWS says of the machines of a group, where it says too little or too much."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from providers.aws.members import GROUPS_A_PAGE, PAGES, members
from providers.aws.session import AwsSession
from recovery.errors import Retry
from recovery.model import Machine

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
DATE = {"HTTPHeaders": {"date": "Mon, 23 Nov 2026 12:00:00 GMT"}}
KNOWN, NEW = "i-0000000000000000a", "i-0000000000000000b"
MACHINE = Machine("aws", KNOWN, f"aws:///us-west-2a/{KNOWN}", "", {"region": "us-west-2"})


def group(name: str, *ids: str, state: str = "InService") -> dict[str, Any]:
    listed = [
        {
            "InstanceId": i,
            "LifecycleState": state,
            "HealthStatus": "Healthy",
            "AvailabilityZone": "us-west-2b",
        }
        for i in ids
    ]
    return {"AutoScalingGroupName": name, "Instances": listed, "DesiredCapacity": len(ids)}


class Session:
    """Answers as it was told, and notes what it is asked."""

    def __init__(self, *pages: Mapping[str, Any], launched: Mapping[str, str] = {}) -> None:
        self.pages = pages
        self.launched = launched
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.knowing: set[str] = set()

    def read(self, service: str, operation: str, region: str, what: str, **params: Any) -> Mapping[str, Any]:
        self.asked.append((operation, params))
        if operation == "DescribeInstances":
            (wanted,) = params["Filters"]
            at = NOW - timedelta(hours=1)
            found = [
                {"InstanceId": i, "LaunchTime": at, "State": {"Name": self.launched[i]}}
                for i in wanted["Values"]
                if i in self.launched
            ]
            return {"Reservations": [{"Instances": found}]}
        number = int(params.get("NextToken", 0))
        more = {"NextToken": str(number + 1)} if number + 1 < len(self.pages) else {}
        return {"ResponseMetadata": DATE, **self.pages[number], **more}


def listed(session: Session, *machines: Machine, seen: set[tuple[str, str]] | None = None) -> list[Any]:
    return list(members(cast(AwsSession, session), machines, seen if seen is not None else set()))


def test_groups_are_listed_by_the_page_and_those_of_others_are_dropped() -> None:
    session = Session(
        {"AutoScalingGroups": [group("others", "i-0000000000000000f")]},
        {"AutoScalingGroups": [group("trn1", KNOWN, NEW)]},
        launched={NEW: "running"},
    )
    (found,) = listed(session, MACHINE)
    assert (found.group, found.at) == ("trn1", NOW)
    assert [m.machine.id for m in found.members] == [KNOWN, NEW]
    assert [m.in_service for m in found.members] == [True, True]
    assert [m.launched for m in found.members] == [None, NOW - timedelta(hours=1)]
    assert found.members[1].machine.provider_id == f"aws:///us-west-2b/{NEW}"
    assert [what for what, _ in session.asked] == ["DescribeAutoScalingGroups"] * 2 + ["DescribeInstances"]
    assert session.asked[0][1] == {"MaxRecords": GROUPS_A_PAGE}


def test_ec2_is_asked_of_those_alone_that_are_not_known() -> None:
    session = Session({"AutoScalingGroups": [group("trn1", KNOWN)]})
    assert len(listed(session, MACHINE)) == 1
    assert [what for what, _ in session.asked] == ["DescribeAutoScalingGroups"]


@pytest.mark.parametrize(("ec2", "state"), [("stopped", "stopped"), ("", "unknown to EC2")])
def test_one_that_does_not_run_is_not_in_service_whatever_its_group_says(ec2: str, state: str) -> None:
    launched = {NEW: ec2} if ec2 else {}
    (found,) = listed(Session({"AutoScalingGroups": [group("trn1", KNOWN, NEW)]}, launched=launched), MACHINE)
    assert (found.members[1].in_service, found.members[1].state) == (False, state)


@pytest.mark.parametrize("state", ["Pending", "Standby", "Terminating:Wait", "Warmed:Running", "Detaching"])
def test_one_that_its_group_does_not_count_on_is_not_in_service_though_it_runs(state: str) -> None:
    there = group("trn1", NEW, state=state)
    there["Instances"] += group("trn1", KNOWN)["Instances"]
    (found,) = listed(Session({"AutoScalingGroups": [there]}, launched={NEW: "running"}), MACHINE)
    assert (found.members[0].in_service, found.members[0].state) == (False, state)


def test_a_list_that_does_not_end_is_no_answer() -> None:
    with pytest.raises(Retry, match=f"has more than {PAGES} pages"):
        listed(Session(*[{"AutoScalingGroups": []}] * (PAGES + 1)), MACHINE)


def test_an_answer_without_a_date_says_no_machines_age() -> None:
    session = Session({"AutoScalingGroups": [group("trn1", KNOWN, NEW)], "ResponseMetadata": {}})
    with pytest.raises(Retry, match="does not say when it was given"):
        listed(session, MACHINE)
