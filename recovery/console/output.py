"""How the commands print: tables and colour for people, JSON and YAML for programs."""

from __future__ import annotations

import json
import re
import secrets
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any, TextIO

import click

from recovery.errors import Declined, SettingsError
from recovery.units import span
from recovery.visible import visible

HUMAN, WIDE, JSON, YAML = "human", "wide", "json", "yaml"
FORMATS = (HUMAN, WIDE, JSON, YAML)
COLOURS = {
    "suspect": "yellow",
    "waiting": "yellow",
    "observed": "yellow",
    "recovering": "cyan",
    "proving": "cyan",
    "recovered": "green",
    "handedOver": "red",
    "lost": "red",
}


ESCAPE = "\x1b["
_OURS = f"{ESCAPE}{secrets.randbelow(10**15)};"
"""How one of our styles begins until it is printed: nobody else knows it, so text of others has none."""
_STYLE = re.compile(re.escape(_OURS) + r"([0-9]{1,2}m)")


def styled(text: str, fg: str = "", *, bold: bool = False) -> str:
    """``text`` in bold, or in a colour of ``click.style``, once ``say`` prints it."""
    begin = click.style("", fg=fg or None, bold=bold or None, reset=False)
    return f"{begin.replace(ESCAPE, _OURS)}{text}{_OURS}0m"


def say(line: str, *, err: bool = False) -> None:
    """Print one line. All that the commands print for people goes through here.

    Of what a terminal obeys, only what ``styled`` made is left: a colour in a text of others could hide the
    rest of the line.
    """
    shown = (ESCAPE + part if i % 2 else visible(part) for i, part in enumerate(_STYLE.split(line)))
    encoding = _encoding(sys.stderr if err else sys.stdout)
    click.echo("".join(shown).encode(encoding, "backslashreplace").decode(encoding), err=err)


def _encoding(stream: TextIO | None) -> str:
    """In which encoding it is printed. Not every terminal, nor every file on Windows, takes each character
    that others may have written to the cluster."""
    return getattr(stream, "encoding", None) or "utf-8"


def for_programs(output: str) -> bool:
    """Whether ``--output`` is one that programs read."""
    return output in (JSON, YAML)


def show(value: Any, output: str) -> None:
    """Print ``value`` for programs, as ``--output`` says."""
    click.echo(as_yaml(value) if output == YAML else as_json(value))


def ask(question: str) -> None:
    """Returns on a yes. A no is ``Declined``; where there is no terminal to ask at: ``SettingsError``."""
    if not at_terminal():
        raise SettingsError([f"{question} There is no terminal to ask at. Use --yes."])
    if not click.confirm(visible(question), err=True):
        raise Declined("Nothing was changed.")


def at_terminal() -> bool:
    """Whether there is somebody to ask. Standard input may have been closed when the program started."""
    return sys.stdin is not None and sys.stdin.isatty()


def as_json(value: Any) -> str:
    """``value`` as indented JSON. What cannot be printed is escaped, as JSON does with the rest."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    unprinted = _unprinted(text)
    return "".join(json.dumps(c)[1:-1] if c in unprinted else c for c in text) if unprinted else text


def as_yaml(value: Any) -> str:
    """``value`` as YAML, in the order of ``as_json``. What cannot be printed is escaped."""
    import yaml

    plain = json.loads(json.dumps(value))
    quick = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # five times as quick: 5,000 records took 32 s

    def dumped(dumper: Any, unicode: bool) -> str:
        text = yaml.dump(plain, Dumper=dumper, sort_keys=False, allow_unicode=unicode, width=10**6)
        return str(text).rstrip("\n")

    try:
        text = dumped(quick, True)
        return dumped(quick, False) if _unprinted(text) else text
    except UnicodeEncodeError:  # half a surrogate pair, which no UTF-8 can carry
        return dumped(yaml.SafeDumper, False)


def _unprinted(text: str) -> set[str]:
    """The characters in ``text`` that cannot be printed as they are."""
    encoding = _encoding(sys.stdout)
    return {c for c in set(text) - {"\n"} if not (c.isprintable() and c.encode(encoding, "ignore"))}


def age(since: datetime, now: datetime) -> str:
    """How long ago, as kubectl writes it: ``42s``, ``5m``, ``3h``, ``12d``."""
    seconds = max(int((now - since).total_seconds()), 0)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size or (size == 86400 and seconds >= size):
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def ago(since: datetime, now: datetime) -> str:
    """``12 s ago``, ``5 min ago``."""
    return f"{span(now - since)} ago"


def phase(name: str) -> str:
    """A record's phase, in its colour (click leaves colours out where nobody would see them)."""
    return styled(name, COLOURS[name]) if name in COLOURS else name


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns side by side, three spaces apart; the last one is as long as it likes."""
    widths = [max(_width(row[i]) for row in (head, *rows)) for i in range(len(head) - 1)]
    return [
        "   ".join([*(c + " " * (w - _width(c)) for c, w in zip(row, widths, strict=False)), row[-1]])
        for row in (head, *rows)
    ]


def _width(cell: str) -> int:
    return len(visible(_STYLE.sub("", cell)))
