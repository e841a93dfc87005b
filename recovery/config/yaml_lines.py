"""YAML (and JSON) that remembers where everything stands, so that a mistake can be shown with its line.

Stricter than PyYAML's own loader where YAML 1.1 surprises people: a key given twice is a mistake, ``010`` and
``1:30`` are text and not the numbers 8 and 90, and what was written is kept beside what it means (``NO`` is
the boolean false).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from recovery.provider.bounded_yaml import TooMuch, compose

LARGEST = 256 * 1024
MOST_VALUES = 20_000
"""In the text, and again with aliases written out: a few lines of them can stand for billions."""
Path = tuple[str | int, ...]

_TAG = "tag:yaml.org,2002:"
_KNOWN_TAGS = frozenset(
    _TAG + name for name in ("bool", "float", "int", "map", "null", "seq", "str", "timestamp", "value")
)
_BOOLEANS: Mapping[str, bool] = yaml.SafeLoader.bool_values
_BREAK = re.compile(r"\r\n|[\n\r\x85\u2028\u2029]")
"""What ends a line in YAML."""
_PLAIN_NUMBER = re.compile(r"[-+]?(0|[1-9][0-9]*)(\.[0-9]+)?", re.ASCII)


@dataclass(frozen=True)
class Mistake:
    """One thing wrong with a file. ``line`` counts from 1; 0 is the file as a whole."""

    line: int
    text: str

    def at(self, path: str) -> str:
        return f"{path}:{self.line}: {self.text}" if self.line else f"{path}: {self.text}"


@dataclass
class Document:
    """One document: plain data, the line of each path, and each scalar as it was written. ``folded``: the
    lines of each scalar of which YAML makes one line: all on several lines, but those after ``|``."""

    data: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    written: dict[Path, str] = field(default_factory=dict)
    folded: dict[Path, list[str]] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)

    def nearest(self, path: Path) -> Path:
        """The longest beginning of ``path`` that the document has."""
        while path and path not in self.lines:
            path = path[:-1]
        return path

    def line(self, path: Path) -> int:
        return self.lines.get(self.nearest(path), 1)


def dotted(path: Path) -> str:
    """``rules[2].remedy[0].do``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def line_of(where: str, lines: Mapping[str, int]) -> int:
    """The line of a field, as ``dotted`` names it, or of the nearest one around it that is written."""
    while where and where not in lines:
        where = where[: max(where.rfind("."), where.rfind("["), 0)]
    return lines.get(where, 1)


def field_named(path: Path) -> str:
    """How a sentence about a path begins."""
    return f"field {dotted(path)}" if path else "the whole file"


def read(content: bytes) -> Document:
    """Parse one document of at most 256 KiB. Never raises: what is wrong is in ``mistakes``."""
    document = Document()
    if len(content) > LARGEST:
        return _failed(document, 0, f"larger than {LARGEST} bytes, which no policy needs")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return _failed(document, content[: error.start].count(b"\n") + 1, "not UTF-8 text")
    if text.lstrip()[:1] == "{":
        text = text.replace("\t", " ")  # JSON may be indented with tabs, YAML may not
    try:
        node = compose(text, MOST_VALUES)
        if node is None:
            return _failed(document, 0, "empty")
        document.data = _Reader(document, _BREAK.split(text)).value(node, ())
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        problem = error.problem or "cannot be read"
        if "another document" in problem:
            problem = "a second document begins here; one file holds one"
        if "'\\t'" in problem:
            problem = "found a tab, expected spaces"
        return _failed(document, line, f"not YAML: {problem}")
    except yaml.reader.ReaderError as error:
        return _failed(document, text[: error.position].count("\n") + 1, f"not YAML: {error.reason}")
    except RecursionError:
        return _failed(document, 0, "nested too deeply")
    except TooMuch as error:
        return _failed(document, 0, str(error))
    return document


def _failed(document: Document, line: int, text: str) -> Document:
    document.mistakes.append(Mistake(line, text))
    document.lines.clear()  # what was read so far is not worth a look
    return document


class _Reader:
    """Turns nodes into data, filling in the document's lines and mistakes on the way."""

    def __init__(self, document: Document, lines: list[str]) -> None:
        self._document = document
        self._lines = lines
        self._left = MOST_VALUES
        self._pairs: dict[int, Mapping[str, tuple[yaml.Node, yaml.Node]]] = {}

    def value(self, node: yaml.Node, path: Path) -> Any:
        self._left -= 1
        if self._left < 0:
            raise TooMuch(f"more than {MOST_VALUES} values, counting aliases")
        self._document.lines.setdefault(path, node.start_mark.line + 1)
        if node.tag not in _KNOWN_TAGS:
            self._mistake(node, path, f"the tag {node.tag} is not used here")
        if isinstance(node, yaml.MappingNode):
            return dict(self._items(node, path))
        if isinstance(node, yaml.SequenceNode):
            return [self.value(child, (*path, index)) for index, child in enumerate(node.value)]
        assert isinstance(node, yaml.ScalarNode)
        self._document.written[path] = node.value
        first, last = node.start_mark.line, node.end_mark.line
        if node.style != "|" and first < last:
            self._document.folded[path] = self._lines[first : last + 1]
        return self._scalar(node)

    def _items(self, node: yaml.MappingNode, path: Path) -> Iterator[tuple[str, Any]]:
        for name, (key, child) in self._entries(node, path).items():
            where = (*path, name)
            mark = child.start_mark if isinstance(child, yaml.ScalarNode) else key.start_mark
            self._document.lines[where] = mark.line + 1
            yield name, self.value(child, where)

    def _entries(self, node: yaml.MappingNode, path: Path) -> Mapping[str, tuple[yaml.Node, yaml.Node]]:
        """The node's own entries over those it merges in (``<<``); duplicates are reported once per node."""
        if id(node) in self._pairs:
            return self._pairs[id(node)]
        own: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        merged: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key, child in node.value:
            if key.tag == f"{_TAG}merge":
                merged = {**self._merged(child, path), **merged}
            elif not isinstance(key, yaml.ScalarNode):
                self._mistake(key, path, "a list or mapping as a key; expected a word")
            elif key.value in own:
                first = own[key.value][0].start_mark.line + 1
                self._mistake(key, (*path, key.value), f"given twice, first on line {first}")
            else:
                own[key.value] = (key, child)
        self._pairs[id(node)] = merged | own
        return self._pairs[id(node)]

    def _merged(self, node: yaml.Node, path: Path) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        found: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for source in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            if isinstance(source, yaml.MappingNode):
                found = {**self._entries(source, path), **found}
            else:
                self._mistake(source, (*path, "<<"), "merges something that is not a mapping")
        return found

    @staticmethod
    def _scalar(node: yaml.ScalarNode) -> bool | int | float | str | None:
        tag, text = node.tag.removeprefix(_TAG), str(node.value)
        if tag == "null":
            return None
        if tag == "bool":
            return _BOOLEANS.get(text.lower(), text)
        if tag in ("int", "float") and len(text) < 18 and _PLAIN_NUMBER.fullmatch(text):
            return float(text) if "." in text else int(text)
        return text

    def _mistake(self, node: yaml.Node, path: Path, text: str) -> None:
        self._document.mistakes.append(Mistake(node.start_mark.line + 1, f"{field_named(path)}: {text}"))
