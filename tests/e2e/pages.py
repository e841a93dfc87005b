"""The commands on the pages, as their readers copy them: from code blocks, and from sentences and tables."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "SUPPORT.md", "SECURITY.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *(page for top in ("deploy", "iam") for page in sorted((ROOT / top).rglob("*.md"))),
]
FENCE = re.compile(r"(?ms)^ *```(\w*)\n(.*?)^ *```$")
SHELL = ("", "sh", "console")
PROGRAMS = "kubectl|helm|node-recovery"
CALL = re.compile(rf"(?m)(?:^|\$\(|[|;&]|\bdo\b) *(?:{PROGRAMS}) ")
"""Where a shell would run one of the programs."""


@dataclass(frozen=True)
class Command:
    """What a reader types, and what the page shows of the answer."""

    text: str
    page: str
    shown: str = ""


def commands() -> dict[str, Command]:
    """Each command of the pages once, by its text. Of two that are written alike, one with its answer."""
    found: dict[str, Command] = {}
    for page in PAGES:
        for command in of_page(page):
            if command.text not in found or command.shown:
                found[command.text] = command
    return found


def of_page(page: Path) -> Iterator[Command]:
    text, name = page.read_text(), page.relative_to(ROOT).as_posix()
    for kind, block in FENCE.findall(text):
        body = textwrap.dedent(block).rstrip()
        if kind in SHELL and body.startswith("$ "):
            for each in re.split(r"(?m)^\$ ", body)[1:]:
                line, _, shown = each.partition("\n")
                yield Command(line, name, shown)
        elif kind in SHELL and CALL.search(body):
            yield Command(body, name)
    for inline in re.findall(rf"`((?:{PROGRAMS}) [^`\n]+)`", FENCE.sub("", text)):
        yield Command(inline, name)
