"""How text that others wrote is printed: in one line, with nothing in it that a terminal or a log obeys.

Messages of detectors, names, reasons of people and sentences on records come from whoever can write them. An
escape sequence among them could clear a terminal or fill its clipboard; a line break could forge a line.
"""

from __future__ import annotations


def visible(text: str) -> str:
    """``text``, with what cannot be printed as Python writes it: ``\\n``, ``\\x1b``, ``\\u202e``."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
