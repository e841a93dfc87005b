"""Is it known whether what was treated is still there? PURE.

A source that has not spoken since the step proves nothing (law 11).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from recovery.decide.acknowledged import PROMETHEUS
from recovery.decide.devices import devices_of, of_a_silent_device, silent_devices
from recovery.decide.diagnosis import PAGE, SIGNAL_UNKNOWN, Diagnosis, name
from recovery.decide.doubt import read_no_more
from recovery.decide.drill import is_drill
from recovery.decide.situation import Situation
from recovery.model import Cause, Fault, MetricRow, Reading, Record
from recovery.units import span

CONDITIONS = "conditions"
EARLY_FOR = timedelta(minutes=20)
"""How long after a boot at most a source may wait before it states what is wrong: drivers and plugins come
up."""


def not_heard(s: Situation, r: Record) -> str:
    """Which sources stated a fault that was treated, and are not read any more, where no other source stated
    the same fault; empty if there are none."""
    gone = _where_nobody_has_a_word(r, lambda f: f.source if read_no_more(s, f) else "")
    missing = dict.fromkeys(source for sources in gone for source in sources)
    if not missing:
        return ""
    return f"; but {', '.join(missing)}, which stated what was treated, is not read any more"


def blind_to_what_was_treated(s: Situation, r: Record) -> str:
    """Why it is not known whether a fault that was treated is still there; "" where it is known.

    It is not known while all sources that stated it are unknown: a condition is Unknown, say, or as it was
    before the boot. On the same machine a source that is silent in this boot does not count either: its pod
    is not there, or its series are gone, or those of the very device, or its check has not run. Where one
    shows other devices and not that one, it takes a source that tells devices apart to say otherwise. And a
    detector whose page says that a check has not run has written its good condition without one.
    """
    read = [(f, reading) for f in r.treated_faults if (reading := s.reading_of(f.source)) is not None]
    missed = {(f.type, f.reason) for f, reading in read if silent_devices(f, reading)}
    not_run = {(f.type, f.reason) for f, x in read if f.source == PAGE and _without_its_type(f, x)}

    def blind(f: Fault) -> str | None:
        reading = s.reading_of(f.source)
        if reading is None:
            return None
        why = reading.unknown.get(f.type, "")
        if why or r.replacement_machine:
            return why
        if (f.type, f.reason) in missed and devices_of(f, reading) is None:
            return None
        if (f.type, f.reason) in not_run and f.source == CONDITIONS:
            return None
        silent = reading.silent.get(f.type) or reading.silent.get("*", "")
        shown = _without_series(s, f, reading) or _without_its_device(f, reading)
        return silent or shown or _without_its_type(f, reading)

    return next((reasons[0] for reasons in _where_nobody_has_a_word(r, blind)), "")


def _where_nobody_has_a_word(r: Record, why: Callable[[Fault], str | None]) -> list[list[str]]:
    """For each treated fault (type and reason) on which none of its sources has a word: why each has none.

    ``why`` says it of one source; "": it has a word. None: that source does not count.
    """
    answers: dict[tuple[str, str], list[str]] = {}
    for f in r.treated_faults:
        if (answer := why(f)) is not None:
            answers.setdefault((f.type, f.reason), []).append(answer)
    return [of_all for of_all in answers.values() if all(of_all)]


def _without_series(s: Situation, f: Fault, reading: Reading) -> str:
    """That no series says anything of ``f`` since the boot, though one did before; else "".

    This process may not have seen that one. An alert has no series while it does not fire.
    """
    asked = s.policy.source(PROMETHEUS) if f.source == PROMETHEUS else None
    rows = _rows_of(f, asked.metrics) if asked is not None else []
    if not rows or any(row.of_alerts for row in rows):
        return ""
    if (f.type, f.reason) in reading.listed and not of_a_silent_device(f, reading):
        return ""
    where = f" ({f.device})" if f.device else ""
    named = rows[0].name
    return f"Prometheus, row {named}: no series says anything of {f.reason}{where} since the node was booted"


def _without_its_device(f: Fault, reading: Reading) -> str:
    """That the source says nothing of the device of ``f``; else "". The GPU may be gone for good, or its
    check has not run since the boot."""
    if (there := devices_of(f, reading)) is not None and not there:
        return f"{f.source} shows nothing of {f.reason} since the boot"
    missed = ", ".join(silent_devices(f, reading))
    return f"{f.source} shows other devices, but not {missed}" if missed else ""


def _without_its_type(f: Fault, reading: Reading) -> str:
    """That the detector has said nothing of the type of ``f`` in this boot; else "". Its page lists a
    plugin's healthy reason, which has no counter, from the first result on. A drill is taken off the Node."""
    if f.source not in (PAGE, CONDITIONS) or f.type in ("", SIGNAL_UNKNOWN) or is_drill(f.message):
        return ""
    reasons = {reason for type_, reason in reading.listed if type_ == f.type}
    if not reasons:
        return f"{f.source} shows nothing of {f.type} since the boot"
    if f.source == PAGE and not f.latched and reasons <= reading.counters.keys():
        return f"the check of {f.type} has had no result since the boot"
    return ""


def _rows_of(f: Fault, rows: Sequence[MetricRow]) -> Sequence[MetricRow]:
    """The rows by which ``f`` was stated: those of the name that it has. If the policy has none of that name
    any more, those that may state it: they may have been renamed."""
    may = [x for x in rows if x.type.text in ("", f.type) and x.reason.text in ("", f.reason)]
    named, exact = [x for x in rows if x.name == f.life], [x for x in may if x.type.text]
    return named or exact or may


def of_before_the_boot(s: Situation, r: Record, d: Diagnosis) -> str:
    """Why ``d`` may be of the time before the boot: the query that states it looks back to that; else "".

    Who saw the boot takes such a value for none. A controller that was started since has only the record.
    """
    asked = s.policy.source(PROMETHEUS) if d.fault.source == PROMETHEUS else None
    p = r.progress
    seen = [x for x in (p.evidence and p.evidence.at, p.proving_since if p.boots else None) if x]
    if asked is None or not seen:
        return ""
    # What held the proof has moved these moments on; without this, the wait for that value would begin anew.
    held = sum((x.time for x in p.held if x.cause is Cause.UNREADABLE), timedelta(0))
    by = {x.life for reading in s.readings for x in reading.problems if x.key == d.fault.key}
    back = max((row.looks_back for row in asked.metrics if row.name in by), default=timedelta(0))
    if s.now - max(seen) + held >= back:
        return ""
    return f"{name(d.fault)}: its query looks back {span(back)}, to before the node was booted"


def early_word(s: Situation, r: Record) -> str:
    """What is wrong as before, but not yet for long enough in this boot to be stated; "" where nothing is.

    Soon it is stated and calls for the next step, or it is over.
    """
    treated = ((f, s.reading_of(f.source)) for f in r.treated_faults)
    return next((why for f, x in treated if x is not None and (why := x.early.get(f.type))), "")
