"""Write again what the pages have from the code: ``python docs/render.py``. A test says when to.

Settings, commands, metrics, what holds and the states of a record are each on a page, between two comments,
``<!-- NAME: made by docs/render.py -->`` and ``<!-- end of NAME -->``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import click

from recovery.cli import group
from recovery.config.settings import describe
from recovery.decide.held import HELD, OTHERWISE
from recovery.decide.lifecycle import TABLE, Event
from recovery.model import Phase
from recovery.report.metrics import Metrics

PAGES = Path(__file__).resolve().parent


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


def held() -> Iterator[str]:
    yield "| reason | what holds |"
    yield "| --- | --- |"
    for reason, what in {**HELD, **OTHERWISE}.items():
        yield f"| `{reason}` | {what} |"


Moves = Mapping[tuple[Phase, Event], Phase]


def states(table: Moves = TABLE) -> Iterator[str]:
    """The usual way on the first line; under it the other moves. What all open phases share is one line."""
    groups = {"any open phase": [p for p in Phase if p.open], "any other": [p for p in Phase if not p.open]}
    shared = {name: _shared(table, phases) for name, phases in groups.items()}
    own = {
        (phase, event): after
        for (phase, event), after in table.items()
        if not any(phase in groups[name] and event in shared[name] for name in groups)
    }
    usual = _usual(own)
    yield "```text"
    yield usual[0][0] + "".join(f" --{event}--> {own[phase, event]}" for phase, event in usual)
    yield ""
    for phase in Phase:
        rest = [
            (event, after) for (at, event), after in own.items() if at is phase and (at, event) not in usual
        ]
        if rest:
            yield _line(phase.value, rest)
    for name in groups:
        yield _line(name, shared[name].items())
    yield ""
    yield f"open: {', '.join(groups['any open phase'])}"
    yield "```"


def _shared(table: Moves, phases: list[Phase]) -> dict[Event, Phase]:
    """The events that each of ``phases`` takes to the same phase."""
    first, *others = phases
    moves = [(event, after) for (phase, event), after in table.items() if phase is first]
    return {event: after for event, after in moves if all(table.get((o, event)) is after for o in others)}


def _usual(own: Moves) -> list[tuple[Phase, Event]]:
    """The shortest way from a fault that was seen to a recovery that is proved."""
    ways: list[tuple[Phase, list[tuple[Phase, Event]]]] = [(Phase.SUSPECT, [])]
    for at, way in ways:  # grows while it is read: the shortest ways come first
        if at is Phase.RECOVERED:
            return way
        ways += [
            (after, [*way, move]) for move, after in own.items() if move[0] is at and len(way) < len(Phase)
        ]
    raise ValueError("no way leads from suspect to recovered")


def _line(phase: str, moves: Iterable[tuple[Event, Phase]]) -> str:
    return f"from {phase + ':':<16}" + ", ".join(f"{event} -> {after}" for event, after in moves)


PARTS: Mapping[str, tuple[str, Callable[[], Iterable[str]]]] = {
    "settings": ("settings.md", settings),
    "commands": ("commands.md", commands),
    "metrics": ("metrics.md", metrics),
    "held": ("metrics.md", held),
    "states": ("code.md", states),
}
"""What is made from the code -> the page of ``docs/`` that has it, and its lines."""


def rendered(name: str, text: str) -> str:
    """The page ``text``, its part ``name`` as the code has it now. ``ValueError`` where it has no place."""
    page, lines = PARTS[name]
    part = "\n".join(lines())
    begin, end = f"<!-- {name}: made by docs/render.py -->", f"<!-- end of {name} -->"
    places = re.findall(f"{re.escape(begin)}.*?{re.escape(end)}", text, re.DOTALL)
    if len(places) != 1:
        raise ValueError(
            f"docs/{page}: found {len(places)} places for {name}, expected 1 ({begin} ... {end})"
        )
    before, _, after = text.partition(places[0])
    return f"{before}{begin}\n{part}\n{end}{after}"


if __name__ == "__main__":
    for name, (page, _) in PARTS.items():
        file = PAGES / page
        file.write_text(rendered(name, file.read_text(encoding="utf-8")), encoding="utf-8")
