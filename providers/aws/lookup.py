"""Questions to AWS that change nothing, each one request with a small answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from providers.aws.group import Activity, Group, Member, activity_of, group_of, member_of
from providers.aws.identity import own_region
from providers.aws.session import AwsSession
from recovery.errors import Refused, Retry
from recovery.model import Machine, Reference

_UNKNOWN = "InvalidInstanceID.NotFound"
GROUP_TAG = "aws:autoscaling:groupName"
HISTORY = 50
"""How many scaling activities that have ended say enough of what a group did lately."""
MOST_PAGES = 5
"""In which they may come, with those that are still in progress."""


def region(machine: Machine, reference: Reference) -> str:
    """Where the action was begun, else where the machine is."""
    return str(reference.data.get("region") or machine.route.get("region", ""))


def instance(session: AwsSession, machine: Machine, where: str = "") -> tuple[str, Member] | None:
    """The group's name and the instance as Auto Scaling knows it; None if it is in no group.

    Ids that Auto Scaling does not know are ignored by it without an error.
    """
    return instances(session, machine, (), where).get(machine.id)


def instances(
    session: AwsSession, machine: Machine, others: Sequence[str], where: str
) -> Mapping[str, tuple[str, Member]]:
    """The same for ``machine`` and ``others``, by ID, in one request. Who is in no group is left out."""
    more = f" and {len(others)} more" if others else ""
    where = where or machine.route.get("region", "")
    answer = session.read(
        "autoscaling",
        "DescribeAutoScalingInstances",
        where,
        f"autoscaling:DescribeAutoScalingInstances for {machine}{more}",
        InstanceIds=[machine.id, *others],
    )
    found = {
        str(x.get("InstanceId", "")): (str(x.get("AutoScalingGroupName", "")), member_of(x))
        for x in answer.get("AutoScalingInstances") or ()
    }
    if not found.keys().isdisjoint({machine.id, *others}):
        session.knowing.add(where)
    return found


def group(session: AwsSession, machine: Machine, name: str, where: str = "") -> Group | None:
    """The group ``name``; None if there is none."""
    answer = session.read(
        "autoscaling",
        "DescribeAutoScalingGroups",
        where or machine.route.get("region", ""),
        f"autoscaling:DescribeAutoScalingGroups for group {name}",
        AutoScalingGroupNames=[name],
    )
    data = _first(answer, "AutoScalingGroups", "AutoScalingGroupName", name)
    return None if data is None else group_of(data)


def activities(session: AwsSession, name: str, where: str) -> tuple[Activity, ...]:
    """The newest 50 scaling activities of the group ``name`` that have ended, or some more, and those still
    in progress, newest first.

    AWS names those still in progress before all others, and may answer with fewer than it was asked for, and
    a token for the rest (API reference, ``DescribeScalingActivities``): a launch that a lifecycle hook holds
    would hide that newer ones have failed. A group that grows by a hundred instances has as many of those.
    """
    found: list[Activity] = []
    more: dict[str, str] = {}
    for _ in range(MOST_PAGES):
        answer = session.read(
            "autoscaling",
            "DescribeScalingActivities",
            where,
            f"autoscaling:DescribeScalingActivities for group {name}",
            AutoScalingGroupName=name,
            MaxRecords=HISTORY,
            **more,
        )
        found += (activity_of(a) for a in answer.get("Activities") or ())
        more = {"NextToken": str(answer.get("NextToken") or "")}
        if not more["NextToken"] or sum(a.ended for a in found) >= HISTORY:
            break
    return tuple(sorted(found, key=lambda a: a.start, reverse=True))


def ec2_state(session: AwsSession, machine: Machine, where: str) -> str:
    """The state EC2 gives: pending, running, shutting-down, terminated, stopping, stopped; "" if unknown."""
    data = _by_ec2(session, machine, where)
    state = str((data.get("State") or {}).get("Name") or "")
    if data and not state:
        raise Retry(f"EC2's answer does not say in which state {machine} is")
    return state


def tagged(session: AwsSession, machine: Machine, where: str) -> str:
    """The group that the instance's own tag names, which Auto Scaling sets and takes off; "" for none."""
    data = _by_ec2(session, machine, where)
    tags = {str(tag.get("Key")): str(tag.get("Value") or "") for tag in data.get("Tags") or ()}
    return tags.get(GROUP_TAG, "")


def _by_ec2(session: AwsSession, machine: Machine, where: str) -> Mapping[str, Any]:
    """The instance as EC2 knows it; empty where it does not.

    To be asked rarely: loading the service model of EC2 takes 15 MiB. Raises ``Refused`` where another region
    than the machine's was asked, and does not know it.
    """
    found = _described(session, machine, where)
    if not found:
        know_absent(machine, where)
    return found


def know_absent(machine: Machine, where: str) -> None:
    """Raises ``Refused`` if it proves nothing that AWS does not know ``machine`` in the region ``where``."""
    own = own_region(machine)
    if where != own:
        zone = f"the zone of its providerID is in {own}" if own else "its providerID names no zone"
        raise Refused(
            f"whether {machine} exists cannot be known: AWS was asked in {where}, and {zone}; "
            "set AWS_REGION to the region of the node"
        )


def _described(session: AwsSession, machine: Machine, where: str) -> Mapping[str, Any]:
    """As ``_by_ec2``. That it does not know an instance EC2 says by an error: an answer that lacks it, or is
    about another one, proves nothing, and raises ``Retry``."""
    try:
        answer = session.read(
            "ec2",
            "DescribeInstances",
            where,
            f"ec2:DescribeInstances for {machine}",
            InstanceIds=[machine.id],
        )
    except Refused as refused:
        if _UNKNOWN in refused.reason:
            return {}
        raise
    for reservation in answer.get("Reservations") or ():
        data = _first(reservation, "Instances", "InstanceId", machine.id)
        if data is not None:
            session.knowing.add(where)
            return data
    raise Retry(f"EC2's answer about {machine} does not speak of it, nor does it say that it is unknown")


def _first(answer: Mapping[str, Any], part: str, key: str, wanted: str) -> Mapping[str, Any] | None:
    """The entry that was asked for; None if the answer is about something else."""
    entries: list[Mapping[str, Any]] = answer.get(part) or []
    return next((entry for entry in entries if entry.get(key) == wanted), None)
