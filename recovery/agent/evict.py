"""A drain's part of a cycle: pods are annotated, or asked to go, for at most ten seconds at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from recovery.agent.memory import LONGEST_REFUSAL
from recovery.agent.observe import Observer
from recovery.agent.submit import Performed
from recovery.agent.world import World
from recovery.decide.drain import ANNOTATED, counted
from recovery.decide.situation import EventReason, Report, Situation
from recovery.errors import ApiError, ApiUnavailable, Conflict, NotFound
from recovery.model import PodView

Some = TypeVar("Some")

LONGEST_PASS = 10.0
"""Seconds after which a pass over a node's pods is broken off, to see whether it may go on: there may be a
pause or the brake, and the Lease is to be renewed."""


class Evictions:
    """What a drain does to pods. A refusal is remembered by the observer."""

    def __init__(self, world: World, observer: Observer) -> None:
        self._w = world
        self._observer = observer

    def annotate(self, s: Situation, pods: Iterable[tuple[PodView, Mapping[str, str]]]) -> Performed:
        """Whether they could be annotated or not, they have their time."""
        memory, problem_seen = self._observer.memory(s.node_name), ""
        for pod, notes in self._for_a_while(pods):
            problem = ""
            try:
                self._w.cluster.annotate_pod(pod, notes)
            except (NotFound, Conflict):
                pass  # it is gone, or another pod has its name
            except ApiError as error:
                problem = error.reason
                problem_seen = problem_seen or f"{pod} could not be told that it will be evicted: {problem}"
            # Whatever came of it: a pod whose annotations somebody takes off is not annotated in a loop.
            pause = LONGEST_REFUSAL if problem else None
            memory.refuse(f"{ANNOTATED}{pod}", problem or "told", self._w.clock.monotonic(), pause)
        return (
            Performed(problem_seen, Report(EventReason.PODS_UNTOLD, warning=True))
            if problem_seen
            else Performed()
        )

    def ask(self, s: Situation, groups: Iterable[Sequence[PodView]]) -> Performed:
        """One pass. A refusal is remembered, so that the next pass asks for others first; what is refused
        again and again is no news."""
        asked = refused = 0
        for group in self._for_a_while(groups):
            asked += len(group)
            try:
                # Half a workload is worth nothing, and costs the other half's progress: all may go, or none.
                if len(group) > 1 and any(self._refuses(s, pod, only_ask=True) for pod in group):
                    refused += len(group)
                    continue
                refused += sum(self._refuses(s, pod) for pod in group)
            except ApiUnavailable as error:  # look up before the next
                return Performed(f"the eviction of {group[0]} was not answered: {error.reason}")
        asked_for = f"asked for the eviction of {counted(asked)}"
        news = Report(EventReason.DRAINING) if refused < asked else None
        return Performed(f"{asked_for}, {refused} may not go yet" if refused else asked_for, news)

    def _for_a_while(self, items: Iterable[Some]) -> Iterable[Some]:
        """At least one of ``items``. What is left over is decided anew."""
        began = self._w.clock.monotonic()
        for item in items:
            yield item
            if self._w.clock.monotonic() - began >= LONGEST_PASS:
                return

    def _refuses(self, s: Situation, pod: PodView, *, only_ask: bool = False) -> bool:
        """Ask for one pod. Whether it may not go; raises ``ApiUnavailable``."""
        memory, now = self._observer.memory(s.node_name), self._w.clock.monotonic()
        if not only_ask and s.evictions_free is not None:
            memory.evicted.append(now)
        try:
            self._w.cluster.evict(pod, only_ask=only_ask)
        except (NotFound, Conflict) as error:  # it is gone, or another pod has its name; or a webhook says so
            memory.refuse(str(pod), error.reason, now)
            return False
        except ApiUnavailable as error:
            memory.refuse(str(pod), error.reason, now)
            raise
        except ApiError as error:
            memory.refuse(str(pod), error.reason, now, error.retry_after)
            return True
        if not only_ask:
            memory.refused.pop(str(pod), None)
        return False
