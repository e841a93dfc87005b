"""The counters that the Neuron driver shows in sysfs, as files."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from recovery.catalog import faults, reasons_known_to, spoken_of
from recovery.config.policy_fields import WITNESSES
from recovery.model import Says
from recovery.signals.neuron_sysfs import NAME, NeuronSysfs

HBM, SRAM = "NeuronHasError_HBM_UNCORRECTABLE_ERROR", "NeuronHasError_SRAM_UNCORRECTABLE_ERROR"
COUNTERS = ("mem_ecc_uncorrected", "sram_ecc_uncorrected", "mem_ecc_repairable_uncorrected")


def devices(root: Path, count: int = 2, counters: tuple[str, ...] = COUNTERS) -> None:
    for i in range(count):
        folder = root / f"neuron{i}" / "stats" / "hardware"
        folder.mkdir(parents=True)
        for name in counters:
            (folder / name).write_text("0\n")


def counts(root: Path, device: int, name: str, text: str) -> None:
    (root / f"neuron{device}" / "stats" / "hardware" / name).write_text(text)


def test_a_counter_above_zero_on_any_device_agrees(tmp_path: Path) -> None:
    devices(tmp_path)
    counts(tmp_path, 1, "mem_ecc_uncorrected", "3\n")
    found = NeuronSysfs(tmp_path)((HBM,))
    assert (found.says, found.sentence) == (Says.AGREES, "mem_ecc_uncorrected of neuron1 is 3")


def test_one_that_is_about_another_part_of_the_device_says_nothing(tmp_path: Path) -> None:
    devices(tmp_path)
    counts(tmp_path, 1, "mem_ecc_uncorrected", "3\n")
    found = NeuronSysfs(tmp_path)((SRAM,))
    assert (found.says, found.sentence) == (Says.DISAGREES, "sram_ecc_uncorrected of all 2 devices is 0")


def test_an_older_driver_does_not_count_what_can_be_repaired_apart(tmp_path: Path) -> None:
    devices(tmp_path, 1, COUNTERS[:2])
    found = NeuronSysfs(tmp_path)((HBM,))
    assert (found.says, found.sentence) == (Says.DISAGREES, "mem_ecc_uncorrected of neuron0 is 0")


@pytest.mark.parametrize("there", [False, True])
def test_without_the_driver_or_with_one_that_has_no_such_counters_there_is_no_witness(
    tmp_path: Path, there: bool
) -> None:
    if there:
        devices(tmp_path, 1, ())
    found = NeuronSysfs(tmp_path / "neuron_device" if not there else tmp_path)((HBM,))
    assert found.says is Says.ABSENT


@pytest.mark.parametrize("text", ["", "-1\n", "many\n", "0x3\n", "1.5\n", "\xb2\n", "9" * 100])
def test_what_is_no_number_is_unreadable_and_not_zero(tmp_path: Path, text: str) -> None:
    devices(tmp_path)
    counts(tmp_path, 0, "sram_ecc_uncorrected", text)
    found = NeuronSysfs(tmp_path)((SRAM,))
    assert found.says is (Says.UNREADABLE if not text.startswith("9") else Says.AGREES)


def test_a_device_that_has_lost_its_counters_is_unreadable_and_one_that_agrees_is_enough(
    tmp_path: Path,
) -> None:
    devices(tmp_path)
    (tmp_path / "neuron0" / "stats" / "hardware" / "sram_ecc_uncorrected").unlink()
    assert NeuronSysfs(tmp_path)((SRAM,)).says is Says.UNREADABLE
    counts(tmp_path, 1, "sram_ecc_uncorrected", "1")
    assert NeuronSysfs(tmp_path)((SRAM,)).says is Says.AGREES


def test_a_counter_that_cannot_be_read_is_unreadable(tmp_path: Path) -> None:
    devices(tmp_path)
    file = tmp_path / "neuron0" / "stats" / "hardware" / "sram_ecc_uncorrected"
    file.unlink()
    file.mkdir()
    found = NeuronSysfs(tmp_path)((SRAM,))
    assert (found.says, found.sentence) == (
        Says.UNREADABLE,
        "sram_ecc_uncorrected of neuron0 cannot be read: Is a directory",
    )


def test_a_driver_that_hangs_is_waited_for_briefly_and_not_asked_a_second_time(tmp_path: Path) -> None:
    devices(tmp_path, 1)
    file = tmp_path / "neuron0" / "stats" / "hardware" / "sram_ecc_uncorrected"
    file.unlink()
    os.mkfifo(file)
    witness, before = NeuronSysfs(tmp_path, deadline=0.05), threading.active_count()
    assert witness((SRAM,)).sentence == "the Neuron driver did not answer within 0.05 s"
    again = witness((SRAM,))
    assert (again.says, threading.active_count()) == (Says.UNREADABLE, before + 1)
    assert again.sentence == "the Neuron driver has not answered since it was last asked"
    file.write_text("1")  # it answers, and its thread ends


def test_what_the_witness_speaks_of_are_faults_of_the_catalogue() -> None:
    known = {row.reason for row in faults() if row.this_node}
    assert NAME in WITNESSES
    assert set(reasons_known_to(NAME)) == {HBM, SRAM} <= known
    assert not spoken_of(NAME, "NeuronHasError_DMA_ERROR"), "only the application itself counts those"
