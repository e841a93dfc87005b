"""The machines that a group had before one of them was replaced, in a few KiB however many they are. PURE.

A machine that is not among them is new, so it may be the replacement. A small group is a list of IDs. A large
one is a Bloom filter: a known machine is never taken for a new one. A new one is taken for a known one about
once in 100,000 times in a group of 1,000, and once in 20 in one of 5,000. Then it does not count as a
replacement, and the next one does.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

KEY = "known"
"""Where a ``Reference`` has them. The core may set it to ``ALL`` once the recovery is over."""
ALL = "*"
LIST_SIZE = 2048
"""Bytes. A list that is longer as JSON becomes a filter."""
MOST_BITS = 32 * 1024
BITS_EACH = 32
PLACES = 7


def pack(machines: Iterable[str]) -> list[str] | str:
    """The machines, for ``Reference.data``: sorted, or as a filter of at most 5.4 KiB."""
    names = sorted(set(machines))
    if len(json.dumps(names)) <= LIST_SIZE:
        return names
    bits = min(MOST_BITS, (BITS_EACH * len(names) + 7) // 8 * 8)
    field = bytearray(bits // 8)
    for name in names:
        for place in _places(name, bits):
            field[place // 8] |= 1 << place % 8
    return base64.b64encode(bytes(field)).decode()


def has(known: Any, machine: str) -> bool:
    """Whether ``machine`` is among those that ``pack`` was given."""
    if not isinstance(known, str):
        return machine in (known or ())
    field = b"" if known == ALL else base64.b64decode(known)
    return all(field[place // 8] >> place % 8 & 1 for place in _places(machine, len(field) * 8))


def packed(data: Mapping[str, Any]) -> bool:
    """Whether a reference has a filter. To a program that expects a list each machine would be new."""
    return isinstance(data.get(KEY), str)


def forgotten(data: Mapping[str, Any]) -> dict[str, Any]:
    """``data`` of a recovery that is over: no machine is its replacement any more."""
    return {**data, KEY: ALL} if KEY in data else dict(data)


def _places(name: str, bits: int) -> Iterator[int]:
    digest = hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=16).digest()
    first, stride = int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big") | 1
    return ((first + i * stride) % bits for i in range(PLACES if bits else 0))
