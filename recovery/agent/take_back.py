"""Has what was asked of the provider taken back, before the node goes back to service."""

from __future__ import annotations

from datetime import timedelta

from recovery.agent import bugs
from recovery.agent.memory import Asked, asked_of
from recovery.agent.observe import Observer
from recovery.agent.submit import Performed
from recovery.agent.world import World
from recovery.decide.decision import SOON, Decision, EventReason, Report, wait
from recovery.decide.history import HistoryEvent, note
from recovery.decide.situation import Situation
from recovery.decide.standing import late, standing_now, words
from recovery.errors import ApiError, Refused, Retry, SettingsError
from recovery.model import ClusterDelete, Deleting, Done, Failed, Gone, Intent, Machine, NotApplied, Record
from recovery.provider.protocol import Cancellable, TakesBack
from recovery.quick import replace

SOONEST, AGAIN = timedelta(seconds=5), timedelta(seconds=15)
"""How long a provider is not asked again that could not say: at least, and at most."""
WAY_OUT = "a new boot of the machine ends it, and so does another machine in its place"


class TakingBack:
    """One try for all that stands on one record."""

    def __init__(self, world: World, observer: Observer, s: Situation) -> None:
        assert s.record is not None
        self._w = world
        self._s = s
        self._r: Record = s.record
        self._memory = observer.memory(s.node_name)

    def run(self) -> Performed | Decision:
        asked = standing_now(self._s, self._r)
        if (left := self._memory.take_back_asked.left(asked_of(self._r), self._now())) > 0:
            return wait(f"{words(asked)} is not taken back yet", timedelta(seconds=left), "take-back")
        try:
            with bugs.looking(self._w.survived, self._s.node_name, self._r.machine.provider):
                proofs = [self._one(x) for x in asked]
        except (Refused, SettingsError) as error:
            return self._refused(f"{words(asked)} may still come: {error}")
        except Retry as error:
            return self._not_yet(asked, error)
        sentence = f"{words(asked)} is taken back: {'; '.join(proofs)}"
        self._write(taken_back(self._r, asked), sentence)
        return Performed(sentence, Report(EventReason.TAKEN_BACK, warning=True))

    def _one(self, asked: Intent) -> str:
        """What proves that this request will not be carried out. Raises ``Retry`` or ``Refused``."""
        provider = self._w.providers.get(self._r.machine.provider)
        machine = self._machine()
        if isinstance(provider, TakesBack):
            proof = provider.take_back(machine, asked.reference)
            return self._deletion(proof) if isinstance(proof, ClusterDelete) else proof
        if isinstance(provider, Cancellable) and (cancelled := provider.cancel(machine, asked.reference)):
            return cancelled
        found = provider.poll(machine, asked.reference)
        match found:
            case NotApplied(sentence) | Gone(sentence):
                return sentence
            case Failed(reason):
                return reason
            case Done(evidence):
                return evidence
            case Deleting(what):
                return self._deletion(what)
        raise Refused(f"{found.sentence}; {WAY_OUT}")

    def _machine(self) -> Machine:
        """As its Node shows it now, if it is the same one: that may say more than the record."""
        same = self._s.machine is not None and self._s.machine.id == self._r.machine.id
        return self._s.machine if same and self._s.machine is not None else self._r.machine

    def _deletion(self, what: ClusterDelete) -> str:
        try:
            deleting = self._w.cluster.deleting(what)
        except ApiError as error:
            raise Retry(f"whether {what} is being deleted cannot be seen: {error.reason}") from None
        if deleting is None:
            return f"{what} is gone"
        if deleting:
            raise Refused(
                f"{what} is being deleted, which nothing takes back: wait until its machine is gone"
            )
        return f"{what} is there, and nobody deletes it"

    def _refused(self, why: str) -> Decision:
        self._memory.take_back_refused = (asked_of(self._r), why)
        return wait(why, SOON, "take-back")

    def _not_yet(self, asked: tuple[Intent, ...], error: Retry) -> Decision:
        now = self._w.cluster.time.now()
        if late(self._r, now):
            return self._refused(f"{words(asked)} may still come: {error.reason}")
        if self._r.progress.taking_back is None:
            self._w.records.write(replace(self._r, progress=replace(self._r.progress, taking_back=now)))
        pause = min(max(error.after, SOONEST), AGAIN)
        until = self._now() + pause.total_seconds()
        self._memory.take_back_asked = Asked(asked_of(self._r), 1, until)
        return wait(f"{words(asked)} is not taken back yet: {error.reason}", pause, "take-back")

    def _now(self) -> float:
        return self._w.clock.monotonic()

    def _write(self, r: Record, sentence: str) -> None:
        """The sentence of a closed record stays: it says what is wrong with the node."""
        noted = note(r, self._w.cluster.time.now(), HistoryEvent.TAKEN_BACK, sentence)
        self._w.records.write(noted if r.phase.open else replace(noted, sentence=r.sentence))


def taken_back(r: Record, asked: tuple[Intent, ...]) -> Record:
    """``r`` without these requests: a read has proved that none of them will be carried out."""
    attempts = {x.attempt for x in asked}
    proved = tuple(sorted({*r.progress.taken_back, *attempts}))[-20:]
    left = tuple(x for x in r.progress.left if x.attempt not in attempts)
    return replace(r, progress=replace(r.progress, left=left, taken_back=proved, taking_back=None))
