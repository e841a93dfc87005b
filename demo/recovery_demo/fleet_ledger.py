"""What the ledger holds of a fleet besides: who leads, what a dead kubelet left, what is held. Pure."""

from __future__ import annotations

from recovery.model import IntentState
from recovery_demo import manifests, seen
from recovery_demo.ledger import PHASES, Ledger
from recovery_demo.seen import Seen

LEASE = "node-recovery-fleet"
"""The Lease by which one replica leads."""
CORRELATED = "has one cause on many machines"
"""How the sentence of a fault that is held as correlated goes."""


class FleetLedger(Ledger):
    """Hears everything in order."""

    phases = PHASES | {
        "fault": "fault on the Node",
        "drained": "drained",
        "proved": "proved by the controller",
    }

    def __init__(self) -> None:
        super().__init__()
        self.leaders: list[str] = []
        """The holders of the Lease, one after the other."""
        self.killed: float | None = None
        self.led_again: float | None = None
        """When the leader was killed, and when another led; seconds since the start."""
        self.submitted: set[str] = set()
        """The nodes whose record says that the provider has accepted a call."""
        self.held: dict[str, str] = {}
        """Each node whose fault was held as correlated, and the sentence on its record."""
        self.left_behind: dict[str, list[str]] = {}
        """The trainers that were still there, terminating, when the call for their node arrived."""
        self._places: dict[str, tuple[str, bool]] = {}
        self._newest = 0
        self._approved: dict[str, int] = {}
        self._done: dict[tuple[str, str], int] = {}
        """What was first done to which node, and which reason was let go: when, by the API's order."""

    @property
    def too_early(self) -> list[str]:
        """What was done to a node that was held before a person let its fault go."""
        return [
            f"{what} of {node}"
            for (what, node), at in self._done.items()
            if node in self.held and at < self._approved.get(self.recoveries[node].reason, at + 1)
        ]

    def hear(self, s: Seen) -> None:
        if s.source in seen.WATCHED:
            self._newest = max(self._newest, s.version)
        super().hear(s)
        if s.source == seen.SIMULATOR and s.what["did"] == "killed":
            self.killed = s.at

    # ------------------------------------------------------------ one source each

    def _lease(self, s: Seen) -> None:
        holder = str(s.spec.get("holderIdentity") or "")
        if s.name != LEASE or not holder or holder in self.leaders[-1:]:
            return
        self.leaders.append(holder)
        if self.killed is not None and self.led_again is None:
            self.led_again = s.at

    def _record(self, s: Seen) -> None:
        super()._record(s)
        if (s.status.get("intent") or {}).get("state") == IntentState.SUBMITTED:
            self.submitted.add(s.name)
        r = self.recoveries.get(s.name)
        if r is not None and CORRELATED in r.sentence:
            r.reached("held", s.at)
            self.held.setdefault(s.name, r.sentence)

    def _gate(self, s: Seen) -> None:
        for approved in s.spec.get("approved") or []:
            self._approved.setdefault(approved["reason"], s.version)
            for r in self.recoveries.values():
                if r.reason == approved["reason"]:
                    r.reached("approved", s.at)
        super()._gate(s)
        for node in self.slots:
            self._done.setdefault(("slot", node), s.version)

    def _node(self, s: Seen) -> None:
        super()._node(s)
        if s.spec.get("unschedulable"):
            self._done.setdefault(("cordon", s.name), s.version)

    def _call(self, s: Seen) -> None:
        super()._call(s)
        for r in self.recoveries.values():
            if r.instance == s.what["instance"]:
                self._done.setdefault((str(s.what["action"]), r.node), self._newest)
                here = [name for name, (node, leaving) in self._places.items() if node == r.node and leaving]
                self.left_behind.setdefault(r.node, here)

    def _pod(self, s: Seen) -> None:
        super()._pod(s)
        meta = s.what["metadata"]
        if (meta.get("labels") or {}).get("app") != manifests.APP:
            return
        if s.gone:
            self._places.pop(s.name, None)
        else:
            self._places[s.name] = str(s.spec["nodeName"]), bool(meta.get("deletionTimestamp"))
