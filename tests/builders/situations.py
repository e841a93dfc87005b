"""A situation, whole and plain, to be changed in one place by each row of a table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from recovery.decide.situation import Lease, Situation
from recovery.model import Preflight, Reference
from tests.builders.faults import problem, reading
from tests.builders.gates import census, gate
from tests.builders.nodes import FAKE, MACHINE, node
from tests.builders.policies import policy
from tests.builders.records import record
from tests.builders.times import NOW


def situation(**changes: Any) -> Situation:
    """A node with a DMA error whose record waits, a slot that is free, and nothing in the way."""
    plain = Situation(
        now=NOW,
        node_name="node-0",
        policy=policy(),
        readings=(reading(problem()),),
        node=node(),
        machine=MACHINE,
        provider=FAKE,
        record=record(),
        gate=gate(),
        census=census(),
        preflight=Preflight(Reference("fake", "replace"), "workers"),
        lease=Lease("owner/node-0", mine=True, stale=False),
    )
    return replace(plain, **changes)
