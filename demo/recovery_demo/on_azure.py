"""The demo on Azure: a Uniform scale set in a fake Resource Manager, and what happens to its machines.

The demo's fault is in the host under a machine: a reimage leaves the machine there, a redeploy does not.
"""

from __future__ import annotations

import argparse
import queue
from functools import partial
from typing import Any

from recovery_testkit.arm import FakeArm, Instance, Operation
from recovery_testkit.azure_metrics import MetricsEndpoint, Point

from recovery_demo import manifests
from recovery_demo.kubelets import Machine
from recovery_demo.site import Site, tell

SETTINGS = "azure.env"
NAME = "workers"
REGION = "westus3"
OPERATION = 2.0  # seconds from accepted to the kernel's boot
OFF_AFTER = 0.6  # seconds from accepted to the machine going off
KUBELET_IN = 0.6  # seconds from the kernel's boot to the kubelet's first word
CHECKED_IN = 0.8  # seconds from there to the detector's first run of its plugin


class OnAzure(Site):
    """Instances of one scale set. What is done to one leaves it the same instance, and the same Node."""

    page = "gpu-healthy"
    plugin = "nvidia-device-plugin"

    def __init__(self, asked: argparse.Namespace) -> None:
        super().__init__(asked)
        self._arm = FakeArm(operation_seconds=OPERATION)
        self._monitor = MetricsEndpoint()
        self._arm.metrics = self._monitor
        self._scale_set = ""
        self._booted: queue.SimpleQueue[Instance] = queue.SimpleQueue()
        self._bad_hosts: dict[int, str] = {}
        self._requests = self._operations = self._points = 0

    def _create(self, count: int) -> list[Machine]:
        self._arm.start()
        self._scale_set = self._arm.scale_set(NAME, size=count, location=REGION)
        self._arm.on_boot(lambda _, instance: self._booted.put(instance))
        self._leave_settings()
        return [self._add(i.id, _hardware(i), i.computer_name) for i in self._arm.instances(self._scale_set)]

    def _cloud_settings(self) -> dict[str, str]:
        return {
            **self._arm.environ(),
            "AZURE_MONITOR_ENDPOINT": self._arm.url,
            "AZURE_CLUSTER_ID": self._scale_set,
            "AZURE_REGION": REGION,
        }

    def _leave_settings(self) -> None:
        """What ``doctor`` needs to know in a shell, to ask the same Azure as the agents."""
        settings = {**self._cloud_settings(), "POLICY_FILE": str(self._asked.policy)}
        lines = "".join(f"{name}={value}\n" for name, value in settings.items())
        (self._folder / SETTINGS).write_text(lines, encoding="utf-8")

    def _break(self, machine: Machine, page: str, **more: Any) -> None:
        host = self._arm.instance(machine.instance).host
        self._bad_hosts[host] = page
        super()._break(machine, page, **more, host=host)

    # ------------------------------------------------------------ what is asked of Azure, and what it does

    def _watch(self) -> None:
        self._tell_points()  # an agent sends its metrics before it asks for a change
        self._tell_requests()
        operations = self._arm.operations
        for operation in operations[self._operations :]:
            self._in(OFF_AFTER, partial(self._go_off, operation))
        self._operations = len(operations)
        while not self._booted.empty():
            self._boot(self._booted.get())

    def _tell_requests(self) -> None:
        """Each request for a change, once; without a node where it is about no machine of ours."""
        found = self._arm.mutating()
        for request in found[self._requests :]:
            path, _, verb = request.path.rpartition("/")
            about = [m.name for m in self._machines.values() if m.instance.lower() == path.lower()]
            tell("asked", verb=verb, node="".join(about), line=request.line)
        self._requests = len(found)

    def _tell_points(self) -> None:
        """What Azure Monitor has stored since the last look."""
        points = list(self._monitor.points)
        if new := points[self._points :]:
            tell("metrics", points=[_told(point) for point in new])
        self._points = len(points)

    def _go_off(self, operation: Operation) -> None:
        for target in operation.targets:
            machine = self._by_path(target)
            if machine.sidecar is not None and operation.id in self._under_way():
                process = machine.die()
                machine.fall_silent()
                tell("off", node=machine.name, verb=operation.verb, process=process)

    def _under_way(self) -> set[str]:
        return {o.id for o in self._arm.operations if o.ended is None}

    def _boot(self, instance: Instance) -> None:
        """The kernel has booted. A machine that was not seen to go off has gone off all the same."""
        machine = self._by_path(instance.id)
        machine.die()
        tell("booted", node=machine.name, host=instance.host)
        self._in(KUBELET_IN, partial(self._kubelet, machine, instance))

    def _kubelet(self, machine: Machine, instance: Instance) -> None:
        machine.boot(instance.boot_id)
        machine.run_sidecar(self._environment())
        tell("back", node=machine.name)
        self._in(CHECKED_IN, partial(self._check, machine, instance.host))

    def _check(self, machine: Machine, host: int) -> None:
        found = self._bad_hosts.get(host, self.page)
        machine.detector.body = manifests.page(found)
        tell("checked", node=machine.name, page=found, host=host, bad=found != self.page)

    def _by_path(self, path: str) -> Machine:
        return next(m for m in self._machines.values() if m.instance.lower() == path.lower())

    def end(self) -> None:
        super().end()
        self._arm.stop()


def _hardware(instance: Instance) -> manifests.Hardware:
    return manifests.Hardware(
        instance.size,
        f"{instance.location}-1",
        instance.location,
        f"azure://{instance.id}",
        "nvidia.com/gpu",
        8,
        instance.vm_id,
        instance.boot_id,
    )


def _told(point: Point) -> dict[str, object]:
    kept = {k: v for k, v in point.dimensions.items() if k not in ("ClusterName", "Provider")}
    return {
        "metric": point.metric,
        "value": point.total,
        "dimensions": list(kept.values()),
        "namespace": point.namespace,
        "subject": point.subject,
    }
