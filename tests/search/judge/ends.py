"""How it ends: once nothing is disturbed any more, every fault comes to its end, and nothing is left."""

from __future__ import annotations

import json

from tests.search import facts
from tests.search.facts import Happened, Wrote
from tests.search.judge.counted import Counted
from tests.search.judge.law import Law
from tests.search.judge.objects import (
    GROUP,
    IN_A_PERSONS_HANDS,
    NOTHING,
    OPEN,
    Json,
    duration,
    labels,
    machine_of,
    marked,
    metadata,
    notes,
    status,
)
from tests.search.judge.world import Fault, Machine

LIVING = frozenset({"started", "resumed"})
RECORD, CLOSED, GATE = 16 * 1024, 4 * 1024, 16 * 1024
"""Bytes that a record and the gate may have."""
TWICE = 60.0
"""A good condition has to be renewed, and seen again so much later, before it takes a fault back (sources.md)."""
RENEWED = 60.0
"""So often its writer renews it. A process that comes meanwhile waits for that, and for ``TWICE``."""


class Ends(Law):
    """Judged where the history ends: at once if it says that it is settled, else when it has had its time."""

    name = "ends"

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.lives: dict[str, float] = {}  # node -> when its detector was started anew
        self.anew: dict[tuple[str, str], float] = {}  # machine, reason -> when a new life's log stated it
        self.came: list[tuple[float, str, bool]] = []  # when a process was started: at, node, everywhere
        self.counted = Counted(self.world)
        self.named: set[tuple[str, str]] = set()  # machine, reason: on a record as one that was dealt with

    def node(self, w: Wrote, before: Json | None, after: Json | None) -> None:
        self.counted.node(w, before, after)

    def record(self, w: Wrote, before: Json | None, after: Json | None) -> None:
        self.counted.record(w, after)
        s = status(after)
        given = s.get("faults") or () if s.get("phase") in {*IN_A_PERSONS_HANDS, "released"} else ()
        for f in (*(s.get("acknowledged") or ()), *given):
            self.named.add((str(f.get("machine") or ""), str(f.get("reason"))))

    def happened(self, h: Happened) -> None:
        self.counted.happened(h)
        if h.what == facts.DETECTOR_RESTARTED:
            self.lives[h.subject] = h.at
        elif h.what == facts.PROCESS and h.detail.get("state") == "started":
            p = self.world.processes[h.subject]
            self.came.append((h.at, p.node, p.everywhere))
        elif h.what == facts.FAULT_STATED and h.detail.get("rule") == "log":
            m = self.world.machines.get(h.subject)
            if m is not None and m.node in self.lives:
                self.anew[m.id, str(h.detail.get("reason"))] = self.lives[m.node]

    def end(self) -> None:
        world = self.world
        last = world.ended
        settled = last is not None and last.detail.get("because") == "settled"
        since = world.calm if world.calm is not None else None
        if not settled and (since is None or world.at - since < self.bounds.ends):
            return
        for id_, m in sorted(world.machines.items()):
            self._machine(id_, m)
        for name, record in sorted(world.records.items()):
            self._record(name, record)
        for name, node in sorted(world.nodes.items()):
            self._marks(name, node)
        self._gate()

    def _held(self, name: str) -> str:
        """What keeps a recovery of this node from ending, and is right to: empty if nothing does."""
        world = self.world
        if world.paused() is not None:
            return "paused"
        if name in world.excluded:
            return "excluded"
        if name in world.claimed:
            return "claimed"
        if world.braked_since is not None:
            return "braked"
        if world.clocks_off:
            return "a wrong clock"
        if self._nothing_is_counted():
            return "a population without a node"
        if world.page_bad(name) is not None:
            return "an unreadable page"
        agent = world.agent_of(name)
        if world.processes and (agent is None or not agent.on or agent.state == "stopped"):
            return "no agent"
        return ""

    def _nothing_is_counted(self) -> bool:
        """Whether the population of the policy selects no node that there is: nothing starts then (policy.md)."""
        nodes = [labels(node) for node in self.world.nodes.values()]
        rules = self.world.policies_of("", self.world.at)
        return any(r.population and not any(map(r.counted, nodes)) for r in rules)

    def _machine(self, id_: str, m: Machine) -> None:
        world = self.world
        if not m.told or m.gone is not None or m.node not in world.nodes or self._held(m.node):
            return
        if machine_of(world.nodes[m.node]) != id_:
            return
        latest = world.at - min(self.bounds.ends, self.bounds.unseen)
        for fault in m.there():
            if self.world.treated(fault) and fault.shown is not None and fault.shown <= latest:
                self._fault(m, fault)
        for fault in m.faults:
            if self.counted.lasts(m, fault):
                self._fault(m, fault)

    def _fault(self, m: Machine, fault: Fault) -> None:
        record = self.world.records.get(m.node)
        phase = str(status(record).get("phase") or "")
        if phase == "handedOver" or phase in OPEN:  # an open record is judged by itself
            return
        r = self.world.recoveries.get(m.node)
        if phase == "lost" and r is not None and r.machine == m.id:
            return  # somebody deleted its record: that is told again and again, too
        if self._acknowledged(record, m, fault):
            return
        what = (
            f"{fault.reason} is on {m.id} since {fault.began:.0f}, and its record is {phase or 'not there'}"
        )
        self.breaks("fault lost", m.node, what, fault)

    def _acknowledged(self, record: Json | None, m: Machine, fault: Fault) -> bool:
        """Whether a person released the node, or somebody took its record, after this fault began, and its
        record remembers that: whatever the node's later records were about."""
        r = self.world.recoveries.get(m.node)
        if record is None or r is None:
            return False
        known = {f.get("reason") for f in status(record).get("acknowledged") or ()}
        if status(record).get("acknowledgedMore"):  # what a record has no room to name is a digest on it
            known |= {reason for machine, reason in self.named if machine == m.id}
        taken = (r.closed if r.spoiled else None) or -1.0
        ended = max(self.world.released.get(m.node, -1.0), taken)
        if self.anew.get((m.id, fault.reason), -1.0) > ended:
            return False  # a new life of the detector states a new fault
        return fault.reason in known and ended >= self._known_since(m, fault)

    def _known_since(self, m: Machine, fault: Fault) -> float:
        """Since when a fault is the same to everybody who looks: one that ended too shortly before was not taken
        back in between. It may as well have been its detector's restart."""
        since = fault.began
        for f in reversed(m.faults):
            before = f.reason == fault.reason and f.began < since and self._same_word(m, f, fault)
            if before and f.ended is not None and not m.booted_since(f.ended) and self._short(m, f, since):
                since = f.began
        return since

    def _same_word(self, m: Machine, f: Fault, again: Fault) -> bool:
        """Whether the sources that state it ``again`` say the same as those of ``f``, or are only late to."""
        late = again.by - f.by
        own = (x for x in m.faults if x.reason == f.reason and x.began < again.began)
        stated = {by for x in own if not m.booted_since(x.began) for by in x.by}
        return f.by <= again.by and late.isdisjoint(stated)

    def _short(self, m: Machine, f: Fault, again: float) -> bool:
        """Whether nobody can have seen, before it was there ``again``, that the source of ``f`` took it back."""
        short = {"npd": self.world.too_short_on_the_page, "conditions": self._too_short_for_a_condition}
        return bool(f.by) and all(by in short and short[by](m, f, again) for by in f.by)

    def _too_short_for_a_condition(self, m: Machine, f: Fault, again: float) -> bool:
        assert f.ended is not None
        slack = self.bounds.sickness + self.bounds.lag
        came = max(
            (at for at, node, all_ in self.came if at < again and (all_ or node == m.node)), default=0.0
        )
        return again - f.ended < TWICE + slack or again - came < TWICE + RENEWED

    def _record(self, name: str, record: Json) -> None:
        s = status(record)
        phase = str(s.get("phase") or "")
        if phase not in OPEN:
            size = len(json.dumps(_ours(record), separators=(",", ":")))
            if size > CLOSED and phase != "handedOver":
                self.breaks("closed record", name, f"its closed record has {size} bytes, more than {CLOSED}")
            return
        if phase == "proving" and self.world.paused() is not None and not self._ill(name):
            self._proving(name, s)
        if not self._held(name):
            said = str(s.get("sentence") or "")
            self.breaks("open", name, f"its record is still {phase}: {said}", name)

    def _ill(self, name: str) -> bool:
        r = self.world.recoveries.get(name)
        m = self.world.machines.get(r.machine) if r else None
        return m is None or bool(m.there()) or m.gone is not None or self.world.page_bad(name) is not None

    def _proving(self, name: str, s: Json) -> None:
        """The way back is never braked: a pause does not keep a node from its proof."""
        r = self.world.recoveries[name]
        whole = duration(s.get("probation"), 120.0)
        if self.world.at - r.proving_since > whole + 600.0:
            self.breaks("proof delayed", name, "is healthy, and a pause keeps it from its proof", name)

    def _marks(self, name: str, node: Json) -> None:
        if not marked(node):
            return
        r = self.world.recoveries.get(name)
        agent = self.world.agent_of(name)
        if self.world.processes and (agent is None or not agent.on or agent.state == "stopped"):
            return
        if r is None or r.deleted or r.spoiled or r.phase in IN_A_PERSONS_HANDS or r.open:
            return
        if self.world.at - (r.closed or 0.0) > self.bounds.cleanup:
            self.breaks("marks left", name, f"its record is {r.phase}, and our marks are still on it", name)

    def _gate(self) -> None:
        world = self.world
        if world.gate is None or status(world.gate).get("stamp") != metadata(world.gate).get("uid"):
            return
        if world.calm is not None and world.at - world.calm < 900.0:
            return
        if world.processes and not any(p.on and p.state in LIVING for p in world.processes.values()):
            return  # all machines are gone, and with them their agents: nobody is left to conclude anything
        for kind in ("slots", "open"):
            for line in status(world.gate).get(kind) or ():
                r = world.by_uid.get(str(line.get("recordUID")))
                if r is None or not r.open:
                    left = f"{kind} of the gate still names it, and its record is {r.phase if r else 'gone'}"
                    self.breaks(f"{kind} left", str(line.get("node")), left, line.get("node"))
        size = len(json.dumps(world.gate, separators=(",", ":")))
        if size > GATE:
            self.breaks("gate size", "fleet", f"the gate has {size} bytes, more than {GATE}")


FOREIGN = ("annotations", "finalizers", "ownerReferences", "managedFields")


def _ours(record: Json) -> Json:
    """A record without what others put into its metadata: nobody cuts that, and nothing is cut for it."""
    kept = {key: value for key, value in metadata(record).items() if key not in FOREIGN}
    labels = {key: value for key, value in (kept.get("labels") or NOTHING).items() if key.startswith(GROUP)}
    return {**record, "metadata": {**kept, "labels": labels}}


class ToldAgain(Law):
    """Law 6: a node in a person's hands is told again and again until they take it."""

    name = "law 6"

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.told: dict[str, float] = {}  # node -> the last Event of ours about it
        self.quiet_from = 0.0

    def event(self, w: Wrote, before: Json | None, after: Json | None) -> None:
        about = ((after or before or NOTHING).get("involvedObject") or NOTHING).get("name")
        if about:
            self._gap(str(about))
            self.told[str(about)] = w.at

    def happened(self, h: Happened) -> None:
        if h.what in (facts.PROCESS, facts.SWITCHED, facts.CALM):
            self.quiet_from = h.at

    def end(self) -> None:
        for name in list(self.world.records):
            self._gap(name)

    def _gap(self, name: str) -> None:
        """How long nothing was told of a node in a person's hands, while nobody was disturbed."""
        world = self.world
        r = world.recoveries.get(name)
        if r is None or r.phase not in IN_A_PERSONS_HANDS or r.deleted or world.calm is None:
            return
        agent = world.agent_of(name)
        if agent is None or not agent.on or agent.state == "stopped" or name not in world.nodes:
            return
        since = max(self.told.get(name, 0.0), r.entered, world.calm, self.quiet_from, agent.since)
        if world.at - since > self.bounds.told:
            what = f"is in a person's hands, and no Event said so for {world.at - since:.0f} s"
            self.breaks("not told again", name, what, r)


class Sizes(Law):
    """What everybody reads stays small."""

    name = "ends"

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.writes = 0

    def record(self, w: Wrote, before: Json | None, after: Json | None) -> None:
        self.writes += 1
        if after is None or self.writes % 16 or notes(after):
            return
        size = len(json.dumps(after, separators=(",", ":")))
        if size > RECORD:
            self.breaks("record size", w.name, f"its record has {size} bytes, more than {RECORD}", w.name)


LAWS = (Ends, ToldAgain, Sizes)
