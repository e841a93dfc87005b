"""A recovery that has its slot, rung by rung up its ladder. PURE.

Nothing destructive is decided here without the questions of ``brakes.GOING_ON``; observing, proving and
taking our marks off are never asked (law 8). ``follow`` goes on after a call, ``proof`` after its evidence.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from recovery.decide import brakes, drain
from recovery.decide.diagnosis import name, taken_back, unreadable
from recovery.decide.endings import (
    RETRY_AFTER,
    UNSETTLED,
    acted,
    end,
    excluded_away,
    hand_over,
    last_of,
    left_marks,
    next_rung,
)
from recovery.decide.in_flight import follow
from recovery.decide.lifecycle import Event
from recovery.decide.situation import (
    POLLED,
    Decision,
    Evict,
    Mark,
    RestoreSlot,
    Role,
    Situation,
    Submit,
    Tell,
    TellPods,
    WriteRecord,
    act,
    hold,
    span,
    until,
    wait,
)
from recovery.model import (
    CORDONED_BY,
    OWNER_OF_MARKS,
    TAINT,
    IntentState,
    Marks,
    Phase,
    Preflight,
    Record,
    Rung,
    Slot,
    Step,
    Then,
)


def climb(s: Situation, r: Record) -> Decision:
    """One effect on the current rung, or the reason why not yet."""
    if r.intent is not None and r.intent.state in UNSETTLED:
        return follow(s, r)
    if s.gate is None or s.gate_problem:
        return wait(f"the gate cannot be read: {s.gate_problem or 'no answer'}", key="gate")
    if reason := brakes.excluded(s):
        return excluded_away(s, r, reason)
    if not acted(r) and taken_back(s, r.faults):
        why = f"{name(r.faults[0])} was taken back by its own source before anything destructive"
        return end(s, r, Event.CLEARED, why, Tell("Withdrawn", outcome="withdrawn"))
    if s.gate.slot_of(r.node, r.uid) is None:
        return without_slot(s, r)
    rung = r.step
    if rung is None:
        return hand_over(s, r, "every step of the remedy was done, and the machine still needs a person")
    if rung.do is Step.NOTIFY:
        return next_rung(s, r, f"{name(r.faults[0])}: told")
    return on_the_rung(s, r, rung)


def without_slot(s: Situation, r: Record) -> Decision:
    """Somebody harmed the gate. A node that is out gets its slot back whatever the budget says; one to which
    nothing was done yet stands back while others have it."""
    out = bool(r.marks) or left_marks(s) or acted(r)
    if not out and (full := brakes.budget(s)):
        return hold(f"{name(r.faults[0])}: the slot was lost before anything was done: {full}", key="budget")
    slot = Slot(r.node, r.uid, r.attempt, r.scopes or ("fleet",), s.now)
    return act(RestoreSlot(slot), "the slot of this recovery was missing on the gate and is put back")


def on_the_rung(s: Situation, r: Record, rung: Rung) -> Decision:
    assert s.node is not None
    what = f"{name(r.faults[0])}: {rung.do.value}"
    if undone := marks_undone(s, r):
        return hold(f"{what}: {undone}", key="undone")
    plan = planned(s, r) if rung.do is Step.DRAIN else None
    if plan is not None and (over := drain_over(s, r, rung, plan)):
        return over
    if found := brakes.first_reason(brakes.GOING_ON, s):
        return hold(f"{what}: {found[1]}", key=found[0])
    wanted = marks_wanted(s, r, rung)
    if wanted != r.marks:
        how = "cordoned" if wanted.cordoned else "tainted"
        return act(Mark(wanted), f"{how} for {name(r.faults[0])}", Tell("Cordoned"))
    if rung.do in (Step.CORDON, Step.TAINT):
        held = {Step.CORDON: "cordoned", Step.TAINT: "tainted"}[rung.do]
        return next_rung(s, r, f"{name(r.faults[0])}: {r.node} is {held}")
    if rung.do is Step.DRAIN:
        return drain_on(s, r, plan)
    return provider_step(s, r, rung)


def marks_wanted(s: Situation, r: Record, rung: Rung) -> Marks:
    """Our taint always; the cordon unless somebody else's is there already.

    A cordon with our taint and annotation is ours, though a crash kept it off the record.
    """
    assert s.node is not None
    if rung.do is Step.TAINT:
        return replace(r.marks, tainted=True)
    ours = s.node.has_taint(TAINT) and s.node.annotations.get(CORDONED_BY) == OWNER_OF_MARKS
    return Marks(cordoned=r.marks.cordoned or ours or not s.node.unschedulable, tainted=True)


def marks_undone(s: Situation, r: Record) -> str | None:
    assert s.node is not None
    if r.marks.cordoned and not s.node.unschedulable:
        return f"somebody uncordoned {r.node}; exclude or release it, or cordon it again to go on"
    if r.marks.tainted and not s.node.has_taint(TAINT):
        return f"somebody took the taint {TAINT} off {r.node}; exclude or release it, or put it back to go on"
    return None


# ---------------------------------------------------------------- drain


def planned(s: Situation, r: Record) -> drain.Plan | None:
    """What the drain is about to do; None where the pods were not read, or it has not begun."""
    if s.pods is None or r.rung_since is None:
        return None
    return drain.plan(s.pods, s.policy.drain, r.rung_since, s.now, s.refusals)


def drain_over(s: Situation, r: Record, rung: Rung, plan: drain.Plan) -> Decision | None:
    """Whether the drain has ended, by an empty node or by its deadline."""
    assert r.rung_since is not None  # there is a plan only of one that has begun
    if not plan.left:
        return next_rung(s, r, f"drained in {span(s.now - r.rung_since)}")
    if s.now < r.rung_since + rung.within:
        return None
    late = f"the drain did not end within {span(rung.within)}: {plan}"
    if rung.then is Then.FORCE and not plan.never:
        return next_rung(s, r, f"{late}; going on without them, as the policy says")
    if rung.then is Then.HAND_OVER:
        return hand_over(s, r, late)
    return None


def drain_on(s: Situation, r: Record, plan: drain.Plan | None) -> Decision:
    if r.rung_since is None:
        return act(WriteRecord(replace(r, rung_since=s.now)), f"{name(r.faults[0])}: the drain begins")
    assert plan is not None  # pods are read from the moment the drain begins
    if plan.never:
        return hand_over(s, r, f"{name(r.faults[0])}: {plan.never}")
    state = f"{name(r.faults[0])}: draining, {plan}"
    if plan.tell:
        count = drain.counted(len(plan.tell))
        told = f"{name(r.faults[0])}: {count} told that the node is drained, {plan.tell[0][0]} first"
        return act(TellPods(plan.tell), told, Tell("PodsTold"))
    most = s.policy.drain.evictions_per_second
    if ask := drain.within_rate(plan.ask, s.evictions_free, most):
        return act(Evict(ask), state)
    key = "drain-refused" if any(str(p) in s.refusals for p in plan.left) else "drain"
    return wait(state, timedelta(seconds=1), key)


# ---------------------------------------------------------------- provider steps


def provider_step(s: Situation, r: Record, rung: Rung) -> Decision:
    """Everything that can be asked beforehand is; the executor asks the volatile part once more."""
    what = f"{name(r.faults[0])}: {rung.do.value}"
    own = s.role is Role.OWNER
    if own and s.provider is not None and rung.do in s.provider.from_outside:
        never = (
            f"{rung.do.value} of {r.node} is never asked for by the node's own agent, and the machine lives"
        )
        return hand_over(s, r, f"{never}: a person has to", outcome="refused")
    if r.intent is not None and r.intent.state is IntentState.REFUSED:
        return hand_over(s, r, r.sentence, outcome="refused")
    if again := asked_again_at(s, r):
        return wait(f"{what}: {r.sentence}", until(again, s.now), "not-yet")
    began = r.rung_since or last_of(r, "rung", "started", "returned")
    late = s.now >= began + rung.within
    tries = sum(1 for line in r.history if line.event == "notApplied" and line.at >= began)
    if tries >= s.policy.limits.attempts.max:
        return next_rung(s, r, f"{rung.do.value} was asked for {tries} times and had no effect")
    if r.intent is not None and late:
        return next_rung(s, r, f"{rung.do.value} did not succeed within {span(rung.within)}: {r.sentence}")
    if s.machine_problem:
        return hand_over(s, r, s.machine_problem)
    if own and (why := next((w for f in r.faults if (w := unreadable(s, f))), None)):
        if late:
            return hand_over(s, r, f"before {rung.do.value}, for {span(rung.within)}: {why}")
        return wait(f"{what} waits for a fresh signal: {why}", key="unreadable")
    if s.preflight_refused:
        return hand_over(s, r, s.preflight_refused, outcome="refused")
    if s.preflight_retry and late:
        return hand_over(s, r, f"before {rung.do.value}, for {span(rung.within)}: {s.preflight_retry}")
    if s.preflight_retry:
        return hold(f"{what}: {s.preflight_retry}", key="preflight")
    assert s.preflight is not None  # it was given, refused or put off
    if early := not_yet(s, s.preflight):
        if late and s.preflight.not_before is None:
            return hand_over(s, r, f"before {rung.do.value}, for {span(rung.within)}: {s.preflight.not_yet}")
        return wait(f"{what}: {s.preflight.not_yet}", early, "not-yet")
    if rung.do is Step.REPLACE and (found := brakes.first_reason(brakes.BY_GROUP, s)):
        return hold(f"{what}: {found[1]}", key=found[0])
    if why := brakes.skewed(s):
        return hold(f"{what}: {why}", key="skewed")
    return act(Submit(rung.do), f"{what}: asked of {r.machine.provider}")


def not_yet(s: Situation, found: Preflight) -> timedelta | None:
    """How long the provider would still say "not yet", or None where it would not."""
    if found.adopt or not found.not_yet:
        return None
    if found.not_before is None:
        return POLLED
    return until(found.not_before, s.now) if s.now < found.not_before else None


def asked_again_at(s: Situation, r: Record) -> datetime | None:
    """When a call that was put off may be made again: a throttled API is not asked in a loop."""
    if not r.history or r.history[-1].event != "notYet":
        return None
    again = r.history[-1].at + RETRY_AFTER
    return again if s.now < again else None


def may_submit(s: Situation) -> str | None:
    """The volatile questions, on a world read a moment ago: why the call must not be made, or None."""
    r = s.record
    if r is None or r.phase is not Phase.RECOVERING:
        return "the record has changed"
    if not s.lease.mine:
        return f"the Lease is not held any more ({s.lease.holder or 'nobody'} has it)"
    if s.gate is None or s.gate.slot_of(r.node, r.uid) is None:
        return "the slot is not held any more"
    if s.node is None or s.machine is None:
        return s.machine_problem or "the Node is not there"
    if s.machine.id != r.machine.id:
        return f"the machine behind {r.node} is {s.machine.id} now, not {r.machine.id}"
    if r.boot_id and s.node.boot_id != r.boot_id:
        return "the machine has booted since this was decided"
    if s.role is Role.CONCLUDER and s.node.ready:
        return f"{r.node} is Ready again"
    if undone := marks_undone(s, r):
        return undone
    if not acted(r) and taken_back(s, r.faults):
        return f"{name(r.faults[0])} was taken back by its own source a moment ago"
    found = brakes.first_reason((*brakes.GOING_ON, ("skewed", brakes.skewed)), s)
    return found[1] if found else None
