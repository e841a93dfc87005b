"""What has to be read next, before a situation can be decided on? PURE.

The observer reads exactly that and asks again, until nothing more is needed. The cheap things come first, and
an expensive one is read only if they leave a reason to. A node that waits for its budget makes no request to
the cloud.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from recovery.decide import brakes
from recovery.decide.assessment import assess
from recovery.decide.budget import line_of, queue_is_full, silent
from recovery.decide.drain import keeps_some
from recovery.decide.imagined import imagined
from recovery.decide.in_flight import no_more_to_boot
from recovery.decide.latch import may_be_gone
from recovery.decide.proof import proof_of_nobody_is_late
from recovery.decide.situation import (
    ClaimsByEvent,
    Counted,
    FiringAlerts,
    GateMadeReady,
    HolderLabels,
    MachineLeft,
    Need,
    NewNode,
    PastStarts,
    PodsLeft,
    PowerState,
    Preflighted,
    Progressed,
    Role,
    Situation,
    ValidationJob,
)
from recovery.decide.windows import asks_for_pods, goes_by_alerts, outside
from recovery.decide.witness import asked_about
from recovery.model import Phase, Record, Step, UnderWay
from recovery.quick import replace

COUNTED_LATELY = timedelta(minutes=1)
"""How old a census may be for the brake to hold what only waits."""
CENSUS_AGE = timedelta(seconds=10)
"""How old a census may be while a recovery goes on. Right before a provider's call it is counted again."""
JOINS_WITHIN = timedelta(minutes=2)
"""How long a claimed machine may take to join, before its group is asked whether another has its place."""


def subject(s: Situation) -> Record | None:
    """The record that the needs are about: with recovery off, the one that would be there."""
    return s.record if s.on else imagined(s, assess(s))


def needed(s: Situation) -> Need | None:
    """What to read next; None once all is there that the decision depends on."""
    r = subject(s)
    if r is None:
        return None
    if not s.on:
        needs = _while_off(replace(s, record=r), r)
    else:
        needs = _needs(s, r) if r.phase.open else _closed(s, r)
    return next((need for need in needs if need not in s.read), None)


def _while_off(s: Situation, r: Record) -> Iterator[Need]:
    """What tells people whether a recovery would wait."""
    yield from _blockers(s)
    yield from _witness(s, r)


def _closed(s: Situation, r: Record) -> Iterator[Need]:
    """Of a record that was handed over, or of one that was deleted: whether its machine is gone."""
    deleted = s.gate is not None and any(
        slot.node == s.node_name and slot.record_uid != r.uid for slot in s.gate.slots
    )
    unseen = s.node is None or not s.node.ready
    if deleted or (s.role is Role.CONCLUDER and r.phase is Phase.HANDED_OVER and unseen):
        if r.being_replaced:
            yield Progressed()  # who closes it says what its group still lacks
        yield MachineLeft()


def _needs(s: Situation, r: Record) -> Iterator[Need]:
    """All needs, in order. The caller reads one and starts again with what it found, so the code after a
    ``yield`` may depend on it."""
    on_metal = s.provider is not None and not s.provider.cloud
    if s.afar or s.may_power or (s.role is Role.CONCLUDER and s.apart and on_metal):
        yield from _of_a_dead_machine(s)
    listed = r.phase is not Phase.SUSPECT or s.node is None  # on the gate, where others see it
    missing = s.gate is None and not s.gate_problem and listed
    if missing or (s.gate is not None and s.gate.stamp != s.gate.uid):
        yield GateMadeReady()
    if r.in_flight and r.phase is Phase.RECOVERING:
        yield Progressed()
        if no_more_to_boot(s, r):
            yield MachineLeft()
    elif r.phase is Phase.PROVING:
        yield from _proof(s, r)
    elif s.role is Role.CONCLUDER:
        if s.may_power and r.phase is Phase.RECOVERING:  # it starts nothing else on another's node
            dead = s.node is not None and not s.node.ready
            if dead and keeps_some(s.policy.drain) and any(x.do is Step.DRAIN for x in r.ladder[r.rung :]):
                yield PodsLeft()  # its power may not be switched under one that may never go
            yield from _on_the_rung(s, r)
        else:
            yield Counted(COUNTED_LATELY, known=True)  # whether the brake is on, if somebody has counted
    else:
        if not s.forbidden:
            yield ClaimsByEvent()
        if r.phase is Phase.WAITING:
            yield from _before_a_start(s, r)
        elif r.phase is Phase.RECOVERING:
            yield from _on_the_rung(s, r)


def _of_a_dead_machine(s: Situation) -> Iterator[Need]:
    """Whether a machine that is not Ready surely runs nothing. If so, which pods are stuck on it.

    The concluder asks it on bare metal alone: in a cloud it has no right to pods and Nodes.
    """
    if s.node is None or s.node.ready or not s.node.registered or s.machine is None:
        return
    if s.provider is None or not s.provider.sees_power:
        return
    yield PowerState()
    if s.down:
        yield PodsLeft(evicting=False)
        if any(pod.deletion_timestamp is not None for pod in s.pods or ()):
            yield Counted(CENSUS_AGE, own=True)  # it may be another Node's machine that is down


def _proof(s: Situation, r: Record) -> Iterator[Need]:
    if r.replacement_machine:
        yield NewNode()
        if s.replacement is None and s.unjoined_for >= JOINS_WITHIN:
            yield Progressed()
    elif r.validation is not None and s.role is Role.OWNER:
        yield ValidationJob()
    elif proof_of_nobody_is_late(s, r):
        yield MachineLeft()


def _before_a_start(s: Situation, r: Record) -> Iterator[Need]:
    line = line_of(s.gate, r.uid)
    if s.gate is not None and s.gate.slot_of(r.node, r.uid) is not None:
        yield from _witness(s, r)  # who agreed goes on the record
    if s.gate is None:
        return
    if line is None and not queue_is_full(s.gate) and not brakes.needs_no_queue(s):
        return  # it joins first
    if untold := silent(s.gate, s.policy.limits.budget_per):
        yield HolderLabels(untold)
    if not brakes.first_reason((*brakes.FORBIDDEN, ("window", outside)), s):
        yield from _blockers(s)
    if brakes.first_reason(brakes.UNASKED, s) or may_be_gone(s, r.treated_faults):
        return  # no request to the cloud yet
    yield from _witness(s, r)
    yield from _preflight(s, r)
    since = line.since if line else r.phase_since
    shown = min(since, s.now) + brakes.settle_time(s)
    if brakes.settling(s, since) or brakes.first_reason(brakes.CHEAP, s):
        return
    yield Counted(CENSUS_AGE, known=True)
    if s.census is None and brakes.first_reason(brakes.BY_GROUP, s):
        # The group holds it, so nobody counts in order to start. The brake alarms all the same, as what ends
        # many machines leaves their group short as well (law 10).
        yield Counted(COUNTED_LATELY, known=brakes.turn(s) is not None)
    # The head of the queue counts, and shares its census with all others. While one that somebody has made
    # says that nothing may start, nobody counts.
    if not brakes.turn(s) and not held_as_counted(s):
        yield Counted(s.settle, since=shown)
        yield PastStarts()


def held_as_counted(s: Situation) -> bool:
    """Whether nothing may start, by what is known already."""
    questions = brakes.BY_GROUP if s.census is None else brakes.STARTING
    return brakes.first_reason(questions, s) is not None


def _on_the_rung(s: Situation, r: Record) -> Iterator[Need]:
    rung = r.step
    if rung is None:
        return
    untouched = r.rung_since is None and not r.marks and not r.progress.acted
    if untouched and s.gate is not None and s.gate.slot_of(r.node, r.uid) is None:
        yield Counted(CENSUS_AGE)  # the slot was lost, and is put back only if there is a place
    if rung.do is Step.NOTIFY:
        return
    if rung.do is Step.DRAIN and r.rung_since is not None and s.role is Role.OWNER:
        yield PodsLeft()
    if brakes.first_reason(brakes.FORBIDDEN, s):
        return  # it is held whatever the count and the cloud say
    if s.policy.limits.under_way is UnderWay.STOP:
        yield from _blockers(s)
    yield Counted(CENSUS_AGE)
    if rung.do.provider_action:
        yield from _witness(s, r)
        yield from _preflight(s, r)


def _blockers(s: Situation) -> Iterator[Need]:
    """What the policy's blockers go by."""
    if asks_for_pods(s) and s.pods is None:
        yield PodsLeft(evicting=False)
    if goes_by_alerts(s):
        yield FiringAlerts()


def _witness(s: Situation, r: Record) -> Iterator[Need]:
    """What the second witness says, where the rule wants one."""
    if asked := asked_about(s, r):
        yield asked


def _preflight(s: Situation, r: Record) -> Iterator[Need]:
    """Whether the ladder's next destructive step can be done, before anything is done to the node."""
    action = next((x.do for x in r.ladder[r.rung :] if x.do.provider_action), None)
    if action is None or s.provider is None or s.machine is None:
        return
    if s.from_within(action):
        return  # only the concluder asks for it
    yield Preflighted(action)
