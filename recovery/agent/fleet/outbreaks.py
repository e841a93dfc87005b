"""Remembers which faults began on which machines lately: the leader sees all of them (law 10, ruling 46)."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from recovery.agent.fleet.nodes import Nodes
from recovery.clock import Clock
from recovery.decide.correlated import (
    FEWEST,
    WINDOW,
    Case,
    Shared,
    Trait,
    Workload,
    counted,
    shared,
    together,
    traits_of,
    workloads_of,
)
from recovery.decide.diagnosis import came_at
from recovery.decide.selector import selects
from recovery.errors import ApiError
from recovery.model import Fault, PodView, Record
from recovery.signals.systems import LABELS

log = logging.getLogger(__name__)

COUNTED_AGAIN = 30.0
"""Seconds for which it is not counted again how many Nodes have which label, or run which workload."""
COUNTED_LATE = 120.0
"""Seconds after which a machine that asks has the Nodes counted for itself: no thread did so meanwhile."""
LOOKS_EVERY = 5.0
"""Seconds between two looks whether the Nodes have to be counted again."""
REMEMBERED = 3600.0
"""Seconds for which a case is remembered after its fault was last on record: its machine may be gone."""
OFF_THE_RECORD = 120.0
"""Seconds after which a fault that no agent mentions counts as off the record. One that is on it is mentioned
twice a minute."""
FORGETS_EVERY = 60.0
"""Seconds between two looks for cases that are not remembered any more."""
ANSWERED_AGAIN = 5.0
"""Seconds for which an answer is good while no case has come, gone or changed. Each of a thousand machines
asks at each look, and to go through all cases takes as long as all else that it does."""


class Pods(Protocol):
    def pods_lately(self, node: str) -> tuple[PodView, ...]: ...
    def nodes_running(self, namespace: str, label: str, value: str) -> frozenset[str]: ...


@dataclass(frozen=True, slots=True)
class _Known:
    """A case, and when its fault was last on record. ``inside``: its node is one of ``limits.population``.
    ``workloads``: None while nobody could list them."""

    case: Case
    inside: bool
    at: float
    workloads: frozenset[Workload] | None


@dataclass(frozen=True, slots=True)
class _Asked:
    """What an answer goes by: the cases, how many of so many nodes have each trait, or run each workload."""

    cases: tuple[Case, ...]
    population: tuple[Mapping[Trait, int], int]
    running: Mapping[Trait, int]


@dataclass(frozen=True, slots=True)
class _Answer:
    """What was said to a machine, where all cases fell together, so that the others are told the same."""

    version: int
    at: float
    sentence: str


class Outbreaks:
    """Cases by reason. Any thread may tell and ask. ``wanted``: the labels of ``limits.population``. Machines
    are compared with those of it, and all others with one another: what is common among accelerators is rare
    among all nodes, and says nothing."""

    def __init__(
        self, nodes: Nodes, clock: Clock, pods: Callable[[], Pods], wanted: Mapping[str, str]
    ) -> None:
        self._wanted = wanted
        self._nodes = nodes
        self._clock = clock
        self._pods = pods
        self._lock = threading.Lock()
        self._cases: dict[str, dict[str, _Known]] = {}
        self._counted: dict[bool, tuple[float, tuple[Mapping[Trait, int], int]]] = {}
        self._running: dict[Workload, tuple[float, int]] = {}
        self._found: dict[tuple[str, bool], tuple[_Asked, Shared | None]] = {}
        self._version = 0  # grows with each change of a case
        self._answers: dict[tuple[str, bool], _Answer] = {}
        self._forgot_at = clock.monotonic()
        self.unknown = ""
        """Why it is not known which cases there are, so that any may be one of many; "" where it is."""

    def tell(self, name: str, machine: str, faults: Iterable[Fault]) -> None:
        """These faults are on the record of the Node ``name``."""
        node, now = self._nodes.get(name), self._clock.monotonic()
        if node is None:
            return
        faults = tuple(faults)
        with self._lock:
            known = {f.reason: self._cases.get(f.reason, {}).get(machine) for f in faults}
        workloads = next((k.workloads for k in known.values() if k and k.workloads is not None), None)
        if workloads is None:
            workloads = self._workloads_on(name)
        inside = selects(self._wanted, node.labels)
        traits = traits_of(node, LABELS) | {w.trait for w in workloads or ()}
        with self._lock:
            for f in faults:
                before = known[f.reason]
                if before and now - before.at > OFF_THE_RECORD:
                    before = None  # that one was over
                came = came_at(f)
                case = Case(machine, min(came, before.case.since) if before else came, traits)
                if before and before.case == case:
                    case = before.case  # the same object: to compare it later takes no time
                of_reason = self._cases.setdefault(f.reason, {})
                of_reason[machine] = _Known(case, inside, now, workloads)
                same = before is not None and (before.case, before.inside, before.workloads)
                self._version += same != (case, inside, workloads)
            if now - self._forgot_at >= FORGETS_EVERY:
                self._forget(now)

    def _forget(self, now: float) -> None:
        self._forgot_at = now
        self._version += 1
        for reason, known in list(self._cases.items()):
            for machine in [m for m, k in known.items() if now - k.at > REMEMBERED]:
                del known[machine]
            if not known:
                del self._cases[reason]
                for inside in (True, False):
                    self._found.pop((reason, inside), None)
                    self._answers.pop((reason, inside), None)

    def on_record(self, r: Record) -> dict[str, str]:
        """``shared_by`` for the faults of ``r``, which is open. They are told first: a machine whose own case
        is not known is none of those that share something, and would begin before it is held."""
        self.tell(r.node, r.machine.id, r.faults)
        return self.shared_by(r.machine.id, (f.reason for f in r.faults))

    def shared_by(self, machine: str, reasons: Iterable[str]) -> dict[str, str]:
        """What the machines with each of these faults share, as a sentence; no entry where it is nothing."""
        return {reason: said for reason in reasons if (said := self._said_of(machine, reason))}

    def _said_of(self, machine: str, reason: str) -> str:
        if self.unknown:
            return f"whether {reason} has one cause on many machines is not known: {self.unknown}"
        now = self._clock.monotonic()
        with self._lock:
            mine, version = self._cases.get(reason, {}).get(machine), self._version
            if mine is None:
                return ""
            answer = self._answers.get((reason, mine.inside))
            if answer is not None and answer.version == version and now - answer.at <= ANSWERED_AGAIN:
                return answer.sentence
            known = [k for k in self._cases[reason].values() if k.inside is mine.inside]
        if len(known) < FEWEST:
            return ""
        cases = together(mine.case, (k.case for k in known))
        asked = _Asked(cases, self._population(mine.inside), self._running_on(known))
        found = self._shared(reason, mine.inside, asked)
        sentence = f"{reason} has one cause on many machines: {found}" if found is not None else ""
        times = [k.case.since for k in known]
        if max(times) - min(times) <= WINDOW:
            self._answers[reason, mine.inside] = _Answer(version, now, sentence)
        return sentence

    def _shared(self, reason: str, inside: bool, asked: _Asked) -> Shared | None:
        """What is shared, found out once for all machines that fell together: each of a thousand asks."""
        before = self._found.get((reason, inside))
        if before is not None and before[0] == asked:
            return before[1]
        have, population = asked.population
        found = shared(asked.cases, {**have, **asked.running}, population)
        self._found[reason, inside] = asked, found
        return found

    def count(self) -> float:
        """Count the Nodes again, if faults of the last minutes may have one cause. Of 50,000 this takes half
        a second, and no start is to wait for it. Seconds until the next look."""
        now = self._nodes.now()
        with self._lock:
            lately = [
                [k.inside for k in known.values() if now - k.case.since <= WINDOW]
                for known in self._cases.values()
            ]
        for inside in {x for of_reason in lately if len(of_reason) >= FEWEST - 1 for x in of_reason}:
            self._population(inside, COUNTED_AGAIN)
        return LOOKS_EVERY

    def _population(self, inside: bool, age: float = COUNTED_LATE) -> tuple[Mapping[Trait, int], int]:
        """Of the nodes of ``limits.population``, or of all others, at most ``age`` seconds ago."""
        now = self._clock.monotonic()
        at, found = self._counted.get(inside, (float("-inf"), ({}, 0)))
        if now - at > age:
            found = counted(n for n in self._nodes.all() if selects(self._wanted, n.labels) is inside)
            self._counted[inside] = (now, found)
        return found

    # ------------------------------------------------------------ what runs there

    def _workloads_on(self, node: str) -> frozenset[Workload] | None:
        try:
            return workloads_of(self._pods().pods_lately(node))
        except ApiError as error:
            log.warning("%s: which workload ran there is not known yet: %s", node, error)
            return None

    def _running_on(self, cases: Iterable[_Known]) -> Mapping[Trait, int]:
        """On how many Nodes each workload is that several of ``cases`` have in common."""
        common = Counter(w for k in cases for w in k.workloads or ())
        return {w.trait: self._count(w) for w, sick in common.items() if sick >= FEWEST}

    def _count(self, workload: Workload) -> int:
        now = self._clock.monotonic()
        at, count = self._running.get(workload, (float("-inf"), 0))
        if now - at <= COUNTED_AGAIN:
            return count
        try:
            found = self._pods().nodes_running(workload.namespace, workload.label, workload.name)
        except ApiError as error:
            log.warning(
                "workload %s/%s: where it runs is not known: %s", workload.namespace, workload.name, error
            )
            return count
        self._running = {w: x for w, x in self._running.items() if now - x[0] <= REMEMBERED}
        self._running[workload] = (now, len(found))
        return len(found)
