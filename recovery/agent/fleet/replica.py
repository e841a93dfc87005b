"""One replica of the controller: its parts, and what each of its threads does in one round.

What is common to the threads is only read, or has a lock of its own: the Nodes, the election, what is told.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from recovery.agent import bugs
from recovery.agent.alerts import EVERY, AlertWatch, Asks
from recovery.agent.backoff import Outage
from recovery.agent.desk import Desk
from recovery.agent.execute import Executor
from recovery.agent.fleet import loki
from recovery.agent.fleet.alike import Alike
from recovery.agent.fleet.cluster import GATE, NODE, WatchedCluster, node_key
from recovery.agent.fleet.controller import Controller
from recovery.agent.fleet.crowd import Crowd
from recovery.agent.fleet.kubelet_leases import NAMESPACE, KubeletLeases
from recovery.agent.fleet.leader import Leader
from recovery.agent.fleet.leases import LeadersLeases, Seen, SweepersLeases
from recovery.agent.fleet.look_back import LookBack
from recovery.agent.fleet.lost_pods import PodWatch
from recovery.agent.fleet.never_joined import Roll, tolerated
from recovery.agent.fleet.nodes import Nodes
from recovery.agent.fleet.objects import Objects, version_of
from recovery.agent.fleet.outbreaks import Outbreaks
from recovery.agent.fleet.prometheus import Poller
from recovery.agent.fleet.recent import Key, Recent
from recovery.agent.fleet.sources import Says
from recovery.agent.observe import Observer
from recovery.agent.peers import Sweeper
from recovery.agent.tally import Tally
from recovery.agent.world import LatestPast, World
from recovery.catalog import own_fault
from recovery.clock import ApiTime, Clock
from recovery.config.policy_able import MOST_OUT
from recovery.decide.acknowledged import awaits_word
from recovery.decide.budget import QUEUE
from recovery.decide.census import Kept
from recovery.decide.decision import leave
from recovery.decide.situation import Lease
from recovery.errors import NotFound, Undecodable
from recovery.kube.cluster import GATES, RECORDS, Cluster
from recovery.kube.transport import Streams, Transport
from recovery.kube.watch import watch_ours
from recovery.model import Alerts, Policy, Record
from recovery.provider.registry import Providers
from recovery.report.metrics import Metrics
from recovery.report.own_view import View
from recovery.report.publish import Publisher
from recovery.signals import black_hole, device_counts, kubelet, never_joined
from recovery.store.codec import Unchanged
from recovery.store.gate import NAME, Gates
from recovery.store.gate import decode as decode_gate
from recovery.store.lease import EVER, Identity, Leases
from recovery.store.record import NOT_SICK, Records
from recovery.store.record_codec import decode

MOST_DECODED = 5000
"""Records that are remembered as they were decoded, some 15 KiB each: those that are sick are counted before
each start, and to decode a thousand of them takes a tenth of a second."""
SWEEP_EVERY = 10.0
"""Seconds between two looks at the gate, for records whose Node is gone."""
GONE_TOO = timedelta(minutes=10)
"""For how much longer than a machine may take to join it is remembered that it was a Node: a cloud may be
slow."""
WAITS = 0.2
"""Seconds until a replica that does not lead looks again whether it does."""
Beat = Callable[[str], None]
"""Is told the name of the thread that is alive."""


@dataclass(frozen=True)
class Around:
    """What a replica is connected to, and what it goes by.

    ``namespace`` is its own; ``agents``: that of the sidecars' Leases, which last ``lease`` each.
    ``providers`` makes those of one thread, by the cluster that it asks. ``selector``: "" is all nodes.
    ``prometheus``: the server that the policy's rows are asked of, None where there is none. ``loki``: the
    one that the kernel's log is read from.
    """

    clock: Clock
    transport: Transport
    streams: Streams
    namespace: str
    agents: str
    policy: Policy
    on: bool
    providers: Callable[[Cluster], Providers]
    publisher: Publisher
    metrics: Metrics
    identity: Identity
    selector: str = ""
    lease: timedelta = timedelta(seconds=60)
    beat: Beat = lambda _: None
    prometheus: Asks | None = None
    loki: loki.Asks | None = None


class Replica:
    """Follows the Nodes, stands for election, and looks after the fleet while it leads. ``workers``: how many
    threads look after nodes, each after its own share of them."""

    def __init__(self, around: Around, workers: int = 1) -> None:
        self._a = around
        self._time = ApiTime(around.clock)
        """What all threads know of the API server's time. One that has asked for nothing yet has it."""
        self._outage = Outage()
        self.leader = Leader(
            self._cluster(),
            around.clock,
            around.identity,
            around.on,
            self._outage,
            sees=lambda: self.nodes.in_sync,
            failed=partial(self._failed, "api"),
        )
        limits = around.policy.limits
        counted = Kept(own_fault, {*limits.brake_per, *limits.budget_per}, limits.population)
        place = (self._cluster(), around.streams, around.clock)
        after = tolerated(around.policy)
        gone_for = after + GONE_TOO if after is not None else timedelta(0)
        self.nodes = Nodes(*place, around.selector, self._changed, counted, gone_for, self._failed, around.on)
        self._records = self._objects("records", RECORDS, {"labelSelector": NOT_SICK})
        self._gates = self._objects("the gate", GATES, {"fieldSelector": f"metadata.name={NAME}"})
        self._recent = Recent(around.clock, self._is_still)
        self._past = LatestPast()
        self._decoded = Unchanged(decode, MOST_DECODED)
        self._decoded_gate = Unchanged(decode_gate)
        self._nobodys: Seen = {}
        me = around.identity.pod
        self._tally = Tally(self._cluster(), around.clock, around.policy, around.on, me, around.metrics)
        self._crowd = Crowd(self._hurry)
        self._poller = self._made_poller()
        self._alerts = self._made_alert_watch()
        self._logs = self._made_log_reader()
        alike = Alike(self.nodes, around.clock)
        self._pods = self._made_pod_watch()
        self._roll = self._made_roll()
        self._desk = self._made_desk()
        self._kubelets = self._made_kubelet_leases()
        read = (self._poller, self._logs, self._pods, self._roll, self._kubelets)
        self._says = Says(around.policy, self.nodes, alike, *read)
        self._outbreaks = Outbreaks(self.nodes, around.clock, self._cluster, around.policy.limits.population)
        self.controllers: list[Controller] = []
        self.controllers += [self._controller(f"worker {i}") for i in range(workers)]
        self._led = [False] * workers
        self._sweeper = self._made_sweeper()
        self._sweeps = False
        self._look_back = self._made_look_back()
        self._went: set[str] = set()
        """Nodes that are gone, or out of the selector, by the watch or a later read. Of a Node that the watch
        tells of again nothing is known."""

    @property
    def busy(self) -> bool:
        """Whether one of the workers is looking after a node right now. Any thread may ask."""
        return any(controller.busy for controller in self.controllers)

    @property
    def refused(self) -> str:
        """Why the last look at the Lease, the gate or the records failed; "" where none did."""
        looked_back = self._look_back.refused if self.leader.leads else ""
        return self.leader.refused or looked_back or self._sweeper.refused

    # ------------------------------------------------------------ one round of each thread

    def work(self, worker: int) -> float:
        """Look after the share of ``worker``, while this replica leads. Seconds until the next round."""
        controller = self.controllers[worker]
        if not self.leader.leads or not self.nodes.in_sync:
            controller.woken.clear()  # the news can wait, and who takes the lead looks at every node
            if self._led[worker] and not self.leader.leads:
                controller.forget_all()
                self._led[worker] = False
            return WAITS
        if left := self._yet_to_learn():
            controller.woken.clear()
            return left
        if not self._led[worker]:
            for node in self.nodes.all():
                if self._controller_of(node.name) is controller:
                    controller.look_at(node.name)
            self._led[worker] = True
        return controller.step()

    def sweep(self) -> float:
        """Look at the records whose Node is gone, while this replica leads, and write what was seen with
        recovery off. Seconds until the next look."""
        if not self.leader.leads or not self.nodes.in_sync:
            if self._sweeps and not self.leader.leads:
                self._sweeps = False
                self._sweeper.stands_down()
            return WAITS
        self._sweeps = True
        if left := self._yet_to_learn():
            return left
        for node in self._tally.flush():
            self._summon(node)
        return self._sweeper.sweep()

    def poll(self) -> float:
        """Ask the Prometheus server, where there is one. A replica that does not lead does so, too: what goes
        away must have been seen. Seconds until the next round."""
        if (self._poller is None and self._alerts is None) or not self.nodes.in_sync:
            return WAITS
        if self._alerts is not None:
            self._alerts.once()
        if self._poller is not None:
            self._poller.once()
        return EVERY

    def read_logs(self) -> float:
        """Read the kernel's log from Loki, where there is one; a replica that does not lead does so, too: who
        takes over must not have missed a line. Seconds until the next round."""
        if self._logs is None or not self.nodes.in_sync:
            return WAITS
        self._logs.once()
        return loki.EVERY

    def watch_pods(self, stop: threading.Event) -> float:
        """Follow the pods that fail, where a rule names what they show; a replica that does not lead does so,
        too. Seconds until the next round."""
        if self._pods is None or not self.nodes.in_sync:
            return WAITS
        return self._pods.round(stop)

    def watch_records(self, stop: threading.Event) -> float:
        """Follow which records count as sick, while this replica leads. Seconds until the next round."""
        return self._follow(self._records, stop)

    def watch_gate(self, stop: threading.Event) -> float:
        """Follow the gate, while this replica leads. Seconds until the next round."""
        return self._follow(self._gates, stop)

    def _follow(self, objects: Objects, stop: threading.Event) -> float:
        if not self._a.on or not self.leader.leads:
            objects.rest()
            return WAITS
        return objects.round(stop)

    def call_the_roll(self) -> float:
        """Look for machines that never became a Node, where a rule names them, while this replica leads: what
        is found goes by when they were launched, so who takes over misses nothing. Seconds until the next
        round."""
        if self._roll is None:
            return WAITS
        if not self.leader.leads:
            self._roll.stands_down()
        return self._roll.round() if self.leader.leads and self.nodes.in_sync else WAITS

    def read_leases(self) -> float:
        """Look for kubelets that have fallen silent, where a rule names Ready, while this replica leads.
        Seconds until the next round."""
        if self._kubelets is None:
            return WAITS
        if not self.leader.leads:
            self._kubelets.stands_down()
        return self._kubelets.round() if self.leader.leads and self.nodes.in_sync else WAITS

    def count_traits(self) -> float:
        """Count the Nodes by what machines with one fault may share, while this replica leads. Seconds until
        the next look."""
        return self._outbreaks.count() if self.leader.leads and self.nodes.in_sync else WAITS

    def view(self, node: str) -> View | str:
        """What is known and decided of ``node``, or why this replica cannot say. Any thread may ask."""
        if not self.leader.leads:
            return "this replica does not lead"
        if not self.nodes.in_sync:
            return f"the Nodes are not known: {self.nodes.silent()}"
        if (view := self._controller_of(node).view(node)) is not None:
            return view
        if (found := self.nodes.get(node)) is None:
            return f"{node} is not among the Nodes that this controller looks after"
        sources = self._says.sources(node, self.nodes.now)
        readings = tuple(source.poll(found.boot_id) for source in sources)
        return View(self.nodes.now(), readings, leave("healthy: nothing that is read says otherwise"))

    # ------------------------------------------------------------ parts

    def _failed(self, kind: str) -> None:
        """Count an error of a watch, or of the election: no cycle of a node's agent says it."""
        self._a.metrics.errors.labels(kind).inc()

    def _cluster(self) -> Cluster:
        return Cluster(self._a.transport, self._a.clock, self._a.namespace, self._time)

    def _watched(self) -> WatchedCluster:
        a = self._a
        return WatchedCluster(
            *(a.transport, a.clock, a.namespace, self.nodes, self._recent, self._time),
            whole=not a.selector,
            records=self._records,
            gates=self._gates,
            unjoined=self._roll.node if self._roll is not None else lambda _: None,
        )

    def _made_desk(self) -> Desk:
        cluster = self._watched()
        records = Records(cluster, self._decoded)
        gates, leads = Gates(cluster, records.readable, self._decoded_gate), lambda: self.leader.leads
        answered = partial(self._hurry, first=True)
        return Desk(self._a.clock, gates, records, cluster, cluster.time.now, leads, answered)

    def _world(self, leases: Callable[[Leases], LeadersLeases]) -> World:
        a = self._a
        cluster = self._watched()
        records = Records(cluster, self._decoded)
        of_sidecars = Leases(
            Cluster(a.transport, a.clock, a.agents, self._time), a.clock, a.identity, a.lease
        )
        return World(
            clock=a.clock,
            cluster=cluster,
            records=records,
            gates=Gates(cluster, records.readable, self._decoded_gate),
            leases=leases(of_sidecars),
            providers=a.providers(cluster),
            policy=a.policy,
            on=a.on,
            survived=partial(bugs.survived, a.metrics),
            most_slots=MOST_OUT["fleet"],
            shared_by=self._outbreaks.on_record,
            afar=True,
            unheard_since=self.nodes.unheard_since,
            unseen_since=self._unseen_since,
            outside=self._is_outside,
            alerts=self._alerts.now if self._alerts is not None else Alerts,
            past=self._past,
            outage=self._outage,
            desk=self._desk,
            abreast=QUEUE,
        )

    def _objects(self, what: str, path: str, selected: dict[str, str]) -> Objects:
        cluster = self._cluster()
        listed = partial(cluster.named_of, path, selected)
        watched = partial(watch_ours, self._a.streams, path, selected)
        return Objects(what, listed, watched, self._a.clock, self._failed)

    def _is_still(self, key: Key, found: Any) -> bool:
        """Whether a watch says that nobody has changed the Node, record or gate ``found``."""
        kind, name = key
        if kind == NODE:
            known = self.nodes.get(name) if self.nodes.in_sync else None
            return known is not None and known.resource_version == found.resource_version
        objects = self._gates if key == GATE else self._records
        return objects.is_still(name, version_of(found))

    def _made_poller(self) -> Poller | None:
        a, choice = self._a, self._a.policy.source("prometheus")
        if choice is None or a.prometheus is None:
            return None
        whole = not a.selector
        return Poller(choice.metrics, a.prometheus, self.nodes, self._changed, a.metrics, whole)

    def _made_alert_watch(self) -> AlertWatch | None:
        a = self._a
        asked = a.policy.limits.goes_by_alerts
        return AlertWatch(a.prometheus, a.clock) if asked and a.prometheus is not None else None

    def _made_log_reader(self) -> loki.LogReader | None:
        a, choice = self._a, self._a.policy.source("loki")
        if choice is None or choice.logs is None or a.loki is None:
            return None
        counted, whole = loki.counted_by(a.policy), not a.selector
        return loki.LogReader(choice.logs, a.loki, self.nodes, self._changed, a.metrics, counted, whole)

    def _made_pod_watch(self) -> PodWatch | None:
        """Nothing is watched for a fault that no rule speaks of."""
        a = self._a
        named = any(rule.match.type == black_hole.TYPE for rule in a.policy.rules)
        if not named or a.policy.source(device_counts.SOURCE) is None:
            return None
        return PodWatch(self._cluster(), a.streams, a.clock, self.nodes, self._changed, self._failed)

    def _made_roll(self) -> Roll | None:
        """No cloud is asked for a fault that no rule speaks of."""
        a = self._a
        if (after := tolerated(a.policy)) is None:
            return None
        cluster = self._cluster()
        records = Records(cluster)
        return Roll(
            cluster,
            records,
            Gates(cluster, records.readable),
            a.providers(cluster),
            self.nodes,
            a.clock,
            after,
            a.metrics,
            self._summon,
            whole=not a.selector,
            on=a.on,
        )

    def _made_kubelet_leases(self) -> KubeletLeases | None:
        """Ready is no fault where no rule names it."""
        a = self._a
        if all(rule.match.type != kubelet.READY for rule in a.policy.rules):
            return None
        return KubeletLeases(
            Cluster(a.transport, a.clock, NAMESPACE, self._time), a.clock, self.nodes, self._changed
        )

    def _made_look_back(self) -> LookBack:
        a = self._a
        place = (self._cluster(), self.leader, self._outbreaks)
        return LookBack(*place, self._awaits_word, self._summon, a.clock, a.metrics)

    def _controller(self, thread: str) -> Controller:
        a = self._a
        world = self._world(lambda sidecars: LeadersLeases(self.leader, sidecars, a.clock, self._nobodys))
        observer = Observer(world)
        executor = Executor(world, observer, a.publisher)
        return Controller(
            world,
            observer,
            executor,
            a.publisher,
            a.metrics,
            self.nodes,
            self._says,
            self._crowd,
            self._desk,
            self._tally.tell,
            partial(a.beat, thread),
        )

    def _made_sweeper(self) -> Sweeper:
        a = self._a
        there = partial(self._is_there, Records(self._watched(), self._decoded))
        world = self._world(
            lambda sidecars: SweepersLeases(
                self.leader, sidecars, a.clock, self._nobodys, there, self._summon
            )
        )
        observer = Observer(world)
        executor = Executor(world, observer, a.publisher)
        beat = partial(a.beat, "sweep")
        return Sweeper(
            *(world, observer, executor, a.publisher, a.metrics, ""),
            idle=SWEEP_EVERY,
            beat=beat,
            summon=self._summon,
            left=partial(self._left, world),
        )

    def _left(self, world: World, node: str) -> None:
        """With recovery off, a record of ``node`` counts: its agent is to say so, unless the Node is there
        and not one of ours."""
        if self.nodes.get(node) is not None or not self._a.selector or world.node(node) is None:
            self._summon(node)

    def _is_there(self, records: Records, node: str, of_sidecars: Lease) -> bool:
        """Whether the Node is there. Of one that left FLEET_SELECTOR the agent ends what was begun."""
        if (self._roll is not None and never_joined.is_name(node)) or self.nodes.get(node) is not None:
            return True
        if node not in self._went and not self._was_ours(records, node, of_sidecars):
            return False
        try:
            self._cluster().get_node(node)
        except NotFound:
            self._went.discard(node)
            return False
        self._went.add(node)
        return True

    def _was_ours(self, records: Records, node: str, of_sidecars: Lease) -> bool:
        """Whether a controller began what is on the record of ``node``: an earlier leader, maybe with another
        FLEET_SELECTOR. A sidecar would have held the record's Lease since the fault was stated."""
        if not self._a.selector or of_sidecars.idle is None:
            return False
        try:
            r = records.read(node)
        except Undecodable:
            return False  # the sweep tells of it
        if r is None or not r.phase.open:
            return False
        return all(of_sidecars.idle[0] < f.since for f in r.faults)

    def _is_outside(self, node: str, fresh: bool) -> bool:
        """Of a Node that was one of ours: whether it is none of FLEET_SELECTOR any more. The API server is
        asked, since a watch may be behind; before a destructive step (``fresh``) whatever the watch shows."""
        if not self._a.selector or not (fresh or (node in self._went and self.nodes.in_sync)):
            return False
        if self._cluster().is_selected(node, self._a.selector):
            return False
        self._went.add(node)
        return True

    def _yet_to_learn(self) -> float:
        """Seconds until it is to be asked again whether all is known that is decided by; 0.0 once it is."""
        return self._look_back.left() if self._a.on else 0.0

    def _unseen_since(self, node: str) -> datetime | None:
        """Since when there is news of another node than ``node`` that is on no record: its agent has still to
        look. Of a worker that has not begun it is not known."""
        if not all(self._led):
            return EVER
        now = self._a.clock.monotonic()
        found = [at for c in self.controllers if (at := c.unseen_since(node)) is not None]
        return self.nodes.now() - timedelta(seconds=now - min(found)) if found else None

    def _awaits_word(self, r: Record) -> bool:
        node = self.nodes.get(r.node)
        return node is not None and awaits_word(r, node.boot_id)

    def _summon(self, node: str) -> None:
        self._controller_of(node).look_at(node, record=True)

    def _hurry(self, node: str, *, first: bool = False) -> None:
        self._controller_of(node).hurry(node, first=first)

    def _changed(self, node: str) -> None:
        seen = self.nodes.get(node)
        if seen is not None:
            self._went.discard(node)
        elif self._a.selector and self._controller_of(node).knows(node):
            self._went.add(node)
        version = seen.resource_version if seen is not None else ""
        self._recent.forget_other(node_key(node), lambda known: known.resource_version == version)
        self._controller_of(node).look_at(node)

    def _controller_of(self, node: str) -> Controller:
        return self.controllers[zlib.crc32(node.encode()) % len(self.controllers)]
