"""``python -m recovery.demo.simulator``: what AWS and the machines do, and nothing of node-recovery's.

It launches and terminates instances in moto, registers their Nodes, serves their detectors' pages, runs and
kills their sidecars, and keeps a training job alive. Commands come as JSON lines on standard input, what was
done goes out as JSON lines on standard output:

    {"fault": "ip-10-0-1-5", "page": "dma-error"}
    {"did": "launched", "node": "ip-10-0-1-8", "instance": "i-0123", "sentence": "..."}

The end of standard input is the end of the demo: its sidecars are stopped.
"""

from __future__ import annotations

import argparse
import json
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from recovery.demo import processes, scene
from recovery.demo.group import REGION, Group
from recovery.demo.kubeapi import KubeApi
from recovery.demo.kubelets import Machine
from recovery.demo.workload import Workload
from recovery.testing.aws import CREDENTIALS

TICK = 0.2
NOTICES_AFTER = 1.5  # seconds from Unhealthy to the group's reaction
BOOTS_IN = 2.0  # seconds from launch to the Node's registration
HOSTS = (5, 17, 23, 42, 58, 71, 86, 99)


class Simulator:
    """The world around node-recovery. One thread does everything: the kernel ends sidecars with it."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self._asked = asked
        self._folder: Path = asked.folder
        self._api = KubeApi(asked.kubernetes, "simulator")
        self._group = Group(asked.aws) if asked.cloud == "aws" else None
        self._hosts = iter(HOSTS)
        self._machines: dict[str, Machine] = {}
        self._sick: dict[str, float] = {}
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._workload: Workload | None = None
        self.commands: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()

    # ------------------------------------------------------------ the beginning

    def begin(self) -> None:
        """Instances, their Nodes, the training job; then the sidecars."""
        if self._group is not None:
            for member in self._group.create(self._asked.nodes):
                self._add(member.zone, member.id).join()
        else:
            for _ in range(self._asked.nodes):
                self._add("rack-1a", "").join()
        self._workload = Workload(self._api, 2 * self._asked.nodes)
        self._workload.tick(at_once=True)
        for machine in self._machines.values():
            machine.run_sidecar(self._environment())
        tell("began", nodes={m.name: m.instance for m in self._machines.values()})

    def _add(self, zone: str, instance: str) -> Machine:
        name = f"ip-10-0-1-{next(self._hosts)}"
        machine = Machine(name, zone, instance, self._api, self._folder / "logs" / f"{name}.log")
        self._machines[name] = machine
        return machine

    def _environment(self) -> dict[str, str]:
        """All that a sidecar is told. The same for every one but for its node's name and page."""
        settings = {
            "ENABLE_RECOVERY": "true",
            "RECOVERY_MODE": "sidecar",
            "PROVIDER": "auto",
            "CLUSTER_NAME": "demo",
            "CLOUDWATCH_NAMESPACE": "NeuronHealthCheck",
            "POLICY_FILE": str(self._asked.policy),
            "LEASE_DURATION": self._asked.lease,
            "METRICS_ADDRESS": "127.0.0.1:0",
            "KUBECONFIG": str(self._asked.kubeconfig),
        }
        if self._group is not None:
            settings |= {**CREDENTIALS, "AWS_ENDPOINT_URL": self._asked.sidecar_aws, "AWS_REGION": REGION}
        return {**processes.own_environment(self._folder), **settings}

    # ------------------------------------------------------------ the loop

    def run(self) -> None:
        """Until standard input ends."""
        while True:
            try:
                command = self.commands.get(timeout=TICK)
            except queue.Empty:
                self._tick()
                continue
            if command is None:
                return
            self._obey(command)

    def _obey(self, command: dict[str, Any]) -> None:
        name, page = str(command["fault"]), str(command["page"])
        self._machines[name].detector.body = scene.page(page)
        tell("fault", node=name, page=page)

    def _tick(self) -> None:
        self._watch_group()
        for due, what in list(self._later):
            if time.monotonic() >= due:
                self._later.remove((due, what))
                what()
        if self._workload is not None:
            self._workload.tick()
        for machine in self._machines.values():
            if machine.became_ready():
                tell("ready", node=machine.name, process=machine.process)
            if (code := machine.ended()) is not None:
                machine.sidecar = None
                tell("ended", node=machine.name, code=code)

    def _watch_group(self) -> None:
        """What the group's health check does with an instance that is marked Unhealthy."""
        if self._group is None:
            return
        for member in self._group.members():
            if member.healthy or member.id in self._sick:
                continue
            self._sick[member.id] = time.monotonic()
            tell("noticed", instance=member.id, node=self._by_instance(member.id).name)
            self._in(NOTICES_AFTER, partial(self._replace, member.id))

    def _replace(self, instance: str) -> None:
        assert self._group is not None
        dead = self._by_instance(instance)
        new = self._group.replace(instance)
        process = dead.die()
        del self._machines[dead.name]
        tell("terminated", node=dead.name, instance=instance, process=process)
        dead.forget()
        machine = self._add(new.zone, new.id)
        tell("launched", node=machine.name, instance=new.id, instead=dead.name)
        self._in(BOOTS_IN, lambda: self._boot(machine))

    def _boot(self, machine: Machine) -> None:
        machine.join()
        machine.run_sidecar(self._environment())
        tell("joined", node=machine.name, instance=machine.instance)

    def _by_instance(self, instance: str) -> Machine:
        return next(m for m in self._machines.values() if m.instance == instance)

    def _in(self, seconds: float, what: Callable[[], None]) -> None:
        self._later.append((time.monotonic() + seconds, what))

    # ------------------------------------------------------------ the end

    def end(self) -> None:
        processes.stop([m.sidecar for m in self._machines.values() if m.sidecar is not None])


def tell(did: str, **more: Any) -> None:
    """One line for the demo; it may be gone already."""
    try:
        sys.stdout.write(json.dumps({"did": did, **more}) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        return


def listen(commands: queue.SimpleQueue[dict[str, Any] | None]) -> None:
    for line in sys.stdin:
        commands.put(json.loads(line))
    commands.put(None)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m recovery.demo.simulator", description=__doc__)
    parser.add_argument("--cloud", choices=("aws", "baremetal"), default="aws")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--kubernetes", required=True, help="the API's address")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--aws", default="", help="moto's address")
    parser.add_argument("--sidecar-aws", default="", help="the address the sidecars are given for AWS")
    parser.add_argument("--policy", type=Path, required=True)
    parser.add_argument("--lease", default="60s")
    parser.add_argument("--folder", type=Path, required=True)
    simulator = Simulator(parser.parse_args())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: simulator.commands.put(None))
    threading.Thread(target=listen, args=(simulator.commands,), daemon=True).start()
    try:
        simulator.begin()
        simulator.run()
    finally:
        simulator.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
