"""Write again what the README has from the code: ``python docs/render.py``. A test says when to.

Settings, commands and metrics are each between two comments, ``<!-- NAME: made by docs/render.py -->`` and
``<!-- end of NAME -->``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from recovery.cli import group
from recovery.config.settings import describe
from recovery.report.metrics import Metrics

README = Path(__file__).resolve().parents[1] / "README.md"


def settings() -> Iterator[str]:
    yield "| variable | default | what |"
    yield "| --- | --- | --- |"
    for name, default, what in describe():
        yield f"| `{name}` | {f'`{default}`' if default else ''} | {what} |"


def commands() -> Iterator[str]:
    yield "| command | what |"
    yield "| --- | --- |"
    for usage, what in _commands(group, "node-recovery"):
        yield f"| `{usage}` | {what} |"


def _commands(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(command, click.Group):
        ctx = click.Context(command)
        for name in command.list_commands(ctx):
            child = command.get_command(ctx, name)
            assert child is not None
            yield from _commands(child, f"{path} {name}")
        return
    needed = [_usage(p) for p in command.params if p.required]
    yield " ".join([path, *needed]), (command.help or "").split("\n\n")[0].replace("\n", " ").strip()


def _usage(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Option):
        return f"{parameter.opts[-1]} {parameter.metavar or (parameter.name or '').upper()}"
    return (parameter.name or "").upper()


def metrics() -> Iterator[str]:
    yield "| metric | what |"
    yield "| --- | --- |"
    for name, labels, what in Metrics().describe():
        braces = f"{{{','.join(labels)}}}" if labels else ""
        yield f"| `{name}{braces}` | {what[0].lower()}{what[1:].removesuffix('.')} |"


def rendered(text: str) -> str:
    """``text`` with the tables as the code has them now. Raises ``ValueError`` where one has no place."""
    for name, lines in (("settings", settings()), ("commands", commands()), ("metrics", metrics())):
        table = "\n".join(lines)
        begin, end = f"<!-- {name}: made by docs/render.py -->", f"<!-- end of {name} -->"
        place = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        found = len(place.findall(text))
        if found != 1:
            raise ValueError(f"README.md: found {found} places for {name}, expected 1 ({begin} ... {end})")
        before, _, after = text.partition(place.findall(text)[0])
        text = f"{before}{begin}\n{table}\n{end}{after}"
    return text


if __name__ == "__main__":
    README.write_text(rendered(README.read_text(encoding="utf-8")), encoding="utf-8")
