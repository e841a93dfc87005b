"""The controller (RECOVERY_MODE=fleet) beside the floor: speed, size, cost, requests, and a killed leader.

Real etcd and API server, and the shipped program with the rights and admission policies that
``deploy/fleet`` gives it. Nodes of 12 KB with fourteen conditions send their heartbeats all the time, each
every five minutes. The floor, a bare watch and PATCH, runs beside it in the same minutes, in turn.

    python bench/bench_fleet.py --nodes 50000      # 5,000 by default, in some ten minutes; FAST=1: 1,000

The rule is ``cordon`` only, so that no cloud is needed. The programs are those of ``make e2e-tools``. Run it
on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

import yaml
from bench_sidecar import cpu, size
from figures import Figure, percentile, report
from fleet_parts import FAULT, FAULT_REASON, FLOORS_FAULT, NODES, Api, Writers, fault, name, node, told
from launcher import bound_to_us, launch
from plane import Plane, free_port

FAST = os.environ.get("FAST") == "1"
FLEET = "node-recovery-fleet"
HEARTBEAT = 300.0
"""Seconds between two heartbeats of a Node."""
POLICY = """
apiVersion: noderecovery.dev/v1alpha1
kind: RecoveryPolicy
sources: [conditions]
limits: {budget: 200, brake: 100%, brakePer: {}, budgetPer: {}, cooldown: 0s}
rules:
  - name: bench
    match: {type: KernelDeadlock}
    remedy: [{do: cordon}]
"""
AUDIT = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata, userGroups: ["system:serviceaccounts"]}, {level: None}]
"""
CALM, TURN_AROUND = (15, 0.2) if FAST else (60, 0.3)
"""Seconds of the window in which all is well, and between two single faults."""
CONTROLLER, FLOOR = "the controller", "the floor"


def shipped(variable: str) -> dict[str, str]:
    """This variable of the controller's environment, as ``deploy/fleet`` sets it."""
    deployment = (ROOT / "deploy" / "fleet" / "deployment.yaml").read_text()
    found = next(x for x in yaml.safe_load_all(deployment) if x["kind"] == "Deployment")
    (container,) = found["spec"]["template"]["spec"]["containers"]
    return {x["name"]: x["value"] for x in container["env"] if x["name"] == variable}


class ServerOnly(Plane):
    """etcd and the API server. No controller that would mark Nodes whose kubelet does not exist."""

    def start(self) -> ServerOnly:
        import urllib3

        self._start("etcd")
        self._start("kube-apiserver")
        self.until("the API server has a certificate", self.certificate.exists, 60)
        self._pool = urllib3.PoolManager(ca_certs=str(self.certificate), maxsize=8)
        self.until("the API server is ready", self._ready, 60)
        return self

    def api(self, token: str) -> Api:
        return Api("127.0.0.1", self.port, str(self.certificate), token)

    def install(self) -> str:
        """What ``deploy/fleet`` is but for its pods. Returns a token of the controller's account."""
        self.kubectl("apply", "-k", str(ROOT / "deploy" / "fleet"))
        for crd in ("noderecoveries", "recoverygates", "recoveryreports"):
            self.kubectl(
                "wait", "--for=condition=Established", f"crd/{crd}.noderecovery.dev", "--timeout=30s"
            )
        account = f"/api/v1/namespaces/{FLEET}/serviceaccounts/{FLEET}/token"
        wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        answer = self.request("POST", account, body=wanted | {"spec": {"expirationSeconds": 86400}})
        assert answer.status == 201, answer.body
        return str(answer.body["status"]["token"])


class Stage:
    """All that runs. A context manager; every process ends with it."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self.folder = folder
        self.nodes = nodes
        audit = folder / "audit-policy.yaml"
        audit.write_text(AUDIT)
        more = {
            "etcd": ["--quota-backend-bytes=8589934592"],  # each heartbeat is a revision of 12 KB
            "kube-apiserver": [f"--audit-policy-file={audit}", "--audit-log-mode=batch"],
        }
        self.plane = ServerOnly(folder, more)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.cordoned: dict[str, float] = {}
        order = list(range(nodes))
        random.Random(1).shuffle(order)  # noqa: S311 - neighbours that fail one after the other have one cause
        self._fresh = iter(order)

    def __enter__(self) -> Stage:
        self.plane.__enter__()
        try:
            self.admin = self.plane.api("token-of-admin")
            self.writers = Writers(self.admin, 16)
            self._token = self.plane.install()
            self.writers.all([("POST", NODES, node(i), "") for i in range(self.nodes)])
            self.bytes = len(self.admin.request(self.admin.connection(), "GET", f"{NODES}/{name(0)}"))
            threading.Thread(target=self._see, daemon=True).start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for which in list(self.processes):
            self.kill(which)
        self.plane.stop()

    # ------------------------------------------------------------ processes

    def run(self, command: list[str], log: str, stdin: bytes = b"", **env: str) -> subprocess.Popen[bytes]:
        with (self.folder / log).open("ab") as out:
            process = launch(
                bound_to_us(command),
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                cwd=self.folder,
                env={"PATH": os.environ["PATH"], "HOME": str(self.folder), **env},
            )
        assert process.stdin is not None
        process.stdin.write(stdin)
        process.stdin.close()
        self.processes[log] = process
        return process

    def kill(self, which: str) -> None:
        """``kill -9``."""
        process = self.processes.pop(which)
        process.kill()
        process.wait()

    def part(self, which: str, **needs: Any) -> subprocess.Popen[bytes]:
        """The floor, or the heartbeats."""
        script = Path(__file__).with_name("fleet_parts.py")
        return self.run([sys.executable, str(script), which], which, told(self.admin, **needs))

    def heartbeats(self) -> int:
        """How many there were so far."""
        return int((self.folder / "heartbeats").read_bytes().split()[-1])

    def replica(self, which: str) -> tuple[subprocess.Popen[bytes], Callable[[], bool]]:
        """The shipped program, and whether it is ready."""
        kubeconfig = self.plane.kubeconfig("admin").read_text().replace("token-of-admin", self._token)
        (self.folder / "fleet.kubeconfig").write_text(kubeconfig)
        (self.folder / "policy.yaml").write_text(yaml.safe_dump(yaml.safe_load(POLICY)))
        port = free_port()
        # The image has no kubernetes_validate, which the client imports where it can.
        absent = self.folder / "absent"
        absent.mkdir(exist_ok=True)
        (absent / "kubernetes_validate.py").write_text("raise ImportError\n")
        process = self.run(
            [str(Path(sys.executable).with_name("node-recovery")), "run"],
            which,
            **shipped("MALLOC_TRIM_THRESHOLD_"),
            PYTHONPATH=f"{absent}:{ROOT}",
            ENABLE_RECOVERY="true",
            RECOVERY_MODE="fleet",
            PROVIDER="baremetal",
            POD_NAMESPACE=FLEET,
            POLICY_FILE=str(self.folder / "policy.yaml"),
            KUBECONFIG=str(self.folder / "fleet.kubeconfig"),
            METRICS_ADDRESS=f"127.0.0.1:{port}",
        )

        def ready() -> bool:
            try:
                with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
                    return bool(answer.status == 200)
            except OSError:
                return False

        return process, ready

    def log(self, which: str) -> str:
        return (self.folder / which).read_text(errors="replace")

    # ------------------------------------------------------------ faults

    def _see(self) -> None:
        """Notes when each Node is seen to be cordoned. The server picks those out, so little is read."""
        path = (
            f"{NODES}?watch=true&fieldSelector=spec.unschedulable%3Dtrue"  # anew, it begins with all of them
        )
        with contextlib.suppress(OSError, HTTPException):  # the server is stopped at the end
            while True:
                for line in self.admin.lines(path):
                    at, obj = time.monotonic(), json.loads(line)["object"]
                    self.cordoned.setdefault(obj["metadata"]["name"], at)

    def until(self, what: str, true: Callable[[], bool], seconds: float) -> None:
        end = time.monotonic() + seconds
        while not true():
            ended = [log for log, process in self.processes.items() if process.poll() is not None]
            if ended or time.monotonic() > end:
                logs = "\n".join(f"--- {log}\n{self.log(log)[-2000:]}" for log in ended or self.processes)
                raise AssertionError(f"not within {seconds:g} s: {what}; ended: {ended}\n{logs}")
            time.sleep(0.005)

    def one(self, who: str) -> float:
        """Seconds from a condition that the API server has taken to the cordon that was seen."""
        sick = name(next(self._fresh))
        body, kind = fault(FAULT if who is CONTROLLER else FLOORS_FAULT)
        self.writers.write("PATCH", f"{NODES}/{sick}/status", body, kind)
        began = time.monotonic()
        self.until(f"{sick} is cordoned by {who}", lambda: sick in self.cordoned, 60)
        time.sleep(TURN_AROUND)
        return self.cordoned[sick] - began

    def many(self, who: str, how_many: int) -> float:
        """Seconds from the first of so many faults, written as fast as they go, to the last cordon."""
        sick = [name(next(self._fresh)) for _ in range(how_many)]
        body, kind = fault(FAULT if who is CONTROLLER else FLOORS_FAULT)
        began = time.monotonic()
        self.writers.all([("PATCH", f"{NODES}/{x}/status", body, kind) for x in sick])
        self.until(f"{how_many} are cordoned by {who}", lambda: all(x in self.cordoned for x in sick), 900)
        return max(self.cordoned[x] for x in sick) - began

    def approve(self) -> None:
        """What all of these faults share is no reason to hold them: they come from here."""
        command = [str(Path(sys.executable).with_name("node-recovery")), "approve", FAULT_REASON]
        env = {"PATH": os.environ["PATH"], "KUBECONFIG": str(self.plane.kubeconfig("admin"))}
        subprocess.run([*command, "--for", "12h"], check=True, env=env, capture_output=True)  # noqa: S603

    def requests(self) -> Counter[str]:
        """What the controller's account has asked for so far: verb and resource."""
        asked: Counter[str] = Counter()
        if self.plane.audit_log.exists():
            with self.plane.audit_log.open() as lines:
                for line in lines:
                    entry = json.loads(line)
                    if FLEET in entry["user"]["username"] and entry["verb"] != "watch":
                        asked[f"{entry['verb']} {(entry.get('objectRef') or {}).get('resource', '?')}"] += 1
        return asked


# ---------------------------------------------------------------- measuring


def beside(what: str, ours: float, floors: float, unit: str, goal: float) -> Figure:
    """How many times the floor."""
    peer = f"{ours:.4g} {unit}, the floor {floors:.4g} {unit}"
    return Figure(what, ours / floors, "x floor", goal, peer=peer)


def calm(stage: Stage, controller: int, floor: int) -> list[Figure]:
    """All is well, with and without heartbeats."""
    time.sleep(10)
    beats, used, floors, asked = stage.heartbeats(), cpu(controller), cpu(floor), stage.requests()
    time.sleep(CALM)
    beats, used, floors = stage.heartbeats() - beats, cpu(controller) - used, cpu(floor) - floors
    asked = stage.requests() - asked
    stage.kill("heartbeats")
    time.sleep(1)
    without = cpu(controller)
    time.sleep(CALM)
    without = cpu(controller) - without
    stage.part("heartbeats", nodes=stage.nodes, rate=stage.nodes / HEARTBEAT)
    told = ", ".join(f"{n} {what}" for what, n in asked.most_common())
    per = 1000 / beats
    return [
        Figure("heartbeats a second", beats / CALM, "1/s"),
        Figure("CPU for each heartbeat", (used - without) * per, "ms", 0.3, peer=f"floor {floors * per:.2g}"),
        Figure("CPU when all is well, all in all", used / CALM * 1000, "millicores"),
        Figure("requests when all is well", sum(asked.values()) / CALM * 60, "1/min", peer=told),
    ]


def warmed(stage: Stage) -> list[Figure]:
    """The first fault of all makes the gate."""
    took = stage.one(CONTROLLER)
    stage.one(FLOOR)
    stage.approve()
    return [Figure("condition -> cordon, the very first", took, "s")]


def singles(stage: Stage, runs: int, each: int) -> list[Figure]:
    took: dict[str, list[float]] = {CONTROLLER: [], FLOOR: []}
    for _ in range(runs):
        for who, found in took.items():
            found += [stage.one(who) * 1000 for _ in range(each)]
    ours, floors = took[CONTROLLER], took[FLOOR]
    what = f"condition -> cordon, {runs} x {each} times"
    return [
        beside(f"{what}, p50", statistics.median(ours), statistics.median(floors), "ms", 2.5),
        beside(f"{what}, p99", percentile(ours, 0.99), percentile(floors, 0.99), "ms", 2.5),
    ]


def bursts(stage: Stage, runs: int, how_many: int) -> list[Figure]:
    took: dict[str, list[float]] = {CONTROLLER: [], FLOOR: []}
    for run in range(runs):
        for who in (FLOOR, CONTROLLER) if run % 2 else (CONTROLLER, FLOOR):
            took[who].append(stage.many(who, how_many))
            print(f"   {how_many} at once, {who}: {took[who][-1]:.1f} s", flush=True)
    ours, floors = (statistics.median(took[who]) for who in (CONTROLLER, FLOOR))
    return [beside(f"{how_many} at once, median of {runs}", ours, floors, "s", 1.25)]


def killed(stage: Stage) -> list[Figure]:
    _, ready = stage.replica("second")
    stage.until("the second replica is ready", ready, 300)
    stage.kill("controller")
    return [Figure("leader killed with -9, the other cordons", stage.one(CONTROLLER), "s", 20)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nodes", type=int, default=1000 if FAST else 5000)
    parser.add_argument("--runs", type=int, default=2 if FAST else 5)
    parser.add_argument("--singles", type=int, default=5 if FAST else 20, help="faults one by one, a run")
    parser.add_argument(
        "--burst", type=int, help="faults at once; by default a twentieth of all nodes, at most 1000; 0: none"
    )
    asked = parser.parse_args()
    burst = min(1000, asked.nodes // 20) if asked.burst is None else asked.burst
    with tempfile.TemporaryDirectory() as folder, Stage(Path(folder), asked.nodes) as stage:
        print(
            f"   {asked.nodes} Nodes of {stage.bytes / 1000:.1f} KB; load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
        stage.part("heartbeats", nodes=asked.nodes, rate=asked.nodes / HEARTBEAT)
        floor = stage.part("floor")
        stage.until("the floor has listed all Nodes", lambda: bool(stage.log("floor").strip()), 300)
        floor_synced = float(stage.log("floor"))
        began = time.monotonic()
        leader, ready = stage.replica("controller")
        stage.until("the controller is in sync", ready, 300)
        synced = time.monotonic() - began
        stage.until("it leads", lambda: "this replica leads" in stage.log("controller"), 60)
        figures = [
            Figure(
                "start-up until in sync", synced, "s", 15, peer=f"a list by the floor {floor_synced:.1f} s"
            ),
            *calm(stage, leader.pid, floor.pid),
            Figure("RSS when all is well", size(leader.pid, "VmRSS"), "MiB", 150),
            *warmed(stage),
            *singles(stage, asked.runs, asked.singles),
            *(bursts(stage, asked.runs, burst) if burst else []),
            Figure("RSS, peak of all", size(leader.pid, "VmHWM"), "MiB", 150),
            *killed(stage),
        ]
        peer = f"the floor {size(floor.pid, 'VmHWM'):.0f} MiB"
        figures = [
            Figure(**{**vars(x), "peer": peer}) if x.name.startswith("RSS, peak") else x for x in figures
        ]
        return report(figures)


if __name__ == "__main__":
    sys.exit(main())
