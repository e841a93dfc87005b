"""A value of any class of the model in which everything is too long, too much or too high."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from tests.builders.times import NOW

Made = TypeVar("Made")
TOO_LONG, TOO_MANY, FEWER = 5000, 600, 70
"""Characters of each text; items of each list, and of each list within a list."""


def overfull(cls: type[Made], turn: int, letter: str = "x", **changes: Any) -> Made:
    """An instance whose every field is overfull. ``turn``: which member each enum has, and whether numbers
    are too high (even) or too low."""
    made: Made = _instance(cls, turn, letter, 0)
    return dataclasses.replace(made, **changes)  # type: ignore[type-var]


def _instance(cls: Any, turn: int, letter: str, depth: int) -> Any:
    hints = get_type_hints(cls)
    names = [f.name for f in dataclasses.fields(cls)] if dataclasses.is_dataclass(cls) else cls._fields
    return cls(**{name: _value(hints[name], turn, letter, depth) for name in names})


def _value(hint: Any, turn: int, letter: str, depth: int) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _value(next(x for x in args if x is not type(None)), turn, letter, depth)
    many = TOO_MANY if depth == 0 else FEWER
    if origin is tuple and args[-1] is ...:
        if isinstance(args[0], type) and issubclass(args[0], StrEnum):
            return tuple(args[0]) * many
        made = [_value(args[0], turn + i, letter, depth + 1) for i in range(3)]
        return tuple(made[i % 3] for i in range(many))
    if origin is tuple:
        return tuple(_value(x, turn, letter, depth) for x in args)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        one = _value(args[1], turn, letter, depth + 1)
        return {f"key-{i}": one for i in range(many)}
    if hint is Any:
        return letter
    if hint is bool:
        return True
    if issubclass(hint, StrEnum):
        return list(hint)[turn % len(hint)]
    plain: dict[Any, Any] = {
        str: letter * TOO_LONG,
        int: 2**70 if turn % 2 == 0 else -1,
        float: 1e300,
        datetime: NOW,
        timedelta: timedelta(days=366),
    }
    return plain[hint] if hint in plain else _instance(hint, turn, letter, depth + 1)
