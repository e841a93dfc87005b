"""The journal of changes and the watches that read it."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from recovery_testkit.kubepatch import copy_json
from recovery_testkit.kubestatus import Json, expired

Matches = Callable[[Json], bool]


@dataclass(frozen=True)
class Change:
    """One accepted write: the version it got, the resource's key, the object before and after (None: not
    there) and the object that watchers are sent (of a deletion: its last state, with the deletion's
    version)."""

    version: int
    key: tuple[str, str]
    before: Json | None
    after: Json | None
    sent: Json


class Journal:
    """The last `window` changes, in order, under one condition variable that wakes the watches.

    `oldest` is the lowest version from which a watch can still start; below it a watcher is told 410.
    `lock` is that of `changed`, for those who wake nobody.
    """

    def __init__(self, oldest: int, window: int) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.oldest = oldest
        self.newest = oldest
        self.breaks = 0
        self._window = window
        self._changes: list[Change] = []
        self._newest_of: dict[tuple[str, str], int] = {}

    def append(self, change: Change) -> None:
        """Adds a change and wakes the watches. The oldest changes are forgotten beyond the window."""
        with self.changed:
            self._changes.append(change)
            self.newest = self._newest_of[change.key] = change.version
            if len(self._changes) > 2 * self._window:
                self._forget(len(self._changes) - self._window)
            self.changed.notify_all()

    def compact(self) -> None:
        """Forgets every change: only a watch from the newest version can start."""
        with self.changed:
            self._forget(len(self._changes))
            self.oldest = self.newest
            self.changed.notify_all()

    def break_watches(self) -> None:
        """Ends every open watch with the 410 event of an expired version."""
        with self.changed:
            self.breaks += 1
            self.changed.notify_all()

    def newest_of(self, key: tuple[str, str]) -> int:
        """The version of the last change of a resource; 0 where there was none."""
        return self._newest_of.get(key, 0)

    def since(self, version: int) -> list[Change]:
        """The changes after a version, oldest first."""
        start = bisect_right(self._changes, version, key=lambda change: change.version)
        return self._changes[start:]

    def _forget(self, count: int) -> None:
        if count:
            self.oldest = self._changes[count - 1].version
            del self._changes[:count]


class Watch:
    """One open watch. `poll()` never blocks; `next()` and iteration wait for events in real time.

    An expired start, `break_watches()` and a lagging watch past the window give one `ERROR` event with a 410
    Status and then the end, as a kube-apiserver does it.
    """

    def __init__(
        self,
        journal: Journal,
        key: tuple[str, str],
        matches: Matches,
        since: int,
        *,
        first: list[Json] | None = None,
        bookmark: Callable[[int], Json] | None = None,
        timeout: float | None = None,
    ) -> None:
        self.ended = False
        self._journal = journal
        self._key = key
        self._matches = matches
        self._since = since
        self._pending = first or []
        self._bookmark = bookmark
        self._breaks = journal.breaks
        self._deadline = None if not timeout else time.monotonic() + timeout

    def poll(self, *, copied: bool = True) -> list[Json]:
        """The events since the last call, `{"type": ..., "object": ...}`, without waiting. Empty after the
        end. Not `copied`: with the stored objects themselves, for who only sends them on."""
        with self._journal.lock:
            if not self.ended:
                self._collect()
            events, self._pending = self._pending, []
            return [copy_json(event) for event in events] if copied else events

    def next(self, timeout: float) -> Json | None:
        """The next event, waiting at most `timeout` seconds of real time; None when there was none, or at
        the end."""
        until = time.monotonic() + timeout
        with self._journal.changed:
            while not self.ended:
                self._collect()
                if self._pending:
                    break
                left = min(until, self._deadline or until) - time.monotonic()
                if left <= 0:
                    self._expire()
                    break
                self._journal.changed.wait(left)
            event: Json | None = copy_json(self._pending.pop(0)) if self._pending else None
            return event

    def __iter__(self) -> Iterator[Json]:
        """Events until the watch ends or its `timeoutSeconds` are over."""
        while True:
            event = self.next(1.0)
            if event is not None:
                yield event
            elif self.ended:
                return

    def bookmark(self) -> None:
        """Adds a BOOKMARK event with the newest version, where the client allows bookmarks."""
        with self._journal.changed:
            self._collect()
            if self._bookmark and not self.ended:
                self._pending.append({"type": "BOOKMARK", "object": self._bookmark(self._since)})
                self._journal.changed.notify_all()

    def close(self) -> None:
        """Ends the watch from this side."""
        with self._journal.changed:
            self.ended = True
            self._journal.changed.notify_all()

    def _expire(self) -> None:
        if self._deadline and time.monotonic() >= self._deadline:
            self.bookmark()
            self.ended = True

    def _collect(self) -> None:
        if self._breaks != self._journal.breaks or self._since < self._journal.oldest:
            gone = expired(f"too old resource version: {self._since} ({self._journal.oldest})")
            self._pending.append({"type": "ERROR", "object": gone.body})
            self.ended = True
            return
        told = self._journal.newest_of(self._key) > self._since
        for change in self._journal.since(self._since) if told else ():
            event = self._event(change)
            if event:
                self._pending.append(event)
        self._since = max(self._since, self._journal.newest)

    def _event(self, change: Change) -> Json | None:
        if change.key != self._key:
            return None
        before = change.before is not None and self._matches(change.before)
        after = change.after is not None and self._matches(change.after)
        kind = {(False, True): "ADDED", (True, True): "MODIFIED", (True, False): "DELETED"}.get(
            (before, after)
        )
        if kind is None:
            return None
        if kind == "DELETED" and change.before is not None:
            metadata = {**change.before["metadata"], "resourceVersion": str(change.version)}
            return {"type": kind, "object": {**change.before, "metadata": metadata}}
        return {"type": kind, "object": change.sent}
