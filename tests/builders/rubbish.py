"""Stored objects gone wrong."""

from __future__ import annotations

import copy
from typing import Any

RUBBISH: tuple[Any, ...] = (None, 7, -7, 1.5, "", "rubbish", True, [], [7], {}, {"x": 7}, ...)


def paths(value: Any, at: str = "") -> list[str]:
    """Every field of a JSON object, as ``status.slots.0.node``; keys with a dot in them are left out."""
    below: list[str] = []
    if isinstance(value, dict):
        keys = [key for key in value if "." not in key]
        below = [p for key in keys for p in paths(value[key], f"{at}.{key}" if at else key)]
    if isinstance(value, list):
        below = [p for i, v in enumerate(value) for p in paths(v, f"{at}.{i}")]
    return [*([at] if at else []), *below]


def with_rubbish(obj: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of ``obj`` with ``value`` at ``path``; `...` takes the field off."""
    made: Any = copy.deepcopy(obj)
    at = made
    *way, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    for key in way:
        at = at[key]
    if value is ...:
        del at[last]
    else:
        at[last] = value
    return dict(made)
