"""Searches for histories that break a law: ``make search``.

``SEEDS=1000`` or ``SEEDS=500-1500``: these seeds. ``MINUTES=10``: new ones, for so long. ``SEED=4711``: this one
again, shortened to a story. ``WITHOUT=m07``: with one mend taken out. Exit code 0: no law was broken.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from tests.search import directed, without
from tests.search.acts import ACTS
from tests.search.judge import Violation
from tests.search.order import start_again
from tests.search.play import History, play
from tests.search.reach import NEVER_BESIDE, NOT_REACHED, Reach, explained, pairs_of
from tests.search.script import Script
from tests.search.seeds import (
    DENSE_FROM,
    FIELD_FROM,
    FLEET_FROM,
    LATER_FROM,
    LATER_PLOTS_FROM,
    LATEST_FROM,
    SOURCES_FROM,
    script_of,
)
from tests.search.shrink import shrink, story
from tests.search.story import judged

LATER_EVERY = 5
"""So many new seeds there are for one under a later policy."""
LATEST_EVERY = 7
"""So many new seeds there are for one with what came later still."""


@dataclass
class Found:
    """What one seed showed."""

    seed: int
    recoveries: int
    facts: int
    broken: list[Violation]
    reach: Reach
    cpu: float = 0.0
    error: str = ""


@dataclass
class Sum:
    """What all seeds showed."""

    seeds: int = 0
    recoveries: int = 0
    cpu: float = 0.0
    reach: Reach = field(default_factory=Reach)
    broken: dict[tuple[str, str], tuple[int, Violation]] = field(default_factory=dict)
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    failed: list[int] = field(default_factory=list)

    def add(self, found: Found) -> None:
        self.seeds += 1
        self.recoveries += found.recoveries
        self.cpu += found.cpu
        self.reach.merge(found.reach)
        if found.broken or found.error:
            self.failed.append(found.seed)
        for v in found.broken:
            self.kinds[v.law, v.kind] += 1
            self.broken.setdefault((v.law, v.kind), (found.seed, v))


IGNORED: set[str] = set()
"""Kinds of violations that are not told."""


def broken_by(history: History) -> list[Violation]:
    return [v for v in judged(history) if v.kind not in IGNORED]


def look(seed: int) -> Found:
    """Play and judge one seed."""
    reach, began = Reach(), time.process_time()
    try:
        history = play(script_of(seed), reach)
        broken = broken_by(history)
    except Exception as error:  # a bug in program or search: to be looked at
        return Found(seed, 0, 0, [], reach, error=f"{type(error).__name__}: {error}")
    return Found(seed, history.recoveries, len(history.facts), broken, reach, time.process_time() - began)


def _seeds(args: argparse.Namespace, total: Sum) -> Iterator[int]:
    """The seeds to look at. Without end where a time was given."""
    if args.failed:
        return iter(failed_seeds())
    if args.lean:
        return _leaning(total.reach, Reach.of_file(args.reach) if args.reach else Reach())
    if not args.seeds:
        if args.beyond:
            return (seed for seed in _new((SOURCES_FROM,)) if script_of(seed).scene.sources)
        new = _new((FLEET_FROM,) if args.fleet else (0, SOURCES_FROM, FLEET_FROM))
        return (seed for seed in new if seed >= FIELD_FROM) if args.field else new
    first, _, last = args.seeds.rpartition("-")
    return iter(range(int(first or 0), int(last) + (1 if first else 0)))


def _new(families: tuple[int, ...]) -> Iterator[int]:
    """Seeds that nobody has looked at, of each of these ranges in turn, most of them with waves of faults, and
    every second one with what else clusters do around them."""
    for number in itertools.count(random.SystemRandom().randrange(SOURCES_FROM // 2)):
        later = {0: LATER_FROM, 1: LATER_PLOTS_FROM}.get(number % LATER_EVERY, 0)
        field = FIELD_FROM if number % 2 else 0
        latest = 0 if number % LATEST_EVERY else LATEST_FROM
        yield latest + field + DENSE_FROM + later + families[number % len(families)] + number


def _leaning(reached: Reach, before: Reach) -> Iterator[int]:
    """Seeds that lean towards what neither this run nor those before have reached, until nothing is left."""
    chance = random.SystemRandom()
    while left := [
        (thing, what)
        for thing, whats in reached.uncrossed(before).items()
        for what in whats
        if thing in directed.LEANS
    ]:
        thing, what = chance.choice(left)
        yield directed.seed_of(thing, what, chance.randrange(directed.DISTURBANCE))


def failed_seeds() -> list[int]:
    """The seeds whose histories once broke a law: ``failed_seeds.txt``, a seed and a sentence a line."""
    lines = Path(__file__).with_name("failed_seeds.txt").read_text(encoding="utf-8").splitlines()
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


def ready(names: str, ignored: str = "") -> None:
    """Make this process one that looks at seeds."""
    gc.freeze()  # what is loaded stays; a history is gone as a whole
    gc.set_threshold(1_000_000, 5, 5)  # some 150 MB
    IGNORED.update(ignored.split(",") if ignored else [])
    for name in names.split(",") if names else []:
        without.take_out(name)


def search(args: argparse.Namespace) -> Sum:
    """Look at seed after seed on all cores."""
    total, began = Sum(), time.monotonic()
    end = None if args.seeds or args.failed else began + 60 * args.minutes
    seeds = _seeds(args, total)
    with ProcessPoolExecutor(args.jobs, initializer=ready, initargs=(args.without, args.ignore)) as pool:
        waiting = {pool.submit(look, seed) for seed in itertools.islice(seeds, 2 * args.jobs)}
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                _tell(total, future.result())
            if (end is None or time.monotonic() < end) and not (args.first and total.failed):
                waiting |= {pool.submit(look, seed) for seed in itertools.islice(seeds, len(done))}
    seconds = time.monotonic() - began
    rate = total.recoveries / seconds / args.jobs
    what = f"{total.seeds} histories, {total.recoveries} recoveries in {seconds:.0f} s"
    busy = total.recoveries / total.cpu if total.cpu else 0.0
    print(f"{what}: {rate:.1f} a second and core, {busy:.1f} a second of CPU time")
    return total


def _tell(total: Sum, found: Found) -> None:
    total.add(found)
    if found.error:
        print(f"seed {found.seed}: {found.error}", flush=True)
    for v in found.broken[:1]:
        print(f"seed {found.seed}: {v}", flush=True)


def show(script: Script) -> bool:
    """Play one script again, and print what it breaks, shortened to a story. Whether it breaks anything."""
    broken = broken_by(play(script))
    for v in broken:
        print(v)
    if not broken:
        return False
    first = broken[0]

    def breaks(candidate: Script) -> bool:
        try:
            return any((v.law, v.kind) == (first.law, first.kind) for v in broken_by(play(candidate)))
        except Exception:
            return False

    short = shrink(script, breaks)
    print(f"\n# {len(script.acts)} disturbances, {len(short.acts)} of them needed:\n")
    print(story(short, f"{first.law}: {first.sentence}"))
    return True


def report(total: Sum, pairs: bool) -> None:
    for (law, kind), (seed, v) in sorted(total.broken.items()):
        print(f"{law}, {kind}: {total.kinds[law, kind]} times, first seed {seed}: {v.sentence}")
    if missing := total.reach.missing():
        print(f"never reached: {', '.join(missing)}")
    for thing, why in NOT_REACHED.items():
        print(f"not to be reached: {thing}: {why}")
    uncrossed = total.reach.uncrossed()
    never = sum(map(len, uncrossed.values()))
    print(
        f"{never} of {len(pairs_of())} pairs of a move, effect or brake and a disturbance beside it were never seen, "
        f"{len(explained())} more cannot be (ARGS=--pairs)"
    )
    for lie in total.reach.lies():
        print(f"said to be impossible, and reached: {lie}")
    for thing, whats in uncrossed.items() if pairs else ():
        print(f"  {thing}, never beside: {', '.join(whats) if len(whats) < len(ACTS) else 'any'}")
    for rule in NEVER_BESIDE if pairs else ():
        print(f"  {', '.join(sorted(rule.things))}, not beside {', '.join(sorted(rule.whats))}: {rule.why}")


def failed(total: Sum) -> bool:
    """Whether a law was broken, or something was reached that is said to be impossible."""
    return bool(total.failed or total.reach.lies())


def main() -> int:
    parser = argparse.ArgumentParser(prog="make search", description=__doc__)
    parser.add_argument("--seeds", default="")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--failed", action="store_true", help="the seeds that ever failed")
    parser.add_argument("--without", default="")
    parser.add_argument("--ignore", default="", help="kinds of violations that are known, by commas")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--tell", action="store_true", help="exit code 0, whatever was found")
    parser.add_argument("--first", action="store_true", help="stop at the first that breaks a law")
    parser.add_argument("--beyond", action="store_true", help="new seeds with a source beyond the page alone")
    parser.add_argument("--fleet", action="store_true", help="new seeds in fleet mode")
    parser.add_argument("--field", action="store_true", help="new seeds with what is in field.py")
    parser.add_argument("--lean", action="store_true", help="seeds that lean towards what --reach lacks")
    parser.add_argument("--pairs", action="store_true", help="list all pairs that were never seen")
    parser.add_argument("--reach", type=Path, help="a file that sums up what several runs have reached")
    args = parser.parse_args()
    if args.seed is not None:
        ready(args.without, args.ignore)
        return int(show(script_of(args.seed)))
    total = search(args)
    if args.reach is not None:
        total.reach.merge_file(args.reach)
    report(total, args.pairs)
    return 0 if args.tell else int(failed(total))


if __name__ == "__main__":
    start_again("tests.search")
    sys.exit(main())
