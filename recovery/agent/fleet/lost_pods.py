"""Follows the pods that fail, and says which nodes swallow them: one watch, whatever the fleet.

What failed before this process began to look is not known. Each replica looks for itself, so that one which
takes over has seen what the other has.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Set
from datetime import datetime
from functools import partial
from typing import Protocol

from recovery.agent.backoff import Backoff
from recovery.agent.fleet.nodes import Changed, Failed, Nodes, life_of, round_of
from recovery.clock import Clock
from recovery.kube.transport import Streams
from recovery.kube.watch import watch_failed_pods
from recovery.model import FailedPod, NodeView
from recovery.signals.black_hole import RUNS, Lost, Swallows, lost, recent, stated, suspected

log = logging.getLogger(__name__)

FIRST_PAUSE, WORST_PAUSE = 1.0, 60.0
"""Seconds until pods are watched again after an error; each further one doubles them."""
MOST = 100
"""Lost pods that are remembered of one node."""
ASKED_AGAIN = 60.0
"""Seconds until it is asked again whether the controllers of a node's lost pods run elsewhere."""


class Pods(Protocol):
    def failed_pods_version(self) -> str: ...
    def running_elsewhere(
        self, namespace: str, owners: Set[str], but: str, since: datetime
    ) -> frozenset[str]: ...


class PodWatch:
    """One thread calls ``round``; any may ask what is known of a node."""

    def __init__(
        self,
        pods: Pods,
        streams: Streams,
        clock: Clock,
        nodes: Nodes,
        changed: Changed,
        failed: Failed = lambda _: None,
    ) -> None:
        self._failed = failed
        self._pods = pods
        self._streams = streams
        self._clock = clock
        self._nodes = nodes
        self._changed = changed
        self._version = ""
        self._lost: dict[str, tuple[str, dict[str, Lost]]] = {}
        self._asked: dict[str, float] = {}
        self._found: dict[str, tuple[str, Swallows]] = {}
        self._backoff = Backoff(clock, FIRST_PAUSE, WORST_PAUSE, random.Random())  # noqa: S311 - jitter

    # ------------------------------------------------------------ any thread

    def of(self, node: NodeView) -> Swallows | None:
        """What is stated of ``node`` in its boot of now."""
        life, found = self._found.get(node.name, ("", None))
        return found if life == life_of(node) else None

    # ------------------------------------------------------------ one thread

    def round(self, stop: threading.Event) -> float:
        """One watch, until the server ends it. Never raises. Seconds until the next one."""
        once = partial(self._once, stop)
        return round_of("pods that fail", once, self._start_over, self._backoff, self._failed)

    def _start_over(self) -> None:
        self._version = ""

    def _once(self, stop: threading.Event) -> None:
        self._version = self._version or self._pods.failed_pods_version()
        for event in watch_failed_pods(self._streams, self._version):
            self._version = event.version or self._version
            if event.pod is not None:
                self._take(event.pod, self._nodes.now())
            if stop.is_set():
                return

    def _take(self, pod: FailedPod, now: datetime) -> None:
        node = self._nodes.get(pod.node)
        found = lost(pod, node, now, self._nodes.booted_at(pod.node)) if node is not None else None
        if node is None or found is None:
            return
        life, known = self._lost.get(node.name, ("", {}))
        known = recent(known, now) if life == life_of(node) else {}
        if pod.uid in known or len(known) >= MOST:
            return
        known[pod.uid] = found
        self._lost[node.name] = (life_of(node), known)
        self._forget(now)
        others = (pod for name, (_, pods) in self._lost.items() if name != node.name for pod in pods.values())
        if (owners := suspected(known.values(), others)) and self._may_ask(node.name):
            runs = partial(self._pods.running_elsewhere, but=node.name, since=now - RUNS)
            elsewhere = sum(len(runs(namespace, of)) for namespace, of in owners.items())
            self._state(node, stated(self.of(node), known.values(), elsewhere))

    def _state(self, node: NodeView, found: Swallows | None) -> None:
        if found is None or found == self.of(node):
            return
        log.info("%s: %s", node.name, found.said)
        self._found[node.name] = (life_of(node), found)
        self._changed(node.name)

    def _may_ask(self, node: str) -> bool:
        now = self._clock.monotonic()
        if now - self._asked.get(node, float("-inf")) < ASKED_AGAIN:
            return False
        self._asked[node] = now
        return True

    def _forget(self, now: datetime) -> None:
        """What is too old, and what is known of Nodes that are gone."""
        for name, (life, known) in list(self._lost.items()):
            if not (left := recent(known, now)):
                del self._lost[name]
            elif len(left) < len(known):
                self._lost[name] = (life, left)
        for name in [x for x in self._found if self._nodes.get(x) is None]:
            del self._found[name]
        for name in self._asked.keys() - self._lost.keys():
            del self._asked[name]
