"""Prints requirements of the project, one a line, for pip-compile. ``make lock`` says which:

``all``      the project's, all its extras' and the build back end: what a checkout needs
``runtime``  the project's and those of the clouds it can act on: what runs in the image
``build``    the build back end and what lists the image's contents: what makes the image

An extra that names the project itself ("node-recovery[aws,demo]") is written out: pip-compile would lock it
as a path of the machine that it ran on.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

CLOUDS = ("aws", "azure", "metal")
"""The extras that the image has: clouds, and BMCs by Redfish."""


def requirements(pyproject: dict[str, Any], purpose: str) -> list[str]:
    """All requirements for ``purpose`` as ``pyproject`` writes them, each once."""
    project, build = pyproject["project"], pyproject["build-system"]["requires"]
    extras = project["optional-dependencies"]
    lists = {
        "all": [build, project["dependencies"], *extras.values()],
        "runtime": [project["dependencies"], *(extras[cloud] for cloud in CLOUDS)],
        "build": [build, pyproject["dependency-groups"]["image"]],
    }[purpose]
    itself = re.compile(rf"{re.escape(project['name'])}\[[^\]]*\]$")
    return sorted({item for items in lists for item in items if not itself.match(item)})


if __name__ == "__main__":
    root = Path(__file__).resolve().parent.parent
    found = requirements(tomllib.loads((root / "pyproject.toml").read_text()), sys.argv[1])
    sys.stdout.write("\n".join(found) + "\n")
