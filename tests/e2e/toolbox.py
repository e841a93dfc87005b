"""The programs that the end-to-end tests need: taken from where they are, else built once.

A program comes from ``KUBEBUILDER_ASSETS``, from the PATH, or is built from the Go modules pinned in
``tools/`` into a cache folder (``make e2e-tools``). One that cannot be had is an error with a sentence, never
a skip; but for those of ``ON_DEMAND``.
"""

from __future__ import annotations

import hashlib
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
    """A Go program: the folder of ``tools/`` whose ``go.mod`` pins it, its package, how it is built."""

    family: str
    package: str
    ldflags: str = "-s -w"
    tags: str = ""


# Without their version in them, these call themselves v0.0.0.
KUBERNETES = " ".join(
    ["-s -w"]
    + [
        f"-X k8s.io/component-base/version.{name}={value}"
        for name, value in {"gitVersion": "v1.36.3", "gitMajor": "1", "gitMinor": "36"}.items()
    ]
)

PROGRAMS = {
    "actionlint": Program("actionlint", "github.com/rhysd/actionlint/cmd/actionlint"),
    "etcd": Program("etcd", "go.etcd.io/etcd/server/v3"),
    "helm": Program("helm", "helm.sh/helm/v3/cmd/helm"),
    "kube-apiserver": Program("kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver", KUBERNETES),
    "kube-controller-manager": Program(
        "kubernetes", "k8s.io/kubernetes/cmd/kube-controller-manager", KUBERNETES
    ),
    "kube-scheduler": Program("kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler", KUBERNETES),
    "kubectl": Program("kubernetes", "k8s.io/kubernetes/cmd/kubectl", KUBERNETES),
    "kwok": Program("kwok", "sigs.k8s.io/kwok/cmd/kwok"),
    # Without the service discovery of a dozen clouds it builds in half the time.
    "prometheus": Program(
        "prometheus", "github.com/prometheus/prometheus/cmd/prometheus", tags="remove_all_sd"
    ),
    "promtool": Program("prometheus", "github.com/prometheus/prometheus/cmd/promtool"),
}


ON_DEMAND = ("prometheus",)
"""Built only where a variable of that name asks for it: it takes as long as several others. Where it is not
there, its tests are skipped, and say so."""


class Missing(RuntimeError):
    """A program that is neither there nor can be built. Its text says what to do."""


def program(name: str) -> Path:
    """The path of a program. Raises ``Missing``."""
    found = _there(name)
    if found is None:
        raise Missing(
            f"{name} was not found on the PATH and has not been built: run make e2e-tools (it needs Go)"
        )
    return found


def has(name: str) -> bool:
    """Whether the program is there."""
    return _there(name) is not None


def built(name: str) -> Path:
    """Where a program is built to: what is pinned otherwise is another place."""
    what = PROGRAMS[name]
    pins = b"".join((TOOLS / what.family / file).read_bytes() for file in ("go.mod", "go.sum"))
    digest = hashlib.sha256(pins + what.ldflags.encode()).hexdigest()
    return CACHE / f"{what.family}-{digest[:12]}" / name


def _there(name: str) -> Path | None:
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    for candidate in (Path(assets) / name if assets else None, shutil.which(name), built(name)):
        if candidate and Path(candidate).is_file():
            return Path(candidate)
    return None


def build(name: str) -> Path:
    """Build a program into the cache folder. Raises ``Missing`` without Go, else ``CalledProcessError``."""
    go = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    if go is None:
        raise Missing(f"{name} is not on the PATH and there is no Go to build it with: install either")
    what = PROGRAMS[name]
    target = built(name)
    target.parent.mkdir(parents=True, exist_ok=True)
    environ = {**os.environ, "CGO_ENABLED": "0"}
    fresh = target.with_suffix(f".{os.getpid()}")
    command = [
        go,
        "build",
        "-mod=readonly",
        "-trimpath",
        "-ldflags",
        what.ldflags,
        "-tags",
        what.tags,
        "-o",
        str(fresh),
        what.package,
    ]
    subprocess.run(command, cwd=TOOLS / what.family, env=environ, check=True)  # noqa: S603
    fresh.replace(target)
    return target


IAM_FILES = ("package.json", "package-lock.json", ".npmrc", "simulate.mjs")


def iam_simulator() -> tuple[str, Path]:
    """Node and the script of ``tools/iam``, beside what it imports. Raises ``Missing``."""
    node, folder = shutil.which("node"), CACHE / "iam"
    if node is None:
        raise Missing(
            "node was not found on the PATH: install Node.js 20 or later (it weighs the IAM policies)"
        )
    for name in IAM_FILES:
        made, wanted = folder / name, TOOLS / "iam" / name
        if not made.is_file() or made.read_bytes() != wanted.read_bytes():
            raise Missing("the IAM engine is not installed as tests/e2e/tools/iam says: run make e2e-tools")
    return node, folder / "simulate.mjs"


def install_iam_simulator() -> None:
    """``npm ci`` by the committed lock into the cache folder. Raises ``Missing``, ``CalledProcessError``."""
    npm, folder = shutil.which("npm"), CACHE / "iam"
    if npm is None:
        raise Missing(
            "npm was not found on the PATH: install Node.js 20 or later (it weighs the IAM policies)"
        )
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    packages, script = IAM_FILES[:-1], IAM_FILES[-1]
    for name in packages:
        shutil.copyfile(TOOLS / "iam" / name, folder / name)
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    subprocess.run(command, cwd=folder, check=True)  # noqa: S603
    shutil.copyfile(TOOLS / "iam" / script, folder / script)  # last: it says that all is there


def main() -> int:
    """``make e2e-tools``: see to it that every program is there."""
    asked_for = [name for name in PROGRAMS if name not in ON_DEMAND or os.environ.get(name.upper())]
    for name in asked_for:
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
    try:
        iam_simulator()
    except Missing:
        try:
            install_iam_simulator()
        except (Missing, subprocess.CalledProcessError) as error:
            print(f"iam: {error}", file=sys.stderr)
            return 1
    print(f"iam: {CACHE / 'iam'}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
