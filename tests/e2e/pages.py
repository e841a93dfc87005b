"""The commands on the pages, as their readers copy them: from code blocks, and from sentences and tables."""

from __future__ import annotations

import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from plane import Plane
from toolbox import program

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "SUPPORT.md", "SECURITY.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *(page for top in ("deploy", "iam") for page in sorted((ROOT / top).rglob("*.md"))),
]
FENCE = re.compile(r"(?ms)^ *```(\w*)\n(.*?)^ *```$")
SHELL = ("", "sh", "console")
PROGRAMS = "kubectl|helm|node-recovery"
CALL = re.compile(rf"(?m)(?:^|\$\(|[|&]|\bdo\b) *(?:{PROGRAMS}) ")
"""Where a shell would run one of the programs."""


@dataclass(frozen=True)
class Command:
    """What a reader types, and what the page shows of the answer."""

    text: str
    page: str
    shown: str = ""


def commands() -> dict[str, Command]:
    """Each command of the pages once, by its text. What another one has among its lines is not run twice."""
    found: dict[str, Command] = {}
    for page in PAGES:
        for command in of_page(page):
            if command.text not in found or command.shown:
                found[command.text] = command
    lines = {text: {*text.splitlines()} for text in found}
    return {text: c for text, c in found.items() if not any(lines[text] < other for other in lines.values())}


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


# ---------------------------------------------------------------- running them


class Reader:
    """Somebody with a clone of the repository, a shell, and the programs.

    No kubelet runs a command in a container here. So ``kubectl_exec.py`` is its kubectl: it finds the pod by
    the real one, and runs the command as the container is run: in its environment, with its token.
    """

    def __init__(self, plane: Plane, folder: Path, containers: Path) -> None:
        self.clone = folder / "clone"
        self.clone.mkdir(parents=True)
        for name in ("deploy", "iam"):
            shutil.copytree(ROOT / name, self.clone / name)
        programs = folder / "bin"
        programs.mkdir()
        ours = Path(sys.executable).parent
        for found in (program("helm"), ours / "node-recovery", ours / "kubectl-node_recovery"):
            (programs / found.name).symlink_to(found)
        run = [sys.executable, str(Path(__file__).with_name("kubectl_exec.py"))]
        run += [str(program("kubectl")), str(containers)]
        (programs / "kubectl").write_text(f'#!/bin/sh\nexec {shlex.join(run)} "$@"\n')
        (programs / "kubectl").chmod(0o755)
        self._environ = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(folder),
            "KUBECONFIG": str(plane.kubeconfig("admin")),
            "COLUMNS": "200",
        }

    def types(self, text: str, answers: str = "") -> tuple[int, str]:
        """The exit code, and what is printed. ``answers`` is typed at the terminal."""
        ours, theirs = pty.openpty()
        try:
            os.write(ours, answers.encode())
            done = subprocess.run(  # noqa: S603
                ["bash", "-e", "-o", "pipefail", "-c", text],  # noqa: S607
                cwd=self.clone,
                env=self._environ,
                stdin=theirs,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=120,
                check=False,
            )
        finally:
            os.close(ours)
            os.close(theirs)
        return done.returncode, done.stdout


def like(shown: str) -> re.Pattern[str]:
    """What is printed as a page shows it: its words, with other numbers, and with anything for ``...``."""
    words = [re.escape(part) for part in re.split(r"\.\.\.", " ".join(shown.split()))]
    text = ".*?".join(words)
    text = re.sub(r"\d+(?:\\\.\d+)?\\ (?:s|min|h|d)\b", r"[\\d.]+\\ \\w+", text)
    return re.compile(re.sub(r"\d+", r"\\d+", text))
