"""Sources that read the metrics of a pod on the own node: which pod, how often, and when nothing is known.

Anybody who may create pods may give one any label. So only a pod of a DaemonSet is read, in one of the
namespaces that the policy names; and none where two of them fit. The address of a pod that is gone may pass
to another pod. So before a page changes what is known, the pod is looked up once more.
"""

from __future__ import annotations

import ipaddress
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from recovery.clock import Clock
from recovery.errors import Unreadable
from recovery.model import PodChoice, PodView, Problem, Reading
from recovery.quick import replace
from recovery.signals.own_node import Complaints
from recovery.signals.scrape import PageReader

EVERY = 15.0
"""Seconds between two reads of a page, but for the one right before a call."""
SOON = 5.0
"""Seconds after which that one is made. The last reads before a call have to be quick, or they are made
again: a page that is slow, or could not be read a moment ago, must not keep every call from being made."""
FRESH_FOR = timedelta(seconds=3 * EVERY)
DEADLINE = 3.0
"""Seconds for one page. The exporter asks the driver for it, which takes longer than a counter."""


@dataclass(frozen=True, slots=True)
class FoundPod:
    """The pod that is to be read; None and ``why`` where there is none. ``missed``: that is worth telling. On
    a node that has none by what is known, as on one without GPUs, it is not."""

    pod: PodView | None
    why: str = ""
    missed: bool = True


class Find(Protocol):
    """Finds the pod among those on the node, by what is known already or by a new list."""

    def __call__(self, source: str, *, anew: bool = False, sure: bool = False) -> FoundPod:
        """The pod of ``source``. ``anew``: what is known did not do; a new list is wanted, as often as there
        may be one. ``sure``: by a new list in any case."""


NONE = "there is no such pod on the node"
Reader = Callable[[], bytes]
"""Returns a page, or raises ``Unreadable``."""
Open = Callable[[str, str], Reader]
"""Makes the reader of a URL; the second argument says whose page it is."""


def over_http(url: str, who: str) -> Reader:
    return PageReader(url, DEADLINE, who=who).read


def chosen(pods: Iterable[PodView], choice: PodChoice) -> FoundPod:
    """The one of a node's pods that ``choice`` means. One that has ended, or is being deleted, is none."""
    fit = [p for p in pods if fits(p, choice) and p.phase not in ("Succeeded", "Failed")]
    there = [p for p in fit if p.deletion_timestamp is None]
    if len(there) > 1:
        return FoundPod(None, f"{len(there)} pods could be it: {', '.join(sorted(map(str, there)))}")
    if not there:
        return FoundPod(None, f"{fit[0]} is being deleted" if fit else NONE, missed=bool(fit))
    (pod,) = there
    if pod.phase != "Running" or not pod.ip:
        return FoundPod(None, f"{pod} is {pod.phase or 'of no phase'}")
    return FoundPod(pod) if _sane(pod.ip) else FoundPod(None, f"{pod} has the address {pod.ip[:60]!r}")


def fits(pod: PodView, choice: PodChoice) -> bool:
    return (
        pod.namespace in choice.namespaces
        and pod.owner_kind == "DaemonSet"
        and any(all(pod.labels.get(k) == v for k, v in each.items()) for each in choice.selectors)
    )


def _sane(address: str) -> bool:
    """Whether it may be a pod's. Loopback is this pod's own; a cloud's credentials are served link-local."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    return not (ip.is_loopback or ip.is_link_local or ip.is_multicast or ip.is_unspecified)


def url_of(pod: PodView, port: int) -> str:
    host = f"[{pod.ip}]" if ":" in pod.ip else pod.ip
    return f"http://{host}:{port}/metrics"


class PodSource(ABC):
    """Reads every ``EVERY`` seconds the page of the pod that ``find`` finds."""

    _about: tuple[str, ...] = ("*",)
    """The types that it can state, for when nothing of them is known; ``*`` for all of the source."""
    _state: Any
    """What is remembered of a page that was believed, with its ``boot_id``."""

    def __init__(
        self,
        name: str,
        node: str,
        port: int,
        find: Find,
        clock: Clock,
        now: Callable[[], datetime],
        open_page: Open = over_http,
    ) -> None:
        self.name = name
        self._node = node
        self._port = port
        self._find = find
        self._clock = clock
        self._now = now
        self._open = open_page
        self._tried = self._done = float("-inf")
        self._pod: PodView | None = None
        self._reader: Reader | None = None
        self._missing_since: datetime | None = None
        self._seen = False
        self._boot_id = ""
        self._good = Reading(name, now())
        self._reading = self._good
        self._complaints = Complaints()

    def poll(self, boot_id: str, within: float | None = None) -> Reading:
        """What is known now. The page is read when due, after a boot, and before a call (``within`` 0)."""
        at = self._clock.monotonic()
        booted = bool(boot_id) and boot_id != self._boot_id
        again = within == 0 and self._missing_since is None and at - self._done >= SOON
        if booted or again or at - self._tried >= EVERY:
            self._tried = at
            if booted:
                self._boot_id, self._seen = boot_id, self._seen and not self._boot_id
            why = self._look(self._boot_id)
            self._reading = self._nothing(why) if why is not None else self._good
            self._complaints.of(f"{self._node}: {self.name}", self._reading)
            self._done = self._clock.monotonic()
        return self._reading

    @abstractmethod
    def _observe(self, text: str, at: datetime, boot_id: str) -> tuple[object, Reading]:
        """What to remember in ``_state`` once the page is believed, and what it says."""

    @abstractmethod
    def _remembered(self) -> Iterable[Problem]:
        """The faults in ``_state``."""

    def _held(self, at: datetime) -> Reading:
        """What is remembered of this boot, where no page can be read."""
        same = not self._boot_id or self._boot_id == self._state.boot_id
        held = tuple(self._remembered()) if same else ()
        return Reading(self.name, at, held, listed=frozenset((p.type, p.reason) for p in held))

    # ------------------------------------------------------------ one look

    def _look(self, boot_id: str) -> FoundPod | None:
        """Read the page and believe it; why not, else."""
        found = self._find(self.name)
        if found.pod is None:
            found = self._find(self.name, anew=True)
        if found.pod is None:
            return found
        failed = self._read(found.pod, boot_id)
        if failed is None:
            return None
        again = self._find(self.name, anew=True)
        if again.pod is None:
            return again
        return failed if _same(again.pod, found.pod) else self._read(again.pod, boot_id)

    def _read(self, pod: PodView, boot_id: str) -> FoundPod | None:
        if self._reader is None or self._pod is None or not _same(self._pod, pod):
            self._pod, self._reader = pod, self._open(url_of(pod, self._port), str(pod))
        try:
            page = self._reader()
        except Unreadable as error:
            return FoundPod(None, f"the page of {pod} cannot be read: {error.reason}")
        return self._believe(page.decode("utf-8", errors="replace"), pod, boot_id)

    def _believe(self, text: str, pod: PodView, boot_id: str) -> FoundPod | None:
        state, reading = self._observe(text, self._now(), boot_id)
        if why := reading.unknown.get("*"):
            return FoundPod(None, f"the page of {pod}: {why}")
        if _news(self._good, reading):
            sure = self._find(self.name, sure=True).pod
            if sure is None or not _same(sure, pod):
                return FoundPod(None, f"whether {pod} still has its address could not be seen")
        self._state = state
        self._good, self._seen, self._missing_since = reading, True, None
        return None

    def _nothing(self, found: FoundPod) -> Reading:
        """No page. It is not missed where the pod was never seen in this boot, and is not there."""
        at = self._now()
        held = self._held(at)
        if not found.missed and not self._seen:
            self._missing_since = None
            return replace(held, silent=dict.fromkeys(self._about, found.why))
        since = self._missing_since = self._missing_since or at
        return replace(
            held,
            unknown={**held.unknown, **dict.fromkeys(self._about, found.why)},
            unknown_since={**held.unknown_since, **dict.fromkeys(self._about, since)},
            cleared=frozenset(),
            silent={},
        )


def _same(one: PodView, other: PodView) -> bool:
    return (one.uid, one.ip) == (other.uid, other.ip)


def _news(before: Reading, now: Reading) -> bool:
    """Whether the page says something that was not known, or takes something back. What it shows no more may
    be that it is another node's: believed, its GPUs would be missed from then on."""
    said = {(*p.key, p.life, p.times[-1:]) for p in now.problems}
    known = {(*p.key, p.life, p.times[-1:]) for p in before.problems}
    return bool(said - known or now.cleared - before.cleared or now.unknown.keys() - before.unknown.keys())
