"""How many devices a Node has, and how many of them its kubelet gives to pods. Pure but for the look at it.

No detector is needed: the kubelet writes both to the Node. ``capacity`` is what the device plugin has
reported, ``allocatable`` what of it the plugin calls healthy
(https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/). How many a
machine should have, machines like it say: a node with seven of eight GPUs looks well by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby

from recovery.model import NodeView, Problem, Reading
from recovery.quick import replace
from recovery.signals.own_node import EVIDENCE, Looks, OwnNodeSource, Seen, devices
from recovery.units import span

SOURCE = "api"
COUNT, ALLOCATABLE = "DeviceCount", "DeviceAllocatable"
MISSING, ABSENT, UNHEALTHY = "DevicesMissing", "DevicesAbsent", "DevicesUnhealthy"
TYPES = frozenset({COUNT, ALLOCATABLE})
LASTS = {COUNT: timedelta(minutes=10), ALLOCATABLE: timedelta(minutes=5)}
"""How long a count has to be wrong: device plugins and kubelets may be restarting."""
NONE_LEFT = timedelta(minutes=10)
"""How long all devices of a resource have to be unhealthy. So the kubelet shows a plugin that has ended, for
five minutes (``endpointStopGracePeriod``) in which it may come back. Then it shows no devices at all."""
AFTER_A_BOOT = timedelta(minutes=10)
"""How long after a boot nothing counts: drivers are loaded, and plugins register their devices."""
TWICE = timedelta(seconds=60)
"""A count is looked at twice, so far apart, before it takes a fault back."""


@dataclass(frozen=True, slots=True)
class Norm:
    """What machines like this one have of a resource: ``count`` devices, which ``have`` of ``of`` of them.

    ``usual``: the counts that many of them had within the last day. That is no broken machine: their devices
    are being shared out in another way, one machine after the other.
    """

    count: int
    have: int
    of: int
    usual: frozenset[int] = frozenset()

    def is_short(self, there: int) -> bool:
        """Whether a machine with so many is one that lacks some."""
        return there < self.count and there not in self.usual


Way = tuple[str, str, bool]
"""A type, a resource, and whether none of its devices is left."""
Norms = Mapping[str, Norm | None]
"""Of each resource that machines like one have: how many; None where they do not agree."""
UNKNOWN = {
    COUNT: "machines like this one no longer agree how many devices they have",
    ALLOCATABLE: "the device plugin no longer reports all devices",
}


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the Node. ``devices``: of each resource, capacity and allocatable. ``norms``: of each
    resource of machines like it, None where they do not agree. ``boot_began``: None where it is not known."""

    at: datetime
    boot_id: str
    boot_began: datetime | None
    devices: Mapping[str, tuple[int, int]]
    norms: Norms
    fresh_for: timedelta


@dataclass(frozen=True, slots=True)
class State:
    """What must be remembered between two looks, of one boot; the last was ``at``. ``good``: since when a
    type is. ``wrong``: since when it is wrong in this way. Each way counts for itself: a plugin that comes
    back after a while may report one device after the other. They are remembered until nothing is wrong, as
    they may alternate."""

    boot_id: str = ""
    at: datetime | None = None
    wrong: Mapping[Way, datetime] = field(default_factory=dict)
    good: Mapping[str, datetime] = field(default_factory=dict)
    held: Mapping[str, tuple[Problem, ...]] = field(default_factory=dict)
    unknown_since: Mapping[str, datetime] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Word:
    """``lasts``: how long it has to be so. ``none``: no device is left."""

    type: str
    reason: str
    resource: str
    said: str
    lasts: timedelta
    none: bool

    @property
    def way(self) -> Way:
        return self.type, self.resource, self.none


def observe(state: State, look: Look) -> tuple[State, Reading]:
    """What the counts say now."""
    if look.boot_id and look.boot_id != state.boot_id:
        state = State(boot_id=look.boot_id)
    said = {COUNT: _counts(look), ALLOCATABLE: _allocatable(look)}
    known = {COUNT: bool(look.norms) and _all_as_they_are(look), ALLOCATABLE: _all_reported(look)}
    wrong, good, held = dict[Way, datetime](), dict[str, datetime](), dict(state.held)
    unknown, unsure, early, back = dict[str, str](), dict[str, str](), dict[str, str](), set[str]()
    for type_, words in said.items():
        if words:
            wrong |= _wrong_since(state, type_, words, look.at)
            lasted = [w for w in words if not _too_soon(w, wrong[w.way], look)]
            if lasted:
                held[type_] = tuple(_problems(lasted, state, wrong, look))
            else:
                why = f"{words[0].said}, {_too_soon(words[0], wrong[words[0].way], look)}"
                (unknown if type_ in held else early)[type_] = why
        elif known[type_]:
            good[type_] = state.good.get(type_, look.at)
            if look.at - good[type_] >= TWICE:
                back.add(type_)
                held.pop(type_, None)
            else:
                unsure[type_] = f"{type_} is as it should be now, which counts once it is seen again"
        elif type_ in held:
            unknown[type_] = UNKNOWN[type_]
    unknown |= {t: why for t, why in unsure.items() if t in held}
    # What is wrong again counts in time by itself.
    began = {w.type: wrong[w.way] for words in said.values() for w in reversed(words)}
    since = {t: began.get(t) or state.unknown_since.get(t, look.at) for t in unknown}
    reading = Reading(
        source=SOURCE,
        at=look.at,
        problems=tuple(p for _, found in sorted(held.items()) for p in found),
        unknown=unknown,
        unknown_since=since,
        unconfirmed=unsure,
        cleared=frozenset((type_, "*") for type_ in back),
        listed=frozenset({*((t, "") for t in TYPES), *((t, p.reason) for t, x in held.items() for p in x)}),
        early=early,
    )
    return replace(state, at=look.at, wrong=wrong, good=good, held=held, unknown_since=since), reading


def _wrong_since(state: State, type_: str, words: list[_Word], now: datetime) -> Mapping[Way, datetime]:
    """Since when ``type_`` is wrong in each way. While none is left, the plugin may be down: that time counts
    for no other way of that resource."""
    none, passed = {w.resource for w in words if w.none}, now - (state.at or now)
    before = {way: at for way, at in state.wrong.items() if way[0] == type_}
    before = {way: at + passed if way[1] in none and not way[2] else at for way, at in before.items()}
    return {**{w.way: now for w in words}, **before}


def short(devices: Mapping[str, tuple[int, int]], norms: Norms) -> bool:
    """Whether anything is wrong with these counts now."""
    return any(n is not None and n.is_short(devices.get(r, (0, 0))[0]) for r, n in norms.items()) or any(
        given < there for there, given in devices.values()
    )


def _all_as_they_are(look: Look) -> bool:
    """Whether it is known of each resource how many there should be, and there are so many."""
    return all(n is not None and look.devices.get(r, (0, 0))[0] >= n.count for r, n in look.norms.items())


def _all_reported(look: Look) -> bool:
    """Whether the plugins report devices of each resource, but where machines like this one have none.

    Of those that a plugin no longer reports nobody says that they are well.
    """
    nothing = {r for r, n in look.norms.items() if n is not None and n.count == 0}
    expected = (look.norms.keys() | look.devices.keys()) - nothing
    return bool(look.devices) and all(look.devices.get(r, (0, 0))[0] for r in expected)


def _counts(look: Look) -> list[_Word]:
    found = []
    for resource, norm in sorted(look.norms.items()):
        there = look.devices.get(resource, (0, 0))[0]
        if norm is not None and norm.is_short(there):
            like = f"and {norm.have} of {norm.of} machines like it have {norm.count}"
            said, reason = f"{there} {resource}, {like}", MISSING if there else ABSENT
            found.append(_Word(COUNT, reason, resource, said, LASTS[COUNT], none=not there))
    return found


def _allocatable(look: Look) -> list[_Word]:
    found = []
    for resource, (there, given) in sorted(look.devices.items()):
        if given < there:
            said = f"the device plugin calls {there - given} of {there} {resource} unhealthy"
            lasts = LASTS[ALLOCATABLE] if given else NONE_LEFT
            found.append(_Word(ALLOCATABLE, UNHEALTHY, resource, said, lasts, none=not given))
    return found


def _too_soon(word: _Word, since: datetime, look: Look) -> str:
    """Why what is wrong does not count yet, "" if it does."""
    if look.boot_began is None or look.at - look.boot_began < AFTER_A_BOOT + word.lasts:
        return f"which counts once the node is up for {span(AFTER_A_BOOT + word.lasts)}"
    if look.at - since < word.lasts:
        return f"which counts after {span(word.lasts)}"
    return ""


def _problems(
    words: list[_Word], state: State, wrong: Mapping[Way, datetime], look: Look
) -> Iterator[Problem]:
    """One for each reason of ``words``, which are of one type."""
    for reason, group in groupby(sorted(words, key=lambda w: w.reason), key=lambda w: w.reason):
        of_reason = list(group)
        type_ = of_reason[0].type
        old = next((p for p in state.held.get(type_, ()) if p.reason == reason), None)
        yield Problem(
            source=SOURCE,
            type=type_,
            reason=reason,
            message="; ".join(w.said for w in of_reason)[:EVIDENCE],
            since=old.since if old else min(wrong[w.way] for w in of_reason),
            fresh_until=look.at + look.fresh_for,
            device=devices(w.resource for w in of_reason),
        )


class DeviceCountsSource(OwnNodeSource):
    """The counts of one Node. ``norms``: what machines like a Node have. ``boot_began``: see ``Look``."""

    def __init__(
        self,
        look: Looks,
        norms: Callable[[NodeView], Norms],
        boot_began: Callable[[str], datetime | None],
    ) -> None:
        super().__init__(SOURCE, look)
        self._norms = norms
        self._boot_began = boot_began
        self._state = State()

    def _read(self, seen: Seen, node: NodeView, boot_id: str) -> Reading:
        began = self._boot_began(boot_id)
        look = Look(seen.at, boot_id, began, node.devices, self._norms(node), seen.fresh_for)
        self._state, reading = observe(self._state, look)
        return reading
