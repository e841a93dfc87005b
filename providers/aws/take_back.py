"""Taking back what was asked of AWS and never came, and proving that by a read.

An instance that is marked unhealthy keeps the mark while its group cannot launch another, for days if need
be, and is terminated as soon as it can. SetInstanceHealth sets it back to Healthy (the Auto Scaling user
guide, "Health checks for instances"). Once it is being terminated nothing brings it back.
"""

from __future__ import annotations

from datetime import timedelta

from providers.aws import lookup
from providers.aws.group import Member
from providers.aws.outcome import ACCEPTED, AGAIN
from providers.aws.session import AwsSession
from providers.aws.shared import Shared
from recovery.errors import Ambiguous, Refused, Retry
from recovery.model import Machine, Reference

SHOWS_WITHIN = timedelta(seconds=10)
"""When to read again what was changed a moment ago."""


def replace_taken_back(session: AwsSession, machine: Machine, reference: Reference) -> str:
    """What shows that the group will not terminate the instance. Raises ``Retry`` or ``Refused``."""
    where = lookup.region(machine, reference)
    found = lookup.instance(session, machine, where)
    if found is not None and _marked(found[1]):
        _only_ours(machine, reference, found[0])
        _mark_healthy(session, machine, where, found[0])
        found = lookup.instance(session, machine, where)
    if found is None:
        lookup.know_absent(machine, where)
        _not_listed(session, machine, where, str(reference.data.get("group", "")))
    if found is None or found[1].ended:
        return f"{machine} is in no Auto Scaling group any more"
    return _proof(session, machine, where, *found)


def _not_listed(session: AwsSession, machine: Machine, where: str, name: str) -> None:
    """Raise ``Retry`` if the group lists the instance all the same: one of the answers is old."""
    group = lookup.group(session, machine, name, where) if name else None
    if group is not None and group.lists(machine.id):
        raise Retry(
            f"group {name} still lists {machine}, which Auto Scaling does not know: asking again",
            SHOWS_WITHIN,
        )


def _marked(member: Member) -> bool:
    return member.lifecycle == "InService" and not member.healthy


def _only_ours(machine: Machine, reference: Reference, group: str) -> None:
    """Another's mark is another's to take off: they know what is wrong with the instance."""
    if reference.data.get("adopted"):
        raise Refused(
            f"{machine} was marked unhealthy in group {group} by somebody else before this recovery; whoever "
            f"did it takes it back with: aws autoscaling set-instance-health --instance-id {machine} "
            "--health-status Healthy"
        )


def _mark_healthy(session: AwsSession, machine: Machine, where: str, group: str) -> None:
    """Asked once a try. It sets a state, so a lost answer does no harm."""
    try:
        session.submit(
            "autoscaling",
            "SetInstanceHealth",
            where,
            f"autoscaling:SetInstanceHealth (Healthy) on group {group} for {machine}",
            InstanceId=machine.id,
            HealthStatus="Healthy",
        )
    except Ambiguous as lost:
        raise Retry(lost.reason, SHOWS_WITHIN) from lost


def _proof(session: AwsSession, machine: Machine, where: str, name: str, member: Member) -> str:
    state = f"{machine} is {member.lifecycle} and {member.health.lower()} in group {name}"
    if member.leaving:
        raise Refused(f"{state}: nothing takes that back; wait until the machine is gone")
    if not member.healthy and member.lifecycle == "InService":
        raise Retry(f"{state}, after it was set to Healthy", SHOWS_WITHIN)
    if not (member.healthy and member.lifecycle == "InService"):
        how = "" if member.warmed else " (aws autoscaling exit-standby)"
        raise Refused(
            f"{state}: whether the group ends it once it is in service is not known; bring it into service"
            f"{how}, and release it then"
        )
    _launches_nothing_for_it(session, machine, where, name)
    return f"{machine} is healthy and in service in group {name}"


def _launches_nothing_for_it(session: AwsSession, machine: Machine, where: str, name: str) -> None:
    """A group that launches first may have begun to: once that one is in service, it ends the old one."""
    group = lookup.group(session, machine, name, where)
    if group is None or not group.launches_first:
        return
    pending = [m.id for m in group.members if m.starting]
    if pending:
        raise Retry(
            f"group {name} launches {', '.join(pending)} first, and may end {machine} once that serves",
            timedelta(seconds=15),
        )


def reboot_taken_back(ask: Shared, machine: Machine, reference: Reference) -> str:
    """EC2 does not say whether a reboot that it accepted has been carried out: only a new boot shows it."""
    where = lookup.region(machine, reference)
    state = ask.sure_state(machine, where)
    if state is None:
        raise Retry(f"EC2 does not know {machine}: {AGAIN}", SHOWS_WITHIN)
    if not ask.stopped(machine, where, state) and state == "stopped":
        raise Retry(f"{machine} is {state}: {AGAIN}", SHOWS_WITHIN)
    if state in ("", "shutting-down", "terminated", "stopped"):
        return f"{machine} is {state or 'unknown to EC2'}"
    did = "accepted" if reference.data.get(ACCEPTED) else "may have accepted"
    raise Refused(
        f"EC2 {did} a reboot of {machine}, takes none back, and does not say whether it is still to come: "
        f"boot it (aws ec2 reboot-instances --instance-ids {machine}), and release it once it is up"
    )
