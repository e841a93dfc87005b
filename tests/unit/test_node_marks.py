"""What the marks of other systems' checks say, as those systems write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from recovery.model import NodeView, Reading
from recovery.signals import autopilot, aznhc, konduktor
from recovery.signals.marks import Mark, MarksSource, Said, added_at, observed
from recovery.signals.own_node import Seen
from tests.builders.nodes import node
from tests.builders.times import MINUTE, NOW

# ---------------------------------------------------------------- AzNHC

GPUS = "check_gpu_count: Expected to see 8 but found 7. FaultCode: NHC2009"
REMAP = "check_gpu_ecc: GPU id 3: Row remap pending. FaultCode: NHC2007"
LINKS = "check_nvlink_status: GPU 3: \t Link 4: Inactive\n\t Link 5: Inactive. FaultCode: NHC2016"
NO_PORT = "check_hw_ib:  No IB port mlx5_ib3:1 is ACTIVE (LinkUp 400 Gb/sec)."
NOT_SET_UP = "check_hw_ib: IB system directory /sys/class/infiniband not found. FaultCode: NHCNA"
XID = "check_gpu_xid: GPU Xid errors detected: [ 3606.832215] NVRM: Xid (PCI:0002:00:00): 119, pid=67769"
AZNHC_TAINT = (("aznhc", "failed", "NoSchedule"),)


def failed(*failures: str, blanks: int = 2) -> str:
    """NHC's log on a node; LBNL's NHC prints two blanks after the name, Azure's page shows one."""
    gap = " " * blanks
    lines = [f"20260713 10:15:03 [debug] ERROR:{gap}nhc:{gap}Health check failed:{gap}{f}" for f in failures]
    return "\n".join(("Running AzNHC", *lines, f"ERROR:{gap}nhc:{gap}{len(failures)} health checks failed."))


def nhc(log: str = "", taints: tuple[tuple[str, str, str], ...] = ()) -> Said:
    return aznhc.read(node(annotations={"aznhc-results": log} if log else {}, taints=taints))


@pytest.mark.parametrize("blanks", [1, 2])
@pytest.mark.parametrize(
    ("failures", "reasons"),
    [
        ((GPUS,), ["NHC2009"]),
        ((GPUS, REMAP), ["NHC2007", "NHC2009"]),
        ((GPUS, NOT_SET_UP), ["NHC2009"]),
        ((LINKS,), ["NHC2016"]),
        ((NOT_SET_UP, LINKS), ["NHC2016"]),
        ((LINKS, GPUS), ["NHC2009", "NHC2016"]),
        ((NO_PORT, GPUS), ["NHC2001", "NHC2009"]),
        ((NOT_SET_UP, NO_PORT), ["NHC2001"]),
        ((XID,), ["NHC2001"]),
        ((), ["NHC2001"]),
    ],
    ids=[
        "GPUs",
        "two",
        "one is not set up",
        "the code is on its second line",
        "on its second line, beside one that is not set up",
        "on its second line, beside another",
        "one has no code",
        "one has no code, one is not set up",
        "no code",
        "only the count",
    ],
)
def test_each_code_of_a_failed_check_is_a_fault(
    failures: tuple[str, ...], reasons: list[str], blanks: int
) -> None:
    assert [m.reason for m in nhc(failed(*failures, blanks=blanks), AZNHC_TAINT).marks] == reasons


def test_a_detached_run_leaves_its_name_out() -> None:
    log = f"ERROR Health check failed:  {GPUS}\nHealth checks completed with exit code: 1."
    assert [m.reason for m in nhc(log).marks] == ["NHC2009"]


def test_the_taint_alone_is_enough_and_so_is_the_log_alone() -> None:
    assert [m.reason for m in nhc(taints=AZNHC_TAINT).marks] == ["NHC2001"]
    assert [m.reason for m in nhc(failed(GPUS)).marks] == ["NHC2009"]


def test_of_a_taint_beside_the_log_of_a_run_that_has_passed_one_is_old_which_is_unknown() -> None:
    passed = "SUCCESS:  nhc:  check_gpu_count\nHealth checks completed with exit code: {}."
    why = "taint aznhc is beside a log of checks that passed, and one of them is old"
    assert nhc(passed.format(0), AZNHC_TAINT) == Said(unknown={aznhc.TYPE: why})
    assert nhc(passed.format(0)) == Said()
    assert [m.reason for m in nhc(passed.format(142), AZNHC_TAINT).marks] == ["NHC2001"]


def test_a_check_that_is_not_set_up_is_unknown_and_no_fault() -> None:
    said = nhc(failed(NOT_SET_UP), AZNHC_TAINT)
    assert said.marks == ()
    assert said.unknown[aznhc.TYPE].startswith("a check is not set up: ")


@pytest.mark.parametrize(
    "log", ["", "all checks passed", "Health check failed: by somebody else", "\x00" * 9]
)
def test_a_log_without_a_failure_says_nothing(log: str) -> None:
    assert nhc(log) == Said()


# ---------------------------------------------------------------- Konduktor


def test_konduktors_taint_is_a_fault_whatever_its_effect() -> None:
    for effect in ("NoSchedule", "NoExecute"):
        (mark,) = konduktor.read(node(taints=(("trainy.konduktor.ai/faulty", "true", effect),))).marks
        assert mark.reason == "KonduktorFaulty"
        assert mark.evidence == f"taint trainy.konduktor.ai/faulty=true:{effect}"
    assert konduktor.read(node(taints=(("another", "true", "NoSchedule"),))) == Said()


# ---------------------------------------------------------------- Autopilot


WELL = (autopilot.HEALTH, autopilot.WARN)
STAMP = "2024-10-10_19.12.03UTC"


def ibm(health: str = "", level_3: str = "", output: str = "") -> NodeView:
    key = "autopilot.ibm.com/"
    labels = {f"{key}gpuhealth": health, f"{key}dcgm.level.3": level_3}
    return node(labels=labels, annotations={f"{key}dcgm.level.3.output": output})


@pytest.mark.parametrize(
    ("labels", "reasons", "passed"),
    [
        (("PASS",), [], {WELL}),
        (("WARN",), ["AutopilotWarn"], set()),
        (("", f"ERR_{STAMP}", "pcie:0,No bandwidth,;ecc:1,x,"), ["Dcgm3_pcie", "Dcgm3_ecc"], set()),
        (("", f"ERR_{STAMP}", "memory_bandwidth.0.1.2.3"), ["Dcgm3_memory_bandwidth"], set()),
        (("", f"ERR_{STAMP}", "inforom.0.11pcie.3"), ["Dcgm3_inforom", "Dcgm3_pcie"], set()),
        (("", f"ERR_{STAMP}", "inforom.0,pcie.3"), ["Dcgm3_inforom", "Dcgm3_pcie"], set()),
        (
            ("", f"ERR_{STAMP}", "persistence_modeNoGPUidgpu_memory.10"),
            ["Dcgm3_persistence_mode", "Dcgm3_gpu_memory"],
            set(),
        ),
        (
            ("", f"ERR_{STAMP}", "dcgm_gpu_diagnostic.hardware.gpu_memory:0,Bad. Replace it,;"),
            ["Dcgm3_gpu_memory"],
            set(),
        ),
        (("EVICT", f"ERR_{STAMP}", ""), ["AutopilotEvict", "Dcgm3_unnamed"], set()),
        (("PASS", "PASS_2024-10-11_19.12.03UTC", ""), [], {WELL, (autopilot.LEVEL_3, "*")}),
        (("", "", ""), [], set()),
    ],
)  # fmt: skip
def test_autopilots_labels_say_what_it_found(
    labels: tuple[str, ...], reasons: list[str], passed: set[tuple[str, str]]
) -> None:
    said = autopilot.read(ibm(*labels))
    assert ([m.reason for m in said.marks], said.passed, said.unknown) == (reasons, passed, {})


def test_what_autopilot_never_writes_is_unknown() -> None:
    said = autopilot.read(ibm("BROKEN", "ERR_yesterday"))
    assert said.marks == ()
    assert said.unknown == {
        "AutopilotHealth": "label autopilot.ibm.com/gpuhealth is 'BROKEN'",
        "AutopilotDcgm3": "label autopilot.ibm.com/dcgm.level.3 is 'ERR_yesterday'",
    }


# ---------------------------------------------------------------- over time


def looks(*nodes: NodeView) -> Reading:
    reading: Reading | None = None
    for i, each in enumerate(nodes):
        seen = Seen(each, NOW + i * MINUTE, timedelta(minutes=2))
        reading = observed("autopilot", reading, autopilot.read(each), seen)
    assert reading is not None
    return reading


@pytest.mark.parametrize("by", ["WARN", "PASS", ""])
def test_an_eviction_that_the_hourly_pass_overwrites_is_not_taken_back(by: str) -> None:
    reading = looks(ibm("EVICT"), ibm(by))
    assert {p.reason for p in reading.problems} == {
        "AutopilotEvict",
        *(["AutopilotWarn"] if by == "WARN" else []),
    }
    assert reading.gone == {("AutopilotHealth", "AutopilotEvict")}
    assert not reading.took_back("AutopilotHealth", "AutopilotEvict")


def test_a_pass_takes_a_warning_back() -> None:
    reading = looks(ibm("WARN"), ibm("PASS"))
    assert reading.problems == ()
    assert reading.took_back("AutopilotHealth", "AutopilotWarn")


def test_a_later_run_of_level_3_that_passes_takes_its_fault_back() -> None:
    reading = looks(ibm(level_3=f"ERR_{STAMP}"), ibm(level_3="PASS_2024-10-11_19.12.03UTC"))
    assert reading.problems == ()
    assert reading.took_back("AutopilotDcgm3", "Dcgm3_unnamed")


def test_a_mark_that_is_put_there_again_is_stated_anew_and_one_that_stays_is_not() -> None:
    stays = looks(ibm("EVICT"), ibm("EVICT")).problems[0]
    again = next(p for p in looks(ibm("EVICT"), ibm("WARN"), ibm("EVICT")).problems if "Evict" in p.reason)
    assert (stays.stated, again.stated) == (None, NOW + 2 * MINUTE)


@pytest.mark.parametrize(
    ("put", "stands_since", "stated"),
    [
        (timedelta(0), None, True),
        (timedelta(0), NOW - MINUTE, True),
        (-2 * MINUTE, NOW - MINUTE, False),
        (-2 * MINUTE, None, True),
        (None, NOW - MINUTE, True),
    ],
    ids=[
        "no boot is known",
        "put in this boot",
        "put before it",
        "put before none that is known",
        "who knows",
    ],
)
def test_a_mark_that_is_put_back_from_before_the_boot_is_not_stated_anew(
    put: timedelta | None, stands_since: datetime | None, stated: bool
) -> None:
    """etcd was restored."""
    mark = Mark("Konduktor", "KonduktorFaulty", "a taint", "it", NOW + put if put is not None else None)
    seen = Seen(node(), NOW, 2 * MINUTE)
    before = observed("konduktor", None, Said(), seen)
    (problem,) = observed("konduktor", before, Said((mark,)), seen, stands_since).problems
    assert (problem.stated is not None) is stated


def test_a_look_at_another_boot_is_read_as_one_whatever_boot_is_known() -> None:
    """The Node of a machine that is gone was marked. Another reader knows the next one already."""
    marked = node(boot_id="boot-1", taints=(("trainy.konduktor.ai/faulty", "", "NoSchedule"),))
    looks = iter([marked, node(boot_id="boot-2")])
    source = MarksSource("konduktor", lambda _: Seen(next(looks), NOW, 2 * MINUTE), konduktor.read)
    assert [len(source.poll("boot-2").problems) for _ in range(2)] == [1, 0]


# ---------------------------------------------------------------- when it was put there


@pytest.mark.parametrize(
    ("stamp", "put"),
    [
        ("2026-11-20_03.04.05UTC", datetime(2026, 11, 20, 3, 4, 5, tzinfo=UTC)),
        ("2026-11-20_03.04.UTC", datetime(2026, 11, 20, 3, 4, tzinfo=UTC)),
        ("2026-13-20_03.04.05UTC", None),
    ],
)
def test_a_run_of_level_3_was_when_its_stamp_says(stamp: str, put: datetime | None) -> None:
    said = autopilot.read(node(labels={"autopilot.ibm.com/dcgm.level.3": f"ERR_{stamp}"}))
    assert [m.put for m in said.marks] == [put]


def test_taints_were_put_there_when_the_last_of_them_was_if_each_says_when() -> None:
    early, late = "2026-11-20T03:04:05Z", "2026-11-20T03:04:06Z"
    assert added_at([late, early]) == datetime(2026, 11, 20, 3, 4, 6, tzinfo=UTC)
    assert [added_at(x) for x in ([], [late, ""], ["yesterday"], ["2026-11-20T03:04:05"])] == [None] * 4


def test_azures_log_has_no_time_also_where_its_taint_has_one() -> None:
    added = {("aznhc", "NoSchedule"): "2026-11-20T03:04:05Z"}
    alone = aznhc.read(node(taints=AZNHC_TAINT, tainted_at=added))
    log = {"aznhc-results": failed(GPUS)}
    beside = aznhc.read(node(taints=AZNHC_TAINT, tainted_at=added, annotations=log))
    assert [m.put for m in alone.marks] == [datetime(2026, 11, 20, 3, 4, 5, tzinfo=UTC)]
    assert [m.put for m in beside.marks] == [None]
