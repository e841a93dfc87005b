"""Lists are folded page by page: of all objects in a cluster, one page at a time is in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
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


def in_turn(ask: Callable[[], Made]) -> Callable[[], Made]:
    """Asks once the answer is needed."""
    return ask


def meanwhile(ask: Callable[[], Made]) -> Callable[[], Made]:
    """Asks at once, in a thread of its own. Returns what waits for the answer, and raises what asking raised.

    The thread is a daemon: a program that ends does not wait for an answer.
    """
    answer: Future[Made] = Future()

    def asked() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=asked, name="page", daemon=True).start()
    return answer.result
