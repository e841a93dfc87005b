"""How are durations, shares, bounds and moments written and read back, in settings, records and sentences?
And how does a sentence name several things?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from recovery.model import Bound, Share

DURATION_PATTERN = r"^([0-9]+(\.[0-9]+)?h)?([0-9]+(\.[0-9]+)?m)?([0-9]+(\.[0-9]+)?s)?([0-9]+(\.[0-9]+)?ms)?$"
SHARE_PATTERN = r"^[0-9]+(\.[0-9]+)?%$"
BOUND_PATTERN = r"^(>=|<=|==|!=|>|<) *-?[0-9]+(\.[0-9]+)?$"
LONGEST = timedelta(days=366)

_DURATION = re.compile(DURATION_PATTERN, re.ASCII)
_PART = re.compile(r"([0-9.]+)(ms|h|m|s)", re.ASCII)
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_SHARE = re.compile(SHARE_PATTERN, re.ASCII)
_BOUND = re.compile(BOUND_PATTERN, re.ASCII)


def parse_duration(text: str) -> timedelta:
    """``0s``, ``500ms``, ``90s``, ``10m``, ``1h30m``: units from large to small, each at most once.

    Raises ``ValueError`` for anything else, a number without a unit and more than 366 days included.
    """
    if not text or not _DURATION.fullmatch(text):  # `$` alone takes a newline at the end
        raise ValueError(text)
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))
    if seconds > LONGEST.total_seconds():
        raise ValueError(text)
    return timedelta(seconds=seconds)


def format_duration(duration: timedelta) -> str:
    """As policies write it, exact to the microsecond: ``1h30m``, ``1m30s`` (never ``90s``), ``0s``."""
    left = duration // timedelta(microseconds=1)
    parts = []
    for unit, size in (("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join([*parts, f"{left / 1000:g}ms" if left else ""]) or "0s"


def parse_share(value: object) -> Share:
    """A count (``1``) or a percentage (``"30%"``, 0 to 100). Raises ``ValueError`` for anything else."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return Share(count=value)
    if isinstance(value, str) and _SHARE.fullmatch(value) and float(value[:-1]) <= 100:
        return Share(percent=float(value[:-1]))
    raise ValueError(value)


def parse_bound(text: str) -> Bound:
    """``> 0``, ``<= 4.5``, ``== -1``, ``!= 0``. Raises ``ValueError`` for anything else."""
    found = _BOUND.fullmatch(text)
    if found is None:
        raise ValueError(text)
    return Bound(found[1], float(text[len(found[1]) :]))


def moment(at: datetime) -> str:
    """RFC 3339, UTC, microseconds: ``2026-11-21T10:15:00.250000Z``."""
    text = (at if at.tzinfo is UTC else at.astimezone(UTC)).isoformat(timespec="microseconds")
    return text.removesuffix("+00:00") + "Z"


def parse_moment(text: str) -> datetime:
    """A moment in RFC 3339, as UTC. Raises ``ValueError``, also where the offset is missing."""
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    try:
        return at.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{text!r} is out of range") from None


def duration(value: timedelta) -> str:
    """Seconds, exact to the microsecond, as records hold them: ``600s``, ``0.5s``."""
    return f"{value.total_seconds():.6f}".rstrip("0").rstrip(".") + "s"


def few(names: Sequence[str], most: int) -> str:
    """The first of ``names``, at most so many, as sentences have them: ``a, b and 3 more``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def span(value: timedelta) -> str:
    """A duration as sentences have it: ``0.5 s``, ``45 s``, ``12 min``, ``3.5 h``."""
    seconds = max(value.total_seconds(), 0.0)
    if seconds < 10:
        return f"{seconds:.1f}".rstrip("0").rstrip(".") + " s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f}".rstrip("0").rstrip(".") + " h"


def hour(at: datetime, now: datetime) -> str:
    """A moment as sentences have it: ``10:15:03Z``; with its day where ``now`` is 12 hours away or more."""
    far = abs(at - now) >= timedelta(hours=12)
    return at.strftime("%Y-%m-%d %H:%M:%SZ" if far else "%H:%M:%SZ")
