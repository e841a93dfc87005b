"""The kernel's lines as they are read here: as node-problem-detector reads them by the GPU pack's rules."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from recovery.catalog.codes import sxids, xids
from recovery.catalog.kernel_lines import LONGEST, read
from tests.builders.kernel_lines import FORGED, forged

PACK = Path(__file__).parents[2] / "deploy" / "npd-gpu" / "pack"
RULES = [
    (rule.get("condition", ""), rule["reason"], re.compile(rule["pattern"] + r"\Z", re.ASCII))
    for name in ("gpu-xid", "nvswitch", "told")
    for rule in json.loads((PACK / f"{name}.json").read_text())["rules"]
]
XID, SXID = "NVRM: Xid (PCI:0000:1b:00): ", "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): "


def by_the_pack(line: str) -> set[tuple[str, str]]:
    return {(type_, reason) for type_, reason, matcher in RULES if matcher.search(line)}


def by_us(line: str) -> set[tuple[str, str]]:
    return {(said.type, said.reason) for said in read(line)}


def test_every_code_is_what_it_is_to_the_pack() -> None:
    for number in {c.number for c in xids()} | {7, 999, 1490}:
        for rest in ("", ", pid=1", ", NETIR Nonfatal x (0x0)", ", x Fatal (0x004505c6 0x0)", "0", "x"):
            assert by_us(f"{XID}{number}{rest}") == by_the_pack(f"{XID}{number}{rest}")
    for code in sxids():
        for word in ("Fatal", "Non-fatal", ""):
            line = f"[1.5] {SXID}{code.number}, {word}, Link 46 words"
            assert by_us(line) == by_the_pack(line)


def test_whatever_follows_the_code_it_is_what_it_is_to_the_pack() -> None:
    parts = ["0x", "(", "a", "b1", "2", " ", ",", "Nonfatal", "N", "on", "(0x004505c6", "Fatal", ")", "é"]
    draw = random.Random(11)  # noqa: S311
    for _ in range(3000):
        rest = "".join(draw.choice(parts) for _ in range(draw.randint(0, 12)))
        start = draw.choice(("", "[   12.000001] ", "kernel: ", " ", "x: ", "[T1] "))
        line = f"{start}{draw.choice((XID, SXID))}{draw.choice((79, 148, 149, 150, 12020, 11001))}{rest}"
        assert by_us(line) == by_the_pack(line.rstrip()), line


@pytest.mark.parametrize("part", [" GPU-I:05", " GPU-I:01 GPU-CI:02"])
def test_a_line_about_a_part_of_a_divided_gpu_is_about_that_gpu(part: str) -> None:
    for code in xids():
        if not code.subs and not code.nonfatal:
            line = f"NVRM: Xid (PCI:0000:1b:00{part}): {code.number}, pid=7194, name=a, words"
            assert (code.type, code.reason) in by_the_pack(line)
            assert [said.device for said in read(line)] == ["0000:1b:00"]
    assert by_us(f"NVRM: Xid (PCI:0000:1b:00{part}): 999, x") == {("", "GpuXidOther")}
    for odd in (f"{part} x", f"x{part}", " GPU-CI:02", " GPU-I:", " GPU-I:1 GPU-I:2", " GPU-I:11111"):
        line = f"NVRM: Xid (PCI:0000:1b:00{odd}): 79, pid=7194"
        assert by_us(line) == by_the_pack(line) == set(), odd


@pytest.mark.parametrize(
    ("start", "stamp"), [("[   12.500000] ", 12.5), ("[1235733.431527] ", 1235733.431527), ("kernel: ", None)]
)
def test_a_line_has_its_device_and_the_kernels_own_time(start: str, stamp: float | None) -> None:
    (said,) = read(f"{start}{XID}79, pid='<unknown>'\r\n")
    assert (said.reason, said.device, said.stamp) == ("GpuXid79", "0000:1b:00", stamp)


@pytest.mark.parametrize("line", FORGED.values(), ids=FORGED)
def test_a_process_without_privileges_forges_no_code(line: str) -> None:
    for code in (f"{XID}79, x", f"[1.0] {XID}79, x", f"{SXID}12020, Fatal"):
        assert read(f"[99.123456] {forged(line, code)}") == ()


@pytest.mark.parametrize("line", ["", "\n", "x" * 10**6, "[" * 10**6, f"x\n{XID}79, x"])
def test_no_other_line_is_a_code_however_long_it_is(line: str) -> None:
    assert read(line) == ()


def test_what_a_long_line_begins_with_counts() -> None:
    assert by_us(f"{XID}79, {'x' * LONGEST}") == {("GpuXid", "GpuXid79")}
