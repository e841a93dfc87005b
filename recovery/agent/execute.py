"""Performs the one effect of a decision, and writes down what came of it.

Order is everything here: what is about to be done is on the record before it is done, and
the intent is the last write before the call, so that few crashes are ambiguous.
"""

from __future__ import annotations

import contextlib
import logging
import random
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar

from recovery.agent.observe import LONGEST_REFUSAL, Observer, World
from recovery.decide import budget
from recovery.decide.brakes import BY_GROUP, first_reason
from recovery.decide.drain import TELLING, counted
from recovery.decide.endings import hand_over
from recovery.decide.history import note
from recovery.decide.ladder import may_submit
from recovery.decide.marks import mark_patch, out_of_service_patch, unmark_patch
from recovery.decide.queue import waiting
from recovery.decide.situation import (
    Cancel,
    ClaimReplacement,
    CreateJob,
    Decision,
    Evict,
    Finish,
    FreeSlot,
    Join,
    Lease,
    Mark,
    OutOfService,
    RestoreSlot,
    Situation,
    Submit,
    TakeSlot,
    Tell,
    TellPods,
    Unmark,
    WriteRecord,
    hold,
    wait,
)
from recovery.decide.validation import job_of
from recovery.errors import (
    Ambiguous,
    ApiError,
    ApiUnavailable,
    Conflict,
    NotFound,
    Refused,
    Retry,
)
from recovery.kube.provider_objects import answers
from recovery.model import (
    OUT_OF_SERVICE,
    ClusterDelete,
    Intent,
    IntentState,
    Marks,
    PodView,
    Preflight,
    Record,
    Reference,
    Step,
)
from recovery.provider.protocol import Canceller, Finisher
from recovery.report.publish import Notice, Publisher

log = logging.getLogger(__name__)

Some = TypeVar("Some")

SUBMIT_WITHIN = 10.0
DOING = {
    Step.REBOOT: "Rebooting",
    Step.REIMAGE: "Reimaging",
    Step.REDEPLOY: "Redeploying",
    Step.REPLACE: "Replacing",
}
"""The Event's reason, before it is asked for."""
LONGEST_CANCEL = timedelta(minutes=5)
"""After a step's deadline: how long it is tried to call off what nobody has carried out."""
CREATE_AGAIN = timedelta(seconds=15)
LONGEST_PASS = 10.0
"""Seconds after which a pass over a node's pods is broken off, to see whether it may go on: there may be a
pause or the brake, and the Lease is to be renewed."""
FIRST_BACK_OFF, WORST_BACK_OFF = 0.15, 5.0


@dataclass(frozen=True)
class Done:
    """An effect carried out: what to tell, and the sentence if it differs from the decision's."""

    sentence: str = ""
    tell: Tell | None = None


class Executor:
    """Does what was decided. One method per effect."""

    def __init__(self, world: World, observer: Observer, publisher: Publisher) -> None:
        self._w = world
        self._observer = observer
        self._publisher = publisher
        self._conflicts: dict[str, int] = {}
        self._chance = random.Random()  # noqa: S311 - jitter

    def perform(self, s: Situation, d: Decision, again: Callable[[], Situation]) -> Decision:
        """Carry out ``d``. Returns it, or a wait that says why not. ``again`` re-reads the world."""
        lease = self._lease_for(s, d)
        if lease is not None and not lease.mine:
            return wait(f"another agent works on this node ({lease.holder})", key="lease")
        try:
            done = self._do(s, d, again)
        except Conflict:
            return wait("somebody else wrote first: looking again", self._back_off(s.node_name), "conflict")
        self._conflicts.pop(s.node_name, None)
        if isinstance(done, Decision):
            return done
        tell = done.tell or d.tell
        if tell is not None:
            self._tell(s, done.sentence or d.reason, tell)
        return replace(d, reason=done.sentence or d.reason, tell=tell)

    def _back_off(self, node: str) -> timedelta:
        """Exponential with full jitter, up to 5 s."""
        lost = self._conflicts[node] = self._conflicts.get(node, 0) + 1
        most = min(WORST_BACK_OFF, FIRST_BACK_OFF * 2**lost)
        return timedelta(seconds=self._chance.uniform(0.01, most))

    def _lease_for(self, s: Situation, d: Decision) -> Lease | None:
        """Whatever is written under a record is written under its Lease; the gate guards itself."""
        if isinstance(d.effect, FreeSlot):
            return None
        return self._w.leases.hold(s.node_name, s.role)

    def _tell(self, s: Situation, sentence: str, tell: Tell) -> None:
        uid = s.node.uid if s.node else (s.record.node_uid if s.record else "")
        now = self._w.cluster.time.now()
        self._publisher.event(Notice(s.node_name, uid, tell.event, sentence, tell.warning, now))
        if tell.outcome:
            provider = s.provider.name if s.provider else (s.record.machine.provider if s.record else "")
            self._publisher.outcome(provider, tell.action, tell.outcome, now)

    def _do(self, s: Situation, d: Decision, again: Callable[[], Situation]) -> Done | Decision:
        effect = d.effect
        match effect:
            case WriteRecord(record):
                written = self._w.records.write(record)
                if not written.phase.open:
                    self._w.leases.release(s.node_name)
                    self._observer.forget(s.node_name)
            case Join() | TakeSlot() | RestoreSlot() | FreeSlot() | ClaimReplacement():
                return self._swap_gate(s, effect)
            case Mark(marks):
                self._mark(s, marks)
            case Unmark():
                self._unmark(s)
            case TellPods(pods):
                return self._tell_pods(s, pods)
            case Evict(groups):
                return self._evict(s, groups)
            case Finish():
                return self._finish(s)
            case Cancel():
                return self._cancel(s)
            case OutOfService(on):
                return self._out_of_service(s, on)
            case CreateJob(cron_job, name, within):
                return self._create_job(s, cron_job, name, within)
            case Submit(action):
                return Submission(self._w, self._publisher, s, action, again).run()
        return Done()

    # ------------------------------------------------------------ the gate

    def _swap_gate(self, s: Situation, effect: Any) -> Done | Decision:
        """Who was too late, and would do the same on the gate as it is now, tries once more at once."""
        try:
            return self._swap_once(s, effect)
        except Conflict:
            if not isinstance(effect, TakeSlot | FreeSlot):
                raise
            s = replace(s, gate=self._w.gates.read())
            if isinstance(effect, TakeSlot):
                assert s.record is not None
                effect = waiting(s, s.record).effect
            if not isinstance(effect, TakeSlot | FreeSlot):
                raise
            return self._swap_once(s, effect)

    def _swap_once(self, s: Situation, effect: Any) -> Done | Decision:
        now = self._w.cluster.time.now()
        gate = s.gate
        if isinstance(effect, FreeSlot):
            gate = self._w.gates.read()
            if self._open_again(s.node_name, effect.record_uid):
                return wait(f"the record of {s.node_name} is not closed: its place stays", key="conflict")
        if gate is None:
            gate = self._w.gates.ready(gate, now)
        if isinstance(effect, Join):
            changed = budget.join(gate, s.node_name, effect.record_uid, now)
        elif isinstance(effect, TakeSlot):
            changed = budget.grant(gate, effect.slot, effect.start, s.census)
        elif isinstance(effect, RestoreSlot):
            changed = budget.restore(gate, effect.slot)
        elif isinstance(effect, FreeSlot):
            changed = budget.free(gate, s.node_name, effect.record_uid)
        else:
            changed = budget.claim(gate, effect.machine, effect.instead_of)
        if changed is not gate:
            self._w.gates.write(changed)
        return Done()

    def _open_again(self, node: str, uid: str) -> bool:
        """Read after the gate that is swapped: the fault may have come back since the record was closed."""
        record = self._w.records.read(node)
        return record is None or (record.uid == uid and record.phase.open)

    def share_census(self, s: Situation, age: timedelta) -> None:
        """Leave a count on the gate where the one there is older by ``age``: the others need not count."""
        if s.gate is None or s.census is None:
            return
        if s.gate.census is not None and s.census.at - s.gate.census.at < age:
            return
        with contextlib.suppress(ApiError):
            self._w.gates.write(replace(s.gate, census=s.census))

    # ------------------------------------------------------------ marks

    def _mark(self, s: Situation, marks: Marks) -> None:
        """One patch under the resourceVersion that was weighed; then the record says so."""
        assert s.node is not None
        assert s.record is not None
        if (patch := mark_patch(s.node, marks)) is not None:
            self._w.cluster.patch_node(s.node_name, patch)
        now = self._w.cluster.time.now()
        r = s.record
        self._w.records.write(replace(r, marks=marks, rung_since=r.rung_since or now))

    def _unmark(self, s: Situation) -> None:
        """Only what is ours: the taint with our key, and the cordon that bears our annotation (law 5)."""
        assert s.node is not None
        assert s.record is not None
        if (patch := unmark_patch(s.node)) is not None:
            self._w.cluster.patch_node(s.node_name, patch)
        self._w.records.write(replace(s.record, marks=Marks()))

    # ------------------------------------------------------------ drain

    def _tell_pods(self, s: Situation, pods: Iterable[tuple[PodView, Mapping[str, str]]]) -> Done:
        """Whether they could be told or not, they have their time."""
        memory, untold = self._observer.memory(s.node_name), ""
        for pod, notes in self._for_a_while(pods):
            problem = ""
            try:
                self._w.cluster.annotate_pod(pod, notes)
            except (NotFound, Conflict):
                pass  # it is gone, or another pod has its name
            except ApiError as error:
                problem = error.reason
                untold = untold or f"{pod} could not be told that it will be evicted: {problem}"
            # Whatever came of it: a pod whose annotations somebody takes off is not told in a loop.
            pause = LONGEST_REFUSAL if problem else None
            memory.refuse(f"{TELLING}{pod}", problem or "told", self._w.clock.monotonic(), pause)
        return Done(untold, Tell("PodsUntold", warning=True)) if untold else Done()

    def _evict(self, s: Situation, groups: Iterable[Sequence[PodView]]) -> Done:
        """One pass. A refusal is remembered, so that the next pass asks for others first; what is refused
        again and again is no news."""
        asked = refused = 0
        for group in self._for_a_while(groups):
            asked += len(group)
            try:
                # Half a workload is worth nothing, and costs the other half's progress: all may go, or none.
                if len(group) > 1 and any(self._refuses(s, pod, only_ask=True) for pod in group):
                    refused += len(group)
                    continue
                refused += sum(self._refuses(s, pod) for pod in group)
            except ApiUnavailable as error:  # look up before the next
                return Done(f"the eviction of {group[0]} was not answered: {error.reason}")
        told = f"asked for the eviction of {counted(asked)}"
        news = Tell("Draining") if refused < asked else None
        return Done(f"{told}, {refused} may not go yet" if refused else told, news)

    def _for_a_while(self, items: Iterable[Some]) -> Iterable[Some]:
        """At least one of ``items``. What is left over is decided anew."""
        began = self._w.clock.monotonic()
        for item in items:
            yield item
            if self._w.clock.monotonic() - began >= LONGEST_PASS:
                return

    def _refuses(self, s: Situation, pod: PodView, *, only_ask: bool = False) -> bool:
        """Ask for one pod. Whether it may not go; raises ``ApiUnavailable``."""
        memory, now = self._observer.memory(s.node_name), self._w.clock.monotonic()
        if not only_ask and s.evictions_free is not None:
            memory.evicted.append(now)
        try:
            self._w.cluster.evict(pod, only_ask=only_ask)
        except (NotFound, Conflict) as error:  # it is gone, or another pod has its name; or a webhook says so
            memory.refuse(str(pod), error.reason, now)
            return False
        except ApiUnavailable as error:
            memory.refuse(str(pod), error.reason, now)
            raise
        except ApiError as error:
            memory.refuse(str(pod), error.reason, now, error.retry_after)
            return True
        if not only_ask:
            memory.refused.pop(str(pod), None)
        return False

    # ------------------------------------------------------------ an action's second step

    def _finish(self, s: Situation) -> Done | Decision:
        """What is left of an action, by whoever holds the Lease. The way back is never braked (law 8)."""
        assert s.record is not None
        assert s.record.intent is not None
        r, intent = s.record, s.record.intent
        provider = self._w.providers.get(r.machine.provider)
        assert isinstance(provider, Finisher)  # it said that something is unfinished
        try:
            provider.finish(r.machine, intent.reference)
        except Retry as error:
            return wait(f"{intent.action}: {error.reason}", error.after, "finish")
        except Refused as error:
            over = hand_over(s, r, error.reason, outcome="refused")
            self._do(s, over, lambda: s)
            return Done(over.reason, over.tell)
        asked = f"asked {provider.name} for what was left of {intent.action}"
        self._w.records.write(note(r, self._w.cluster.time.now(), "finished", asked))
        return Done()

    def _cancel(self, s: Situation) -> Done | Decision:
        """Whether it could be taken back or not is written down: what is given up is not waited for."""
        assert s.record is not None
        assert s.record.intent is not None
        r, intent = s.record, s.record.intent
        provider = self._w.providers.get(r.machine.provider)
        assert isinstance(provider, Canceller)  # decided on it
        what = f"{intent.action} of {r.machine.id}"
        told = f"{what} was called off"
        # As it is now, where it is the same one: its Node may say more than when it was asked for.
        machine = s.machine if s.machine is not None and s.machine.id == r.machine.id else r.machine
        rung = r.step
        late = rung is not None and s.now >= (r.rung_since or intent.at) + rung.within + LONGEST_CANCEL
        try:
            provider.cancel(machine, intent.reference)
        except (Retry, Refused) as error:
            if isinstance(error, Retry) and not late:
                return wait(f"{what} is not called off yet: {error.reason}", error.after, "cancel")
            told = f"{what} could not be called off, and may still come: {error.reason}"
        written = note(r, self._w.cluster.time.now(), "calledOff", told)
        # On a closed record the sentence is the person's, who reads it until the node is taken.
        self._w.records.write(written if r.phase.open else replace(written, sentence=r.sentence))
        return Done(told, Tell("CalledOff", warning=True))

    # ------------------------------------------------------------ the way back

    def _out_of_service(self, s: Situation, on: bool) -> Done:
        """Where it may not be put on, the recovery goes on without, and it is tried again later."""
        assert s.node is not None
        assert s.record is not None
        if (patch := out_of_service_patch(s.node, on)) is not None:
            try:
                self._w.cluster.patch_node(s.node_name, patch)
            except (ApiUnavailable, Conflict):
                raise
            except ApiError as error:
                if not on:
                    raise
                memory, now = self._observer.memory(s.node_name), self._w.clock.monotonic()
                memory.refuse(OUT_OF_SERVICE, error.reason, now, LONGEST_REFUSAL)
                why = f"the taint {OUT_OF_SERVICE} was not set, so its stuck pods stay: {error.reason}"
                return Done(f"{s.node_name}: {why}")
        self._w.records.write(replace(s.record, marks=replace(s.record.marks, out_of_service=on)))
        return Done()

    def _create_job(self, s: Situation, cron_job: str, name: str, within: timedelta) -> Done | Decision:
        """What cannot be made is said until it is late."""
        memory = self._observer.memory(s.node_name)
        try:
            found = self._w.cluster.get_cron_job(cron_job)
            self._w.cluster.create_job(job_of(found, name, s.node_name, within.total_seconds()))
        except (ApiUnavailable, Conflict):  # it may be there: look again
            raise
        except ApiError as error:
            memory.job_problem = f"no Job was made of CronJob {cron_job}: {error.reason}"
            memory.job_again = self._w.clock.monotonic() + CREATE_AGAIN.total_seconds()
            return hold(memory.job_problem, CREATE_AGAIN, "validation")
        memory.job_problem = ""
        return Done()


class Submission:
    """The one destructive effect, in its order: preflight, tell, read again, intent, call, outcome."""

    def __init__(
        self, world: World, publisher: Publisher, s: Situation, action: Step, again: Callable[[], Situation]
    ) -> None:
        assert s.record is not None
        assert s.machine is not None
        self._w = world
        self._publisher = publisher
        self._s = s
        self._r: Record = s.record
        self._action = action
        self._again = again
        self._provider = world.providers.get(s.machine.provider)

    def run(self) -> Done | Decision:
        preflight = self._s.preflight
        assert preflight is not None  # decided on it
        if preflight.adopt:
            return self._adopt(preflight)
        self._announce()
        fresh = self._again()
        if why := may_submit(fresh):
            return hold(f"{self._action.value} is not asked for: {why}", key="volatile")
        assert fresh.record is not None
        assert fresh.preflight is not None or fresh.preflight_refused or fresh.preflight_retry
        if fresh.preflight is None:
            why = fresh.preflight_refused or fresh.preflight_retry
            return wait(f"{self._action.value} is not asked for: {why}", key="preflight")
        if fresh.preflight.adopt:
            self._r = fresh.record
            return self._adopt(fresh.preflight)
        if self._action is Step.REPLACE and (found := first_reason(BY_GROUP, fresh)):
            return hold(f"{self._action.value} is not asked for: {found[1]}", key=found[0])
        self._r = fresh.record
        began = self._w.clock.boottime()
        self._intend(fresh.preflight)
        if self._w.clock.boottime() - began > SUBMIT_WITHIN:
            return self._settle(
                IntentState.ABANDONED,
                "abandoned",
                f"{self._action.value} was not asked for: too late after its intent",
            )
        return self._call()

    def _announce(self) -> None:
        """Publish before what removes this very node is done, for at most five seconds (law 9)."""
        faults = ", ".join(f.reason for f in self._r.faults)
        sentence = (
            f"{self._action.value} of {self._r.machine.id} is asked of {self._provider.name} now: {faults}"
        )
        now = self._w.cluster.time.now()
        uid = self._s.node.uid if self._s.node else ""
        self._publisher.event(Notice(self._r.node, uid, DOING[self._action], sentence, True, now))
        for fault in self._r.faults:
            self._publisher.fault(fault.reason, now)
        self._publisher.outcome(self._provider.name, self._action.value, "started", now)
        if not self._publisher.flush():
            log.warning("%s: telling takes long; going on without waiting", self._r.node)

    def _intend(self, preflight: Preflight) -> None:
        now = self._w.cluster.time.now()
        attempt = self._r.attempt + 1
        intent = Intent(
            action=self._action.value,
            attempt=attempt,
            token=uuid.uuid4().hex[:12],
            at=now,
            machine=self._r.machine.id,
            boot_id=self._r.boot_id,
            reference=preflight.reference,
            submit_within=SUBMIT_WITHIN,
            call_timeout=self._provider.call_timeout,
        )
        changed = replace(self._r, attempt=attempt, intent=intent, rung_since=self._r.rung_since or now)
        sentence = f"about to ask {self._provider.name} to {self._action.value} {self._r.machine.id}"
        self._r = self._w.records.write(note(changed, now, "intent", sentence))

    def _call(self) -> Done:
        assert self._s.machine is not None
        assert self._r.intent is not None
        what = f"{self._action.value} of {self._r.machine.id}"
        try:
            begun = self._provider.start(
                self._s.machine, self._action, self._r.intent.token, self._r.intent.reference
            )
            if isinstance(begun, ClusterDelete):
                self._delete(begun)
        except Ambiguous as error:
            return self._settle(
                IntentState.AMBIGUOUS, "ambiguous", f"{what}: the answer was lost, observing: {error.reason}"
            )
        except Retry as error:
            return self._settle(IntentState.ABANDONED, "notYet", f"{what}: not yet: {error.reason}")
        except Refused as error:
            return self._settle(IntentState.REFUSED, "refused", error.reason)
        if isinstance(begun, Reference):
            self._r = replace(self._r, intent=replace(self._r.intent, reference=begun))
        done = self._settle(
            IntentState.SUBMITTED, "submitted", f"{what} was accepted by {self._provider.name}"
        )
        return replace(done, tell=Tell("Submitted", warning=True))

    def _delete(self, route: ClusterDelete) -> None:
        """A delete through the API server, with the same three answers as a provider's call."""
        granted = "; what an agent may delete is granted by deploy/rbac"
        with answers(f"{route.name} was not deleted", granted):
            try:
                self._w.cluster.delete(route)
            except NotFound:
                return
            except Conflict:
                raise Refused(f"{route.name} is another object now: nothing was deleted") from None

    def _adopt(self, preflight: Preflight) -> Done:
        """Somebody else's call is under way: follow it as if it were ours, and call nothing."""
        self._intend(preflight)
        return self._settle(IntentState.SUBMITTED, "adopted", f"{preflight.adopt}; nothing more is asked for")

    def _settle(self, state: IntentState, event: str, sentence: str) -> Done:
        """Write the outcome. If that fails, the intent stays as written, and is observed from then on."""
        assert self._r.intent is not None
        now = self._w.cluster.time.now()
        changed = replace(note(self._r, now, event, sentence), intent=replace(self._r.intent, state=state))
        self._w.records.write(changed)
        return Done(sentence, Tell(event[0].upper() + event[1:], warning=state is not IntentState.SUBMITTED))
