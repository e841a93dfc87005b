"""Do machines with one fault share something that the others have not? PURE.

One cause that many machines share (a rack, an image, a driver, a minute of launch) makes many of them sick.
Recovering them one by one repairs none, and takes out more with each start (law 10). So a fault that is
over-represented is held until a person lets it go. A job that crashes may leave one XID on all its machines,
and none of them is broken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from functools import lru_cache
from math import exp, lgamma, log

from recovery.catalog import symptoms
from recovery.model import Approval, NodeView, PodView

WINDOW = timedelta(minutes=10)
"""Faults that begin so close to one another may have one cause."""
FEWEST = 3
"""Machines. Two may well be chance."""
CHANCE = 0.001
"""A share of the sick that chance alone would make less often than this has a cause."""
SMALLEST = -300 * log(10)
"""The logarithm of the smallest chance that is told as a number."""
LAUNCHED = timedelta(minutes=10)
"""Machines that joined within one such stretch of time were launched together."""
NEGLIGIBLE = 1e-17
"""A term of a sum of more than 1, after which further ones change nothing."""
UNIQUE = ("kubernetes.io/hostname", "noderecovery.dev/")
"""Labels that each machine has a value of its own of, or that are ours."""

WORKLOADS = (
    "jobset.sigs.k8s.io/jobset-name",
    "training.kubeflow.org/job-name",
    "volcano.sh/job-name",
    "leaderworkerset.sigs.k8s.io/name",
    "ray.io/cluster",
    "kueue.x-k8s.io/pod-group-name",
    "batch.kubernetes.io/job-name",
    "job-name",
)
"""Labels of pods that say which workload they are of, the widest first: JobSet, Kubeflow's trainer, Volcano,
LeaderWorkerSet, KubeRay, Kueue, and Kubernetes' own Job (before 1.27 without a domain)."""

Trait = tuple[str, str]
"""What a machine may share with others: a word for it, and its value."""


@dataclass(frozen=True, slots=True)
class Case:
    """One machine on which a fault was first stated at ``since``."""

    machine: str
    since: datetime
    traits: frozenset[Trait]


@dataclass(frozen=True, slots=True)
class Shared:
    """What ``sick_with`` of ``sick`` machines share, and ``all_with`` of ``population`` have."""

    trait: Trait
    sick_with: int
    sick: int
    all_with: int
    population: int
    log_chance: float
    """The natural logarithm of ``chance``."""

    @property
    def chance(self) -> float:
        """How likely that is without a cause. 0.0: less likely than a number can say."""
        return exp(self.log_chance)

    def __str__(self) -> str:
        name, value = self.trait
        share = f"{self.sick_with} of the {self.sick} machines have {name}={value}"
        chance = f"{self.chance:.1g}" if self.log_chance > SMALLEST else "less than 1e-300"
        return f"{share}, as {self.all_with} of {self.population} do (by chance: {chance})"


@dataclass(frozen=True, slots=True)
class Workload:
    """What several pods belong to, by a label that all of them have."""

    namespace: str
    label: str
    name: str

    @property
    def trait(self) -> Trait:
        return "workload", f"{self.namespace}/{self.name}"


def workloads_of(pods: Iterable[PodView]) -> frozenset[Workload]:
    """The workloads that have, or had, a pod among these. DaemonSets do not count: they run on every node."""
    found = set()
    for pod in pods:
        label = next((x for x in WORKLOADS if pod.labels.get(x)), "")
        if label and pod.owner_kind != "DaemonSet" and not pod.mirror:
            found.add(Workload(pod.namespace, label, pod.labels[label]))
    return frozenset(found)


def traits_of(node: NodeView, read: Collection[str] = ()) -> frozenset[Trait]:
    """What ``node`` may share with others, and that may be a cause. Labels that are ``read`` as a fault, or
    change with one, are its effect: machines share them because they have it."""
    found = (trait for trait in _all_of(node) if _may_be_shared(trait))
    return frozenset(trait for trait in found if trait[0] not in read and not _is_symptom(trait[0]))


@lru_cache(maxsize=1024)
def _is_symptom(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in symptoms())


def counted(nodes: Iterable[NodeView]) -> tuple[Mapping[Trait, int], int]:
    """How many of ``nodes`` have each trait, and how many there are."""
    found: Counter[Trait] = Counter()
    population = 0
    for node in nodes:
        population += 1
        found.update(_all_of(node))
    return {trait: n for trait, n in found.items() if _may_be_shared(trait)}, population


def _all_of(node: NodeView) -> list[Trait]:
    """Each trait of ``node`` once, also those that no other machine can have.

    To leave those out after the count, and not for each of 50,000 Nodes, saves two fifths of the time.
    """
    found: list[Trait] = list(node.labels.items())
    found += [(name, value) for name, value in node.system.items() if node.labels.get(name) != value]
    if node.created is not None:
        found.append(("launched", _stretch(int(node.created.timestamp() // LAUNCHED.total_seconds()))))
    return found


@lru_cache(maxsize=1024)
def _stretch(number: int) -> str:
    """The beginning of this stretch of ten minutes since 1970."""
    return f"{datetime.fromtimestamp(number * LAUNCHED.total_seconds(), UTC):%Y-%m-%d %H:%MZ}"


def _may_be_shared(trait: Trait) -> bool:
    name, value = trait
    return bool(value) and not name.startswith(UNIQUE)


def together(me: Case, cases: Iterable[Case]) -> tuple[Case, ...]:
    """The cases that began close to that of ``me``, and ``me``; one for each machine."""
    near = {c.machine: c for c in cases if abs(c.since - me.since) <= WINDOW}
    return tuple({**near, me.machine: me}.values())


def shared(cases: tuple[Case, ...], have: Mapping[Trait, int], population: int) -> Shared | None:
    """What is most over-represented among ``cases``, by Fisher's exact test (one-sided); None: nothing is.

    What half of the population has, or what is not twice as frequent among the sick, is the brake's business.
    """
    if len(cases) < FEWEST:
        return None
    best: Shared | None = None
    for trait, sick_with in Counter(t for c in cases for t in c.traits).items():
        all_with = max(have.get(trait, 0), sick_with)
        everybody = max(population, len(cases), all_with)
        rare = 2 * all_with < everybody
        twice = sick_with * everybody >= 2 * all_with * len(cases)
        if sick_with < FEWEST or not rare or not twice:
            continue
        chance = _log_at_least(sick_with, len(cases), all_with, everybody)
        if chance < log(CHANCE) and (best is None or (chance, trait) < (best.log_chance, best.trait)):
            best = Shared(trait, sick_with, len(cases), all_with, everybody, chance)
    return best


def _log_at_least(hits: int, drawn: int, marked: int, population: int) -> float:
    """How likely it is by chance that of ``drawn`` machines at least ``hits`` are ``marked`` ones.

    The natural logarithm, exact but for some 1e-9: whole numbers of that size would take seconds.

    ``hits`` is at least twice what chance would make, so each further term of the sum is smaller.
    """
    first = _log_ways(marked, hits) + _log_ways(population - marked, drawn - hits)
    term = total = 1.0
    for k in range(hits, min(drawn, marked)):
        term *= (marked - k) * (drawn - k) / ((k + 1) * (population - marked - drawn + k + 1))
        total += term
        if term < NEGLIGIBLE:
            break
    return first - _log_ways(population, drawn) + log(total)


def _log_ways(of: int, take: int) -> float:
    """In how many ways ``take`` can be taken of so many: the natural logarithm."""
    return lgamma(of + 1) - lgamma(take + 1) - lgamma(of - take + 1)


def approved(approvals: Iterable[Approval], reason: str, now: datetime) -> bool:
    """Whether a person has let ``reason`` go."""
    return any(a.reason == reason and now < a.until for a in approvals)
