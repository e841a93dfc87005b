"""One area after the other, each within its time: an area that hangs costs its own answers and no other's."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from recovery.console.doctor.context import Visit
from recovery.errors import NodeRecoveryError
from recovery.provider.protocol import Finding

ALL = 25.0
"""Seconds for all areas together."""


@dataclass(frozen=True)
class Area:
    """A part of the world, who looks at it, and how long that may take."""

    name: str
    look: Callable[[Visit], Iterable[Finding]]
    seconds: float = 9.0


def go_round(visit: Visit, areas: Sequence[Area], all_of_it: float = ALL) -> Iterator[Finding]:
    """The findings of every area, as they come. Ends within ``all_of_it`` seconds, whatever hangs."""
    end = time.monotonic() + all_of_it
    for area in areas:
        yield from _within(min(area.seconds, end - time.monotonic()), area, visit)


def _within(seconds: float, area: Area, visit: Visit) -> Iterator[Finding]:
    """What ``area`` finds in time. It looks in a thread of its own, which is left behind if it hangs."""
    if seconds <= 0:
        yield Finding(area.name, None, "not asked: what came before it took all the time there is")
        return
    found: SimpleQueue[Finding | None] = SimpleQueue()
    threading.Thread(target=_look, args=(area, visit, found), daemon=True).start()
    end = time.monotonic() + seconds
    while True:
        try:
            finding = found.get(timeout=max(end - time.monotonic(), 0.001))
        except Empty:
            yield Finding(area.name, None, f"no answer within {seconds:.2g} s: the rest of it was not asked")
            return
        if finding is None:
            return
        yield finding


def _look(area: Area, visit: Visit, found: SimpleQueue[Finding | None]) -> None:
    try:
        for finding in area.look(visit):
            found.put(finding)
    except NodeRecoveryError as error:
        found.put(Finding(area.name, None, f"the rest of it was not asked: {error}"))
    except Exception as error:  # a bug in one area must not hide what the others find
        why = f"{type(error).__name__}: {error}"
        found.put(
            Finding(area.name, False, f"the doctor itself failed here: {why}", "please report this bug")
        )
    found.put(None)
