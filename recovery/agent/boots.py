"""Which boots was a machine seen in?

A machine never goes back to an earlier one. Its Node does, where etcd was restored."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from recovery.kube.alike import Conditions
from recovery.model import NodeView
from recovery.quick import replace
from recovery.signals.kubelet import READY

MOST_BOOTS = 8
"""How many boots of one machine are remembered."""
BEHIND = timedelta(minutes=2)
"""How long another boot is doubted, if its heartbeat is older than the last one of the boot that is known. A
kubelet corrects the boot ID on its Node within ten seconds (nodeStatusUpdateFrequency). If the other boot is
still there after this time, the node's clock was set back."""


@dataclass(frozen=True, slots=True)
class Boots:
    """The boots that the machine of a Node was seen in: the last one, since when, and those before it.

    ``heard``: when its kubelet last wrote, by its own clock. ``doubted``: since when the Node names another
    boot with an older heartbeat. ``unheard``: its kubelet has not written since the Node was first seen.
    ``restored``: when the Node was seen to have gone back to an earlier moment of this boot. ``others``: the
    machines that had the same name before, each with a boot that it was seen in. ``left``, ``came``: when the
    kubelet wrote last in the boot before, and first in this one, by the node's clock; None: nobody saw that.
    """

    machine: str
    last: str
    since: datetime
    heard: datetime | None
    before: tuple[str, ...] = ()
    doubted: datetime | None = None
    unheard: bool = True
    restored: datetime | None = None
    others: tuple[tuple[str, str], ...] = ()
    left: datetime | None = None
    came: datetime | None = None

    def then(self, node: NodeView, now: datetime) -> Boots:
        """What is known after ``node`` was seen.

        No machine goes back to an earlier boot. But its Node does, with its heartbeat, where etcd was
        restored to a moment before the last boot; until the kubelet writes again. If etcd was restored to a
        moment before the machine was replaced under the same name, the kubelet of the new machine writes to
        the old Node. No two machines have a boot in common.
        """
        boot_id, heard = node.boot_id, _heard(node)
        if node.provider_id != self.machine:
            seen = ((self.machine, boot) for boot in (*self.before, self.last))
            return replace(first_seen(node, now), others=(*self.others, *seen)[-MOST_BOOTS:])
        if boot_id == self.last:
            return self if heard == self.heard and not self.doubted else self._again(node, heard)
        if not boot_id or boot_id in self.before or self._of_another(boot_id):
            return self
        if heard is not None and self.heard is not None and heard < self.heard:
            doubted = self.doubted or now
            if now - doubted < BEHIND:
                return replace(self, doubted=doubted)
        before = (*self.before, self.last)[-MOST_BOOTS:]
        written = heard is not None and self.heard is not None and heard > self.heard
        left, came = (self.heard, heard) if written else (None, None)
        return Boots(
            self.machine,
            boot_id,
            now,
            heard,
            before,
            unheard=False,
            others=self.others,
            left=left,
            came=came,
        )

    def of(self, node: NodeView) -> NodeView:
        """``node`` in the boot that its machine is in."""
        return node if node.boot_id in ("", self.last) else replace(node, boot_id=self.last)

    def _of_another(self, boot_id: str) -> bool:
        return any(boot == boot_id and machine != self.machine for machine, boot in self.others)

    def _again(self, node: NodeView, heard: datetime | None) -> Boots:
        """The texts are those of ``node``: the same ones, so that they are in memory once."""
        latest = max(filter(None, (heard, self.heard)), default=None)
        unheard = self.unheard and latest == self.heard
        return Boots(
            node.provider_id,
            node.boot_id,
            self.since,
            latest,
            self.before,
            unheard=unheard,
            restored=self.restored,
            others=self.others,
            left=self.left,
            came=self.came,
        )


def first_seen(node: NodeView, now: datetime) -> Boots:
    return Boots(node.provider_id, node.boot_id, now, _heard(node))


def _heard(node: NodeView) -> datetime | None:
    stated = node.stated
    return stated.heartbeat(READY) if isinstance(stated, Conditions) else node.heard
