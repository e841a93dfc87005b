"""How an action stands, from what AWS says now. Absence is never taken for an end without a witness."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from providers.aws import lookup
from providers.aws.group import (
    RETAINED,
    Activity,
    Group,
    Member,
    hour,
    in_service_since,
    launch_trouble,
    oldest_first,
    termination_of,
)
from providers.aws.shared import STOPPED, Shared
from recovery.model import Done, Failed, Gone, Machine, NotApplied, Poll, Reference, Running, Unseen
from recovery.provider.known import KEY, has

GRACE = "grace_seconds"
"""In the reference of a replacement: how long the grace period of its group lasts."""
ACCEPTED = "accepted"
"""In the reference of a reboot that EC2 has accepted for sure."""
AGAIN = "asking again, for one answer of AWS may be an old one"
_ENDING = ("", "shutting-down", "terminated")  # "" is "EC2 does not know it (any more)"


def reboot_outcome(ask: Shared, machine: Machine, reference: Reference) -> Poll:
    """Whether it is there and runs. That it has booted shows in the Node's boot ID and nowhere else, so after
    a lost answer nothing tells whether EC2 accepted it."""
    where = lookup.region(machine, reference)
    state = ask.sure_state(machine, where)
    if state is None:
        return Unseen(f"EC2 does not know {machine}: {AGAIN}")
    if state in _ENDING:
        return Gone(f"{machine} is {state or 'unknown to EC2'}: it will not boot again")
    under_way = Running if reference.data.get(ACCEPTED) else Unseen
    if ask.stopped(machine, where, state):
        return Failed(f"{machine} is {state}: somebody has stopped it")
    if state in STOPPED:
        return under_way(f"{machine} is {state}: {AGAIN}")
    told = f"{machine} is {state}; only a new boot ID on its Node would show that it has rebooted"
    return under_way(told)


def replace_outcome(ask: Shared, machine: Machine, reference: Reference) -> Poll:
    """Healthy and in service: not applied. Marked or leaving: running. Gone: what came in its place."""
    where = lookup.region(machine, reference)
    found = ask.instance(machine, where)
    if found is None:
        lookup.know_absent(machine, where)
    else:
        ask.lacks(where, machine.id, False)
    if found is None or found[1].ended:
        return _absent(ask, machine, reference)
    name, member = found
    surely_out = ask.taken_out(machine, where, "poll", member.kept_out)
    if member.leaving:
        return _leaving(name, member)
    if surely_out:
        return Failed(
            f"{machine} is {member.lifecycle} in group {name}: somebody has kept it from being replaced"
        )
    if member.kept_out:
        return Unseen(f"{machine} is {member.lifecycle} in group {name}: {AGAIN}")
    if member.healthy and member.lifecycle == "InService":
        return _still_healthy(ask, machine, reference, name)
    if member.lifecycle == "InService":
        return _marked(ask, machine, reference, name)
    return Running(f"{machine} is {member.lifecycle} and {member.health.lower()} in group {name}")


def _still_healthy(ask: Shared, machine: Machine, reference: Reference, name: str) -> NotApplied:
    """Auto Scaling may accept a mark within the grace period, and does not set it: then it came too soon."""
    said = f"{machine} is healthy and in service in group {name}"
    grace = timedelta(seconds=int(reference.data.get(GRACE, 0)))
    lately = ask.lately(name, lookup.region(machine, reference)) if grace else ()
    came = in_service_since(machine.id, lately)
    if came is None or came + grace <= _begun(reference):
        return NotApplied(said)
    end = came + grace
    return NotApplied(f"{said}, whose grace period lasts until {hour(end, _begun(reference))}", end)


def _leaving(name: str, member: Member) -> Running:
    if member.lifecycle == RETAINED:
        return Running(
            f"group {name} keeps {member.id} ({RETAINED}): its lifecycle hook was abandoned, "
            "and a person has to terminate it"
        )
    return Running(f"group {name} is terminating {member.id} ({member.lifecycle})")


def _marked(ask: Shared, machine: Machine, reference: Reference, name: str) -> Running:
    """Unhealthy and not yet terminated: say so, and what keeps the group from it, if anything does."""
    where = lookup.region(machine, reference)
    group = ask.group(machine, name, where)
    trouble = group.obstacle() if group is not None else ""
    if group is not None and group.launches_first and not trouble:
        failure = launch_trouble(ask.activities(machine, name, where), _begun(reference))
        trouble = _not_launched(name, failure)
    return Running(f"{machine} is marked unhealthy in group {name}" + (f", but {trouble}" if trouble else ""))


def _not_launched(name: str, failure: str) -> str:
    return f"group {name} has not launched a replacement: {failure}" if failure else ""


def _absent(ask: Shared, machine: Machine, reference: Reference) -> Poll:
    """Auto Scaling does not list the instance any more: terminated, or detached by somebody?"""
    where, name = lookup.region(machine, reference), str(reference.data.get("group", ""))
    group = ask.group(machine, name, where)
    none = ask.lacks(where, name, group is None)
    if group is None:
        if not none:
            return Unseen(f"{machine} is in no group any more, and AWS does not list group {name}: {AGAIN}")
        return Failed(f"group {name} no longer exists: nothing will take the place of {machine}")
    history = ask.activities(machine, name, where)
    ended = termination_of(machine.id, history)
    if ended is None or ended.status != "Successful":
        state = ask.state(machine, where)
        if state not in _ENDING:
            return _outside(ask, machine, where, group, state, ended)
    return _in_its_place(machine, reference, group, history, ended)


def _outside(
    ask: Shared, machine: Machine, where: str, group: Group, state: str, ended: Activity | None
) -> Poll:
    """Whether it was detached. One answer may be older than another, so its group must not list it for a
    while, either."""
    if ended is not None:
        return Running(f"group {group.name} is terminating {machine}, which is {state}")
    detached = ask.lacks(where, machine.id, machine.id not in group.ids)
    if machine.id in group.ids:
        return Unseen(
            f"{machine} is {state}, and group {group.name} still lists it: AWS's answers differ, asking again"
        )
    if not detached:
        return Unseen(f"{machine} is {state}, and group {group.name} does not list it any more: {AGAIN}")
    return Failed(f"{machine} was detached from group {group.name} and is still {state}")


def _in_its_place(
    machine: Machine,
    reference: Reference,
    group: Group,
    history: tuple[Activity, ...],
    ended: Activity | None,
) -> Poll:
    newcomers = oldest_first(group.newcomers(reference.data.get(KEY), machine.id), history)
    wanted = int(reference.data.get("desired", group.desired))
    complete = not group.countable or group.serving >= enough(wanted, group.desired)
    # Somebody else began it, and its successor may have been counted already: fewer is what its end made it.
    counted = not reference.data.get("adopted") or (ended is not None and ended.shrinks)
    had = int(reference.data.get("had", wanted)) if counted else wanted
    fewer = group.countable and group.desired < max(wanted, had)
    if group.countable and complete and counted:  # with weights, one may take the place of two
        fewer |= group.many_with() < int(reference.data.get("count", 0))
    if newcomers:
        found = f"{machine} is gone from group {group.name}; new in service there: {', '.join(newcomers)}"
        serving = group.serving + group.to_be_ended(reference.data.get(KEY))
        return Done(found, newcomers, complete or serving >= enough(wanted, group.desired), fewer)
    gone = f"{machine} is gone"
    if group.desired < wanted:
        wants = f"{gone}, and group {group.name} wants {group.desired} now instead of {wanted}"
        return Done(wants, fewer=True) if fewer and complete else Running(wants)
    if fewer and complete:
        return Done(f"{gone}, and group {group.name} has the {group.desired} that it wants", fewer=True)
    if obstacle := group.obstacle():
        return Running(f"{gone}, but {obstacle}")
    failure = launch_trouble(history, ended.start if ended else _begun(reference))
    if trouble := _not_launched(group.name, failure):
        return Running(f"{gone}, but {trouble}")
    if group.countable and complete and not counted:
        has_all = f"{gone}, and group {group.name} has the {group.desired} that it wants"
        return Running(f"{has_all}: whether one of them took its place is not known")
    known = reference.data.get(KEY)
    soon = any(m.starting and not has(known, m.id) for m in group.members)
    return Running(f"{gone}, and group {group.name} has no new instance in service yet", soon)


def enough(wanted: int, now: int) -> int:
    """How many make the group complete: it may have been scaled in, or out, since the replacement began."""
    return min(wanted, now)


def _begun(reference: Reference) -> datetime:
    """When the preflight was, less a minute for clock skew."""
    at = str(reference.data.get("at", ""))
    return datetime.fromisoformat(at) - timedelta(minutes=1) if at else datetime(1970, 1, 1, tzinfo=UTC)
