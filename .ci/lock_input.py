"""Prints every requirement of the project and all its extras, the build back end included, one a line.

``make lock`` feeds it to pip-compile. An extra that names the project itself ("node-recovery[aws,demo]") is
written out: pip-compile would lock it as a path of the machine that it ran on.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any


def requirements(pyproject: dict[str, Any]) -> list[str]:
    """All requirements as ``pyproject`` writes them, each once."""
    project = pyproject["project"]
    itself = re.compile(rf"{re.escape(project['name'])}\[[^\]]*\]$")
    extras = project.get("optional-dependencies", {}).values()
    lists = [pyproject["build-system"]["requires"], project["dependencies"], *extras]
    return sorted({item for items in lists for item in items if not itself.match(item)})


if __name__ == "__main__":
    root = Path(__file__).resolve().parent.parent
    sys.stdout.write("\n".join(requirements(tomllib.loads((root / "pyproject.toml").read_text()))) + "\n")
