"""``node-recovery policy test``: does the policy do what its cases expect?

A case goes through the core that the agents run: at each moment at which something changes, and at the one
it asks about, ``decide`` is asked until it has nothing more to write. What it writes goes to a record and a
gate that exist here alone. Where it takes a slot of the budget, the recovery starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

from recovery.config.policy_cases import CaseModel, FaultModel, load_cases
from recovery.console.output import HUMAN, for_programs, say, show
from recovery.console.unstarted import DAY, facts_of, unstarted
from recovery.decide.budget import join, kept_labels, noted_rule
from recovery.decide.decision import Decision, Join, TakeSlot, WriteRecord
from recovery.decide.diagnosis import Diagnosis, diagnose
from recovery.decide.own_node import decide
from recovery.decide.selector import identity, selects
from recovery.decide.situation import Situation
from recovery.decide.windows import openings
from recovery.model import (
    Alerts,
    Census,
    Gate,
    Kind,
    PodView,
    Policy,
    Problem,
    Reading,
    Says,
    Slot,
    Statement,
)
from recovery.quick import replace
from recovery.signals.names import bounded

MOST_ANSWERS = 20
"""Of the core at one moment: it writes a record a few times, and joins the queue once."""


@dataclass(frozen=True)
class Found:
    """What the core said: the rule and the steps of its ladder, and why nothing starts; empty if it does."""

    rule: str
    steps: tuple[str, ...]
    key: str
    sentence: str
    starts: bool


def run(path: str, output: str = HUMAN) -> int:
    """Print what came of each case, and what differs. Returns 0 if all passed, else 1."""
    cases = load_cases(path)
    results = []
    for case in cases.tests:
        found = played(case, cases.policy.policy, case.provider or cases.provider)
        results.append((case, found, list(differences(case, found))))
    failed = sum(bool(wrong) for _, _, wrong in results)
    if for_programs(output):
        told = [_as_json(*each) for each in results]
        show({"file": path, "passed": len(told) - failed, "failed": failed, "cases": told}, output)
        return 1 if failed else 0
    for case, _, wrong in results:
        say(f"{'FAIL' if wrong else 'ok':4}  {case.name}")
        for line in wrong:
            say(f"      {line}")
    say(f"{path}: {len(cases.tests) - failed} passed, {failed} failed")
    return 1 if failed else 0


def _as_json(case: CaseModel, found: Found, wrong: list[str]) -> dict[str, Any]:
    return {
        "name": case.name,
        "passed": not wrong,
        "rule": found.rule,
        "steps": list(found.steps),
        "starts": found.starts,
        "heldBy": "" if found.starts else found.key,
        "sentence": found.sentence,
        "differs": wrong,
    }


def differences(case: CaseModel, found: Found) -> Iterator[str]:
    """A line for each field of ``expect`` that is not as it was found."""
    want = case.expect
    held = "nothing: the recovery starts" if found.starts else f"{found.key}: {found.sentence}"
    if want.rule is not None and want.rule != found.rule:
        yield f"rule: expected {want.rule}, found {found.rule}"
    if want.steps is not None and tuple(want.steps) != found.steps:
        yield f"steps: expected {_listed(want.steps)}, found {_listed(found.steps)}"
    if want.held is not None and (found.starts or not _says(found, want.held)):
        yield f"held: expected {want.held}, found {held}"
    if want.starts is not None and want.starts is not found.starts:
        yield f"starts: expected {str(want.starts).lower()}, found {str(found.starts).lower()} ({held})"


def _says(found: Found, pattern: str) -> bool:
    return pattern == found.key or fnmatchcase(found.sentence, pattern)


def _listed(steps: list[str] | tuple[str, ...]) -> str:
    return ", ".join(steps) or "none"


# ---------------------------------------------------------------- the case, played by the core


def played(case: CaseModel, policy: Policy, provider: str | None) -> Found:
    """What the core says at the moment that the case asks about."""
    s = _at_the_beginning(case, policy, provider)
    shown: tuple[Diagnosis, ...] = ()
    moments = case.moments({rule.after for rule in policy.rules})
    for now in sorted({*moments, *openings(policy, case.begins, case.now)}):
        s = replace(s, now=now, readings=_readings(case, policy, now), census=_census(case, policy, now))
        shown = diagnose(s) or shown  # what was reported is settled
        s, d = _settled(s)
        if isinstance(d.effect, TakeSlot):
            return _found(s, shown, d, starts=True)
    return _found(s, shown, d, starts=False)


def _settled(s: Situation) -> tuple[Situation, Decision]:
    """``s`` with all that the core writes at this moment, and its last answer."""
    for _ in range(MOST_ANSWERS):
        d = decide(s)
        if isinstance(d.effect, WriteRecord):
            written = replace(d.effect.record, uid="record", resource_version="1")
            s = replace(s, record=written)
            if not written.phase.open:
                break
        elif isinstance(d.effect, Join) and s.gate is not None:
            s = replace(s, gate=join(s.gate, s.node_name, d.effect.record_uid, s.now))
        else:
            break
    return s, d


def _found(s: Situation, shown: tuple[Diagnosis, ...], d: Decision, *, starts: bool) -> Found:
    key = d.report.event.value if d.report and s.record and not s.record.phase.open else d.key
    if s.record is not None and s.record.ladder:
        steps = tuple(rung.do.value for rung in s.record.ladder)
        return Found(s.record.rule, steps, key, d.reason, starts)
    first = shown[0] if shown else None
    ladder = tuple(rung.do.value for rung in first.ladder) if first else ()
    return Found(first.rule_name if first else "no rule", ladder, key, d.reason, starts)


def _at_the_beginning(case: CaseModel, policy: Policy, provider: str | None) -> Situation:
    return unstarted(
        case.begins,
        case.node.name,
        dict(case.node.labels),
        policy,
        facts_of(provider) if provider else None,
        "machine",
        gate=Gate("gate", "1", "gate", slots=tuple(_out(case, policy))),
        witness_says=Statement(Says(case.witness), "as the case says"),
        alerts=Alerts(tuple(case.alerts), unknown=""),
        pods=tuple(
            PodView(pod.namespace, f"pod-{i + 1}", f"pod-{i + 1}", "Running", labels=dict(pod.labels))
            for i, pod in enumerate(case.pods)
        ),
    )


def _out(case: CaseModel, policy: Policy) -> Iterator[Slot]:
    """The slots of the nodes that are out already."""
    labels = kept_labels(case.node.labels, policy.limits.budget_per)
    for i in range(case.fleet.out):
        other, rule = f"other-{i + 1}", noted_rule(case.fleet.by or "")
        yield Slot(other, other, 1, ("fleet",), case.begins, labels, rule=rule)


def _census(case: CaseModel, policy: Policy, now: datetime) -> Census:
    sick, nodes = case.fleet.sick, case.fleet.nodes
    alike = {f"{key}={value}": (sick, nodes) for key, value in case.node.labels.items()}
    outside = not selects(policy.limits.population, case.node.labels)
    return Census(
        now,
        nodes,
        () if outside else (case.node.name,),
        alike,
        0 if outside else sick,
        of=identity(policy.limits.population),
        outside=(sick, nodes) if outside else (0, 0),
    )


def _readings(case: CaseModel, policy: Policy, now: datetime) -> tuple[Reading, ...]:
    """What each source that the policy reads says at this moment."""

    def that(holds: Callable[[FaultModel], bool], source: str) -> list[FaultModel]:
        return [f for f in case.faults if f.source == source and holds(f)]

    def there(f: FaultModel) -> bool:
        return case.begins + f.since <= now and not over(f)

    def over(f: FaultModel) -> bool:
        return f.until is not None and case.begins + f.until <= now

    return tuple(
        bounded(
            Reading(
                source,
                now,
                tuple(_problem(case, f, now) for f in that(there, source)),
                cleared=frozenset((f.type or "", f.reason) for f in that(over, source)),
            )
        )
        for source in (each.name for each in policy.sources)
    )


def _problem(case: CaseModel, f: FaultModel, now: datetime) -> Problem:
    times = tuple(at for each in f.times if (at := case.begins + each) <= now)
    kind = Kind.EDGE if f.times else Kind.LEVEL
    since = case.begins + f.since
    last = times[-1].timestamp() if times else None
    return Problem(f.source, f.type or "", f.reason, "", since, now + DAY, kind, counter=last, times=times)
