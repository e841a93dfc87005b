"""The safety questions, in the order a careful person asks them. PURE.

Each takes the situation and returns None, or the reason why not. The first reason given wins and is the
sentence people read. Pause, exclusion and brake stop every destructive step that is not yet
submitted; they never stop observing, proving, uncordoning or cleaning up (law 8).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from datetime import timedelta
from fnmatch import fnmatchcase

from recovery.decide.budget import ahead_of, in_use, lineage, replacement_of, scopes_of, starts_within
from recovery.decide.hardware import hardware
from recovery.decide.situation import Situation, hour, span
from recovery.model import EXCLUDE, Gate, GroupStart, Share

Question = Callable[[Situation], str | None]

MOST_SLOTS = 50
"""More slots than this and sidecars spend their time on conflicts: 300 of them wrote 15,307 times in
vain, and took 142 s, until each had one of 300 slots."""
MOST_SKEW = timedelta(seconds=30)
TURN, STAGGER = timedelta(seconds=3), timedelta(milliseconds=250)
"""How long the one at the head of the queue has to take a free slot, and each behind it to follow.

Each looks again when it may be the first: asked by all at once, the gate would be written in vain.
"""
CONCURRENT_STARTS = 2
"""So many from the head of the queue do not wait for each other where there is room for them all. With fifty
in the queue, more than these lose so many races for the gate that it takes longer."""
MOST_TOLD = 5
"""Starts that a sentence names."""


def off(s: Situation) -> str | None:
    """The one place that decides what ENABLE_RECOVERY=false means (law 7)."""
    return None if s.on else "recovery is off (ENABLE_RECOVERY=false)"


def excluded(s: Situation) -> str | None:
    labels = s.node.labels if s.node else {}
    if labels.get(EXCLUDE) == "true":
        return f"the node is excluded by its label {EXCLUDE}=true"
    for wanted in s.policy.exclude:
        if all(k in labels and fnmatchcase(labels[k], v) for k, v in wanted.items()):
            wanted_labels = ",".join(f"{k}={v}" for k, v in wanted.items())
            return f"the policy excludes nodes with {wanted_labels}"
    return None


def foreign_claim(s: Situation) -> str | None:
    return s.forbidden or None


def paused(s: Situation) -> str | None:
    if s.gate_problem:
        return f"the gate cannot be used: {s.gate_problem}"
    pause = s.gate.pause if s.gate else None
    if pause is None or not pause.in_force(s.now):
        return None
    end = f"until {pause.until:%Y-%m-%d %H:%M:%SZ}" if pause.until else "without an end"
    return f"{pause.owner} paused all recoveries {end}: {pause.reason}"


def skewed(s: Situation) -> str | None:
    if s.skew <= MOST_SKEW:
        return None
    most = span(MOST_SKEW)
    return f"this machine's clock is {span(s.skew)} off the API server's; more than {most} starts nothing"


def attempts_used(s: Situation) -> str | None:
    """Not a reason to wait: the reason to hand over."""
    limit = s.policy.limits.attempts
    starts = _attempts(s)
    if len(starts) < limit.max:
        return None
    machines = sorted({x.machine for x in starts})
    whom = "it" if len(machines) == 1 else f"it and its predecessors ({', '.join(machines)})"
    latest = sorted(starts, key=lambda x: x.at)[-MOST_TOLD:]
    past = ", ".join(f"{x.reason} at {x.at:%Y-%m-%d %H:%MZ}" for x in latest)
    return f"{len(starts)} recoveries of {whom} within {span(limit.within)} have not helped: {past}"


def _attempts(s: Situation) -> list[GroupStart]:
    """Starts on this machine, by its ID or by its hardware, and on those it replaced for the same reasons."""
    if s.record is None or s.gate is None:
        return []
    machine = s.record.machine.id
    reasons = {f.reason for f in s.record.faults}
    before = set(lineage(s.gate, machine)[1:])
    serials = set(hardware(s.node))
    recent = starts_within(s.gate, s.now, s.policy.limits.attempts.within)
    return [
        x
        for x in recent
        if x.machine == machine
        or not serials.isdisjoint(x.hardware)
        or (x.machine in before and x.reason in reasons)
    ]


def group_worn(s: Situation) -> str | None:
    limit = s.policy.limits.per_group
    group = _group(s)
    if not group or s.gate is None:
        return None
    starts = [x for x in starts_within(s.gate, s.now, limit.within) if x.group == group]
    if len(starts) < limit.max:
        return None
    again = hour(min(x.at for x in starts) + limit.within)
    window = span(limit.within)
    return f"{len(starts)} recoveries were started in group {group} within {window}; next after {again}"


def _group(s: Situation) -> str:
    return s.preflight.group if s.preflight else (s.record.machine.group if s.record else "")


def _last_start(gate: Gate, node: str) -> GroupStart | None:
    return next((x for x in reversed(gate.starts) if x.node == node), None)


def pending_replacement(s: Situation) -> str | None:
    """A newcomer may be what a recovery of its group waits for: replaced now, it would leave that in vain.

    Once it is claimed, it takes over its predecessor's place and attempts.
    """
    if s.gate is None or s.node is None or s.node.created is None or s.record is None:
        return None
    group, machine = _group(s), s.record.machine.id
    if not group or any(c.machine == machine for c in s.gate.claimed):
        return None
    for slot in s.gate.slots:
        start = _last_start(s.gate, slot.node)
        if start is None or start.group != group or start.machine == machine or start.at > s.node.created:
            continue
        if not replacement_of(s.gate, start.machine):
            return f"it may be what {start.machine} of {slot.node} is being replaced with: that ends first"
    return None


def budget(s: Situation) -> str | None:
    if s.gate is None:
        return "the gate has not been read"
    for scope, allowed, taken in _budgets(s, s.gate):
        if allowed is None:
            continue  # a percentage of what has not been counted yet; the brake waits for the count
        if taken >= allowed:
            where = "the fleet" if scope == "fleet" else scope
            out = ", ".join(x.node for x in s.gate.slots if scope in x.scopes) or "none"
            return f"the budget of {where} is used up: {taken} of {allowed} may be out ({out})"
    return None


def _budgets(s: Situation, gate: Gate) -> Iterable[tuple[str, int | None, int]]:
    """Of each scope that the node is in: how many nodes may be out, where that is known, and how many are."""
    labels = s.node.labels if s.node else {}
    for scope in scopes_of(labels, s.policy.limits.budget_per):
        share = s.policy.limits.budget if scope == "fleet" else s.policy.limits.budget_per[_key(scope)]
        yield scope, budget_allows(share, _population(s, scope)), in_use(gate, scope)


def budget_allows(share: Share, population: int | None) -> int | None:
    """How many nodes may be out: percentages round down, at least 1; an explicit 0 means none."""
    if share.count is not None:
        return min(share.count, MOST_SLOTS)
    percent = share.percent or 0.0
    if percent == 0:
        return 0
    if population is None:
        return None
    return min(max(1, math.floor(_part(percent, population))), MOST_SLOTS)


def _part(percent: float, population: int) -> float:
    """``percent`` of ``population``, without what binary fractions add: 1.1% of 3000 is 33."""
    return round(percent * population / 100, 6)


def _population(s: Situation, scope: str) -> int | None:
    if s.census is None:
        return None
    return s.census.population if scope == "fleet" else s.census.by_label.get(scope, (0, 0))[1]


def _key(scope: str) -> str:
    return scope.split("=", 1)[0]


def cooldown(s: Situation) -> str | None:
    if s.gate is None or s.gate.last_start is None:
        return None
    began = min(s.gate.last_start, s.now)
    left = began + s.policy.limits.cooldown - s.now
    if left <= timedelta(0):
        return None
    return f"the last recovery started at {hour(began)}; the next may start in {span(left)} (cooldown)"


def brake(s: Situation) -> str | None:
    """More sick than allowed, in the fleet or among the nodes like this one (law 10)."""
    if s.census is None:
        return "nothing is known yet of how many nodes are sick"
    for scope, share, sick, population in _brake_scopes(s):
        if population == 0:
            return f"nothing is known of how many nodes with {scope} are sick"
        allowed = brake_allows(share, population)
        if sick > allowed:
            where = "in the fleet" if scope == "fleet" else f"with {scope}"
            return (
                f"the brake is on: {sick} of {population} nodes {where} are sick or unknown, "
                f"more than {share} ({allowed})"
            )
    return None


def _brake_scopes(s: Situation) -> Iterable[tuple[str, Share, int, int]]:
    assert s.census is not None
    limits = s.policy.limits
    yield "fleet", limits.brake, len(s.census.sick), s.census.population
    labels = s.node.labels if s.node else {}
    for key, share in sorted(limits.brake_per.items()):
        if key in labels:
            scope = f"{key}={labels[key]}"
            sick, population = s.census.by_label.get(scope, (0, 0))
            yield scope, share, sick, population


def brake_allows(share: Share, population: int) -> int:
    """How many may be sick: percentages round up, at least 1."""
    if share.count is not None:
        return share.count
    return max(1, math.ceil(_part(share.percent or 0.0, population)))


def group_short(s: Situation) -> str | None:
    if s.preflight is None or s.preflight.short_by <= 0 or s.preflight.adopt:
        return None
    return f"group {s.preflight.group} is short by {s.preflight.short_by}"


def not_alone(s: Situation) -> str | None:
    """Another machine of the group is out, and what this one's replacement would go by counts for one only.

    Who has the older place goes first, so that two never wait for each other.
    """
    if s.preflight is None or not s.preflight.alone or s.preflight.adopt or s.gate is None:
        return None
    mine = next((x for x in s.gate.slots if x.node == s.node_name), None)
    for slot in s.gate.slots:
        if slot.node == s.node_name or (
            mine is not None and (mine.since, mine.node) < (slot.since, slot.node)
        ):
            continue
        start = _last_start(s.gate, slot.node)
        if start is not None and start.group == s.preflight.group:
            return f"{slot.node} of group {start.group} is out, which replaces one machine at a time"
    return None


def turn(s: Situation) -> str | None:
    """Slots are taken in the order of the queue, where it matters. Who is ahead and does not move is passed:
    its agent is dead."""
    if s.gate is None or s.record is None:
        return None
    ahead = ahead_of(s.gate, s.record.uid)
    if not ahead or s.turn_waited >= TURN + STAGGER * len(ahead):
        return None
    if len(ahead) < CONCURRENT_STARTS and _room_for_all(s, s.gate, len(ahead) + 1):
        return None
    return f"{ahead[0]} is ahead in the queue"


def _room_for_all(s: Situation, gate: Gate, nodes: int) -> bool:
    """Whether nobody has to wait for a slot because another of these ``nodes`` takes one."""
    if s.policy.limits.cooldown:
        return False
    return all(allowed is not None and taken + nodes <= allowed for _, allowed, taken in _budgets(s, gate))


FORBIDDEN: tuple[tuple[str, Question], ...] = (
    ("off", off),
    ("excluded", excluded),
    ("claimed", foreign_claim),
    ("paused", paused),
)
"""Asked before anything else is said of a node: somebody has said hands off."""

UNASKED: tuple[tuple[str, Question], ...] = (
    *FORBIDDEN,
    ("skewed", skewed),
    ("budget", budget),
    ("cooldown", cooldown),
)
"""Answered by what is read anyway: while one of these holds, the cloud is not asked for anything."""

CHEAP: tuple[tuple[str, Question], ...] = (
    *FORBIDDEN,
    ("skewed", skewed),
    ("group-worn", group_worn),
    ("heir", pending_replacement),
    ("budget", budget),
    ("cooldown", cooldown),
)
"""Asked before a start, in this order, and answered without counting the fleet."""

BY_GROUP: tuple[tuple[str, Question], ...] = (("group-short", group_short), ("not-alone", not_alone))
"""Asked before a start, and again before a machine is replaced."""

STARTING: tuple[tuple[str, Question], ...] = (*CHEAP, ("brake", brake), *BY_GROUP)
"""All questions before a start. (``attempts_used`` and ``turn`` are asked apart.)"""

GOING_ON: tuple[tuple[str, Question], ...] = (*FORBIDDEN, ("brake", brake))
"""Asked before every destructive step of a recovery that is under way."""


def first_reason(questions: Iterable[tuple[str, Question]], s: Situation) -> tuple[str, str] | None:
    """The first (key, reason) given, or None."""
    for key, question in questions:
        reason = question(s)
        if reason is not None:
            return key, reason
    return None
