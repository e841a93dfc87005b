"""May the provider be asked for this destructive step now, and once more right before the call? PURE."""

from __future__ import annotations

from datetime import datetime, timedelta

from recovery.decide import brakes, tried
from recovery.decide.assessment import Assessment
from recovery.decide.boot import with_node_behind
from recovery.decide.claims import claimed_twice
from recovery.decide.decision import (
    POLLED,
    Decision,
    EventReason,
    Report,
    Submit,
    WriteRecord,
    act,
    first_answer,
    hold,
    until,
    wait,
)
from recovery.decide.diagnosis import diagnosed, name, tolerated
from recovery.decide.doubt import in_doubt
from recovery.decide.endings import hand_over, moved_to_rung, next_rung
from recovery.decide.history import HistoryEvent, note, told
from recovery.decide.latch import has_ended, one_has_ended, only_tolerated
from recovery.decide.marks import undone
from recovery.decide.reboot_first import REBOOT, not_the_policys, reboots_first, with_reboot
from recovery.decide.situation import Role, Situation
from recovery.decide.witness import both, unconfirmed
from recovery.model import Cause, Fault, IntentState, Phase, Preflight, Record, Rung, Step
from recovery.quick import replace
from recovery.units import span

LEEWAY = timedelta(seconds=2)
"""How far the API server's time, as it is known, may go back from one look to the next."""
SAID_AFTER = timedelta(minutes=2)
"""How long there has to be no answer of a provider until the record says so."""


def provider_step(s: Situation, r: Record, rung: Rung) -> Decision:
    """Submit the step, or why not. ``not_now`` asks what may change once more, right before the call."""
    found = first_answer(QUESTIONS, s, r, rung)
    return found or act(Submit(rung.do), f"{_what(r, rung)}: asked of {r.machine.provider}{both(s, r)}")


def _what(r: Record, rung: Rung) -> str:
    return f"{name(r.faults[0])}: {rung.do.value}"


def _past_deadline(s: Situation, r: Record, rung: Rung) -> bool:
    return tried.over(s, r, _began(r), rung.within)


def _began(r: Record) -> datetime:
    return r.rung_since or r.progress.step_since or r.phase_since


def _only_out_of_band(s: Situation, r: Record, rung: Rung) -> Decision | None:
    if not s.from_within(rung.do):
        return None
    never = "never asked for by the node's own agent, only once that is dead"
    why = f"{rung.do.value} of {r.node} is {never}: a person has to"
    return hand_over(s, r, why, outcome="refused")


def _refused_before(s: Situation, r: Record, rung: Rung) -> Decision | None:
    if r.intent is None or r.intent.state is not IntentState.REFUSED:
        return None
    return _refused(s, r, rung, r.sentence)


def _refused(s: Situation, r: Record, rung: Rung, why: str) -> Decision:
    if not_the_policys(rung):
        return next_rung(s, r, why)
    return hand_over(s, r, why, outcome="refused")


def _put_off(s: Situation, r: Record, rung: Rung) -> Decision | None:
    """A call that was put off waits for ``retry_at``, so that a throttled API is not called in a loop.

    If that call itself is still to come, a clock has stepped, and ``retry_at`` does not count. The API
    server's time is known to a second, and may go back by as much.
    """
    again = r.progress.retry_at
    if again is None or r.intent is None or not r.intent.at - LEEWAY <= s.now < again:
        return None
    held = Cause.GROUP if r.rung_since is None else None  # its provider has said from when it could succeed
    return wait(f"{_what(r, rung)}: {r.sentence}", until(again, s.now), "not-yet", held=held)


def _tried_enough(s: Situation, r: Record, rung: Rung) -> Decision | None:
    if r.progress.tries >= s.policy.limits.attempts.max:
        return next_rung(s, r, f"{rung.do.value} was asked for {r.progress.tries} times and had no effect")
    if r.intent is not None and r.rung_since is not None and _past_deadline(s, r, rung):
        late = f"{rung.do.value} did not succeed within {span(rung.within)}: {r.sentence}"
        told = r.intent.state is IntentState.NOT_APPLIED  # that it failed
        return next_rung(s, r, late, "" if told else r.intent.action)
    return None


def _machine_unknown(s: Situation, r: Record, rung: Rung) -> Decision | None:
    return hand_over(s, r, s.machine_problem) if s.machine_problem else None


def _nobodys(s: Situation, r: Record, rung: Rung) -> Decision | None:
    twice = claimed_twice(s)
    return hand_over(s, r, twice, outcome="refused") if twice else None


def _no_fresh_signal(s: Situation, r: Record, rung: Rung) -> Decision | None:
    if (why := _unknown(s, r)) is None:
        return None
    if tried.held_by(s, r, Cause.UNREADABLE) >= rung.within:  # an end of its own: the fault may not be lost
        return replace(_gave_up_waiting(s, r, rung, why), held=Cause.UNREADABLE)
    what = f"{_what(r, rung)} waits for a fresh signal: {why}"
    return wait(what, key="unreadable", held=Cause.UNREADABLE)


def _unknown(s: Situation, r: Record) -> str | None:
    """Why nothing fresh is known of one of its faults, on its own node. What is only told holds no step.

    On a dead machine nothing has a fresh word of its devices. That holds no step which another fault asks
    for, as that it is dead (law 3).
    """
    if s.role is not Role.OWNER:
        return None
    why = next((why for f in r.treated_faults if (why := in_doubt(s, f))), None)
    dead = s.node is not None and not s.node.ready
    return None if why and dead and any(_asks_for_it(s, r, f) for f in r.treated_faults) else why


def _asks_for_it(s: Situation, r: Record, f: Fault) -> bool:
    """Whether ``f`` is known to be there, and its own rule leads to the step of the record by now."""
    if r.step is None or in_doubt(s, f) or has_ended(f, s):
        return False
    d = diagnosed(f, s)
    return d.treat and d.due <= s.now and r.step.do in [x.do for x in d.ladder]


def _no_second_witness(s: Situation, r: Record, rung: Rung) -> Decision | None:
    why = unconfirmed(s, r)
    if why is None:
        return None
    if tried.held_by(s, r, Cause.WITNESS) >= rung.within:
        return replace(_gave_up_waiting(s, r, rung, why), held=Cause.WITNESS)
    return hold(f"{_what(r, rung)}: {why}", key="witness", held=Cause.WITNESS)


def _provider_says_no(s: Situation, r: Record, rung: Rung) -> Decision | None:
    return _refused(s, r, rung, s.preflight_refused) if s.preflight_refused else None


def _provider_cannot_say(s: Situation, r: Record, rung: Rung) -> Decision | None:
    if not s.preflight_retry:
        return None
    if _past_deadline(s, r, rung):
        return _gave_up_waiting(s, r, rung, s.preflight_retry)
    return unanswered(s, r, f"{_what(r, rung)}: {s.preflight_retry}")


def unanswered(s: Situation, r: Record, why: str, again: timedelta = POLLED) -> Decision:
    """The provider cannot say whether a step may be asked for: there is no answer, or its settings have to be
    mended first. What lasts is on the record, where ``status`` reads it."""
    if s.unanswered_for < SAID_AFTER or told(r, HistoryEvent.UNANSWERED):
        return hold(why, again, "preflight")
    return act(WriteRecord(note(r, s.now, HistoryEvent.UNANSWERED, why)), why)


def _provider_says_later(s: Situation, r: Record, rung: Rung) -> Decision | None:
    assert s.preflight is not None  # refused and put off are the questions before this one
    early = not_yet(s, s.preflight)
    if not early:
        return None
    if _past_deadline(s, r, rung) and s.preflight.not_before is None:
        return _gave_up_waiting(s, r, rung, s.preflight.not_yet)
    return wait(f"{_what(r, rung)}: {s.preflight.not_yet}", early, "not-yet")


def _reboot_first(s: Situation, r: Record, rung: Rung) -> Decision | None:
    """A reboot goes into the record's ladder, before the replacement."""
    if rung.do is not Step.REPLACE or not reboots_first(s, r):
        return None
    assert s.preflight is not None  # ``reboots_first`` goes by it
    why = f"{_what(r, rung)} is put off, {s.preflight.cannot_launch}: next: {REBOOT}, before it is replaced"
    longer = replace(note(r, s.now, HistoryEvent.RUNG, why), ladder=with_reboot(r.ladder, r.rung))
    return act(WriteRecord(moved_to_rung(longer, r.rung, s.now)), why, Report(EventReason.NEXT_STEP, True))


def _group_or_clock(s: Situation, r: Record, rung: Rung) -> Decision | None:
    if rung.do is Step.REPLACE and (found := brakes.first_reason(brakes.BY_GROUP, s)):
        return hold(f"{_what(r, rung)}: {found[1]}", key=found[0], held=tried.BY_KEY[found[0]])
    why = brakes.skewed(s)
    return hold(f"{_what(r, rung)}: {why}", key="skewed", held=Cause.CLOCK) if why else None


def _gave_up_waiting(s: Situation, r: Record, rung: Rung, why: str) -> Decision:
    late = f"{rung.do.value} could not be asked for within {span(rung.within)}: {why}"
    return next_rung(s, r, late) if not_the_policys(rung) else hand_over(s, r, late)


QUESTIONS = (
    _only_out_of_band,
    _refused_before,
    _tried_enough,
    _put_off,
    _machine_unknown,
    _nobodys,
    _no_fresh_signal,
    _no_second_witness,
    _provider_says_no,
    _provider_cannot_say,
    _provider_says_later,
    _reboot_first,
    _group_or_clock,
)
"""What speaks against submitting the step, in this order; the first answer counts."""


def not_yet(s: Situation, found: Preflight) -> timedelta | None:
    """When to ask the provider again, which says "not yet"; None where it does not say that."""
    if found.adopt or not found.not_yet:
        return None
    if found.not_before is None:
        return POLLED
    return until(found.not_before, s.now) if s.now < found.not_before else None


# ---------------------------------------------------------------- right before the call


def not_now(s: Situation, a: Assessment, action: Step) -> Decision | None:
    """Why the destructive call is not made after all, by what was read a moment ago; None: make it."""
    if found := _volatile(s, a):
        return hold(f"{action.value} is not asked for: {found}", key="volatile")
    if s.preflight is None:
        why = s.preflight_refused or s.preflight_retry
        return wait(f"{action.value} is not asked for: {why}", key="preflight")
    if s.preflight.adopt:
        return None
    if early := not_yet(s, s.preflight):
        return wait(f"{action.value} is not asked for: {s.preflight.not_yet}", early, "not-yet")
    if action is not Step.REPLACE:
        return None
    if s.record is not None and reboots_first(s, s.record):
        return hold(f"{action.value} is not asked for: {s.preflight.cannot_launch}", key="no-launch")
    short = brakes.first_reason(brakes.BY_GROUP, s)
    return hold(f"{action.value} is not asked for: {short[1]}", key=short[0]) if short else None


def _volatile(s: Situation, a: Assessment) -> str | None:
    r = s.record
    if r is None or r.phase is not Phase.RECOVERING:
        return "the record has changed"
    return next((why for question in VOLATILE if (why := question(s, a, r))), None)


def _lease_lost(s: Situation, a: Assessment, r: Record) -> str | None:
    return None if s.lease.mine else f"the Lease is not held any more ({s.lease.holder or 'nobody'} has it)"


def _slot_lost(s: Situation, a: Assessment, r: Record) -> str | None:
    return None if a.slot else "the slot is not held any more"


def _another_machine(s: Situation, a: Assessment, r: Record) -> str | None:
    if s.node is None or s.machine is None:
        return s.machine_problem or "the Node is not there"
    if s.machine.id != r.machine.id:
        return f"the machine behind {r.node} is {s.machine.id} now, not {r.machine.id}"
    return None


def _also_anothers(s: Situation, a: Assessment, r: Record) -> str | None:
    return claimed_twice(s)


def _not_confirmed(s: Situation, a: Assessment, r: Record) -> str | None:
    return unconfirmed(s, r)


def _another_boot(s: Situation, a: Assessment, r: Record) -> str | None:
    assert s.node is not None  # a question before this one
    if r.boot_id and s.node.boot_id != r.boot_id:
        return with_node_behind(s, "the machine has booted since this was decided")
    alive = s.role is Role.CONCLUDER and s.node.ready
    return f"{r.node} is Ready again" if alive else None


def _marks_undone(s: Situation, a: Assessment, r: Record) -> str | None:
    assert s.node is not None  # a question before this one
    return undone(s.node, r.marks)


def _taken_back(s: Situation, a: Assessment, r: Record) -> str | None:
    if a.taken_back:
        return f"{one_has_ended(s, r)} a moment ago"
    d = only_tolerated(s, a.found)
    return tolerated(d, d.due - s.now) if d is not None else None


def _unknown_again(s: Situation, a: Assessment, r: Record) -> str | None:
    return _unknown(s, r)


def _braked(s: Situation, a: Assessment, r: Record) -> str | None:
    found = brakes.first_reason((*brakes.GOING_ON, ("skewed", brakes.skewed)), s)
    return found[1] if found else None


VOLATILE = (
    _lease_lost,
    _slot_lost,
    _another_machine,
    _also_anothers,
    _another_boot,
    _marks_undone,
    _taken_back,
    _unknown_again,
    _not_confirmed,
    _braked,
)
"""What may have changed since the call was decided on; the first reason counts."""
