"""Which rules of a policy can never match what this detector lists, and why. PURE.

A detector lists all that it can ever report when it starts: a (type, reason) that is not there never comes.
The usual mistakes are a reason written where its type belongs, and the other way round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase

from recovery import catalog
from recovery.decide.diagnosis import SIGNAL_UNKNOWN
from recovery.model import Match, NodeView, Policy, Rule, Step
from recovery.signals.page import EDGES, Pair

_WILD = frozenset("*?[")
_SHOWN = 6


@dataclass(frozen=True)
class Miss:
    """A pattern that nothing matches. ``slip``: a mistake in the rule, not a fault that is not looked for."""

    rule: str
    sentence: str
    remedy: str
    slip: bool


class Listed:
    """Every (type, reason) that one detector can report."""

    def __init__(self, pairs: Iterable[Pair]) -> None:
        self.pairs = frozenset(pairs)
        self.levels = frozenset(p for p in self.pairs if p[0] != EDGES)
        self.types = frozenset(t for t, _ in self.levels)
        self.reasons = frozenset(r for _, r in self.levels)
        self.edges = frozenset(r for t, r in self.pairs if t == EDGES)

    def types_of(self, reason: str) -> list[str]:
        return sorted(t for t, r in self.levels if r == reason)

    def reasons_of(self, pattern: str) -> list[str]:
        return sorted(r for t, r in self.levels if fnmatchcase(t, pattern))


def applies_to(rule: Rule, node: NodeView | None) -> bool:
    """Whether the detector could ever trigger ``rule`` on this node."""
    labels = node.labels if node else None
    if labels is not None and not all(
        k in labels and fnmatchcase(labels[k], v) for k, v in rule.match.node_labels.items()
    ):
        return False  # for other nodes
    return rule.match.type != SIGNAL_UNKNOWN  # those come from the agent itself


def acts(rule: Rule) -> bool:
    """Whether it does more than notify."""
    return rule.remedy is None or any(rung.do is not Step.NOTIFY for rung in rule.remedy)


def matched(match: Match, listed: Listed) -> frozenset[Pair]:
    """Every listed pair that ``match`` matches."""
    pairs = listed.levels if match.times is None else {(EDGES, r) for r in listed.edges}
    return frozenset(
        (t, r)
        for t, r in pairs
        if fnmatchcase(t, match.type) and any(fnmatchcase(r, pattern) for pattern in match.reasons)
    )


def misses(policy: Policy, listed: Listed, node: NodeView | None) -> Iterator[Miss]:
    """Every pattern of every rule for this node that matches nothing."""
    for rule in policy.rules:
        if not applies_to(rule, node):
            continue
        for pattern in rule.match.reasons:
            alone = Match(rule.match.type, (pattern,), times=rule.match.times)
            if not matched(alone, listed):
                miss = _edge(rule, pattern, listed) if alone.times else _level(rule, pattern, listed)
                if miss.slip or acts(rule):  # a rule that only notifies may name what is not looked for
                    yield miss


def unmatched(policy: Policy, listed: Listed, node: NodeView | None) -> list[Pair]:
    """What is listed, in no rule for this node and not in the catalogue."""
    rules = [rule for rule in policy.rules if applies_to(rule, node)]
    taken = frozenset[Pair]().union(*(matched(rule.match, listed) for rule in rules))
    return sorted(pair for pair in listed.pairs - taken if catalog.lookup(*pair) is None)


# ---------------------------------------------------------------- why nothing matches


def _level(rule: Rule, reason: str, listed: Listed) -> Miss:
    type_ = rule.match.type
    if type_ in listed.reasons and type_ not in listed.types:
        (home, *_) = listed.types_of(type_)
        return _slip(rule, f"{type_} is a reason of type {home}", _write(home, type_))
    if reason in listed.types and reason not in listed.reasons:
        return _slip(rule, f"{reason} is a type, not a reason", _write(reason, ""))
    if homes := listed.types_of(reason):
        return _slip(
            rule, f"{reason} is a reason of type {homes[0]}, not of {type_}", _write(homes[0], reason)
        )
    if reason in listed.edges:
        why = f"{reason} is an event that is only counted, so a rule without times never sees it"
        return _slip(rule, why, f"write match: {{reason: {reason}, times: {{count: 3, within: 10m}}}}")
    here = listed.reasons_of(type_)
    if not here and (near := _near(type_, listed.types)):
        return _slip(rule, f"it lists no type {type_}", f"did you mean type: {near}?")
    if near := _near(reason, here):
        return _slip(rule, f"it lists no reason {reason}", f"did you mean reason: {near}?")
    return _not_looked_for(rule, _pair(type_, reason), here or sorted(listed.types))


def _edge(rule: Rule, reason: str, listed: Listed) -> Miss:
    if homes := listed.types_of(reason):
        why = f"{reason} is a condition of type {homes[0]}, so a rule with times never sees it"
        return _slip(rule, why, _write(homes[0], reason))
    if near := _near(reason, listed.edges):
        return _slip(rule, f"it counts no {reason}", f"did you mean reason: {near}?")
    return _not_looked_for(rule, reason, sorted(listed.edges))


def _write(type_: str, reason: str) -> str:
    return (
        f"write match: {{type: {type_}, reason: {reason}}}" if reason else f"write match: {{type: {type_}}}"
    )


def _slip(rule: Rule, sentence: str, remedy: str) -> Miss:
    return Miss(rule.name, f"rule {rule.name} can never match here: {sentence}", remedy, slip=True)


def _not_looked_for(rule: Rule, what: str, instead: list[str]) -> Miss:
    shown = ", ".join(instead[:_SHOWN]) + (", ..." if len(instead) > _SHOWN else "")
    return Miss(
        rule.name,
        f"rule {rule.name}: node-problem-detector here does not look for {what}",
        f"add it to the detector's configuration, if this node can have it (listed: {shown or 'nothing'})",
        slip=False,
    )


def _pair(type_: str, reason: str) -> str:
    return f"{reason} of any type" if type_ == "*" else f"{reason} ({type_})"


def _near(word: str, choices: Iterable[str]) -> str:
    """A listed word that is spelt much like ``word``, else "". A word of the catalogue is no misspelling."""
    known = {row.reason for row in catalog.faults()} | catalog.types()
    if _WILD & set(word) or word in known:
        return ""
    return next(iter(get_close_matches(word, sorted(choices), n=1, cutoff=0.8)), "")
