"""Which fault decides what is done, and which ladder does its record get? PURE."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta

from recovery.decide.assessment import Assessment
from recovery.decide.budget import labels_counted, scopes_of
from recovery.decide.diagnosis import Diagnosis, as_treated, name
from recovery.decide.endings import DEFAULT_PROBATION
from recovery.decide.history import HistoryEvent, note
from recovery.decide.latch import has_ended
from recovery.decide.remembered import forgotten
from recovery.decide.situation import Situation
from recovery.model import Record, Rung, Step, Validation
from recovery.quick import replace

CORDON_ONLY = (Rung(Step.CORDON, timedelta(minutes=15)),)
"""The ladder where no step of the remedy is left to try: keep pods off the node, then hand over."""


def deciding(s: Situation, found: Iterable[Diagnosis]) -> Diagnosis:
    """Which of these faults (there is one at least) decides what is done.

    Of those that are due, the first rule of the policy wins. A fault that is still tolerated does not hold up
    another one. A fault that has ended comes last.
    """
    return min(found, key=lambda x: (has_ended(x.fault, s), not x.treat, s.now < x.due, x.rank, x.due))


def with_ladder_of(s: Situation, a: Assessment, r: Record, d: Diagnosis) -> tuple[Record, str]:
    """``r`` with the ladder that the rule of ``d`` says, and the sentence that says so.

    Faults that have ended are taken off the record. If one comes again, it is a new fault.
    """
    ladder = remedy_left(d, r)
    steps = ", ".join(map(str, ladder))
    why = f"{name(d.fault)}: rule {d.rule_name} says {steps}"
    treated = {x.fault.key: as_treated(x) for x in a.found}
    gone = tuple(f for f in r.faults if f.key != d.fault.key and has_ended(f, s))
    if r.tried:
        why += f" (without {', '.join(step.value for step in r.tried)}, after which it came back)"
    validate, probation = way_back(d)
    chosen = replace(
        note(forgotten(r, gone), s.now, HistoryEvent.CONFIRMED, why),
        faults=tuple(treated.get(f.key, f) for f in r.faults if f not in gone),
        rule=d.rule_name,
        ladder=ladder,
        validate=validate,
        validation=None,
        after=d.after,
        probation=probation,
        rung=0,
        rung_since=None,
        intent=None,
        replacement="",
        replacement_machine="",
        scopes=scopes_kept(s, labels_counted(s)),
    )
    return chosen, why


def remedy_left(d: Diagnosis, r: Record) -> tuple[Rung, ...]:
    """The ladder that the rule of ``d`` says, without what did not help on ``r``."""
    return without_tried(d.ladder, r.tried) or CORDON_ONLY


def way_back(d: Diagnosis) -> tuple[Validation | None, timedelta]:
    """What the rule of ``d`` asks before the node is given back: a Job, and how long it has to be healthy."""
    return (d.rule.validate, d.rule.probation) if d.rule is not None else (None, DEFAULT_PROBATION)


def without_tried(ladder: tuple[Rung, ...], tried: tuple[Step, ...]) -> tuple[Rung, ...]:
    """``ladder`` without the steps that did not help. A step tried once is left out once."""
    left, gone = [], list(tried)
    for rung in ladder:
        if rung.do in gone:
            gone.remove(rung.do)
        else:
            left.append(rung)
    return tuple(left)


def scopes_kept(s: Situation, labels: Mapping[str, str]) -> tuple[str, ...]:
    """What a record keeps of the ``labels`` of its node, by which that goes on to count."""
    return _and_of_the_brake(s, scopes_of(labels, labels_told(s)), labels)


def scopes_told(s: Situation, told: tuple[str, ...]) -> tuple[str, ...]:
    """``told``, and the values that the brake goes by: a node counts there, too, when it has gone."""
    return _and_of_the_brake(s, told, labels_counted(s))


def _and_of_the_brake(s: Situation, told: tuple[str, ...], labels: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*told, *scopes_of(labels, s.policy.limits.brake_per))))


def labels_told(s: Situation) -> set[str]:
    """The keys of the labels that slot and record keep of the node, for when it has gone."""
    return {*s.policy.limits.budget_per, *s.policy.limits.population}
