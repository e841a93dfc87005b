"""The names of faults, as long as there is room for on records. PURE.

Types and reasons come from whoever writes conditions, marks and pages of metrics. One that is too long is
shortened here, for all sources alike and before anything goes by it: rules match it, records keep it, and
people see it, under one name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from recovery.model import Problem, Reading
from recovery.quick import replace
from recovery.short import LONGEST_REASON, LONGEST_TYPE, named

Said = TypeVar("Said")
Pair = tuple[str, str]


def bounded(reading: Reading) -> Reading:
    """``reading``, with each type and reason as ``type_name`` and ``reason_name`` have it."""
    r = reading
    texts = (r.unknown, r.unknown_since, r.unconfirmed, r.silent, r.ended, r.early)
    pairs = (r.cleared, r.listed, r.gone, r.ends, r.devices)
    if (
        all(type_name(p.type) is p.type and reason_name(p.reason) is p.reason for p in r.problems)
        and all(type_name(t) is t for each in texts for t in each)
        and all(type_name(t) is t and reason_name(reason) is reason for each in pairs for t, reason in each)
        and all(reason_name(reason) is reason for reason in r.counters)
    ):  # nearly always
        return r
    return replace(
        r,
        problems=tuple(map(_problem, r.problems)),
        unknown=_types(r.unknown),
        unknown_since=_types(r.unknown_since),
        cleared=frozenset(map(_pair, r.cleared)),
        listed=frozenset(map(_pair, r.listed)),
        gone=frozenset(map(_pair, r.gone)),
        unconfirmed=_types(r.unconfirmed),
        counters={reason_name(reason): count for reason, count in r.counters.items()},
        silent=_types(r.silent),
        ends={_pair(pair): ends for pair, ends in r.ends.items()},
        ended=_types(r.ended),
        early=_types(r.early),
        devices={_pair(pair): found for pair, found in r.devices.items()},
    )


def type_name(text: str) -> str:
    return named(text, LONGEST_TYPE)


def reason_name(text: str) -> str:
    return named(text, LONGEST_REASON)


def _problem(p: Problem) -> Problem:
    return replace(p, type=type_name(p.type), reason=reason_name(p.reason))


def _pair(pair: Pair) -> Pair:
    return type_name(pair[0]), reason_name(pair[1])


def _types(said: Mapping[str, Said]) -> dict[str, Said]:
    return {type_name(t): x for t, x in said.items()}
