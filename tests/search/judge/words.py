"""No sentence is false: what Events, records and logs say is held against the ground truth of that moment."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.search import facts
from tests.search.facts import Happened, Said, Wrote
from tests.search.judge.law import Law
from tests.search.judge.objects import (
    DESTRUCTIVE,
    NOTHING,
    Json,
    duration,
    machine_of,
    marked,
    metadata,
    moment,
    status,
    stays_in_a_drain,
)
from tests.search.judge.recoveries import Call, Recovery

ANSWERED = re.compile(r"(?P<action>\w+) of (?P<machine>\S+) was accepted by ")
GONE = re.compile(r"\bproved: (?P<machine>\S+) is gone")
HEARD = 75.0
"""What an agent has told of its page stands for as long as its Lease."""
FRESH = 12.0
"""A sentence is about a moment ago: what came to be so within these seconds may not be known yet."""
QUOTES = " is sick too: "
"""After these words the sentence of another node's record follows: it is judged there."""


class Words(Law):
    """Sentences, wherever they are said."""

    name = "words"

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.actor = ""  # who says it
        self.calls: dict[tuple[str, str], list[Call]] = {}  # machine, action -> calls
        self.restored: dict[str, float] = {}  # node -> when the call was asked that etcd was restored to
        self.checks: tuple[tuple[str, Callable[[str, str, Recovery | None], None]], ...] = (
            ("before anything destructive", self._untouched),
            ("without a destructive step", self._untouched),
            ("back in service", self._back),
            ("was accepted by", self._accepted),
            ("proved: ", self._proved),
            ("not one eviction", self._no_eviction),
            ("recovery is off", self._off),
            ("by a new boot ID", self._new_boot),
            ("own agent reports no fault", self._own_agent),
            ("by its own detector's page", self._own_page),
        )

    def called(self, call: Call) -> None:
        self.calls.setdefault((call.asked.machine, call.asked.action), []).append(call)

    def event(self, w: Wrote, before: Json | None, after: Json | None) -> None:
        if after is not None and w.verb != "delete":
            about = after.get("involvedObject") or NOTHING
            self._heard(str(about.get("name") or ""), str(after.get("message") or ""), w.actor)

    def record(self, w: Wrote, before: Json | None, after: Json | None) -> None:
        if w.actor == "etcd":
            asked = moment(str((status(after).get("intent") or NOTHING).get("at") or ""))
            self.restored.pop(w.name, None)
            if asked is not None and self.world.epoch is not None:
                self.restored[w.name] = asked - self.world.epoch
        if after is None or not self.world.ours(w.actor):
            return
        s = status(after)
        if s.get("sentence") != status(before).get("sentence"):
            self._heard(w.name, str(s.get("sentence") or ""), w.actor)
        lines, was = list(s.get("history") or ()), list(status(before).get("history") or ())
        known = len(was)
        if lines and (len(lines) != known or lines[-1] != was[-1]):
            self._heard(w.name, str(lines[-1].get("sentence") or ""), w.actor)

    def said(self, s: Said) -> None:
        self._heard(s.node, s.sentence, s.actor)

    def _heard(self, node: str, sentence: str, actor: str) -> None:
        self.actor = actor
        sentence = sentence.partition(QUOTES)[0]
        r = self.world.recoveries.get(node)
        for word, check in self.checks:
            if word in sentence:
                check(node, sentence, r)

    def _false(self, node: str, sentence: str, why: str, r: Recovery | None) -> None:
        self.breaks(why.partition(":")[0][:40], node, f"{sentence!r} is false: {why}", r)

    def _untouched(self, node: str, sentence: str, r: Recovery | None) -> None:
        if r is not None and r.acted and not r.spoiled:
            done = ", ".join(f"{c.asked.action} at {c.asked.at:.0f}" for c in r.calls)
            self._false(node, sentence, f"the cloud took a call: {done}", r)

    def _back(self, node: str, sentence: str, r: Recovery | None) -> None:
        found = self.world.nodes.get(node)
        if found is not None and marked(found):
            self._false(node, sentence, "a mark of ours is on the node", r)
        standing = self.world.standing.get(machine_of(found))
        if standing is not None:
            what = f"a request stands at the cloud: {standing.asked.action}, of {standing.asked.at:.0f}"
            self._false(node, sentence, what, r)

    def _accepted(self, node: str, sentence: str, r: Recovery | None) -> None:
        found = ANSWERED.search(sentence)
        if found is None or found["action"] not in DESTRUCTIVE:
            return
        calls = self.calls.get((found["machine"], found["action"]), [])
        if not self.calls:
            return  # nobody listens at this cloud
        if not any(c.asked.answer == "accepted" for c in calls):
            answers = sorted({c.asked.answer for c in calls}) or "never asked"
            self._false(node, sentence, f"the cloud did not accept it: {answers}", r)

    def _proved(self, node: str, sentence: str, r: Recovery | None) -> None:
        found = GONE.search(sentence)
        m = self.world.machines.get(found["machine"]) if found else None
        if m is not None and m.told and m.gone is None:
            self._false(node, sentence, f"the machine is there: {m.id}", r)

    def _no_eviction(self, node: str, sentence: str, r: Recovery | None) -> None:
        if r is not None and r.asked_on_rung:
            self._false(node, sentence, f"evictions were asked: {r.asked_on_rung}", r)

    def _new_boot(self, node: str, sentence: str, r: Recovery | None) -> None:
        m = self.world.machines.get(r.machine) if r is not None else None
        if r is None or m is None or not m.told or not r.intents:
            return
        # An Event may come later than the next step does, and a restored record is before it.
        boots = [i for i in r.intents if i.action in ("reboot", "reimage", "redeploy")]
        began = (boots or r.intents)[-1].at
        if node in self.restored and began <= self.world.restored:
            began = min(began, self.restored[node])  # it is about the call that the record names again
        began -= self.bounds.in_flight
        if not m.booted_since(began):
            self._false(node, sentence, f"it has not booted: {m.id} is in {m.boot}", r)

    def _own_agent(self, node: str, sentence: str, r: Recovery | None) -> None:
        """An agent that is off, or is not there, reports nothing: neither a fault nor that there is none."""
        name = str(status(r.record).get("replacement") or "") if r is not None else ""
        agent = self.world.agent_of(name)
        if name and self.world.processes and (agent is None or not agent.on):
            self._false(node, sentence, f"no agent that is on reports: {name}", r)

    def _own_page(self, node: str, sentence: str, r: Recovery | None) -> None:
        """The page of the new node could be read."""
        name = str(status(r.record).get("replacement") or "") if r is not None else ""
        bad = self.world.page_bad(name)
        if bad is not None and self.world.at - bad > HEARD:
            self._false(node, sentence, f"that page cannot be read: {name}", r)

    def _off(self, node: str, sentence: str, r: Recovery | None) -> None:
        agent = self.world.processes.get(self.actor)
        if agent is not None and agent.on and self.world.at - agent.on_since > FRESH:
            self._false(node, sentence, "its agent is on", r)


class Tried(Law):
    """Held is not tried: a step whose ``within`` is said to be over was tried for that long."""

    name = "words"
    SLACK = 10.0
    RENEWED = 35.0
    """A gap that is no longer than that tells an agent that was started anew nothing: its Lease may be renewed
    as seldom."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        # recovery -> when its rung began, held before
        self.begun: dict[int, tuple[Recovery, float, float]] = {}

    def record(self, w: Wrote, before: Json | None, after: Json | None) -> None:
        r = self.world.recoveries.get(w.name)
        if r is None or after is None:
            return
        now, was = status(after), status(before)
        if now.get("rungSince") and (not was.get("rungSince") or now.get("rung") != was.get("rung")):
            self.begun[id(r)] = (r, w.at, self._held(w.name))
        if not self.world.ours(w.actor) or r.spoiled or was.get("phase") != "recovering":
            return
        if now.get("rung") != was.get("rung") or now.get("phase") == "handedOver":
            self._left(w, r, was, now)

    def _held(self, name: str) -> float:
        held = self.world.held.get(name)
        return held.until(self.world.at) if held else 0.0

    def _left(self, w: Wrote, r: Recovery, was: Json, now: Json) -> None:
        """A rung was left. By its deadline?"""
        ladder, number = was.get("ladder") or (), int(was.get("rung") or 0)
        rung = ladder[number] if number < len(ladder) else NOTHING
        last = (now.get("history") or [NOTHING])[-1]
        said = str(last.get("sentence") or "")
        over = "did not end within" in said or "did not succeed within" in said or "not proved within" in said
        pods = rung.get("do") == "drain" and bool(self._pods(w.name))
        if pods and "drained in" in said:
            self._drained(w, r, said)
            return
        if not over and not (pods and now.get("phase") == "recovering"):
            return
        began = self.begun.get(id(r))
        if began is None or self.world.clock_trouble > began[1]:
            return
        whole = duration(rung.get("within"), 900.0)
        held = self._held(w.name) - began[2]
        tried = w.at - began[1] - held
        agent = self.world.processes.get(w.actor)
        unseen = self.RENEWED if agent is not None and agent.started > began[1] else 0.0
        if tried < whole - self.SLACK - unseen:
            what = (
                f"{rung.get('do')} was left as over after {w.at - began[1]:.0f} s, {held:.0f} s of them "
                f"held: tried for {tried:.0f} s of {whole:.0f} s ({said})"
            )
            self.breaks("held is not tried", w.name, what, r)

    def _pods(self, node: str) -> list[str]:
        """Pods that a drain would still have to wait for."""
        found = []
        for (_, name), pod in (self.world.pods.get(node) or {}).items():
            if not stays_in_a_drain(pod) and not metadata(pod).get("deletionTimestamp"):
                found.append(name)
        return found

    def _drained(self, w: Wrote, r: Recovery, said: str) -> None:
        """Pods that came to the node a moment ago may not have been seen."""
        latest = self.world.at - FRESH
        left = [name for name in self._pods(w.name) if self.world.bound.get((w.name, name), 0.0) < latest]
        if left:
            self.breaks("not drained", w.name, f"{said!r} is false: {left} run on it", r)


class Released(Law):
    """A node that is released while its replacement may still be under way, by a record that tells of it."""

    name = "law 6"

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.restored: list[tuple[float, float]] = []  # when etcd was restored, and to which moment

    def happened(self, h: Happened) -> None:
        if h.what == facts.RESTORED:
            self.restored.append((h.at, float(h.detail.get("to", h.at))))

    def phase(self, w: Wrote, r: Recovery, before: str, after: str) -> None:
        if after == "released" and w.actor != "etcd" and r.machine in self.world.standing:
            call = self.world.standing[r.machine]
            if call.intent is not None and call.intent.recovery is r and not self._untold(call, w):
                what = f"was released while {call.asked.action} of {r.machine} stands at the cloud"
                self.breaks("released", r.node, what, r)

    def _untold(self, call: Call, w: Wrote) -> bool:
        """Whether etcd was restored to before the call was announced, and the record does not name it again. A
        person goes by the record, and nobody can tell them of the call."""
        assert call.intent is not None
        named = str((status(w.after).get("intent") or NOTHING).get("token") or "")
        lost = any(to < call.intent.at <= at for at, to in self.restored)
        return lost and named != call.intent.token


LAWS = (Words, Tried, Released)
