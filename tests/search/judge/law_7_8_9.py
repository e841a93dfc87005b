"""Laws 7, 8 and 9: off means off; what holds holds, and never the way back; told before it is done."""

from __future__ import annotations

from tests.search.facts import Happened, Wrote
from tests.search.judge.law import Law
from tests.search.judge.objects import Json, marked, spec
from tests.search.judge.recoveries import Call, Recovery

NO_EVENTS = 300.0
"""So long after a request of its has failed, an agent may still hold its Events back."""


class Off(Law):
    """An actor whose recovery is off writes Events and the one RecoveryReport, and nothing else."""

    name = "law 7"

    def ours(self, w: Wrote, before: Json | None, after: Json | None) -> None:
        if w.kind != "Event" and (w.kind, w.name) != ("RecoveryReport", "fleet"):
            self._off(w.actor, w.at, f"{w.verb} {w.kind} {w.name}")

    def eviction(self, w: Wrote) -> None:
        self._off(w.actor, w.at, f"the eviction of {w.name}")

    def called(self, call: Call) -> None:
        self._off(call.asked.actor, call.asked.at, f"{call.asked.action} of {call.asked.machine}")

    def _off(self, actor: str, at: float, what: str) -> None:
        p = self.world.processes.get(actor)
        if p is not None and not p.on and at - p.on_since > self.bounds.in_flight:
            self.breaks("off", actor, f"{what}, {at - p.on_since:.0f} s after it was switched off")


class Held(Law):
    """Pause and exclusion stop whatever was not under way when they came. (The brake: law 10.)"""

    name = "law 8"

    def called(self, call: Call) -> None:
        if call.intent is None:
            return
        # The questions are asked a moment before the intent is written; the call follows it blindly.
        self._held(call.intent.recovery.node, call.intent.at, call.asked.action, call.intent.recovery)

    def eviction(self, w: Wrote) -> None:
        node = str(spec(w.before).get("nodeName") or "")
        r = self.world.recoveries.get(node)
        if r is not None:
            r.asked_evictions += 1
            r.asked_on_rung += 1
        # Pause and label are looked at between evictions, and the one under way is not called back.
        self._held(node, w.at - self.bounds.in_flight, f"the eviction of {w.name}", r)

    def node(self, w: Wrote, before: Json | None, after: Json | None) -> None:
        if self.world.ours(w.actor) and marked(after) and not marked(before):
            self._held(w.name, w.at, "a mark of ours", self.world.recoveries.get(w.name))

    def gate(self, w: Wrote, before: Json | None, after: Json | None) -> None:
        """A slot is taken in the write that shows the pause: there is no moment in between."""
        if not self.world.ours(w.actor):
            return
        world = self.world
        for (node, uid), since in world.slots.items():
            r = world.by_uid.get(uid)
            if since != w.at or r is None or r.slot != w.at or r.begun is not None:
                continue
            if r.phase != "waiting":
                continue  # it is put back: somebody has emptied the gate
            if world.paused() is not None and spec(before).get("pause"):
                self.breaks("started while paused", node, "was given a slot while all is paused", r)
            out = world.excluded.get(node)
            # A slot harms nobody: the label is read again before anything is done to the node.
            if out is not None and w.at - out > self.bounds.submit:
                told = f"was given a slot {w.at - out:.0f} s after it was excluded"
                self.breaks("started while excluded", node, told, r)

    def _held(self, node: str, at: float, what: str, about: Recovery | None) -> None:
        world = self.world
        paused, out = world.paused(), world.excluded.get(node)
        if paused is not None and at - paused > self.bounds.in_flight:
            self.breaks("paused", node, f"{what} was asked {at - paused:.0f} s after all was paused", about)
        if out is not None and at - out > self.bounds.in_flight:
            self.breaks("excluded", node, f"{what} was asked {at - out:.0f} s after it was excluded", about)


class ToldFirst(Law):
    """What may remove the node is announced first: an Event about the node comes before the call."""

    name = "law 9"

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.told: dict[str, tuple[float, str]] = {}  # node -> the last Event of ours about it
        self.said: dict[tuple[str, str], float] = {}  # node, sentence -> when an Event of ours last said so
        self.trouble: dict[str, float] = {}  # actor -> when a request of it was last lost or refused

    def event(self, w: Wrote, before: Json | None, after: Json | None) -> None:
        about = (after or before or {}).get("involvedObject") or {}
        if about.get("name"):
            sentence = str((after or {}).get("message") or "")
            self.told[str(about["name"])] = (w.at, sentence)
            self.said[str(about["name"]), sentence] = w.at

    def happened(self, h: Happened) -> None:
        if h.what == "trouble":
            self.trouble[h.subject] = h.at

    def called(self, call: Call) -> None:
        if call.intent is None:
            return
        r = call.intent.recovery
        if call.asked.at - self.trouble.get(call.asked.actor, -1e9) < NO_EVENTS:
            return  # telling never blocks doing: an agent whose requests fail goes on without
        # A record that a restored etcd has brought back was told of when it was there before.
        opened = 0.0 if r.spoiled.startswith("etcd") else r.opened
        told = self.told.get(r.node)
        if told is None or told[0] < opened - self.bounds.in_flight:
            what = f"{call.asked.action} was asked and no Event has said anything of this recovery"
            self.breaks("untold", r.node, what, r)
            return
        if self.world.bounds.announced and not self._announced(call, r.node, opened):
            what = f"{call.asked.action} of {call.asked.machine} was asked, and no Event had said that it would be"
            self.breaks("unannounced", r.node, what, r)

    def _announced(self, call: Call, of: str, since: float) -> bool:
        """Whether an Event about the node has named the action and the machine."""
        a = call.asked
        return any(
            node == of and at >= since and a.action in sentence and a.machine in sentence
            for (node, sentence), at in self.said.items()
        )


LAWS = (Off, Held, ToldFirst)
