"""How a benchmark prints: each figure with its ratio to its budget, then all of them as one line of JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Figure:
    """One measurement. ``least``: the budget is a lower bound. ``peer``: the ratio to another's way."""

    name: str
    value: float
    unit: str
    budget: float | None = None
    least: bool = False
    peer: str = ""

    @property
    def kept(self) -> bool:
        if self.budget is None:
            return True
        return self.value >= self.budget if self.least else self.value <= self.budget

    def __str__(self) -> str:
        line = f"{self.name:56} {self.value:10.4g} {self.unit:12}"
        if self.budget is not None:
            bound = "at least" if self.least else "at most"
            line += f" {self.value / self.budget:6.2f} of the budget ({bound} {self.budget:g})"
        return line + (f"   {self.peer}" if self.peer else "") + ("" if self.kept else "   MISSED")


def report(figures: list[Figure]) -> int:
    """Print them; the exit code is 1 if a budget was missed."""
    for figure in figures:
        print(figure)
    print(json.dumps([asdict(figure) | {"kept": figure.kept} for figure in figures]))
    return 0 if all(figure.kept for figure in figures) else 1


def percentile(values: list[float], share: float) -> float:
    """The smallest value that ``share`` of all values do not exceed (nearest rank)."""
    ordered = sorted(values)
    rank = max(1, -(-len(ordered) * int(share * 1000) // 1000))
    return ordered[rank - 1]
