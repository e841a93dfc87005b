"""When may something destructive start: inside which windows, and while nothing blocks it? PURE.

A window is a time of the week by the wall clock of its zone. It opens at the first moment at which clocks
there show its ``opens`` or later, and closes at the first at which they show its ``closes`` or later. So an
hour that clocks skip is no part of it, and one that they show twice does not open it twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from fnmatch import fnmatchcase
from functools import lru_cache

from recovery.decide.diagnosis import Diagnosis, diagnose, not_by_its_own_rule, rule_of
from recovery.decide.drain import meant, remaining
from recovery.decide.latch import has_ended, may_be_gone
from recovery.decide.situation import Role, Situation
from recovery.model import Blocker, Pods, Policy, Rule, UnderWay, Window
from recovery.units import few

A_DAY, A_SECOND = timedelta(days=1), timedelta(seconds=1)
AHEAD = 15
"""Days to look ahead for the next opening: a window of one night a week may fall into the hour that clocks
skip, and opens a week later."""
MOST_NAMED = 3
"""How many alerts or pods a sentence names."""

# ---------------------------------------------------------------- what is asked before something starts


def outside(s: Situation) -> str | None:
    """Nothing starts outside the windows of the rule that treats the record, unless that rule is urgent."""
    return None if _urgent(s) else closed(windows_of(s), s.now)


def blocked(s: Situation) -> str | None:
    """Nothing starts while something goes on that the policy names. What cannot be asked blocks, too."""
    if _urgent(s):
        return None
    return next((why for each in s.policy.limits.blockers if (why := _blocks(s, each))), None)


def stopped_outside(s: Situation) -> str | None:
    """``outside``, for a recovery that is under way: where the policy says that it stops."""
    return _stopped(s, outside)


def stopped_by_blocker(s: Situation) -> str | None:
    """``blocked``, for a recovery that is under way: where the policy says that it stops."""
    return _stopped(s, blocked)


def _stopped(s: Situation, asked: Callable[[Situation], str | None]) -> str | None:
    """What ``asked`` says, where the policy stops a recovery that is under way (``underWay: stop``).

    An urgent fault that came meanwhile does not wait, where its own rule calls for the step that is next. The
    ladder stays as it is, so no other step is taken for that fault.
    """
    if s.policy.limits.under_way is not UnderWay.STOP or not (why := asked(s)):
        return None
    step = s.record.step if s.record is not None else None
    if step is None:
        return why
    goes_on = any(_is_urgent(d, s) and not not_by_its_own_rule(d, step.do) for d in diagnose(s))
    return None if goes_on else why


def _is_urgent(d: Diagnosis, s: Situation) -> bool:
    """Whether ``d`` is surely there, and is to be treated now, by an urgent rule."""
    if not d.treat or d.rule is None or not d.rule.urgent or s.now < d.due:
        return False
    return not has_ended(d.fault, s) and not may_be_gone(s, (d.fault,))


def asks_for_pods(s: Situation) -> bool:
    """Whether a blocker of the policy goes by the pods on the node, and the record's rule heeds it."""
    return any(x.pods is not None for x in s.policy.limits.blockers) and not _urgent(s)


def goes_by_alerts(s: Situation) -> bool:
    """Whether a blocker of the policy goes by alerts, and the record's rule heeds it."""
    return s.policy.limits.goes_by_alerts and not _urgent(s)


def windows_of(s: Situation) -> tuple[Window, ...]:
    """The windows that count for the record."""
    rule = _rule(s)
    own = rule.windows if rule is not None else None
    return s.policy.limits.windows if own is None else own


def _urgent(s: Situation) -> bool:
    rule = _rule(s)
    return rule is not None and rule.urgent


def _rule(s: Situation) -> Rule | None:
    return rule_of(s, s.record) if s.record is not None else None


# ---------------------------------------------------------------- windows


def closed(windows: tuple[Window, ...], now: datetime) -> str | None:
    """That none of ``windows`` is open, and when the next one opens; None where one is, or there are none."""
    if not windows or open_since(windows, now) is not None:
        return None
    found = next_opening(windows, now)
    if found is None:
        return "outside its windows, none of which ever opens"
    opens, zone = found
    return f"outside its windows: next opens {opens.astimezone(zone):%a %Y-%m-%d %H:%M} {zone}"


def open_since(windows: Iterable[Window], now: datetime) -> datetime | None:
    """Since when one of ``windows`` is open; None where none is."""
    spans = (span for w in windows for span in _spans(w, now, 1))
    return max((opens for opens, closes in spans if opens <= now < closes), default=None)


def next_opening(windows: Iterable[Window], now: datetime) -> tuple[datetime, tzinfo] | None:
    """When the next of ``windows`` opens, and in which zone it is written; None if none ever does."""
    found = ((_next_of(w, now), w.zone) for w in windows)
    known = ((opens, zone) for opens, zone in found if opens is not None)
    return min(known, key=lambda each: each[0], default=None)


def openings(policy: Policy, start: datetime, end: datetime) -> Iterator[datetime]:
    """Each moment after ``start``, up to ``end``, at which a window of ``policy`` or of one of its rules
    opens."""
    windows = (*policy.limits.windows, *(w for rule in policy.rules for w in rule.windows or ()))
    while (found := next_opening(windows, start)) is not None and found[0] <= end:
        start = found[0]
        yield start


def _next_of(w: Window, now: datetime) -> datetime | None:
    return next((opens for opens, closes in _spans(w, now, AHEAD) if now < opens < closes), None)


def _spans(w: Window, now: datetime, ahead: int) -> Iterator[tuple[datetime, datetime]]:
    """From when to when ``w`` is open: on yesterday's date in its zone, today's, and those of days ahead."""
    today = now.astimezone(w.zone).date()
    for day in (today + timedelta(days=n) for n in range(-1, ahead)):
        if day.weekday() in w.days:
            yield _span(w, day)


@lru_cache(1024)
def _span(w: Window, day: date) -> tuple[datetime, datetime]:
    last = day if w.closes > w.opens else day + A_DAY
    return _shown(datetime.combine(day, w.opens), w.zone), _shown(datetime.combine(last, w.closes), w.zone)


def _shown(wall: datetime, zone: tzinfo) -> datetime:
    """The first moment at which clocks in ``zone`` show ``wall`` or later. ``wall`` has no zone."""
    found = wall.replace(tzinfo=zone).astimezone(UTC)  # of a time that comes twice, the first
    if found.astimezone(zone).replace(tzinfo=None) == wall:
        return found
    # Clocks skip it. They jump between these two moments, of which one is seen by either offset.
    before = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    while found - before > A_SECOND:
        middle = before + timedelta(seconds=(found - before) // A_SECOND // 2)
        if middle.astimezone(zone).replace(tzinfo=None) < wall:
            before = middle
        else:
            found = middle
    return found


# ---------------------------------------------------------------- blockers


def _blocks(s: Situation, blocker: Blocker) -> str | None:
    if blocker.pods is not None:
        return _by_pods(s, blocker.pods)
    return _by_alerts(s, blocker.alerts)


def _starts_nothing(s: Situation) -> bool:
    return s.role is Role.CONCLUDER and not s.may_power


def _by_alerts(s: Situation, patterns: tuple[str, ...]) -> str | None:
    if s.alerts.unknown:
        if _starts_nothing(s):
            return None  # so it asks nobody
        return f"blocked: whether {' or '.join(patterns)} fires is not known: {s.alerts.unknown}"
    firing = [name for name in s.alerts.firing if any(fnmatchcase(name, p) for p in patterns)]
    return f"blocked: {_named('alert', firing)} {'fires' if len(firing) == 1 else 'fire'}" if firing else None


def _by_pods(s: Situation, wanted: Pods) -> str | None:
    """A machine that surely runs nothing runs no such pod. Pods that a drain would leave do not count."""
    if s.down or (s.pods is None and _starts_nothing(s)):
        return None  # so it reads no pods
    if s.pods is None:
        return f"blocked: the pods on the node are not known{f': {s.pods_problem}' if s.pods_problem else ''}"
    there = [str(p) for p in remaining(s.pods, s.now) if meant(wanted, p)]
    return f"blocked: {_named('pod', there)} run{'s' if len(there) == 1 else ''} on it" if there else None


def _named(what: str, names: list[str]) -> str:
    return f"{what}{'s' if len(names) > 1 else ''} {few(names, MOST_NAMED)}"
