"""The mends, each to be taken out again: what the search is proved by."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType


def names() -> list[str]:
    """All switches, in order."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__))


def load(name: str) -> ModuleType:
    """The switch whose name begins with ``name``."""
    found = [known for known in names() if known == name or known.startswith(f"{name}_")]
    if len(found) != 1:
        raise SystemExit(f"WITHOUT={name}: expected one of {', '.join(names())}")
    return importlib.import_module(f"{__name__}.{found[0]}")


def take_out(name: str) -> None:
    """For the rest of this process the program is without this mend."""
    load(name).take_out(setattr)


def plots_of(name: str) -> tuple[str, ...]:
    """The plots that a switch is about: others would only look less often at what it changes. Empty: all."""
    return tuple(getattr(load(name), "PLOTS", ()))
