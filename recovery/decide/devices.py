"""Does a source still speak of the device that a fault is about? PURE.

GPUs fall off the bus, and after a boot the others may have other numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from recovery.decide.room import short_device
from recovery.model import Fault, Reading
from recovery.short import address

_ADDRESS = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]")
"""A GPU's address on the bus, as a whole: a name may be cut."""


def of_a_silent_device(fault: Fault, reading: Reading) -> bool:
    """Whether ``fault`` is of a device of which its source says nothing, while it speaks of others like it.

    A process that has seen the device knows that it is unknown now. One that was started since sees only the
    others, and must not take their good status for that of the device.
    """
    return bool(silent_devices(fault, reading))


def silent_devices(fault: Fault, reading: Reading) -> tuple[str, ...]:
    """Which of the devices of ``fault`` those are."""
    there = devices_of(fault, reading) or frozenset()
    if names_one_device(fault.device):
        named: Iterable[str] = (fault.device,)
    else:  # those with an address: an index may be another GPU's once one is gone
        named = (x for x in fault.device.split(", ") if any(map(_ADDRESS.fullmatch, _places(x))))
    return tuple(x for x in named if _says_nothing_of_one(x, there))


def _says_nothing_of_one(device: str, there: frozenset[str]) -> bool:
    if device in there or device in map(short_device, there):  # a full record cuts the name
        return False
    places = _places(device)
    if places and not any(map(_ADDRESS.fullmatch, places)):
        return False
    alike = [each for each in there if _kind(each) == _kind(device)]
    return bool(alike) and not any(places & _places(each) for each in alike)


def devices_of(fault: Fault, reading: Reading) -> frozenset[str] | None:
    """The devices of which its source says what ``fault`` is about, bad or not; None where it does not tell
    them apart."""
    every = reading.devices.get((fault.type, "*"))
    return reading.devices.get((fault.type, fault.reason), every)


def _kind(device: str) -> str:
    """``gpu`` of ``gpu=3``, and ``GPU`` of ``GPU 3 GPU-604ac76c 00000000:61:00.0``."""
    return device.partition("=" if "=" in device else " ")[0]


def _places(device: str) -> frozenset[str]:
    """By what a GPU is known again though its index is another one: its UUID, or its address on the bus. On
    another host, the machine that was moved there has other GPUs at the same addresses."""
    return frozenset() if "=" in device else frozenset(map(address, device.split(" ")[2:]))


def names_one_device(device: str) -> bool:
    """Whether a fault is about a single device, by its name. Several are joined by commas."""
    return bool(device) and ", " not in device
