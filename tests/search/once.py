"""What all agents make of the same stored object, the search makes once: a record is decoded once for each version.

Where it is done again, that shows nothing new: what is made depends on the object alone, and nobody changes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any
from unittest.mock import patch

from recovery.agent.fleet import replica
from recovery.kube import cluster
from recovery.quick import replace
from recovery.store import gate, record, record_codec

DATE = lru_cache(20_000)(parsedate_to_datetime)
"""Each history begins at the same moment, and has the same seconds."""


class Once:
    """``made`` of an object, from memory where it is the very same object again. What raises is tried again."""

    def __init__(self, made: Callable[..., Any]) -> None:
        self._made = made
        self._known: dict[int, tuple[Any, Any]] = {}  # with the object, or another could get its address

    def __call__(self, obj: Any, **how: Any) -> Any:
        known = self._known.get(id(obj))
        if known is None:
            known = self._known[id(obj)] = obj, self._made(obj, **how)
        return known[1]


class View(Once):
    """Each read of a Node is one more look at it, so it is an object of its own."""

    def __call__(self, obj: Any, **how: Any) -> Any:
        return replace(super().__call__(obj, **how))


@contextmanager
def decoded_once() -> Iterator[None]:
    """For one history."""
    with ExitStack() as stack:
        records = Once(record_codec.decode)
        for module in (record, record_codec, replica):
            stack.enter_context(patch.object(module, "decode", records))
        stack.enter_context(patch.object(gate, "decode", Once(gate.decode)))
        stack.enter_context(patch.object(cluster, "node_view", View(cluster.node_view)))
        stack.enter_context(patch.object(cluster, "_date", DATE))
        yield
