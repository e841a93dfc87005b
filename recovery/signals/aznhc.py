"""What Azure's node health checks (AzNHC) left on the Node: the taint ``aznhc``, and their log.

A failure is a line of LBNL NHC's log, with two blanks or one after ``nhc:``; Azure's checks end it with the
code of the fault (https://github.com/Azure/azurehpc-health-checks, customTests and triggerGHR). NHCNA is a
mistake in the set-up of a check, and says nothing of the node. The log is an annotation, and may be cut or
missing, since all annotations of a Node share 256 KiB: then the taint alone has to do.
"""

from __future__ import annotations

import re

from recovery.model import NodeView
from recovery.signals.marks import Mark, Said, added_at
from recovery.signals.own_node import EVIDENCE

SOURCE = "aznhc"
TYPE = "AzureNHC"
TAINT, ANNOTATION = "aznhc", "aznhc-results"
GENERIC = "NHC2001"
"""What Azure's own script reports where a failure has no code."""
NOT_SET_UP = "NHCNA"
LONGEST = 256 * 1024
LONGEST_LINE = 2000
_FAILED = re.compile(r"\bERROR:?\s{1,8}nhc:?\s{1,8}(Health check failed:|\d{1,4} health checks failed)")
_CODE = re.compile(r"\b(NHC\d{4}|NHCNA)\b")


def read(node: NodeView) -> Said:
    """The faults that the marks state, one for each code. A taint that a remedy set states none."""
    log = node.annotations.get(ANNOTATION, "")[:LONGEST]
    theirs = node.taints_of_others
    added = [node.tainted_at.get((key, effect), "") for key, _, effect in theirs if key == TAINT]
    failures = [line[:LONGEST_LINE] for line in log.splitlines() if _FAILED.search(line[:LONGEST_LINE])]
    coded = [(found[1], line) for line in failures if (found := _CODE.search(line))]
    unusable = [line for code, line in coded if code == NOT_SET_UP]
    faults = {code: line for code, line in reversed(coded) if code != NOT_SET_UP}
    if not faults and not unusable and (failures or added):
        faults[GENERIC] = failures[0] if failures else f"taint {TAINT}, and no failure in {ANNOTATION}"
    if unusable and not faults:
        return Said(unknown={TYPE: f"a check is not set up: {_plain(unusable[0])}"})
    put = None if failures else added_at(added)  # the log bears no time, and may be of a later run
    return Said(
        tuple(Mark(TYPE, c, _plain(line), f"{line}{added}", put) for c, line in sorted(faults.items()))
    )


def _plain(line: str) -> str:
    return " ".join(line.split())[:EVIDENCE]
