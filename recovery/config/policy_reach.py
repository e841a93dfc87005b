"""What in a policy limits nothing, and which rules match no node? By the Nodes and pods of a cluster. PURE.

A typo in a label takes a limit away, or a rule, and no fault shows it until it is needed. Each finding is one
sentence with the line of its field. Nodes are shown one by one, so that none of them has to be kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from recovery.config.policy_able import MOST_OUT
from recovery.config.policy_file import BUILT_IN, PolicyFile
from recovery.decide.brakes import budget_allows
from recovery.decide.drain import slowest, too_short
from recovery.decide.selector import selects
from recovery.model import EVERY_OTHER, EXCLUDE, PerValue, PodView, Policy, Step

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Hope:
    """A part of the policy that needs some node. ``missed``: what follows where there is none."""

    field: str
    holds: Callable[[Labels], bool]
    missed: str
    within: str = ""  # nothing is said where another field says why already


def hopes(policy: Policy, no_node: str = "no node") -> Iterator[Hope]:
    """All parts of ``policy`` that need some node."""
    limits = policy.limits
    yield from _per("limits.budgetPer", limits.budget_per, no_node)
    yield from _per("limits.brakePer", limits.brake_per, no_node)
    if limits.population:
        wanted = dict(limits.population)
        text = f"{no_node} has {_listed(wanted)}, so nothing is ever started"
        yield Hope("limits.population", lambda labels: selects(wanted, labels), text)
    for i, excluded in enumerate(policy.exclude):
        for key in excluded.keys() - {EXCLUDE}:  # of that label it is usual that no node has it
            text = f"{no_node} has the label {key}, so it excludes nothing"
            yield Hope(f"exclude[{i}].labels.{key}", _has(key), text)
    for i, rule in enumerate(policy.rules):
        if rule.match.node_labels:
            text = f"{no_node} has {_listed(rule.match.node_labels)}, so rule {rule.name} matches nothing"
            yield Hope(f"rules[{i}].match.nodeLabels", _selected_by(rule.match.node_labels), text)


def _per(field: str, limits: Mapping[str, PerValue], no_node: str) -> Iterator[Hope]:
    for key, per in limits.items():
        whole = f"{field}.{key}"
        yield Hope(whole, _has(key), f"{no_node} has the label {key}, so it limits nothing")
        for value in per:
            if value != EVERY_OTHER:
                text = f"{no_node} has {key}={value}, so it limits nothing"
                yield Hope(f"{whole}.{value}", _selected_by({key: value}, exact=True), text, whole)


def _has(key: str) -> Callable[[Labels], bool]:
    return lambda labels: key in labels


def _selected_by(wanted: Labels, *, exact: bool = False) -> Callable[[Labels], bool]:
    if exact:
        return lambda labels: all(labels.get(key) == value for key, value in wanted.items())
    return lambda labels: selects(wanted, labels)


def _listed(wanted: Labels) -> str:
    return ",".join(f"{key}={value}" for key, value in wanted.items())


def written(file: PolicyFile, field: str) -> bool:
    """Whether somebody wrote this field, so that it may be misspelt."""
    return file.path != BUILT_IN and field in file.lines


class Reach:
    """Folds the Nodes of a cluster, and their pods. What the policy has by default only is not told."""

    def __init__(self, file: PolicyFile, no_node: str = "no node", mode: str = "sidecar") -> None:
        self._file = file
        self._most = MOST_OUT.get(mode)
        self._left = [x for x in hopes(file.policy, no_node) if written(file, x.field)]
        self._longest: dict[tuple[int, int], PodView] = {}
        self.nodes = self._counted = 0

    def node(self, labels: Labels) -> None:
        """One more Node."""
        self.nodes += 1
        self._counted += selects(self._file.policy.limits.population, labels)
        self._left = [x for x in self._left if not x.holds(labels)]

    def pod(self, labels: Labels, pod: PodView) -> None:
        """One more pod, on a Node with ``labels``."""
        policy = self._file.policy
        if any(selects(x, labels) for x in policy.exclude):
            return  # it is not drained
        for r, rule in enumerate(policy.rules):
            if not selects(rule.match.node_labels, labels):
                continue
            for i, rung in enumerate(rule.remedy or ()):
                if rung.do is not Step.DRAIN:
                    continue
                known = self._longest.get((r, i))
                slow = slowest((*filter(None, [known]), pod), policy.drain, rung.within)
                if slow is not None:
                    self._longest[r, i] = slow

    def findings(self) -> Iterator[str]:
        """A sentence for each thing that is probably not meant; none for a cluster without Nodes."""
        if not self.nodes:
            return
        gone = {x.field for x in self._left}
        for hope in self._left:
            if hope.within not in gone:
                yield self._file.mistake(hope.field, hope.missed)
        yield from self._capped()
        yield from self._unbraked()
        yield from self.too_slow()

    def _capped(self) -> Iterator[str]:
        """A sentence where the budget is a share of so many nodes that the gate has no room for it."""
        budget = self._file.policy.limits.budget
        allowed = budget_allows(budget, self._counted, self._counted)
        if budget.count is None and allowed and self._most and allowed > self._most:
            more = "; more needs fleet mode" if self._most < max(MOST_OUT.values()) else ""
            found = (
                f"{budget} of {self._counted} nodes is {allowed}, but at most {self._most} are out at a time"
            )
            yield self._file.mistake("limits.budget", f"{found}{more}")

    def _unbraked(self) -> Iterator[str]:
        """A sentence where the brake is a count of nodes, and no more than that can ever be sick."""
        most = self._file.policy.limits.brake.count
        if most and written(self._file, "limits.brake") and 0 < self._counted <= most:
            found = f"as many as {most} nodes may be sick, and {self._counted} are counted, so it never holds"
            meant = f'; did you mean "{most}%"?' if most <= 100 else ""
            yield self._file.mistake("limits.brake", f"{found}{meant}")

    def too_slow(self) -> Iterator[str]:
        """A sentence for each drain that has less time than a pod may take to end."""
        for (r, i), pod in sorted(self._longest.items()):
            rung = (self._file.policy.rules[r].remedy or ())[i]
            why = too_short(rung.within, pod, self._file.policy.drain)
            yield self._file.mistake(f"rules[{r}].remedy[{i}].within", why)


def of_nodes(
    file: PolicyFile, nodes: Iterable[Labels], no_node: str = "no node", mode: str = "sidecar"
) -> list[str]:
    """The findings of these Nodes alone."""
    reach = Reach(file, no_node, mode)
    for labels in nodes:
        reach.node(labels)
    return list(reach.findings())


def of_own_node(file: PolicyFile, labels: Labels, pods: Iterable[PodView] = ()) -> list[str]:
    """Which limits do not hold for a node with these labels, and which drains are too short for its pods: all
    that one node shows of it."""
    limits, told = file.policy.limits, []
    for name, keys in (("budgetPer", limits.budget_per), ("brakePer", limits.brake_per)):
        for key in keys:
            field = f"limits.{name}.{key}"
            if written(file, field) and key not in labels:
                told.append(
                    file.mistake(field, f"this node has no label {key}, so this limit does not apply")
                )
    if limits.population and not selects(limits.population, labels):
        text = f"this node does not have {_listed(limits.population)}"
        text += ", so percentages and the brake do not count it"
        told.append(file.mistake("limits.population", text))
    reach = Reach(file)
    for pod in pods:
        reach.pod(labels, pod)
    return [*told, *reach.too_slow()]
