"""Which faults were dealt with, so that they start nothing again? PURE.

A fault was dealt with once it was proved gone, handed over or released. The same fault of the same machine,
boot and life of the detector is then no news:

- A log rule's fault is the same for as long as its count is.
- A plugin's fault is the same until the plugin takes it back. A plugin states at each start what it finds, so
  neither repetition nor a restart of the detector makes it a new one.
- An edge, which happens and is over, is counted only from the moment at which it was last dealt with.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import lru_cache

from recovery.decide.boot import APART
from recovery.decide.situation import ABOUT_NOW, Situation
from recovery.model import Fault, Kind, Phase, Problem, Record
from recovery.quick import replace

Key = tuple[str, str, str]
"""The identity of a fault: its source, type and reason."""
SIGNAL_UNKNOWN = "SignalUnknown"
MOST_KEPT = 20
"""How many are kept in full. Of others the record keeps a digest."""
MOST_DIGESTS = 200
FOUND_SOON = timedelta(minutes=1)
"""An agent that is killed is back by then, and reads its node's page."""
LATE = timedelta(hours=1)
"""How much later a second source may state a fault that was dealt with: the slowest look once an hour."""
SURE = 64
WIDTH = 6
"""Characters of a digest: 36 bits."""


def by_plugin(fault: Fault) -> bool:
    """Whether a custom plugin reports it. Its counter grows with every run, so a higher one is no news."""
    return fault.kind is Kind.LEVEL and not fault.latched


# ---------------------------------------------------------------- the question


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
    return _in_short(fault, r) or bool(late_witness(fault, s))


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
        if (r.phase.sick or at > closed_at(s, r)) and (key in about or _plugins_in_short(key, s, r))
    }


def _handed_over(r: Record, key: Key) -> bool:
    """Whether it is in a person's hands: it is told once, however often it comes and goes."""
    return r.phase is Phase.HANDED_OVER and any(f.key == key for f in r.faults)


def late_witness(fault: Fault, s: Situation) -> tuple[Fault, ...]:
    """What other sources stated with the same words, and was dealt with: ``fault`` is only late to say so.

    Once it is remembered itself, what it states anew is a new fault.
    """
    r = s.record
    about = [old for old in r.acknowledged if _same_words(old, fault)] if r is not None else []
    if r is None or not about or any(old.source == fault.source for old in about):
        return ()
    if _in_short(fault, r):
        return ()  # remembered in full again, it would put another one out, for ever
    p = _problem(fault, s)
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


def as_a_persons(r: Record) -> tuple[Fault, ...]:
    """What ``r`` remembers. Where a person has the node, what it was closed with is theirs."""
    theirs = closed_with(r) if r.phase is Phase.HANDED_OVER else ()
    others = r.acknowledged[: len(r.acknowledged) - len(theirs)]
    return (*others, *(replace(f, handed_over=True) for f in theirs))


def still_a_persons(s: Situation, r: Record) -> tuple[Fault, ...]:
    """The faults beside those of ``r`` that a person was given in this boot, and has not released.

    No source has taken them back. A restart of the detector takes nothing back either.
    """
    about = {f.key for f in r.faults}
    here = r.machine.id, s.node.boot_id if s.node is not None else None
    theirs = (f for f in as_a_persons(r) if f.handed_over and f.key not in about)
    there = (f for f in theirs if (f.machine, f.boot_id) == here and (f.latched or not f.cleared))
    return tuple(replace(f, handed_over=False) for f in there)


def what_is_said(f: Fault) -> tuple[str, str, str]:
    """The same for two faults that people are told of as one. The silence of each source is its own."""
    return (f.source if f.type == SIGNAL_UNKNOWN else "", f.type, f.reason)


def _same_words(one: Fault, other: Fault) -> bool:
    """Whether they say the same of one boot, whichever source each is of."""
    return what_is_said(one) == what_is_said(other) and one.boot_id == other.boot_id


def _in_short(fault: Fault, r: Record) -> bool:
    """Whether the record keeps a digest of it."""
    if not r.acknowledged_more:  # nearly always
        return False
    digests = _digests(r.acknowledged_more)
    return digest(fault) in digests or digest(fault, any_count=True) in digests


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
    another = bool(old.life and new.life) and old.life != new.life
    return another or (old.cleared and stated)


def stated_now(fault: Fault, s: Situation) -> bool:
    """Whether a source states the fault now. What it showed before it was started anew is a memory."""
    reading = s.reading_of(fault.source)
    if reading is None or (fault.type, fault.reason) in reading.gone:
        return False
    key = fault.key
    return any(p.key == key for p in reading.problems)


def full(r: Record) -> bool:
    """Whether the record's memory has no room left. A closed record has room for ``SURE`` in any case."""
    return len(r.acknowledged) + len(r.acknowledged_more) // WIDTH >= SURE


# ---------------------------------------------------------------- the memory


def remembered(r: Record, faults: tuple[Fault, ...]) -> Record:
    """``r`` with ``faults`` among those that were dealt with.

    Of more than ``MOST_KEPT`` the first of ``faults`` stay whole, which are those that were treated. Those of
    the latest closing are the last ones (``closed_with``): a closed record keeps its order.
    """
    if not r.phase.open:
        anew = {f.key: f for f in faults}
        r = replace(r, acknowledged=tuple(_latest(f, anew.pop(f.key, f), r.boot_id) for f in r.acknowledged))
        faults = tuple(anew.values())
    keys = {f.key for f in faults}
    known = tuple(f for f in r.acknowledged if f.key not in keys)
    if len(known) + len(faults) <= MOST_KEPT:
        return replace(r, acknowledged=(*known, *faults))
    whole = (*faults, *reversed(known))[:MOST_KEPT]
    rest = tuple(f for f in (*known, *faults) if f not in whole)
    return digested(replace(r, acknowledged=(*known, *faults)), rest)


def _latest(known: Fault, named: Fault, boot: str) -> Fault:
    """Which of two accounts of one fault is the later one, on a closed record of ``boot``.

    The faults that a record remembers are kept up to date, also over a boot. Those that it names are not,
    unless they are of another boot than the record.
    """
    since_then = known.since == named.since and named.boot_id == boot
    same_boot = known.boot_id == named.boot_id
    return known if known.machine == named.machine and (same_boot or since_then) else named


def digested(r: Record, faults: tuple[Fault, ...]) -> Record:
    """``r`` with a digest in place of each of these faults that were dealt with."""
    short = (digest(f, any_count=by_plugin(f)) for f in faults)
    more = list(dict.fromkeys((*_digests(r.acknowledged_more), *short)))[-MOST_DIGESTS:]
    left = tuple(f for f in r.acknowledged if f not in faults)
    return replace(r, acknowledged=left, acknowledged_more="".join(more))


def digest(f: Fault, any_count: bool = False) -> str:
    """A fault's identity, short."""
    count = "" if any_count else repr(f.counter)
    whole = "\0".join((*f.key, f.machine, f.boot_id, count))
    return base64.b64encode(hashlib.sha256(whole.encode()).digest())[:WIDTH].decode()


@lru_cache(16)
def _digests(more: str) -> tuple[str, ...]:
    return tuple(more[at : at + WIDTH] for at in range(0, len(more), WIDTH))


def forgotten(r: Record, gone: tuple[Fault, ...]) -> Record:
    """``r`` without ``gone``, which their own sources have taken back: if they come again, they are new.

    Where another source stated the same fault, and that is remembered, the fault stays on the record as taken
    back. Without that, the next one of its own source would pass for a late witness of the other's.
    """
    keys = {f.key for f in gone}
    others = tuple(f for f in r.acknowledged if f.key not in keys)
    back = {f.key: replace(f, cleared=True) for f in gone if any(_same_words(f, x) for x in others)}
    known = (back.pop(f.key, None) if f.key in keys else f for f in r.acknowledged)
    kept = tuple(f for f in known if f is not None)
    return replace(r, acknowledged=(*kept, *back.values()))


# ---------------------------------------------------------------- what the sources say of it since


def brought_up_to_date(r: Record, s: Situation, taken_back: Iterable[Fault]) -> tuple[Record, str]:
    """``r`` by what the sources say now of the faults that were dealt with, and why; "" where it is no news.

    ``taken_back`` are ``forgotten``. Those of a life of the detector that has ended are marked. Those that
    prove to be a plugin's are known as such.
    """
    gone = tuple(taken_back)
    kept = tuple(_known_better(f, r, s) for f in forgotten(r, gone).acknowledged)
    more = _without(r.acknowledged_more, s)
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
    problem = _problem(f, s)
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
    p, here = _problem(f, s), s.node is not None and f.boot_id == s.node.boot_id and f.machine == r.machine.id
    if f.kind is not Kind.LEVEL or not f.latched or not here or (p is not None and not p.latched):
        return f
    if p is None or not stated_now(f, s):
        return replace(f, cleared=f.cleared or life_ended(f, s))
    return replace(f, counter=p.counter, life=p.life, cleared=False) if new_life(f, p, stated=True) else f


def life_ended(f: Fault, s: Situation) -> bool:
    """Whether a log rule's fault is gone from the page and its count has fallen: the detector begins anew."""
    reading = s.reading_of(f.source)
    if reading is None or not reading.readable or (f.type, f.reason) not in reading.gone:
        return False
    count = reading.counters.get(f.reason)
    return f.counter is None if count is None else f.counter is None or count < f.counter


def _without(more: str, s: Situation) -> str:
    """``more`` without what its plugin has taken back."""
    digests = _digests(more)
    if not digests or s.record is None or s.node is None or s.machine is None:
        return more
    back = {_plugins_digest((x.source, *pair), s) for x in s.readings for pair in x.cleared}
    return "".join(x for x in digests if x not in back)


def _plugins_in_short(key: Key, s: Situation, r: Record) -> bool:
    return bool(r.acknowledged_more) and _plugins_digest(key, s) in _digests(r.acknowledged_more)


def _plugins_digest(key: Key, s: Situation) -> str:
    """That of a fault of the node as it is now, whatever its count."""
    machine, boot = s.machine.id if s.machine else "", s.node.boot_id if s.node else ""
    return digest(Fault(*key, "", s.now, machine, boot), any_count=True)


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
        _counted_now(f, s, r, until) if any(_same_words(f, g) for g in about) else f for f in r.acknowledged
    )
    named = tuple(_counted_now(f, s, r, until) for f in r.faults)
    more = _digested_anew(r.acknowledged_more, r.faults, named)
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


def _digested_anew(more: str, before: tuple[Fault, ...], now: tuple[Fault, ...]) -> str:
    """``more`` with the digests of ``before`` as those of ``now``: of what the record names as well."""
    if not more or before == now:
        return more
    pairs = zip(before, now, strict=True)
    anew = {digest(f, by_plugin(f)): digest(g, by_plugin(g)) for f, g in pairs}
    return "".join(dict.fromkeys(anew.get(x, x) for x in _digests(more)))


def closed_with(r: Record) -> tuple[Fault, ...]:
    """The faults that were on ``r`` when it was closed, as they are remembered.

    A closed record may have no room to name them all. But they were remembered last, in order. So they are
    all those from the first one on that the record names. If that one is a digest by now, they are all.
    """
    named = {f.key for f in r.faults}
    for at, f in enumerate(r.acknowledged):
        if f.key in named:
            return r.acknowledged[at:]
    return r.acknowledged if any(_in_short(f, r) for f in r.faults) else ()


def closed_at(s: Situation, r: Record) -> datetime:
    """When ``r`` was closed, at the earliest.

    A command knows the API server's time only to a second. If this process read the record within that second
    and found it open, it was closed after that read.
    """
    seen, said = s.open_at, r.phase_since
    return seen if seen is not None and said < seen <= said + ABOUT_NOW else said


def _counted_now(f: Fault, s: Situation, r: Record, until: datetime | None = None) -> Fault:
    """``f`` of ``r`` as its source states it now; unchanged where that was stated after ``until``.

    The machine may have booted while it was being replaced, and the fault may have come back. Then the record
    knows that boot.
    """
    p, boot = _problem(f, s), s.node.boot_id if s.node is not None else ""
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


def _problem(f: Fault, s: Situation) -> Problem | None:
    reading = s.reading_of(f.source)
    return next((p for p in reading.problems if p.key == f.key), None) if reading else None


def worth_a_record(r: Record | None, treat: bool) -> bool:
    """Whether a fault that is not known opens a record.

    Once the memory is full, a fault that is only reported does not: it could not be remembered, and would be
    reported again in every cycle.
    """
    return r is None or treat or r.phase is Phase.LOST or not full(r)
