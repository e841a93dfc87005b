"""The demo of a fleet on AWS: many GPU nodes, none with anything of ours, and a controller of two replicas.

A replica is a process of the shipped program with RECOVERY_MODE=fleet. Both run on this computer and have its
host name, so to each other they look like processes of one pod. The first to start has that pod's lock, and
whoever has it may take at once what another process of the pod held. So the first has to lead before the
other starts.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from recovery.units import moment
from recovery_demo import fleet_manifests, manifests, processes, seen
from recovery_demo.group import Member
from recovery_demo.kubeapi import Refusal
from recovery_demo.kubelets import Machine, ready_on
from recovery_demo.on_aws import OnAws
from recovery_demo.site import tell
from recovery_demo.workload import PODS, Workload

REPLICAS = ("controller-1", "controller-2")
LEADS = b"this replica leads"
"""What a replica logs when it has the Lease."""
OTHER_DRIVER = (8, 17, 26, 35)
"""The machines that were given another driver, by their places in the group."""


@dataclass
class Replica:
    """One process of the controller."""

    process: subprocess.Popen[bytes]
    log: Path
    ready: bool = False


class Trainers(Workload):
    """As many may be away as nodes may be out."""

    def _objects(self) -> list[tuple[str, manifests.Json]]:
        return manifests.workload(self._replicas, fleet_manifests.BUDGET)


class OnFleet(OnAws):
    """Instances with GPUs, of one Auto Scaling group."""

    group = "gpu-workers"
    kind = "p5.48xlarge"
    device, devices = "nvidia.com/gpu", 8
    namespace = ""
    plugin = "nvidia-device-plugin"
    notices_after, boots_in = 0.5, 1.0

    def __init__(self, asked: argparse.Namespace) -> None:
        super().__init__(asked)
        self._numbers = itertools.count()
        self._replicas: dict[str, Replica] = {}

    # ------------------------------------------------------------ the beginning

    def begin(self) -> None:
        """Machines, their Nodes and the training job; then the controller's first replica."""
        for machine in self._create(self._asked.nodes):
            machine.join()
        self._workload = self._train()
        self._workload.tick(at_once=True)
        self._start(REPLICAS[0])
        tell("began", nodes={m.name: m.instance for m in self._machines.values()})

    def _train(self) -> Workload:
        return Trainers(self._api, self._asked.nodes, self.plugin)

    def _member(self, member: Member) -> Machine:
        number = next(self._numbers)
        driver = fleet_manifests.TRIED_ELSEWHERE if number in OTHER_DRIVER else fleet_manifests.TRIED
        found = replace(
            self._hardware(member.zone, f"aws:///{member.zone}/{member.id}"),
            labels={fleet_manifests.DRIVER: driver},
            conditions=(fleet_manifests.hardware(_now()),),
        )
        return self._add(member.id, found, f"ip-10-0-2-{number + 10}")

    def _environment(self) -> dict[str, str]:
        return {**super()._environment(), "RECOVERY_MODE": "fleet"}

    def _start(self, name: str) -> None:
        log = self._folder / "logs" / f"{name}.log"
        command = [sys.executable, "-m", "recovery", "run"]
        self._replicas[name] = Replica(
            processes.start(command, environment=self._environment(), log=log), log
        )

    # ------------------------------------------------------------ the loop

    def do(self, command: dict[str, Any]) -> None:
        if "dies" in command:
            self._die(self._machines[command["dies"]])
        elif "kill" in command:
            self._kill(command["kill"])
        else:
            for name in command["nodes"]:
                self._state(name, fleet_manifests.hardware(_now(), command["states"]))

    def _tick(self) -> None:
        super()._tick()
        for name, replica in list(self._replicas.items()):
            self._look_at(name, replica)

    def _look_at(self, name: str, replica: Replica) -> None:
        if (code := replica.process.poll()) is not None:
            del self._replicas[name]
            tell("ended", node=name, code=code)
        elif not replica.ready and ready_on(replica.log.read_bytes()):
            replica.ready = True
            tell("ready", node=name, process=replica.process.pid)
        if name == REPLICAS[0] and len(self._replicas) == 1 and LEADS in replica.log.read_bytes():
            self._start(REPLICAS[1])

    def _kill(self, name: str) -> None:
        """``kill -9``. Nobody starts it anew."""
        replica = self._replicas.pop(name)
        processes.kill(replica.process)
        tell("killed", node=name, process=replica.process.pid)

    # ------------------------------------------------------------ what happens to machines

    def _die(self, machine: Machine) -> None:
        """The machine is off. The node controller writes so at once; it would wait for 50 s."""
        self._state(machine.name, fleet_manifests.unknown(_now()))
        self._api.patch(f"{seen.NODES}/{machine.name}", {"spec": {"taints": fleet_manifests.UNREACHABLE}})
        for pod in self._api.items(PODS, fieldSelector=f"spec.nodeName={machine.name}"):
            try:
                self._api.put(
                    f"{PODS}/{pod['metadata']['name']}/status", {**pod, "status": fleet_manifests.NOT_READY}
                )
            except Refusal as refusal:
                if refusal.status not in (404, 409):
                    raise
        tell("died", node=machine.name)

    def _state(self, name: str, condition: manifests.Json) -> None:
        """Write a condition in the place of the one of its type."""
        path = f"{seen.NODES}/{name}"
        others = [c for c in self._api.get(path)["status"]["conditions"] if c["type"] != condition["type"]]
        self._api.patch(f"{path}/status", {"status": {"conditions": [*others, condition]}})

    def _replace(self, instance: str) -> None:
        dead = self._by_instance(instance)
        new = self._group.replace(instance)
        del self._machines[dead.name]
        tell("terminated", node=dead.name, instance=instance)
        dead.forget()
        machine = self._member(new)
        tell("launched", node=machine.name, instance=new.id, instead=dead.name)
        self._in(self.boots_in, partial(self._boot, machine))

    def _boot(self, machine: Machine) -> None:
        machine.join()
        tell("joined", node=machine.name, instance=machine.instance)

    def end(self) -> None:
        processes.stop([r.process for r in self._replicas.values()])


def _now() -> str:
    return moment(datetime.now(UTC))
