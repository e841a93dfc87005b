"""Which faults does the node have, and what does the policy say about each? PURE.

Unknown is neither healthy nor unhealthy (law 3). A fault on the record stays evidence for as long as machine
and boot are the same, even if its detector has restarted and forgotten it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple

from recovery.catalog import lookup
from recovery.decide.acknowledged import (
    another_life,
    dealt_with,
    late_witness,
    left_to_treat,
    not_dealt_with,
)
from recovery.decide.boot import put_before
from recovery.decide.drill import is_to_be_watched
from recovery.decide.remembered import SIGNAL_UNKNOWN as SIGNAL_UNKNOWN
from recovery.decide.remembered import what_is_said as what_is_said
from recovery.decide.selector import selects
from recovery.decide.situation import Situation
from recovery.model import CatalogueRow, Fault, Kind, NodeView, Problem, Rate, Record, Rule, Rung, Step
from recovery.quick import quick, replace
from recovery.units import span

UNKNOWN_TOO_LONG = timedelta(minutes=10)
NOTIFY = (Rung(Step.NOTIFY, timedelta(minutes=15)),)
WILD = frozenset("*?[")
_fits = lru_cache(1024)(fnmatchcase)
"""The same few faults and rules are asked about in each cycle."""
BUILT_IN = "built-in"
PAGE = "npd"
"""The source that reads the detector's own page."""
LONG_AGO = datetime.min.replace(tzinfo=UTC)
LAST_MOMENT = datetime(9999, 12, 31, tzinfo=UTC).timestamp()
"""The count of a fault is no moment from here on."""


class Edge(NamedTuple):
    """What was counted of one reason: for a rule that only reports it, and for one that does more."""

    to_report: Problem
    to_treat: Problem

    @property
    def began(self) -> datetime:
        return min((*self.to_report.times, *self.to_treat.times))

    def counted(self, treat: bool) -> Problem:
        return self.to_treat if treat else self.to_report


@quick
@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One fault, the rule that matches it, and the ladder that follows.

    ``rank``: the rule's place in the policy. ``why_only_reported``: why nothing is done about the fault.
    ``since``: when the first of the faults of its type was stated that the node has, or what is counted had
    happened as often as the rule says.
    """

    fault: Fault
    rule: Rule | None
    rank: int
    ladder: tuple[Rung, ...]
    why_only_reported: str = ""
    since: datetime | None = None

    @property
    def treat(self) -> bool:
        """Whether more is done about it than to report it."""
        return any(r.do is not Step.NOTIFY for r in self.ladder)

    @property
    def after(self) -> timedelta:
        return self.rule.after if self.rule else timedelta(0)

    @property
    def due(self) -> datetime:
        return (self.since or self.fault.since) + self.after

    @property
    def rule_name(self) -> str:
        return self.rule.name if self.rule else "no rule"


def fault_of(p: Problem, s: Situation) -> Fault:
    """The fault that a problem is, with the machine and the boot that it was seen on."""
    return Fault(
        source=p.source,
        type=p.type,
        reason=p.reason,
        message=p.message,
        since=min(p.since, s.now),  # a moment in the future counts as now
        machine=s.machine.id if s.machine else "",
        boot_id=s.node.boot_id if s.node else "",
        counter=p.counter,
        kind=p.kind,
        latched=p.latched,
        life=p.life,
        device=p.device,
    )


def of_a_boot_before(p: Problem, s: Situation) -> bool:
    """Whether a mark, which stays over boots, is known only from an earlier boot of this machine.

    Then it says nothing of the present boot, unless it was seen to be put there in it. A mark that is known
    of another machine of the same name does not count: that one had another Node, and marks of its own. A
    line of a log stays as well, and has the moment at which it was written.
    """
    r, boot = s.record, s.node.boot_id if s.node else ""
    if not (p.lasting or p.put) or p.stated is not None or r is None or not boot:
        return False
    known = (f for f in (*r.faults, *r.acknowledged) if f.key == p.key and not another_life(f, p))
    boots = {f.boot_id for f in known if s.machine is None or f.machine in ("", s.machine.id)} - {""}
    if not boots or boot in boots:
        return False
    return p.lasting or (p.put is not None and p.put <= _known_at(r))


def _known_at(r: Record) -> datetime:
    """The last moment at which ``r`` says that the machine had booted, or its recovery was over."""
    p, closed = r.progress, None if r.phase.open else r.phase_since
    booted = p.evidence.at if p.evidence is not None else None
    moments = (booted, p.proving_since, r.recovered_at, closed)
    return max(filter(None, moments), default=LONG_AGO)


def silent_sources(s: Situation) -> Iterable[Fault]:
    """A source that could not be read for ``UNKNOWN_TOO_LONG`` is a fault of its own, one per source."""
    for reading in s.readings:
        for kind, since in sorted(reading.unknown_since.items()):
            if kind in reading.unknown and s.now - since >= UNKNOWN_TOO_LONG:
                what = reading.source if kind == "*" else f"{reading.source} ({kind})"
                yield Fault(
                    source=reading.source,
                    type=SIGNAL_UNKNOWN,
                    reason=SIGNAL_UNKNOWN,
                    message=f"nothing is known from {what}: {reading.unknown[kind]}",
                    since=since,
                    machine=s.machine.id if s.machine else "",
                    boot_id=s.node.boot_id if s.node else "",
                )
                break


def diagnose(s: Situation) -> tuple[Diagnosis, ...]:
    """All faults that the node has now, without those that are settled.

    Those to treat come before those to report, then in the order of the policy's rules, then the older ones.
    """
    faults: dict[tuple[str, str, str], Fault] = {}
    edges: dict[tuple[str, str, str], Edge] = {}
    if s.record is not None and s.record.phase.open:
        faults |= {f.key: f for f in s.record.faults}
    for reading in s.readings:
        for p in reading.problems:
            if of_a_boot_before(p, s) or (s.on and is_to_be_watched(p.message)):
                continue
            if p.kind is Kind.LEVEL:
                faults.setdefault(p.key, fault_of(p, s))
            elif _too_often(edge := _edge(p, s), s):
                edges[p.key] = edge
                since = min(edge.began, s.now)
                faults.setdefault(p.key, replace(fault_of(p, s), since=since))
    for p in s.unsaid:
        faults.setdefault(p.key, fault_of(p, s))
    for fault in silent_sources(s):
        faults.setdefault(fault.key, fault)
    present = [f for f in faults.values() if not settled(f, s)]
    first = first_stated(present)
    found = [diagnosed(f, s, edges.get(f.key)) for f in present]
    dated = (replace(d, since=_there_since(d, s, first, edges.get(d.fault.key))) for d in found)
    return tuple(sorted(dated, key=lambda d: (not d.treat, d.rank, d.fault.since)))


def settled(fault: Fault, s: Situation) -> bool:
    """Whether nothing more is to be done about it: it was dealt with, or is a late word of what was.

    Each is matched by itself: a source that a rule treats is not late for what was only reported of another.
    """
    if not dealt_with(fault, s):
        return False
    late = late_witness(fault, s)
    reported = bool(late) and all(f.treated is False for f in late)
    return not (reported and diagnosed(fault, s).treat)


def first_stated(faults: Iterable[Fault]) -> dict[str, datetime]:
    """When each type was first stated. Neither reasons nor sources that alternate begin its time anew."""
    first: dict[str, datetime] = {}
    for f in faults:
        if f.kind is Kind.LEVEL:
            first[f.type] = min(first.get(f.type, f.since), f.since)
    return first


def came_at(f: Fault) -> datetime:
    """When ``f`` was there. What is counted may have begun long before it happened often enough.

    A record of an earlier version has a mere count in place of the moment at which it happened last. That is
    no moment after ``f`` began, and to go by it would end all that its rule tolerates.
    """
    if f.kind is Kind.EDGE and f.counter is not None and f.since.timestamp() < f.counter < LAST_MOMENT:
        return datetime.fromtimestamp(f.counter, UTC)
    return f.since


def told_apart(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """``faults`` as people are told of them. What two sources state with one type and reason is one fault
    with two witnesses. Here the first speaks for both; each ends by its own rule."""
    found: dict[tuple[str, str, str], Fault] = {}
    for f in faults:
        found.setdefault(what_is_said(f), f)
    return tuple(found.values())


def _edge(p: Problem, s: Situation) -> Edge:
    return Edge(not_dealt_with(p, s), left_to_treat(p, s))


def _too_often(edge: Edge, s: Situation) -> bool:
    """Whether an edge is a fault: some rule's ``times`` says how often is too often."""
    fault = fault_of(edge.to_report, s)
    rules = (rule for rule in s.policy.rules if matches(rule, fault, s.node))
    return any(_is_met(_with_rule(fault, rule, 0, s), edge, s) for rule in rules)


def _there_since(
    d: Diagnosis, s: Situation, first: Mapping[str, datetime], edge: Edge | None
) -> datetime | None:
    """Since when ``d`` is tolerated; what is counted from when it had happened as often as its rule says. A
    clock that was set forward since makes that no longer ago."""
    since = first.get(d.fault.type) if d.fault.kind is not Kind.EDGE else _met_since(d, s, edge)
    return since + s.set_forward(since) if since is not None else None


def _met_since(d: Diagnosis, s: Situation, edge: Edge | None) -> datetime:
    """By a clock that was set back since, that may be to come. The API server's time as we take it to be is
    put right by a moment again and again. Then it is since now, or since it was put on the record."""
    r, since = s.record, came_at(d.fault)
    on_record = r is not None and r.phase.open and any(f.key == d.fault.key for f in r.faults)
    times = d.rule.match.times if d.rule is not None else None
    met = _met_at(edge.counted(d.treat).times, times) if edge is not None and times is not None else None
    if met is not None:
        if r is None or not on_record:
            since = met
        elif d.rule_name != r.rule:
            since = max(since, met)  # another rule may have been met since it was put on the record
        else:
            since = min(since, met)  # it may have been put there long after its own rule was met
    if since <= s.now:
        return since
    return max(d.fault.since, r.phase_since) if r is not None and on_record else s.now


def _met_at(counted: Sequence[datetime], times: Rate) -> datetime | None:
    """When it had happened so often for the first time; None where it never has."""
    runs = zip(counted, counted[times.max - 1 :], strict=False)
    return next((last for begun, last in runs if last - begun <= times.within), None)


def _is_met(d: Diagnosis, edge: Edge, s: Situation) -> bool:
    """Whether it happened as often as the rule of ``d`` says."""
    times = d.rule.match.times if d.rule is not None else None
    return times is None or often_enough(edge.counted(d.treat), times, s.now)


def often_enough(p: Problem, times: Rate, now: datetime) -> bool:
    return sum(1 for at in p.times if now - at <= times.within) >= times.max


def as_treated(d: Diagnosis) -> Fault:
    """The fault for the record, which says whether the policy of now treats it."""
    return replace(d.fault, treated=d.treat)


def matches(rule: Rule, fault: Fault, node: NodeView | None) -> bool:
    """Whether ``rule`` matches ``fault`` on ``node``."""
    return speaks_of(rule, fault) and selects(rule.match.node_labels, node.labels if node else {})


def speaks_of(rule: Rule, fault: Fault) -> bool:
    """Whether ``rule`` matches ``fault``, on a node with the labels that it asks for."""
    m = rule.match
    counts = m.times is not None
    if counts != (fault.kind is Kind.EDGE) or m.source not in ("", fault.source):
        return False
    return _fits(fault.type, m.type) and any(_fits(fault.reason, r) for r in m.reasons)


def diagnosed(fault: Fault, s: Situation, edge: Edge | None = None) -> Diagnosis:
    """What the policy says about ``fault``. ``edge``: what its source counts of it now, if it is one."""
    if fault.kind is Kind.EDGE and edge is None and s.record is not None:
        return _as_it_was_met(fault, s, s.record)
    for rank, rule in enumerate(s.policy.rules):
        if matches(rule, fault, s.node):
            found = _with_rule(fault, rule, rank, s)
            if edge is not None and not _is_met(found, edge, s):
                continue
            over = _of_a_boot_that_is_over(fault, s) if found.treat else ""
            return replace(found, ladder=NOTIFY, why_only_reported=over) if over else found
    return _by_no_rule(fault, s)


def _as_it_was_met(fault: Fault, s: Situation, r: Record) -> Diagnosis:
    """The edge is on the record, and over: the rule whose ``times`` it met still applies.

    That is the record's rule. Where the edge came beside another fault, it is the last rule that matches and
    does as much (treats or reports) as was to be done about the edge.
    """
    rules = ((rank, rule) for rank, rule in enumerate(s.policy.rules) if matches(rule, fault, s.node))
    found = [_with_rule(fault, rule, rank, s) for rank, rule in rules]
    theirs = [d for d in found if d.rule_name == r.rule]
    alike = [d for d in found if d.treat is fault.treated]
    return (theirs or alike or found or [_by_no_rule(fault, s)])[-1]


def _by_no_rule(fault: Fault, s: Situation) -> Diagnosis:
    why = f"no rule of the policy speaks of it{_but_for_labels(fault, s)}"
    return Diagnosis(fault, None, len(s.policy.rules), NOTIFY, why)


def _of_a_boot_that_is_over(fault: Fault, s: Situation) -> str:
    """Why a fault of now may be none of this boot: a mark says so that nobody has seen being put there."""
    reading = s.reading_of(fault.source)
    marks = (p for p in reading.problems if p.key == fault.key) if reading and s.node else ()
    return next((put_before(p, s) for p in marks if s.node and fault.boot_id == s.node.boot_id), "")


def _but_for_labels(fault: Fault, s: Situation) -> str:
    """The first rule that would match if the node had other labels, and which; empty if there is none."""
    labels = s.node.labels if s.node else {}
    for rule in s.policy.rules if s.node else ():
        if not speaks_of(rule, fault):
            continue
        wanted = {
            k: v
            for k, v in rule.match.node_labels.items()
            if not fnmatchcase(labels.get(k, ""), v) or k not in labels
        }
        if not wanted:  # it did not happen often enough
            continue
        asked = ", ".join(f"{k}={v} (it has {labels.get(k) or 'none'})" for k, v in wanted.items())
        return f"; rule {rule.name} would, on a node with {asked}"
    return ""


def _with_rule(fault: Fault, rule: Rule, rank: int, s: Situation) -> Diagnosis:
    row = lookup(fault.type, fault.reason)
    if s.node is not None and not s.node.registered:  # whatever a rule says: see note 0041
        return Diagnosis(fault, rule, rank, NOTIFY, fault.message)
    named = any(r == fault.reason for r in rule.match.reasons if not WILD & set(r))
    if row is not None and not row.this_node and not named:
        return Diagnosis(fault, rule, rank, NOTIFY, f"it is not this node's own fault: {row.why}")
    ladder = rule.remedy or (row.remedy if row else None) or default_remedy(s, row)
    if (not rule.remedy or s.policy.name == BUILT_IN) and not _possible(ladder, s):
        # Nobody wrote it for this provider: the built-in policy is for Neuron on AWS. It would be handed over
        # at once, with nothing done about the node; the provider's own remedy takes it out of the way.
        ladder = default_remedy(s, row)
    return Diagnosis(fault, rule, rank, ladder)


def _possible(ladder: tuple[Rung, ...], s: Situation) -> bool:
    """Whether the provider can do the first of the steps that are its own; after it a person may go on."""
    first = next((rung.do for rung in ladder if rung.do.provider_action), None)
    return s.provider is None or first is None or first in s.provider.actions


def default_remedy(s: Situation, row: CatalogueRow | None = None) -> tuple[Rung, ...]:
    """The provider's default remedy. A fault of software has its own default, where the provider has one."""
    if s.provider is None:
        return NOTIFY
    software = s.provider.software_remedy if row is not None and row.software else ()
    return software or s.provider.default_remedy or NOTIFY


def rule_of(s: Situation, r: Record) -> Rule | None:
    """The rule that ``r`` is treated by. If the policy has none of that name any more: the one that would
    treat it now, so that a rule gets no second budget, and no other windows, by another name."""
    named = next((x for x in s.policy.rules if x.name == r.rule), None)
    now = (diagnosed(f, s) for f in r.faults) if named is None else ()
    return named or next((d.rule for d in sorted(now, key=lambda d: (not d.treat, d.rank))), None)


def name(fault: Fault) -> str:
    """A fault as sentences name it: its reason. A silent source has no reason of its own, so its message."""
    return fault.message if fault.type == SIGNAL_UNKNOWN else fault.reason


def tolerated(d: Diagnosis, left: timedelta) -> str:
    """That nothing is done about ``d`` yet, as a sentence."""
    return f"{name(d.fault)}: tolerated for {span(d.after)} by rule {d.rule_name}, {span(left)} to go"


def not_by_its_own_rule(d: Diagnosis, step: Step) -> str:
    """Why ``step``, which another rule's ladder has next, is not for ``d``; empty if it is (0049)."""
    if step not in {rung.do for rung in d.ladder}:
        return f"the next step is {step.value}, which its own rule {d.rule_name} does not call for"
    if d.rule is not None and d.rule.witness is not None:
        return f"the next step is {step.value}, for which its own rule {d.rule_name} asks a second witness"
    return ""


def was_treated(d: Diagnosis) -> bool:
    """Whether more was to be done about the fault than to report it, when it came on the record, or is now.

    A policy that has changed since does not make a fault that is there a fault that is gone.
    """
    return d.treat or d.fault.treated is True


def live(s: Situation, found: tuple[Diagnosis, ...]) -> tuple[Diagnosis, ...]:
    """Those of ``found`` to treat, by the policy or by the record, that a source reports now.

    What only the record remembers is left out. What is counted is there by the policy alone: by the record it
    would be there again from its first event on.
    """
    return tuple(d for d in stated(s, found) if (d.treat if d.fault.kind is Kind.EDGE else was_treated(d)))


def stated(s: Situation, found: tuple[Diagnosis, ...]) -> tuple[Diagnosis, ...]:
    """Those of ``found`` that a source reports now, to treat or not. What is counted, once it happened often
    enough."""
    fresh = (p for r in s.readings for p in r.problems if p.fresh_until >= s.now)
    there = (p for p in fresh if p.kind is Kind.LEVEL or _too_often(_edge(p, s), s))
    keys = {p.key for p in there if not of_a_boot_before(p, s)}
    return tuple(d for d in found if d.fault.key in keys)


def healthy(s: Situation) -> str:
    unknown = [why for r in s.readings for why in r.unknown.values()]
    if unknown:
        return f"unknown: {unknown[0]}"
    there = [p.reason for r in s.readings for p in r.problems if p.kind is Kind.LEVEL]
    if there and s.record is not None:  # a released one, say, whose source cannot take it back
        return f"no new problem: {', '.join(dict.fromkeys(there))} was dealt with before, and is stated still"
    return "healthy: no confirmed problem" if s.readings else "nothing has been read yet"


def why_reported(d: Diagnosis) -> str:
    return d.why_only_reported or f"rule {d.rule_name}: notify"
