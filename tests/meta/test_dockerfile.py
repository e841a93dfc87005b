"""The image, as far as it can be judged without building it; ``tests/image/test_image.py`` runs its steps."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from importlib.metadata import distribution
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
INSTALL = (ROOT / ".ci" / "install-image").read_text()


class Instruction(NamedTuple):
    """One instruction of a Dockerfile, its continued lines joined."""

    word: str
    text: str


def instructions() -> list[Instruction]:
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [Instruction(*line.split(maxsplit=1)) for line in joined.splitlines() if line.strip()]


def of(word: str) -> list[str]:
    return [i.text for i in instructions() if i.word == word]


def last_stage() -> list[Instruction]:
    found = instructions()
    begin = max(i for i, instruction in enumerate(found) if instruction.word == "FROM")
    return found[begin:]


def copied() -> list[str]:
    """Every path that is copied from the repository."""
    return [path for text in of("COPY") if "--from" not in text for path in text.split()[:-1]]


# ---------------------------------------------------------------- the Dockerfile


def test_hadolint_has_nothing_to_say() -> None:
    hadolint = shutil.which("hadolint", path=sysconfig.get_path("scripts"))
    assert hadolint, "hadolint is not in the environment: make test installs it from requirements.lock"
    said = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, text=True, check=False)  # noqa: S603
    assert (said.returncode, said.stdout + said.stderr) == (0, "")
    assert "hadolint" not in (ROOT / "Dockerfile").read_text(), "no rule is switched off"
    assert not list(ROOT.glob(".hadolint.y*ml"))


def test_what_builds_stays_behind_in_a_stage_of_its_own() -> None:
    assert [text.split()[0] for text in of("FROM")] == ["${PYTHON}"] * 2
    assert [i.text for i in last_stage() if i.word == "COPY"] == [
        "--from=build /opt/node-recovery /opt/node-recovery"
    ]


def test_the_base_is_pinned_by_release_and_digest_and_can_be_given() -> None:
    base = next(text for text in of("ARG") if text.startswith("PYTHON="))
    assert re.fullmatch(r"PYTHON=python:3\.\d+\.\d+-slim-[a-z]+@sha256:[0-9a-f]{64}", base)
    assert instructions()[0] == ("ARG", base), "an ARG before the first FROM is one for all stages"


def test_the_base_is_a_python_that_the_locks_hold_for() -> None:
    minor = int(of("ARG")[0].split(":3.")[1].split(".")[0])
    makefile = (ROOT / "Makefile").read_text()
    assert f"python3.{minor}" in makefile.split("PYTHONS :=")[1].splitlines()[0]


def test_it_runs_as_a_number_that_is_not_root() -> None:
    users = [i.text for i in last_stage() if i.word == "USER"]
    assert users == ["65532:65532"]
    assert instructions()[-1].word == "CMD"


def test_its_entry_point_is_the_command_and_needs_no_shell() -> None:
    (entry,) = [json.loads(text) for text in of("ENTRYPOINT")]
    command, *arguments = entry
    assert Path(command).name in PROJECT["scripts"]
    assert str(Path(command).parent) in next(text for text in of("ENV") if "PATH=" in text)
    assert arguments == []
    assert [json.loads(text) for text in of("CMD")] == [["run"]]


def test_every_file_that_it_copies_is_there_and_reaches_the_build() -> None:
    reach = [
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    ]
    assert [path for path in copied() if not (ROOT / path).exists()] == []
    assert sorted(copied()) == sorted(reach)
    assert "*" in (ROOT / ".dockerignore").read_text().splitlines(), "nothing else reaches it"


def test_what_the_wheel_is_made_of_is_copied_and_nothing_else() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    needed = {*build["targets"]["wheel"]["packages"], PROJECT["readme"], *PROJECT["license-files"]}
    how = {".ci/install-image", "pyproject.toml", "requirements-build.lock", "requirements-runtime.lock"}
    assert set(copied()) == needed | how


def test_its_port_and_its_version_are_the_programs() -> None:
    from recovery.config.settings import describe

    default = next(default for name, default, _ in describe() if name == "METRICS_ADDRESS")
    assert of("EXPOSE") == [default.rpartition(":")[2]]
    assert f"VERSION={PROJECT['version']}" in of("ARG")


def test_no_secret_is_given_to_the_build() -> None:
    given = " ".join(of("ARG") + of("ENV") + of("RUN")).lower()
    assert not re.search(r"token|password|secret|_key|index-url", given)


def test_every_installation_checks_hashes_or_asks_no_index() -> None:
    installs = [line for line in INSTALL.splitlines() if line.startswith("install ")]
    assert len(installs) == 3
    assert all("--require-hashes" in line or "--no-index" in line for line in installs)
    assert INSTALL.count("pip --python") == INSTALL.count(" install --quiet") + INSTALL.count(" check")


def test_the_steps_ask_where_to_put_it() -> None:
    said = subprocess.run([ROOT / ".ci" / "install-image"], capture_output=True, text=True, check=False)  # noqa: S603
    assert said.returncode != 0
    assert "usage: .ci/install-image TARGET" in said.stderr


# ---------------------------------------------------------------- the locks


def pins(lock: str) -> dict[str, tuple[str, frozenset[str]]]:
    """What a lock pins: name -> version and hashes."""
    found = re.findall(r"^(\S+)==(\S+)(.*?)(?=^\S|\Z)", (ROOT / lock).read_text(), re.MULTILINE | re.DOTALL)
    return {
        canonicalize_name(name): (version, frozenset(re.findall(r"--hash=(sha256:[0-9a-f]{64})", rest)))
        for name, version, rest in found
    }


RUNTIME, BUILD = "requirements-runtime.lock", "requirements-build.lock"


@pytest.mark.parametrize("lock", [RUNTIME, BUILD])
def test_what_is_in_the_image_is_what_is_tested(lock: str) -> None:
    """Same version and same hashes as in the lock of the tests, where that has the package too."""
    tested, shipped = pins("requirements.lock"), pins(lock)
    assert {name: pin for name, pin in shipped.items() if name in tested and tested[name] != pin} == {}
    assert lock == BUILD or shipped.keys() <= tested.keys()
    assert [name for name, (_, hashes) in shipped.items() if not hashes] == []


def closure(*requirements: str) -> set[str]:
    """The distributions that ``requirements`` need on this Python, as installed here."""
    found, todo = set[str](), [Requirement(text) for text in requirements]
    while todo:
        asked = todo.pop()
        name = canonicalize_name(asked.name)
        if name in found and not asked.extras:
            continue
        found.add(name)
        below = [Requirement(text) for text in distribution(name).requires or ()]
        extras = ["", *asked.extras]
        todo += [r for r in below if r.marker is None or any(r.marker.evaluate({"extra": e}) for e in extras)]
    return found


def test_the_image_has_all_that_the_program_needs_and_nothing_else() -> None:
    extras = PROJECT["optional-dependencies"]
    needed = closure(*PROJECT["dependencies"], *extras["aws"], *extras["azure"], *extras["metal"])
    extra = pins(RUNTIME).keys() - needed
    # What only the oldest supported Python needs is locked for all of them.
    assert needed <= pins(RUNTIME).keys()
    assert sys.version_info[:2] > (3, 11) or extra == set()


def test_the_wheel_is_built_by_the_locked_back_end() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert {canonicalize_name(Requirement(text).name) for text in build} <= pins(BUILD).keys()


@pytest.mark.parametrize("lock", ["requirements.lock", RUNTIME, BUILD])
def test_a_lock_names_no_index_and_no_machine(lock: str) -> None:
    assert not re.search(r"https?://|--index|--find-links|/(root|home|tmp|work)/", (ROOT / lock).read_text())
