"""Which pods does a drain still wait for, which does it annotate first, and which does it evict? PURE.

It works like ``kubectl drain --ignore-daemonsets``. Pods go through the eviction API, so disruption budgets
are honoured and a Job's pod failure policy sees it. DaemonSet and mirror pods stay. Finished pods do not
count. No pod is ever deleted with grace period 0. The policy's ``drain`` has what training jobs need: some
pods get time to end by themselves, some may never be evicted, and the pods of one workload go together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

from recovery.model import GROUP, DrainPolicy, PodMode, PodRule, Pods, PodView
from recovery.units import few, hour, moment, span

FINISHED = ("Succeeded", "Failed")
EVICT_AFTER = f"{GROUP}/evict-after"
"""Annotation on a pod that should end by itself: the moment from which on it is evicted."""
ANNOTATED = "annotated "
"""Prefix of a pod's name among the refusals: it was annotated a moment ago, or the patch was refused."""
ANY = PodRule(PodMode.EVICT)

COMES_BACK = "it tolerates our cordon and taint, and came after the drain began"
"""Why a pod stays that would come back again and again."""
JUST_BEFORE = timedelta(seconds=2)
"""A pod made so long before a drain may have come after it: the time of both is known to a second."""
MOST_NAMED = 5
"""Pods that a sentence names of those that stay for one reason."""

Group = tuple[PodView, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a drain does next. ``left``: the pods that keep the node from being empty.

    ``stay``: pods of a fenced namespace, and those that come back, with why they stay: they are named, and
    nobody waits for them.

    ``never``: why this node is not drained at all. ``annotate``: annotations to put on pods. ``ask``: groups
    of pods whose eviction is asked for together. ``waits``: why a pod is not evicted now.
    """

    left: tuple[PodView, ...]
    never: str = ""
    annotate: tuple[tuple[PodView, Mapping[str, str]], ...] = ()
    ask: tuple[Group, ...] = ()
    waits: Mapping[str, str] | None = None
    stay: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """The state of the drain in one clause, with one pod and what keeps it there."""
        return "; ".join(filter(None, (self._going(), self.staying)))

    @property
    def staying(self) -> str:
        """Which pods stay, by the reason; empty where none does."""
        by_reason: dict[str, list[str]] = {}
        for pod, why in self.stay.items():
            by_reason.setdefault(why, []).append(pod)
        return "; ".join(
            f"{few(pods, MOST_NAMED)} stay{'s' if len(pods) == 1 else ''}: {why}"
            for why, pods in by_reason.items()
        )

    def _going(self) -> str:
        count = f"{counted(len(self.left))} left"
        for pod in self.left:
            if why := (self.waits or {}).get(str(pod)):
                return f"{count}; {pod} {why}"
        leaving = [str(p) for p in self.left if p.deletion_timestamp is not None]
        return f"{count}; {leaving[0]} is terminating" if leaving else count


def counted(pods: int) -> str:
    """A number of pods as sentences have it: ``1 pod``, ``2 pods``."""
    return f"{pods} pod{'s' if pods != 1 else ''}"


def stays(pod: PodView) -> bool:
    """Whether a drain leaves ``pod`` alone."""
    return pod.owner_kind in ("DaemonSet", "Node") or pod.mirror or pod.phase in FINISHED


def slowest(pods: Iterable[PodView], policy: DrainPolicy, within: timedelta) -> PodView | None:
    """The pod that takes longest to end, of those that a drain evicts, if that is longer than ``within``."""
    asked = (p for p in pods if not stays(p) and rule_of(p, policy).mode is not PodMode.NEVER)
    late = [p for p in asked if _takes(p, policy) > within]
    return max(late, key=lambda p: _takes(p, policy), default=None)


def _takes(pod: PodView, policy: DrainPolicy) -> timedelta:
    """How long ``pod`` may take to end, from the begin of its drain."""
    rule = rule_of(pod, policy)
    return pod.grace + (rule.within if rule.mode is PodMode.WAIT else timedelta(0))


def too_short(within: timedelta, pod: PodView, policy: DrainPolicy) -> str:
    """That a drain of ``within`` does not wait for ``pod``."""
    rule = rule_of(pod, policy)
    waits = f"drain.pods[{policy.pods.index(rule)}] and " if rule.mode is PodMode.WAIT else ""
    return (
        f"{span(within)}, but pod {pod} may take {span(_takes(pod, policy))} to end "
        f"({waits}terminationGracePeriodSeconds): the drain is over before such a pod is"
    )


def remaining(pods: Iterable[PodView], now: datetime) -> tuple[PodView, ...]:
    """The pods that still keep the node from being empty.

    A pod that is past its grace period no longer counts: its kubelet is not going to report its end.
    """
    left = (p for p in pods if not stays(p))
    return tuple(p for p in left if p.deletion_timestamp is None or p.deletion_timestamp > now)


def still_there(pods: Iterable[PodView], now: datetime) -> str:
    """Which pods are past their grace period: nobody waits for them, and they may still run; "" if none."""
    past = [str(p) for p in pods if not stays(p) and p.deletion_timestamp and p.deletion_timestamp <= now]
    if not past:
        return ""
    be, their = ("is", "its") if len(past) == 1 else ("are", "their")
    return f"{few(past, MOST_NAMED)} {be} still there past {their} grace period"


def plan(
    pods: Iterable[PodView],
    policy: DrainPolicy,
    began: datetime,
    now: datetime,
    refused: Mapping[str, str],
    fenced: Mapping[str, str],
) -> Plan:
    """What to do about ``pods`` now, in a drain that began at ``began``.

    ``refused``: pod -> why its eviction was refused a moment ago. ``fenced``: pod -> why it stays.
    """
    both = remaining(pods, now)
    back = {str(p): COMES_BACK for p in both if comes_back(p, policy, began, now)}
    stay = {str(p): why for p in both if (why := fenced.get(str(p)) or back.get(str(p)))}
    left = tuple(p for p in both if str(p) not in stay)
    if why := may_never_go(left, policy):
        return Plan(left, never=why, stay=stay)
    annotate: list[tuple[PodView, Mapping[str, str]]] = []
    ask: list[Group] = []
    waits: dict[str, str] = {}
    for gang in _gangs(left):
        staying = tuple(p for p in gang if p.deletion_timestamp is None)
        kept = {str(p): why for p in staying if (why := _kept(p, policy, began, now, refused))}
        annotate += [(p, notes) for p in staying if (notes := _notes_missing(p, policy, began, now, refused))]
        if not kept:
            ask += [staying] if staying else []
            continue
        first, why = next(iter(kept.items()))
        together = f"goes together with {first}, which {why}"
        waits |= {str(p): kept.get(str(p), together) for p in staying}
    # By UID, so that each node has another order: nodes that drain at the same time would otherwise all
    # ask the same disruption budget first.
    ask.sort(key=lambda group: group[0].uid)
    return Plan(left, annotate=tuple(annotate), ask=tuple(ask), waits=waits, stay=stay)


def comes_back(pod: PodView, policy: DrainPolicy, began: datetime, now: datetime) -> bool:
    """Whether ``pod`` came to the node after its drain had begun, and tolerates our cordon and taint.

    The next one of its controller would come as well, so it is left alone, as ``kubectl drain`` leaves
    whatever comes after it has listed the pods. But a pod that may never be evicted, or that the policy gives
    time, is one.
    """
    rule = rule_of(pod, policy)
    kept = rule.mode is PodMode.NEVER or (rule.mode is PodMode.WAIT and now < began + rule.within)
    came = pod.created is not None and pod.created >= began - JUST_BEFORE
    return pod.tolerates and came and not kept


def keeps_some(policy: DrainPolicy) -> bool:
    """Whether there may be pods that may never be evicted."""
    return any(rule.mode is PodMode.NEVER for rule in policy.pods)


def may_never_go(left: Iterable[PodView], policy: DrainPolicy) -> str:
    """Which of the pods that are ``left`` may never be evicted; empty if none."""
    for pod in (p for p in left if p.deletion_timestamp is None):
        if (rule := rule_of(pod, policy)).mode is PodMode.NEVER:
            return f"{pod} may never be evicted (drain.pods[{policy.pods.index(rule)}] of the policy)"
    return ""


def within_rate(groups: tuple[Group, ...], free: int | None, most: int | None) -> tuple[Group, ...]:
    """As many of ``groups`` as ``free`` evictions allow. A group larger than ``most`` goes alone."""
    if free is None or most is None:
        return groups
    chosen: list[Group] = []
    for group in groups:
        if len(group) > free and not (free == most and not chosen):
            break
        chosen.append(group)
        free -= min(len(group), free)
    return tuple(chosen)


def rule_of(pod: PodView, policy: DrainPolicy) -> PodRule:
    """The first rule that matches this pod. Without one it is evicted at once."""
    return next((rule for rule in policy.pods if meant(rule, pod)), ANY)


def meant(by: PodRule | Pods, pod: PodView) -> bool:
    """Whether ``pod`` is one of those that ``by`` is about."""
    if not any(fnmatchcase(pod.namespace, pattern) for pattern in by.namespaces):
        return False
    return all(k in pod.labels and fnmatchcase(pod.labels[k], v) for k, v in by.labels.items())


def _gangs(pods: tuple[PodView, ...]) -> Iterable[Group]:
    """The pods of each workload together, in the order of their first pods. Other pods are by themselves."""
    gangs: dict[str, list[PodView]] = {}
    for pod in pods:
        gangs.setdefault(f"{pod.namespace}/{pod.gang}" if pod.gang else f"/{pod.uid}/{pod}", []).append(pod)
    return (tuple(gang) for gang in gangs.values())


def _kept(
    pod: PodView, policy: DrainPolicy, began: datetime, now: datetime, refused: Mapping[str, str]
) -> str:
    """Why ``pod`` is not evicted now, as the end of a sentence that begins with its name; empty if it is."""
    if not policy.force and not pod.owner_kind:
        return "may not go: cannot delete Pods that declare no controller (drain.force is false)"
    if not policy.delete_emptydir_data and pod.local_storage:
        return "may not go: cannot delete Pods with local storage (drain.deleteEmptydirData is false)"
    rule = rule_of(pod, policy)
    if rule.mode is PodMode.WAIT and now < began + rule.within:
        return f"has until {hour(began + rule.within, now)} to end by itself"
    if str(pod) in refused:
        return f"may not go yet: {refused[str(pod)]}"
    return ""


def _notes_missing(
    pod: PodView, policy: DrainPolicy, began: datetime, now: datetime, refused: Mapping[str, str]
) -> Mapping[str, str]:
    """The annotations that ``pod`` still lacks, while it has time to end by itself; else none."""
    rule = rule_of(pod, policy)
    if rule.mode is not PodMode.WAIT or not rule.annotate or now >= began + rule.within:
        return {}
    if f"{ANNOTATED}{pod}" in refused:
        return {}
    wanted = {**rule.annotate, EVICT_AFTER: moment(began + rule.within)}
    return {} if wanted.items() <= pod.annotations.items() else wanted
