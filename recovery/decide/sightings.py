"""What is seen while recovery is off, and what would be done about it: kept, so that people can read a week
of it. PURE.

A fault of one machine is one sighting, from when it was first seen until it is gone. One that comes back
within ``SAME`` is the same sighting once more. What keeps them all is small, and written only when something
has changed: agents of thousands of nodes share one object.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from recovery.decide import brakes
from recovery.decide.assessment import Assessment
from recovery.decide.diagnosis import SIGNAL_UNKNOWN, Diagnosis, what_is_said, why_reported
from recovery.decide.drill import is_drill
from recovery.decide.idle import alone
from recovery.decide.imagined import leading, waits_for
from recovery.decide.situation import Situation
from recovery.model import Fault, Kind, Reading, Step
from recovery.quick import quick, replace
from recovery.short import LONGEST_REASON, LONGEST_TYPE, named

SAME = timedelta(hours=1)
"""A fault that comes back within this time is the same sighting."""
SEEN_AGAIN = timedelta(hours=1)
"""How often it is written down that a fault is still there."""
SILENT = 2 * SEEN_AGAIN + timedelta(minutes=10)
"""A sighting that has not ended and was not seen for so long: nobody looks at its node any more."""
LONGEST = 200
"""Characters of what others wrote: why a node is left alone."""
TAKEN_BACK, BOOTED = "its source took it back", "the machine has booted"
NOT_STATED, GONE = "it is not stated any more", "its Node is gone"
OTHER_MACHINE, SWITCHED_ON = "another machine has its name", "recovery was switched on"
BY_ITSELF = frozenset({TAKEN_BACK, NOT_STATED})
"""Endings of a fault that nobody did anything about."""
A_DRILL = "a drill"
"""Why nothing real is wrong."""
Key = tuple[str, str, str]


class Would(StrEnum):
    """What would be done about a fault if recovery were on."""

    TOLERATE = "tolerate"
    RECOVER = "recover"
    LEAVE_ALONE = "leaveAlone"
    HAND_OVER = "handOver"
    REPORT = "report"


@dataclass(frozen=True, slots=True)
class Sighting:
    """One fault of one machine. ``steps``: those of its rule's remedy. ``why``: what keeps it from them, or
    what they would wait for.

    ``since``: when it was stated first. ``due``: when its recovery would have begun, None if that was never
    decided, or if it would still wait. ``seen``: when it was last known to be there. ``times``: how often it
    came. ``ended``: when it was gone, and ``how``.
    """

    node: str
    machine: str
    boot: str
    source: str
    type: str
    reason: str
    rule: str
    would: Would
    steps: tuple[Step, ...]
    why: str
    since: datetime
    seen: datetime
    due: datetime | None = None
    times: int = 1
    ended: datetime | None = None
    how: str = ""

    @property
    def key(self) -> Key:
        """As ``what_is_said`` tells faults apart."""
        return (self.source if self.type == SIGNAL_UNKNOWN else "", self.type, self.reason)


@quick
@dataclass(frozen=True, slots=True)
class News:
    """What is known of a node now. ``head``: the fault that would decide. ``present``: all that it has.

    ``looked``: the Node was read, so machine, boot and whether it is ``gone`` are known.
    ``on``: recovery is on, so nothing is kept any more.
    """

    node: str
    at: datetime
    head: Sighting | None = None
    present: frozenset[Key] = frozenset()
    readings: tuple[Reading, ...] = ()
    machine: str = ""
    boot: str = ""
    gone: bool = False
    looked: bool = True
    on: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """All sightings, oldest first. ``since``: from when on somebody has looked. ``dropped``: how many there
    was no room for; they ended by ``dropped_until``. ``full_since``: since when there is no room for all that
    have not ended."""

    since: datetime
    sightings: tuple[Sighting, ...] = ()
    dropped: int = 0
    dropped_until: datetime | None = None
    full_since: datetime | None = None


# ---------------------------------------------------------------- what would be done


def seen(s: Situation, a: Assessment) -> Sighting | None:
    """The fault that would decide what is done about the node, and what that would be. None where there is
    no fault, or where a recovery was begun before recovery was switched off."""
    if not a.found or (s.record is not None and s.record.phase.open):
        return None
    d = leading(s, a)
    would, why = _would(s, a, d)
    due = s.now if would is Would.RECOVER and not why else None
    if is_drill(d.fault.message):
        why = f"{why}; {A_DRILL}" if why else A_DRILL
    return Sighting(
        node=s.node_name,
        machine=s.machine.id if s.machine else "",
        boot=s.node.boot_id if s.node else "",
        source=d.fault.source,
        type=named(d.fault.type, LONGEST_TYPE),
        reason=named(d.fault.reason, LONGEST_REASON),
        rule=d.rule.name if d.rule else "",
        would=would,
        steps=tuple(r.do for r in d.ladder if r.do is not Step.NOTIFY),
        why=why[:LONGEST],
        since=d.fault.since,
        seen=s.now,
        due=due,
    )


def _would(s: Situation, a: Assessment, d: Diagnosis) -> tuple[Would, str]:
    if not d.treat:
        return Would.REPORT, why_reported(d)
    if s.now < d.due:
        return Would.TOLERATE, ""
    lost = alone(s, s.record) if s.record is not None else None
    if reason := brakes.excluded(s) or brakes.foreign_claim(s) or lost:
        return Would.LEAVE_ALONE, reason
    if s.machine_problem:
        return Would.HAND_OVER, s.machine_problem
    return Would.RECOVER, s.machine_wait or waits_for(s, a, d) or ""


def steps_of(x: Sighting) -> str:
    """The steps, the first one first: ``would drain node-1; then reboot; then replace``."""
    return f"would {'; then '.join((f'{x.steps[0]} {x.node}', *x.steps[1:]))}"


def held(x: Sighting) -> str:
    """What a fault that would be recovered would wait for first; empty where nothing."""
    return x.why.removesuffix(A_DRILL).removesuffix("; ") if x.would is Would.RECOVER else ""


def what(x: Sighting) -> str:
    """What would be done, and what it would wait for first."""
    if x.would is Would.RECOVER:
        return f"{steps_of(x)}, but would wait: {held(x)}" if held(x) else steps_of(x)
    if x.would is Would.TOLERATE:
        return f"would {x.steps[0]} {x.node}, but not yet: rule {x.rule} tolerates it for a while"
    words = {
        Would.LEAVE_ALONE: "would leave it alone",
        Would.HAND_OVER: "would hand it over to a person",
        Would.REPORT: "would only report it",
    }
    return f"{words[x.would]}: {x.why}" if x.why else words[x.would]


def _key(f: Fault) -> Key:
    source, kind, reason = what_is_said(f)
    return source, named(kind, LONGEST_TYPE), named(reason, LONGEST_REASON)


def news(s: Situation, a: Assessment, *, looked: bool = True) -> News:
    """What ``s`` says of its node. ``looked``: the API server was asked for the Node, so None means gone."""
    head = None if s.on else seen(s, a)
    if head is not None and head.would is Would.REPORT and leading(s, a).fault.kind is Kind.EDGE:
        head = None  # a count that nothing would be done about: metrics have it
    return News(
        node=s.node_name,
        at=s.now,
        head=head,
        present=frozenset(_key(d.fault) for d in a.found),
        readings=s.readings,
        machine=s.machine.id if s.machine else "",
        boot=s.node.boot_id if s.node else "",
        gone=looked and s.node is None,
        looked=looked,
        on=s.on,
    )


# ---------------------------------------------------------------- what is kept


def folded(report: Report, n: News) -> Report:
    """``report`` with ``n``; the very same where nothing has changed. Twice the same news change nothing."""
    kept = tuple(_gone_on(x, n) if x.node == n.node and x.ended is None else x for x in report.sightings)
    if n.head is not None and not n.gone:  # what is remembered of a Node that is gone is not there now
        kept = _with(kept, n.head)
    return report if kept == report.sightings else replace(report, sightings=kept)


def _gone_on(x: Sighting, n: News) -> Sighting:
    """What has become of a sighting that had not ended."""
    if how := _ended(x, n):
        return replace(x, ended=n.at, how=how, boot="")
    if x.key in n.present and n.at - x.seen >= SEEN_AGAIN:
        return replace(x, seen=n.at)
    return x


def _ended(x: Sighting, n: News) -> str:
    """How ``x`` has ended, empty if it has not. What is unknown has not (law 3)."""
    if n.on:
        return SWITCHED_ON
    if n.gone:
        return GONE
    if n.machine and x.machine and n.machine != x.machine:
        return OTHER_MACHINE
    reading = next((r for r in n.readings if r.source == x.source), None)
    if x.key in n.present or reading is None:
        return ""
    if not reading.has_word_of(x.type):
        return ""
    if reading.took_back(x.type, x.reason):
        return TAKEN_BACK
    return BOOTED if n.boot and n.boot != x.boot else NOT_STATED


def _with(kept: tuple[Sighting, ...], head: Sighting) -> tuple[Sighting, ...]:
    """``kept`` with the fault that decides now: a new sighting, or one that goes on or has come back."""
    same = [i for i, x in enumerate(kept) if _is_of(x, head)]
    known = kept[same[-1]] if same else None
    if known is None or (known.ended is not None and head.seen - known.ended >= SAME):
        return (*kept, head)
    now = replace(
        head,
        since=known.since,
        seen=known.seen if known.ended is None else head.seen,
        due=known.due or head.due,
        why=_of_the_drill(head) if _has_begun(known, head) else head.why,
        times=known.times + (known.ended is not None),
    )
    return (*kept[: same[-1]], now, *kept[same[-1] + 1 :])


def _has_begun(known: Sighting, head: Sighting) -> bool:
    """Whether its recovery would be under way: what would hold its start comes too late."""
    return known.due is not None and known.ended is None and head.would is Would.RECOVER


def _of_the_drill(x: Sighting) -> str:
    return A_DRILL if x.why.endswith(A_DRILL) else ""


def _is_of(x: Sighting, head: Sighting) -> bool:
    """Whether ``x`` is of the same fault. Of a Node that was just made the machine is known only later."""
    of = {head.machine, ""} if x.ended is None else {head.machine}
    return (x.node, x.key) == (head.node, head.key) and x.machine in of


def trimmed(report: Report, now: datetime, keep: timedelta) -> Report:
    """``report`` without what ended, or was last seen, longer ago than ``keep``."""
    kept = tuple(x for x in report.sightings if now - (x.ended or x.seen) < keep)
    return replace(report, sightings=kept)


def least_needed(report: Report) -> list[Sighting]:
    """All sightings, the one first that is needed least.

    What has ended goes first. Of the others those that came last, so that agents that find no room for
    theirs write nothing, and do not drive out each other's.
    """
    return sorted(report.sightings, key=_worth)


def _worth(x: Sighting) -> tuple[bool, bool, float, str]:
    told_only = x.would is Would.REPORT
    at = x.ended.timestamp() if x.ended else -x.since.timestamp()
    return x.ended is None, not told_only, at, x.node


def without(report: Report, dropped: list[Sighting], now: datetime) -> Report:
    """``report`` without those that there is no room for."""
    lost = {id(x) for x in dropped}
    ended = [x.ended for x in dropped if x.ended is not None]
    return replace(
        report,
        sightings=tuple(x for x in report.sightings if id(x) not in lost),
        dropped=report.dropped + len(ended),
        dropped_until=max([*ended, *filter(None, [report.dropped_until])], default=None),
        full_since=(report.full_since or now) if len(ended) < len(dropped) else None,
    )


def open_nodes(reports: Iterable[Sighting]) -> frozenset[str]:
    """The nodes with a sighting that has not ended."""
    return frozenset(x.node for x in reports if x.ended is None)
