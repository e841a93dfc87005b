"""Law 11, and law 6 where a record closes: what is proved or withdrawn is so by the ground truth."""

from __future__ import annotations

import re

from tests.search import facts
from tests.search.facts import Happened, Wrote
from tests.search.judge.law import Law
from tests.search.judge.objects import Json, duration, moment, ready, status
from tests.search.judge.recoveries import Intent, Recovery
from tests.search.judge.world import PAGE, REMOVED, RESTART, Fault, Machine

REBOOTS = ("reboot", "reimage", "redeploy")
NODE_LAGS = 40.0
"""So long a Node is Ready after its machine has gone: nobody but the cloud knows of it. (A node controller's grace.)"""
HEALTHY_FOR = re.compile(r"was healthy for (\d+) s")
CLOCK = 3.0
"""Moments on records are whole seconds of the API server, by an offset that is read now and then."""


class Evidence(Law):
    """Who closes as recovered has a new boot, or another machine; and a probation that was whole."""

    name = "law 11"

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.replaced_by: dict[str, str] = {}  # new machine -> the one whose place it took
        self.unready: dict[str, float] = {}  # node -> when it was last not Ready
        self.late = -1.0  # until when a watch of the Nodes may show nothing new
        self.decided: dict[
            tuple[str, float], float
        ] = {}  # record, when a write came -> when it was decided on

    def happened(self, h: Happened) -> None:
        """A machine that its group may remove again takes nobody's place."""
        if h.what == facts.LATE and h.subject == "nodes":
            self.late = max(self.late, h.at + float(h.detail["seconds"]))
        if h.what != facts.MACHINE_GONE or h.detail.get("by") != facts.SURPLUS:
            return
        claims = status(self.world.gate).get("replacementsClaimed") or ()
        old = next((c.get("insteadOf") for c in claims if c.get("machine") == h.subject), None)
        if old is not None:
            told = f"was claimed in the place of {old}, and its group had made it to remove it again"
            self.breaks("surplus", h.subject, told, h)

    def node(self, w: Wrote, before: Json | None, after: Json | None) -> None:
        if after is None or not ready(after) or (before is not None and not ready(before)):
            self.unready[w.name] = w.at

    def record(self, w: Wrote, before: Json | None, after: Json | None) -> None:
        """A process that is stopped right before its write has seen what it writes all the same."""
        p, since = self.world.processes.get(w.actor), moment(str(status(after).get("phaseSince") or ""))
        if p is None or p.state != "resumed" or since is None or self.world.epoch is None:
            return
        if (decided := since - self.world.epoch) <= p.since and p.since >= w.at - self.bounds.in_flight:
            self.decided[w.name, w.at] = decided

    def phase(self, w: Wrote, r: Recovery, before: str, after: str) -> None:
        if after != "recovered" or not self.world.ours(w.actor) or r.spoiled:
            return
        m = self.world.machines.get(r.machine)
        called = [c for c in r.calls if c.asked.answer not in ("refused", "throttled")]
        replaces = any(c.asked.action == "replace" for c in called) or any(map(_adopted, r.intents))
        replacement = str(status(r.record).get("replacementMachine") or "")
        if replacement and replaces:
            self._replaced(r, m, replacement)
            self._probation(w, r, before, str(status(r.record).get("replacement") or ""))
        elif replaces and (m is None or not m.told or m.gone is not None):
            pass  # a provider whose replacements are made on demand: gone is all there is to prove
        else:
            self._booted(r, m)
            self._probation(w, r, before, r.node)

    def _replaced(self, r: Recovery, m: Machine | None, new: str) -> None:
        if m is not None and m.told and m.gone is None:
            told = f"closed as recovered: {new} took its place, and {m.id} is still there"
            self.breaks("old machine", r.node, told, r)
        first = self.replaced_by.setdefault(new, r.machine)
        if first != r.machine:
            told = f"closed as recovered: {new} took its place, which took that of {first} already"
            self.breaks("one for two", r.node, told, r)
        found = self.world.machines.get(new)
        if found is None or not found.told:
            return
        asked = min([*(c.asked.at for c in r.calls), *(i.at for i in r.intents)])
        if found.launched and found.launched < asked - self.bounds.submit:
            told = f"closed as recovered by {new}, there {asked - found.launched:.0f} s before the call"
            self.breaks("old replacement", r.node, told, r)
        name = str(status(r.record).get("replacement") or found.node)
        at, unready = self._seen_at(r), self.unready.get(name, -1e9)
        gone = found.gone is not None and at - found.gone > NODE_LAGS
        not_ready = not ready(self.world.nodes.get(name)) and at - unready > self.bounds.in_flight
        if gone or not_ready:
            told = f"closed as recovered by {new}, whose node {name} is not Ready"
            self.breaks("not ready", r.node, told, r)
        agent = self.world.agent_of(name)
        if agent is None or not agent.on or agent.state == "stopped" or name in self.world.excluded:
            return  # where none reports, its Node is all there is to go by
        if agent.since <= at - self.bounds.sickness:  # one that has only just come has told nothing yet
            self._healthy(r, found)

    def _booted(self, r: Recovery, m: Machine | None) -> None:
        if m is None or not m.told:
            return
        began = min((i.at for i in r.intents), default=r.opened)
        about = self._about(r)
        of_record = [f for f in m.faults if f.reason in about]
        taken_back = bool(of_record) and all(f.ended is not None and f.cleared for f in of_record)
        if not taken_back and not m.booted_since(began - self.bounds.in_flight):
            told = f"closed as recovered, and {m.id} has not booted since {began:.0f}"
            self.breaks("no boot", r.node, told, r)
        self._healthy(r, m)

    def _healthy(self, r: Recovery, m: Machine) -> None:
        latest = self.world.at - self.bounds.sickness - self.bounds.lag
        about = self._about(r)
        taken = self.world.released.get(m.node, -1.0)  # a person knows of what was shown in that boot
        if m.booted_since(taken):
            taken = -1.0
        shown = (
            f
            for f in m.there()
            if f.shown is not None and f.shown <= latest and taken < self.world.same_since(m, f)
        )
        if there := [f for f in shown if f.reason in about or self.world.treated(f)]:
            what = f"closed as recovered, and {there[0].reason} is on {m.id} since {there[0].began:.0f}"
            self.breaks("still sick", r.node, what, r)

    def _seen_at(self, r: Recovery) -> float:
        """When who writes now has seen what it writes."""
        return self.decided.get((r.node, self.world.at), self.world.at)

    def _about(self, r: Recovery) -> set[str]:
        """The reasons that speak against a proof. A fault that came on the record under a policy that only tells
        it speaks against none that names it."""
        s = status(r.record)
        faults, said = s.get("faults") or (), str(s.get("sentence") or "")
        return {
            str(f.get("reason")) for f in faults if f.get("treated") is not False or f["reason"] not in said
        }

    def _probation(self, w: Wrote, r: Recovery, before: str, name: str) -> None:
        world = self.world
        whole = max(duration(status(r.record).get("probation")), _said(r))
        off = sum(world.clocks_off.values()) if world.clock_trouble >= r.opened else 0.0
        if before != "proving" or off or world.clock_trouble > r.opened:
            return
        lasted = w.at - self.decided.get((r.node, r.proving_since), r.proving_since)
        if lasted < whole - CLOCK:
            told = f"closed as recovered after {lasted:.0f} s of a probation of {whole:.0f} s"
            self.breaks("short probation", r.node, told, r)
        unready = self.unready.get(name)
        if self.late > r.proving_since:
            return  # a Node that was not Ready for a few seconds meanwhile was so to nobody
        seen_at = self._seen_at(r)
        if unready is not None and unready <= seen_at < unready + whole - CLOCK - self.bounds.in_flight:
            told = (
                f"closed as recovered; {name} was not Ready {w.at - unready:.0f} s before, of {whole:.0f} s"
            )
            self.breaks("unready in probation", r.node, told, r)


def _said(r: Recovery) -> float:
    """For how many seconds a proof says that the node was healthy, where it is exact. That may be longer than the
    rule's probation."""
    said = HEALTHY_FOR.search(str(status(r.record).get("sentence") or ""))
    return float(said[1]) if said else 0.0


def _adopted(i: Intent) -> bool:
    """A replacement that was under way already: asked for by a record that is lost, or by somebody else."""
    return i.action == "replace" and i.call is None and "submitted" in i.states


class NotLost(Law):
    """A record is not closed as withdrawn or superseded while its fault is there for all to see."""

    name = "law 6"

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.policy_at = -1e9
        self.released: dict[tuple[str, str], float] = {}  # machine, reason -> when a person released it
        self.stated: dict[tuple[str, str], float] = {}  # machine, reason -> when its log stated it last

    def happened(self, h: Happened) -> None:
        if h.what == "policy" and h.at > 0:
            self.policy_at = h.at
        elif h.what == facts.FAULT_STATED and h.detail.get("rule") == "log":
            self.stated[h.subject, str(h.detail.get("reason"))] = h.at

    def phase(self, w: Wrote, r: Recovery, before: str, after: str) -> None:
        world = self.world
        if after == "released":
            # A closed record has not always room for all that it was about, and one that is lost names none.
            named = [str(f.get("reason")) for x in (w.before, w.after) for f in status(x).get("faults") or ()]
            m = world.machines.get(r.machine)
            for reason in named or [f.reason for f in (m.there() if m is not None else ())]:
                self.released[r.machine, reason] = w.at
        if not world.ours(w.actor) or r.spoiled or before == "handedOver":
            return
        if after == "withdrawn":
            self._withdrawn(w, r)
        elif after == "superseded":
            m = world.machines.get(r.machine)
            if m is not None and m.told and m.gone is None and m.node == r.node and r.node in world.nodes:
                self.breaks("superseded", r.node, f"closed as superseded, and it is still {m.id}", r)

    def _withdrawn(self, w: Wrote, r: Recovery) -> None:
        world = self.world
        m = world.machines.get(r.machine)
        if r.node in world.excluded or m is None or w.at - self.policy_at < 600.0:
            return
        standing = world.standing.get(r.machine)
        if standing is not None and standing.intent is not None and standing.intent.recovery is r:
            told = f"closed as withdrawn while {standing.asked.action} of {r.machine} stands at the cloud"
            self.breaks("withdrawn after the call", r.node, told, r)
        about = {f.get("reason") for f in status(r.record).get("faults") or ()}
        there = [f for f in m.there() if self._visible(f, known=f.reason in about)]
        there = [f for f in there if f.reason in about or not self._taken(m.id, f)]
        if there := [f for f in there if not self._is_tolerated(w, r, f)]:
            told = f"closed as withdrawn, and {there[0].reason} is on {m.id} since {there[0].began:.0f}"
            self.breaks("withdrawn", r.node, told, r)

    def _is_tolerated(self, w: Wrote, r: Recovery, f: Fault) -> bool:
        """Whether its rule tolerates it still. Then it gets a record of its own next, and law ``ends`` judges
        whether it did."""
        policies = self.world.policies_of(w.actor, r.opened)
        allowed = min((p.tolerates(f.type, f.reason) for p in policies), default=0.0)
        return allowed > 0 and w.at - f.began < allowed + self.bounds.sickness

    def _taken(self, machine: str, f: Fault) -> bool:
        """Whether a person has released it, and it was not stated since: it is no fault of this record."""
        counted = self.stated.get((machine, f.reason), 0.0) if self.world.page_is_read else 0.0
        since = max(f.began, f.anew, counted)  # a condition does not count
        return self.released.get((machine, f.reason), -1.0) >= since

    def _visible(self, f: Fault, *, known: bool) -> bool:
        """Whether it is there for all to see. What stood on the Node, and does not any more, may have gone before
        anybody looked: only a record that names it has ``known`` it."""
        latest = self.world.at - self.bounds.sickness - self.bounds.lag
        if not self.world.treated(f) or max(f.began, f.anew) > latest:
            return False
        if f.shown is not None:
            return f.shown <= latest
        on_page = f.by == PAGE and self.world.page_is_read
        return f.hidden in ("masked", RESTART, REMOVED) and (known or on_page)


class Succeeded(Law):
    """A replacement that nothing was missing of is not handed over as one that did not succeed."""

    name = "law 6"
    SEEN = 120.0
    """By then everybody has seen that the group is complete."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.wanted: dict[str, tuple[int, float]] = {}  # group -> what it wants since somebody scaled it in
        self.changed: dict[str, float] = {}

    def happened(self, h: Happened) -> None:
        if h.what == facts.CAPACITY:
            self.changed[h.subject] = h.at
            if h.detail.get("scaled"):
                self.wanted[h.subject] = (int(h.detail["desired"]), h.at)
            elif h.detail.get("desired") != self.wanted.get(h.subject, (0, 0.0))[0]:
                self.wanted.pop(h.subject, None)
        elif h.what in (facts.MACHINE_GONE, facts.MACHINE_LAUNCHED, facts.MACHINE_JOINED):
            self.changed[str(h.detail.get("group"))] = h.at

    def phase(self, w: Wrote, r: Recovery, before: str, after: str) -> None:
        said = str(status(r.record).get("sentence") or "")
        if after != "handedOver" or "replace did not succeed within" not in said or r.spoiled:
            return
        m, (wanted, since) = self.world.machines.get(r.machine), self.wanted.get(r.group, (0, -1.0))
        if m is None or m.gone is None or w.at - self.changed.get(r.group, w.at) < self.SEEN:
            return
        if not r.calls or since < r.calls[-1].asked.at:
            return  # what it wanted when it was asked was told to the record
        there = sum(x.group == r.group and x.gone is None for x in self.world.machines.values())
        if there == wanted:
            told = (
                f"{m.id} is gone since {m.gone:.0f}, and its group has all {wanted} that it wants: {said!r}"
            )
            self.breaks("false hand-over", r.node, told, r)


LAWS = (Evidence, NotLost, Succeeded)
