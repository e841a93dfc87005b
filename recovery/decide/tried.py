"""How long was the current step tried, and how long did something hold it? PURE.

Time in which a step was held is not time in which it was tried, whatever held it (docs/decisions/0017). A
deadline is asked of ``over``. A decision says with ``held`` what keeps the step from being tried, and
``accounted`` puts that on the record: once when it begins, and once when it ends. Then every moment from
which a time of the step counts is moved on by as much, so that a new process and an agent of another version
count alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from recovery.decide.decision import Decision, EventReason, Report, WriteRecord, act
from recovery.decide.diagnosis import name
from recovery.decide.history import HistoryEvent, note
from recovery.decide.situation import Role, Situation
from recovery.model import Cause, Held, Holding, Phase, Progress, Record
from recovery.quick import replace
from recovery.units import span

LEAST = timedelta(seconds=15)
"""A hold that is shorter is not written down by itself."""
TOGETHER = timedelta(seconds=30)
"""Short holds are only remembered. Once they make this much together, they are written down."""
RENEWED = timedelta(seconds=35)
"""A gap between two renewals of a Lease may be longer by this much than the holds that the agent saw in
it."""
ZERO = timedelta(0)
BY = {
    Cause.PAUSE: "by a pause",
    Cause.EXCLUDED: "by an exclusion",
    Cause.CLAIM: "by another remediator",
    Cause.BRAKE: "by the brake",
    Cause.WINDOW: "by its windows",
    Cause.BLOCKED: "by a blocker",
    Cause.UNREADABLE: "by a page that cannot be read",
    Cause.SLOT: "by the budget",
    Cause.GATE: "by a gate that cannot be read",
    Cause.MARKS: "by marks that somebody took off",
    Cause.GROUP: "by its group",
    Cause.WITNESS: "by a second witness",
    Cause.CLOCK: "by a clock that is off",
    Cause.NODE: "by a node that is not initialised, or whose boot is not known",
    Cause.API: "while the API server did not answer, or refused",
    Cause.AGENT: "while who looked after it was waited for",
    Cause.NOBODY: "while nobody was at work",
}
GOES_ON = "the recovery goes on"
"""What is said when nothing holds a step any more."""
BY_KEY = {
    "paused": Cause.PAUSE,
    "excluded": Cause.EXCLUDED,
    "claimed": Cause.CLAIM,
    "window": Cause.WINDOW,
    "blocked": Cause.BLOCKED,
    "boot": Cause.NODE,
    "brake": Cause.BRAKE,
    "correlated": Cause.BRAKE,
    "no-launch": Cause.GROUP,
    "group-short": Cause.GROUP,
    "not-alone": Cause.GROUP,
}
"""What a brake's key is on the record."""


# ---------------------------------------------------------------- the clock


def used(s: Situation, r: Record, since: datetime) -> timedelta:
    """How much of the time since ``since`` the step was tried. Holds that are over have moved ``since``."""
    h = r.progress.holding
    held = s.now - max(h.since, since) if h else ZERO
    return max(passed(s, since) - max(held, ZERO) - sum(_unsaid(s).values(), ZERO), ZERO)


def passed(s: Situation, since: datetime) -> timedelta:
    """How long ago ``since`` was, whatever the clock of the API server did meanwhile."""
    return s.now - since - s.set_forward(since)


def over(s: Situation, r: Record, since: datetime, within: timedelta) -> bool:
    """Whether a deadline has passed: the step was tried for ``within`` since ``since``."""
    return used(s, r, since) >= within


def held_by(s: Situation, r: Record, cause: Cause) -> timedelta:
    """How long ``cause`` has held the current step, all together."""
    h = r.progress.holding
    now = passed(s, h.since) if h and h.cause is cause else ZERO
    return sum((x.time for x in r.progress.held if x.cause is cause), max(now, ZERO))


def was_held(s: Situation, r: Record, cause: Cause) -> bool:
    """Whether ``cause`` has held the current step, for however short a time, as far as that is known."""
    p = r.progress
    written = any(x.cause is cause for x in p.held) or (p.holding is not None and p.holding.cause is cause)
    return written or cause in _unsaid(s)


def gone_for(s: Situation, r: Record) -> timedelta:
    """How long a concluder has waited for the node's own agent. The record knows it better than a process."""
    p = r.progress
    return held_by(s, r, Cause.AGENT) if p.held or p.holding else s.owner_gone_for


def known(s: Situation, cause: Cause) -> bool:
    """Whether this agent has seen ``cause`` hold the step for long enough to write it down."""
    return s.held_last is not None and s.held_last[0] is cause and s.held_last[1] >= LEAST


def _unsaid(s: Situation, cause: Cause | None = None) -> dict[Cause, timedelta]:
    """What the agent saw hold the step, and the record does not say. Not ``cause``, which holds it still."""
    times = dict(s.held_before)
    if s.held_last is not None and s.held_last[0] is not cause:
        last, time = s.held_last
        times[last] = times.get(last, ZERO) + time
    return times


# ---------------------------------------------------------------- the sentence


def clause(r: Record, now: datetime) -> str:
    """``drain: 3 min of 10 used, held 11 min by a pause``; empty where nothing held the step."""
    step, said = r.step, held_clause(r, now)
    since = r.rung_since or r.progress.step_since
    if not said or step is None or since is None:
        return said
    h = r.progress.holding
    gone = (h.since if h else now) - since
    return f"{step}: {_of(max(gone, ZERO), step.within)} used, {said}"


def held_clause(r: Record, now: datetime, but: Cause | None = None) -> str:
    """``held 11 min by a pause and 2 min by the brake``; empty where nothing did. ``but`` is left out."""
    h = r.progress.holding
    times = {x.cause: x.time for x in r.progress.held}
    if h is not None:
        times[h.cause] = times.get(h.cause, ZERO) + max(now - h.since, ZERO)
    parts = [f"{span(time)} {BY[cause]}" for cause, time in times.items() if cause is not but]
    if not parts:
        return ""
    return "held " + (f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0])


def _of(part: timedelta, whole: timedelta) -> str:
    """``3 min of 10``, ``45 s of 10 min``."""
    (a, unit), (b, other) = span(part).split(), span(whole).split()
    return f"{a} {unit} of {b}" if unit == other else f"{a} {unit} of {b} {other}"


# ---------------------------------------------------------------- the record


def held_together(s: Situation, r: Record, why: str) -> Decision:
    """Say once on the record that one cause on many machines holds it: there a person looks for it."""
    said = f"{name(r.faults[0])} is held: {why}"
    written = note(r, s.now, HistoryEvent.CORRELATED, said)
    return act(WriteRecord(written), said, Report(EventReason.HELD, warning=True))


def accounted(s: Situation, r: Record, d: Decision) -> Decision:
    """``d``, or first the write that says what has held the step, now that it begins or ends.

    What was held before a gap or a restart is on the record before any deadline counts.
    """
    if d.held is not None and d.effect is not None and unattended(s, r) is None:
        return d
    changed = accounts(s, r, d.held)
    said = clause(changed or r, s.now) if r.phase is Phase.RECOVERING else held_clause(changed or r, s.now)
    if changed is not None:
        return act(WriteRecord(changed), f"{d.reason if d.held else GOES_ON}; {said}")
    return replace(d, reason=f"{d.reason}; {said}") if said and d.effect is None else d


def accounts(s: Situation, r: Record, cause: Cause | None) -> Record | None:
    """``r`` with its accounts brought up to now, where ``cause`` (or nothing) holds its step; None where
    they need no change."""
    if r.phase not in (Phase.RECOVERING, Phase.PROVING) and s.role is Role.OWNER and not _waited_for(r):
        return None
    found, unsaid, gap = _back(s, r), _unsaid(s, cause), unattended(s, r)
    seen = sum(unsaid.values(), ZERO)
    if gap is not None and seen + RENEWED < gap[1] - gap[0]:
        found = _with_gap(found, gap, cause)
    elif gap is not None or seen >= TOGETHER:  # what the agent saw is all that the gap is made of
        found = _with_all(s, found, unsaid)
        unsaid = {}
    found = _turned(s, found, cause)
    if found is r:
        return None
    found = _with_all(s, found, unsaid)
    looked_on = found.phase is not Phase.PROVING or found is r
    return found if looked_on else replace(found, phase_since=s.now)  # probation begins again


def ended(r: Record) -> Progress:
    """The progress of ``r`` without its accounts: the step is over."""
    return replace(r.progress, held=(), holding=None, accounted=None)


def _waited_for(r: Record) -> bool:
    """Whether a concluder wrote that it waits for the node's own agent."""
    h = r.progress.holding
    return bool(h and h.cause is Cause.AGENT) or any(x.cause is Cause.AGENT for x in r.progress.held)


def _back(s: Situation, r: Record) -> Record:
    """The node's own agent is back: the time for which it was waited for does not count the next time."""
    if s.role is not Role.OWNER or not _waited_for(r):
        return r
    p, h = r.progress, r.progress.holding
    renamed = [Held(Cause.NOBODY if x.cause is Cause.AGENT else x.cause, x.time) for x in p.held]
    holding = replace(h, cause=Cause.NOBODY) if h and h.cause is Cause.AGENT else h
    return replace(r, progress=replace(p, held=_summed(renamed), holding=holding))


def _with_all(s: Situation, r: Record, times: Mapping[Cause, timedelta]) -> Record:
    for cause, time in times.items():
        r = _added(r, cause, s.now - time, s.now)
    return r


def _with_gap(r: Record, gap: tuple[datetime, datetime], cause: Cause | None) -> Record:
    """Nobody renewed the record's Lease meanwhile: nobody was at work, or nobody could write."""
    since, until = gap
    h = r.progress.holding
    if h is not None:
        r = _added(r, h.cause, h.since, since)
    r = _added(r, Cause.NOBODY, since, until)
    following = Holding(cause, until) if cause else None
    return replace(r, progress=replace(r.progress, holding=following, accounted=until))


def unattended(s: Situation, r: Record) -> tuple[datetime, datetime] | None:
    """From when to when nobody was at work on the record, where that is not accounted for yet."""
    if s.lease.idle is None:
        return None
    p = r.progress
    since = max(s.lease.idle[0], p.accounted or p.step_since or p.proving_since or r.phase_since)
    since = max(since, p.holding.since) if p.holding else since
    until = min(s.lease.idle[1], s.now)
    return (since, until) if until - since >= LEAST else None


def _turned(s: Situation, r: Record, cause: Cause | None) -> Record:
    """What held the step does no longer, or something else does, or something has begun to."""
    h = r.progress.holding
    if h is None:
        if cause is None or s.held_last is None or not known(s, cause):
            return r
        return replace(r, progress=replace(r.progress, holding=Holding(cause, s.now - s.held_last[1])))
    if cause is h.cause or (cause is not None and s.now - h.since < LEAST):
        return r
    r = _added(r, h.cause, h.since, s.now)
    return replace(r, progress=replace(r.progress, holding=Holding(cause, s.now) if cause else None))


def _added(r: Record, cause: Cause, since: datetime, until: datetime) -> Record:
    """``r`` with this time in its accounts, and the moments that times count from moved on by it."""
    if until <= since:
        return r

    def moved(at: datetime | None) -> datetime | None:
        return None if at is None else at + max(until - max(at, since), ZERO)

    p, v, e = r.progress, r.validation, r.progress.evidence
    began, seen = moved(v.since) if v else None, moved(e.at) if e else None
    return replace(
        r,
        rung_since=moved(r.rung_since),
        validation=replace(v, since=began) if v and began else v,
        progress=replace(
            p,
            step_since=moved(p.step_since),
            proving_since=moved(p.proving_since),
            evidence=replace(e, at=seen) if e and seen else e,
            held=_summed((*p.held, Held(cause, until - since))),
            accounted=until,
        ),
    )


def _summed(held: Iterable[Held]) -> tuple[Held, ...]:
    times: dict[Cause, timedelta] = {}
    for x in held:
        times[x.cause] = times.get(x.cause, ZERO) + x.time
    return tuple(Held(cause, time) for cause, time in times.items())
