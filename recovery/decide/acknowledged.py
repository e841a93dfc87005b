"""Which faults were dealt with, so that they start nothing again? PURE.

A fault was dealt with once it was proved gone, handed over or released. The same fault of the same machine,
boot and life of the detector is then no news:

- A log rule's fault is the same for as long as its count is.
- A plugin's fault is the same until the plugin takes it back. A plugin states at each start what it finds, so
  neither repetition nor a restart of the detector makes it a new one.
- An edge, which happens and is over, is counted only from the moment at which it was last dealt with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from recovery.decide.remembered import (
    Key,
    as_a_persons,
    by_plugin,
    closed_at,
    full,
    in_short,
    plugins_in_short,
    same_words,
)
from recovery.decide.situation import Situation
from recovery.model import Fault, Kind, Phase, Problem, Record
from recovery.quick import replace

PROMETHEUS = "prometheus"
LATE = timedelta(hours=1)
"""How much later a second source may state a fault that was dealt with: the slowest look once an hour."""


def dealt_with(fault: Fault, s: Situation) -> bool:
    """Whether this very fault was dealt with, by the node's record."""
    r = s.record
    if r is None:
        return False
    if not r.phase.open and not r.acknowledged and not r.acknowledged_more:
        return False
    if r.phase.open and any(f.key == fault.key for f in r.faults):
        return False  # the open record is about it
    if fault.key in s.restated and not _handed_over(r, fault.key):
        return False
    known = [old for old in r.acknowledged if old.key == fault.key]
    stated = bool(known) and stated_now(fault, s)
    if any(same(old, fault, stated) for old in known):
        return True
    return in_short(fault, r) or bool(late_witness(fault, s))


def not_dealt_with(p: Problem, s: Situation) -> Problem:
    """``p``, an edge, with only those of its times that came after it was last dealt with."""
    return _after(p, (f.counter for f in _of_this_boot(p, s)))


def left_to_treat(p: Problem, s: Situation) -> Problem:
    """``not_dealt_with``, for a rule that does more than to report. For such a rule also those times count of
    which a person was only told, and which nobody has released. Without them the rule would never be met
    where another one reports sooner."""
    known = tuple(_of_this_boot(p, s))
    told = [f.since for f in known if _only_told(f)]
    if not told:
        return not_dealt_with(p, s)
    treated, begun = _after(p, (f.counter for f in known if not _only_told(f))), min(told)
    return replace(treated, times=tuple(at for at in treated.times if at >= begun))


def _only_told(f: Fault) -> bool:
    return f.handed_over and f.treated is False


def _of_this_boot(p: Problem, s: Situation) -> Iterator[Fault]:
    machine, boot = s.machine.id if s.machine else "", s.node.boot_id if s.node else ""
    known = as_a_persons(s.record) if s.record is not None else ()
    return (f for f in known if f.key == p.key and (f.machine, f.boot_id) == (machine, boot))


def _after(p: Problem, counters: Iterable[float | None]) -> Problem:
    until = max((c for c in counters if c is not None), default=None)
    if until is None:
        return p
    return replace(p, times=tuple(at for at in p.times if at.timestamp() > until))


def yet_to_learn(restated: Mapping[Key, datetime], s: Situation) -> dict[Key, datetime]:
    """Those faults, stated again after they were taken back, that the record takes for what it was about.

    A person who releases a node has seen what was stated by then. While a record is open or handed over, it
    is not known yet what it will be about.
    """
    r = s.record
    if r is None:
        return {}
    about = {f.key for f in (*r.acknowledged, *(r.faults if r.phase.sick else ()))}
    return {
        key: at
        for key, at in restated.items()
        if (r.phase.sick or at > closed_at(s, r)) and (key in about or plugins_in_short(key, s, r))
    }


def _handed_over(r: Record, key: Key) -> bool:
    """Whether it is in a person's hands: it is told once, however often it comes and goes."""
    return r.phase is Phase.HANDED_OVER and any(f.key == key for f in r.faults)


def late_witness(fault: Fault, s: Situation) -> tuple[Fault, ...]:
    """What other sources stated with the same words, and was dealt with: ``fault`` is only late to say so.

    Once it is remembered itself, what it states anew is a new fault.
    """
    r = s.record
    about = [old for old in r.acknowledged if same_words(old, fault)] if r is not None else []
    if r is None or not about or any(old.source == fault.source for old in about):
        return ()
    if in_short(fault, r):
        return ()  # remembered in full again, it would put another one out, for ever
    p = problem_of(fault, s)
    stated = p.stated if p is not None else None
    same_kind = (f for f in about if f.machine == fault.machine and fault.kind is f.kind is Kind.LEVEL)
    return tuple(f for f in same_kind if not _too_late(stated, f, r))


def _too_late(stated: datetime | None, old: Fault, r: Record) -> bool:
    """Whether what was ``stated`` then is another event than ``old``: a fault of another GPU, say.

    A plugin's fault lasts until the plugin takes it back. So another source may state the same one at any
    time. A source that cannot tell when its fault began may only have been late to see the old one.
    """
    if stated is None or (by_plugin(old) and not old.cleared):
        return False
    known = r.phase_since if any(f.key == old.key for f in r.faults) else old.since
    return stated - known > LATE


def awaits_word(r: Record, boot: str) -> bool:
    """Whether ``r``, which is closed, remembers a fault that its plugin may still take back in ``boot``.

    Somebody has to see that it is good again. Else the next fault of that kind would pass for the old one.
    """
    there = any(f.boot_id == boot and by_plugin(f) and not f.cleared for f in r.acknowledged)
    return not r.phase.open and (there or (bool(r.acknowledged_more) and r.boot_id == boot))


def still_a_persons(s: Situation, r: Record) -> tuple[Fault, ...]:
    """The faults beside those of ``r`` that a person was given in this boot, and has not released.

    No source has taken them back. A restart of the detector takes nothing back either.
    """
    about = {f.key for f in r.faults}
    here = r.machine.id, s.node.boot_id if s.node is not None else None
    theirs = (f for f in as_a_persons(r) if f.handed_over and f.key not in about)
    there = (f for f in theirs if (f.machine, f.boot_id) == here and (f.latched or not f.cleared))
    return tuple(replace(f, handed_over=False) for f in there)


def same(old: Fault, new: Fault, stated: bool) -> bool:
    """Whether ``new`` is the fault ``old``. ``stated``: its source states it now; it is no mere memory."""
    if old.key != new.key or old.machine != new.machine or old.boot_id != new.boot_id:
        return False
    if by_plugin(old):
        return not (old.cleared and stated)
    if by_plugin(new):
        return True
    return not new_life(old, new, stated) and old.counter == new.counter


def new_life(old: Fault, new: Fault | Problem, stated: bool) -> bool:
    """Whether the detector was started anew between the two statements. ``stated``: see ``same``."""
    another = bool(old.life and new.life) and another_life(old, new)
    return another or (old.cleared and stated)


def another_life(one: Fault, other: Fault | Problem) -> bool:
    """Whether the lives of these two, which are the same fault, differ.

    What Prometheus states has the name of its row there. A policy may change that name, and of two rows that
    state one fault, another one may be the first: neither makes it a new fault.
    """
    return one.source != PROMETHEUS and one.life != other.life


def stated_now(fault: Fault, s: Situation) -> bool:
    """Whether a source states the fault now. What it showed before it was started anew is a memory."""
    reading = s.reading_of(fault.source)
    if reading is None or (fault.type, fault.reason) in reading.gone:
        return False
    key = fault.key
    return any(p.key == key for p in reading.problems)


def life_ended(f: Fault, s: Situation) -> bool:
    """Whether a log rule's fault is gone from the page and its count has fallen: the detector begins anew."""
    reading = s.reading_of(f.source)
    if reading is None or not reading.readable or (f.type, f.reason) not in reading.gone:
        return False
    count = reading.counters.get(f.reason)
    return f.counter is None if count is None else f.counter is None or count < f.counter


def problem_of(f: Fault, s: Situation) -> Problem | None:
    reading = s.reading_of(f.source)
    return next((p for p in reading.problems if p.key == f.key), None) if reading else None


def worth_a_record(r: Record | None, treat: bool) -> bool:
    """Whether a fault that is not known opens a record.

    Once the memory is full, a fault that is only reported does not: it could not be remembered, and would be
    reported again in every cycle.
    """
    return r is None or treat or r.phase is Phase.LOST or not full(r)
