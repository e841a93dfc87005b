"""How many faults has a record room for, and how long may their words be? PURE."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from recovery.model import Fault
from recovery.quick import replace
from recovery.short import shortened, size, without_uuid

MOST_FAULTS = 20
FAULTS_SIZE = 8 * 1024
"""Bytes of a record that its faults may take. The first ones are kept: those to treat come first."""
MOST_BOOTS = 20
"""Boots that nobody asked for, after which a person is asked, whatever the policy's ``attempts.max``."""
MOST_RUNGS = 22
"""Steps of a ladder: the twenty of a policy, a reboot that is put before them, and one more drain."""
LEAST_STARTS = 10
"""How many starts of its machine a closed record surely has room for, if it is not about many faults."""
SHORT_MESSAGE = 160
LONGEST_DEVICE, SHORT_DEVICE = 160, 40
ENVELOPE = 182
"""Bytes of a fault beside its texts: names of fields, moment, counter, flags."""


def kept(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """The first of ``faults``, as many as a record holds. Long messages are cut before a fault is."""
    found = tuple(faults)[:MOST_FAULTS]
    if _size(found) > FAULTS_SIZE:
        found = tuple(with_short_message(f) for f in found)
    while len(found) > 1 and _size(found) > FAULTS_SIZE:
        found = found[:-1]
    return found


def with_short_message(f: Fault) -> Fault:
    """``f`` with fewer words. Where it is about several devices, its message gives way to their names."""
    device = short_device(f.device)
    left = SHORT_MESSAGE - max(0, size(device) - SHORT_DEVICE)
    return replace(f, message=shortened(f.message, left), device=device)


def short_device(name: str) -> str:
    """A device as a record of many faults names it. Of several each is known again by its address."""
    if ", " in name:
        return shortened(name, LONGEST_DEVICE)
    if size(name) > SHORT_DEVICE and ":" in (short := without_uuid(name)):
        name = short
    return shortened(name, SHORT_DEVICE)


def _size(faults: tuple[Fault, ...]) -> int:
    texts = ((f.source, f.type, f.reason, f.message, f.machine, f.boot_id, f.device) for f in faults)
    return sum(ENVELOPE + size(text) for text in texts)


def heavier(value: Any, most: int) -> bool:
    """Whether ``value`` (of JSON) has more than about ``most`` bytes. It is read no further than that."""
    weight, left = 0, [value]
    while left:
        x = left.pop()
        weight += 8
        if isinstance(x, str):
            weight += len(x)
        elif isinstance(x, dict):
            weight += sum(map(len, x))
            left += x.values()
        elif isinstance(x, list):
            left += x
        if weight + len(left) > most:
            return True
    return False
