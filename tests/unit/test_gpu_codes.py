"""XIDs and SXids: which line is which reason, whom it speaks of, and that none of them goes unheard."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from recovery.catalog import lookup
from recovery.catalog.codes import OTHERS, Code, rows, sxids, xids
from recovery.model import Latch, Step
from tests.builders.kernel_lines import FORGED, forged

PACK = Path(__file__).parents[2] / "deploy" / "npd-gpu" / "pack"
FILES = {name: json.loads((PACK / f"{name}.json").read_text()) for name in ("gpu-xid", "nvswitch", "told")}
RULES = [rule for file in FILES.values() for rule in file["rules"]]
MATCHERS = [(rule["reason"], re.compile(rule["pattern"] + r"\Z", re.ASCII)) for rule in RULES]
XID, SXID = "NVRM: Xid (PCI:0000:1b:00): ", "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): "
PID = ", pid='<unknown>', name=<unknown>, words"
NMA = {46, 48, 54, 62, 63, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 142, 143, 151, 155, 156, 158}
"""For these EKS's node monitoring agent takes a node out (pkg/..., WellKnownXidCodes, 2026-08)."""
AZNHC = {48, 62, 63, 64, 68, 69, 74, 79, 92, 119, 120}
"""For these AzNHC fails (check_gpu_xid, 2026-05), and others that NVIDIA calls unused."""
DRA = {13, 31, 43, 45, 68, 109}
"""These NVIDIA's DRA driver takes for the application's."""


def reasons(line: str) -> list[str]:
    """As node-problem-detector matches, each line by itself."""
    return [reason for reason, matcher in MATCHERS if matcher.search(line)]


def word(sub: int, fill: int = 0x040005C6) -> str:
    """A first word with ``sub`` in its bits 20 to 25."""
    return f"(0x{fill & ~(63 << 20) | sub << 20:08x} 0x00000000 0x00000000)"


# ---------------------------------------------------------------- lines


@pytest.mark.parametrize("code", [c for c in xids() if not c.subs and not c.nonfatal], ids=lambda c: c.reason)
def test_every_code_is_found_whatever_else_is_in_the_log(code: Code) -> None:
    """Each has a rule of its own: none waits for another one to be in the log."""
    for line in (f"{XID}{code.number}{PID}", f"{XID}{code.number}", f"kernel: {XID}{code.number}, x"):
        assert reasons(line) == [code.reason]


@pytest.mark.parametrize("number", [7, 1, 80, 800, 7999, 1490, 56, 123, 999])
def test_a_code_that_nobody_has_described_is_heard_too(number: int) -> None:
    assert reasons(f"{XID}{number}{PID}") == ["GpuXidOther"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        # As drivers of 2025 and 2026 wrote them, on public trackers.
        ("149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000)", "GpuXid149Local"),
        ("149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x025001c6 0x00000000 0x00000000)", "GpuXid149Peer"),
        ("149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000)", "GpuXid149Peer"),
        ("149, NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000 0x00000000)", "GpuXid149Sympathetic"),
        ("145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x00000001)", "GpuXid145"),
        ("149, NETIR_LINK_EVT Nonfatal XC0 i0 Link 08 (0x004505c6 0x00000000)", "GpuXid149Nonfatal"),
        ("150, MSE_WATCHDOG Nonfatal XC0 i0 Link -1 (0x00000002)", "GpuXid150Nonfatal"),
        ("150, MSE_WATCHDOG Fatal XC0 i0 Link -1 (0x00000002)", "GpuXid150"),
        ("149, NETIR_LINK_EVT Fatal XC0 i0 Link 00", "GpuXid149"),
        ("149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (unknown)", "GpuXid149"),
        ("149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x45c6)", "GpuXid149"),
        ("154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)", "GpuXid154"),
        ("45, pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149", "GpuXid45"),
        ("79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", "GpuXid79"),
    ],
)
def test_a_line_of_the_driver_is_its_reason(line: str, reason: str) -> None:
    assert reasons(f"{XID}{line}") == [reason]


@pytest.mark.parametrize("sub", range(64))
@pytest.mark.parametrize("fill", [0x040005C6, 0xFFFFFFFF, 0])
def test_the_sub_code_of_149_is_in_bits_20_to_25_of_its_first_word(sub: int, fill: int) -> None:
    known = {s: code.reason for code in xids() for s in code.subs}
    line = f"{XID}149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 08 {word(sub, fill)}"
    assert reasons(line) == [known.get(sub, "GpuXid149")]
    assert reasons(line.replace("0x", "0X").upper()) == []


def test_of_what_149_says_each_line_is_one_reason_whatever_follows_the_code() -> None:
    parts = ["0x", "(", "a", "b1", "2", " ", ",", "Nonfatal", "N", "on", "No", "(0x004505c6", "Fatal", ")"]
    draw = random.Random(7)  # noqa: S311
    for _ in range(5000):
        rest = "".join(draw.choice(parts) for _ in range(draw.randint(0, 12)))
        if not rest[:1].isdigit():
            assert len(reasons(f"{XID}{draw.choice(('148', '149', '150'))}{rest}")) == 1, rest


@pytest.mark.parametrize("code", sxids(), ids=lambda c: c.reason)
def test_an_nvswitchs_code_is_found_by_its_number(code: Code) -> None:
    assert reasons(f"{SXID}{code.number}, Fatal, Link 46 words (First)") == [code.reason, "SXidFatal"]
    quiet = reasons(f"{SXID}{code.number}, Non-fatal, Link 46 words (First)")
    assert quiet == [*(() if code.fatal_only else (code.reason,)), "SXidNonFatal"]


def test_an_nvswitch_error_that_is_not_fatal_is_only_counted() -> None:
    assert reasons(f"{SXID}22013, Non-fatal, Link 60 Minion Link DLREQ interrupt") == ["SXidNonFatal"]
    assert reasons(f"{SXID}20009, Fatal, Link 04 RX Short Error Rate") == ["SXidFatal"]


@pytest.mark.parametrize("line", FORGED.values(), ids=FORGED)
@pytest.mark.parametrize("code", [f"{XID}79, x", f"{XID}13, x", f"kernel: {XID}48", f"{SXID}12020, Fatal"])
def test_a_process_without_privileges_forges_no_code(line: str, code: str) -> None:
    assert reasons(forged(line, code)) == []


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid (PCI:0000:1b:00): ",
        "NVRM: Xid (0000:1b:00): 79, x",
        "NVRM: Xid (PCI:0000:1b:00) 79",
        "NVRM: xid (PCI:0000:1b:00): 79, x",
        f"python: {XID}79, x",
        f" {XID}79, x",
        "NVRM: GPU at PCI:0000:1b:00: GPU-b850f46d",
    ],
)
def test_no_other_line_is_a_code(line: str) -> None:
    assert reasons(line) == []


# ---------------------------------------------------------------- what they mean


@pytest.mark.parametrize(
    "code", [c for c in xids() if c.speaks_of in ("app", "victim")], ids=lambda c: c.reason
)
def test_what_an_application_or_a_victim_states_takes_no_node_out(code: Code) -> None:
    """It has no condition, and a rule of a policy reaches it only by its whole name and a number of times."""
    row = lookup("", code.reason)
    assert row is not None
    assert (row.type, row.this_node) == ("", False)
    assert [rung.do for rung in row.remedy or ()] == [Step.NOTIFY]
    assert code.reason in {rule["reason"] for rule in FILES["told"]["rules"]}


@pytest.mark.parametrize("number", [13, 31, 45, 145])
def test_those_that_hundreds_of_healthy_nodes_have_stated_are_among_them(number: int) -> None:
    assert {c.speaks_of for c in xids() if c.number == number} <= {"app", "victim"}


@pytest.mark.parametrize("code", [c for c in (*xids(), *sxids()) if c.type], ids=lambda c: c.reason)
def test_what_asks_for_something_is_latched_and_rebooted_before_it_is_replaced(code: Code) -> None:
    row = lookup(code.type, code.reason)
    assert row is not None
    assert row.this_node
    assert row.detector is not None
    assert row.latch in (None, Latch.BOOT), "a log rule's is: another boot or machine ends it"
    assert [rung.do for rung in row.remedy or ()] == [Step.DRAIN, Step.REBOOT, Step.REPLACE]


def test_a_condition_has_only_codes_that_ask_for_something_so_that_no_other_hides_one() -> None:
    """Of a type's reasons one shows at a time: the latest."""
    told = {code.reason for code in xids() if not code.type} | set(OTHERS)
    for name in ("gpu-xid", "nvswitch"):
        assert {rule["type"] for rule in FILES[name]["rules"]} == {"permanent"}
        assert not told & {rule["reason"] for rule in FILES[name]["rules"]}
    assert {rule["type"] for rule in FILES["told"]["rules"]} == {"temporary"}
    assert {rule["reason"] for rule in FILES["told"]["rules"]} == told
    assert FILES["told"]["conditions"] == []


def test_every_code_is_catalogued_once_with_its_source_and_its_date() -> None:
    codes = (*xids(), *sxids())
    assert len({code.reason for code in codes}) == len(codes)
    assert {row["reason"] for row in rows()} == {rule["reason"] for rule in RULES}
    for code in codes:
        assert code.speaks_of in ("own", "link", "soft", "ambiguous", "victim", "app", "note")
        assert code.follows in ("reset", "reboot", "replace", "told")
        assert code.why.endswith(".")
        assert code.source.startswith("https://docs.nvidia.com/")
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", code.date)


@pytest.mark.parametrize("code", xids(), ids=lambda c: c.reason)
def test_where_vendors_disagree_the_row_says_so(code: Code) -> None:
    told = code.follows == "told"
    if code.subs or code.nonfatal:
        return
    if (code.number in NMA | AZNHC and told) or (code.number in DRA and not told):
        assert code.differs


# ---------------------------------------------------------------- how they are read


def test_the_kernels_log_is_read_from_its_own_device_line_by_line() -> None:
    for file in FILES.values():
        assert (file["plugin"], file["logPath"], file["bufferSize"]) == ("kmsg", "/dev/kmsg", 1)
        assert file["metricsReporting"] is True
        assert all(rule["pattern"].startswith("^") for rule in file["rules"])


def test_a_restart_forgets_no_condition_and_counts_nothing_twice() -> None:
    assert FILES["gpu-xid"]["lookback"] == FILES["nvswitch"]["lookback"] == "8760h"
    assert FILES["told"]["lookback"] == "1m"
