"""What this process has read or written a moment ago, and what has not changed since, as a watch shows.

One decision follows the other within milliseconds, and what nobody else has changed need not be read again.

No call of the cloud goes by it: right before one, all is read anew (``forget``). An eviction goes by reads of
the last two seconds, as ever, and what is remembered counts from when it was asked for. Every write names the
version that it was decided on, so the API server refuses one that is out of date.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from recovery.clock import Clock

RECENT = 0.5
"""Seconds for which an object is remembered."""
UNCHANGED = 300.0
"""Seconds for which it is remembered while a watch says that it is the same. A watch may be wrong, where etcd
was restored under it: within so long it is ended, too."""
MOST = 5000
"""Objects, of which a sick node has two. With more, those are forgotten that are too old, or else all: of a
crowd that was larger, all was read anew at each write."""
Key = tuple[str, str]
"""The kind of an object, and its name."""
FORGOTTEN: Any = object()
"""Stands for an object that is to be read anew: what was asked for before that moment is not remembered."""


class Recent:
    """The latest objects, each with the moment at which it was asked for.

    The threads of a replica share it: they all read and write the gate. ``is_still``: whether a watch says
    that this is the last version of the object.
    """

    def __init__(self, clock: Clock, is_still: Callable[[Key, Any], bool] = lambda key, found: False) -> None:
        self._clock = clock
        self._is_still = is_still
        self._lock = threading.Lock()
        self._objects: dict[Key, tuple[float, Any]] = {}

    def read(self, key: Key, ask: Callable[[], Any]) -> Any:
        """The object, asked for with ``ask`` where it is not remembered."""
        known = self._remembered(key)
        return self.write(key, ask) if known is None else known[1]

    def _remembered(self, key: Key) -> tuple[float, Any] | None:
        with self._lock:
            known = self._objects.get(key)
        if known is None or known[1] is FORGOTTEN:
            return None
        age = self._clock.monotonic() - known[0]
        return known if age <= RECENT or (age <= UNCHANGED and self._is_still(key, known[1])) else None

    def write(self, key: Key, ask: Callable[[], Any]) -> Any:
        """What ``ask`` returns: the object as it is now. After an error nothing is known of it.

        Meanwhile other threads go by the one of before: who writes by it is refused.
        """
        asked = self._clock.monotonic()
        try:
            found = ask()
        except BaseException:
            self.forget(key)
            raise
        with self._lock:
            if len(self._objects) >= MOST:
                self._objects = {k: x for k, x in self._objects.items() if asked - x[0] <= RECENT}
            if len(self._objects) >= MOST:
                self._objects.clear()
            if (
                key not in self._objects or self._objects[key][0] <= asked
            ):  # another was quicker, and is newer
                self._objects[key] = (asked, found)
        return found

    def since(self, *keys: Key) -> float:
        """When the oldest of these objects was asked for; now where none is remembered."""
        remembered = filter(None, map(self._remembered, keys))
        return min((at for at, _ in remembered), default=self._clock.monotonic())

    def forget(self, *keys: Key) -> None:
        """These are read anew: an answer that is still on its way to another thread is too old, too."""
        with self._lock:
            for key in keys:
                self._objects[key] = (self._clock.monotonic(), FORGOTTEN)

    def forget_other(self, key: Key, is_it: Callable[[Any], bool]) -> None:
        """Forget the object, unless it is the one that is meant: somebody has seen it change."""
        with self._lock:
            known = self._objects.get(key, (0.0, FORGOTTEN))[1]
            if known is not FORGOTTEN and not is_it(known):
                del self._objects[key]
