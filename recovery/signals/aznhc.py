"""What Azure's node health checks (AzNHC) left on the Node: the taint ``aznhc``, and their log.

A failure is a line of LBNL NHC's log, with two blanks or one after ``nhc:``, which a detached run leaves out.
Azure's checks end it with the code of the fault (https://github.com/Azure/azurehpc-health-checks, customTests
and triggerGHR). A check may tell several lines, such as one for each link; the code is on the last of them.
NHCNA is a mistake in the set-up of a check, and says nothing of the node. The log is an annotation,
and may be cut or missing, since all annotations of a Node share 256 KiB: then the taint alone has to do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from recovery.model import NodeView
from recovery.signals.marks import Mark, Said, added_at
from recovery.signals.own_node import EVIDENCE

SOURCE = "aznhc"
TYPE = "AzureNHC"
TAINT, ANNOTATION = "aznhc", "aznhc-results"
LABELS: tuple[str, ...] = ()
GENERIC = "NHC2001"
"""What Azure's own script reports where a failure has no code."""
NOT_SET_UP = "NHCNA"
LONGEST = 256 * 1024
LONGEST_LINE = 2000
_FAILED = re.compile(r"\bERROR:?\s{1,8}(nhc:?\s{1,8})?(Health check failed:|\d{1,4} health checks failed)")
_OF_A_CHECK = "Health check failed:"
_NEXT = re.compile(r"\bERROR:?\s|Health checks completed")
_PASSED = re.compile(r"Health checks completed with exit code: 0\b")
"""The end of a run that has found nothing."""
_NO_TIME = "['']"
"""Of a taint that does not say when it was put there, such as kubectl's: what records know such a line by."""
MOST_LINES = 32
"""Lines that are kept of one failure."""
_CODE = re.compile(r"\b(NHC\d{4}|NHCNA)\b")


def read(node: NodeView) -> Said:
    """The faults that the marks state, one for each code. A taint that a remedy set states none."""
    log = node.annotations.get(ANNOTATION, "")[:LONGEST]
    theirs = node.taints_of_others
    taints = {effect: node.tainted_at.get((key, effect), "") for key, _, effect in theirs if key == TAINT}
    added = sorted(taints.values())
    failures = _failures(log.splitlines())
    coded = [(found[1], line) for line in failures if (found := _CODE.search(line))]
    unusable = [line for code, line in coded if code == NOT_SET_UP]
    faults = {code: line for code, line in reversed(coded) if code != NOT_SET_UP}
    bare = [line for line in failures if not _CODE.search(line) and (_OF_A_CHECK in line or not coded)]
    if bare:
        faults[GENERIC] = bare[0]
    if unusable and not faults:
        return Said(unknown={TYPE: f"a check is not set up: {_plain(unusable[0])}"})
    if added and _PASSED.search(log) and not failures:
        # A later run may have passed; or one that failed could not write its log, which was too long.
        why = f"taint {TAINT} is beside a log of checks that passed, and one of them is old"
        return Said(unknown={TYPE: why})
    if added and not failures:
        said = f"taint {TAINT}, and no failure in {ANNOTATION}"
        return Said((Mark(TYPE, GENERIC, said, f"{said}{added}", added_at(added)),))
    # The log bears no time, and may be of a later run than the taint. Who takes off the taint leaves the log.
    beside = frozenset(taints.items())
    return Said(
        tuple(Mark(TYPE, c, _plain(x), f"{x}{_NO_TIME}", beside=beside) for c, x in sorted(faults.items()))
    )


def _failures(lines: Sequence[str]) -> list[str]:
    """Each failure: its first line, and those after it up to the one with its code, if there is one."""
    found = []
    for at, line in enumerate(lines):
        line = line[:LONGEST_LINE]
        if not _FAILED.search(line):
            continue
        text = line
        for more in lines[at + 1 : at + MOST_LINES]:
            if _CODE.search(text) or _NEXT.search(more[:LONGEST_LINE]):
                break
            text = f"{text} {more[:LONGEST_LINE]}"
        found.append(text if _CODE.search(text) else line)
    return found


def _plain(line: str) -> str:
    return " ".join(line.split())[:EVIDENCE]
