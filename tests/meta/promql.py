"""What a PromQL expression reads: enough of its grammar to name every metric and every label in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

STRING = r'"(?:[^"\\]|\\.)*"'
SELECTOR = re.compile(rf"([a-zA-Z_:][\w:]*)\s*\{{((?:[^{{}}\"]|{STRING})*)\}}")
MATCHER = re.compile(rf"(\w+)\s*(=~|!~|!=|=)\s*({STRING})")
GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
NAME = re.compile(r"(?<![\w$:])([a-zA-Z_:][\w:]*)(?!\s*\(|[\w:])")
WORDS = frozenset({"and", "or", "unless", "offset", "bool"})


@dataclass(frozen=True)
class Expression:
    """``matchers``: (metric, label, what it is compared with). ``grouped``: labels that aggregations keep."""

    metrics: frozenset[str]
    matchers: tuple[tuple[str, str, str], ...]
    grouped: frozenset[str]


def read(text: str) -> Expression:
    """Take an expression apart."""
    selectors = list(SELECTOR.finditer(text))
    matchers = tuple(
        (found[1], m[1], m[3].strip('"')) for found in selectors for m in MATCHER.finditer(found[2])
    )
    grouped = frozenset(
        x.strip() for found in GROUPING.finditer(text) for x in found[1].split(",") if x.strip()
    )
    bare = GROUPING.sub(" ", SELECTOR.sub(lambda found: f" {found[1]} ", text))
    bare = re.sub(r"\[[^]]*\]", " ", re.sub(STRING, " ", bare))
    return Expression(frozenset(_names(bare)), matchers, grouped)


def _names(text: str) -> Iterator[str]:
    for found in NAME.finditer(text):
        if found[1] not in WORDS:
            yield found[1]
