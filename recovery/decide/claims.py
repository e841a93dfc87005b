"""Whose machine is it? Nobody's, if two Nodes claim it, or if its Node was another machine before. PURE.

A kubelet writes into its own Node what its machine is called, and whoever has root on it can write another
machine's name there. What is then asked of the provider or a BMC would hit that other machine. Which of two
Nodes tells the truth cannot be seen from here: a person finds out.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from uuid import UUID

from recovery.decide.situation import Situation
from recovery.model import Machine, NodeView, Phase, Record
from recovery.quick import replace

MOST_RIVALS = 5
"""How many other Nodes with the same machine are named."""


def rival(node: NodeView, name: str, machine: Machine) -> bool:
    """Whether ``node``, which is not ``name``, claims to run on ``machine``: by its providerID or UUID."""
    if node.name == name:
        return False
    claimed, names = node.provider_id.lower(), _names(machine.id)
    if claimed and claimed == machine.provider_id.lower():
        return True
    return bool(names) and (_bare(claimed.rpartition("/")[2]) in names or _bare(node.system_uuid) in names)


def claims_of(node: NodeView) -> set[str]:
    """All that ``rival`` goes by of ``node``: it is one only of a machine of which one is ``looked_for``."""
    claimed = node.provider_id.lower()
    return {claimed, _bare(claimed.rpartition("/")[2]), _bare(node.system_uuid)} - {""}


def looked_for(machine: Machine) -> set[str]:
    """What a rival of ``machine`` has among its ``claims_of``: one of these."""
    return {machine.provider_id.lower(), *_names(machine.id)} - {""}


def other_machine(s: Situation, r: Record) -> str | None:
    """The machine that the node of ``r`` is now, where that is known to be another one than when ``r`` was
    made; else None."""
    another = s.machine is not None and s.machine.id != r.machine.id
    return s.machine.id if s.machine is not None and another else None


def same_machine(one: str, other: str) -> bool:
    """Whether two IDs name one machine. Both byte orders of a UUID do."""
    return _bare(other) in _names(one)


@lru_cache(maxsize=64)
def _names(unique: str) -> frozenset[str]:
    """What names the machine with this ID: of a UUID both byte orders, as ``_bare`` has them."""
    text = _bare(unique)
    try:
        found = UUID(text)
    except ValueError:
        return frozenset({text} if text else ())
    return frozenset({found.hex, found.bytes_le.hex()})


def _bare(text: str) -> str:
    """Without what may be left out of a UUID, or written otherwise. Asked of every Node of the fleet."""
    return text.strip().lower().replace("urn:", "").replace("uuid:", "").strip("{}").replace("-", "")


def claimed_twice(s: Situation) -> str | None:
    """Why the node's machine is nobody's: another Node claims it as well."""
    if not s.rivals or s.machine is None:
        return None
    claim = f"{' and '.join((s.node_name, *s.rivals))} claim to be one machine, {s.machine.id}"
    return f"{claim}: nothing is asked for it until a person has found out which of them it is"


def named(rivals: Iterable[str]) -> tuple[str, ...]:
    """The names that a situation has, in the same order each time."""
    return tuple(sorted(rivals)[:MOST_RIVALS])


def by_first_claim(s: Situation) -> Situation:
    """``s`` without its machine, where the same Node object was another machine when its record was made.

    Not while a call is in flight or its effect is proved: another machine may be what was asked for.
    """
    r = s.record
    if r is None or s.node is None or s.machine is None or s.node.uid != r.node_uid:
        return s
    if r.phase is Phase.PROVING or (r.phase.open and r.in_flight) or r.machine.provider != s.machine.provider:
        return s
    known = [x for x in (r.machine.id, r.replacement_machine) if x]
    if not known or any(same_machine(x, s.machine.id) for x in known):
        return s
    why = (
        f"{s.node_name} was the machine {known[-1]} and claims to be {s.machine.id} now, as the same Node "
        "object: nothing is asked for either; delete the Node if its machine was exchanged, or find out why "
        "it says so"
    )
    return replace(s, machine=None, machine_problem=why)
