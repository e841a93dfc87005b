"""A node with GPUs that is not there, for the pack's checks: nvidia-smi, /proc, /sys and systemd's folders.

The forms of the answers are those of nvidia-smi's manual and of public logs of it (drivers 535 to 580).
"""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import NamedTuple

PACK = Path(__file__).parents[2] / "deploy" / "npd-gpu" / "pack"
CHECK = PACK / "gpu-check"
BOOT = "5b0a7a1c-0000-4000-8000-000000000001"
ASKED = {
    "list": "--query-gpu=pci.bus_id --format*",
    "ecc": "*ecc.errors.uncorrected.volatile.total*",
    "remap": "*--query-remapped-rows=*",
    "nvlink": "nvlink -s",
    "recovery": "*gpu_recovery_action*",
    "throttle": "*clocks_event_reasons.active*",
    "throttle-old": "*clocks_throttle_reasons.active*",
}
"""What nvidia-smi is asked, as a shell pattern."""


class Said(NamedTuple):
    """What a check said: its exit code, its only line, and its errors."""

    code: int
    line: str
    errors: str


def bus(gpu: int) -> str:
    return f"00000000:{0x10 + gpu:02X}:00.0"


def per_gpu(*values: str, gpus: int = 8) -> str:
    """A line for each GPU: the last of ``values`` for all that have none of their own."""
    rows = [values[min(i, len(values) - 1)] for i in range(gpus)]
    return "".join(f"{bus(i)}, {row}\n" for i, row in enumerate(rows))


def nvlinks(gpus: int = 8, links: int = 18, inactive: tuple[tuple[int, int], ...] = ()) -> str:
    lines = []
    for gpu in range(gpus):
        lines.append(f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: GPU-{gpu})")
        for link in range(links):
            state = "<inactive>" if (gpu, link) in inactive else "26.562 GB/s"
            lines.append(f"\t Link {link}: {state}")
    return "\n".join(lines) + "\n"


class GpuNode:
    """A healthy p5.48xlarge, to be spoiled. ``seconds``: since its boot."""

    def __init__(self, folder: Path, sku: str = "p5.48xlarge") -> None:
        self.folder = folder
        self.seconds = 100_000
        self.environ: dict[str, str] = {}
        self._answers: dict[str, str] = {}
        self.write("proc/sys/kernel/random/boot_id", BOOT)
        self.write("sys/class/dmi/id/product_name", sku)
        self.gpus_in_proc(8)
        for word, text in {
            "list": "".join(f"{bus(i)}\n" for i in range(8)),
            "ecc": per_gpu("0"),
            "remap": per_gpu("0, 0"),
            "nvlink": nvlinks(),
            "recovery": per_gpu("None"),
            "throttle": per_gpu("97, 0x0000000000000004"),
        }.items():
            self.answers(word, text)
        for unit in ("nvidia-fabricmanager", "nvidia-persistenced"):
            self.service(unit, runs=True)

    # ------------------------------------------------------------ what is there

    def write(self, path: str, text: str) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def remove(self, path: str) -> None:
        subprocess.run(["rm", "-rf", str(self.folder / path)], check=True)  # noqa: S603, S607

    def gpus_in_proc(self, count: int) -> None:
        self.remove("proc/driver/nvidia/gpus")
        (self.folder / "proc/driver/nvidia/gpus").mkdir(parents=True)
        for gpu in range(count):
            self.write(f"proc/driver/nvidia/gpus/{bus(gpu).lower()}/information", "Model: NVIDIA H100")

    def infiniband(self, ports: int = 8, rate: int = 400) -> None:
        for port in range(ports):
            self.port(port, rate=f"{rate} Gb/sec (4X NDR)")
        self.port(99, link_layer="Ethernet", state="1: DOWN", rate="100 Gb/sec (4X EDR)", name="mlx5_an")

    def port(self, number: int, name: str = "mlx5_ib", downed: int = 0, **files: str) -> None:
        at = f"sys/class/infiniband/{name}{number}/ports/1"
        known = {"link_layer": "InfiniBand", "state": "4: ACTIVE", "phys_state": "5: LinkUp"}
        for file, text in {**known, "rate": "400 Gb/sec (4X NDR)", **files}.items():
            self.write(f"{at}/{file}", text)
        self.write(f"{at}/counters/link_downed", str(downed))

    def service(self, unit: str, *, runs: bool, enabled: bool = True) -> None:
        at = f"cgroup/system.slice/{unit}.service"
        self.remove(at)
        (self.folder / "cgroup/system.slice").mkdir(parents=True, exist_ok=True)
        if runs:
            self.write(f"{at}/cgroup.events", "populated 1\nfrozen 0")
        link = self.folder / f"systemd/multi-user.target.wants/{unit}.service"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        if enabled:
            link.symlink_to(f"/usr/lib/systemd/system/{unit}.service")

    # ------------------------------------------------------------ what nvidia-smi says

    def answers(self, word: str, text: str, code: int = 0) -> None:
        self._answers[word] = f"printf %s {shlex.quote(text)}; exit {code}"

    def does(self, script: str, *words: str) -> None:
        """For these questions, or all of them, nvidia-smi is this script."""
        for word in words or tuple(ASKED):
            self._answers[word] = script

    @property
    def asked(self) -> int:
        """How often nvidia-smi was started."""
        calls = self.folder / "calls"
        return len(calls.read_text().splitlines()) if calls.exists() else 0

    @property
    def smi(self) -> Path:
        return self.folder / "nvidia-smi"

    def _make_smi(self) -> None:
        cases = "".join(f"{ASKED[w]}) {script} ;;\n" for w, script in self._answers.items())
        cases = cases.replace(" --format*)", "\\ --format*)").replace("nvlink -s)", "nvlink\\ -s)")
        calls = shlex.quote(str(self.folder / "calls"))
        unknown = "echo 'Field \"x\" is not a valid field to query.'; exit 2"
        new = self.folder / "nvidia-smi.new"  # a detector may be running the one before
        new.write_text(f'#!/bin/bash\necho "$*" >>{calls}\ncase "$*" in\n{cases}*) {unknown} ;;\nesac\n')
        new.chmod(0o755)
        new.replace(self.smi)

    # ------------------------------------------------------------ a run

    def environment(self) -> dict[str, str]:
        at = {name: str(self.folder / name.lower()) for name in ("PROC", "SYS", "CGROUP", "STATE")}
        return {
            "PATH": os.environ["PATH"],
            **{f"GPU_PACK_{name}": place for name, place in at.items()},
            "GPU_PACK_UNITS": str(self.folder / "systemd"),
            "GPU_PACK_HOST_USR": str(self.folder / "usr"),
            "NVIDIA_SMI": str(self.smi),
            "NVIDIA_SMI_TIMEOUT": "20",
            **self.environ,
        }

    def prepare(self) -> None:
        self.write("proc/uptime", f"{self.seconds}.12 0.00")
        self._make_smi()

    def look(self, check: str, after: int = 60, limit: float = 60) -> Said:
        """A run of ``check``, so many seconds after the last. An answer of before is not kept so long."""
        self.seconds += after
        self.prepare()
        done = subprocess.run(  # noqa: S603
            [str(CHECK), check],
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=limit,
        )
        assert done.stdout.count("\n") == 1, done
        assert len(done.stdout) <= 81, done
        return Said(done.returncode, done.stdout.strip(), done.stderr)

    def looks(self, check: str, times: int) -> list[int]:
        """The exit codes of so many runs."""
        return [self.look(check).code for _ in range(times)]
