"""The page of node-problem-detector, as its bytes come from the reader: parsed, and compared with the one before."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from random import Random

from recovery_testkit.clock import FakeClock

from recovery.signals.npd import NpdSource
from tests.fuzz.engine import Input
from tests.fuzz.mutate import NUMBERS, TEXTS

WEIGHT = 10
CAPTURES = Path(__file__).parents[2] / "captures"
EXAMPLES = [path.read_bytes() for path in sorted(CAPTURES.rglob("*.prom"))]
WORDS = (
    b"problem_gauge", b"problem_counter", b"problem_counter_total", b'reason="', b'type="', b"process_start_time_seconds 1.7e9\n",
    b"# TYPE problem_gauge gauge\n", b"# HELP problem_gauge", b' # {trace_id="1"} 1', b"# EOF\n", b" 1700000000000", b'\\"', b"\\n",
)  # fmt: skip
LIVES = 50
"""Pages that one process of the agent reads, one after the other: each is compared with those before."""


class Reader:
    def __init__(self) -> None:
        self.page, self.read = b"", 0
        self.clock = FakeClock()

    def feed(self, page: bytes) -> None:
        if self.read % LIVES == 0:
            self.source = NpdSource(
                lambda: self.page, self.clock, self.clock.true_time, timedelta(seconds=0.5), "node-0"
            )
        self.page, self.read = page, self.read + 1
        reading = self.source.poll(f"boot-{self.read % 7 // 6}")
        self.clock.advance(0.5)
        assert reading.source == "npd"


def made(rng: Random) -> bytes:
    """Lines as the format allows them, of few names, so that they are about each other."""
    lines = []
    for _ in range(rng.choice((1, 2, 5, 20, 20, 100))):
        name = rng.choice(
            ("problem_gauge", "problem_counter", "problem_counter_total", "up", "problem_gauge ")
        )
        labels = [f'reason="{_value(rng)}"', f'type="{_value(rng)}"', f'{_value(rng)}="{_value(rng)}"']
        rng.shuffle(labels)
        value = rng.choice(
            ("0", "1", "1", "2", "1e0", "+1", "0x1", "1_0", "NaN", "+Inf", str(rng.choice(NUMBERS)))
        )
        lines.append(
            f"{name}{{{','.join(labels[: rng.randint(0, 3)])}}} {value}{rng.choice(('', ' ', ' 1700000000'))}"
        )
    return ("\n".join(lines) + rng.choice(("\n", "\n", "", "\r\n"))).encode("utf-8", "replace")


def _value(rng: Random) -> str:
    plain = rng.choice(("NeuronHealth", "KernelDeadlock", "DMA", "HANG", "", "*"))
    return plain if rng.random() < 0.8 else rng.choice(TEXTS)


def make() -> Input:
    modules = tuple(
        f"recovery.signals.{name}" for name in ("page", "series", "compare", "npd", "tracker", "memory")
    )
    return Input("NPD page", Reader().feed, EXAMPLES, made, WORDS, WEIGHT, modules)
