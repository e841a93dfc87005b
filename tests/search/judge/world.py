"""The world as the history has it so far: objects, machines, processes, recoveries. It judges nothing."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.search import facts
from tests.search.facts import APPLIED, Asked, Happened, TakenBack, Wrote
from tests.search.judge import limits
from tests.search.judge.limits import Limits
from tests.search.judge.objects import (
    DESTRUCTIVE,
    OPEN,
    Json,
    boot_id,
    claimed,
    cordoned,
    excluded,
    labels,
    machine_of,
    marked,
    metadata,
    moment,
    ready,
    spec,
    status,
)
from tests.search.judge.recoveries import Call, Intent, Recovery
from tests.search.judge.violation import Bounds

NEVER = float("inf")
THRICE = 7.0
"""A page has to show a plugin's zero three times. An agent of the search reads it a second after it has changed,
and then, while nothing is new, after two more and three more."""
SETTLED = 50.0
"""A detector's zeros count half a minute after its restart. That changes nothing on the page, so an agent of the
search, to which nothing is new, reads it up to 20 s later."""
PAGE = frozenset({"npd"})
BOOT, RESTART, REMOVED = "boot", "restart", "removed"
"""Why no source states a fault any more: its machine has booted since, or its detector, or its condition was taken
off the Node."""


@dataclass(slots=True, eq=False)
class Fault:
    """What is wrong with a machine by the ground truth."""

    type: str
    reason: str
    began: float
    treat: bool
    shown: float | None  # since when a source states it
    same: float | None = None  # as ``shown``, but a plugin that restarts and finds it again states the same
    hidden: str = ""  # why no source states it any more
    left: float = -math.inf  # when no source stated it any more
    anew: float = 0.0  # when it was first stated after the last boot
    ended: float | None = None
    ended_by: str = ""
    cleared: bool = False  # its source took it back by its own rule
    by: frozenset[str] = PAGE  # the sources that state it
    stays: bool = False  # that a source states it no more does not end it
    logged: bool = False  # a log rule's: no detector takes it back
    first: float = 0.0  # the first time that is counted of what happens too often


@dataclass(slots=True, eq=False)
class Machine:
    """A machine by the ground truth."""

    id: str
    node: str = ""
    group: str = ""
    boot: str = ""
    told: bool = False  # the harness says what becomes of it; else only its Node does
    launched: float = 0.0
    joined: float | None = None
    gone: float | None = None
    boots: list[tuple[float, str]] = field(default_factory=list)  # when, and by what
    faults: list[Fault] = field(default_factory=list)

    def booted_since(self, at: float) -> bool:
        return any(when >= at for when, _ in self.boots)

    def last_boot(self) -> float:
        return self.boots[-1][0] if self.boots else -NEVER

    def there(self) -> list[Fault]:
        """The faults that are there now."""
        return [f for f in self.faults if f.ended is None]


@dataclass(slots=True, eq=False)
class Process:
    node: str = ""
    state: str = "started"
    since: float = 0.0
    started: float = 0.0
    on: bool = True
    on_since: float = 0.0
    everywhere: bool = False  # a replica of the controller
    leads: bool = False


@dataclass(slots=True, eq=False)
class Held:
    """How long something was so, in all."""

    since: float | None = None
    total: float = 0.0

    def now(self, at: float, so: bool) -> None:
        if so and self.since is None:
            self.since = at
        elif not so and self.since is not None:
            self.total += at - self.since
            self.since = None

    def until(self, at: float) -> float:
        return self.total + (at - self.since if self.since is not None else 0.0)


class World:
    """Takes one fact after the other. Laws read it after it has taken a fact."""

    def __init__(self, ours: Callable[[str], bool], bounds: Bounds) -> None:
        self.ours, self.bounds = ours, bounds
        self.at = 0.0
        self.epoch: float | None = None  # the moment of ``at`` 0, in seconds since 1970
        self.objects: dict[tuple[str, str, str], Json] = {}
        self.nodes: dict[str, Json] = {}
        self.records: dict[str, Json] = {}
        self.pods: dict[str, dict[tuple[str, str], Json]] = {}  # by node
        self.bound: dict[tuple[str, str], float] = {}  # node, pod -> since when the pod is there
        self.gate: Json | None = None
        self.pause_since: float | None = None
        self.pause_until = NEVER
        self.paused_before: tuple[float, float] = (-1.0, -1.0)
        self.machines: dict[str, Machine] = {}
        self.pages: dict[str, tuple[str, float]] = {}  # node -> state, since
        self.outages: dict[str, list[tuple[float, float]]] = {}  # node -> from, until its page was unreadable
        self.restarts: dict[str, list[float]] = {}  # node -> when its detector was started anew
        self.processes: dict[str, Process] = {}
        self.policies: dict[str, list[tuple[float, Limits]]] = {"": [(0.0, Limits())]}
        self.policy_changed = 0.0
        self.page_is_read = True
        self.recoveries: dict[str, Recovery] = {}  # by node: the last one
        self.by_uid: dict[str, Recovery] = {}  # by the record's UID: the last one
        self.released: dict[str, float] = {}  # node -> when a person released it for the last time
        self.intents: dict[str, Intent] = {}
        self.standing: dict[str, Call] = {}  # machine -> what was asked of the cloud and has not happened
        self.slots: dict[tuple[str, str], float] = {}  # node and record UID -> since when
        self.slot_lost: dict[tuple[str, str], float] = {}
        self.excluded: dict[str, float] = {}
        self.claimed: dict[str, float] = {}
        self.sick: set[str] = set()
        self.sick_since: dict[str, float] = {}
        self.held: dict[str, Held] = {}  # node -> time in which nothing could be tried
        self.clocks_off: dict[str, float] = {}
        self.clock_trouble = -NEVER  # until when some clock was wrong
        self.restored = -NEVER
        self.calm: float | None = None
        self.ended: Happened | None = None
        self.braked_since: float | None = None
        self.trouble = 0.0  # the last moment at which something out of the ordinary was done

    # ------------------------------------------------------------ writes

    def wrote(self, w: Wrote) -> Json | None:
        """Take a write that was stored. Returns the object before it."""
        self.at = w.at
        key = (w.kind, w.namespace, w.name)
        before = w.before if w.before is not None else self.objects.get(key)
        if w.verb == "create":
            before = None
        if w.after is None:
            self.objects.pop(key, None)
        else:
            self.objects[key] = w.after
        if w.kind == "Node":
            self._node(w, w.after)
        elif w.kind == "Pod":
            self._pod(w, before, w.after)
        elif w.kind == "NodeRecovery":
            self._record(w, before, w.after)
        elif w.kind == "RecoveryGate" and w.name == "fleet":
            self._gate(w, w.after)
        return before

    def _node(self, w: Wrote, after: Json | None) -> None:
        name = w.name
        if after is None:
            self.nodes.pop(name, None)
            self.excluded.pop(name, None)
            self.claimed.pop(name, None)
        else:
            self.nodes[name] = after
            _since(self.excluded, name, excluded(after), w.at)
            _since(self.claimed, name, bool(claimed(after)), w.at)
            self._seen(after, w.at)
        self._sickness(name)
        self._hold(name)

    def _seen(self, node: Json, at: float) -> None:
        """What a Node says of its machine, where nobody tells the truth about it."""
        id_ = machine_of(node)
        if not id_:
            return
        m = self.machines.get(id_)
        if m is None:
            m = self.machines[id_] = Machine(id_, launched=at, joined=at, boot=boot_id(node))
        if not m.told:
            m.node = str(metadata(node).get("name"))
            if boot_id(node) and boot_id(node) != m.boot:
                m.boots.append((at, ""))
                m.boot = boot_id(node)
                self._done(id_, ("reboot", "reimage", "redeploy"))

    def _pod(self, w: Wrote, before: Json | None, after: Json | None) -> None:
        key = (w.namespace, w.name)
        was, now = spec(before).get("nodeName"), spec(after).get("nodeName")
        if was and was in self.pods:
            self.pods[was].pop(key, None)
        if now and after is not None:
            self.pods.setdefault(str(now), {})[key] = after
            if was != now:
                self.bound[str(now), w.name] = w.at

    def _record(self, w: Wrote, before: Json | None, after: Json | None) -> None:
        name = w.name
        known = self.recoveries.get(name)
        foreign = not self.ours(w.actor)
        if after is None:
            self.records.pop(name, None)
            if known is not None:
                known.deleted = True
                known.closed = known.closed if known.closed is not None else w.at
                if foreign and known.phase in OPEN:
                    known.spoiled = f"{w.actor} deleted its record"
        else:
            self.records[name] = after
            self._moved(w, known, before, after)
        self._sickness(name)
        self._hold(name)

    def _moved(self, w: Wrote, known: Recovery | None, before: Json | None, after: Json) -> None:
        foreign, changed = not self.ours(w.actor), status(before) != status(after)
        uid, s = str(metadata(after).get("uid") or w.uid), status(after)
        phase = str(s.get("phase") or "")
        anew = known is None or known.deleted or known.uid != uid
        if anew or (known is not None and known.phase not in OPEN and phase in OPEN):
            old = known
            known = Recovery(w.name, uid, w.at, after, phase, entered=w.at, rung_entered=w.at)
            known.labels = labels(self.nodes.get(w.name))
            known.marked = marked(self.nodes.get(w.name))
            if old is not None and old.uid == uid:
                known.slot, known.slot_by = None, ""
                known.spoiled = old.spoiled if old.deleted else ""
            self.recoveries[w.name] = self.by_uid[uid] = known
            self.held[w.name] = Held()
        assert known is not None
        known.take(after, w.at)
        if phase == "released" != status(before).get("phase") and w.actor != "etcd":
            self.released[w.name] = w.at
        if phase in OPEN:
            known.closed = None
        elif known.closed is None:
            known.closed, known.closed_by = w.at, w.actor
        if foreign and changed and not anew:
            known.spoiled = f"{w.actor} changed its record"
            known.made_up = w.actor != "etcd" and status(before).get("faults") != s.get("faults")
        elif foreign and anew:
            known.spoiled = f"{w.actor} made its record"
            known.made_up = w.actor != "etcd"
        self._intent(w, known, s)

    def _intent(self, w: Wrote, r: Recovery, s: Json) -> None:
        intent = s.get("intent")
        if not intent:
            return
        token = str(intent.get("token") or f"{r.uid}/{intent.get('attempt')}")
        known = self.intents.get(token)
        if known is None:
            known = self.intents[token] = Intent(
                token,
                int(intent.get("attempt") or 0),
                str(intent.get("action") or ""),
                str(intent.get("machine") or ""),
                str(intent.get("bootID") or ""),
                int(s.get("rung") or 0),
                w.at,
                w.actor,
                r,
            )
            r.intents.append(known)
        known.states.setdefault(str(intent.get("state") or ""), w.at)

    def _gate(self, w: Wrote, after: Json | None) -> None:
        self.gate = after
        pause = spec(after).get("pause")
        if pause:
            until = moment(str(pause.get("until") or ""))
            end = NEVER if until is None or self.epoch is None else until - self.epoch
            if self.pause_since is None or w.at >= self.pause_until:
                self.pause_since = w.at
            self.pause_until = end
        else:
            self.pause_since = None
        now = {(str(x.get("node")), str(x.get("recordUID"))) for x in status(after).get("slots") or ()}
        for place in [p for p in self.slots if p not in now]:
            del self.slots[place]
            self.slot_lost[place] = w.at
        for place in now:
            if place not in self.slots:
                self._granted(w, place)
        self._hold_all()

    def _granted(self, w: Wrote, place: tuple[str, str]) -> None:
        self.slots[place] = w.at
        r = self.by_uid.get(place[1])
        if r is not None and r.open and r.slot is None:
            r.slot, r.slot_by = w.at, w.actor
            node = self.nodes.get(place[0])
            r.labels = labels(node) if node is not None else r.labels

    # ------------------------------------------------------------ the cloud

    def asked(self, a: Asked) -> Call | None:
        """Take a call. None for one that is no destructive step (the capacity set back)."""
        self.at = a.at
        if a.action not in DESTRUCTIVE or a.answer == facts.LOST_BEFORE:
            return None
        intent = self.intents.get(a.token) if a.token else self._intent_of(a)
        call = Call(a, intent, a.answer in APPLIED)
        if intent is not None:
            intent.recovery.calls.append(call)
        return call

    def settle(self, call: Call) -> None:
        """After the laws have seen it: the call stands at the cloud from now on."""
        if call.intent is not None and call.intent.call is None:
            call.intent.call = call
        m = self.machines.get(call.asked.machine)
        if call.standing and (m is None or m.gone is None):
            self.standing[call.asked.machine] = call

    def _intent_of(self, a: Asked) -> Intent | None:
        fitting = [
            i
            for i in self.intents.values()
            if i.machine == a.machine and i.action == a.action and i.call is None
        ]
        return fitting[-1] if fitting else None

    def taken_back(self, t: TakenBack) -> None:
        self.at = t.at
        if t.answer in APPLIED:
            self._done(t.machine, DESTRUCTIVE)

    def _done(self, machine: str, actions: frozenset[str] | tuple[str, ...]) -> None:
        call = self.standing.get(machine)
        if call is not None and call.asked.action in actions:
            call.standing = False
            del self.standing[machine]

    # ------------------------------------------------------------ ground truth

    def happened(self, h: Happened) -> None:
        self.at = h.at
        found = self._what.get(h.what)
        if found is not None:
            found(self, h)

    def machine(self, id_: str) -> Machine:
        m = self.machines.get(id_)
        if m is None:
            m = self.machines[id_] = Machine(id_)
        m.told = True
        return m

    def _fault_began(self, h: Happened) -> None:
        d = h.detail
        shown = h.at if d.get("shown", True) else None
        fault = Fault(
            str(d.get("type", "")), str(d["reason"]), h.at, bool(d.get("treat", True)), shown, shown
        )
        fault.first = float(d.get("first", h.at))
        self.machine(h.subject).faults.append(fault)

    def _find(self, h: Happened) -> Fault | None:
        m = self.machine(h.subject)
        reason = h.detail.get("reason")
        return next((f for f in reversed(m.faults) if f.reason == reason and f.ended is None), None)

    def _fault_shown(self, h: Happened) -> None:
        if fault := self._find(h):
            fault.shown, fault.hidden = (h.at if fault.shown is None else fault.shown), ""
            fault.same = fault.shown if fault.same is None else fault.same
            fault.by = frozenset(h.detail.get("by") or PAGE)
            fault.stays = bool(h.detail.get("stays"))

    def _fault_hidden(self, h: Happened) -> None:
        if fault := self._find(h):
            by_boot = fault.hidden == BOOT or self.machine(h.subject).booted_since(h.at)
            fault.shown, fault.hidden = None, BOOT if by_boot else str(h.detail.get("because") or "masked")
            fault.left = h.at
            fault.same = fault.same if fault.hidden in (RESTART, REMOVED) else None

    def _fault_stated(self, h: Happened) -> None:
        if h.detail.get("rule") == "log" and (fault := self._find(h)):
            fault.logged = True
            fault.same = None if fault.shown is None else fault.same
        if (fault := self._find(h)) and fault.hidden == BOOT:
            fault.hidden, fault.anew = "masked", h.at  # until it is said to be shown

    def _fault_ended(self, h: Happened) -> None:
        if fault := self._find(h):
            fault.ended, fault.ended_by = h.at, str(h.detail.get("by") or "")
            fault.cleared = bool(h.detail.get("cleared"))

    def _detector_restarted(self, h: Happened) -> None:
        self.restarts.setdefault(h.subject, []).append(h.at)

    def _page(self, h: Happened) -> None:
        if (since := self.page_bad(h.subject)) is not None:
            self.outages.setdefault(h.subject, []).append((since, h.at))
        self.pages[h.subject] = (str(h.detail["state"]), h.at)
        self._hold(h.subject)

    def _booted(self, h: Happened) -> None:
        m = self.machine(h.subject)
        m.boots.append((h.at, str(h.detail.get("by") or "")))
        m.boot = str(h.detail.get("boot") or m.boot)
        for fault in m.there():
            if fault.shown is None:  # what no source shows any more was known of the boot that has ended
                fault.hidden, fault.same = BOOT, None
        self._done(h.subject, ("reboot", "reimage", "redeploy"))

    def _gone(self, h: Happened) -> None:
        m = self.machine(h.subject)
        m.gone = h.at
        m.group = str(h.detail.get("group") or m.group)
        self._done(h.subject, DESTRUCTIVE)

    def _launched(self, h: Happened) -> None:
        m = self.machine(h.subject)
        m.launched, m.gone = h.at, None
        m.group = str(h.detail.get("group") or m.group)
        m.boot = str(h.detail.get("boot") or m.boot)

    def _joined(self, h: Happened) -> None:
        m = self.machine(h.subject)
        if m.joined is None:
            m.joined = h.at
        m.node = str(h.detail.get("node") or m.node)
        m.group = str(h.detail.get("group") or m.group)
        m.boot = str(h.detail.get("boot") or m.boot)

    def _policy(self, h: Happened) -> None:
        self.policies.setdefault(h.subject, []).append((h.at, limits.read(h.detail)))
        self.policy_changed = h.at
        sources = h.detail.get("sources") or ["npd"]
        self.page_is_read = "npd" in sources
        self._brake()

    def _switched(self, h: Happened) -> None:
        p = self.processes.setdefault(h.subject, Process())
        if p.on != bool(h.detail["on"]):
            p.on, p.on_since = bool(h.detail["on"]), h.at
        self._hold(p.node)

    def _process(self, h: Happened) -> None:
        p = self.processes.setdefault(h.subject, Process())
        p.node = str(h.detail.get("node", p.node))
        p.everywhere = bool(h.detail.get("everywhere", p.everywhere))
        p.leads = bool(h.detail.get("leads", p.leads))
        p.state, p.since = str(h.detail["state"]), h.at
        if p.state == "started":
            p.started = p.on_since = h.at
        if p.everywhere:
            self._hold_all()
        self._hold(p.node)

    def _clock(self, h: Happened) -> None:
        off = abs(float(h.detail.get("off") or 0.0))
        if off:
            self.clocks_off[h.subject] = off
        else:
            self.clocks_off.pop(h.subject, None)
        self.clock_trouble = NEVER if self.clocks_off else h.at

    def _restored(self, h: Happened) -> None:
        self.restored = h.at
        for r in self.recoveries.values():
            r.spoiled = r.spoiled or "etcd was restored"

    def _calm(self, h: Happened) -> None:
        self.calm = h.at

    def _ended(self, h: Happened) -> None:
        self.ended = h

    def _began(self, h: Happened) -> None:
        wall = moment(str(h.detail.get("wall") or ""))
        self.epoch = None if wall is None else wall - h.at

    _what: dict[str, Callable[[World, Happened], None]] = {  # noqa: RUF012 - a table of methods
        facts.BEGAN: _began,
        facts.FAULT_BEGAN: _fault_began,
        facts.FAULT_SHOWN: _fault_shown,
        facts.FAULT_HIDDEN: _fault_hidden,
        facts.FAULT_STATED: _fault_stated,
        facts.FAULT_ENDED: _fault_ended,
        facts.PAGE: _page,
        facts.MACHINE_BOOTED: _booted,
        facts.MACHINE_GONE: _gone,
        facts.MACHINE_LAUNCHED: _launched,
        facts.MACHINE_JOINED: _joined,
        facts.POLICY: _policy,
        facts.SWITCHED: _switched,
        facts.PROCESS: _process,
        facts.DETECTOR_RESTARTED: _detector_restarted,
        facts.CLOCK: _clock,
        facts.RESTORED: _restored,
        facts.CALM: _calm,
        facts.ENDED: _ended,
    }

    # ------------------------------------------------------------ what follows from it

    def same_since(self, m: Machine, fault: Fault) -> float:
        """As ``fault.same``, 0 for None; that of the fault before it where the page took that one back too shortly
        to count: what a plugin finds then is the same to everybody who looks."""
        since = fault.same or 0.0
        for f in reversed(m.faults):
            same = (
                f.same is not None
                and f.same < since
                and f.reason == fault.reason
                and f.by == fault.by == PAGE
            )
            if same and self.too_short_on_the_page(m, f, since) and not m.booted_since(f.ended or 0.0):
                since = f.same or 0.0
        return since

    def too_short_on_the_page(self, m: Machine, f: Fault, again: float) -> bool:
        """Whether nobody can have seen, before it was there ``again``, that the page took ``f`` back."""
        # It is not ``cleared`` where a condition's writer is away.
        ended_alone = f.ended_by == "itself" and not f.logged
        if f.ended is None or not (f.cleared or ended_alone):
            return False
        settled = (at + SETTLED for at in self.restarts.get(m.node, ()) if f.began < at < again)
        return self._readable(m, max((f.ended, *settled)), again) < THRICE

    def _readable(self, m: Machine, start: float, end: float) -> float:
        """For how long at a stretch, between these two, the page of the machine's node could be read."""
        bad = self.page_bad(m.node)
        outages = [*self.outages.get(m.node, ()), *([(bad, self.at)] if bad is not None else ())]
        longest = 0.0
        for since, until in outages:
            if until > start and since < end:
                longest = max(longest, since - start)
                start = until
        return max(longest, end - start)

    def paused(self) -> float | None:
        """Since when all is paused; None if it is not."""
        if self.pause_since is None or self.at >= self.pause_until:
            return None
        return self.pause_since

    def policies_of(self, actor: str, since: float) -> list[Limits]:
        """The limits that this actor went by at some time from ``since`` until now. A process reads its
        policy when it starts."""
        series = self.policies.get(actor)
        if series is None:
            series, p = self.policies[""], self.processes.get(actor)
            since = min(since, p.started) if p is not None else since
        first = max(0, bisect.bisect_right([at for at, _ in series], since) - 1)
        return [each for _, each in series[first:]]

    def treated(self, f: Fault) -> bool:
        """Whether every policy since it began does more than notify about this fault."""
        return f.treat and all(p.treats(f.type, f.reason) for p in self.policies_of("", f.began))

    def page_bad(self, node: str) -> float | None:
        """Since when the node's page cannot be read; None if it can."""
        state, since = self.pages.get(node, ("fresh", 0.0))
        return since if state in ("unreadable", "wrong") else None

    def blind(self, node: str, lately: float = 0.0) -> float | None:
        """As ``page_bad``, but not where another source than the page states a fault of the node's machine, or has
        stated one that its silence does not end, or that it stated before the last boot: a mark stays, and is
        first seen by an agent that came after it. ``lately``: for so many seconds what a source stated counts on."""
        m = self.machines.get(machine_of(self.nodes.get(node)))
        if m is not None and any(
            f.by - PAGE
            and (f.stays or f.logged or f.shown is not None or f.hidden == BOOT or self.at - f.left < lately)
            for f in m.faults
            if f.ended is None or self.at - f.ended < lately or self.stated_for_ever(m, f)
        ):
            return None
        return self.page_bad(node)

    def stated_for_ever(self, m: Machine, f: Fault) -> bool:
        """Whether a fault that has ended by itself is stated all the same: its detector has stood still since before. Nobody
        can tell. A page of rubbish shows nothing, but the condition that this detector writes stays as it is."""
        state, since = self.pages.get(m.node, ("fresh", 0.0))
        by = {"frozen": f.by, "wrong": f.by - PAGE}.get(state)
        if not by or f.shown is None or f.ended is None or f.ended_by != "itself":
            return False
        return f.shown <= since <= f.ended

    def agent_of(self, node: str) -> Process | None:
        """The living agent of a node, or the replica that leads; None where there is none, or nobody said so."""
        found = None
        for p in self.processes.values():
            if (p.leads if p.everywhere else p.node == node) and p.state in ("started", "resumed", "stopped"):
                found = p
        return found

    def _all_off(self) -> bool:
        """Whether there are replicas of the controller, and all that live are off."""
        on = [p.on for p in self.processes.values() if p.everywhere and p.state != "killed"]
        return bool(on) and not any(on)

    def sound(self, since: float) -> bool:
        """Whether nobody disturbs anything, and has not since then."""
        return self.calm is not None and self.calm <= since

    def _sickness(self, name: str) -> None:
        """Whether the node counts as sick: an open or handed-over record, or NotReady."""
        node, record = self.nodes.get(name), self.records.get(name)
        phase = status(record).get("phase")
        recorded = (phase in OPEN or phase == "handedOver") and self._more_than_told(name, status(record))
        so = node is not None and (recorded or not ready(node))
        if so and name not in self.sick:
            self.sick.add(name)
            self.sick_since[name] = self.at
        elif not so and name in self.sick:
            self.sick.discard(name)
        self._brake()

    def _more_than_told(self, name: str, record: Json) -> bool:
        """Whether more than a notice comes of what the record is about. A fault that is only told needs no
        slot, no mark and no step, and does not make its node count for the brake."""
        r = self.recoveries.get(name)
        if r is None or record.get("ladder") or record.get("intent") or marked(self.nodes.get(name)):
            return True
        policies = self.policies_of("", r.opened)
        about = record.get("faults") or ()
        named = [(str(f.get("type") or ""), str(f.get("reason") or "")) for f in about]
        return not named or any(all(p.treats(*each) for p in policies) for each in named)

    def _brake(self) -> None:
        rules = self.policies[""][-1][1]
        so = len(self.sick) > rules.sick_allowed(len(self.nodes), rules.brake)
        if so != (self.braked_since is not None):
            self.braked_since = self.at if so else None
            self._hold_all()

    def _hold_all(self) -> None:
        for name in self.held:
            self._hold(name)

    def _hold(self, name: str) -> None:
        """Whether anything could be tried on the node now, as far as it is in nobody's hands."""
        held = self.held.get(name)
        if held is None:
            return
        agent = self.agent_of(name) if self.processes else None
        r = self.recoveries.get(name)
        drains = r is not None and r.step not in DESTRUCTIVE
        so = (
            self.paused() is not None
            or name in self.excluded
            or name in self.claimed
            or (self.blind(name) is not None and not drains)  # only what destroys waits for its page
            or self.braked_since is not None
            or (agent is not None and not agent.on)
            or self._all_off()
            or (r is not None and r.slot is not None and (name, r.uid) not in self.slots)
            or (r is not None and r.marked and name in self.nodes and not cordoned(self.nodes[name]))
        )
        if r is not None and r.waits_for_the_cloud:
            so = False
        held.now(self.at, so)


def _since(known: dict[str, float], name: str, so: bool, at: float) -> None:
    if so:
        known.setdefault(name, at)
    else:
        known.pop(name, None)
