"""The demo on bare metal: machines that reboot, as with kured, when a file asks for it, and come back.

The demo's fault is a GPU that has fallen off the bus: a boot brings it back, for a while.
"""

from __future__ import annotations

import argparse
import os
import uuid
from functools import partial
from pathlib import Path

from recovery_demo import manifests, metal_manifests
from recovery_demo.jobs import TrainingJob, Validations
from recovery_demo.kubelets import Machine
from recovery_demo.site import Site, tell

SETTINGS = "baremetal.env"
MEMORY = Path("/dev/shm")  # noqa: S108 - a tmpfs on every Linux; what is made there goes with the demo
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
MOUNTS = Path("/proc/self/mounts")
SENTINEL = "reboot-required"
KURED_AFTER = 1.0  # seconds from the sentinel to kured's reboot; its own period is an hour by default
KERNEL_IN = 1.5  # seconds from there to the kernel's boot
KUBELET_IN = 0.6  # seconds from there to the kubelet's first word
CHECKED_IN = 0.8  # seconds from there to the detector's first run of its plugin


class OnMetal(Site):
    """Machines without a cloud. What is done to one leaves it the same machine, and the same Node."""

    page = "gpu-healthy"
    plugin = "nvidia-device-plugin"

    def __init__(self, asked: argparse.Namespace) -> None:
        super().__init__(asked)
        self._memory: Path = asked.memory
        self._sentinels: dict[str, int] = {}
        self._validations: Validations | None = None

    def begin(self) -> None:
        """As on every site, and with a CronJob that validates."""
        self._validations = Validations(self._api, self._is_well)
        super().begin()
        self._leave_settings()

    def _create(self, count: int) -> list[Machine]:
        return [self._machine(f"gpu-{number}") for number in range(1, count + 1)]

    def _machine(self, name: str) -> Machine:
        """Its first boot ID is this computer's: the provider reads that from the kernel, and compares. What
        the sidecar takes for its kernel's is in a file of the machine's: a boot writes another."""
        first = BOOT_ID.read_text(encoding="ascii").strip()
        hardware = manifests.Hardware(
            "gpu-server",
            "rack-1a",
            "rack-1",
            device="nvidia.com/gpu",
            devices=metal_manifests.GPUS,
            boot_id=first,
        )
        machine = self._add("", hardware, name)
        self._run_of(name).mkdir()
        self._kernel(name).write_text(first, encoding="ascii")
        machine.settings = {
            "KURED_SENTINEL": str(self._sentinel(name)),
            "BOOT_ID_FILE": str(self._kernel(name)),
        }
        return machine

    def _train(self) -> TrainingJob:
        return TrainingJob(self._api, self._asked.nodes, self.plugin)

    def _cloud_settings(self) -> dict[str, str]:
        return {"BAREMETAL_POWER": "kured"}

    def _leave_settings(self) -> None:
        """What ``doctor`` needs to know in a shell, to look at the same provider as the agents."""
        settings = {**self._cloud_settings(), "POLICY_FILE": str(self._asked.policy)}
        lines = "".join(f"{name}={value}\n" for name, value in settings.items())
        (self._folder / SETTINGS).write_text(lines, encoding="utf-8")

    def _run_of(self, name: str) -> Path:
        """The machine's /run."""
        return self._memory / name

    def _kernel(self, name: str) -> Path:
        """What says in which boot the machine's kernel is."""
        return self._folder / f"{name}.boot_id"

    def _sentinel(self, name: str) -> Path:
        return self._run_of(name) / SENTINEL

    def _is_well(self, name: str) -> bool:
        return self._machines[name].detector.body == manifests.page(self.page)

    # ------------------------------------------------------------ kured, and what a boot does

    def _watch(self) -> None:
        for machine in self._machines.values():
            self._look(machine)
        if self._validations is not None:
            self._validations.tick()

    def _look(self, machine: Machine) -> None:
        """Look for the sentinel, as kured does. A file that has replaced another is a new request."""
        path = self._sentinel(machine.name)
        try:
            with path.open(encoding="utf-8") as file:
                found, text = os.fstat(file.fileno()).st_ino, file.read().strip()
        except FileNotFoundError:
            self._sentinels.pop(machine.name, None)
            return
        if self._sentinels.get(machine.name) == found:
            return
        self._sentinels[machine.name] = found
        tell("sentinel", node=machine.name, path=str(path), text=text)
        self._in(KURED_AFTER, partial(self._go_off, machine))

    def _go_off(self, machine: Machine) -> None:
        """Kill the sidecar first: it must not see that the file in memory is gone."""
        process = machine.die()
        self._sentinel(machine.name).unlink(missing_ok=True)
        machine.fall_silent()
        tell("off", node=machine.name, verb="reboot", process=process)
        self._in(KERNEL_IN, partial(self._boot, machine))

    def _boot(self, machine: Machine) -> None:
        tell("kernel", node=machine.name)
        self._in(KUBELET_IN, partial(self._kubelet, machine))

    def _kubelet(self, machine: Machine) -> None:
        boot_id = str(uuid.uuid4())
        self._kernel(machine.name).write_text(boot_id, encoding="ascii")
        machine.boot(boot_id)
        machine.run_sidecar(self._environment())
        tell("back", node=machine.name)
        self._in(CHECKED_IN, partial(self._check, machine))

    def _check(self, machine: Machine) -> None:
        tell("counted", node=machine.name, gpus=metal_manifests.GPUS)


def memory() -> Path | None:
    """Where the machines' /run may be: on a tmpfs, as kured's sentinel must. None where there is none."""
    if not BOOT_ID.is_file() or not MEMORY.is_dir() or not os.access(MEMORY, os.W_OK | os.X_OK):
        return None
    mounts = MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    kinds = [line.split(" ")[2] for line in mounts if line.split(" ")[1] == str(MEMORY)]
    return MEMORY if kinds[-1:] == ["tmpfs"] else None  # the last one mounted is the one seen
