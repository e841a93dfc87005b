"""Which serial numbers make a machine known again."""

from __future__ import annotations

import pytest

from recovery.decide.hardware import LONGEST, MOST, hardware
from recovery.model import HARDWARE_ID, NodeView
from tests.builders.nodes import node

UUID = "4C4C4544-0047-4A10-8051-B7C04F484433"


def bearing(written: str = "", uuid: str = "", label: str = "") -> NodeView:
    """A node with a UUID of its firmware's, and serial numbers written in its annotation and its label."""
    labels = {HARDWARE_ID: label} if label else {}
    return node(system_uuid=uuid, annotations={HARDWARE_ID: written}, labels=labels)


def test_its_uuid_and_what_is_written_on_it_each_once() -> None:
    assert hardware(bearing("S-1, GPU-7,S-1", UUID, "S-2")) == (UUID.lower(), "S-2", "S-1", "GPU-7")


def test_a_node_that_is_not_there_has_none() -> None:
    assert hardware(None) == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "None",
        "Not Specified",
        "Not Applicable",
        "To Be Filled By O.E.M.",
        "System Serial Number",
        "0",
        "NA",
    ],
)
def test_what_firmware_says_of_every_machine_names_none(text: str) -> None:
    assert hardware(bearing(text)) == ()


@pytest.mark.parametrize(
    "uuid",
    [
        "00000000-0000-0000-0000-000000000000",
        "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
        "11111111-1111-1111-1111-111111111111",
        "a5a5a5a5-a5a5-a5a5-a5a5-a5a5a5a5a5a5",
    ],
)
def test_a_uuid_that_nobody_set_names_none(uuid: str) -> None:
    assert hardware(bearing("", uuid)) == ()


def test_what_it_may_add_to_the_gate_is_bounded() -> None:
    found = hardware(bearing(",".join(f"{i}-" + "x" * 500 for i in range(100))))
    assert len(found) == MOST
    assert all(len(serial) == LONGEST for serial in found)


@pytest.mark.parametrize(
    "uuid",
    [
        "FEFEFEFE-FEFE-FEFE-FEFE-FEFEFEFEFEFE",
        "00020003-0004-0005-0006-000700080009",
        "03020100-0504-0706-0809-0A0B0C0D0E0F",
        "10000000-0000-8000-0040-000000000000",
    ],
)
def test_a_uuid_that_firmware_gives_to_many_machines_makes_none_known_again(uuid: str) -> None:
    assert hardware(bearing("S-1", uuid)) == ("S-1",)
