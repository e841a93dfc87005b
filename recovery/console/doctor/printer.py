"""How findings are printed: a line and a mark each, and at the end one sentence."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from recovery.console.doctor.settings import AREA as SETTINGS
from recovery.console.output import say, styled
from recovery.provider.protocol import Finding

GOOD, ADVICE, MISSING, UNASKED = "✓", "!", "✗", "?"
PLAIN = {GOOD: "ok", ADVICE: "!", MISSING: "x", UNASKED: "?"}
"""What is printed where the terminal's encoding has no such marks."""
COLOUR = {GOOD: "green", ADVICE: "yellow", MISSING: "red", UNASKED: "yellow"}
WIDTH = 110
WORKS, FAILS, WRONG = 0, 1, 2


def mark(finding: Finding) -> str:
    """✓ fine, ! fine with advice, ✗ missing, ? could not be asked."""
    if finding.ok is None:
        return UNASKED
    if not finding.ok:
        return MISSING
    return ADVICE if finding.remedy else GOOD


def exit_code(findings: Iterable[Finding]) -> int:
    """0 if recovery could work, 1 if it could not, 2 if that is for wrong settings."""
    missing = [f for f in findings if f.ok is False]
    if any(f.area == SETTINGS for f in missing):
        return WRONG
    return FAILS if missing else WORKS


class Printer:
    """Prints findings as they come, the name of an area before its first finding."""

    def __init__(self, encoding: str) -> None:
        self._plain = not _writes(encoding, GOOD + MISSING)
        self._encoding = encoding if _writes(encoding, "") else "ascii"
        self._area = ""

    def print(self, finding: Finding) -> None:
        for line in self.lines(finding):
            say(line.encode(self._encoding, "replace").decode(self._encoding) if self._plain else line)

    def lines(self, finding: Finding) -> Iterator[str]:
        """The lines of one finding: its sentence, and its remedy indented below."""
        if finding.area != self._area:
            self._area = finding.area
            yield styled(finding.area, bold=True)
        sign = mark(finding)
        shown = f"{PLAIN[sign]:<2}" if self._plain else sign
        indent = " " * (len(shown) + 3)
        first, *rest = _wrapped(finding.sentence, indent)
        yield f"  {styled(shown, fg=COLOUR[sign])} {first.strip()}"
        yield from rest
        if finding.remedy:
            arrow = "-> " if self._plain else "→ "
            lines = _wrapped(finding.remedy, indent + " " * len(arrow))
            yield indent + styled(arrow, fg=COLOUR[sign]) + lines[0].strip()
            yield from lines[1:]


def _wrapped(text: str, indent: str) -> list[str]:
    """Folded at blanks only: a command, an address or a path stays whole."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _writes(encoding: str, text: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def last_sentence(findings: Sequence[Finding]) -> str:
    """Whether recovery could work here, and how many checks failed or could not be asked."""
    missing = sum(f.ok is False for f in findings)
    unasked = sum(f.ok is None for f in findings)
    advice = sum(mark(f) == ADVICE for f in findings)
    checks = f"{len(findings)} checks"
    if missing:
        parts = [f"recovery could not work here: {missing} of {checks} failed"]
    else:
        parts = [f"recovery could work here: {checks}"]
    parts += [f"{advice} with advice"] if advice else []
    parts += [f"{unasked} could not be asked"] if unasked else []
    return ", ".join(parts)


def report_as_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """All of it, for programs. ``ok`` is null where it could not be asked."""
    return {
        "works": exit_code(findings) == WORKS,
        "findings": [
            {"area": f.area, "ok": f.ok, "sentence": f.sentence, "remedy": f.remedy or None} for f in findings
        ],
        "sentence": last_sentence(findings),
    }
