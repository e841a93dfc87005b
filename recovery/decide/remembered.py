"""What does a record remember of the faults that were dealt with: in full, or as a digest? PURE."""

from __future__ import annotations

import base64
import hashlib
from datetime import datetime
from functools import lru_cache

from recovery.decide.situation import ABOUT_NOW, Situation
from recovery.model import Fault, Kind, Phase, Record
from recovery.quick import replace

Key = tuple[str, str, str]
"""The identity of a fault: its source, type and reason."""
SIGNAL_UNKNOWN = "SignalUnknown"
MOST_KEPT = 20
"""How many are kept in full. Of others the record keeps a digest."""
MOST_DIGESTS = 200
SURE = 64
WIDTH = 6
"""Characters of a digest: 36 bits."""


def by_plugin(fault: Fault) -> bool:
    """Whether a custom plugin reports it. Its counter grows with every run, so a higher one is no news."""
    return fault.kind is Kind.LEVEL and not fault.latched


def what_is_said(f: Fault) -> tuple[str, str, str]:
    """The same for two faults that people are told of as one. The silence of each source is its own."""
    return (f.source if f.type == SIGNAL_UNKNOWN else "", f.type, f.reason)


def same_words(one: Fault, other: Fault) -> bool:
    """Whether they say the same of one boot, whichever source each is of."""
    return what_is_said(one) == what_is_said(other) and one.boot_id == other.boot_id


def in_short(fault: Fault, r: Record) -> bool:
    """Whether the record keeps a digest of it."""
    if not r.acknowledged_more:  # nearly always
        return False
    digests = _digests(r.acknowledged_more)
    return digest(fault) in digests or digest(fault, any_count=True) in digests


def plugins_in_short(key: Key, s: Situation, r: Record) -> bool:
    """Whether the record keeps a digest of the plugin's fault ``key``, of the node as it is now."""
    return bool(r.acknowledged_more) and _plugins_digest(key, s) in _digests(r.acknowledged_more)


def _plugins_digest(key: Key, s: Situation) -> str:
    """That of a fault of the node as it is now, whatever its count."""
    machine, boot = s.machine.id if s.machine else "", s.node.boot_id if s.node else ""
    return digest(Fault(*key, "", s.now, machine, boot), any_count=True)


def full(r: Record) -> bool:
    """Whether the record's memory has no room left. A closed record has room for ``SURE`` in any case."""
    return len(r.acknowledged) + len(r.acknowledged_more) // WIDTH >= SURE


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


def digested_anew(more: str, before: tuple[Fault, ...], now: tuple[Fault, ...]) -> str:
    """``more`` with the digests of ``before`` as those of ``now``: of what the record names as well."""
    if not more or before == now:
        return more
    pairs = zip(before, now, strict=True)
    anew = {digest(f, by_plugin(f)): digest(g, by_plugin(g)) for f, g in pairs}
    return "".join(dict.fromkeys(anew.get(x, x) for x in _digests(more)))


def without_taken_back(more: str, s: Situation) -> str:
    """``more`` without what its plugin has taken back."""
    digests = _digests(more)
    if not digests or s.record is None or s.node is None or s.machine is None:
        return more
    back = {_plugins_digest((x.source, *pair), s) for x in s.readings for pair in x.cleared}
    return "".join(x for x in digests if x not in back)


def forgotten(r: Record, gone: tuple[Fault, ...]) -> Record:
    """``r`` without ``gone``, which their own sources have taken back: if they come again, they are new.

    Where another source stated the same fault, and that is remembered, the fault stays on the record as taken
    back. Without that, the next one of its own source would pass for a late witness of the other's.
    """
    keys = {f.key for f in gone}
    others = tuple(f for f in r.acknowledged if f.key not in keys)
    back = {f.key: replace(f, cleared=True) for f in gone if any(same_words(f, x) for x in others)}
    known = (back.pop(f.key, None) if f.key in keys else f for f in r.acknowledged)
    kept = tuple(f for f in known if f is not None)
    return replace(r, acknowledged=(*kept, *back.values()))


def closed_with(r: Record) -> tuple[Fault, ...]:
    """The faults that were on ``r`` when it was closed, as they are remembered.

    A closed record may have no room to name them all. But they were remembered last, in order. So they are
    all those from the first one on that the record names. If that one is a digest by now, they are all.
    """
    named = {f.key for f in r.faults}
    for at, f in enumerate(r.acknowledged):
        if f.key in named:
            return r.acknowledged[at:]
    return r.acknowledged if any(in_short(f, r) for f in r.faults) else ()


def as_a_persons(r: Record) -> tuple[Fault, ...]:
    """What ``r`` remembers. Where a person has the node, what it was closed with is theirs."""
    theirs = closed_with(r) if r.phase is Phase.HANDED_OVER else ()
    others = r.acknowledged[: len(r.acknowledged) - len(theirs)]
    return (*others, *(replace(f, handed_over=True) for f in theirs))


def closed_at(s: Situation, r: Record) -> datetime:
    """When ``r`` was closed, at the earliest.

    A command knows the API server's time only to a second. If this process read the record within that second
    and found it open, it was closed after that read.
    """
    seen, said = s.open_at, r.phase_since
    return seen if seen is not None and said < seen <= said + ABOUT_NOW else said
