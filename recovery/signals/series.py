"""Reads series from a page in Prometheus text format, within bounds. A broken line spoils no other. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

MAX_SERIES = 20_000
MAX_LINE = 2048
"""Characters. The parser's time grows with the square of a line's escapes."""
UNREADABLE_CHARACTERS = re.compile("[\x00-\x08\x0b-\x1f\ufffd]")
_PARSER_ERRORS = (ValueError, IndexError, KeyError, TypeError, OverflowError)


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a page."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Read:
    """The undamaged series of some families. ``broken`` maps a family to why not all of it could be read,
    ``*`` to why the page could not."""

    series: tuple[Series, ...] = ()
    broken: Mapping[str, str] = field(default_factory=dict)


def read(text: str, families: Collection[str]) -> Read:
    """The series of ``families``. Raises nothing. Other lines are never looked at.

    A last line without its newline is not used, because a number may be cut in it.
    """
    whole, _, rest = text.rpartition("\n")
    if rest.strip() or not text:
        return Read(broken={"*": "the page ends in the middle of a line" if text else "the page is empty"})
    lines = [line.strip() for line in whole.split("\n") if line.partition("{")[0].strip() in families]
    if len(lines) > MAX_SERIES:
        return Read(broken={"*": f"the page lists more than {MAX_SERIES} of its series"})
    opened = [f"{name}{{" for name in families]
    found: list[Series] = []
    broken: dict[str, str] = {}
    for line, sample in samples(lines):
        family = line.partition("{")[0].strip()
        value = math.nan if sample is None or not sound(line, opened) else finite(sample)
        if sample is None or math.isnan(value):
            broken.setdefault(family, f"a line of {family} is broken: {line[:120]!r}")
        else:
            found.append(Series(family, dict(sample.labels), value))
    return Read(tuple(found), broken)


def sound(line: str, names: Iterable[str]) -> bool:
    """Whether the line is one series, with one of these names, and nothing else: the parser itself is laxer.

    Of two lines run into one, the second's name may be anywhere, even within the first's label.
    """
    after = line.rpartition("}")[2].split()
    return (
        sum(map(line.count, names)) == 1 and len(after) in (1, 2) and not UNREADABLE_CHARACTERS.search(line)
    )


def samples(lines: list[str]) -> Iterator[tuple[str, Sample | None]]:
    """Each line with what the parser makes of it, None where it makes nothing of it."""
    if all(len(line) <= MAX_LINE for line in lines):
        try:
            yield from list(zip(lines, _parsed(lines), strict=True))
            return
        except _PARSER_ERRORS:
            pass  # one broken line spoils the whole text for the parser: line by line then
    for line in lines:
        yield line, _sample(line)


def _sample(line: str) -> Sample | None:
    if len(line) > MAX_LINE:
        return None
    try:
        return next(_parsed([line]), None)
    except _PARSER_ERRORS:
        return None


def _parsed(lines: Iterable[str]) -> Iterator[Sample]:
    """Lines without comments: the parser then yields one family of one sample for each."""
    for family in text_string_to_metric_families("\n".join(lines)):
        yield from family.samples


def finite(sample: Sample) -> float:
    """The sample's value; NaN for one that no program writes."""
    try:
        value = float(sample.value)
    except OverflowError:
        return math.nan
    return value if math.isfinite(value) else math.nan
