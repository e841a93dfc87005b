"""A fault that was seen while recovery was off."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from recovery.decide.sightings import Sighting, Would
from recovery.model import Step
from tests.builders.faults import DMA
from tests.builders.times import NOW


def sighting(**changes: Any) -> Sighting:
    """A DMA error of node-0 that would be recovered."""
    plain = Sighting(
        node="node-0",
        machine="m-0",
        boot="boot-1",
        source="npd",
        type="NeuronHealth",
        reason=DMA,
        rule="neuron-hardware",
        would=Would.RECOVER,
        steps=(Step.DRAIN, Step.REBOOT, Step.REPLACE),
        why="",
        since=NOW,
        seen=NOW,
        due=NOW,
    )
    return replace(plain, **changes)
