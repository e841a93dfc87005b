"""Which phase follows which event? The table of all moves that a record may make. PURE.

A move that is not in the table raises ``IllegalMove`` and changes nothing. An open record ends proved,
cleared by the fault's own source, superseded by another machine, or with a person.
"""

from __future__ import annotations

from enum import StrEnum

from recovery.errors import IllegalMove
from recovery.model import Phase


class Event(StrEnum):
    """What can happen to a record."""

    FAULT = "fault"  # a fault was seen
    CONFIRMED = "confirmed"  # it lasted as long as its rule tolerates
    GRANTED = "granted"  # the gate gave a slot
    EVIDENCE = "evidence"  # the action had its effect; probation begins
    REBOOTED = "rebooted"  # an unexpected boot; probation begins
    RETURNED = "returned"  # the fault came back in probation, and a slot is held
    SUSPECTED = "suspected"  # the fault came back in probation before any remedy was chosen
    REQUEUED = "requeued"  # the fault came back in probation, and no slot is held
    PROVED = "proved"  # healthy through probation
    CLEARED = "cleared"  # cleared by its source, or the node was excluded
    OTHER_MACHINE = "otherMachine"  # another machine goes by this name, or took its place and is sick too
    GAVE_UP = "gaveUp"  # handed over: a person has to go on
    RELEASED = "released"  # a person released the node


_OPEN = (Phase.SUSPECT, Phase.WAITING, Phase.RECOVERING, Phase.PROVING)
_CLOSED = (Phase.RECOVERED, Phase.WITHDRAWN, Phase.SUPERSEDED, Phase.RELEASED, Phase.LOST)

TABLE: dict[tuple[Phase, Event], Phase] = {
    (Phase.SUSPECT, Event.CONFIRMED): Phase.WAITING,
    (Phase.SUSPECT, Event.CLEARED): Phase.WITHDRAWN,
    (Phase.WAITING, Event.GRANTED): Phase.RECOVERING,
    (Phase.WAITING, Event.CLEARED): Phase.WITHDRAWN,
    (Phase.RECOVERING, Event.EVIDENCE): Phase.PROVING,
    (Phase.RECOVERING, Event.CLEARED): Phase.WITHDRAWN,
    (Phase.PROVING, Event.RETURNED): Phase.RECOVERING,
    (Phase.PROVING, Event.REQUEUED): Phase.WAITING,
    (Phase.PROVING, Event.PROVED): Phase.RECOVERED,
    (Phase.PROVING, Event.CLEARED): Phase.WITHDRAWN,
    (Phase.PROVING, Event.SUSPECTED): Phase.SUSPECT,
    # A person has it. A fault that was only reported may be cleared by its source, or seen again.
    (Phase.HANDED_OVER, Event.FAULT): Phase.SUSPECT,
    (Phase.HANDED_OVER, Event.RELEASED): Phase.RELEASED,
    (Phase.HANDED_OVER, Event.CLEARED): Phase.WITHDRAWN,
    (Phase.HANDED_OVER, Event.OTHER_MACHINE): Phase.SUPERSEDED,
    (Phase.LOST, Event.RELEASED): Phase.RELEASED,
    **{(phase, Event.REBOOTED): Phase.PROVING for phase in _OPEN},
    **{(phase, Event.OTHER_MACHINE): Phase.SUPERSEDED for phase in _OPEN},
    **{(phase, Event.GAVE_UP): Phase.HANDED_OVER for phase in _OPEN},
    **{(phase, Event.RELEASED): Phase.RELEASED for phase in _OPEN},
    **{(phase, Event.FAULT): Phase.SUSPECT for phase in _CLOSED},
}


def move(phase: Phase, event: Event) -> Phase:
    """The phase after ``event``. Raises ``IllegalMove`` where the table has none."""
    try:
        return TABLE[(phase, event)]
    except KeyError:
        raise IllegalMove(f"a record that is {phase.value} cannot take the event {event.value}") from None
