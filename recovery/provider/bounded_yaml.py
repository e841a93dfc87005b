"""YAML that is not read to its end if it is too much: too many values, or too deep. PURE.

PyYAML takes two seconds for a few thousand open brackets, and then runs out of stack.
"""

from __future__ import annotations

import yaml

DEEPEST = 50
"""Brackets that may be open at a time."""


class TooMuch(Exception):
    """The text has more values, or is deeper, than it may be. ``str`` says which."""


class _Loader(yaml.SafeLoader):
    def __init__(self, text: str, most: int) -> None:
        super().__init__(text)
        self._left = self._most = most

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._left -= 1
        if self._left < 0:
            raise TooMuch(f"more than {self._most} values")
        return super().compose_node(parent, index)

    def fetch_flow_collection_start(self, token: type[yaml.Token]) -> None:
        if self.flow_level >= DEEPEST:
            raise TooMuch("nested too deeply")
        super().fetch_flow_collection_start(token)


def compose(text: str, most: int) -> yaml.Node | None:
    """The one document in ``text``, with at most ``most`` values; None for an empty text.

    Raises ``TooMuch``, ``yaml.YAMLError`` and ``RecursionError``. An alias counts once, however large it is.
    """
    loader = _Loader(text, most)
    try:
        return loader.get_single_node()
    finally:
        loader.dispose()
