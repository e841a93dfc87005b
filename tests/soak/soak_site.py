"""The end-to-end site, which also writes down what happens: facts for the independent judge."""

from __future__ import annotations

import json
import random
import re
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from audit import AuditLog, lists
from fleet_site import INFRA, NAMESPACE, POLICY, Site, delete_node, register
from kubelets import Container
from plane import Plane
from weather import FAIR, WEATHERS, Weather

from tests.search import facts
from tests.search.facts import Asked, Fact, Happened, Said
from tests.search.judge import Violation

PARTS_AFTER = ("kwok", "kube-controller-manager", "kube-scheduler")
DECISION = re.compile(
    r"(?P<at>\S+ \d\d:\d\d:\d\d),(?P<ms>\d+) \w+ (?P<node>[^ :]+)(?: \(taken over\))?: "
    r"(?P<sentence>.*) \[key=(?P<key>.*)\]"
)
OUTCOMES = {
    "lose": facts.LOST_AFTER,
    "reset": facts.LOST_BEFORE,
    "answer": facts.THROTTLED,
    "": facts.ACCEPTED,
}


class SoakSite(Site):
    """``seed`` before anything else. ``facts`` at the end. ``rules``: its policy, but for the budget."""

    rules = POLICY
    leases_in = NAMESPACE

    def __init__(self, plane: Plane, folder: Path) -> None:
        super().__init__(plane, folder)
        self.began = time.time()
        self.happened: list[Fact] = []
        self.done: Counter[str] = Counter()
        self.policy = ""
        self.stopped: dict[int, tuple[Container, float]] = {}  # process -> until when
        self.alive: dict[str, tuple[str, dict[str, str]]] = {}  # node -> machine, labels
        self._noting = threading.Lock()
        self._saved = -1.0
        self._pods_seen: set[str] = set()
        self.actors: dict[str, str] = {}  # pod -> who it is in the facts
        self.dark: dict[str, float] = {}  # node whose detector is dead -> until when
        self.by_hand: set[str] = set()  # machines that a person ended

    def seed(self, seed: int) -> None:
        """Between the agents and the API server from now on: weather, by this seed."""
        self.weather = Weather(self.plane.port, self.plane.certificate.parent, random.Random(seed)).start()  # noqa: S311
        self.log_of_writes = AuditLog(self.plane.audit_log, self.audit.account, self.began)
        self.note(facts.BEGAN, "", wall=datetime.fromtimestamp(self.began, UTC).isoformat())

    def __exit__(self, *problem: object) -> None:
        self.go_on(everybody=True)
        if hasattr(self, "weather"):
            self.weather.stop()
        super().__exit__(*problem)

    # ------------------------------------------------------------ what is written down

    def now(self) -> float:
        return time.time() - self.began

    def note(self, what: str, subject: str, **detail: Any) -> None:
        with self._noting:
            self.happened.append(Happened(self.now(), what, subject, detail))

    def facts(self) -> list[Fact]:
        """All of them, by time: writes, calls, and what only this site knows."""
        found: list[Fact] = [*self.happened, *self.log_of_writes.facts(), *self._calls(), *self._said()]
        return sorted(found, key=lambda fact: fact.at)

    def _calls(self) -> list[Asked]:
        nodes = {machine: node for node, machine in self.instances.items()}
        return [
            Asked(
                r.at - self.began,
                f"agent on {nodes.get(r.params['InstanceId'], '')}",
                r.params["InstanceId"],
                "replace",
                answer=OUTCOMES[r.outcome],
            )
            for r in self.proxy.requests
            if r.action == "SetInstanceHealth"
        ]

    def _said(self) -> Iterator[Said]:
        """The decisions in the agents' logs. A kubelet that forgets a container keeps its log."""
        for log in sorted((self.folder / "containers").glob("*/log")):
            who = self.actors.get(log.parent.name, "")
            for line in log.read_text(errors="replace").splitlines():
                if found := DECISION.match(line):
                    at = datetime.fromisoformat(found["at"]).astimezone().timestamp() - self.began
                    at += int(found["ms"]) / 1000
                    yield Said(at, who, found["node"], found["key"], found["sentence"])

    def keep(self, file: Path) -> list[Fact]:
        """The facts so far, which are in ``file`` then."""
        history = self.facts()
        file.parent.mkdir(exist_ok=True)
        file.write_text(facts.to_file(history))
        return history

    # ------------------------------------------------------------ machines

    def _beside(self, node: str) -> dict[str, str]:
        return {**super()._beside(node), "KUBERNETES_SERVICE_PORT": str(self.weather.port)}

    def register(self, node: str, machine: str, provider_id: str, labels: dict[str, str]) -> None:
        group, boot = self.groups[-1] if self.groups else "", self.boot_of(machine)
        self.note(facts.MACHINE_LAUNCHED, machine, group=group, boot=boot)
        self.note(facts.MACHINE_JOINED, machine, node=node, group=group, boot=boot)
        super().register(node, machine, provider_id, labels)
        self.alive[node] = (provider_id, labels)

    def boot_of(self, machine: str) -> str:
        return f"boot-of-{machine}"

    def well(self) -> list[str]:
        """The nodes of which an agent has said that they are healthy."""
        there = [n for n in list(self.alive) if n not in self.dark and self.kubelets.running(n)]
        return [n for n in there if "healthy" in self.log(n)]

    def breaks(self, node: str, code: str = "DMA_ERROR") -> None:
        about = {"type": "NeuronHealth", "reason": f"NeuronHasError_{code}"}
        self.note(facts.FAULT_BEGAN, self.instances[node], **about, cure=["replace"], treat=True)
        super().breaks(node, code)

    def power_off(self, node: str) -> None:
        self.dark.pop(node, None)
        if self.alive.pop(node, None) is not None:
            self.note(facts.MACHINE_GONE, self.instances[node], node=node, by="replace")
        super().power_off(node)

    # ------------------------------------------------------------ processes

    def actor(self, container: Container) -> str:
        return f"{'concluder' if 'concluder' in container.pod else 'agent'} on {container.node}"

    def of_process(self, container: Container) -> dict[str, Any]:
        return {"node": container.node}

    def note_process(self, container: Container, state: str) -> None:
        self.note(facts.PROCESS, self.actor(container), state=state, **self.of_process(container))

    def kill(self, container: Container) -> None:
        self.note_process(container, "killed")
        self.kubelets.kill(container)
        self.note_process(container, "started")
        self.done["kill -9"] += 1

    def stop_for(self, container: Container, seconds: float) -> None:
        """SIGSTOP; ``go_on`` continues it once its time is over."""
        process = container.process
        if process is None or not container.running or process.pid in self.stopped:
            return
        process.send_signal(signal.SIGSTOP)
        self.stopped[process.pid] = (container, time.monotonic() + seconds)
        self.note_process(container, "stopped")
        self.done["SIGSTOP"] += 1

    def go_on(self, *, everybody: bool = False) -> None:
        for pid, (container, until) in list(self.stopped.items()):
            if everybody or time.monotonic() >= until:
                del self.stopped[pid]
                if container.process is not None and container.process.pid == pid and container.running:
                    container.process.send_signal(signal.SIGCONT)
                    self.note_process(container, "resumed")

    # ------------------------------------------------------------ detectors

    def detector_dies(self, node: str, seconds: float) -> None:
        if node in self.dark:
            return
        self.note(facts.PAGE, node, state="unreadable")
        self.detectors.of(node).kill()
        self.dark[node] = time.monotonic() + seconds
        self.done["detector killed"] += 1

    def detectors_again(self, *, everybody: bool = False) -> None:
        for node, until in list(self.dark.items()):
            if everybody or time.monotonic() >= until:
                del self.dark[node]
                if node in self.alive:
                    self.detectors.of(node).start_again()
                    self.note(facts.DETECTOR_RESTARTED, node)
                    self.note(facts.PAGE, node, state="fresh")

    # ------------------------------------------------------------ the policy

    def with_policy(self, policy: str, budget: int) -> None:
        """Apply it. An agent has it from its next pod on, and until then the one before."""
        if not self.policy:
            self.note(facts.POLICY, "", **yaml.safe_load(policy))
        self.budget, self.policy = max(budget, self.budget), policy
        self.apply_policy()

    def apply_policy(self) -> None:
        self.install(self.policy, ENABLE_RECOVERY="true", LEASE_DURATION="5s")

    def new_pods(self) -> None:
        """Which policy each new pod has, and that its process has started."""
        for container in self.kubelets.all():
            if container.pod not in self._pods_seen:
                self._pods_seen.add(container.pod)
                self.actors[container.pod] = self.actor(container)
                mounted = next(container.folder.glob("root/**/policy.yaml"), None)
                self.note_process(container, "started")
                if mounted is not None:
                    self.note(facts.POLICY, self.actor(container), **yaml.safe_load(mounted.read_text()))

    # ------------------------------------------------------------ the store

    def save(self) -> None:
        """A snapshot of etcd: its files, while it stands still."""
        shutil.rmtree(self.plane.folder / "saved", ignore_errors=True)
        self.plane.freeze("etcd")
        try:
            shutil.copytree(self.plane.folder / "etcd", self.plane.folder / "saved")
        finally:
            self.plane.thaw("etcd")
        self._saved = self.now()

    def restore(self) -> None:
        """etcd as it was when it was saved. What watches is started again, as with any restore."""
        if self._saved < 0:
            return
        weather, self.weather.now = self.weather.now, WEATHERS["away"]
        for part in (*PARTS_AFTER, "kube-apiserver", "etcd"):
            self.plane.kill(part)
        shutil.rmtree(self.plane.folder / "etcd")
        shutil.copytree(self.plane.folder / "saved", self.plane.folder / "etcd")
        self.plane.start_again("etcd")
        self.plane.start_again("kube-apiserver")
        self.until("what was restored can be read", self._read_restored)
        self.note(facts.RESTORED, "etcd", to=self._saved)
        self.log_of_writes.restored(self.now(), self._restored)
        for part in PARTS_AFTER:
            self.plane.start_again(part)
        self.weather.now = weather
        self.reconcile()
        self.done["etcd restored"] += 1

    def _read_restored(self) -> bool:
        try:
            self._restored = lists(self.plane.get)
        except AssertionError:  # the storage is being initialised
            return False
        return True

    def reconcile(self) -> None:
        """What the cloud's node controller and the kubelets do: no Node without a machine, none left out."""
        there = {n["metadata"]["name"] for n in self.plane.get("/api/v1/nodes")["items"]} - {INFRA}
        for node in there - set(self.alive):
            delete_node(self.plane, node, self._stopping)
        for node in set(self.alive) - there:
            provider_id, labels = self.alive[node]
            machine = self.instances[node]
            register(self.plane, node, machine, provider_id, labels, self.boot_of(machine))

    # ------------------------------------------------------------ people

    def person(self, did: str, node: str) -> None:
        self.note(facts.PERSON, node, did=did)
        self.done[did] += 1

    def replaces_by_hand(self, node: str) -> None:
        """A person ends the machine of a node that was left to people."""
        self.person("a machine replaced by hand", node)
        client = self.aws.client("autoscaling")
        client.set_instance_health(InstanceId=self.instances[node], HealthStatus="Unhealthy")
        self.by_hand.add(self.instances[node])

    def marked(self) -> list[str]:
        return [*super().marked(), *self.by_hand]

    def fair(self) -> None:
        self.weather.now = FAIR


def figures(violations: list[Violation]) -> str:
    return json.dumps(Counter(f"{v.law}: {v.kind}" for v in violations), sort_keys=True)
