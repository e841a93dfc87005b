"""What dcgm-exporter's page says of the GPUs, from page to page."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from recovery.decide.devices import of_a_silent_device
from recovery.decide.room import short_device
from recovery.model import Kind, Problem, Reading
from recovery.signals.dcgm import FAILURE, LAST_XID, OF_THE_NODE, ROWS, STAYS, TYPES, XIDS, State, observe
from tests.builders.exporters import UUIDS, dcgm_line, dcgm_page
from tests.builders.faults import fault
from tests.builders.times import HOUR, MINUTE, NOW, SECOND

CAPTURES = Path(__file__).parents[1] / "exporters"
EVERY = timedelta(seconds=15)
EMPTY = b""
RESET = ("GpuRecoveryReset", "GpuRecoveryReset")


def pages(*each: bytes, boots: tuple[str, ...] = (), state: State | None = None) -> tuple[State, Reading]:
    """The pages, 15 s apart, in one boot. The state and what the last one says."""
    state, reading = state or State(), None
    for i, page in enumerate(each):
        boot = boots[i] if boots else "boot-1"
        state, reading = observe(state, page.decode(), NOW + i * EVERY, boot)
    assert reading is not None
    return state, reading


def stated(reading: Reading) -> list[tuple[str, str]]:
    return [(p.type, p.reason) for p in reading.problems]


def the_one(reading: Reading) -> Problem:
    (problem,) = reading.problems
    return problem


# ---------------------------------------------------------------- XIDs


def test_what_is_there_at_first_is_the_past() -> None:
    assert stated(pages(dcgm_page(xids={3: 79}), dcgm_page(xids={3: 79}))[1]) == []


@pytest.mark.parametrize("before", [0, 13, 48])
def test_a_change_to_an_xid_is_a_fault_of_that_gpu(before: int) -> None:
    problem = the_one(pages(dcgm_page(xids={3: before}), dcgm_page(xids={3: 79}))[1])
    assert (problem.type, problem.reason, problem.latched) == ("GpuXid", "GpuXid79", True)
    assert problem.device == f"GPU 3 {UUIDS[3]} 00000000:61:00.0"
    assert problem.message == 'DCGM_FI_DEV_XID_ERRORS{gpu="3",pci_bus_id="00000000:61:00.0"} 79'
    assert problem.stated == NOW + EVERY


def test_an_xid_stays_a_fault_when_the_exporter_starts_anew_and_shows_none() -> None:
    reading = pages(dcgm_page(), dcgm_page(xids={3: 79}), dcgm_page(), dcgm_page())[1]
    assert stated(reading) == [("GpuXid", "GpuXid79")]
    assert the_one(reading).fresh_until > NOW + 3 * EVERY
    assert not reading.cleared


def test_the_same_xid_after_a_restart_that_kept_it_is_no_new_statement() -> None:
    once = the_one(pages(dcgm_page(), dcgm_page(xids={3: 79}))[1])
    kept = the_one(
        pages(dcgm_page(), dcgm_page(xids={3: 79}), dcgm_page(without=["DCGM_FI_DEV_XID_ERRORS"]),
              dcgm_page(xids={3: 79}))[1]
    )  # fmt: skip
    assert kept.life == once.life


def test_the_same_xid_after_a_restart_that_forgot_it_is_a_new_statement() -> None:
    seen = [dcgm_page(), dcgm_page(xids={3: 79}), dcgm_page(), dcgm_page(xids={3: 79})]
    assert the_one(pages(*seen)[1]).life == (NOW + 3 * EVERY).isoformat()


def test_an_xid_of_two_gpus_is_one_fault_of_both() -> None:
    reading = pages(dcgm_page(), dcgm_page(xids={3: 79}), dcgm_page(xids={3: 79, 5: 79}))[1]
    assert the_one(reading).device == "GPU 3 0000:61:00.0, GPU 5 0000:63:00.0"


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 63, 94, 145, 154])
def test_an_xid_that_applications_cause_or_that_only_informs_is_only_counted(xid: int) -> None:
    reading = pages(dcgm_page(), dcgm_page(xids={0: xid}), dcgm_page(xids={0: 0}), dcgm_page(xids={0: xid}))[
        1
    ]
    problem = the_one(reading)
    assert (problem.type, problem.reason, problem.kind) == ("", f"GpuXid{xid}", Kind.EDGE)
    assert problem.times == (NOW + EVERY, NOW + 3 * EVERY)
    assert xid not in OF_THE_NODE


def test_another_boot_forgets_what_was() -> None:
    seen = (dcgm_page(), dcgm_page(xids={3: 79}), dcgm_page(xids={3: 79}))
    assert stated(pages(*seen, boots=("boot-1", "boot-1", "boot-2"))[1]) == []


def test_a_boot_that_becomes_known_forgets_nothing() -> None:
    seen = (dcgm_page(), dcgm_page(xids={3: 79}), dcgm_page(xids={3: 79}))
    assert stated(pages(*seen, boots=("", "", "boot-1"))[1]) == [("GpuXid", "GpuXid79")]


def test_a_count_of_xids_goes_before_the_last_one_and_misses_none_between_two_pages() -> None:
    after = dcgm_page(xids={3: 45}, counted={(3, 79): 1, (3, 45): 2})
    reading = pages(dcgm_page(counted={}), after, after)[1]
    assert stated(reading) == [("GpuXid", "GpuXid79"), ("", "GpuXid45")]
    assert reading.problems[1].times == (NOW + EVERY,) * 2


def test_a_count_that_is_there_at_first_or_falls_is_no_statement() -> None:
    at_first = dcgm_page(counted={(3, 79): 2})
    assert stated(pages(at_first, at_first, dcgm_page(counted={(3, 79): 1}), dcgm_page(counted={}))[1]) == []


def test_a_count_that_rises_again_after_its_window_is_a_new_statement() -> None:
    seen = [dcgm_page(counted={}), dcgm_page(counted={(3, 79): 1})]
    again = pages(*seen, dcgm_page(counted={}), dcgm_page(counted={(3, 79): 1}))[1]
    assert the_one(again).life == (NOW + 3 * EVERY).isoformat()


# ---------------------------------------------------------------- memory


def test_rows_that_could_not_be_remapped_are_a_fault_at_once_and_for_good() -> None:
    reading = pages(dcgm_page(remap_failed=[1]), dcgm_page())[1]
    assert (the_one(reading).reason, the_one(reading).latched) == ("GpuRowRemapFailed", True)
    assert not reading.cleared


def test_a_row_that_is_remapped_waits_for_a_reboot() -> None:
    reading = pages(dcgm_page(rows={1: 2}), dcgm_page(rows={1: 3}), dcgm_page(rows={1: 3}))[1]
    problem = the_one(reading)
    assert (problem.type, problem.reason, problem.latched) == (
        "GpuRowRemapPending",
        "GpuRowRemapPending",
        True,
    )
    assert problem.life == (NOW + EVERY).isoformat()
    assert stated(pages(dcgm_page(rows={1: 3}), dcgm_page(rows={1: 0}))[1]) == []


# ---------------------------------------------------------------- health and recovery action


def failed(watch: str = "PCIE", code: str = "DCGM_FR_PCI_REPLAY_RATE", value: int = 20) -> bytes:
    return dcgm_page(health={(2, watch): (value, code)})


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        (failed(), "GpuHealthPcie"),
        (failed("ALL", "DCGM_FR_XID_ERROR"), "GpuHealthAll"),
        (failed("MEM", "DCGM_FR_VOLATILE_DBE_DETECTED"), "GpuHealthMem"),
        (failed("MEM", "DCGM_FR_XID_ERROR"), "GpuHealthWarning"),
        (failed("NVLINK", "DCGM_FR_IMEX_UNHEALTHY"), "GpuHealthWarning"),
        (failed("THERMAL", "DCGM_FR_THERMAL_VIOLATIONS", 10), "GpuHealthWarning"),
    ],
)
def test_dcgms_own_word_is_a_fault_by_its_watch_and_its_code(page: bytes, reason: str) -> None:
    problem = the_one(pages(page)[1])
    assert (problem.type, problem.reason, problem.latched) == ("GpuHealth", reason, False)


def test_a_watch_that_passes_takes_its_fault_back_after_a_minute() -> None:
    good = dcgm_page(health={})
    held = pages(failed(), good, good)[1]
    assert stated(held) == [("GpuHealth", "GpuHealthPcie")]
    assert "counts after a minute" in held.silent["GpuHealth"]
    over = pages(failed(), *[good] * (STAYS // EVERY + 1))[1]
    assert stated(over) == []
    assert ("GpuHealth", "GpuHealthPcie") in over.cleared
    assert not over.silent


def test_a_watch_that_fails_again_in_that_minute_was_never_good() -> None:
    good = dcgm_page(health={})
    assert stated(pages(failed(), good, good, failed(), good, good)[1]) == [("GpuHealth", "GpuHealthPcie")]


def test_a_recovery_action_counts_once_it_has_stayed_and_the_latest_wins() -> None:
    reset, reboot = dcgm_page(actions={1: 1}), dcgm_page(actions={1: 2})
    assert stated(pages(reset, reset)[1]) == []
    assert "counts after a minute" in pages(reset, reset)[1].silent["GpuRecoveryReset"]
    reading = pages(*[reset] * 5)[1]
    assert stated(reading) == [RESET]
    assert stated(pages(*[reset] * 5, *[reboot] * 4)[1]) == [RESET]
    reading = pages(*[reset] * 5, *[reboot] * 9)[1]
    assert stated(reading) == [("GpuRecoveryReboot", "GpuRecoveryReboot")]
    assert RESET in reading.cleared
    reading = pages(*[reset] * 5, *[dcgm_page(actions={})] * 9)[1]
    assert (stated(reading), RESET in reading.cleared, dict(reading.silent)) == ([], True, {})


@pytest.mark.parametrize(
    ("action", "name"),
    [
        (1, "Reset"),
        (2, "Reboot"),
        (3, "Other"),
        (4, "DrainAndReset"),
        (5, "Other"),
        (6, "Reset"),
        (7, "Reboot"),
        (9, "Other"),
    ],
)  # fmt: skip
def test_each_action_has_the_name_that_the_gpu_pack_gives_it(action: int, name: str) -> None:
    reading = pages(*[dcgm_page(actions={1: action})] * 5)[1]
    assert stated(reading) == [(f"GpuRecovery{name}", f"GpuRecovery{name}")]


def test_an_action_that_flashes_is_nothing() -> None:
    none = dcgm_page(actions={})
    assert stated(pages(none, dcgm_page(actions={1: 2}), none, none, none, none, none)[1]) == []


# ---------------------------------------------------------------- what is not known


@pytest.mark.parametrize(
    "page",
    [
        EMPTY,
        b"\x00\xff" * 100,
        b"<html><body>GPU Exporter</body></html>\n",
        b"process_start_time_seconds 1\n",
        dcgm_page()[:-9],
    ],
    ids=["empty", "bytes", "a page of another kind", "other series", "cut"],
)
def test_a_page_that_is_none_is_unknown_and_changes_nothing(page: bytes) -> None:
    state, _ = pages(dcgm_page(), dcgm_page(xids={3: 79}))
    after, reading = observe(state, page.decode(errors="replace"), NOW + HOUR, "boot-1")
    assert after == state
    assert set(reading.unknown) == {"*"}
    assert not reading.cleared


def test_a_gpu_that_is_no_longer_shown_is_unknown_and_clears_nothing() -> None:
    fewer = dcgm_page(gpus=range(7), health={}, actions={})
    all_of_them = dcgm_page(health={(7, "SM"): (20, "DCGM_FR_UNKNOWN")}, actions={})
    reading = pages(all_of_them, *[fewer] * 9)[1]
    assert set(reading.unknown) == TYPES
    assert reading.unknown["GpuHealth"] == f"DCGM_EXP_GPU_HEALTH_STATUS no longer shows {UUIDS[7]}"
    assert reading.unknown_since["GpuHealth"] == NOW + EVERY
    assert stated(reading) == [("GpuHealth", "GpuHealthSm")]
    assert not reading.cleared
    assert the_one(reading).fresh_until < NOW + 9 * EVERY


def test_a_family_that_is_gone_is_unknown_and_the_others_go_on() -> None:
    reading = pages(dcgm_page(health={}), dcgm_page(xids={3: 79}))[1]
    assert set(reading.unknown) == {"GpuHealth"}
    assert stated(reading) == [("GpuXid", "GpuXid79")]


@pytest.mark.parametrize("value", ["NaN", "+Inf", "seven", "1 2 3", ""])
def test_a_broken_line_spoils_its_own_family_alone(value: str) -> None:
    page = dcgm_page(xids={3: 79}) + (dcgm_line("DCGM_FI_DEV_ROW_REMAP_FAILURE", 7, value) + "\n").encode()
    reading = pages(dcgm_page(), page)[1]
    assert set(reading.unknown) == {"GpuRowRemapFailed"}
    assert stated(reading) == [("GpuXid", "GpuXid79")]


@pytest.mark.parametrize("blank", [9223372036854775794, 2147483632])
def test_the_word_of_old_exporters_for_no_value_is_no_value(blank: int) -> None:
    line = dcgm_line("DCGM_FI_DEV_ROW_REMAP_FAILURE", 0, blank) + "\n"
    assert stated(pages(line.encode())[1]) == []


@pytest.mark.parametrize("xid", ["79.5", "-1", "100000"])
def test_what_is_no_xid_is_unknown(xid: str) -> None:
    before, after = (dcgm_line("DCGM_FI_DEV_XID_ERRORS", 0, value) + "\n" for value in ("0", xid))
    reading = pages(before.encode(), after.encode())[1]
    assert (stated(reading), set(reading.unknown)) == ([], {"GpuXid"})


def test_the_evidence_and_the_devices_are_bounded_whatever_the_labels_are() -> None:
    long = dcgm_line("DCGM_FI_DEV_ROW_REMAP_FAILURE", 0, 1, pci_bus_id="x" * 1500)
    problem = the_one(pages(f"{long}\n".encode())[1])
    assert len(problem.message) <= 256
    assert len(problem.device) <= 160
    assert problem.message.endswith(" 1")


# ---------------------------------------------------------------- whole pages


@pytest.mark.parametrize(("name", "found"), [
    ("healthy", []),
    ("xid-79", [("GpuXid", "GpuXid79")]),
    ("remap-failed", [("GpuRowRemapFailed", "GpuRowRemapFailed")]),
])  # fmt: skip
def test_a_whole_page_after_a_healthy_one(name: str, found: list[tuple[str, str]]) -> None:
    first, second = ((CAPTURES / f"dcgm-{each}.txt").read_bytes() for each in ("healthy", name))
    assert stated(pages(first, second)[1]) == found


def test_a_page_read_hourly_costs_no_memory_for_ever() -> None:
    state = State()
    for n in range(500):
        page = dcgm_page(xids={0: 13 if n % 2 else 0})
        state, _ = observe(state, page.decode(), NOW + n * MINUTE, "boot-1")
    assert len(state.edges["GpuXid13"].times) <= 200
    assert NOW + 500 * MINUTE - state.edges["GpuXid13"].times[0] <= 24 * HOUR + SECOND


# ---------------------------------------------------------------- found by hunt 4


def test_a_watch_of_a_gpu_that_is_no_longer_shown_is_unknown_and_takes_nothing_back() -> None:
    gone = [UUIDS[2].encode(), b'health_watch="PCIE"']
    lines = dcgm_page(health={}).splitlines(keepends=True)
    fewer = b"".join(line for line in lines if not all(part in line for part in gone))
    reading = pages(failed(), *[fewer] * 9)[1]
    assert stated(reading) == [("GpuHealth", "GpuHealthPcie")]
    assert reading.unknown["GpuHealth"] == f"DCGM_EXP_GPU_HEALTH_STATUS no longer shows 'PCIE' of {UUIDS[2]}"
    assert not reading.cleared


def test_xid_0_is_none_in_the_count_either() -> None:
    none = dcgm_page(counted={(gpu, 0): 1 for gpu in range(8)})
    assert stated(pages(dcgm_page(counted={}), none)[1]) == []


def test_a_count_that_rises_by_many_is_as_many_events() -> None:
    before, after = dcgm_page(counted={(0, 31): 10}), dcgm_page(counted={(0, 31): 30})
    assert len(the_one(pages(dcgm_page(counted={}), before, before)[1]).times) == 10
    assert len(the_one(pages(dcgm_page(counted={}), before, after)[1]).times) == 30
    storm = dcgm_page(counted={(0, 31): 1e12})
    assert len(the_one(pages(before, storm)[1]).times) == 100


# ---------------------------------------------------------------- what shows less, and parts of a GPU


def only_of(page: bytes, family: str, *gpus: int) -> bytes:
    """``page``, with lines of ``family`` for these GPUs alone."""
    kept = tuple(dcgm_line(family, gpu, "").split(",pci")[0].encode() for gpu in gpus)
    lines = page.splitlines(keepends=True)
    return b"".join(x for x in lines if not x.startswith(family.encode()) or x.startswith(kept))


@pytest.mark.parametrize("first", ["nothing", "another GPU's"])
def test_an_xid_is_news_where_the_exporter_has_no_line_for_a_gpu_before_its_first(first: str) -> None:
    none = only_of(dcgm_page(xids={3: 31}), LAST_XID, *([3] if first == "another GPU's" else []))
    had = only_of(dcgm_page(xids={3: 31, 5: 79}), LAST_XID, 3, 5)
    reading = pages(none, had, had)[1]
    assert [p.device[:5] for p in reading.problems if p.reason == "GpuXid79"] == ["GPU 5"]
    assert len(reading.problems) == (2 if first == "nothing" else 1), "what the first page shows is the past"


def test_an_exporter_without_a_line_for_what_had_no_xid_may_forget_one_and_misses_a_gpu_that_is_gone() -> (
    None
):
    had, none = (only_of(dcgm_page(xids={5: xid}), LAST_XID, *gpus) for xid, gpus in ((31, [5]), (0, [])))
    assert pages(had, none, none)[1].unknown == {}
    assert pages(none, had, none)[1].unknown == {}
    gone = only_of(dcgm_page(gpus=range(5)), LAST_XID)
    assert pages(had, gone)[1].unknown["GpuXid"] == f"DCGM_FI_DEV_XID_ERRORS no longer shows {UUIDS[5]}"
    assert "GpuXid" in pages(dcgm_page(), none)[1].unknown, "an exporter that has always shown all of them"


@pytest.mark.parametrize(("gone_for", "found"), [(1, []), (5, [("GpuXid", "GpuXid79")])])
def test_an_xid_that_such_an_exporter_has_forgotten_for_a_minute_is_news_when_it_is_back(
    gone_for: int, found: list[tuple[str, str]]
) -> None:
    had, none = only_of(dcgm_page(xids={5: 79}), LAST_XID, 5), only_of(dcgm_page(), LAST_XID)
    state, reading = pages(had, *[none] * gone_for, had)
    assert stated(reading) == found
    assert not [key for key in state.since if key[0] == LAST_XID]


BROKEN = {family: (dcgm_line(family, 7, "NaN") + "\n").encode() for family in (LAST_XID, XIDS)}


@pytest.mark.parametrize("family", [LAST_XID, XIDS])
def test_what_could_not_be_read_on_the_first_pages_is_the_past(family: str) -> None:
    page = dcgm_page(xids={5: 48 if family == LAST_XID else 0}, counted={(5, 48): 1, (3, 13): 1})
    had = only_of(only_of(page, LAST_XID, *[5] * (family == LAST_XID)), XIDS, *[3, 5] * (family == XIDS))
    spoiled = had + BROKEN[family]
    assert stated(pages(spoiled, spoiled, had, had)[1]) == []


def test_lines_that_cannot_be_read_are_not_gone_however_long_it_is() -> None:
    had = only_of(dcgm_page(xids={5: 48}), LAST_XID, 5)
    assert stated(pages(had, *[had + BROKEN[LAST_XID]] * 8, had)[1]) == []


def test_an_xid_that_comes_while_no_line_can_be_read_is_news_once_one_can() -> None:
    none, had = only_of(dcgm_page(), LAST_XID), only_of(dcgm_page(xids={5: 48}), LAST_XID, 5)
    assert stated(pages(none, had + BROKEN[LAST_XID], had)[1]) == [("GpuXid", "GpuXid48")]


def test_a_count_is_news_where_the_exporter_has_no_line_for_a_gpu_before_its_first_xid() -> None:
    none, had = dcgm_page(), only_of(dcgm_page(counted={(5, 79): 1}), XIDS, 5)
    assert stated(pages(none, had)[1]) == [("GpuXid", "GpuXid79")]


@pytest.mark.parametrize("family", [LAST_XID, XIDS])
def test_what_a_metric_shows_once_it_is_switched_on_is_the_past(family: str) -> None:
    had = dcgm_page(xids={5: 79}, counted={(5, 79): 1})
    once, twice = dcgm_page(xids={5: 48}), dcgm_page(counted={(5, 79): 1, (5, 48): 1})
    off = dcgm_page(without=[LAST_XID, XIDS])
    on = only_of(only_of(had, LAST_XID, *range(8 * (family == LAST_XID))), XIDS, *range(8 * (family == XIDS)))
    state, reading = pages(off, on, on)
    assert stated(reading) == []
    after = once if family == LAST_XID else twice
    assert stated(pages(after, state=state)[1]) == [("GpuXid", "GpuXid48")]


def test_a_blank_is_no_xid_and_the_one_after_it_is_news() -> None:
    blank = dcgm_page().replace(b'err_msg="No Error"} 0\n', b'err_msg="No Error"} 2147483632\n')
    assert stated(pages(blank, dcgm_page(xids={5: 79}))[1]) == [("GpuXid", "GpuXid79")]


def parted(xid: int, counted: int = 0, parts: int = 7) -> bytes:
    """The page of a GPU in parts (MIG), each of which shows what the whole GPU has had."""
    lines = []
    for n in range(parts):
        of_part = {"GPU_I_PROFILE": "1g.10gb", "GPU_I_ID": str(7 + n)}
        lines += [dcgm_line(LAST_XID, 0, xid, **of_part), dcgm_line(FAILURE, 0, 0, **of_part)]
        if counted:
            lines.append(dcgm_line(XIDS, 0, counted, window_size_in_ms="300000", xid=str(xid), **of_part))
    return "".join(f"{one}\n" for one in sorted(lines)).encode()


@pytest.mark.parametrize("counted", [0, 1])
def test_an_xid_that_all_parts_of_a_gpu_show_happened_once(counted: int) -> None:
    assert len(the_one(pages(parted(0), parted(31, counted))[1]).times) == 1


def test_a_gpu_that_is_divided_anew_states_no_xid_again() -> None:
    assert stated(pages(parted(79), parted(79, parts=3), parted(79, parts=4))[1]) == []


def test_exporters_that_write_another_number_at_each_look_cost_no_memory() -> None:
    state = State()
    for n in range(500):
        line = dcgm_line(LAST_XID, 0, f"{n}.5")
        state, _ = observe(state, f"{line}\n", NOW + n * EVERY, "boot-1")
    assert len(state.last) <= 2


@pytest.mark.parametrize("page", [dcgm_page(xids={5: 79}), dcgm_page(remap_failed=[5])])
def test_a_gpu_that_falls_off_the_page_with_a_fault_that_stays_is_not_missed_for_it(page: bytes) -> None:
    reading = pages(dcgm_page(), page, *[dcgm_page(gpus=[0, 1, 2, 3, 4, 6, 7])] * 9)[1]
    fault = the_one(reading)
    assert fault.type not in reading.unknown
    assert fault.fresh_until > NOW + 10 * EVERY
    assert len(reading.unknown) == 2, "of its other faults nothing is known any more"


def test_another_gpu_that_falls_off_the_page_is_missed() -> None:
    reading = pages(dcgm_page(), dcgm_page(xids={5: 79}), dcgm_page(gpus=[0, 1, 2, 3, 4]))[1]
    assert reading.unknown["GpuXid"] == f"DCGM_FI_DEV_XID_ERRORS no longer shows {UUIDS[6]}, {UUIDS[7]}"


@pytest.mark.parametrize("value", [-1, 1, 5])
def test_a_status_that_dcgm_does_not_write_is_unknown_and_takes_nothing_back(value: int) -> None:
    odd = dcgm_page(health={(2, "PCIE"): (value, "DCGM_FR_OK")})
    reading = pages(failed(), *[odd] * 9)[1]
    assert stated(reading) == [("GpuHealth", "GpuHealthPcie")]
    assert reading.unknown["GpuHealth"].startswith("DCGM does not write such a status: ")
    assert not reading.cleared


# ---------------------------------------------------------------- which GPU it is


GPU = f"GPU 5 {UUIDS[5]} 00000000:63:00.0"
BOTH = "GPU 5 00000000:63:00.0, GPU 6 00000000:64:00.0"


@pytest.mark.parametrize(
    ("device", "there", "silent"),
    [
        (GPU, [GPU], False),
        (GPU, [f"GPU 4 {UUIDS[5]} 00000000:63:00.0"], False),
        (GPU, [f"GPU 5 {UUIDS[5]}"], False),
        (GPU, ["GPU 5 GPU-11111111 00000000:63:00.0"], False),
        (GPU, [f"GPU 4 {UUIDS[4]} 00000000:62:00.0"], True),
        (GPU, [f"GPU 5 {UUIDS[4]} 00000000:62:00.0"], True),
        (GPU, [], False),
        (short_device(GPU), [GPU], False),
        (short_device(GPU), [f"GPU 4 {UUIDS[5]} 00000000:63:00.0"], False),
        (short_device(GPU), ["GPU 5 GPU-11111111 00000000:63:00.0"], False),
        (short_device(GPU), [f"GPU 4 {UUIDS[4]} 00000000:62:00.0"], True),
        (GPU[:40], [f"GPU 4 {UUIDS[4]} 00000000:62:00.0"], False),  # as a version before has cut it
        (f"GPU 5 {UUIDS[5]}", ["GPU 5 GPU-11111111"], False),
        (f"GPU 5 {UUIDS[5]}, GPU 6 {UUIDS[6]}", [f"GPU 4 {UUIDS[4]}"], False),
        (BOTH, [GPU, f"GPU 6 {UUIDS[6]} 00000000:64:00.0"], False),
        (BOTH, [f"GPU 5 {UUIDS[6]} 00000000:64:00.0"], True),
        (BOTH[:-1], [GPU], False),  # the second one's address is cut
        (short_device(BOTH), [GPU], True),
        ("GPU 5 0000:63:00.0, GPU 6 0000:64:00.0", [GPU, f"GPU 6 {UUIDS[6]} 00000000:64:00.0"], False),
        ("GPU 5 0000:63:00.0, GPU 6 0000:64:00.0", [GPU, f"GPU 6 {UUIDS[6]} 00010000:64:00.0"], True),
        (short_device(BOTH), [f"GPU 5 {UUIDS[6]} 00000000:64:00.0"], True),
        ("model=H100, 80GB,gpu=1", ["model=H100, 80GB,gpu=2"], False),
        ("GPU 7", ["GPU 6"], True),
        ("gpu=7", ["gpu=6"], True),
        ("gpu=7", ["port=1"], False),
        ("model=NVIDIA H100 80GB HBM3,port=1", ["model=NVIDIA H100 80GB HBM3,port=2"], True),
    ],
)
def test_a_gpu_is_known_again_by_its_uuid_or_its_address(device: str, there: list[str], silent: bool) -> None:
    """Where neither is known on both sides, nothing is held against those that are shown."""
    stated = fault("GpuXid79", source="dcgm", type="GpuXid", device=device)
    devices = {("GpuXid", "*"): frozenset(there)}
    assert of_a_silent_device(stated, Reading("dcgm", NOW, devices=devices)) is silent


def test_a_page_says_which_gpus_it_shows() -> None:
    """Also those that have no line of their last XID, as with some exporters. Of what it lacks, none."""
    reading = pages(dcgm_page(gpus=[4, 5], xids={4: 31}, without=[LAST_XID, ROWS]))[1]
    gpus = {f"GPU {n} {UUIDS[n]} 00000000:{0x5E + n:02X}:00.0" for n in (4, 5)}
    shown = {type_ for (type_, _), there in reading.devices.items() if there == gpus}
    assert shown == {"GpuXid", "GpuRowRemapFailed"}
    assert {type_ for (type_, _), there in reading.devices.items() if not there} == TYPES - shown
