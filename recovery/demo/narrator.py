"""From what is seen to lines on the screen. Pure.

What node-recovery says is quoted from its Events on the Node, which ``kubectl describe node`` shows too. The
rest is what anybody could see: the Node, its pods, the Lease, the calls that reach AWS.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from recovery.demo import scene, seen
from recovery.demo.seen import Seen, condition
from recovery.lease import lease_name
from recovery.model import TAINT

AGENT, SIMULATOR, KUBERNETES, AWS, DEMO = "node-recovery", "simulator", "kubernetes", "aws (moto)", "demo"

# Told by something else already, at the same moment.
_SILENT = frozenset({"Cordoned", "RecoveryStarted", "Submitted"})
_SILENT_WAITS = re.compile(
    r"waiting for a slot|is terminating$|is marked unhealthy|pods? left$|terminating i-"
)


@dataclass(frozen=True)
class Line:
    """``at`` is seconds since the start, ``who`` has done or said it, ``node`` is whom it is about."""

    at: float
    who: str
    node: str
    text: str
    strong: bool = False


class Narrator:
    """Hears everything in order, and remembers what it has said."""

    def __init__(self, lease: str) -> None:
        self.told = False
        """Whether the stage is set: what came before is scenery."""
        self.replicas = 0
        self.processes: dict[str, int] = {}
        self._lease_length = lease
        self._nodes: dict[str, bool] = {}
        self._pods: dict[str, bool] = {}
        self._leases: dict[str, str] = {}
        self._concluders: dict[str, str] = {}

    def hear(self, s: Seen) -> list[Line]:
        hear = {
            seen.EVENTS: self._event,
            seen.NODES: self._node,
            seen.PODS: self._pod,
            seen.LEASES: self._lease,
            seen.SIMULATOR: self._simulator,
            seen.AWS: self._call,
        }.get(s.source)
        return hear(s) if hear is not None else []

    # ------------------------------------------------------------ node-recovery's own words

    def _event(self, s: Seen) -> list[Line]:
        reason, text = str(s.what["reason"]), str(s.what["message"])
        if s.gone or int(s.what.get("count") or 1) > 1 or reason in _SILENT:
            return []
        if reason == "Waiting" and _SILENT_WAITS.search(text):
            return []
        strong = reason in ("FaultSeen", "Held", "Replacing", "Recovered", "HandedOver")
        return [Line(s.at, AGENT, str(s.what["involvedObject"]["name"]), text, strong)]

    def _lease(self, s: Seen) -> list[Line]:
        """Who works on a record. A concluder is a peer: the agent that began is gone."""
        holder = str(s.spec.get("holderIdentity") or "")
        if not holder.startswith("concluder/") or self._concluders.get(s.name) == holder:
            return []
        self._concluders[s.name] = holder
        peer = holder.split("/")[1]
        process = f" (process {self.processes[peer]})" if peer in self.processes else ""
        node = self._leases.get(s.name, "")
        text = f"its agent is gone: its Lease has run out, and the sidecar of {peer}{process} takes it over"
        return [Line(s.at, AGENT, node, text, strong=True)]

    # ------------------------------------------------------------ what Kubernetes shows

    def _node(self, s: Seen) -> list[Line]:
        self._leases[lease_name(s.name)] = s.name
        closed = bool(s.spec.get("unschedulable"))
        before = self._nodes.get(s.name, False)
        self._nodes[s.name] = closed and not s.gone
        if s.gone:
            self._nodes.pop(s.name, None)
            return [Line(s.at, KUBERNETES, s.name, "Node deleted")] if self.told else []
        if closed and not before:
            taints = [t["key"] for t in s.spec.get("taints") or []]
            taint = f", tainted {TAINT}" if TAINT in taints else ""
            return [Line(s.at, KUBERNETES, s.name, f"Node is cordoned{taint}")]
        if before and not closed:
            return [Line(s.at, KUBERNETES, s.name, "Node is uncordoned")]
        return []

    def _pod(self, s: Seen) -> list[Line]:
        meta = s.what["metadata"]
        if (meta.get("labels") or {}).get("app") != scene.APP:
            return []
        leaving = s.gone or bool(meta.get("deletionTimestamp"))
        serving = not leaving and condition(s.what, "Ready") == "True"
        before = self._pods.get(s.name)
        self._pods[s.name] = serving
        if not self.told or before == serving:
            return []
        node = str(s.spec["nodeName"])
        count = f"{sum(self._pods.values())} of {self.replicas} trainers serve"
        if leaving and before:
            return [Line(s.at, KUBERNETES, node, f"{s.name} is evicted: {count}")]
        if serving:
            return [Line(s.at, KUBERNETES, node, f"{s.name} has started here: {count}")]
        return []

    def begin(self) -> None:
        """The stage is set: all trainers serve."""
        self.told = True
        self.replicas = sum(self._pods.values())

    # ------------------------------------------------------------ what AWS and the machines do

    def _call(self, s: Seen) -> list[Line]:
        text = f"{s.what['action']} has arrived for {s.what['instance']}: Unhealthy"
        return [Line(s.at, AWS, "", text, strong=True)]

    def _simulator(self, s: Seen) -> list[Line]:
        w = s.what
        node = str(w.get("node") or "")
        if "process" in w and w["did"] == "ready":
            self.processes[node] = int(w["process"])
        text = {
            "terminated": "the group terminates {instance}; its sidecar (process {process}) dies by kill -9",
            "launched": "the group launches {instance} in the place of {instead}",
            "joined": "{instance} has booted: the Node registers and is Ready, its sidecar starts",
            "ended": "the sidecar ended by itself with exit code {code}",
        }.get(w["did"])
        if text is None or not (self.told or w["did"] == "ended"):
            return []
        lines = [Line(s.at, SIMULATOR, node, text.format(**w))]
        if w["did"] == "terminated":
            why = (
                f"its slot stays held: a peer may conclude once its Lease ({self._lease_length}) has run out"
            )
            lines.append(Line(s.at, DEMO, node, why))
        return lines
