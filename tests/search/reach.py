"""What a search has reached: every move of the lifecycle, every effect, every brake, each crossed with every
disturbance. What it never reached is listed."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args
from unittest.mock import patch

from recovery.agent.execute import Executor
from recovery.decide import brakes, decision, lifecycle
from recovery.decide.decision import Decision
from tests.search.acts import ACTS
from tests.search.facts import FAULT_SHOWN, Fact, Happened
from tests.search.script import Act, lasting

LASTS = 180.0
"""For so long after it began, a disturbance without a length of its own counts as going on."""

EFFECTS = tuple(effect.__name__ for effect in get_args(decision.Effect))

CROSSED = ("move ", "effect ", "brake ")
"""What is counted beside each disturbance."""
STATE = ("npd", "conditions", "konduktor")
"""The sources that state faults."""

NOT_REACHED: Mapping[str, str] = {
    "effect OutOfService": "the group's machines have no power sensor; tests/stories/test_power.py",
    "effect Cancel": "the group's provider hands no order to another controller; tests/stories/test_power.py",
    "brake off": "an agent that is off is asked no brake: it decides that once, before; tests/stories/test_observe.py",
    "effect RemoveRecord": "a record is kept for a day at least, and no history is that long; tests/stories/test_closed_records.py",
    "act record made": "the API server refuses a record without a status; tests/unit/test_search_reach.py",
    "effect CreateJob": "no policy of the search validates by a Job; tests/stories/test_training.py",
}
"""What the search cannot reach, and why, with the tests that do."""


def everything() -> list[str]:
    """All there is to reach."""
    moves = [f"move {phase.value} {event.value}" for phase, event in lifecycle.TABLE]
    asked = [*brakes.STARTING, *brakes.GOING_ON, *brakes.UNASKED]
    held = sorted({f"brake {key}" for key, _ in asked})
    stated = [f"stated by {s}{alone}" for s in STATE for alone in ("", " alone")]
    return [
        *moves,
        *stated,
        *(f"effect {name}" for name in EFFECTS),
        *held,
        *(f"act {name}" for name in ACTS),
    ]


@dataclass(frozen=True)
class Never:
    """Moves, effects or brakes that none of these disturbances can be beside, and why."""

    things: frozenset[str]
    whats: frozenset[str]
    why: str


NEVER_BESIDE: tuple[Never, ...] = (
    Never(
        frozenset(everything()),
        frozenset({"record made"}),
        "the API server refuses a record without a status, as this one is",
    ),
    Never(
        frozenset({"brake correlated"}),
        frozenset({"page away", "new ones are blind", "rubbish page", "many reasons"}),
        "only the controller compares machines, and it reads no page of node-problem-detector",
    ),
)


def explained() -> set[tuple[str, str]]:
    """The pairs that ``NEVER_BESIDE`` explains."""
    rules = {(thing, what) for rule in NEVER_BESIDE for thing in rule.things for what in rule.whats}
    return rules & set(pairs_of())


def pairs_of() -> list[tuple[str, str]]:
    """Every move, effect and brake that can be reached, with every disturbance."""
    things = [t for t in everything() if t.startswith(CROSSED) and t not in NOT_REACHED]
    return [(thing, what) for thing in things for what in ACTS]


class Reach:
    """Counts what happened, and beside which disturbances."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.crossed: Counter[tuple[str, str]] = Counter()

    def add(self, thing: str, beside: Iterable[str] = ()) -> None:
        self.counts[thing] += 1
        for what in beside:
            self.crossed[thing, what] += 1

    def shown(self, history: Iterable[Fact]) -> None:
        """Which sources stated faults, and which did so alone."""
        for f in history:
            if isinstance(f, Happened) and f.what == FAULT_SHOWN:
                by = f.detail.get("by", ("npd",))
                self.counts.update(f"stated by {source}" for source in by)
                self.counts.update(f"stated by {source} alone" for source in by if len(by) == 1)

    def merge(self, other: Reach) -> None:
        self.counts.update(other.counts)
        self.crossed.update(other.crossed)

    def missing(self) -> list[str]:
        """What was never reached, without what ``NOT_REACHED`` explains."""
        return [thing for thing in everything() if not self.counts[thing] and thing not in NOT_REACHED]

    def uncrossed(self, before: Reach | None = None) -> dict[str, list[str]]:
        """The disturbances that each move, effect and brake was never beside, without what is explained.
        ``before``: what was reached earlier."""
        known = explained()
        found: dict[str, list[str]] = {}
        for pair in pairs_of():
            reached = self.crossed[pair] or (before is not None and before.crossed[pair])
            if not reached and pair not in known:
                found.setdefault(pair[0], []).append(pair[1])
        return found

    def lies(self) -> list[str]:
        """What ``NOT_REACHED`` and ``NEVER_BESIDE`` say cannot be, and was."""
        pairs = sorted(pair for pair in explained() if self.crossed[pair])
        return [t for t in NOT_REACHED if self.counts[t]] + [f"{t} beside {what}" for t, what in pairs]

    # ------------------------------------------------------------ over several runs

    @staticmethod
    def of_file(file: Path) -> Reach:
        """What runs before have reached; nothing where there is no such file."""
        found = Reach()
        if file.exists():
            kept = json.loads(file.read_text(encoding="utf-8"))
            found.counts.update(kept["counts"])
            for thing, whats in kept["beside"].items():
                found.crossed.update({(thing, what): count for what, count in whats.items()})
        return found

    def merge_file(self, file: Path) -> None:
        """Add what runs before have reached, where there is such a file, and write the sum: a thing a line."""
        self.merge(Reach.of_file(file))
        beside: dict[str, dict[str, int]] = {}
        for (thing, what), count in sorted(self.crossed.items()):
            beside.setdefault(thing, {})[what] = count
        lines = ",\n".join(f"{json.dumps(thing)}: {json.dumps(whats)}" for thing, whats in beside.items())
        counts = json.dumps(dict(sorted(self.counts.items())))
        file.write_text(f'{{"counts": {counts},\n"beside": {{\n{lines}\n}}}}\n', encoding="utf-8")


class _Table(dict[Any, Any]):
    """The lifecycle's table, which tells what is looked up in it."""

    def __init__(self, table: Mapping[Any, Any], tell: Any) -> None:
        super().__init__(table)
        self._tell = tell

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        self._tell(f"move {key[0].value} {key[1].value}")
        return found


class Disturbances:
    """Which disturbances go on at a moment."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def began(self, a: Act) -> float:
        """Until when one of this kind went on before."""
        before = self._until.get(a.what, -1.0)
        self._until[a.what] = max(before, a.at + max(lasting(a), LASTS))
        return before

    def never_began(self, a: Act, before: float) -> None:
        """There was nothing to do it to."""
        self._until[a.what] = before

    def at(self, now: float) -> list[str]:
        return [what for what, until in self._until.items() if now <= until]


@contextlib.contextmanager
def watching(reach: Reach, beside: Any) -> Iterator[None]:
    """While inside, everything that agents do is counted. ``beside()``: the disturbances that go on."""

    def tell(thing: str) -> None:
        reach.add(thing, beside())

    perform, first_reason = Executor.perform, brakes.first_reason

    def performed(self: Any, s: Any, d: Decision, *more: Any) -> Decision:
        tell(f"effect {type(d.effect).__name__}")
        return perform(self, s, d, *more)

    def reason(questions: Any, s: Any) -> tuple[str, str] | None:
        found = first_reason(questions, s)
        if found is not None:
            tell(f"brake {found[0]}")
        return found

    with (
        patch.object(Executor, "perform", performed),
        patch.object(brakes, "first_reason", reason),
        patch.object(lifecycle, "TABLE", _Table(lifecycle.TABLE, tell)),
    ):
        yield
