"""What is the next step of a recovery that has its slot? PURE.

Nothing destructive is decided here without the questions of ``brakes.GOING_ON``. Observing, proving and
taking our marks off are never braked (law 8). ``in_flight`` goes on after a call, ``probation`` after its
evidence.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from recovery.decide import brakes, drain, tried
from recovery.decide.assessment import Assessment
from recovery.decide.budget import slot_again
from recovery.decide.decision import (
    Decision,
    EventReason,
    Evict,
    Mark,
    Report,
    RestoreSlot,
    TellPods,
    WriteRecord,
    act,
    hold,
    until,
    wait,
)
from recovery.decide.diagnosis import came_at, name, not_by_its_own_rule, tolerated
from recovery.decide.endings import (
    close_excluded,
    end_without_us,
    hand_over,
    has_our_marks,
    marked_by,
    moved_to_rung,
    next_rung,
)
from recovery.decide.history import HistoryEvent, note, told
from recovery.decide.in_flight import begin_probation, observe_call, without_gate
from recovery.decide.latch import left_where_some_ended, one_has_ended, only_tolerated
from recovery.decide.marks import CORDON, anothers, cordoned_by_us, uncordoned, undone
from recovery.decide.provider_step import provider_step
from recovery.decide.room import MOST_RUNGS
from recovery.decide.situation import Situation
from recovery.model import (
    Cause,
    Marks,
    NodeView,
    Phase,
    Record,
    Rung,
    Step,
    Taint,
    Then,
)
from recovery.quick import replace
from recovery.units import span

MARKED = {Step.CORDON: "cordoned", Step.TAINT: "tainted"}
"""Steps that are over once the marks are on the Node, and what it is then."""
UNCORDONED = frozenset({Step.NOTIFY, Step.TAINT})
"""Steps that set no cordon."""


def recovering(s: Situation, a: Assessment, r: Record) -> Decision:
    """The phase recovering: one effect on the current rung, or the reason why not yet."""
    if r.in_flight:
        return observe_call(s, r)
    if unread := without_gate(s):
        return unread
    if reason := brakes.excluded(s):
        return close_excluded(s, r, reason)
    if a.taken_back:
        return no_fault_left(s, r)
    if d := only_tolerated(s, a.found):
        # It is remembered, and not stated now: else this recovery would be over.
        why = tolerated(d, d.due - s.now)
        return wait(why, until(d.due, s.now), "tolerated", held=Cause.UNREADABLE)
    if a.slot is None:
        return without_slot(s, r)
    rung = r.step
    if rung is None:
        return hand_over(s, r, "every step of the remedy was done, and the machine still needs a person")
    if rung.do is Step.NOTIFY:
        return next_rung(s, r, f"{name(r.faults[0])}: reported")
    if why := only_what_came_since(s, a, r, rung):
        return hand_over(s, r, why)
    return take_step(s, r, rung)


def no_fault_left(s: Situation, r: Record) -> Decision:
    """The fault was cleared by its own source, so nothing more is done to the machine.

    After a destructive call the node is given back by proof only.
    """
    gone = one_has_ended(s, r)
    if not r.progress.acted:
        why = f"{gone} before anything destructive"
        return end_without_us(s, r, why)
    last = r.progress.submitted[-1]
    return begin_probation(s, replace(r, intent=None), f"{gone} after {last.action or 'the last step'}")


def only_what_came_since(s: Situation, a: Assessment, r: Record, rung: Rung) -> str:
    """Why a person has to go on: what the ladder was for has ended, and of what came after the start none
    calls for this step by its own rule (0049). What was there at the start goes by the ladder (ruling 20)."""
    left = left_where_some_ended(s, a.found)
    if not left or not r.starts or not (rung.do is Step.DRAIN or rung.do.provider_action):
        return ""
    due = [d for d in left if d.due <= s.now]
    if any(came_at(d.fault) <= r.starts[-1].at or d.rule_name == r.rule for d in due):
        return ""
    but = [not_by_its_own_rule(d, rung.do) for d in due]
    if not but or not all(but):
        return ""
    return f"{one_has_ended(s, r)}; {name(due[0].fault)} is there: {but[0]}"


def without_slot(s: Situation, r: Record) -> Decision:
    """The slot is missing, so somebody edited or deleted the gate.

    A node that is out of service already gets its slot back whatever the budget says. One to which nothing
    was done yet waits while the budget is used up.
    """
    out = bool(r.marks) or has_our_marks(s) or r.progress.acted
    if not out and (full := brakes.budget_after_all(s)):
        why = f"{name(r.faults[0])}: the slot was lost before anything was done: {full}"
        return hold(why, key="budget", held=Cause.SLOT)
    return slot_back(r, s.now)


def slot_put_back(s: Situation, a: Assessment, r: Record, d: Decision) -> Decision:
    """``d``; or, where it only waits and the slot is missing on the gate, put the slot back.

    That is for a call in flight, and for the probation of a node that is still out of service: it booted by
    itself, say. Without the slot others would start meanwhile, and no peer would look after this record.
    """
    known = s.gate is not None and not s.gate_problem
    out = r.in_flight or (r.phase is Phase.PROVING and marked_by(s, r))
    if d.effect is not None or not known or a.slot is not None or not out:
        return d
    return slot_back(r, s.now)


def slot_back(r: Record, now: datetime) -> Decision:
    return act(
        RestoreSlot(slot_again(r, now)), "the slot of this recovery was missing on the gate and is put back"
    )


def take_step(s: Situation, r: Record, rung: Rung) -> Decision:
    assert s.node is not None
    what = f"{name(r.faults[0])}: {rung}"
    if gone := undone(s.node, r.marks) or _uncordoned(s.node, r):
        return hold(f"{what}: {gone}", key="undone", held=Cause.MARKS)
    if rung.do is not Step.DRAIN and tried.was_held(s, r, Cause.MARKS) and (d := _drain_anew(s, r, what)):
        return d
    plan = drain_plan(s, r) if rung.do is Step.DRAIN else None
    if plan is not None and not plan.left:
        return drained(s, r, plan)
    if found := brakes.first_reason(brakes.GOING_ON, s):
        if found[0] == "correlated" and not told(r, HistoryEvent.CORRELATED):
            return tried.held_together(s, r, found[1])
        return hold(f"{what}: {found[1]}", key=found[0], held=tried.BY_KEY[found[0]])
    if r.history and r.history[-1].event == HistoryEvent.CORRELATED:
        why = f"{what} goes on, as it is not held any more"
        return act(WriteRecord(note(r, s.now, HistoryEvent.RUNG, why)), why)
    if plan is not None and (late := drain_late(s, r, rung, plan)):
        return late
    wanted = marks_wanted(s, r, rung)
    if wanted != r.marks and CORDON in s.refusals:
        return _cordon_refused(s, r, rung, what)
    if wanted != r.marks:
        new = [str(t) for t in wanted.taints if t not in r.marks.taints]
        how = " and ".join(["cordoned"] * wanted.cordoned + [f"tainted {t}" for t in new]) or "tainted"
        marking = act(Mark(wanted), f"{how} for {name(r.faults[0])}", Report(EventReason.CORDONED))
        return _and_on(s, r, rung, marking, wanted) if s.afar and rung.do in MARKED else marking
    if rung.do in MARKED:
        return _marked(s, r, rung)
    if rung.do is Step.DRAIN:
        return go_on_draining(s, r, plan)
    return provider_step(s, r, rung)


def _drain_anew(s: Situation, r: Record, what: str) -> Decision | None:
    """Our marks were off for a while after the drain, as where somebody has uncordoned the node and cordoned
    it again: drain what came to it since."""
    if (again := drain_again(r, s.now)) is r:
        return None
    why = f"{what}: somebody had taken marks off {r.node}: it is drained once more"
    return act(WriteRecord(note(again, s.now, HistoryEvent.RUNG, why)), why)


def _cordon_refused(s: Situation, r: Record, rung: Rung, what: str) -> Decision:
    """Nothing goes on without the cordon. Once it was tried for as long as the step may take, a person
    has the node."""
    why = f"{what}: {CORDON} was refused: {s.refusals[CORDON]}"
    if tried.over(s, r, r.rung_since or r.progress.step_since or r.phase_since, rung.within):
        return hand_over(s, r, why)
    return hold(why, key="refused")


def _uncordoned(node: NodeView, r: Record) -> str | None:
    """Somebody took off the cordon of another. A step had found it there, and so had set none of ours."""
    begun = r.rung_since is not None or r.progress.retry_at is not None  # put off, it begins anew
    found = r.ladder[: r.rung + 1] if begun else r.ladder[: r.rung]
    anothers_cordon = r.marks.tainted and not r.marks.cordoned and any(x.do not in UNCORDONED for x in found)
    return uncordoned(node) if anothers_cordon and not node.unschedulable else None


def _marked(s: Situation, r: Record, rung: Rung) -> Decision:
    """The step was to put on marks, and that is done."""
    return next_rung(s, r, f"{name(r.faults[0])}: {r.node} is {MARKED[rung.do]}{_named(s, rung)}")


def _and_on(s: Situation, r: Record, rung: Rung, marking: Decision, wanted: Marks) -> Decision:
    """``marking``, after which the step is over. The controller says so with the same write of the record:
    of a crowd each write is one that the API server has to make a thousand times."""
    after = _marked(s, replace(r, marks=wanted, rung_since=r.rung_since or s.now), rung)
    assert isinstance(after.effect, WriteRecord)
    return replace(after, effect=Mark(wanted, after.effect.record), key=marking.key, before=marking)


def marks_wanted(s: Situation, r: Record, rung: Rung) -> Marks:
    """The marks that the rung needs: our taint always, and the cordon unless another's is there already;
    the taints that this and earlier steps name.

    A cordon with our taint and annotation is ours, even if a crash kept it off the record. The taint step
    alone leaves the cordon out.
    """
    assert s.node is not None
    if rung.do is Step.TAINT:
        return replace(r.marks, tainted=True, taints=taints_wanted(s, r))
    cordoned = r.marks.cordoned or cordoned_by_us(s.node) or not s.node.unschedulable
    return Marks(cordoned=cordoned, tainted=True, taints=taints_wanted(s, r))


def taints_wanted(s: Situation, r: Record) -> tuple[Taint, ...]:
    """The taints that the steps so far name.

    Left out are those whose key and effect another's taint has, which stays as it is. So are those that the
    API server has just refused: they are tried again later, and the recovery goes on without them.
    """
    assert s.node is not None
    node = s.node
    named = dict.fromkeys(x.taint for x in r.ladder[: r.rung + 1] if x.taint is not None)
    return tuple(t for t in named if not anothers(node, t) and str(t) not in s.refusals)


def _named(s: Situation, rung: Rung) -> str:
    """What became of the taint that the step names, as the end of a sentence."""
    assert s.node is not None
    if (taint := rung.taint) is None:
        return ""
    if anothers(s.node, taint):
        return f"; {taint.key}:{taint.effect} was there already, and is left as it is"
    refused = s.refusals.get(str(taint))
    return f", but not {taint}: {refused}" if refused else f", with {taint} as well"


# ---------------------------------------------------------------- drain


def drain_plan(s: Situation, r: Record) -> drain.Plan | None:
    """What the drain does next; None where it has not begun, or the pods were not read."""
    if s.pods is None or r.rung_since is None:
        return None
    return drain.plan(s.pods, s.policy.drain, r.rung_since, s.now, s.refusals, s.fenced)


def drained(s: Situation, r: Record, plan: drain.Plan) -> Decision:
    """The node is empty, but for what no drain takes away. That counts while the drain is held, too: it is
    only seen."""
    assert r.rung_since is not None  # there is a plan only of one that has begun
    held = tried.held_clause(r, s.now)
    took = f"drained in {span(tried.used(s, r, r.rung_since))}{f' ({held})' if held else ''}"
    late = drain.still_there(s.pods or (), s.now)
    return next_rung(s, r, "; ".join(filter(None, (took, plan.staying, late))))


def drain_late(s: Situation, r: Record, rung: Rung, plan: drain.Plan) -> Decision | None:
    """What follows the drain once it was tried for as long as it may take; None while it goes on."""
    assert r.rung_since is not None
    if not tried.over(s, r, r.rung_since, rung.within):
        return None
    held = tried.held_clause(r, s.now)
    late = f"the drain did not end within {span(rung.within)}{f' ({held})' if held else ''}: {plan}"
    if rung.then is Then.FORCE and not plan.never:
        return next_rung(s, r, f"{late}; going on without them, as the policy says")
    if rung.then is Then.HAND_OVER:
        return hand_over(s, r, late)
    return None


def _pods_unknown(s: Situation, r: Record) -> Decision:
    """Which pods are left cannot be read: the drain is tried for as long as it may take, and then ends as its
    policy says."""
    assert r.step is not None
    assert r.rung_since is not None
    why = f"{name(r.faults[0])}: draining, but which pods are left is not known: {s.pods_problem}"
    if not tried.over(s, r, r.rung_since, r.step.within) or r.step.then is Then.HOLD:
        return hold(why, key="drain-blind")
    kept = drain.keeps_some(s.policy.drain)  # one of them may be there
    if kept or r.step.then is Then.HAND_OVER:
        return hand_over(s, r, why)
    return next_rung(s, r, f"{why}; going on without them, as the policy says")


def drain_again(r: Record, now: datetime) -> Record:
    """``r`` with its drain once more before the provider's next step, where one has begun.

    That is for a node that was in service for a while, uncordoned or under another Node object: the pods
    that came meanwhile would end with the machine, and nobody would have asked their disruption budgets.
    Nothing else is done a second time. For a step that was asked for it is too late: the drain goes before
    the one after it.
    """
    first = r.rung + 1 if r.in_flight else r.rung
    if first == r.rung and r.step is not None and r.step.do is Step.DRAIN:
        return r if r.rung_since is None else moved_to_rung(r, r.rung, now)
    drains = [rung for rung in r.ladder[:first] if rung.do is Step.DRAIN]
    nth = next((i for i, rung in enumerate(r.ladder) if i >= first and rung.do.provider_action), None)
    if not drains or nth is None or any(rung.do is Step.DRAIN for rung in r.ladder[first:nth]):
        return r
    if nth == r.rung and r.ladder[nth - 1].do is Step.DRAIN:
        return moved_to_rung(r, nth - 1, now)
    longer = replace(r, ladder=(*r.ladder[:nth], drains[-1], *r.ladder[nth:]))
    if len(longer.ladder) >= MOST_RUNGS:  # a reboot may have to go before it
        return r
    return moved_to_rung(longer, nth, now) if nth == r.rung else longer


def go_on_draining(s: Situation, r: Record, plan: drain.Plan | None) -> Decision:
    if r.rung_since is None:
        return act(WriteRecord(replace(r, rung_since=s.now)), f"{name(r.faults[0])}: the drain begins")
    if plan is None:
        return _pods_unknown(s, r)
    if plan.never:
        return hand_over(s, r, f"{name(r.faults[0])}: {plan.never}")
    assert r.step is not None  # it is the drain
    going = "draining"
    if late := tried.over(s, r, r.rung_since, r.step.within):  # ``drain_late`` has ended all but ``hold``
        going = f"the drain did not end within {span(r.step.within)} and goes on, as the policy says"
    state = f"{name(r.faults[0])}: {going}, {plan}"
    if plan.annotate:
        count = drain.counted(len(plan.annotate))
        sentence = f"{name(r.faults[0])}: {count} annotated before eviction, {plan.annotate[0][0]} first"
        return act(TellPods(plan.annotate), sentence, Report(EventReason.PODS_TOLD))
    most = s.policy.drain.evictions_per_second
    if ask := drain.within_rate(plan.ask, s.evictions_free, most):
        return act(Evict(ask), state)
    if late:  # for as long as it takes, with its slot: somebody has to hear of that
        return hold(state, timedelta(seconds=1), "drain-late")
    key = "drain-refused" if any(str(p) in s.refusals for p in plan.left) else "drain"
    return wait(state, timedelta(seconds=1), key)
