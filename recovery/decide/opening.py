"""No open record yet: one is opened at the first sign of a fault, before any timer or budget. PURE."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from recovery.decide import brakes
from recovery.decide.diagnosis import (
    Diagnosis,
    diagnose,
    healthy,
    name,
)
from recovery.decide.endings import last_of
from recovery.decide.history import note
from recovery.decide.lifecycle import Event, move
from recovery.decide.queue import SELDOM
from recovery.decide.situation import (
    REPEAT,
    Decision,
    Situation,
    Tell,
    WriteRecord,
    act,
    hold,
    leave,
    span,
    wait,
)
from recovery.model import Machine, Phase, Record, Step

IDLE = REPEAT


def begin(s: Situation) -> Decision:
    """No open record: open one at the first sign of a fault, before any timer or budget."""
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
    seen = f"{name(faults[0])} was seen{also}"
    if s.record is not None and (tried := in_vain(s, s.record, fresh)):
        past = span(s.now - recovered_at(s.record))
        seen = (
            f"{name(faults[0])} is back{also}, {past} after {tried[-1].value} was proved: the same incident"
        )
        fresh = replace(fresh, tried=tried)
    return note(fresh, s.now, "suspect", seen)


def in_vain(s: Situation, old: Record, new: Record) -> tuple[Step, ...]:
    """What a recovery of the same machine took, after which one of its faults has come back too soon."""
    same = {(f.type, f.reason) for f in old.faults} & {(f.type, f.reason) for f in new.faults}
    soon = s.now - recovered_at(old) <= s.policy.limits.same_incident
    if old.machine.id != new.machine.id or not same or not soon:
        return ()
    if old.phase is not Phase.RECOVERED:
        return old.tried  # it went, and came, and went: still the same incident
    taken = tuple(rung.do for rung in old.ladder[: old.rung + 1] if rung.do.provider_action)
    return (*old.tried, *taken)


def recovered_at(r: Record) -> datetime:
    """When a recovery on this record was last proved."""
    return last_of(r, Phase.RECOVERED.value)
