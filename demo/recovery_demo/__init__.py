"""``make demo``: a simulated node breaks, and real node-recovery agents recover it.

Real are the agents (processes of the shipped program, configured by their environment alone), the Kubernetes
client and the cloud's SDK. Simulated, and labelled so on the screen, are the Kubernetes API and Azure
(``recovery_testkit``), AWS (moto), and what machines, kubelets, Jobs, Auto Scaling, Azure's hosts and kured
do (``recovery_demo.simulator``). With ``mode="fleet"`` the agents are two replicas of one controller; with
``observe`` their recovery is off.
"""

from __future__ import annotations


def demo(
    *,
    fast: bool = False,
    keep: bool = False,
    cloud: str = "aws",
    mode: str = "sidecar",
    observe: bool = False,
) -> int:
    """Run it, live on standard output. Returns the exit code: 0 if the story ended as it should."""
    from recovery_demo.run import run

    return run(fast=fast, keep=keep, cloud=cloud, mode=mode, observe=observe)
