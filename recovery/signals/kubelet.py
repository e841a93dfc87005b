"""The Node's condition Ready, as a fault: what a controller sees of a machine that cannot speak for itself.

The node controller sets Ready to Unknown when it has not heard the kubelet for 50 s (kube-controller-manager:
node-monitor-grace-period). The kubelet itself sets it to False. Neither says why; a node that comes back in
time is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from recovery.model import Condition, NodeView, Problem, Reading
from recovery.signals.own_node import EVIDENCE, Looks, OwnNodeSource, Seen

SOURCE = "kubelet"
READY = "Ready"
BACK_FOR = timedelta(seconds=60)
"""So long a Node is Ready again before that counts: a kubelet that starts again and again is not back."""


class KubeletSource(OwnNodeSource):
    """Ready False or Unknown is a fault; its type is Ready, its reason the condition's own."""

    def __init__(self, look: Looks) -> None:
        super().__init__(SOURCE, look)
        self._held: Mapping[str, Problem] = {}
        self._ready_since: datetime | None = None

    def _read(self, seen: Seen, node: NodeView, boot_id: str) -> Reading:
        if self._last_of(node) is None:  # a new Node of this name: what was wrong was the one before
            self._held, self._ready_since = {}, None
        ready = next((c for c in node.stated if c.type == READY), None)
        if ready is None:
            why = "the Node has no condition Ready yet"
            return Reading(SOURCE, seen.at, unknown={READY: why}, unknown_since={READY: seen.at})
        if ready.status == "True":
            return self._back(seen)
        self._ready_since = None
        p = self._stated(seen, ready)
        self._held = {p.reason: p}
        return Reading(SOURCE, seen.at, (p,), listed=frozenset({(READY, p.reason), (READY, "")}))

    def _stated(self, seen: Seen, c: Condition) -> Problem:
        reason = c.reason or "KubeletNotReady"
        # Unknown is written by a controller of the cluster. A kubelet has the clock of its machine, which may
        # be hours slow after a boot. Then the fault would be tolerated no more at once.
        written = c.transition if c.status == "Unknown" else None
        first = min((p.since for p in self._held.values()), default=written or seen.at)
        said = f": {c.message}" if c.message else ""
        return Problem(
            source=SOURCE,
            type=READY,
            reason=reason,
            message=f"the Node's condition {READY} is {c.status}{said}"[:EVIDENCE],
            since=min(first, seen.at),
            fresh_until=seen.at + seen.fresh_for,
        )

    def _back(self, seen: Seen) -> Reading:
        """Ready again. Until it has been for a while, what was wrong is not known to be over."""
        self._ready_since = self._ready_since or seen.at
        listed = frozenset({(READY, ""), *((READY, r) for r in self._held)})
        if self._held and seen.at - self._ready_since < BACK_FOR:
            why = f"{READY} is True again, which counts once it has been for a minute"
            since = {READY: self._ready_since}
            held = tuple(self._held.values())
            return Reading(SOURCE, seen.at, held, {READY: why}, since, listed=listed)
        self._held = {}
        return Reading(SOURCE, seen.at, cleared=frozenset({(READY, "*")}), listed=listed)
