"""What the image holds, made by the image's own steps in a clean folder, and run as the container would.

There is no container here: the base image, its last ``RUN`` and the layers are not tried.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
USER = 65532


def python_of_the_image() -> str:
    """The minor version that the Dockerfile names if it is on the PATH, else the one that runs the tests."""
    line = next(x for x in (ROOT / "Dockerfile").read_text().splitlines() if x.startswith("ARG PYTHON="))
    wanted = "python" + ".".join(line.split(":")[1].split("-")[0].split(".")[:2])
    found = shutil.which(wanted)
    if found and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:  # noqa: S603
        return found
    return sys.executable


def copied() -> list[str]:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    copies = [line.split()[1:-1] for line in lines if line.startswith("COPY ") and "--from" not in line]
    return [path for paths in copies for path in paths]


class Image:
    """The installed tree, read-only, and a way to run its program."""

    def __init__(self, root: Path, home: Path) -> None:
        self.root = root
        self.home = home

    def run(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """As a user who may write nowhere, in an environment of nothing but what the Dockerfile sets."""
        bare = {"PATH": f"{self.root / 'bin'}:/usr/bin:/bin", "HOME": str(self.home), **environ}
        bare |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
        command = [*unprivileged(self.root), str(self.root / "bin" / "node-recovery"), *arguments]
        return subprocess.run(  # noqa: S603
            command, cwd="/", env=bare, capture_output=True, text=True, timeout=60, check=False
        )


def unprivileged(root: Path) -> list[str]:
    """In front of a command, it takes root's power to write what is read-only.

    Root becomes 65532, or, where that user cannot reach the interpreter, stays root without any capability.
    """
    if os.geteuid() != 0:
        return []
    drop = ["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
    other = [*drop, f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
    python = str(root / "bin" / "python")
    reached = subprocess.run(["setpriv", *other, python, "-c", ""], capture_output=True, check=False)  # noqa: S603, S607
    return ["setpriv", *(other if reached.returncode == 0 else drop)]


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    with tempfile.TemporaryDirectory(prefix="node-recovery-image-") as name:  # pytest's are closed to others
        folder = Path(name)
        folder.chmod(0o755)
        yield from installed(folder)


def installed(folder: Path) -> Iterator[Image]:
    source, root, home = folder / "src", folder / "opt" / "node-recovery", folder / "home"
    for path in copied():
        there = source / path
        there.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / path).is_dir():
            shutil.copytree(ROOT / path, there, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / path, there)
    names = folder / "bin"
    names.mkdir()
    (names / "python3").symlink_to(python_of_the_image())
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    environ["PATH"] = f"{names}:{environ['PATH']}"
    subprocess.run([source / ".ci" / "install-image", root], cwd=source, env=environ, check=True)  # noqa: S603
    home.mkdir()
    tree = [path for path in (home, root, *root.rglob("*")) if not path.is_symlink()]
    for entry in tree:
        entry.chmod(entry.stat().st_mode & ~0o222)
    yield Image(root, home)
    for entry in tree:
        entry.chmod(entry.stat().st_mode | 0o200)


def contents(root: Path) -> list[tuple[Path, int]]:
    return sorted((path, path.lstat().st_mtime_ns) for path in root.rglob("*"))


def test_the_tree_really_is_read_only(image: Image) -> None:
    for folder in (image.root, image.home):
        touched = subprocess.run(  # noqa: S603
            [*unprivileged(image.root), "/usr/bin/touch", str(folder / "x")], capture_output=True, check=False
        )
        assert touched.returncode != 0


def test_the_program_says_its_version(image: Image) -> None:
    import tomllib

    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    said = image.run("--version")
    assert (said.returncode, said.stdout, said.stderr) == (0, f"node-recovery {version}\n", "")


def test_the_program_finds_its_own_files(image: Image) -> None:
    said = image.run("policy", "schema")
    assert (said.returncode, said.stderr) == (0, "")
    assert json.loads(said.stdout)["$defs"]


POLICY = """\
apiVersion: noderecovery.dev/v1alpha1
kind: RecoveryPolicy
rules:
  - {name: all, match: {type: NeuronHealth}, remedy: [{do: replace}]}
"""


def test_both_providers_are_there_and_know_what_they_can_do(image: Image) -> None:
    policy = image.root.parent.parent / "policy.yaml"
    policy.write_text(POLICY)
    aws = image.run("policy", "check", str(policy), "--provider", "aws")
    assert (aws.returncode, aws.stderr) == (0, ""), "the provider is only made where its SDK is installed"
    metal = image.run("policy", "check", str(policy), "--provider", "baremetal")
    assert metal.returncode == 2
    assert 'found "replace", which provider baremetal cannot do' in metal.stderr


def test_it_does_not_run_without_settings_and_says_what_is_missing(image: Image) -> None:
    said = image.run("run")
    assert said.returncode == 2
    assert "NODE_NAME" in said.stderr
    assert "Traceback" not in said.stderr


def test_the_demo_is_not_in_it_and_says_how_to_get_it(image: Image) -> None:
    said = image.run("demo", "--fast")
    assert (said.returncode, said.stdout) == (2, "")
    assert "Run `make demo` in a clone of the repository" in said.stderr
    assert "Traceback" not in said.stderr


def test_running_writes_nothing_and_compiles_nothing(image: Image) -> None:
    before = contents(image.root)
    image.run("policy", "schema")
    assert contents(image.root) == before
    library = next(image.root.glob("lib/python3.*"))
    sources = [p for p in library.rglob("*.py") if not p.name.startswith(".")]
    compiled = {p.parent.parent / f"{p.name.split('.')[0]}.py" for p in library.rglob("__pycache__/*.pyc")}
    assert set(sources) - compiled == set()


def test_neither_pip_nor_what_builds_is_in_it(image: Image) -> None:
    packages = {
        p.name.split("-")[0].lower() for p in image.root.glob("lib/python3.*/site-packages/*.dist-info")
    }
    assert "node_recovery" in packages
    # setuptools is there: pbr, by which sushy knows its own version, asks for it.
    assert packages & {"pip", "hatchling", "cyclonedx_bom", "pytest", "moto"} == set()
    assert packages & {"node_recovery_testkit", "node_recovery_demo"} == set()


def test_its_list_of_contents_names_each_package_of_the_lock_with_its_version(image: Image) -> None:
    listed = json.loads((image.root / "sbom.cdx.json").read_text())
    assert (listed["bomFormat"], listed["metadata"]["component"]["name"]) == ("CycloneDX", "node-recovery")
    lock = (ROOT / "requirements-runtime.lock").read_text().splitlines()
    pinned = {line.split(" ")[0] for line in lock if "==" in line and line[0].isalpha()}
    purls = {c["purl"].removeprefix("pkg:pypi/").replace("@", "==") for c in listed["components"]}
    assert purls == pinned
    assert [c["name"] for c in listed["components"] if not c.get("licenses")] == []
    assert str(image.root.parent.parent) not in json.dumps(listed), "it names a folder of this machine"


def test_the_steps_stop_where_a_lock_is_missing(tmp_path: Path) -> None:
    script = ROOT / ".ci" / "install-image"
    said = subprocess.run([script, tmp_path / "t"], cwd=tmp_path, capture_output=True, text=True, check=False)  # noqa: S603
    assert said.returncode != 0
    assert "requirements-build.lock" in said.stderr
    assert not (tmp_path / "t" / "bin" / "node-recovery").exists()
