"""All that runs in the demo: processes, the proxy in front of AWS, watches. One queue has all they see."""

from __future__ import annotations

import json
import os
import queue
import select
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from recovery_testkit.crds import crd_files
from recovery_testkit.proxy import CountingProxy

from recovery_demo import fleet_manifests, group, manifests, processes, seen
from recovery_demo.kubeapi import KubeApi
from recovery_demo.seen import Seen

FLEET = "fleet"
"""The story that is told of a fleet: on AWS, with one controller."""
OBSERVE = "observe"
"""The story with recovery off, on AWS."""
IN_MOTO = ("aws", "aws-gpu", OBSERVE, FLEET)
"""The stories in which the cloud's SDK talks to moto."""
COMMON = ("ClusterName", "Provider")  # dimensions that every metric has
STARTED_WITHIN = 60.0  # seconds, on a slow machine


class Broken(Exception):
    """The story cannot go on. ``log`` names the file that may say why."""

    def __init__(self, sentence: str, *logs: str) -> None:
        super().__init__(sentence)
        self.logs = logs


@dataclass(frozen=True)
class Pace:
    """How long things take. The product's defaults: Lease 60 s, probation 2 min."""

    lease: str
    probation: str
    pause: float  # seconds to look around before the first fault
    after: str = "1m"
    """For how long a fault is tolerated, in the stories whose policy says ``after``."""
    nodes: int = 4


@dataclass
class Sandbox:
    """Started by ``start``, ended by ``close``, which leaves nothing behind, whatever happened in between."""

    cloud: str
    pace: Pace
    began: float
    memory: Path | None = None
    """A folder on a tmpfs, for stories whose machines need one."""
    _folder: processes.Folder = field(default_factory=processes.Folder)
    _on_tmpfs: processes.Folder | None = None
    proxy: CountingProxy | None = None
    _servers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _simulator: subprocess.Popen[bytes] | None = None
    _queue: queue.SimpleQueue[Seen] = field(default_factory=queue.SimpleQueue)
    _calls: int = 0

    @property
    def now(self) -> float:
        """Seconds since the start of the demo."""
        return time.monotonic() - self.began

    @property
    def folder(self) -> Path:
        return self._folder.path

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def policy(self) -> Path:
        return self.folder / "policy.yaml"

    def log(self, name: str) -> Path:
        return self.folder / "logs" / f"{name}.log"

    # ------------------------------------------------------------ start

    def start(self) -> None:
        (self.folder / "logs").mkdir()
        self.policy.write_text(self._policy(), encoding="utf-8")
        kubernetes = self._server("kubernetes-api", *self._kubernetes())
        aws = self._server("aws", "recovery_demo.aws_server") if self.cloud in IN_MOTO else None
        self.api = KubeApi(self._address("kubernetes-api", kubernetes), "demo")
        self.aws = self._address("aws", aws) if aws else ""
        if self.aws:
            host, _, port = self.aws.removeprefix("http://").partition(":")
            self.proxy = CountingProxy((host, int(port))).start()
        for path in seen.WATCHED:
            threading.Thread(target=self._watch, args=(path,), name=path, daemon=True).start()
        self._start_simulator()

    def _policy(self) -> str:
        if self.cloud == FLEET:
            return fleet_manifests.policy(self.pace.probation)
        return manifests.policy(
            "aws" if self.cloud == OBSERVE else self.cloud, self.pace.probation, self.pace.after
        )

    def _kubernetes(self) -> list[str]:
        arguments = ["recovery_testkit.kubernetes", "--kubeconfig", str(self.kubeconfig)]
        for file in crd_files():
            arguments += ["--load", str(file)]
        return arguments

    def _server(self, name: str, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        process = processes.start(
            [sys.executable, "-m", module, *arguments],
            environment=processes.own_environment(self.folder),
            log=self.log(name),
            pipes=True,
        )
        self._servers.append(process)
        return process

    def _address(self, name: str, process: subprocess.Popen[bytes]) -> str:
        """The address that a server prints first."""
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], STARTED_WITHIN)
        line = process.stdout.readline().decode().strip() if readable else ""
        if not line.startswith("http://"):
            raise Broken(f"the process {name} did not start", name)
        return line

    def _start_simulator(self) -> None:
        arguments = {
            "--cloud": self.cloud,
            "--nodes": str(self.pace.nodes),
            "--kubernetes": self.api.url,
            "--kubeconfig": str(self.kubeconfig),
            "--policy": str(self.policy),
            "--lease": self.pace.lease,
            "--folder": str(self.folder),
            "--aws": self.aws,
            "--sidecar-aws": self.proxy.url if self.proxy else "",
        }
        if self.memory is not None:
            self._on_tmpfs = processes.Folder(self.memory)
            arguments["--memory"] = str(self._on_tmpfs.path)
        self._simulator = processes.start(
            [sys.executable, "-m", "recovery_demo.simulator", *(x for p in arguments.items() for x in p)],
            environment=processes.own_environment(self.folder),
            log=self.log("simulator"),
            pipes=True,
        )
        threading.Thread(target=self._listen, args=(self._simulator,), daemon=True).start()

    # ------------------------------------------------------------ what is seen

    def _watch(self, path: str) -> None:
        for event in self.api.watch(path):
            gone = event["type"] == "DELETED"
            self._queue.put(Seen(self.now, path, event["object"], gone))

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._queue.put(Seen(self.now, seen.SIMULATOR, json.loads(line)))

    def next(self, seconds: float) -> Seen | None:
        """What was seen next, or None after ``seconds``. Raises ``Broken`` if a process has ended."""
        self._look_at_calls()
        try:
            return self._queue.get(timeout=seconds)
        except queue.Empty:
            self._look_at_processes()
            return None

    def _look_at_calls(self) -> None:
        """Changing calls that reached AWS since the last look."""
        if self.proxy is None:
            return
        requests = self.proxy.requests
        for request in requests[self._calls :]:
            if request.service in ("autoscaling", "ec2") and not request.action.startswith("Describe"):
                instance = request.params.get("InstanceId") or request.params.get("InstanceId.1") or ""
                what = {"action": request.action, "instance": instance}
                self._queue.put(Seen(self.now, seen.AWS, what))
                if request.action == "RebootInstances":
                    self.order(reboot=instance)  # moto reboots nothing
        self._calls = len(requests)

    def _look_at_processes(self) -> None:
        if self._simulator is not None and self._simulator.poll() is not None:
            raise Broken(f"the simulator ended with exit code {self._simulator.returncode}", "simulator")
        for process in self._servers:
            if process.poll() is not None:
                raise Broken(f"a server ended with exit code {process.returncode}", "kubernetes-api", "aws")

    # ------------------------------------------------------------ what is done

    def fault(self, node: str, page: str) -> None:
        """From now on the detector of ``node`` shows ``page``."""
        self.order(fault=node, page=page)

    def command(self, *words: str) -> subprocess.Popen[bytes]:
        """``node-recovery`` with these words, as a person runs it. What it prints goes to a log."""
        return processes.start(
            [sys.executable, "-m", "recovery", *words],
            environment={**processes.own_environment(self.folder), "KUBECONFIG": str(self.kubeconfig)},
            log=self.log(f"node-recovery-{words[0]}"),
        )

    def order(self, **command: str | list[str]) -> None:
        """Have the simulator do something: what it takes depends on the story."""
        assert self._simulator is not None
        assert self._simulator.stdin is not None
        self._simulator.stdin.write(json.dumps(command).encode() + b"\n")
        self._simulator.stdin.flush()

    def metrics(self, namespace: str) -> dict[str, float]:
        """What CloudWatch has stored: fault -> its value; action and what came of it -> how often."""
        from datetime import UTC, datetime, timedelta

        cloudwatch = group.client("cloudwatch", self.aws)
        now = datetime.now(UTC)
        found: dict[str, float] = {}
        for metric in cloudwatch.list_metrics(Namespace=namespace)["Metrics"]:
            dimensions = [d["Value"] for d in metric["Dimensions"] if d["Name"] not in COMMON]
            answer = cloudwatch.get_metric_statistics(
                Namespace=namespace,
                MetricName=metric["MetricName"],
                Dimensions=metric["Dimensions"],
                StartTime=now - timedelta(minutes=15),
                EndTime=now + timedelta(minutes=1),
                Period=60,
                Statistics=["Sum", "Maximum"],
            )
            points = answer["Datapoints"]
            name = str(metric["MetricName"])
            if metric["Dimensions"]:
                found[f"{name}({', '.join(dimensions)})"] = sum(p["Sum"] for p in points)
            else:
                found[name] = max((p["Maximum"] for p in points), default=0.0)
        return found

    # ------------------------------------------------------------ end

    def close(self) -> None:
        """Sidecars and simulator first, then the servers, then the folders."""
        if self._simulator is not None:
            processes.stop([self._simulator])
        if self.proxy is not None:
            self.proxy.stop()
        processes.stop(self._servers, patience=1.0)
        if self._on_tmpfs is not None:
            self._on_tmpfs.remove()
        self._folder.remove()


def tail(file: Path, lines: int = 15) -> list[str]:
    """The end of a log, if there is one."""
    if not file.is_file() or not os.path.getsize(file):
        return []
    return file.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
