"""One sidecar beside a healthy node, then beside faulty ones: size, cost, start-up, and reaction.

Real processes of the shipped program on a Kubernetes API and a moto over real sockets, settings at their
defaults. It takes twenty minutes; FAST=1 takes one, with fewer runs. Run it on an otherwise idle machine.
SOURCES=all: with every source of the policy on, and the pages of dcgm-exporter and Autopilot to read.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from figures import Figure, percentile, report
from real import DMA_ERROR, Exporters, RealStage

ALL = os.environ.get("SOURCES") == "all"
SOURCES = "npd, conditions, {{autopilot: {{port: {0}}}}}, {{dcgm: {{port: {0}}}}}, aznhc, konduktor"
POLICY = """
apiVersion: noderecovery.dev/v1alpha1
kind: RecoveryPolicy
limits: {budget: 50, brake: 100%, brakePer: {}, budgetPer: {}, cooldown: 0s}
rules:
  - name: neuron
    match: {type: NeuronHealth, reason: "NeuronHasError_*_ERROR"}
    remedy: [{do: replace, within: 30m}]
"""
FAST = os.environ.get("FAST") == "1"
IDLE, RECOVERING, REACTIONS = (20, 10, 10) if FAST else (600, 60, 100)
TICKS = os.sysconf("SC_CLK_TCK")


def size(pid: int, field: str) -> float:
    """A size of a process in MiB: ``VmRSS`` now, ``VmHWM`` at its peak."""
    text = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith(field + ":")) / 1024


def cpu(pid: int) -> float:
    """Seconds of CPU a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def watched(pid: int, seconds: float) -> tuple[float, float]:
    """The largest size (MiB) and the cost (millicores) of a process over a while."""
    used, largest, end = cpu(pid), 0.0, time.monotonic() + seconds
    while time.monotonic() < end:
        largest = max(largest, size(pid, "VmRSS"))
        time.sleep(1)
    return largest, (cpu(pid) - used) / seconds * 1000


def idle(stage: RealStage) -> list[Figure]:
    """Start-up, then a healthy while."""
    node = next(iter(stage.group(1)))
    began = time.monotonic()
    process = stage.sidecar(node)
    stage.ready()
    ready = time.monotonic() - began
    largest, millicores = watched(process.pid, IDLE)
    stage.kill(node)
    return [
        Figure("start-up to first decision", ready, "s", 5),
        Figure(f"RSS, healthy, largest in {IDLE} s", largest, "MiB", 64),
        Figure(f"CPU, healthy, over {IDLE} s", millicores, "millicores", 10),
    ]


class Reactions:
    """A fault on the page, again and again, each time beside a new machine."""

    def __init__(self, stage: RealStage) -> None:
        self._stage = stage
        self.times: list[float] = []
        self.peak = 0.0
        self.recovering = (0.0, 0.0)

    def one(self, watch: float = 0.0) -> None:
        """Page change to accepted SetInstanceHealth; then ``watch`` seconds of the recovery going on."""
        stage = self._stage
        node, instance = next(iter(stage.group(1).items()))
        process = stage.sidecar(node)
        stage.until("ready", lambda: "healthy" in stage.log(node))
        time.sleep(0.7)
        began = time.monotonic()
        stage.pages.bodies[node] = DMA_ERROR
        stage.until("accepted", lambda: stage.aws.health(instance) == "Unhealthy")
        self.times.append(time.monotonic() - began)
        time.sleep(0.3)
        if watch:
            self.recovering = watched(process.pid, watch)
        self.peak = max(self.peak, size(process.pid, "VmHWM"))
        stage.kill(node)
        stage.forget(node)

    def figures(self) -> list[Figure]:
        runs = len(self.times)
        what = f"page change to SetInstanceHealth accepted, {runs} times"
        return [
            Figure(f"{what}, p50", statistics.median(self.times), "s", 2),
            Figure(f"{what}, p99", percentile(self.times, 0.99), "s", 2),
            Figure(f"{what}, max", max(self.times), "s"),
            Figure("RSS, peak of any recovery", self.peak, "MiB", 128),
            Figure(f"RSS, largest in {RECOVERING} s of a recovery", self.recovering[0], "MiB", 128),
            Figure(f"CPU, over {RECOVERING} s of a recovery", self.recovering[1], "millicores"),
        ]


def main() -> int:
    exporters = Exporters() if ALL else None
    policy = POLICY if exporters is None else f"{POLICY}sources: [{SOURCES.format(exporters.port)}]\n"
    with tempfile.TemporaryDirectory() as folder, RealStage(Path(folder), policy, exporters) as stage:
        figures = idle(stage)
        reactions = Reactions(stage)
        reactions.one(watch=RECOVERING)
        for _ in range(REACTIONS - 1):
            reactions.one()
        return report(figures + reactions.figures())


if __name__ == "__main__":
    sys.exit(main())
