"""``node-recovery status``: every recovery, and what holds recoveries back in the whole cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

from recovery.console.api import connect
from recovery.console.output import WIDE, age, ago, for_programs, phase, say, show, styled, table
from recovery.console.recoveries import Recoveries, gate_as_json, gate_is_gone, queued, read_recoveries
from recovery.console.report import read_report, sighting_as_json, silent, story
from recovery.decide.budget import noted_scopes
from recovery.decide.sightings import Sighting
from recovery.decide.tried import clause
from recovery.kube.kubeconfig import Target
from recovery.model import Fault, Gate, Phase, Record, Slot, Step
from recovery.units import hour, moment, span

HEAD = ("NODE", "PHASE", "RULE", "STEP", "TRY", "SINCE")
WIDE_HEAD = ("MACHINE", "GROUP", "REPLACEMENT")
WHY = ("WHY",)
OBSERVED = "observed"
ALONE = "nothing starts on it until it boots, is replaced or is released"
"""Of a lost record."""


def status(every: bool, target: Target, output: str) -> None:
    """Print records, gate, pause and brake. ``every``: closed records too."""
    api = connect(target)
    recoveries = read_recoveries(api)
    found, problem = read_report(api)
    now = api.time.now()
    seen = [x for x in (found.sightings if found else ()) if x.ended is None and not silent(x, now)]
    chosen = [r for r in recoveries.records if every or r.phase.sick or r.phase is Phase.LOST]
    if for_programs(output):
        there = [sighting_as_json(x, now) for x in seen]
        show({**_as_json(recoveries, chosen), "observed": there, "reportProblem": problem or None}, output)
        return
    closed = len(recoveries.records) - len(chosen)
    for line in _lines(recoveries, chosen, seen, now, closed, output == WIDE):
        say(line)
    if problem:
        say(f"Report:  what is seen with recovery off cannot be read: {problem}")


def _as_json(recoveries: Recoveries, chosen: list[Record]) -> dict[str, Any]:
    return {
        "records": [record_as_json(r) for r in chosen],
        "unreadable": [{"node": node, "problem": why} for node, why in recoveries.unreadable.items()],
        "gate": gate_as_json(recoveries.gate) if recoveries.gate else None,
        "gateProblem": recoveries.gate_problem or None,
    }


def record_as_json(r: Record) -> dict[str, Any]:
    """A record as the commands print it with ``--output json`` or ``yaml``."""
    return {
        "node": r.node,
        "phase": r.phase.value,
        "since": moment(r.phase_since),
        "rule": r.rule,
        "step": _step(r),
        "attempt": r.attempt,
        "machine": r.machine.id,
        "group": r.machine.group,
        "faults": [
            {
                "source": f.source,
                "type": f.type,
                "reason": f.reason,
                "since": moment(f.since),
                "evidence": f.message,
                "device": f.device,
            }
            for f in r.faults
        ],
        "replacement": r.replacement,
        "sentence": r.sentence,
        "release": {"by": r.release.by, "at": moment(r.release.at), "reason": r.release.reason}
        if r.release
        else None,
        "history": [
            {"at": moment(x.at), "attempt": x.attempt, "event": x.event, "sentence": x.sentence}
            for x in r.history
        ],
    }


def _lines(
    recoveries: Recoveries,
    chosen: list[Record],
    seen: list[Sighting],
    now: datetime,
    closed: int,
    wide: bool,
) -> Iterator[str]:
    more = len(WIDE_HEAD) if wide else 0
    rows = [(*_columns(r, now), *_more_columns(r)[:more], _why(r, now)) for r in chosen]
    rows += [
        (node, styled("?", fg="red"), *[""] * (len(HEAD) - 2 + more), why)
        for node, why in recoveries.unreadable.items()
    ]
    rows += [
        (*_observed(x, now), *(x.machine, "-", "-")[:more], f"{x.reason}: {story(x, now)}") for x in seen
    ]
    if rows:
        yield from table((*HEAD, *WIDE_HEAD[:more], *WHY), rows)
    else:
        yield "No node is being recovered, and none is in a person's hands."
    if seen:
        yield "Nothing is done about observed faults: recovery is off there (ENABLE_RECOVERY=false)."
    yield from _faults(chosen)
    if closed:
        what = "record is" if closed == 1 else "records are"
        yield f"({closed} closed {what} left out; --all shows them.)"
    yield ""
    yield from gate_lines(recoveries.gate, recoveries.gate_problem, now, chosen)


def _why(r: Record, now: datetime) -> str:
    """``sentence_of``, and who knows more. A lost record is not written when its machine boots, nor one that
    is drained when a pod goes or may not, and neither Nodes nor pods are read here."""
    asked = f": node-recovery explain {r.node} says"
    later = f"{asked} whether it has" if r.phase is Phase.LOST else ""
    drains = r.step is not None and r.step.do is Step.DRAIN and r.phase is Phase.RECOVERING
    if drains and r.rung_since is not None:
        until = r.progress.holding.since if r.progress.holding else now  # what holds it is said already
        later = f"; draining for {span(max(until - r.rung_since, timedelta(0)))}{asked} which pods are left"
    return f"{sentence_of(r, now)}{later}"


def _columns(r: Record, now: datetime) -> tuple[str, ...]:
    return (r.node, phase(r.phase.value), r.rule, _step(r), str(r.attempt), age(r.phase_since, now))


def _observed(x: Sighting, now: datetime) -> tuple[str, ...]:
    """The columns of a fault that is there while recovery is off."""
    step = x.steps[0].value if x.steps else "notify"
    return (x.node, phase(OBSERVED), x.rule or "-", step, "-", age(x.since, now))


def _more_columns(r: Record) -> tuple[str, ...]:
    return (r.machine.id, r.machine.group or "-", r.replacement_machine or r.replacement or "-")


def _faults(chosen: list[Record]) -> Iterator[str]:
    """What is wrong with each node, who says so, by what and of which device."""
    for r in chosen:
        for f in r.faults:
            yield f"Fault:   {r.node}: {fault_of_record(f)}"


def fault_of_record(f: Fault) -> str:
    """A fault as its record has it."""
    what = " ".join(filter(None, (f.type, f.reason)))
    return f"{what}; {stated(f.source, f.device, f.message)}"


def stated(source: str | None, device: str | None, evidence: str | None) -> str:
    """One source's word for a fault, for people."""
    return f"{source}{f' of {device}' if device else ''}: {evidence}"


def sentence_of(r: Record, now: datetime) -> str:
    """The record's sentence, with what holds its step or has held it."""
    held = clause(r, now) if r.phase.open else ""
    left = ALONE if r.phase is Phase.LOST else ""
    return "; ".join(filter(None, (r.sentence, held, left, unanswered(r, now))))


def unanswered(r: Record, now: datetime) -> str:
    """A release that an agent has to answer, and has not yet."""
    if r.release is None:
        return ""
    reason = f": {r.release.reason}" if r.release.reason else ""
    asked = f"{r.release.by} asked for its release {ago(r.release.at, now)}{reason}"
    return f"{asked}; no agent has answered yet"


def _step(r: Record) -> str:
    return str(r.step) if r.step and r.phase.open else ""


def gate_lines(
    gate: Gate | None, problem: str, now: datetime, records: Iterable[Record] = ()
) -> Iterator[str]:
    """The gate, a line for each thing that can hold a recovery. ``records``: those that are known, for where
    it is gone."""
    if problem:
        yield styled("Gate:    ", bold=True) + f"cannot be read, and nothing starts anywhere: {problem}"
        return
    if gate is None and gate_is_gone(records):
        yield "Gate:    gone: agents make it again from the records. A pause or approval on it is gone, too."
        return
    if gate is None:
        yield "Gate:    not there yet: no agent has needed it. Nothing is paused."
        return
    out = ", ".join(f"{s.node} ({age(s.since, now)}; {', '.join(_counts_in(s))})" for s in gate.slots)
    yield f"Out:     {out or 'no node'}"
    queue = ", ".join(f"{x.node} ({age(x.since, now)})" for x in queued(gate))
    yield f"Waiting: {queue or 'no node'}"
    yield f"Pause:   {pause_sentence(gate, now)}"
    for a in gate.approved:
        if a.until > now:
            yield f"Let go:  {a.by} approved {a.reason} until {a.until:%Y-%m-%d %H:%M:%SZ}"
    yield f"Brake:   {_count(gate, now)}{_limit(gate)}"
    if gate.last_start:
        yield f"Started: last at {hour(gate.last_start, now)}, {ago(gate.last_start, now)}"


def _counts_in(s: Slot) -> tuple[str, ...]:
    """What a slot counts in."""
    return (*noted_scopes(s), *([f"rule {s.rule}"] if s.rule else []))


def pause_sentence(gate: Gate, now: datetime) -> str:
    """Who paused all recoveries, until when and why; or that nobody has."""
    p = gate.pause
    if p is None or not p.in_force(now):
        return "none" if p is None else f"none ({p.owner}'s ended {ago(p.until, now) if p.until else ''})"
    end = f"until {p.until:%Y-%m-%d %H:%M:%SZ}" if p.until else "without an end"
    return styled(f"{p.owner} paused all recoveries {end}: {p.reason}", fg="yellow")


def _limit(gate: Gate) -> str:
    """Where to read whether that is too many. The policy says so, and the gate has no policy: agents may run
    with several, and each holds its own node."""
    waiting = next(iter(queued(gate)), None)
    if waiting is None:
        return "; limits.brake of the policy says how many may be"
    return f"; whether the brake (limits.brake) holds, and at how many: node-recovery explain {waiting.node}"


def _count(gate: Gate, now: datetime) -> str:
    c = gate.census
    if c is None:
        return "no agent has had to count the sick nodes yet"
    which = " of limits.population" if c.of else ""
    others = f"; of {c.outside[1]} others {c.outside[0]}" if c.of else ""
    sick = f"{c.how_many} of {c.population} nodes{which} were sick or unknown when last counted"
    return f"{sick}, {ago(c.at, now)}{others}"
