"""With recovery off, a recovery that was begun is left as it is. That is repeated each minute, wherever its
node is (rulings 15 and 33).

An agent says it of its own node. A controller has an agent only for a Node of which something is said, so the
records name the others. A concluder speaks for the agents that are gone with their machines.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from recovery.agent.world import World
from recovery.decide.decision import REPEAT, EventReason
from recovery.decide.orphan import while_off
from recovery.errors import ApiError, Undecodable
from recovery.kube.paging import folded
from recovery.model import Phase, Record
from recovery.report.metrics import Metrics
from recovery.report.notice import About, Notice
from recovery.report.publish import Publisher

log = logging.getLogger(__name__)


class LeftAlone:
    """``left``: has the controller's own agent look at a node, and say it; a concluder has none, and says it
    itself. ``by``: what its shares of the gauges count by."""

    def __init__(
        self, world: World, publisher: Publisher, metrics: Metrics, by: str, left: Callable[[str], None]
    ) -> None:
        self._w = world
        self._publisher = publisher
        self._metrics = metrics
        self._by = by
        self._left = left
        self._due = 0.0
        self._refused = ""

    def tell(self) -> float:
        """Say it, if a minute has passed. Seconds until the next time. Raises no ``ApiError``."""
        now = self._w.clock.monotonic()
        if now < self._due:
            return self._due - now
        self._due = now + REPEAT.total_seconds()
        try:
            self._tell_of(folded(lambda: [r for r in self._w.records.sick() if isinstance(r, Record)]))
            self._refused = ""
        except (ApiError, Undecodable) as error:
            if str(error) != self._refused:
                log.warning("what was left when recovery was switched off is not known: %s", error)
            self._refused = str(error)
        return REPEAT.total_seconds()

    def _tell_of(self, left: list[Record]) -> None:
        if self._w.afar:
            for r in left:
                self._left(r.node)
            return
        unseen = [r for r in left if self._w.is_not_ready(r.node)]
        for r in unseen:
            self._say(r)
        handed = sum(r.phase is Phase.HANDED_OVER for r in unseen)
        self._metrics.share(self._metrics.open_handovers, handed, self._by)
        self._metrics.share(self._metrics.abandoned, len(unseen) - handed, self._by)

    def _say(self, r: Record) -> None:
        d, at = while_off(r), self._w.cluster.time.now()
        handed = r.phase is Phase.HANDED_OVER
        reason = EventReason.HANDED_OVER if handed else EventReason.ABANDONED_BY_SWITCH_OFF
        told = Notice(r.node, r.node_uid, reason.value, d.reason, True, at, d.key, About.of(r), echo=handed)
        self._publisher.event(told)
        self._publisher.held(d.key, at)
