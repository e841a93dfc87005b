"""Law 1, the budget: who is out is seen on the nodes and at the cloud, not on the gate."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from tests.search.facts import Happened, Wrote
from tests.search.judge.law import Law
from tests.search.judge.limits import Limits
from tests.search.judge.objects import Json, labels, marked, metadata, spec, status
from tests.search.judge.recoveries import Call, Recovery

KEPT = 10
"""Attempts that a record surely remembers. `policy check` says so of a higher limit."""
OVER = frozenset({"handedOver", "recovered", "withdrawn", "superseded", "released"})


@dataclass(slots=True, eq=False)
class Out:
    """A node that is out of service because of us."""

    node: str
    machine: str
    since: float
    labels: Json
    recovery: Recovery | None
    call: Call | None = None
    forgotten: bool = False  # nothing is left from which an agent could know of it

    @property
    def rule(self) -> str:
        """The rule that it is out by."""
        return str(status(self.recovery.record).get("rule") or "") if self.recovery is not None else ""

    def counts(self) -> bool:
        """One whose record somebody deleted or changed counts while what was asked of the cloud stands."""
        if self.forgotten or self.recovery is None:
            return not self.forgotten
        return not self.recovery.spoiled or (self.recovery.deleted and self.call is not None)


class Budget(Law):
    """Nodes out at once, in each scope, when one more is begun: under the policy that it was begun under."""

    name = "law 1"

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.out: dict[str, Out] = {}  # by node
        self.stamp = ""

    def node(self, w: Wrote, before: Json | None, after: Json | None) -> None:
        was, now = marked(before), marked(after)
        if now and not was and self.world.ours(w.actor):
            r = self.world.recoveries.get(w.name)
            if r is None or r.phase != "handedOver":  # marked again: it was registered anew by its machine
                self._begins(w.name, w.actor)
        elif (was and not now) or after is None:
            self._may_end(w.name)

    def phase(self, w: Wrote, r: Recovery, before: str, after: str) -> None:
        if after == "recovering" and marked(self.world.nodes.get(r.node)) and self.world.ours(w.actor):
            self._begins(r.node, w.actor)
        if after in OVER:
            found = self.out.get(r.node)
            if found is not None and found.recovery is not None and found.recovery.uid == r.uid:
                del self.out[r.node]

    def called(self, call: Call) -> None:
        if not call.standing:
            return
        r = call.intent.recovery if call.intent else None
        name = r.node if r else self._node_of(call.asked.machine)
        if not name:
            return
        if name not in self.out:
            self._begins(name, call.asked.actor)
        if found := self.out.get(name):
            found.call = call
        if r is not None and (name, r.uid) not in self.world.slots and not r.spoiled:
            lost = self.world.slot_lost.get((name, r.uid), 0.0)
            if call.asked.at - lost > self.bounds.submit:
                what = f"{call.asked.action} was asked while it held no slot"
                self.breaks("no slot", name, what, r)

    def happened(self, h: Happened) -> None:
        if h.what in ("machine booted", "machine gone", "machine joined"):
            for name in list(self.out):
                self._may_end(name)

    def gate(self, w: Wrote, before: Json | None, after: Json | None) -> None:
        """A hand that took slots off a sound gate took away what the agents know."""
        if self.world.ours(w.actor):
            return
        sound = after is not None and status(after).get("stamp") == metadata(after).get("uid")
        for x in self.out.values():
            r = x.recovery
            if r is not None and (sound or r.deleted) and (x.node, r.uid) not in self.world.slots:
                x.forgotten = True

    def _node_of(self, machine: str) -> str:
        m = self.world.machines.get(machine)
        return m.node if m else ""

    def _begins(self, name: str, actor: str) -> None:
        world = self.world
        if name in self.out:
            return
        r = world.recoveries.get(name)
        node = world.nodes.get(name)
        kept = r.labels if r is not None and r.labels else labels(node)
        m = r.machine if r is not None else ""
        mine = Out(name, m, world.at, kept, r)
        since = r.slot if r is not None and r.slot is not None else world.at
        if r is not None:
            r.marked, r.begun = True, (r.begun if r.begun is not None else world.at)
        self._judge(mine, actor, since - self.bounds.submit)
        self.out[name] = mine

    def _judge(self, mine: Out, actor: str, since: float) -> None:
        """Over the budget under each policy that it may have been begun under."""
        if mine.recovery is not None and mine.recovery.spoiled:
            return
        others = [x for x in self.out.values() if x.counts() and not self._over_and_lost(x)]
        told = ""
        for rules in self.world.policies_of(actor, since):
            told = self._over(rules, mine, others)
            if not told:
                return
        self.breaks("over budget", mine.node, told, mine.recovery)

    def _over(self, rules: Limits, mine: Out, others: list[Out]) -> str:
        for scope in rules.scopes(mine.labels, mine.rule):
            out = [x.node for x in others if scope in rules.scopes(x.labels, x.rule)]
            among = self._population(scope, rules)
            allowed = rules.allowed(scope, among + len(out))
            if len(out) + 1 > allowed:
                return f"{[*out, mine.node]} are out in {scope}, {allowed} may be"
        return ""

    def _over_and_lost(self, x: Out) -> bool:
        """Its record was deleted, and what was asked for it has happened: it is in a person's hands."""
        deleted = x.recovery is not None and x.recovery.deleted
        return deleted and x.call is not None and self._done(x.call, x)

    def _population(self, scope: str, rules: Limits) -> int:
        """A node whose Node is gone goes on counting while it is handed over, or its record is open."""
        there = [*map(labels, self.world.nodes.values())]
        gone = [
            r
            for name, r in self.world.recoveries.items()
            if name not in self.world.nodes and not r.deleted
            if r.phase == "handedOver" or (r.open and name not in self.out)
        ]
        there += [r.labels for r in gone]
        counted = [x for x in there if rules.counted(x)]
        key, _, value = scope.partition("=")
        return sum(x.get(key) == value for x in counted) if value else len(counted)

    def _may_end(self, name: str) -> None:
        found = self.out.get(name)
        if found is None:
            return
        if marked(self.world.nodes.get(name)) and self._same_machine(found):
            return
        if found.call is not None and not self._done(found.call, found):
            return
        del self.out[name]

    def _same_machine(self, x: Out) -> bool:
        """Whether the Node that goes by the name is still the one that is out."""
        node = self.world.nodes.get(x.node)
        return not x.machine or str(spec(node).get("providerID") or "").endswith(f"/{x.machine}")

    def _done(self, call: Call, x: Out) -> bool:
        """Whether what was asked has happened: booted, or gone and another in its place."""
        machine = call.asked.machine
        if machine in self.world.standing:
            return False
        if call.asked.action != "replace":
            return True
        old = self.world.machines.get(machine)
        if old is None or old.gone is None:
            return True  # taken back
        if x.recovery is not None and x.recovery.deleted:
            return True
        return any(
            m.joined is not None and m.joined >= call.asked.at and m.group == old.group and m.gone is None
            for m in self.world.machines.values()
        )


class Starts(Law):
    """How often something may be started: the cooldown, and the starts of a machine and a group."""

    name = "law 1"

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.last: tuple[float, str] | None = None
        self.machines: dict[str, list[tuple[float, str]]] = defaultdict(list)  # when, and of which record
        self.groups: dict[str, list[tuple[float, str]]] = defaultdict(list)
        self.forgiven = -1.0

    def record(self, w: Wrote, before: Json | None, after: Json | None) -> None:
        """Somebody deletes a record: a gate that has forgotten its starts knows them from nowhere else."""
        if after is not None or self.world.ours(w.actor):
            return
        for series in (*self.machines.values(), *self.groups.values()):
            series[:] = [each for each in series if each[1] != w.uid]

    def gate(self, w: Wrote, before: Json | None, after: Json | None) -> None:
        world = self.world
        if not world.ours(w.actor):
            self.forgiven = w.at  # what was started before may have been forgotten
            return
        had = {(s.get("node"), s.get("recordUID")) for s in status(before).get("slots") or ()}
        known = _starts(before)
        for slot in status(after).get("slots") or ():
            place = (slot.get("node"), slot.get("recordUID"))
            if place in had or not any(node == place[0] for node, _ in _starts(after) - known):
                continue  # one that is put back is no start
            r = world.by_uid.get(str(place[1]))
            if r is not None and not r.spoiled and not _put_back(r, w.at):
                self._started(w, r)

    def _started(self, w: Wrote, r: Recovery) -> None:
        world, at = self.world, w.at
        exact = world.clock_trouble < at - 86400.0 or world.clock_trouble < 0
        rules = world.policies_of(w.actor, at - self.bounds.submit)
        slack = 2.0
        if self.last is not None and self.last[0] > self.forgiven and exact:
            gone = at - self.last[0]
            if all(gone < p.cooldown - slack for p in rules):
                what = f"started {gone:.0f} s after {self.last[1]}, within the cooldown"
                self.breaks("cooldown", r.node, what, r)
        for series, key, kind in ((self.machines, r.machine, "attempts"), (self.groups, r.group, "perGroup")):
            if key and exact:
                past = [x for x, _ in series[key] if x > self.forgiven]
                self._within(past, at, rules, kind, r, slack)
                series[key].append((at, r.uid))
        self.last = (at, r.node)

    def _within(
        self, past: list[float], at: float, rules: list[Limits], kind: str, r: Recovery, slack: float
    ) -> None:
        for p in rules:
            most, window = p.attempts if kind == "attempts" else p.per_group
            if kind == "attempts" and most > KEPT:
                return
            if sum(at - x < window - slack for x in past) < most:
                return
        self.breaks(
            kind, r.node, f"start {len(past) + 1} of {r.machine or r.group}, more than {kind} allow", r
        )


def _starts(gate: Json | None) -> set[tuple[object, object]]:
    return {(x.get("node"), x.get("at")) for x in status(gate).get("starts") or ()}


def _put_back(r: Recovery, at: float) -> bool:
    """Whether a slot that ``r`` is given now is one that it had: a gate that is made anew puts it back."""
    return r.phase != "waiting" and r.slot is not None and r.slot < at


LAWS = (Budget, Starts)
