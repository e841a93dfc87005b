"""A recovery that has its slot: rung by rung up its ladder, then proof. PURE.

Nothing destructive is decided here without the questions of ``brakes.GOING_ON``; observing, proving and
taking our marks off are never asked (law 8).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from recovery import brakes, drain
from recovery.assess import live, name, taken_back, unreadable
from recovery.gate import replacement_of
from recovery.lifecycle import Event, move
from recovery.model import (
    CORDONED_BY,
    OWNER_OF_MARKS,
    TAINT,
    Done,
    Failed,
    Fault,
    Gone,
    Intent,
    IntentState,
    Marks,
    NotApplied,
    Phase,
    Preflight,
    Record,
    Rung,
    Running,
    Slot,
    Step,
    Then,
)
from recovery.record import note
from recovery.situation import (
    POLLED,
    ClaimReplacement,
    Decision,
    Evict,
    Mark,
    RestoreSlot,
    Role,
    Situation,
    Submit,
    Tell,
    Unmark,
    WriteRecord,
    act,
    hold,
    span,
    until,
    wait,
)

UNSETTLED = frozenset({IntentState.WRITTEN, IntentState.SUBMITTED, IntentState.AMBIGUOUS})
"""Intents whose call was made, or may have been."""
NOT_APPLIED_AFTER = timedelta(seconds=60)
DEFAULT_PROBATION = timedelta(minutes=2)
LONGEST_PROOF = timedelta(minutes=30)
MOST_FAULTS = 20
RESET = timedelta(seconds=5)
RETRY_AFTER = timedelta(seconds=15)


# ---------------------------------------------------------------- ways out


def close(r: Record, now: datetime, event: Event, why: str) -> Record:
    """``r`` at the end of ``event``. Its faults are remembered, so that the same ones start nothing again."""
    remember = event in (Event.PROVED, Event.GAVE_UP, Event.RELEASED)
    settled: tuple[Fault, ...] = r.faults if remember else ()
    known = r.acknowledged
    if event is Event.CLEARED:  # taken back: when it comes again, it is news
        known = tuple(x for x in known if x.key not in {f.key for f in r.faults})
    phase = move(r.phase, event)
    return replace(
        note(r, now, phase.value, why),
        phase=phase,
        phase_since=now,
        acknowledged=(*(x for x in known if x.key not in {f.key for f in settled}), *settled),
    )


def end(s: Situation, r: Record, event: Event, why: str, tell: Tell) -> Decision:
    """Close, with our marks taken off first: a crash in between leaves a record that still owes it."""
    if s.role is Role.OWNER and s.node is not None and ((r.marks and same_object(s, r)) or left_marks(s)):
        return act(Unmark(), f"{why}; our marks come off", Tell("Uncordoned"))
    return act(WriteRecord(close(r, s.now, event, why)), why, tell)


def left_marks(s: Situation) -> bool:
    """Whether the node bears marks of ours: the patch may have come through, and the record not."""
    if s.node is None:
        return False
    return s.node.has_taint(TAINT) or s.node.annotations.get(CORDONED_BY) == OWNER_OF_MARKS


def same_object(s: Situation, r: Record) -> bool:
    """Whether the marks on record can be on this Node at all: a Node made anew bears none."""
    return s.node is not None and s.node.uid == r.node_uid


def hand_over(
    s: Situation, r: Record, why: str, *, told: bool = False, outcome: str = "handedOver"
) -> Decision:
    """A person has to. The marks stay: nothing new should land on this node."""
    sentence = why if told else f"handed over to a person: {why}"
    action = r.step.do.value if r.step else ""
    tell = Tell("HandedOver", warning=True, outcome=outcome, action=action)
    return act(WriteRecord(close(r, s.now, Event.GAVE_UP, sentence)), sentence, tell)


def excluded_away(s: Situation, r: Record, reason: str) -> Decision:
    """Excluded before the call: marks off, slot freed, closed (ruling B14)."""
    why = f"closed without a destructive step: {reason}"
    return end(s, r, Event.CLEARED, why, Tell("Withdrawn", outcome="withdrawn"))


def next_rung(s: Situation, r: Record, why: str) -> Decision:
    """The next rung of the ladder, or a person where there is none, or where it is not ours to climb."""
    ours = s.role is Role.OWNER and s.machine is not None and s.machine.id == r.machine.id
    following = r.ladder[r.rung + 1] if r.rung + 1 < len(r.ladder) else None
    if following is None or not ours:
        return hand_over(s, r, why)
    sentence = f"{why}; next: {following.do.value}"
    changed = replace(note(r, s.now, "rung", sentence), rung=r.rung + 1, rung_since=None, intent=None)
    return act(WriteRecord(changed), sentence, Tell("NextStep"))


def acted(r: Record) -> bool:
    """Whether a destructive call of this recovery was made, or may have been."""
    for line in reversed(r.history):
        if line.event in ("submitted", "ambiguous", "adopted"):
            return True
        if line.event == "started":
            return False
    return False


# ---------------------------------------------------------------- recovering


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
    if rung.do is Step.DRAIN and (over := drain_over(s, r, rung)):
        return over
    if found := brakes.first_reason(brakes.GOING_ON, s):
        return hold(f"{what}: {found[1]}", key=found[0])
    wanted = marks_wanted(s, r, rung)
    if wanted != r.marks:
        how = "cordoned" if wanted.cordoned else "tainted"
        return act(Mark(wanted), f"{how} for {name(r.faults[0])}", Tell("Cordoned"))
    if rung.do in (Step.CORDON, Step.TAINT):
        return next_rung(s, r, f"{name(r.faults[0])}: {rung.do.value} is done")
    if rung.do is Step.DRAIN:
        return drain_on(s, r, rung)
    return provider_step(s, r, rung)


def marks_wanted(s: Situation, r: Record, rung: Rung) -> Marks:
    """Our taint always; the cordon unless somebody else's is there already (ruling D30).

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


def drain_over(s: Situation, r: Record, rung: Rung) -> Decision | None:
    """Whether the drain has ended, by an empty node or by its deadline."""
    if s.pods is None or r.rung_since is None:
        return None
    left = drain.remaining(s.pods, s.now)
    if not left:
        return next_rung(s, r, f"drained in {span(s.now - r.rung_since)}")
    if s.now < r.rung_since + rung.within:
        return None
    late = f"the drain did not end within {span(rung.within)}: {drain.told(left, s.refusals)}"
    if rung.then is Then.FORCE:
        return next_rung(s, r, f"{late}; going on without them, as the policy says")
    if rung.then is Then.HAND_OVER:
        return hand_over(s, r, late)
    return None


def drain_on(s: Situation, r: Record, rung: Rung) -> Decision:
    if r.rung_since is None:
        return act(WriteRecord(replace(r, rung_since=s.now)), f"{name(r.faults[0])}: the drain begins")
    if s.pods is None:
        return wait(f"{name(r.faults[0])}: the pods have not been read", key="pods")
    left = drain.remaining(s.pods, s.now)
    state = f"{name(r.faults[0])}: draining, {drain.told(left, s.refusals)}"
    if ask := drain.to_evict(left, s.refusals):
        return act(Evict(ask), state, Tell("Draining"))
    key = "drain-refused" if any(str(p) in s.refusals for p in left) else "drain"
    return wait(state, timedelta(seconds=1), key)


# ---------------------------------------------------------------- provider steps


def provider_step(s: Situation, r: Record, rung: Rung) -> Decision:
    """Everything that can be asked beforehand is; the executor asks the volatile part once more."""
    what = f"{name(r.faults[0])}: {rung.do.value}"
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
    if why := next((w for f in r.faults if (w := unreadable(s, f))), None):
        if late:
            return hand_over(s, r, f"before {rung.do.value}, for {span(rung.within)}: {why}")
        return wait(f"{what} waits for a fresh signal: {why}", key="unreadable")
    if s.preflight_refused:
        return hand_over(s, r, s.preflight_refused, outcome="refused")
    if s.preflight_retry and late:
        return hand_over(s, r, f"before {rung.do.value}, for {span(rung.within)}: {s.preflight_retry}")
    if s.preflight_retry:
        return hold(f"{what}: {s.preflight_retry}", key="preflight")
    if s.preflight is None:
        return wait(f"{what}: not looked at yet", key="preflight")
    if early := not_yet(s, s.preflight):
        return wait(f"{what}: {s.preflight.not_yet}", early, "not-yet")
    if rung.do is Step.REPLACE and (short := brakes.group_short(s)):
        return hold(f"{what}: {short}", key="group-short")
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
    if undone := marks_undone(s, r):
        return undone
    found = brakes.first_reason((*brakes.GOING_ON, ("skewed", brakes.skewed)), s)
    return found[1] if found else None


# ---------------------------------------------------------------- after the call


def follow(s: Situation, r: Record) -> Decision:
    """A call was made, or may have been: observe, never repeat (law 2)."""
    assert r.intent is not None
    if r.intent.state is IntentState.WRITTEN:
        why = f"{r.intent.action} may or may not have been asked for before this agent stopped: observing"
        changed = replace(note(r, s.now, "ambiguous", why), intent=as_state(r, IntentState.AMBIGUOUS))
        return act(WriteRecord(changed), why)
    if r.intent.action != Step.REPLACE.value and booted_anew(s, r):
        assert s.node is not None
        why = f"{r.intent.action} is proved by a new boot ID"
        return to_proof(s, replace(r, boot_id=s.node.boot_id), why)
    if s.poll is None:
        return wait(f"{r.intent.action}: its provider has not answered yet", key="poll")
    if isinstance(s.poll, Failed):
        return next_rung(s, r, f"{r.intent.action} failed: {s.poll.reason}")
    if isinstance(s.poll, Done):
        return replaced(s, r, s.poll)
    if isinstance(s.poll, NotApplied) and s.now >= r.intent.at + NOT_APPLIED_AFTER:
        why = f"{r.intent.action} had no effect after {span(NOT_APPLIED_AFTER)}: {s.poll.sentence}"
        changed = replace(note(r, s.now, "notApplied", why), intent=as_state(r, IntentState.NOT_APPLIED))
        return act(WriteRecord(changed), why, Tell("NotApplied", True, "failed", r.intent.action))
    if isinstance(s.poll, Running | Gone) and r.intent.state is IntentState.AMBIGUOUS:
        why = f"{r.intent.action} is under way: {s.poll.sentence}"
        changed = replace(note(r, s.now, "adopted", why), intent=as_state(r, IntentState.SUBMITTED))
        return act(WriteRecord(changed), why)
    return still_running(s, r, s.poll.sentence)


def as_state(r: Record, state: IntentState) -> Intent:
    assert r.intent is not None
    return replace(r.intent, state=state)


def booted_anew(s: Situation, r: Record) -> bool:
    assert r.intent is not None
    if s.node is None or not s.node.ready or (s.machine is not None and s.machine.id != r.machine.id):
        return False
    return bool(s.node.boot_id) and s.node.boot_id != r.intent.boot_id


def still_running(s: Situation, r: Record, sentence: str) -> Decision:
    assert r.intent is not None
    rung = r.step
    began = r.rung_since or r.intent.at
    if rung is not None and s.now >= began + rung.within:
        late = f"{r.intent.action} did not succeed within {span(rung.within)}: {sentence}"
        if r.intent.state is IntentState.AMBIGUOUS:
            return hand_over(s, r, f"{late}; it is not known whether it was ever accepted")
        return next_rung(s, r, late)
    return wait(sentence, POLLED, f"running {sentence}")


def replaced(s: Situation, r: Record, found: Done) -> Decision:
    """The old machine is gone. Claim one new machine, once, and put it on probation (ruling D28)."""
    assert r.intent is not None
    if s.gate is None or s.gate_problem:
        return wait(f"the gate cannot be read: {s.gate_problem or 'no answer'}", key="gate")
    if not found.replacements and r.machine.route.get("nodeclaim"):
        return to_proof(s, r, found.evidence)
    if not found.complete:
        return still_running(s, r, found.evidence)
    mine = replacement_of(s.gate, r.machine.id)
    if mine:
        return to_proof(s, replace(r, replacement_machine=mine), f"{found.evidence}; {mine} took its place")
    taken = {c.machine for c in s.gate.claimed}
    free = [m for m in found.replacements if m not in taken]
    if not free:
        return still_running(
            s, r, f"{found.evidence}; no new machine that is not somebody else's replacement"
        )
    return act(ClaimReplacement(free[0], r.machine.id), f"{free[0]} is claimed as the replacement")


def to_proof(s: Situation, r: Record, why: str) -> Decision:
    changed = replace(
        note(r, s.now, "evidence", why),
        phase=move(r.phase, Event.EVIDENCE),
        phase_since=s.now,
        intent=as_state(r, IntentState.SUBMITTED),
    )
    return act(WriteRecord(changed), f"{why}; probation begins", Tell("Proving"))


# ---------------------------------------------------------------- proof


def prove(s: Situation, r: Record) -> Decision:
    """Healthy through probation, by fresh signals (law 11)."""
    asked_to_replace = r.intent is not None and r.intent.action == Step.REPLACE.value
    if r.machine.route.get("nodeclaim") and asked_to_replace and acted(r):
        why = f"proved: Node and NodeClaim of {r.machine.id} are gone"
        return end(s, r, Event.PROVED, why, succeeded(r))
    if r.replacement_machine:
        return prove_replacement(s, r)
    return prove_same_machine(s, r)


def succeeded(r: Record) -> Tell:
    return Tell("Recovered", outcome="succeeded", action=r.intent.action if r.intent else "")


def prove_replacement(s: Situation, r: Record) -> Decision:
    new = r.replacement_machine
    if s.replacement is None:
        return unproved(s, r, f"{new} has not joined the cluster as a node")
    joined = s.replacement.name
    if s.replacement_record and joined != r.node:
        # Its own record needs the place that this one holds; attempts are counted over both (ruling B16).
        why = (
            f"{r.machine.id} is gone; {joined} ({new}) took its place and is sick too: {s.replacement_record}"
        )
        return end(s, r, Event.OTHER_MACHINE, why, Tell("Superseded", warning=True))
    if not s.replacement.ready:
        return unproved(s, r, f"{joined} ({new}) is not Ready")
    if s.replacement_is_me and (seen := not_well(s)):
        return unproved(s, r, f"{joined} ({new}) is not healthy: {seen}")
    if s.replacement_problem:
        return unproved(s, r, f"{joined} ({new}) is not healthy: {s.replacement_problem}")
    if r.replacement != joined:
        why = f"{joined} ({new}) is Ready"
        changed = replace(note(r, s.now, "joined", why), replacement=joined, phase_since=s.now)
        return act(WriteRecord(changed), why, Tell("Joined"))
    if s.now - r.phase_since < r.probation:
        return on_probation(s, r, joined)
    by = (
        "by its own detector's page"
        if s.replacement_is_me
        else "by its Node, whose own agent reports no fault"
    )
    why = f"proved: {r.machine.id} is gone and {joined} ({new}) was healthy for {span(r.probation)}, {by}"
    return end(s, r, Event.PROVED, why, succeeded(r))


def not_well(s: Situation) -> str | None:
    """What this agent's own sources say against the node it runs on."""
    if found := live(s):
        return name(found[0].fault)
    return next((reading.unknown["*"] for reading in s.readings if not reading.readable), None)


def on_probation(s: Situation, r: Record, who: str) -> Decision:
    left = r.phase_since + r.probation
    return wait(
        f"{who} is on probation for another {span(left - s.now)}", until(left, s.now, POLLED), "probation"
    )


def unproved(s: Situation, r: Record, why: str) -> Decision:
    """Not healthy: probation begins again, until the step's own deadline."""
    waited_for_us = acted(r) and r.rung_since is not None
    began = r.rung_since if waited_for_us and r.rung_since else last_of(r, "rebooted", "evidence")
    allowed = r.step.within if r.step and waited_for_us else LONGEST_PROOF
    if s.now >= began + allowed:
        late = (
            f"{r.intent.action if r.intent else 'the machine'} was not proved within {span(allowed)}: {why}"
        )
        return next_rung(s, r, late) if r.phase is Phase.RECOVERING else hand_over(s, r, late)
    if s.now - r.phase_since >= RESET:
        return act(WriteRecord(replace(r, phase_since=s.now)), f"probation begins again: {why}")
    return wait(f"probation: {why}", POLLED, f"unproved {why}")


def last_of(r: Record, *events: str) -> datetime:
    """When one of these last happened: nothing that is noted later moves a deadline."""
    return next((x.at for x in reversed(r.history) if x.event in events), r.phase_since)


def prove_same_machine(s: Situation, r: Record) -> Decision:
    if s.role is Role.CONCLUDER:
        return unproved(s, r, f"the agent of {r.node} has not come back to prove it")
    assert s.node is not None
    if found := live(s):
        return fault_returned(s, r, name(found[0].fault))
    if not s.node.ready:
        return unproved(s, r, f"{r.node} is not Ready")
    for reading in s.readings:
        if not reading.readable:
            return unproved(s, r, reading.unknown["*"])
    if s.now - r.phase_since < r.probation:
        return on_probation(s, r, r.node)
    healthy = f"{r.node} was healthy for {span(r.probation)} on its own page"
    if acted(r):
        return end(s, r, Event.PROVED, f"proved: {healthy}", succeeded(r))
    why = f"withdrawn: after a boot nobody here asked for, {healthy}"
    return end(s, r, Event.CLEARED, why, Tell("Withdrawn", outcome="withdrawn"))


def fault_returned(s: Situation, r: Record, what: str) -> Decision:
    """Back in probation: the next rung if this one had its chance, else the same again."""
    why = f"{what} came back in probation"
    used = r.intent is not None and r.intent.state in UNSETTLED
    if used and r.rung + 1 >= len(r.ladder):
        return hand_over(s, r, f"{why}, and the remedy has no further step")
    has_slot = s.gate is not None and s.gate.slot_of(r.node, r.uid) is not None
    event = Event.RETURNED if has_slot else Event.REQUEUED
    if not r.ladder:
        event = Event.SUSPECTED
    current = tuple(
        replace(f, cleared=False, boot_id=s.node.boot_id if s.node else f.boot_id) for f in r.faults
    )
    changed = replace(
        note(r, s.now, "returned", why),
        phase=move(r.phase, event),
        phase_since=s.now,
        faults=current,
        rung=r.rung + 1 if used else r.rung,
        rung_since=None,
        intent=None,
    )
    return act(WriteRecord(changed), why, Tell("FaultReturned", warning=True))
