"""What do its sources say of a fault by now: that it is over, or nothing? PURE.

Unknown is neither healthy nor unhealthy (law 3).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from recovery.decide.devices import of_a_silent_device
from recovery.decide.diagnosis import PAGE, fault_of, name, of_a_boot_before, settled
from recovery.decide.remembered import SIGNAL_UNKNOWN
from recovery.decide.situation import Situation
from recovery.model import Fault, Kind, Phase, Reading
from recovery.quick import replace


def cleared(fault: Fault, s: Situation) -> bool:
    """Whether the fault's own source cleared it, by its own rule. Silence and restarts do not count."""
    reading = s.reading_of(fault.source)
    if reading is None:
        return False
    if fault.type == SIGNAL_UNKNOWN:
        return not reading.unknown
    return reading.took_back(fault.type, fault.reason) and not of_a_silent_device(fault, reading)


def how_it_ended(fault: Fault, s: Situation) -> str:
    """That its own source has taken ``fault`` back, as a sentence, and how, where that is known."""
    reading = s.reading_of(fault.source)
    how = reading.ended.get(fault.type, "") if reading is not None else ""
    return f"{name(fault)} was taken back by its own source{f': {how}' if how else ''}"


def unreadable(s: Situation, fault: Fault) -> str | None:
    """Why nothing fresh is known of ``fault`` now, or None.

    Of a source that is silent, the silence is the fault and its evidence. A fault on the record is in doubt
    while its source shows a good status that is not confirmed: it may have turned before this process began.
    """
    if fault.type == SIGNAL_UNKNOWN:
        return None
    reading = s.reading_of(fault.source)
    if reading is None:
        none = "is none of the sources that are read now" if read_no_more(s, fault) else "has not been read"
        return f"{fault.source} {none}"
    said = [reading.unknown, reading.silent, *([] if fault.latched else [reading.unconfirmed])]
    return next((why for by in said for key in ("*", fault.type) if (why := by.get(key))), None)


def in_doubt(s: Situation, fault: Fault) -> str | None:
    """Why it is not known whether ``fault`` is still there, or None: ``unreadable``, unless another source
    states it now. What cannot be read cancels no fresh word of another source (law 3).

    A source that can be read and does not state it contradicts the other one, so that is waited for. So is a
    detector's page: what stands on the Node may be the last that its detector wrote there (rulings 22).
    """
    why, reading = unreadable(s, fault), s.reading_of(fault.source)
    contradicts = reading is not None and not {"*", fault.type} & reading.unknown.keys()
    if why is None or contradicts or fault.source == PAGE:
        return why
    return None if any(_states(r, fault, s) for r in s.readings if r.source != fault.source) else why


def _states(r: Reading, fault: Fault, s: Situation) -> bool:
    """Whether ``r`` states now what ``fault`` says, of this boot, and that was not dealt with."""
    if not r.has_word_of(fault.type) or (fault.type, fault.reason) in r.gone:
        return False
    level = (p for p in r.problems if p.kind is Kind.LEVEL and p.fresh_until >= s.now)
    said = (p for p in level if (p.type, p.reason) == (fault.type, fault.reason))
    fresh = (p for p in said if not of_a_boot_before(p, s))
    return any(p.latched or p.type not in r.unconfirmed for p in fresh if not settled(fault_of(p, s), s))


def without_a_word(s: Situation) -> tuple[Fault, ...]:
    """The faults on the record of which their source says neither that they are there nor that they are over.

    It may have stated them to a process before this one, and that is forgotten. Left out are faults that no
    source takes back, since the record is their evidence, and those that another fault of the type may hide.
    """
    r, boot = s.record, s.node.boot_id if s.node is not None else ""
    if r is None or r.phase not in (Phase.SUSPECT, Phase.WAITING, Phase.RECOVERING) or not boot:
        return ()
    theirs = (f for f in r.faults if f.kind is Kind.LEVEL and not f.latched and f.boot_id == boot)
    return tuple(f for f in theirs if f.type != SIGNAL_UNKNOWN and _says_nothing_of(f, s))


def _says_nothing_of(fault: Fault, s: Situation) -> bool:
    reading = s.reading_of(fault.source)
    if reading is None or unreadable(s, fault) or cleared(fault, s):
        return False
    said = {*reading.early, *(p.type for p in reading.problems if p.kind is Kind.LEVEL)}
    return fault.type not in said


def unheard(readings: tuple[Reading, ...], missed: Mapping[Fault, datetime]) -> tuple[Reading, ...]:
    """``readings``, in which the types of ``missed`` are unknown: faults without a word, and since when."""
    for f, since in missed.items():
        why = f"{f.source} has said nothing of {f.reason} since this agent began to look"
        readings = tuple(
            replace(r, unknown={**r.unknown, f.type: why}, unknown_since={**r.unknown_since, f.type: since})
            if r.source == f.source
            else r
            for r in readings
        )
    return readings


def read_no_more(s: Situation, fault: Fault) -> bool:
    """Whether the fault's source is not read any more, since the policy was changed: nothing more will be
    known of it. A source that is read has a reading in each cycle, even where nothing is known."""
    return bool(s.readings) and s.reading_of(fault.source) is None
