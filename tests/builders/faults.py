"""What sources say: problems on a page, a reading of it, and the faults that are made of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from recovery.model import Fault, Kind, Problem, Reading
from tests.builders.times import NOW, SECOND

DMA, HBM = "NeuronHasError_DMA_ERROR", "NeuronHasError_HBM_UNCORRECTABLE_ERROR"
HANG = "NeuronHasError_HANG_ON_COLLECTIVES"


def problem(reason: str = DMA, **changes: Any) -> Problem:
    """A device error that the page shows now, and that stays until a boot."""
    plain = Problem(
        source="npd",
        type="NeuronHealth",
        reason=reason,
        message=f"node-problem-detector reports {reason}",
        since=NOW,
        fresh_until=NOW + 10 * SECOND,
        latched=True,
        counter=1.0,
    )
    return replace(plain, **changes)


def edge(reason: str, *ago: timedelta) -> Problem:
    """Something that happened, once at each of these times."""
    times = tuple(NOW - x for x in ago)
    return problem(
        reason, type="", kind=Kind.EDGE, latched=False, times=times, counter=max(times).timestamp()
    )


def reading(*problems: Problem, **changes: Any) -> Reading:
    """One look at a page that lists ``DMA``, with these problems on it and nothing else."""
    listed = frozenset({("NeuronHealth", DMA), *((p.type, p.reason) for p in problems)})
    return replace(Reading("npd", NOW, tuple(problems), listed=listed), **changes)


def silent(since: datetime, why: str = "the page cannot be read") -> Reading:
    """A page of which nothing is known."""
    return reading(unknown={"*": why}, unknown_since={"*": since})


def fault(reason: str = DMA, **changes: Any) -> Fault:
    """A device error as a record bears it."""
    plain = Fault(
        source="npd",
        type="NeuronHealth",
        reason=reason,
        message=f"node-problem-detector reports {reason}",
        since=NOW,
        machine="m-0",
        boot_id="boot-1",
        counter=1.0,
        latched=True,
    )
    return replace(plain, **changes)
