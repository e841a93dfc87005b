"""``node-recovery report``: what was seen while recovery was off, and what would have been done about it.

It reads the one object that agents write then (``store.sightings``). What was done with recovery on is on the
records: ``node-recovery status --all``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from recovery.console.api import UserApi, connect
from recovery.console.output import WIDE, age, for_programs, say, show, styled, table
from recovery.decide.sightings import A_DRILL, BY_ITSELF, SILENT, Report, Sighting, Would, what
from recovery.errors import ApiError, NodeRecoveryError, NotFound
from recovery.kube.kubeconfig import Target
from recovery.store.sightings import decode
from recovery.units import moment, span

HEAD = ("NODE", "SEEN", "LASTED", "TIMES", "RULE", "FAULT")
WIDE_HEAD = ("MACHINE", "SOURCE")
LAST = ("WHAT",)
NOTHING_KEPT = (
    "No report is kept. Either no agent has run here with ENABLE_RECOVERY=false, or it may not write one, "
    "or the CRD is missing: node-recovery doctor says which."
)


def read_report(api: UserApi) -> tuple[Report | None, str]:
    """The report, None where there is none; and why it cannot be read, else ""."""
    try:
        return decode(api.get_report()), ""
    except NotFound:
        return None, ""
    except NodeRecoveryError as error:
        return None, str(error)


def report(since: timedelta, target: Target, output: str) -> None:
    """Print what was seen within ``since``. Raises ``ApiError`` where the report cannot be read."""
    api = connect(target)
    try:
        found = decode(api.get_report())
    except NotFound:
        found = None
    except ApiError as error:
        raise ApiError(f"the RecoveryReport cannot be read: {error}", error.status) from None
    except NodeRecoveryError as error:
        raise ApiError(f"the RecoveryReport cannot be read: {error}") from None
    now = api.time.now()
    chosen = _within(found, now - since, now)
    if for_programs(output):
        show(_as_json(found, chosen, now - since, now), output)
        return
    for line in _lines(found, chosen, now - since, now, output == WIDE):
        say(line)


def _within(found: Report | None, start: datetime, now: datetime) -> list[Sighting]:
    """Those that were there after ``start``, the latest first."""
    kept = [x for x in (found.sightings if found else ()) if _last_there(x, now) >= start]
    return sorted(kept, key=lambda x: x.since, reverse=True)


def _last_there(x: Sighting, now: datetime) -> datetime:
    """When it was there last. That a fault goes on is written once an hour."""
    return x.ended or (x.seen if silent(x, now) else now)


# ---------------------------------------------------------------- for people


def _lines(
    found: Report | None, chosen: list[Sighting], start: datetime, now: datetime, wide: bool
) -> Iterator[str]:
    if found is None:
        yield NOTHING_KEPT
        return
    looked = max(start, found.since)
    yield f"With recovery off, since {looked:%Y-%m-%d %H:%M}Z ({age(looked, now)}):"
    yield ""
    yield from told(chosen, now, wide)
    yield from _left_out(found, start)


def told(chosen: Sequence[Sighting], now: datetime, wide: bool) -> Iterator[str]:
    """The sightings in a few sentences, and in a table."""
    yield from _summary(chosen, now)
    if chosen:
        yield ""
        yield from table(_head(wide), [_row(x, now, wide) for x in chosen])


def _summary(chosen: Sequence[Sighting], now: datetime) -> Iterator[str]:
    if not chosen:
        yield "No fault was seen."
        return
    nodes = len({x.node for x in chosen})
    yield f"{_many(len(chosen), 'fault')} on {_many(nodes, 'node')}."
    due = [x for x in chosen if x.due is not None]
    for step, count in Counter(x.steps[0].value for x in due if x.steps).most_common():
        yield f"{count} would have been treated, beginning with {step}."
    if waiting := sum(x.would is Would.RECOVER and x.due is None for x in chosen):
        yield f"{waiting} would have waited first."
    soon = sum(x.ended is not None and x.how in BY_ITSELF for x in due)
    if soon:
        yield f"{soon} of these became well by themselves afterwards."
    for would, words in (
        (Would.LEAVE_ALONE, "would have been left alone, because something held them"),
        (Would.HAND_OVER, "would have been handed over to a person"),
        (Would.REPORT, "would only have been reported"),
    ):
        if count := sum(x.would is would and x.due is None for x in chosen):
            yield f"{count} {words}."
    early = [x for x in chosen if x.would is Would.TOLERATE and x.due is None and x.ended is not None]
    if early:
        whose = "its rule still tolerated it" if len(early) == 1 else "their rules still tolerated them"
        yield f"{len(early)} became well while {whose}."
    if open_now := sum(x.ended is None for x in chosen if not silent(x, now)):
        yield f"{open_now} {'is' if open_now == 1 else 'are'} there now."


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _head(wide: bool) -> tuple[str, ...]:
    return (*HEAD, *(WIDE_HEAD if wide else ()), *LAST)


def _row(x: Sighting, now: datetime, wide: bool) -> tuple[str, ...]:
    lasted = span(_last_there(x, now) - x.since)
    more = (x.machine, x.source) if wide else ()
    return (
        x.node,
        f"{age(x.since, now)} ago",
        lasted,
        str(x.times),
        x.rule or "-",
        x.reason,
        *more,
        story(x, now),
    )


def story(x: Sighting, now: datetime) -> str:
    """What would be done about ``x``, and what has become of it."""
    drilled = x.why.endswith(A_DRILL) and A_DRILL not in what(x)
    would = f"{what(x)} ({A_DRILL})" if drilled else what(x)
    if x.ended is not None:
        return f"{would}; gone: {x.how}"
    if silent(x, now):
        return f"{would}; not seen since {x.seen:%Y-%m-%d %H:%M}Z: no agent looks at the node"
    return f"{would}; it is there now"


def silent(x: Sighting, now: datetime) -> bool:
    """Whether it has not ended, and nobody looks at its node any more, who would see it end."""
    return x.ended is None and now - x.seen >= SILENT


def _left_out(found: Report, start: datetime) -> Iterator[str]:
    if found.dropped_until is not None and found.dropped_until >= start:
        yield styled(
            f"The report has no room for {_many(found.dropped, 'older fault')}, which ended by "
            f"{found.dropped_until:%Y-%m-%d %H:%M}Z.",
            fg="yellow",
        )
    if found.full_since is not None:
        yield styled(
            f"Since {found.full_since:%Y-%m-%d %H:%M}Z there have been more faults than the report has "
            "room for: node_recovery_faults counts all of them.",
            fg="yellow",
        )


# ---------------------------------------------------------------- for programs


def _as_json(found: Report | None, chosen: list[Sighting], start: datetime, now: datetime) -> dict[str, Any]:
    return {
        "since": moment(start),
        "until": moment(now),
        "keptSince": moment(found.since) if found else None,
        "dropped": found.dropped if found else 0,
        "droppedUntil": moment(found.dropped_until) if found and found.dropped_until else None,
        "fullSince": moment(found.full_since) if found and found.full_since else None,
        "sightings": [sighting_as_json(x, now) for x in chosen],
    }


def sighting_as_json(x: Sighting, now: datetime) -> dict[str, Any]:
    """A sighting as the commands print it with ``--output json`` or ``yaml``."""
    return {
        "node": x.node,
        "machine": x.machine,
        "source": x.source,
        "type": x.type,
        "reason": x.reason,
        "rule": x.rule,
        "would": x.would.value,
        "steps": [step.value for step in x.steps],
        "why": x.why,
        "since": moment(x.since),
        "due": moment(x.due) if x.due else None,
        "seen": moment(x.seen),
        "times": x.times,
        "ended": moment(x.ended) if x.ended else None,
        "how": x.how,
        "sentence": story(x, now),
    }
