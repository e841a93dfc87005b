"""All Nodes of the fleet, as the watch shows them: one list, then watches for as long as the process lives.

Each Node is a whole, frozen view, so other threads may read it while the watch goes on.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial

from recovery.agent.backoff import Backoff
from recovery.agent.boots import Boots, first_seen
from recovery.agent.fleet.identities import Identities
from recovery.clock import Clock
from recovery.decide.census import Kept
from recovery.errors import ApiError, Expired, NotFound
from recovery.kube.alike import turned_back
from recovery.kube.cluster import Cluster
from recovery.kube.paging import folded
from recovery.kube.transport import Streams
from recovery.kube.watch import Change, watch_nodes
from recovery.model import Census, Machine, NodeView, Record
from recovery.quick import replace
from recovery.signals.own_node import Seen

log = logging.getLogger(__name__)

FIRST_PAUSE, WORST_PAUSE = 1.0, 30.0
"""Seconds until the Nodes are listed or watched again after an error; each further one doubles them."""
SILENT = 120.0
"""Seconds of silence of the watch, above which nothing is known of any Node. A bookmark comes each minute."""
BOOTS_IN = timedelta(seconds=10)
"""No machine boots faster. Times on a Node are whole seconds, by the node's own clock."""
FRESH_FOR = timedelta(seconds=SILENT)
Changed = Callable[[str], None]
"""Is told the name of each Node that has come, changed or gone."""
Failed = Callable[[str], object]
"""Is told the kind of each error, to count it."""


def round_of(
    what: str,
    once: Callable[[], None],
    start_over: Callable[[], None],
    backoff: Backoff,
    failed: Failed = lambda _: None,
) -> float:
    """One round of a watch: ``once``, whatever comes of it. Seconds until the next one. Never raises."""
    try:
        once()
        backoff.answered()
    except Expired:  # listed anew at once; but each list may take so long that its watch has expired again
        start_over()
        again = backoff.failing
        pause = backoff.failed()
        return pause if again else 0.0
    except ApiError as error:
        log.warning("%s: %s", what, error)
        failed("api")
        return backoff.failed(error.retry_after)
    except Exception:  # whatever one object has on it: the others are to be seen
        log.exception("%s: a bug; the watch starts over", what)
        failed("bug")
        start_over()
        return backoff.failed()
    return 0.0


def life_of(node: NodeView) -> str:
    """The boot that a Node is in: what was said of it in another one is over."""
    return node.boot_id or node.uid


class Nodes:
    """The Nodes of the label selector ``selector``; "" is all of them. ``remembers``: for how long those are
    known that have gone. ``reads_events``: of boots before it watched. Who only observes has no right to."""

    def __init__(
        self,
        cluster: Cluster,
        streams: Streams,
        clock: Clock,
        selector: str,
        changed: Changed,
        census: Kept,
        remembers: timedelta = timedelta(0),
        failed: Failed = lambda _: None,
        reads_events: bool = True,
    ) -> None:
        self._cluster = cluster
        self._streams = streams
        self._clock = clock
        self._selector = selector
        self._changed = changed
        self._nodes: dict[str, NodeView] = {}
        self._census = census
        self._identities = Identities(self._nodes.values)
        self._counting = threading.Lock()
        self._boots: dict[str, Boots] = {}
        self._remembers = remembers
        self._failed = failed
        self._went: dict[str, tuple[NodeView, datetime]] = {}
        self._told_boots: Mapping[str, tuple[str, datetime]] | None = None if reads_events else {}
        self._version = ""
        self._heard_at = float("-inf")
        self._backoff = Backoff(clock, FIRST_PAUSE, WORST_PAUSE, random.Random())  # noqa: S311 - jitter

    # ------------------------------------------------------------ looking

    @property
    def in_sync(self) -> bool:
        """Whether all Nodes were listed once, and the watch is heard of."""
        return bool(self._version) and not self.silent()

    def silent(self) -> str:
        """Why the Nodes are not known as they are now; "" where they are."""
        if self._heard_at == float("-inf"):
            return "the Nodes could not be listed yet"
        silence = self._clock.monotonic() - self._heard_at
        return f"the watch of Nodes has been silent for {silence:.0f} s" if silence > SILENT else ""

    def __len__(self) -> int:
        return len(self._nodes)

    def all(self) -> Iterator[NodeView]:
        return iter(list(self._nodes.values()))

    def now(self) -> datetime:
        """The API server's time."""
        return self._cluster.time.now()

    def get(self, name: str) -> NodeView | None:
        return self._nodes.get(name)

    def went(self) -> list[tuple[NodeView, datetime]]:
        """The Nodes that have gone and not come back, as they were, and when that was seen."""
        return list(self._went.values())

    def census(self, records: Iterable[Record], now: datetime, unknown: Iterable[str] = ()) -> Census:
        """How many of them are sick, by what has changed since they were listed."""
        with self._counting:
            return self._census.census(self._nodes.get, records, now, unknown)

    def rivals(self, name: str, machine: Machine) -> list[str]:
        """The Nodes besides ``name`` that claim to be ``machine``."""
        with self._counting:
            return list(self._identities.rivals(name, machine, self._nodes.get(name)))

    def seen(self, name: str, now: datetime) -> Seen:
        """The Node as the watch shows it ``now``."""
        node, why = self._nodes.get(name), self.silent()
        if node is None:
            return Seen(None, now, timedelta(0), why or "there is no such Node")
        # A copy: what has not changed is looked at again.
        return Seen(replace(node), now, FRESH_FOR, why)

    def read(self, name: str) -> NodeView | None:
        """The Node as it is now, whatever the watch shows. May raise ``ApiError``."""
        try:
            return self.in_its_boot(self._cluster.get_node(name))
        except NotFound:
            return None

    def known_since(self, name: str, boot_id: str) -> datetime | None:
        """From when on what stands on the Node is of this boot: it was first seen in it then, and what was
        written in the boot before is older by more than ``BOOTS_IN``. None: it is not in this boot."""
        boots = self._boots.get(name)
        return boots.since - BOOTS_IN if boots is not None and boots.last == boot_id else None

    def booted_at(self, name: str) -> datetime | None:
        """When its boot of now began at the latest: it was seen to begin, its kubelet has said so, or it is
        Ready since. A kubelet that starts, as it does with each boot, is mostly not Ready at first. None:
        that is not said."""
        boots, node = self._boots.get(name), self._nodes.get(name)
        if boots is None:
            return None
        if boots.before or boots.others or node is None or not node.ready:
            return boots.since
        if (told := self.told_at(name)) is not None:
            return told
        return min(node.ready_since, boots.since) if node.ready_since is not None else None

    def between(self, name: str) -> tuple[datetime, datetime] | None:
        """When its kubelet wrote last in the boot before, and first in this one, by the node's clock. None:
        nobody saw that."""
        boots = self._boots.get(name)
        if boots is None or boots.left is None or boots.came is None:
            return None
        return boots.left, boots.came

    def told_at(self, name: str) -> datetime | None:
        """When its kubelet said that its boot of now had begun, before this process watched; None: it has
        not, or more than an hour before."""
        boots, (boot_id, at) = self._boots.get(name), (self._told_boots or {}).get(name, ("", None))
        return min(at, boots.since) if boots is not None and at and boot_id == boots.last else None

    def stands_since(self, name: str, boot_id: str) -> datetime | None:
        """``known_since`` of what stands on the Node itself: since etcd was restored, that may be over. It
        counts again once its writer renews it."""
        known, restored = self.known_since(name, boot_id), self.restored_at(name)
        return known if known is None or restored is None else max(known, restored - BOOTS_IN)

    def restored_at(self, name: str) -> datetime | None:
        """When its Node was seen to have gone back to an earlier moment of this boot; None: it was not."""
        boots = self._boots.get(name)
        return boots.restored if boots is not None else None

    def unheard_since(self, name: str) -> datetime | None:
        """From when on its Node has been watched, where its kubelet has not written since; else None."""
        boots = self._boots.get(name)
        return boots.since if boots is not None and boots.unheard else None

    def in_its_boot(self, node: NodeView) -> NodeView:
        """``node`` with the last boot that its machine was seen in, where it names an earlier one."""
        boots = self._boots.get(node.name)
        return boots.then(node, self.now()).of(node) if boots is not None else node

    # ------------------------------------------------------------ following

    def follow(self, stop: threading.Event) -> None:
        """List and watch until ``stop``."""
        while not stop.is_set():
            stop.wait(self.round(stop))

    def round(self, stop: threading.Event) -> float:
        """``once``, whatever comes of it. Seconds until the next round."""
        once = partial(self.once, stop)
        return round_of("Nodes", once, self._start_over, self._backoff, self._failed)

    def _start_over(self) -> None:
        self._version = ""

    def once(self, stop: threading.Event) -> None:
        """List all Nodes where that is needed; then one watch, until the server ends it."""
        if self._told_boots is None:
            self._ask_for_boots()
        if not self._version:
            self._list()
        for change in watch_nodes(self._streams, self._selector, self._version):
            self._heard_at = self._clock.monotonic()
            self._take(change)
            if stop.is_set():
                return
        self._heard_at = self._clock.monotonic()  # the server has ended it, so it was there

    def _ask_for_boots(self) -> None:
        """What kubelets said of boots before this process watched. Without it, it goes by what is Ready."""
        try:
            self._told_boots = self._cluster.list_reboots()
        except ApiError as error:  # the Nodes are watched all the same, and this is asked for after that
            log.warning("the kubelets' Events of boots: %s", error)
            self._failed("api")
        except Exception:
            log.exception("the kubelets' Events of boots: a bug; they are not read")
            self._failed("bug")
            self._told_boots = {}

    def _list(self) -> None:
        """All Nodes as they are now. Those that went meanwhile are gone."""
        found: dict[str, NodeView] = {}

        def listed() -> str:
            found.clear()
            return self._cluster.nodes_of(self._selector, lambda node: found.__setitem__(node.name, node))

        version = folded(listed)
        self._heard_at = self._clock.monotonic()
        before = self._nodes.keys()
        for name in before - found.keys():
            self._gone(name)
        now = self._cluster.time.now()
        for node in found.values():
            self._put(node, now)
        self._version = version
        log.info("%d Nodes are listed, and watched from now on", len(found))

    def _take(self, change: Change) -> None:
        if change.node is not None:
            self._put(change.node, self._cluster.time.now())
        elif change.gone:
            self._gone(change.gone)
        self._version = change.version or self._version

    def _put(self, node: NodeView, now: datetime) -> None:
        self._went.pop(node.name, None)
        old, boots = self._nodes.get(node.name), self._boots.get(node.name)
        boots = boots.then(node, now) if boots is not None else first_seen(node, now)
        if old is not None and turned_back(old, node):
            boots = replace(boots, restored=now)
        self._boots[node.name] = boots
        self._replace(node.name, boots.of(node))
        if old is None or old.resource_version != node.resource_version:
            self._changed(node.name)

    def _gone(self, name: str) -> None:
        now, old = self._cluster.time.now(), self._nodes.get(name)
        if old is not None and self._remembers:
            self._went[name] = (old, now)
        for went in [n for n, (_, at) in self._went.items() if now - at > self._remembers]:
            del self._went[went]
        self._replace(name, None)
        self._boots.pop(name, None)
        self._changed(name)

    def _replace(self, name: str, new: NodeView | None) -> None:
        with self._counting:
            old = self._nodes.get(name)
            self._census.change(old, new)
            self._identities.change(old, new)
            if new is not None:
                self._nodes[name] = new
            else:
                self._nodes.pop(name, None)
