"""What a rule counts (``times``) has no source that takes it back: once it has happened often enough it is on a
record, and it ends by a boot, with its machine, or in a person's hands."""

from __future__ import annotations

from tests.search import facts
from tests.search.facts import Happened, Wrote
from tests.search.judge.objects import IN_A_PERSONS_HANDS, OPEN, Json, claimed, excluded, labels, status
from tests.search.judge.world import Fault, Machine, World

WITHIN = 300.0
"""What has happened so many seconds ago is not counted any more."""
KNOWN = 30.0
"""So long before the first time that is counted its agent is there: what its first page says is where it begins."""
SEEN = 120.0
"""So long after the last time it is on a record: a read of the page, a tolerance of a minute, and a write."""
EVERYBODY = ""


class Counted:
    """What became of it on records, and when a node was disturbed: an agent counts what it has seen itself."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.named: dict[tuple[str, str], float] = {}  # machine, reason -> when a record last named it
        self.disturbed: dict[str, list[float]] = {}  # node, or everybody

    def node(self, w: Wrote, before: Json | None, after: Json | None) -> None:
        kept = after is not None and (excluded(after) or claimed(after))
        if before is None or after is None or kept or labels(before) != labels(after):
            self._disturb(w.name)

    def record(self, w: Wrote, after: Json | None) -> None:
        s, r = status(after), self.world.recoveries.get(w.name)
        phase = str(s.get("phase") or "")
        if phase in IN_A_PERSONS_HANDS or not self.world.ours(w.actor):
            self._disturb(w.name)  # what comes to a node in a person's hands is told, and put on no record
        if r is None:
            return
        about = s.get("faults") or () if phase in {*OPEN, "handedOver"} else ()
        for f in (*about, *(s.get("acknowledged") or ())):
            self.named[r.machine, str(f.get("reason"))] = w.at

    def happened(self, h: Happened) -> None:
        if h.what in (facts.PROCESS, facts.SWITCHED, facts.TROUBLE):
            p = self.world.processes.get(h.subject)
            self._disturb(p.node if p is not None and not p.everywhere else EVERYBODY)
        elif h.what in (facts.DETECTOR_RESTARTED, facts.PAGE, facts.PERSON):
            self._disturb(h.subject)
        elif h.what in (facts.CLOCK, facts.RESTORED, facts.POLICY):
            self._disturb(EVERYBODY)

    def _disturb(self, node: str) -> None:
        self.disturbed.setdefault(node, []).append(self.world.at)

    def lasts(self, m: Machine, f: Fault) -> bool:
        """Whether ``f`` is such a fault, and neither a boot nor what its agent could not see has ended it."""
        if f.type or not f.treat or f.ended_by != "itself" or m.booted_since(f.began):
            return False
        since = f.first - KNOWN
        if not all(p.counts(f.type, f.reason) for p in self.world.policies_of("", since)):
            return False
        if self.named.get((m.id, f.reason), -1.0) >= f.began:
            return True
        earlier = any(x.reason == f.reason and f.first - WITHIN <= x.began < f.began for x in m.faults)
        return not earlier and self._undisturbed(m, since, f.began + SEEN)

    def _undisturbed(self, m: Machine, since: float, until: float) -> bool:
        times = (*self.disturbed.get(m.node, ()), *self.disturbed.get(EVERYBODY, ()))
        start = max(m.joined or 0.0, m.last_boot())
        return start < since and until < self.world.at and not any(since <= at <= until for at in times)
