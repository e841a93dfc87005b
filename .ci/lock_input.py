"""Prints every requirement of the project and all its extras, the build back end included, one a line.

``make lock`` feeds it to pip-compile. An extra that names the project itself ("node-recovery[aws,demo]") is
written out: pip-compile would lock it as a path of the machine that it ran on.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path


def requirements(pyproject: dict[str, dict[str, object]]) -> list[str]:
    """All requirements, each once. Units: strings as pyproject.toml has them."""
    project = pyproject["project"]
    extras = project.get("optional-dependencies", {})
    own = re.compile(rf"{re.escape(str(project['name']))}\[[^\]]*\]$")
    lists = [pyproject["build-system"]["requires"], project["dependencies"], *extras.values()]  # type: ignore[attr-defined]
    found = [str(item) for items in lists for item in items]  # type: ignore[attr-defined]
    return sorted({item for item in found if not own.match(item)})


if __name__ == "__main__":
    root = Path(__file__).resolve().parent.parent
    sys.stdout.write("\n".join(requirements(tomllib.loads((root / "pyproject.toml").read_text()))) + "\n")
