"""Write node-problem-detector's files of the GPU pack: ``python deploy/npd-gpu/rules.py``.

The rules for the kernel's log are made from ``recovery/catalog/xids.yaml``. Each check of the pack has a file
of its own, with one condition and one rule. There is no other way: a plugin's rule has one
reason, and the good run of one rule takes back what another one of the same condition has just stated. And
the result of one rule would show every condition of its file as good that nobody has looked at yet.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recovery.catalog.codes import GPU, OTHERS, SWITCH, Code, sxids, xids
from recovery.catalog.kernel_lines import pattern, patterns_of_others

HERE = Path(__file__).parent / "pack"
MOUNTED = "/gpu-pack"
"""Where the pack is in node-problem-detector's container."""
BOOT, LATELY = "8760h", "1m"
"""How far back the log is read at a start. A condition is stated again for what was logged since this boot.
What is only counted would be counted twice, so it is read only from about where the last detector ended."""


@dataclass(frozen=True)
class Check:
    """A plugin. ``name``: of its file and of the check. ``every``: seconds from one run to the next."""

    name: str
    type: str
    reason: str
    good: str
    message: str
    every: int = 60


CHECKS = (
    Check("gpu-count", "GpuCount", "GpuCountBad", "GpuCountGood", "Every GPU of this machine answers"),
    Check("gpu-hang", "GpuHang", "GpuHang", "GpuAnswers", "nvidia-smi answers"),
    Check(
        "gpu-ecc", "GpuEcc", "GpuEccUncorrectable", "GpuEccGood", "No uncorrectable ECC error since the boot"
    ),
    Check(
        "gpu-remap-pending",
        "GpuRowRemapPending",
        "GpuRowRemapPending",
        "NoGpuRowRemapPending",
        "No row of GPU memory waits to be remapped",
    ),
    Check(
        "gpu-remap-failed",
        "GpuRowRemapFailed",
        "GpuRowRemapFailed",
        "NoGpuRowRemapFailed",
        "Every row of GPU memory that had to be was remapped",
    ),
    Check(
        "gpu-nvlink", "GpuNvlink", "GpuNvlinkInactive", "GpuNvlinkGood", "Every NVLink of every GPU is active"
    ),
    *(
        Check(
            f"gpu-recovery-{name}",
            f"GpuRecovery{reason}",
            f"GpuRecovery{reason}",
            f"NoGpuRecovery{reason}",
            f"The driver does not ask for {what}",
            30,
        )
        for name, reason, what in (
            ("reset", "Reset", "a reset of a GPU or of its bus"),
            ("reboot", "Reboot", "a reboot"),
            ("drain-and-reset", "DrainAndReset", "a drain and a reset of a GPU"),
            ("other", "Other", "what no reboot of this machine is the answer to"),
        )
    ),
    Check(
        "gpu-throttle",
        "GpuThrottle",
        "GpuHwSlowdown",
        "NoGpuHwSlowdown",
        "No loaded GPU is slowed down by its hardware",
    ),
    Check("ib-port", "IbDev", "IbPortDown", "IbPortsUp", "Every InfiniBand port is up at its rate"),
    Check(
        "ib-flap", "IbLinkFlapping", "IbLinkFlapping", "IbLinksSteady", "No InfiniBand link comes and goes"
    ),
    Check(
        "fabric-manager",
        "FabricManagerDown",
        "FabricManagerNotActive",
        "FabricManagerActive",
        "The fabric manager runs, or is not to",
    ),
    Check(
        "persistenced",
        "NvidiaPersistencedDown",
        "NvidiaPersistencedNotActive",
        "NvidiaPersistencedActive",
        "The persistence daemon runs, or is not to",
    ),
)


def plugin(check: Check) -> dict[str, Any]:
    """A check's file."""
    return {
        "plugin": "custom",
        "pluginConfig": {
            "invoke_interval": f"{check.every}s",
            # A check ends within 36 s of its own, also where nvidia-smi cannot be killed.
            "timeout": "45s",
            "max_output_length": 80,
            "concurrency": 1,
            "enable_message_change_based_condition_update": False,
            "skip_initial_status": True,
        },
        "source": f"gpu-pack-{check.name}",
        "metricsReporting": True,
        "conditions": [{"type": check.type, "reason": check.good, "message": check.message}],
        "rules": [
            {
                "type": "permanent",
                "condition": check.type,
                "reason": check.reason,
                "path": f"{MOUNTED}/gpu-check",
                "args": [check.name],
                "timeout": "45s",
            }
        ],
    }


def log(
    lookback: str, rules: Iterable[dict[str, str]], condition: dict[str, str] | None = None
) -> dict[str, Any]:
    """A file of rules for the kernel's log. Each line is judged by itself, so ^ is where it begins."""
    return {
        "plugin": "kmsg",
        "logPath": "/dev/kmsg",
        "lookback": lookback,
        "bufferSize": 1,
        "source": "gpu-pack-kernel-log",
        "metricsReporting": True,
        "conditions": [condition] if condition else [],
        "rules": list(rules),
    }


def rule(code: Code, among: Iterable[Code]) -> dict[str, str]:
    """``among``: the codes of which this is one, for those that have sub-codes."""
    return _stated(code.type, code.reason, pattern(code, among))


def _stated(type: str, reason: str, pattern: str) -> dict[str, str]:
    if type:
        return {"type": "permanent", "condition": type, "reason": reason, "pattern": pattern}
    return {"type": "temporary", "reason": reason, "pattern": pattern}


def files() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every file of the pack that is made, by its name."""
    gpu, switch = xids(), sxids()
    yield (
        "gpu-xid.json",
        log(
            BOOT,
            (rule(code, gpu) for code in gpu if code.type),
            {
                "type": GPU,
                "reason": "NoGpuXid",
                "message": "The driver has reported no fault of a GPU since this boot",
            },
        ),
    )
    yield (
        "nvswitch.json",
        log(
            BOOT,
            (rule(code, switch) for code in switch),
            {
                "type": SWITCH,
                "reason": "NoSXid",
                "message": "The driver has reported no fatal fault of an NVSwitch since this boot",
            },
        ),
    )
    told = [rule(code, gpu) for code in gpu if not code.type]
    unknown = patterns_of_others(gpu)
    told += [_stated("", reason, unknown[reason]) for reason in OTHERS]
    yield "told.json", log(LATELY, told)
    for check in CHECKS:
        yield f"{check.name}.json", plugin(check)


def main() -> None:
    for name, content in files():
        (HERE / name).write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
