"""The demo on AWS: in moto, Auto Scaling terminates what is marked Unhealthy and launches another."""

from __future__ import annotations

import argparse
import time
from functools import partial

from recovery_testkit.aws import CREDENTIALS

from recovery_demo.group import REGION, Group, Member
from recovery_demo.kubelets import Machine
from recovery_demo.manifests import Hardware
from recovery_demo.site import Site, tell


class OnAws(Site):
    """Instances of one Auto Scaling group. A new instance is a new Node."""

    group = "neuron-workers"
    kind = "trn1.32xlarge"
    device, devices = "aws.amazon.com/neuron", 16
    namespace = "NeuronHealthCheck"
    """The agents' CLOUDWATCH_NAMESPACE; empty: their default."""
    notices_after, boots_in = 1.5, 2.0
    """Seconds from Unhealthy to the group's reaction, and from a launch to the Node's registration."""

    def __init__(self, asked: argparse.Namespace) -> None:
        super().__init__(asked)
        self._group = Group(asked.aws, self.group, self.kind)
        self._sick: dict[str, float] = {}

    def _create(self, count: int) -> list[Machine]:
        return [self._member(member) for member in self._group.create(count)]

    def _member(self, member: Member) -> Machine:
        provider_id = f"aws:///{member.zone}/{member.id}"
        return self._add(member.id, self._hardware(member.zone, provider_id))

    def _hardware(self, zone: str, provider_id: str) -> Hardware:
        return Hardware(self.kind, zone, REGION, provider_id, self.device, self.devices)

    def _cloud_settings(self) -> dict[str, str]:
        return {
            **CREDENTIALS,
            "AWS_ENDPOINT_URL": self._asked.sidecar_aws,
            "AWS_REGION": REGION,
            **({"CLOUDWATCH_NAMESPACE": self.namespace} if self.namespace else {}),
        }

    def _watch(self) -> None:
        """What the group's health check does with an instance that is marked Unhealthy."""
        for member in self._group.members():
            if member.healthy or member.id in self._sick:
                continue
            self._sick[member.id] = time.monotonic()
            tell("noticed", instance=member.id, node=self._by_instance(member.id).name)
            self._in(self.notices_after, partial(self._replace, member.id))

    def _replace(self, instance: str) -> None:
        dead = self._by_instance(instance)
        new = self._group.replace(instance)
        process = dead.die()
        del self._machines[dead.name]
        tell("terminated", node=dead.name, instance=instance, process=process)
        dead.forget()
        machine = self._member(new)
        tell("launched", node=machine.name, instance=new.id, instead=dead.name)
        self._in(self.boots_in, partial(self._boot, machine))

    def _boot(self, machine: Machine) -> None:
        machine.join()
        machine.run_sidecar(self._environment())
        tell("joined", node=machine.name, instance=machine.instance)


class Watching(OnAws):
    """The same with recovery off, as it ships."""

    def _environment(self) -> dict[str, str]:
        return {**super()._environment(), "ENABLE_RECOVERY": "false"}
