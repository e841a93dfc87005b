"""All machines of the groups that some instances are in: who is in service, and when each was launched.

All groups of a region are listed, a hundred at a time, and those without one of the instances dropped: asking
for the group of each instance would take a request for every fifty of them. When an instance was launched EC2
is asked, and of those alone that are not known already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from providers.aws.group import Group, group_of
from providers.aws.session import AwsSession
from recovery.errors import Retry
from recovery.model import GroupMembers, Machine
from recovery.model import Member as Listed

GROUPS_A_PAGE = 100  # the most of DescribeAutoScalingGroups (its API reference)
INSTANCES_A_PAGE = 200  # values of one filter of DescribeInstances (its API reference)
PAGES = 50
"""The most pages of a list: of a region's groups, and of the instances that are not known."""
Known = set[tuple[str, str]]
"""Region and name of the groups that a machine was seen in."""
Zones = Mapping[str, str]
"""The zone of each instance."""


def members(session: AwsSession, machines: Sequence[Machine], seen: Known) -> Iterator[GroupMembers]:
    """The groups that ``machines`` are in, or that are among ``seen`` already; they are added to it.

    Raises ``Retry`` or ``Refused`` where a region does not answer.
    """
    regions = {region for m in machines if (region := m.route.get("region", ""))} | {r for r, _ in seen}
    for region in sorted(regions):
        ids = {m.id for m in machines if m.route.get("region", "") == region}
        yield from _of_region(session, region, ids, seen)


def _of_region(session: AwsSession, region: str, ids: set[str], seen: Known) -> Iterator[GroupMembers]:
    found: list[tuple[Group, Zones]] = []
    at: datetime | None = None
    for answer in _pages(
        session, "autoscaling", "DescribeAutoScalingGroups", region, MaxRecords=GROUPS_A_PAGE
    ):
        at = at or _moment(answer)
        for data in answer.get("AutoScalingGroups") or ():
            group = group_of(data)
            if not ids.isdisjoint(group.ids):
                session.knowing.add(region)
                seen.add((region, group.name))
            if (region, group.name) in seen:
                found.append((group, _zones(data)))
    strangers = sorted({i for group, _ in found for i in group.ids} - ids)
    launched = dict(_launched(session, region, strangers))
    for group, zones in found:
        assert at is not None  # an answer had it
        yield GroupMembers(group.name, at, tuple(_listed(group, zones, region, ids, launched)))


def _zones(data: Mapping[str, Any]) -> Zones:
    instances = data.get("Instances") or ()
    return {str(i.get("InstanceId")): str(i.get("AvailabilityZone") or "") for i in instances}


def _listed(
    group: Group, zones: Zones, region: str, known: set[str], launched: Mapping[str, tuple[str, datetime]]
) -> Iterator[Listed]:
    for m in group.members:
        state, at = launched.get(m.id, ("", None))
        runs = m.id in known or state == "running"
        zone = zones.get(m.id, "")
        machine = Machine("aws", m.id, f"aws:///{zone}/{m.id}", "", {"zone": zone, "region": region})
        shown = m.lifecycle if m.lifecycle != "InService" or runs else state or "unknown to EC2"
        yield Listed(machine, m.lifecycle == "InService" and runs, shown, at)


def _launched(
    session: AwsSession, region: str, ids: Sequence[str]
) -> Iterator[tuple[str, tuple[str, datetime]]]:
    """The state of each instance, and since when it runs. One that EC2 does not know is left out."""
    if len(ids) > PAGES * INSTANCES_A_PAGE:
        raise Retry(f"the groups of {region} have {len(ids)} instances that are no Nodes: too many to ask")
    for start in range(0, len(ids), INSTANCES_A_PAGE):
        some = list(ids[start : start + INSTANCES_A_PAGE])
        # A filter, for one ID that EC2 does not know would spoil the whole answer.
        wanted = [{"Name": "instance-id", "Values": some}]
        for answer in _pages(session, "ec2", "DescribeInstances", region, Filters=wanted):
            for reservation in answer.get("Reservations") or ():
                for data in reservation.get("Instances") or ():
                    at = data.get("LaunchTime")
                    if isinstance(at, datetime) and at.tzinfo is not None:
                        state = str((data.get("State") or {}).get("Name") or "")
                        yield str(data.get("InstanceId")), (state, at)


def _pages(
    session: AwsSession, service: str, operation: str, region: str, **params: Any
) -> Iterator[Mapping[str, Any]]:
    """The pages of a list. Raises ``Retry`` for one that does not end."""
    token = ""
    for _ in range(PAGES):
        more = {"NextToken": token} if token else {}
        what = f"{service}:{operation} in {region}"
        answer = session.read(service, operation, region, what, **params, **more)
        yield answer
        token = str(answer.get("NextToken") or "")
        if not token:
            return
    raise Retry(f"{service}:{operation} in {region} has more than {PAGES} pages")


def _moment(answer: Mapping[str, Any]) -> datetime:
    """When AWS gave the answer, by its own clock."""
    headers = (answer.get("ResponseMetadata") or {}).get("HTTPHeaders") or {}
    try:
        at = parsedate_to_datetime(str(headers.get("date")))
    except ValueError:
        raise Retry("AWS's answer does not say when it was given, so no machine's age is known") from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)
