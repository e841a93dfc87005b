"""The three distributions of this repository: what each holds and needs. They are really built, offline."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {
    "node-recovery": ROOT,
    "node-recovery-testkit": ROOT / "testkit",
    "node-recovery-demo": ROOT / "demo",
}
PACKAGES = {
    "node-recovery": {"recovery", "providers"},
    "node-recovery-testkit": {"recovery_testkit"},
    "node-recovery-demo": {"recovery_demo"},
}
PROJECTS: dict[str, dict[str, Any]] = {
    name: tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    for name, folder in FOLDERS.items()
}
CRDS = ("noderecoveries.yaml", "recoverygates.yaml", "recoveryreports.yaml")
FOR_TESTS = {"pytest", "moto", "sushy_tools", "recovery_testkit", "recovery_demo", "tests"}


def build(folder: Path, kind: str, target: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(target)]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=60)  # noqa: S603
    (made,) = target.iterdir()
    return made


class Wheel:
    """Its files: name -> bytes."""

    def __init__(self, path: Path) -> None:
        with zipfile.ZipFile(path) as packed:
            self.files = {name: packed.read(name) for name in packed.namelist()}

    @property
    def folders(self) -> set[str]:
        """What an installation puts beside other packages, but for the folder of its metadata."""
        return {name.split("/")[0] for name in self.files if ".dist-info/" not in name}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Wheel]:
    return {
        name: Wheel(build(folder, "wheel", tmp_path_factory.mktemp("wheel")))
        for name, folder in FOLDERS.items()
    }


def imported(source: str) -> Iterator[str]:
    """The top packages that a module imports, at once or when it is called."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module).split(".")[0]


def modules(wheel: Wheel) -> dict[str, set[str]]:
    """module's file -> the top packages that it imports."""
    return {
        name: set(imported(content.decode())) for name, content in wheel.files.items() if name.endswith(".py")
    }


# ---------------------------------------------------------------- what they hold


@pytest.mark.slow(2)
@pytest.mark.parametrize("name", FOLDERS)
def test_a_wheel_holds_its_own_packages_and_nothing_else(wheels: dict[str, Wheel], name: str) -> None:
    assert wheels[name].folders == PACKAGES[name]


@pytest.mark.slow(2)
def test_the_agents_wheel_holds_every_file_of_its_packages(wheels: dict[str, Wheel]) -> None:
    there = {
        str(path.relative_to(ROOT))
        for package in PACKAGES["node-recovery"]
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    }
    assert there == {name for name in wheels["node-recovery"].files if ".dist-info/" not in name}


@pytest.mark.slow(2)
def test_no_module_in_the_agents_wheel_imports_what_is_for_tests(wheels: dict[str, Wheel]) -> None:
    found = modules(wheels["node-recovery"])
    assert len(found) > 100
    assert {name: wrong for name, names in found.items() if (wrong := names & FOR_TESTS)} == {}


@pytest.mark.slow(2)
@pytest.mark.parametrize("name", FOLDERS)
def test_every_wheel_has_the_licence_and_the_notice(wheels: dict[str, Wheel], name: str) -> None:
    for file in ("LICENSE", "NOTICE"):
        (found,) = [content for path, content in wheels[name].files.items() if path.endswith(f"/{file}")]
        assert found == (ROOT / file).read_bytes()


@pytest.mark.slow(3)
def test_the_kit_has_the_agents_crds_also_when_it_is_built_from_its_sdist(
    wheels: dict[str, Wheel], tmp_path: Path
) -> None:
    with tarfile.open(build(FOLDERS["node-recovery-testkit"], "sdist", tmp_path / "sdist")) as packed:
        packed.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    for wheel in (wheels["node-recovery-testkit"], Wheel(build(source, "wheel", tmp_path / "wheel"))):
        found = {path: content for path, content in wheel.files.items() if path.endswith(".yaml")}
        crds = {name: (ROOT / "deploy" / "crds" / name).read_bytes() for name in CRDS}
        assert found == {f"recovery_testkit/manifests/{name}": content for name, content in crds.items()}


@pytest.mark.slow(1)
def test_the_agents_sdist_holds_what_the_wheel_is_made_of(tmp_path: Path) -> None:
    with tarfile.open(build(ROOT, "sdist", tmp_path / "sdist")) as packed:
        top = {name.split("/")[1] for name in packed.getnames()}
    ours = {"CHANGELOG.md", "LICENSE", "NOTICE", "README.md", "providers", "pyproject.toml", "recovery"}
    assert top == ours | {".gitignore", "PKG-INFO"}, "hatchling adds two"


# ---------------------------------------------------------------- what they say of themselves


def test_all_three_have_one_version() -> None:
    assert {project["version"] for project in PROJECTS.values()} == {PROJECTS["node-recovery"]["version"]}


def test_they_require_each_other_in_that_version() -> None:
    version = PROJECTS["node-recovery"]["version"]
    ours = [
        (name, required)
        for name, project in PROJECTS.items()
        for required in map(Requirement, [*project["dependencies"], *extras(project)])
        if required.name in PROJECTS
    ]
    assert {(name, required.name) for name, required in ours} == {
        ("node-recovery-testkit", "node-recovery"),
        ("node-recovery-demo", "node-recovery"),
        ("node-recovery-demo", "node-recovery-testkit"),
    }
    assert {str(required.specifier) for _, required in ours} == {f"=={version}"}


def extras(project: dict[str, Any]) -> list[str]:
    return [text for listed in project.get("optional-dependencies", {}).values() for text in listed]


@pytest.mark.parametrize("name", FOLDERS)
def test_every_distribution_has_a_description_a_readme_and_the_same_licence(name: str) -> None:
    project, agent = PROJECTS[name], PROJECTS["node-recovery"]
    assert (FOLDERS[name] / project["readme"]).read_text().startswith(f"# {name}\n")
    assert project["description"].endswith(".")
    for key in ("license", "license-files", "requires-python"):
        assert project[key] == agent[key]


COME_WITH = {
    "azure-core": "azure-identity",
    "botocore": "boto3",
    "certifi": "kubernetes",
    "pydantic-core": "pydantic",
    "requests": "sushy",
    "urllib3": "kubernetes",
}
"""What is not required by name, and what requires it: the errors and settings of the two are one."""


def required(name: str) -> set[str]:
    """The distributions that ``name`` requires, in any extra, by itself or by an extra of ours ([aws])."""
    found = set[str]()
    for wanted in map(Requirement, PROJECTS[name]["dependencies"] + extras(PROJECTS[name])):
        found.add(canonicalize_name(wanted.name))
        for extra in wanted.extras if wanted.name in PROJECTS else ():
            listed = PROJECTS[wanted.name]["optional-dependencies"][extra]
            found |= {canonicalize_name(Requirement(text).name) for text in listed}
    return found


@pytest.mark.parametrize("name", FOLDERS)
def test_what_is_imported_is_required_by_name(name: str) -> None:
    files = [path for package in PACKAGES[name] for path in (FOLDERS[name] / package).rglob("*.py")]
    imports = {top for path in files for top in imported(path.read_text())}
    providing = {**packages_distributions(), **{p: [d] for d, packages in PACKAGES.items() for p in packages}}
    offers = {
        top: {COME_WITH.get(found, found) for found in map(canonicalize_name, providing.get(top, []))}
        for top in imports - PACKAGES[name] - sys.stdlib_module_names
    }
    assert {top: found for top, found in offers.items() if not found & required(name)} == {}


def test_the_locks_cover_what_all_three_require() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    locked = {canonicalize_name(name) for name in re.findall(r"^(\S+?)==", lock, re.MULTILINE)}
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    tools = {canonicalize_name(Requirement(text).name) for text in groups["dev"]}
    assert tools.union(*map(required, PROJECTS)) - locked - PROJECTS.keys() == set()
