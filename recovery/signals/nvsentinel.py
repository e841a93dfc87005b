"""What NVSentinel writes into its Node conditions: codes, devices and the action that it recommends.

Its platform connector gives a condition the reason ``<type>IsNotHealthy``, and one message for all that the
check found (https://github.com/NVIDIA/NVSentinel, pull requests 664 and 1270, issue 911)::

    ErrorCode:119 PCI:0002:00:00 GPU_UUID:GPU-2.. Xid .. Recommended Action=COMPONENT_RESET;ErrorCode:94 ..

Its documentation shows another form, ``[119] text - RecommendedAction: COMPONENT_RESET``. Both are read.

A message is cut after 1 KiB (pull request 485), in its last entry (pull request 1304). The last entry then
has no action, and is stated under the condition's own reason. There is one exception. Where there are entries
before it, and none accuses this machine, it probably does not either: one application's XID on eight GPUs
fills a message, and so does a link that broke elsewhere. Then its reason ends in ``_CUT``. If it begins with
another code, that is in the reason, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from recovery.catalog import CUT_SHORT, RECOMMENDS_NOTHING, lookup
from recovery.model import Condition
from recovery.signals.own_node import devices

LONGEST = 16 * 1024
MOST = 10
"""The most faults that one condition states; those that accuse no machine are left out first."""
_ACTION = re.compile(r"(?:Recommended Action=|- RecommendedAction: ?)([A-Z_]{1,40})(?:;|$)")
_CODES = re.compile(r"(?:ErrorCode:\S{1,64}(?:\s+|$))+|\[[^\]]{1,200}\]")
_CODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_ENTITY = re.compile(r"(?<!\S)(GPU|GPU_UUID|PCI):(\S{1,80})")


@dataclass(frozen=True, slots=True)
class Found:
    """One fault that a condition states. ``said``: NVSentinel's own words."""

    reason: str
    said: str
    device: str = ""


def found(c: Condition) -> tuple[Found, ...]:
    """Each code with the action that is recommended for it; none where the condition is not NVSentinel's."""
    if c.reason != f"{c.type}IsNotHealthy":
        return ()
    about: dict[str, tuple[str, list[str]]] = {}
    for reason, said in _entries(c.type, c.reason, c.message[:LONGEST]):
        about.setdefault(reason, (said, []))[1].append(_device(said))
    last = {x: (_accuses_nobody(c.type, x), x.endswith(RECOMMENDS_NOTHING)) for x in about}
    first = sorted(about, key=lambda reason: last[reason])[:MOST]
    return tuple(Found(reason, about[reason][0], devices(about[reason][1])) for reason in first)


def _accuses_nobody(type: str, reason: str) -> bool:
    row = lookup(type, reason)
    return row is not None and not row.this_node


def _entries(type: str, base: str, message: str) -> Iterator[tuple[str, str]]:
    """(reason, words) of each entry. The last entry of a message that was cut has no action."""
    end, reasons, known = 0, set[str](), set[str]()
    for action in _ACTION.finditer(message):
        said, end = message[end : action.start()].strip(), action.end()
        codes = _codes(said)
        known |= set(codes)
        for code in codes or [""]:
            reason = "_".join(filter(None, (base, code, action[1])))
            reasons.add(reason)
            yield reason, said
    rest = message[end:].strip()
    if rest and not (reasons and all(_accuses_nobody(type, reason) for reason in reasons)):
        yield base, rest
    elif rest:
        whole = rest.rpartition(" ")[0]  # a code at its very end may be cut
        others = [f"{base}_{code}{CUT_SHORT}" for code in _codes(whole) if code not in known]
        yield from ((reason, rest) for reason in others or [f"{base}{CUT_SHORT}"])


def _codes(said: str) -> list[str]:
    head = _CODES.match(said)
    words = re.split(r"[\s,\[\]]+", head[0]) if head else ()
    return [word for each in words if _CODE.fullmatch(word := each.removeprefix("ErrorCode:"))]


def _device(said: str) -> str:
    """The GPU by its index, UUID and PCI address, as far as the entry begins with them. The check's own
    words, which follow, may name others."""
    entity: dict[str, str] = {}
    for word in said[_end_of_codes(said) :].split():
        known = _ENTITY.fullmatch(word)
        if known is None:
            break
        entity[known[1]] = known[2]
    names = [f"GPU {entity['GPU']}"] if "GPU" in entity else []
    return " ".join([*names, *(entity[key] for key in ("GPU_UUID", "PCI") if key in entity)])


def _end_of_codes(said: str) -> int:
    head = _CODES.match(said)
    return head.end() if head else 0
