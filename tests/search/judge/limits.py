"""What a policy allows, read from the policy file as docs/policy.md describes it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from tests.search.judge.objects import TYPE, ZONE, Json, duration

FLEET = "fleet"


@dataclass(frozen=True, slots=True)
class Limits:
    """``limits`` of a policy, with the documented defaults for what is left out."""

    budget: int | str = 1
    budget_per: Mapping[str, int | str] = field(default_factory=lambda: {ZONE: 1})
    brake: float = 0.3
    brake_per: Mapping[str, float] = field(default_factory=lambda: {TYPE: 0.3})
    cooldown: float = 120.0
    attempts: tuple[int, float] = (3, 86400.0)
    per_group: tuple[int, float] = (3, 6 * 3600.0)
    rules: tuple[Json, ...] = ()

    def treats(self, kind: str, reason: str) -> bool:
        """Whether more than a notice comes of this fault: by the first rule that is about it."""
        if not self.rules:
            return True  # nobody said what the policy is
        for rule in self.rules:
            match = rule.get("match") or {}
            if _fits(match.get("type"), kind) and _fits(match.get("reason"), reason):
                steps = [step.get("do") for step in rule.get("remedy") or ({"do": "replace"},)]
                return "times" not in match and steps != ["notify"]
        return False

    def tolerates(self, kind: str, reason: str) -> float:
        """For how many seconds the first rule about this fault tolerates it."""
        for rule in self.rules:
            match = rule.get("match") or {}
            if _fits(match.get("type"), kind) and _fits(match.get("reason"), reason):
                return duration(rule.get("after"))
        return 0.0

    def scopes(self, labels: Json) -> list[str]:
        """The budgets that a node with these labels counts in."""
        return [FLEET, *(f"{key}={labels[key]}" for key in self.budget_per if key in labels)]

    def allowed(self, scope: str, population: int) -> int:
        """How many nodes of ``scope`` may be out, of so many."""
        value = self.budget if scope == FLEET else self.budget_per[scope.partition("=")[0]]
        if isinstance(value, str) and value.endswith("%"):
            share = float(value[:-1]) / 100.0
            return max(1, math.floor(share * population + 1e-9)) if share > 0 else 0
        return int(value)

    def sick_allowed(self, population: int, share: float) -> int:
        return max(1, math.ceil(share * population - 1e-9))


def share(value: Any) -> float:
    text = str(value)
    return float(text[:-1]) / 100.0 if text.endswith("%") else float(text)


def read(policy: Json) -> Limits:
    """The limits of a policy file."""
    given = policy.get("limits") or {}
    brake = share(given["brake"]) if "brake" in given else 0.3
    per = {k: share(v) for k, v in given["brakePer"].items()} if "brakePer" in given else {TYPE: brake}
    return Limits(
        budget=given.get("budget", 1),
        budget_per=dict(given["budgetPer"]) if "budgetPer" in given else {ZONE: 1},
        brake=brake,
        brake_per=per,
        cooldown=duration(given.get("cooldown"), 120.0),
        attempts=_series(given.get("attempts"), (3, 86400.0)),
        per_group=_series(given.get("perGroup"), (3, 6 * 3600.0)),
        rules=tuple(policy.get("rules") or ()),
    )


def _series(given: Any, default: tuple[int, float]) -> tuple[int, float]:
    if not given:
        return default
    return int(given.get("max", default[0])), duration(given.get("within"), default[1])


def _fits(wanted: Any, found: str) -> bool:
    patterns = [wanted] if isinstance(wanted, str) else list(wanted or ("*",))
    return any(fnmatchcase(found, str(p)) for p in patterns)
