"""What ends a fault that its source no longer states? PURE.

A rule of the policy says it, or the policy's row of the source, or else the catalogue: for the fault, or for
what states such faults. Silence, errors, a detector's restart and Unknown end nothing. A boot or another
machine is seen elsewhere: it ends every fault.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from recovery.catalog import Default, default_for, lookup
from recovery.decide.acknowledged import stated_now
from recovery.decide.diagnosis import (
    SIGNAL_UNKNOWN,
    Diagnosis,
    diagnosed,
    fault_of,
    live,
    name,
    of_a_boot_before,
    settled,
    was_treated,
)
from recovery.decide.doubt import cleared, in_doubt, unreadable
from recovery.decide.drill import is_to_be_watched
from recovery.decide.situation import Situation
from recovery.model import Detector, Ends, Fault, Kind, Latch, Phase, Problem, Record, Rule
from recovery.quick import replace
from recovery.units import hour, span


def latch_of(fault: Fault, rule: Rule | None, s: Situation) -> Latch:
    """What ends ``fault``."""
    row = lookup(fault.type, fault.reason)
    said = (rule.latch if rule else None) or by_its_row(fault, s).latch or (row.latch if row else None)
    return said or default_of(fault, s).latch


def hold_of(fault: Fault, rule: Rule | None, s: Situation) -> timedelta:
    """How long ``fault`` stays after its source has taken it back."""
    row = lookup(fault.type, fault.reason)
    said = (rule.hold if rule else None, by_its_row(fault, s).hold, row.hold if row else None)
    return next((hold for hold in said if hold is not None), default_of(fault, s).hold)


def by_its_row(fault: Fault, s: Situation) -> Ends:
    """What the policy's row of the fault's source says of that, where it has such rows."""
    reading = s.reading_of(fault.source)
    return reading.ends.get((fault.type, fault.reason), Ends()) if reading is not None else Ends()


def default_of(fault: Fault, s: Situation) -> Default:
    """What the catalogue says of the source of ``fault``. A source that took it back is a plugin, whatever
    else was thought of it."""
    if fault.type == SIGNAL_UNKNOWN:
        return Default(Detector.PLUGIN, (), Latch.SOURCE, timedelta(0))
    if fault.kind is Kind.EDGE:
        return default_for(Detector.TEMPORARY, fault.type)
    plugin = not fault.latched or cleared(fault, s)
    return default_for(Detector.PLUGIN if plugin else Detector.LOG, fault.type)


def over(fault: Fault, rule: Rule | None, s: Situation) -> bool:
    """Whether ``fault`` has ended: its source took it back, that is enough, and its hold has passed."""
    if not cleared(fault, s) or latch_of(fault, rule, s) is not Latch.SOURCE:
        return False
    hold = hold_of(fault, rule, s)
    return not hold or (fault.quiet_since is not None and s.now >= fault.quiet_since + hold)


def has_ended(fault: Fault, s: Situation) -> bool:
    """``over``, by the rule that is about ``fault`` now."""
    # Nearly no fault is cleared, and to find its rule takes longer than to see that.
    return cleared(fault, s) and over(fault, diagnosed(fault, s).rule, s)


def left_where_some_ended(s: Situation, found: tuple[Diagnosis, ...]) -> tuple[Diagnosis, ...] | None:
    """The faults to treat that have not ended, where others have; None where all of them are still there."""
    treated = tuple(d for d in found if was_treated(d))
    left = tuple(d for d in treated if not over(d.fault, d.rule, s))
    return left if len(left) < len(treated) else None


def taken_back(s: Situation, found: tuple[Diagnosis, ...], r: Record) -> bool:
    """Whether every fault to treat has ended without us. Where none is to be treated, or a person has the
    node: whether every fault of ``r`` has.

    A confirmed record also ends where all that is left is still tolerated by its own rule, and its source
    states it now: it gets a record of its own.
    """
    if r.phase is Phase.HANDED_OVER or not any(was_treated(d) for d in found):
        return bool(r.faults) and all(has_ended(f, s) for f in r.faults)
    left = left_where_some_ended(s, found)
    if left is None:
        return False
    if not left:
        return True
    confirmed = r.phase in (Phase.WAITING, Phase.RECOVERING)
    return confirmed and all(s.now < d.due and _opens_a_record(d, s) for d in left)


def _opens_a_record(d: Diagnosis, s: Situation) -> bool:
    """Whether its source states it now. What was counted is stated no more once it happens too seldom, and
    would be lost with the record."""
    counted = d.fault.kind is not Kind.EDGE or bool(live(s, (d,)))
    return counted and stated_now(d.fault, s) and not unreadable(s, d.fault)


def only_tolerated(s: Situation, found: tuple[Diagnosis, ...]) -> Diagnosis | None:
    """The fault that will be due first, where some have ended and all that is left is tolerated still."""
    left = left_where_some_ended(s, found)
    d = min(left, key=lambda d: d.due) if left else None
    return d if d is not None and s.now < d.due else None


def one_that_ended(s: Situation, r: Record) -> Fault:
    """The fault of ``r`` to name where it ends without us: the first that has ended."""
    return next((f for f in r.faults if has_ended(f, s)), r.faults[0])


def one_has_ended(s: Situation, r: Record) -> str:
    """The same, as a sentence."""
    return f"{name(one_that_ended(s, r))} was taken back by its own source"


def may_be_gone(s: Situation, faults: Iterable[Fault]) -> str:
    """Why it is not known whether any of ``faults`` is still there; empty if one surely is, or none is given.

    A fault may be gone where its source could take it back, and cannot be read now, and no other states it.
    """
    left = [f for f in faults if not has_ended(f, s)]
    reasons = ["" if f.latched else in_doubt(s, f) or "" for f in left]
    return reasons[0] if reasons and all(reasons) else ""


def noted(s: Situation, r: Record) -> tuple[Record, str] | None:
    """``r`` with the moment from which a fault's hold runs, and why; None where nothing has changed."""
    faults = tuple(_noted(f, s) for f in r.faults)
    if faults == r.faults:
        return None
    f = next(new for new, old in zip(faults, r.faults, strict=True) if new != old)
    if f.quiet_since is None:
        return replace(r, faults=faults), f"{f.reason} is stated again: its hold begins anew"
    return replace(r, faults=faults), f"{f.reason}: {what_ends(f, diagnosed(f, s).rule, s)}"


def _noted(f: Fault, s: Situation) -> Fault:
    rule = diagnosed(f, s).rule
    if latch_of(f, rule, s) is not Latch.SOURCE or not hold_of(f, rule, s):
        return f
    if cleared(f, s):
        return f if f.quiet_since else replace(f, quiet_since=s.now)
    return replace(f, quiet_since=None) if f.quiet_since and stated_now(f, s) else f


def unsaid(p: Problem, s: Situation) -> bool:
    """Whether a fault that was seen has yet to come on a record: it is on none, and it is not over."""
    fault = fault_of(p, s)
    if of_a_boot_before(p, s) or is_to_be_watched(p.message):
        return False
    if s.record is not None and s.record.phase.open and any(f.key == p.key for f in s.record.faults):
        return False
    return not settled(fault, s) and not has_ended(fault, s)


# ---------------------------------------------------------------- for people


def what_ends(fault: Fault, rule: Rule | None, s: Situation) -> str:
    """What would end ``fault``, as the end of a sentence."""
    if is_to_be_watched(fault.message):
        return "a drill: it ends by itself, or by node-recovery inject --remove"
    latch = latch_of(fault, rule, s)
    if latch is Latch.PROOF:
        return "another machine ends it, a boot with its probation, or a validation that succeeds"
    if latch is Latch.BOOT or fault.latched:
        return "another boot or machine ends it"
    hold = hold_of(fault, rule, s)
    if fault.quiet_since is not None and hold:
        return f"held until {hour(fault.quiet_since + hold, s.now)} since it was last stated"
    return f"held for {span(hold)} after its source takes it back" if hold else "its source takes it back"


def held(s: Situation, fault: Fault, rule: Rule | None) -> str:
    """Why ``fault`` still is one, where its source has taken it back; else ""."""
    if unreadable(s, fault) or not cleared(fault, s) or over(fault, rule, s):
        return ""
    return f"its source shows it no longer; {what_ends(fault, rule, s)}"
