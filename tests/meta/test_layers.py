"""The layers are held by where a module lies: one that is added is held on its first day."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages and the contracts, to be spoilt."""
    top = tmp_path_factory.mktemp("checkout")
    ignored = shutil.ignore_patterns("__pycache__")
    for package in ("recovery", "providers", "testkit/recovery_testkit", "demo/recovery_demo"):
        shutil.copytree(ROOT / package, top / Path(package).name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", top)
    return top


def complaints(checkout: Path, module: str, text: str) -> str:
    """What the layer check prints once ``module`` is there."""
    added = checkout / module
    added.write_text(f"{text}\n")
    try:
        ran = subprocess.run(
            [
                sys.executable,
                "-c",
                "from importlinter.cli import lint_imports_command as c; c()",
                "--no-cache",
            ],
            cwd=checkout,
            capture_output=True,
            text=True,
            timeout=120,
            env={"PYTHONPATH": str(checkout), "COLUMNS": "200", "PATH": ""},
        )
    finally:
        added.unlink()
    assert ran.returncode == 1, ran.stdout + ran.stderr
    return " ".join(ran.stdout.split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "text", "imported"),
    [
        ("recovery/decide/newcomer.py", "import time", "time"),
        ("recovery/decide/newcomer.py", "from recovery.store import record", "recovery.store.record"),
        ("recovery/agent/newcomer.py", "from recovery.decide import brakes", "recovery.decide.brakes"),
        ("recovery/kube/newcomer.py", "from recovery.agent import cycle", "recovery.agent.cycle"),
    ],
)
def test_a_new_module_is_held_by_the_contracts_of_its_folder(
    checkout: Path, module: str, text: str, imported: str
) -> None:
    name = module.removesuffix(".py").replace("/", ".")
    assert f"{name} -> {imported}" in complaints(checkout, module, text)


def test_every_folder_says_in_five_lines_what_lives_there() -> None:
    for folder in sorted(p.parent for p in (ROOT / "recovery").rglob("__init__.py")):
        lines = (folder / "__init__.py").read_text().split('"""')[1].strip().splitlines()
        assert 1 <= len([line for line in lines if line.strip()]) <= 5, folder


def test_the_contracts_name_folders_and_not_the_modules_of_the_core() -> None:
    pure = next(c for c in CONTRACTS if "reads no clock" in c["name"])
    assert "recovery.decide" in pure["source_modules"]
    assert not [m for m in pure["source_modules"] if m.startswith("recovery.decide.")]
