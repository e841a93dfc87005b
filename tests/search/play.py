"""Plays a script: one history, the same bytes each time."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from unittest.mock import patch

from recovery.decide import budget
from recovery.signals import npd
from tests.search import calm, facts
from tests.search.acts import perform
from tests.search.facts import Fact
from tests.search.fleet import FleetWorld
from tests.search.once import decoded_once
from tests.search.reach import Disturbances, Reach, watching
from tests.search.script import Script
from tests.search.world import TooMuchError, World

PARSED = lru_cache(maxsize=4096)(npd.parse)
"""Detectors show the same few pages again and again."""
TO_THE_END = 3 * 3600.0
"""Seconds after the calm within which every fault has to come to its end."""


@dataclass(frozen=True)
class History:
    """What came of a script."""

    script: Script
    facts: tuple[Fact, ...]

    def digest(self) -> str:
        """The same for the same history."""
        return hashlib.sha256(facts.to_file(self.facts).encode()).hexdigest()[:16]

    @property
    def recoveries(self) -> int:
        """How many records came to an end."""
        return sum(_closes(f) for f in self.facts)


def _closes(f: Fact) -> bool:
    if not isinstance(f, facts.Wrote) or f.kind != "NodeRecovery" or f.after is None or f.before is None:
        return False
    return _phase(f.before) in calm.OPEN and _phase(f.after) not in calm.OPEN and f.actor != "etcd"


def _phase(obj: Any) -> str:
    return str((obj.get("status") or {}).get("phase", ""))


def play(script: Script, reach: Reach | None = None) -> History:
    """The history of ``script``. What it reached is added to ``reach``."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(_repeatable(script.seed))
        if script.scene.short_gate:
            stack.enter_context(patch.object(budget, "STARTS", 2))
        w = (FleetWorld if script.scene.replicas else World)(script.scene, script.seed)
        going_on = Disturbances()
        if reach is not None:
            stack.enter_context(watching(reach, lambda: going_on.at(w.now)))
        with contextlib.suppress(TooMuchError):
            _run(w, script, going_on, reach)
        w.unchanged()
        if reach is not None:
            reach.shown(w.facts)
        return History(script, tuple(w.facts))


def _run(w: World, script: Script, going_on: Disturbances, reach: Reach | None) -> None:
    for a in script.acts:
        w.run_until(max(a.at, w.now))
        before = going_on.began(a)
        if not perform(w, a):
            going_on.never_began(a, before)
        elif reach is not None:
            reach.add(f"act {a.what}")
    w.run_until(max(script.calm_at, w.now))
    calm.begin(w)
    because = calm.run_to_the_end(w, TO_THE_END)
    w.note(facts.ENDED, "", because=because)


@contextlib.contextmanager
def _repeatable(seed: int) -> Iterator[None]:
    """What the program takes from chance comes from the seed; its log is not kept."""
    numbers = itertools.count()

    class Seeded(random.Random):
        def __init__(self, x: Any = None) -> None:
            super().__init__(f"{seed} {next(numbers)}" if x is None else x)

    def made() -> uuid.UUID:
        return uuid.UUID(int=random.Random(f"uuid {seed} {next(numbers)}").getrandbits(128), version=4)

    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            patch.object(random, "Random", Seeded),
            patch.object(uuid, "uuid4", made),
            patch.object(npd, "parse", PARSED),
            decoded_once(),
        ):
            yield
    finally:
        logging.disable(level)
