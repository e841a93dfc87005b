"""Where a record may go, as a table. PURE.

What is not in the table is an error and changes nothing. ``CLOSING`` are the events that end a record; each
of them leaves the machine proved, taken back by its source, replaced by others, or in a person's hands.
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
    EVIDENCE = "evidence"  # the action did what it should; probation begins
    REBOOTED = "rebooted"  # an unexpected boot: assessed anew
    RETURNED = "returned"  # the fault came back in probation, and a slot is held
    SUSPECTED = "suspected"  # the fault came back in probation before any remedy was chosen
    REQUEUED = "requeued"  # the fault came back in probation, and no slot is held
    PROVED = "proved"  # healthy through probation
    CLEARED = "cleared"  # taken back by its source, or excluded, before anything destructive
    OTHER_MACHINE = "otherMachine"  # another machine goes by this name; nothing was called
    GAVE_UP = "gaveUp"  # a person has to
    RELEASED = "released"  # a person took it


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
    # A person holds it. What was only reported is withdrawn by its source; another machine ends the matter.
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
    """The phase after ``event``. Raises ``IllegalMove``."""
    try:
        return TABLE[(phase, event)]
    except KeyError:
        raise IllegalMove(f"a record that is {phase.value} cannot take the event {event.value}") from None
