"""What Loki answers to a question for the lines of some time (``query_range``). Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from recovery.errors import Unreadable


class Line(NamedTuple):
    """One line of a log: when it was written (nanoseconds since 1970), on which node by its label, "" where
    it has none, and what it says."""

    ns: int
    node: str
    text: str


def read(result: Any, node: str, start: int, end: int) -> list[Line]:
    """The lines of an answer, the oldest first. ``node``: the label that names the Node.

    Every value of every stream counts. Raises ``Unreadable`` for what is no answer of this kind, and where a
    line is not from ``start`` on and before ``end``: what was asked for would not be what was read.
    """
    if not isinstance(result, list):
        raise Unreadable("the answer is no list of streams")
    lines = [line for stream in result for line in _lines(stream, node)]
    if any(not start <= line.ns < end for line in lines):
        raise Unreadable("the answer has lines of a time that was not asked for")
    return sorted(lines)


def _lines(stream: Any, node: str) -> list[Line]:
    labels = stream.get("stream") if isinstance(stream, dict) else None
    values = stream.get("values") if isinstance(stream, dict) else None
    if not isinstance(labels, dict) or not isinstance(values, list):
        raise Unreadable("the answer is no list of streams")
    name = labels.get(node, "")
    if not isinstance(name, str):
        raise Unreadable("the answer has a label that is no text")
    return [_line(value, name) for value in values]


def _line(value: Any, node: str) -> Line:
    """``["<nanoseconds>", "<line>"]``; newer servers may add a third part."""
    if not isinstance(value, list) or len(value) < 2 or not all(isinstance(x, str) for x in value[:2]):
        raise Unreadable("the answer has a value that is no line with its time")
    ns, text = value[:2]
    if not (ns.isascii() and ns.isdecimal() and len(ns) <= 19):
        raise Unreadable("the answer has a line whose time is no number of nanoseconds")
    return Line(int(ns), node, text)
