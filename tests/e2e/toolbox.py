"""The programs that the end-to-end tests need: taken from where they are, else built once.

A program comes from ``KUBEBUILDER_ASSETS``, from the PATH, or is built from the Go modules pinned in ``tools/``
into a cache folder (``make e2e-tools``). One that cannot be had is an error with a sentence, never a skip.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

TOOLS = Path(__file__).parent / "tools"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "node-recovery"


@dataclass(frozen=True)
class Program:
    """A Go program: the folder of ``tools/`` whose ``go.mod`` pins it, its package, and flags of the linker."""

    family: str
    package: str
    ldflags: str = "-s -w"


PROGRAMS = {
    "helm": Program("helm", "helm.sh/helm/v3/cmd/helm"),
    "promtool": Program("prometheus", "github.com/prometheus/prometheus/cmd/promtool"),
}


class Missing(RuntimeError):
    """A program that is neither there nor can be built. Its text says what to do."""


def program(name: str) -> Path:
    """The path of a program. Raises ``Missing``."""
    found = _there(name)
    if found is None:
        raise Missing(f"{name} was not found on the PATH and has not been built: run make e2e-tools (it needs Go)")
    return found


def _there(name: str) -> Path | None:
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    for candidate in (Path(assets) / name if assets else None, shutil.which(name), CACHE / "bin" / name):
        if candidate and Path(candidate).is_file():
            return Path(candidate)
    return None


def build(name: str) -> Path:
    """Build a program into the cache folder. Raises ``Missing`` without Go, ``CalledProcessError`` if it fails."""
    go = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    if go is None:
        raise Missing(f"{name} is not on the PATH and there is no Go to build it with: install either")
    what = PROGRAMS[name]
    target = CACHE / "bin" / name
    target.parent.mkdir(parents=True, exist_ok=True)
    environ = {**os.environ, "CGO_ENABLED": "0"}
    fresh = target.with_suffix(f".{os.getpid()}")
    command = [go, "build", "-mod=readonly", "-trimpath", "-ldflags", what.ldflags, "-o", str(fresh), what.package]
    subprocess.run(command, cwd=TOOLS / what.family, env=environ, check=True)
    fresh.replace(target)
    return target


def main() -> int:
    """``make e2e-tools``: see to it that every program is there."""
    for name in PROGRAMS:
        found, began = _there(name), time.monotonic()
        if found is None:
            print(f"{name}: building (once) ...", flush=True)
            try:
                found = build(name)
            except (Missing, subprocess.CalledProcessError) as error:
                print(f"{name}: {error}", file=sys.stderr)
                return 1
            print(f"{name}: built in {time.monotonic() - began:.0f} s", flush=True)
        print(f"{name}: {found}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
