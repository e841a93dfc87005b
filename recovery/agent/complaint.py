"""What speaks against a node that nobody but its Node can speak for?"""

from __future__ import annotations

from datetime import timedelta

from recovery.catalog import bad_status, own_fault
from recovery.decide.diagnosis import diagnose, live, name
from recovery.decide.situation import Situation
from recovery.model import Machine, NodeView, Record
from recovery.signals.marks import observed
from recovery.signals.own_node import Seen
from recovery.signals.systems import MARKS


def complaint(s: Situation, node: NodeView, machine: Machine | None, record: Record | None) -> str:
    """What stands on ``node``, which is ``machine`` and has this ``record``, against its health; else ""."""
    return condition(node) or _mark(s, node, machine, record)


def condition(node: NodeView) -> str:
    """A condition of ``node`` that is bad and catalogued as the node's own fault."""
    for kind, (status, reason) in node.conditions.items():
        if own_fault(kind, reason) and status == bad_status(kind):
            return f"its condition {kind} is {status} ({reason})"
    return ""


def _mark(s: Situation, node: NodeView, machine: Machine | None, record: Record | None) -> str:
    """A mark of one of the policy's sources that a rule treats, and that was not dealt with.

    Its record tells of it, too, but a record can be deleted.
    """
    chosen = [choice.name for choice in s.policy.sources if choice.name in MARKS]
    if not chosen:
        return ""
    seen = Seen(node, s.now, timedelta(0))
    readings = tuple(observed(source, None, MARKS[source](node), seen) for source in chosen)
    there = Situation(
        s.now,
        node.name,
        s.policy,
        readings=readings,
        node=node,
        machine=machine,
        record=record,
        provider=s.provider,
    )
    found = live(there, diagnose(there))
    return f"{found[0].fault.message} states {name(found[0].fault)}" if found else ""
