"""The objects of the story of a fleet: its policy, and what is written to its Nodes. Plain data."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

HARDWARE = "AcceleratedHardwareReady"
"""The condition that EKS's node monitoring agent writes: False is bad."""
FINE = "NvidiaAcceleratedHardwareIsReady"
DRIVER = "nvidia.com/cuda.driver-version.full"
"""The label by which GPU feature discovery tells the version of the driver."""
TRIED, TRIED_ELSEWHERE = "570.195.03", "580.95.05"
"""The driver of the fleet, and the one that a few machines were given."""
SILENT = "NodeStatusUnknown"
UNREACHABLE = [
    {"key": "node.kubernetes.io/unreachable", "effect": effect} for effect in ("NoSchedule", "NoExecute")
]
"""The taints by which the node controller keeps pods away from a Node that is not heard of."""
NOT_READY: Json = {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}
"""What the node controller makes of a pod there."""
BUDGET = 4
DEAD_AFTER, STATED_AFTER = "4s", "2s"
"""For how long a Node that is not Ready is tolerated, and a condition."""

_DRAIN = "{do: drain, within: 1m, then: force}"


def policy(probation: str) -> str:
    """The shipped policy of the controller in short, with the waits of a demo."""
    return f"""\
apiVersion: noderecovery.dev/v1alpha1
kind: RecoveryPolicy
sources: [conditions]    # what stands on the Nodes; nothing of ours runs there
limits:
  budget: {BUDGET}          # nodes out of service at once, over the whole fleet
  brake: 30%         # more sick than this: nothing is started
  cooldown: 0s       # between two starts (default: 2m)
  budgetPer: {{}}      # the demo has one zone
  perGroup: {{max: 10, within: 6h}}
rules:
  - name: accelerated-hardware
    match: {{type: {HARDWARE}, reason: "NvidiaXID*Error"}}
    after: {STATED_AFTER}
    remedy: [{_DRAIN}, {{do: replace, within: 2m}}]
    probation: {probation}    # healthy this long before the node is trusted (default: 2m)
  - name: dead-node
    match: {{type: Ready}}    # False or Unknown, whatever the reason
    after: {DEAD_AFTER}
    remedy: [{_DRAIN}, {{do: replace, within: 2m}}]
    probation: {probation}
"""


def hardware(at: str, reason: str = "") -> Json:
    """What EKS's agent says of a machine's GPUs at the moment ``at``: good, or bad for ``reason``."""
    return {
        "type": HARDWARE,
        "status": "False" if reason else "True",
        "reason": reason or FINE,
        "message": f"{reason.removesuffix('Error')} was logged" if reason else "",
        "lastHeartbeatTime": at,
        "lastTransitionTime": at,
    }


def unknown(at: str) -> Json:
    """Ready, as the node controller writes it at the moment ``at`` of a Node whose kubelet is silent."""
    return {
        "type": "Ready",
        "status": "Unknown",
        "reason": SILENT,
        "message": "Kubelet stopped posting node status.",
        "lastTransitionTime": at,
    }
