"""One cycle of a node's own agent: observe, assess, decide, carry out one effect, report.

The node's signals are read in every cycle. The API server is asked only when they have changed, or when
the last decision said to look again. Level-triggered: all that matters is in the record, the gate and the
cluster, so a restart costs a few seconds and loses nothing.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from recovery.agent import bugs
from recovery.agent.backoff import Backoff, doubled
from recovery.agent.desk import Wish
from recovery.agent.execute import Executor
from recovery.agent.memory import Memory
from recovery.agent.observe import Observer
from recovery.agent.pace import OWN_NODE, pause_among
from recovery.agent.reporter import UNSAID, Reporter
from recovery.agent.restated import Restated
from recovery.agent.world import World
from recovery.decide.assessment import Assessment, assess
from recovery.decide.budget import line_of, places
from recovery.decide.decision import Decision, GateEffect, leave, wait
from recovery.decide.diagnosis import UNKNOWN_TOO_LONG, live, name
from recovery.decide.latch import unsaid
from recovery.decide.marks import marked
from recovery.decide.own_node import decide
from recovery.decide.retention import LEAST
from recovery.decide.sightings import News, news
from recovery.decide.situation import Role, Situation
from recovery.errors import ApiError, NodeRecoveryError
from recovery.model import Cause, Kind, Machine, NodeView, Phase, Problem, Reading, Record
from recovery.quick import replace
from recovery.report.heartbeat import Heartbeat
from recovery.report.metrics import Metrics
from recovery.report.own_view import View
from recovery.report.publish import Publisher
from recovery.signals.names import bounded
from recovery.signals.own_node import read_from

log = logging.getLogger(__name__)

API_RETRY = timedelta(seconds=2)
WORST_API_RETRY = 30.0
"""The first pause after an error of the API server, and how many seconds it gets by doubling."""
WORST_BACK_OFF = timedelta(minutes=5)
BUGS_TO_DIE = 10
"""How many cycles in a row have to fail on a bug until the liveness probe fails."""
IN_A_RECOVERY = 5.0
"""Seconds: how old a reading may be that costs a request, while the node has an open record."""
PUT_BACK = timedelta(hours=1)
"""For how long after a recovery the agent reads its Node for marks of ours that somebody puts back, as a
controller does that writes all taints as it had read them."""
REMOVAL_AGAIN = timedelta(hours=1)
NEXT = 10
"""How many at the head of the queue look at the holders of slots every two seconds. Others look less
often."""
BEHIND = "{} has only read an earlier Node of this name, or an earlier boot of it, and reads it again"
BUG = "a bug in this program, see the log"
FAILURES = frozenset({"api", "error", "bug"})
"""Keys of decisions that say that the cycle itself failed."""
TRIED_AGAIN = FAILURES | {"conflict"}


class Source(Protocol):
    """Reads a node's signals. Raises nothing but bugs: what cannot be read is unknown."""

    name: str

    def poll(self, boot_id: str, within: float | None = None) -> Reading:
        """What is known now. ``within``: by a read no older than these seconds; None: as old as may be."""


class Agent:
    """Looks after one node: the one it runs on."""

    def __init__(
        self,
        world: World,
        observer: Observer,
        executor: Executor,
        publisher: Publisher,
        metrics: Metrics,
        sources: Sequence[Source],
        node: str,
        *,
        heartbeat: Heartbeat | None = None,
        saw: Callable[[NodeView], None] = lambda _: None,
        own: Callable[[float | None], NodeView | None] = lambda _: None,
        gone: Callable[[], bool] = lambda: False,
        tell: Callable[[News], None] = lambda _: None,
    ) -> None:
        self.node = node
        self._tell = tell
        self._saw = saw
        self._own = own
        self._gone = gone
        self._heartbeat = heartbeat
        self._w = world
        self._observer = observer
        self._executor = executor
        self._metrics = metrics
        self._reporter = Reporter(node, world.clock, publisher, metrics)
        self._sources = sources
        chance = random.Random(node)  # noqa: S311 - jitter
        self._backoff = Backoff(world.clock, API_RETRY.total_seconds(), WORST_API_RETRY, chance)
        self._boot_id = ""
        self._kernel_boot = ""
        self._read_as_of = ""  # the boot that sources are told: what the Node named first in it
        self._record: Record | None = None
        self._looked = self._undone = self._leaves_to_peers = False
        self._summoned = False
        self._cleared: dict[str, frozenset[tuple[str, str]]] = {}
        self._dealt_with: frozenset[tuple[str, str]] = frozenset()
        self._ended: frozenset[tuple[str, str]] = frozenset()
        self._unsaid: dict[tuple[str, str, str], Problem] = {}
        self._restated = Restated()
        self._broken: dict[str, datetime] = {}  # sources that fail on a bug, and since when
        self._due = 0.0
        self.pause = math.inf
        """Seconds from one look to the next at most: less than until the Lease of an open record is over."""
        self._seen_at = 0.0
        self._removal_due: float | None = None
        self._watched_until = 0.0
        self._last = leave("nothing has been read yet")
        self._situation: Situation | None = None
        self._handed_in: tuple[Situation, Assessment, Decision, Wish] | None = None
        self._rests = False
        self._view = View(world.cluster.time.now(), (), self._last)
        self._keys: object = None
        self.bugs = 0
        self.next_in_queue = False
        """Whether this node is among the next to get a slot. Such an agent looks at those that hold one every
        two seconds, to free the slot of a dead agent soon."""

    @property
    def ready(self) -> bool:
        """Whether the node has been looked at, at the API server, at least once."""
        return self._looked

    @property
    def busy(self) -> bool:
        """Whether the node has a record that counts, or a place on the gate."""
        return self._record is not None

    @property
    def has_failed(self) -> bool:
        """Whether the last cycle could not do what was to be done, and tries again soon."""
        return self._last.key in TRIED_AGAIN

    @property
    def last(self) -> Decision:
        return self._last

    @property
    def view(self) -> View:
        """What was last seen and decided. Replaced as a whole, so that another thread may read it."""
        return self._view

    @property
    def node_uid(self) -> str:
        """Of the Node as it was last seen; "" where none was."""
        s = self._view.situation
        return s.node.uid if s is not None and s.node is not None else ""

    @property
    def readings_to_tell(self) -> tuple[Reading, ...]:
        """What peers are told of the own page, in the Lease. Nothing where the record is open and the Node is
        gone: then a peer has to take the Lease, to prove what became of the machine."""
        return () if self._leaves_to_peers else self._view.readings

    def look_at_record(self) -> None:
        """The gate lists this node. Where no record of it is known, look for one in the next cycle."""
        if self._record is None and not self._summoned:
            self._summoned = True
            self._due = 0.0

    def look_again(self) -> None:
        """Look at the cluster in the next cycle, whatever the last decision said."""
        self._due = 0.0

    def complaint(self) -> str:
        """The fault that speaks against this node now, as its sources show it; empty if none does."""
        s = self._view.situation
        if s is None:
            return ""
        s = replace(s, readings=self._view.readings)
        found = live(s, assess(s).found)
        return name(found[0].fault) if found else ""

    # ------------------------------------------------------------ the cycle

    def cycle(self) -> Decision:
        """Read the signals; if there is a reason to, look at the cluster and do one thing. Never raises."""
        if self._handed_in is not None and not self._handed_in[-1].done:
            return self._last
        self._metrics.cycles.inc()
        readings = self._poll(self._age_allowed())
        if self._heartbeat is not None:
            self._heartbeat.beat(all(r.readable for r in readings) and self._last.key not in FAILURES)
        keys = (_keys(readings), self._lives_ended(readings), self._is_marked())
        now = self._w.clock.monotonic()
        if now < self._backoff.until:  # faults are published all the same
            self._reporter.faults(readings, self._w.cluster.time.now(), gone=self._gone())
            self._view = replace(self._view, readings=readings)
            return self._last
        if keys == self._keys and now < self._due:
            self._view = replace(self._view, readings=readings)
            return replace(self._last, look_again=timedelta(seconds=self._due - now))
        self._keys = keys
        self._reporter.faults(readings, self._w.cluster.time.now(), gone=self._gone())
        self._rests = self.next_in_queue = False
        try:
            d = self._look(readings)
            self.bugs = 0
            self._backoff.answered()
        except ApiError as error:
            self._unreachable()
            rest = timedelta(seconds=self._backoff.failed(error.retry_after))
            d = wait(f"the API server: {error}", rest, "api")
            self._metrics.errors.labels("api").inc()
        except NodeRecoveryError as error:
            d = wait(str(error), timedelta(seconds=self._backoff.failed()), "error")
            self._metrics.errors.labels(type(error).__name__).inc()
        except Exception:
            self.bugs += 1
            bugs.survived(self._metrics, self.node, "trying again, ever more slowly")
            pause = doubled(API_RETRY.total_seconds(), self.bugs, WORST_BACK_OFF.total_seconds())
            d = wait(BUG, timedelta(seconds=pause), "bug")
        if failed := d.key in FAILURES:
            self._reporter.failure(d, self._w.cluster.time.now())
        d = self._among_many(d)
        again = math.inf if d.key in TRIED_AGAIN else self._reporter.repeats_in
        if again < d.look_again.total_seconds():
            d = replace(d, look_again=timedelta(seconds=again))
        pause = d.look_again.total_seconds()
        if self._record is not None and self._record.phase.open and not failed:  # its Lease has to be renewed
            pause = min(pause, self._w.leases.renew_every)
        self._due = self._w.clock.monotonic() + pause
        self.pause = pause
        self._last = d
        self._view = View(self._w.cluster.time.now(), readings, d, self._situation, self._rests)
        return d

    def _poll(self, within: float | None) -> tuple[Reading, ...]:
        readings = tuple(self._polled(source, within) for source in self._sources)
        self._restated.hear(readings, self._w.cluster.time.now())
        return readings

    def _polled(self, source: Source, within: float | None) -> Reading:
        """What ``source`` says. A bug in one costs what it would have said, and no other one's word."""
        try:
            reading = bounded(source.poll(self._read_as_of, within))
        except Exception:
            now = self._w.cluster.time.now()
            if source.name not in self._broken:
                bugs.survived(self._metrics, self.node, f"nothing is known from {source.name} while it lasts")
            since = self._broken.setdefault(source.name, now)
            return Reading(source.name, now, unknown={"*": BUG}, unknown_since={"*": since})
        self._broken.pop(source.name, None)
        return reading

    def _age_allowed(self) -> float | None:
        """How old a reading may be that costs a request to the API server, in seconds; None: as old as may
        be.

        In a recovery it has to be fresh. While the server asks for rest, any age will do.
        """
        if self._w.clock.monotonic() < self._backoff.until:
            return math.inf
        return IN_A_RECOVERY if self._record is not None and self._record.phase.open else None

    def _among_many(self, d: Decision) -> Decision:
        """``d``, with a longer pause where many recoveries are under way and this one only waits."""
        s = self._situation
        under_way = self._record is not None and self._record.phase in (Phase.RECOVERING, Phase.PROVING)
        if d.effect is not None or not under_way or s is None or s.gate is None:
            return d
        return replace(d, look_again=max(d.look_again, pause_among(len(s.gate.slots))))

    def _look(self, readings: tuple[Reading, ...]) -> Decision:
        """Observe, assess, decide, do one thing, report it; or report what was handed in and is done now."""
        quiet = False
        if self._handed_in is not None:
            s, a, d = self._outcome()
        else:
            if quiet := self._quiet(readings):
                now = self._w.cluster.time.now()
                s = Situation(now, self.node, self._w.policy, self._w.on, readings=readings)
            else:
                s = self._observe(readings, fresh=False)
            a = assess(s)
            d = decide(s, a)
            if not quiet:
                d = self._act(s, a, d)
        if not quiet:
            self._rests = d.effect is None
        self._situation = s
        self._tell(news(s, a, looked=not quiet))
        self._reporter.decision(s, a, d)
        return d

    def _outcome(self) -> tuple[Situation, Assessment, Decision]:
        """What came of the wish that was handed in. Raises what its write raised."""
        assert self._handed_in is not None
        s, a, d, wish = self._handed_in
        self._handed_in = None
        done = self._executor.perform(s, d, self._again, decide, wish)
        self._undone = done.effect is None
        return s, a, done

    def _quiet(self, readings: tuple[Reading, ...]) -> bool:
        """Whether the node is healthy and has no record to end: then the API server need not be asked."""
        if not self._looked or self._undone or self._record is not None or self._last.effect is not None:
            return False  # what could not be written is tried again, and after a write more may be to do
        if self._removal_due is not None and self._w.clock.monotonic() >= self._removal_due:
            return False  # its closed record is older than records are kept
        now = self._w.cluster.time.now()
        if {r.source: r.cleared for r in readings} != self._cleared:
            return False  # a source cleared a fault that the record may still remember
        if self._summoned or self._unsaid or self._lives_ended(readings) != self._ended:
            return False
        if self._is_marked():
            return False  # somebody wrote the Node's taints as they were before ours came off
        return not any(
            r.problems or any(now - at >= UNKNOWN_TOO_LONG for at in r.unknown_since.values())
            for r in readings
        )

    def _is_marked(self) -> bool:
        """Whether marks of ours are on the Node, as it was last read: for sources, or after a recovery."""
        watched = self._backoff.until <= self._w.clock.monotonic() < self._watched_until
        node = self._own(OWN_NODE if watched else None)
        return node is not None and marked(node)

    def _lives_ended(self, readings: tuple[Reading, ...]) -> frozenset[tuple[str, str]]:
        """The faults that were dealt with, in this boot, and that a restarted detector shows no more."""
        return self._dealt_with & frozenset(pair for r in readings for pair in r.gone)

    def _observe(
        self, readings: tuple[Reading, ...], fresh: bool, before: Situation | None = None
    ) -> Situation:
        if self._w.on:
            self._unsaid |= _stated(readings)
        if before is None:
            s = self._observer.situation(self.node, Role.OWNER, readings, me=self.node, fresh=fresh)
        else:
            s = self._observer.last_reads(before, readings, me=self.node)
        if s.node is not None:
            self._reporter.node_uid = s.node.uid
            self._saw(s.node)
            if s.node.boot_id and s.node.boot_id != self._boot_id:
                known, self._boot_id = self._boot_id, s.node.boot_id
                # A Node that names only now the boot that this kernel was in already was behind: etcd was
                # restored, say. The detector's page has been of that boot all the while.
                if not (known and s.node.boot_id == s.kernel_boot == self._kernel_boot):
                    self._read_as_of = s.node.boot_id
                if known:  # a boot ends what was seen before it, and the Node may be another machine's now
                    self._unsaid, self._restated = {}, Restated()
                    return self._observe(self._poll(self._age_allowed()), fresh, before)
            self._kernel_boot = s.kernel_boot
            readings = self._of_now(s.readings, read_from(s.node))
            s = replace(s, readings=readings)
        stated = _stated(readings)
        self._leaves_to_peers = s.node is None and s.record is not None and s.record.phase.open
        s = replace(s, restated=self._restated.untold(s))
        self._unsaid = {key: p for key, p in self._unsaid.items() if unsaid(p, s)}
        acknowledged = s.record.acknowledged if s.record is not None else ()
        self._dealt_with = frozenset(
            (f.type, f.reason) for f in acknowledged if f.boot_id == self._boot_id and not f.cleared
        )
        self._ended = self._lives_ended(readings)
        self._summoned = False
        unsaid_now = tuple(p for key, p in self._unsaid.items() if key not in stated)
        s = replace(s, unsaid=unsaid_now, back_for=self._back_for())
        return self._notice_deletion(s)

    def _of_now(self, readings: tuple[Reading, ...], node: str) -> tuple[Reading, ...]:
        """``readings``, unknown where an earlier Node of this name was read, or one in an earlier boot."""
        others = tuple(r for r in readings if r.node and r.node != node)
        if not others:  # nearly always
            return readings
        self._unsaid = {key: p for key, p in self._unsaid.items() if key not in _stated(others)}
        unknown = {r.source: Reading(r.source, r.at, unknown={"*": BEHIND.format(r.source)}) for r in others}
        return tuple(unknown.get(r.source, r) for r in readings)

    def _notice_deletion(self, s: Situation) -> Situation:
        """Remember the record. If an open one was deleted, stop, and do not create it again.

        In fleet mode another machine may have got the name since. It has nothing to do with that record. (A
        node's own agent ends with its machine, so it never meets this.)
        """
        known, now = self._record, self._w.clock.boottime()
        cut_off, self._seen_at = now - self._seen_at >= LEAST.total_seconds(), now
        deleted = known is not None and s.record is None and not s.record_problem and known.phase.open
        ours = not (s.afar and _anothers(known, s.machine))
        if deleted and ours and not cut_off:  # after a day it may have been closed and removed in order
            self._w.leases.release(self.node)
            self._looked = True
            return replace(s, vanished=True)
        keep = s.record is not None and (s.record.phase.sick or _on_gate(s))
        self._record = s.record if keep else None
        self._looked = True
        self._cleared = {r.source: r.cleared for r in s.readings}
        self._removal_due = self._removal(s) if s.record is not None and not keep else None
        if s.record is not None and not keep and s.on:
            left = s.record.phase_since + PUT_BACK - s.now
            self._watched_until = self._w.clock.monotonic() + left.total_seconds()
        return s

    def _removal(self, s: Situation) -> float:
        """When to look whether the closed record can be removed: its time, and every hour after it."""
        assert s.record is not None
        left = s.record.phase_since + s.policy.limits.records.keep - s.now
        return self._w.clock.monotonic() + max(left, REMOVAL_AGAIN).total_seconds()

    def _act(self, s: Situation, a: Assessment, d: Decision) -> Decision:
        memory = self._observer.memory(self.node)
        if s.record is not None and s.record.phase.open:
            memory.holds.looked(s.record, d.held, self._w.clock.monotonic())
        if s.census is not None and s.census is memory.census and not isinstance(d.effect, GateEffect):
            self._executor.share_census(s, s.settle)  # ``TakeSlot`` takes it along
        if d.effect is not None:
            memory.turn = None
            self._undone = True
            old = self._executor.goes_by_old_reads(s, d)  # then ``perform`` reads all again
            if self._w.desk is not None and isinstance(d.effect, GateEffect) and not old:
                return self._hand_in(s, a, d)
            # ``decide`` is asked again only if another agent changed the gate meanwhile.
            done = self._executor.perform(s, d, self._again, decide)
            self._undone = done.effect is None
            if done.held is not None and s.record is not None and s.record.phase.open:
                memory.holds.looked(s.record, done.held, self._w.clock.monotonic())
            return done
        self._undone = False
        self._note_place(s, a, d, memory)
        if s.node is None:  # a peer has to prove that the machine is gone, under the Lease
            self._w.leases.release(self.node)
        elif s.on and s.record is not None and s.record.phase.open and (s.lease.mine or s.lease.stale):
            self._w.leases.hold(self.node, Role.OWNER)
        return d

    def _hand_in(self, s: Situation, a: Assessment, d: Decision) -> Decision:
        """Hand in the change of the gate, so that one write carries out those of many agents."""
        wish = self._executor.hand_in(s, d, decide)
        if isinstance(wish, Decision):
            return wish
        self._handed_in = (s, a, d, wish)
        return wait(f"{d.reason}: being written to the gate, with what other nodes want of it", key=UNSAID)

    def _back_for(self) -> timedelta | None:
        """How long the API server has been back, if it was away. Node and record have just been read."""
        now = self._w.clock.monotonic()
        self._w.outage.answered(now)
        return self._w.outage.over_for(now)

    def _unreachable(self) -> None:
        """The API server did not answer, so that nothing could be tried."""
        self._w.outage.away(self._w.clock.monotonic())
        if self._record is not None and self._record.phase.open:
            holds = self._observer.memory(self.node).holds
            holds.looked(self._record, Cause.API, self._w.clock.monotonic())

    def _note_place(self, s: Situation, a: Assessment, d: Decision, memory: Memory) -> None:
        """Note whether this node is next in the queue, and since when the first one leaves a slot free."""
        in_line = s.record is not None and line_of(s.gate, s.record.uid) is not None
        self.next_in_queue = in_line and d.key == "budget" and len(a.ahead) < NEXT
        if d.key != "turn":
            memory.turn = None
        elif memory.turn is None or memory.turn[0] != a.ahead[0]:
            memory.turn = (a.ahead[0], self._w.clock.monotonic())

    def _again(self, before: Situation | None = None) -> Situation:
        """Read signals and cluster once more, right before a destructive call (``submit.Again``)."""
        readings = self._poll(0.0)
        return self._observe(readings, fresh=True, before=before)

    def stop(self) -> None:
        """Release our Leases, or other agents would wait until they are stale."""
        self._w.leases.release_all()


def _anothers(r: Record | None, machine: Machine | None) -> bool:
    """Whether ``r`` is about another machine than ``machine``, as far as both are known."""
    if r is None or machine is None or not r.machine.provider:
        return False
    return r.machine.id != machine.id


def _on_gate(s: Situation) -> bool:
    if s.gate is None or s.record is None:
        return False
    return any(node == s.node_name for node, _ in places(s.gate))


def _stated(readings: tuple[Reading, ...]) -> dict[tuple[str, str, str], Problem]:
    return {p.key: p for r in readings for p in r.problems if p.kind is Kind.LEVEL}


def _keys(readings: tuple[Reading, ...]) -> object:
    """What in the readings can change a decision. Their times cannot."""
    return tuple(
        (
            r.source,
            frozenset((*p.key, p.counter, p.life, p.masked, len(p.times)) for p in r.problems),
            frozenset(p.key for p in r.problems if (p.type, p.reason) in r.gone),
            tuple(sorted(r.unknown.items())),
            tuple(sorted(r.unconfirmed)),
            r.cleared,
        )
        for r in readings
    )
