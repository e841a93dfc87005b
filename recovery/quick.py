"""Frozen dataclasses that are made and changed in each cycle, at a fraction of the cost.

A frozen dataclass goes through ``object.__setattr__`` for each of its fields, which takes 7 to 20 µs for one
of 65. Here an instance is filled while its class is a twin that is not frozen and has the same slots.
Then it is given its own class, and nobody can change it any more. Nobody else ever sees the twin.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

Made = TypeVar("Made")

_COPIES: dict[type, Callable[[Any], Any]] = {}
"""By class: what makes a twin with all that an instance has."""


def quick(cls: type[Made]) -> type[Made]:
    """For ``@dataclass(frozen=True, slots=True)``, above it: the same class, made quickly."""
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    assert not hasattr(cls, "__post_init__"), f"{cls.__name__}: what comes after its making would be left out"
    assert all(f.init and not f.kw_only for f in fields), f"{cls.__name__}: a field that is not simply given"
    twin = type(cls.__name__, (), {"__slots__": cls.__dict__["__slots__"]})
    made: dict[str, Any] = {"twin": twin, "cls": cls, "new": object.__new__, "set_": object.__setattr__}
    asked, filled = [], []
    for f in fields:
        given = f.name
        if f.default_factory is not dataclasses.MISSING:
            made[f"made_{f.name}"], made["missing"] = f.default_factory, dataclasses.MISSING
            given = f"made_{f.name}() if {f.name} is missing else {f.name}"
            asked.append(f"{f.name}=missing")
        elif f.default is not dataclasses.MISSING:
            made[f"default_{f.name}"] = f.default
            asked.append(f"{f.name}=default_{f.name}")
        else:
            asked.append(f.name)
        filled.append(f"    self.{f.name} = {given}")
    copied = [f"    new_.{f.name} = old.{f.name}" for f in fields]
    lines = [
        f"def __init__(self, {', '.join(asked)}):",
        "    set_(self, '__class__', twin)",
        *filled,
        "    self.__class__ = cls",
        "def copy(old):",
        "    new_ = new(twin)",
        *copied,
        "    return new_",
    ]
    exec("\n".join(lines), made)  # noqa: S102 - as the module dataclasses makes it
    init = made["__init__"]
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    init.__annotations__ = cls.__init__.__annotations__
    cls.__init__ = init  # type: ignore[method-assign]
    _COPIES[cls] = made["copy"]
    return cls


if TYPE_CHECKING:
    from dataclasses import replace
else:

    def replace(old: Any, /, **changes: Any) -> Any:
        """As ``dataclasses.replace``, for all dataclasses."""
        cls = old.__class__
        copy = _COPIES.get(cls)
        if copy is None:
            return dataclasses.replace(old, **changes)
        new = copy(old)
        for name, value in changes.items():
            setattr(new, name, value)
        new.__class__ = cls
        return new


__all__ = ["quick", "replace"]
