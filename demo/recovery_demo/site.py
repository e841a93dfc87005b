"""The demo's machines: they join the cluster, run their sidecars, and break on command.

What a cloud or kured does to them is in the subclasses (``on_aws``, ``on_azure``, ``on_metal``). One thread
does everything, because the kernel kills a sidecar when the thread that started it ends.
"""

from __future__ import annotations

import argparse
import json
import queue
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recovery_demo import manifests, processes
from recovery_demo.kubeapi import KubeApi
from recovery_demo.kubelets import Machine
from recovery_demo.workload import Workload

TICK = 0.2
HOSTS = (5, 17, 23, 42, 58, 71, 86, 99)


class Site:
    """What is around node-recovery: machines with their kubelets and detectors, and a training job."""

    page = "healthy"
    """What a detector shows where nothing is wrong."""
    plugin = "neuron-device-plugin"

    def __init__(self, asked: argparse.Namespace) -> None:
        self._asked = asked
        self._folder: Path = asked.folder
        self._api = KubeApi(asked.kubernetes, "simulator")
        self._hosts = iter(HOSTS)
        self._machines: dict[str, Machine] = {}
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._workload: Workload | None = None
        self.commands: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()

    # ------------------------------------------------------------ the beginning

    def begin(self) -> None:
        """Machines, their Nodes, the training job; then the sidecars."""
        for machine in self._create(self._asked.nodes):
            machine.join()
        self._workload = self._train()
        self._workload.tick(at_once=True)
        for machine in self._machines.values():
            machine.run_sidecar(self._environment())
        tell("began", nodes={m.name: m.instance for m in self._machines.values()})

    def _create(self, count: int) -> list[Machine]:
        """The machines, each by ``_add``."""
        raise NotImplementedError

    def _train(self) -> Workload:
        """The training job, whose pods are not made yet."""
        return Workload(self._api, 2 * self._asked.nodes, self.plugin)

    def _add(self, instance: str, hardware: manifests.Hardware, name: str = "") -> Machine:
        name = name or f"ip-10-0-1-{next(self._hosts)}"
        log = self._folder / "logs" / f"{name}.log"
        machine = Machine(name, instance, hardware, self._api, log, self.page)
        self._machines[name] = machine
        return machine

    def _environment(self) -> dict[str, str]:
        """The environment of every sidecar. Only its node's name and its page come to it."""
        settings = {
            "ENABLE_RECOVERY": "true",
            "RECOVERY_MODE": "sidecar",
            "PROVIDER": "auto",
            "CLUSTER_NAME": "demo",
            "POLICY_FILE": str(self._asked.policy),
            "LEASE_DURATION": self._asked.lease,
            "METRICS_ADDRESS": "127.0.0.1:0",
            "KUBECONFIG": str(self._asked.kubeconfig),
        }
        return {**processes.own_environment(self._folder), **settings, **self._cloud_settings()}

    def _cloud_settings(self) -> dict[str, str]:
        """Where the cloud is, and as whom to ask it."""
        return {}

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
            self.do(command)

    def do(self, command: dict[str, Any]) -> None:
        """Carry out a command of the demo."""
        self._break(self._machines[command["fault"]], command["page"])

    def _break(self, machine: Machine, page: str, **more: Any) -> None:
        machine.detector.body = manifests.page(page)
        tell("fault", node=machine.name, page=page, **more)

    def _tick(self) -> None:
        self._watch()
        for due, what in list(self._later):
            if time.monotonic() >= due:
                self._later.remove((due, what))
                what()
        if self._workload is not None:
            self._workload.tick()
        for machine in self._machines.values():
            if machine.became_ready():
                self._ready(machine)
            if (code := machine.ended()) is not None:
                machine.sidecar = None
                tell("ended", node=machine.name, code=code)

    def _ready(self, machine: Machine) -> None:
        """The machine's sidecar says that it is ready."""
        tell("ready", node=machine.name, process=machine.process)

    def _watch(self) -> None:
        """Carry out what the cloud has been asked for since the last look."""

    def _by_instance(self, instance: str) -> Machine:
        return next(m for m in self._machines.values() if m.instance == instance)

    def _in(self, seconds: float, what: Callable[[], None]) -> None:
        self._later.append((time.monotonic() + seconds, what))

    # ------------------------------------------------------------ the end

    def end(self) -> None:
        processes.stop([m.sidecar for m in self._machines.values() if m.sidecar is not None])


def tell(did: str, **more: Any) -> None:
    """Write one line to the demo, which may have ended already."""
    try:
        sys.stdout.write(json.dumps({"did": did, **more}) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        return
