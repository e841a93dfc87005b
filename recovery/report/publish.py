"""Publishes what happened, as Kubernetes Events, Prometheus metrics, metrics of the clouds' own monitors, and
messages to a webhook.

Publishing never blocks a recovery (law 9): everything goes through bounded queues, each with a thread of its
own. Before a step that removes this very node, the queues are flushed, for at most five seconds.
"""

from __future__ import annotations

import functools
import logging
import queue
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from recovery.decide.history import confirmed_at
from recovery.errors import NodeRecoveryError
from recovery.model import Record
from recovery.provider.monitor import Metric, Monitor
from recovery.report.metrics import Metrics
from recovery.report.notice import Notice, Teller, event_body, event_name
from recovery.units import moment

log = logging.getLogger(__name__)

FLUSH = 5.0
"""Seconds."""
QUEUE = 1000
"""Items that wait for one sink. What comes when it is full is dropped, and counted."""
MOST_EVENTS = 6000
"""Events that wait, and that are remembered to be counted up. A node that is cordoned has five, and a
thousand may fail at once: the API server takes them more slowly than the nodes are cordoned."""
BATCH = 100
PATIENCE = 30.0
"""Seconds for which Events wait, all in all, until the queue is empty once. A node that has failed is
cordoned first and told of afterwards: of a crowd, Events are a third of all requests."""
GIVES_WAY = 0.02
"""Seconds until it looks again whether Events may be sent."""
MOST_WAITING = 500
"""Events that wait so. They take some three seconds, so that a flush has time to send them (law 9)."""

SAID_AGAIN = 3600.0
"""Seconds after which the same error of a sink is logged again."""

T = TypeVar("T")


class Events(Protocol):
    """The part of the cluster that publishing needs."""

    def create_event(self, body: dict[str, Any]) -> dict[str, Any]: ...
    def patch_event(self, name: str, patch: dict[str, Any]) -> None: ...


Monitors = Monitor | Sequence[Monitor] | None
"""Any number of monitors. Give the same objects each time: each has a thread of its own."""


class Publisher:
    """One queue and thread for Events, one for metrics, and one for each monitor and teller.

    None waits for another: a monitor that hangs delays neither Events nor others. ``monitors`` is
    called when first needed, because SDKs are slow to import. ``tellers`` are told of Events, beside the
    API server. While this process is ``busy`` with nodes, Events give way to it (``PATIENCE``,
    ``MOST_WAITING``), but not during a flush.

    If a monitor has an attribute ``dropped``, it counts the metrics that it did not send because its service
    would refuse them. That is not an error, and counts as undelivered.
    """

    def __init__(
        self,
        cluster: Events,
        monitors: Callable[[], Monitors],
        metrics: Metrics,
        *,
        cluster_name: str = "default",
        threaded: bool = True,
        tellers: Sequence[Teller] = (),
        busy: Callable[[], bool] = lambda: False,
        pause: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monotonic = monotonic
        self._busy = busy
        self._pause = pause
        self._patience = PATIENCE
        self._cluster = cluster
        self._monitors = monitors
        self._metrics = metrics
        self._cluster_name = cluster_name
        self._threaded = threaded
        self._posted: dict[tuple[str, str, str], tuple[str, int]] = {}
        self._last_error: dict[str, tuple[str, float]] = {}
        self._pending = _Pending()
        self._events = _Queue[Notice]("events", self._post_all, self._pending, threaded, MOST_EVENTS)
        self._intake = _Queue[Metric]("metrics", self._fan_out_all, self._pending, threaded)
        self._monitor_queues: list[tuple[Monitor, _Queue[Metric]]] = []
        self._tellers = [
            (each, _Queue[Notice](each.name, functools.partial(self._tell, each), self._pending, threaded))
            for each in tellers
        ]

    # ------------------------------------------------------------ into the queues

    def event(self, notice: Notice) -> None:
        if not self._events.put(notice):
            self._metrics.undelivered.labels("queue").inc()
        for teller, queued in self._tellers:
            if not notice.echo and teller.wants(notice) and not queued.put(notice):
                self._metrics.undelivered.labels(teller.name).inc()

    def fault(self, reason: str, at: datetime) -> None:
        """A fault that is there now: a metric named by its reason, value 1, as alarms for Neuron expect."""
        self._put(Metric(reason, 1.0, at, {}))

    def outcome(self, provider: str, action: str, outcome: str, at: datetime) -> None:
        """The outcome of an action, for Prometheus and the cloud's monitor."""
        self._metrics.actions.labels(action or "none", outcome).inc()
        dimensions = {
            "ClusterName": self._cluster_name,
            "Provider": provider or "none",
            "Action": action or "none",
            "Outcome": outcome,
        }
        self._put(Metric("RecoveryAction", 1.0, at, dimensions))

    def closed(self, before: Record, after: Record) -> None:
        """``after`` was swapped in for ``before`` by us. If that ended a recovery, it is counted, here alone.

        A write whose answer was lost is not counted: nobody knows whose it was.
        """
        if (began := confirmed_at(before)) is None or after.phase.open:
            return
        step = before.intent.action if before.intent else before.step.do.value if before.step else "none"
        seconds = (after.phase_since - began).total_seconds()
        self._metrics.duration.labels(step, after.phase.value).observe(max(0.0, seconds))

    def held(self, reason: str, at: datetime) -> None:
        """A recovery that is held, and why: a metric that the caller repeats while it is."""
        self._put(Metric("RecoveryHeld", 1.0, at, {"ClusterName": self._cluster_name, "Reason": reason}))

    def heartbeat(self, watching: bool, at: datetime) -> None:
        """1 from an agent that reads its node's signals, 0 from one that runs and cannot read them.

        The sum over a cluster is the number of nodes watched. There is no dimension for the node: each would
        be a metric to pay for. Faults get no zeros: they would lower the averages that users alarm on.
        """
        self._put(Metric("Heartbeat", float(watching), at, {"ClusterName": self._cluster_name}))

    def _put(self, metric: Metric) -> None:
        if not self._intake.put(metric):
            self._metrics.undelivered.labels("queue").inc()

    # ------------------------------------------------------------ out of the queues

    def flush(self, seconds: float = FLUSH) -> bool:
        """Wait until everything was tried once, at most ``seconds``. Whether it was."""
        if not self._threaded:
            self.drain()
        return self._pending.wait(seconds)

    def drain(self) -> None:
        """Send everything now, in the caller's thread."""
        self._events.drain()
        self._intake.drain()
        for _, queued in self._monitor_queues:
            queued.drain()
        for _, told in self._tellers:
            told.drain()

    def _fan_out_all(self, metrics: list[Metric]) -> None:
        self._try("monitor", functools.partial(self._fan_out, metrics), items=len(metrics))

    def _fan_out(self, metrics: list[Metric]) -> None:
        """Put the metrics into each monitor's own queue."""
        for monitor in _each(self._monitors()):
            queued = self._queue_of(monitor)
            if lost := sum(not queued.put(metric) for metric in metrics):
                self._metrics.undelivered.labels(monitor.name).inc(lost)

    def _queue_of(self, monitor: Monitor) -> _Queue[Metric]:
        for known, queued in self._monitor_queues:
            if known is monitor:
                return queued
        send = functools.partial(self._publish, monitor)
        self._monitor_queues.append((monitor, _Queue(monitor.name, send, self._pending, self._threaded)))
        return self._monitor_queues[-1][1]

    def _publish(self, monitor: Monitor, metrics: list[Metric]) -> None:
        """What fails counts as a whole, with what was dropped of it: nobody knows how much of it came."""
        dropped = _dropped(monitor)
        sent = self._try(monitor.name, lambda: monitor.publish(metrics), items=len(metrics))
        if sent and (more := _dropped(monitor) - dropped):
            self._metrics.undelivered.labels(monitor.name).inc(more)

    def _post_all(self, notices: list[Notice]) -> None:
        for notice in notices:
            self._give_way()
            self._try("events", functools.partial(self._post, notice), f"{notice.node}: ")
        if not self._events.waiting:
            self._patience = PATIENCE

    def _give_way(self) -> None:
        while self._busy() and self._may_wait():
            self._patience -= GIVES_WAY
            self._pause(GIVES_WAY)

    def _may_wait(self) -> bool:
        return self._patience > 0 and self._events.waiting < MOST_WAITING and not self._pending.hurries

    def _tell(self, teller: Teller, notices: list[Notice]) -> None:
        for first in range(0, len(notices), teller.most):
            message = notices[first : first + teller.most]
            self._try(teller.name, functools.partial(teller.tell, message), items=len(message))

    def _try(self, sink: str, send: Callable[[], None], about: str = "", items: int = 1) -> bool:
        """Whether it was sent. Count a failure of ``sink``, and log its error if it is news."""
        try:
            send()
            return True
        except NodeRecoveryError as error:
            self._metrics.undelivered.labels(sink).inc(items)
            if self._is_news(sink, str(error)):
                log.warning("%s%s: not delivered: %s", about, sink, error)
        except Exception:
            self._metrics.undelivered.labels(sink).inc(items)
            log.exception("%s%s: not delivered, because of a bug", about, sink)
        return False

    def _is_news(self, sink: str, error: str) -> bool:
        """Whether the log does not say so already.

        People read the log when an alert says that something is not delivered. So an error is logged again
        when it comes back, and once an hour while it lasts.
        """
        last, at = self._last_error.get(sink, ("", 0.0))
        now = self._monotonic()
        if error == last and now - at < SAID_AGAIN:
            return False
        self._last_error[sink] = error, now
        return True

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
        unique = f"{int(n.at.timestamp() * 1e6):x}.{zlib.crc32(repr(key).encode()) & 0xFFFF:x}"
        name = event_name(n.node, unique)
        self._cluster.create_event(event_body(name, n))
        self._posted[key] = (name, 1)
        if len(self._posted) > MOST_EVENTS:
            self._posted.pop(next(iter(self._posted)))


def _each(monitors: Monitors) -> Sequence[Monitor]:
    if monitors is None:
        return ()
    return monitors if isinstance(monitors, Sequence) else (monitors,)


def _dropped(monitor: Monitor) -> int:
    return int(getattr(monitor, "dropped", 0))


class _Pending:
    """How many items no queue has tried to send yet."""

    def __init__(self) -> None:
        self._count = 0
        self._waits = 0
        self._changed = threading.Condition()

    @property
    def hurries(self) -> bool:
        """Whether somebody waits until there is none left."""
        return self._waits > 0

    def add(self, count: int) -> None:
        with self._changed:
            self._count += count
            if self._count == 0:
                self._changed.notify_all()

    def wait(self, seconds: float) -> bool:
        """Until there is none left, at most ``seconds``. True if there is none."""
        with self._changed:
            self._waits += 1
            try:
                return self._changed.wait_for(lambda: self._count == 0, seconds)
            finally:
                self._waits -= 1


class _Queue(Generic[T]):
    """A bounded queue that is emptied in batches, by a thread of its own or by ``drain``."""

    def __init__(
        self,
        name: str,
        send: Callable[[list[T]], None],
        pending: _Pending,
        threaded: bool,
        most: int = QUEUE,
    ) -> None:
        self._send = send
        self._pending = pending
        self._queue: queue.Queue[T] = queue.Queue(most)
        if threaded:
            threading.Thread(target=self._run, name=f"publish-{name}", daemon=True).start()

    @property
    def waiting(self) -> int:
        """How many nobody has begun to send yet."""
        return self._queue.qsize()

    def put(self, item: T) -> bool:
        """False if there is no room."""
        self._pending.add(1)
        try:
            self._queue.put_nowait(item)
        except queue.Full:
            self._pending.add(-1)
            return False
        return True

    def drain(self) -> None:
        """Send everything in it now, in the caller's thread."""
        if batch := self._take(self._queue.maxsize):
            self._try(batch)

    def _run(self) -> None:
        while True:
            first = self._queue.get()
            self._try([first, *self._take(BATCH - 1)])

    def _take(self, most: int) -> list[T]:
        return [self._queue.get_nowait() for _ in range(min(most, self._queue.qsize()))]

    def _try(self, batch: list[T]) -> None:
        try:
            self._send(batch)
        finally:
            self._pending.add(-len(batch))
