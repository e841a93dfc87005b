"""decide(): what should be done about a node now, and why. PURE.

Read from the top: guard clauses, in the order a careful person would ask; the act is the last line of each
function. ``climb`` goes on with a recovery that has its slot; ``conclude`` ends what a dead agent left open.
"""

from __future__ import annotations

from dataclasses import replace

from recovery.decide.diagnosis import (
    diagnose,
    name,
)
from recovery.decide.endings import DEFAULT_PROBATION, MOST_FAULTS, UNSETTLED, end, hand_over, up_again
from recovery.decide.history import note
from recovery.decide.idle import forget, in_a_persons_hands, same_boot, standing, tidy_up
from recovery.decide.ladder import climb
from recovery.decide.lifecycle import Event, move
from recovery.decide.observe_only import observe_only
from recovery.decide.opening import begin
from recovery.decide.orphan import lost
from recovery.decide.probation import fault_returned, prove
from recovery.decide.queue import suspect, waiting
from recovery.decide.situation import REPEAT, Decision, Situation, Tell, WriteRecord, act, hold, wait
from recovery.model import Marks, Phase, Record, Step


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
    if up := up_again(s, r):
        return up
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
    """The same machine under a new Node object, which bears no marks of ours: carry on."""
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
    if r.validation is not None:
        why = f"the machine booted while it was validated by Job {r.validation.job}"
        return fault_returned(s, replace(r, boot_id=s.node.boot_id), why)
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
        validation=None,
    )
    return act(WriteRecord(changed), why, Tell("Rebooted", warning=True))


def unrecorded(s: Situation, r: Record) -> Decision | None:
    """Later faults are appended; they never restart, shorten or downgrade the ladder."""
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
