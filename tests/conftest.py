"""What takes seconds is begun first, one per worker, so that everything else is done meanwhile."""

from __future__ import annotations

import gc
import os

import pytest

gc.set_threshold(100_000, 20, 50)  # every story builds a world and drops it: a twentieth of the time


def pytest_collection_finish() -> None:
    """What is imported by now stays: no collection need look at it again."""
    gc.freeze()


def _seconds(item: pytest.Item) -> float:
    """``@pytest.mark.slow(seconds)``; 0 without."""
    mark = item.get_closest_marker("slow")
    return float(mark.args[0]) if mark is not None and mark.args else 0.0


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each worker begins with its share of the longest; the rest stays in the random order it is in.

    xdist gives every worker a run of tests of the same length, and lets those that are done take from others.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    rest = [item for item in items if not _seconds(item)]
    shares: list[list[pytest.Item]] = [[] for _ in range(workers)]
    for item in sorted((item for item in items if _seconds(item)), key=_seconds, reverse=True):
        min(shares, key=lambda share: sum(map(_seconds, share))).append(item)
    total, begun, ordered = len(items), 0, list[pytest.Item]()
    for i, share in enumerate(shares):
        length = (total - begun) // (workers - i)
        others = max(length - len(share), 0)
        ordered += share + rest[:others]
        del rest[:others]
        begun = len(ordered)
    items[:] = ordered + rest
