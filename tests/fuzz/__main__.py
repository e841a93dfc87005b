"""``make fuzz``: what strangers write, in many thousand wrong ways. Ends with 1 if anything was found.

Each input runs in a process of its own, one after the other: its memory is its own.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pickle
import pkgutil
import sys
import tempfile
import traceback
from pathlib import Path

from tests.fuzz import inputs
from tests.fuzz.engine import Finding, Input, Result, fuzz, pasted

CASES = 100_000
HEAD = f"{'input':<16}{'cases':>9}{'a second':>10}{'worst, ms':>11}{'MiB more':>10}{'lines reached':>16}"


def load(name: str) -> Input:
    """The input that a module of ``inputs`` makes."""
    made: Input = importlib.import_module(f"{inputs.__name__}.{name}").make()
    return made


def names() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(inputs.__path__))


def alone(name: str, weight_of_all: float, cases: int, seed: int) -> Result:
    """One input, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "result"
        if (child := os.fork()) == 0:
            status = 1
            try:
                it = load(name)
                share = max(round(cases * it.weight / weight_of_all), 1)
                told.write_bytes(pickle.dumps(fuzz(it, share, seed)))
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(status)
        os.waitpid(child, 0)
        if not told.exists():
            died = Finding("crash", "", "the process died", b"")
            return Result(name, findings=[died])
        result: Result = pickle.loads(told.read_bytes())
        return result


def line(r: Result) -> str:
    reached = f"{r.lines[0]} of {r.lines[1]}" if r.lines[1] else ""
    rate = r.cases / r.seconds if r.seconds else 0
    return f"{r.name:<16}{r.cases:>9,}{rate:>10,.0f}{r.worst * 1000:>11.1f}{r.mib:>10.1f}{reached:>16}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=CASES, help="in all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=names(), action="append", help="one input")
    asked = parser.parse_args()
    wanted = asked.only or names()
    weights = sum(importlib.import_module(f"{inputs.__name__}.{name}").WEIGHT for name in wanted)
    print(HEAD, flush=True)
    results = []
    for name in wanted:
        results.append(alone(name, weights, asked.cases, asked.seed))
        print(line(results[-1]), flush=True)
    found = [(r.name, f) for r in results for f in r.findings]
    for name, f in found:
        print(f"\n{name}: {f.kind} {f.where}: {f.told}\n    case = {pasted(f.case)}")
    failed = sum(1 for r in results if r.findings)
    cases, seconds = sum(r.cases for r in results), sum(r.seconds for r in results)
    print(f"\n{cases:,} cases in {seconds:.0f} s, seed {asked.seed}: {len(found)} faults")
    print(f"{len(results) - failed} passed, {failed} failed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
