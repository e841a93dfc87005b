"""Our own objects, as a watch shows them: what has not changed since it was read is not read again.

So a fleet in which nothing happens costs the API server its watches, and one Lease.

A watch may be a moment behind. Who goes by it decides nothing that cannot be taken back: a write names the
version that it was decided on, and before an eviction or a call of the cloud all is read anew.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from recovery.agent.backoff import Backoff
from recovery.agent.fleet.nodes import FIRST_PAUSE, SILENT, WORST_PAUSE, Failed, round_of
from recovery.clock import Clock
from recovery.kube.paging import folded
from recovery.kube.watch import Named, later

Object = dict[str, Any]
Listed = Callable[[], tuple[str, dict[str, Object]]]
"""Lists a kind: from which version to watch it, and each object by its name."""
Watched = Callable[[str], Iterator[Named]]


class Objects:
    """Of one kind, as ``listed`` and ``watched`` select it. One thread calls ``round``; any may ask."""

    def __init__(
        self,
        what: str,
        listed: Listed,
        watched: Watched,
        clock: Clock,
        failed: Failed = lambda _: None,
    ) -> None:
        self._failed = failed
        self._what = what
        self._listed = listed
        self._watched = watched
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, Object] = {}
        self._version = ""
        self._heard_at: float | None = None
        self._backoff = Backoff(clock, FIRST_PAUSE, WORST_PAUSE, random.Random())  # noqa: S311 - jitter

    # ------------------------------------------------------------ any thread

    def is_still(self, name: str, version: str) -> bool:
        """Whether ``version`` is the last one of the object. False where that is not known."""
        with self._lock:
            return self._live() and self._version_known(name) == version

    def all(self) -> list[Object] | None:
        """All objects as they are now; None where that is not known. Nobody changes them."""
        with self._lock:
            return list(self._known.values()) if self._live() else None

    def written(self, found: Object) -> None:
        """This process has written the object, and it is one of those that are watched.

        An answer may come after the watch has told of what came next: of that it says more.
        """
        name, version = str(found["metadata"]["name"]), version_of(found)
        with self._lock:
            if later(version, self._version or "0") and later(version, self._version_known(name)):
                self._known[name] = found

    def _version_known(self, name: str) -> str:
        return version_of(self._known[name]) if name in self._known else "0"

    def _live(self) -> bool:
        heard = self._heard_at
        return heard is not None and self._clock.monotonic() - heard <= SILENT

    # ------------------------------------------------------------ one thread

    def round(self, stop: threading.Event) -> float:
        """One watch, until the server ends it. Never raises. Seconds until the next one."""
        once = partial(self._once, stop)
        left = round_of(self._what, once, self._start_over, self._backoff, self._failed)
        if left or not self._version:
            self._heard_at = None
        return left

    def rest(self) -> None:
        """Nothing is watched any more, and nothing is known."""
        self._start_over()
        self._heard_at = None

    def _start_over(self) -> None:
        """What was known may be of a later version than the next list, where etcd was restored."""
        with self._lock:
            self._version = ""
            self._known = {}

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
            ours = {name: x for name, x in self._known.items() if later(version_of(x), version)}
            self._known = listed | ours
            self._version = version
        self._heard_at = self._clock.monotonic()

    def _take(self, event: Named) -> None:
        with self._lock:
            self._version = event.version
            if not event.name or later(self._version_known(event.name), event.version):
                return
            if event.found is None:
                self._known.pop(event.name, None)
            elif self._version_known(event.name) != event.version:  # one that we wrote is the same
                self._known[event.name] = event.found


def version_of(found: Object) -> str:
    """The resourceVersion of an object as it came."""
    return str((found.get("metadata") or {}).get("resourceVersion") or "")
