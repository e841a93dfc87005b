"""Lists are folded page by page: of all objects in a cluster, one page at a time is in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from recovery.errors import Expired

Made = TypeVar("Made")
TRIES = 5
"""A list that expires so often changes faster than it can be read: that is an error of the API server's."""


def folded(make: Callable[[], Made]) -> Made:
    """What ``make`` makes of a list that it reads. If the list expires meanwhile, it starts again."""
    for _ in range(TRIES - 1):
        try:
            return make()
        except Expired:
            continue
    return make()
