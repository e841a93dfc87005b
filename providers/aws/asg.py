"""EC2 instances behind Auto Scaling groups, standing alone, or made by Karpenter.

*replace* marks the instance unhealthy, and its group terminates it and launches another: the custom health
check of the Auto Scaling user guide ("Set up a custom health check"). The instance that Karpenter made is
replaced by deleting its NodeClaim. *reboot* asks EC2, which shuts the system down and resets it hard after a
few minutes. AWS takes no idempotency token for either call, so ``token`` goes nowhere: a repetition is
prevented by the intent on the record, and seen by asking the group.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from providers.aws import lookup
from providers.aws.group import (
    RETAINED,
    Activity,
    Group,
    Member,
    hour,
    in_service_since,
    may_succeed,
    no_launch,
)
from providers.aws.identity import identify, own_region
from providers.aws.outcome import ACCEPTED, AGAIN, GRACE, reboot_outcome, replace_outcome
from providers.aws.session import AwsSession, Limits
from providers.aws.shared import Shared
from recovery.clock import Clock
from recovery.errors import Refused, Retry
from recovery.model import (
    ClusterDelete,
    Deleting,
    GroupMembers,
    Machine,
    NodeView,
    Poll,
    Preflight,
    Reference,
    Rung,
    Step,
)
from recovery.provider.known import KEY, pack
from recovery.provider.protocol import Finding, Started

NAME = "aws"
KARPENTER = "nodeclaim"
BY = "Karpenter"
INSTANCE = "instance"
TAKEN_OUT = "somebody has taken it out of service"
IMPATIENT = Limits(connect=2.0, read=3.0, attempts=1)
"""For people who wait for an answer."""

PERMISSIONS: Mapping[str, frozenset[str]] = {
    "preflight": frozenset(
        {
            "autoscaling:DescribeAutoScalingInstances",
            "autoscaling:DescribeAutoScalingGroups",
            "autoscaling:DescribeScalingActivities",
            "ec2:DescribeInstances",
        }
    ),
    "poll": frozenset(
        {
            "autoscaling:DescribeAutoScalingInstances",
            "autoscaling:DescribeAutoScalingGroups",
            "autoscaling:DescribeScalingActivities",
            "ec2:DescribeInstances",
        }
    ),
    "members": frozenset({"autoscaling:DescribeAutoScalingGroups", "ec2:DescribeInstances"}),
    Step.REPLACE: frozenset({"autoscaling:SetInstanceHealth"}),
    Step.REBOOT: frozenset({"ec2:RebootInstances"}),
    "monitor": frozenset({"cloudwatch:PutMetricData"}),
}


class AwsProvider:
    """The provider ``aws``. Nothing is imported or connected to before the first preflight."""

    name = NAME
    actions = frozenset({Step.REBOOT, Step.REPLACE})
    permissions = PERMISSIONS
    default_remedy: tuple[Rung, ...] = (
        Rung(Step.DRAIN, timedelta(minutes=15)),
        Rung(Step.REPLACE, timedelta(minutes=30)),
    )

    def __init__(self, session: AwsSession, clock: Clock, environ: Mapping[str, str]) -> None:
        self._session = session
        self._shared = Shared(session, clock)
        self._seen: set[tuple[str, str]] = set()
        self._clock = clock
        self._environ = environ
        self.call_timeout = session.longest

    def identify(self, node: NodeView) -> Machine:
        """The EC2 instance behind ``node``. Raises ``Refused`` for any other, and for nodes with an owner."""
        return identify(node, self._environ)

    def gone(self, machine: Machine) -> str | None:
        """By EC2, in the machine's own region: terminated, or unknown, as it is an hour after its end. It has
        to be unknown for a while, since one answer may be older than the instance, and to an account that has
        known a machine of the cluster. Raises ``Retry`` before that."""
        where = own_region(machine)
        state = self._shared.sure_state(machine, where) if where else None
        if where and not state and where not in self._session.knowing:
            raise Retry(
                f"EC2 does not know {machine}, nor has AWS known any machine here by these credentials since "
                "the start: they may be another account's"
            )
        return f"{machine} is {state or 'unknown to EC2'}" if state in ("", "terminated") else None

    def down(self, machine: Machine) -> str | None:
        """By EC2: stopped, or terminated. One that is stopping or shutting down may run on for minutes."""
        state = self._state(machine)
        return f"EC2 says that {machine} is {state}" if state in ("stopped", "terminated") else None

    def _state(self, machine: Machine) -> str | None:
        """As ``lookup.ec2_state``, in the region of the machine's zone: AWS_REGION may name another, which
        knows no such instance. None where the zone is not known, so that nobody is asked."""
        where = own_region(machine)
        return lookup.ec2_state(self._session, machine, where) if where else None

    def members(self, machines: Sequence[Machine]) -> Iterator[GroupMembers]:
        """Of Auto Scaling groups: *in service* is InService there, and running by EC2. Karpenter ends its own
        machines that do not join."""
        from providers.aws.members import members

        return members(self._session, machines, self._seen)

    # ------------------------------------------------------------ preflight

    def preflight(self, machine: Machine, action: Step) -> Preflight:
        """Ask the instance's group. For an instance of Karpenter's nothing is called."""
        self._able(action)
        if action is Step.REBOOT:
            return self._preflight_reboot(machine)
        if "nodepool" in machine.route:
            return _preflight_karpenter(machine)
        return self._preflight_replace(machine)

    def _preflight_reboot(self, machine: Machine) -> Preflight:
        found = lookup.instance(self._session, machine)
        reference = _reference(machine, Step.REBOOT)
        if found is None:
            return Preflight(reference, machine.group)
        group, member = found
        leaves = f"{machine} is {member.lifecycle} in group {group}: there is nothing to reboot"
        if member.lifecycle == RETAINED:
            raise Refused(f"{leaves}; its lifecycle hook was abandoned, and a person has to terminate it")
        out = f"{member.lifecycle} in group {group}: {TAKEN_OUT}" if member.on_standby else ""
        self._in_its_place(machine, Step.REBOOT, out)
        note = f"group {group} may replace {machine} if its health checks fail during the reboot"
        not_yet = leaves if member.leaving or member.ended else ""  # its Node goes with it
        return Preflight(reference, group, not_yet=not_yet, notes=(note,))

    def _preflight_replace(self, machine: Machine) -> Preflight:
        found = lookup.instance(self._session, machine)
        if found is None:
            raise self._in_none(machine)
        self._shared.lacks(machine.route.get("region", ""), f"{machine} in a group", False)
        name, member = found
        group = lookup.group(self._session, machine, name)
        if group is None:  # if it is gone, Auto Scaling will say so of the instance, too
            raise Retry(f"Auto Scaling says that {machine} is in group {name}, and does not list that group")
        adopt = _under_way(member, group)
        self._in_its_place(machine, Step.REPLACE, "" if adopt else _out(member, group))
        not_yet = "" if adopt else _standing(member, group)
        if not adopt and (obstacle := group.obstacle()):
            raise Refused(f"{machine} cannot be replaced: {obstacle}")
        where = machine.route.get("region", "")
        lately = () if adopt else self._shared.lately(name, where)
        not_before = None if adopt else self._end_of_grace(machine, group, lately)
        if not_before is not None and not not_yet:
            end = hour(not_before, self._clock.now())
            not_yet = f"{machine} is inside the grace period of group {group.name} until {end}"
        now = self._clock.now()
        failed = no_launch(lately, now)
        fresh = may_succeed(machine.id, group, self._history(machine, group)) if adopt else frozenset()
        return Preflight(
            _reference(machine, Step.REPLACE, group, now, adopted=bool(adopt), fresh=fresh),
            group.name,
            short_by=group.short_by,
            adopt=adopt,
            not_before=not_before,
            not_yet=not_yet,
            notes=_notes(member, group),
            cannot_launch=f"group {group.name} {failed}" if failed else "",
            loses_one=failed is not None and not failed.own_place and not group.launches_first,
        )

    def _in_its_place(self, machine: Machine, action: Step, out: str) -> None:
        """Raise ``Refused`` for what is ``out`` of service by each answer of a minute, ``Retry`` before that:
        waiting does not help, but one answer may be from before it was brought back."""
        surely = self._shared.taken_out(machine, machine.route.get("region", ""), action, bool(out))
        if out:
            raise Refused(f"{machine} is {out}") if surely else Retry(f"{machine} is {out}; {AGAIN}")

    def _history(self, machine: Machine, group: Group) -> tuple[Activity, ...]:
        """What the group did, as AWS says now and not half a minute ago. Nothing where it does not answer."""
        with contextlib.suppress(Refused, Retry):
            return lookup.activities(self._session, group.name, machine.route.get("region", ""))
        return ()

    def _in_none(self, machine: Machine) -> Refused | Retry:
        """Auto Scaling's answers differ for moments, so EC2 is asked as well, and both for a minute, before a
        person is: who moves an instance to another group detaches it first."""
        where, name = machine.route.get("region", ""), ""
        with contextlib.suppress(Refused):  # not permitted: then nobody says otherwise
            name = lookup.tagged(self._session, machine, where)
        surely = self._shared.lacks(where, f"{machine} in a group", not name)
        if name:
            return Retry(f"Auto Scaling does not know {machine}, and EC2 says that it is in group {name}")
        said = f"{machine} is in no Auto Scaling group of {where}"
        return Refused(f"{said}: nothing would take its place") if surely else Retry(f"{said}; {AGAIN}")

    def _end_of_grace(self, machine: Machine, group: Group, lately: Sequence[Activity]) -> datetime | None:
        """When its grace period is over, if that is still to come. It lasts from when the instance came into
        service, as far as the history says when that was; never less than from the creation of its Node."""
        created, came = machine.route.get("node_created", ""), in_service_since(machine.id, lately)
        begun = [x for x in (came, datetime.fromisoformat(created) if created else None) if x is not None]
        if not begun or not group.grace:
            return None
        end = max(begun) + timedelta(seconds=group.grace)
        return end if end > self._clock.now() else None

    # ------------------------------------------------------------ start

    def start(self, machine: Machine, action: Step, token: str, reference: Reference) -> Started:
        """Submit once: SetInstanceHealth, RebootInstances, or for Karpenter's a deletion for the caller.

        Raises ``Retry`` (nothing was submitted), ``Ambiguous`` (it may have been) or ``Refused``.
        """
        self._able(action)
        self._same(machine, reference, action)
        if reference.data.get("kind") == KARPENTER:
            return _node_claim(reference)
        if action is Step.REBOOT:
            self._reboot(machine, reference)
            return Reference(NAME, action, {**reference.data, ACCEPTED: True})
        try:
            self._mark_unhealthy(machine, reference)
        except Refused as refused:
            raise self._ends_already(machine, reference) or refused from None
        return None

    def _ends_already(self, machine: Machine, reference: Reference) -> Retry | None:
        """Why a refusal is no end: the instance was in service at the last look, and its group has begun to
        end it since, as after a spot interruption. The next preflight follows that."""
        with contextlib.suppress(Refused, Retry):
            found = lookup.instance(self._session, machine, lookup.region(machine, reference))
            if found is None:
                return Retry(f"{machine} was not marked unhealthy: its group has ended it just then")
            if found[1].leaving or found[1].ended:
                state = f"it is {found[1].lifecycle} in group {found[0]}"
                return Retry(f"{machine} was not marked unhealthy: its group is ending it, {state}")
        return None

    def _mark_unhealthy(self, machine: Machine, reference: Reference) -> None:
        self._session.submit(
            "autoscaling",
            "SetInstanceHealth",
            lookup.region(machine, reference),
            f"autoscaling:SetInstanceHealth on group {reference.data.get('group', '?')} for {machine}",
            InstanceId=machine.id,
            HealthStatus="Unhealthy",
            ShouldRespectGracePeriod=True,
        )

    def _reboot(self, machine: Machine, reference: Reference) -> None:
        self._session.submit(
            "ec2",
            "RebootInstances",
            lookup.region(machine, reference),
            f"ec2:RebootInstances for {machine}",
            InstanceIds=[machine.id],
        )

    # ------------------------------------------------------------ poll

    def poll(self, machine: Machine, reference: Reference) -> Poll:
        """How the action stands. Raises ``Retry`` or ``Refused`` where AWS does not say."""
        self._able(reference.action)
        self._same(machine, reference, reference.action)
        if reference.data.get("kind") == KARPENTER:
            return Deleting(_node_claim(reference))
        if reference.action == Step.REBOOT:
            return reboot_outcome(self._shared, machine, reference)
        return replace_outcome(self._shared, machine, reference)

    # ------------------------------------------------------------ taking back

    def take_back(self, machine: Machine, reference: Reference) -> str | ClusterDelete:
        """Have the group keep the instance that it was asked to replace. Raises ``Retry`` or ``Refused``."""
        from providers.aws.take_back import reboot_taken_back, replace_taken_back

        self._able(reference.action)
        self._same(machine, reference, reference.action)
        if reference.data.get("kind") == KARPENTER:
            return _node_claim(reference)
        if reference.action == Step.REBOOT:
            return reboot_taken_back(self._shared, machine, reference)
        return replace_taken_back(self._session, machine, reference)

    # ------------------------------------------------------------ doctor

    def examine(self, machine: Machine | None, steps: frozenset[Step], own: bool) -> Iterator[Finding]:
        """What is missing for ``steps``. Calls time out sooner than in a recovery, because a person waits."""
        from providers.aws.examine import examine

        return examine(AwsSession(self._clock, IMPATIENT), self._environ, machine, steps, own)

    # ------------------------------------------------------------ guards

    def _able(self, action: str) -> None:
        if action not in self.actions:
            raise Refused(f"the provider {NAME} cannot {action}; it can {', '.join(sorted(self.actions))}")

    def _same(self, machine: Machine, reference: Reference, action: str) -> None:
        """Raise ``Refused`` for a reference to another machine or action: it must not reach AWS."""
        if (reference.provider, reference.action) != (NAME, action):
            raise Refused(f"the reference of {reference.provider} {reference.action} is not one of {action}")
        if reference.data.get("instance") != machine.id:
            raise Refused(f"the reference is one of {reference.data.get('instance')}, not of {machine}")


def _reference(
    machine: Machine,
    action: Step,
    group: Group | None = None,
    at: datetime | None = None,
    adopted: bool = False,
    fresh: frozenset[str] = frozenset(),
) -> Reference:
    """What identifies the action later, also once the instance is gone. Plain values: it becomes JSON.

    ``adopted``: somebody else has marked the instance, and it is theirs to take the mark off. ``fresh``:
    members that may take its place already.
    """
    data: dict[str, object] = {
        "kind": INSTANCE,
        "instance": machine.id,
        "region": machine.route.get("region", ""),
    }
    if group is not None and at is not None:
        # It serves soon. A group that balances its zones, say, has one more than it wants for a while, and
        # launches none once the instance is gone.
        soon = [m for m in group.members if m.starting and m.id not in {machine.id, *fresh}]
        data |= {
            "group": group.name,
            # One in the warm pool does not serve: a launch may be that it leaves the pool.
            KEY: pack(m.id for m in group.members if m.id not in fresh and not m.warmed),
            "desired": group.desired,
            "had": group.with_its(machine.id) + sum(m.units for m in soon),
            "count": group.many_with(machine.id) + len(soon),
            GRACE: group.grace,
            "at": at.isoformat(),
        }
        if adopted:
            data["adopted"] = True
    return Reference(NAME, action, data)


def _node_claim(reference: Reference) -> ClusterDelete:
    """Karpenter ends the machine of a NodeClaim that is deleted, and launches another for pods that wait."""
    name, uid = str(reference.data["name"]), str(reference.data["uid"])
    return ClusterDelete("karpenter.sh/v1", "nodeclaims", name, uid, "NodeClaim", BY)


def _preflight_karpenter(machine: Machine) -> Preflight:
    pool, name = machine.route["nodepool"], machine.route.get("nodeclaim", "")
    if not name:
        raise Refused(f"{machine} is in Karpenter's nodepool {pool}, but no NodeClaim owns its Node")
    data = {
        "kind": KARPENTER,
        "by": BY,
        "instance": machine.id,
        "name": name,
        "uid": machine.route["nodeclaim_uid"],
        "nodepool": pool,
    }
    return Preflight(Reference(NAME, Step.REPLACE, data), machine.group)


def _under_way(member: Member, group: Group) -> str:
    """A sentence if the instance is being replaced already."""
    if not member.warmed and (member.leaving or member.ended):
        return f"{member.id} is already {member.lifecycle} in group {group.name}"
    if member.lifecycle == "InService" and member.marked and not group.obstacle():
        return f"{member.id} is already marked unhealthy in group {group.name}"
    return ""


_ON_ITS_WAY = ("Pending", "ReplacingRootVolume", "RootVolumeReplaced")


def _out(member: Member, group: Group) -> str:
    """Why its group does not replace it, by its place in its life, or an empty string."""
    if member.lifecycle == "InService" or member.lifecycle.startswith(_ON_ITS_WAY):
        return ""
    why = "it is in the warm pool" if member.warmed else TAKEN_OUT
    return f"{member.lifecycle} in group {group.name}: {why}"


def _standing(member: Member, group: Group) -> str:
    """Why not yet, by its place in its life."""
    if member.lifecycle.startswith(_ON_ITS_WAY):
        return f"{member.id} is still {member.lifecycle} in group {group.name}"
    unsaid = not (member.healthy or member.marked)
    return f"AWS does not say whether {member.id} is healthy in group {group.name}" if unsaid else ""


def _notes(member: Member, group: Group) -> tuple[str, ...]:
    notes = []
    if member.protected:
        notes.append(f"{member.id} is protected from scale-in, which does not stop a replacement")
    if group.launches_first:
        notes.append(f"group {group.name} launches the replacement first, and waits if there is no capacity")
    if not group.countable:
        notes.append(f"group {group.name} counts in vCPU or memory: whether it is short cannot be said")
    return tuple(notes)
