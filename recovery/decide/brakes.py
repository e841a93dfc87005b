"""What speaks against a destructive step now? PURE.

Each question takes the situation and returns None, or the reason why not. They are asked in order, and the
first reason is the sentence that people read. Pause, exclusion and brake stop every destructive step that is
not yet submitted. They never stop observing, proving, uncordoning or cleaning up (law 8).
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from recovery.decide.boot import boot_unknown
from recovery.decide.budget import (
    PLACED,
    ahead_of,
    labels_counted,
    lineage,
    out_by,
    out_in,
    replacement_of,
    starts_within,
    union,
)
from recovery.decide.correlated import approved
from recovery.decide.diagnosis import diagnosed, rule_of, was_treated
from recovery.decide.hardware import hardware
from recovery.decide.reboot_first import reboots_first
from recovery.decide.selector import excluded_by_label, identity, selects
from recovery.decide.situation import ABOUT_NOW, MOST_SLOTS, Situation
from recovery.decide.windows import blocked, outside, stopped_by_blocker, stopped_outside
from recovery.model import Census, Gate, GroupStart, Phase, Share, Slot, Step, share_for
from recovery.units import hour, span

Question = Callable[[Situation], str | None]

MOST_SKEW = timedelta(seconds=30)
ALL_ARE_BACK = timedelta(seconds=45)
"""After an outage of the API server every agent has asked again by then: none waits longer than 30 s."""
TURN, STAGGER = timedelta(seconds=3), timedelta(milliseconds=250)
"""TURN: how long the head of the queue has to take a free slot. STAGGER: how much later each one behind.

Each looks again when its own turn may have come. If all tried at once, nearly all writes of the gate would
fail on a conflict.
"""
OFF = "recovery is off (ENABLE_RECOVERY=false)"
OF_RULE = "rule "
"""How the scope of a rule's own budget begins. No label has a blank in its key."""
OUTSIDE = "outside limits.population"
MOST_NAMED = 5
"""How many earlier starts a sentence names."""
MARKS = frozenset({Step.NOTIFY, Step.CORDON, Step.TAINT})
"""Steps that touch no pod and no machine."""
AT_ONCE = 40
"""While fewer nodes are out, one that is only marked needs no queue. The gate has room for some 70."""


def off(s: Situation) -> str | None:
    """With ENABLE_RECOVERY=false nothing is written but Events, metrics and the RecoveryReport (law 7)."""
    return None if s.on else OFF


def just_back(s: Situation) -> str | None:
    """The API server was away, and is back. Meanwhile no agent could write that its node is sick or unknown.
    Nothing starts before all of them could, since that counts for the brake (law 10)."""
    if s.back_for is None or s.back_for >= ALL_ARE_BACK:
        return None
    left = span(ALL_ARE_BACK - s.back_for)
    return f"the API server was away: waiting another {left} for what other agents report"


def excluded(s: Situation) -> str | None:
    labels = s.node.labels if s.node else {}
    if s.outside:
        return "the node is none of FLEET_SELECTOR any more"
    if label := excluded_by_label(labels):
        return f"the node is excluded by its label {label}"
    for wanted in s.policy.exclude:
        if selects(wanted, labels):
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
    return f"this machine's clock is {span(s.skew)} off the API server's; nothing is started above {most}"


def attempts_used(s: Situation) -> str | None:
    """Why this node is handed over to a person: recoveries of its machine have not helped. Waiting would not
    either, so it is none of ``STARTING``."""
    limit = s.policy.limits.attempts
    starts = _attempts(s)
    if len(starts) < limit.max:
        return None
    machines = sorted({x.machine for x in starts})
    whom = "it" if len(machines) == 1 else f"it and its predecessors ({', '.join(machines)})"
    latest = sorted(starts, key=lambda x: x.at)[-MOST_NAMED:]
    past = ", ".join(f"{x.reason} at {x.at:%Y-%m-%d %H:%MZ}" for x in latest)
    return f"{len(starts)} recoveries of {whom} within {span(limit.within)} have not helped: {past}"


def starts_known(s: Situation) -> tuple[GroupStart, ...]:
    """All starts that limits count: those on the records, and those that only the gate has yet.

    The gate keeps the latest ones, but a slot says of its own node when and in which group it was taken.
    """
    if s.gate is None:
        return s.starts
    known = union(s.gate.starts, s.starts)
    machines = {x.machine for x in known}
    slots = [x for x in s.gate.slots if x.machine and x.machine not in machines]
    more = (GroupStart(x.since, x.node, x.group, x.machine, "") for x in slots)
    return union(more, known) if slots else known


def _attempts(s: Situation) -> list[GroupStart]:
    """The starts on this machine, by its ID or its hardware serials. Those on the machines that it replaced
    count too, where the fault was the same."""
    if s.record is None or s.gate is None:
        return []
    machine = s.record.machine.id
    reasons = {f.reason for f in s.record.faults}
    starts = starts_known(s)
    before = set(lineage(s.gate, machine, starts)[1:])
    serials = set(hardware(s.node))
    ours = (
        x
        for x in starts
        if x.machine == machine
        or (x.hardware and not serials.isdisjoint(x.hardware))
        or (x.machine in before and x.reason in reasons)
    )
    return starts_within(ours, s.now, s.policy.limits.attempts.within)


def group_worn(s: Situation) -> str | None:
    limit = s.policy.limits.per_group
    group = _group(s)
    if not group or s.gate is None:
        return None
    of_group = (x for x in starts_known(s) if x.group == group)
    starts = starts_within(of_group, s.now, limit.within)
    if len(starts) < limit.max:
        return None
    again = hour(min(x.at for x in starts) + limit.within, s.now)
    window = span(limit.within)
    return f"{len(starts)} recoveries were started in group {group} within {window}; next after {again}"


def _group(s: Situation) -> str:
    return s.preflight.group if s.preflight else (s.record.machine.group if s.record else "")


def _last_start(gate: Gate, slot: Slot) -> GroupStart | None:
    """The start that ``slot`` was taken for. The slot of an older program has it among the starts only."""
    if slot.machine:
        return GroupStart(slot.since, slot.node, slot.group, slot.machine, "")
    return next((x for x in reversed(gate.starts) if x.node == slot.node), None)


def pending_replacement(s: Situation) -> str | None:
    """A new machine may be the replacement that another recovery of its group waits for.

    If it were replaced now, that recovery would wait for nothing. Once it is claimed, the attempts on the
    machine before it count for it too (``budget.lineage``).
    """
    if s.gate is None or s.node is None or s.node.created is None or s.record is None:
        return None
    group, machine = _group(s), s.record.machine.id
    if not group or any(c.machine == machine for c in s.gate.claimed):
        return None
    for slot in s.gate.slots:
        start = _last_start(s.gate, slot)
        if start is None or start.group != group or start.machine == machine or start.at > s.node.created:
            continue
        if not replacement_of(s.gate, start.machine):
            of = f"{start.machine} of {slot.node}"
            return f"it may be the replacement of {of}: waiting for that recovery to end"
    return None


def budget(s: Situation) -> str | None:
    if s.gate is None:
        return "the gate has not been read"
    for scope, allowed, taken in _budgets(s, s.gate):
        if allowed is None:
            continue  # a percentage of what has not been counted yet; the brake waits for the count
        if taken >= allowed:
            where = "the fleet" if scope == "fleet" else scope
            out = ", ".join(_out(s, s.gate, scope)) or "none"
            return f"the budget of {where} is used up: {taken} of {allowed} may be out ({out})"
    return None


def budget_after_all(s: Situation) -> str | None:
    """``budget``, where no brake waits for the count of the nodes: what is not counted has no place free."""
    if s.gate is not None and any(allowed is None for _, allowed, _ in _budgets(s, s.gate)):
        return "how many nodes may be out is not known before they are counted"
    return budget(s)


def few_out(s: Situation) -> bool:
    """Whether the fleet's budget lets so few nodes be out that the gate has room for their providerIDs."""
    allowed = budget_allows(s.policy.limits.budget, _population(s, "fleet"), s.most_slots)
    return allowed is not None and allowed <= PLACED


def _budgets(s: Situation, gate: Gate) -> Iterable[tuple[str, int | None, int]]:
    """For each budget scope of the node: name, how many nodes may be out (None: unknown), how many are."""
    for scope, share in _budgeted(s):
        yield scope, budget_allows(share, _population(s, scope), s.most_slots), scopes_now(s, gate, scope)


def _budgeted(s: Situation) -> Iterable[tuple[str, Share]]:
    """The budgets that a recovery of this node counts in, by the policy as it is now."""
    labels, limits = labels_counted(s), s.policy.limits
    yield "fleet", limits.budget
    for key, per in sorted(limits.budget_per.items()):
        share = share_for(per, labels[key]) if key in labels else None
        if share is not None:
            yield f"{key}={labels[key]}", share
    rule = rule_of(s, s.record) if s.record else None
    if rule is not None and rule.budget is not None:
        yield f"{OF_RULE}{rule.name}", rule.budget


def scopes_now(s: Situation, gate: Gate, scope: str) -> int:
    """How many slots count in ``scope``: by the policy as it is now, not as it was when they were taken."""
    return len(_out(s, gate, scope))


def _out(s: Situation, gate: Gate, scope: str) -> list[str]:
    """The nodes with a slot that counts in ``scope``."""
    if scope.startswith(OF_RULE):
        return out_by(gate, scope.removeprefix(OF_RULE), (rule.name for rule in s.policy.rules))
    return out_in(gate, scope, s.holder_labels)


def budget_allows(share: Share, population: int | None, most: int = MOST_SLOTS) -> int | None:
    """How many nodes may be out of service. A percentage rounds down, but to 1 at least. 0 means none."""
    if share.count is not None:
        return min(share.count, most)
    percent = share.percent or 0.0
    if percent == 0:
        return 0
    if population is None:
        return None
    return min(max(1, math.floor(_part(percent, population))), most)


def _part(percent: float, population: int) -> float:
    """``percent`` of ``population``, without the error of binary fractions: 1.1% of 3000 is 33."""
    return round(percent * population / 100, 6)


def _population(s: Situation, scope: str) -> int | None:
    census = _census(s)
    if census is None:
        return None
    whole = scope == "fleet" or scope.startswith(OF_RULE)
    return census.population if whole else census.by_label.get(scope, (0, 0))[1]


def _census(s: Situation) -> Census | None:
    """The census, if it is of the nodes that this policy counts."""
    ours = s.census is not None and s.census.of == identity(s.policy.limits.population)
    return s.census if ours else None


def settling(s: Situation, joined: datetime) -> bool:
    """Whether other faults may still show, since the record joined the queue. A clock that was set back would
    have it wait for ever, so what is further ahead of now does not count."""
    settle = settle_time(s)
    if not settle or s.now - joined < -ABOUT_NOW:
        return False
    return s.now - joined < settle or unseen(s, joined)


def unseen(s: Situation, joined: datetime) -> bool:
    """Whether other nodes stated a fault before the settle time was over, and who looks after them has not
    written that down yet: the API server is slow, say, and they are many. They count for the brake, and may
    have one cause with this one."""
    return s.unseen_since is not None and s.unseen_since < joined + settle_time(s)


def settle_time(s: Situation) -> timedelta:
    """How long the record waits in the queue for other faults to show."""
    return timedelta(0) if _marks_alone(s) else s.settle


def needs_no_queue(s: Situation) -> bool:
    """Whether the record may take its slot without a line in the queue, if nothing holds it (0045)."""
    return s.gate is not None and len(s.gate.slots) < AT_ONCE and _marks_alone(s)


def _marks_alone(s: Situation) -> bool:
    """Whether nothing is left to do but to keep new pods off the node, for one who sees all Nodes."""
    return s.afar and s.record is not None and all(x.do in MARKS for x in s.record.ladder[s.record.rung :])


def cooldown(s: Situation) -> str | None:
    if s.gate is None or s.gate.last_start is None:
        return None
    began = min(s.gate.last_start, s.now - s.start_ahead_for)
    left = began + s.policy.limits.cooldown - s.now
    if left <= timedelta(0):
        return None
    return f"the last recovery started at {hour(began, s.now)}; the next may start in {span(left)} (cooldown)"


def brake(s: Situation) -> str | None:
    """More nodes are sick than allowed, in the fleet or among those with the same label (law 10)."""
    census = _census(s)
    if census is None:
        return "nothing is known yet of how many nodes are sick"
    for scope, share, sick, population in _brake_scopes(s, census):
        where = _where(scope, census)
        if population == 0 and scope == "fleet" and census.of:
            return "limits.population selects no node in the cluster: nothing starts until it selects one"
        if population == 0:
            return f"nothing is known of how many nodes {where} are sick"
        allowed = brake_allows(share, population)
        if sick > allowed:
            return (
                f"the brake is on: {sick} of {population} nodes {where} are sick or unknown, "
                f"more than {share} ({allowed})"
            )
    return None


def _where(scope: str, census: Census) -> str:
    """Which nodes the brake of ``scope`` counts, as the end of a sentence."""
    if scope == "fleet":
        return "of limits.population" if census.of else "in the fleet"
    return scope if scope == OUTSIDE else f"with {scope}"


def _brake_scopes(s: Situation, census: Census) -> Iterable[tuple[str, Share, int, int]]:
    """For each brake that holds this node: name, limit, how many are sick, and of how many."""
    limits = s.policy.limits
    yield "fleet", limits.brake, census.how_many, census.population
    labels = labels_counted(s)
    if not selects(limits.population, labels):  # one of very many others that are sick is held, too (law 10)
        yield OUTSIDE, limits.brake, *census.outside
        return
    for key, per in sorted(limits.brake_per.items()):
        share = share_for(per, labels[key]) if key in labels else None
        if share is not None:
            scope = f"{key}={labels[key]}"
            sick, population = census.by_label.get(scope, (0, 0))
            yield scope, share, sick, population


def brake_allows(share: Share, population: int) -> int:
    """How many nodes may be sick. A percentage rounds up, to 1 at least. 0 means none."""
    if share.count is not None:
        return share.count
    percent = share.percent or 0.0
    return max(1, math.ceil(_part(percent, population))) if percent else 0


def correlated(s: Situation) -> str | None:
    """Many machines with this fault share something that most others have not. So they have one cause, and to
    recover them one by one does not repair it (law 10). A fault that is only reported holds nothing: the
    machine may have another fault of its own, and is recovered for that."""
    approvals = s.gate.approved if s.gate is not None else ()
    for reason, what_is_shared in s.correlated.items():
        if _treats(s, reason) and not approved(approvals, reason, s.now):
            return f"{what_is_shared}; node-recovery approve {shlex.quote(reason)} lets it start"
    return None


def _treats(s: Situation, reason: str) -> bool:
    """Whether the record is to be recovered for a fault with this reason, among others maybe."""
    faults = s.record.faults if s.record is not None else ()
    return any(was_treated(diagnosed(f, s)) for f in faults if f.reason == reason)


def no_launch(s: Situation) -> str | None:
    """Were the machine ended now, nothing would take its place. What is left of it is worth more.

    That is no reason not to begin: a broken machine is out of service meanwhile, and gets no new pods.
    """
    found = s.preflight
    if found is None or not found.cannot_launch or not found.loses_one or found.adopt:
        return None
    if s.record is not None and s.record.phase is Phase.WAITING:
        return None
    return f"{found.cannot_launch}: the machine is kept until the group has launched one"


def _starts_softly(s: Situation) -> bool:
    """Whether the recovery that waits begins with a reboot, which takes no machine from a group."""
    return s.record is not None and s.record.phase is Phase.WAITING and reboots_first(s, s.record)


def group_short(s: Situation) -> str | None:
    if s.preflight is None or s.preflight.short_by <= 0 or s.preflight.adopt or _starts_softly(s):
        return None
    return f"group {s.preflight.group} is short by {s.preflight.short_by}"


def not_alone(s: Situation) -> str | None:
    """Another machine of the group is out, which replaces one machine at a time (``Preflight.alone``).

    The older slot goes first, so that no two nodes wait for each other.
    """
    if s.preflight is None or not s.preflight.alone or s.preflight.adopt or s.gate is None:
        return None
    mine = next((x for x in s.gate.slots if x.node == s.node_name), None)
    for slot in s.gate.slots:
        if slot.node == s.node_name or (
            mine is not None and (mine.since, mine.node) < (slot.since, slot.node)
        ):
            continue
        start = _last_start(s.gate, slot)
        if start is not None and start.group == s.preflight.group:
            return f"{slot.node} of group {start.group} is out, which replaces one machine at a time"
    return None


def turn(s: Situation) -> str | None:
    """Slots are taken in the order of the queue, unless there is room for all at its head. A node ahead that
    does not take its turn is passed: its agent is dead."""
    if s.gate is None or s.record is None:
        return None
    ahead = ahead_of(s.gate, s.record.uid)
    if not ahead or s.turn_waited >= TURN + STAGGER * len(ahead):
        return None
    if len(ahead) < s.abreast and _room_for_all(s, s.gate, len(ahead) + 1):
        return None
    return f"{ahead[0]} is ahead in the queue"


def _room_for_all(s: Situation, gate: Gate, nodes: int) -> bool:
    """Whether all of these ``nodes`` could start now: then none takes a slot that another one needs."""
    if s.policy.limits.cooldown:
        return False
    return all(allowed is not None and taken + nodes <= allowed for _, allowed, taken in _budgets(s, gate))


FORBIDDEN: tuple[tuple[str, Question], ...] = (
    ("off", off),
    ("excluded", excluded),
    ("claimed", foreign_claim),
    ("paused", paused),
)
"""A person or another system forbids every step on this node."""

NOT_NOW: tuple[tuple[str, Question], ...] = (("window", outside), ("blocked", blocked))
"""The policy lets nothing start at this hour, or while something goes on (docs/decisions/0035)."""

UNASKED: tuple[tuple[str, Question], ...] = (
    *FORBIDDEN,
    *NOT_NOW,
    ("boot", boot_unknown),
    ("back", just_back),
    ("skewed", skewed),
    ("budget", budget),
    ("cooldown", cooldown),
)
"""Answered without a request to the cloud. While one of these holds, its provider is not asked at all."""

CHEAP: tuple[tuple[str, Question], ...] = (
    *FORBIDDEN,
    *NOT_NOW,
    ("boot", boot_unknown),
    ("back", just_back),
    ("skewed", skewed),
    ("group-worn", group_worn),
    ("heir", pending_replacement),
    ("correlated", correlated),  # before the budget: its slot may be that of one that is held for the same
    ("budget", budget),
    ("cooldown", cooldown),
)
"""Asked before a start, in this order, and answered without a census of the fleet."""

BY_GROUP: tuple[tuple[str, Question], ...] = (
    ("no-launch", no_launch),
    ("group-short", group_short),
    ("not-alone", not_alone),
)
"""Asked before a start, and again right before a machine is replaced."""

STARTING: tuple[tuple[str, Question], ...] = (*CHEAP, ("brake", brake), *BY_GROUP)
"""All questions before a start, except ``attempts_used``, which hands over, and ``turn``, asked last."""

GOING_ON: tuple[tuple[str, Question], ...] = (
    *FORBIDDEN,
    ("window", stopped_outside),
    ("blocked", stopped_by_blocker),
    ("boot", boot_unknown),
    ("correlated", correlated),
    ("brake", brake),
)
"""Asked before every destructive step of a recovery that is under way."""


def first_reason(questions: Iterable[tuple[str, Question]], s: Situation) -> tuple[str, str] | None:
    """The first (key, reason) given, or None."""
    for key, question in questions:
        reason = question(s)
        if reason is not None:
            return key, reason
    return None
