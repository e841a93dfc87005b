"""Where the agents of one process hand in what they want of the gate, and one write carries it all out.

If a thousand nodes fail at once, each needs three writes of the gate. One after the other they would take
longer than all that is done to the nodes. So one write carries out all that any thread has handed in. Each
wish is decided on again, on the gate as the wishes before it leave it. So budget, queue and pause hold for
each of them, as if it were written by itself. One that is not due any more is refused, and harms no other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from recovery.clock import Clock
from recovery.decide.decision import Decision, FreeSlot, GateEffect, Join, TakeSlot, wait
from recovery.decide.on_gate import STARTING, changed
from recovery.decide.situation import Situation
from recovery.errors import ApiError, ApiUnavailable, Conflict, GateTooLarge, Undecodable
from recovery.model import Census, Gate, Record
from recovery.quick import replace

GATHER = 0.25
"""Seconds for which a wish waits at most for others, while its thread has other nodes to look after. A thread
that has none writes at once."""
MOST = 50
"""How many wishes one write carries out at most. With more, the first would wait too long for its answer."""
TOO_OLD = 2.0
"""Seconds after which a wish is not carried out any more: what it goes by was read too long ago. And so long
more are decided on for one write: an API server that is slow would keep all of them for minutes."""
CHANGED = "the node, its record or the gate changed while all was read: deciding again"
Ask = Callable[[Situation], Decision]
"""``decide`` (own node) or ``conclude`` (a dead agent's node)."""


class RecordStore(Protocol):
    """The part of ``store.record.Records`` that is needed here."""

    def read(self, node: str) -> Record | None: ...


class RecordCache(Protocol):
    """The part of the cluster that is needed here."""

    def forget_record(self, node: str) -> None: ...


class GateStore(Protocol):
    """The part of ``store.gate.Gates`` that is needed here."""

    def read(self) -> Gate | None: ...
    def ready(self, gate: Gate | None, now: datetime) -> Gate: ...
    def write(self, gate: Gate) -> Gate: ...
    def write_in_any_case(self, gate: Gate) -> Gate: ...


class Wish:
    """What one agent wants of the gate. It belongs to the desk until it is ``done``.

    ``at``: when it was handed in. ``read_at``: when the oldest was read that it goes by.
    """

    def __init__(self, s: Situation, effect: GateEffect, ask: Ask, at: float, read_at: float) -> None:
        self.s = s
        self.effect = effect
        self.ask = ask
        self.at = at
        self.read_at = read_at
        self.done = False
        self._instead: Decision | None = None
        self._error: Exception | None = None

    def answer(self, instead: Decision | None = None, error: Exception | None = None) -> None:
        """It was carried out; or was not, and this is decided ``instead``, or this went wrong."""
        self._instead, self._error, self.done = instead, error, True

    def result(self) -> Decision | None:
        """None where it was carried out, or a decision that says why not. Raises what the write raised."""
        assert self.done
        if self._error is not None:
            raise self._error
        return self._instead


@dataclass(frozen=True)
class _Step:
    """The gate after ``wish``; of the first one ``wish`` is None. ``instead``: what its agent does by now."""

    gate: Gate
    wish: Wish | None = None
    instead: Decision | None = None

    @property
    def starts(self) -> bool:
        return self.wish is not None and isinstance(self.wish.effect, STARTING)


class Desk:
    """Any thread may hand in and write.

    ``gates``, ``records`` and ``cache`` are the desk's own. ``leads``: whether this process may still write.
    ``answered`` is told the node of each wish that is done.
    """

    def __init__(
        self,
        clock: Clock,
        gates: GateStore,
        records: RecordStore,
        cache: RecordCache,
        now: Callable[[], datetime],
        leads: Callable[[], bool],
        answered: Callable[[str], None],
    ) -> None:
        self._clock = clock
        self._gates = gates
        self._records = records
        self._cache = cache
        self._now = now
        self._leads = leads
        self._answered = answered
        self._turn = threading.RLock()
        self._lock = threading.Lock()
        self._waiting: list[Wish] = []
        self._census: tuple[Census, timedelta] | None = None

    # ------------------------------------------------------------ in

    def hand_in(self, s: Situation, effect: GateEffect, ask: Ask, read_at: float | None = None) -> Wish:
        """``read_at``: the monotonic moment at which ``s`` was read; None: it was just now."""
        now = self._clock.monotonic()
        wish = Wish(s, effect, ask, now, now if read_at is None else read_at)
        with self._lock:
            self._waiting.append(wish)
        return wish

    def share(self, census: Census, age: timedelta) -> None:
        """Put ``census`` on the gate with the next write, if the one there is older by ``age``."""
        with self._lock:
            if self._census is None or self._census[0].at <= census.at:
                self._census = (census, age)

    def is_due(self) -> bool:
        """Whether somebody has waited for long enough, or enough wait."""
        with self._lock:
            first = self._waiting[0].at if self._waiting else self._clock.monotonic()
            return len(self._waiting) >= MOST or self._clock.monotonic() - first >= GATHER

    # ------------------------------------------------------------ out

    def write(self) -> bool:
        """Carry out what was handed in, up to ``MOST``. Whether there was anything."""
        with self._turn:
            with self._lock:
                wishes, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
                census, self._census = self._census, None
            try:
                self._carry_out(wishes, census)
            finally:
                for wish in wishes:
                    self._answered(wish.s.node_name)
        return bool(wishes or census)

    def carry_out(self, wish: Wish) -> Decision | None:
        """``Wish.result`` of one that somebody waits for."""
        while not wish.done:
            self.write()
        return wish.result()

    def _carry_out(self, wishes: list[Wish], census: tuple[Census, timedelta] | None) -> None:
        """All of ``wishes`` are done after it, whatever happens."""
        for wish in wishes:
            if not self._leads() or self._is_too_old(wish):
                wish.answer(error=Conflict(CHANGED))
        try:
            try:
                self._once(wishes, census)
            except Conflict:
                self._once(wishes, census)
        except Exception as error:
            for wish in _open(wishes):
                wish.answer(error=error)
            if not wishes and not isinstance(error, ApiError | GateTooLarge | Undecodable):
                raise

    def _is_too_old(self, wish: Wish) -> bool:
        """Not of one that frees a slot: what that goes by is read again here."""
        return not isinstance(wish.effect, FreeSlot) and self._clock.monotonic() - wish.read_at > TOO_OLD

    def _once(self, wishes: list[Wish], census: tuple[Census, timedelta] | None) -> None:
        """One swap, with all that is due on the gate as it is now."""
        if not _open(wishes) and census is None:
            return
        now, began = self._now(), self._clock.monotonic()
        base = self._gates.read()
        if base is None or base.stamp != base.uid:
            base = self._gates.ready(base, now)
        steps = [_Step(_with_census(base, census))]
        for wish in _in_order(base, _open(wishes)):
            if self._clock.monotonic() - began > TOO_OLD:
                wish.answer(error=Conflict(CHANGED))
            elif (step := self._decided(wish, steps[-1].gate, now)) is not None:
                steps.append(step)
        if steps[-1].gate is not base:
            self._put(steps)
        for step in steps[1:]:
            assert step.wish is not None
            step.wish.answer(step.instead)

    def _put(self, steps: list[_Step]) -> None:
        """Swap in the gate of the last of ``steps``. Starts that it has no room for are taken off them."""
        while len(steps) == 1 or steps[-1].starts:
            try:
                self._gates.write(steps[-1].gate)
                return
            except GateTooLarge as error:
                if (left_out := steps[-1].wish) is None:
                    raise
                steps.pop()
                left_out.answer(error=error)
        self._gates.write_in_any_case(steps[-1].gate)

    def _decided(self, wish: Wish, gate: Gate, now: datetime) -> _Step | None:
        """``gate`` with what ``wish`` asks for; None where that is not due on it. Then it is answered. Who
        finds no slot any more joins the queue.

        Raises ``ApiUnavailable``: who does not answer one does not answer the others.
        """
        try:
            if isinstance(wish.effect, FreeSlot):
                if self._needs_slot(wish.s.node_name, wish.effect.record_uid):
                    wish.answer(slot_stays(wish.s.node_name))
                    return None
                return _Step(changed(gate, wish.effect, wish.s, now), wish)
            effect, s, instead = wish.effect, replace(wish.s, gate=gate), None
            if gate != wish.s.gate:
                found = wish.ask(s)
                if isinstance(effect, TakeSlot) and isinstance(found.effect, Join):
                    instead = found
                elif type(found.effect) is not type(effect):
                    raise Conflict(CHANGED)
                effect = found.effect
            return _Step(changed(gate, effect, s, now), wish, instead)
        except ApiUnavailable:
            raise
        except Exception as error:  # a bug with one is no other's
            wish.answer(error=error)
            return None

    def _needs_slot(self, node: str, uid: str) -> bool:
        """Whether the record still needs its slot: it was opened again, or deleted. Read after the gate."""
        self._cache.forget_record(node)
        return needs_slot(self._records.read(node), uid)


def needs_slot(record: Record | None, uid: str) -> bool:
    """Whether ``record``, as it is now, still needs the slot that its node has by the record ``uid``."""
    return record is None or (record.uid == uid and record.phase.open)


def slot_stays(node: str) -> Decision:
    return wait(f"the record of {node} is not closed: its slot stays", key="conflict")


def _open(wishes: Iterable[Wish]) -> list[Wish]:
    return [wish for wish in wishes if not wish.done]


def _in_order(gate: Gate, wishes: list[Wish]) -> list[Wish]:
    """What frees slots, and the other ways back, first; then starts, in the order of the queue; then who
    joins it, as they came. What has no room is left out from the end."""
    place = {line.record_uid: i for i, line in enumerate(gate.open)}

    def order(wish: Wish) -> tuple[int, int]:
        if isinstance(wish.effect, TakeSlot):
            return 2, place.get(wish.effect.slot.record_uid, len(place))
        return {FreeSlot: 0, Join: 3}.get(type(wish.effect), 1), 0

    return sorted(wishes, key=order)


def _with_census(gate: Gate, shared: tuple[Census, timedelta] | None) -> Gate:
    if shared is None or (gate.census is not None and shared[0].at - gate.census.at < shared[1]):
        return gate
    return replace(gate, census=shared[0])
