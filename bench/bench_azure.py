"""A sidecar beside a node of an Azure scale set: its size while healthy and in a recovery, and its reaction.

Real processes of the shipped program, with the Azure SDK, on a Kubernetes API and a local Resource Manager
over real sockets. It takes three minutes; FAST=1 one. Run it on an otherwise idle machine.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from bench_sidecar import size, watched
from figures import Figure, percentile, report
from real import DMA_ERROR, RealStage
from recovery_testkit.arm import FakeArm

POLICY = """
apiVersion: noderecovery.dev/v1alpha1
kind: RecoveryPolicy
limits:
  {budget: 50, brake: 100%, brakePer: {}, budgetPer: {}, cooldown: 0s, perGroup: {max: 1000, within: 6h}}
rules:
  - name: neuron
    match: {type: NeuronHealth, reason: "NeuronHasError_*_ERROR"}
    remedy: [{do: redeploy, within: 30m}]
"""
FAST = os.environ.get("FAST") == "1"
IDLE, REACTIONS = (15, 5) if FAST else (60, 20)


def joined(stage: RealStage, arm: FakeArm) -> list[str]:
    """A node for each instance of a new scale set of Azure's."""
    found = arm.instances(arm.scale_set("bench", size=REACTIONS))
    return [stage.register(vm.computer_name, f"azure://{vm.id}", vm.vm_id) for vm in found]


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, RealStage(Path(folder), POLICY) as stage, FakeArm() as arm:
        arm.hold()  # accepted, and not carried out: the machine goes on running
        nodes, times, peak = joined(stage, arm), [], 0.0
        process = stage.sidecar(nodes[0], **arm.environ())
        stage.ready()
        largest, millicores = watched(process.pid, IDLE)
        stage.kill(nodes[0])
        for node in nodes:
            process = stage.sidecar(node, **arm.environ())
            stage.until("ready", lambda node=node: "healthy" in stage.log(node))  # type: ignore[misc]
            time.sleep(0.7)
            before, began = len(arm.mutating()), time.monotonic()
            stage.pages.bodies[node] = DMA_ERROR
            stage.until("accepted", lambda before=before: len(arm.mutating()) > before)  # type: ignore[misc]
            times.append(time.monotonic() - began)
            time.sleep(3)
            peak = max(peak, size(process.pid, "VmHWM"))
            stage.kill(node)
        what = f"page change to redeploy accepted, {len(times)} times"
        return report(
            [
                Figure(f"Azure: RSS, healthy, largest in {IDLE} s", largest, "MiB", 72),
                Figure(f"Azure: CPU, healthy, over {IDLE} s", millicores, "millicores", 10),
                Figure(f"Azure: {what}, p50", statistics.median(times), "s", 2),
                Figure(f"Azure: {what}, p99", percentile(times, 0.99), "s"),
                Figure("Azure: RSS, peak of any recovery", peak, "MiB", 128),
            ]
        )


if __name__ == "__main__":
    sys.exit(main())
