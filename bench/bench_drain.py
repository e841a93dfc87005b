"""Fifty nodes with 1,000 pods, drained by their agents, by ``kubectl drain`` and by a bare loop of evictions.

Real etcd, API server, controllers, scheduler and KWOK; the shipped program, its fifty agents in a few
processes. The pods belong to ten ReplicaSets. They stand on one half of the nodes and come back on the other,
so that each drain finds what the one before found: as many pods, on as many nodes, with the same way back.
All of them have the same credentials. Who was disrupted is read from a watch, who asked from the audit log.

It takes twenty minutes; FAST=1 (10 nodes, 100 pods) four minutes. The programs are those of
``make e2e-tools``. Run it on an otherwise idle machine.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

import urllib3
from bench_sidecar import cpu
from figures import Figure, report
from history import Audit
from launcher import bound_to_us
from plane import Plane
from real import DMA_ERROR, Pages
from toolbox import Missing, program

from recovery.agent.program import Program
from recovery.clock import SystemClock
from recovery.config.settings import load_settings
from recovery.model import CORDONED_BY

FAST = os.environ.get("FAST") == "1"
NODES, PODS = (10, 100) if FAST else (50, 1000)
WORKLOADS = 10
EACH = PODS // WORKLOADS
MOST_OUT = EACH // 10
"""How many pods of a workload its disruption budget lets be out at once."""
PROCESSES = 5
"""For all agents. One each, as on nodes, would take a second of CPU each to start, on this one machine."""
HALVES = ("a", "b")
GOAL = 3.0
Json = dict[str, Any]

REPLICA_SETS = "/apis/apps/v1/namespaces/default/replicasets"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
OURS = "/apis/noderecovery.dev/v1alpha1"
MERGE = "application/merge-patch+json"
SCHEDULER = ["--kube-api-qps=200", "--kube-api-burst=400"]
"""Its default binds 50 pods a second at most."""
KWOK = """
apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options: {podPlayStageParallelism: 64, nodePlayStageParallelism: 4, nodeLeaseParallelism: 4}
"""
"""By default four pods at a time come and go, in all: here that is as if fifty kubelets shared four hands."""
POLICY = """
apiVersion: noderecovery.dev/v1alpha1
kind: RecoveryPolicy
limits:
  budget: 50
  budgetPer: {}
  brake: 100%
  brakePer: {}
  cooldown: 0s
  attempts: {max: 1000, within: 1h}
rules:
  - name: neuron
    match: {type: NeuronHealth, reason: "NeuronHasError_*_ERROR"}
    remedy: [{do: drain, within: 30m, then: handOver}]
"""


# ---------------------------------------------------------------- the cluster


class PowerSensor:
    """Sees every change of every pod, in the order in which the store took them."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._pods: dict[str, tuple[str, str, bool]] = {}  # uid -> workload, half, whether it serves
        self._serving: Counter[str] = Counter()
        self._on: Counter[str] = Counter()
        self.most_out = 0
        self.emptied: dict[str, float] = {}
        self.blind = ""

    def start(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        """A watch that the server ends, as it was read too slowly, goes on where it ended."""
        try:
            version = self._plane.get("/api/v1/pods")["metadata"]["resourceVersion"]
            while True:
                query = {"watch": "1", "resourceVersion": version}
                for event in self._plane.watch("/api/v1/pods", query):
                    assert event["type"] != "ERROR", event["object"].get("message")
                    version = event["object"]["metadata"]["resourceVersion"]
                    self._see(event["type"], event["object"])
        except Exception as error:
            self.blind = f"nothing is known any more of what was disrupted: {error!r}"

    def _see(self, kind: str, pod: Json) -> None:
        uid, workload = pod["metadata"]["uid"], pod["metadata"]["labels"]["workload"]
        if (old := self._pods.pop(uid, None)) is not None:
            self._on[old[1]] -= 1
            self._serving[workload] -= old[2]
        if kind != "DELETED":
            half = pod["spec"].get("nodeName", "").partition("-")[0]
            self._pods[uid] = (workload, half, serves(pod))
            self._on[half] += 1
            self._serving[workload] += serves(pod)
        self.most_out = max(self.most_out, EACH - self._serving[workload])
        if old is not None and self._on[old[1]] == 0:
            self.emptied[old[1]] = time.time()

    def all_serve_on(self, half: str) -> bool:
        return self._on[half] == len(self._pods) == PODS == self._serving.total()

    def begin(self) -> None:
        """Forget what was out until now: all pods serve."""
        self.most_out = 0
        self.emptied.clear()


def serves(pod: Json) -> bool:
    """As the disruption controller counts it: Ready, and not on its way out."""
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))
    return ready and "deletionTimestamp" not in pod["metadata"]


class Stage:
    """Two halves of nodes, and the workloads on one of them (``here``)."""

    def __init__(self, plane: Plane, folder: Path) -> None:
        self.plane = plane
        self.folder = folder
        self.here, self.there = HALVES
        self.audit = Audit(plane.audit_log, "")
        self.witness = PowerSensor(plane)
        plane.apply(ROOT / "deploy" / "crds")
        for number, node in enumerate(n for half in HALVES for n in nodes_of(half)):
            self.write("POST", "/api/v1/nodes", node_body(node, number))
        self.witness.start()
        for workload in workloads():
            self.write("POST", REPLICA_SETS, replica_set(workload, self.here))
        self._settle()

    def write(self, method: str, path: str, body: Any = None, content_type: str | None = None) -> None:
        answer = self.plane.request(method, path, body=body, content_type=content_type)
        assert answer.status in (200, 201, 404), f"{method} {path}: {answer.status} {answer.body}"

    def until(self, what: str, true: Any, seconds: float = 900) -> None:
        def seen() -> bool:
            assert not self.witness.blind, self.witness.blind
            return bool(true())

        self.plane.until(what, seen, seconds)

    def budgets(self) -> None:
        """From now on each workload has a budget of disruption."""
        for workload in workloads():
            self.write("POST", BUDGETS, budget(workload))
        self._settle()

    def way_out(self) -> None:
        """Pods that are made from now on go to the other half."""
        for workload in workloads():
            patch = {"spec": {"template": {"spec": {"nodeSelector": {"bench": self.there}}}}}
            self.write("PATCH", f"{REPLICA_SETS}/{workload}", patch, MERGE)
        self.until("the controller knows where pods go", self._observed)

    def _observed(self) -> bool:
        sets = self.plane.get(REPLICA_SETS)["items"]
        return all(x["status"].get("observedGeneration") == x["metadata"]["generation"] for x in sets)

    def turn_round(self) -> None:
        """What was drained is as new, and the pods are on the other half."""
        self.here, self.there = self.there, self.here
        for path in (f"{OURS}/noderecoveries", f"{OURS}/recoverygates", LEASES):
            self.write("DELETE", path)
        fresh = {"metadata": {"annotations": {CORDONED_BY: None}}}
        for node in nodes_of(self.there):
            patch = {**fresh, "spec": {"unschedulable": None, "taints": None}}
            self.write("PATCH", f"/api/v1/nodes/{node}", patch, MERGE)
        self._settle()

    def _settle(self) -> None:
        self.until("all pods serve", lambda: self.witness.all_serve_on(self.here), 300)
        self.until("the budgets are counted", self._counted)

    def _counted(self) -> bool:
        budgets = self.plane.get(BUDGETS)["items"]
        return all(x.get("status", {}).get("disruptionsAllowed") == MOST_OUT for x in budgets)


def nodes_of(half: str) -> list[str]:
    return [f"{half}-{number:02}" for number in range(NODES)]


def workloads() -> list[str]:
    return [f"workload-{number}" for number in range(WORKLOADS)]


def node_body(name: str, number: int) -> Json:
    labels = {"bench": name.partition("-")[0], "kubernetes.io/hostname": name}
    info = {"bootID": f"boot-{number}", "systemUUID": f"00000000-0000-4000-8000-{number + 1:012}"}
    names = ("machineID", "kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion")
    more = ("kubeProxyVersion", "operatingSystem", "architecture")
    return {
        "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "status": {
            "nodeInfo": {**dict.fromkeys((*names, *more), ""), **info},
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        },
    }


def replica_set(name: str, half: str) -> Json:
    """As many pods on each node; one that is evicted comes back where the template says then."""
    labels = {"workload": name}
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": labels},
    }
    spec = {
        "containers": [{"name": "worker", "image": "worker"}],
        "nodeSelector": {"bench": half},
        "topologySpreadConstraints": [spread],
    }
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "metadata": {"name": name},
        "spec": {"replicas": EACH, "selector": {"matchLabels": labels}, "template": template},
    }


def budget(name: str) -> Json:
    selector = {"matchLabels": {"workload": name}}
    return {"metadata": {"name": name}, "spec": {"maxUnavailable": MOST_OUT, "selector": selector}}


# ---------------------------------------------------------------- who drains


class Contender(Protocol):
    """Drains the half that it was made for. ``agent``: how its requests name themselves."""

    agent: str

    def __enter__(self) -> Contender: ...
    def begin(self) -> None: ...
    def cpu(self) -> float: ...
    def finish(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


class Agents:
    """The shipped program, an agent for each node."""

    agent = "node-recovery"

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._nodes = nodes_of(stage.here)
        self._pages = Pages()
        self._running: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Agents:
        folder = self._stage.folder
        (folder / "policy.yaml").write_text(POLICY)
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "KUBECONFIG": str(self._stage.plane.kubeconfig("admin")),
            "ENABLE_RECOVERY": "true",
            "PROVIDER": "baremetal",
            "POLICY_FILE": str(folder / "policy.yaml"),
        }
        for number in range(PROCESSES):
            told = [f"{node}={self._pages.url(node)}" for node in self._nodes[number::PROCESSES]]
            with (folder / f"agents-{number}.log").open("a") as log:
                self._running.append(
                    subprocess.Popen(  # noqa: S603
                        bound_to_us([sys.executable, __file__, *told]),
                        env=environ,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=log,
                        text=True,
                    )
                )
        for process in self._running:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", f"agents did not start, see {folder}"
        return self

    def begin(self) -> None:
        for node in self._nodes:
            self._pages.bodies[node] = DMA_ERROR

    def cpu(self) -> float:
        return sum(cpu(process.pid) for process in self._running)

    def finish(self) -> None:
        """Each of them knows that its node is empty."""

        def over() -> bool:
            records = self._stage.plane.get(f"{OURS}/noderecoveries")["items"]
            return [x["status"]["phase"] for x in records] == ["handedOver"] * NODES

        self._stage.until("all records are closed", over)

    def __exit__(self, *_: object) -> None:
        for process in self._running:
            process.communicate()  # its input ends
        self._pages.stop()


class Kubectl:
    """``kubectl drain``: one for all nodes, or one for each node at the same time (``apart``).

    One that gives up is called again: it does when an eviction is not answered in time.
    """

    agent = "kubectl"

    def __init__(self, stage: Stage, *, apart: bool = False) -> None:
        self._stage = stage
        self._which = [[node] for node in nodes_of(stage.here)] if apart else [["-l", f"bench={stage.here}"]]
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Kubectl:
        self._used = children()
        return self

    def begin(self) -> None:
        drain = [str(program("kubectl")), "drain", "--ignore-daemonsets", "--force", "--delete-emptydir-data"]
        kubeconfig = str(self._stage.plane.kubeconfig("admin"))
        environ = {"PATH": os.environ["PATH"], "HOME": str(self._stage.folder), "KUBECONFIG": kubeconfig}
        with (self._stage.folder / "kubectl.log").open("ab") as log:
            for which in self._which:
                command = bound_to_us(["sh", "-c", 'until "$@"; do sleep 1; done', "sh", *drain, *which])
                self._running.append(subprocess.Popen(command, env=environ, stdout=log, stderr=log))  # noqa: S603

    def finish(self) -> None:
        for process in self._running:
            process.wait()

    def cpu(self) -> float:
        """What those that have ended used."""
        return children() - self._used

    def __exit__(self, *_: object) -> None:
        for process in self._running:
            process.kill()
            process.wait()


def children() -> float:
    used = os.times()
    return used.children_user + used.children_system


class BareLoop:
    """Every pod asked for once, by what does nothing else: as fast as this API server evicts."""

    agent = "floor"

    def __init__(self, stage: Stage, threads: int = 8) -> None:
        self._stage = stage
        self._threads = threads

    def __enter__(self) -> BareLoop:
        pods = self._stage.plane.get("/api/v1/pods")["items"]
        self._names = [pod["metadata"]["name"] for pod in pods]
        return self

    def begin(self) -> None:
        for number in range(self._threads):
            names = self._names[number :: self._threads]
            threading.Thread(target=self._evict, args=(names,), daemon=True).start()

    def _evict(self, names: list[str]) -> None:
        plane = self._stage.plane
        with urllib3.PoolManager(ca_certs=str(plane.certificate)) as pool:
            headers = {"Authorization": "Bearer token-of-admin", "User-Agent": self.agent}
            for name in names:
                body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
                url = f"{plane.url}/api/v1/namespaces/default/pods/{name}/eviction"
                pool.request("POST", url, json=body, headers=headers, retries=False)

    def finish(self) -> None:
        return

    def cpu(self) -> float:
        return 0.0

    def __exit__(self, *_: object) -> None:
        return


# ---------------------------------------------------------------- measuring


@dataclass(frozen=True)
class Run:
    """One drain of a half. Moments are in seconds since the epoch."""

    begun: float  # the faults are shown, or the command is started
    first: float  # the first cordon; where nothing is cordoned, the first eviction
    empty: float  # the last pod is gone
    answers: Counter[int]  # evictions, by status
    most_out: int
    cpu: float

    @property
    def rate(self) -> float:
        return PODS / (self.empty - self.first)

    @property
    def wall(self) -> float:
        return self.empty - self.begun

    def __str__(self) -> str:
        answers = ", ".join(f"{count} times {status}" for status, count in sorted(self.answers.items()))
        return (
            f"{self.empty - self.begun:.1f} s from the start, {self.empty - self.first:.1f} s from the first "
            f"cordon; evictions: {answers}; CPU {self.cpu:.1f} s; at most {self.most_out} of a workload out"
        )


def measure(stage: Stage, contender: Contender) -> Run:
    stage.way_out()
    with contender:
        stage.audit.mark()
        stage.witness.begin()
        used, begun = contender.cpu(), time.time()
        contender.begin()
        stage.until("the half is empty", lambda: stage.here in stage.witness.emptied)
        contender.finish()
        used = contender.cpu() - used
    asked = [r for r in stage.audit.requests() if r.agent.startswith(contender.agent)]
    evictions = [r for r in asked if r.resource == "pods/eviction" and "dryRun" not in r.query]
    cordons = [r for r in asked if r.resource == "nodes" and r.verb == "patch"]
    run = Run(
        begun,
        min(r.time for r in cordons or evictions).timestamp(),
        stage.witness.emptied[stage.here],
        Counter(r.status for r in evictions),
        stage.witness.most_out,
        used,
    )
    stage.turn_round()
    return run


def measured(stage: Stage) -> list[Figure]:
    """Without budgets of disruption, then with them: ours before and after kubectl's; the worse counts."""
    floor = told("bare loop, no budgets", measure(stage, BareLoop(stage)))
    free = told("agents, no budgets", measure(stage, Agents(stage)))
    free_kubectl = told("kubectl, no budgets", measure(stage, Kubectl(stage)))
    stage.budgets()
    first = told("agents", measure(stage, Agents(stage)))
    theirs = told("kubectl", measure(stage, Kubectl(stage)))
    second = told("agents", measure(stage, Agents(stage)))
    apart = told("kubectl for each node", measure(stage, Kubectl(stage, apart=True)))
    ours = min(first, second, key=lambda r: r.rate)
    most = max(run.most_out for run in (first, second, theirs, apart))
    return figures(floor, free, free_kubectl, ours, theirs, apart, most)


def figures(
    floor: Run, free: Run, free_kubectl: Run, ours: Run, theirs: Run, apart: Run, most: int
) -> list[Figure]:
    what = f"{PODS} pods, {NODES} nodes"
    return [
        Figure(f"{what}, no budgets: bare loop", floor.rate, "pods/s"),
        Figure(
            f"{what}, no budgets: agents", free.rate, "pods/s", peer=f"{free.rate / floor.rate:.2f} of it"
        ),
        Figure(f"{what}, no budgets: kubectl drain", free_kubectl.rate, "pods/s"),
        Figure("no budgets: most of a workload out at once", max(free.most_out, floor.most_out), "pods"),
        Figure(f"{what}: agents, from the first cordon", ours.rate, "pods/s"),
        Figure(f"{what}: kubectl drain, the same", theirs.rate, "pods/s"),
        Figure(f"{what}: kubectl drain for each node at once", apart.rate, "pods/s"),
        Figure(f"{what}: agents, from the faults", ours.wall, "s"),
        Figure(f"{what}: kubectl drain, from its start", theirs.wall, "s"),
        Figure("agents' rate to kubectl drain's", ours.rate / theirs.rate, "times", peer=f"goal: {GOAL:g}"),
        Figure("most of a workload out at once", most, "pods", MOST_OUT),
    ]


def told(who: str, run: Run) -> Run:
    print(f"{who}: {run.rate:.1f} pods/s; {run}", flush=True)
    return run


def agents(told: list[str]) -> int:
    """The process of some agents, given as NODE=URL of its detector's page. It ends with its input."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    programs = []
    for node, _, url in (each.partition("=") for each in told):
        environ = {**os.environ, "NODE_NAME": node, "NPD_METRICS_URL": url}
        programs.append(Program(load_settings(environ), environ, SystemClock()))
    threads = [threading.Thread(target=each.run) for each in programs]
    for thread in threads:
        thread.start()
    while any(each.ready() for each in programs):
        time.sleep(0.05)
    print("ready", flush=True)
    sys.stdin.read()
    for each in programs:
        each.stop()
    for thread in threads:
        thread.join()
    return 0


def main() -> int:
    try:
        program("kubectl")
    except Missing as error:
        print(error, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "kwok.yaml").write_text(KWOK)
        more = {"kwok": [f"--config={folder / 'kwok.yaml'}"], "kube-scheduler": SCHEDULER}
        with Plane(folder, more) as plane:
            return report(measured(Stage(plane, folder)))


if __name__ == "__main__":
    sys.exit(agents(sys.argv[1:]) if sys.argv[1:] else main())
