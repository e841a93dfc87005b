"""One tree holds every error that is raised on purpose."""

from __future__ import annotations

import importlib
import pkgutil
import re

import providers
import recovery
from recovery import errors
from recovery.errors import NodeRecoveryError


def drawn() -> dict[str, str]:
    """Each error of the picture, and the one it is drawn below."""
    tree = (errors.__doc__ or "").split("::\n", 1)[1].split("Any other exception", 1)[0]
    found: dict[str, str] = {}
    above: list[str] = []
    for line in tree.splitlines():
        if match := re.match(r"    ((?:[│ ]   )*)((?:├── |└── )?)(\w+)", line):
            depth = len(match[1]) // 4 + bool(match[2])
            above = [*above[:depth], match[3]]
            found[match[3]] = above[-2] if depth else ""
    return found


def below(error: type[NodeRecoveryError]) -> list[type[NodeRecoveryError]]:
    return [error, *(x for child in error.__subclasses__() for x in below(child))]


def ours() -> list[type[NodeRecoveryError]]:
    for package in (recovery, providers):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    return [x for x in below(NodeRecoveryError) if x.__module__.split(".")[0] in ("recovery", "providers")]


def test_every_error_is_in_the_one_module_and_in_its_picture_below_what_it_is() -> None:
    known = ours()
    assert {x.__name__ for x in known if x.__module__ != errors.__name__} == set()
    as_it_is = {
        x.__name__: "" if x is NodeRecoveryError else x.__base__.__name__ for x in known if x.__base__
    }
    assert drawn() == as_it_is


def test_every_error_says_what_it_means() -> None:
    assert [x.__name__ for x in ours() if not (x.__doc__ or "").strip()] == []
