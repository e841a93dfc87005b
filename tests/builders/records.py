"""The record of node-0, and the intent on it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from recovery.decide.history import note
from recovery.model import Intent, IntentState, Phase, Record, Reference
from tests.builders.faults import DMA, fault
from tests.builders.nodes import MACHINE, ZONE
from tests.builders.policies import LADDER
from tests.builders.times import MINUTE, NOW


def record(phase: Phase = Phase.WAITING, **changes: Any) -> Record:
    """Of a DMA error; with a ladder, except where none has been chosen yet."""
    started = phase not in (Phase.SUSPECT, Phase.WITHDRAWN)
    plain = Record(
        node="node-0",
        phase=phase,
        machine=MACHINE,
        node_uid="uid-node-0",
        boot_id="boot-1",
        faults=(fault(),),
        phase_since=NOW,
        uid="record-0",
        resource_version="11",
        rule="neuron-hardware" if started else "",
        ladder=LADDER if started else (),
        probation=2 * MINUTE,
        scopes=("fleet", f"{ZONE}=a"),
    )
    return note(replace(plain, **changes), NOW, "suspect", f"{DMA} was seen")


def intent(state: IntentState = IntentState.SUBMITTED, action: str = "replace") -> Intent:
    """The first attempt, on the machine and the boot of ``record()``."""
    reference = Reference("fake", action, {"group": "workers", "known": ["m-0", "m-1"], "desired": 2})
    return Intent(action, 1, "token", NOW, "m-0", "boot-1", reference, state)
