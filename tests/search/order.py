"""The order of sets is part of a history: a process that plays one has the hash seed 0."""

from __future__ import annotations

import os
import sys


def start_again(module: str) -> None:
    """Where this process has another hash seed, be ``python -m module`` with that one. Returns where not."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(  # noqa: S606
            sys.executable,
            [sys.executable, "-m", module, *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
