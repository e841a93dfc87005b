"""Every setting, metric and command is in the README, and nothing else is said to be one."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from recovery.cli import group
from recovery.metrics import Metrics
from recovery.settings import describe

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()


@pytest.mark.parametrize(("name", "default"), [(name, default) for name, default, _ in describe()])
def test_each_setting_is_in_the_readme_with_its_default(name: str, default: str) -> None:
    row = re.search(rf"^\| `{name}` \|(?P<default>[^|]*)\|", README, re.MULTILINE)
    assert row is not None
    assert row["default"].strip().strip("`") == default


def metric_names() -> set[str]:
    return {
        family.name + ("_total" if family.type == "counter" else "")
        for family in Metrics().registry.collect()
    }


def test_each_metric_is_in_the_readme_and_no_other() -> None:
    assert set(re.findall(r"^\| `(node_recovery_[a-z_]+)", README, re.MULTILINE)) == metric_names()


def commands(command: click.Command, path: str = "node-recovery") -> list[str]:
    if isinstance(command, click.Group):
        return [x for name, child in command.commands.items() for x in commands(child, f"{path} {name}")]
    return [path]


def test_each_command_is_in_the_readme_and_no_other() -> None:
    told = {
        m.removesuffix(" FILE")
        for m in re.findall(r"^\| `(node-recovery [a-z ]+(?: FILE)?)` ", README, re.MULTILINE)
    }
    assert told == set(commands(group))


def test_no_word_of_the_readme_is_about_this_machine() -> None:
    assert not re.search(r"/(work|root|tmp|home)/", README)
