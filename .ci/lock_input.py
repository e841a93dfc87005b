"""Prints requirements, one a line, for pip-compile. ``make lock`` says which:

``all``      those of the agent, the test kit and the demo, with all extras, of the build back end and of the
             development tools: what a clone needs
``runtime``  the agent's and those of the clouds it can act on: what runs in the image
``audit``    what make audit asks the vulnerability services with
``build``    the build back end and what lists the image's contents: what makes the image

What the three require of each other ("node-recovery[aws]==0.1.0") is left out: pip-compile would look for it
in the registry, or lock it as a path of the machine that it ran on.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CLOUDS = ("aws", "azure", "metal")
"""The extras that the image has: clouds, and BMCs by Redfish."""
BESIDE = ("testkit", "demo")
"""The folders of the distributions that only a clone has."""

Pyproject = dict[str, Any]


def requirements(agent: Pyproject, beside: list[Pyproject], purpose: str) -> list[str]:
    """All requirements for ``purpose`` as they are written in these pyproject.toml, each once."""
    everywhere = [agent, *beside]
    build, groups = agent["build-system"]["requires"], agent["dependency-groups"]
    lists = {
        "all": [build, groups["dev"], *(x for each in everywhere for x in with_extras(each))],
        "runtime": list(with_extras(agent, CLOUDS)),
        "audit": [groups["audit"]],
        "build": [build, groups["image"]],
    }[purpose]
    names = "|".join(re.escape(each["project"]["name"]) for each in everywhere)
    ours = re.compile(rf"({names})(?![\w-])")
    return sorted({item for items in lists for item in items if not ours.match(item)})


def with_extras(pyproject: Pyproject, wanted: tuple[str, ...] | None = None) -> Iterator[list[str]]:
    """Its dependencies, and those of its extras (of the ``wanted`` ones)."""
    project = pyproject["project"]
    extras: dict[str, list[str]] = project.get("optional-dependencies", {})
    yield project["dependencies"]
    yield from (extras[name] for name in (extras if wanted is None else wanted))


def read(folder: Path) -> Pyproject:
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))


if __name__ == "__main__":
    root = Path(__file__).resolve().parent.parent
    found = requirements(read(root), [read(root / name) for name in BESIDE], sys.argv[1])
    sys.stdout.write("\n".join(found) + "\n")
