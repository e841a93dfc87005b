"""What Azure turns away for now (429): for how long nothing is asked, and of what.

Azure has limits for a single VM or scale set, so that one does not hold up the others, and limits for a
subscription, by resource provider, for reads and for changes (Microsoft's page on compute throttling
limits). The answer does not say which it was. So one thing that is throttled waits alone, and two at once
stand for the subscription: then nothing more is asked of it, for each request that is turned away counts.
"""

from __future__ import annotations

from collections.abc import Hashable

from recovery.clock import Clock

Held = tuple[float, str]
"""Until when, by the monotonic clock, and why."""


class Throttled:
    """One for all that is asked by a process. ``scope``: what has a limit of its own, as said above."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: dict[Hashable, dict[str, Held]] = {}  # scope -> what was asked -> held

    def hold(self, scope: Hashable, what: str, seconds: float, why: str) -> None:
        """``what`` was turned away, and is not to be asked again for so long."""
        now = self._clock.monotonic()
        lasting = {x: held for x, held in self._held.get(scope, {}).items() if held[0] > now}
        self._held[scope] = {**lasting, what: (now + seconds, why)}

    def left(self, scope: Hashable, what: str) -> tuple[float, str]:
        """Seconds for which ``what`` is not to be asked, 0 or less for none, and why."""
        now, held = self._clock.monotonic(), self._held.get(scope, {})
        lasting = sorted((x for x in held.values() if x[0] > now), reverse=True)
        all_of_it = lasting[1:2]  # as long as there are two
        until, why = max([*all_of_it, held.get(what, (now, ""))])
        return until - now, why
