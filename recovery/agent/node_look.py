"""Reads the agent's own Node now and then, for the sources that go by it."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from datetime import datetime, timedelta

from recovery.agent.backoff import Backoff
from recovery.agent.world import World
from recovery.errors import ApiError
from recovery.kube.alike import turned_back
from recovery.model import NodeView
from recovery.quick import replace
from recovery.signals.own_node import Seen
from recovery.units import hour

log = logging.getLogger(__name__)

FIRST_PAUSE, WORST_PAUSE = 8.0, 120.0
"""Seconds without a look after the first error of the API server; each further one doubles them."""
LOOKS = 3
"""The last look may be relied on until so many have been missed."""


class NodeLook:
    """Looks at the Node with a GET, when the last look is older than is asked for.

    ``longest``: seconds between two looks that nobody asks for. A look that fails leaves what was known.
    ``restored``: when the Node was seen to have turned back to an earlier moment, by this machine's clock.
    """

    def __init__(self, world: World, node: str, longest: Callable[[], float]) -> None:
        self._w = world
        self._node = node
        self._longest = longest
        chance = random.Random(f"look at {node}")  # noqa: S311 - jitter
        self._backoff = Backoff(world.clock, FIRST_PAUSE, WORST_PAUSE, chance)
        self._seen: Seen | None = None
        self.restored: datetime | None = None
        self._looked_at = self._tried_at = float("-inf")

    def __call__(self, within: float | None = None) -> Seen:
        """The Node by a look no older than ``within`` seconds; None: as old as may be."""
        now, longest = self._w.clock.monotonic(), self._longest()
        due = now - self._tried_at >= (longest if within is None else within)
        if due and now >= self._backoff.until:
            self._tried_at = now
            self._try()
        if self._seen is None:
            return Seen(None, self._w.cluster.time.now(), timedelta(0), "the Node could not be read yet")
        if self._w.clock.monotonic() - self._looked_at <= LOOKS * longest:
            return self._seen
        at = hour(self._seen.at, self._w.cluster.time.now())
        return replace(self._seen, why=f"the Node was last read at {at}")

    def last(self, within: float | None = None) -> NodeView | None:
        """The Node as it was last read, None where it was not yet. ``within``: by a look no older than so
        many seconds."""
        if within is not None:
            self(within)
        return self._seen.node if self._seen is not None else None

    def saw(self, node: NodeView) -> None:
        """The agent has read its Node for a reason of its own: no other look is needed for a while."""
        self._tried_at = self._looked_at = self._w.clock.monotonic()
        if self._seen is not None and self._seen.node is not None and turned_back(self._seen.node, node):
            self.restored = self._w.clock.now()
        self._seen = Seen(node, self._w.cluster.time.now(), timedelta(seconds=LOOKS * self._longest()))

    def _try(self) -> None:
        try:
            node = self._w.node(self._node)
        except ApiError as error:
            self._backoff.failed(error.retry_after)
            log.debug("the own Node cannot be read: %s", error)
            return
        self._backoff.answered()
        if node is not None:
            self.saw(node)
