"""The entry points of all installed distributions, read once: each reading takes milliseconds."""

from __future__ import annotations

import importlib.metadata
from functools import cache
from importlib.metadata import EntryPoint

OURS = "node_recovery."


def entry_points(group: str) -> tuple[EntryPoint, ...]:
    """Those of ``group``, whose name begins with ``node_recovery.``; nothing is imported."""
    return tuple(entry for entry in _ours() if entry.group == group)


@cache
def _ours() -> tuple[EntryPoint, ...]:
    found = importlib.metadata.entry_points()
    groups = sorted(group for group in found.groups if group.startswith(OURS))
    return tuple(entry for group in groups for entry in found.select(group=group))
