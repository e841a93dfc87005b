"""What every law's judge has: the world, and a way to report."""

from __future__ import annotations

from collections.abc import Callable

from tests.search.facts import Asked, Happened, Said, Wrote
from tests.search.judge.objects import Json
from tests.search.judge.recoveries import Call, Recovery
from tests.search.judge.violation import Bounds, Violation
from tests.search.judge.world import World


class Law:
    """Judges by the methods that it overrides; each is called after the world has taken the fact."""

    name = ""

    def __init__(self, world: World, found: Callable[[Violation], None]) -> None:
        self.world, self._found = world, found
        self._known: set[tuple[str, str, int]] = set()

    @property
    def bounds(self) -> Bounds:
        return self.world.bounds

    def breaks(self, kind: str, subject: str, sentence: str, about: object = None) -> None:
        """The law is broken. Once for each kind, subject and recovery (or whatever it is ``about``)."""
        key = (kind, subject, id(about))
        if key not in self._known:
            self._known.add(key)
            self._found(Violation(self.world.at, self.name, subject, sentence, kind))

    def node(self, w: Wrote, before: Json | None, after: Json | None) -> None: ...
    def record(self, w: Wrote, before: Json | None, after: Json | None) -> None: ...
    def phase(self, w: Wrote, r: Recovery, before: str, after: str) -> None: ...
    def gate(self, w: Wrote, before: Json | None, after: Json | None) -> None: ...
    def event(self, w: Wrote, before: Json | None, after: Json | None) -> None: ...
    def eviction(self, w: Wrote) -> None: ...
    def ours(self, w: Wrote, before: Json | None, after: Json | None) -> None: ...
    def called(self, call: Call) -> None: ...
    def asked(self, a: Asked) -> None: ...
    def happened(self, h: Happened) -> None: ...
    def said(self, s: Said) -> None: ...
    def end(self) -> None: ...
