"""The summary: the time of each phase, and whether all that was promised is true. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from recovery_demo.ledger import PHASES, Ledger, Recovery, identity
from recovery_demo.metal_ledger import MetalLedger, Trainer

MARK = "node-recovery:"
"""How a sentinel of ours begins."""


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
        _told(
            "CloudWatch has a metric for each fault, and RecoveryAction started and succeeded for each",
            metrics,
            {r.reason: 1 for r in stories}
            | {f"RecoveryAction(replace, {o})": len(stories) for o in ("started", "succeeded")},
        ),
        _all_well(ledger, nodes),
        _untouched(ledger, nodes - len(stories)),
    ]


def moved(ledger: Ledger, nodes: int, replicas: int) -> list[Check]:
    """What must be so at the end of the story on Azure."""
    r = next(iter(ledger.recoveries.values()), Recovery("", "", ""))
    wanted = [("reimage", r.node), ("redeploy", r.node)]
    asked = ", ".join(f"{verb} of {node or 'no machine'}" for verb, node in ledger.asked)
    return [
        _closed(ledger, "recovered"),
        Check(
            "Azure was asked for one reimage and one redeploy of that machine, and for nothing else",
            ledger.asked == wanted,
            f"it was asked for {asked or 'nothing'}",
        ),
        Check(
            "the reimage left it on its host, where the fault came back; the redeploy took it to another",
            r.returned and len(r.hosts) == 3 and r.hosts[0] == r.hosts[1] != r.hosts[2],
            f"it was on the hosts {', '.join(map(str, r.hosts))}",
        ),
        Check(
            "both are proved by a new boot ID, of the same Node: its name, UID and providerID have stayed",
            len(set(r.boots)) == 3 and _same_node(ledger, r),
            f"the boot IDs were {', '.join(r.boots)}"
            + ("" if _same_node(ledger, r) else ", and it is another Node now"),
        ),
        _one_at_a_time(ledger),
        *_budget_of_pods(ledger, replicas),
        _told(
            "Azure Monitor has a metric for the fault, and RecoveryAction for what was started and succeeded",
            ledger.metrics,
            {
                r.reason: 1,
                "RecoveryAction(reimage, started)": 1,
                "RecoveryAction(redeploy, started)": 1,
                "RecoveryAction(redeploy, succeeded)": 1,
            },
        ),
        Check(
            "they are metrics of the scale set, and not of a machine that may go",
            len(ledger.subjects) == 1 and not any("virtualMachines/" in s for s in ledger.subjects),
            f"they are of {', '.join(sorted(ledger.subjects))}",
        ),
        _all_well(ledger, nodes),
        _untouched(ledger, nodes - 1),
    ]


def rebooted(ledger: MetalLedger, nodes: int, replicas: int) -> list[Check]:
    """What must be so at the end of the story on bare metal."""
    r = next(iter(ledger.recoveries.values()), Recovery("", "", ""))
    here = {name: t for name, t in ledger.trainers.items() if t.node == r.node}
    evicted = [name for name, t in ledger.trainers.items() if t.evicted]
    asked = "; ".join(f"on {node or 'no machine'}: {text}" for node, text in ledger.sentinels)
    return [
        _closed(ledger, "handedOver"),
        Check(
            "its trainer was told to write a checkpoint, and ended by itself before the moment of eviction",
            bool(here) and all(t.in_time for t in here.values()),
            "; ".join(f"{name}: {t}" for name, t in here.items()) or "no trainer ran there",
        ),
        Check(
            "no trainer was evicted or deleted, and as many serve as before, elsewhere",
            bool(here) and not evicted and not _serving(here) and ledger.serving == replicas,
            f"evicted: {', '.join(evicted) or 'none'}; {ledger.serving} serve",
        ),
        _enough_served(ledger, replicas),
        Check(
            "kured was asked by one sentinel, on that machine, and it says whose it is",
            [(node, text.startswith(MARK)) for node, text in ledger.sentinels] == [(r.node, True)],
            asked or "it was not asked",
        ),
        Check(
            "the reboot is proved by one new boot ID of the same Node: its UID and system UUID have stayed",
            len(r.boots) == len(set(r.boots)) == 2 and _same_node(ledger, r),
            f"the boot IDs were {', '.join(r.boots)}"
            + ("" if _same_node(ledger, r) else ", and it is another Node now"),
        ),
        _validated_first(ledger, r),
        Check(
            "the fault came back, and no second reboot was tried: a person was told that one had not helped",
            "back" in r.times and "(reboot had not helped)" in ledger.hand_over,
            ledger.hand_over or "no Event tells of a hand-over",
        ),
        Check(
            "the record remembers all of it: submitted, recovered, and handed over in the end",
            _in_order(ledger.history, "submitted", "recovered", "handedOver"),
            ", ".join(ledger.history) or "it remembers nothing",
        ),
        _one_at_a_time(ledger),
        Check(
            "its place in the budget is free again",
            bool(ledger.recoveries) and not ledger.slots,
            f"held by {', '.join(ledger.slots) or 'nobody, for nothing happened'}",
        ),
        _untouched(ledger, nodes - 1),
    ]


def _validated_first(ledger: MetalLedger, r: Recovery) -> Check:
    """By the API's own order, marks on, Job made, Job succeeded, marks off."""
    jobs = list(ledger.validations.values())
    on, off = ledger.closed.get(r.node), ledger.opened.get(r.node)
    steps = (on, *(x for j in jobs for x in (j.made, j.passed)), off)
    known = [x for x in steps if x is not None]
    where = ", ".join(f"{name} on {j.node or 'no node'}" for name, j in ledger.validations.items())
    return Check(
        "one validation Job succeeded on that node while it was kept out, and only then the marks came off",
        [j.node for j in jobs] == [r.node] and len(known) == len(steps) and known == sorted(known),
        f"Jobs: {where or 'none'}; marks on, Job made, Job succeeded, marks off: {steps}",
    )


def _serving(trainers: Mapping[str, Trainer]) -> list[str]:
    return [name for name, trainer in trainers.items() if trainer.serving]


def _in_order(found: list[str], *wanted: str) -> bool:
    rest = iter(found)
    return all(event in rest for event in wanted)


def _closed(ledger: Ledger, phase: str) -> Check:
    stories = ledger.recoveries.values()
    count = "both records say" if len(stories) == 2 else "the record says"
    return Check(
        f"{count} {phase}",
        bool(stories) and all(r.phase == phase for r in stories),
        "; ".join(f"{r.node} is {r.phase or 'without a record'} ({r.sentence})" for r in stories),
    )


def _same_node(ledger: Ledger, r: Recovery) -> bool:
    return r.node in ledger.nodes and identity(ledger.nodes[r.node]) == r.identity


def _all_well(ledger: Ledger, nodes: int) -> Check:
    return Check(
        f"{nodes} nodes are Ready, and none is cordoned or tainted",
        ledger.healthy_nodes() == nodes == len(ledger.nodes),
        f"{ledger.healthy_nodes()} of {len(ledger.nodes)} are",
    )


def _one_at_a_time(ledger: Ledger) -> Check:
    return Check(
        "never more than one slot of the budget was held, and never more than one node was out",
        ledger.most_slots == 1 and ledger.most_out == 1,
        f"{ledger.most_slots} slots, {ledger.most_out} nodes",
    )


def _enough_served(ledger: Ledger, replicas: int) -> Check:
    least = ledger.least_serving
    return Check(
        f"the disruption budget was never violated: {replicas - 1} of {replicas} trainers or more served",
        least is not None and least >= replicas - 1,
        f"once there were {least}",
    )


def _budget_of_pods(ledger: Ledger, replicas: int) -> list[Check]:
    return [
        _enough_served(ledger, replicas),
        Check(
            "it refused an eviction, which was asked for again and allowed later",
            ledger.refused_evictions > 0,
            "it never refused one",
        ),
    ]


def _told(promise: str, metrics: Mapping[str, float], wanted: Mapping[str, int]) -> Check:
    missing = [name for name, least in wanted.items() if metrics.get(name, 0.0) < least]
    return Check(promise, bool(wanted) and not missing, f"missing: {', '.join(missing)}")


def _untouched(ledger: Ledger, count: int) -> Check:
    others = [n for n in ledger.first_nodes if n not in ledger.recoveries]
    wrong = [n for n in others if n in ledger.touched or n in ledger.ended or n not in ledger.nodes]
    one = "the other node was" if count == 1 else f"the other {count} nodes were"
    return Check(f"{one} never touched", not wrong and len(others) == count, f"touched: {', '.join(wrong)}")
