"""The pure parts: reading a page ten times as long as a real one, and deciding."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from figures import Figure, report
from prometheus_client.parser import text_string_to_metric_families

from recovery.config.policy_file import load_builtin
from recovery.decide.own_node import decide
from recovery.decide.situation import Lease, Situation
from recovery.model import Machine, NodeView, ProviderFacts
from recovery.signals.memory import State
from recovery.signals.page import parse
from recovery.signals.tracker import observe

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "tests/captures/full-page/01-ib-and-neuron.prom").read_text()
TEN = 10
AT = datetime(2026, 11, 21, 12, tzinfo=UTC)


def tenfold() -> str:
    """The captured page of a whole NPD, and nine more of each problem series under other names."""
    more = []
    for line in PAGE.splitlines():
        if line.startswith(("problem_counter{", "problem_gauge{")):
            more += [line.replace('reason="', f'reason="Copy{i}') for i in range(1, TEN)]
        elif line and not line.startswith("#"):
            name, _, rest = line.partition("{")
            more += [f"{name}_copy{i}{{{rest}" for i in range(1, TEN)] if rest else []
    return PAGE + "\n".join(more) + "\n"


def per_second(do: Callable[[], object], seconds: float = 2.0) -> float:
    """How often ``do`` can be done in a second of this thread's CPU."""
    do()
    count, began = 0, time.thread_time()
    while time.thread_time() - began < seconds:
        do()
        count += 1
    return count / (time.thread_time() - began)


def situations() -> dict[str, Situation]:
    """A healthy node, and one whose fault is being weighed against rules, record and gate."""
    policy = load_builtin().policy
    page = (ROOT / "tests/captures/neuron-dma-error/00-healthy.prom").read_text()
    sick = (ROOT / "tests/captures/neuron-dma-error/01-dma-error.prom").read_text()
    state, healthy = observe(State(), parse(page), AT, "boot", timedelta(seconds=10))
    _, faulty = observe(state, parse(sick), AT + timedelta(seconds=1), "boot", timedelta(seconds=10))
    node = NodeView("n", "uid", "1", "aws:///a/i-0", "boot", conditions={"Ready": ("True", "")})
    s = Situation(
        now=AT + timedelta(seconds=1),
        node_name="n",
        policy=policy,
        readings=(healthy,),
        node=node,
        machine=Machine("aws", "i-0", "aws:///a/i-0"),
        provider=ProviderFacts("aws"),
        lease=Lease("me", mine=True, stale=False),
    )
    return {"healthy": s, "with a new fault": replace(s, readings=(faulty,))}


def main() -> int:
    text = tenfold()
    ours = per_second(lambda: parse(text))
    theirs = per_second(lambda: list(text_string_to_metric_families(text)))
    size = len(text) / 1024
    figures = [
        Figure(
            f"parse of a page of {size:.0f} KiB, {text.count(chr(10))} lines (10-fold)",
            1000 / ours,
            "ms of CPU",
            50,
            peer=f"{theirs / ours:.2f} x prometheus_client's parser alone ({1000 / theirs:.1f} ms)",
        )
    ]
    for name, s in situations().items():
        rate = per_second(lambda s=s: decide(s))
        figures.append(Figure(f"decisions, {name}", rate, "a second", 3333, least=True))
    return report(figures)


if __name__ == "__main__":
    sys.exit(main())
