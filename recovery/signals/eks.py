"""What EKS's node monitoring agent writes into the Node condition of its accelerators: the faults behind the
last one.

Its reason is that of the fault that it found last. The messages of all of them are joined by ``; `` and stay
until its pod starts anew (https://github.com/aws/eks-node-monitoring-agent, pkg/manager/node_exporter.go). So
a GPU that fell off the bus is soon in the message alone: the engine that it took along cannot be reached, and
that is the reason then. Which fault a message is of, its words say (monitors/nvidia, monitors/neuron).
"""

from __future__ import annotations

import re

from recovery.catalog import OF_EKS
from recovery.model import Condition
from recovery.signals.nvsentinel import Found

LONGEST = 16 * 1024
MOST = 10
"""The most faults that one condition states, the one of its reason among them."""
_WORDS = tuple(
    (re.compile(words, re.ASCII), reason)
    for words, reason in (
        (r"detected XID-([0-9]{1,4}) on the instance", "NvidiaXID{}Error"),
        (r"detected [0-9]+ Nvidia Double Bit error\(s\) on ", "NvidiaDoubleBitError"),
        (r"detected [0-9]+ NVLink errors on fieldId ", "NvidiaNVLinkError"),
        (r"DCGM detected [0-9]+ GPUs but [0-9]+ nvidia device files ", "NvidiaDeviceCountMismatch"),
        (r"expected [0-9]+ GPUs for this instance type but only [0-9]+ ", "NvidiaDeviceCountMismatch"),
        (r"GPU fabric health mask 0x[0-9a-f]+: ", "NvidiaFabricError"),
        (r"Fabric Manager status: ", "FabricManagerNotRunning"),
        (r"DCGM detected issues in health check system with error code ([0-9]{1,4})", "DCGMHealthCode{}"),
        (r"DCGM Diagnostic failed for test ", "DCGMDiagnosticFailure"),
        (r"Discovered (SRAM|NC|HBM) Uncorrectable Error", "Neuron{}UncorrectableError"),
        (r"Discovered DMA Error", "NeuronDMAError"),
    )
)


def found(c: Condition) -> tuple[Found, ...]:
    """The fault of its reason, and those of which only its message tells; none where that is not EKS's."""
    if c.type != OF_EKS or not c.reason:
        return ()
    said: dict[str, str] = {}
    rest: list[str] = []
    for entry in c.message[:LONGEST].split("; "):
        reason = _reason(entry)
        said.setdefault(reason, entry) if reason else rest.append(entry)
    last = Found(c.reason, said.pop(c.reason, "; ".join(rest)))
    return (last, *(Found(reason, entry) for reason, entry in said.items()))[:MOST]


def _reason(entry: str) -> str:
    """Of which fault these words are; "" where they are not known."""
    known = ((words.match(entry), reason) for words, reason in _WORDS)
    return next((reason.format(*one.groups()) for one, reason in known if one), "")
