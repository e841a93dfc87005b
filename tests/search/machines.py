"""Machines and their detectors: the ground truth of a history, of which agents see the page only."""

from __future__ import annotations

from dataclasses import dataclass, field

LOG, PLUGIN_TYPE = "NeuronHealth", "GpuNvlink"
LOG_REASONS = (
    "NeuronHasError_DMA_ERROR",
    "NeuronHasError_HBM_UNCORRECTABLE_ERROR",
    "NeuronHasError_NC_UNCORRECTABLE_ERROR",
)
XID_TYPE, XID = "XidErrors", "XidErrorsFound"
MANY = tuple(f"NeuronNotice{i:03}" for i in range(300))
PLUGIN_REASON, PLUGIN_GOOD = "GpuNvlinkBad", "GpuNvlinkGood"
ON_PAGE = {PLUGIN_REASON: PLUGIN_TYPE, XID: XID_TYPE, **dict.fromkeys(LOG_REASONS, LOG)}
"""The types of what node-problem-detector finds, by reason."""
EKS_TYPE, EKS, EKS_GOOD = "AcceleratedHardwareReady", "NvidiaXID79Error", "NvidiaAcceleratedHardwareIsReady"
MARK_TYPE, MARK = "Konduktor", "KonduktorFaulty"
READY, SILENT_REASON = "Ready", "Kubelet"
"""The type and the reason of a Node that is not Ready."""
OFTEN = "OOMKilling"
"""Of a temporary rule: it has a counter and nothing else."""
TYPES = {**ON_PAGE, EKS: EKS_TYPE, MARK: MARK_TYPE, OFTEN: ""}
"""The types of all that can be wrong."""
ONCE = (XID, MARK)
"""What is stated once, and not again when a machine has booted or its detector was started anew."""


@dataclass
class Detector:
    """node-problem-detector on one machine, from its start to its end.

    A log rule counts each line, shows the last reason of its type, and shows it until it is started anew. A
    plugin shows what its last run found, and counts when that changes to bad; each bad run counts until it had a
    good one. ``many``: so many reasons more are shown, each of a type of its own.
    """

    counts: dict[str, int] = field(default_factory=dict)
    shown: str = ""  # the log type's reason
    bad: bool = False  # the plugin's last run
    xid: bool = False  # the check of XIDs
    many: int = 0
    ran: bool = True  # whether the plugin has had a good run since the start
    started: float | None = None  # as the page tells it; None where it does not
    counts_often: bool = False  # whether it has the temporary rule
    lacks: frozenset[str] = frozenset()  # types of which its configuration has no rule any more

    def line(self, reason: str) -> None:
        """A line in the kernel's log."""
        self.counts[reason] = self.counts.get(reason, 0) + 1
        self.shown = reason

    def run(self, bad: bool) -> None:
        """The plugin has run."""
        if bad and (not self.bad or not self.ran):
            self.counts[PLUGIN_REASON] = self.counts.get(PLUGIN_REASON, 0) + 1
        self.bad = bad
        self.ran = self.ran or not bad

    def conditions(self) -> list[tuple[str, str, str]]:
        """(type, status, reason) of what its exporter writes to the Node."""
        found = [
            (LOG, _status(bool(self.shown)), self.shown or "NeuronIsHealthy"),
            (PLUGIN_TYPE, _status(self.bad), PLUGIN_REASON if self.bad else PLUGIN_GOOD),
            (XID_TYPE, _status(self.xid), XID if self.xid else "NoXid"),
        ]
        return [row for row in found if row[0] not in self.lacks]

    def page(self) -> bytes:
        lines = ["# TYPE problem_counter counter"]
        lines += [f'problem_counter{{reason="{r}"}} {self.counts.get(r, 0)}' for r in ON_PAGE]
        if self.counts_often:
            lines.append(f'problem_counter{{reason="{OFTEN}"}} {self.counts.get(OFTEN, 0)}')
        lines.append("# TYPE problem_gauge gauge")
        lines += [f'problem_gauge{{reason="{r}",type="{LOG}"}} {int(r == self.shown)}' for r in LOG_REASONS]
        lines.append(f'problem_gauge{{reason="{PLUGIN_REASON}",type="{PLUGIN_TYPE}"}} {int(self.bad)}')
        lines.append(f'problem_gauge{{reason="{XID}",type="{XID_TYPE}"}} {int(self.xid)}')
        lines.append(f'problem_gauge{{reason="NoXid",type="{XID_TYPE}"}} 0')
        for reason in MANY[: self.many]:
            lines.append(f'problem_counter{{reason="{reason}"}} 1')
            lines.append(f'problem_gauge{{reason="{reason}",type="Type{reason}"}} 1')
        if self.ran:
            lines.append(f'problem_gauge{{reason="{PLUGIN_GOOD}",type="{PLUGIN_TYPE}"}} 0')
        if self.started is not None:
            lines.append(f"process_start_time_seconds {1e9 + self.started:.2f}")
        gone = [f'type="{t}"' for t in self.lacks] + [f'"{r}"' for r, t in ON_PAGE.items() if t in self.lacks]
        lines = [line for line in lines if not any(x in line for x in gone)]
        return ("\n".join(lines) + "\n").encode()


def _status(bad: bool) -> str:
    return "True" if bad else "False"


@dataclass
class Sickness:
    """What is wrong with a machine. ``cure``: the steps that mend it; a replaced machine is gone with it."""

    reason: str
    cure: tuple[str, ...]
    since: float


@dataclass
class Machine:
    """One machine of the group, from its launch to its end."""

    id: str
    group: str
    place: int
    node: str = ""
    boots: int = 1
    booted: float = 0.0  # when it booted last
    up: bool = True
    gone: bool = False
    hangs: bool = False  # it is down until somebody boots it
    downs: int = 0  # how often it has gone down
    sick: dict[str, Sickness] = field(default_factory=dict)
    detector: Detector = field(default_factory=Detector)
    happened: list[float] = field(default_factory=list)  # when what is counted did, in this boot
    unready: float | None = None  # since when its Node is not Ready
    well: float = 0.0  # since when it is
    not_ready: bool = False  # what EKS's agent has found since it started

    @property
    def boot_id(self) -> str:
        return f"{self.id}-boot-{self.boots}"
