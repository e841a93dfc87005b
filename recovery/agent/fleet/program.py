"""``RECOVERY_MODE=fleet``: the threads of one replica of the controller, until it is stopped."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from recovery.agent import bugs
from recovery.agent.fleet.replica import Around, Replica
from recovery.agent.servers import loki_of, prometheus_of
from recovery.agent.tellers import tellers_of
from recovery.clock import Clock
from recovery.config.policy_file import BUILT_IN, check_for
from recovery.config.policy_reach import of_nodes
from recovery.config.settings import Settings
from recovery.errors import SettingsError
from recovery.kube.cluster import Cluster
from recovery.kube.provider_objects import ClusterObjects
from recovery.kube.transport import KubernetesTransport
from recovery.model import Step
from recovery.provider.monitor import Monitor
from recovery.provider.protocol import ProviderContext, abilities_of, load_monitor, load_provider
from recovery.provider.registry import AUTO, Providers
from recovery.report.asked_by import AskedBy
from recovery.report.metrics import Metrics
from recovery.report.own_view import explanation
from recovery.report.publish import Publisher
from recovery.store.lease import InstanceLock, identified

log = logging.getLogger(__name__)

WORKERS = 4
"""Threads that look after nodes: a cloud that answers slowly keeps those of one share waiting, not all."""
STUCK = 120.0
"""The liveness probe fails when a thread has come round no more for so many seconds."""
AFTER_A_BUG = 5.0
"""Seconds until a thread goes on after an error that nobody expected."""
LONGEST = 1.0
"""Seconds that a thread waits at most before it looks again whether it is to stop."""


class FleetProgram:
    """One running replica."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], clock: Clock) -> None:
        self._settings = settings
        self._environ = environ
        self._clock = clock
        self._stop = threading.Event()
        self._instance_lock = InstanceLock()
        self._beats: dict[str, float] = {}
        self._policy_looked_at = False
        self._all_providers: list[Providers] = []
        self._monitors: dict[str, Monitor | None] = {}
        self.metrics = Metrics()
        self.metrics.running(settings.enable_recovery)
        transport = KubernetesTransport(clock)
        transport.stopping = self._stop.is_set
        namespace = settings.pod_namespace or transport.namespace
        self._told_by = Cluster(transport, clock, namespace)  # by the publisher's threads
        self.asked_by = AskedBy(Cluster(transport, clock, namespace).whose, namespace, "")
        identity = identified("fleet", self._instance_lock, f"fleet/{socket.gethostname()}")
        publisher = Publisher(
            self._told_by,
            self._monitors_in_use,
            self.metrics,
            cluster_name=settings.cluster_name,
            tellers=tellers_of(settings),
            busy=lambda: self.replica.busy,
        )
        self._publisher = publisher
        self.replica = Replica(
            Around(
                clock=clock,
                transport=transport,
                streams=transport,
                namespace=namespace,
                agents=settings.agents_namespace or namespace,
                policy=settings.policy,
                on=settings.enable_recovery,
                providers=self._providers,
                publisher=publisher,
                metrics=self.metrics,
                identity=identity,
                selector=settings.fleet_selector,
                lease=settings.lease_duration,
                beat=self._alive,
                prometheus=prometheus_of(settings),
                loki=loki_of(settings),
            ),
            WORKERS,
        )

    def _context(self, cluster: Cluster) -> ProviderContext:
        return ProviderContext(self._clock, self._environ, ClusterObjects(cluster))

    def _providers(self, cluster: Cluster) -> Providers:
        context = self._context(cluster)
        made = Providers(self._settings.provider, lambda name: load_provider(name, context))
        self._all_providers.append(made)
        return made

    def _monitors_in_use(self) -> list[Monitor]:
        """The monitor of the provider in use; imported when there is something to send."""
        name = next((found for p in self._all_providers if (found := p.in_use())), "")
        if name and name not in self._monitors:
            self._monitors[name] = load_monitor(name, self._context(self._told_by))
        monitor = self._monitors.get(name)
        return [] if monitor is None else [monitor]

    # ------------------------------------------------------------ threads

    def check(self) -> None:
        """Whether the provider that PROVIDER names can do what the policy says. Raises ``SettingsError``.

        With ``auto`` each Node has its own, so that is said when all Nodes are known (``_beyond_all``).
        """
        s = self._settings
        if s.provider == AUTO or s.policy_file.path == BUILT_IN:
            return
        provider = self._providers(self._told_by).get(s.provider)
        able = abilities_of(provider, None)
        if mistakes := check_for(s.policy_file, able.actions, provider.name, s.mode.value, able.note):
            raise SettingsError(mistakes)

    def run(self) -> None:
        """Until stopped."""
        self.check()
        follow = threading.Thread(target=self.replica.nodes.follow, args=(self._stop,), name="nodes")
        sweep = threading.Thread(target=self._sweep, name="sweep")
        workers = [threading.Thread(target=self._work, args=(i,), name=f"worker {i}") for i in range(WORKERS)]
        # Not among those that the liveness probe asks for: a slow server is no reason to start anew.
        rounds = {
            "prometheus": self.replica.poll,
            "loki": self.replica.read_logs,
            "pods": self._watch_pods,
            "records": self._watch_records,
            "gate": self._watch_gate,
            "roll": self.replica.call_the_roll,
            "leases": self.replica.read_leases,
            "traits": self.replica.count_traits,
        }
        polls = [threading.Thread(target=self._poll, args=x, name=x[0]) for x in rounds.items()]
        for thread in (follow, sweep, *polls, *workers):
            thread.daemon = True  # a call to the cloud may take seconds, and a watch a minute
            thread.start()
        try:
            while not self._stop.is_set():
                left = self.replica.leader.campaign()
                self._alive("election")
                self._stop.wait(left)
        finally:
            for thread in (sweep, *workers):
                thread.join(2 * LONGEST)
            self.replica.leader.resign()
            self._publisher.flush(2.0)
            self._instance_lock.close()

    def _work(self, worker: int) -> None:
        woken = self.replica.controllers[worker].woken
        while not self._stop.is_set():
            woken.wait(min(self._round(f"worker {worker}", partial(self.replica.work, worker)), LONGEST))

    def _sweep(self) -> None:
        while not self._stop.is_set():
            self._look_at_policy()
            left = self._round("sweep", self.replica.sweep)
            if self.replica.nodes.in_sync and not self.replica.refused:  # else nothing was looked at
                self.metrics.last_cycle.set(self._clock.now().timestamp())
            self._stop.wait(min(left, LONGEST))

    def _look_at_policy(self) -> None:
        """Say once, when all Nodes are known, what in the policy limits nothing."""
        if self._policy_looked_at or not self.replica.nodes.in_sync:
            return
        self._policy_looked_at = True
        whom = "no node of FLEET_SELECTOR" if self._settings.fleet_selector else "no node"
        labels = (node.labels for node in self.replica.nodes.all())
        for told in (*of_nodes(self._settings.policy_file, labels, whom, "fleet"), *self._beyond_all()):
            log.warning("%s", told)

    def _beyond_all(self) -> list[str]:
        """The steps of the policy that no provider of any Node can do."""
        file = self._settings.policy_file
        if file.path == BUILT_IN:
            return []
        providers = self._providers(self._told_by)
        able = {f for node in self.replica.nodes.all() if (f := providers.identify(node).facts) is not None}
        actions = frozenset[Step]().union(*(facts.actions for facts in able))
        names = " or ".join(sorted({facts.name for facts in able}))
        notes = "; ".join(sorted({facts.note for facts in able} - {""}))
        return check_for(file, actions, names, self._settings.mode.value, notes) if able else []

    def _watch_pods(self) -> float:
        return self.replica.watch_pods(self._stop)

    def _watch_records(self) -> float:
        return self.replica.watch_records(self._stop)

    def _watch_gate(self) -> float:
        return self.replica.watch_gate(self._stop)

    def _poll(self, thread: str, one: Callable[[], float]) -> None:
        while not self._stop.is_set():
            self._stop.wait(self._round(thread, one, beats=False))

    def _round(self, thread: str, one: Callable[[], float], *, beats: bool = True) -> float:
        """One round of a thread, which no bug ends. Seconds until the next."""
        left = AFTER_A_BUG
        try:
            left = one()
        except Exception:
            bugs.survived(self.metrics, thread, "going on")
        if beats:
            self._alive(thread)
        return left

    def _alive(self, thread: str) -> None:
        self._beats[thread] = self._clock.monotonic()

    def stop(self) -> None:
        self._stop.set()

    # ------------------------------------------------------------ health

    def healthy(self) -> str | None:
        """Why the liveness probe should fail; None if it should not."""
        now = self._clock.monotonic()
        for thread, at in sorted(self._beats.items()):
            if now - at > STUCK:
                return f"the thread {thread} has come round no more for {now - at:.0f} s"
        return None

    def ready(self) -> str | None:
        """Why the readiness probe should fail; None if it should not. Who does not lead is ready, too."""
        return None if self.replica.nodes.in_sync else f"not yet: {self.replica.nodes.silent()}"

    def explain(self, node: str = "") -> dict[str, Any] | str:
        """The answer of ``/api/v1/explain`` about ``node``: of the replica that leads."""
        view = self.replica.view(node)
        return view if isinstance(view, str) else explanation(view, node, self._settings.about())
