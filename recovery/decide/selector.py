"""Which nodes do some labels select? PURE."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from hashlib import sha256

LONGEST = 200


def selects(wanted: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Whether a node with ``labels`` has all that are ``wanted``. Values of those are shell patterns."""
    return all(key in labels and fnmatchcase(labels[key], pattern) for key, pattern in wanted.items())


def identity(wanted: Mapping[str, str]) -> str:
    """The same text for the same selector; empty for one that selects all nodes."""
    text = json.dumps(dict(wanted), sort_keys=True, separators=(",", ":")) if wanted else ""
    return text if len(text) <= LONGEST else sha256(text.encode(errors="surrogatepass")).hexdigest()
