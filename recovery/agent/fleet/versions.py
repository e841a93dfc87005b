"""Which version each of our own objects has, by a watch: what has not changed since it was read is not read
again. So a fleet in which nothing happens costs the API server its watches, and one Lease.

A watch may be a moment behind. Who goes by it decides nothing that cannot be taken back: a write names the
version that it was decided on, and before an eviction or a call of the cloud all is read anew.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from functools import partial

from recovery.agent.backoff import Backoff
from recovery.agent.fleet.nodes import FIRST_PAUSE, SILENT, WORST_PAUSE, round_of
from recovery.clock import Clock
from recovery.kube.paging import folded
from recovery.kube.watch import Named, later

Listed = Callable[[], tuple[str, dict[str, str]]]
"""Lists a kind: from which version to watch it, and the version of each object by its name."""
Watched = Callable[[str], Iterator[Named]]


class Versions:
    """Of one kind, as ``listed`` and ``watched`` select it. One thread calls ``round``; any may ask."""

    def __init__(self, what: str, listed: Listed, watched: Watched, clock: Clock) -> None:
        self._what = what
        self._listed = listed
        self._watched = watched
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, str] = {}
        self._version = ""
        self._heard_at: float | None = None
        self._backoff = Backoff(clock, FIRST_PAUSE, WORST_PAUSE, random.Random())  # noqa: S311 - jitter

    # ------------------------------------------------------------ any thread

    def is_still(self, name: str, version: str) -> bool:
        """Whether ``version`` is the last one of the object. False where that is not known."""
        return self._live() and self._known.get(name) == version

    @property
    def none(self) -> bool:
        """Whether there is no such object. False where that is not known."""
        return self._live() and not self._known

    def written(self, name: str, version: str) -> None:
        """This process has written the object, and it is one of those that are watched."""
        with self._lock:
            if later(version, self._known.get(name, "0")):
                self._known[name] = version

    def _live(self) -> bool:
        heard = self._heard_at
        return heard is not None and self._clock.monotonic() - heard <= SILENT

    # ------------------------------------------------------------ one thread

    def round(self, stop: threading.Event) -> float:
        """One watch, until the server ends it. Never raises. Seconds until the next one."""
        left = round_of(self._what, partial(self._once, stop), self._start_over, self._backoff)
        if left or not self._version:
            self._heard_at = None
        return left

    def rest(self) -> None:
        """Nothing is watched any more, and nothing is known."""
        self._start_over()
        self._heard_at = None

    def _start_over(self) -> None:
        self._version = ""

    def _once(self, stop: threading.Event) -> None:
        if not self._version:
            self._list()
        for event in self._watched(self._version):
            self._heard_at = self._clock.monotonic()
            self._take(event)
            if stop.is_set():
                return
        self._heard_at = self._clock.monotonic()  # the server has ended it, so it was there

    def _list(self) -> None:
        version, listed = folded(self._listed)
        with self._lock:
            ours = {name: at for name, at in self._known.items() if later(at, version)}
            self._known = listed | ours
        self._heard_at = self._clock.monotonic()
        self._version = version

    def _take(self, event: Named) -> None:
        self._version = event.version
        with self._lock:
            if not event.name or later(self._known.get(event.name, "0"), event.version):
                return
            if event.there:
                self._known[event.name] = event.version
            else:
                self._known.pop(event.name, None)
