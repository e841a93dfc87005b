"""The one destructive effect: a step that is asked of the provider.

The intent is the last write before the call. So only a crash between these two leaves it open whether the
call was made.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from recovery.agent.memory import LAST_READS, Memory
from recovery.agent.world import World
from recovery.decide.assessment import assess
from recovery.decide.decision import Decision, EventReason, Report, hold
from recovery.decide.diagnosis import told_apart
from recovery.decide.history import HistoryEvent, note
from recovery.decide.in_flight import put_off, settled
from recovery.decide.provider_step import not_now
from recovery.decide.situation import Situation, Unwritten
from recovery.errors import Ambiguous, Conflict, NotFound, Refused, Retry
from recovery.kube.provider_objects import answers
from recovery.model import Cause, ClusterDelete, Intent, IntentState, Preflight, Record, Reference, Step
from recovery.quick import replace
from recovery.report.notice import About, Notice
from recovery.report.publish import Publisher

log = logging.getLogger(__name__)

SUBMIT_WITHIN = 10.0
"""Seconds after its intent within which a call may begin. A process that was suspended in between must not
call: others may have gone on without it."""
SLOW = (
    "the API server takes seconds to answer, and a pause or an exclusion might be missed; it is tried again"
)
DOING = {
    Step.REBOOT: EventReason.REBOOTING,
    Step.REIMAGE: EventReason.REIMAGING,
    Step.REDEPLOY: EventReason.REDEPLOYING,
    Step.REPLACE: EventReason.REPLACING,
}
"""The reason of the Event that announces a step."""

Again = Callable[[Situation | None], Situation]
"""Reads the world once more: all of it, or of a situation that was read just now only what is quick to read
and quick to change (``Observer.last_reads``)."""
SLOW_READS = 3
"""How often the last reads are made again if they took longer than ``LAST_READS``."""


@dataclass(frozen=True)
class Performed:
    """An effect was carried out. ``sentence`` and ``report`` take the place of the decision's if given."""

    sentence: str = ""
    report: Report | None = None


class Submission:
    """In this order: announce, read all again, read once more what is quick to read, ask ``not_now``, write
    the intent, call, write the outcome."""

    def __init__(
        self,
        world: World,
        publisher: Publisher,
        s: Situation,
        action: Step,
        again: Again,
        memory: Memory,
    ) -> None:
        assert s.record is not None
        assert s.machine is not None
        self._w = world
        self._publisher = publisher
        self._s = s
        self._r: Record = s.record
        self._action = action
        self._again = again
        self._memory = memory
        self._provider = world.providers.get(s.machine.provider)

    def run(self) -> Performed | Decision:
        preflight = self._s.preflight
        assert preflight is not None  # the decision requires it
        if preflight.adopt:
            return self._adopt(preflight)
        if self._was_announced() and isinstance(kept := self._look(), Decision):
            return kept  # while that lasts, it is not announced again and again
        self._announce()
        if isinstance(found := self._look(), Decision):
            return found
        fresh, read_at = found
        assert fresh.record is not None
        assert fresh.preflight is not None
        self._s, self._r = replace(self._s, node=fresh.node), fresh.record
        if fresh.preflight.adopt:
            return self._adopt(fresh.preflight)
        began = self._w.clock.boottime()
        self._intend(fresh.preflight)
        if self._w.clock.monotonic() - read_at > LAST_READS and (why := self.held_since(fresh)):
            return self._settle(IntentState.ABANDONED, HistoryEvent.ABANDONED, why)
        if self._w.clock.boottime() - began > SUBMIT_WITHIN:
            return self._settle(
                IntentState.ABANDONED,
                HistoryEvent.ABANDONED,
                f"{self._action.value} was not asked for: too late after its intent",
            )
        return self._call()

    def last_look(self, fresh: Situation) -> tuple[Situation, float] | None:
        """The last reads, and when they began; None if the API server is too slow for them."""
        for _ in range(SLOW_READS):
            began = self._w.clock.monotonic()
            last = self._again(fresh)
            if self._w.clock.monotonic() - began <= LAST_READS:
                return last, began
        return None

    def _look(self) -> tuple[Situation, float] | Decision:
        """The last reads, and when they began; or why the call is not made after all."""
        if (found := self.last_look(self._again(None))) is None:
            why = f"{self._r.node}: {self._action.value} is not asked for: {SLOW}"
            return hold(why, key="slow", held=Cause.API)
        kept = not_now(found[0], assess(found[0]), self._action)
        return found if kept is None else kept

    def _was_announced(self) -> bool:
        """Whether this very step was announced before, and was not asked for after all."""
        return self._memory.announced == self._step()

    def _step(self) -> object:
        return (self._r.uid, self._r.rung, self._r.attempt)

    def held_since(self, fresh: Situation) -> str:
        """What speaks against the call now. The intent took long to write, and much may change in seconds."""
        late = self._again(fresh)
        kept = not_now(late, assess(late), self._action)
        return kept.reason if kept is not None else ""

    def _announce(self) -> None:
        """Publish before the call, for at most five seconds (law 9): it may remove the node we run on.

        That it starts is said once, however often it is put off.
        """
        faults = ", ".join(f.reason for f in told_apart(self._r.faults))
        step = f"{self._action.value} of {self._r.machine.id}"
        sentence = f"{step} is requested from {self._provider.name} now: {faults}"
        now = self._w.cluster.time.now()
        uid = self._s.node.uid if self._s.node else ""
        doing, about = DOING[self._action].value, About.of(self._r)
        if not self._put_off():
            self._publisher.event(Notice(self._r.node, uid, doing, sentence, True, now, about=about))
            if not self._was_announced():
                self._publisher.outcome(self._provider.name, self._action.value, "started", now)
        self._memory.announced = self._step()
        for fault in told_apart(self._r.faults):
            self._publisher.fault(fault.reason, now)
        if not self._publisher.flush():
            log.warning("%s: publishing takes long; going on without waiting", self._r.node)

    def _put_off(self) -> bool:
        """Whether this step was announced before, and its provider turned the call away for now."""
        last, again = self._r.intent, self._r.progress.retry_at
        if last is None or again is None or last.action != self._action:
            return False
        return last.state is IntentState.ABANDONED and again > last.at

    def _intend(self, preflight: Preflight) -> None:
        now = self._w.cluster.time.now()
        attempt = self._r.attempt + 1
        intent = Intent(
            action=self._action.value,
            attempt=attempt,
            token=uuid.uuid4().hex[:12],
            at=now,
            machine=self._r.machine.id,
            boot_id=self._r.boot_id or (self._s.node.boot_id if self._s.node is not None else ""),
            reference=preflight.reference,
            submit_within=SUBMIT_WITHIN,
            call_timeout=self._provider.call_timeout,
            kernel_boot=self._s.kernel_boot,
        )
        changed = replace(self._r, attempt=attempt, intent=intent, rung_since=self._r.rung_since or now)
        sentence = f"about to ask {self._provider.name} to {self._action.value} {self._r.machine.id}"
        self._not_asked(intent)
        self._r = self._w.records.write(note(changed, now, HistoryEvent.INTENT, sentence))

    def _call(self) -> Performed:
        assert self._s.machine is not None
        assert self._r.intent is not None
        what = f"{self._action.value} of {self._r.machine.id}"
        self._memory.unwritten = None  # from here on it may have been
        try:
            begun = self._provider.start(
                self._s.machine, self._action, self._r.intent.token, self._r.intent.reference
            )
            if isinstance(begun, ClusterDelete):
                self._delete(begun)
        except Ambiguous as error:
            return self._settle(
                IntentState.AMBIGUOUS,
                HistoryEvent.AMBIGUOUS,
                f"{what}: the answer was lost, observing: {error.reason}",
            )
        except Retry as error:
            self._not_asked(self._r.intent)
            now, sentence = self._w.cluster.time.now(), f"{what}: not yet: {error.reason}"
            self._w.records.write(put_off(self._r, now, error, sentence))
            return Performed(sentence, Report(EventReason.NOT_YET, warning=True))
        except Refused as error:
            self._not_asked(self._r.intent)
            return self._settle(IntentState.REFUSED, HistoryEvent.REFUSED, error.reason)
        if isinstance(begun, Reference):
            self._r = replace(self._r, intent=replace(self._r.intent, reference=begun))
        done = self._settle(
            IntentState.SUBMITTED, HistoryEvent.SUBMITTED, f"{what} was accepted by {self._provider.name}"
        )
        return replace(done, report=Report(EventReason.SUBMITTED, warning=True))

    def _delete(self, route: ClusterDelete) -> None:
        """Delete through the API server. Raises the same three errors as a provider's call."""
        granted = "; what an agent may delete is granted by deploy/rbac"
        with answers(f"{route.name} was not deleted", granted):
            try:
                self._w.cluster.delete(route)
            except NotFound:
                return
            except Conflict:
                raise Refused(f"{route.name} is another object now: nothing was deleted") from None

    def _adopt(self, preflight: Preflight) -> Performed:
        """Somebody else's call is under way: follow it as if it were ours, without a call."""
        self._intend(preflight)
        return self._settle(
            IntentState.SUBMITTED, HistoryEvent.ADOPTED, f"{preflight.adopt}; nothing more is asked for"
        )

    def _not_asked(self, intent: Intent) -> None:
        """Remember that nothing was asked for ``intent``, also where that cannot be written down."""
        why = f"{intent.action} was not asked for: the API server did not answer a write about it"
        self._memory.unwritten = Unwritten(intent.token, IntentState.ABANDONED, intent.reference, why)

    def _settle(self, state: IntentState, event: HistoryEvent, sentence: str) -> Performed:
        """Write the outcome. If that fails, the intent stays on record; this process knows the outcome."""
        assert self._r.intent is not None
        now, intent = self._w.cluster.time.now(), self._r.intent
        if state in (IntentState.SUBMITTED, IntentState.AMBIGUOUS):
            self._memory.unwritten = Unwritten(intent.token, state, intent.reference, sentence)
        self._w.records.write(settled(self._r, now, state, event, sentence))
        reason = EventReason(event[0].upper() + event[1:])
        return Performed(sentence, Report(reason, warning=state is not IntentState.SUBMITTED))
