"""What may be started: a fault that was tolerated for long enough, and that nobody has dealt with."""

from __future__ import annotations

from collections import Counter

from tests.search import facts
from tests.search.facts import Asked, Happened, Wrote
from tests.search.judge.law import Law
from tests.search.judge.objects import DESTRUCTIVE, Json, status
from tests.search.judge.recoveries import Call, Recovery

CLOCK = 3.0
"""Moments are those of the API server, by an offset that is read now and then."""


class Tolerated(Law):
    """A rule's ``after`` is waited for, by true time: no node is touched early because a clock is wrong."""

    name = "law 3"

    def gate(self, w: Wrote, before: Json | None, after: Json | None) -> None:
        if not self.world.ours(w.actor):
            return
        for (_, uid), since in self.world.slots.items():
            r = self.world.by_uid.get(uid)
            if since == w.at and r is not None and r.slot == w.at and r.begun is None and not r.made_up:
                self._judge(w, r)

    def _judge(self, w: Wrote, r: Recovery) -> None:
        m = self.world.machines.get(r.machine)
        if m is None or not m.told:
            return
        about = {f.get("reason") for f in status(r.record).get("faults") or ()}
        known = [f for f in m.faults if f.reason in about]
        policies = self.world.policies_of(w.actor, self._began(r))
        for f in known:
            allowed = min(p.tolerates(f.type, f.reason) for p in policies)
            if w.at - f.began >= allowed - CLOCK:
                return
        if known:
            gone = w.at - known[0].began
            what = f"was started {gone:.0f} s after {known[0].reason} began, too soon for its rule"
            self.breaks("tolerated", r.node, what, r)

    def _began(self, r: Recovery) -> float:
        """When the processes started that may have opened the record: they chose its rule, by their policy."""
        alive = (
            p.started
            for p in self.world.processes.values()
            if (p.everywhere or p.node == r.node) and p.started <= r.opened
            if not (p.state == "killed" and p.since < r.opened)
        )
        return min([r.opened, *alive])


class Hours(Law):
    """Nothing starts outside the windows of its rule. Where the policy says so, no call is made there either."""

    name = "windows"

    def gate(self, w: Wrote, before: Json | None, after: Json | None) -> None:
        if not self.world.ours(w.actor):
            return
        for (_, uid), since in self.world.slots.items():
            r = self.world.by_uid.get(uid)
            if since == w.at and r is not None and r.slot == w.at and r.begun is None and not r.made_up:
                self._judge(w.actor, w.at, r, "was started", stops=False)

    def called(self, call: Call) -> None:
        if call.intent is not None and not call.intent.recovery.made_up:
            at, r = call.intent.at, call.intent.recovery
            self._judge(call.asked.actor, at, r, f"{call.asked.action} was asked", stops=True)

    def _judge(self, actor: str, at: float, r: Recovery, what: str, *, stops: bool) -> None:
        epoch = self.world.epoch
        if epoch is None or at - self.world.policy_changed < self.bounds.submit:
            return
        policies = self.world.policies_of(actor, at - self.bounds.submit)
        rule = str(status(r.record).get("rule") or "")
        moments = (at - CLOCK, at, at + CLOCK)
        if any(p.open_at(rule, epoch + m) or (stops and not p.stops) for p in policies for m in moments):
            return
        self.breaks("outside", r.node, f"{what} outside the windows of its rule {rule}", r)


class DealtWith(Law):
    """A fault that a person has released starts nothing again, until machine, boot or detector is another
    one, or the fault is stated anew. Judged where the harness says when a source states a fault."""

    name = "law 3"
    BACK = 60.0

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.released: dict[str, tuple[str, float]] = {}  # node -> machine, when
        self.about: dict[str, set[str]] = {}  # node -> the reasons that were released
        self.restarted: dict[str, float] = {}
        self.stated: dict[str, float] = {}  # machine -> when a source of it last stated a fault
        self.times: Counter[tuple[str, str]] = Counter()  # machine, reason -> how often

    def happened(self, h: Happened) -> None:
        if h.what == facts.DETECTOR_RESTARTED:
            self.restarted[h.subject] = h.at
        elif h.what == facts.FAULT_STATED:
            self.stated[h.subject] = h.at
            self.times[h.subject, str(h.detail.get("reason"))] += 1

    def record(self, w: Wrote, before: Json | None, after: Json | None) -> None:
        """A record that somebody deletes takes along what it remembers of a release (docs/runbook.md)."""
        if after is None and w.actor != "etcd" and not self.world.ours(w.actor):
            self.released.pop(w.name, None)

    def phase(self, w: Wrote, r: Recovery, before: str, after: str) -> None:
        if after == "released":
            self.released.pop(r.node, None)
            if status(w.after).get("faults"):  # a lost record names none, and its release is about none
                self.released[r.node] = (r.machine, w.at)
                self.about[r.node] = _reasons(w.after)
        elif after == "recovering" and self.world.ours(w.actor):
            self._judge(w, r)

    def _judge(self, w: Wrote, r: Recovery) -> None:
        machine, at = self.released.get(r.node, ("", 0.0))
        m = self.world.machines.get(r.machine)
        if m is None or not m.told or machine != r.machine or r.made_up or at <= self.world.restored:
            return
        # What was stated right before the release may be read after it.
        if (
            r.machine not in self.stated
            or self.stated[r.machine] >= at - self.bounds.sickness - self.bounds.lag
        ):
            return
        if not _reasons(r.record) <= self.about[r.node]:
            return  # it has a fault that the person was not told of: the release is not about that
        agent = self.world.agent_of(r.node)
        again = any(self.times[r.machine, reason] > 1 for reason in _reasons(r.record))
        if again and agent is not None and agent.started - at > self.BACK:
            return  # nobody was there who could tell whether it was stated again before the release
        if m.booted_since(at) or self.restarted.get(r.node, -1.0) >= at or r.opened < at:
            return
        if not any(f.began >= at or (f.shown is not None and f.shown >= at) for f in m.faults):
            told = f"was started again for what a person had released {w.at - at:.0f} s before"
            self.breaks("released before", r.node, told, r)


def _reasons(record: Json | None) -> set[str]:
    return {str(f.get("reason")) for f in status(record).get("faults") or ()}


class Pace(Law):
    """Nobody writes in a circle, and a cloud is not asked the same again and again."""

    name = "load"
    SECONDS, WRITES, CALLS = 10.0, 100, 6

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.writes: dict[tuple[str, str], tuple[int, int]] = {}  # actor, kind -> window, how many
        self.calls: dict[tuple[str, str], tuple[int, int]] = {}

    def ours(self, w: Wrote, before: Json | None, after: Json | None) -> None:
        self._count(w.actor, w.kind, w.at)

    def event(self, w: Wrote, before: Json | None, after: Json | None) -> None:
        self._count(w.actor, w.kind, w.at)

    def _count(self, actor: str, kind: str, at: float) -> None:
        window, count = self.writes.get((actor, kind), (0, 0))
        now = int(at // self.SECONDS)
        count = count + 1 if window == now else 1
        self.writes[actor, kind] = (now, count)
        if count > self.WRITES:
            self.breaks("writes", actor, f"more than {self.WRITES} writes of {kind} in 10 s", kind)

    def asked(self, a: Asked) -> None:
        """What is asked beside the destructive calls: to set a capacity back, for one."""
        if a.action in DESTRUCTIVE:
            return
        window, count = self.calls.get((a.machine, a.action), (0, 0))
        now = int(a.at // 60.0)
        count = count + 1 if window == now else 1
        self.calls[a.machine, a.action] = (now, count)
        if count > self.CALLS:
            self.breaks("calls", a.machine, f"{a.action} was asked {count} times in a minute", a.action)


LAWS = (Tolerated, Hours, DealtWith, Pace)
