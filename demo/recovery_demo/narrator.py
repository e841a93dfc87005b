"""Turns what is seen into lines for the screen. Pure.

What node-recovery says is quoted from its Events on the Node, which ``kubectl describe node`` shows too. The
rest is what anybody could see: the Node, its pods, the Lease, the calls that reach the cloud.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from recovery.decide.drain import EVICT_AFTER
from recovery.model import TAINT
from recovery.store.lease import lease_name
from recovery_demo import manifests, seen
from recovery_demo.ledger import series
from recovery_demo.seen import Seen, condition

AGENT, SIMULATOR, KUBERNETES, DEMO = "node-recovery", "simulator", "kubernetes", "demo"
AWS, AZURE, KURED = "aws (moto)", "azure (fake)", "kured (fake)"

# Another line says the same at the same moment.
_SILENT = frozenset({"Cordoned", "RecoveryStarted", "Submitted", "Uncordoned"})
_SILENT_WAITS = re.compile(
    r"waiting for a slot|is terminating$|is marked unhealthy|pods? left$|terminating i-|has not ended it$"
)

_STRONG = frozenset(
    {
        *("FaultSeen", "Held", "Replacing", "Reimaging", "Redeploying", "Rebooting"),
        *("FaultReturned", "Recovered", "HandedOver"),
    }
)
_CHECKED = {
    True: "its detector's plugin has run, and the fault is on the page again: it is in host {host}",
    False: "its detector's plugin has run on host {host}, and finds nothing",
}


@dataclass(frozen=True)
class Line:
    """``at`` is seconds since the start, ``who`` has done or said it, ``node`` is whom it is about."""

    at: float
    who: str
    node: str
    text: str
    strong: bool = False


class Narrator:
    """Takes everything that is seen, in order, and remembers what it has printed."""

    def __init__(self, lease: str) -> None:
        self.begun = False
        """Whether the set-up is over. What happens before that is not printed."""
        self.replicas = 0
        self.processes: dict[str, int] = {}
        self._lease_length = lease
        self._nodes: dict[str, bool] = {}
        self._readiness: dict[str, bool] = {}
        self._pods: dict[str, bool] = {}
        self._leases: dict[str, str] = {}
        self._concluders: dict[str, str] = {}
        self._said: dict[str, str] = {}
        self._annotated: set[str] = set()
        self._jobs: dict[str, str] = {}

    def hear(self, s: Seen) -> list[Line]:
        hear = {
            seen.EVENTS: self._event,
            seen.NODES: self._node,
            seen.PODS: self._pod,
            seen.LEASES: self._lease,
            seen.SIMULATOR: self._simulator,
            seen.AWS: self._call,
            seen.JOBS: self._job,
        }.get(s.source)
        return hear(s) if hear is not None else []

    # ------------------------------------------------------------ node-recovery's own words

    def _event(self, s: Seen) -> list[Line]:
        reason, text = str(s.what["reason"]), str(s.what["message"])
        if s.gone or int(s.what.get("count") or 1) > 1 or reason in _SILENT:
            return []
        if reason == "Waiting" and _SILENT_WAITS.search(text):
            return []
        node = str(s.what["involvedObject"]["name"])
        said, self._said[node] = self._said.get(node), text
        if said is not None and said in text:
            return []  # the same again
        return [Line(s.at, AGENT, node, text, reason in _STRONG)]

    def _lease(self, s: Seen) -> list[Line]:
        """Who works on a record. A concluder is a peer: the agent that began is gone, or was for a while."""
        holder = str(s.spec.get("holderIdentity") or "")
        node = self._leases.get(s.name, "")
        if holder.startswith("owner/") and self._concluders.pop(s.name, ""):
            return [Line(s.at, AGENT, node, "its own agent is back, and the peer gives way to it")]
        if not holder.startswith("concluder/") or self._concluders.get(s.name) == holder:
            return []
        self._concluders[s.name] = holder
        peer = holder.split("/")[1]
        process = f" (process {self.processes[peer]})" if peer in self.processes else ""
        text = f"its agent is gone: its Lease is over, and the sidecar of {peer}{process} takes the record"
        return [Line(s.at, AGENT, node, text, strong=True)]

    # ------------------------------------------------------------ what Kubernetes shows

    def _node(self, s: Seen) -> list[Line]:
        self._leases[lease_name(s.name)] = s.name
        closed = bool(s.spec.get("unschedulable"))
        before = self._nodes.get(s.name, False)
        self._nodes[s.name] = closed and not s.gone
        if s.gone:
            self._nodes.pop(s.name, None)
            return [Line(s.at, KUBERNETES, s.name, "Node deleted")] if self.begun else []
        return self._ready(s) + self._cordon(s, closed, before)

    def _ready(self, s: Seen) -> list[Line]:
        """A Node that was Ready and is not, or is again."""
        ready, before = condition(s.what, "Ready") == "True", self._readiness.get(s.name)
        if before is None and not ready:
            return []
        self._readiness[s.name] = ready
        if before is None or before == ready:
            return []
        boot = s.status["nodeInfo"]["bootID"]
        text = f"Node is Ready; its boot ID is {boot} now" if ready else "Node is NotReady"
        return [Line(s.at, KUBERNETES, s.name, text)]

    def _cordon(self, s: Seen, closed: bool, before: bool) -> list[Line]:
        if closed and not before:
            taints = [t["key"] for t in s.spec.get("taints") or []]
            taint = f", tainted {TAINT}" if TAINT in taints else ""
            return [Line(s.at, KUBERNETES, s.name, f"Node is cordoned{taint}")]
        if before and not closed:
            return [Line(s.at, KUBERNETES, s.name, "Node is uncordoned")]
        return []

    def _pod(self, s: Seen) -> list[Line]:
        meta = s.what["metadata"]
        if (meta.get("labels") or {}).get("app") != manifests.APP:
            return []
        leaving = s.gone or bool(meta.get("deletionTimestamp"))
        serving = not leaving and condition(s.what, "Ready") == "True"
        before = self._pods.get(s.name)
        self._pods[s.name] = serving
        if not self.begun:
            return []
        node = str(s.spec["nodeName"])
        if before == serving:
            return self._annotation(s, node)
        count = f"{sum(self._pods.values())} of {self.replicas} trainers serve"
        if leaving and before:
            return [Line(s.at, KUBERNETES, node, f"{s.name} is evicted: {count}")]
        if before and s.status.get("phase") == "Failed":
            text = f"{s.name} has written its checkpoint and ended by itself: {count}"
            return [Line(s.at, KUBERNETES, node, text)]
        if serving:
            return [Line(s.at, KUBERNETES, node, f"{s.name} has started here: {count}")]
        return []

    def _annotation(self, s: Seen, node: str) -> list[Line]:
        """A trainer that is annotated for the first time: it is asked to end."""
        notes = s.what["metadata"].get("annotations") or {}
        if EVICT_AFTER not in notes or s.name in self._annotated:
            return []
        self._annotated.add(s.name)
        annotations = (
            f"{manifests.CHECKPOINT}: {notes.get(manifests.CHECKPOINT)}, {EVICT_AFTER}: {notes[EVICT_AFTER]}"
        )
        return [Line(s.at, KUBERNETES, node, f"{s.name} is annotated {annotations}")]

    def _job(self, s: Seen) -> list[Line]:
        """A validation Job that is made, and that has ended."""
        verdict = next((c for c in ("Complete", "Failed") if condition(s.what, c) == "True"), "")
        if s.gone or self._jobs.get(s.name) == verdict:
            return []
        self._jobs[s.name] = verdict
        node = str(s.spec["template"]["spec"].get("nodeName") or "")
        text = f"Job {s.name} is {verdict}" if verdict else f"Job {s.name} is created, for this node only"
        return [Line(s.at, KUBERNETES, node, text)]

    def begin(self) -> None:
        """The set-up is over and all trainers serve: from here on everything is printed."""
        self.begun = True
        self.replicas = sum(self._pods.values())

    # ------------------------------------------------------------ what clouds and the machines do

    def _call(self, s: Seen) -> list[Line]:
        health = ": Unhealthy" if s.what["action"] == "SetInstanceHealth" else ""
        text = f"received {s.what['action']} for {s.what['instance']}{health}"
        return [Line(s.at, AWS, "", text, strong=True)]

    def _azure(self, s: Seen) -> list[Line]:
        """What reached Azure: a request for a change, or metrics."""
        if s.what["did"] == "metrics":
            points = ", ".join(f"{series(p)} = {p['value']:g}" for p in s.what["points"])
            return [Line(s.at, AZURE, "", f"Azure Monitor received {points}")]
        method, _, path = s.what["line"].partition(" ")
        text = f"received {method} {path.rpartition('/virtualMachineScaleSets/')[2]}"
        return [Line(s.at, AZURE, s.what["node"], text, strong=True)]

    def _simulator(self, s: Seen) -> list[Line]:
        w = s.what
        if w["did"] in ("asked", "metrics"):
            return self._azure(s)
        node = str(w.get("node") or "")
        if "process" in w and w["did"] == "ready":
            self.processes[node] = int(w["process"])
        text = {
            "terminated": "the group terminates {instance}; its sidecar (process {process}) dies by kill -9",
            "launched": "the group launches {instance} to replace {instead}",
            "joined": "{instance} has booted: the Node registers and is Ready, its sidecar starts",
            "ended": "the sidecar ended by itself with exit code {code}",
            "off": "{verb}: the machine goes off; its sidecar (process {process}) dies by kill -9",
            "booted": "the machine boots again, on host {host}",
            "back": "its kubelet is back, on the same Node, and starts the sidecar again",
            "checked": _CHECKED[bool(w.get("bad"))],
            "sentinel": 'finds {path}, which says "{text}"; its lock is free, and it reboots the machine',
            "kernel": "the kernel boots; what was in memory is gone, including kured's file",
            "restarted": "its detector restarts: the page has forgotten it, nothing is repaired",
            "again": "the kernel logs the XID again, and it is on the page again",
            "counted": "its detector's plugin has run, and counts {gpus} GPUs",
        }.get(w["did"])
        if text is None or not (self.begun or w["did"] == "ended"):
            return []
        who = KURED if w["did"] == "sentinel" else SIMULATOR
        lines = [Line(s.at, who, node, text.format(**w), strong=who is KURED)]
        if w["did"] == "terminated":
            why = f"its slot stays taken; a peer may take over when its Lease ({self._lease_length}) is over"
            lines.append(Line(s.at, DEMO, node, why))
        return lines
