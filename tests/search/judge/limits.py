"""What a policy allows, read from the policy file as docs/policy.md describes it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from tests.search.judge.objects import TYPE, ZONE, Json, duration

FLEET = "fleet"
BY_RULE = "rule "


@dataclass(frozen=True, slots=True)
class Limits:
    """``limits`` of a policy, with the documented defaults for what is left out."""

    budget: int | str = 1
    budget_per: Mapping[str, Json] = field(default_factory=lambda: {ZONE: {"*": 1}})
    brake: float = 0.3
    brake_per: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: {TYPE: {"*": 0.3}})
    cooldown: float = 120.0
    attempts: tuple[int, float] = (3, 86400.0)
    per_group: tuple[int, float] = (3, 6 * 3600.0)
    rules: tuple[Json, ...] = ()
    population: Mapping[str, str] = field(default_factory=dict)
    windows: tuple[Json, ...] = ()
    stops: bool = False

    def counted(self, labels: Json) -> bool:
        """Whether percentages and the brake count a node with these labels."""
        return all(k in labels and fnmatchcase(str(labels[k]), v) for k, v in self.population.items())

    def open_at(self, rule: str, wall: float) -> bool:
        """Whether something may start at this moment (seconds since 1970) under the rule of this name. Days and
        zones are not read: the search has none."""
        mine = next((r for r in self.rules if r.get("name") == rule), {})
        windows = mine.get("windows", self.windows)
        if mine.get("urgent") or not windows:
            return True
        minute = int(wall // 60) % (24 * 60)
        return any(_minute(w["from"]) <= minute < _minute(w["to"]) for w in windows)

    def treats(self, kind: str, reason: str) -> bool:
        """Whether more than a notice comes of this fault: by the first rule that is about it."""
        if not self.rules:
            return True  # nobody said what the policy is
        return self._does(kind, reason, times=False)

    def counts(self, kind: str, reason: str) -> bool:
        """The same of what happens, once it has happened often enough."""
        return self._does(kind, reason, times=True)

    def _does(self, kind: str, reason: str, *, times: bool) -> bool:
        for rule in self.rules:
            match = rule.get("match") or {}
            if _fits(match.get("type"), kind) and _fits(match.get("reason"), reason):
                steps = [step.get("do") for step in rule.get("remedy") or ({"do": "replace"},)]
                return ("times" in match) is times and steps != ["notify"]
        return False

    def tolerates(self, kind: str, reason: str) -> float:
        """For how many seconds the first rule about this fault tolerates it."""
        for rule in self.rules:
            match = rule.get("match") or {}
            if _fits(match.get("type"), kind) and _fits(match.get("reason"), reason):
                return duration(rule.get("after"))
        return 0.0

    def scopes(self, labels: Json, rule: str = "") -> list[str]:
        """The budgets that a node with these labels counts in, out by this rule."""
        named = [(key, labels[key]) for key, per in self.budget_per.items() if key in labels]
        per = [f"{key}={value}" for key, value in named if of(self.budget_per[key], value) is not None]
        own = [f"{BY_RULE}{x['name']}" for x in self.rules if x.get("name") == rule and "budget" in x]
        return [FLEET, *per, *own]

    def allowed(self, scope: str, population: int) -> int:
        """How many nodes of ``scope`` may be out, of so many."""
        value = self._budget(scope)
        if isinstance(value, str) and value.endswith("%"):
            share = float(value[:-1]) / 100.0
            return max(1, math.floor(share * population + 1e-9)) if share > 0 else 0
        return int(value)

    def _budget(self, scope: str) -> int | str:
        if scope == FLEET:
            return self.budget
        if scope.startswith(BY_RULE):
            return next(x["budget"] for x in self.rules if f"{BY_RULE}{x['name']}" == scope)
        key, _, value = scope.partition("=")
        return of(self.budget_per[key], value)

    def sick_allowed(self, population: int, share: float) -> int:
        return max(1, math.ceil(share * population - 1e-9))


def of(per: Mapping[str, Any], value: str) -> Any:
    """The limit for this value of a label, or None."""
    return per[value] if value in per else per.get("*")


def _spelled_out(per: Json) -> dict[str, Json]:
    """Each limit per label, for each value: one alone is for every value."""
    return {key: each if isinstance(each, dict) else {"*": each} for key, each in per.items()}


def share(value: Any) -> float:
    text = str(value)
    return float(text[:-1]) / 100.0 if text.endswith("%") else float(text)


def read(policy: Json) -> Limits:
    """The limits of a policy file."""
    given = policy.get("limits") or {}
    brake = share(given["brake"]) if "brake" in given else 0.3
    per = {TYPE: {"*": brake}}
    if "brakePer" in given:
        written = _spelled_out(given["brakePer"])
        per = {key: {value: share(x) for value, x in each.items()} for key, each in written.items()}
    return Limits(
        budget=given.get("budget", 1),
        budget_per=_spelled_out(given.get("budgetPer", {ZONE: 1})),
        brake=brake,
        brake_per=per,
        cooldown=duration(given.get("cooldown"), 120.0),
        attempts=_series(given.get("attempts"), (3, 86400.0)),
        per_group=_series(given.get("perGroup"), (3, 6 * 3600.0)),
        rules=tuple(policy.get("rules") or ()),
        population=dict((given.get("population") or {}).get("labels") or {}),
        windows=tuple(given.get("windows") or ()),
        stops=given.get("underWay") == "stop",
    )


def _minute(text: str) -> int:
    hours, _, minutes = text.partition(":")
    return int(hours) * 60 + int(minutes)


def _series(given: Any, default: tuple[int, float]) -> tuple[int, float]:
    if not given:
        return default
    return int(given.get("max", default[0])), duration(given.get("within"), default[1])


def _fits(wanted: Any, found: str) -> bool:
    patterns = [wanted] if isinstance(wanted, str) else list(wanted or ("*",))
    return any(fnmatchcase(found, str(p)) for p in patterns)
