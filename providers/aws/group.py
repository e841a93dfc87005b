"""What the Auto Scaling API says of a group and its instances, and what follows from it. Pure.

Sources: the API reference of Auto Scaling (2011-01-01), ``AutoScalingGroup``, ``Instance``, ``Activity``; the
user guide, "Suspend and resume processes", "Instance lifecycle", "Instance maintenance policies", and
"Troubleshoot Amazon EC2 Auto Scaling: EC2 instance launch failures"; the API reference of EC2, "Error codes".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from providers.aws.errors import brief
from recovery.provider.known import has

RETAINED = "Terminating:Retained"
WARMED = "Warmed:"
"""The prefix of the states of an instance in a warm pool: Warmed:Stopped, Warmed:Terminating:Wait and so
on."""
_DECISIVE = {
    "ReplaceUnhealthy": "an instance marked unhealthy would stay in service",
    "Terminate": "an instance marked unhealthy would not be terminated",
    "Launch": "an instance marked unhealthy would be terminated and nothing launched in its place",
}
LATELY = timedelta(hours=1)
"""How old a failed launch may be to say anything of the next one."""
_NO_CAPACITY = (
    "insufficientinstancecapacity",
    "insufficientcapacity",
    "insufficienthostcapacity",
    "unfulfillablecapacity",
    "do not have sufficient",
    "no spot capacity available",
)
"""AWS has no machine to give, by the error's code or its text."""
_OWN_PLACE = (
    "reservationcapacityexceeded",
    "requested reservation does not have sufficient",
    "maxspotinstancecountexceeded",
    "max spot instance count exceeded",
    "vcpulimitexceeded",
    "more vcpu capacity than your current vcpu limit",
    "instancelimitexceeded",
    "instance(s) are already running",
)
"""A reservation or a quota is used up: an instance that is terminated gives its place back."""


@dataclass(frozen=True, slots=True)
class Member:
    """An instance as its group sees it. ``units`` is what it counts for."""

    id: str
    lifecycle: str
    health: str
    units: int = 1
    protected: bool = False

    @property
    def serving(self) -> bool:
        return self.lifecycle == "InService" and self.healthy

    @property
    def healthy(self) -> bool:
        return self.health.lower() == "healthy"

    @property
    def marked(self) -> bool:
        """Whether it is marked unhealthy. If AWS does not tell its health, it is neither this nor healthy."""
        return self.health.lower() == "unhealthy"

    @property
    def leaving(self) -> bool:
        """Whether it is being terminated, or retained on its way: such a one stays until somebody ends it."""
        return self.lifecycle.removeprefix(WARMED).startswith("Terminating")

    @property
    def ended(self) -> bool:
        """Whether it is terminated, and listed for a while yet."""
        return self.lifecycle.removeprefix(WARMED) == "Terminated"

    @property
    def on_standby(self) -> bool:
        """Whether somebody has put it there, to work on it."""
        return self.lifecycle in ("EnteringStandby", "Standby")

    @property
    def kept_out(self) -> bool:
        """Whether somebody has taken it out of service, so that its group does not replace it."""
        return self.on_standby or self.lifecycle == "Detached"

    @property
    def starting(self) -> bool:
        """Whether it is being put into service."""
        return self.lifecycle.startswith("Pending")

    @property
    def warmed(self) -> bool:
        """Whether it waits in the group's warm pool, which nobody has to have asked for."""
        return self.lifecycle.startswith(WARMED)


@dataclass(frozen=True, slots=True)
class Group:
    """An Auto Scaling group. ``desired`` and the units of its members are of one kind, or ``countable`` is
    false: with attribute-based selection by vCPU or memory the API does not say what a member counts for.
    """

    name: str
    desired: int
    members: tuple[Member, ...]
    suspended: Mapping[str, str]
    grace: int
    operator: str
    status: str
    launches_first: bool
    countable: bool

    @property
    def ids(self) -> list[str]:
        return sorted(m.id for m in self.members)

    @property
    def serving(self) -> int:
        """Units in service and healthy."""
        return sum(m.units for m in self.members if m.serving)

    def lists(self, machine: str) -> bool:
        """Whether ``machine`` is a member that is not terminated."""
        return any(m.id == machine and not m.ended for m in self.members)

    def with_its(self, machine: str) -> int:
        """Units in service and healthy, and that of ``machine``, which is to be replaced."""
        return sum(m.units for m in self.members if m.serving or m.id == machine)

    def many_with(self, machine: str = "") -> int:
        """Instances in service and healthy, and ``machine``. One may count for as many units as two."""
        return sum(1 for m in self.members if m.serving or m.id == machine)

    @property
    def short_by(self) -> int:
        return max(0, self.desired - self.serving) if self.countable else 0

    def to_be_ended(self, known: Any) -> int:
        """Units of the members that are ``known``, as packed, in service, and marked unhealthy. Each has its
        place until it is ended. A group that launches first keeps it for as long as there is no capacity."""
        doomed = (m for m in self.members if m.lifecycle == "InService" and m.marked)
        return sum(m.units for m in doomed if has(known, m.id))

    def obstacle(self) -> str:
        """Why this group would not replace an instance that is marked unhealthy, or an empty string."""
        if self.status:
            return f"group {self.name} is being deleted ({self.status})"
        if self.operator:
            return f"group {self.name} is managed by {self.operator}, and only that may change it"
        return self.blocked_by(_DECISIVE)

    def blocked_by(self, processes: Iterable[str]) -> str:
        """The first of ``processes`` that is suspended, with what that means, or an empty string."""
        for process in processes:
            if process in self.suspended:
                why = self.suspended[process]
                because = f" ({brief(why)})" if why else ""
                return f"group {self.name} has {process} suspended{because}: {_DECISIVE[process]}"
        return ""

    def newcomers(self, known: Any, replaced: str = "") -> tuple[str, ...]:
        """Members in service and healthy, in the order of the answer. Left out are those that are ``known``,
        as packed, and the one that is ``replaced``."""
        return tuple(m.id for m in self.members if m.serving and m.id != replaced and not has(known, m.id))


def member_of(data: Mapping[str, Any]) -> Member:
    """From ``Instance`` or ``AutoScalingInstanceDetails`` (the latter writes HEALTHY in capitals)."""
    weight = str(data.get("WeightedCapacity") or "1")
    return Member(
        id=str(data.get("InstanceId", "")),
        lifecycle=str(data.get("LifecycleState", "")),
        health=str(data.get("HealthStatus", "")),
        units=int(weight) if weight.isdecimal() else 1,
        protected=bool(data.get("ProtectedFromScaleIn", False)),
    )


def group_of(data: Mapping[str, Any]) -> Group:
    """From ``AutoScalingGroup``."""
    suspended = data.get("SuspendedProcesses") or ()
    policy = data.get("InstanceMaintenancePolicy") or {}
    instances = data.get("Instances") or ()
    return Group(
        name=str(data.get("AutoScalingGroupName", "")),
        desired=int(data.get("DesiredCapacity") or 0),
        members=tuple(member_of(i) for i in instances),
        suspended={str(p.get("ProcessName")): str(p.get("SuspensionReason") or "") for p in suspended},
        grace=int(data.get("HealthCheckGracePeriod") or 0),
        operator=str((data.get("Operator") or {}).get("Principal") or ""),
        status=str(data.get("Status") or ""),
        launches_first=int(policy.get("MinHealthyPercentage") or 0) >= 100,
        countable=_countable(str(data.get("DesiredCapacityType") or "units"), instances),
    )


def _countable(unit: str, instances: Iterable[Mapping[str, Any]]) -> bool:
    return unit == "units" or all(i.get("WeightedCapacity") for i in instances)


# ---------------------------------------------------------------- activities


_LAUNCHES = ("Launching a new EC2 instance", "Launching a new EC2 instance from warm pool")
"""How a line of the history begins that is about an instance put into service. What is launched *into* a warm
pool is not put into service."""


def _launch_of(instance: str) -> tuple[str, ...]:
    return tuple(f"{words}: {instance}" for words in _LAUNCHES)


_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Activity:
    """One entry of a group's activity history."""

    description: str
    cause: str
    status: str
    message: str
    start: datetime
    end: datetime | None = None

    @property
    def failed(self) -> bool:
        return self.status in ("Failed", "Cancelled")

    @property
    def ended(self) -> bool:
        return self.failed or self.status == "Successful"

    @property
    def shrinks(self) -> bool:
        """Whether the group was made smaller by it: it launches nothing in place of what it ends."""
        return "shrinking the capacity" in self.cause


def activity_of(data: Mapping[str, Any]) -> Activity:
    """From ``Activity``."""
    return Activity(
        description=str(data.get("Description") or ""),
        cause=str(data.get("Cause") or ""),
        status=str(data.get("StatusCode") or ""),
        message=str(data.get("StatusMessage") or ""),
        start=data.get("StartTime") or _LONG_AGO,
        end=data.get("EndTime"),
    )


def termination_of(instance: str, activities: Sequence[Activity]) -> Activity | None:
    """The newest termination of ``instance``; ``activities`` are newest first, as ``lookup`` gives them."""
    begin = f"Terminating EC2 instance: {instance}"
    return next((a for a in activities if a.description.startswith(begin) and not a.failed), None)


def oldest_first(instances: Sequence[str], activities: Sequence[Activity]) -> tuple[str, ...]:
    """``instances`` by launch time. Those launched before the history begins come first."""
    begun = _launched_at(instances, activities)
    return tuple(sorted(instances, key=lambda instance: begun.get(instance, _LONG_AGO)))


def _launched_at(instances: Sequence[str], activities: Sequence[Activity]) -> dict[str, datetime]:
    return {
        instance: a.start
        for a in activities
        for instance in instances
        if a.description.startswith(_launch_of(instance))
    }


def hour(at: datetime, now: datetime) -> str:
    """``10:15:03Z``, with its day where that is not plain: a grace period may last for weeks."""
    return f"{at:%H:%M:%SZ}" if abs(at - now) < timedelta(hours=12) else f"{at:%Y-%m-%d %H:%M:%SZ}"


def in_service_since(instance: str, activities: Sequence[Activity]) -> datetime | None:
    """When the newest launch of ``instance`` was over: from then on its grace period lasts (user guide, "Set
    the health check grace period"). Its lifecycle hooks may have held it for long before."""
    newest = next((a for a in activities if a.description.startswith(_launch_of(instance))), None)
    return newest.end if newest is not None and newest.status == "Successful" else None


def may_succeed(instance: str, group: Group, activities: Sequence[Activity]) -> frozenset[str]:
    """Members that may take the place of ``instance``, which somebody else has begun to end: those that are
    being launched, and those that were launched after its end began.

    None that has served before (law 11). What comes back from standby, or is attached, is Pending, too: the
    newest line about a member has to be its launch, and without the history nobody may.
    """
    launched = _launched_at([m.id for m in group.members if _is_new(m.id, activities)], activities)
    starting = {m.id for m in group.members if m.starting and m.id in launched}
    ended = termination_of(instance, activities)
    if ended is None or ended.start == _LONG_AGO:
        return frozenset(starting)
    return frozenset(starting | {x for x, at in launched.items() if at >= ended.start})


def _is_new(instance: str, activities: Sequence[Activity]) -> bool:
    """Whether the newest of ``activities`` that names ``instance`` is its launch."""
    words = next((a.description for a in activities if instance in a.description), "")
    return words.startswith(_launch_of(instance))


def launch_trouble(activities: Sequence[Activity], since: datetime) -> str:
    """Why the group's newest launch begun after ``since`` failed, in the group's own words, or nothing."""
    newest = next(
        (a for a in activities if a.description.startswith("Launching") and a.start >= since),
        None,
    )
    if newest is None or not newest.failed:
        return ""
    return brief(newest.message or newest.description)


@dataclass(frozen=True, slots=True)
class NoLaunch:
    """The group's latest launch failed at ``at`` for want of room. ``own_place``: room that one of its own
    instances gives back when it is terminated."""

    at: datetime
    message: str
    own_place: bool

    def __str__(self) -> str:
        return f"could not launch at {self.at:%H:%MZ} ({brief(self.message).rstrip('. ')})"


def no_launch(activities: Sequence[Activity], now: datetime) -> NoLaunch | None:
    """Whether the group could not launch an instance within the last hour, and has launched none since.

    A launch that is under way and has no instance yet has not been decided, and does not count.
    """
    newest = next((a for a in activities if a.description.startswith("Launching") and _decided(a)), None)
    if newest is None or not newest.failed or now - newest.start > LATELY:
        return None
    told = newest.message or newest.description
    words = told.lower()
    no_capacity = any(x in words for x in _NO_CAPACITY)
    if not no_capacity and not any(x in words for x in _OWN_PLACE):
        return None
    return NoLaunch(newest.start, told, own_place=not no_capacity)


def _decided(a: Activity) -> bool:
    return a.ended or a.description.startswith("Launching a new EC2 instance: i-")
