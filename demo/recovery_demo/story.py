"""The stories: which faults are injected, and what is waited for. Everything else is only watched."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import which

from recovery_demo import report
from recovery_demo.ledger import Ledger, Recovery
from recovery_demo.narrator import DEMO, Line, Narrator
from recovery_demo.on_azure import SETTINGS
from recovery_demo.sandbox import Broken, Sandbox
from recovery_demo.screen import DIM, Screen
from recovery_demo.seen import Seen

POLL = 0.05  # seconds between two looks at the calls that reach AWS
STARTED_WITHIN = 60.0
TOLD_WITHIN = 180.0
WORD = 20.0  # seconds for one command on the terminal
SECOND_AFTER = 3.0  # seconds between the two faults

DMA = ("NeuronHasError_DMA_ERROR", "dma-error")
GPU = ("GpuCountBad", "gpu-count-bad")
END = "RecoveryAction(redeploy, succeeded)"
HBM = ("NeuronHasError_HBM_UNCORRECTABLE_ERROR", "hbm-error")


class Story:
    """On AWS: a DMA error on one of four nodes, and while that is recovered, an HBM error on another."""

    namespace = "NeuronHealthCheck"
    """Where its metrics are in CloudWatch."""
    agent = "sidecar of"
    """What runs node-recovery, before its name."""

    def __init__(self, sandbox: Sandbox, screen: Screen) -> None:
        self.sandbox = sandbox
        self.screen = screen
        self.ledger = Ledger()
        self.narrator = Narrator(sandbox.pace.lease)
        self._metrics: dict[str, float] = {}

    # ------------------------------------------------------------ the story

    def introduce(self) -> None:
        pace = self.sandbox.pace
        self.screen.say("A Neuron node fails on EKS, and node-recovery replaces it.")
        self.screen.say()
        self.screen.paragraph(
            f"Real: {pace.nodes} node-recovery sidecars (processes of the shipped program, configured only "
            "by environment variables); the Kubernetes client and the AWS SDK they use; pages captured "
            "from a real node-problem-detector. Simulated: the Kubernetes API (ours, over HTTP), AWS "
            "(moto, over HTTP), and machines, kubelets and Auto Scaling (one process, the simulator)."
        )
        self.screen.paragraph(
            f"Shortened for the demo: Lease {pace.lease} (default 60s), probation {pace.probation} (2m), "
            "cooldown 2s (2m). Its policy allows one node out of service at a time."
        )
        self.screen.say()

    def tell(self) -> None:
        """Until the story has ended. Raises ``Broken`` where it does not go on."""
        self._started()
        self._settle()
        first, *_, second = self.ledger.first_nodes
        self._break(first, *DMA)
        self._pass(SECOND_AFTER)
        self._break(second, *HBM)
        self._wait(lambda: bool(self.ledger.marked), TOLD_WITHIN, "no instance was marked Unhealthy")
        self._told_to_cloudwatch(DMA[0])
        self._wait(lambda: self.ledger.over, TOLD_WITHIN, "not every recovery has ended")
        self._pass(0.5)
        self._metrics = self.sandbox.metrics(self.namespace)

    def _started(self) -> None:
        nodes = self.sandbox.pace.nodes
        self._wait(
            lambda: len(self.ledger.ready_sidecars) >= nodes, STARTED_WITHIN, "not every sidecar was ready"
        )

    def _settle(self) -> None:
        self.narrator.begin()
        count = len(self.ledger.first_nodes)
        names = ", ".join(self.ledger.first_nodes)
        self._say("", f"{count} nodes are healthy, each with its sidecar: {names}")
        self._say(
            "", f"{self.narrator.replicas} trainers run on them; a PodDisruptionBudget allows one to be away"
        )
        self._pass(self.sandbox.pace.pause)

    def _break(self, node: str, reason: str, page: str, how: str = "from now on") -> None:
        self.ledger.expect(node, reason, self.sandbox.now)
        self._say(node, f"its detector's page shows {reason} {how}", strong=True)
        self.sandbox.fault(node, page)

    def _told_to_cloudwatch(self, name: str) -> None:
        metrics: dict[str, float] = {}

        def stored() -> bool:
            metrics.update(self.sandbox.metrics(self.namespace))
            return metrics.get(name, 0.0) >= 1

        self._wait(stored, 10.0, f"CloudWatch did not get {name}")
        self._say("", f"CloudWatch (moto) now has in {self.namespace}: {_list(metrics)}")

    def _terminal(self, *words: str) -> list[str]:
        """Run ``node-recovery`` with these words, and print what it prints."""
        log = self.sandbox.log(f"node-recovery-{words[0]}")
        before = log.stat().st_size if log.exists() else 0
        command = self.sandbox.command(*words)
        self._wait(lambda: command.poll() is not None, WORD, f"node-recovery {words[0]} did not end")
        said = log.read_bytes()[before:].decode().splitlines()
        self.screen.say()
        self.screen.say(self.screen.paint(f"  $ node-recovery {' '.join(words)}", DIM))
        self.screen.lines(f"  {line}" for line in said)
        self.screen.say()
        return said

    # ------------------------------------------------------------ watching

    def _say(self, node: str, text: str, strong: bool = False) -> None:
        self.screen.line(Line(self.sandbox.now, DEMO, node, text, strong))

    def _hear(self, s: Seen) -> None:
        self.ledger.hear(s)
        for line in self.narrator.hear(s):
            self.screen.line(line)

    def _pass(self, seconds: float) -> None:
        end = self.sandbox.now + seconds
        while self.sandbox.now < end:
            if (s := self.sandbox.next(POLL)) is not None:
                self._hear(s)

    def _wait(self, done: Callable[[], bool], seconds: float, otherwise: str) -> None:
        """Until ``done``. Raises ``Broken`` with the sentence ``otherwise`` if it takes too long."""
        end = self.sandbox.now + seconds
        while not done():
            if self.sandbox.now > end:
                raise Broken(f"{otherwise} within {seconds:.0f} s{self._state()}", *self.logs())
            if self.ledger.ended:
                node, code = next(iter(self.ledger.ended.items()))
                raise Broken(f"the {self.agent} {node} ended by itself with exit code {code}", node)
            if (s := self.sandbox.next(POLL)) is not None:
                self._hear(s)

    def _state(self) -> str:
        stories = "; ".join(
            f"{r.node} is {r.phase or 'without a record'} ({r.sentence})"
            for r in self.ledger.recoveries.values()
        )
        return f": {stories}" if stories else ""

    def logs(self) -> tuple[str, ...]:
        """The logs that may say why something went wrong."""
        return (*self.ledger.recoveries, *self.ledger.instances, "simulator")

    def listen(self) -> None:
        """For ever."""
        while True:
            self._pass(1.0)

    # ------------------------------------------------------------ the end

    def shown(self) -> list[Recovery]:
        """The recoveries that the table shows."""
        return list(self.ledger.recoveries.values())

    def checks(self) -> list[report.Check]:
        return report.replaced(self.ledger, self._metrics, self.sandbox.pace.nodes, self.narrator.replicas)

    def moral(self) -> str:
        return "2 of 4 nodes were replaced, one after the other. The others were never touched."

    def hints(self, node: str) -> list[str]:
        """Commands to look around with, about ``node`` and one that still stands."""
        beside = Path(sys.executable).parent / "node-recovery"
        command = "node-recovery" if which("node-recovery") else os.path.relpath(beside)
        names = [n["metadata"]["name"] for n in self.sandbox.api.items("/api/v1/nodes")]
        standing = next((name for name in names if name != node), node)
        return [
            f"export KUBECONFIG={self.sandbox.kubeconfig}",
            f"{command} status --all",
            f"{command} explain {node}",
            f"{command} explain {standing}",
            f"{command} doctor --node {standing}",
            f'{command} pause --for 10m --reason "looking around"',
            "kubectl get nodes",
            "kubectl get nr                       # the records: one NodeRecovery per node ever treated",
            f"kubectl describe nr {node}",
            "kubectl get recoverygate fleet -o yaml",
            f"kubectl get events --field-selector involvedObject.name={node}",
            "kubectl -n training get pods -o wide",
            f"{command} policy check {self.sandbox.policy}",
            "kubectl apply --validate=false ...   # this API publishes no schema to validate by",
        ]


class AzureStory(Story):
    """On Azure: a GPU is missing from one of four nodes of a scale set, for a fault of the host under it."""

    def introduce(self) -> None:
        pace = self.sandbox.pace
        self.screen.say("A GPU node fails on Azure. A reimage does not help; another host does.")
        self.screen.say()
        self.screen.paragraph(
            f"Real: {pace.nodes} node-recovery sidecars (processes of the shipped program, configured only "
            "by environment variables); the Kubernetes client and the Azure SDK they use; pages captured "
            "from a real node-problem-detector. Simulated: the Kubernetes API (ours, over HTTP); Azure's "
            "Resource Manager, managed identity and Azure Monitor (ours, over HTTP); and hosts, machines "
            "and kubelets (one process, the simulator)."
        )
        self.screen.paragraph(
            f"Shortened for the demo: Lease {pace.lease} (default 60s), probation {pace.probation} (2m), "
            "cooldown 2s (2m), boots of some seconds. Its policy says drain, reimage, redeploy. The "
            "default for broken hardware is drain, redeploy, because a reimage stays on the same host."
        )
        self.screen.say()

    def tell(self) -> None:
        self._started()
        self._settle()
        self._break(self.ledger.first_nodes[0], *GPU)
        self._wait(lambda: bool(self.ledger.asked), TOLD_WITHIN, "Azure was not asked for a reimage")
        self._wait(lambda: len(self.ledger.asked) > 1, TOLD_WITHIN, "Azure was not asked for a redeploy")
        self._wait(lambda: self.ledger.over, TOLD_WITHIN, "the recovery has not ended")
        if all(r.phase == "recovered" for r in self.ledger.recoveries.values()):
            self._wait(lambda: END in self.ledger.metrics, 10.0, "Azure Monitor was not told of the end")
        self._pass(0.5)
        for subject, namespace in self.ledger.subjects.items():
            where = f"{namespace} of {subject.rpartition('/providers/')[2]}"
            self._say("", f"Azure Monitor (fake) has in {where}: {_list(self.ledger.metrics)}")

    def checks(self) -> list[report.Check]:
        return report.moved(self.ledger, self.sandbox.pace.nodes, self.narrator.replicas)

    def hints(self, node: str) -> list[str]:
        """With the settings of the sidecars, by which ``doctor`` asks the same Azure."""
        export, *rest = super().hints(node)
        return [export, f"export $(cat {self.sandbox.folder / SETTINGS})", *rest]

    def moral(self) -> str:
        return (
            "1 of 4 nodes was moved to another host after a reimage had not helped. The others were never "
            "touched."
        )


def _list(metrics: dict[str, float]) -> str:
    return ", ".join(f"{name} = {value:g}" for name, value in sorted(metrics.items()))
