"""The stage of the stories: a Kubernetes API in memory, a provider in memory, one clock, and real agents.

Nothing of the agent is faked: its parts are those of ``node-recovery run``, on a store instead of a socket.
Time moves only by ``Stage.run``, which lets every living agent act until none has anything left to do now.
"""

from __future__ import annotations

import functools
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec

from recovery.agent import bugs
from recovery.agent.alerts import Asks, ask_when_needed
from recovery.agent.cycle import Agent
from recovery.agent.execute import Executor
from recovery.agent.fleet import loki
from recovery.agent.fleet.replica import Around, Replica
from recovery.agent.observe import Observer
from recovery.agent.peers import Sweeper
from recovery.agent.sources import SourcesOfNode
from recovery.agent.tally import Tally
from recovery.agent.world import World
from recovery.config.policy_file import load_builtin, parse_policy
from recovery.decide.decision import Decision
from recovery.errors import ApiError as RefusedOrAway
from recovery.errors import ApiUnavailable, Unreadable
from recovery.kube.cluster import GATES, NODES, RECORDS, Cluster
from recovery.kube.transport import Streams, Transport, api_error
from recovery.model import Gate, Policy, Reading, Record, Statement
from recovery.provider.monitor import Metric
from recovery.provider.registry import Providers
from recovery.report.heartbeat import Heartbeat
from recovery.report.metrics import Metrics
from recovery.report.notice import Teller
from recovery.report.publish import Publisher
from recovery.store.gate import Gates
from recovery.store.gate import decode as decode_gate
from recovery.store.lease import Identity, Leases
from recovery.store.record import Records
from recovery.store.record_codec import decode
from recovery_testkit.clock import FakeClock
from recovery_testkit.crds import read_crds
from recovery_testkit.kubefaults import FaultyApi, NoAnswerError
from recovery_testkit.kubestatus import ApiError
from recovery_testkit.kubestore import KubernetesStore
from recovery_testkit.provider import FakeGroup, FakeProvider

QUICK = b"""
apiVersion: noderecovery.dev/v1alpha1
kind: RecoveryPolicy
limits: {cooldown: 0s}
rules:
  - name: neuron-hardware
    match: {type: NeuronHealth, reason: ["NeuronHasError_*_UNCORRECTABLE_ERROR", NeuronHasError_DMA_ERROR]}
    remedy:
      - {do: drain, within: 10m, then: force}
      - {do: replace, within: 30m}
    probation: 2m
"""
REASONS = ("DMA_ERROR", "HANG_ON_COLLECTIVES", "HBM_UNCORRECTABLE_ERROR", "NC_UNCORRECTABLE_ERROR")


@functools.cache
def read_policy(text: bytes | None) -> Policy:
    return (parse_policy(text, "story") if text else load_builtin()).policy


class Killed(BaseException):
    """``kill -9``: nothing catches it, no clean-up runs."""


def npd_page(*faulty: str) -> bytes:
    """A page as NPD's Neuron configuration serves it, with the given ones of ``REASONS`` at 1."""
    counters = [f'problem_counter{{reason="NeuronHasError_{r}"}} {int(r in faulty)}' for r in REASONS]
    gauges = [
        f'problem_gauge{{reason="NeuronHasError_{r}",type="NeuronHealth"}} {int(r in faulty)}'
        for r in REASONS
    ]
    lines = ["# TYPE problem_counter counter", *counters, "# TYPE problem_gauge gauge", *gauges]
    return ("\n".join(lines) + "\n").encode()


@dataclass
class Page:
    """One node's detector."""

    body: bytes = npd_page()
    error: Exception | None = None

    def read(self) -> bytes:
        if self.error is not None:
            raise self.error
        return self.body


class StoreTransport:
    """The store as the agent's connection. A request that is lost is an ``ApiUnavailable``."""

    def __init__(self, api: Any, actor: str) -> None:
        self._api = api
        self._actor = actor

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Any = None,
        body: Any = None,
        content_type: Any = None,
        headers: Any = None,
        read: Any = None,
    ) -> Any:
        try:
            return self._api.request(
                method, path, query=query, body=body, content_type=content_type, user_agent=self._actor
            )
        except NoAnswerError as error:
            raise ApiUnavailable(str(error)) from None


class StoreStreams:
    """The store's watches: each shows what there is, or a bookmark, and is ended by the server."""

    def __init__(self, api: Any, actor: str) -> None:
        self._api = api
        self._actor = actor

    def stream(self, path: str, query: Any) -> Iterator[bytes]:
        try:
            watch = self._api.watch(path, query, user_agent=self._actor)
        except NoAnswerError as error:
            raise ApiUnavailable(str(error)) from None
        except ApiError as refused:
            raise api_error(refused.status, refused.body, {}, f"GET {path}") from None
        events = watch.poll(copied=False)
        watch.close()
        where = {"metadata": {"resourceVersion": query["resourceVersion"]}}
        yield from map(msgspec.json.encode, events or [{"type": "BOOKMARK", "object": where}])


class MemoryMonitor:
    """A monitor that keeps what is published."""

    name = "told"

    def __init__(self) -> None:
        self.metrics: list[Metric] = []
        self.error: Exception | None = None

    def publish(self, metrics: Any) -> None:
        if self.error is not None:
            raise self.error
        self.metrics += metrics


@dataclass
class Actor:
    """One process: an agent with its sweeper, or a concluder."""

    name: str
    node: str
    agent: Agent | None
    sweeper: Sweeper
    publisher: Publisher
    leases: Leases
    metrics: Metrics
    tally: Tally
    cluster: Cluster
    alive: bool = True
    sentences: list[str] = field(default_factory=list)
    _began: bool = False

    def began(self) -> bool:
        """Whether the program is in its loop. It waits for its Node first, as ``Program.check`` does: so no
        page is read before the API server's time is known."""
        if self.agent is not None and not self._began:
            try:
                self.cluster.time.beyond_doubt(functools.partial(self.cluster.get_node, self.node))
            except RefusedOrAway:
                return False
        self._began = True
        return True

    def turn(self) -> Decision | None:
        """One round, as ``Program.step`` does it."""
        if not self.began():
            return None
        d = None
        next_in_queue = False
        if self.agent is not None:
            d = self.agent.cycle()
            next_in_queue = self.agent.next_in_queue
            if not self.sentences or self.sentences[-1] != d.reason:
                self.sentences.append(d.reason)
        self.sweeper.sweep(next_in_queue)
        if self.agent is not None and self.sweeper.own_place:
            self.sweeper.own_place = False
            self.agent.look_at_record()
        if self.agent is not None:
            self.tally.flush()
        self.publisher.drain()
        return d


@dataclass
class FleetActor:
    """One process: a replica of the controller, whose threads take turns."""

    name: str
    replica: Replica
    publisher: Publisher
    metrics: Metrics
    clock: FakeClock
    node: str = ""
    agent: None = None
    alive: bool = True
    due_in: float = 0.0
    """Seconds, since the last turn, until an agent is due."""
    is_still: Callable[[str, str], bool] = lambda path, version: False
    """Whether a watch of this path from this version on has nothing to tell. Its thread waits then, and hears
    bookmarks."""
    _due: dict[str, float] = field(default_factory=dict)
    _open: set[str] = field(default_factory=set)
    """The threads whose last round was a watch that the server ended."""

    def __post_init__(self) -> None:
        go_on, replica = threading.Event(), self.replica
        self._threads: dict[str, Callable[[], float]] = {
            "election": lambda: replica.leader.campaign(),
            "nodes": lambda: replica.nodes.round(go_on),
            "prometheus": lambda: replica.poll(),
            "loki": lambda: replica.read_logs(),
            "pods": lambda: replica.watch_pods(go_on),
            "records": lambda: replica.watch_records(go_on),
            "gate": lambda: replica.watch_gate(go_on),
            "roll": lambda: replica.call_the_roll(),
            "leases": lambda: replica.read_leases(),
            "traits": lambda: replica.count_traits(),
        }
        self._watching: dict[str, tuple[str, Any]] = {
            "nodes": (NODES, replica.nodes),
            "records": (RECORDS, replica._records),
            "gate": (GATES, replica._gates),
        }

    def turn(self) -> None:
        """One round of each thread."""
        for name, one in self._threads.items():
            now = self.clock.monotonic()
            if now >= self._due.get(name, 0.0) and not self._waits(name):
                left = one()
                self._due[name] = now + left
                (self._open.discard if left else self._open.add)(name)
        self.due_in = min(self._work(worker) for worker in range(len(self.replica.controllers)))
        self.replica.sweep()
        self.publisher.drain()

    def _waits(self, name: str) -> bool:
        """Whether the thread waits in its watch, and would go on to wait."""
        path, watched = self._watching.get(name, ("", None))
        if watched is None or name not in self._open or not watched._version:
            return False
        if (name != "nodes" and not self.replica.leader.leads) or not self.is_still(path, watched._version):
            return False
        watched._heard_at = self.clock.monotonic()
        return True

    def _work(self, worker: int) -> float:
        for _ in range(20):
            if left := self.replica.work(worker):
                return left
        return 0.0


class Stage:
    """Everything in one story: the cluster, the machines and the agents."""

    def __init__(self, policy: bytes | None = QUICK, *, crds: bool = True) -> None:
        self.clock = FakeClock()
        self.store = KubernetesStore(now=self.clock.true_time)
        self.api = FaultyApi(self.store)
        self.provider = FakeProvider()
        self.provider.now = self.clock.true_time
        self.policy = read_policy(policy)
        self.pages: dict[str, Page] = {}
        self.actors: dict[str, Any] = {}  # by name: agents, concluders, replicas of the controller
        self.told = MemoryMonitor()
        self.tellers: tuple[Teller, ...] = ()  # who is told of Events beside the API server
        self.heartbeat: timedelta | None = None
        self.lease = timedelta(minutes=1)  # how long a Lease lasts, and about how often others are looked at
        self.kernels: dict[str, str] = {}  # the boot ID that a node's own kernel gives its agent, by node
        self.exporters: dict[str, Page] = {}  # the metrics pages of pods, by their URL
        self.witnesses: dict[str, Callable[[tuple[str, ...]], Statement]] = {}  # of every node, by name
        self.prometheus: Asks | None = None  # the server that agents and the controller ask
        self.loki: loki.Asks | None = None  # and the one that they read the kernel's log from
        self.wrap: Callable[[Transport], Transport] = lambda transport: transport
        self.wrap_streams: Callable[[Streams], Streams] = lambda streams: streams
        if crds:
            for crd in read_crds():
                self.store.install_crd(crd)

    # ------------------------------------------------------------ scenery

    def add_node(self, name: str, machine: str, group: str = "workers", **labels: str) -> None:
        """A Ready node of a group, with a healthy detector."""
        found = self.provider.groups.setdefault(group, FakeGroup(group, 0))
        if machine not in found.in_service:
            found.in_service.append(machine)
            found.desired += 1
        self.register(name, machine, group, **labels)

    def register(
        self, name: str, machine: str, group: str = "workers", boot: str = "boot-1", **labels: str
    ) -> None:
        """A Node object, as a kubelet registers it."""
        self.pages.setdefault(name, Page())
        self.store.load(self.registered(name, machine, group, boot, **labels))

    def registered(self, name: str, machine: str, group: str, boot: str, **labels: str) -> dict[str, Any]:
        """What a kubelet registers."""
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {
                    "topology.kubernetes.io/zone": "a",
                    "node.kubernetes.io/instance-type": "trn1.32xlarge",
                    **{k.replace("__", "/").replace("_", "."): v for k, v in labels.items()},
                },
            },
            "spec": {"providerID": f"fake:///{group}/{machine}"},
            "status": {
                "nodeInfo": {"bootID": f"{machine}-{boot}", "systemUUID": machine},
                "conditions": [
                    {
                        "type": "Ready",
                        "status": "True",
                        "reason": "KubeletReady",
                        "lastHeartbeatTime": f"{self.clock.true_time():%Y-%m-%dT%H:%M:%SZ}",
                    }
                ],
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            },
        }

    def nodes(self, count: int, group: str = "workers") -> list[str]:
        names = [f"node-{i}" for i in range(count)]
        for i, name in enumerate(names):
            self.add_node(name, f"m-{i}", group)
        return names

    def add_pod(self, name: str, node: str, owner: str = "ReplicaSet", **labels: str) -> None:
        """A running pod with five seconds of grace; without ``owner`` nobody makes it again."""
        controller = {"apiVersion": "apps/v1", "kind": owner, "name": "x", "uid": "u", "controller": True}
        self.store.load(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "namespace": "default",
                    "labels": labels or {"app": "train"},
                    "ownerReferences": [controller] if owner else [],
                },
                "spec": {"nodeName": node, "terminationGracePeriodSeconds": 5, "containers": [{"name": "c"}]},
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
            }
        )

    def add_exporter(
        self,
        node: str,
        body: bytes,
        port: int,
        labels: dict[str, str],
        *,
        name: str = "exporter",
        namespace: str = "gpu-operator",
        ip: str = "10.1.0.7",
        owner: str = "DaemonSet",
        phase: str = "Running",
    ) -> Page:
        """A pod on ``node`` that serves ``body`` at ``port``."""
        if not self.store.request("GET", f"/api/v1/namespaces/{namespace}").ok:
            self.store.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        controller = {"apiVersion": "apps/v1", "kind": owner, "name": "x", "uid": "u", "controller": True}
        self.store.load(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"{name}-{node}",
                    "namespace": namespace,
                    "labels": labels,
                    "ownerReferences": [controller] if owner else [],
                },
                "spec": {"nodeName": node, "containers": [{"name": "c"}]},
                "status": {"phase": phase, "podIP": ip},
            }
        )
        return self.exporters.setdefault(f"http://{ip}:{port}/metrics", Page(body))

    def fault(self, node: str, *reasons: str) -> None:
        self.pages[node].body = npd_page(*(reasons or ("DMA_ERROR",)))

    # ------------------------------------------------------------ actors

    def agent(
        self, node: str, *, on: bool = True, name: str = "", place: str = "", alone: bool = False
    ) -> Actor:
        """Start the node's own agent (again: a new process of the same or another place)."""
        return self._start(name or f"agent of {node}", node, on, place or f"pod-of-{node}", alone)

    def concluder(self, name: str = "concluder") -> Actor:
        return self._start(name, "", True, name, False)

    def fleet(
        self,
        name: str = "controller",
        *,
        on: bool = True,
        selector: str = "",
        place: str = "",
        alone: bool = False,
    ) -> FleetActor:
        """Start a replica of the controller: in the pod ``place``, ``alone`` there."""
        transport = self.wrap(StoreTransport(self.api, name))
        metrics = Metrics()
        publisher = Publisher(
            Cluster(transport, self.clock, "default"),
            lambda: self.told,
            metrics,
            threaded=False,
            tellers=self.tellers,
        )
        around = Around(
            clock=self.clock,
            transport=transport,
            streams=self.wrap_streams(StoreStreams(self.api, name)),
            namespace="default",
            agents="default",
            policy=self.policy,
            on=on,
            providers=lambda _: Providers("fake", lambda _: self.provider),
            publisher=publisher,
            metrics=metrics,
            identity=Identity("fleet", place or name, alone=alone),
            selector=selector,
            prometheus=self.prometheus,
            loki=self.loki,
        )
        actor = FleetActor(name, Replica(around, workers=2), publisher, metrics, self.clock)
        self.actors[name] = actor
        return actor

    def _start(self, name: str, node: str, on: bool, place: str, alone: bool) -> Actor:
        clock = self.clock
        transport = self.wrap(StoreTransport(self.api, name))
        cluster = Cluster(transport, clock, "default")
        metrics = Metrics()
        identity = Identity(node or name, place, alone=alone)
        leases = Leases(cluster, clock, identity, self.lease)
        records = Records(cluster)
        world = World(
            clock=clock,
            cluster=cluster,
            records=records,
            gates=Gates(cluster, records.readable),
            leases=leases,
            providers=Providers("fake", lambda _: self.provider),
            policy=self.policy,
            on=on,
            survived=functools.partial(bugs.survived, metrics),
            kernel_boot=lambda: self.kernels.get(node, ""),
            witnesses=self.witnesses,
        )
        if self.prometheus is not None:
            ask_when_needed(world, self.prometheus)
        observer = Observer(world)
        publisher = Publisher(cluster, lambda: self.told, metrics, threaded=False, tellers=self.tellers)
        executor = Executor(world, observer, publisher)
        tally = Tally(cluster, clock, self.policy, on, name, metrics)
        agent = None
        if node:
            half = timedelta(seconds=0.5)
            sources = SourcesOfNode(
                world, node, self.pages[node].read, half, lambda: sweeper.population, self.open_page
            )
            beat = Heartbeat(publisher, clock, cluster.time.now, self.heartbeat) if self.heartbeat else None
            agent = Agent(
                world,
                observer,
                executor,
                publisher,
                metrics,
                sources.made(),
                node,
                heartbeat=beat,
                saw=sources.look.saw,
                own=sources.look.last,
                tell=tally.tell,
            )
        chance = random.Random(7)  # noqa: S311

        def readings() -> tuple[Reading, ...]:
            return agent.readings_to_tell if agent is not None else ()

        sweeper = Sweeper(
            world,
            observer,
            executor,
            publisher,
            metrics,
            node,
            idle=self.lease.total_seconds(),
            chance=chance,
            readings=readings,
            complaint=agent.complaint if agent is not None else str,
        )
        actor = Actor(name, node, agent, sweeper, publisher, leases, metrics, tally, cluster)
        self.actors[name] = actor
        return actor

    def open_page(self, url: str, who: str) -> Callable[[], bytes]:
        def read() -> bytes:
            if url not in self.exporters:
                raise Unreadable(f"the connection was refused: {who} does not listen there")
            return self.exporters[url].read()

        return read

    def kill(self, actor: Actor) -> None:
        actor.alive = False

    # ------------------------------------------------------------ time

    def run(self, seconds: float, step: float = 0.5) -> None:
        """Let ``seconds`` pass, and all living actors act."""
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end:
            self.turns()
            self.clock.advance(step)
            self.store.tick()
        self.turns()

    def turns(self, limit: int = 50) -> None:
        """Everybody acts until nobody has anything left to do at once."""
        for actor in list(self.actors.values()):
            for _ in range(limit):
                if not actor.alive:
                    break
                try:
                    d = actor.turn()
                except Killed:
                    actor.alive = False
                    break
                if d is None or d.effect is None:
                    break

    # ------------------------------------------------------------ looking

    def record(self, node: str) -> Record | None:
        answer = self.store.request("GET", f"/apis/noderecovery.dev/v1alpha1/noderecoveries/{node}")
        return decode(answer.body) if answer.status == 200 else None

    def gate(self) -> Gate:
        return decode_gate(
            self.store.request("GET", "/apis/noderecovery.dev/v1alpha1/recoverygates/fleet").body
        )

    def node(self, name: str) -> dict[str, Any]:
        return dict(self.store.request("GET", f"/api/v1/nodes/{name}").body)

    def delete_node(self, name: str) -> None:
        self.store.request("DELETE", f"/api/v1/nodes/{name}")

    def events(self, node: str = "") -> list[tuple[str, str]]:
        items = self.store.request("GET", "/api/v1/namespaces/default/events").body["items"]
        return [(e["reason"], e["message"]) for e in items if not node or e["involvedObject"]["name"] == node]

    def replace_machine(
        self, node: str, machine: str, new_node: str, new_machine: str, group: str = "workers"
    ) -> None:
        """What an Auto Scaling group does with an unhealthy machine: end it, launch another, which joins."""
        self.provider.terminate(group, machine)
        self.delete_node(node)
        for actor in self.actors.values():
            if actor.node == node:
                self.kill(actor)
        self.provider.launch(group, new_machine)
        self.register(new_node, new_machine, group)
