"""Situation -> decision: verb, effect and sentence of a node's own agent in each phase."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from recovery.decide.assessment import assess
from recovery.decide.decision import Decision, Verb, WriteRecord
from recovery.decide.own_node import decide
from recovery.decide.provider_step import not_now
from recovery.decide.situation import Lease, Situation
from recovery.model import (
    CORDONED_BY,
    TAINT,
    Attempt,
    Cause,
    Claim,
    Done,
    Failed,
    Gone,
    GroupStart,
    Holding,
    IntentState,
    Line,
    Marks,
    NotApplied,
    Phase,
    Preflight,
    Progress,
    Record,
    Reference,
    Rung,
    Running,
    Says,
    Statement,
    Step,
    Then,
    Unseen,
)
from tests.builders.faults import DMA, HANG, HBM, fault, problem, reading, silent
from tests.builders.gates import census, gate, slot
from tests.builders.nodes import MACHINE, ZONE, node, pod
from tests.builders.policies import LADDER, RULES, policy
from tests.builders.records import intent, record
from tests.builders.situations import situation
from tests.builders.times import HOUR, MINUTE, NOW, SECOND

OTHERS_LEASE = Lease("owner/node-0/other", mine=False, stale=False)
HELD = gate(slots=(slot(),))
OURS = node(
    unschedulable=True,
    taints=((TAINT, "", "NoSchedule"),),
    annotations={CORDONED_BY: "node-recovery"},
)
BOTH = Marks(cordoned=True, tainted=True)
SHIFT = replace(MACHINE, id="m-9")
CLEAR = reading(cleared=frozenset({("NeuronHealth", DMA)}))
POD = pod()
BAD_PAGE = silent(NOW)
EXCLUDED = {"noderecovery.dev/exclude": "true"}
SILENCE = fault("SignalUnknown", type="SignalUnknown", message="nothing is known from npd", latched=False)


def draining(**changes: Any) -> Record:
    return record(Phase.RECOVERING, marks=BOTH, rung_since=NOW, **changes)


def replacing(**changes: Any) -> Record:
    return record(Phase.RECOVERING, **{"marks": BOTH, "rung": 1, "rung_since": NOW} | changes)


def recovering(r: Record, **changes: Any) -> Situation:
    return situation(**{"record": r, "gate": HELD, "node": OURS, "pods": ()} | changes)


def called(state: IntentState = IntentState.SUBMITTED, action: str = "replace", **changes: Any) -> Situation:
    r = replacing(intent=intent(state, action), ladder=(LADDER[0], Rung(Step(action), 30 * MINUTE)))
    return recovering(r, **changes)


def booted(times: int) -> Record:
    return replace(draining(), progress=Progress(boots=("boot-1",) * times))


def without_effect(times: int) -> Record:
    return replacing(intent=intent(IntentState.NOT_APPLIED), progress=Progress(tries=times))


def proving(**changes: Any) -> Record:
    asked = Progress(submitted=(Attempt(1, "reboot"),))
    plain = {"intent": intent(action="reboot"), "phase_since": NOW, "progress": asked}
    return record(Phase.PROVING, **plain | changes)


def has(d: Decision) -> Record:
    assert isinstance(d.effect, WriteRecord)
    return d.effect.record


# ---------------------------------------------------------------- the table

Row = tuple[Situation, str, str, str]
"""A situation; verb and effect; the phase that a record is swapped to, or the key; the sentence's start."""


def unrecorded(**changes: Any) -> Situation:
    return situation(**{"record": None, "gate": gate(open=())} | changes)


NO_RECORD: dict[str, Row] = {
    "healthy": (
        unrecorded(readings=(reading(),)),
        "leave",
        "leave",
        "healthy: no confirmed problem",
    ),
    "unknown": (unrecorded(readings=(silent(NOW),)), "leave", "leave", "unknown: the page cannot"),
    "nothing read": (unrecorded(readings=()), "leave", "leave", "nothing has been read yet"),
    "fault": (unrecorded(), "act WriteRecord", "suspect", f"{DMA} was seen"),
    "two faults": (
        unrecorded(readings=(reading(problem(), problem(HBM)),)),
        "act WriteRecord",
        "suspect",
        f"{DMA} was seen (and 1 more)",
    ),
    "not initialised": (
        unrecorded(machine=None, machine_wait="node-0 is not initialised"),
        "wait",
        "uninitialised",
        f"{DMA}: node-0 is not initialised",
    ),
    "no node": (unrecorded(node=None), "wait", "no-node", f"{DMA}: the Node is not there"),
    "excluded": (
        unrecorded(node=node(labels=EXCLUDED)),
        "hold",
        "excluded",
        f"{DMA}: nothing is done: the node is excluded by its label",
    ),
    "excluded and only told": (
        unrecorded(node=node(labels=EXCLUDED), readings=(reading(problem(HANG)),)),
        "act WriteRecord",
        "suspect",
        f"{HANG} was seen",
    ),
    "lease of another": (
        unrecorded(lease=OTHERS_LEASE),
        "wait",
        "lease",
        f"{DMA}: another agent works on this node (owner/node-0/other)",
    ),
    "machine not known": (
        unrecorded(machine=None, machine_problem="the cloud gce:// is not known"),
        "act WriteRecord",
        "suspect",
        f"{DMA} was seen",
    ),
    "undecodable record": (
        unrecorded(record_problem="status.phase: is missing"),
        "hold",
        "undecodable",
        "the record cannot be used, and is not touched: status.phase: is missing",
    ),
    "undecodable record, off": (
        unrecorded(on=False, record_problem="status.phase: is missing"),
        "hold",
        "undecodable",
        "the record cannot be used, and is not touched",
    ),
    "undecodable record that stands on the gate": (
        situation(record=None, record_problem="it is of version 2"),
        "hold",
        "undecodable",
        "the record cannot be used, and is not touched: it is of version 2",
    ),
    "undecodable record where there was another": (
        unrecorded(vanished=True, record_problem="it is of version 2"),
        "hold",
        "undecodable",
        "the record cannot be used, and is not touched: it is of version 2",
    ),
    "record deleted": (
        unrecorded(vanished=True),
        "hold",
        "vanished",
        "somebody deleted this node's record: nothing more is done until node-recovery is restarted",
    ),
    "record deleted while it stands on the gate": (
        situation(record=None),
        "act WriteRecord",
        "lost",
        "lost: somebody deleted the record of a recovery that was open",
    ),
}
OFF: dict[str, Row] = {
    "healthy": (
        situation(on=False, record=None, readings=(reading(),)),
        "leave",
        "leave",
        "healthy: no confirmed problem",
    ),
    "fault": (
        situation(on=False, record=None),
        "hold",
        f"would {fault().key}",
        f"would drain node-0; then replace: {DMA} (rule neuron-hardware), if budget and brake allow; "
        "recovery is off (ENABLE_RECOVERY=false)",
    ),
    "only told": (
        situation(on=False, record=None, readings=(reading(problem(HANG)),)),
        "hold",
        f"tell {fault(HANG).key}",
        f"recovery is off (ENABLE_RECOVERY=false): would only report {HANG} (no rule",
    ),
    "excluded": (
        situation(on=False, record=None, node=node(labels=EXCLUDED)),
        "hold",
        "would-hold",
        f"recovery is off (ENABLE_RECOVERY=false): would leave {DMA} alone: the node is excluded",
    ),
    "claimed": (
        situation(on=False, record=None, forbidden="kured holds node-0"),
        "hold",
        "would-hold",
        f"recovery is off (ENABLE_RECOVERY=false): would leave {DMA} alone: kured holds node-0",
    ),
    "machine not known": (
        situation(on=False, record=None, machine=None, machine_problem="nobody's"),
        "hold",
        "would-hand-over",
        f"recovery is off (ENABLE_RECOVERY=false): would hand over {DMA}: nobody's",
    ),
    "tolerated": (
        situation(
            on=False,
            record=None,
            policy=policy("\n  - {name: slow, match: {type: NeuronHealth}, after: 5m}"),
        ),
        "wait",
        "wait",
        f"{DMA}: tolerated for 5 min by rule slow",
    ),
    "handed over": (
        situation(on=False, record=record(Phase.HANDED_OVER, acknowledged=(fault(),))),
        "hold",
        "handedOver",
        "in a person's hands since 2026-11-21 03:00:00Z",
    ),
    **{
        f"in the middle of {phase.value}": (
            situation(on=False, record=record(phase)),
            "hold",
            "abandoned",
            "recovery is off (ENABLE_RECOVERY=false): the recovery of this node is left as it is, "
            f"abandoned by switching recovery off ({DMA} was seen)",
        )
        for phase in Phase
        if phase.open
    },
}
SUSPECT: dict[str, Row] = {
    "confirmed": (
        situation(record=record(Phase.SUSPECT)),
        "act WriteRecord",
        "waiting",
        f"{DMA}: rule neuron-hardware says drain, replace",
    ),
    "tolerated": (
        situation(
            record=record(Phase.SUSPECT),
            policy=policy("\n  - {name: slow, match: {type: NeuronHealth}, after: 5m}"),
        ),
        "wait",
        "tolerated",
        f"{DMA}: tolerated for 5 min by rule slow, 5 min to go",
    ),
    "cleared": (
        situation(record=record(Phase.SUSPECT), readings=(CLEAR,)),
        "act WriteRecord",
        "withdrawn",
        f"{DMA} was taken back by its own source",
    ),
    "only told": (
        situation(record=record(Phase.SUSPECT), policy=policy("")),
        "act WriteRecord",
        "handedOver",
        f"{DMA}: no rule of the policy speaks of it",
    ),
    "machine not known": (
        situation(record=record(Phase.SUSPECT), machine=None, machine_problem="no provider knows it"),
        "act WriteRecord",
        "handedOver",
        f"handed over to a person: {DMA}: no provider knows it",
    ),
    "level unreadable": (
        situation(record=record(Phase.SUSPECT, faults=(fault(latched=False),)), readings=(BAD_PAGE,)),
        "wait",
        "unreadable",
        f"{DMA}: the page cannot be read",
    ),
    "latched, unreadable": (
        situation(record=record(Phase.SUSPECT), readings=(BAD_PAGE,)),
        "act WriteRecord",
        "waiting",
        f"{DMA}: rule neuron-hardware says",
    ),
    "silence": (
        situation(
            record=record(Phase.SUSPECT, faults=(SILENCE,)),
            readings=(silent(NOW - HOUR),),
        ),
        "act WriteRecord",
        "handedOver",
        "nothing is known from npd: no rule of the policy speaks of it",
    ),
    "another fault": (
        situation(record=record(Phase.SUSPECT), readings=(reading(problem(), problem(HBM)),)),
        "act WriteRecord",
        "suspect",
        f"{HBM} was seen too",
    ),
    "another machine": (
        situation(record=record(Phase.SUSPECT), machine=SHIFT),
        "act WriteRecord",
        "superseded",
        "the machine behind node-0 is m-9 now, not m-0: nothing is called",
    ),
    "a boot": (
        situation(record=record(Phase.SUSPECT), node=node(boot_id="boot-2")),
        "act WriteRecord",
        "proving",
        "the machine booted without being asked to",
    ),
    "lease of another": (
        situation(record=record(Phase.SUSPECT), lease=OTHERS_LEASE),
        "wait",
        "lease",
        "another agent works on this node",
    ),
    "no node": (
        situation(record=record(Phase.SUSPECT), node=None),
        "wait",
        "no-node",
        "the Node is not there",
    ),
    "not initialised": (
        situation(record=record(Phase.SUSPECT), machine=None, machine_wait="node-0 is not initialised"),
        "hold",
        "uninitialised",
        "node-0 is not initialised",
    ),
    "seen once, then silence": (
        situation(
            record=record(Phase.SUSPECT, faults=(fault(latched=False),)),
            readings=(silent(NOW - HOUR),),
        ),
        "act WriteRecord",
        "suspect",
        "nothing is known from npd: the page cannot be read was seen too",
    ),
    "seen once, then silence for long": (
        situation(
            record=record(Phase.SUSPECT, faults=(fault(latched=False), SILENCE)),
            readings=(silent(NOW - HOUR),),
        ),
        "act WriteRecord",
        "handedOver",
        f"{DMA} was seen, and nothing is known of it since: the page cannot be read",
    ),
    "registered again": (
        situation(record=record(Phase.SUSPECT), node=node(uid="uid-2")),
        "act WriteRecord",
        "suspect",
        "node-0 was registered again by the same machine: the recovery goes on",
    ),
}
WAITING: dict[str, Row] = {
    "free slot": (
        situation(),
        "act TakeSlot",
        "TakeSlot",
        f"{DMA}: a slot of the budget is free and is taken",
    ),
    "not in the queue": (
        situation(gate=gate(open=())),
        "act Join",
        "Join",
        f"{DMA}: waiting for a slot of the budget",
    ),
    "slot granted": (
        situation(gate=HELD),
        "act WriteRecord",
        "recovering",
        f"{DMA}: recovery starts (drain, replace)",
    ),
    "no gate": (situation(gate=None), "wait", "gate", f"{DMA}: waiting: the gate cannot be read"),
    "gate undecodable": (
        situation(gate=None, gate_problem="status.open: found 7"),
        "hold",
        "gate",
        f"{DMA}: waiting: the gate cannot be used: status.open: found 7",
    ),
    "refused": (
        situation(preflight=None, preflight_refused="m-0 is not in a group"),
        "act WriteRecord",
        "handedOver",
        "handed over to a person: m-0 is not in a group",
    ),
    "throttled": (
        situation(preflight=None, preflight_retry="throttled"),
        "hold",
        "preflight",
        f"{DMA}: waiting: throttled",
    ),
    "not before": (
        situation(
            preflight=Preflight(
                Reference("fake", "replace"), not_before=NOW + MINUTE, not_yet="grace period until 03:01"
            )
        ),
        "wait",
        "not-yet",
        f"{DMA}: waiting: grace period until 03:01",
    ),
    "settling": (
        situation(gate=gate(open=(Line("node-0", "record-0", NOW),))),
        "wait",
        "settle",
        f"{DMA}: waiting 0.5 s for other faults to show",
    ),
    "behind another": (
        situation(gate=gate(open=(Line("node-1", "r1", NOW - HOUR), *gate().open))),
        "wait",
        "turn",
        f"{DMA}: waiting: node-1 is ahead in the queue",
    ),
    "its machine is out by another name": (
        situation(
            gate=gate(slots=(replace(slot("node-9", "r9"), machine="M-0"),)),
            policy=policy(limits="{budget: 2, budgetPer: {}}"),
        ),
        "hold",
        "one-machine",
        f"{DMA}: waiting: node-9, whose recovery has not ended, is the same machine, m-0",
    ),
    "another machine is out": (
        situation(
            gate=gate(slots=(replace(slot("node-9", "r9"), machine="m-9"),)),
            policy=policy(limits="{budget: 2, budgetPer: {}}"),
        ),
        "act TakeSlot",
        "TakeSlot",
        f"{DMA}: a slot",
    ),
    "behind another who does not move": (
        situation(gate=gate(open=(Line("node-1", "r1", NOW - HOUR), *gate().open)), turn_waited=MINUTE),
        "act TakeSlot",
        "TakeSlot",
        f"{DMA}: a slot",
    ),
    "brake": (
        situation(census=census(4, 10)),
        "hold",
        "brake",
        f"{DMA}: waiting: the brake is on: 4 of 10 nodes",
    ),
    "skew": (situation(skew=MINUTE), "hold", "skewed", f"{DMA}: waiting: this machine's clock is 60 s off"),
    "cleared": (
        situation(readings=(CLEAR,)),
        "act WriteRecord",
        "withdrawn",
        f"{DMA} was taken back by its own source",
    ),
    "excluded": (
        situation(node=node(labels=EXCLUDED)),
        "act WriteRecord",
        "withdrawn",
        "closed without a destructive step: the node is excluded",
    ),
    "another machine": (
        situation(machine=SHIFT),
        "act WriteRecord",
        "superseded",
        "the machine behind node-0",
    ),
    "a boot": (
        situation(node=node(boot_id="boot-2")),
        "act WriteRecord",
        "proving",
        "the machine booted without being asked to",
    ),
}
RECOVERING: dict[str, Row] = {
    "no mark yet": (
        situation(record=record(Phase.RECOVERING), gate=HELD),
        "act Mark",
        "Mark",
        f"cordoned for {DMA}",
    ),
    "slot missing": (
        recovering(draining(), gate=gate()),
        "act RestoreSlot",
        "RestoreSlot",
        "the slot of this recovery was missing on the gate and is put back",
    ),
    "slot missing, nothing done yet, and a budget in percent of what is not counted": (
        situation(
            policy=policy(limits='{budget: "10%", budgetPer: {}}'),
            record=record(Phase.RECOVERING),
            gate=gate(),
            census=None,
        ),
        "hold",
        "budget",
        f"{DMA}: the slot was lost before anything was done: how many nodes may be out is not known before",
    ),
    "slot missing, nothing done yet, and the budget used up": (
        situation(record=record(Phase.RECOVERING), gate=gate(slots=(slot("node-1", "record-1"),))),
        "hold",
        "budget",
        f"{DMA}: the slot was lost before anything was done: the budget of the fleet is used up: 1 of 1",
    ),
    "gate unreadable": (
        recovering(draining(), gate=None, gate_problem="status.open: found 7"),
        "hold",
        "gate",
        "the gate cannot be read: status.open: found 7",
    ),
    "gate not answered": (
        recovering(draining(), gate=None),
        "wait",
        "gate",
        "the gate cannot be read: no answer",
    ),
    "only to tell": (
        recovering(draining(ladder=(Rung(Step.NOTIFY, MINUTE), LADDER[1]))),
        "act WriteRecord",
        "recovering",
        f"{DMA}: reported; next: replace",
    ),
    "drain begins": (
        recovering(replace(draining(), rung_since=None)),
        "act WriteRecord",
        "recovering",
        f"{DMA}: the drain begins",
    ),
    "a pod is left": (
        recovering(draining(), pods=(POD,)),
        "act Evict",
        "Evict",
        f"{DMA}: draining, 1 pod left",
    ),
    "a pod may not go": (
        recovering(draining(), pods=(POD,), refusals={"default/train": "budget x allows none"}),
        "wait",
        "drain-refused",
        f"{DMA}: draining, 1 pod left; default/train may not go yet: budget x allows none",
    ),
    "drained": (
        recovering(draining(), now=NOW + 4 * SECOND),
        "act WriteRecord",
        "recovering",
        "drained in 4 s; next: replace",
    ),
    "late drain, force": (
        recovering(draining(), pods=(POD,), now=NOW + 10 * MINUTE),
        "act WriteRecord",
        "recovering",
        "the drain did not end within 10 min: 1 pod left; going on without them, as the policy says; "
        "next: replace",
    ),
    "late drain, hand over": (
        recovering(
            draining(ladder=(replace(LADDER[0], then=Then.HAND_OVER), LADDER[1])),
            pods=(POD,),
            now=NOW + 10 * MINUTE,
        ),
        "act WriteRecord",
        "handedOver",
        "handed over to a person: the drain did not end within 10 min: 1 pod left",
    ),
    "late drain, hold": (
        recovering(
            draining(ladder=(replace(LADDER[0], then=Then.HOLD), LADDER[1])), pods=(POD,), now=NOW + HOUR
        ),
        "act Evict",
        "Evict",
        f"{DMA}: the drain did not end within 10 min and goes on, as the policy says, 1 pod left",
    ),
    "late drain, hold, nothing to ask for": (
        recovering(
            draining(ladder=(replace(LADDER[0], then=Then.HOLD), LADDER[1])),
            pods=(POD,),
            refusals={str(POD): "its budget"},
            now=NOW + HOUR,
        ),
        "hold",
        "drain-late",
        f"{DMA}: the drain did not end within 10 min and goes on, as the policy says, 1 pod left; ",
    ),
    "paused drain": (
        recovering(draining(), pods=(POD,), census=census(4, 10)),
        "hold",
        "brake",
        f"{DMA}: drain: the brake is on",
    ),
    "uncordoned by somebody": (
        recovering(draining(), node=replace(OURS, unschedulable=False)),
        "hold",
        "undone",
        f"{DMA}: drain: somebody uncordoned node-0",
    ),
    "taint taken off": (
        recovering(draining(), node=replace(OURS, taints=())),
        "hold",
        "undone",
        f"{DMA}: drain: somebody took the taint noderecovery.dev/unhealthy off node-0",
    ),
    "registered again": (
        recovering(draining(), node=node(uid="uid-2")),
        "act WriteRecord",
        "recovering",
        "node-0 was registered again",
    ),
    "claimed": (
        recovering(draining(), pods=(POD,), forbidden="medik8s holds node-0"),
        "hold",
        "claimed",
        f"{DMA}: drain: medik8s holds node-0",
    ),
    "excluded": (
        recovering(draining(), node=replace(OURS, labels=EXCLUDED)),
        "act Unmark",
        "Unmark",
        "closed without a destructive step: the node is excluded by its label noderecovery.dev/exclude=true; "
        "our marks come off",
    ),
    "cleared": (
        recovering(draining(), readings=(CLEAR,)),
        "act Unmark",
        "Unmark",
        f"{DMA} was taken back by its own source before anything destructive; our marks come off",
    ),
    "cleared and unmarked": (
        recovering(replace(draining(), marks=Marks()), readings=(CLEAR,), node=node()),
        "act WriteRecord",
        "withdrawn",
        f"{DMA} was taken back by its own source before anything destructive",
    ),
    "replace": (recovering(replacing()), "act Submit", "Submit", f"{DMA}: replace: asked of fake"),
    "replace, unreadable page": (
        recovering(replacing(), readings=(BAD_PAGE,)),
        "wait",
        "unreadable",
        f"{DMA}: replace waits for a fresh signal: the page cannot be read",
    ),
    "replace, unreadable to the end": (
        recovering(
            replacing(progress=Progress(holding=Holding(Cause.UNREADABLE, NOW))),
            readings=(silent(NOW + 29 * MINUTE),),
            now=NOW + 30 * MINUTE,
        ),
        "act WriteRecord",
        "handedOver",
        "handed over to a person: replace could not be asked for within 30 min: the page cannot be read",
    ),
    "replace, group short": (
        recovering(replacing(), preflight=Preflight(Reference("fake", "replace"), "workers", short_by=2)),
        "hold",
        "group-short",
        f"{DMA}: replace: group workers is short by 2",
    ),
    "replace, refused before": (
        recovering(replacing(), preflight=None, preflight_refused="it is protected"),
        "act WriteRecord",
        "handedOver",
        "handed over to a person: it is protected",
    ),
    "replace, refused": (
        recovering(replacing(intent=intent(IntentState.REFUSED))),
        "act WriteRecord",
        "handedOver",
        "handed over to a person: ",
    ),
    "replace, no machine to speak of": (
        recovering(replacing(), machine=None, machine_problem="no provider knows it"),
        "act WriteRecord",
        "handedOver",
        "handed over to a person: no provider knows it",
    ),
    "replace, put off a moment ago": (
        recovering(
            replace(
                replacing(
                    intent=intent(IntentState.ABANDONED), progress=Progress(retry_at=NOW + 15 * SECOND)
                ),
                sentence="replace of m-0: not yet: throttled",
            )
        ),
        "wait",
        "not-yet",
        f"{DMA}: replace: replace of m-0: not yet: throttled",
    ),
    "replace, put off to the end": (
        recovering(
            replace(replacing(intent=intent(IntentState.ABANDONED)), sentence="not yet: throttled"),
            now=NOW + 30 * MINUTE,
        ),
        "act WriteRecord",
        "handedOver",
        "handed over to a person: replace did not succeed within 30 min: not yet: throttled; "
        "the remedy has no further step",
    ),
    "replace, put off until a moment that is known": (
        recovering(
            replacing(),
            preflight=Preflight(
                Reference("fake", "replace"), not_before=NOW + MINUTE, not_yet="grace period until 03:01"
            ),
        ),
        "wait",
        "not-yet",
        f"{DMA}: replace: grace period until 03:01",
    ),
    "replace, three times without effect": (
        recovering(without_effect(3)),
        "act WriteRecord",
        "handedOver",
        "handed over to a person: replace was asked for 3 times and had no effect; "
        "the remedy has no further step",
    ),
    "replace, skewed": (
        recovering(replacing(), skew=MINUTE),
        "hold",
        "skewed",
        f"{DMA}: replace: this machine",
    ),
    "nothing left on the ladder": (
        recovering(replacing(rung=2)),
        "act WriteRecord",
        "handedOver",
        "handed over to a person: every step of the remedy was done",
    ),
    "another machine": (
        recovering(draining(), machine=SHIFT),
        "act Unmark",
        "Unmark",
        "the machine behind node-0 is m-9 now, not m-0: nothing is called; our marks come off",
    ),
    "another machine after a step": (
        recovering(replace(draining(), progress=Progress(submitted=(Attempt(1, "reboot"),))), machine=SHIFT),
        "act Unmark",
        "Unmark",
        "the machine behind node-0 is m-9 now, not m-0: nothing more is called after reboot; our marks",
    ),
    "boot after boot": (
        recovering(booted(3), node=replace(OURS, boot_id="boot-2")),
        "act WriteRecord",
        "handedOver",
        "handed over to a person: the machine booted 4 times without being asked to",
    ),
    "a boot": (
        recovering(draining(), node=replace(OURS, boot_id="boot-2")),
        "act WriteRecord",
        "proving",
        "the machine booted without being asked to",
    ),
}
AFTER_THE_CALL: dict[str, Row] = {
    "written": (
        called(IntentState.WRITTEN),
        "act WriteRecord",
        "recovering",
        "replace may or may not have been asked for before the process stopped: observing",
    ),
    "no answer": (called(), "wait", "poll", "replace: its provider has not answered yet"),
    "running": (
        called(poll=Running("m-0 is being ended")),
        "wait",
        "running m-0 is being ended",
        "m-0 is being",
    ),
    "ambiguous, under way": (
        called(IntentState.AMBIGUOUS, poll=Running("m-0 is being ended")),
        "act WriteRecord",
        "recovering",
        "replace is under way: m-0 is being ended",
    ),
    "ambiguous, gone": (
        called(IntentState.AMBIGUOUS, poll=Gone("m-0 is gone")),
        "act WriteRecord",
        "recovering",
        "replace is under way: m-0 is gone",
    ),
    "ambiguous, and nothing is seen of it": (
        called(IntentState.AMBIGUOUS, poll=Unseen("m-0 runs")),
        "wait",
        "running m-0 runs",
        "m-0 runs",
    ),
    "ambiguous to the end": (
        called(IntentState.AMBIGUOUS, poll=Unseen("m-0 runs"), now=NOW + 30 * MINUTE),
        "act WriteRecord",
        "handedOver",
        "handed over to a person: replace did not succeed within 30 min: m-0 runs; it is not known whether "
        "it was ever accepted",
    ),
    "not applied, early": (
        called(IntentState.AMBIGUOUS, poll=NotApplied("m-0 is healthy"), now=NOW + 59 * SECOND),
        "wait",
        "running m-0 is healthy",
        "m-0 is healthy",
    ),
    "not applied, while the call may still be under way": (
        recovering(
            replacing(intent=replace(intent(IntentState.AMBIGUOUS), call_timeout=120.0)),
            poll=NotApplied("m-0 is healthy"),
            now=NOW + 134 * SECOND,
        ),
        "wait",
        "running m-0 is healthy",
        "m-0 is healthy",
    ),
    "not applied, and the call is over": (
        recovering(
            replacing(intent=replace(intent(IntentState.AMBIGUOUS), call_timeout=120.0)),
            poll=NotApplied("m-0 is healthy"),
            now=NOW + 135 * SECOND,
        ),
        "act WriteRecord",
        "recovering",
        "replace had no effect after 2 min: m-0 is healthy",
    ),
    "not applied": (
        called(IntentState.AMBIGUOUS, poll=NotApplied("m-0 is healthy"), now=NOW + MINUTE),
        "act WriteRecord",
        "recovering",
        "replace had no effect after 60 s: m-0 is healthy",
    ),
    "failed": (
        called(poll=Failed("no capacity")),
        "act WriteRecord",
        "handedOver",
        "handed over to a person: replace failed: no capacity",
    ),
    "late": (
        called(poll=Running("m-0 is being ended"), now=NOW + 30 * MINUTE),
        "act WriteRecord",
        "handedOver",
        "handed over to a person: replace did not succeed within 30 min: m-0 is being ended",
    ),
    "gone, none new to the end, and its answer was lost": (
        called(IntentState.AMBIGUOUS, poll=Done("m-0 is gone"), now=NOW + 30 * MINUTE),
        "act WriteRecord",
        "handedOver",
        "handed over to a person: replace did not succeed within 30 min: m-0 is gone; no new machine that is "
        "unclaimed; it is not known whether it was ever accepted",
    ),
    "done, gate unreadable": (
        called(poll=Done("m-0 is gone", ("m-8",)), gate=None, gate_problem="status.open: found 7"),
        "hold",
        "gate",
        "the gate cannot be read: status.open: found 7",
    ),
    "done, gate not answered": (
        called(poll=Done("m-0 is gone", ("m-8",)), gate=None),
        "wait",
        "gate",
        "the gate cannot be read: no answer",
    ),
    "done, none new": (
        called(poll=Done("m-0 is gone")),
        "wait",
        "running m-0 is gone; no new machine that is unclaimed",
        "m-0 is gone; no new machine",
    ),
    "done, another's": (
        called(poll=Done("m-0 is gone", ("m-8",)), gate=replace(HELD, claimed=(Claim("m-8", "m-1"),))),
        "wait",
        "running m-0 is gone; no new machine that is unclaimed",
        "m-0 is gone; no new machine",
    ),
    "done, group not complete": (
        called(poll=Done("m-0 is gone", ("m-8",), complete=False)),
        "wait",
        "running m-0 is gone",
        "m-0 is gone",
    ),
    "done": (
        called(poll=Done("m-0 is gone", ("m-8",))),
        "act ClaimReplacement",
        "ClaimReplacement",
        "m-8 is claimed as the replacement of m-0",
    ),
    "done, two new ones": (
        called(poll=Done("m-0 is gone", ("m-9", "m-8"))),
        "act ClaimReplacement",
        "ClaimReplacement",
        "m-9 is claimed as the replacement of m-0",
    ),
    "done and claimed": (
        called(poll=Done("m-0 is gone", ("m-8",)), gate=replace(HELD, claimed=(Claim("m-8", "m-0"),))),
        "act WriteRecord",
        "proving",
        "m-0 is gone; m-8 took its place; probation begins",
    ),
    "rebooted": (
        called(action="reboot", node=replace(OURS, boot_id="boot-2")),
        "act WriteRecord",
        "proving",
        "reboot is proved by a new boot ID; probation begins",
    ),
    "booted while being replaced": (
        called(node=replace(OURS, boot_id="boot-2")),
        "act WriteRecord",
        "recovering",
        "the machine booted while being replaced",
    ),
    "paused, excluded and claimed": (
        called(
            poll=Running("m-0 is being ended"),
            forbidden="kured holds node-0",
            node=replace(OURS, labels=EXCLUDED),
            census=census(9, 10),
        ),
        "wait",
        "running m-0 is being ended",
        "m-0 is being ended",
    ),
}
HEALTHY = {"readings": (reading(),), "node": node()}
PROVING: dict[str, Row] = {
    "the slot was taken off": (
        situation(record=proving(), **HEALTHY),
        "act RestoreSlot",
        "RestoreSlot",
        "the slot of this recovery was missing on the gate and is put back",
    ),
    "on probation": (
        situation(record=proving(), gate=HELD, **HEALTHY),
        "wait",
        "probation",
        "node-0 is on probation for another 2 min",
    ),
    "proved": (
        situation(record=proving(), now=NOW + 2 * MINUTE, **HEALTHY),
        "act WriteRecord",
        "recovered",
        "proved: node-0 was healthy for 2 min on its own page",
    ),
    "proved, marks on": (
        situation(record=proving(marks=BOTH), now=NOW + 2 * MINUTE, **HEALTHY | {"node": OURS}),
        "act Unmark",
        "Unmark",
        "proved: node-0 was healthy for 2 min on its own page; our marks come off",
    ),
    "proved while paused and braked": (
        situation(
            record=proving(),
            now=NOW + 2 * MINUTE,
            census=census(9, 10),
            forbidden="kured holds node-0",
            **HEALTHY,
        ),
        "act WriteRecord",
        "recovered",
        "proved: node-0 was healthy",
    ),
    "not ready": (
        situation(
            record=proving(), gate=HELD, **HEALTHY | {"node": node(conditions={"Ready": ("False", "x")})}
        ),
        "wait",
        "unproved node-0 is not Ready",
        "probation: node-0 is not Ready",
    ),
    "not ready for a while": (
        situation(
            record=proving(),
            now=NOW + 5 * SECOND,
            **HEALTHY | {"node": node(conditions={"Ready": ("False", "x")})},
        ),
        "act WriteRecord",
        "proving",
        "probation begins again: node-0 is not Ready",
    ),
    "page unreadable": (
        situation(record=proving(), readings=(BAD_PAGE,), gate=HELD),
        "wait",
        "unproved the page cannot be read",
        "probation: the page cannot be read",
    ),
    "fault back, last step": (
        situation(record=proving(rung=1), gate=HELD),
        "act WriteRecord",
        "handedOver",
        f"handed over to a person: {DMA} came back in probation, and the remedy has no further step",
    ),
    "fault back": (
        situation(record=proving(), gate=HELD),
        "act WriteRecord",
        "recovering",
        f"{DMA} came back in probation",
    ),
    "fault back, its slot is not seen": (
        situation(record=proving()),
        "act WriteRecord",
        "recovering",
        f"{DMA} came back in probation",
    ),
    "fault back, no slot, and nothing was done": (
        situation(record=proving(rung=1, intent=None, progress=Progress(), marks=Marks())),
        "act WriteRecord",
        "waiting",
        f"{DMA} came back in probation",
    ),
    "fault back, no ladder": (
        situation(record=proving(ladder=(), intent=None)),
        "act WriteRecord",
        "suspect",
        f"{DMA} came back in probation",
    ),
    "withdrawn after a boot": (
        situation(record=record(Phase.PROVING), now=NOW + 2 * MINUTE, **HEALTHY),
        "act WriteRecord",
        "withdrawn",
        "withdrawn: after a boot that was not asked for, node-0 was healthy for 2 min on its own page",
    ),
    "another boot": (
        situation(record=proving(), **HEALTHY | {"node": node(boot_id="boot-2")}),
        "act WriteRecord",
        "proving",
        "the machine booted without being asked to",
    ),
    "never proved": (
        situation(
            record=record(
                Phase.PROVING,
                ladder=(),
                phase_since=NOW + 30 * MINUTE - SECOND,
                progress=Progress(
                    boots=("boot-1",), proving_since=NOW, holding=Holding(Cause.UNREADABLE, NOW)
                ),
            ),
            now=NOW + 30 * MINUTE,
            readings=(BAD_PAGE,),
        ),
        "act WriteRecord",
        "handedOver",
        "handed over to a person: the machine was not proved within 30 min: the page cannot be read",
    ),
}


def replaced(**changes: Any) -> Situation:
    asked = Progress(submitted=(Attempt(1, "replace"),))
    r = record(
        Phase.PROVING, intent=intent(), replacement_machine="m-8", rung=1, rung_since=NOW, progress=asked
    )
    joined = node("node-8", provider_id="fake:///workers/m-8")
    return situation(**{"record": r, "machine": SHIFT, "replacement": joined, "gate": HELD} | changes)


def on_trial(sentence: str = "", **changes: Any) -> Situation:
    s = replaced()
    assert s.record is not None
    r = replace(s.record, replacement="node-8", sentence=sentence)
    return replaced(record=r, now=NOW + 2 * MINUTE, **changes)


ALONE = "node-8 (m-8) is Ready; no agent there reports a detector's page, so only its Node can prove it"


OLD_NAME = {"replacement_is_me": True, "replacement": node("node-0", provider_id="fake:///workers/m-8")}
REPLACED: dict[str, Row] = {
    "not joined": (
        replaced(replacement=None),
        "wait",
        "unproved m-8 has not joined the cluster as a node",
        "probation: m-8 has not joined the cluster as a node",
    ),
    "not joined, and its record is not written while nothing changes": (
        replaced(replacement=None, now=NOW + 5 * MINUTE),
        "wait",
        "unproved m-8 has not joined the cluster as a node",
        "probation: m-8 has not joined the cluster as a node",
    ),
    "gone again after it had joined": (
        on_trial(replacement=None),
        "act WriteRecord",
        "proving",
        "probation begins again: m-8 has not joined the cluster as a node",
    ),
    "never joined": (
        replaced(replacement=None, now=NOW + 30 * MINUTE),
        "act WriteRecord",
        "handedOver",
        "handed over to a person: replace was not proved within 30 min: m-8 has not joined",
    ),
    "came, broke and is gone": (
        replaced(
            replacement=None, gate=replace(HELD, starts=(GroupStart(NOW, "node-8", "workers", "m-8", DMA),))
        ),
        "act WriteRecord",
        "superseded",
        (
            f"m-0 is gone; node-8 (m-8) took its place and was sick too: {DMA}; "
            "what becomes of it is on the record of node-8"
        ),
    ),
    "not joined, whoever else broke": (
        replaced(
            replacement=None, gate=replace(HELD, starts=(GroupStart(NOW, "node-0", "workers", "m-0", DMA),))
        ),
        "wait",
        "unproved m-8 has not joined the cluster as a node",
        "probation: m-8 has not joined the cluster as a node",
    ),
    "joined": (replaced(), "act WriteRecord", "proving", "node-8 (m-8) is Ready"),
    "not ready": (
        replaced(replacement=node("node-8", conditions={"Ready": ("False", "x")})),
        "wait",
        "unproved node-8 (m-8) is not Ready",
        "probation: node-8 (m-8) is not Ready",
    ),
    "sick on its own record": (
        replaced(replacement_record="HBM was seen"),
        "act WriteRecord",
        "superseded",
        "m-0 is gone; node-8 (m-8) took its place and is sick too: HBM was seen",
    ),
    "sick": (
        replaced(replacement_problem="its condition NeuronHealth is True (x)"),
        "wait",
        "unproved node-8 (m-8) is not healthy: its condition NeuronHealth is True (x)",
        "probation: node-8 (m-8) is not healthy",
    ),
    "nobody tells of its page any more": (
        on_trial("node-8 (m-8) is Ready"),
        "act WriteRecord",
        "proving",
        ALONE,
    ),
    "proved by its node": (
        on_trial(ALONE),
        "act WriteRecord",
        "recovered",
        "proved: m-0 is gone and node-8 (m-8) was healthy for 2 min, by its Node alone: no agent",
    ),
    "its agent may not have looked at the gate": (
        on_trial(ALONE, tells_within=3 * MINUTE),
        "wait",
        "probation",
        "node-8 is on probation for another 60 s",
    ),
    "proved by its node, in which its agent would have told": (
        on_trial(ALONE, tells_within=2 * MINUTE),
        "act WriteRecord",
        "recovered",
        "proved: m-0 is gone and node-8 (m-8) was healthy for 2 min, by its Node alone: no agent",
    ),
    "proved by its page": (
        on_trial(replacement_is_me=True, readings=(reading(),)),
        "act WriteRecord",
        "recovered",
        "proved: m-0 is gone and node-8 (m-8) was healthy for 2 min, by its own detector's page",
    ),
    "its own page tells of the fault": (
        on_trial(replacement_is_me=True, readings=(reading(problem(fresh_until=NOW + HOUR)),)),
        "act WriteRecord",
        "proving",
        f"probation begins again: node-8 (m-8) is not healthy: {DMA}",
    ),
    "a fault under the old name that its source may take back": (
        on_trial(**OLD_NAME, readings=(reading(problem(HBM, fresh_until=NOW + HOUR, latched=False)),)),
        "act WriteRecord",
        "proving",
        f"probation begins again: node-0 (m-8) is not healthy: {HBM}",
    ),
    "a fault under the old name that nothing but a boot ends": (
        on_trial(**OLD_NAME, readings=(reading(problem(fresh_until=NOW + HOUR, latched=True)),)),
        "act WriteRecord",
        "superseded",
        f"m-0 is gone; node-0 (m-8) took its place and is sick too: {DMA}",
    ),
    "its own page cannot be read": (
        on_trial(replacement_is_me=True, readings=(BAD_PAGE,)),
        "act WriteRecord",
        "proving",
        "node-8 (m-8) is Ready; the page cannot be read (since 2026-11-21 03:00:00Z); nothing is proved",
    ),
}
CLOSED: dict[str, Row] = {
    "still on the gate": (
        situation(record=record(Phase.RECOVERED), gate=HELD, readings=(reading(),)),
        "act FreeSlot",
        "FreeSlot",
        f"{DMA} was seen; its place in the budget is free again",
    ),
    "off the gate": (
        situation(record=record(Phase.RECOVERED), gate=gate(open=()), readings=(reading(),)),
        "leave",
        "leave",
        "healthy",
    ),
    "a new fault": (
        situation(record=record(Phase.RECOVERED), gate=gate(open=())),
        "act WriteRecord",
        "suspect",
        f"{DMA} was seen",
    ),
    "the same fault": (
        situation(record=record(Phase.RECOVERED, acknowledged=(fault(),)), gate=gate(open=())),
        "leave",
        "leave",
        f"no new problem: {DMA} was dealt with before",
    ),
    "lost": (
        situation(record=record(Phase.LOST, faults=()), gate=gate(open=())),
        "hold",
        "lost",
        f"{DMA} was seen; nothing starts until the machine boots, is replaced or is released",
    ),
    "lost, and booted since": (
        situation(record=record(Phase.LOST), gate=gate(open=()), node=node(boot_id="boot-2")),
        "act WriteRecord",
        "suspect",
        f"{DMA} was seen",
    ),
    "handed over": (
        situation(record=record(Phase.HANDED_OVER, marks=BOTH), gate=gate(open=())),
        "hold",
        "handedOver",
        "in a person's hands since 2026-11-21 03:00:00Z",
    ),
    "handed over, another machine": (
        situation(record=record(Phase.HANDED_OVER, marks=BOTH), gate=gate(open=()), machine=SHIFT),
        "act Unmark",
        "Unmark",
        "the machine behind node-0 is m-9 now: the hand-over of m-0 has ended",
    ),
    "told, and a fault to treat": (
        situation(
            record=record(Phase.HANDED_OVER, faults=(fault(HANG),), acknowledged=(fault(HANG),), ladder=()),
            gate=gate(open=()),
        ),
        "act WriteRecord",
        "suspect",
        f"{DMA} was seen",
    ),
    "told, and taken back": (
        situation(
            record=record(Phase.HANDED_OVER, ladder=(), acknowledged=(fault(),)),
            gate=gate(open=()),
            readings=(CLEAR,),
        ),
        "act WriteRecord",
        "withdrawn",
        f"{DMA} was taken back by its own source",
    ),
    "told, and booted": (
        situation(
            record=record(Phase.HANDED_OVER, ladder=(), acknowledged=(fault(),)),
            gate=gate(open=()),
            node=node(boot_id="boot-2"),
            readings=(reading(),),
        ),
        "act WriteRecord",
        "withdrawn",
        f"{DMA} was taken back by a new boot",
    ),
}
ROWS = {
    f"{group}: {row}": rows[row]
    for group, rows in {
        "no record": NO_RECORD,
        "off": OFF,
        "suspect": SUSPECT,
        "waiting": WAITING,
        "recovering": RECOVERING,
        "after the call": AFTER_THE_CALL,
        "proving": PROVING,
        "replaced": REPLACED,
        "closed": CLOSED,
    }.items()
    for row in rows
}


@pytest.mark.parametrize("row", ROWS)
def test_a_situation_has_its_decision(row: str) -> None:
    s, verb, expected, sentence = ROWS[row]
    d = decide(s)
    effect = f" {type(d.effect).__name__}" if d.effect else ""
    what = d.effect.record.phase.value if isinstance(d.effect, WriteRecord) else d.key
    assert (f"{d.verb.value}{effect}", what) == (verb, expected)
    assert d.reason.startswith(sentence), d.reason


OFF_ROWS = [row for row in ROWS if ROWS[row][1].startswith("act")]


@pytest.mark.parametrize("row", OFF_ROWS)
def test_off_no_situation_has_an_effect(row: str) -> None:
    assert decide(replace(ROWS[row][0], on=False)).effect is None


@pytest.mark.parametrize(
    "row", [r for r in ROWS if r.partition(":")[0] in ("suspect", "waiting", "recovering")]
)
def test_while_another_agent_holds_the_lease_nothing_is_done(row: str) -> None:
    d = decide(replace(ROWS[row][0], lease=OTHERS_LEASE))
    assert (d.effect, d.key) == (None, "lease")


# ---------------------------------------------------------------- what a swapped record says


def test_a_queued_record_bears_a_copy_of_the_ladder_and_its_scopes() -> None:
    queued = has(decide(situation(record=record(Phase.SUSPECT))))
    assert (queued.ladder, queued.rule, queued.probation) == (LADDER, "neuron-hardware", 2 * MINUTE)
    assert queued.scopes == ("fleet", f"{ZONE}=a", "node.kubernetes.io/instance-type=trn1.32xlarge")


def test_a_reboot_that_its_provider_calls_done_waits_for_the_new_boot_id_and_says_so() -> None:
    """No machine takes the place of one that is rebooted."""
    d = decide(called(action="reboot", poll=Done("m-0 has booted 8 times, 7 before"), gate=HELD))
    assert (d.verb, d.effect) == (Verb.WAIT, None)
    assert d.reason == "m-0 has booted 8 times, 7 before; node-0 does not show a new boot ID yet"


def test_a_later_fault_is_appended_and_changes_neither_ladder_nor_rung() -> None:
    before = draining()
    s = recovering(before, readings=(reading(problem(), problem(HBM)),))
    after = has(decide(s))
    assert [f.reason for f in after.faults] == [DMA, HBM]
    assert (after.ladder, after.rung, after.rung_since) == (before.ladder, before.rung, before.rung_since)


def test_a_new_record_keeps_what_the_nodes_earlier_ones_remember() -> None:
    old = record(Phase.RECOVERED, attempt=3, acknowledged=(fault(HBM),))
    new = has(decide(situation(record=old, gate=gate(open=()))))
    assert (new.uid, new.attempt, new.acknowledged) == ("record-0", 3, (fault(HBM),))
    assert new.history[:1] == old.history[:1]
    assert (new.ladder, new.marks, new.intent) == ((), Marks(), None)


def test_a_hand_over_acknowledges_its_faults() -> None:
    ended = has(decide(situation(preflight=None, preflight_refused="no")))
    assert ended.acknowledged == (fault(),)


def test_a_fault_that_its_source_took_back_is_news_when_it_comes_again() -> None:
    s, *_ = CLOSED["told, and taken back"]
    ended = has(decide(s))
    assert ended.acknowledged == ()
    again = decide(replace(s, record=ended, readings=(reading(problem()),)))
    assert has(again).phase is Phase.SUSPECT


def test_a_foreign_cordon_is_kept_and_ours_is_the_taint_alone() -> None:
    d = decide(situation(record=record(Phase.RECOVERING), gate=HELD, node=node(unschedulable=True)))
    assert getattr(d.effect, "marks", None) == Marks(cordoned=False, tainted=True)


def test_a_cordon_that_a_crash_kept_off_the_record_is_still_ours() -> None:
    d = decide(situation(record=record(Phase.RECOVERING), gate=HELD, node=OURS))
    assert getattr(d.effect, "marks", None) == BOTH


def test_another_rung_begins_without_the_intent_of_the_one_before() -> None:
    r = replacing(intent=intent(action="reboot"), ladder=(Rung(Step.REBOOT, MINUTE), LADDER[1]), rung=0)
    following = has(decide(recovering(r, poll=Failed("no"))))
    assert (following.rung, following.intent, following.rung_since) == (1, None, None)


def test_a_machine_that_registered_anew_bears_no_marks_of_ours_and_its_drain_begins_anew() -> None:
    after = has(decide(recovering(draining(), node=node(uid="uid-2"))))
    assert (after.marks, after.node_uid, after.rung, after.rung_since) == (Marks(), "uid-2", 0, None)


def test_a_ladder_without_a_drain_gets_none_from_a_machine_that_registered_anew() -> None:
    before = replacing(ladder=(Rung(Step.CORDON, HOUR), LADDER[1]), rung_since=None)
    after = has(decide(recovering(before, node=node(uid="uid-2"))))
    assert (after.ladder, after.rung) == (before.ladder, 1)


def test_a_record_that_has_room_for_no_step_more_goes_on_without_another_drain() -> None:
    """What is cut off a record's end would be the step that helps."""
    reboots = tuple(Rung(Step.REBOOT, HOUR) for _ in range(20))
    before = replacing(ladder=(LADDER[0], *reboots, LADDER[1]), rung=21, rung_since=None)
    after = has(decide(recovering(before, node=node(uid="uid-2"))))
    assert (after.ladder, after.rung) == (before.ladder, 21)


def test_another_drain_goes_before_the_provider_and_leaves_the_steps_before_it_as_they_are() -> None:
    taint = Rung(Step.TAINT, HOUR)
    before = replacing(ladder=(LADDER[0], taint, LADDER[1]), rung=1, rung_since=NOW)
    after = has(decide(recovering(before, node=node(uid="uid-2"))))
    assert (after.ladder, after.rung) == ((LADDER[0], taint, LADDER[0], LADDER[1]), 1)


# ---------------------------------------------------------------- the volatile questions

WITNESSED = RULES.rstrip() + "\n    witness: {source: neuron-sysfs}\n"

VOLATILE: dict[str, tuple[Situation, str]] = {
    "record": (recovering(record(Phase.WITHDRAWN)), "the record has changed"),
    "lease": (
        recovering(replacing(), lease=OTHERS_LEASE),
        "the Lease is not held any more (owner/node-0/other",
    ),
    "slot": (recovering(replacing(), gate=gate()), "the slot is not held any more"),
    "no gate": (recovering(replacing(), gate=None), "the slot is not held any more"),
    "node": (recovering(replacing(), node=None), "the Node is not there"),
    "machine": (recovering(replacing(), machine=SHIFT), "the machine behind node-0 is m-9 now, not m-0"),
    "boot": (recovering(replacing(), node=replace(OURS, boot_id="b")), "the machine has booted since"),
    "cordon": (
        recovering(replacing(), node=replace(OURS, unschedulable=False)),
        "somebody uncordoned node-0",
    ),
    "excluded": (recovering(replacing(), node=replace(OURS, labels=EXCLUDED)), "the node is excluded"),
    "claimed": (recovering(replacing(), forbidden="kured holds node-0"), "kured holds node-0"),
    "brake": (recovering(replacing(), census=census(4, 10)), "the brake is on"),
    "off": (recovering(replacing(), on=False), "recovery is off"),
    "skew": (recovering(replacing(), skew=MINUTE), "this machine's clock is 60 s off"),
    "machine not known": (
        recovering(replacing(), machine=None, machine_problem="no provider knows it"),
        "no provider knows it",
    ),
    "taint": (
        recovering(replacing(), node=replace(OURS, taints=())),
        "somebody took the taint noderecovery.dev/unhealthy off node-0",
    ),
    "claimed by another Node": (
        recovering(replacing(), rivals=("node-7",)),
        "node-0 and node-7 claim to be one machine, m-0",
    ),
    "not confirmed any more": (
        recovering(
            replacing(),
            policy=policy(WITNESSED),
            witness_says=Statement(Says.UNREADABLE, "no answer"),
        ),
        f"neuron-sysfs cannot confirm {DMA}, and rule neuron-hardware waits for that",
    ),
    "taken back": (
        recovering(replacing(), readings=(CLEAR,)),
        f"{DMA} was taken back by its own source a moment ago",
    ),
}


@pytest.mark.parametrize("row", VOLATILE)
def test_right_before_the_call_a_change_stops_it(row: str) -> None:
    s, why = VOLATILE[row]
    kept = not_now(s, assess(s), Step.REPLACE)
    assert kept is not None
    assert kept.reason.startswith(f"replace is not asked for: {why}")
    assert kept.key == "volatile"


def test_a_rule_that_was_edited_since_and_is_not_about_the_fault_any_more_asks_no_witness() -> None:
    s = recovering(replacing(), policy=policy(WITNESSED.replace("type: NeuronHealth", "type: Other")))
    assert not_now(s, assess(s), Step.REPLACE) is None


def test_right_before_the_call_nothing_stops_what_still_holds() -> None:
    s = recovering(replacing())
    assert not_now(s, assess(s), Step.REPLACE) is None
