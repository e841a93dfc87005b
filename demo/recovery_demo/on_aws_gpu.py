"""The demo on AWS with GPUs: instances that reboot when EC2 is asked to, and a detector that forgets.

moto takes RebootInstances and changes nothing that a machine could show. The demo sees the call arrive, and
tells the simulator of it. The demo's fault is in the GPU itself: a boot makes it quiet, for a while.
"""

from __future__ import annotations

import argparse
import uuid
from functools import partial
from typing import Any

from recovery_demo import manifests
from recovery_demo.kubelets import Machine
from recovery_demo.on_aws import OnAws
from recovery_demo.site import tell

SHOWN_FOR = 2.0  # seconds from the kernel's line to the detector's restart
OFF_AFTER = 1.0  # seconds from EC2's answer to the machine going off
BACK_IN = 2.0  # seconds from there to the kubelet's first word
AGAIN_IN = (
    1.0  # seconds from the sidecar's first look at the page to the kernel's next line: within any probation
)


class OnAwsGpu(OnAws):
    """Instances with GPUs. Rebooted, one is the same instance, and the same Node; replaced, it is another."""

    group = "gpu-workers"
    kind = "p5.48xlarge"
    device, devices = "nvidia.com/gpu", 8
    namespace = ""
    page = "kernel-healthy"
    plugin = "nvidia-device-plugin"

    def __init__(self, asked: argparse.Namespace) -> None:
        super().__init__(asked)
        self._broken: dict[str, str] = {}
        """The page that each broken node's detector shows when its kernel logs the XID."""
        self._booted: set[str] = set()

    def do(self, command: dict[str, Any]) -> None:
        if "reboot" in command:
            machine = self._by_instance(command["reboot"])
            self._in(OFF_AFTER, partial(self._go_off, machine))
        else:
            super().do(command)

    def _break(self, machine: Machine, page: str, **more: Any) -> None:
        """The detector states it and is soon restarted: then it states nothing, and nothing is mended."""
        super()._break(machine, page, **more)
        self._broken[machine.name] = page
        self._in(SHOWN_FOR, partial(self._restart_detector, machine))

    def _restart_detector(self, machine: Machine) -> None:
        machine.detector.body = manifests.page(self.page)
        tell("restarted", node=machine.name)

    # ------------------------------------------------------------ what a reboot does

    def _go_off(self, machine: Machine) -> None:
        process = machine.die()
        machine.fall_silent()
        tell("off", node=machine.name, verb="reboot", process=process)
        self._in(BACK_IN, partial(self._kubelet, machine))

    def _kubelet(self, machine: Machine) -> None:
        machine.boot(str(uuid.uuid4()))
        machine.run_sidecar(self._environment())
        self._booted.add(machine.name)
        tell("back", node=machine.name)

    def _ready(self, machine: Machine) -> None:
        super()._ready(machine)
        if machine.name in self._booted and machine.name in self._broken:
            self._in(AGAIN_IN, partial(self._state_again, machine, self._broken[machine.name]))

    def _state_again(self, machine: Machine, page: str) -> None:
        machine.detector.body = manifests.page(page)
        tell("again", node=machine.name, page=page)
