"""The workflows: what they may do, and whose code they run. actionlint reads them in ``make e2e``."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
RELEASE = ROOT / ".github" / "workflows" / "release.yaml"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def jobs(file: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(file.read_text())["jobs"]
    return found


def steps(file: Path) -> list[dict[str, Any]]:
    return [step for job in jobs(file).values() for step in job["steps"]]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_action_is_named_by_its_commit_with_its_version_beside_it(file: Path) -> None:
    used = re.findall(r"uses: (.*)", file.read_text())
    assert used
    assert [
        line for line in used if not re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)
    ] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_job_names_its_rights_and_its_longest_time_and_nothing_has_any_by_default(file: Path) -> None:
    assert yaml.safe_load(file.read_text())["permissions"] == {}
    assert [
        name for name, job in jobs(file).items() if "permissions" not in job or "timeout-minutes" not in job
    ] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_secret_is_in_an_environment_or_in_a_command(file: Path) -> None:
    """An environment is inherited by everything that a step starts."""
    plain = [str(job.get("env")) for job in jobs(file).values()] + [
        f"{s.get('env')} {s.get('run')}" for s in steps(file)
    ]
    assert "secrets." not in "\n".join(plain)
    assert {
        s["with"].get("persist-credentials") for s in steps(file) if "checkout@" in s.get("uses", "")
    } == {False}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_command_has_words_of_others_pasted_into_it(file: Path) -> None:
    assert [s["run"] for s in steps(file) if "${{" in s.get("run", "")] == []


def test_rights_to_write_are_those_of_what_a_job_publishes() -> None:
    writing = {
        name: {right for right, value in job["permissions"].items() if value == "write"}
        for name, job in jobs(RELEASE).items()
    }
    assert writing == {
        "check": set(),
        "image": {"packages", "id-token"},
        "chart": {"packages", "id-token"},
        "wheels": set(),
        "publish": {"id-token"},
    }
    assert all(
        job["permissions"] == {"contents": "read"}
        for job in jobs(ROOT / ".github/workflows/ci.yaml").values()
    )


def test_nothing_is_published_before_everything_has_passed() -> None:
    ran = [step.get("run", "") for step in jobs(RELEASE)["check"]["steps"]]
    assert {"bash .ci/run", "make audit STRICT=1"} <= set(ran)
    needs = {name: job.get("needs", []) for name, job in jobs(RELEASE).items()}
    assert all(
        "check" in ([n] if isinstance(n, str) else n)
        for name, n in needs.items()
        if name not in ("check", "publish")
    )
    assert needs["publish"] == ["wheels", "image"]


@pytest.mark.parametrize(
    ("tag", "code"), [(f"v{VERSION}", 0), (VERSION, 1), ("v9.9.9", 1), (f"v{VERSION}-rc1", 1)]
)
def test_a_tag_that_is_not_the_version_is_no_release(tag: str, code: int) -> None:
    command = [sys.executable, ROOT / ".ci/release_version.py", tag]
    said = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert (said.returncode, said.stdout) == (code, "" if code else f"version={VERSION}\n")


# ---------------------------------------------------------------- make audit


AUDIT = runpy.run_path(str(ROOT / ".ci" / "audit.py"))
SOUND = {"name": "click", "version": "8.1.7", "vulns": []}
BAD = {"name": "x", "version": "1.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}]}
OVER = {"name": "y", "skip_reason": "not found"}


def audited(monkeypatch: pytest.MonkeyPatch, *packages: Any, strict: bool = False) -> int:
    names = AUDIT["main"].__globals__
    monkeypatch.setitem(names, "installed", Path)
    monkeypatch.setitem(names, "ask", lambda *_: ({"dependencies": list(packages)}, ""))
    return int(AUDIT["main"](strict))


def test_what_was_asked_for_and_has_nothing_known_passes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audited(monkeypatch, SOUND, strict=True) == 0
    assert "NOT AUDITED" not in capsys.readouterr().out


def test_a_known_vulnerability_fails_and_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audited(monkeypatch, SOUND, BAD, OVER) == 1
    assert "requirements.lock: x 1.0: PYSEC-1, mended in 1.1" in capsys.readouterr().out


@pytest.mark.parametrize(("strict", "code"), [(False, 0), (True, 3)])
def test_what_could_not_be_asked_for_is_never_told_as_sound(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], strict: bool, code: int
) -> None:
    """pip-audit exits with 0 then."""
    assert audited(monkeypatch, SOUND, OVER, strict=strict) == code
    assert "NOT AUDITED: no vulnerability service answered for every package." in capsys.readouterr().out
