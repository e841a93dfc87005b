"""Keeps the report of what is seen while recovery is off, and takes care that nobody waits for it.

An agent tells it in each cycle what it sees. Most of that is known already. What is new is written together,
every few seconds at most: thousands of agents may write to the one object, and none of them in a hurry.
"""

from __future__ import annotations

import logging
import random
import threading

from recovery.agent import bugs
from recovery.agent.backoff import Backoff
from recovery.clock import Clock
from recovery.decide.sightings import News, Report, folded, open_nodes
from recovery.errors import ApiError, Conflict, NodeRecoveryError, NotFound, Undecodable
from recovery.kube.cluster import Cluster
from recovery.model import Policy
from recovery.quick import replace
from recovery.report.metrics import Metrics
from recovery.store.sightings import Reports

log = logging.getLogger(__name__)

AT_MOST_EVERY = 5.0
"""Seconds between two writes of one process."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 600.0
"""Seconds: the pause after a first failure, and after many. A report that is late harms nobody."""
ADVICE: dict[type[NodeRecoveryError], str] = {
    NotFound: "; its CRD is missing: kubectl apply -k deploy/crds",
    Undecodable: "; it is not touched. kubectl delete recoveryreport fleet begins a new one",
}


class Tally:
    """What one process adds to the report. Any thread may ``tell``; one calls ``flush``. ``on``:
    ENABLE_RECOVERY. With it the report is read once, and what was open in it about our nodes is ended."""

    def __init__(
        self, cluster: Cluster, clock: Clock, policy: Policy, on: bool, me: str, metrics: Metrics
    ) -> None:
        self._reports = Reports(cluster)
        self._metrics = metrics
        self._time = cluster.time
        self._keep = policy.limits.records.keep
        self._clock = clock
        self._on = on
        self._backoff = Backoff(clock, FIRST_PAUSE, LONGEST_PAUSE, random.Random(me))  # noqa: S311 - jitter
        self._known: Report | None = None
        self._news: dict[str, News] = {}
        self._lock = threading.Lock()
        self._due = 0.0
        self._said = ""

    def tell(self, news: News) -> None:
        """What is known of a node now. Costs no request."""
        with self._lock:
            known, before = self._known, self._news.get(news.node)
            if before is not None and not news.looked:
                news = replace(news, machine=before.machine, boot=before.boot, gone=before.gone)
            if known is not None and folded(known, news) is known:
                self._news.pop(news.node, None)
            else:
                self._news[news.node] = news

    def flush(self) -> frozenset[str]:
        """Write what is new, if it is time. Never raises. The nodes of which the report, just read for the
        first time, says that something is open: whoever looks after them has to look."""
        now = self._clock.monotonic()
        if now < max(self._due, self._backoff.until) or (self._known is not None and not self._news):
            return frozenset()
        with self._lock:
            news, self._news = self._news, {}
        try:
            report = self._written(list(news.values()))
        except NodeRecoveryError as error:
            self._failed(error)
        except Exception:
            self._backoff.failed()
            bugs.survived(self._metrics, "the RecoveryReport", "trying again, ever more slowly")
        else:
            return self._known_now(report)
        with self._lock:
            self._news = news | self._news
        return frozenset()

    def _known_now(self, report: Report) -> frozenset[str]:
        """``report`` is what there is. Where nothing was known yet: the nodes with something open in it."""
        first = self._known is None
        self._backoff.answered()
        self._said, self._due = "", self._clock.monotonic() + AT_MOST_EVERY
        with self._lock:
            self._known = report
        return open_nodes(report.sightings) if first else frozenset()

    def _written(self, news: list[News]) -> Report:
        try:
            was = self._reports.read()
        except NotFound:
            if self._on:  # nobody has ever looked with recovery off
                return Report(since=self._time.now())
            was = self._reports.create(self._time.now())
        report = was
        for each in news:
            report = folded(report, each)
        if report is not was:
            self._reports.write(report, self._time.now(), self._keep)
        return report  # what there was no room for is told, too: it is tried again when it is seen again

    def _failed(self, error: NodeRecoveryError) -> None:
        """Say it once, and try again later, ever more seldom."""
        self._backoff.failed(error.retry_after if isinstance(error, ApiError) else None)
        advice = next((words for kind, words in ADVICE.items() if isinstance(error, kind)), "")
        if not self._on and not isinstance(error, Conflict) and self._said != str(error):
            self._said = str(error)
            log.warning("the RecoveryReport cannot be written: %s%s", error, advice)
