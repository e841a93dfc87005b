"""The summary: the time of each phase, and whether all that was promised is true. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from recovery_demo.fleet_ledger import FleetLedger
from recovery_demo.fleet_manifests import BUDGET, DRIVER
from recovery_demo.ledger import PHASES, Ledger, Recovery, identity
from recovery_demo.metal_ledger import MetalLedger, Trainer

MARK = "node-recovery:"
"""How a sentinel of ours begins."""
TAKEN_WITHIN = 30.0
"""Seconds in which a dead leader's place is taken: its Lease has to run out, on a slow computer too."""


@dataclass(frozen=True)
class Check:
    """Something promised, and whether it is so. ``found`` says what was found instead."""

    promise: str
    kept: bool
    found: str = ""

    def __str__(self) -> str:
        return self.promise if self.kept or not self.found else f"{self.promise}: {self.found}"


# ---------------------------------------------------------------- times


def table(recoveries: Iterable[Recovery], phases: Mapping[str, str] = PHASES) -> list[str]:
    """A row per phase: seconds since the fault appeared, and in brackets since the phase before."""
    columns = list(recoveries)
    first = max(len(text) for text in phases.values())
    wide = max(20, *(len(r.reason) for r in columns))
    rows = [
        " " * first + "".join(f"  {r.node:>{wide}}" for r in columns),
        " " * first + "".join(f"  {r.reason:>{wide}}" for r in columns),
    ]
    for phase, text in phases.items():
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
            f"SetInstanceHealth reached AWS {len(stories)} times, once for each instance",
            bool(stories) and sorted(ledger.marked) == expected,
            f"it was called for {', '.join(ledger.marked) or 'none'}, not for {', '.join(expected)}",
        ),
        _one_at_a_time(ledger),
        Check(
            "the second fault waited for the budget, and said so",
            bool(ledger.waited),
            "no Event says that it waited",
        ),
        _concluded(stories),
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


def only_said(
    ledger: Ledger,
    r: Recovery,
    metrics: Mapping[str, float],
    written: Mapping[str, int],
    changed: Iterable[str],
    reported: Iterable[str],
    drilled: Iterable[str],
    replicas: int,
) -> list[Check]:
    """What must be so at the end of the story with recovery off. ``written``: how many objects of each kind
    that only a recovery writes. ``changed``: the Nodes whose spec, labels or annotations are not as before.
    ``reported``, ``drilled``: what ``report`` printed, and ``explain`` of the node with the drill."""
    would, nodes = f"would drain {r.node}; then replace", ", ".join(changed)
    found = ", ".join(f"{count} {kind}" for kind, count in written.items() if count)
    return [
        Check(
            "an Event says what would be done, the first step first", r.sentence.startswith(would), r.sentence
        ),
        Check(
            "node-recovery report shows it, with what would be done",
            any(r.node in line and would in line for line in reported),
            "it says something else",
        ),
        Check(
            "node-recovery explain says that the drill on a healthy node is a drill",
            any("would drain" in line and "(a drill)" in line for line in drilled),
            "explain does not say so",
        ),
        Check(
            "no Node was cordoned, tainted, labelled or annotated", not nodes and not ledger.touched, nodes
        ),
        Check("no record was created, no place in the budget taken, no Lease created", not found, found),
        Check(
            "no pod was evicted",
            ledger.serving == replicas == (ledger.least_serving or replicas) and not ledger.refused_evictions,
            f"{ledger.least_serving or ledger.serving} of {replicas} trainers served",
        ),
        Check(
            "no call that changes anything reached AWS", not ledger.calls, f"it was asked for {ledger.calls}"
        ),
        Check(
            "CloudWatch has the fault, and no started action",
            metrics.get(r.reason, 0) >= 1 and not any("started" in name for name in metrics),
            f"it has {', '.join(metrics) or 'nothing'}",
        ),
    ]


def rebooted_first(
    ledger: Ledger, metrics: Mapping[str, float], nodes: int, replicas: int, after: float
) -> list[Check]:
    """What must be so at the end of the story of a GPU on AWS. ``after``: seconds that the rule tolerates."""
    r = next(iter(ledger.recoveries.values()), Recovery("", "", ""))
    wanted = [("RebootInstances", r.instance), ("SetInstanceHealth", r.instance)]
    asked = ", ".join(f"{action} of {instance or 'no instance'}" for action, instance in ledger.calls)
    return [
        _closed(ledger, "recovered"),
        Check(
            f"nothing was done to the node before its XID was {after:g} s old",
            "cordoned" in r.times and r.times["cordoned"] - r.times["fault"] >= after,
            f"it was cordoned after {r.times['cordoned'] - r.times['fault']:.1f} s"
            if "cordoned" in r.times
            else "it was never cordoned",
        ),
        Check(
            "the XID was gone from the page by then, and this did not count as a repair",
            r.times.keys() >= {"hidden", "cordoned"} and r.times["hidden"] < r.times["cordoned"],
            "the page still showed it",
        ),
        Check(
            "AWS was asked for one reboot of that instance, then once to replace it, and for nothing else",
            ledger.calls == wanted,
            f"it was asked for {asked or 'nothing'}",
        ),
        Check(
            "the reboot showed a new boot ID, and the XID came back in its probation",
            len(r.boots) == len(set(r.boots)) == 2 and r.returned,
            f"the boot IDs were {', '.join(r.boots)}"
            + ("" if r.returned else "; no Event says that it came back"),
        ),
        _one_at_a_time(ledger),
        _concluded([r]),
        *_budget_of_pods(ledger, replicas),
        _told(
            "CloudWatch has a metric for the XID, and RecoveryAction for what was started and succeeded",
            metrics,
            {
                r.reason: 1,
                "RecoveryAction(reboot, started)": 1,
                "RecoveryAction(replace, started)": 1,
                "RecoveryAction(replace, succeeded)": 1,
            },
        ),
        _all_well(ledger, nodes),
        _untouched(ledger, nodes - 1),
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
            f"held by {', '.join(ledger.slots) or 'nobody, because nothing happened'}",
        ),
        _untouched(ledger, nodes - 1),
    ]


def one_controller(
    ledger: FleetLedger,
    metrics: Mapping[str, float],
    nodes: int,
    replicas: int,
    many: Iterable[str],
    status: Iterable[str],
) -> list[Check]:
    """What must be so at the end of the story of a fleet. ``many``: the nodes with one cause. ``status``:
    what the command said of them while they were held."""
    stories = list(ledger.recoveries.values())
    expected = sorted(("SetInstanceHealth", r.instance) for r in stories)
    asked = ", ".join(f"{action} of {instance or 'no instance'}" for action, instance in sorted(ledger.calls))
    return [
        _closed(ledger, "recovered"),
        Check(
            f"AWS was asked {len(stories)} times, once to replace each node, and for nothing else",
            bool(stories) and sorted(ledger.calls) == expected,
            f"it was asked for {asked or 'nothing'}",
        ),
        *_taken_over(ledger),
        *_held(ledger, list(many), list(status)),
        Check(
            f"never more than {BUDGET} slots of the budget were held, nor more than {BUDGET} nodes out",
            0 < ledger.most_slots <= BUDGET and 0 < ledger.most_out <= BUDGET,
            f"{ledger.most_slots} slots, {ledger.most_out} nodes",
        ),
        _enough_served(ledger, replicas, BUDGET),
        _told(
            "CloudWatch has a metric for each fault, and RecoveryAction succeeded for each",
            metrics,
            {r.reason: 1 for r in stories} | {"RecoveryAction(replace, succeeded)": len(stories)},
        ),
        _all_well(ledger, nodes),
        _untouched(ledger, nodes - len(stories)),
    ]


def _taken_over(ledger: FleetLedger) -> list[Check]:
    """The leader was killed after its first call, and another went on with it."""
    first = next(iter(ledger.recoveries.values()), Recovery("", "", ""))
    marked, proved = first.times.get("marked"), first.times.get("proved")
    killed, led = ledger.killed, ledger.led_again
    took = led - killed if killed is not None and led is not None else None
    in_order = [x for x in (marked, killed, led, proved) if x is not None]
    left = ledger.left_behind.get(first.node, [])
    return [
        Check(
            "the leader was killed in the middle of a recovery; the other replica led"
            + (f" {took:.0f} s later" if took is not None else "")
            + ", and proved what the first had begun",
            took is not None
            and took <= TAKEN_WITHIN
            and len(ledger.leaders) == 2
            and len(in_order) == 4
            and in_order == sorted(in_order),
            f"called, killed, taken, proved at {marked}, {killed}, {led}, {proved} s; "
            f"{len(ledger.leaders)} held the Lease",
        ),
        Check(
            "the trainer on the dead machine never ended, and held nothing up",
            bool(left),
            "it was gone before the call",
        ),
    ]


def _held(ledger: FleetLedger, many: list[str], status: list[str]) -> list[Check]:
    named = [node for node in many if DRIVER in ledger.held.get(node, "")]
    silent = [node for node in many if not any(node in line and DRIVER in line for line in status)]
    let_go = [node for node, r in ledger.recoveries.items() if "approved" in r.times]
    return [
        Check(
            f"{len(many)} machines with one cause were held, and no other; the sentence names their driver",
            bool(many) and sorted(named) == sorted(many) == sorted(ledger.held),
            f"held: {', '.join(ledger.held) or 'none'}; the driver is named for {', '.join(named) or 'none'}",
        ),
        Check(
            "node-recovery status showed it",
            bool(many) and not silent,
            f"it did not for {', '.join(silent)}",
        ),
        Check(
            "nothing was done to them until a person approved their fault",
            bool(many) and sorted(let_go) == sorted(many) and not ledger.too_early,
            ", ".join(ledger.too_early) or "nobody approved it",
        ),
    ]


def _validated_first(ledger: MetalLedger, r: Recovery) -> Check:
    """By the API's own order, marks on, Job made, Job succeeded, marks off."""
    jobs = list(ledger.validations.values())
    on, off = ledger.closed.get(r.node), ledger.opened.get(r.node)
    steps = (on, *(x for j in jobs for x in (j.made, j.passed)), off)
    known = [x for x in steps if x is not None]
    where = ", ".join(f"{name} on {j.node or 'no node'}" for name, j in ledger.validations.items())
    return Check(
        "a validation Job succeeded there while the node was kept out; only then the marks were removed",
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
    count = {1: "the record says", 2: "both records say"}.get(len(stories), "all records say")
    return Check(
        f"{count} {phase}",
        bool(stories) and all(r.phase == phase for r in stories),
        "; ".join(f"{r.node} is {r.phase or 'without a record'} ({r.sentence})" for r in stories),
    )


def _concluded(stories: list[Recovery]) -> Check:
    which = "the record was" if len(stories) == 1 else "each record was"
    return Check(
        f"{which} concluded by a peer, because the sidecar that began it is dead",
        bool(stories) and all(r.concluder and r.concluder != r.node for r in stories),
        "; ".join(f"{r.node} by {r.concluder or 'nobody'}" for r in stories),
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


def _enough_served(ledger: Ledger, replicas: int, spared: int = 1) -> Check:
    least, enough = ledger.least_serving, replicas - spared
    return Check(
        f"the disruption budget was never violated: at least {enough} of {replicas} trainers served",
        least is not None and least >= enough,
        f"once there were {least}",
    )


def _budget_of_pods(ledger: Ledger, replicas: int) -> list[Check]:
    return [
        _enough_served(ledger, replicas),
        Check(
            "it refused an eviction, which was retried and allowed later",
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
