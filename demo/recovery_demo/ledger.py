"""The demo's ledger: when each phase was reached, and what must never have happened. Pure.

It is kept from what can be seen from outside (``seen``). What node-recovery says it did counts only where
nothing else shows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from recovery.store.lease import lease_name
from recovery_demo import manifests, seen
from recovery_demo.seen import Json, Seen, condition

PHASES = {
    "fault": "fault on the detector's page",
    "would": "said what would be done",
    "reported": "kept for node-recovery report",
    "seen": "seen, and on record",
    "hidden": "gone from the page",
    "held": "held as correlated",
    "approved": "approved by a person",
    "slot": "given a place in the budget",
    "cordoned": "cordoned",
    "told": "trainer told to checkpoint",
    "ended": "trainer ended by itself",
    "drained": "drained, budget respected",
    "reboot": "reboot requested from EC2",
    "reimage": "reimage requested from Azure",
    "booted": "booted again, on the same host",
    "again": "fault on the page again",
    "redeploy": "redeploy requested from Azure",
    "moved": "booted again, on another host",
    "marked": "marked Unhealthy in its group",
    "terminated": "terminated by its group",
    "ready": "replacement Ready",
    "proved": "proved by a peer",
    "sentinel": "kured asked, by its sentinel",
    "rebooted": "booted again, the same machine",
    "validating": "on probation, then a Job",
    "passed": "validated by a Job on the node",
    "healed": "proved by boot ID and probation",
    "given": "proved, and back in service",
    "back": "fault on the page again",
    "handed": "handed over to a person",
}


@dataclass
class Recovery:
    """The recovery of one node. ``times``: phase -> seconds since the start of the demo.

    Where its machine is booted: ``hosts`` are those under it, as the simulator says; ``boots`` the boot IDs
    of its Node while Ready; ``identity`` what the Node was when the fault appeared; ``returned`` whether the
    fault came back.
    """

    node: str
    reason: str
    instance: str
    times: dict[str, float] = field(default_factory=dict)
    phase: str = ""
    sentence: str = ""
    replacement: str = ""
    concluder: str = ""
    hosts: list[int] = field(default_factory=list)
    boots: list[str] = field(default_factory=list)
    returned: bool = False
    identity: tuple[str, str] = ("", "")

    def reached(self, phase: str, at: float) -> None:
        self.times.setdefault(phase, at)


class Ledger:
    """Takes everything that is seen, in order."""

    phases: Mapping[str, str] = PHASES
    """Each phase, and how people are told of it."""
    phases_of_boots = ("booted", "moved")
    """The phase that the first boot after the fault reaches, and the one that every later boot reaches."""
    phase_of_proof = "healed"
    """The phase that is reached when the machine itself, not its replacement, is proved healthy."""

    def __init__(self) -> None:
        self.recoveries: dict[str, Recovery] = {}
        self.instances: dict[str, str] = {}
        self.first_nodes: tuple[str, ...] = ()
        self.calls: list[tuple[str, str]] = []
        """Each changing call that reached AWS, and about which instance."""
        self.asked: list[tuple[str, str]] = []
        self.metrics: dict[str, float] = {}
        self.subjects: dict[str, str] = {}
        """What Azure Monitor's metrics are about, and their namespace."""
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
        if node in self.nodes:
            found.identity, found.boots = identity(self.nodes[node]), [_boot(self.nodes[node])]
        self.recoveries[node] = found
        return found

    def is_healthy(self, node: str) -> bool:
        """Ready, and without any mark of ours or anybody's."""
        spec = self.nodes[node].get("spec") or {}
        marked = spec.get("unschedulable") or spec.get("taints")
        return not marked and condition(self.nodes[node], "Ready") == "True"

    @property
    def marked(self) -> list[str]:
        """The instances that were marked Unhealthy, as often as they were."""
        return [instance for action, instance in self.calls if action == "SetInstanceHealth"]

    @property
    def serving(self) -> int:
        """How many trainers serve now."""
        return sum(self._trainers.values())

    def healthy_nodes(self) -> int:
        return sum(self.is_healthy(n) for n in self.nodes)

    @property
    def over(self) -> bool:
        """Every recovery has ended, and its place in the budget is free."""
        ended = all(
            r.times.keys() & {"proved", "healed", "given", "handed"} for r in self.recoveries.values()
        )
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
        if reason == "FaultReturned" and (r := self.recoveries.get(str(s.what["involvedObject"]["name"]))):
            r.returned = True

    def _simulator(self, s: Seen) -> None:
        did, node = s.what["did"], str(s.what.get("node"))
        if did == "began":
            self.instances = dict(s.what["nodes"])
            self.first_nodes = tuple(self.instances)
        elif did == "ready":
            self.ready_sidecars.add(node)
        elif did == "ended":
            self.ended[node] = int(s.what["code"])
        elif did == "metrics":
            self._take(s.what["points"])
        elif did == "asked":
            self._asked(s, node)
        elif did == "launched":
            self.instances[node] = str(s.what["instance"])
            if s.what["instead"] in self.recoveries:
                self.recoveries[s.what["instead"]].replacement = node
        elif node in self.recoveries:
            self._done_to(self.recoveries[node], s)

    def _done_to(self, r: Recovery, s: Seen) -> None:
        """What the simulator did to a machine whose recovery is followed."""
        did = s.what["did"]
        if did == "terminated":
            r.reached("terminated", s.at)
        elif did in ("fault", "booted") and "host" in s.what:
            r.hosts.append(int(s.what["host"]))
        elif did == "restarted":
            r.reached("hidden", s.at)
        elif did == "again" or (did == "checked" and s.what["bad"]):
            r.reached("again", s.at)

    def _asked(self, s: Seen, node: str) -> None:
        """A request for a change that reached Azure."""
        verb = str(s.what["verb"])
        self.asked.append((verb, node))
        if node in self.recoveries and verb in PHASES:
            self.recoveries[node].reached(verb, s.at)

    def _take(self, points: Iterable[Json]) -> None:
        """What Azure Monitor has stored: of a fault its value, of an action and what came of it how often."""
        for point in points:
            name, value = series(point), float(point["value"])
            before = self.metrics.get(name, 0.0)
            self.metrics[name] = before + value if point["dimensions"] else max(before, value)
            self.subjects[str(point["subject"])] = str(point["namespace"])

    def _call(self, s: Seen) -> None:
        """A call that reached AWS, and what it is for the machine that it is about."""
        action, instance = str(s.what["action"]), str(s.what["instance"])
        self.calls.append((action, instance))
        phase = {"SetInstanceHealth": "marked", "RebootInstances": "reboot"}.get(action)
        for r in self.recoveries.values():
            if phase and r.instance == instance:
                r.reached(phase, s.at)

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
                self._booted(s)
                for r in self.recoveries.values():
                    if r.replacement == s.name:
                        r.reached("ready", s.at)
        out = [n for n in self.nodes.values() if (n.get("spec") or {}).get("unschedulable")]
        self.most_out = max(self.most_out, len(out))

    def _booted(self, s: Seen) -> None:
        """A Node that is Ready, under a boot ID that its record may not know yet."""
        r = self.recoveries.get(s.name)
        if r is None or _boot(s.what) in r.boots:
            return
        r.boots.append(_boot(s.what))
        r.reached(self.phases_of_boots[min(len(r.boots), 3) - 2], s.at)

    def _pod(self, s: Seen) -> None:
        """Trainers that serve: Ready and not on their way out. A disruption budget counts the same."""
        meta = s.what["metadata"]
        if (meta.get("labels") or {}).get("app") != manifests.APP:
            return
        serving = not s.gone and not meta.get("deletionTimestamp") and condition(s.what, "Ready") == "True"
        self._trainers[s.name] = serving
        if self.recoveries:  # before that, they are still starting
            least = self.serving if self.least_serving is None else self.least_serving
            self.least_serving = min(least, self.serving)

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
            r.reached("proved" if r.replacement else self.phase_of_proof, s.at)
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


def series(point: Json) -> str:
    """A metric with its dimensions, for people."""
    dimensions = ", ".join(str(value) for value in point["dimensions"])
    return f"{point['metric']}({dimensions})" if dimensions else str(point["metric"])


def identity(node: Json) -> tuple[str, str]:
    """UID and providerID of a Node, or its system UUID where it has none."""
    info = (node.get("status") or {}).get("nodeInfo") or {}
    machine = (node.get("spec") or {}).get("providerID") or info.get("systemUUID") or ""
    return str(node["metadata"].get("uid", "")), str(machine)


def _boot(node: Json) -> str:
    return str(((node.get("status") or {}).get("nodeInfo") or {}).get("bootID", ""))
