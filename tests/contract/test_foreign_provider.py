"""``docs/writing-a-provider.md`` followed: its files in a folder, its commands, and what they print."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import pytest
from recovery_testkit.provider_kit import ActionKit

ROOT = Path(__file__).resolve().parents[2]
DOC = (ROOT / "docs" / "writing-a-provider.md").read_text()
DECLARED = re.search(
    r"^```toml\n(\[project\.entry-points\.\"node_recovery\.declarations\"\].*?)^```$.*?^```python\n(.*?)^```$",
    DOC,
    re.MULTILINE | re.DOTALL,
)
FILES = dict(re.findall(r"^\*\*`([^`]+)`\*\*\n\n```\w+\n(.*?)^```$", DOC, re.MULTILINE | re.DOTALL))
COMMANDS = re.findall(r"^```\n(python3 -m venv .*?)^```$", DOC, re.MULTILINE | re.DOTALL)[0].splitlines()
OFFLINE = {
    "PIP_NO_INDEX": "1",
    "PIP_NO_DEPS": "1",
    "PIP_NO_BUILD_ISOLATION": "0",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
}
"""pip installs nothing else, and builds with what is installed here (0 means: without isolation)."""


class Folder:
    """The reader's folder, beside a clone, with the document's files."""

    def __init__(self, path: Path, files: Mapping[str, str] = FILES) -> None:
        self.path = path
        path.mkdir()
        (path.parent / "node-recovery").symlink_to(ROOT)
        for name, content in files.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_text(content)

    def make_environment(self) -> None:
        """A virtual environment that takes all but our distributions from the one that runs the tests.

        Editable installations do not come along: Python reads no .pth file in a folder that a .pth file adds.
        """
        self._run([sys.executable, "-m", "venv", "--without-pip", ".venv"])
        (site,) = (self.path / ".venv" / "lib").glob("python3*/site-packages")
        (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def run(self, command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """A command as the document writes it, and more arguments."""
        words = shlex.split(command)
        environ = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
        program, *arguments = words[len(environ) :]
        if not (
            self.path / program
        ).exists():  # no command of its own: that package is in the other environment
            program, arguments = ".venv/bin/python", ["-m", Path(program).name, *arguments]
        return self._run([program, *arguments], check=check, **environ)

    def python(self, *arguments: str) -> str:
        """What the environment's own Python prints."""
        return self._run([".venv/bin/python", *arguments]).stdout

    def _run(self, command: list[str], check: bool = True, **more: str) -> subprocess.CompletedProcess[str]:
        unwanted = ("PYTEST", "PYTHON", "PIP_", "RACK_", "VIRTUAL_ENV")
        environ = {k: v for k, v in os.environ.items() if not k.startswith(unwanted)}
        return subprocess.run(  # noqa: S603
            command,
            cwd=self.path,
            env=environ | OFFLINE | more,
            capture_output=True,
            text=True,
            timeout=60,
            check=check,
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    folder = Folder(tmp_path_factory.mktemp("beside") / "rack")
    folder.make_environment()
    folder.run(COMMANDS[1])
    return folder


def test_the_document_has_the_files_that_it_speaks_of() -> None:
    assert set(FILES) == {
        "pyproject.toml",
        "node_recovery_rack/__init__.py",
        "tests/test_rack.py",
        "policy.yaml",
    }


def test_the_document_has_the_commands_that_are_followed_here() -> None:
    assert [re.sub(r"^\S+=\S+ ", "", command).split()[0] for command in COMMANDS] == [
        "python3",
        ".venv/bin/pip",
        ".venv/bin/pytest",
        ".venv/bin/node-recovery",
    ]


@pytest.mark.slow(4)
def test_agent_and_kit_come_from_what_was_installed_and_not_from_the_clone(folder: Folder) -> None:
    asked = "import recovery, recovery_testkit; print(recovery.__file__); print(recovery_testkit.__file__)"
    found = folder.run(f".venv/bin/python -c {shlex.quote(asked)}").stdout.split()
    assert [Path(file).is_relative_to(folder.path / ".venv") for file in found] == [True, True]


@pytest.mark.slow(5)
def test_the_example_passes_the_whole_kit(folder: Folder) -> None:
    ran = folder.run(f"{COMMANDS[2]} -v -p no:randomly -p no:cacheprovider", check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    kit = [name for name in dir(ActionKit) if name.startswith("test_")]
    assert len(kit) > 15
    assert [name for name in kit if f"TestRack::{name}" not in ran.stdout] == []
    assert "test_a_reboot_that_never_arrived_is_seen_as_not_applied PASSED" in ran.stdout
    assert "skipped" not in ran.stdout


@pytest.mark.slow(4)
def test_the_program_finds_the_example_and_checks_a_policy_against_it(folder: Folder) -> None:
    checked = folder.run(COMMANDS[3])
    assert checked.stdout.strip() in DOC
    assert checked.stderr == ""


@pytest.mark.slow(4)
def test_a_policy_that_asks_it_for_more_than_it_can_is_refused(folder: Folder) -> None:
    policy = folder.path / "too-much.yaml"
    policy.write_text(FILES["policy.yaml"].replace("do: reboot", "do: replace"))
    refused = folder.run(COMMANDS[3].replace("policy.yaml", policy.name), check=False)
    assert refused.returncode == 2
    assert "which provider rack cannot do; its actions are reboot" in refused.stderr


CHOSEN = """
import sys
from recovery.clock import SystemClock
from recovery.config.settings import load_settings
from recovery.errors import SettingsError
from recovery.model import NodeView
from recovery.provider.protocol import ProviderContext, load_provider
from recovery.provider.registry import Providers

environ = {"NODE_NAME": "n", "RACK_URL": "http://rack:8000"}
assert load_settings(environ).warnings == ()
print("imported:", "node_recovery_rack.settings" in sys.modules)
context = ProviderContext(SystemClock(), environ)
node = NodeView("n", "u", "1", sys.argv[1])
found = Providers("auto", lambda name: load_provider(name, context)).identify(node)
print("chosen:", found.provider.name, found.machine.id)
try:
    load_settings({"NODE_NAME": "n", "RACK_URL": "rack:8000", "AZURE_AUTOSCALER": "x"})
except SettingsError as error:
    print(error)
"""


@pytest.mark.slow(3)
def test_the_declaration_of_the_document_is_checked_at_the_start_and_chosen_by_auto(tmp_path: Path) -> None:
    assert DECLARED is not None
    entry, module = DECLARED.groups()
    files = FILES | {"node_recovery_rack/settings.py": module}
    files["pyproject.toml"] += f"\n{entry}"
    folder = Folder(tmp_path / "rack", files)
    folder.make_environment()
    folder.run(COMMANDS[1])
    told = folder.python("-c", CHOSEN, "rack://hall-1/SN42").splitlines()
    assert told == [
        "imported: True",
        "chosen: rack SN42",
        'AZURE_AUTOSCALER: found "x", expected "true" or "false"',
        'RACK_URL: found "rack:8000", expected the address of the controller, http://HOST:PORT',
    ]
