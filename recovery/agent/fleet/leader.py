"""Which replica of the controller leads? The one that holds the Lease ``node-recovery-fleet``.

The election works as in client-go: a replica may take a Lease that nobody has changed for its whole length,
by the replica's own clock. The others only watch.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import timedelta

from recovery.agent.backoff import Outage
from recovery.clock import Clock
from recovery.decide.situation import Lease, Role
from recovery.errors import ApiError, ApiUnavailable
from recovery.store.lease import Identity, LeaseObjects, Leases

log = logging.getLogger(__name__)

LEASE = "node-recovery-fleet"
LENGTH = timedelta(seconds=15)
RETRY = 2.0
"""Seconds between two tries to take or renew it; client-go's, as the length is."""
AT_ONCE = 0.1
"""Seconds after the end of a Lease that nobody renews, until it is tried for."""
BLIND = 60.0
"""For how many seconds a replica that does not see the Nodes may lead: a large fleet takes time to list."""


class Leader:
    """This replica's part in the election. Any thread may ask; one calls ``campaign``.

    ``on``: ENABLE_RECOVERY. Without it no Lease is written (law 7), so each replica observes by itself.
    ``outage`` is told whether the API server answers: where nothing happens, nobody else asks it. ``sees``:
    whether this replica knows the Nodes as they are; one that does not leaves the lead to one that does.
    ``failed`` is called for each error.
    """

    def __init__(
        self,
        cluster: LeaseObjects,
        clock: Clock,
        identity: Identity,
        on: bool,
        outage: Outage | None = None,
        *,
        sees: Callable[[], bool] = lambda: True,
        failed: Callable[[], object] = lambda: None,
    ) -> None:
        self._on = on
        self._clock = clock
        self._outage = outage or Outage()
        self._leases = Leases(cluster, clock, identity, LENGTH, named=lambda _: LEASE)
        self._lock = threading.Lock()
        self._lease = Lease(stale=False)
        self._sees = sees
        self._failed = failed
        self._blind_since: float | None = None
        self.refused = ""
        """Why the Lease could not be asked for the last time; "" where it could."""
        self.term = 0
        """Another number each time that this replica begins to lead: others may have led in between."""

    @property
    def leads(self) -> bool:
        """Whether this replica leads, by its own clock: it renewed the Lease so lately that nobody can have
        taken it."""
        return not self._on or (self._lease.mine and self._leases.held(LEASE))

    @property
    def lease(self) -> Lease:
        """The Lease as it was last seen."""
        return self._lease

    def campaign(self) -> float:
        """Take or renew the Lease. Never raises. Seconds until the next try.

        A replica that does not lead tries again at the very moment at which the Lease may be taken.
        """
        if not self._on:
            return RETRY
        if self._is_blind():
            self._give_way()
            return RETRY
        with self._lock:
            led = self._lease.mine
            self.term += not self.leads  # first, or it would lead for a moment in the old term
            try:
                self._lease = self._leases.hold(LEASE, Role.OWNER)
                self._outage.answered(self._clock.monotonic())
                self.refused = ""
            except ApiError as error:
                if isinstance(error, ApiUnavailable):
                    self._outage.away(self._clock.monotonic())
                log.warning("the Lease %s: %s", LEASE, error)
                self.refused = str(error)
                self._failed()
        if self._lease.mine is not led:
            log.info("this replica %s", "leads" if self._lease.mine else f"yields to {self._lease.holder}")
        left = self._leases.stale_in(LEASE)
        return left + AT_ONCE if 0.0 < left < RETRY and not self._lease.mine else RETRY

    def _is_blind(self) -> bool:
        if self._sees():
            self._blind_since = None
            return False
        now = self._clock.monotonic()
        if self._blind_since is None:
            self._blind_since = now
        return now - self._blind_since >= BLIND

    def _give_way(self) -> None:
        """Give the Lease away: this replica can do nothing for any node, and another may see the Nodes."""
        if self._lease.mine:
            log.warning(
                "this replica does not see the Nodes: it gives the Lease %s to another that does, "
                "and stands again once it sees them",
                LEASE,
            )
            self.resign()

    def still_leads(self) -> bool:
        """Whether this replica leads, by a read of the Lease now. May raise ``ApiError``."""
        with self._lock:
            return self.leads and self._leases.look(LEASE, fresh=True).mine

    def resign(self) -> None:
        """Give the Lease away, so that the other replica need not wait."""
        with self._lock:
            self._leases.release_all()
            self._lease = Lease(stale=False)
