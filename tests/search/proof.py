"""Proof that the search works: ``python -m tests.search.proof [--minutes 10] [--only m07,law02]``.

Each switch of ``tests/search/without`` takes one mend out again, or a mechanism that a law rests on. The search
looks for a history that breaks a law then. One counts only if nothing is broken by the same seed without the switch.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass

from tests.search import seeds, without
from tests.search.__main__ import Found, look, ready
from tests.search.judge import Violation
from tests.search.order import start_again

LAWS = tuple(f"law {i}" for i in range(1, 12))


@dataclass
class Proof:
    """What came of one switch."""

    name: str
    seconds: float
    histories: int
    seed: int | None = None
    violation: Violation | None = None
    laws: frozenset[str] = frozenset()
    """All that this history breaks."""

    def __str__(self) -> str:
        told = f"{self.name:48} {self.seconds:5.0f} s {self.histories:6} histories"
        if self.violation is None:
            return f"{told}  not found"
        v = self.violation
        return f"{told}  seed {self.seed}: {v.law}, {v.kind}: {v.sentence[:160]}"


def _ready(name: str, plots: tuple[str, ...]) -> None:
    ready(name)
    seeds.ONLY = plots


def prove(name: str, minutes: float, jobs: int, first: int | None) -> Proof:
    """Search with the switch ``name`` until something counts, or the time is over."""
    plots = without.plots_of(name)
    numbers = itertools.count(random.SystemRandom().randrange(10**6, 10**9) if first is None else first)
    began, looked = time.monotonic(), 0
    with (
        ProcessPoolExecutor(jobs, initializer=_ready, initargs=(name, plots)) as broken,
        ProcessPoolExecutor(1, initializer=_ready, initargs=("", plots)) as whole,
    ):
        for found in _found(broken, numbers, jobs, began + 60 * minutes):
            looked += 1
            if found.broken and not whole.submit(look, found.seed).result().broken:
                laws = frozenset(v.law for v in found.broken)
                seconds = time.monotonic() - began
                return Proof(name, seconds, looked, found.seed, found.broken[0], laws)
    return Proof(name, time.monotonic() - began, looked)


def _found(pool: ProcessPoolExecutor, numbers: Iterator[int], jobs: int, end: float) -> Iterator[Found]:
    waiting: set[Future[Found]] = {pool.submit(look, next(numbers)) for _ in range(2 * jobs)}
    try:
        while time.monotonic() < end:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                waiting.add(pool.submit(look, next(numbers)))
                yield future.result()
    finally:
        for future in waiting:
            future.cancel()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.search.proof", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="for each switch")
    parser.add_argument("--only", default="", help="switches by the beginning of their names, by commas")
    parser.add_argument("--first", type=int, help="the first seed; without it, new ones")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    wanted = args.only.split(",") if args.only else [""]
    names = [name for name in without.names() if name.startswith(tuple(wanted))]
    proofs = []
    for name in names:
        proofs.append(prove(name, args.minutes, args.jobs, args.first))
        print(proofs[-1], flush=True)
    found = [p for p in proofs if p.violation is not None]
    laws = frozenset().union(*(p.laws for p in found))
    print(f"{len(found)} of {len(proofs)} found")
    if missing := [law for law in LAWS if law not in laws]:
        print(f"laws that no switch was found by: {', '.join(missing)}")
    return int(len(found) < len(proofs))


if __name__ == "__main__":
    start_again("tests.search.proof")
    sys.exit(main())
