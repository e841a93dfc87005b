"""A provider with machines in memory, for stories. It passes the provider kit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from recovery.errors import Ambiguous, Refused, Retry
from recovery.model import (
    Done,
    GroupMembers,
    Machine,
    Member,
    NodeView,
    NotApplied,
    Poll,
    Preflight,
    Reference,
    Rung,
    Running,
    Step,
    Unfinished,
)
from recovery.provider.known import KEY, has, pack
from recovery.provider.protocol import Started

PATTERN = re.compile(r"fake:///(?P<group>[a-z0-9-]+)/(?P<id>m-[0-9a-z]+)")


def enough(wanted: int, now: int) -> int:
    """How many make a group complete that wanted ``wanted`` when the replacement began."""
    return min(wanted, now)


def may_be_removed(group: FakeGroup) -> str:
    """Why a new machine of the group's may be removed again; empty where it stays."""
    return f"group {group.name} may remove a new machine again" if group.provisional else ""


@dataclass
class FakeGroup:
    """A group of machines: which are in service, and how many there should be.

    ``shrinks``: deleting a machine lowers ``desired``, as in a scale set, until it is raised again. ``slow``:
    a number that it was told shows only once ``settle`` is called; until then it is ``pending``.
    ``provisional``: machines of which some may be removed again, as in a scale set that overprovisions.
    ``cannot_launch``: why it could not launch one. ``launches_first``: it ends none before that.
    ``launched``: when each machine was; ``states``: of those that are not in service, why; ``unlisted``: why
    it cannot be listed.
    """

    name: str
    desired: int
    in_service: list[str] = field(default_factory=list)
    unhealthy: set[str] = field(default_factory=set)
    shrinks: bool = False
    slow: bool = False
    pending: int | None = None
    provisional: set[str] = field(default_factory=set)
    cannot_launch: str = ""
    launches_first: bool = False
    launched: dict[str, datetime] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    unlisted: str = ""


class FakeProvider:
    """``replace`` and ``reboot`` of machines in memory. ``calls`` lists every mutating call, accepted or not.

    ``taken_back`` lists the machines whose mark was taken off. ``reads`` lists every preflight and poll.
    ``before_call`` and ``after_call`` run right before and after a call is accepted: to kill the agent, to
    stop it, or to lose the answer. ``refusing`` maps a step to the error that it raises.
    """

    name = "fake"
    actions = frozenset({Step.REPLACE, Step.REBOOT})
    permissions: Mapping[str, frozenset[str]] = {
        "preflight": frozenset(),
        "poll": frozenset(),
        "replace": frozenset({"fake:Replace"}),
        "reboot": frozenset({"fake:Reboot"}),
    }
    default_remedy: tuple[Rung, ...] = (
        Rung(Step.DRAIN, timedelta(minutes=15)),
        Rung(Step.REPLACE, timedelta(minutes=30)),
    )
    call_timeout = 8.0

    def __init__(self) -> None:
        self.groups: dict[str, FakeGroup] = {}
        self.calls: list[tuple[Step, str, str]] = []
        self.rebooting: set[str] = set()
        self.finished: list[str] = []
        self.finish_error: Retry | Refused | None = None
        self.taken_back: list[str] = []
        self.take_back_error: Retry | Refused | None = None
        self.reads: list[tuple[str, str]] = []
        self.before_call: Callable[[], None] = lambda: None
        self.after_call: Callable[[], None] = lambda: None
        self.preflight_error: Retry | Refused | None = None
        self.start_error: Retry | Refused | Ambiguous | None = None
        self.members_error: Retry | Refused | None = None
        self.most_strangers = 10_000  # of whom it can be asked when they were launched; as AWS
        self.now: Callable[[], datetime] = lambda: datetime.now(UTC)
        self._asked_of: set[str] = set()

    # ------------------------------------------------------------ the protocol

    def identify(self, node: NodeView) -> Machine:
        found = PATTERN.fullmatch(node.provider_id)
        if found is None:
            raise Refused(f"{node.name} has the providerID {node.provider_id!r}, expected fake:///GROUP/m-ID")
        return Machine(self.name, found["id"], node.provider_id, found["group"])

    def preflight(self, machine: Machine, action: Step) -> Preflight:
        self.reads.append(("preflight", machine.id))
        if action not in self.actions:
            raise Refused(f"fake cannot {action.value} a machine")
        if self.preflight_error is not None:
            raise self.preflight_error
        group = self._group(machine)
        marked = action is Step.REPLACE and machine.id in group.unhealthy
        adopt = f"{machine.id} is unhealthy already" if marked else ""
        known = pack(group.in_service)
        data = {"group": group.name, KEY: known, "desired": group.desired, "machine": machine.id}
        data["had"] = len(group.in_service)
        short = group.desired - len(group.in_service)
        reference = Reference(self.name, action.value, data)
        found = Preflight(reference, group.name, max(0, short), adopt, alone=group.shrinks)
        if action is not Step.REPLACE or not group.cannot_launch:
            return found
        return replace(found, cannot_launch=group.cannot_launch, loses_one=not group.launches_first)

    def start(self, machine: Machine, action: Step, token: str, reference: Reference) -> Started:
        if action not in self.actions:
            raise Refused(f"fake cannot {action.value} a machine")
        self.before_call()
        self.calls.append((action, machine.id, token))
        if isinstance(self.start_error, Retry | Refused):
            raise self.start_error
        if action is Step.REPLACE:
            self._group(machine).unhealthy.add(machine.id)
        else:
            self.rebooting.add(machine.id)
        self.after_call()
        if self.start_error is not None:
            raise self.start_error
        return None

    def poll(self, machine: Machine, reference: Reference) -> Poll:
        self.reads.append(("poll", machine.id))
        if reference.action == Step.REBOOT.value:
            return Running(f"{machine.id} was asked to reboot")
        group = self.groups[reference.data["group"]]
        if machine.id in group.in_service:
            if machine.id in group.unhealthy:
                return Running(f"{machine.id} is being taken out of group {group.name}")
            return NotApplied(f"{machine.id} is healthy and in service in group {group.name}")
        if group.shrinks and group.desired < reference.data["desired"]:
            return Unfinished(f"{machine.id} is gone, and group {group.name} wants {group.desired}")
        if more := may_be_removed(group):
            return Running(f"{machine.id} is gone; {more}")
        new = tuple(m for m in group.in_service if not has(reference.data[KEY], m))
        complete = len(group.in_service) >= enough(reference.data["desired"], group.desired)
        fewer = group.desired < max(reference.data["desired"], reference.data.get("had", 0))
        if not new and not (fewer and complete):
            return Running(f"{machine.id} is gone, and group {group.name} has not launched another")
        return Done(f"{machine.id} is gone from group {group.name}", new, complete, fewer)

    def gone(self, machine: Machine) -> str | None:
        if any(machine.id in group.in_service for group in self.groups.values()):
            return None
        return f"{machine.id} is in no group any more"

    def members(self, machines: Sequence[Machine]) -> Iterator[GroupMembers]:
        self.reads.append(("members", str(len(machines))))
        if self.members_error is not None:
            raise self.members_error
        self._asked_of |= {m.group for m in machines}
        known, names = {m.id for m in machines}, sorted(self._asked_of & self.groups.keys())
        if sum(m not in known for name in names for m in self.groups[name].in_service) > self.most_strangers:
            raise Retry("the groups have too many machines that are no Nodes")
        for name in names:
            yield self._members_of(self.groups[name], known)

    def _members_of(self, group: FakeGroup, known: set[str]) -> GroupMembers:
        """As AWS: of those that are ``known`` nobody asks when they were launched."""
        if group.unlisted:
            return GroupMembers(group.name, self.now(), unknown=group.unlisted)
        found = (
            Member(
                Machine(self.name, m, f"fake:///{group.name}/{m}", group.name),
                m not in group.states,
                group.states.get(m, "in service"),
                group.launched.get(m) if m not in known else None,
            )
            for m in group.in_service
        )
        return GroupMembers(group.name, self.now(), tuple(found))

    def finish(self, machine: Machine, reference: Reference) -> None:
        if self.finish_error is not None:
            raise self.finish_error
        self.finished.append(machine.id)
        group = self.groups[reference.data["group"]]
        wanted = max(group.desired, reference.data["desired"])
        if group.slow:
            group.pending = wanted
        else:
            group.desired = wanted

    def take_back(self, machine: Machine, reference: Reference) -> str:
        """An unhealthy mark can be taken off; a reboot that was accepted comes some time, or never."""
        if self.take_back_error is not None:
            raise self.take_back_error
        if reference.action == Step.REBOOT.value:
            if machine.id in self.rebooting:
                raise Refused(f"a reboot of {machine.id} was accepted: reboot it, and release it then")
            return f"no reboot of {machine.id} is under way"
        group = self.groups[machine.group]
        if machine.id not in group.in_service:
            return f"{machine.id} is not in group {group.name}"
        if machine.id in group.unhealthy:
            self.taken_back.append(machine.id)
            group.unhealthy.discard(machine.id)
        return f"{machine.id} is healthy and in service in group {group.name}"

    # ------------------------------------------------------------ what a cloud does by itself

    def _group(self, machine: Machine) -> FakeGroup:
        group = self.groups.get(machine.group)
        if group is None or machine.id not in group.in_service:
            raise Refused(f"{machine.id} is not in a group")
        return group

    def terminate(self, group: str, machine: str) -> None:
        found = self.groups[group]
        found.in_service.remove(machine)
        if found.shrinks:
            found.desired -= 1

    def settle(self, group: str) -> None:
        """A group that is slow wants now what it was told, and one that made too many has removed some."""
        found = self.groups[group]
        found.desired, found.pending = found.pending or found.desired, None
        found.provisional.clear()

    def launch(self, group: str, machine: str) -> None:
        self.groups[group].in_service.append(machine)
