"""Carries out the one effect of a decision, and writes down what came of it.

What is asked of a provider is on the record before it is asked, and the outcome is written afterwards. So
whoever goes on after a crash knows what to look for. Marks are seen on the Node itself.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from recovery.agent import bugs
from recovery.agent.backoff import doubled
from recovery.agent.desk import CHANGED, Ask, Wish, needs_slot, slot_stays
from recovery.agent.evict import Evictions
from recovery.agent.memory import LAST_READS, LONGEST_REFUSAL
from recovery.agent.observe import Observer
from recovery.agent.submit import SLOW, SLOW_READS, Again, Performed, Submission
from recovery.agent.take_back import TakingBack, taken_back
from recovery.agent.world import World
from recovery.decide.decision import (
    REPEAT,
    SELDOM,
    SOON,
    Cancel,
    ClaimReplacement,
    CreateJob,
    Decision,
    Disown,
    EventReason,
    Evict,
    Finish,
    FreeSlot,
    GateEffect,
    Join,
    Mark,
    OutOfService,
    RemoveRecord,
    Report,
    RestoreSlot,
    Submit,
    TakeBack,
    TakeSlot,
    TellPods,
    Unmark,
    WriteRecord,
    hold,
    wait,
)
from recovery.decide.history import HistoryEvent, note
from recovery.decide.marks import (
    CORDON,
    OUR_MARKS,
    disown_patch,
    mark_patch,
    not_on,
    out_of_service_patch,
    unmark_patch,
)
from recovery.decide.on_gate import STARTING, changed
from recovery.decide.situation import Situation
from recovery.decide.validation import job_of
from recovery.errors import (
    ApiError,
    ApiUnavailable,
    Conflict,
    GateTooLarge,
    NotFound,
    Refused,
    Retry,
    TooManyRequests,
    Undecodable,
)
from recovery.model import OUT_OF_SERVICE, Cause, Marks, Phase, Record, Taint
from recovery.provider.protocol import Cancellable, Resumable
from recovery.quick import replace
from recovery.report.notice import About, Notice
from recovery.report.publish import Publisher

CREATE_AGAIN = timedelta(seconds=15)
FIRST_BACK_OFF, WORST_BACK_OFF = 0.15, 5.0
CONFLICT = "409 Conflict: another agent wrote first; reading it again"


HARMFUL = Mark | TellPods | Evict | OutOfService
"""What a pause has to stop, besides ``Submit``, which makes its last reads by itself."""
PATCHES = Mark | OutOfService
"""One patch of the Node that names the version it was decided on. However long ago that was read: if the Node
has changed since, the API server refuses the patch."""
STARTS = TakeSlot
"""What begins a recovery. A watch tells of an exclusion at once, so only a long look is too old."""
CALLS = Finish | Cancel | TakeBack
"""What else is asked of the provider. No pause stops it; but it goes by the record as it is now."""


def proves(d: Decision) -> bool:
    """Whether ``d`` closes a record as recovered. A watch may have told nothing since the machine ended, so
    what proves is read again from the API server, once for each recovery (law 11)."""
    return isinstance(d.effect, WriteRecord) and d.effect.record.phase is Phase.RECOVERED


class Executor:
    """Carries out decisions, with a method for each effect."""

    def __init__(self, world: World, observer: Observer, publisher: Publisher) -> None:
        self._w = world
        self._observer = observer
        self._publisher = publisher
        self._evictions = Evictions(world, observer)
        self._conflicts: dict[str, int] = {}
        self._chance = random.Random()  # noqa: S311 - jitter

    def perform(
        self, s: Situation, d: Decision, again: Again, ask: Ask, wish: Wish | None = None
    ) -> Decision:
        """Carry out ``d``. Returns it, or a wait that says why not.

        ``again`` reads the world once more; ``ask`` is the function that made ``d``. ``wish``: it was handed
        in before, and is done.
        """
        if wish is None and (others := self._not_ours(s, d)):
            return others
        if wish is None:
            found = self._by_fresh_reads(s, d, again, ask)
            if isinstance(found, Decision):
                return found
            s, d = found
            if waits := self._stored_at_last(s, d):
                return waits
        try:
            done = self._do(s, d, again, ask, wish)
        except Conflict:
            return wait(CONFLICT, self._back_off(s.node_name), "conflict")
        except GateTooLarge as error:
            return hold(f"{d.reason}; but nothing is started: {error.reason}", SELDOM, "gate-size")
        self._conflicts.pop(s.node_name, None)
        return done if isinstance(done, Decision) else self._told(s, d, done)

    def _by_fresh_reads(
        self, s: Situation, d: Decision, again: Again, ask: Ask
    ) -> tuple[Situation, Decision] | Decision:
        """``s`` and ``d`` by reads that are fresh enough for what ``d`` does; or what is decided instead."""
        if proves(d):
            s = again(None)
            now = ask(s)
            if not proves(now):
                return now if now.effect is None else wait(CHANGED, SOON, "conflict")
            d = now
        for _ in range(SLOW_READS):
            if not self.goes_by_old_reads(s, d):
                return s, d
            s = again(s)
            now = ask(s)
            if now.effect is None:
                return now
            if type(now.effect) is not type(d.effect):
                return wait(CHANGED, SOON, "conflict")
            d = now
        if isinstance(d.effect, HARMFUL | STARTS) and self.read_long_ago(s, d):
            return hold(f"nothing is done to {s.node_name}: {SLOW}", key="slow", held=Cause.API)
        return s, d

    def _told(self, s: Situation, d: Decision, done: Performed) -> Decision:
        """``d``, which was carried out, with what came of it; people are told."""
        if d.before is not None and done.sentence:
            d = d.before  # only that was done: the rest was refused
        elif d.before is not None and d.before.report is not None:
            self._publish(s, d.before.reason, d.before.report)
        report = done.report or d.report
        if report is not None:
            self._publish(s, done.sentence or d.reason, report)
        return replace(d, reason=done.sentence or d.reason, report=report)

    def goes_by_old_reads(self, s: Situation, d: Decision) -> bool:
        """Whether all has to be read again before ``d`` is carried out."""
        return isinstance(d.effect, HARMFUL | STARTS | CALLS) and self.read_long_ago(s, d)

    def read_long_ago(self, s: Situation, d: Decision) -> bool:
        """Whether what ``d`` goes by was read long ago: a pause may have been set meanwhile."""
        if isinstance(d.effect, STARTS):
            return self._observer.look_takes(s.node_name) > LAST_READS
        return self._observer.looked_for(s.node_name, ours=isinstance(d.effect, PATCHES)) > LAST_READS

    def _stored_at_last(self, s: Situation, d: Decision) -> Decision | None:
        """A wait, where the record had to be written once more before ``d``. While its CRD is older than this
        program, a part of it is lost at each write, and nothing harmful is done: raises ``Dropped``."""
        if s.record is None or not isinstance(d.effect, HARMFUL | STARTS | Submit):
            return None
        try:
            return wait(CHANGED, SOON, "conflict") if self._w.records.stored_at_last(s.record) else None
        except Conflict:
            return wait(CONFLICT, self._back_off(s.node_name), "conflict")

    def _back_off(self, node: str) -> timedelta:
        """How long to wait after a lost race: exponential with full jitter, up to 5 s."""
        lost = self._conflicts[node] = self._conflicts.get(node, 0) + 1
        most = doubled(FIRST_BACK_OFF, lost, WORST_BACK_OFF)
        return timedelta(seconds=self._chance.uniform(0.01, most))

    def _not_ours(self, s: Situation, d: Decision) -> Decision | None:
        """A wait, where the record's Lease is another's. Freeing a slot and removing a closed record need
        none: a resourceVersion guards them."""
        if isinstance(d.effect, FreeSlot | RemoveRecord):
            return None
        lease = self._w.leases.hold(s.node_name, s.role)
        return None if lease.mine else wait(f"another agent works on this node ({lease.holder})", key="lease")

    def _publish(self, s: Situation, sentence: str, report: Report) -> None:
        uid = s.node.uid if s.node else (s.record.node_uid if s.record else "")
        now = self._w.cluster.time.now()
        about = About.of(s.record)
        self._publisher.event(
            Notice(s.node_name, uid, report.event.value, sentence, report.warning, now, about=about)
        )
        if report.outcome:
            provider = s.provider.name if s.provider else (s.record.machine.provider if s.record else "")
            self._publisher.outcome(provider, report.action, report.outcome, now)

    def _do(
        self, s: Situation, d: Decision, again: Again, ask: Ask, wish: Wish | None
    ) -> Performed | Decision:
        effect = d.effect
        match effect:
            case WriteRecord(record):
                return self._write(s, record)
            case RemoveRecord():
                return self._remove(s)
            case Join() | TakeSlot() | RestoreSlot() | FreeSlot() | ClaimReplacement():
                return self._change_gate(s, effect, ask, wish)
            case Mark() | Unmark() | Disown() | OutOfService():
                return self._change_node(s, effect)
            case TellPods(pods):
                return self._evictions.annotate(s, pods)
            case Evict(groups):
                return self._evictions.ask(s, groups)
            case CreateJob(cron_job, name, within):
                return self._create_job(s, cron_job, name, within)
            case Submit(action):
                memory = self._observer.memory(s.node_name)
                return Submission(self._w, self._publisher, s, action, again, memory).run()
            case Finish():
                return self._finish(s)
            case Cancel(last_try):
                return self._cancel(s, last_try)
            case TakeBack():
                return TakingBack(self._w, self._observer, s).run()
        return Performed()

    def _write(self, s: Situation, record: Record) -> Performed:
        """Write the record. A closed one needs no Lease, and what was remembered of the node is dropped."""
        written = self._w.records.write(record)
        if s.record is not None:
            self._publisher.closed(s.record, written)
            if written.starts[-1:] != s.record.starts[-1:]:
                self._w.past.started(written)
        if not written.phase.open:
            self._w.leases.release(s.node_name)
            self._observer.forget(s.node_name)
        return Performed()

    def _remove(self, s: Situation) -> Performed | Decision:
        """Remove the closed record, unless it has changed since it was read."""
        assert s.record is not None
        try:
            self._w.records.remove(s.record)
        except NotFound:
            pass
        except (Conflict, ApiUnavailable):
            raise
        except ApiError as error:  # the rights of an older version do not have it
            return hold(f"{s.node_name}: its old record stays: {error.reason}", REPEAT, "record-stays")
        self._observer.forget(s.node_name)
        return Performed()

    # ------------------------------------------------------------ the gate

    def hand_in(self, s: Situation, d: Decision, ask: Ask) -> Wish | Decision:
        """Hand in at the desk of this process what ``d`` does to the gate; or a wait that says why not. Once
        it is done, ``perform`` says what came of it."""
        assert self._w.desk is not None
        assert isinstance(d.effect, GateEffect)
        return self._not_ours(s, d) or self._stored_at_last(s, d) or self._handed_in(s, d.effect, ask)

    def _handed_in(self, s: Situation, effect: GateEffect, ask: Ask) -> Wish:
        assert self._w.desk is not None
        looked = self._w.clock.monotonic() - self._observer.look_takes(s.node_name)
        return self._w.desk.hand_in(s, effect, ask, looked if isinstance(effect, STARTS) else None)

    def _change_gate(
        self, s: Situation, effect: GateEffect, ask: Ask, wish: Wish | None
    ) -> Performed | Decision:
        if self._w.desk is None:
            return self._swap_gate(s, effect, ask)
        return self._w.desk.carry_out(wish or self._handed_in(s, effect, ask)) or Performed()

    def _swap_gate(self, s: Situation, effect: GateEffect, ask: Ask) -> Performed | Decision:
        """Swap the gate. After a conflict, a slot is taken or freed, or a new machine claimed, at once on the
        new gate if that is still due: the cloud was asked since the gate was read, and that takes long."""
        try:
            return self._swap_once(s, effect)
        except Conflict:
            if isinstance(effect, TakeSlot | ClaimReplacement):
                s, effect = self._on_the_new_gate(s, effect, ask)
            elif not isinstance(effect, FreeSlot):
                raise
            return self._swap_once(s, effect)

    def _on_the_new_gate(
        self, s: Situation, due: TakeSlot | ClaimReplacement, ask: Ask
    ) -> tuple[Situation, GateEffect]:
        """To do what is ``due`` on the gate as it is now. Raises ``Conflict`` where that is not decided on
        it. A machine is claimed only if it is the same one, as that was said."""
        s = replace(s, gate=self._w.gates.read())
        if isinstance(due, TakeSlot) and self._observer.look_takes(s.node_name) > LAST_READS:
            raise Conflict(CHANGED)
        found = ask(s).effect
        if isinstance(found, TakeSlot) and isinstance(due, TakeSlot):
            return s, found
        if isinstance(found, ClaimReplacement) and found == due:
            return s, found
        raise Conflict(CHANGED)

    def _swap_once(self, s: Situation, effect: GateEffect) -> Performed | Decision:
        now = self._w.cluster.time.now()
        gate = s.gate
        if isinstance(effect, FreeSlot):
            self._w.cluster.forget_record(s.node_name)
            gate = self._w.gates.read()  # the swap is refused if it has changed since
            if needs_slot(self._w.records.read(s.node_name), effect.record_uid):
                return slot_stays(s.node_name)
        if gate is None:
            gate = self._w.gates.ready(gate, now)
        new = changed(gate, effect, s, now)
        if new is not gate:
            starting = isinstance(effect, STARTING)
            (self._w.gates.write if starting else self._w.gates.write_in_any_case)(new)
        return Performed()

    def share_census(self, s: Situation, age: timedelta) -> None:
        """Put our census on the gate if the one there is older by ``age``, so that others need not count."""
        if s.gate is None or s.census is None:
            return
        if self._w.desk is not None:
            self._w.desk.share(s.census, age)
        elif s.gate.census is None or s.census.at - s.gate.census.at >= age:
            with contextlib.suppress(ApiError, GateTooLarge, Undecodable):
                self._w.gates.write(replace(s.gate, census=s.census))

    # ------------------------------------------------------------ the Node: cordon and taints

    def _change_node(self, s: Situation, effect: Mark | Unmark | Disown | OutOfService) -> Performed:
        match effect:
            case Mark(marks, then):
                return self._mark(s, marks, then)
            case Unmark():
                return self._unmark(s)
            case Disown(taints):
                return self._disown(s, taints)
            case OutOfService(on):
                return self._out_of_service(s, on)

    def _mark(self, s: Situation, marks: Marks, then: Record | None) -> Performed:
        """One patch of the Node, with the resourceVersion it was decided on; then the record says so.

        Where it is refused with a taint that the remedy names, the recovery goes on without that one.
        """
        assert s.node is not None
        assert s.record is not None
        if (patch := mark_patch(s.node, marks)) is not None:
            new = list(map(str, not_on(s.node, marks.taints)))
            at_first = s.record.phase is Phase.RECOVERING and not s.record.in_flight
            cordon = [CORDON] if at_first else []
            if refused := self._refused(s, patch, new or cordon, cordon):
                return refused
        now = self._w.cluster.time.now()
        r = s.record
        return self._write(s, then or replace(r, marks=marks, rung_since=r.rung_since or now))

    def _unmark(self, s: Situation) -> Performed:
        """Only what is ours: the taint with our key, and what our annotations name (law 5).

        The record first: those that only the Node has are seen there to be ours. Those that only the record
        has were taken off by somebody, and a recovery whose fault comes back would be held for that.
        """
        assert s.node is not None
        assert s.record is not None
        if s.record.marks:
            self._w.records.write(replace(s.record, marks=Marks()))
        patch = unmark_patch(s.node)
        if patch is not None and (refused := self._refused(s, patch, [OUR_MARKS], [OUR_MARKS])):
            return replace(refused, report=Report(EventReason.HELD, warning=True))
        return Performed()

    def _out_of_service(self, s: Situation, on: bool) -> Performed:
        """Set or remove the taint. If it may not be set, the recovery goes on and tries again later."""
        assert s.node is not None
        assert s.record is not None
        patch = out_of_service_patch(s.node, on)
        if patch and (refused := self._refused(s, patch, [OUT_OF_SERVICE] if on else [])):
            return refused
        self._w.records.write(replace(s.record, marks=replace(s.record.marks, out_of_service=on)))
        return Performed()

    def _disown(self, s: Situation, taints: tuple[Taint, ...]) -> Performed:
        assert s.node is not None
        assert s.record is not None
        if (patch := disown_patch(s.node, taints)) is not None:
            self._w.cluster.patch_node(s.node_name, patch)
        marks = s.record.marks
        left = tuple(t for t in marks.taints if t not in taints)
        self._w.records.write(replace(s.record, marks=replace(marks, taints=left)))
        return Performed()

    def _refused(
        self, s: Situation, patch: dict[str, Any], what: Sequence[str], failing: Sequence[str] = ()
    ) -> Performed | None:
        """Patch the Node. Where the API server says no, ``what`` is not asked for again for a while; where it
        fails on the patch, as with an admission webhook that is down, ``failing`` is not. Without them the
        error is raised. None: it was done.
        """
        try:
            self._w.cluster.patch_node(s.node_name, patch)
        except (Conflict, TooManyRequests):
            raise
        except ApiError as error:
            if failed := isinstance(error, ApiUnavailable):
                what = () if error.unanswered else failing
            if not what:
                raise
            memory, now = self._observer.memory(s.node_name), self._w.clock.monotonic()
            for each in what:
                memory.refuse(each, error.reason, now, None if failed else LONGEST_REFUSAL)
            return Performed(f"{s.node_name}: {_not_done(what)}: {error.reason}")
        return None

    # ------------------------------------------------------------ an action's second step

    def _finish(self, s: Situation) -> Performed | Decision:
        """Have the provider do what is left of the action. The way back is never braked (law 8)."""
        assert s.record is not None
        assert s.record.intent is not None
        r, intent = s.record, s.record.intent
        provider = self._w.providers.get(r.machine.provider)
        assert isinstance(provider, Resumable)  # its poll said ``Unfinished``
        memory = self._observer.memory(s.node_name)
        if (left := memory.finish_asked.left(intent.token, self._w.clock.monotonic())) > 0:
            asked = f"{intent.action}: {provider.name} was asked for what is left, and is not asked again yet"
            return wait(asked, min(timedelta(seconds=left), SELDOM), "finish")
        memory.finish_asked = memory.finish_asked.once_more(intent.token, self._w.clock.monotonic())
        try:
            provider.finish(r.machine, intent.reference)
        except Retry as error:
            again = self._w.clock.monotonic() + error.after.total_seconds()
            memory.finish_asked = memory.finish_asked.no_sooner(again)
            memory.finish_put_off = (intent.token, error.reason)
            return wait(f"{intent.action}: {error.reason}", error.after, "finish")
        except Refused as error:
            memory.finish_refused = (intent.token, error.reason)
            return wait(f"{intent.action}: {error.reason}", SOON, "finish")
        memory.finish_put_off = ("", "")
        asked = f"asked {provider.name} for what was left of {intent.action}"
        self._w.records.write(note(r, self._w.cluster.time.now(), HistoryEvent.FINISHED, asked))
        return Performed()

    def _cancel(self, s: Situation, last_try: bool) -> Performed | Decision:
        """Call off the order. The last failure is written down as well: nobody waits for it any longer."""
        assert s.record is not None
        assert s.record.intent is not None
        r, intent = s.record, s.record.intent
        provider = self._w.providers.get(r.machine.provider)
        assert isinstance(provider, Cancellable)  # the decision requires it
        what = f"{intent.action} of {r.machine.id}"
        sentence = f"{what} was called off"
        # As its Node shows it now, if it is the same one: that may say more than the record.
        machine = s.machine if s.machine is not None and s.machine.id == r.machine.id else r.machine
        proof = None
        try:
            with bugs.looking(self._w.survived, r.node, provider.name):
                proof = provider.cancel(machine, intent.reference)
        except (Retry, Refused) as error:
            if isinstance(error, Retry) and not last_try:
                return wait(f"{what} is not called off yet: {error.reason}", error.after, "cancel")
            sentence = f"{what} could not be called off, and may still come: {error.reason}"
        written = note(r, self._w.cluster.time.now(), HistoryEvent.CALLED_OFF, sentence)
        written = replace(written, progress=replace(r.progress, called_off=intent.attempt))
        written = taken_back(written, (intent,)) if proof else written
        # The sentence of a closed record stays: it is for the person who has to take the node.
        self._w.records.write(written if r.phase.open else replace(written, sentence=r.sentence))
        return Performed(sentence, Report(EventReason.CALLED_OFF, warning=True))

    # ------------------------------------------------------------ the validation Job

    def _create_job(self, s: Situation, cron_job: str, name: str, within: timedelta) -> Performed | Decision:
        """Create the validation Job. If it cannot be created, that is reported, and tried again."""
        memory = self._observer.memory(s.node_name)
        try:
            found = self._w.cluster.get_cron_job(cron_job)
            self._w.cluster.create_job(job_of(found, name, s.node_name, within.total_seconds()))
        except ApiError as error:
            if error.unanswered or isinstance(error, Conflict):  # it may have been created: look again
                raise
            memory.job_problem = f"no Job was made of CronJob {cron_job}: {error.reason}"
            memory.job_again = self._w.clock.monotonic() + CREATE_AGAIN.total_seconds()
            return hold(memory.job_problem, CREATE_AGAIN, "validation")
        memory.job_problem = ""
        return Performed()


def _not_done(what: Sequence[str]) -> str:
    if what == [CORDON]:
        return f"{CORDON} was refused"
    return f"{OUR_MARKS} do not come off" if what == [OUR_MARKS] else _not_set(what)


def _not_set(taints: Sequence[str]) -> str:
    if taints == [OUT_OF_SERVICE]:
        return f"the taint {OUT_OF_SERVICE} was not set, so its stuck pods stay"
    if len(taints) == 1:
        return f"the taint {taints[0]} was not set; the recovery goes on without it"
    return f"the taints {' and '.join(taints)} were not set; the recovery goes on without them"
