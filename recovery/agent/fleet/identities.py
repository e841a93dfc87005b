"""Whether two Nodes claim one machine, without a look at all of them: one in fifty thousand does, if any.

Kept are only numbers that stand for what Nodes claim, sorted: eight bytes each. Two texts may have the same
number, so what they say is looked at then.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator

from recovery.decide.claims import claims_of, looked_for, rival
from recovery.model import Machine, NodeView


class Identities:
    """What all Nodes claim to be. ``all_nodes`` lists them; it is asked once, and when two may be rivals."""

    def __init__(self, all_nodes: Callable[[], Iterable[NodeView]]) -> None:
        self._all = all_nodes
        self._claims: array[int] | None = None

    def change(self, old: NodeView | None, new: NodeView | None) -> None:
        """``new`` is there in place of ``old``. None: there is no such Node."""
        if self._claims is None or _same(old, new):
            return
        for claim in _numbers(old):
            at = bisect_left(self._claims, claim)
            assert self._claims[at] == claim
            del self._claims[at]
        for claim in _numbers(new):
            insort(self._claims, claim)

    def rivals(self, name: str, machine: Machine, own: NodeView | None) -> Iterator[str]:
        """The Nodes besides ``name`` that claim ``machine``. ``own``: the Node ``name``, if there is one."""
        if self._claims is None:
            self._claims = array("q", sorted(claim for node in self._all() for claim in _numbers(node)))
        ours = set(_numbers(own))
        if any(self._count(claim) > (claim in ours) for claim in map(hash, looked_for(machine))):
            yield from (node.name for node in self._all() if rival(node, name, machine))

    def _count(self, claim: int) -> int:
        assert self._claims is not None
        return bisect_right(self._claims, claim) - bisect_left(self._claims, claim)


def _same(old: NodeView | None, new: NodeView | None) -> bool:
    if old is None or new is None:
        return old is new
    return (old.provider_id, old.system_uuid) == (new.provider_id, new.system_uuid)


def _numbers(node: NodeView | None) -> Iterable[int]:
    return set(map(hash, claims_of(node))) if node is not None else ()
