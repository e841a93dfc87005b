"""Which boot is the machine in: what its Node says, or what its own kernel says? PURE.

The kubelet writes the boot ID to the Node, and etcd may be restored to a moment before the last boot. The
kernel that an agent runs on cannot be behind. But in a container of another kernel, or on simulated nodes,
the two never name the same boot. So the kernel counts where both were once seen to agree, and the record
says so.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from recovery.decide.situation import Situation
from recovery.model import NodeView, Problem, Record
from recovery.quick import replace
from recovery.units import hour, span

WHOLE_SECOND = timedelta(seconds=1)
"""Times on a Node are cut down to one. No kubelet writes within the first second of a boot."""
KUBELET_WRITES = timedelta(seconds=60)
"""Within so long a living kubelet puts right what its Node says (nodeStatusUpdateFrequency is 10 s). If it is
silent, the Node is not Ready by then (node-monitor-grace-period is 50 s)."""
LONG_GAP = timedelta(seconds=30)
"""A gap in the leadership that is shorter is a mere change of leaders. No backup of etcd is as young."""
APART = timedelta(seconds=30)
"""How far the clocks of two machines may be apart. Beyond that, people are told of it."""
COMES_UP = timedelta(minutes=3)
"""How long a machine that has booted by itself may be not Ready yet."""
FIRST_YEAR = 2000
"""A gap that begins before this year is none: the Lease is missing, or has no time on it."""


def agrees(s: Situation) -> bool:
    """Whether the kernel and the Node name the same boot now."""
    return bool(s.kernel_boot) and s.node is not None and s.node.boot_id == s.kernel_boot


def by_the_kernel(s: Situation, seen_to_agree: bool) -> Situation:
    """``s`` with the kernel's boot ID on its Node, where the kernel is known to be this machine's.

    ``seen_to_agree``: this process has seen both agree.
    """
    r = s.record
    if s.elsewhere or s.node is None or not s.kernel_boot or agrees(s):
        return s
    if not (seen_to_agree or _confirmed(s, r)):
        return s
    if r is not None and s.machine is not None and s.machine.id != r.machine.id:
        return s
    behind = f"the Node is behind: it says boot {s.node.boot_id}, the kernel is on boot {s.kernel_boot}"
    return replace(s, node=replace(s.node, boot_id=s.kernel_boot), node_behind=behind)


def elsewhere(s: Situation, seen_on: str) -> str:
    """Why this agent does not run on the machine that its Node is now; "" where nothing shows that.

    ``seen_on``: the machine that the Node was when this process last saw kernel and Node agree. A fault that
    an agent reads on its own machine is not one of another machine that has got the name since.
    """
    r = s.record
    if s.node is None or s.machine is None or not s.kernel_boot or not s.node.boot_id or agrees(s):
        return ""
    if not seen_on and r is not None and r.boot_confirmed and r.boot_id == s.kernel_boot:
        seen_on = r.machine.id
    if not seen_on or seen_on == s.machine.id:
        return ""
    now = f"{s.node_name} is {s.machine.id} now"
    return f"this agent runs on {seen_on}, and {now}: that one's own agent sees to it"


def boot_unknown(s: Situation) -> str | None:
    """Why it is not known which boot the machine is in; None where it is.

    etcd may have been restored to before its last boot, and whoever knew of that boot have ended. Within ten
    seconds the kubelet puts right what its Node says.
    """
    if s.node is None:
        return None
    return _unheard(s) if s.afar else _older_than_this_kernel(s)


def _older_than_this_kernel(s: Situation) -> str | None:
    """Why the Node may be older than this kernel's boot; None where the boot is known.

    It is known where Node and kernel agree, or once did. And where the kubelet has written since this kernel
    booted, and names another boot: then the kernel is not that of the node's machine.
    """
    assert s.node is not None
    if s.node_behind or agrees(s) or s.kernel_began is None:
        return None
    written = s.node.heard
    if written is None or written >= s.kernel_began - WHOLE_SECOND:
        return None
    return (
        f"the kubelet last wrote to the Node at {hour(written, s.now)}, "
        f"and this kernel booted at {hour(s.kernel_began, s.now)}: "
        "which boot the machine is in is known once the kubelet writes again"
    )


def _unheard(s: Situation) -> str | None:
    """Why the Node may be from before the last boot; None where that is not to be feared.

    It may be where nobody was at work for long, and this process has just begun to watch: it knows of no
    boot in between.
    """
    if not _has_just_come(s) or s.lease.idle is None:
        return None
    since, until = s.lease.idle
    if since.year < FIRST_YEAR or until - since < LONG_GAP:
        return None
    return (
        f"nobody was at work for {span(until - since)}, and the kubelet has not written since: "
        "which boot the machine is in is known once it does"
    )


def written_before(s: Situation, moment: datetime) -> bool:
    """Whether the Node's boot ID may have been written before ``moment``.

    It may, where it is not known which boot the machine is in. And where this process has just begun to
    watch, and the kubelet has not written since ``moment``.
    """
    if s.node is None:
        return False
    return boot_unknown(s) is not None or (_has_just_come(s) and heard_before(s.node, moment))


def heard_before(node: NodeView, moment: datetime) -> bool:
    """Whether the kubelet's last word on the Node is from before ``moment``."""
    return node.heard is not None and node.heard < moment


def _has_just_come(s: Situation) -> bool:
    """Whether this process began to watch a moment ago, and has not heard the kubelet since."""
    return s.unheard_since is not None and s.now - s.unheard_since < KUBELET_WRITES


def _confirmed(s: Situation, r: Record | None) -> bool:
    return r is not None and r.boot_confirmed and s.machine is not None and s.machine.id == r.machine.id


def put_before(p: Problem, s: Situation) -> str:
    """Why a mark may be about an earlier boot: its source saw it before the machine booted, or the mark
    itself says that it was put there before. Empty where neither is known."""
    if p.stated is not None or s.node is None or not (s.afar or agrees(s)):
        return ""
    if p.first_in not in ("", s.node.boot_id):
        return "it was there before the machine booted, and that may have mended it"
    if p.put is None or s.booted is None:
        return ""
    if p.put >= s.booted - APART:
        return ""
    since = f"the machine has booted at {hour(s.booted, s.now)}"
    return f"it was put there at {hour(p.put, s.now)}, and {since}: that may have mended it"


def with_node_behind(s: Situation, why: str) -> str:
    """``why``, and that the Node is behind, where it is."""
    return f"{why}; {s.node_behind}" if s.node_behind else why
