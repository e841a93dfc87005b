"""Laws 2, 3 and 4: at most once, not on what is stale or unknown, the same machine in the same boot."""

from __future__ import annotations

from tests.search.facts import Wrote
from tests.search.judge.law import Law
from tests.search.judge.objects import NOTHING, Json, boot_id, machine_of, status
from tests.search.judge.recoveries import Call, Intent, Recovery

NOT_APPLIED_AFTER = 55.0
"""An ambiguous call is given up for one that came to nothing after a minute in which the cloud showed nothing;
5 s less, for clocks of whole seconds."""


APART = 30.0
"""Who put a mark on a Node and its machine may have clocks that are so far apart."""


class AtMostOnce(Law):
    """One call for an intent, one intent for an attempt, and none again while the last one stands."""

    name = "law 2"

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.attempts: dict[tuple[str, int], tuple[float, str]] = {}

    def called(self, call: Call) -> None:
        a, intent = call.asked, call.intent
        what = f"{a.action} of {a.machine}"
        if intent is None:
            self.breaks("no intent", a.machine, f"{what} was asked and no record names it", call)
            return
        r = intent.recovery
        if intent.call is not None:
            before = intent.call.asked
            told = f"{what} was asked again {a.at - before.at:.1f} s later by one intent ({before.answer})"
            self.breaks("same intent", r.node, told, r)
        key = (r.uid, intent.attempt)
        known = self.attempts.get(key)
        if known is not None and known[1] != intent.token and known[0] > self.world.restored:
            self.breaks("same attempt", r.node, f"{what} was asked twice in attempt {intent.attempt}", r)
        self.attempts[key] = (a.at, intent.token)
        late = a.at - intent.at
        if late > self.bounds.submit:
            told = f"{what} arrived {late:.0f} s after its intent was written"
            self.breaks("late", r.node, told, r)
        self._standing(call, intent)

    def _standing(self, call: Call, intent: Intent) -> None:
        """The same was asked before, it was applied, and it has neither happened nor been taken back."""
        a = call.asked
        first = self.world.standing.get(a.machine)
        if first is None or first.asked.action != a.action or first.intent is intent:
            return
        earlier = first.intent
        if earlier is None or earlier.recovery.spoiled or intent.recovery.spoiled:
            return
        settled = earlier.states.get("notApplied")
        if settled is not None and settled - first.asked.at >= NOT_APPLIED_AFTER:
            return
        if earlier.recovery is intent.recovery and earlier.rung != intent.rung:
            return
        told = (
            f"{a.action} of {a.machine} was asked again {a.at - first.asked.at:.0f} s after the first, "
            f"which was {first.asked.answer} and still stands"
        )
        self.breaks("blind repetition", intent.recovery.node, told, intent.recovery)


NOTICED = 10.0
"""Seconds. An agent in a recovery reads its Node every five; before a call it reads all again."""


class Known(Law):
    """Nothing destructive while the node's page cannot be read, nor without a fault of this machine."""

    name = "law 3"

    def called(self, call: Call) -> None:
        if call.intent is None:
            return
        r, a = call.intent.recovery, call.asked
        bad = self.world.blind(r.node)
        allowed = self.bounds.stale + self.bounds.submit
        if bad is not None and a.at - bad > allowed and _of_the_page(r):
            told = f"{a.action} was asked {a.at - bad:.0f} s after its page had become unreadable"
            self.breaks("unreadable", r.node, told, r)
        self._a_fault(call, r)

    def gate(self, w: Wrote, before: Json | None, after: Json | None) -> None:
        if not self.world.ours(w.actor):
            return
        for node, uid in self.world.slots:
            if self.world.slots[node, uid] != w.at:
                continue
            r, bad = self.world.by_uid.get(uid), self.world.blind(node, NOTICED)
            if r is None or bad is None or r.begun is not None or r.slot != w.at:
                continue
            if any(f.get("latched") for f in status(r.record).get("faults") or ()):
                continue  # its source cannot take it back: the page would not say more
            if w.at - bad > self.bounds.stale + self.bounds.in_flight and _of_the_page(r):
                told = f"was started {w.at - bad:.0f} s after its page had become unreadable"
                self.breaks("started unreadable", node, told, r)

    def _a_fault(self, call: Call, r: Recovery) -> None:
        """By the ground truth, something is wrong with this machine that its last boot has not mended."""
        m, at = self.world.machines.get(call.asked.machine), call.asked.at
        if m is None or not m.told or r.made_up:
            return
        boot, latest = m.last_boot(), at - self.bounds.sickness
        if any(_speaks(f.ended, f.ended_by, f.cleared, boot, latest) for f in m.faults):
            return
        if any(self.world.stated_for_ever(m, f) for f in m.faults):
            return
        if any(
            f.stays and f.ended is not None and f.ended >= boot > f.began > boot - APART for f in m.faults
        ):
            return  # by its own time its mark may be of the boot since
        had = "its faults are gone" if m.faults else "it never had a fault"
        told = f"{call.asked.action} was asked of {m.id}, which is healthy: {had}"
        self.breaks("healthy machine", r.node, told, r)


def _of_the_page(r: Recovery) -> bool:
    """Whether it takes the page to know its faults: silence is no fault of the page's, and what a condition
    alone states is not cancelled by a page that cannot be read."""
    faults = status(r.record).get("faults") or ()
    silent = any(f.get("reason") == "SignalUnknown" for f in faults)
    return not silent and any(f.get("source") != "conditions" for f in faults)


def _speaks(ended: float | None, by: str, cleared: bool, boot: float, latest: float) -> bool:
    """Whether a fault may still be taken for there: it is; or it ended a moment ago; or its source, which
    latches, has not taken it back in this boot."""
    if ended is None or ended >= latest:
        return True
    return not cleared and by not in ("reboot", "reimage", "redeploy", "replace") and ended >= boot


class SameMachine(Law):
    """The machine and the boot that the record is about are those that the call reaches."""

    name = "law 4"

    def called(self, call: Call) -> None:
        intent, a = call.intent, call.asked
        if intent is None:
            return
        r, world = intent.recovery, self.world
        wanted = str((status(r.record).get("machine") or NOTHING).get("id") or "")
        if a.machine != intent.machine or (wanted and wanted != a.machine):
            told = f"{a.action} reached {a.machine}, the record is about {wanted or intent.machine}"
            self.breaks("another machine", r.node, told, r)
        p = world.processes.get(a.actor)
        if p is not None and p.node and p.node != r.node:
            told = f"{a.action} of {r.node} was asked by the agent of {p.node}"
            self.breaks("another's node", r.node, told, r)
        m = world.machines.get(a.machine)
        if m is None or not m.told:
            return
        if m.gone is not None and a.at - m.gone > self.bounds.submit:
            self.breaks("gone", r.node, f"{a.action} was asked of {m.id}, which is gone", r)
        booted = m.last_boot()
        late = intent.at - booted > self.bounds.in_flight and not self._nobody_knew(intent, r)
        if intent.boot and m.boot and intent.boot != m.boot and late:
            told = (
                f"{a.action} was meant for boot {intent.boot}; {m.id} was in {m.boot} since "
                f"{a.at - booted:.0f} s"
            )
            self.breaks("another boot", r.node, told, r)
        self._name(call, r)

    def _nobody_knew(self, intent: Intent, r: Recovery) -> bool:
        """Whether all that was left said this boot: etcd was restored to before the last one, and neither the
        agent's process nor its record is older. Nothing shows it that its kernel is the Node's."""
        p, restored = self.world.processes.get(intent.actor), self.world.restored
        # One that was started right before has not looked yet.
        young = p is not None and p.started >= restored - self.bounds.in_flight and r.opened >= restored
        return young and boot_id(self.world.nodes.get(r.node)) == intent.boot

    def _name(self, call: Call, r: Recovery) -> None:
        """Another machine goes by the node's name."""
        node, a = self.world.nodes.get(r.node), call.asked
        if node is None or not machine_of(node) or machine_of(node) == a.machine:
            return
        uuid = str((status(node).get("nodeInfo") or NOTHING).get("systemUUID") or "")
        m = self.world.machines.get(machine_of(node))
        young = m is not None and m.joined is not None and a.at - m.joined <= self.bounds.submit
        if uuid.lower() != a.machine.lower() and not young:
            told = f"{a.action} was asked of {a.machine}, and its node is {machine_of(node)}"
            self.breaks("another name", r.node, told, r)


LAWS = (AtMostOnce, Known, SameMachine)
