"""The gate, what stands on it, and the fleet's census."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from recovery.model import Census, Gate, GroupStart, Line, Slot
from tests.builders.faults import DMA
from tests.builders.nodes import TYPE, ZONE
from tests.builders.times import NOW, SECOND


def gate(**changes: Any) -> Gate:
    """node-0 stands in the queue, and every slot is free."""
    line = Line("node-0", "record-0", NOW - 10 * SECOND)
    return replace(Gate(uid="g", resource_version="5", stamp="g", open=(line,)), **changes)


def slot(name: str = "node-0", uid: str = "record-0", *scopes: str) -> Slot:
    return Slot(name, uid, 1, scopes or ("fleet", f"{ZONE}=a"), NOW)


def start(ago: timedelta, **changes: Any) -> GroupStart:
    """A recovery of node-0 that was started so long ago."""
    return replace(GroupStart(NOW - ago, "node-0", "workers", "m-0", DMA), **changes)


def census(sick: int = 1, population: int = 10, **by_label: tuple[int, int]) -> Census:
    labels = {f"{TYPE}=trn1.32xlarge": (sick, population), f"{ZONE}=a": (sick, population)}
    return Census(NOW, population, tuple(f"node-{i}" for i in range(sick)), labels | by_label)
