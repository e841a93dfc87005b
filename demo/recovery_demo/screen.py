"""Lines on a terminal: a column with the seconds, one with who, one with the node; colour where it helps."""

from __future__ import annotations

import io
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable
from typing import TextIO

from recovery_demo.narrator import AGENT, AWS, AZURE, DEMO, KUBERNETES, KURED, SIMULATOR, Line

BOLD, DIM, RED, GREEN, YELLOW, BLUE, MAGENTA, CYAN = "1", "2", "31", "32", "33", "34", "35", "36"
_COLOURS = {
    AGENT: GREEN,
    SIMULATOR: YELLOW,
    KUBERNETES: BLUE,
    DEMO: CYAN,
    **dict.fromkeys((AWS, AZURE, KURED), MAGENTA),
}
_WHO, _NODE = 13, 13
_INDENT = 7 + 2 + _WHO + 2 + _NODE + 2
_WIDTH = 110  # where nobody says


class Screen:
    """Writes to ``out``. Colour on a terminal, unless NO_COLOR is set."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        if isinstance(self._out, io.TextIOWrapper):
            self._out.reconfigure(errors="replace")  # a terminal that knows no ✓
        self._colour = (
            self._out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        )
        self._width = max(80, min(shutil.get_terminal_size((_WIDTH, 24)).columns, 140))

    def line(self, line: Line) -> None:
        """One line of the story, wrapped under itself."""
        words = textwrap.wrap(
            line.text, self._width - _INDENT, break_long_words=False, break_on_hyphens=False
        )
        who = self.paint(f"{line.who:<{_WHO}}", _COLOURS.get(line.who, ""))
        head = f"{line.at:5.1f} s  {who}  {line.node:<{_NODE}}  "
        for number, part in enumerate(words or [""]):
            start = head if number == 0 else " " * _INDENT
            self.say(start + (self.paint(part, BOLD) if line.strong else part))

    def say(self, text: str = "") -> None:
        self._out.write(text.rstrip() + "\n")
        self._out.flush()

    def lines(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.say(text)

    def paragraph(self, text: str) -> None:
        self.lines(textwrap.wrap(text, self._width - 2, break_on_hyphens=False))

    def paint(self, text: str, *codes: str) -> str:
        wanted = ";".join(c for c in codes if c)
        return f"\033[{wanted}m{text}\033[0m" if self._colour and wanted else text
