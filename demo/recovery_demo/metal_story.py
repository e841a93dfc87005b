"""The story on bare metal: a machine that nobody's API can replace, and that a reboot helps for a while."""

from __future__ import annotations

from recovery_demo import report
from recovery_demo.metal_ledger import MetalLedger
from recovery_demo.on_metal import SETTINGS
from recovery_demo.sandbox import Sandbox
from recovery_demo.screen import Screen
from recovery_demo.story import GPU, TOLD_WITHIN, Story

BACK_AFTER = 2.0  # seconds in which the machine looks well


class BareMetalStory(Story):
    """A GPU is missing on one of four machines: a reboot brings it back, and then it is gone again."""

    def __init__(self, sandbox: Sandbox, screen: Screen) -> None:
        super().__init__(sandbox, screen)
        self.ledger: MetalLedger = MetalLedger()

    def introduce(self) -> None:
        pace = self.sandbox.pace
        self.screen.say("A GPU is missing on a machine without a cloud. A reboot helps, but not for long.")
        self.screen.say()
        self.screen.paragraph(
            f"Real: {pace.nodes} node-recovery sidecars (processes of the shipped program, configured only "
            "by environment variables); the Kubernetes client they use; kured's sentinel, a file in "
            "memory; pages captured from a real node-problem-detector. Simulated: the Kubernetes API "
            "(ours, over HTTP) and machines, kubelets, the Job controller, trainers and kured (one "
            "process, the simulator). The Nodes have no providerID, only a system UUID; their first boot "
            "ID is this computer's, which the sidecars read from the kernel."
        )
        self.screen.paragraph(
            f"Shortened for the demo: Lease {pace.lease} (default 60s), probation {pace.probation} (2m), "
            "cooldown 2s (2m), boots of some seconds; kured looks for its file all the time (once an "
            "hour). Its policy says drain, reboot, and a Job that validates. The default on bare metal is "
            "only to cordon, and nothing is rebooted without BAREMETAL_POWER."
        )
        self.screen.say()

    def tell(self) -> None:
        self._started()
        self._settle()
        node = self.ledger.first_nodes[0]
        self._break(node, *GPU)
        self._wait(lambda: bool(self.ledger.sentinels), TOLD_WITHIN, "kured was not asked")
        self._wait(lambda: self.ledger.over, TOLD_WITHIN, "the recovery has not ended")
        if self.ledger.recoveries[node].phase == "recovered":
            self._pass(BACK_AFTER)
            self._break_again(node, *GPU)
            self._wait(lambda: self.ledger.handed, TOLD_WITHIN, "the machine was not handed over")
        self._pass(self.sandbox.pace.pause)
        self._say(node, self._left())

    def _break_again(self, node: str, reason: str, page: str) -> None:
        self.ledger.again(node, self.sandbox.now)
        self._say(node, f"its detector's page shows {reason} again", strong=True)
        self.sandbox.fault(node, page)

    def _left(self) -> str:
        """How the node is left to the person."""
        kept = [n for n in self.ledger.recoveries if not self.ledger.is_healthy(n)]
        out = (
            "the node stays cordoned and tainted" if kept else "the node is not cordoned: pods may come here"
        )
        return f"{out}; the hand-over is reported every minute, until somebody takes it"

    def checks(self) -> list[report.Check]:
        return report.rebooted(self.ledger, self.sandbox.pace.nodes, self.narrator.replicas)

    def hints(self, node: str) -> list[str]:
        """With the settings of the sidecars, by which ``doctor`` looks at the same provider."""
        export, *rest = super().hints(node)
        return [
            export,
            f"export $(cat {self.sandbox.folder / SETTINGS})",
            *rest,
            "kubectl get jobs                     # the validation",
        ]

    def moral(self) -> str:
        return (
            "1 of 4 machines was rebooted, validated and returned to service. When its fault came back, a "
            "person was asked."
        )
