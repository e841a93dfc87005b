"""What a new leader reads before any of its workers decides: the records say what the one before it knew."""

from __future__ import annotations

import logging
import queue
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from recovery.agent import bugs
from recovery.agent.backoff import Backoff
from recovery.agent.fleet.leader import Leader
from recovery.agent.fleet.outbreaks import REMEMBERED, Outbreaks
from recovery.clock import Clock
from recovery.errors import ApiError
from recovery.kube.cluster import Cluster
from recovery.kube.paging import folded
from recovery.model import Fault, Record
from recovery.report.metrics import Metrics
from recovery.store.record import Records

log = logging.getLogger(__name__)

FIRST_PAUSE, WORST_PAUSE = 1.0, 30.0
"""Seconds until the records are listed again after an error; each further one doubles them."""
ANOTHER_IS_AT_IT = 0.1
"""Seconds until a thread looks again whether the others are done."""
LONGEST = 5.0
"""Seconds after which a thread comes round in between: one that tells of thousands is not stuck."""

Told = tuple[str, str, tuple[Fault, ...]]
"""A node, its machine, and the faults on its record."""


@dataclass
class _Look:
    """Of one ``term`` of the leader: the records whose faults are yet to be told."""

    term: int
    untold: queue.SimpleQueue[Told] = field(default_factory=queue.SimpleQueue)
    left: int = 0


class LookBack:
    """Done once for each time that this replica begins to lead. Any thread asks for what is ``left`` of it,
    and does a part of that.

    ``outbreaks`` is told the faults on all open records, and on those that were closed lately: a fault of
    many machines is held for as long as its cases are known (law 10), and those were in the memory of the
    leader before. While the records cannot be listed, or not soon, all that would start is held, and the rest
    goes on. Of a Node that is gone it is not known what its machine shared with others.

    ``summon`` is told the nodes whose closed records remember a fault as if it were there still, though their
    Nodes may say nothing bad: an agent looks at each for a while, and sees that it is gone.
    """

    def __init__(
        self,
        cluster: Cluster,
        leader: Leader,
        outbreaks: Outbreaks,
        awaits_word: Callable[[Record], bool],
        summon: Callable[[str], None],
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._cluster = cluster
        self._records = Records(cluster)
        self._leader = leader
        self._outbreaks = outbreaks
        self._awaits_word = awaits_word
        self._summon = summon
        self._metrics = metrics
        self._listing = threading.Lock()
        self._counting = threading.Lock()
        self._clock = clock
        self._backoff = Backoff(clock, FIRST_PAUSE, WORST_PAUSE, random.Random())  # noqa: S311 - jitter
        self._look: _Look | None = None
        self._began = clock.monotonic()
        self.refused = ""
        """Why the records could not be listed; "" where they could."""

    def left(self) -> float:
        """Seconds until it is to be asked again; 0.0 where nobody has to wait for it."""
        look = self._look
        if look is None or look.term != self._leader.term:
            look = self._listed()
        if look is None:
            held = bool(self._outbreaks.unknown)  # whatever would start
            late = self._clock.monotonic() - self._began > LONGEST
            return 0.0 if held and (self.refused or late) else ANOTHER_IS_AT_IT
        until = self._clock.monotonic() + LONGEST
        while look.left and self._leader.leads and self._clock.monotonic() < until:
            try:
                told = look.untold.get_nowait()
            except queue.Empty:
                break
            try:
                self._outbreaks.tell(*told)
            except Exception:  # whatever this record or Node has on it: the others are to be told
                bugs.survived(self._metrics, told[0], "what its machine shares with others is not known yet")
            finally:
                with self._counting:
                    look.left -= 1
        if look.left:
            return ANOTHER_IS_AT_IT
        if look is self._look:
            self._outbreaks.unknown = ""
        return 0.0

    def _listed(self) -> _Look | None:
        """All records, listed by this thread; None where another is at it, or they cannot be listed."""
        if self._backoff.left or not self._listing.acquire(blocking=False):
            return None
        try:
            if self._look is not None and self._look.term == self._leader.term:
                return self._look  # another thread has just done it
            self._look, look = None, _Look(self._leader.term)
            self._began = self._clock.monotonic()
            self._outbreaks.unknown = "the records are still being read"
            cases, awaiting = folded(self._read)
        except ApiError as error:
            log.warning("the records, which are read before anything is started: %s", error)
            self._failed(str(error), error.retry_after)
            return None
        except Exception:
            bugs.survived(self._metrics, "the records", "nothing is started, and they are listed again")
            self._failed("a bug in this program, see the log")
            return None
        finally:
            self._listing.release()
        self._backoff.answered()
        self.refused = ""
        for told in cases:
            look.untold.put(told)
        look.left = len(cases)
        self._look = look
        for node in awaiting:
            self._summon(node)
        return look

    def _failed(self, why: str, retry_after: float | None = None) -> None:
        self.refused = self._outbreaks.unknown = f"the records could not be listed: {why}"
        self._backoff.failed(retry_after)

    def _read(self) -> tuple[list[Told], list[str]]:
        cases: list[Told] = []
        awaiting: list[str] = []
        lately = self._cluster.time.now() - timedelta(seconds=REMEMBERED)
        for r, _ in self._records.with_labels():
            if r.faults and (r.phase.open or r.phase_since >= lately):
                cases.append((r.node, r.machine.id, r.faults))
            try:
                if self._awaits_word(r):
                    awaiting.append(r.node)
            except Exception:  # whatever this record has on it: the others are to be told
                bugs.survived(self._metrics, r.node, "its agent looks at it when something is said of it")
        return cases, awaiting
