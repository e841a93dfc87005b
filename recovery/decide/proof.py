"""What the proofs of a machine and of its replacement share: how long one takes, when it is late. PURE."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from recovery.decide import tried, validation
from recovery.decide.assessment import Assessment
from recovery.decide.decision import POLLED, Decision, EventReason, Report, WriteRecord, act, until, wait
from recovery.decide.diagnosis import name, stated, why_reported
from recovery.decide.endings import LONGEST_PROOF, RESET, hand_over
from recovery.decide.situation import Role, Situation
from recovery.model import Cause, Evidence, Record
from recovery.quick import replace
from recovery.units import few, span

MOST_NAMED = 3
ASKED_BEFORE = timedelta(seconds=90)
"""How long before a person would get a machine without a Node its provider is asked whether it is gone. One
answer may be an old one; those of a minute are not."""


def evidence_without_machine(r: Record) -> Evidence | None:
    """The evidence of a replacement that leaves no machine to prove: only that the old one is gone."""
    evidence = r.progress.evidence
    if evidence is None or r.intent is None or not r.being_replaced:
        return None
    return evidence if evidence.attempt == r.intent.attempt else None


def succeeded(r: Record) -> Report:
    """The report of a success, with the action behind it: that of the intent, or the last one submitted."""
    last = r.progress.submitted[-1].action if r.progress.submitted else ""
    return Report(EventReason.RECOVERED, outcome="succeeded", action=r.intent.action if r.intent else last)


def by_own_signals(s: Situation, page: str) -> str:
    """By what a node was seen to be healthy: ``page``, where the policy reads one."""
    return page if s.policy.source("npd") is not None else "by its own signals"


def only_told(s: Situation, a: Assessment) -> str:
    """Which faults are there that the policy only reports; empty if there are none.

    They do not speak against the proof. They get a record of their own once this one is closed.
    """
    shown = [f"{name(d.fault)} ({why_reported(d)})" for d in stated(s, a.found)]
    return f", which shows {few(shown, MOST_NAMED)}" if shown else ""


def on_probation(s: Situation, r: Record, who: str, lasts: timedelta) -> Decision:
    left = r.phase_since + lasts
    return wait(
        f"{who} is on probation for another {span(left - s.now)}", until(left, s.now, POLLED), "probation"
    )


def not_watched(s: Situation, who: str, lasts: timedelta) -> Decision | None:
    """This process has not watched the whole probation. Time that nobody watched proves nothing (law 11).

    A peer may have begun the probation, or this agent before a restart; or the machine booted meanwhile.
    ``lasts``: how long it is, which may be longer than its rule says.
    """
    if s.watched_for is None or s.watched_for >= lasts:
        return None
    left = lasts - s.watched_for
    return wait(f"{who} is on probation for another {span(left)}", min(left, POLLED), "probation")


def unproved(
    s: Situation, r: Record, why: str, held: Cause | None = None, patience: timedelta = timedelta(0)
) -> Decision:
    """Not healthy now: probation begins again. Past the deadline a person has it.

    ``held``: nothing can be proved meanwhile. That has an end of its own, as long as the proof may take.
    ``patience``: how long a fault may be there before anything is done about it.
    """
    began, allowed = _time_to_prove(r)
    if _proof_is_late(s, r, [(began, allowed), *_proof_deadlines(s, r, patience)], held):
        what = r.intent.action if r.intent else "the machine"
        late = f"{what} was not proved within {span(allowed)}: {why}"
        return replace(hand_over(s, r, late), held=held)
    known = held is not None and (r.progress.holding is not None or tried.known(s, held))
    unjoined = bool(r.replacement_machine) and not r.replacement  # that it joined is written, and begins it
    if s.now - r.phase_since >= RESET and not (known or unjoined):
        again = act(WriteRecord(replace(r, phase_since=s.now)), f"probation begins again: {why}")
        return replace(again, held=held)
    return wait(f"probation: {why}", POLLED, f"unproved {why}", held=held)


def _time_to_prove(r: Record) -> tuple[datetime, timedelta]:
    """Since when the proof is waited for, and how long it may take."""
    if r.progress.acted and r.rung_since is not None:
        return r.rung_since, r.step.within if r.step else LONGEST_PROOF
    return r.progress.proving_since or r.phase_since, LONGEST_PROOF


def proof_of_nobody_is_late(s: Situation, r: Record) -> bool:
    """Whether a machine without a Node and without an agent would be a person's soon. It may be gone."""
    nobody = s.role is Role.CONCLUDER and s.node is None and not r.replacement_machine
    if not nobody or evidence_without_machine(r):
        return False
    soon = replace(s, now=s.now + ASKED_BEFORE)
    return _proof_is_late(soon, r, [_time_to_prove(r), *_proof_deadlines(soon, r)], Cause.AGENT)


def _proof_is_late(
    s: Situation, r: Record, deadlines: list[tuple[datetime, timedelta]], held: Cause | None
) -> bool:
    if held is None:
        return all(tried.over(s, r, since, within) for since, within in deadlines)
    longest = max(since + within for since, within in deadlines) - min(since for since, _ in deadlines)
    return tried.held_by(s, r, held) >= longest


def _proof_deadlines(
    s: Situation, r: Record, patience: timedelta = timedelta(0)
) -> Iterator[tuple[datetime, timedelta]]:
    """Deadlines of what comes after the evidence: two probations, a fault's tolerance, the validation Job.

    The step's own deadline may pass while they run.
    """
    if r.progress.evidence is not None:
        yield r.progress.evidence.at, max(2 * r.probation, patience + r.probation)
    if r.validation is not None and r.validate is not None:
        yield validation.since(s, r.validation), r.validate.within
