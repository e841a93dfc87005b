"""Which lines of the kernel's log state which code of ``codes``?

The patterns are what ``deploy/npd-gpu/rules.py`` gives to node-problem-detector, so they are written for Go's
regular expressions and Python's alike, and match a whole line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import NamedTuple

from recovery.catalog.codes import GPU, Code, sxids, xids

START = r"^(?:\[[ 0-9.]+\] |kernel: )*"
"""A line begins with the driver's words. An unprivileged process gets its own into the middle of others."""
PCI = r"\(PCI:[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?"
MIG = r"(?: GPU-I:[0-9]{1,4}(?: GPU-CI:[0-9]{1,4})?)?"
"""Which part of a divided GPU a code is about: the driver writes it behind the address, where it knows
(open-gpu-kernel-modules, kernel_rc.c)."""
XID, SXID = rf"{START}NVRM: Xid {PCI}{MIG}\): ", rf"{START}nvidia-nvswitch[0-9]+: SXid {PCI}\): "
REST = "(?:[^0-9].*)?"
"""What follows a whole code, or nothing."""
HEX, NO_HEX = "[0-9a-fA-F]", "[^0-9a-fA-F]"
FATAL = "(?:[^0-9(](?:[^(N]|N(?:N|oN|onN)*(?:[^(No]|o[^(Nn]|on[^(Nf]))*(?:N(?:N|oN|onN)*(?:on?)?)?)?"
"""What follows a code of NVLink up to its first bracket, if Nonfatal is not in it."""
LONGEST = 2048
"""Characters of a line that are read; the kernel's own are shorter than 1 KiB."""


def pattern(code: Code, among: Iterable[Code]) -> str:
    """The lines of ``code``. ``among``: the codes of which this is one, for those that have sub-codes."""
    if code.reason.startswith(GPU):
        return f"{XID}{code.number}{_rest(code, [c for c in among if c.number == code.number])}"
    return f"{SXID}{code.number}{', Fatal' if code.fatal_only else ''}{REST}"


def patterns_of_others(gpu: Iterable[Code]) -> Mapping[str, str]:
    """Of what has no row of its own, by its reason. ``gpu``: all codes of a GPU."""
    return {
        "GpuXidOther": f"{XID}{others(code.number for code in gpu)}{REST}",
        "SXidFatal": rf"{SXID}[0-9]+, Fatal{REST}",
        "SXidNonFatal": rf"{SXID}[0-9]+, Non-fatal{REST}",
    }


def _rest(code: Code, same: list[Code]) -> str:
    """What follows its number, which is what none of ``same`` has."""
    if len(same) == 1:
        return REST
    if code.nonfatal:
        return r"[^0-9(][^(]*Nonf.*"
    if code.subs:
        return f"{FATAL}{_words(code.subs)}"
    known = {sub for other in same for sub in other.subs}
    if not known:
        return rf"{FATAL}(?:\(.*)?"
    rest = _words(sub for sub in range(64) if sub not in known)
    return rf"{FATAL}(?:{rest}|\((?:|[^0].*|0|0[^x].*|0x{HEX}{{0,7}}(?:{NO_HEX}.*)?|0x{HEX}{{9}}.*))?"


def _words(subs: Iterable[int]) -> str:
    """A first word in brackets that has one of these in its bits 20 to 25: ``(0x004505c6 0x...)``.

    The bits are the third hexadecimal digit, and the lower half of the second.
    """
    by_high: dict[int, list[int]] = {}
    for sub in subs:
        by_high.setdefault(sub >> 4, []).append(sub & 15)
    words = "|".join(
        f"[{_digits(range(high, 16, 4))}][{_digits(lows)}]" for high, lows in sorted(by_high.items())
    )
    return rf"\(0x{HEX}(?:{words}){HEX}{{5}}(?:{NO_HEX}.*)?"


def _digits(values: Iterable[int]) -> str:
    return "".join(f"{value:x}" if value < 10 else f"{value:x}{value:X}" for value in values)


def others(codes: Iterable[int]) -> str:
    """Any number but these."""
    return _others("", {str(code) for code in codes})


def _others(prefix: str, codes: set[str]) -> str:
    free, branches = "", []
    for digit in "0123456789":
        longer = prefix + digit
        if any(code.startswith(longer) for code in codes):
            branches.append(f"{digit}{_others(longer, codes)}")
        else:
            free += digit
    if free:
        branches.append(f"[{free}][0-9]*")
    if prefix and prefix not in codes:
        branches.append("")
    return f"(?:{'|'.join(branches)})"


# ---------------------------------------------------------------- one line


class Said(NamedTuple):
    """What one line states. ``type``: "" where it is only counted. ``device``: the PCI address in it, which
    is the whole GPU's also where a part of it is named.

    ``stamp``: the seconds since the boot that stand before it, by the kernel's own clock; None where there
    are none.
    """

    type: str
    reason: str
    device: str
    stamp: float | None


_HEAD = re.compile(
    rf"{START}(?:NVRM: Xid|nvidia-nvswitch[0-9]+: SXid) \(PCI:([^) ]*)[^)]*\): ([0-9]{{1,9}})", re.ASCII
)
_STAMP = re.compile(r"\[ *([0-9]{1,12}(?:\.[0-9]{1,9})?)\] ", re.ASCII)


def read(line: str) -> tuple[Said, ...]:
    """What a line of the log states, as node-problem-detector has it of the GPU pack; often nothing.

    Of an entry of several lines that is the first one: the others may begin with anybody's words.
    """
    line = _first(line)
    head = _HEAD.match(line)
    if head is None:
        return ()
    stamp = _STAMP.match(line)
    when = float(stamp[1]) if stamp else None
    found = (x for number in (int(head[2]), None) for x in _matchers().get(number, ()))
    return tuple(
        Said(type_, reason, head[1], when) for type_, reason, matcher in found if matcher.fullmatch(line)
    )


def is_read(line: str) -> bool:
    """Whether ``line``, which has an XID or an SXid somewhere, is one line of the driver's as it is read. One
    that a log shipper has put its own time before is not."""
    return "\n" not in line.strip() and _HEAD.match(_first(line)) is not None


def _first(line: str) -> str:
    return line[:LONGEST].partition("\n")[0].rstrip()


@cache
def _matchers() -> Mapping[int | None, tuple[tuple[str, str, re.Pattern[str]], ...]]:
    """Of each code the (type, reason, pattern) that its lines may have; those of any code under None."""
    made: dict[int | None, tuple[tuple[str, str, re.Pattern[str]], ...]] = {}
    for code in (*xids(), *sxids()):
        matcher = re.compile(pattern(code, xids()), re.ASCII)
        made[code.number] = (*made.get(code.number, ()), (code.type, code.reason, matcher))
    rest = patterns_of_others(xids()).items()
    made[None] = tuple(("", reason, re.compile(text, re.ASCII)) for reason, text in rest)
    return made
