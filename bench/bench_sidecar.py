"""One sidecar beside a healthy and then a faulty node: size, idle cost, start-up, and reaction.

Prints each figure with its ratio to the budget, and all of them as one JSON line. Real processes of the
shipped program on a Kubernetes API and a moto over real sockets; run it on an otherwise idle machine.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "stories"))

from real import DMA_ERROR, RealStage

POLICY = """
apiVersion: noderecovery.dev/v1alpha1
kind: RecoveryPolicy
limits: {budget: 50, brake: 100%, brakePer: {}, budgetPer: {}, cooldown: 0s}
rules:
  - name: neuron
    match: {type: NeuronHealth, reason: "NeuronHasError_*_ERROR"}
    remedy: [{do: replace, within: 30m}]
"""
IDLE_SECONDS = 20
REACTIONS = 20
TICKS = 100  # of /proc, a second


def status(pid: int, field: str) -> float:
    """A size of a process in MiB."""
    text = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith(field + ":")) / 1024


def cpu(pid: int) -> float:
    """Seconds of CPU a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def idle(stage: RealStage) -> dict[str, tuple[float, float, str]]:
    """Start-up, then a healthy while."""
    node = next(iter(stage.group(1)))
    began = time.monotonic()
    process = stage.sidecar(node)
    stage.ready()
    ready = time.monotonic() - began
    used = cpu(process.pid)
    time.sleep(IDLE_SECONDS)
    millicores = (cpu(process.pid) - used) / IDLE_SECONDS * 1000
    size = status(process.pid, "VmRSS")
    stage.kill(node)
    del stage.sidecars[node]
    return {
        "start-up to first decision": (ready, 5.0, "s"),
        "RSS, healthy": (size, 64.0, "MiB"),
        "CPU, healthy": (millicores, 10.0, "millicores"),
    }


def reaction(stage: RealStage) -> tuple[float, float]:
    """Page change to accepted SetInstanceHealth (s), and the peak of the process (MiB)."""
    node, instance = next(iter(stage.group(1).items()))
    process = stage.sidecar(node)
    stage.until("ready", lambda: "healthy" in stage.log(node))
    time.sleep(0.7)
    began = time.monotonic()
    stage.pages.bodies[node] = DMA_ERROR
    stage.until("accepted", lambda: stage.aws.health(instance) == "Unhealthy")
    took = time.monotonic() - began
    time.sleep(0.3)
    peak = status(process.pid, "VmHWM")
    stage.kill(node)
    del stage.sidecars[node]
    return took, peak


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, RealStage(Path(folder), POLICY) as stage:
        figures = idle(stage)
        runs = sorted(reaction(stage) for _ in range(REACTIONS))
        times = [took for took, _ in runs]
        figures["page change to SetInstanceHealth accepted, p50"] = (statistics.median(times), 2.0, "s")
        figures["page change to SetInstanceHealth accepted, max"] = (times[-1], 2.0, "s")
        figures["RSS, peak during a recovery"] = (max(peak for _, peak in runs), 96.0, "MiB")
    for name, (value, budget, unit) in figures.items():
        print(f"{name:50} {value:8.2f} {unit:11} {value / budget:5.2f} of the budget of {budget:g}")
    print(
        json.dumps(
            {name: {"value": round(v, 3), "budget": b, "unit": u} for name, (v, b, u) in figures.items()}
        )
    )


main()
