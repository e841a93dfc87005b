"""What have the sources said since of the faults that were dealt with? PURE.

A record is brought up to date by it, so that a fault that was taken back is a new one when it comes again.
When a node is given back, its faults count as often as they were stated by then: the kernel repeats its line
while a person has the node, and with the count of the first time the release would be undone at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from recovery.decide.acknowledged import life_ended, new_life, problem_of, stated_now
from recovery.decide.boot import APART
from recovery.decide.remembered import (
    by_plugin,
    closed_at,
    closed_with,
    digested_anew,
    forgotten,
    same_words,
    without_taken_back,
)
from recovery.decide.situation import Situation
from recovery.model import Fault, Kind, Phase, Problem, Record
from recovery.quick import replace

FOUND_SOON = timedelta(minutes=1)
"""An agent that is killed is back by then, and reads its node's page."""


def brought_up_to_date(r: Record, s: Situation, taken_back: Iterable[Fault]) -> tuple[Record, str]:
    """``r`` by what the sources say now of the faults that were dealt with, and why; "" where it is no news.

    ``taken_back`` are ``forgotten``. Those of a life of the detector that has ended are marked. Those that
    prove to be a plugin's are known as such.
    """
    gone = tuple(taken_back)
    kept = tuple(_known_better(f, r, s) for f in forgotten(r, gone).acknowledged)
    more = without_taken_back(r.acknowledged_more, s)
    if kept == r.acknowledged and more == r.acknowledged_more:
        return r, ""
    why = _what_is_new(r, kept, gone, digests_gone=more != r.acknowledged_more)
    return replace(r, acknowledged=kept, acknowledged_more=more), why


def _what_is_new(r: Record, kept: tuple[Fault, ...], gone: tuple[Fault, ...], digests_gone: bool) -> str:
    """What ``kept`` knows better than ``r`` of the faults that were dealt with, as a sentence."""
    back = {f.key for f in gone}
    still = tuple(f for f in kept if f.key not in back)
    known = {(f.key, f.boot_id) for f in r.acknowledged}
    anew = (f for f in still if not f.cleared and f not in r.acknowledged)
    again = [f.reason for f in anew if f.latched or (f.key, f.boot_id) not in known]
    ended = [f.reason for f in still if f.cleared and replace(f, cleared=False) in r.acknowledged]
    if ended:
        names = ", ".join(ended)
        return f"the detector that stated {names} was started anew: stated again, it is a new fault"
    if again:
        return f"a detector that was started anew states {', '.join(again)} again"
    if gone or digests_gone:
        names = ", ".join(f.reason for f in gone if not f.cleared) or "a fault"
        return f"{names} was taken back by its own source: if it comes again, it is a new fault"
    names = ", ".join(f.reason for f in kept if f not in r.acknowledged)
    return f"{names} is a plugin's: a higher count of it is no new fault"


def _known_better(f: Fault, r: Record, s: Situation) -> Fault:
    if f.kind is not Kind.LEVEL or s.node is None or f.machine != r.machine.id:
        return f
    about = any(x.key == f.key for x in r.faults)
    in_hands = about and r.phase is Phase.HANDED_OVER and bool(r.marks or r.intent)
    problem = problem_of(f, s)
    if f.boot_id != s.node.boot_id:
        return _in_this_boot(f, problem, s, s.node.boot_id) if in_hands and problem is not None else f
    if not f.latched:
        return f
    if problem is not None and not problem.latched:
        return replace(f, latched=False, cleared=False)
    if in_hands:
        return _in_its_life(f, r, s)  # told once, however often it is stated
    return replace(f, cleared=True) if life_ended(f, s) else f


def _in_this_boot(f: Fault, p: Problem, s: Situation, boot: str) -> Fault:
    """``f``, stated again after a boot: a release is about that, whether its agent lives then or not."""
    if not boot or p.latched != f.latched or not stated_now(f, s) or not _seen_in_this_boot(f, p, s, None):
        return f
    if by_plugin(f):
        return replace(f, boot_id=boot, cleared=False)
    return replace(f, boot_id=boot, counter=p.counter, life=p.life, cleared=False)


def in_their_lives(s: Situation, r: Record) -> Record:
    """``r``, which is open, with what became since of the detectors that stated its faults.

    An agent that starts after the release could not tell a new line from the one that was released.
    """
    return replace(r, faults=tuple(_in_its_life(f, r, s) for f in r.faults))


def _in_its_life(f: Fault, r: Record, s: Situation) -> Fault:
    p, here = (
        problem_of(f, s),
        s.node is not None and f.boot_id == s.node.boot_id and f.machine == r.machine.id,
    )
    if f.kind is not Kind.LEVEL or not f.latched or not here or (p is not None and not p.latched):
        return f
    if p is None or not stated_now(f, s):
        return replace(f, cleared=f.cleared or life_ended(f, s))
    return replace(f, counter=p.counter, life=p.life, cleared=False) if new_life(f, p, stated=True) else f


def as_counted_now(s: Situation, r: Record) -> Record:
    """``r`` with its faults as often as they are stated by now. The kernel repeats its line while a person
    has the node: remembered with the count of the first time, the release would be undone at once."""
    if r.phase.open:
        return replace(r, faults=tuple(_counted_now(f, s, r) for f in r.faults))
    return _closed_as_counted(s, r, None)


def as_released(s: Situation, r: Record) -> Record:
    """``r``, which a person's command closed, with its faults as often as they had been stated by then.

    The command cannot read the node's signals. What was stated after it is a new fault.
    """
    if r.phase is not Phase.RELEASED:
        return r
    heard = r.release_heard or _heard(s, r)
    return replace(_closed_as_counted(s, r, closed_at(s, r)), release_heard=heard)


def _closed_as_counted(s: Situation, r: Record, until: datetime | None) -> Record:
    """``r``, which is closed, with what it was closed with as it was stated by ``until``: what it has no room
    to name as well, and what is a digest by now."""
    about = (*closed_with(r), *r.faults)
    known = tuple(
        _counted_now(f, s, r, until) if any(same_words(f, g) for g in about) else f for f in r.acknowledged
    )
    named = tuple(_counted_now(f, s, r, until) for f in r.faults)
    more = digested_anew(r.acknowledged_more, r.faults, named)
    return replace(r, faults=named, acknowledged=known, acknowledged_more=more)


def _heard(s: Situation, r: Record) -> bool:
    """Whether all that states the faults of ``r`` can be read, in the boot that it is about."""
    about = (*closed_with(r), *r.faults)
    if s.machine is None or s.machine.id != r.machine.id or s.node is None:
        return False
    if s.node.boot_id not in {r.boot_id, *(f.boot_id for f in about)} - {""}:
        return False
    if not about:  # of a deleted record: any source may have stated it
        return all(x.readable for x in s.readings)
    readings = ((s.reading_of(f.source), f) for f in about)
    return all(reading is not None and reading.has_word_of(f.type) for reading, f in readings)


def _counted_now(f: Fault, s: Situation, r: Record, until: datetime | None = None) -> Fault:
    """``f`` of ``r`` as its source states it now; unchanged where that was stated after ``until``.

    The machine may have booted while it was being replaced, and the fault may have come back. Then the record
    knows that boot.
    """
    p, boot = problem_of(f, s), s.node.boot_id if s.node is not None else ""
    if p is not None and p.kind is Kind.EDGE and until is not None:
        p = _by_then(p, until)
    elif p is not None and until is not None and stated_after(f, p, r, until):
        return f
    if p is None or not boot:
        return f
    if boot not in (f.boot_id, r.boot_id) and not _seen_in_this_boot(f, p, s, until):
        return f
    if p.kind is Kind.EDGE:
        # Another process may have seen it later, and this one begins with what is after its own start.
        known = f.counter if f.boot_id == boot else None
        return replace(f, boot_id=boot, counter=max(known or 0.0, p.counter or 0.0))
    if by_plugin(f):
        # By its source's own time, which may be the node's clock's: what is in doubt was stated after.
        anew = until is not None and p.stated is not None and p.stated <= until - APART and stated_now(f, s)
        return replace(f, boot_id=boot, cleared=f.cleared and boot == f.boot_id and not anew)
    now = replace(f, boot_id=boot, counter=p.counter, life=p.life)
    # What is a mere memory by now was counted by then all the same.
    return replace(now, cleared=not stated_now(f, s) and (f.cleared or life_ended(now, s)))


def _by_then(p: Problem, until: datetime) -> Problem | None:
    """``p``, an edge, as it was ``until`` then; None where it had not happened yet."""
    times = tuple(at for at in p.times if at <= until)
    return replace(p, times=times, counter=times[-1].timestamp()) if times else None


def _seen_in_this_boot(f: Fault, p: Problem, s: Situation, until: datetime | None) -> bool:
    """Whether this process has seen ``p`` stated in the present boot, by ``until``.

    Then ``f`` is about this boot, even where its record knows only an earlier one. Not so for a mark, which
    stays over a boot.
    """
    if s.machine is None or f.machine != s.machine.id or (p.lasting and p.stated is None):
        return False
    return until is None or p.since <= until


def stated_after(f: Fault, p: Problem, r: Record, until: datetime) -> bool:
    """Whether ``p``, which is the fault ``f`` of ``r`` as it is now, was stated after ``until``.

    For a plugin's fault, the first statement counts, as a plugin repeats it at each run. An agent that was
    started since cannot tell. What it finds soon after ``until``, in the same life of the detector, it takes
    for the fault that was there before; once that is stated again, it is a new one. Where another agent has
    looked before it, that one knew.
    """
    seen = p.stated or p.since
    if by_plugin(f):
        seen = min(p.since, seen)
    if p.stated is not None or seen <= until:
        return seen > until
    return r.release_heard or new_life(f, p, stated=True) or seen > until + FOUND_SOON
