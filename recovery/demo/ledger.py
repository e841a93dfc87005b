"""The demo's books: when each phase was reached, and what must never have happened. Pure.

Kept from what can be seen from outside (``seen``), not from what node-recovery says it did, wherever the two
can be told apart.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from recovery.demo import scene, seen
from recovery.demo.seen import Json, Seen, condition
from recovery.lease import lease_name

PHASES = {
    "fault": "fault on the detector's page",
    "seen": "seen, and on record",
    "slot": "given a place in the budget",
    "cordoned": "cordoned",
    "drained": "drained, budget honoured",
    "marked": "marked Unhealthy in its group",
    "terminated": "terminated by its group",
    "ready": "replacement Ready",
    "proved": "proved by a peer",
    "handed": "handed over to a person",
}


@dataclass
class Recovery:
    """One node's story. ``times``: phase -> seconds since the start of the demo."""

    node: str
    reason: str
    instance: str
    times: dict[str, float] = field(default_factory=dict)
    phase: str = ""
    sentence: str = ""
    replacement: str = ""
    concluder: str = ""

    def reached(self, phase: str, at: float) -> None:
        self.times.setdefault(phase, at)


class Ledger:
    """Hears everything in order."""

    def __init__(self) -> None:
        self.recoveries: dict[str, Recovery] = {}
        self.instances: dict[str, str] = {}
        self.first_nodes: tuple[str, ...] = ()
        self.marked: list[str] = []
        self.most_slots = 0
        self.slots: list[str] = []
        self.open: list[str] = []
        self.most_out = 0
        self.least_serving: int | None = None
        self.touched: set[str] = set()
        self.nodes: dict[str, Json] = {}
        self.refused_evictions = 0
        self.waited: set[str] = set()
        self.ready_sidecars: set[str] = set()
        self.ended: dict[str, int] = {}
        self._trainers: dict[str, bool] = {}

    def expect(self, node: str, reason: str, at: float) -> Recovery:
        """From now on ``node`` has the fault ``reason``."""
        found = Recovery(node, reason, self.instances.get(node, ""))
        found.reached("fault", at)
        self.recoveries[node] = found
        return found

    def is_healthy(self, node: str) -> bool:
        """Ready, and without any mark of ours or anybody's."""
        spec = self.nodes[node].get("spec") or {}
        marked = spec.get("unschedulable") or spec.get("taints")
        return not marked and condition(self.nodes[node], "Ready") == "True"

    def healthy_nodes(self) -> int:
        return sum(self.is_healthy(n) for n in self.nodes)

    @property
    def over(self) -> bool:
        """Every story has ended, and its place in the budget is free."""
        ended = all("proved" in r.times or "handed" in r.times for r in self.recoveries.values())
        return ended and not self.slots and not self.open

    def hear(self, s: Seen) -> None:
        match s.source:
            case seen.SIMULATOR:
                self._simulator(s)
            case seen.AWS:
                self._call(s)
            case seen.NODES:
                self._node(s)
            case seen.PODS:
                self._pod(s)
            case seen.RECORDS:
                self._record(s)
            case seen.GATES:
                self._gate(s)
            case seen.LEASES:
                self._lease(s)
            case seen.EVENTS:
                self._event(s)

    # ------------------------------------------------------------ one source each

    def _event(self, s: Seen) -> None:
        reason, text = str(s.what["reason"]), str(s.what["message"])
        if "disruption budget" in text:
            self.refused_evictions += 1
        if reason == "Held" and "the budget of the fleet is used up" in text:
            self.waited.add(str(s.what["involvedObject"]["name"]))

    def _simulator(self, s: Seen) -> None:
        did, node = s.what["did"], str(s.what.get("node"))
        if did == "began":
            self.instances = dict(s.what["nodes"])
            self.first_nodes = tuple(self.instances)
        elif did == "ready":
            self.ready_sidecars.add(node)
        elif did == "ended":
            self.ended[node] = int(s.what["code"])
        elif did == "terminated" and node in self.recoveries:
            self.recoveries[node].reached("terminated", s.at)
        elif did == "launched":
            self.instances[node] = str(s.what["instance"])
            if s.what["instead"] in self.recoveries:
                self.recoveries[s.what["instead"]].replacement = node

    def _call(self, s: Seen) -> None:
        if s.what["action"] != "SetInstanceHealth":
            return
        self.marked.append(s.what["instance"])
        for r in self.recoveries.values():
            if r.instance == s.what["instance"]:
                r.reached("marked", s.at)

    def _node(self, s: Seen) -> None:
        if s.gone:
            self.nodes.pop(s.name, None)
        else:
            self.nodes[s.name] = s.what
            if s.spec.get("unschedulable") or s.spec.get("taints"):
                self.touched.add(s.name)
            if s.spec.get("unschedulable") and s.name in self.recoveries:
                self.recoveries[s.name].reached("cordoned", s.at)
            if condition(s.what, "Ready") == "True":
                for r in self.recoveries.values():
                    if r.replacement == s.name:
                        r.reached("ready", s.at)
        out = [n for n in self.nodes.values() if (n.get("spec") or {}).get("unschedulable")]
        self.most_out = max(self.most_out, len(out))

    def _pod(self, s: Seen) -> None:
        """Trainers that serve: Ready and not on their way out. A disruption budget counts the same."""
        meta = s.what["metadata"]
        if (meta.get("labels") or {}).get("app") != scene.APP:
            return
        serving = not s.gone and not meta.get("deletionTimestamp") and condition(s.what, "Ready") == "True"
        self._trainers[s.name] = serving
        if self.recoveries:  # before that, they are still starting
            count = sum(self._trainers.values())
            self.least_serving = count if self.least_serving is None else min(self.least_serving, count)

    def _record(self, s: Seen) -> None:
        self.touched.add(s.name)
        r = self.recoveries.get(s.name)
        if r is None:
            return
        r.reached("seen", s.at)
        r.phase, r.sentence = str(s.status.get("phase", "")), str(s.status.get("sentence", ""))
        history = s.status.get("history") or []
        if any(h["event"] == "rung" and str(h["sentence"]).startswith("drained") for h in history):
            r.reached("drained", s.at)
        if r.phase == "recovered":
            r.reached("proved", s.at)
        if r.phase == "handedOver":
            r.reached("handed", s.at)

    def _lease(self, s: Seen) -> None:
        holder = str(s.spec.get("holderIdentity") or "").split("/")
        for r in self.recoveries.values():
            if holder[0] == "concluder" and s.name == lease_name(r.node):
                r.concluder = holder[1]

    def _gate(self, s: Seen) -> None:
        self.slots = [str(x["node"]) for x in s.status.get("slots") or []]
        self.open = [str(x["node"]) for x in s.status.get("open") or []]
        self.most_slots = max(self.most_slots, len(self.slots))
        for node in self.slots:
            if node in self.recoveries:
                self.recoveries[node].reached("slot", s.at)
