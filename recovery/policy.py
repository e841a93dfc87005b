"""decide(): what should be done about a node now, and why. PURE.

Read from the top: guard clauses, in the order a careful person would ask; the act is the last line of each
function. ``climb`` goes on with a recovery that has its slot; ``conclude`` ends what a dead agent left open.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from recovery import brakes
from recovery.assess import (
    SIGNAL_UNKNOWN,
    Diagnosis,
    cleared,
    diagnose,
    name,
    plugins,
    taken_back,
    unreadable,
)
from recovery.climb import (
    DEFAULT_PROBATION,
    MOST_FAULTS,
    UNSETTLED,
    climb,
    end,
    excluded_away,
    hand_over,
    left_marks,
    not_yet,
    prove,
)
from recovery.conclude import lost
from recovery.gate import places, scopes_of
from recovery.lifecycle import Event, move
from recovery.model import GroupStart, Machine, Marks, Phase, Record, Slot, Start, Step
from recovery.record import note
from recovery.situation import (
    POLLED,
    REPEAT,
    Decision,
    FreeSlot,
    Join,
    Situation,
    TakeSlot,
    Tell,
    Unmark,
    WriteRecord,
    act,
    hold,
    leave,
    span,
    until,
    wait,
)

IDLE = REPEAT
SELDOM = timedelta(seconds=10)
"""Between two looks at what only a person or a cloud changes."""
TURN, STAGGER = 3.0, 0.25
"""Seconds that all ahead in the queue have to take a free slot (they look every 2 s), and then each (A8)."""


def decide(s: Situation) -> Decision:
    """What an agent should do about its own node."""
    if s.record_problem:
        return hold(
            f"the record cannot be used, and is not touched: {s.record_problem}", REPEAT, "undecodable"
        )
    if not s.on:
        return observe_only(s)
    if s.vanished:
        return hold(
            "somebody deleted this node's record: this agent stops and does not make it again",
            REPEAT,
            "vanished",
        )
    if s.record is None and standing(s):
        return lost(s)
    if s.record is not None and s.record.phase.open:
        return go_on(s, s.record)
    if s.record is not None and (tidy := tidy_up(s, s.record) or forget(s, s.record)):
        return tidy
    if s.record is not None and s.record.phase is Phase.LOST and same_boot(s, s.record):
        return hold(
            f"{s.record.sentence}; nothing starts until the machine boots or is replaced", REPEAT, "lost"
        )
    if s.record is not None and s.record.phase is Phase.HANDED_OVER:
        return in_a_persons_hands(s, s.record)
    return begin(s)


# ---------------------------------------------------------------- off


def observe_only(s: Situation) -> Decision:
    """Off: tell what would be done, and what was begun and is now left alone (law 7, ruling B15)."""
    why = brakes.off(s)
    if s.record is not None and s.record.phase.open:
        return hold(
            f"{why}: what was begun here is left as it is, abandoned by switch-off ({s.record.sentence})",
            REPEAT,
            "abandoned",
        )
    found = diagnose(s)
    if not found:
        handed = s.record is not None and s.record.phase is Phase.HANDED_OVER
        return still_handed_over(s.record) if s.record and handed else leave(healthy(s))
    d = found[0]
    if not d.treat:
        return hold(f"{why}: would tell of {name(d.fault)} ({told_why(d)})", REPEAT, f"tell {d.fault.key}")
    steps = ", ".join(r.do.value for r in d.ladder)
    if s.now < d.due:
        return wait(
            f"{name(d.fault)}: tolerated for {span(d.after)} by rule {d.rule_name}", until(d.due, s.now)
        )
    if reason := brakes.first_reason((("x", brakes.excluded), ("c", brakes.foreign_claim)), s):
        return hold(f"{why}: would leave {name(d.fault)} alone: {reason[1]}", REPEAT, "would-hold")
    if s.machine_problem:
        return hold(f"{why}: would hand over {name(d.fault)}: {s.machine_problem}", REPEAT, "would-hand-over")
    what = f"would have {done(d)} {s.node_name}: {name(d.fault)} (rule {d.rule_name}: {steps})"
    return hold(f"{what}, if budget and brake allow; {why}", REPEAT, f"would {d.fault.key}")


def done(d: Diagnosis) -> str:
    """The ladder's strongest step, as a participle."""
    words = {
        Step.REPLACE: "replaced",
        Step.REDEPLOY: "redeployed",
        Step.REIMAGE: "reimaged",
        Step.REBOOT: "rebooted",
        Step.DRAIN: "drained",
        Step.CORDON: "cordoned",
        Step.TAINT: "tainted",
    }
    return next(words[x] for x in words if any(r.do is x for r in d.ladder))


def healthy(s: Situation) -> str:
    unknown = [why for r in s.readings for why in r.unknown.values()]
    if unknown:
        return f"unknown: {unknown[0]}"
    return "healthy: no confirmed problem" if s.readings else "nothing has been read yet"


def told_why(d: Diagnosis) -> str:
    return d.why_only_told or f"rule {d.rule_name}: notify"


# ---------------------------------------------------------------- before a record


def begin(s: Situation) -> Decision:
    """No open record: open one at the first sign of a fault, before any timer or budget (ruling A3)."""
    found = diagnose(s)
    if not found:
        return leave(healthy(s), IDLE)
    d = found[0]
    if s.machine_wait:
        return wait(f"{name(d.fault)}: {s.machine_wait}", key="uninitialised")
    if s.node is None:
        return wait(f"{name(d.fault)}: the node has not been read", key="no-node")
    if d.treat and (reason := brakes.first_reason((("excluded", brakes.excluded),), s)):
        return hold(f"{name(d.fault)}: nothing is done: {reason[1]}", SELDOM, reason[0])
    if not s.lease.mine and not s.lease.stale:
        return wait(f"{name(d.fault)}: another agent works on this node ({s.lease.holder})", key="lease")
    assert s.machine is not None or s.machine_problem
    record = opened(s, found)
    tell = Tell("FaultSeen", warning=True, outcome="observed", action=strongest(d))
    return act(WriteRecord(record), record.sentence, tell)


def strongest(d: Diagnosis) -> str:
    return next((r.do.value for r in reversed(d.ladder)), "notify")


def opened(s: Situation, found: tuple[Diagnosis, ...]) -> Record:
    """A record at suspect: new, or the node's earlier one with its memory."""
    assert s.node is not None
    faults = tuple(d.fault for d in found)
    machine = s.machine
    if machine is None:
        machine = Machine(provider="", id=s.node.provider_id or s.node.uid, provider_id=s.node.provider_id)
    fresh = Record(
        node=s.node_name,
        phase=Phase.SUSPECT,
        machine=machine,
        node_uid=s.node.uid,
        boot_id=s.node.boot_id,
        faults=faults,
        phase_since=s.now,
        rule=found[0].rule_name,
    )
    if s.record is not None:
        old = s.record
        fresh = replace(
            fresh,
            phase=move(old.phase, Event.FAULT),
            uid=old.uid,
            resource_version=old.resource_version,
            attempt=old.attempt,
            history=old.history,
            starts=old.starts,
            acknowledged=old.acknowledged,
        )
    also = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return note(fresh, s.now, "suspect", f"{name(faults[0])} was seen{also}")


# ---------------------------------------------------------------- an open record of our own node


def go_on(s: Situation, r: Record) -> Decision:
    """An open record: the questions that come before any phase's own."""
    if not s.lease.mine and not s.lease.stale:
        return wait(f"another agent works on this node ({s.lease.holder})", key="lease")
    if s.node is None:
        return wait(
            "the Node is not there: whether its machine is gone is for its peers to prove", key="no-node"
        )
    if s.machine_wait:
        return wait(s.machine_wait, key="uninitialised")
    if s.machine is not None and s.machine.id != r.machine.id:
        return other_machine(s, r)
    if s.machine is not None and s.node.uid != r.node_uid:
        return registered_anew(s, r)
    if unexpected_boot(s, r):
        return rebooted(s, r)
    if new := unrecorded(s, r):
        return new
    if r.phase is Phase.SUSPECT:
        return suspect(s, r)
    if r.phase is Phase.WAITING:
        return waiting(s, r)
    if r.phase is Phase.RECOVERING:
        return climb(s, r)
    return prove(s, r)


def other_machine(s: Situation, r: Record) -> Decision:
    """Another machine goes by this name. Before submission: superseded, nothing is called (law 4)."""
    assert s.machine is not None
    why = f"the machine behind {r.node} is {s.machine.id} now, not {r.machine.id}"
    if r.intent is None or r.intent.state not in UNSETTLED:
        why = f"{why}: nothing is called"
    elif r.intent.action == Step.REPLACE.value:
        return climb(s, r) if r.phase is Phase.RECOVERING else prove(s, r)
    else:  # another machine's health proves nothing of this one's reboot
        why = f"{why}: there is nothing left to prove of its {r.intent.action}"
    return end(s, r, Event.OTHER_MACHINE, why, Tell("Superseded"))


def registered_anew(s: Situation, r: Record) -> Decision:
    """The same machine under a new Node object, which bears no marks of ours: carry on (ruling D27)."""
    assert s.node is not None
    why = f"{r.node} was registered anew by the same machine: going on"
    changed = replace(note(r, s.now, "registered", why), node_uid=s.node.uid, marks=Marks())
    return act(WriteRecord(changed), why, Tell("RegisteredAnew"))


def unexpected_boot(s: Situation, r: Record) -> bool:
    if s.node is None or not s.node.boot_id or not r.boot_id:
        return False
    asked = r.intent is not None and r.intent.action != Step.REPLACE.value and r.intent.state in UNSETTLED
    expected = asked and r.phase is Phase.RECOVERING  # once it is proved, another boot is news
    return s.node.boot_id != r.boot_id and not expected


def rebooted(s: Situation, r: Record) -> Decision:
    """An unexpected boot: assessed anew through probation. Nothing is called, nothing closed (law 4)."""
    assert s.node is not None
    replacing = r.intent is not None and r.intent.action == Step.REPLACE.value
    if replacing and r.intent is not None and r.intent.state in UNSETTLED:
        # A machine that is being replaced may well boot once more. It stays what it is.
        return act(WriteRecord(replace(r, boot_id=s.node.boot_id)), "the machine booted while being replaced")
    boots = sum(1 for line in r.history if line.event == "rebooted")
    if boots >= s.policy.limits.attempts.max:
        return hand_over(s, r, f"the machine booted {boots + 1} times, which nobody here asked for")
    why = "the machine booted, which nobody here asked for: it is assessed anew"
    changed = replace(
        note(r, s.now, "rebooted", why),
        phase=move(r.phase, Event.REBOOTED),
        phase_since=s.now,
        boot_id=s.node.boot_id,
        faults=tuple(replace(f, cleared=True) for f in r.faults),
        probation=r.probation or DEFAULT_PROBATION,
    )
    return act(WriteRecord(changed), why, Tell("Rebooted", warning=True))


def unrecorded(s: Situation, r: Record) -> Decision | None:
    """Later faults are appended; they never restart, shorten or downgrade the ladder (ruling C20)."""
    if r.phase is Phase.PROVING:
        return None
    known = {f.key for f in r.faults}
    new = [d for d in diagnose(s) if d.fault.key not in known]
    if not new:
        return None
    names = ", ".join(name(d.fault) for d in new)
    changed = replace(r, faults=(*r.faults, *(d.fault for d in new))[:MOST_FAULTS])
    if len(changed.faults) == len(r.faults):
        return None
    why = f"{names} was seen too"
    return act(WriteRecord(note(changed, s.now, "fault", why)), why, Tell("FaultSeen", warning=True))


def suspect(s: Situation, r: Record) -> Decision:
    """Tolerated for as long as the rule says; then told, or queued for treatment."""
    if taken_back(s, r.faults):
        why = f"{name(r.faults[0])} was taken back by its own source"
        return end(s, r, Event.CLEARED, why, Tell("Withdrawn", outcome="withdrawn"))
    found = diagnose(s)
    if not found:
        return leave("the record names no fault", key="empty")
    # Of the faults that are due the earliest rule chooses; one that is still tolerated holds up no other.
    d = min(found, key=lambda x: (not x.treat, s.now < x.due, x.rank, x.due))
    if s.now < d.due:
        told = f"{name(d.fault)}: tolerated for {span(d.after)} by rule {d.rule_name}"
        return wait(f"{told}, {span(d.due - s.now)} to go", until(d.due, s.now), "tolerated")
    if not d.fault.latched and (blind := unreadable(s, d.fault)):
        if any(x.fault.type == SIGNAL_UNKNOWN for x in found):
            return hand_over(s, r, f"{name(d.fault)} was seen, and since then: {blind}", told=True)
        return wait(f"{name(d.fault)}: {blind}", key="unreadable")
    if not d.treat:
        return hand_over(s, r, f"{name(d.fault)}: {told_why(d)}", told=True)
    if s.machine_problem:
        return hand_over(s, r, f"{name(d.fault)}: {s.machine_problem}")
    steps = ", ".join(x.do.value for x in d.ladder)
    why = f"{name(d.fault)}: rule {d.rule_name} says {steps}"
    queued = replace(
        note(r, s.now, "confirmed", why),
        phase=move(r.phase, Event.CONFIRMED),
        phase_since=s.now,
        rule=d.rule_name,
        ladder=d.ladder,
        after=d.after,
        probation=d.rule.probation if d.rule else DEFAULT_PROBATION,
        rung=0,
        rung_since=None,
        intent=None,
        replacement="",
        replacement_machine="",
        scopes=scopes_of(s.node.labels if s.node else {}, s.policy.limits.budget_per),
    )
    return act(WriteRecord(queued), why, Tell("Confirmed", warning=True))


def waiting(s: Situation, r: Record) -> Decision:
    """In the queue: every question is asked on one gate, and the slot is taken on that very gate."""
    what = f"{name(r.faults[0])}: waiting"
    if taken_back(s, r.faults):
        why = f"{name(r.faults[0])} was taken back by its own source"
        return end(s, r, Event.CLEARED, why, Tell("Withdrawn", outcome="withdrawn"))
    if excluded := brakes.excluded(s):
        return excluded_away(s, r, excluded)
    if s.gate is None:
        return wait(f"{what}: {s.gate_problem or 'the gate cannot be read'}", key="gate")
    if s.gate_problem:
        return hold(f"{what}: the gate cannot be used: {s.gate_problem}", key="gate")
    if s.gate.slot_of(r.node, r.uid):
        return granted(s, r)
    line = next((x for x in s.gate.open if x.record_uid == r.uid), None)
    if line is None:
        return act(Join(r.uid), f"{what} for a slot of the budget", Tell("Waiting"))
    if found := brakes.first_reason(brakes.FORBIDDEN, s):
        return hold(f"{what}: {found[1]}", SELDOM, found[0])
    if s.preflight_refused:
        return hand_over(s, r, s.preflight_refused, outcome="refused")
    if used := brakes.attempts_used(s):
        return hand_over(s, r, used)
    if found := brakes.first_reason(brakes.CHEAP, s):
        return hold(f"{what}: {found[1]}", key=found[0])
    if s.preflight_retry:
        return hold(f"{what}: {s.preflight_retry}", SELDOM, "preflight")
    if timedelta(0) <= s.now - line.since < s.settle:
        told = f"{what} {span(s.settle)} for other faults to show"
        return wait(told, until(line.since + s.settle, s.now), "settle")
    if s.preflight is not None and (early := not_yet(s, s.preflight)):
        return wait(f"{what}: {s.preflight.not_yet}", early, "not-yet")
    if found := brakes.first_reason(brakes.STARTING, s):
        return hold(f"{what}: {found[1]}", key=found[0])
    ahead = ahead_of(s, r)
    if ahead and s.turn_waited.total_seconds() < TURN + STAGGER * len(ahead):
        told = f"{what}: {ahead[0]} is ahead in the queue"
        return wait(told, POLLED / 4, "turn")
    return take_slot(s, r)


def ahead_of(s: Situation, r: Record) -> list[str]:
    """Nodes that wait for a slot and came before this one."""
    assert s.gate is not None
    holders = {x.record_uid for x in s.gate.slots}
    ahead = []
    for line in s.gate.open:
        if line.record_uid == r.uid:
            break
        if line.record_uid not in holders:
            ahead.append(line.node)
    return ahead


def take_slot(s: Situation, r: Record) -> Decision:
    group = s.preflight.group if s.preflight else r.machine.group
    scopes = scopes_of(s.node.labels if s.node else {}, s.policy.limits.budget_per)
    slot = Slot(r.node, r.uid, r.attempt + 1, scopes, s.now)
    start = GroupStart(s.now, r.node, group, r.machine.id, r.faults[0].reason)
    return act(TakeSlot(slot, start), f"{name(r.faults[0])}: a slot of the budget is free and is taken")


def granted(s: Situation, r: Record) -> Decision:
    """The slot is ours: the record says so before the node bears any mark (ruling A2)."""
    group = s.preflight.group if s.preflight else r.machine.group
    why = f"{name(r.faults[0])}: recovery starts ({', '.join(x.do.value for x in r.ladder)})"
    slot = s.gate.slot_of(r.node, r.uid) if s.gate else None
    started = replace(
        note(r, s.now, "started", why),
        scopes=slot.scopes if slot else r.scopes,
        phase=move(r.phase, Event.GRANTED),
        phase_since=s.now,
        machine=replace(r.machine, group=group),
        starts=(*r.starts, Start(s.now, r.machine.id, r.faults[0].reason, group)),
    )
    return act(WriteRecord(started), why, Tell("RecoveryStarted", warning=True))


# ---------------------------------------------------------------- closed records


def tidy_up(s: Situation, r: Record) -> Decision | None:
    """A closed record still on the gate, or our marks still on a node in nobody's hands: take them off."""
    for uid in sorted(standing(s)):
        return act(FreeSlot(uid), f"{r.sentence}; its place in the budget is free again")
    kept = r.phase is Phase.HANDED_OVER or (r.phase is Phase.LOST and same_boot(s, r))
    if left_marks(s) and not kept:
        return act(Unmark(), f"{r.sentence}; our marks come off", Tell("Uncordoned"))
    return None


def standing(s: Situation) -> set[str]:
    """The records of this node that stand on the gate; one that is not the node's record was deleted."""
    return {uid for node, uid in places(s.gate) if node == s.node_name} if s.gate else set()


def forget(s: Situation, r: Record) -> Decision | None:
    """A plugin's fault that was settled, and that the plugin has since taken back: the next one is new."""
    gone = [f for f in r.acknowledged if plugins(f) and cleared(f, s)]
    if not gone:
        return None
    kept = tuple(f for f in r.acknowledged if f not in gone)
    names = ", ".join(name(f) for f in gone)
    why = f"{names} was taken back by its own source: if it comes again, it is a new fault"
    return act(WriteRecord(replace(r, acknowledged=kept)), why)


def same_boot(s: Situation, r: Record) -> bool:
    """Whether the node is still the machine, in the boot, that ``r`` is about."""
    same_machine = s.machine is None or s.machine.id == r.machine.id
    return same_machine and (s.node is None or s.node.boot_id == r.boot_id)


def in_a_persons_hands(s: Situation, r: Record) -> Decision:
    """Handed over: said again until taken. Another machine, or the source itself, can end it."""
    if s.machine is not None and s.machine.id != r.machine.id:
        why = f"the machine behind {r.node} is {s.machine.id} now: the hand-over of {r.machine.id} has ended"
        return end(s, r, Event.OTHER_MACHINE, why, Tell("Superseded"))
    only_told = not r.marks and r.intent is None
    if only_told and diagnose(s):
        return begin(s)
    rebooted_since = bool(s.node and r.boot_id and s.node.boot_id and s.node.boot_id != r.boot_id)
    if only_told and (rebooted_since or taken_back(s, r.faults)):
        by = "a new boot" if rebooted_since else "its own source"
        why = f"{name(r.faults[0])} was taken back by {by}"
        return end(s, r, Event.CLEARED, why, Tell("Withdrawn", outcome="withdrawn"))
    return still_handed_over(r)


def still_handed_over(r: Record) -> Decision:
    return hold(
        f"in a person's hands since {r.phase_since:%Y-%m-%d %H:%M:%SZ}: {r.sentence}", REPEAT, "handedOver"
    )
