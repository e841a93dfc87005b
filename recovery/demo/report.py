"""The end of the story: the time of each phase, and whether all that was promised is true. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from recovery.demo.ledger import PHASES, Ledger, Recovery


@dataclass(frozen=True)
class Check:
    """Something promised, and whether it is so. ``found`` says what was found instead."""

    promise: str
    kept: bool
    found: str = ""

    def __str__(self) -> str:
        return self.promise if self.kept or not self.found else f"{self.promise}: {self.found}"


# ---------------------------------------------------------------- times


def table(recoveries: Iterable[Recovery]) -> list[str]:
    """A row per phase: seconds since the fault appeared, and in brackets since the phase before."""
    columns = list(recoveries)
    first = max(len(text) for text in PHASES.values())
    wide = max(20, *(len(r.reason) for r in columns))
    rows = [
        " " * first + "".join(f"  {r.node:>{wide}}" for r in columns),
        " " * first + "".join(f"  {r.reason:>{wide}}" for r in columns),
    ]
    for phase, text in PHASES.items():
        if any(phase in r.times for r in columns):
            cells = "".join(f"  {_cell(r, phase):>{wide}}" for r in columns)
            rows.append(f"{text:<{first}}{cells}")
    return rows


def _cell(r: Recovery, phase: str) -> str:
    if phase not in r.times:
        return "-"
    order = [r.times[p] for p in PHASES if p in r.times]
    index = [p for p in PHASES if p in r.times].index(phase)
    since = f"{r.times[phase] - order[0]:.1f} s"
    step = f"(+{max(0.0, r.times[phase] - order[index - 1]):.1f})" if index else ""
    return f"{since} {step:>8}"


# ---------------------------------------------------------------- checks


def replaced(ledger: Ledger, metrics: Mapping[str, float], nodes: int, replicas: int) -> list[Check]:
    """What must be so at the end of the story on AWS."""
    stories = list(ledger.recoveries.values())
    expected = sorted(r.instance for r in stories)
    return [
        _closed(ledger, "recovered"),
        Check(
            f"SetInstanceHealth reached AWS {len(stories)} times, once for each of the instances",
            bool(stories) and sorted(ledger.marked) == expected,
            f"it was called for {', '.join(ledger.marked) or 'none'}, not for {', '.join(expected)}",
        ),
        _one_at_a_time(ledger),
        Check(
            "the second fault waited for the budget, and said so",
            bool(ledger.waited),
            "no Event says that it waited",
        ),
        Check(
            "each record was concluded by a peer, for the sidecar that began it is dead",
            bool(stories) and all(r.concluder and r.concluder != r.node for r in stories),
            "; ".join(f"{r.node} by {r.concluder or 'nobody'}" for r in stories),
        ),
        *_budget_of_pods(ledger, replicas),
        _told(metrics, stories),
        Check(
            f"{nodes} nodes are Ready, and none is cordoned or tainted",
            ledger.healthy_nodes() == nodes == len(ledger.nodes),
            f"{ledger.healthy_nodes()} of {len(ledger.nodes)} are",
        ),
        _untouched(ledger, nodes - len(stories)),
    ]


def handed_over(ledger: Ledger, nodes: int) -> list[Check]:
    """What must be so at the end of the story on bare metal."""
    names = sorted(ledger.recoveries)
    marked = sorted(n for n in ledger.nodes if not ledger.is_healthy(n))
    return [
        _closed(ledger, "handedOver"),
        Check("it is cordoned and tainted, and stays so", marked == names, f"marked: {', '.join(marked)}"),
        Check(
            "its place in the budget is free again", not ledger.slots, f"held by {', '.join(ledger.slots)}"
        ),
        _untouched(ledger, nodes - len(names)),
    ]


def _closed(ledger: Ledger, phase: str) -> Check:
    stories = ledger.recoveries.values()
    count = "both records say" if len(stories) == 2 else "the record says"
    return Check(
        f"{count} {phase}",
        bool(stories) and all(r.phase == phase for r in stories),
        "; ".join(f"{r.node} is {r.phase or 'without a record'} ({r.sentence})" for r in stories),
    )


def _one_at_a_time(ledger: Ledger) -> Check:
    return Check(
        "never more than one slot of the budget was held, and never more than one node was out",
        ledger.most_slots == 1 and ledger.most_out == 1,
        f"{ledger.most_slots} slots, {ledger.most_out} nodes",
    )


def _budget_of_pods(ledger: Ledger, replicas: int) -> list[Check]:
    least = ledger.least_serving
    return [
        Check(
            f"the disruption budget was never violated: {replicas - 1} of {replicas} trainers or more served",
            least is not None and least >= replicas - 1,
            f"once there were {least}",
        ),
        Check(
            "it refused an eviction, which was asked for again and allowed later",
            ledger.refused_evictions > 0,
            "it never refused one",
        ),
    ]


def _told(metrics: Mapping[str, float], stories: Iterable[Recovery]) -> Check:
    wanted = {r.reason: 1.0 for r in stories}
    wanted |= {f"RecoveryAction(replace, {o})": float(len(wanted)) for o in ("started", "succeeded")}
    missing = [name for name, least in wanted.items() if metrics.get(name, 0.0) < least]
    return Check(
        "CloudWatch has a metric for each fault, and RecoveryAction started and succeeded for each",
        not missing,
        f"missing: {', '.join(missing)}",
    )


def _untouched(ledger: Ledger, count: int) -> Check:
    others = [n for n in ledger.first_nodes if n not in ledger.recoveries]
    wrong = [n for n in others if n in ledger.touched or n in ledger.ended or n not in ledger.nodes]
    one = "the other node was" if count == 1 else f"the other {count} nodes were"
    return Check(f"{one} never touched", not wrong and len(others) == count, f"touched: {', '.join(wrong)}")
