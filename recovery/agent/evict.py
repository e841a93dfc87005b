"""Annotates and evicts the pods of a node that is drained, for at most ten seconds a cycle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TypeVar

from recovery.agent.memory import LONGEST_REFUSAL, Memory
from recovery.agent.observe import Observer
from recovery.agent.submit import Performed
from recovery.agent.world import World
from recovery.decide.decision import EventReason, Report
from recovery.decide.drain import ANNOTATED, counted, slowest, too_short
from recovery.decide.situation import Situation
from recovery.errors import ApiError, ApiUnavailable, Conflict, Fenced, NotFound
from recovery.model import PodView, Record

Some = TypeVar("Some")

LONGEST_PASS = 10.0
"""Seconds after which a pass over a node's pods stops. The next cycle looks for a pause and the brake, renews
the Lease and goes on."""


class Evictions:
    """What a drain does to pods. What was refused is kept in the node's ``Memory``."""

    def __init__(self, world: World, observer: Observer) -> None:
        self._w = world
        self._observer = observer

    def annotate(self, s: Situation, pods: Iterable[tuple[PodView, Mapping[str, str]]]) -> Performed:
        """Annotate pods that will be evicted. If that fails, they have as much time as the others."""
        memory, failure = self._observer.memory(s.node_name), ""
        for pod, notes in self._for_a_while(pods):
            problem = ""
            try:
                self._w.cluster.annotate_pod(pod, notes)
            except (NotFound, Conflict):
                pass  # it is gone, or another pod has its name
            except ApiError as error:
                problem = error.reason
                failure = failure or f"{pod} could not be annotated before its eviction: {problem}"
            # Also after success: annotations that somebody removes again are not set in a loop.
            pause = LONGEST_REFUSAL if problem else None
            memory.refuse(f"{ANNOTATED}{pod}", problem or "annotated", self._w.clock.monotonic(), pause)
        return Performed(failure, Report(EventReason.PODS_UNTOLD, warning=True)) if failure else Performed()

    def ask(self, s: Situation, groups: Sequence[Sequence[PodView]]) -> Performed:
        """Ask once for the eviction of each pod. One that is refused is left alone for some seconds, so
        the next pass begins with others. A pass in which all are refused makes no Event."""
        assert s.record is not None  # a drain is on record
        memory = self._observer.memory(s.node_name)
        asked, refused, stayed = 0, 0, len(memory.fenced_in(s.record))
        for group in self._for_a_while(groups):
            asked += len(group)
            try:
                # Half a job is worth nothing, and costs the other half's progress: evict all or none.
                if len(group) > 1 and any(self._refuses(s, pod, only_ask=True) for pod in group):
                    refused += len(group)
                    continue
                refused += sum(self._refuses(s, pod) for pod in group)
            except ApiUnavailable as error:  # look again before the next one
                return Performed(f"the eviction of {group[0]} was not answered: {error.reason}")
        stay = len(memory.fenced_in(s.record)) - stayed
        said = [f"asked for the eviction of {counted(asked)}"]
        said += [f"{refused - stay} may not go yet"] if refused > stay else []
        said += [f"{stay} stay{'s' if stay == 1 else ''}"] if stay else []
        said += self._too_short(s, s.record, memory, chain(*groups))
        return Performed(", ".join(said), Report(EventReason.DRAINING) if refused < asked else None)

    def _too_short(self, s: Situation, r: Record, memory: Memory, pods: Iterable[PodView]) -> list[str]:
        """Once for each drain: that one of these pods may outlast it."""
        slow = slowest(pods, s.policy.drain, r.step.within) if r.step is not None else None
        if r.step is None or slow is None or not memory.tells_slow(r):
            return []
        return [f"the drain has {too_short(r.step.within, slow, s.policy.drain)}"]

    def _for_a_while(self, items: Iterable[Some]) -> Iterable[Some]:
        """``items``, at least one, until ``LONGEST_PASS`` is over. The next cycle decides about the rest."""
        began = self._w.clock.monotonic()
        for item in items:
            yield item
            if self._w.clock.monotonic() - began >= LONGEST_PASS:
                return

    def _refuses(self, s: Situation, pod: PodView, *, only_ask: bool = False) -> bool:
        """Ask for the eviction of ``pod``. True if it is refused. Raises ``ApiUnavailable``."""
        memory, now = self._observer.memory(s.node_name), self._w.clock.monotonic()
        if not only_ask and s.evictions_free is not None:
            memory.evicted.append(now)
        try:
            self._w.cluster.evict(pod, only_ask=only_ask)
        except (NotFound, Conflict) as error:  # it is gone, or another pod has its name, or a webhook says so
            memory.refuse(str(pod), error.reason, now)
            return False
        except Fenced as error:
            assert s.record is not None  # a drain is on record
            memory.fence(s.record, str(pod), error.reason)
            return True
        except ApiError as error:
            memory.refuse(str(pod), error.reason, now, error.retry_after)
            if error.unanswered:
                raise
            return True
        if not only_ask:
            memory.refused.pop(str(pod), None)
        return False
