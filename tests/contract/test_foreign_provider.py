"""``docs/writing-a-provider.md`` followed: its files in an empty folder, and what it says of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from recovery_testkit.provider_kit import ActionKit

DOC = (Path(__file__).resolve().parents[2] / "docs" / "writing-a-provider.md").read_text()
DECLARED = re.search(
    r"^```toml\n(\[project\.entry-points\.\"node_recovery\.declarations\"\].*?)^```$.*?^```python\n(.*?)^```$",
    DOC,
    re.MULTILINE | re.DOTALL,
)
FILES = dict(re.findall(r"^\*\*`([^`]+)`\*\*\n\n```\w+\n(.*?)^```$", DOC, re.MULTILINE | re.DOTALL))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the document's files, and ``site``: the package as an installation would lay it out."""
    return built(tmp_path_factory.mktemp("rack"), FILES)


def built(folder: Path, files: Mapping[str, str]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    run(folder, "-m", "hatchling", "build", "--target", "wheel")
    (wheel,) = (folder / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder / "site")
    return folder


def run(folder: Path, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Python in the folder, with the package installed."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "RACK_"))}
    environ |= {"PYTHONPATH": str(folder / "site"), "RACK_URL": "http://127.0.0.1:9"}
    return subprocess.run(  # noqa: S603
        [sys.executable, *arguments],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=check,
    )


def test_the_document_has_the_files_that_it_speaks_of() -> None:
    assert set(FILES) == {
        "pyproject.toml",
        "node_recovery_rack/__init__.py",
        "tests/test_rack.py",
        "policy.yaml",
    }


@pytest.mark.slow(3)
def test_the_example_passes_the_whole_kit(folder: Path) -> None:
    ran = run(folder, "-m", "pytest", "-v", "-p", "no:randomly", "-p", "no:cacheprovider", check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    kit = [name for name in dir(ActionKit) if name.startswith("test_")]
    assert len(kit) > 15
    assert [name for name in kit if f"TestRack::{name}" not in ran.stdout] == []
    assert "test_a_reboot_that_never_arrived_is_seen_as_not_applied PASSED" in ran.stdout
    assert "skipped" not in ran.stdout


@pytest.mark.slow(1)
def test_the_program_finds_the_example_and_checks_a_policy_against_it(folder: Path) -> None:
    checked = run(folder, "-m", "recovery", "policy", "check", "policy.yaml", "--provider", "rack")
    assert checked.stdout.strip() in DOC
    assert checked.stderr == ""


@pytest.mark.slow(1)
def test_a_policy_that_asks_it_for_more_than_it_can_is_refused(folder: Path) -> None:
    policy = folder / "too-much.yaml"
    policy.write_text(FILES["policy.yaml"].replace("do: reboot", "do: replace"))
    refused = run(folder, "-m", "recovery", "policy", "check", policy.name, "--provider", "rack", check=False)
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
    folder = built(tmp_path, files)
    told = run(folder, "-c", CHOSEN, "rack://hall-1/SN42").stdout.splitlines()
    assert told == [
        "imported: True",
        "chosen: rack SN42",
        'AZURE_AUTOSCALER: found "x", expected "true" or "false"',
        'RACK_URL: found "rack:8000", expected the address of the controller, http://HOST:PORT',
    ]
