"""Recoveries, intents and calls, put together from the records and from what arrived at the cloud."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.search.facts import Asked
from tests.search.judge.objects import NOTHING, OPEN, Json, status


@dataclass(slots=True, eq=False)
class Intent:
    """A destructive step, from the write that named it first."""

    token: str
    attempt: int
    action: str
    machine: str
    boot: str
    rung: int
    at: float
    actor: str
    recovery: Recovery
    states: dict[str, float] = field(default_factory=dict)  # state -> when it was first written
    call: Call | None = None


@dataclass(slots=True, eq=False)
class Call:
    """A call that arrived at the cloud."""

    asked: Asked
    intent: Intent | None
    standing: bool  # it was applied, and what it asks for has neither happened nor been taken back


@dataclass(slots=True, eq=False)
class Recovery:
    """One recovery of a node: from the moment its record is opened until it is opened again."""

    node: str
    uid: str
    opened: float
    record: Json  # as last written
    phase: str
    machine: str = ""
    group: str = ""
    entered: float = 0.0  # when it came to its phase
    proving_since: float = 0.0  # when its probation began, for the last time
    phase_since: str = ""  # as its record has it
    closed: float | None = None
    closed_by: str = ""
    slot: float | None = None  # when it was given a slot
    slot_by: str = ""
    labels: Json = field(default_factory=dict)  # of the node when it was given a slot, or marked
    marked: bool = False  # a mark of ours was put on its node
    begun: float | None = None  # when the first thing was done to the node
    rung: int = 0
    rung_entered: float = 0.0
    asked_evictions: int = 0
    asked_on_rung: int = 0
    intents: list[Intent] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    spoiled: str = ""  # somebody who is none of ours changed or deleted its record, or etcd was restored
    made_up: bool = False  # somebody who is none of ours wrote what it is about
    deleted: bool = False

    @property
    def open(self) -> bool:
        return self.phase in OPEN and not self.deleted

    @property
    def acted(self) -> bool:
        """Whether a call of it was applied."""
        return any(c.asked.answer in ("accepted", "lost-after", "failed-after") for c in self.calls)

    @property
    def step(self) -> str:
        """What its rung does."""
        ladder = status(self.record).get("ladder") or ()
        return str(ladder[self.rung].get("do")) if self.rung < len(ladder) else ""

    @property
    def waits_for_the_cloud(self) -> bool:
        """Whether its step was asked for, or may have been by all that its agent knows."""
        if not self.intents or self.intents[-1].rung != self.rung:
            return False
        state = str((status(self.record).get("intent") or NOTHING).get("state") or "")
        return self.intents[-1].call is not None or state in ("ambiguous", "submitted")

    def take(self, record: Json, at: float) -> None:
        """The record was written."""
        s = status(record)
        self.record = record
        phase = str(s.get("phase") or "")
        since = str(s.get("phaseSince") or "")
        if phase == "proving" and (phase != self.phase or since != self.phase_since):
            self.proving_since = at
        self.phase_since = since
        if phase != self.phase:
            self.phase, self.entered = phase, at
        rung = int(s.get("rung") or 0)
        if rung != self.rung:
            self.rung, self.rung_entered, self.asked_on_rung = rung, at, 0
        machine = s.get("machine") or NOTHING
        self.machine = str(machine.get("id") or self.machine)
        self.group = str(machine.get("group") or self.group)
