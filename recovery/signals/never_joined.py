"""Machines of a group that never became a Node. Pure.

The cloud calls such a machine in service, so its group launches no other; the cluster has never heard of it,
so no condition shows it. What is told of it is the answer of two lists, the cloud's and the API server's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from recovery.model import (
    Claim,
    GroupMembers,
    Intent,
    Machine,
    Member,
    NodeView,
    Problem,
    Reading,
    Record,
)

SOURCE, TYPE, REASON = "kubelet", "NeverJoined", "NotRegistered"
AFTER = timedelta(minutes=15)
"""How long a machine may take to become a Node, where the rule does not say. Karpenter gives it as long."""
PREFIX = "never-joined."
"""The prefix of their records' names. No Node may have such a name, and a machine that joins late has its
own."""
LONGEST = 200
FRESH_FOR = timedelta(minutes=3)


def is_name(node: str) -> bool:
    """Whether this is the name of a machine's record, and not a Node's."""
    return node.startswith(PREFIX)


def name_of(member: Member) -> str:
    """The name of its record: as people know the machine, and what tells it from all others."""
    shown = (member.name, member.machine.id[:8]) if member.name else (member.machine.id,)
    parts = (re.sub(r"[^a-z0-9]+", "-", part.lower()).strip("-") for part in shown)
    return (PREFIX + ".".join(filter(None, parts)))[:LONGEST].rstrip("-.")


@dataclass(frozen=True, slots=True)
class Unjoined:
    """A machine that never became a Node."""

    name: str
    machine: Machine
    group: str
    since: datetime
    said: str

    @property
    def node(self) -> NodeView:
        """What stands for the Node that it has not: nothing but its machine."""
        m = self.machine
        return NodeView(
            self.name, "", "", m.provider_id, system_uuid=m.id, created=self.since, registered=False
        )


@dataclass(frozen=True, slots=True)
class Word:
    """What is known of a machine ``at`` a moment. ``ended``: how it is one no more. ``why``: not known."""

    at: datetime
    found: Unjoined | None = None
    ended: str = ""
    why: str = ""


# ---------------------------------------------------------------- whose machines are Nodes


class Nodes:
    """The machines of all Nodes of the cluster, by whatever names a cloud and a Node may give them."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._ready: set[str] = set()
        self._went: dict[str, datetime] = {}
        self.unclear = ""
        """A Node of which nobody can say which machine it is."""

    def add(self, node: NodeView, machine: Machine | None) -> None:
        keys = _keys(node.provider_id, machine)
        if not node.provider_id:
            self.unclear = self.unclear or node.name
        for key in keys:
            self._names[key] = node.name
            if node.ready:
                self._ready.add(key)

    def add_gone(self, node: NodeView, machine: Machine | None, at: datetime) -> None:
        """``node`` was one, and is gone since ``at``."""
        self._went |= dict.fromkeys(_keys(node.provider_id, machine), at)

    def gone_since(self, machine: Machine) -> datetime | None:
        """Since when the Node is gone that ``machine`` was, where that is known."""
        return max(
            (self._went[k] for k in _keys(machine.provider_id, machine) if k in self._went), default=None
        )

    def of(self, machine: Machine) -> str:
        """The Node that ``machine`` has become; empty where there is none."""
        return next((self._names[k] for k in _keys(machine.provider_id, machine) if k in self._names), "")

    def ready(self, machine: Machine) -> bool:
        return any(key in self._ready for key in _keys(machine.provider_id, machine))


def _keys(provider_id: str, machine: Machine | None) -> list[str]:
    ids = [provider_id.lower(), f"{machine.provider} {machine.id}" if machine is not None else ""]
    return [key for key in ids if key]


# ---------------------------------------------------------------- who is one


@dataclass(frozen=True, slots=True)
class Spared:
    """What open records wait for: a machine that takes another's place is theirs."""

    machines: frozenset[str] = frozenset()
    since: Mapping[str, datetime] = field(default_factory=dict)  # group, "" any -> when one was asked for

    def holds(self, member: Member, group: str) -> bool:
        begun = [at for key, at in self.since.items() if key in ("", group)]
        late = member.launched is not None and any(member.launched >= at for at in begun)
        return member.machine.id in self.machines or late


def spared(records: Iterable[Record], claims: Iterable[Claim]) -> Spared:
    """By the open ones of these records, and the gate's ``claims`` of replacements for their machines."""
    machines, since = set[str](), dict[str, datetime]()
    claims = tuple(claims)
    for r in (r for r in records if r.phase.open):
        machines |= {r.replacement_machine, *(c.machine for c in claims if c.instead_of == r.machine.id)}
        if r.intent is not None and r.being_replaced:
            group = _group_of(r, r.intent)
            since[group] = min(since.get(group, r.intent.at), r.intent.at)
    return Spared(frozenset(machines - {""}), since)


def _group_of(r: Record, intent: Intent) -> str:
    return next((s.group for s in reversed(r.starts) if s.machine == intent.machine), "") or r.machine.group


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be said of a group. ``alone``: it has no Ready Node, so it may be another cluster's."""

    group: str
    found: tuple[Unjoined, ...] = ()
    alone: bool = False


def overdue(group: GroupMembers, nodes: Nodes, after: timedelta, waited_for: Spared) -> list[Member]:
    """Its machines that are in service, were launched ``after`` ago or earlier by the cloud's own clock, and
    are no Node: of none of the whole cluster. One whose Node somebody has deleted may take as long to come
    back."""
    return [
        m
        for m in group.members
        if m.in_service
        and m.launched is not None
        and group.at - _no_node_since(m, m.launched, nodes) >= after
        and not nodes.of(m.machine)
        and not waited_for.holds(m, group.group)
    ]


def _no_node_since(m: Member, launched: datetime, nodes: Nodes) -> datetime:
    return max(launched, nodes.gone_since(m.machine) or launched)


def judged(group: GroupMembers, nodes: Nodes, after: timedelta, waited_for: Spared) -> Verdict:
    late = overdue(group, nodes, after, waited_for)
    total = sum(m.in_service for m in group.members)
    alone = not any(nodes.ready(m.machine) for m in group.members)
    many = ""
    if 2 * len(late) > total:
        many = (
            f"; that is so of {len(late)} of the group's {total} machines: look at what they have in common "
            "(image, user data, network, rights to join), not at one of them"
        )
    return Verdict(group.group, tuple(_unjoined(m, group.group, nodes, many) for m in late), alone)


def _unjoined(m: Member, group: str, nodes: Nodes, many: str) -> Unjoined:
    assert m.launched is not None  # it is overdue
    known = f"{m.name} ({m.machine.id})" if m.name else m.machine.id
    said = (
        f"{known} of group {group} was launched at {m.launched:%Y-%m-%d %H:%M:%SZ}, is {m.state}, and no "
        f"Node of the cluster is this machine{many}"
    )
    return Unjoined(name_of(m), m.machine, group, _no_node_since(m, m.launched, nodes), said)


def how_it_ended(machine: Machine, groups: Iterable[GroupMembers], nodes: Nodes, waited_for: Spared) -> str:
    """Why ``machine`` is none of them any more; empty where it is, or nobody can say."""
    if name := nodes.of(machine):
        return f"it joined as {name}"
    unknown = False
    for group in groups:
        unknown = unknown or bool(group.unknown)
        for m in group.members:
            if (m.machine.provider, m.machine.id) != (machine.provider, machine.id):
                continue
            if not m.in_service:
                return f"it is {m.state} in group {group.group}"
            if waited_for.holds(m, group.group):
                return "a recovery under way looks after it: it takes another machine's place"
            return ""
    return "" if unknown else "it is in none of the groups any more"


# ---------------------------------------------------------------- the source


class NeverJoinedSource:
    """What is known of one machine, as a source of its record."""

    name = SOURCE

    def __init__(self, node: str, look: Callable[[str], Word]) -> None:
        self._node = node
        self._look = look

    def poll(self, boot_id: str, within: float | None = None) -> Reading:
        """What is known now. The cloud is not asked for it."""
        word = self._look(self._node)
        listed = frozenset({(TYPE, REASON), (TYPE, "")})
        if word.found is not None and not word.why:
            u = word.found
            problem = Problem(SOURCE, TYPE, REASON, u.said, u.since, word.at + FRESH_FOR)
            return Reading(SOURCE, word.at, (problem,), listed=listed)
        if word.ended and not word.why:
            cleared = frozenset({(TYPE, "*")})
            return Reading(SOURCE, word.at, cleared=cleared, listed=listed, ended={TYPE: word.ended})
        return Reading(SOURCE, word.at, silent={TYPE: word.why}, listed=listed)
