"""Telling people what happened, where they look: Kubernetes Events, and the cloud's own monitor.

Telling never blocks doing (law 9): everything goes through a bounded queue that a thread of its own empties.
What is about to remove this very node is flushed before it is done, for at most five seconds.
"""

from __future__ import annotations

import logging
import queue
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from recovery.clock import Clock
from recovery.errors import NodeRecoveryError
from recovery.metrics import Metrics
from recovery.monitor import Metric, Monitor
from recovery.wire import moment

log = logging.getLogger(__name__)

FLUSH = 5.0
QUEUE = 1000
BATCH = 100
COMPONENT = "node-recovery"


class Events(Protocol):
    """What of the cluster telling needs."""

    def create_event(self, body: dict[str, Any]) -> dict[str, Any]: ...
    def patch_event(self, name: str, patch: dict[str, Any]) -> None: ...


@dataclass(frozen=True)
class Notice:
    """An Event on a Node."""

    node: str
    node_uid: str
    reason: str
    sentence: str
    warning: bool
    at: datetime


class Publisher:
    """The queue and what empties it. ``monitor`` is asked for when first needed: SDKs are heavy."""

    def __init__(
        self,
        cluster: Events,
        monitor: Callable[[], Monitor | None],
        metrics: Metrics,
        clock: Clock,
        *,
        cluster_name: str = "default",
        threaded: bool = True,
    ) -> None:
        self._cluster = cluster
        self._monitor = monitor
        self._metrics = metrics
        self._clock = clock
        self._cluster_name = cluster_name
        self._queue: queue.Queue[Notice | Metric] = queue.Queue(QUEUE)
        self._posted: dict[tuple[str, str, str], tuple[str, int]] = {}
        self._said: str = ""
        self._busy = threading.Lock()
        if threaded:
            threading.Thread(target=self._run, name="publish", daemon=True).start()
        self._threaded = threaded

    # ------------------------------------------------------------ taking

    def event(self, notice: Notice) -> None:
        self._put(notice)

    def fault(self, reason: str, at: datetime) -> None:
        """A fault that lasts: a metric named after its reason, value 1, as Neuron users' alarms expect."""
        self._put(Metric(reason, 1.0, at, {}))

    def outcome(self, provider: str, action: str, outcome: str, at: datetime) -> None:
        """What became of an action, to Prometheus and to the cloud's monitor."""
        self._metrics.actions.labels(action or "none", outcome).inc()
        dimensions = {
            "ClusterName": self._cluster_name,
            "Provider": provider or "none",
            "Action": action or "none",
            "Outcome": outcome,
        }
        self._put(Metric("RecoveryAction", 1.0, at, dimensions))

    def held(self, reason: str, at: datetime) -> None:
        """A recovery that stands still, and why: as a metric, which its caller repeats while it does."""
        self._put(Metric("RecoveryHeld", 1.0, at, {"ClusterName": self._cluster_name, "Reason": reason}))

    def heartbeat(self, watching: bool, at: datetime) -> None:
        """A sign of life: 1 from an agent that watches its node, 0 from one that lives and cannot see.

        Summed over a cluster it is the number of nodes watched. No dimension tells nodes apart: each would be
        a metric to pay for. Faults get no zeros: they would drag down the averages that users alarm on.
        """
        self._put(Metric("Heartbeat", float(watching), at, {"ClusterName": self._cluster_name}))

    def _put(self, item: Notice | Metric) -> None:
        try:
            self._queue.put_nowait(item)
        except queue.Full:
            self._metrics.untold.labels("queue").inc()

    # ------------------------------------------------------------ sending

    def flush(self, seconds: float = FLUSH) -> bool:
        """Wait until all has been tried, at most ``seconds``. True if it has."""
        if not self._threaded:
            self.drain()
            return True
        end = self._clock.monotonic() + seconds
        done = threading.Event()
        threading.Thread(target=self._join, args=(done,), daemon=True).start()
        return done.wait(max(0.0, end - self._clock.monotonic()))

    def _join(self, done: threading.Event) -> None:
        self._queue.join()
        done.set()

    def _run(self) -> None:
        while True:
            first = self._queue.get()
            batch = [first]
            while len(batch) < BATCH and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            try:
                self._send(batch)
            finally:
                for _ in batch:
                    self._queue.task_done()

    def drain(self) -> None:
        """Send everything now, in the caller's thread."""
        batch: list[Notice | Metric] = []
        while not self._queue.empty():
            batch.append(self._queue.get_nowait())
            self._queue.task_done()
        if batch:
            self._send(batch)

    def _send(self, batch: list[Notice | Metric]) -> None:
        for item in batch:
            if isinstance(item, Notice):
                self._try("events", lambda item=item: self._post(item))  # type: ignore[misc]
        metrics = [x for x in batch if isinstance(x, Metric)]
        if metrics:
            self._try("monitor", lambda: self._publish(metrics))

    def _publish(self, metrics: list[Metric]) -> None:
        monitor = self._monitor()
        if monitor is not None:
            monitor.publish(metrics)

    def _try(self, sink: str, send: Callable[[], None]) -> None:
        """A sink that fails is counted, and said once."""
        try:
            send()
        except NodeRecoveryError as error:
            self._metrics.untold.labels(sink).inc()
            if str(error) != self._said:
                self._said = str(error)
                log.warning("%s: not told: %s", sink, error)
        except Exception:
            self._metrics.untold.labels(sink).inc()
            log.exception("%s: not told, and that is a bug", sink)

    def _post(self, n: Notice) -> None:
        """Post an Event, or count up the one that already says the same."""
        key = (n.node, n.reason, n.sentence)
        if key in self._posted:
            name, count = self._posted[key]
            try:
                self._cluster.patch_event(
                    name, {"count": count + 1, "lastTimestamp": moment(n.at)[:-8] + "Z"}
                )
                self._posted[key] = (name, count + 1)
                return
            except NodeRecoveryError:
                del self._posted[key]  # Events live for an hour: post it anew
        name = f"{n.node}.{int(n.at.timestamp() * 1e6):x}.{zlib.crc32(repr(key).encode()) & 0xFFFF:x}"
        self._cluster.create_event(event_body(name, n))
        self._posted[key] = (name, 1)
        if len(self._posted) > QUEUE:
            self._posted.pop(next(iter(self._posted)))


def event_body(name: str, n: Notice) -> dict[str, Any]:
    """A core/v1 Event on a Node, where ``kubectl describe node`` finds it."""
    at = moment(n.at)[:-8] + "Z"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": n.node, "uid": n.node_uid or n.node},
        "reason": n.reason,
        "message": n.sentence[:1024],
        "type": "Warning" if n.warning else "Normal",
        "source": {"component": COMPONENT, "host": n.node},
        "reportingComponent": COMPONENT,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
