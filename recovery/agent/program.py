"""``node-recovery run``: puts the parts together, and runs the main loop until it is stopped."""

from __future__ import annotations

import logging
import random
import signal
import socket
import threading
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recovery.agent import bugs
from recovery.agent.alerts import ask_when_needed
from recovery.agent.backoff import Backoff
from recovery.agent.boot_id import KernelBoot
from recovery.agent.cycle import BUGS_TO_DIE, Agent
from recovery.agent.execute import Executor
from recovery.agent.npd_token import DetectorToken
from recovery.agent.observe import Observer
from recovery.agent.peers import Sweeper
from recovery.agent.servers import prometheus_of
from recovery.agent.sources import SourcesOfNode
from recovery.agent.tally import Tally
from recovery.agent.tellers import tellers_of
from recovery.agent.world import World
from recovery.clock import Clock, SystemClock
from recovery.config.environment import Mode
from recovery.config.policy_file import BUILT_IN, check_for, exporter
from recovery.config.policy_reach import of_own_node
from recovery.config.settings import Settings, load_settings
from recovery.errors import ApiError, SettingsError
from recovery.kube.cluster import Cluster
from recovery.kube.provider_objects import ClusterObjects
from recovery.kube.transport import KubernetesTransport
from recovery.model import NodeView, PodView, Reading
from recovery.provider.monitor import Monitor
from recovery.provider.protocol import ProviderContext, load_monitor, load_provider
from recovery.provider.registry import AUTO, Providers
from recovery.report import http as web
from recovery.report.asked_by import AskedBy
from recovery.report.heartbeat import Heartbeat
from recovery.report.metrics import Metrics
from recovery.report.own_view import explanation
from recovery.report.publish import Publisher
from recovery.signals import dcgm_witness, neuron_sysfs
from recovery.signals.page_url import check_url
from recovery.signals.scrape import PageReader
from recovery.store.gate import Gates
from recovery.store.lease import InstanceLock, Leases, identified
from recovery.store.record import Records
from recovery.units import format_duration
from recovery.visible import visible

if TYPE_CHECKING:
    from recovery.agent.fleet.program import FleetProgram

log = logging.getLogger("recovery")

STUCK = timedelta(seconds=90)
"""The liveness probe fails when the main loop has finished no round for this long plus its own pause."""


class Program:
    """One running agent: its parts, and the loop around them."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._stop = threading.Event()
        self._instance_lock = InstanceLock()
        self._monitors: dict[str, Monitor | None] = {}
        self.metrics = Metrics()
        self.metrics.running(settings.enable_recovery)
        transport = KubernetesTransport(clock)
        transport.stopping = self._stop.is_set
        self.cluster = Cluster(transport, clock, settings.agents_namespace or transport.namespace)
        asked = Cluster(
            transport, clock, self.cluster.namespace
        )  # by the server's threads; it has its own time
        self.asked_by = AskedBy(asked.whose, asked.namespace, settings.node_name)
        self._context = ProviderContext(clock, environ, ClusterObjects(self.cluster))
        self._providers = Providers(settings.provider, lambda name: load_provider(name, self._context))
        me = settings.node_name or socket.gethostname()
        identity = identified(me, self._instance_lock, f"{settings.mode.value}/{me}")
        self._leases = Leases(self.cluster, clock, identity, settings.lease_duration)
        records = Records(self.cluster)
        self.world = World(
            clock=clock,
            cluster=self.cluster,
            records=records,
            gates=Gates(self.cluster, records.readable),
            leases=self._leases,
            providers=self._providers,
            policy=settings.policy,
            on=settings.enable_recovery,
            survived=partial(bugs.survived, self.metrics),
            kernel_boot=KernelBoot(settings.boot_id_file),
            witnesses={
                neuron_sysfs.NAME: neuron_sysfs.NeuronSysfs(),
                dcgm_witness.NAME: dcgm_witness.DcgmWitness(
                    lambda: self.cluster.list_pods(settings.node_name), exporter(settings.policy)
                ),
            },
        )
        if (server := prometheus_of(settings)) is not None:
            ask_when_needed(self.world, server)
        self._tally = Tally(self.cluster, clock, settings.policy, settings.enable_recovery, me, self.metrics)
        observer = Observer(self.world)
        self.publisher = Publisher(
            self.cluster,
            self._monitors_in_use,
            self.metrics,
            cluster_name=settings.cluster_name,
            tellers=tellers_of(settings),
        )
        executor = Executor(self.world, observer, self.publisher)
        self._npd_token: DetectorToken | None = None
        if settings.mode is Mode.SIDECAR and settings.npd_account:
            self._npd_token = DetectorToken(
                self.cluster,
                clock,
                settings.npd_account,
                settings.node_name,
                Path(settings.npd_token_dir),
                transport.ca_file,
                self.metrics.errors.labels("npd_token").inc,
            )
        self.agent: Agent | None = None
        self._reader: PageReader | None = None
        if settings.mode is Mode.SIDECAR:
            sources = self._sources()
            self.agent = Agent(
                self.world,
                observer,
                executor,
                self.publisher,
                self.metrics,
                sources.made(),
                settings.node_name,
                heartbeat=self._heartbeat(),
                saw=sources.look.saw,
                own=sources.look.last,
                tell=self._tally.tell,
            )
        self.sweeper = Sweeper(
            self.world,
            observer,
            executor,
            self.publisher,
            self.metrics,
            settings.node_name,
            idle=settings.lease_duration.total_seconds(),
            readings=self._own_readings,
            complaint=self.agent.complaint if self.agent is not None else str,
            beat=self._alive,
        )
        self._beat = clock.monotonic()

    # ------------------------------------------------------------ parts

    def _sources(self) -> SourcesOfNode:
        s = self._settings
        self._reader = PageReader(s.npd_metrics_url) if s.policy.source("npd") else None
        page = self._reader.read if self._reader is not None else bytes
        population = lambda: self.sweeper.population  # noqa: E731 - the sweeper is made after the agent
        return SourcesOfNode(self.world, s.node_name, page, s.poll_interval, population)

    def _own_readings(self) -> tuple[Reading, ...]:
        return self.agent.readings_to_tell if self.agent is not None else ()

    def _heartbeat(self) -> Heartbeat | None:
        interval = self._settings.heartbeat_interval
        return Heartbeat(self.publisher, self._clock, self.cluster.time.now, interval) if interval else None

    def _monitors_in_use(self) -> list[Monitor]:
        """The monitor of the provider in use; imported when there is something to send."""
        name = self._providers.in_use()
        if name and name not in self._monitors:
            self._monitors[name] = load_monitor(name, self._context)
        found = self._monitors.get(name)
        return [] if found is None else [found]

    # ------------------------------------------------------------ checks at start

    def check(self) -> None:
        """Checks of settings against the Node. Raises ``SettingsError``; waits for the API server."""
        if self._settings.mode is not Mode.SIDECAR:
            return
        node = self._own_node()
        if node is None:
            return
        mistakes = []
        if self._reader is not None:
            self._reader.trust(node.addresses)
            if reason := check_url(self._settings.npd_metrics_url, node.addresses):
                mistakes.append(reason)
        identified = self._providers.identify(node)
        if identified.facts is not None and self._settings.policy_file.path != BUILT_IN:
            p = identified.facts
            mistakes += check_for(
                self._settings.policy_file, p.actions, p.name, self._settings.mode.value, p.note
            )
        if mistakes:
            raise SettingsError(mistakes)
        for told in of_own_node(self._settings.policy_file, node.labels, self._own_pods()):
            log.warning("%s", told)

    def _own_pods(self) -> tuple[PodView, ...]:
        """The pods that a drain would have to evict now; none where they cannot be listed."""
        try:
            return self.cluster.list_pods(self._settings.node_name)
        except ApiError as error:
            log.warning("whether a drain is too short for the pods here is not known: %s", error)
            return ()

    def _alive(self) -> None:
        self._beat = self._clock.monotonic()

    def _own_node(self) -> NodeView | None:
        said = False
        backoff = Backoff(self._clock, 2.0, 30.0, random.Random(self._settings.node_name))  # noqa: S311 - jitter
        while not self._stop.is_set():
            try:
                ask = partial(self.cluster.get_node, self._settings.node_name)
                return self.cluster.time.beyond_doubt(ask)  # the page is read by this time next
            except ApiError as error:
                if not said:
                    log.warning("waiting for Node %s: %s", self._settings.node_name, error)
                    said = True
                self._alive()
                self._stop.wait(backoff.failed(error.retry_after))
        return None

    # ------------------------------------------------------------ the loop

    def run(self) -> None:
        """Until stopped: one cycle for our own node, one sweep over others, a pause."""
        try:
            self.check()
            while not self._stop.is_set():
                self._stop.wait(self.step())
        finally:
            if self.agent is not None:
                self.agent.stop()
            self._leases.release_all()
            self.publisher.flush(2.0)
            self._instance_lock.close()

    def step(self) -> float:
        """One round. Returns seconds to wait."""
        pause = self._settings.poll_interval.total_seconds()
        next_in_queue = False
        if self.agent is not None:
            self.agent.cycle()
            pause = min(pause, self.agent.pause)
            next_in_queue = self.agent.next_in_queue
        left = self.sweeper.sweep(next_in_queue)
        if self.agent is not None and self.sweeper.own_place:
            self.sweeper.own_place = False
            self.agent.look_at_record()
        if self.agent is not None:
            self._tally.flush()
        if self._npd_token is not None and self.agent is not None:
            self._npd_token.keep(self.agent.node_uid)
        self._beat = self._clock.monotonic()
        if self.agent is not None or not self.sweeper.refused:  # a concluder's cycle is its sweep
            self.metrics.last_cycle.set(self._clock.now().timestamp())
        return min(pause, left) if self.agent is not None else min(left, 5.0)

    def stop(self) -> None:
        self._stop.set()

    # ------------------------------------------------------------ health

    def healthy(self) -> str | None:
        """Why the liveness probe should fail; None if it should not."""
        if why := stuck(self._clock.monotonic() - self._beat, self._settings.poll_interval):
            return why
        if self.agent is not None and self.agent.bugs >= BUGS_TO_DIE:
            return f"{self.agent.bugs} cycles in a row have failed on a bug"
        return None

    def ready(self) -> str | None:
        """Why the readiness probe should fail; None if it should not."""
        if self.agent is not None and not self.agent.ready:
            return f"not yet: {self.agent.last.reason}"
        return None

    def explain(self, node: str = "") -> dict[str, Any] | str:
        """The answer of ``/api/v1/explain``: of the own node, whatever was asked for."""
        if self.agent is None:
            return "this agent has no node of its own (RECOVERY_MODE=concluder)"
        return explanation(self.agent.view, self._settings.node_name, self._settings.about())


def stuck(age: float, pause: timedelta) -> str | None:
    """Why the loop counts as stuck, ``age`` seconds after its last round; None if it does not.

    ``pause`` is its own pause between two rounds.
    """
    if age <= (STUCK + pause).total_seconds():
        return None
    return f"the main loop has finished no round for {age:.0f} s"


class Lines(logging.Formatter):
    """One line for each message; a traceback has its own lines. What others wrote forges none."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        record.message = visible(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        return "\n".join(visible(line) for line in super().formatException(ei).split("\n"))


def run(environ: Mapping[str, str]) -> int:
    """Run until SIGTERM or SIGINT. Returns the exit code; wrong settings raise ``SettingsError``."""
    handler = logging.StreamHandler()
    handler.addFilter(_worth_a_line)
    handler.setFormatter(Lines("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    settings = load_settings(environ)
    for warning in settings.warnings:
        log.warning("%s", warning)
    _introduce(settings)
    program = _program(settings, environ)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: program.stop())
    server = _serve(settings, program)
    try:
        program.run()
    finally:
        if server is not None:
            server.shutdown()
            server.server_close()
    return 0


def _program(settings: Settings, environ: Mapping[str, str]) -> Program | FleetProgram:
    if settings.mode is Mode.FLEET:
        # Half a MiB that no sidecar needs.
        from recovery.agent.fleet.program import FleetProgram

        return FleetProgram(settings, environ, SystemClock())
    return Program(settings, environ, SystemClock())


def _worth_a_line(record: logging.LogRecord) -> bool:
    """Drop the SDKs' INFO lines: one for each of their requests."""
    return record.levelno >= logging.WARNING or record.name.startswith(("recovery", "providers"))


def _introduce(settings: Settings) -> None:
    """Log what we run with in one line: the first thing that anyone looks for in a log."""
    who = settings.node_name or f"no node of its own ({settings.mode.value})"
    state = "on" if settings.enable_recovery else "off: only observing"
    provider = "found by providerID" if settings.provider == AUTO else settings.provider
    page = ""
    if settings.mode is Mode.SIDECAR and settings.policy.source("npd") is not None:
        page = f"; page {settings.npd_metrics_url} every {format_duration(settings.poll_interval)}"
    log.info(
        "node-recovery for %s: recovery is %s; policy %s; provider %s%s",
        who,
        state,
        settings.policy_file.path,
        provider,
        page,
    )


def _serve(settings: Settings, program: Program | FleetProgram) -> web.Server | None:
    if settings.metrics_address is None:
        return None
    try:
        server = web.serve(
            settings.metrics_address,
            program.metrics.registry,
            program.healthy,
            program.ready,
            program.explain,
            program.asked_by.refused,
        )
    except (OSError, UnicodeError) as error:  # UnicodeError: no host can have this name
        host, port = settings.metrics_address
        problem = (
            f"METRICS_ADDRESS: cannot listen on {host}:{port}: {getattr(error, 'strerror', '') or error}"
        )
        raise SettingsError(
            [f"{problem}; expected one that is free on this host, or nothing for off"]
        ) from None
    log.info("serving /metrics, /healthz and /readyz on port %s", server.server_address[1])
    return server
