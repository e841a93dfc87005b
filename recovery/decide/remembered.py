"""Which faults does a record keep, and how short can it say that one was dealt with? PURE."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from recovery.model import Fault, Kind

MOST_FAULTS = 20
FAULTS_SIZE = 8 * 1024
"""Bytes of a record that its faults may take. The first ones are kept: those to treat come first."""
SHORT_MESSAGE = 160
ESCAPED = re.compile("[<>&]")
ENVELOPE = 170
"""Bytes of a fault beside its texts: names of fields, moment, counter, flags."""
FINGERPRINT, MOST_SETTLED = 8, 256
"""Of a fault that was dealt with, eight characters are enough to know it again. So many fit into a record."""


def kept(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """The first of ``faults``, as many as a record holds. Long messages are cut before a fault is."""
    found = tuple(faults)[:MOST_FAULTS]
    if _size(found) > FAULTS_SIZE:
        found = tuple(with_short_message(f) for f in found)
    while len(found) > 1 and _size(found) > FAULTS_SIZE:
        found = found[:-1]
    return found


def with_short_message(f: Fault) -> Fault:
    return replace(f, message=shortened(f.message, SHORT_MESSAGE))


def _size(faults: tuple[Fault, ...]) -> int:
    texts = ((f.source, f.type, f.reason, f.message, f.machine, f.boot_id) for f in faults)
    return sum(ENVELOPE + size(text) for text in texts)


def size(value: Any) -> int:
    """The most bytes that the API server may need for ``value``, whichever way it escapes it."""
    text = json.dumps(value, separators=(",", ":"))
    return len(text) + 5 * len(ESCAPED.findall(text))


def shortened(text: str, longest: int) -> str:
    """The beginning of ``text``, of at most so many bytes."""
    while (long := size(text)) > longest:
        text = text[: max(0, len(text) * longest // long - 1)]
        if not text:
            break
    return text


def fingerprint(f: Fault) -> str:
    """Eight characters for a fault that was dealt with, of all that makes another one the same.

    Not of the count of a plugin, which grows with every run.
    """
    return _hash(f, with_counter=f.kind is not Kind.LEVEL or f.latched)


def fingerprints(f: Fault) -> frozenset[str]:
    """Those that a fault has if it is the same as one that was dealt with."""
    return frozenset({_hash(f, with_counter=True), _hash(f, with_counter=False)})


def without(settled: tuple[str, ...], faults: Iterable[Fault]) -> tuple[str, ...]:
    """``settled`` without those of ``faults``: if they come again, they are new."""
    gone = {mark for f in faults for mark in fingerprints(f)}
    return tuple(mark for mark in settled if mark not in gone)


def _hash(f: Fault, with_counter: bool) -> str:
    counter = repr(f.counter) if with_counter else ""
    text = json.dumps([*f.key, f.machine, f.boot_id, with_counter, counter])
    return base64.urlsafe_b64encode(hashlib.blake2b(text.encode(), digest_size=6).digest()).decode()
