"""May a recovery start: is its fault confirmed, and is there a slot of the budget for it? PURE.

The phase suspect tolerates a fault for as long as its rule says. The phase waiting is the queue for a slot.
What is done is chosen in ``chosen_ladder.py``, and what a start writes is in ``start.py``.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from recovery.decide import brakes, budget
from recovery.decide.assessment import Assessment
from recovery.decide.budget import line_of
from recovery.decide.chosen_ladder import deciding, remedy_left, way_back, with_ladder_of
from recovery.decide.claims import claimed_twice, same_machine
from recovery.decide.decision import (
    POLLED,
    SELDOM,
    Decision,
    EventReason,
    Join,
    Report,
    WriteRecord,
    act,
    first_answer,
    hold,
    until,
    wait,
)
from recovery.decide.diagnosis import (
    SIGNAL_UNKNOWN,
    Diagnosis,
    as_treated,
    came_at,
    diagnosed,
    matches,
    name,
    speaks_of,
    tolerated,
    was_treated,
    why_reported,
)
from recovery.decide.doubt import how_it_ended, read_no_more
from recovery.decide.endings import close_excluded, end_without_us, hand_over
from recovery.decide.history import HistoryEvent, note, told
from recovery.decide.latch import has_ended, left_where_some_ended, may_be_gone, one_has_ended, one_that_ended
from recovery.decide.lifecycle import Event, move
from recovery.decide.provider_step import not_yet, unanswered
from recovery.decide.situation import Situation
from recovery.decide.start import granted, take_slot
from recovery.decide.tried import BY_KEY, held_together, over
from recovery.decide.windows import next_opening, open_since, windows_of
from recovery.decide.witness import unconfirmed
from recovery.model import Kind, Record
from recovery.quick import replace
from recovery.units import span


def suspect(s: Situation, a: Assessment, r: Record) -> Decision:
    """The phase suspect: tolerate the fault for as long as its rule says, then report or queue it."""
    if a.taken_back:
        return withdrawn(s, r)
    d = deciding(s, (_by_the_rule_it_met(d, s) for d in a.found))  # a record has one fault at least
    if s.now < d.due:
        return _not_due_yet(s, d)
    if blind := may_be_gone(s, (d.fault,)):
        return _unknown_by_now(s, a, r, d, blind) or wait(f"{name(d.fault)}: {blind}", key="unreadable")
    if not d.treat:
        return hand_over(s, r, f"{name(d.fault)}: {why_reported(d)}", plain=True)
    if s.machine_problem:
        return hand_over(s, r, f"{name(d.fault)}: {s.machine_problem}")
    return queued(s, a, r, d)


def _not_due_yet(s: Situation, d: Diagnosis) -> Decision:
    """The rule of ``d`` tolerates it for a while."""
    return wait(tolerated(d, d.due - s.now), until(d.due, s.now), "tolerated")


def _unknown_by_now(s: Situation, a: Assessment, r: Record, d: Diagnosis, blind: str) -> Decision | None:
    """Hand the fault over where its source is not read any more, or where its silence is a fault by now."""
    if not any(x.fault.type == SIGNAL_UNKNOWN for x in a.found) and not read_no_more(s, d.fault):
        return None
    why = f"{name(d.fault)} was seen, and nothing is known of it since: {blind}"
    return hand_over(s, r, why, plain=True)


def withdrawn(s: Situation, r: Record) -> Decision:
    return end_without_us(s, r, how_it_ended(one_that_ended(s, r), s))


def queued(s: Situation, a: Assessment, r: Record, d: Diagnosis) -> Decision:
    """The fault is confirmed: choose the ladder, and join the queue.

    Once the recovery has started (``_was_started``), its ladder stays as it is, even if the policy changes.
    Until then it is chosen again where another fault came (``_earlier_rule``), where this one has ended
    (``_ended_before_the_start``), and where the policy was changed (``_by_another_policy``).
    """
    chosen, why = with_ladder_of(s, a, r, d)
    confirmed = replace(chosen, phase=move(r.phase, Event.CONFIRMED), phase_since=s.now)
    return act(WriteRecord(confirmed), why, Report(EventReason.CONFIRMED, warning=True))


def _chosen_again(
    s: Situation, a: Assessment, r: Record, d: Diagnosis, *, before: str = "", after: str = ""
) -> Decision:
    """The record waits for what the rule of ``d`` says from now on. Its sentence says why it was chosen."""
    record, why = with_ladder_of(s, a, r, d)
    return act(WriteRecord(record), f"{before}{why}{after}", Report(EventReason.CONFIRMED, warning=True))


# ---------------------------------------------------------------- in the queue


def waiting(s: Situation, a: Assessment, r: Record) -> Decision:
    """The phase waiting: all questions go by one reading of the gate, and the slot is taken on that one.

    If the gate has changed since, the compare-and-swap fails and nothing is started.
    """
    d = first_answer(QUEUE, s, a, r) or take_slot(s, r)
    return _said_no_more(s, r, d) or d


def _said_no_more(s: Situation, r: Record, d: Decision) -> Decision | None:
    """What holds it by its record does so no longer, and ``d`` says what does: the line of before would tell
    people to wait for an hour that is past, or to approve what was approved. What comes and goes all the time
    is written now and then, and its last line takes the place of those before, which would push out what the
    history says of the fault."""
    last = r.history[-1].event if r.history else ""
    if last not in NO_MORE or d.effect is not None:
        return None
    key, words = NO_MORE[HistoryEvent(last)]
    if d.key not in _asked_after(key):
        return None
    if any(x.event == HistoryEvent.QUEUED and s.now - x.at < SAID_AGAIN for x in r.history):
        return None
    why = f"{_subject(s, r)} for a slot of the budget: {words}"
    before = (x for x in r.history[:-1] if x.at < r.phase_since or x.event not in (last, HistoryEvent.QUEUED))
    once = replace(r, history=(*before, r.history[-1]))
    return act(WriteRecord(note(once, s.now, HistoryEvent.QUEUED, why)), why)


def _asked_after(key: str) -> tuple[str, ...]:
    """The keys of what is only asked where the brake ``key`` does not hold."""
    before, after = (tuple(x for x, _ in some) for some in (brakes.CHEAP, brakes.BY_GROUP))
    keys = (*before, "witness", "preflight", "not-yet", "brake", *after)
    return keys[keys.index(key) + 1 :]


def _cleared_or_excluded(s: Situation, a: Assessment, r: Record) -> Decision | None:
    if a.taken_back:
        return withdrawn(s, r)
    excluded = brakes.excluded(s)
    return close_excluded(s, r, excluded) if excluded else None


def _no_gate(s: Situation, a: Assessment, r: Record) -> Decision | None:
    if s.gate_problem:
        return hold(f"{_subject(s, r)}: the gate cannot be used: {s.gate_problem}", key="gate")
    return wait(f"{_subject(s, r)}: the gate cannot be read", key="gate") if s.gate is None else None


def _has_a_slot(s: Situation, a: Assessment, r: Record) -> Decision | None:
    return granted(s, a, r) if a.slot else None


def _was_started(r: Record) -> bool:
    """Whether the recovery was started before, and is only in the queue again. Then its ladder is frozen."""
    return bool(r.rung) or r.progress.acted


def _earlier_rule(s: Situation, a: Assessment, r: Record) -> Decision | None:
    """Of all faults that are there at the start, the first rule of the policy chooses the ladder. So one that
    came, or was not tolerated any longer, while the record waited may choose another (ruling 20)."""
    if _was_started(r):
        return None
    rules = s.policy.rules
    chosen = next((i for i, rule in enumerate(rules) if rule.name == r.rule), 0)
    urgent = bool(rules) and rules[chosen].urgent  # it may have taken over, to wait for no window
    earlier = (d for d in a.found if d.treat and d.rule and d.rank < chosen and d.rule.urgent >= urgent)
    there = (d for d in earlier if not has_ended(d.fault, s))
    came = (d for d in there if r.phase_since < max(d.due, min(came_at(d.fault), s.now)) <= s.now)
    d = next((d for d in came if not may_be_gone(s, (d.fault,))), None)
    return _chosen_again(s, a, r, d, after=", an earlier rule") if d is not None else None


def _ended_before_the_start(s: Situation, a: Assessment, r: Record) -> Decision | None:
    """The fault that the ladder was chosen for has ended, and another one is left. That one is treated by its
    own rule, once that does not tolerate it any longer (ruling 20)."""
    left = left_where_some_ended(s, a.found)
    if not left or _was_started(r):
        return None
    if any(d.rule_name == r.rule and d.due <= s.now for d in left):
        return None
    d = min(left, key=lambda d: (may_be_gone(s, (d.fault,)), s.now < d.due, not d.treat, d.rank, d.due))
    if s.now < d.due:
        return _not_due_yet(s, d)
    if may_be_gone(s, (d.fault,)):
        return None  # so may all that is left, and ``_blind_by_now`` holds it
    gone = one_has_ended(s, r)
    if not d.treat:
        return hand_over(s, r, f"{gone}; {name(d.fault)}: {why_reported(d)}", plain=True)
    return _chosen_again(s, a, r, d, before=f"{gone}; ")


def _by_another_policy(s: Situation, a: Assessment, r: Record) -> Decision | None:
    """The policy or the node's labels were changed, so that another rule or ladder applies by now.

    The ladder is frozen only when the slot is taken (ruling 20). A person who pauses, corrects a rule and
    resumes would else see the old remedy on all nodes that waited.
    """
    if _was_started(r) or s.provider is None:
        return None
    there = [_by_the_rule_it_met(d, s) for d in a.found if not has_ended(d.fault, s)]
    if not there or any(_waits_by(d, r) for d in there):
        return None
    d = min(there, key=lambda d: (not d.treat, s.now < d.due, may_be_gone(s, (d.fault,)), d.rank, d.due))
    if s.now < d.due:
        return _not_due_yet(s, d)
    if d.treat and left_where_some_ended(s, a.found) is not None and may_be_gone(s, (d.fault,)):
        return None  # what it was for has ended, no policy was changed; ``_blind_by_now`` holds the rest
    if d.treat:
        return _chosen_again(s, a, r, d, after=", by the policy as it is now")
    if blind := may_be_gone(s, (d.fault,)):
        why = f"{_subject(s, r)}: {blind}"
        return _unknown_by_now(s, a, r, d, blind) or hold(why, _look_again(s, a, r), "unreadable")
    if lost := _labels_lost(s, r, there):  # whoever sets them may set them again in a moment
        return hold(f"{_subject(s, r)}: {lost}", SELDOM, "labels")
    by_now = {d.fault.key: as_treated(d) for d in there}
    only_told = replace(r, faults=tuple(by_now.get(f.key, f) for f in r.faults), ladder=())
    return hand_over(s, only_told, f"{name(d.fault)}: {why_reported(d)}", plain=True)


def _waits_by(d: Diagnosis, r: Record) -> bool:
    """Whether ``r`` waits for what is to be done about ``d`` by now."""
    same_rule, same_steps = d.rule_name == r.rule, remedy_left(d, r) == r.ladder
    return same_rule and same_steps and way_back(d) == (r.validate, r.probation)


def _labels_lost(s: Situation, r: Record, there: list[Diagnosis]) -> str:
    """That the rule of ``r`` would match the faults, if the node still had its labels; empty if not."""
    rule = next((x for x in s.policy.rules if x.name == r.rule), None)
    if rule is None or not any(speaks_of(rule, d.fault) for d in there):
        return ""
    if any(matches(rule, d.fault, s.node) for d in there):
        return ""
    labels = ",".join(f"{key}={value}" for key, value in rule.match.node_labels.items())
    return f"rule {rule.name}, by which it waits, is for nodes with {labels}"


def _by_the_rule_it_met(d: Diagnosis, s: Situation) -> Diagnosis:
    """``d``; where its fault was counted, by the rule whose ``times`` it met, unless it meets an earlier one.

    While it waits, the count falls, or begins anew with the agent, and meets only a later rule. That is no
    change of the policy.
    """
    if d.fault.kind is not Kind.EDGE:
        return d
    met = diagnosed(d.fault, s)
    if d.treat and d.rank < met.rank:
        return d
    return replace(met, since=min(d.since, came_at(d.fault)) if d.since else None)


def _not_in_queue(s: Situation, a: Assessment, r: Record) -> Decision | None:
    """Join the queue. If it is full, the record waits by itself, as if it stood at the end of the queue.

    No Event says so: where it waits for longer than the settle time, one says what for.
    """
    if waits_behind(s, r) or line_of(s.gate, r.uid) is not None:
        return None
    if brakes.needs_no_queue(s) and first_answer(HELD, s, a, r) is None:
        return None  # the slot can be taken at once
    return act(Join(r.uid), f"{_subject(s, r)} for a slot of the budget")


def waits_behind(s: Situation, r: Record) -> bool:
    """Whether the record has no line in the queue on the gate, since that is full."""
    return s.gate is not None and budget.waits_behind(s.gate, r.uid)


def _forbidden(s: Situation, a: Assessment, r: Record) -> Decision | None:
    found = brakes.first_reason(brakes.FORBIDDEN, s)
    return hold(f"{_subject(s, r)}: {found[1]}", SELDOM, found[0]) if found else None


SAID = {"window": HistoryEvent.WINDOW, "blocked": HistoryEvent.BLOCKED}
"""What a line of history is about that says what holds a record, by the brake's key."""


def _not_now(s: Situation, a: Assessment, r: Record) -> Decision | None:
    """Outside its windows, or blocked. A fault of an urgent rule waits for neither: its rule takes over."""
    found = brakes.first_reason(brakes.NOT_NOW, s)
    if found is None:
        return None
    if (d := urgent(s, a)) is not None:
        return _chosen_again(s, a, r, d, after=", which is urgent")
    key, reason = found
    why = f"{_subject(s, r)}: {reason}"
    if not _said(r, key, reason):  # on the record, where ``status`` reads it
        return act(WriteRecord(note(r, s.now, SAID[key], why)), why)
    opens = next_opening(windows_of(s), s.now)
    again = until(opens[0], s.now, SELDOM) if key == "window" and opens else SELDOM
    return hold(why, again, key, held=BY_KEY[key])


def urgent(s: Situation, a: Assessment) -> Diagnosis | None:
    """The first fault of an urgent rule that is to be treated now."""
    found = (d for d in a.found if d.treat and d.rule and d.rule.urgent and d.due <= s.now)
    return next((d for d in found if not has_ended(d.fault, s)), None)


NO_MORE = {
    HistoryEvent.WINDOW: ("window", "its window is open"),
    HistoryEvent.BLOCKED: ("blocked", "nothing blocks it any more"),
    HistoryEvent.CORRELATED: ("correlated", "it is not held as one of many any more"),
    HistoryEvent.UNANSWERED: ("preflight", "its provider answers"),
}
"""By the line of history that says what holds a record: the brake's key, and what is said once it lets go."""
SAID_AGAIN = timedelta(minutes=10)
"""How often a record says at most that what held it does so no longer."""


def _said(r: Record, key: str, reason: str) -> bool:
    """Whether the record says so already. What blocks may change every minute, so once is enough."""
    last = r.history[-1] if r.history else None
    return (
        last is not None and last.event == SAID[key] and (key != "window" or last.sentence.endswith(reason))
    )


def _for_a_person(s: Situation, a: Assessment, r: Record) -> Decision | None:
    refused = s.preflight_refused or claimed_twice(s)
    if refused:
        return hand_over(s, r, refused, outcome="refused")
    used = brakes.attempts_used(s)
    return hand_over(s, r, used) if used else None


def _blind_by_now(s: Situation, a: Assessment, r: Record) -> Decision | None:
    """Nothing starts on a fault that may be gone. One that is known to be there is enough."""
    treated = [d for d in a.found if was_treated(d)]
    blind = may_be_gone(s, (d.fault for d in treated))
    if not blind:
        return None
    waits = hold(f"{_subject(s, r)}: {blind}", _look_again(s, a, r), "unreadable")
    left = (x for x in treated if not has_ended(x.fault, s))
    d = min(left, key=lambda x: read_no_more(s, x.fault))  # as long as one may be heard of, it is waited for
    return _unknown_by_now(s, a, r, d, blind) or waits


def _no_second_witness(s: Situation, a: Assessment, r: Record) -> Decision | None:
    """Nothing starts on one witness alone where the rule wants two. Later, a person decides."""
    why = unconfirmed(s, r)
    if why is None:
        return None
    opened = open_since(windows_of(s), s.now)
    if over(s, r, max(r.phase_since, opened or r.phase_since), r.ladder[0].within):
        return hand_over(s, r, f"{name(r.faults[0])}: {why}")
    return hold(f"{_subject(s, r)}: {why}", _look_again(s, a, r), "witness")


def _held_by_a_brake(s: Situation, a: Assessment, r: Record) -> Decision | None:
    found = brakes.first_reason(brakes.CHEAP, s)
    if found is None:
        return None
    if found[0] == "correlated" and not told(r, HistoryEvent.CORRELATED):
        return held_together(s, r, found[1])
    return hold(f"{_subject(s, r)}: {found[1]}", _look_again(s, a, r), found[0])


def _provider_or_settling(s: Situation, a: Assessment, r: Record) -> Decision | None:
    """The provider gave no answer, other faults may still show, or the provider says "not yet"."""
    joined = joined_at(s, r)
    if s.preflight_retry:
        waits = f"{_subject(s, r)}: {s.preflight_retry}"
        return _silent_for_too_long(s, r) or unanswered(s, r, waits, SELDOM)
    if brakes.settling(s, joined):
        sentence = f"{_subject(s, r)} {span(s.settle)} for other faults to show"
        if s.now - joined < s.settle:
            return wait(sentence, until(joined + s.settle, s.now), "settle")
        others = f"{_subject(s, r)} for the faults of other nodes to be written down"
        return wait(others, _look_again(s, a, r), "settle")
    if s.preflight is not None and (early := not_yet(s, s.preflight)):
        return wait(f"{_subject(s, r)}: {s.preflight.not_yet}", early, "not-yet")
    return None


def _silent_for_too_long(s: Situation, r: Record) -> Decision | None:
    """A machine's own BMC that gives no answer may be broken, and then it never will. (A cloud is back some
    day, and so is a rack that has lost its power: its nodes are not Ready.)"""
    rung = next((x for x in r.ladder if x.do.provider_action), None)
    if rung is None or s.provider is None or s.node is None or not s.node.ready:
        return None
    if rung.do not in s.provider.out_of_band or s.unanswered_for < rung.within:
        return None
    late = f"{rung.do.value} could not be asked for within {span(rung.within)}"
    return hand_over(s, r, f"{late}: {s.preflight_retry}")


def _brake_and_turn(s: Situation, a: Assessment, r: Record) -> Decision | None:
    turn = brakes.turn(s)
    questions = brakes.STARTING
    if s.census is None:  # not counted: it is another's turn, or the group holds it whatever the count says
        questions = brakes.BY_GROUP if turn else (*brakes.BY_GROUP, ("brake", brakes.brake))
    if found := brakes.first_reason(questions, s):
        return hold(f"{_subject(s, r)}: {found[1]}", _look_again(s, a, r), found[0])
    if not turn:
        return None
    places = max(1, len(a.ahead) - s.abreast)
    return wait(f"{_subject(s, r)}: {turn}", min(brakes.STAGGER * places, SELDOM), "turn")


def _under_another_name(s: Situation, a: Assessment, r: Record) -> Decision | None:
    """The machine registered under another name while its recovery under the first one goes on: what that has
    asked for may still come, and is not asked for once more."""
    others = s.gate.slots if s.gate is not None else ()
    slot = next((x for x in others if x.node != r.node and same_machine(x.machine, r.machine.id)), None)
    if slot is None:
        return None
    why = f"{slot.node}, whose recovery has not ended, is the same machine, {r.machine.id}"
    return hold(f"{_subject(s, r)}: {why}", SELDOM, "one-machine")


def joined_at(s: Situation, r: Record) -> datetime:
    """Since when others can see that this record waits."""
    line = line_of(s.gate, r.uid)
    return line.since if line else r.phase_since


HELD = (
    _forbidden,
    _not_now,
    _for_a_person,
    _blind_by_now,
    _held_by_a_brake,
    _no_second_witness,
    _provider_or_settling,
    _brake_and_turn,
    _under_another_name,
)
"""What holds a record, in the queue or before it."""
QUEUE = (
    _cleared_or_excluded,
    _no_gate,
    _has_a_slot,
    _earlier_rule,
    _ended_before_the_start,
    _by_another_policy,
    _not_in_queue,
    *HELD,
)
"""What keeps a record in the queue from a slot, in this order; the first answer counts."""


def _subject(s: Situation, r: Record) -> str:
    behind = ""
    if s.gate is not None and waits_behind(s, r):
        behind = f" behind the {len(s.gate.open)} in the queue, which is full"
    return f"{name(r.faults[0])}: waiting{behind}"


def _look_again(s: Situation, a: Assessment, r: Record) -> timedelta:
    """When to look again: the further back in the queue, the later."""
    if waits_behind(s, r):
        return SELDOM
    return min(POLLED + brakes.STAGGER * len(a.ahead), SELDOM)
