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
"""Of one machine are remembered."""
BEHIND = timedelta(minutes=2)
"""So long another boot is doubted, of which a kubelet wrote before it was heard last. A kubelet puts right
within ten seconds what its Node says of its boot (nodeStatusUpdateFrequency); or its clock was set back."""


@dataclass(frozen=True, slots=True)
class Boots:
    """The boots that the machine of a Node was seen in: the last one, since when, and those before it.

    ``heard``: when its kubelet last wrote, by its own clock. ``doubted``: since when the Node names another
    boot that its kubelet wrote before that. ``unheard``: its kubelet has not written since it was first seen.
    ``restored``: when the Node was seen to have turned back to an earlier moment of this boot. ``others``:
    the machines that went by the same name before, each with a boot that it was seen in.
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

    def then(self, node: NodeView, now: datetime) -> Boots:
        """After ``node`` was seen.

        No machine goes back to an earlier boot. A Node does, where etcd was restored to a moment before the
        last one, until its kubelet writes to it; its heartbeat goes back, too. Restored to before its machine
        was replaced under the same name, it is written to by the other machine's kubelet. No two machines
        have a boot in common.
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
        return Boots(self.machine, boot_id, now, heard, before, unheard=False, others=self.others)

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
        )


def first_seen(node: NodeView, now: datetime) -> Boots:
    return Boots(node.provider_id, node.boot_id, now, _heard(node))


def _heard(node: NodeView) -> datetime | None:
    stated = node.stated
    return stated.heartbeat(READY) if isinstance(stated, Conditions) else node.heard
