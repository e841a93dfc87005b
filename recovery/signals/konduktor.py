"""The taint that Konduktor's controller puts on a Node whose log had a bad line, and takes off by hand alone
(https://github.com/Trainy-ai/konduktor, konduktor/controller/node.py)."""

from __future__ import annotations

from recovery.model import NodeView
from recovery.signals.marks import Mark, Said, added_at

SOURCE = "konduktor"
TYPE, REASON = "Konduktor", "KonduktorFaulty"
TAINT = "trainy.konduktor.ai/faulty"
LABELS: tuple[str, ...] = ()


def read(node: NodeView) -> Said:
    """The taint, whatever its effect. One that a remedy of ours has set states nothing."""
    found = sorted((value, effect) for key, value, effect in node.taints_of_others if key == TAINT)
    if not found:
        return Said()
    added = [node.tainted_at.get((TAINT, effect), "") for _, effect in found]
    value, effect = found[0]
    said = f"taint {TAINT}={value}:{effect}"
    return Said((Mark(TYPE, REASON, said, f"{found}{added}", added_at(added)),))
