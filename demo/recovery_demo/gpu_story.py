"""The story of a GPU on AWS: an XID that shows for seconds, that a reboot quiets, and that comes back."""

from __future__ import annotations

from recovery.units import parse_duration
from recovery_demo import report
from recovery_demo.story import TOLD_WITHIN, Story

XID = ("GpuXid79", "xid-79")
BESIDE = "(and three OOM kills, for which its policy has no rule)"
"""The captured page counts them too."""


class GpuStory(Story):
    """XID 79 on one of four nodes. Its page shows it for one interval; the fault is real all the same."""

    namespace = "NodeRecovery"

    def introduce(self) -> None:
        pace = self.sandbox.pace
        self.screen.say("A GPU falls off the bus on EKS. A reboot brings it back, but not for long.")
        self.screen.say()
        self.screen.paragraph(
            f"Real: {pace.nodes} node-recovery sidecars (processes of the shipped program, configured only "
            "by environment variables); the Kubernetes client and the AWS SDK they use; pages captured "
            "from a real node-problem-detector. Simulated: the Kubernetes API (ours, over HTTP), AWS "
            "(moto, over HTTP), and machines, kubelets, reboots and Auto Scaling (one process, the "
            "simulator)."
        )
        after = "1m" if pace.after == "1m" else f"{pace.after} (1m)"
        self.screen.paragraph(
            f"Shortened for the demo: Lease {pace.lease} (default 60s), probation {pace.probation} (2m), "
            f"cooldown 2s (2m), boots of some seconds. Its policy tolerates an XID for {after}, and then "
            "says drain, reboot, replace. 'latch: proof' means that an XID is not over when the page "
            "forgets it."
        )
        self.screen.say()

    def tell(self) -> None:
        self._started()
        self._settle()
        self._break(self.ledger.first_nodes[0], *XID, BESIDE)
        within = TOLD_WITHIN + self._after
        self._wait(lambda: self._asked("RebootInstances"), within, "AWS was not asked for a reboot")
        self._wait(lambda: bool(self.ledger.marked), TOLD_WITHIN, "no instance was marked Unhealthy")
        self._wait(lambda: self.ledger.over, TOLD_WITHIN, "the recovery has not ended")
        self._pass(0.5)
        self._told_to_cloudwatch(XID[0])
        self._metrics = self.sandbox.metrics(self.namespace)

    @property
    def _after(self) -> float:
        return parse_duration(self.sandbox.pace.after).total_seconds()

    def _asked(self, action: str) -> bool:
        return any(asked == action for asked, _ in self.ledger.calls)

    def checks(self) -> list[report.Check]:
        pace = self.sandbox.pace
        return report.rebooted_first(
            self.ledger, self._metrics, pace.nodes, self.narrator.replicas, self._after
        )

    def moral(self) -> str:
        return (
            "1 of 4 nodes was rebooted, and replaced when its XID came back. The page forgot the "
            "XID, but node-recovery did not."
        )
