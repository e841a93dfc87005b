"""What NVSentinel's conditions say beyond True: codes, devices, and what to do."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from recovery.catalog import lookup
from recovery.model import Condition
from recovery.signals.conditions import EVIDENCE
from recovery.signals.nvsentinel import MOST, Found, found
from tests.unit.test_node_conditions import condition, looks, stated

TYPE = "SysLogsXIDError"
BASE = f"{TYPE}IsNotHealthy"
UUID = "GPU-22222222-2222-2222-2222-222222222222"
GSP = (
    f"ErrorCode:119 PCI:0002:00:00 GPU_UUID:{UUID} kernel: [16450076.435595] NVRM: Xid (PCI:0002:00:00): "
    "119, pid=1582259, name=nvc:[driver], Timeout after 6s of waiting for RPC response from GPU1 GSP! "
    "Recommended Action=COMPONENT_RESET;"
)
CONTAINED = (
    f"ErrorCode:94 PCI:0002:00:00 GPU_UUID:{UUID} kernel: [16450076.435595] NVRM: Xid (PCI:0002:00:00): 94, "
    "pid=789012, name=process, Contained ECC error. Recommended Action=CONTACT_SUPPORT;"
)
MEMORY = (
    "ErrorCode:DCGM_FR_XID_ERROR GPU:4 PCI:0000:c4:00.0 GPU_UUID:GPU-d1816eb1 Detected XID 31 for GPU 4 "
    "Please consult the documentation for details of this XID. Recommended Action=NONE;"
)


def bad(message: str, type: str = TYPE, reason: str = "") -> Condition:
    return condition(type, "True", reason or f"{type}IsNotHealthy", message=message)


@pytest.mark.parametrize(
    ("message", "reasons"),
    [
        (GSP, [f"{BASE}_119_COMPONENT_RESET"]),
        (GSP + CONTAINED, [f"{BASE}_119_COMPONENT_RESET", f"{BASE}_94_CONTACT_SUPPORT"]),
        ("[119] GSP timeout - RecommendedAction: RESTART_BM", [f"{BASE}_119_RESTART_BM"]),
        ("[48, 95] memory - RecommendedAction: REPLACE_VM",
         [f"{BASE}_48_REPLACE_VM", f"{BASE}_95_REPLACE_VM"]),
        ("ErrorCode:48 ErrorCode:95 GPU:1 memory Recommended Action=REPLACE_VM;",
         [f"{BASE}_48_REPLACE_VM", f"{BASE}_95_REPLACE_VM"]),
        ("GPU:1 it is hot Recommended Action=RUN_DCGMEUD;", [f"{BASE}_RUN_DCGMEUD"]),
        (GSP + CONTAINED[:90], [f"{BASE}_119_COMPONENT_RESET", BASE]),
        ("ErrorCode:95 Recommended Action=RESTART_BM;", [f"{BASE}_95_RESTART_BM"]),
        ("something else", [BASE]),
        ("", []),
        (f"ErrorCode:{'x' * 500} much Recommended Action=RESTART_VM;", [f"{BASE}_RESTART_VM"]),
    ],
    ids=["one", "two", "other", "in brackets", "codes", "no code", "cut", "bare", "no form", "", "long"],
)  # fmt: skip
def test_each_code_with_its_action_is_a_reason(message: str, reasons: list[str]) -> None:
    assert [x.reason for x in found(bad(message))] == reasons


def test_the_device_is_what_is_named_before_the_words_of_the_check() -> None:
    (one,) = found(bad(MEMORY, "GpuMemWatch"))
    assert one.device == "GPU 4 GPU-d1816eb1 0000:c4:00.0"
    (logged,) = found(bad(GSP))
    assert logged.device == f"{UUID} 0002:00:00"


def test_one_code_on_two_devices_is_one_fault_of_both() -> None:
    (both,) = found(bad(MEMORY + MEMORY.replace("GPU:4", "GPU:5"), "GpuMemWatch"))
    assert both.device == "GPU 4 0000:c4:00.0, GPU 5 0000:c4:00.0"


def test_a_word_of_a_process_in_the_kernels_line_gives_no_code_to_an_action_of_its_own() -> None:
    forged = GSP.replace("nvc:[driver]", ";ErrorCode:79 ").replace("COMPONENT_RESET", "NONE")
    assert {x.reason for x in found(bad(forged))} == {f"{BASE}_119_NONE"}


def test_the_condition_of_another_writer_is_taken_as_it_is() -> None:
    assert found(bad(GSP, reason="SomebodyElse")) == ()
    assert stated(looks(bad(GSP, "GpuCount", "GpuCountBad"))[1]) == [("GpuCount", "GpuCountBad")]


def test_a_message_without_end_states_no_more_than_a_few_faults() -> None:
    many = "".join(f"ErrorCode:{n} x Recommended Action=RESTART_VM;" for n in range(5000))
    assert len(found(bad(many))) == MOST


def test_of_many_codes_one_that_asks_for_something_is_not_the_one_left_out() -> None:
    harmless = "".join(f"ErrorCode:{c} PCI:{c} text Recommended Action=NONE;" for c in range(10, 20))
    said = found(bad(harmless + "ErrorCode:79 PCI:0 text Recommended Action=RESTART_BM;"))
    assert said[0].reason.endswith("_79_RESTART_BM")


def test_a_message_without_end_and_without_an_action_is_read_in_no_time() -> None:
    began = time.process_time()
    found(bad("ErrorCode:" * 100_000))
    found(bad("Recommended Action " * 100_000))
    assert time.process_time() - began < 0.5


def test_the_evidence_is_what_was_said_of_this_code() -> None:
    first, second = looks(bad(GSP + CONTAINED))[1].problems
    assert first.message == f"the Node's condition {TYPE} is True: {found(bad(GSP))[0].said[:EVIDENCE]}"
    assert second.message.startswith(f"the Node's condition {TYPE} is True: ErrorCode:94 ")
    assert first.device == f"{UUID} 0002:00:00"


def test_what_a_worse_code_adds_is_a_fault_of_its_own() -> None:
    reading = looks(bad(MEMORY, "GpuMemWatch"), bad(MEMORY + GSP, "GpuMemWatch"))[1]
    assert [r for _, r in stated(reading)] == [
        "GpuMemWatchIsNotHealthy_119_COMPONENT_RESET",
        "GpuMemWatchIsNotHealthy_DCGM_FR_XID_ERROR_NONE",
    ]


def test_a_code_that_is_no_longer_listed_stays_until_the_whole_condition_is_good() -> None:
    both, one = bad(GSP + CONTAINED), bad(GSP)
    _, reading = looks(both, one)
    assert [(p.reason, p.masked) for p in reading.problems] == [
        (f"{BASE}_119_COMPONENT_RESET", False),
        (f"{BASE}_94_CONTACT_SUPPORT", True),
    ]
    good = replace(condition(TYPE, "False", f"{TYPE}IsHealthy"))
    assert stated(looks(both, one, good, good, good)[1]) == []


def test_what_no_action_is_recommended_for_is_no_fault_of_the_node() -> None:
    row = lookup("GpuMemWatch", "GpuMemWatchIsNotHealthy_DCGM_FR_XID_ERROR_NONE")
    assert row is not None
    assert not row.this_node
    assert lookup("GpuMemWatch", "GpuMemWatchIsNotHealthy_DCGM_FR_XID_ERROR_RESTART_VM") is None
    assert lookup("Another", "GpuMemWatchIsNotHealthy_DCGM_FR_XID_ERROR_NONE") is None
    assert Found("a", "b").device == ""


def cut_after_a_kibibyte(*entries: str) -> str:
    """The message as NVSentinel cuts it (pull request 485)."""
    return "".join(entries)[:1020] + "...;"


def test_a_message_that_is_cut_and_asks_for_nothing_as_far_as_it_goes_is_only_told() -> None:
    one_application = (MEMORY.replace("4", str(gpu)) for gpu in range(8))
    said = found(bad(cut_after_a_kibibyte(*one_application), "GpuMemWatch"))
    base = "GpuMemWatchIsNotHealthy"
    assert [x.reason for x in said] == [f"{base}_CUT", f"{base}_DCGM_FR_XID_ERROR_NONE"]
    rows = [lookup("GpuMemWatch", x.reason) for x in said]
    assert [row is not None and row.this_node for row in rows] == [False, False]


@pytest.mark.parametrize("first", [(GSP,), (MEMORY, GSP)], ids=["a reset", "nothing, then a reset"])
def test_what_is_cut_after_an_action_has_the_conditions_own_reason(first: tuple[str, ...]) -> None:
    assert BASE in {x.reason for x in found(bad(cut_after_a_kibibyte(*first, *[MEMORY] * 8)))}


@pytest.mark.parametrize("message", [";...", "...;", "ErrorCode:DCGM_FR_NVLINK_DOWN GPU:3 GPU 3's NvL...;"])
def test_a_message_of_which_no_action_is_left_has_the_conditions_own_reason(message: str) -> None:
    assert [x.reason for x in found(bad(message))] == [BASE]


@pytest.mark.parametrize(
    ("said", "this_node"),
    [
        ("31_CONTACT_SUPPORT", False),
        ("45_CONTACT_SUPPORT", False),
        ("145.0h_CONTACT_SUPPORT", False),
        ("13_UNKNOWN", False),
        ("144_COMPONENT_RESET", True),
        ("45_RESTART_VM", True),
        ("94_CONTACT_SUPPORT", True),
        ("149_CONTACT_SUPPORT", True),
        ("79_CONTACT_SUPPORT", True),
        ("4_CONTACT_SUPPORT", True),
        ("CONTACT_SUPPORT", True),
    ],
)
def test_an_xid_that_accuses_another_is_no_fault_of_the_node_unless_its_own_gpu_is_to_be_reset(
    said: str, this_node: bool
) -> None:
    row = lookup(TYPE, f"{BASE}_{said}")
    assert (row is None or row.this_node) is this_node


@pytest.mark.parametrize(
    ("type", "said", "this_node"),
    [
        ("GpuNvlinkWatch", "IsNotHealthy_DCGM_FR_IMEX_UNHEALTHY_CONTACT_SUPPORT", False),
        ("GpuNvlinkWatch", "IsNotHealthy_DCGM_FR_IMEX_UNHEALTHY_RESTART_VM", True),
        ("GpuNvlinkWatch", "IsNotHealthy_DCGM_FR_NVLINK_DOWN_CONTACT_SUPPORT", True),
        ("GpuDcgmConnectivityFailure", "IsNotHealthy_DCGM_CONNECTIVITY_ERROR_CONTACT_SUPPORT", False),
        ("GpuDcgmConnectivityFailure", "IsNotHealthy", False),
        ("GpuDcgmUnresponsive", "IsNotHealthy_RESTART_VM", True),
        ("AcceleratedHardwareReady", "DCGMHealthCode122", False),
        ("AcceleratedHardwareReady", "DCGMHealthCode97", True),
    ],
)
def test_what_says_nothing_of_the_gpus_is_no_fault_of_the_node(type: str, said: str, this_node: bool) -> None:
    reason = said if said.startswith("DCGM") else f"{type}{said}"
    row = lookup(type, reason)
    assert (row is None or row.this_node) is this_node


OF_AN_APPLICATION = GSP.replace("119", "13").replace("COMPONENT_RESET", "NONE")


@pytest.mark.parametrize(
    ("code", "reason", "accuses"),
    [
        ("79", f"{BASE}_79_CUT", True),
        ("48 ErrorCode:79", f"{BASE}_79_CUT", True),
        ("31", f"{BASE}_31_CUT", False),
        ("13", f"{BASE}_CUT", False),
    ],
)
def test_what_is_cut_and_begins_with_another_code_is_not_more_of_the_same(
    code: str, reason: str, accuses: bool
) -> None:
    cut = GSP.replace("119", code, 1)[:100] + "...;"
    reasons = [x.reason for x in found(bad(OF_AN_APPLICATION * 4 + cut))]
    assert reason in reasons
    row = lookup(TYPE, reason)
    assert (row is None or row.this_node) is accuses
    assert BASE not in reasons


@pytest.mark.parametrize(
    "cut", ["ErrorCode:7...;", "ErrorCode:7...", "ErrorCode:7", "ErrorCode:79", "[48, 7...;"]
)
def test_a_code_that_is_cut_itself_is_none(cut: str) -> None:
    reasons = [x.reason for x in found(bad(OF_AN_APPLICATION * 4 + cut))]
    assert reasons == [f"{BASE}_CUT", f"{BASE}_13_NONE"]


def test_imex_is_only_told_where_its_entry_is_cut() -> None:
    row = lookup("GpuNvlinkWatch", "GpuNvlinkWatchIsNotHealthy_DCGM_FR_IMEX_UNHEALTHY_CUT")
    assert row is not None
    assert not row.this_node


CRASH = GSP.replace("119", "45").replace("COMPONENT_RESET", "CONTACT_SUPPORT")
IMEX = MEMORY.replace("DCGM_FR_XID_ERROR", "DCGM_FR_IMEX_UNHEALTHY").replace("NONE", "CONTACT_SUPPORT")


@pytest.mark.parametrize(
    ("type", "entry"), [(TYPE, CRASH), ("GpuNvlinkWatch", IMEX)], ids=["another's XID", "IMEX"]
)
def test_what_is_cut_after_what_accuses_no_machine_is_only_told(type: str, entry: str) -> None:
    said = found(bad(cut_after_a_kibibyte(*[entry] * 8), type))
    rows = [lookup(type, x.reason) for x in said]
    assert [row is not None and row.this_node for row in rows] == [False, False]
    lost = GSP.replace("119", "79", 1)[:100] + "...;"
    assert any(x.reason.endswith("_79_CUT") for x in found(bad(entry * 4 + lost, type)))


def test_what_accuses_the_machine_is_not_left_out_for_what_accuses_none() -> None:
    others = "".join(CRASH.replace("45", f"145.{n}h", 1) for n in range(MOST))
    assert found(bad(others + GSP))[0].reason == f"{BASE}_119_COMPONENT_RESET"
