"""Which nodes do some labels select? PURE."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from hashlib import sha256

from recovery.model import EXCLUDE

LONGEST = 200
NOT_EXCLUDED = frozenset({"false", "no", "off", "0"})


def excluded_by_label(labels: Mapping[str, str]) -> str | None:
    """The label with which a person keeps recovery off a node; None where it has none.

    Whoever writes ``True``, or a ticket's number, means it as well. Only what says no does not count.
    """
    value = labels.get(EXCLUDE)
    return None if value is None or value.lower() in NOT_EXCLUDED else f"{EXCLUDE}={value}"


def selects(wanted: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Whether a node with ``labels`` has all that are ``wanted``. Values of those are shell patterns."""
    return all(key in labels and fnmatchcase(labels[key], pattern) for key, pattern in wanted.items())


def identity(wanted: Mapping[str, str]) -> str:
    """The same text for the same selector; empty for one that selects all nodes."""
    text = json.dumps(dict(wanted), sort_keys=True, separators=(",", ":")) if wanted else ""
    return text if len(text) <= LONGEST else sha256(text.encode(errors="surrogatepass")).hexdigest()
