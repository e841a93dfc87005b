"""``node-recovery release NODE``: a person gives a node back to service, or takes it out of our hands."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace

import click

from recovery.console.api import Desk, connect
from recovery.console.output import JSON, as_json, ask
from recovery.console.recoveries import NotInstalled, read_gate, swap
from recovery.decide import budget
from recovery.decide.budget import places
from recovery.decide.endings import UNSETTLED, close
from recovery.decide.lifecycle import TABLE, Event
from recovery.decide.marks import marked, unmark_patch
from recovery.decide.situation import span
from recovery.errors import ApiError, NodeRecoveryError, NotFound, Undecodable
from recovery.model import CORDONED_BY, OWNER_OF_MARKS, Marks, NodeView, Phase, Record
from recovery.report.publish import Notice, event_body
from recovery.store import gate as gates
from recovery.store import record as records


class CannotRelease(NodeRecoveryError):
    """It would be a lie, or harm. Nothing was changed."""


@dataclass
class Found:
    """What there is of a node: its record, its Node, and under which record UIDs it is on the gate."""

    record: Record
    node: NodeView | None
    places: frozenset[str]

    @property
    def closed(self) -> bool:
        return (self.record.phase, Event.RELEASED) not in TABLE

    @property
    def leftovers(self) -> bool:
        """A closed record whose marks or place were left: a program was stopped in the middle."""
        return bool(self.places) or (self.node is not None and marked(self.node))


def release(node: str, reason: str, assume_yes: bool, output: str) -> None:
    """Close the record of ``node`` as released, take our marks off, free its place. Asks first."""
    desk = connect()
    found = look(desk, node)
    check(found)
    if not assume_yes:
        ask(f"{describe(found, desk)} Release it?")
    owner = desk.caller()
    why = f"released by {owner}" + (f": {reason}" if reason else "")
    if not found.closed:
        swap(lambda: _close(desk, node, why))
    marks = swap(lambda: _unmark(desk, node))
    swap(lambda: _free(desk, node))
    _tell(desk, found, why)
    sentence = f"{_outcome(found, marks)}: {why}."
    body = {"node": node, "released": True, "marksTakenOff": marks, "sentence": sentence}
    click.echo(as_json(body) if output == JSON else sentence)


def _outcome(found: Found, marks: bool) -> str:
    node = found.node
    if node is None:
        return f"{found.record.node} is released; its Node is not there"
    off = ", our marks are off" if marks else ""
    if node.unschedulable and node.annotations.get(CORDONED_BY) != OWNER_OF_MARKS:
        return f"{node.name} is released{off}; somebody else's cordon stays (kubectl uncordon {node.name})"
    return f"{node.name} is back in service{off}"


def look(desk: Desk, node: str) -> Found:
    """Read all there is. Raises ``CannotRelease`` where there is nothing, or nothing that can be read."""
    try:
        record = records.decode(desk.get_record(node))
    except NotFound:
        try:
            desk.list_records()
        except NotFound:
            raise NotInstalled from None
        raise CannotRelease(f"there is nothing to release: {node} has no record") from None
    except Undecodable as error:
        raise CannotRelease(
            f"nothing was changed: the record of {node} cannot be read: {error}. Look at it with "
            f"kubectl get noderecovery {node} -o yaml; deleting it gives the node up"
        ) from None
    gate, problem = read_gate(desk)
    if problem:
        raise CannotRelease(f"nothing was changed: the gate cannot be read: {problem}")
    standing = frozenset(uid for name, uid in places(gate) if name == node) if gate else frozenset()
    return Found(record, _node(desk, node), standing)


def check(found: Found) -> None:
    """Raises ``CannotRelease`` where a release would lie or harm."""
    r = found.record
    if found.closed and not found.leftovers:
        raise CannotRelease(f"there is nothing to release: {r.node} is {r.phase.value}: {r.sentence}")
    if r.phase is Phase.RECOVERING and r.intent is not None and r.intent.state in UNSETTLED:
        raise CannotRelease(
            f"nothing was changed: {r.intent.action} of {r.intent.machine} has been asked for, and a release "
            f"does not call it back. It ends proved, or in a person's hands at its deadline ({r.sentence})"
        )


def describe(found: Found, desk: Desk) -> str:
    """What a person should know before saying yes."""
    r = found.record
    faults = ", ".join(dict.fromkeys(f.reason for f in r.faults)) or "no fault"
    told = f"{r.node} has been {r.phase.value} for {span(desk.time.now() - r.phase_since)}: {r.sentence}."
    if found.closed:
        return f"{told} What was left of it, marks or a place in the budget, is cleared away."
    return (
        f"{told} A release takes our cordon and taint off, frees its place in the budget, and remembers "
        f"{faults}: the same starts nothing again until the machine boots or is replaced."
    )


def _close(desk: Desk, node: str, why: str) -> None:
    """The swap that decides: an agent in the middle of something loses its next write to it."""
    record = records.decode(desk.get_record(node))
    check(Found(record, None, frozenset({record.uid})))
    if (record.phase, Event.RELEASED) in TABLE:
        desk.replace_record(records.encode(close(record, desk.time.now(), Event.RELEASED, why)))


def _unmark(desk: Desk, node: str) -> bool:
    """Take our marks off the Node, then off the record. True if there were any."""
    view = _node(desk, node)
    patch = unmark_patch(view) if view is not None else None
    if patch is not None:
        desk.patch_node(node, patch)
    record = records.decode(desk.get_record(node))
    if record.marks and not record.phase.open:
        desk.replace_record(records.encode(replace(record, marks=Marks())))
    return patch is not None


def _free(desk: Desk, node: str) -> None:
    """Take every place of the node off the gate, unless its record was opened again meanwhile."""
    obj = None
    try:
        obj = desk.get_gate()
    except NotFound:
        return
    gate = gates.decode(obj)
    record = records.decode(desk.get_record(node))
    changed = gate
    for name, uid in places(gate):
        if name == node and not (record.phase.open and record.uid == uid):
            changed = budget.free(changed, node, uid)
    if changed is not gate:
        desk.replace_gate(gates.encode(changed, obj.get("spec") or {}))


def _node(desk: Desk, node: str) -> NodeView | None:
    try:
        return desk.get_node(node)
    except NotFound:
        return None


def _tell(desk: Desk, found: Found, why: str) -> None:
    """An Event on the Node. A caller who may not write Events has released all the same."""
    uid = found.node.uid if found.node else found.record.node_uid
    notice = Notice(found.record.node, uid, "Released", why, False, desk.time.now())
    try:
        desk.create_event(event_body(f"{found.record.node}.{uuid.uuid4().hex[:16]}", notice))
    except ApiError as error:
        click.echo(f"(no Event was written: {error})", err=True)
