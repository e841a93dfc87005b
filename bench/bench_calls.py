"""What one recovery by ``replace`` asks of AWS, from the fault to the proof, and what healthy agents ask.

Real processes of the shipped program on a Kubernetes API and a moto over real sockets. A proxy before moto
counts. The new machine takes two minutes to boot, and a Lease and the probation have their defaults. It takes
six minutes; FAST=1 three. How fast the machine is does not matter.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from figures import Figure, report
from real import DMA_ERROR, RealStage

POLICY = """
apiVersion: noderecovery.dev/v1alpha1
kind: RecoveryPolicy
limits: {cooldown: 0s, brake: 100%, brakePer: {}}
rules:
  - name: neuron
    match: {type: NeuronHealth, reason: "NeuronHasError_*_ERROR"}
    remedy: [{do: drain, within: 10m, then: force}, {do: replace, within: 30m}]
"""
HEALTHY, BOOT = (5, 10) if os.environ.get("FAST") == "1" else (60, 120)
CHANGES = ("SetInstanceHealth", "RebootInstances")


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, RealStage(Path(folder), POLICY) as stage:
        group = stage.group(3)
        for node in group:
            stage.sidecar(node, LEASE_DURATION="60s")
        stage.ready()
        time.sleep(HEALTHY)
        healthy = stage.proxy.count()
        stage.proxy.forget()
        sick, instance = next(iter(group.items()))
        stage.pages.bodies[sick] = DMA_ERROR
        stage.until("marked", lambda: stage.aws.health(instance) == "Unhealthy")
        _end(stage, sick, instance)
        time.sleep(BOOT)
        new = stage.join(stage.aws.launch(stage.group_name)[0])
        stage.sidecar(new, LEASE_DURATION="60s")
        stage.until("proved", lambda: stage.records()[sick]["phase"] == "recovered", 900)
        print(dict(Counter(r.action for r in stage.proxy.requests)))
        return report(
            [
                Figure(f"calls of three healthy agents in {HEALTHY} s", healthy, "calls", 0.5),
                Figure("calls in one recovery", stage.proxy.count(), "calls"),
                Figure("... that change something", stage.proxy.count(*CHANGES), "calls", 1),
            ]
        )


def _end(stage: RealStage, node: str, instance: str) -> None:
    """As a group does with an unhealthy instance: machine, agent and Node are gone."""
    stage.kill(node)
    del stage.sidecars[node]
    stage.aws.terminate(instance)
    stage.store.request("DELETE", f"/api/v1/nodes/{node}")


if __name__ == "__main__":
    sys.exit(main())
