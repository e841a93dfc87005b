"""``version=X.Y.Z`` for the tag vX.Y.Z, if all that ships says so; else each place that says otherwise.

::

    python3 .ci/release_version.py v0.1.0
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def versions() -> dict[str, str]:
    """Every place that a release's version is written in."""
    found = {}
    for folder in ("", "testkit/", "demo/"):
        file = f"{folder}pyproject.toml"
        found[file] = str(tomllib.loads((ROOT / file).read_text(encoding="utf-8"))["project"]["version"])
    for file, pattern in (
        ("deploy/helm/node-recovery/Chart.yaml", r"^version: (\S+)$"),
        ("Dockerfile", r"^ARG VERSION=(\S+)$"),
    ):
        said = re.search(pattern, (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
        found[file] = said[1] if said else "nothing"
    return found


def main(tag: str) -> int:
    wrong = [f"{file} says {version}" for file, version in versions().items() if f"v{version}" != tag]
    if wrong:
        print(f"the tag is {tag}; {'; '.join(wrong)}", file=sys.stderr)
        return 1
    print(f"version={tag.removeprefix('v')}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
