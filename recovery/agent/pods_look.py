"""The pods on the agent's own node, from a list that is asked for as rarely as may be.

What is known does until a page cannot be read. Then the pods are listed anew, a minute later once more, and
ever more rarely: of a fleet in which no node has the pod, all agents together list every two seconds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from recovery.agent.backoff import LONGEST_RETRY_AFTER
from recovery.agent.world import World
from recovery.errors import ApiError
from recovery.model import PodChoice, PodView
from recovery.signals.pod_page import FoundPod, chosen, fits

AGAIN = 60.0
"""Seconds between two lists at least, but for one that makes sure of what a page says."""
POD_LISTS = 0.5
"""How often a second all agents together list their nodes' pods where there is nothing to read."""
LONGEST = 7200.0


class PodsLook:
    """The pods on ``node`` that ``choices``, by their source, mean. ``population``: how many Nodes there are,
    0 where that is not known yet."""

    def __init__(
        self, world: World, node: str, choices: Mapping[str, PodChoice], population: Callable[[], int]
    ) -> None:
        self._w = world
        self._node = node
        self._choices = choices
        self._population = population
        self._chance = random.Random(f"pods of {node}")  # noqa: S311 - jitter
        self._pods: tuple[PodView, ...] | None = None
        self._why = ""
        self._rest_until = self._listed_at = float("-inf")
        self._paces = {source: _Pace() for source in choices}

    def find(self, source: str, *, anew: bool = False, sure: bool = False) -> FoundPod:
        """The pod of ``source``, by what is known. ``anew``: that did not do, and a new list is wanted, as
        often as there may be one. ``sure``: by a new list in any case."""
        now, pace = self._w.clock.monotonic(), self._paces[source]
        if sure and not self._list(now):
            return FoundPod(None, self._why)
        if (anew or self._pods is None) and not sure and pace.due(now - self._listed_at):
            pace.lists(now - self._listed_at, self._most(), self._chance)
            self._list(now)
            self._listed_at = now
        if self._pods is None:
            return FoundPod(None, self._why or "the pods of the node have not been listed yet", missed=False)
        return chosen(self._pods, self._choices[source])

    def _most(self) -> float:
        return min(max(AGAIN, self._population() / POD_LISTS), LONGEST)

    def _list(self, now: float) -> bool:
        """List the pods. Where that fails, what was known stays."""
        if now < self._rest_until:
            return False
        try:
            pods = self._w.cluster.list_pods(self._node)
        except ApiError as error:
            self._why = f"the pods of the node cannot be listed: {error}"
            self._rest_until = now + min(error.retry_after or 0.0, LONGEST_RETRY_AFTER)
            return False
        self._pods = tuple(p for p in pods if any(fits(p, each) for each in self._choices.values()))
        return True


class _Pace:
    """How soon one source may have the pods listed again."""

    def __init__(self) -> None:
        self._pause = 0.0

    def due(self, ago: float) -> bool:
        """``ago``: seconds since they were last listed, for whichever source."""
        return ago >= self._pause

    def lists(self, ago: float, most: float, chance: random.Random) -> None:
        """The next pause is twice as long, unless a page could be read for longer than that."""
        read_meanwhile = ago > 2 * max(self._pause, AGAIN)
        longer = AGAIN if read_meanwhile else min(most, 2 * max(self._pause, AGAIN / 2))
        self._pause = longer * chance.uniform(1.0, 1.25)
