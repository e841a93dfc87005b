"""The lines of the story of a fleet: what the controller's replicas and the machines do besides. Pure."""

from __future__ import annotations

from recovery_demo.fleet_ledger import CORRELATED, LEASE
from recovery_demo.narrator import AGENT, SIMULATOR, Line, Narrator
from recovery_demo.seen import Seen

_TEXTS = {
    "died": "the machine is off; the node controller, which would wait for 50 s, reports at once that the "
    "kubelet is silent",
    "killed": "kill -9 of the leader (process {process}); nobody restarts it",
    "terminated": "the group terminates {instance}",
    "launched": "the group launches {instance} to replace {instead}",
    "joined": "{instance} has booted: the Node registers and is Ready",
}


class FleetNarrator(Narrator):
    """Remembers which replica leads."""

    def __init__(self, lease: str) -> None:
        super().__init__(lease)
        self._holder = ""
        self._held: set[str] = set()

    def _event(self, s: Seen) -> list[Line]:
        """What holds a fault with one cause is said on the record, and again by the step that waits: once."""
        lines = super()._event(s)
        if not any(CORRELATED in line.text for line in lines):
            return lines
        node = lines[0].node
        new, self._held = node not in self._held, self._held | {node}
        return lines if new else []

    def _lease(self, s: Seen) -> list[Line]:
        """Who leads. Which process it is, the Lease does not say; there is only one left to be it."""
        holder = str(s.spec.get("holderIdentity") or "")
        if s.name != LEASE or not holder or holder == self._holder:
            return []
        self._holder = holder
        if not self.begun:
            return []
        name, process = next(iter(self.processes.items()))
        text = f"the Lease {LEASE} has run out: {name} (process {process}) leads now"
        return [Line(s.at, AGENT, name, text, strong=True)]

    def _simulator(self, s: Seen) -> list[Line]:
        w = s.what
        node = str(w.get("node") or "")
        if w["did"] == "ready":
            self.processes[node] = int(w["process"])
        if w["did"] == "killed":
            self.processes.pop(node, None)
        text = _TEXTS.get(w["did"])
        if text is None or not self.begun:
            return []
        return [Line(s.at, SIMULATOR, node, text.format(**w), strong=w["did"] == "killed")]
