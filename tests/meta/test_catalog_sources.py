"""The catalogue's files have no field that nobody reads, and they are shipped."""

from __future__ import annotations

import fnmatch
import subprocess
import sys
import zipfile
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml

from recovery.catalog import faults
from recovery.config import yaml_lines as marked_yaml
from recovery.model import Detector, Latch

ROOT = Path(__file__).parents[2]
FILES = (
    "claims.yaml",
    "default-policy.yaml",
    "faults.yaml",
    "latches.yaml",
    "prometheus.yaml",
    "symptoms.yaml",
    "witnesses.yaml",
    "xids.yaml",
)


def data(name: str) -> Any:
    return yaml.safe_load(resources.files("recovery.catalog").joinpath(name).read_bytes())


@pytest.mark.parametrize("name", FILES)
def test_no_key_is_given_twice(name: str) -> None:
    content = resources.files("recovery.catalog").joinpath(name).read_bytes()
    assert marked_yaml.read(content).mistakes == []


def test_every_fault_has_the_fields_that_are_read_and_no_other() -> None:
    for row in data("faults.yaml"):
        optional = {"remedy", "kind", "detector", "latch", "hold"}
        assert set(row) - optional == {"type", "reason", "thisNode", "why", "source"}
        assert row.get("detector", "log") in ("log", "plugin")
        assert row.get("latch", "boot") in list(Latch)
        assert row.get("kind", "hardware") in ("hardware", "software")
        assert isinstance(row["thisNode"], bool)
        assert all(set(step) <= {"do", "within", "then"} for step in row.get("remedy", ()))


def test_what_ends_a_fault_has_a_default_for_everything_that_states_one() -> None:
    rows = data("latches.yaml")
    assert [row["detector"] for row in rows if "types" not in row] == list(Detector)
    for row in rows:
        assert set(row) - {"types"} == {"detector", "latch", "hold", "why", "source"}


def test_each_symptom_says_why_and_by_which_source() -> None:
    for row in data("symptoms.yaml"):
        assert set(row) == {"labels", "why", "source"}
        assert all(isinstance(label, str) and label for label in row["labels"])


def test_what_a_witness_speaks_of_is_a_fault_of_the_catalogue_and_says_by_what() -> None:
    reasons = {row.reason for row in faults()}
    for row in data("witnesses.yaml"):
        assert set(row) == {"witness", "reason", "counters", "why", "source"}
        assert fnmatch.filter(reasons, row["reason"])
        assert row["counters"]


def test_every_metric_row_has_the_fields_that_are_read_and_no_other() -> None:
    for row in data("prometheus.yaml"):
        optional = {"latch", "hold", "pluginsOnly"}
        assert set(row) - optional == {"name", "query", "node", "bad", "type", "reason", "why", "source"}
        assert row.get("latch", "boot") in list(Latch)


def test_every_claim_has_the_fields_that_are_read_and_no_other() -> None:
    systems = data("claims.yaml")
    assert len({system["system"] for system in systems}) == len(systems)
    for system in systems:
        assert {"system"} < set(system) <= {"system", "marks", "events"}
        for told in system.get("events", ()):
            assert set(told) == {"provider", "source", "begins", "within", "afterwards", "why", "documented"}
        for mark in system.get("marks", ()):
            assert set(mark) - {"values"} == {"kind", "key", "why", "source"}
            assert all(isinstance(value, str) for value in mark.get("values", ()))


@pytest.mark.slow
def test_the_wheel_has_the_catalogue(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=120)  # noqa: S603
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert {f"recovery/catalog/{name}" for name in FILES} <= set(archive.namelist())
