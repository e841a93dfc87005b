"""What a cloud's errors say, made fit for a sentence of ours: short, on one line, without secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable

LONGEST = 200  # characters of a cloud's own words in one sentence
LOOKED_AT = 2000
"""Characters in which secrets are looked for: that takes a time that grows with their square."""

Secrets = Iterable[tuple[re.Pattern[str], str]]
"""What must not be repeated, and what stands in its place."""


def one_line(text: str, secrets: Secrets = (), longest: int = LONGEST) -> str:
    """``text`` on one line, of at most ``longest`` characters, without ``secrets``."""
    text = _beginning(text)
    for pattern, instead in secrets:
        text = pattern.sub(instead, text)
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"


def _beginning(text: str) -> str:
    """Its first words, none of them cut: half a secret looks like none."""
    if len(text) <= LOOKED_AT:
        return text
    words = text[:LOOKED_AT].split()[:-1]
    return " ".join([*words, "…"]) if words else "(left out)"
