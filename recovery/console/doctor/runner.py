"""Runs the checks one after the other, each within its time: one that hangs costs no other its answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from recovery.console.doctor.context import CheckContext
from recovery.errors import NodeRecoveryError
from recovery.provider.protocol import Finding

TOTAL = 25.0
"""Seconds for all checks together."""


@dataclass(frozen=True)
class Check:
    """A function that yields findings, the area that they are about, and how long it may take."""

    area: str
    find: Callable[[CheckContext], Iterable[Finding]]
    seconds: float = 9.0


def run_checks(context: CheckContext, checks: Sequence[Check], total: float = TOTAL) -> Iterator[Finding]:
    """The findings of every check, as they come. Ends within ``total`` seconds, whatever hangs."""
    end = time.monotonic() + total
    for check in checks:
        yield from _within(min(check.seconds, end - time.monotonic()), check, context)


def _within(seconds: float, check: Check, context: CheckContext) -> Iterator[Finding]:
    """What ``check`` finds in time. It runs in a thread of its own, which is left behind if it hangs."""
    if seconds <= 0:
        yield Finding(check.area, None, "not asked: what came before it took all the time there is")
        return
    found: SimpleQueue[Finding | None] = SimpleQueue()
    threading.Thread(target=_find, args=(check, context, found), daemon=True).start()
    end = time.monotonic() + seconds
    while True:
        try:
            finding = found.get(timeout=max(end - time.monotonic(), 0.001))
        except Empty:
            yield Finding(check.area, None, f"no answer within {seconds:.2g} s: the rest of it was not asked")
            return
        if finding is None:
            return
        yield finding


def _find(check: Check, context: CheckContext, found: SimpleQueue[Finding | None]) -> None:
    try:
        for finding in check.find(context):
            found.put(finding)
    except NodeRecoveryError as error:
        found.put(Finding(check.area, None, f"the rest of it was not asked: {error}"))
    except Exception as error:  # a bug in one check must not hide what the others find
        why = f"{type(error).__name__}: {error}"
        found.put(
            Finding(check.area, False, f"the doctor itself failed here: {why}", "please report this bug")
        )
    found.put(None)
