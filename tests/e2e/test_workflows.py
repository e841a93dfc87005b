"""The workflows, read by actionlint; without what it would use if it happened to be on the PATH."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.e2e.toolbox import program

ROOT = Path(__file__).parents[2]


def test_actionlint_has_nothing_to_say_of_the_workflows() -> None:
    files = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
    assert files
    command = [program("actionlint"), "-no-color", "-shellcheck=", "-pyflakes=", *files]
    said = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert (said.returncode, said.stdout + said.stderr) == (0, "")


def test_actionlint_finds_what_is_wrong(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text(
        "on: push\njobs:\n  a:\n    runs-on: ubuntu-24.04\n    needs: nobody\n    steps: [{run: ls}]\n"
    )
    said = subprocess.run([program("actionlint"), broken], capture_output=True, text=True, check=False)  # noqa: S603
    assert said.returncode == 1
    assert "nobody" in said.stdout
