"""What is found of a Node's conditions, once for all Nodes that have the very same ones. PURE.

In a large fleet nearly all Nodes share theirs (``kube/alike.py``), and a heartbeat changes none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain

from recovery.model import NodeView

MOST, LONGEST = 1024, 4096
"""So many conditions are remembered, of at most so many characters each: strangers write to Nodes, and no two
Nodes share what is longer."""


class Judged:
    """``judge``, which goes by nothing but the type, status and reason of a Node's conditions."""

    def __init__(self, judge: Callable[[NodeView], bool]) -> None:
        self._judge = judge
        self._known: dict[int, tuple[Mapping[str, tuple[str, str]], bool]] = {}

    def __call__(self, node: NodeView) -> bool:
        """What is known keeps the conditions alive, or others could be taken for them."""
        conditions = node.conditions
        known = self._known.get(id(conditions))
        if known is not None:
            return known[1]
        found = self._judge(node)
        if sum(map(len, chain(conditions, chain.from_iterable(conditions.values())))) <= LONGEST:
            if len(self._known) >= MOST:
                self._known.clear()
            self._known[id(conditions)] = conditions, found
        return found
