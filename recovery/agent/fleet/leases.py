"""The Leases of records in fleet mode: the leader's own stands for all of them (rulings 47).

A node whose sidecar is alive is that one's: its Lease of the record is looked at, and never taken.
"""

from __future__ import annotations

from collections.abc import Callable

from recovery.agent.fleet.leader import Leader
from recovery.clock import Clock
from recovery.decide.situation import Lease, Role
from recovery.quick import replace
from recovery.store.lease import Leases, Word

Summon = Callable[[str], None]
LOOKED_AT = 10.0
"""Seconds for which the Lease of a record is not looked at again, but right before a destructive call."""
NOBODYS = 60.0
"""The same where nobody held it. Without sidecars there is none, and a thousand nodes may be sick."""
MOST = 1000
"""Leases. With more, those are forgotten that would be looked at again anyway."""


Seen = dict[str, tuple[float, Lease]]
"""By node: its record's Lease, and when it was looked at."""


class LeadersLeases:
    """What ``Leases`` is to a sidecar. ``sidecars`` is only looked at.

    ``nobodys``: the Leases that nobody held, as any thread of this replica has seen. Of one that is held,
    each thread finds out by itself whether it is still renewed.
    """

    def __init__(self, leader: Leader, sidecars: Leases, clock: Clock, nobodys: Seen) -> None:
        self._leader = leader
        self._sidecars = sidecars
        self._clock = clock
        self._nobodys = nobodys
        self._seen: Seen = {}

    @property
    def renew_every(self) -> float:
        return self._sidecars.renew_every

    def look(self, node: str, *, fresh: bool = False) -> Lease:
        """Who works on the record of ``node``: a living sidecar, or the leader."""
        leads = self._leader.still_leads() if fresh else self._leader.leads
        if not leads:
            return replace(self._leader.lease, mine=False, stale=False)
        of_record = self._of_record(node, fresh)
        return self._leader.lease if of_record.stale else of_record

    def _of_record(self, node: str, fresh: bool) -> Lease:
        now = self._clock.monotonic()
        known = self._seen.get(node) or self._nobodys.get(node)
        if known is None or fresh or _old(known, now):
            known = (now, self._sidecars.look(node, fresh=True))
            held = known[1].holder != ""
            _note(self._seen, node, known if held else None, now)
            _note(self._nobodys, node, None if held else known, now)
        return known[1]

    def hold(self, node: str, role: Role) -> Lease:
        """The leader renews nothing for a single record."""
        return self.look(node)

    def word(self, node: str) -> Word:
        return self._sidecars.word(node)

    def tell(self, node: str, word: str, *, at_once: bool) -> None:
        """The controller is on none of the nodes, and reads no page."""

    def fall_silent(self, node: str) -> None:
        """It has told nothing."""

    def release(self, node: str) -> None:
        """Nothing was held of it. Whose the record is stays known for a while: its slot is freed next."""

    def release_all(self) -> None:
        self._seen.clear()
        self._nobodys.clear()

    def start_over(self) -> None:
        self._sidecars.start_over()


def _note(among: Seen, node: str, seen: tuple[float, Lease] | None, now: float) -> None:
    """Other threads may read and write ``among`` meanwhile."""
    if seen is None:
        among.pop(node, None)
        return
    if len(among) >= MOST:
        for old in [n for n, x in list(among.items()) if _old(x, now)]:
            among.pop(old, None)
    among[node] = seen


def _old(seen: tuple[float, Lease], now: float) -> bool:
    at, lease = seen
    return now - at >= (LOOKED_AT if lease.holder else NOBODYS)


class SweepersLeases(LeadersLeases):
    """For the sweep over all records: those whose Node is there are the agents' of the controllers.

    ``there`` goes by the node, and by the Lease of its record as a sidecar has left it. ``summon`` is told
    the node of each such record: its agent may not have been made yet.
    """

    def __init__(
        self,
        leader: Leader,
        sidecars: Leases,
        clock: Clock,
        nobodys: Seen,
        there: Callable[[str, Lease], bool],
        summon: Summon,
    ) -> None:
        super().__init__(leader, sidecars, clock, nobodys)
        self._there = there
        self._summon = summon

    def look(self, node: str, *, fresh: bool = False) -> Lease:
        lease = super().look(node, fresh=fresh)
        if not lease.mine or not self._there(node, self._of_record(node, False)):
            return lease
        self._summon(node)
        return replace(lease, mine=False, stale=False)
