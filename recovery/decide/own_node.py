"""What should an agent do about its own node now, and why? Start reading at ``decide``. PURE.

Guard clauses come first, in the order a careful person would ask; the act is the last line of a function.
An open record goes on in the module of its phase (``PHASES``), a closed one in ``idle``. A record that a dead
agent left open is for ``orphan.conclude``, on another node.
"""

from __future__ import annotations

from recovery.decide import brakes
from recovery.decide.acknowledged import another_life
from recovery.decide.assessment import Assessment, assess
from recovery.decide.boot import agrees, put_before, with_node_behind
from recovery.decide.budget import places, queue_is_full
from recovery.decide.claims import other_machine
from recovery.decide.decision import (
    REPEAT,
    Decision,
    EventReason,
    Join,
    Report,
    Verb,
    WriteRecord,
    act,
    first_answer,
    hold,
    wait,
)
from recovery.decide.diagnosis import as_treated, name, told_apart
from recovery.decide.endings import (
    DEFAULT_PROBATION,
    after_the_last_step,
    disown,
    end,
    hand_over,
    has_our_marks,
    marked_anew,
    up_again,
)
from recovery.decide.given_back import wanted_back
from recovery.decide.history import HistoryEvent, note
from recovery.decide.idle import (
    alone,
    begin,
    forget_cleared,
    in_a_persons_hands,
    known_since,
    out_of_date,
    records_on_gate,
    tidy_up,
)
from recovery.decide.ladder import drain_again, recovering, slot_put_back
from recovery.decide.latch import held, noted
from recovery.decide.lifecycle import Event, move
from recovery.decide.marks import anothers, of_no_record
from recovery.decide.observe_only import observe_only
from recovery.decide.orphan import lost
from recovery.decide.probation import fault_returned, prove
from recovery.decide.queue import suspect, waiting
from recovery.decide.reboot_first import BOOTS
from recovery.decide.room import MOST_BOOTS, kept
from recovery.decide.situation import Situation
from recovery.decide.stated_since import in_their_lives
from recovery.decide.stuck_pods import stuck_pods
from recovery.decide.tried import accounted
from recovery.model import Cause, Marks, Phase, Record
from recovery.quick import replace


def decide(s: Situation, a: Assessment | None = None) -> Decision:
    """What an agent should do about its own node. ``a``: the cycle's assessment, if it was made already."""
    a = a or assess(s)
    if s.record_problem:
        why = f"the record cannot be used, and is not touched: {s.record_problem}"
        return hold(why, REPEAT, "undecodable")
    if not s.on:
        return observe_only(s, a)
    if s.vanished and s.afar and records_on_gate(s):
        return lost(s)  # an agent on the node leaves that to its peers, and the controller has none
    if s.vanished:
        why = "somebody deleted this node's record: nothing more is done until node-recovery is restarted"
        return hold(why, REPEAT, "vanished")
    if s.record is None:
        return lost(s) if records_on_gate(s) else _without_a_record(s, a)
    return go_on(s, a, s.record) if s.record.phase.open else closed(s, a, s.record)


def closed(s: Situation, a: Assessment, r: Record) -> Decision:
    """A closed record: clean up after it, repeat that a person has the node, remove it, or go on to the next
    fault."""
    if answer := wanted_back(s, r) or tidy_up(s, r) or forget_cleared(s, r):
        return answer
    if why := alone(s, r):
        return hold(why, REPEAT, "lost")
    if r.phase is Phase.HANDED_OVER:
        return in_a_persons_hands(s, a, r)
    return out_of_date(s, a, r) or _begun(s, a)


def _without_a_record(s: Situation, a: Assessment) -> Decision:
    """Open one at the first sign of a fault. Marks of ours stay meanwhile: they may be for a fault that
    nothing shows any more, and who knows of it may not know that its record was deleted."""
    begun = _begun(s, a)
    if begun.verb is not Verb.LEAVE or not has_our_marks(s):
        return begun
    return hold(of_no_record(s.node_name), REPEAT, "marked")


def _begun(s: Situation, a: Assessment) -> Decision:
    """Open a record. Where nothing is tolerated, the controller writes it as confirmed at once.

    That saves a write for each node, of which a thousand may fail together. Where the Node is not Ready, more
    has to be read before the record can be confirmed.
    """
    begun = begin(s, a)
    if not s.afar or not isinstance(begun.effect, WriteRecord) or s.node is None or not s.node.ready:
        return begun
    r = begun.effect.record
    opened = replace(s, record=r)
    after = go_on(opened, assess(opened), r)
    if not isinstance(after.effect, WriteRecord) or after.effect.record.phase is not Phase.WAITING:
        return begun
    return replace(after, before=begun)


# ---------------------------------------------------------------- an open record of our own node


def go_on(s: Situation, a: Assessment, r: Record) -> Decision:
    """An open record: the questions of ``THERE`` and ``FIRST``, then those of its phase."""
    d = first_answer(THERE, s, a, r)
    if d is None and took_its_place(s, r):
        d = recovering(s, a, r) if r.phase is Phase.RECOVERING else prove(s, a, r)
        return accounted(s, r, slot_put_back(s, a, r, d))
    d = d or first_answer(FIRST, s, a, r)
    if d and d.held is None:
        return d
    d = d or _with_what_holds_the_fault(s, a, r, PHASES[r.phase](s, a, r))
    return accounted(s, r, slot_put_back(s, a, r, d))


def _with_what_holds_the_fault(s: Situation, a: Assessment, r: Record, d: Decision) -> Decision:
    """``d``, and why the fault is kept that its source has taken back."""
    if d.effect is not None or not a.found or r.phase is Phase.PROVING or r.in_flight:
        return d
    why = held(s, a.found[0].fault, a.found[0].rule)
    return replace(d, reason=f"{d.reason}; {why}") if why else d


def _another_agents(s: Situation, a: Assessment, r: Record) -> Decision | None:
    if s.lease.mine or s.lease.stale:
        return None
    return wait(f"another agent works on this node ({s.lease.holder})", key="lease")


def _no_node(s: Situation, a: Assessment, r: Record) -> Decision | None:
    if s.node is None:
        why = "the Node is not there; the agent that has its record finds out whether its machine is gone"
        if s.gate is None or (r.node, r.uid) in places(s.gate) or queue_is_full(s.gate):
            return wait(why, key="no-node")
        return act(Join(r.uid), f"{why}; it joins the queue, where others find it")
    return hold(s.machine_wait, key="uninitialised", held=Cause.NODE) if s.machine_wait else None


def _elsewhere(s: Situation, a: Assessment, r: Record) -> Decision | None:
    """Another machine goes by this name, and the record is about that one. This agent still runs on the old
    machine, so the record is not for it."""
    assert s.node is not None
    if not s.elsewhere or s.machine is None or s.machine.id != r.machine.id:
        return None
    return wait(s.elsewhere, key="elsewhere")


def took_its_place(s: Situation, r: Record) -> bool:
    """Whether another machine goes by this name while a replacement is in flight, which waited for that."""
    return r.being_replaced and other_machine(s, r) is not None


def _other_machine(s: Situation, a: Assessment, r: Record) -> Decision | None:
    """Another machine goes by this name: superseded, and nothing is called (law 4)."""
    if (other := other_machine(s, r)) is None:
        return None
    why = f"the machine behind {r.node} is {other} now, not {r.machine.id}"
    if r.intent is None or not r.in_flight:
        more = "more " if r.progress.acted else ""
        why = f"{why}: nothing {more}is called{after_the_last_step(r)}"
    else:  # the health of another machine proves nothing about this one's reboot
        why = f"{why}: its {r.intent.action} cannot be proved any more"
    return end(s, r, Event.OTHER_MACHINE, why, Report(EventReason.SUPERSEDED))


def _new_node_object(s: Situation, a: Assessment, r: Record) -> Decision | None:
    """The same machine under a new Node object, which has no marks of ours: go on.

    No step sets them again while a call is in flight or its effect is proved, so they are set here. Before
    the call the next step sets them, and what came to the node until then is drained, too.
    """
    assert s.node is not None
    if s.machine is None or s.node.uid == r.node_uid:
        return None
    why = f"{r.node} was registered again by the same machine: the recovery goes on"
    if r.marks and (r.in_flight or r.phase is Phase.PROVING):
        if brakes.first_reason(brakes.FORBIDDEN, s):
            return None  # not yet
        return marked_anew(s, drain_again(r, s.now) if r.in_flight else r, why)
    if r.phase is Phase.RECOVERING and not r.in_flight and (again := drain_again(r, s.now)) is not r:
        r, why = again, f"{why} with another drain"
    changed = replace(note(r, s.now, HistoryEvent.REGISTERED, why), node_uid=s.node.uid, marks=Marks())
    return act(WriteRecord(changed), why, Report(EventReason.REGISTERED_ANEW))


def _rebooted(s: Situation, a: Assessment, r: Record) -> Decision | None:
    """An unexpected boot may have cured the machine: on to probation. Nothing is called or closed (law 4)."""
    assert s.node is not None
    if not s.node.boot_id or not r.boot_id or s.node.boot_id == r.boot_id:
        return None
    if r.intent is not None and r.in_flight:
        if r.intent.replaces:
            # A machine that is being replaced may well boot once more. The replacement goes on.
            booted = replace(r, boot_id=s.node.boot_id)
            return act(WriteRecord(booted), "the machine booted while being replaced")
        if r.phase is Phase.RECOVERING:
            return None  # the boot was asked for, and is the evidence that ``in_flight`` looks for
    if r.validation is not None:
        why = f"the machine booted while it was validated by Job {r.validation.job}"
        return fault_returned(s, a, replace(r, boot_id=s.node.boot_id), why)
    boots = (*r.progress.boots, s.node.boot_id)
    if len(boots) > min(s.policy.limits.attempts.max, MOST_BOOTS):
        here = replace(r, boot_id=s.node.boot_id)  # else this very boot would pass for one that ended it
        return hand_over(s, here, f"the machine booted {len(boots)} times without being asked to")
    step = _boots_late(r)
    how = f"after its {step} was given up" if step else "without being asked to"
    why = with_node_behind(s, f"the machine booted {how}: probation begins")
    changed = replace(
        note(r, s.now, HistoryEvent.REBOOTED, why),
        phase=move(r.phase, Event.REBOOTED),
        phase_since=s.now,
        boot_id=s.node.boot_id,
        faults=tuple(replace(f, cleared=True) for f in r.faults),
        probation=r.probation or DEFAULT_PROBATION,
        validation=None,
        progress=replace(r.progress, boots=boots, proving_since=s.now),
    )
    return act(WriteRecord(changed), why, Report(EventReason.REBOOTED, warning=True))


def _boots_late(r: Record) -> str:
    """The last step that was to boot the machine, if no boot had come of it; else "". For people."""
    asked = [x for x in r.progress.submitted if x.action in BOOTS and r.phase is Phase.RECOVERING]
    came = (HistoryEvent.EVIDENCE, HistoryEvent.REBOOTED)
    if not asked or any(x.event in came and x.attempt >= asked[-1].number for x in r.history):
        return ""
    return asked[-1].action


def _disowned(s: Situation, a: Assessment, r: Record) -> Decision | None:
    """A taint of ours that somebody changed is theirs now. (One that was taken off holds the next step.)"""
    assert s.node is not None
    theirs = tuple(t for t in r.marks.taints if anothers(s.node, t))
    return disown(r, theirs, "changed") if theirs else None


def _wanted_back(s: Situation, a: Assessment, r: Record) -> Decision | None:
    return wanted_back(s, r)


def _given_up(s: Situation, a: Assessment, r: Record) -> Decision | None:
    """An agent that runs on its node shows that the machine is up; the controller asks its provider."""
    return stuck_pods(s, a, r) if s.afar else up_again(s, r)


def _unrecorded(s: Situation, a: Assessment, r: Record) -> Decision | None:
    """Faults seen later are added to the record. They never restart, shorten or downgrade the ladder."""
    if r.phase is Phase.PROVING:
        return None
    known = {f.key for f in r.faults}
    new = [d for d in a.found if d.fault.key not in known]
    if not new:
        return None
    changed = replace(r, faults=kept((*r.faults, *map(as_treated, new))))
    added = changed.faults[len(r.faults) :]
    if not added:
        return None
    news = told_apart((*r.faults, *added))[len(told_apart(r.faults)) :]
    if not news:
        sources = ", ".join(dict.fromkeys(f.source for f in added))
        return act(WriteRecord(changed), f"{', '.join(map(name, added))} is stated by {sources} as well")
    why = f"{', '.join(map(name, news))} was seen too"
    noted = note(changed, s.now, HistoryEvent.FAULT, why)
    return act(WriteRecord(noted), why, Report(EventReason.FAULT_SEEN, warning=True))


def _marked_anew(s: Situation, a: Assessment, r: Record) -> Decision | None:
    """Where a mark was taken off and put there again, the record gets the new one.

    After a boot, only the record shows that the mark is older than the boot. A mark that is first seen after
    a boot may belong to it: a check at boot may have put it there before anybody looked.
    """
    assert s.node is not None
    if r.phase is Phase.PROVING:
        return None
    same_boot = s.node.boot_id == r.boot_id
    lasting = (p for reading in s.readings for p in reading.problems if p.lasting)
    there = {p.key: p for p in lasting if same_boot or put_before(p, s)}
    changed = {f.key: there[f.key].life for f in r.faults if f.key in there and another_life(f, there[f.key])}
    if not changed:
        return None
    faults = tuple(replace(f, life=changed.get(f.key, f.life)) for f in r.faults)
    names = ", ".join(name(f) for f in r.faults if f.key in changed)
    return act(WriteRecord(replace(r, faults=faults)), f"the mark of {names} was put on anew")


def _detector_anew(s: Situation, a: Assessment, r: Record) -> Decision | None:
    """Write down that a detector was started anew.

    What it states from then on is a new fault once a person has released this one, even with the same count,
    and even after this process has ended.
    """
    changed = in_their_lives(s, r) if r.phase is not Phase.PROVING else r
    if changed == r:
        return None
    anew = [f for f, old in zip(changed.faults, r.faults, strict=True) if f != old]
    why = "states it again" if not anew[0].cleared else "was started anew"
    return act(WriteRecord(changed), f"the detector that stated {', '.join(map(name, anew))} {why}")


def _known_since(s: Situation, a: Assessment, r: Record) -> Decision | None:
    return known_since(s, r)


def _hold_begins(s: Situation, a: Assessment, r: Record) -> Decision | None:
    """Write down from when the hold of a fault runs that its source took back: so it survives this
    process."""
    change = noted(s, r) if r.phase is not Phase.PROVING else None
    return act(WriteRecord(change[0]), change[1]) if change else None


def _boot_confirmed(s: Situation, a: Assessment, r: Record) -> Decision | None:
    """That kernel and Node agree goes on the record: a Node that is restored later may be behind."""
    if r.boot_confirmed or not agrees(s) or s.kernel_boot != r.boot_id:
        return None
    return act(WriteRecord(replace(r, boot_confirmed=True)), f"the kernel confirms boot {r.boot_id}")


THERE = (_another_agents, _no_node, _elsewhere)
"""Asked of every open record before anything else: whether anything may be done about it now."""

FIRST = (
    _other_machine,
    _wanted_back,
    _new_node_object,
    _disowned,
    _rebooted,
    _given_up,
    _boot_confirmed,
    _unrecorded,
    _marked_anew,
    _detector_anew,
    _known_since,
    _hold_begins,
)
"""Asked of every open record next, before its phase's own questions; the first answer counts."""

PHASES = {Phase.SUSPECT: suspect, Phase.WAITING: waiting, Phase.RECOVERING: recovering, Phase.PROVING: prove}
