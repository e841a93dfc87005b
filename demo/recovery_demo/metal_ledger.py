"""What the ledger holds on bare metal besides: trainers asked to end, sentinels, validation Jobs. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from recovery.decide.drain import EVICT_AFTER
from recovery.model import TAINT
from recovery.units import parse_moment
from recovery_demo import manifests, seen
from recovery_demo.ledger import Ledger
from recovery_demo.seen import Seen, condition


@dataclass
class Trainer:
    """A pod of the training job. ``annotated``: it was asked to end while it ran."""

    node: str
    annotated: bool = False
    evict_after: datetime | None = None
    ended: datetime | None = None
    evicted: bool = False
    serving: bool = False

    def __str__(self) -> str:
        asked = f"told to end before {self.evict_after:%X}" if self.evict_after else "not told"
        ended = f"ended at {self.ended:%X}" if self.ended else "not ended"
        return f"{asked}, {ended}{', evicted' if self.evicted else ''}"

    @property
    def in_time(self) -> bool:
        """It was asked to end, and ended by itself before it would have been evicted."""
        if not self.annotated or self.evict_after is None or self.ended is None:
            return False
        return self.ended < self.evict_after and not self.evicted


@dataclass
class Validation:
    """A validation Job: its node, and when it was made and when it succeeded, by the API's order."""

    node: str
    made: int
    passed: int | None = None


class MetalLedger(Ledger):
    """Hears everything in order."""

    phases_of_boots = ("rebooted", "rebooted")
    phase_of_proof = "given"

    def __init__(self) -> None:
        super().__init__()
        self.sentinels: list[tuple[str, str]] = []
        """Each sentinel that kured saw: on which machine, and what it says."""
        self.trainers: dict[str, Trainer] = {}
        self.validations: dict[str, Validation] = {}
        self.closed: dict[str, int] = {}
        """When a node bore our marks for the first time, by the API's order; and when no longer both."""
        self.opened: dict[str, int] = {}
        self.hand_over = ""
        self.history: list[str] = []
        """What the record remembers, in order."""

    def again(self, node: str, at: float) -> None:
        """The fault of ``node`` is back."""
        self.recoveries[node].reached("back", at)

    @property
    def handed(self) -> bool:
        """Every story is in a person's hands, and its place in the budget is free."""
        stories = self.recoveries.values()
        return all(r.phase == "handedOver" for r in stories) and not self.slots and not self.open

    def hear(self, s: Seen) -> None:
        if s.source == seen.NODES and not s.gone:
            self._marks(s)
        super().hear(s)
        if s.source == seen.JOBS and not s.gone:
            self._job(s)

    # ------------------------------------------------------------ one source each

    def _marks(self, s: Seen) -> None:
        tainted = any(taint["key"] == TAINT for taint in s.spec.get("taints") or [])
        if tainted and s.spec.get("unschedulable"):
            self.closed.setdefault(s.name, s.version)
        elif s.name in self.closed:
            self.opened.setdefault(s.name, s.version)

    def _simulator(self, s: Seen) -> None:
        super()._simulator(s)
        if s.what["did"] != "sentinel":
            return
        node = str(s.what["node"])
        self.sentinels.append((node, str(s.what["text"])))
        if node in self.recoveries:
            self.recoveries[node].reached("sentinel", s.at)

    def _pod(self, s: Seen) -> None:
        super()._pod(s)
        meta = s.what["metadata"]
        if (meta.get("labels") or {}).get("app") != manifests.APP:
            return
        t = self.trainers.setdefault(s.name, Trainer(str(s.spec["nodeName"])))
        leaving = s.gone or meta.get("deletionTimestamp") or condition(s.what, "DisruptionTarget") == "True"
        t.evicted = t.evicted or bool(leaving)
        t.serving = self._trainers[s.name]
        r = self.recoveries.get(t.node)
        notes = meta.get("annotations") or {}
        if s.status.get("phase") == "Running" and notes.get(manifests.CHECKPOINT) and EVICT_AFTER in notes:
            t.annotated, t.evict_after = True, parse_moment(notes[EVICT_AFTER])
            if r is not None:
                r.reached("told", s.at)
        for container in s.status.get("containerStatuses") or []:
            if end := (container.get("state") or {}).get("terminated"):
                t.ended = parse_moment(end["finishedAt"])
                if r is not None:
                    r.reached("ended", s.at)

    def _job(self, s: Seen) -> None:
        node = str(s.spec["template"]["spec"].get("nodeName") or "")
        v = self.validations.setdefault(s.name, Validation(node, s.version))
        r = self.recoveries.get(node)
        if r is not None:
            r.reached("validating", s.at)
        if condition(s.what, "Complete") == "True" and v.passed is None:
            v.passed = s.version
            if r is not None:
                r.reached("passed", s.at)

    def _record(self, s: Seen) -> None:
        super()._record(s)
        if s.name in self.recoveries:
            self.history = [str(line["event"]) for line in s.status.get("history") or []]

    def _event(self, s: Seen) -> None:
        super()._event(s)
        if s.what["reason"] == "HandedOver" and s.what["involvedObject"]["name"] in self.recoveries:
            self.hand_over = self.hand_over or str(s.what["message"])
