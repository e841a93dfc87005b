"""How long the parts of the recoveries took, from the facts of a run.

python tests/soak/phases.py build/soak-7.jsonl
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.search import facts
from tests.search.facts import Asked, Fact, Happened, Wrote

PLACES = ("the fault is there", "on record", "has a slot", "asked for", "machine gone", "probation", "over")
PHASES = {"suspect": "on record", "recovering": "has a slot", "proving": "probation"}
ENDS = ("recovered", "superseded")


def moments(history: Iterable[Fact]) -> list[dict[str, float]]:
    """Of each node that broke, when it was first at each of ``PLACES``."""
    nodes: dict[str, str] = {}  # machine -> node
    found: dict[str, dict[str, float]] = {}
    for fact in history:
        if isinstance(fact, Happened) and fact.what == facts.MACHINE_JOINED:
            nodes[fact.subject] = fact.detail["node"]
            continue
        node, place = at_place(fact, nodes)
        if place == PLACES[0] or (place and node in found):
            found.setdefault(node, {}).setdefault(place, fact.at)
    return list(found.values())


def at_place(fact: Fact, nodes: dict[str, str]) -> tuple[str, str]:
    if isinstance(fact, Happened):
        places = {facts.FAULT_BEGAN: PLACES[0], facts.MACHINE_GONE: "machine gone"}
        return nodes.get(fact.subject, ""), places.get(fact.what, "")
    if isinstance(fact, Asked):
        return nodes.get(fact.machine, ""), "asked for"
    if isinstance(fact, Wrote) and fact.kind == "NodeRecovery" and fact.after:
        phase = fact.after.get("status", {}).get("phase", "")
        return fact.name, "over" if phase in ENDS else PHASES.get(phase, "")
    return "", ""


def table(history: Iterable[Fact]) -> str:
    """Seconds from place to place, of the recoveries that were at every one."""
    whole = [m for m in moments(history) if len(m) == len(PLACES)]
    lines = [f"  seconds of {len(whole)} recoveries: median, one in ten takes longer, longest"]
    for one, other in [*pairwise(PLACES), (PLACES[0], PLACES[-1])]:
        if took := sorted(m[other] - m[one] for m in whole):
            long = took[len(took) * 9 // 10]
            lines.append(f"  {median(took):7.1f} {long:7.1f} {took[-1]:7.1f}  {one} -> {other}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(table(facts.from_file(Path(sys.argv[1]).read_text())) + "\n")
