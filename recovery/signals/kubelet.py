"""The Node's condition Ready, as a fault: what a controller sees of a machine that cannot speak for itself.

The node controller sets Ready to Unknown when it has not heard the kubelet for 50 s (kube-controller-manager:
node-monitor-grace-period). The kubelet itself sets it to False. Neither says why; a node that comes back in
time is left alone. Where the node controller is away, Ready stays True: then the kubelet's Lease tells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from recovery.decide.boot import COMES_UP
from recovery.model import NodeView, Problem, Reading
from recovery.quick import replace
from recovery.signals.own_node import EVIDENCE, Looks, OwnNodeSource, Seen

SOURCE = "kubelet"
READY = "Ready"
BACK_FOR = timedelta(seconds=60)
"""How long a Node has to be Ready before it counts as back: a kubelet may start again and again."""
RENEWS = timedelta(seconds=60)
"""Within so long a living kubelet has put right what its Node says, once etcd was restored."""

SILENT = "NodeStatusUnknown"
"""The reason that the node controller gives for a kubelet of which it hears nothing."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What is known of the kubelet of a Node that is Ready: how it is silent, and ``since`` when; "" where it
    is not. ``unknown``: why that is not known."""

    silent: str = ""
    since: datetime | None = None
    unknown: str = ""


WELL = Heard()


class KubeletSource(OwnNodeSource):
    """Ready False or Unknown is a fault; its type is Ready, its reason the condition's own. So is a kubelet
    that is silent: ``heard`` tells of that, by a look no older than so many seconds. ``restored``: when the
    Node was seen to have gone back to an earlier moment, as it does where etcd is restored."""

    def __init__(
        self,
        look: Looks,
        heard: Callable[[NodeView, float | None], Heard] = lambda node, within: WELL,
        restored: Callable[[], datetime | None] = lambda: None,
    ) -> None:
        super().__init__(SOURCE, look)
        self._heard = heard
        self._restored = restored
        self._within: float | None = None
        self._held: Mapping[str, Problem] = {}
        self._held_in = ""  # the boot in which that was last so
        self._boot = ""  # the last one that is known, of this Node or the one before it
        self._came_up: datetime | None = None  # when it was seen in another boot, first since it was Ready
        self._ready_since: datetime | None = None
        self._unheard_since: datetime | None = None

    def poll(self, boot_id: str, within: float | None = None) -> Reading:
        """What is known now, by a look no older than ``within`` seconds."""
        self._within = within
        return super().poll(boot_id, within)

    def _read(self, seen: Seen, node: NodeView, boot_id: str) -> Reading:
        if self._last_of(node) is None:  # a new Node of this name: what was wrong was the one before
            self._held, self._ready_since, self._unheard_since = {}, None, None
            self._came_up = self._came_up if self._comes_up(seen) else None
        self._note_boot(seen, boot_id)
        ready = next((c for c in node.stated if c.type == READY), None)
        if ready is None:
            why = "the Node has no condition Ready yet"
            return Reading(SOURCE, seen.at, unknown={READY: why}, unknown_since={READY: seen.at})
        if ready.status != "True":
            restored = self._restored()
            if restored is not None and seen.at - restored < RENEWS:
                why = f"{READY} is {ready.status} since etcd was restored, and its kubelet may put that right"
                return self._unknown(seen, why)
            if self._comes_up(seen):
                why = f"{READY} is {ready.status}, but its machine has just booted, and may be Ready soon"
                return replace(self._unknown(seen, why), problems=())  # what was wrong was before the boot
            # Unknown is written by a controller of the cluster. A kubelet has the clock of its machine, which
            # may be hours slow after a boot. Then the fault would be tolerated no more at once. So it would
            # where etcd was restored to a moment long ago.
            written = ready.transition if ready.status == "Unknown" else None
            if restored is not None and written is not None and written < restored:
                written = None
            said = f"{ready.status}: {ready.message}" if ready.message else ready.status
            return self._bad(seen, ready.reason or "KubeletNotReady", said, written, boot_id)
        heard = self._heard(node, self._within)
        if heard.silent:
            return self._bad(seen, SILENT, f"True, but {heard.silent}", heard.since, boot_id)
        if heard.unknown:
            return self._unknown(seen, heard.unknown)
        return self._back(seen, boot_id)

    def _note_boot(self, seen: Seen, boot_id: str) -> None:
        """One that boots again and again is waited for only the first time: else it never would be treated.
        One whose Node was deleted meanwhile, and that has registered anew, has booted all the same."""
        if self._came_up is None and self._boot and boot_id not in ("", self._boot):
            self._came_up = seen.at
        self._boot = boot_id or self._boot

    def _comes_up(self, seen: Seen) -> bool:
        return self._came_up is not None and seen.at - self._came_up < COMES_UP

    def _unknown(self, seen: Seen, why: str) -> Reading:
        self._unheard_since = self._unheard_since or seen.at
        held, since = tuple(self._held.values()), {READY: self._unheard_since}
        return Reading(SOURCE, seen.at, held, {READY: why}, since, listed=self._listed())

    def _bad(self, seen: Seen, reason: str, said: str, began: datetime | None, boot_id: str) -> Reading:
        self._held_in = boot_id
        self._ready_since = self._unheard_since = None
        first = min((p.since for p in self._held.values()), default=began or self._came_up or seen.at)
        p = Problem(
            source=SOURCE,
            type=READY,
            reason=reason,
            message=f"the Node's condition {READY} is {said}"[:EVIDENCE],
            since=min(first, seen.at),
            fresh_until=seen.at + seen.fresh_for,
        )
        self._held = {p.reason: p}
        return Reading(SOURCE, seen.at, (p,), listed=self._listed())

    def _listed(self) -> frozenset[tuple[str, str]]:
        return frozenset({(READY, ""), *((READY, r) for r in self._held)})

    def _back(self, seen: Seen, boot_id: str) -> Reading:
        """Ready, or again. Until it has been for a while, what was wrong is not known to be over: here, or in
        the process before this one. Of another boot nothing bad was ever said."""
        if boot_id != self._held_in:
            self._held = {}
        self._came_up = None
        self._ready_since = self._ready_since or seen.at
        self._unheard_since = None
        listed = self._listed()
        if seen.at - self._ready_since < BACK_FOR:
            why = {READY: f"{READY} is True, which counts once it has been for a minute"}
            if not self._held:
                return Reading(SOURCE, seen.at, unconfirmed=why, listed=listed)
            since = {READY: self._ready_since}
            return Reading(SOURCE, seen.at, tuple(self._held.values()), why, since, listed=listed)
        self._held = {}
        return Reading(SOURCE, seen.at, cleared=frozenset({(READY, "*")}), listed=listed)
