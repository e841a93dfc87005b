"""What the gauge of Autopilot's daemon says of its node, from page to page."""

from __future__ import annotations

from datetime import timedelta

import pytest

from recovery.model import Reading
from recovery.signals.autopilot_gauge import State, observe
from tests.builders.exporters import autopilot_page
from tests.builders.times import NOW

PCIE = ("AutopilotPCIe", "LowPCIeBandwidth")
REMAP = ("AutopilotRemap", "RowRemapPending")
POWER = ("AutopilotPower", "HwSlowdown")
DCGM = ("AutopilotDcgm", "DcgmLevel1")
PVC = ("AutopilotPvc", "PvcFailed")


def pages(*each: bytes, boots: tuple[str, ...] = (), slow: float = 4) -> Reading:
    state, reading = State(), None
    for i, page in enumerate(each):
        boot = boots[i] if boots else "boot-1"
        state, reading = observe(state, page.decode(), NOW + i * timedelta(seconds=15), boot, "node-0", slow)
    assert reading is not None
    return reading


def stated(reading: Reading) -> list[tuple[str, str]]:
    return [(p.type, p.reason) for p in reading.problems]


@pytest.mark.parametrize(
    ("page", "fault"),
    [
        (autopilot_page(pciebw={3: 4.0}), PCIE),
        (autopilot_page(pciebw={3: 0.0}), PCIE),
        (autopilot_page(remapped=[3]), REMAP),
        (autopilot_page(slow=[3]), POWER),
        (autopilot_page(dcgm=1), DCGM),
        (autopilot_page(pvc=1), PVC),
    ],
)
def test_each_check_is_bad_by_its_own_value_and_another_run_takes_it_back(
    page: bytes, fault: tuple[str, str]
) -> None:
    reading = pages(page)
    assert stated(reading) == [fault]
    assert reading.problems[0].device == ("" if fault in (DCGM, PVC) else "GPU 3")
    after = pages(page, autopilot_page(pvc=0))
    assert (fault in after.cleared, stated(after)) == ((False, [DCGM]) if fault == DCGM else (True, []))


def test_a_healthy_page_takes_back_all_but_what_proves_nothing() -> None:
    assert pages(autopilot_page(pvc=0)).cleared == {PCIE, REMAP, POWER, PVC}


def test_the_threshold_is_the_policys() -> None:
    assert stated(pages(autopilot_page(pciebw={3: 15.0}))) == []
    assert stated(pages(autopilot_page(pciebw={3: 15.0}), slow=16)) == [PCIE]


def test_what_it_says_of_other_nodes_and_of_gpumem_is_left_out() -> None:
    reading = pages(autopilot_page(ping={"node-7": 1, "node-8": 1}))
    assert stated(reading) == []
    assert not [pair for pair in reading.listed if "Ping" in pair[0] or "Mem" in pair[0]]


def test_two_gpus_are_one_fault_until_both_are_well() -> None:
    reading = pages(autopilot_page(remapped=[1, 3]), autopilot_page(remapped=[3]))
    assert reading.problems[0].device == "GPU 3"
    assert REMAP not in reading.cleared


def test_the_gauge_of_another_node_is_unknown() -> None:
    reading = pages(autopilot_page("node-1", remapped=[1]))
    assert (stated(reading), reading.unknown) == ([], {"*": "it is about the node 'node-1'"})
    both = autopilot_page(remapped=[1]) + autopilot_page("node-1")
    assert set(pages(both).unknown) == {"*"}


def test_a_check_that_is_no_longer_shown_is_unknown_and_takes_nothing_back() -> None:
    reading = pages(autopilot_page(remapped=[1]), autopilot_page(without=["remapped"]))
    assert stated(reading) == [REMAP]
    assert set(reading.unknown) == {"AutopilotRemap"}
    assert REMAP not in reading.cleared
    fewer = pages(autopilot_page(remapped=[7]), autopilot_page(gpus=range(7)))
    assert set(fewer.unknown) == {"AutopilotRemap", "AutopilotPCIe", "AutopilotPower"}
    assert stated(fewer) == [REMAP]


def test_a_check_that_never_ran_is_not_missed() -> None:
    assert pages(autopilot_page(without=["remapped", "dcgm"])).unknown == {}


@pytest.mark.parametrize(("old", "new"), [("} 1\n", "} NaN\n"), ('"dcgm",node="node-0"', '"dcgm",node="')])
def test_a_broken_line_is_unknown(old: str, new: str) -> None:
    page = autopilot_page(remapped=[1]).decode().replace(old, new)
    assert set(pages(page.encode()).unknown) == {"*"}


@pytest.mark.parametrize("page", [autopilot_page(dcgm=2), autopilot_page(pciebw={1: -1})])
def test_a_value_that_autopilot_does_not_write_is_unknown(page: bytes) -> None:
    (why,) = pages(page).unknown.values()
    assert why.startswith("the gauge has a value that Autopilot does not write: autopilot_health_checks{")


def test_another_boot_forgets_what_was() -> None:
    seen = (autopilot_page(dcgm=1), autopilot_page())
    assert stated(pages(*seen, boots=("boot-1", "boot-2"))) == []


@pytest.mark.parametrize("page", [b"", b"up 1\n", autopilot_page()[:-4]], ids=["empty", "another", "cut"])
def test_a_page_without_the_gauge_is_unknown(page: bytes) -> None:
    assert set(pages(page).unknown) == {"*"}
