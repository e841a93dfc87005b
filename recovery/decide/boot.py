"""Which boot is the machine in: what its Node says, or what its own kernel says? PURE.

The kubelet writes the boot ID to the Node, and etcd may be restored to a moment before the last boot. The
kernel that an agent runs on cannot be behind. But in a container of another kernel, or on simulated nodes,
the two never name the same boot. So the kernel counts where both were once seen to agree, and the record
says so.
"""

from __future__ import annotations

from dataclasses import replace

from recovery.decide.situation import Situation
from recovery.model import Record


def agrees(s: Situation) -> bool:
    """Whether the kernel and the Node name the same boot now."""
    return bool(s.kernel_boot) and s.node is not None and s.node.boot_id == s.kernel_boot


def by_the_kernel(s: Situation, seen_to_agree: bool) -> Situation:
    """``s`` with the kernel's boot ID on its Node, where the kernel is known to be this machine's.

    ``seen_to_agree``: this process has seen both agree.
    """
    r = s.record
    if s.node is None or not s.kernel_boot or agrees(s) or not (seen_to_agree or _confirmed(s, r)):
        return s
    if r is not None and s.machine is not None and s.machine.id != r.machine.id:
        return s
    behind = f"the Node is behind: it says boot {s.node.boot_id}, the kernel is on boot {s.kernel_boot}"
    return replace(s, node=replace(s.node, boot_id=s.kernel_boot), node_behind=behind)


def _confirmed(s: Situation, r: Record | None) -> bool:
    return r is not None and r.boot_confirmed and s.machine is not None and s.machine.id == r.machine.id


def with_node_behind(s: Situation, why: str) -> str:
    """``why``, and that the Node is behind, where it is."""
    return f"{why}; {s.node_behind}" if s.node_behind else why
