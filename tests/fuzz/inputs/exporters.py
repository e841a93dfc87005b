"""Pages of dcgm-exporter and of Autopilot, and NVSentinel's messages: read, and compared with those before."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

from recovery.model import Condition, Reading
from recovery.signals import autopilot_gauge, dcgm, nvsentinel
from tests.builders.exporters import autopilot_page, dcgm_page
from tests.fuzz.engine import Input
from tests.fuzz.mutate import NUMBERS, TEXTS

WEIGHT = 2
PAGES = Path(__file__).parents[2] / "exporters"
MESSAGE = b"ErrorCode:79 GPU:5 PCI:0000:c5:00.0 GPU_UUID:GPU-1 it fell off Recommended Action=RESTART_BM;"
EXAMPLES = [
    *(path.read_bytes() for path in sorted(PAGES.glob("*.txt"))),
    dcgm_page(gpus=[0, 1], counted={(0, 79): 1}, health={(1, "MEM"): (20, "DCGM_FR_OK")}, actions={0: 2}),
    autopilot_page(gpus=[0, 1], remapped=[1], dcgm=1),
    MESSAGE * 3,
    b"[79, 119] text - RecommendedAction: RESTART_BM",
]
WORDS = (
    *(f"{family}{{".encode() for family in (*dcgm.OF, autopilot_gauge.FAMILY)),
    b'gpu="0"', b'UUID="', b'xid="79"', b'health="', b'node="node-0"', b'health_watch="ALL"', b"Recommended Action=",
    b"ErrorCode:", b"} 79\n", b"} 20\n", b" 9223372036854775794\n", b"} NaN\n", b'\\"',
)  # fmt: skip
LIVES = 50
"""Pages that one process of the agent reads, one after the other: each is compared with those before."""
NOW = datetime(2026, 11, 21, 3, 0, tzinfo=UTC)


class Reader:
    def __init__(self) -> None:
        self.read = 0

    def feed(self, page: bytes) -> None:
        if self.read % LIVES == 0:
            self.gpus, self.gauge = dcgm.State(), autopilot_gauge.State()
        self.read += 1
        text, at = page.decode("utf-8", "replace"), NOW + timedelta(seconds=15 * self.read)
        boot = f"boot-{self.read % 7 // 6}"
        self.gpus, first = dcgm.observe(self.gpus, text, at, boot)
        self.gauge, second = autopilot_gauge.observe(self.gauge, text, at, boot, "node-0", 4.0)
        for reading in (first, second):
            bounded(reading)
        for fault in nvsentinel.found(Condition("T", "True", "TIsNotHealthy", text)):
            assert len(fault.reason) <= 200
            assert len(fault.device) <= 160


def bounded(reading: Reading) -> None:
    """What is not known clears nothing, and no word of others is kept whole."""
    assert not {t for t, _ in reading.cleared} & reading.unknown.keys()
    assert "*" not in reading.unknown or not (reading.cleared or reading.problems)
    for problem in reading.problems:
        assert len(problem.message) <= 256
        assert len(problem.device) <= 160
        assert len(problem.times) <= 100


def made(rng: Random) -> bytes:
    """Lines as the format allows them, of few names and devices, so that they are about each other."""
    lines = []
    for _ in range(rng.choice((1, 2, 5, 20, 20, 100))):
        family = rng.choice((*dcgm.OF, *dcgm.OF, autopilot_gauge.FAMILY, "up"))
        labels = [
            f'gpu="{rng.randint(0, 1)}"', f'UUID="GPU-{rng.randint(0, 1)}"', f'xid="{rng.choice((31, 79, 119))}"',
            f'health_watch="{rng.choice(("MEM", "ALL", "PCIE", _word(rng)))}"', 'node="node-0"', 'deviceid="0"',
            f'health="{rng.choice((*autopilot_gauge.OF, "ping"))}"', f'health_error_code="{_word(rng)}"',
        ]  # fmt: skip
        rng.shuffle(labels)
        value = rng.choice(("0", "1", "2", "20", "79", "13", "NaN", "-1", str(rng.choice(NUMBERS))))
        lines.append(f"{family}{{{','.join(labels[: rng.randint(0, 8)])}}} {value}")
    return ("\n".join(lines) + rng.choice(("\n", "\n", "\n", ""))).encode("utf-8", "replace")


def _word(rng: Random) -> str:
    return rng.choice(TEXTS) if rng.random() < 0.2 else "DCGM_FR_XID_ERROR"


def make() -> Input:
    names = ("dcgm", "autopilot_gauge", "nvsentinel", "series")
    modules = tuple(f"recovery.signals.{name}" for name in names)
    return Input("exporters", Reader().feed, EXAMPLES, made, WORDS, WEIGHT, modules)
