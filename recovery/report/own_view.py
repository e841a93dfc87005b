"""The agent's own view of its node, as JSON: what it last saw and decided. PURE.

Served at ``/api/v1/explain``, read-only. ``node-recovery explain NODE`` reads it through the API server's
proxy of pods, so it works also with recovery off, when nothing is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from recovery.decide.decision import Decision
from recovery.decide.diagnosis import Diagnosis, diagnose, what_is_said, why_reported
from recovery.decide.latch import what_ends
from recovery.decide.situation import Situation
from recovery.model import Problem, Reading
from recovery.quick import quick
from recovery.units import moment


@quick
@dataclass(frozen=True, slots=True)
class View:
    """What an agent last saw and decided, at ``at``. ``readings`` may be newer than the situation's own."""

    at: datetime
    readings: tuple[Reading, ...]
    decision: Decision
    situation: Situation | None = None  # None until everything could be read once
    rests: bool = False  # the cycle had no effect: the record in the situation is as it was read


def explanation(view: View, node: str, about: dict[str, Any]) -> dict[str, Any]:
    """``view`` as JSON; ``about`` says with which settings the agent runs. Moments are RFC 3339 in UTC."""
    d, s = view.decision, view.situation
    decision: dict[str, Any] = {
        "verb": d.verb.value,
        "key": d.key,
        "reason": d.reason,
        "at": moment(view.at),
        "lookAgainAt": moment(view.at + d.look_again),
    }
    if s is not None and view.rests:
        decision["record"] = _record(s)
    return {
        "node": node,
        "agent": about,
        "decision": decision,
        "faults": _faults(s) if s is not None else [],
        "readings": [_reading(r) for r in view.readings],
        "conditions": _own_conditions(s) if s is not None else [],
    }


def _own_conditions(s: Situation) -> list[list[str | None]]:
    """What the policy itself says of conditions, in its order: each type, and its bad status or None."""
    chosen = s.policy.source("conditions")
    return [[row.type, row.bad] for row in chosen.rows] if chosen is not None else []


def _record(s: Situation) -> dict[str, str] | None:
    """The record that was decided on, so that a reader sees whether it was written or deleted since."""
    if s.record_problem:
        return {"problem": s.record_problem}
    if s.record is None:
        return None
    r = s.record
    return {"uid": r.uid, "resourceVersion": r.resource_version, "phase": r.phase.value}


def _faults(s: Situation) -> list[dict[str, Any]]:
    """Each fault once, with every source that states it."""
    same: dict[tuple[str, str, str], list[Diagnosis]] = {}
    for d in diagnose(s):
        same.setdefault(what_is_said(d.fault), []).append(d)
    return [_fault(witnesses, s) for witnesses in same.values()]


def _fault(same: list[Diagnosis], s: Situation) -> dict[str, Any]:
    d = same[0]
    ends = dict.fromkeys(what_ends(x.fault, x.rule, s) for x in same)
    return {
        "source": d.fault.source,
        "type": d.fault.type,
        "reason": d.fault.reason,
        "since": moment(d.fault.since),
        "rule": d.rule.name if d.rule else "",
        "due": moment(d.due),
        "remedy": [str(rung) for rung in d.ladder],
        "onlyTold": None if d.treat else why_reported(d),
        "ends": ", and ".join(ends),
        "stated": [
            {"source": x.fault.source, "evidence": x.fault.message, "device": x.fault.device} for x in same
        ],
    }


def _reading(r: Reading) -> dict[str, Any]:
    return {
        "source": r.source,
        "at": moment(r.at),
        "problems": [_problem(p) for p in r.problems],
        "unknown": dict(r.unknown),
        "unknownSince": {key: moment(at) for key, at in r.unknown_since.items()},
        "silent": dict(r.silent),
        "cleared": sorted([list(pair) for pair in r.cleared]),
        "listed": sorted([list(pair) for pair in r.listed]),
    }


def _problem(p: Problem) -> dict[str, Any]:
    return {
        "type": p.type,
        "reason": p.reason,
        "kind": p.kind.value,
        "message": p.message,
        "device": p.device,
        "since": moment(p.since),
        "latched": p.latched,
        "masked": p.masked,
        "counter": p.counter,
        "times": [moment(at) for at in p.times],
    }
