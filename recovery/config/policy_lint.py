"""What is legal in a policy and still surprises people: one sentence each, printed by ``policy check``."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from fnmatch import fnmatchcase

from recovery import catalog
from recovery.config.policy_fields import ADMITTED_TAINTS
from recovery.config.yaml_lines import line_of
from recovery.decide.diagnosis import SIGNAL_UNKNOWN
from recovery.decide.room import LEAST_STARTS
from recovery.model import (
    EVERY_OTHER,
    Absent,
    Blocker,
    Detector,
    Latch,
    Match,
    PodMode,
    Polarity,
    Policy,
    Rule,
    SourceChoice,
    Step,
    UnderWay,
    Window,
    Witness,
)
from recovery.signals import (
    autopilot,
    autopilot_gauge,
    aznhc,
    black_hole,
    dcgm,
    device_counts,
    konduktor,
    kubelet,
    loki,
    never_joined,
)
from recovery.signals.memory import EDGE_MEMORY
from recovery.units import few, format_duration, span

SAME_MACHINE = frozenset({Step.REBOOT, Step.REIMAGE, Step.REDEPLOY})
TYPES: Mapping[str, Collection[str]] = {
    autopilot.SOURCE: autopilot.TYPES | autopilot_gauge.TYPES,
    aznhc.SOURCE: {aznhc.TYPE},
    konduktor.SOURCE: {konduktor.TYPE},
    dcgm.SOURCE: dcgm.TYPES,
    device_counts.SOURCE: device_counts.TYPES | black_hole.TYPES,
    loki.SOURCE: loki.TYPES,
}
"""The condition types that a source states, where they are not the detector's own choice."""
COUNTING = ("npd", "dcgm", "loki")
"""Sources that say of something without a type how often it happened."""
OURS = frozenset({SIGNAL_UNKNOWN, never_joined.TYPE})
"""Types that no source of the policy has to be named for."""
ALWAYS_FIRE = ("Watchdog", "DeadMansSwitch")
"""Alerts that say by firing that alerting works; the first is kube-prometheus'."""
BOOTS_FOR = timedelta(minutes=5)
"""How long a kubelet may take to be Ready after its machine's boot, and to stay so."""
HEAD_START = timedelta(minutes=2)
"""How much earlier than another remediator a rule has to act, or it will find the node claimed."""


def warnings_about(policy: Policy, lines: Mapping[str, int], path: str) -> Iterator[str]:
    """Warnings about ``policy``, each with the line that ``lines`` gives for its field or what it is in."""

    def at(field: str, text: str) -> str:
        return f"{path}:{line_of(field, lines)}: field {field}: {text}"

    yield from (at(field, text) for field, text in _about_limits(policy))
    yield from (at(field, text) for field, text in _about_starts(policy))
    yield from (at(field, text) for field, text in _about_drain(policy))
    for index, source in enumerate(policy.sources):
        where = f"sources[{index}]"
        of_rows = f"{where}.prometheus.rows"
        yield from (at(f"{of_rows}{field}", text) for field, text in _about_metrics(source, lines, of_rows))
        yield from (at(f"{where}{field}", text) for field, text in _about_conditions(source))
    for index, rule in enumerate(policy.rules):
        where = f"rules[{index}]"
        yield from (at(f"{where}{field}", text) for field, text in _about_rule(rule))
        yield from (at(f"{where}{field}", text) for field, text in _about_sources(rule, policy))
        yield from (at(where, text) for text in _never_used(rule, policy.rules[:index]))


def _never_used(rule: Rule, earlier: Sequence[Rule]) -> Iterator[str]:
    for r, early in enumerate(earlier):
        if _covers(early.match, rule.match):
            yield f'never used: rules[{r}] "{early.name}" already matches everything that it matches'
            return


def _about_conditions(source: SourceChoice) -> Iterator[tuple[str, str]]:
    """A row that calls a condition's good status bad, by mistake or by intent."""
    for r, row in enumerate(source.rows):
        if other := catalog.turned_round(row):
            text = f"{row.bad}, which for {few(other, 3)} is the good status by the catalogue"
            yield f".conditions.rows[{r}].bad", f"{text}: then healthy machines are recovered"


def _about_limits(policy: Policy) -> Iterator[tuple[str, str]]:
    if not policy.rules:
        yield "rules", "there are none, so every fault is only reported"
    if not (policy.limits.budget.count or policy.limits.budget.percent):
        yield "limits.budget", f"{policy.limits.budget}, so nothing is ever started"
    if not (policy.limits.brake.count or policy.limits.brake.percent):
        yield (
            "limits.brake",
            f"{policy.limits.brake}, so nothing is ever started: one sick node already exceeds it",
        )
    else:
        yield from _about_brakes_of_values(policy)
    if (most := policy.limits.attempts.max) > LEAST_STARTS:
        room = f"a closed record has room for {LEAST_STARTS} to 20 starts"
        yield "limits.attempts.max", f"{most}, but {room}: those that it forgets are not counted"


def _about_brakes_of_values(policy: Policy) -> Iterator[tuple[str, str]]:
    for key, per in policy.limits.brake_per.items():
        for value, share in per.items():
            if not (share.count or share.percent):
                where = "any value" if value == EVERY_OTHER else value
                yield f"limits.brakePer.{key}", f"{share} for {where}, so nothing is ever started there"


def _about_starts(policy: Policy) -> Iterator[tuple[str, str]]:
    """Windows and blockers that hold nothing, or hold everything."""
    limits = policy.limits
    waits = bool(limits.windows or limits.blockers or any(rule.windows for rule in policy.rules))
    if limits.under_way is UnderWay.STOP and not waits:
        yield "limits.underWay", "stop, but the policy has neither windows nor blockers"
    yield from _about_alerts(limits.blockers)
    for r, rule in enumerate(policy.rules):
        if rule.urgent and not waits:
            yield f"rules[{r}].urgent", "never matters: the policy has neither windows nor blockers"
        elif (rule.urgent or rule.windows) and not _acts(rule):
            what = "urgent" if rule.urgent else "windows"
            yield f"rules[{r}].{what}", "never matters: the rule only notifies"
        windows = limits.windows if rule.windows is None else rule.windows
        if limits.under_way is UnderWay.STOP and windows and not rule.urgent:
            yield from ((f"rules[{r}].{field}", text) for field, text in _too_long(rule, windows))


def _about_alerts(blockers: Sequence[Blocker]) -> Iterator[tuple[str, str]]:
    for b, blocker in enumerate(blockers):
        wide = next((p for p in blocker.alerts if any(fnmatchcase(name, p) for name in ALWAYS_FIRE)), None)
        if wide is not None:
            name = next(name for name in ALWAYS_FIRE if fnmatchcase(name, wide))
            text = f'"{wide}" also matches {name}, which fires all the time where it is set up'
            yield f"limits.blockers[{b}].alerts", f"{text}: then nothing ever starts"


def _too_long(rule: Rule, windows: tuple[Window, ...]) -> Iterator[tuple[str, str]]:
    longest = max(map(_length, windows))
    for s, rung in enumerate(rule.remedy or ()):
        if rung.do is Step.DRAIN and rung.within > longest:
            why = f"{span(rung.within)}, and the longest of its windows has {span(longest)}"
            yield f"remedy[{s}].within", f"{why}: with underWay: stop such a drain is stopped in the middle"


def _length(w: Window) -> timedelta:
    day = datetime.combine(date.min, w.closes) - datetime.combine(date.min, w.opens)
    return day if day > timedelta(0) else day + timedelta(days=1)


def _about_drain(policy: Policy) -> Iterator[tuple[str, str]]:
    """A pod that may take longer than the drain is never asked for in it."""
    for index, pods in enumerate(policy.drain.pods):
        for rule in policy.rules:
            for rung in rule.remedy or ():
                if rung.do is Step.DRAIN and pods.mode is PodMode.WAIT and pods.within >= rung.within:
                    drain = f"the drain of rule {rule.name} ends after {span(rung.within)}"
                    text = f"{span(pods.within)}, and {drain}: these pods are never evicted in it"
                    yield f"drain.pods[{index}].within", text


_BY = re.compile(r"\bby *\(([^()]*)\)")
_FILTERS = re.compile(r"(>=|<=|==|!=|>|<) *-?[0-9.]+ *$")


def _about_metrics(
    source: SourceChoice, lines: Mapping[str, int], of_source: str
) -> Iterator[tuple[str, str]]:
    """What a query that is spelled out leaves open. A ready-made row has no field of its own in the file."""
    own = [i for i in range(len(lines)) if f"{of_source}[{i}].query" in lines]
    ready = {row for rows in catalog.metric_rows().values() for row in rows}
    for i, row in zip(own, (row for row in source.metrics if row not in ready), strict=False):
        kept = [{label.strip() for label in found.split(",")} for found in _BY.findall(row.query)]
        if kept and not any({row.node, "instance"} & labels for labels in kept):
            text = f"no by (...) keeps the label {row.node}, so its series may name no node"
            yield f"[{i}].query", text
        if _FILTERS.search(row.query):
            yield (
                f"[{i}].query",
                "it returns only some values, and a series that goes away proves nothing: query all values, "
                "and say in bad which of them are the fault",
            )


def _about_rule(rule: Rule) -> Iterator[tuple[str, str]]:
    if rule.budget is not None and not (rule.budget.count or rule.budget.percent):
        yield ".budget", f"{rule.budget}, so this rule starts nothing"
    if rule.budget is not None and not _acts(rule):
        yield ".budget", "never used: the rule only notifies"
    yield from _about_match(rule.match)
    yield from _about_spelling(rule.match)
    if rule.latch is Latch.SOURCE:
        yield from _never_taken_back(rule)
    if _acts(rule):
        yield from _only_reported(rule)
        yield from _for_every_fault(rule)
    if rule.witness is not None:
        yield from _about_witness(rule, rule.witness)
    yield from _about_taints(rule)
    yield from _about_validation(rule)
    yield from _about_ready(rule)


def _about_match(m: Match) -> Iterator[tuple[str, str]]:
    """Types and reasons that are mixed up, and counts that no agent remembers or no rule sees."""
    types = {row.type for row in catalog.faults() if row.type}
    home = {row.reason: row.type for row in catalog.faults()}
    if m.type in home and m.type not in types:
        of = f"; its type is {home[m.type]}" if home[m.type] else "; a temporary rule has no type"
        yield ".match.type", f"{m.type} is a reason, not a type{of}"
    if m.times is not None and m.times.within > EDGE_MEMORY:
        most, asked = format_duration(EDGE_MEMORY), format_duration(m.times.within)
        yield ".match.times.within", f"{asked}, but an agent remembers the last {most} only"
    for reason in m.reasons:
        if reason in types and reason not in home:
            yield ".match.reason", f"{reason} is a type, not a reason"
        if m.times is None and reason in _edges_only():
            yield ".match.reason", f"{reason} is only counted, so a rule without times never sees it"


_REGULAR = re.compile(r"\.[*+]|[|^$\\()]")


def _about_spelling(m: Match) -> Iterator[tuple[str, str]]:
    """Patterns that match nothing, since they are written in another language or case."""
    rows = catalog.faults()
    for field, patterns, known, more in (
        (".match.type", (m.type,), {row.type for row in rows}, ""),
        (".match.reason", m.reasons, {row.reason for row in rows}, "; several reasons are a list"),
    ):
        by_small = {name.lower(): name for name in known}
        for pattern in patterns:
            name = by_small.get(pattern.lower(), pattern)
            if _REGULAR.search(pattern):
                text = f'"{pattern}" looks like a regular expression, but patterns are a shell\'s'
                yield field, f"{text}: * stands for any characters, [79] for one of them{more}"
            elif name != pattern and pattern not in known:
                yield field, f"{pattern} is not {name}: upper and lower case count"


def _about_validation(rule: Rule) -> Iterator[tuple[str, str]]:
    if not rule.validate or not rule.remedy:
        return
    steps = {rung.do for rung in rule.remedy}
    if not steps & SAME_MACHINE:
        yield ".validate", "never used: no step of the remedy gives the same machine back"
    elif Step.DRAIN not in steps:
        yield ".validate", "the remedy has no drain: pods may still hold the devices that the Job needs"


def _about_ready(rule: Rule) -> Iterator[tuple[str, str]]:
    steps = {rung.do for rung in rule.remedy or ()}
    if rule.after >= BOOTS_FOR or rule.match.type != kubelet.READY:
        return
    why = ""
    if steps & SAME_MACHINE:
        why = "a node that boots is not Ready for some minutes, which is then the same fault again"
    elif Step.REPLACE in steps:
        why = "a machine that joins is not Ready for some minutes, and would be replaced at once"
    if why:
        yield ".after", f"{span(rule.after)}, but {why}: write after: 10m"


def _about_sources(rule: Rule, policy: Policy) -> Iterator[tuple[str, str]]:
    """What no source of the policy states, and what another remediator sees to first."""
    yield from never_matched(rule, policy.sources)
    yield from _by_none_that_is_listed(rule, policy.sources)
    m = rule.match
    slow = policy.source(autopilot.SOURCE) is not None and m.source in ("", autopilot.SOURCE)
    if slow and m.times is None and _acts(rule) and rule.after < autopilot_gauge.ONE_RUN:
        type_, reason = autopilot_gauge.OF["pciebw"]
        if fnmatchcase(type_, m.type) and any(fnmatchcase(reason, pattern) for pattern in m.reasons):
            why = f"a link in use measures as slow as a broken one, and {reason} is measured once an hour"
            yield ".after", f"{span(rule.after)}, but {why}: write after: 65m, in a rule for it alone"
    known = _known(m, [x for x in policy.sources if m.source in ("", x.name)])
    first = known.first_after if known is not None and _acts(rule) else None
    if known is not None and first is not None and rule.after >= first - HEAD_START:
        when = f"if {known.first} are on, they act on {m.type} after {span(first)}"
        yield ".after", f"{span(rule.after)}, but {when}, so they are first"


def never_matched(rule: Rule, sources: Sequence[SourceChoice]) -> Iterator[tuple[str, str]]:
    """Why no fault of these sources is one for ``rule``, with its field."""
    m = rule.match
    read = [x for x in sources if m.source in ("", x.name)]
    if m.source and not read:
        yield ".match.source", f"{m.source} is not among the policy's sources, so the rule never matches"
    elif m.times is not None and not any(x.name in COUNTING for x in read):
        who = f"{m.source} does not count" if m.source else "no source of the policy counts"
        do = f"{', '.join(COUNTING[:-1])} and {COUNTING[-1]} do"
        yield ".match.times", f"{who} ({do}), so the rule never matches"
    elif m.times is None and _is_exact(m.type):
        by_others = any(x.name == "npd" or x.metrics or m.type in TYPES.get(x.name, ()) for x in read)
        if not (by_others or m.type in OURS or _known(m, read)):
            yield ".match.type", f"no source of the policy states {m.type}, so the rule never matches"


def _by_none_that_is_listed(rule: Rule, sources: Sequence[SourceChoice]) -> Iterator[tuple[str, str]]:
    """A fault of a source that the policy does not list. node-problem-detector may state any type, but no
    configuration of it that is known states this one."""
    m = rule.match
    if m.source or m.times is not None or any(never_matched(rule, sources)):
        return
    if _is_exact(m.type):
        field, types = ".match.type", {m.type}
    else:
        field = ".match.reason"
        of_each = [{row.type for row in catalog.faults() if row.reason == reason} for reason in m.reasons]
        types = set().union(*of_each) if all(of_each) else set()
    rows = next((x.rows for x in sources if x.name == "conditions"), ())
    owners = {name for name, stated in TYPES.items() if types & set(stated)}
    known = set().union(*(TYPES[name] for name in owners))
    if not types or types - known or owners & {x.name for x in sources}:
        return
    if any(catalog.polarity(type_, rows) for type_ in types):
        return
    what = m.type if field == ".match.type" else few(m.reasons, 3)
    who = few(sorted(owners), 3)
    yield field, f"only the source {who} states {what}, and the policy does not list it"


def _is_exact(type: str) -> bool:
    return not set("*?[") & set(type)


def _known(m: Match, read: Sequence[SourceChoice]) -> Polarity | None:
    """What the condition says that a rule names, where it is one for conditions."""
    conditions = next((x for x in read if x.name == "conditions"), None)
    if conditions is None or m.times is not None or not _is_exact(m.type):
        return None
    return catalog.polarity(m.type, conditions.rows)


def _edges_only() -> set[str]:
    rows = catalog.faults()
    return {row.reason for row in rows if not row.type} - {row.reason for row in rows if row.type}


def _only_reported(rule: Rule) -> Iterator[tuple[str, str]]:
    """A wildcard does not reach a reason that says nothing against this node."""
    told: set[str] = set()
    for row in catalog.faults():
        by = [p for p in rule.match.reasons if p != "*" and fnmatchcase(row.reason, p)]
        seen = fnmatchcase(row.type, rule.match.type) and (rule.match.times is None) is bool(row.type)
        if not row.this_node and seen and by and row.reason not in {*by, *told}:
            told.add(row.reason)
            text = (
                f'"{by[0]}" also matches {row.reason}, which is not this node\'s fault: it is only reported'
            )
            yield ".match.reason", f"{text} unless a rule names it"


def _for_every_fault(rule: Rule) -> Iterator[tuple[str, str]]:
    """A remedy that is written down goes before the catalogue's, for whatever the rule matches."""
    actions = [rung.do.value for rung in rule.remedy or () if rung.do.provider_action]
    m = rule.match
    if not actions or set(m.type) != {"*"} or not any(set(pattern) == {"*"} for pattern in m.reasons):
        return
    milder = next(
        row.reason
        for row in catalog.faults()
        if row.type and row.this_node and row.remedy and all(x.do is Step.NOTIFY for x in row.remedy)
    )
    text = f"it names neither type nor reason, so {', '.join(actions)} is for every fault of a node"
    yield ".match", f"{text}, also for those that are only reported by default, such as {milder}"


def _never_taken_back(rule: Rule) -> Iterator[tuple[str, str]]:
    """A log rule's fault ends with a boot, whatever the policy says: nothing takes it back."""
    if rule.match.times is not None:
        yield (
            ".latch",
            "source, but what is only counted is never ended by its source; a boot or another machine does",
        )
        return
    for row in catalog.faults():
        matched = fnmatchcase(row.type, rule.match.type) and row.reason in rule.match.reasons
        if matched and row.detector is Detector.LOG:
            yield ".latch", f"source, but {row.reason} is a log rule's; a new boot or another machine ends it"
            return


def _about_taints(rule: Rule) -> Iterator[tuple[str, str]]:
    claims = {claim.key: claim.system for claim in catalog.claims() if claim.kind == "taint"}
    for index, rung in enumerate(rule.remedy or ()):
        key = rung.taint.key if rung.taint else ""
        if key and key not in ADMITTED_TAINTS:
            text = f"{key} is not among the keys that the shipped admission policies let an agent set"
            yield f".remedy[{index}].key", f"{text}: add it there (in the chart: taintKeys)"
        if key in claims:
            text = (
                f"{claims[key]} sets {key} while it works on a node, so others may take our taint for its own"
            )
            yield f".remedy[{index}].key", text


def _about_witness(rule: Rule, witness: Witness) -> Iterator[tuple[str, str]]:
    known = catalog.reasons_known_to(witness.source)
    if rule.remedy and not any(x.do is Step.DRAIN or x.do.provider_action for x in rule.remedy):
        yield ".witness", "never used: the remedy does nothing destructive"
    for row in catalog.faults() if witness.absent is Absent.HOLD else ():
        named = any(p != "*" and fnmatchcase(row.reason, p) for p in rule.match.reasons)
        if named and fnmatchcase(row.type, rule.match.type) and row.reason not in known:
            text = f"{witness.source} cannot confirm {row.reason}, so this fault only goes to a person"
            yield ".witness", f"{text}; set absent: act, or give it a rule of its own"


def _acts(rule: Rule) -> bool:
    return rule.remedy is None or any(rung.do is not Step.NOTIFY for rung in rule.remedy)


def _covers(early: Match, late: Match) -> bool:
    """Whether ``early`` surely matches all that ``late`` does. In doubt it does not.

    A label that ``early`` wants must be wanted by ``late``, too: even ``*`` matches no node without it.
    """
    return (
        early.times == late.times
        and early.source in ("", late.source)
        and _wider(early.type, late.type)
        and all(any(_wider(wide, narrow) for wide in early.reasons) for narrow in late.reasons)
        and early.node_labels.keys() <= late.node_labels.keys()
        and all(_wider(want, late.node_labels[key]) for key, want in early.node_labels.items())
    )


def _wider(wide: str, narrow: str) -> bool:
    if wide == narrow:
        return True
    if "[" in wide + narrow or ("?" in wide and set("*?") & set(narrow)):
        return False
    return fnmatchcase(narrow, wide)
