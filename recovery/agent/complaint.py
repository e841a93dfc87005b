"""What on its Node shows that a node is not healthy, where no agent tells anything of it?"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import timedelta

from recovery.catalog import bad_status, own_fault, polarity
from recovery.decide.diagnosis import diagnose, live, name
from recovery.decide.situation import Situation
from recovery.model import ConditionRow, Machine, NodeView, Polarity, Reading, Record
from recovery.signals import conditions
from recovery.signals.marks import observed
from recovery.signals.own_node import Seen
from recovery.signals.systems import MARKS


def complaint(s: Situation, node: NodeView, machine: Machine | None, record: Record | None) -> str:
    """What stands on ``node``, which is ``machine`` and has this ``record``, against its health; else ""."""
    return condition(node) or _treated(s, node, machine, record)


def condition(node: NodeView) -> str:
    """A condition of ``node`` that is bad and catalogued as the node's own fault."""
    for kind, (status, reason) in node.conditions.items():
        if own_fault(kind, reason) and status == bad_status(kind):
            return f"its condition {kind} is {status} ({reason})"
    return ""


def _treated(s: Situation, node: NodeView, machine: Machine | None, record: Record | None) -> str:
    """What one of the policy's sources finds on the Node that a rule treats, and that was not dealt with.

    Its record tells of it, too, but a record can be deleted, and the one of this name may still be about the
    machine before.
    """
    readings = tuple(_read(s, node))
    if not any(r.problems for r in readings):
        return ""
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


def _read(s: Situation, node: NodeView) -> Iterator[Reading]:
    """What the policy's sources that go by the Node read there now, as if they had never looked before."""
    seen = Seen(node, s.now, timedelta(0))
    for choice in s.policy.sources:
        if choice.name in MARKS:
            yield observed(choice.name, None, MARKS[choice.name](node), seen)
        elif choice.name == conditions.SOURCE:
            named = {rule.match.type for rule in s.policy.rules}
            look = conditions.Look(s.now, node.stated, node.boot_id, None, seen.fresh_for)
            yield conditions.observe(conditions.State(), look, _known(choice.rows, named))[1]


def _known(rows: Iterable[ConditionRow], named: Collection[str]) -> Callable[[str], Polarity | None]:
    return lambda kind: polarity(kind, rows, named)
